// What was spent, by whom, on what; how much work requests become; what is nearly used
// up; and, beside every total, what nobody knows about it.

import { useEffect, useState } from "preact/hooks";
import { type AmplificationRow, type Budget, type Ready, type RetryRow, type Rows, type Spend, type SpendRow, address } from "./api";
import { OverTime } from "./bars";
import { BehindBudget } from "./guards";
import { useApi, useTime } from "./hooks";
import { type Route, filtersOf, href, intervalOf, lead, spendDimensions, totalPath } from "./route";
import { AsOf, Badge, Card, type Column, Count, Figure, Filters, Loaded, Meter, Name, Range, Table, USD, Unknown, ratio, share } from "./ui";

export function Overview({ route }: { route: Route }) {
  const t = useTime(route.q);
  const filters = filtersOf(route.q, spendDimensions);
  const params: Record<string, string | undefined> = { from: t.from, to: t.to, ...filters };
  const spend = useApi<Spend>(totalPath(route.q), 30000);
  // The total is asked for alone and painted as soon as it is there; the rest follows.
  const [rest, setRest] = useState(false);
  const ready = spend.data ? spend.data.total.calls !== 0 : spend.error !== undefined;
  useEffect(() => setRest(ready), [ready]);
  const by = (dimension: string) => address("/spend", { ...params, group_by: dimension, limit: 10 });
  return (
    <>
      <Range route={route} />
      <Filters route={route} key={route.q.toString()} names={spendDimensions} label="Filter spend" fold />
      <Loaded of={spend} bare>
        {(s) => (
          <>
            <p class="foot">
              <AsOf of={spend} />
            </p>
            <div class="figures">
              <Figure name="Spend, USD" big>
                <USD v={s.total.cost_usd} />
              </Figure>
              <Figure name="Calls of models and tools">
                <Count v={s.total.calls} />
              </Figure>
              <Figure name="Not in the total">
                <Unknown u={s.total} /> {!s.total.complete && <a href={href("coverage", route.q)}>what is unknown</a>}
              </Figure>
            </div>
            {s.total.calls > 0 ? (
              rest && <Over spend={s} step={intervalOf(t.hours)[1]} />
            ) : Object.keys(filters).length > 0 ? (
              <p class="empty">Nothing matches in this time. Remove a filter or choose a longer time.</p>
            ) : (
              <Quiet />
            )}
          </>
        )}
      </Loaded>
      {ready && (
        <div class="grid" aria-busy={!rest}>
          {rest && (
            <>
              <By title="By tenant" path={by("tenant")} columns={["tenant"]} route={route} />
              <By title="By model" path={by("provider,model")} columns={["model", "provider"]} route={route} />
              <By title="By feature" path={by("tenant,feature")} columns={["feature", "tenant"]} route={route} />
              <Retries path={address("/retries", { ...params, limit: 10 })} />
              <Nearest tenant={filters.tenant} />
              <Amplification path={address("/amplification", { ...params, group_by: "tenant,workflow", limit: 10 })} route={route} />
            </>
          )}
        </div>
      )}
    </>
  );
}

function Over({ spend, step }: { spend: Spend; step: number }) {
  return (
    <Card title="Spend over time, USD" wide>
      <OverTime label="Spend over time" unit="USD" rows={spend.rows} value={(r) => r.cost_usd} columns={[calls, usd, unknown]} from={spend.from} to={spend.to} step={step} />
    </Card>
  );
}

const calls: Column<SpendRow> = { head: "calls", num: true, cell: (r) => <Count v={r.calls} /> };
const usd: Column<SpendRow> = { head: "USD", num: true, cell: (r) => <USD v={r.cost_usd} /> };
const unknown: Column<SpendRow> = { head: "unknown", long: true, cell: (r) => <Unknown u={r} /> };

// linked is the first value of a row, leading to the runs or calls that have them all.
const linked = (route: Route, r: Record<string, unknown>, dimensions: string[]) => (
  <a href={lead(route, Object.fromEntries(dimensions.map((d) => [d, r[d]])))}>
    <Name v={String(r[dimensions[0]])} />
  </a>
);

function By({ title, path, columns, route }: { title: string; path: string; columns: string[]; route: Route }) {
  const a = useApi<Spend>(path, 30000);
  const first: Column<SpendRow> = { head: columns[0], cell: (r) => (columns[0] === "model" && !r.model ? <span class="muted">tools, which have none</span> : linked(route, r, columns)) };
  const rest = columns.slice(1).map((c): Column<SpendRow> => ({ head: c, cell: (r) => <Name v={String(r[c])} /> }));
  return (
    <Card title={title}>
      <Loaded of={a}>
        {(s) => (
          <>
            <Table label={title} rows={s.rows} keyOf={(r) => columns.map((c) => r[c]).join("\n")} columns={[first, ...rest, calls, usd, unknown]} empty="Nothing was spent in this time." />
            {s.truncated && <p class="note">Only the first {s.rows.length} are shown.</p>}
          </>
        )}
      </Loaded>
    </Card>
  );
}

function Nearest({ tenant }: { tenant?: string }) {
  const a = useApi<{ budgets: Budget[] }>(address("/budgets", { tenant, limit: 8 }), 15000);
  return (
    <Card title="Nearest budgets" wide>
      <Loaded of={a}>
        {(b) => (
          <>
            <Table
              label="Nearest budgets"
              rows={b.budgets}
              keyOf={(r) => r.guard + r.scope + (r.window.start ?? "")}
              empty={<>No budget has been touched yet. The policy decides which there are: <a href="#/guards">guards</a>.</>}
              columns={[
                { head: "guard", cell: (r) => <a href={href("guards", { guard: r.guard })}><Name v={r.guard} /></a> },
                { head: "scope", long: true, cell: (r) => <Name v={r.scope} /> },
                { head: "spent", num: true, cell: (r) => `${r.spend} of ${r.limit}` },
                { head: "burn", cell: (r) => <Meter value={share(r.spend, r.limit)} label={r.guard} /> },
                { head: "behind it", cell: (r) => <BehindBudget b={r} /> },
                { head: "mode", cell: (r) => <Badge kind={r.mode === "enforce" ? "good" : ""}>{r.mode}</Badge> },
              ]}
            />
          </>
        )}
      </Loaded>
    </Card>
  );
}

function Amplification({ path, route }: { path: string; route: Route }) {
  const a = useApi<Rows<AmplificationRow>>(path, 30000);
  return (
    <Card title="Amplification by workflow" note="Model and tool calls, retries, fallbacks and hedges of one user request." wide>
      <Loaded of={a}>
        {(s) => (
          <Table
            label="Amplification by workflow"
            rows={s.rows}
            keyOf={(r) => String(r.tenant) + "\n" + String(r.workflow)}
            empty="No run has called a model in this time."
            columns={[
              { head: "workflow", cell: (r) => linked(route, r, ["workflow", "tenant"]) },
              { head: "tenant", cell: (r) => <Name v={String(r.tenant)} /> },
              { head: "requests", num: true, cell: (r) => r.requests },
              { head: "ratio", num: true, cell: (r) => <strong>{ratio(r.ratio)}</strong> },
              { head: "p50 / p90 / p99", num: true, cell: (r) => `${ratio(r.p50)} / ${ratio(r.p90)} / ${ratio(r.p99)}` },
              { head: "retry ×", num: true, hint: "attempts for each intended call", cell: (r) => ratio(r.retry_multiplier) },
              { head: "cost ×", num: true, hint: "spend for each dollar that was of use", cell: (r) => ratio(r.cost_amplification) },
              { head: "wasted USD", num: true, cell: (r) => <USD v={r.wasted_usd} /> },
              { head: "USD", num: true, cell: (r) => <USD v={r.cost_usd} /> },
              { head: "unknown", long: true, cell: (r) => <Unknown u={r} /> },
            ]}
          />
        )}
      </Loaded>
    </Card>
  );
}

function Retries({ path }: { path: string }) {
  const a = useApi<Rows<RetryRow>>(path, 30000);
  return (
    <Card title="Retries" note="Who tried again, after which failure, and what that wasted.">
      <Loaded of={a}>
        {(s) => (
          <Table
            label="Retries"
            rows={s.rows}
            keyOf={(r) => r.layer + r.failure}
            empty="Nobody tried anything twice in this time."
            columns={[
              { head: "by", cell: (r) => (r.layer || r.retries ? <Name v={r.layer} /> : <span class="muted">{r.fallbacks ? "fallback" : "hedge"}, no retry</span>) },
              { head: "after", cell: (r) => <Name v={r.failure} /> },
              { head: "retries", num: true, cell: (r) => r.retries },
              { head: "fallbacks", num: true, cell: (r) => r.fallbacks },
              { head: "hedges", num: true, cell: (r) => r.hedges },
              { head: "wasted USD", num: true, cell: (r) => <USD v={r.wasted_usd} /> },
            ]}
          />
        )}
      </Loaded>
    </Card>
  );
}

// Quiet says what to do where nothing came in this time, or ever.
export function Quiet() {
  const ready = useApi<Ready>("/readyz");
  // A wildcard address is none that an agent can use; the host of this page is.
  const at = (a: string | undefined, port: string) => {
    const m = /^(.*):(\d+)$/.exec(a ?? "");
    const any = !m || ["", "0.0.0.0", "[::]"].includes(m[1]);
    return (any ? location.hostname : m[1]) + ":" + (m ? m[2] : port);
  };
  const listen = ready.data?.listen ?? {};
  return (
    <Card title="Nothing in this time" wide>
      <p>Choose a longer time above, or point any OpenTelemetry exporter here:</p>
      <pre tabIndex={0}>
        export OTEL_EXPORTER_OTLP_ENDPOINT=http://{at(listen.otlp_http, "4318")}{"     # http/protobuf or http/json\n"}
        export OTEL_EXPORTER_OTLP_ENDPOINT=http://{at(listen.otlp_grpc, "4317")}{"     # with OTEL_EXPORTER_OTLP_PROTOCOL=grpc"}
      </pre>
      <p>
        Set <code>user.id</code>, <code>tenant.id</code> and <code>app.feature</code> on spans to see who spends. Runs appear about a second after their first span. No agent at hand?{" "}
        <code>flyball demo</code> plays some.
      </p>
    </Card>
  );
}

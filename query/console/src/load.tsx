// Capacity: into how many calls of providers requests become, and how many of those the
// providers refused.

import { type LoadRow, type RateLimitRow, type Rows, address } from "./api";
import { OverTime } from "./bars";
import { useApi, useTime } from "./hooks";
import { type Route, filtersOf, intervalOf, lead, runDimensions } from "./route";
import { Card, type Column, Count, Doubts, Figure, Filters, Loaded, Question, Range, Table, USD, Unknown, keyOf, percent, ratio, valueColumns } from "./ui";

// The time of one answer to a refresh is long enough for answers that took seconds.
const every = 60000;

interface Part {
  route: Route;
  params: Record<string, string | undefined>;
  interval: string;
  step: number;
}

export function Load({ route }: { route: Route }) {
  const t = useTime(route.q);
  const params = { from: t.from, to: t.to, ...filtersOf(route.q, runDimensions) };
  const [interval, step] = intervalOf(t.hours);
  const part: Part = { route, params, interval, step };
  return (
    <>
      <Range route={route} />
      <Filters route={route} key={route.q.toString()} names={runDimensions} label="Filter load" fold />
      <Total {...part} />
      <Times {...part} />
      <Question<Rows<LoadRow> & { additive: boolean }>
        route={route}
        title="Who makes the load"
        name="load"
        path="/load"
        params={params}
        every={every}
        by={["workflow", "tenant", "feature", "agent", "user", "provider,model", "tenant,workflow", "workflow,workflow_version", "environment", "mode", "criticality"]}
      >
        {(a, groups) => (
          <>
            <Table label="Load" rows={a.rows} keyOf={keyOf(groups)} empty="No run has called a model in this time." columns={[...valueColumns<LoadRow>(route, groups), ...loadColumns]} />
            {!a.additive && a.rows.length > 0 && <p class="note">A request that used several of these stands in several rows: they do not add up.</p>}
          </>
        )}
      </Question>
      <Refused {...part} />
      <Question<Rows<RateLimitRow>> route={route} title="429 rate by model" name="limits" path="/rate-limits" params={params} every={every} by={["provider,model", "provider", "tenant", "workflow", "tenant,provider,model", "feature", "agent", "user"]}>
        {(a, groups) => (
          <Table
            label="429 rate by model"
            rows={a.rows}
            keyOf={keyOf(groups)}
            empty="No model was called in this time."
            columns={[
              ...valueColumns<RateLimitRow>(route, groups),
              { head: "429 rate", num: true, cell: (r) => <strong>{percent(r.rate)}</strong> },
              {
                head: "refused",
                num: true,
                cell: (r) => (r.rate_limited > 0 ? <a href={lead(route, { ...Object.fromEntries(groups.map((g) => [g, r[g]])), failure: "rate_limited" })}><Count v={r.rate_limited} /></a> : <Count v={r.rate_limited} />),
              },
              { head: "attempts", num: true, cell: (r) => <Count v={r.attempts} /> },
            ]}
          />
        )}
      </Question>
    </>
  );
}

function Total({ params }: Part) {
  const a = useApi<Rows<LoadRow>>(address("/load", { ...params, group_by: "" }), every);
  return (
    <Card title="What requests became" note="Requests × steps of each × attempts at each step = calls of models. The calls are those of the requests that began in this time." wide>
      <Loaded of={a}>{(d) => <Product row={d.rows[0]} />}</Loaded>
    </Card>
  );
}

function Times({ params, interval, step }: Part) {
  const a = useApi<Rows<LoadRow>>(address("/load", { ...params, group_by: "", interval }), every);
  return (
    <Card title="Model calls over time" note="By the time at which their requests began." wide>
      <Loaded of={a}>
        {(d) =>
          d.rows.length === 0 ? (
            <p class="empty">No run has called a model in this time.</p>
          ) : (
            <OverTime label="Model calls over time" unit="model calls" rows={d.rows} value={(r) => r.provider_calls} columns={loadColumns} from={d.from} to={d.to} step={step} />
          )
        }
      </Loaded>
    </Card>
  );
}

function Refused({ route, params, interval, step }: Part) {
  const limits = useApi<Rows<RateLimitRow>>(address("/rate-limits", { ...params, group_by: "", interval }), every);
  return (
    <Card title="Refused for rate or quota (429)" note="Attempts at models, those inside SDKs too, by the time of the attempt." wide>
      <Loaded of={limits}>
        {(a) => {
          const attempts = a.rows.reduce((n, r) => n + r.attempts, 0);
          const limited = a.rows.reduce((n, r) => n + r.rate_limited, 0);
          if (attempts === 0) return <p class="empty">No model was called in this time.</p>;
          return (
            <>
              <div class="figures">
                <Figure name="429 rate" big>
                  {percent(limited / attempts)}
                </Figure>
                <Figure name="Refused attempts">
                  <a href={lead(route, { failure: "rate_limited" })}>
                    <Count v={limited} />
                  </a>
                </Figure>
                <Figure name="Attempts">
                  <Count v={attempts} />
                </Figure>
              </div>
              {limited > 0 && <OverTime label="Refused attempts over time" unit="refused" rows={a.rows} value={(r) => r.rate_limited} columns={limitColumns} from={a.from} to={a.to} step={step} />}
            </>
          );
        }}
      </Loaded>
    </Card>
  );
}

const loadColumns: Column<LoadRow>[] = [
  { head: "requests", num: true, cell: (r) => <Count v={r.requests} /> },
  { head: "steps / request", num: true, hint: "intended model calls of one request", cell: (r) => ratio(r.steps_per_request) },
  { head: "retry ×", num: true, hint: "attempts at each intended call", cell: (r) => ratio(r.retry_multiplier) },
  { head: "model calls", num: true, cell: (r) => <strong><Count v={r.provider_calls} /></strong> },
  { head: "p50 / p90 / p99", num: true, hint: "model calls of one request", cell: (r) => `${ratio(r.calls_p50)} / ${ratio(r.calls_p90)} / ${ratio(r.calls_p99)}` },
  { head: "USD", num: true, cell: (r) => <USD v={r.cost_usd} /> },
  { head: "unknown", long: true, cell: (r) => <Unknown u={r} /> },
];

const limitColumns: Column<RateLimitRow>[] = [
  { head: "429 rate", num: true, cell: (r) => percent(r.rate) },
  { head: "refused", num: true, cell: (r) => <Count v={r.rate_limited} /> },
  { head: "attempts", num: true, cell: (r) => <Count v={r.attempts} /> },
];

function Product({ row }: { row?: LoadRow }) {
  if (!row) return <p class="empty">No run has called a model in this time. Choose a longer one, or remove a filter.</p>;
  return (
    <div class="figures product">
      <Figure name="Requests">
        <Count v={row.requests} />
      </Figure>
      <span class="sign">×</span>
      <Figure name="Steps of each">{ratio(row.steps_per_request)}</Figure>
      <span class="sign">×</span>
      <Figure name="Retry multiplier">{ratio(row.retry_multiplier)}</Figure>
      <span class="sign">=</span>
      <Figure name="Model calls">
        <Count v={row.provider_calls} />
      </Figure>
      <Figure name="Of which tried again">
        <Doubts
          of={[
            [row.retries, "retries"],
            [row.fallbacks, "fallbacks"],
            [row.hedges, "hedges"],
          ]}
          none="none"
        />
      </Figure>
      <Figure name="They cost, USD">
        <USD v={row.cost_usd} /> <span class="note"><Unknown u={row} /></span>
      </Figure>
    </div>
  );
}

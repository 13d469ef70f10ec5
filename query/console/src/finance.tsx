// What finance asks: why spend changed, what caches saved, what batches would, what a
// closed month comes to by now, and whether the provider's bill agrees.

import { type BatchRow, type CacheRow, type Closed, type CloseReport, type MoverRow, type Movers, type Reconciled, type Reconciliation, type Rows, address, effects } from "./api";
import { type Answer, navigate, useApi, useTime } from "./hooks";
import { type Route, filtersOf, href, runDimensions } from "./route";
import { Card, type Column, Count, Doubts, Figure, Filters, Loaded, Name, Question, Range, Table, Time, USD, keyOf, percent, ratio, valueColumns } from "./ui";

export function Finance({ route }: { route: Route }) {
  const t = useTime(route.q);
  const params = { from: t.from, to: t.to, ...filtersOf(route.q, runDimensions) };
  return (
    <>
      <Range route={route} />
      <Filters route={route} key={route.q.toString()} names={runDimensions} label="Filter spend" fold />
      <Question<Movers>
        route={route}
        title="What changed, and why"
        note="Beside the time before that is as long. The effects of a row sum to its change, to the last digit; in the lower table they are cut short, and pointing at one, or CSV, tells all of it."
        name="movers"
        path="/movers"
        params={params}
        by={["tenant", "feature", "workflow", "provider,model", "user", "agent", "tenant,feature", "workflow,workflow_version"]}
      >
        {(a, groups) => (
          <>
            <p class="note">
              <Time at={a.from} /> to <Time at={a.to} />, beside <Time at={a.base_from} /> to <Time at={a.base_to} />
            </p>
            <Bridge a={a} />
            {a.rows.length > 0 && <h3>What changed most</h3>}
            <Table label="What changed" rows={a.rows} keyOf={keyOf(groups)} empty="Nothing was spent in either time." columns={[...valueColumns<MoverRow>(route, groups), ...moverColumns(a)]} />
          </>
        )}
      </Question>
      <Question<Rows<CacheRow> & { total: CacheRow }>
        route={route}
        title="What caches saved"
        note="Cached input at the input price, less what it cost and what writing the cache cost beyond it. Below zero, caching cost more than it saved."
        name="cache"
        path="/cache"
        params={params}
        by={["provider,model", "tenant", "feature", "workflow", "agent", "tenant,provider,model"]}
      >
        {(a, groups) => (
          <>
            {a.rows.length > 0 && (
              <div class="figures">
                <Figure name="Saved, USD" big>
                  <USD v={a.total.saved_usd} />
                </Figure>
                <Figure name="Of the input was cached">{percent(a.total.hit_rate)}</Figure>
                <Figure name="Not in it">{notCached(a.total)}</Figure>
              </div>
            )}
            <Table
              label="What caches saved"
              rows={a.rows}
              keyOf={keyOf(groups)}
              empty="No model was called in this time."
              columns={[
                ...valueColumns<CacheRow>(route, groups),
                { head: "saved, USD", num: true, cell: (r) => <strong><USD v={r.saved_usd} /></strong> },
                { head: "reads saved, USD", num: true, cell: (r) => <USD v={r.read_saved_usd} /> },
                { head: "writes cost, USD", num: true, hint: "beyond the price of plain input", cell: (r) => <USD v={r.write_extra_usd} /> },
                { head: "cached", num: true, hint: "of the text input; a lower bound where an emitter never says", cell: (r) => (r.cache_unknown_calls > 0 && r.hit_rate !== null ? "≥ " : "") + percent(r.hit_rate) },
                { head: "input tokens", num: true, cell: (r) => <Count v={r.input_tokens} /> },
                { head: "calls", num: true, cell: (r) => <Count v={r.calls} /> },
                { head: "not in it", long: true, cell: notCached },
              ]}
            />
          </>
        )}
      </Question>
      <Question<Rows<BatchRow> & { total: BatchRow }>
        route={route}
        title="What batches would save"
        note="Calls that can wait (mode batch, or criticality background) and ran at the standard price, at the batch price of the same list."
        name="batch"
        path="/batch"
        params={params}
        by={["provider,model", "tenant", "feature", "workflow", "agent", "tenant,provider,model"]}
      >
        {(a, groups) => (
          <>
            {a.rows.length > 0 && (
              <div class="figures">
                <Figure name="Would be saved, USD" big>
                  <USD v={a.total.saving_usd} />
                </Figure>
                <Figure name="Of, USD with a batch price">
                  <USD v={a.total.eligible_usd} />
                </Figure>
                <Figure name="Not in it">{notBatched(a.total)}</Figure>
              </div>
            )}
            <Table
              label="What batches would save"
              rows={a.rows}
              keyOf={keyOf(groups)}
              empty="No call in this time could have waited, as far as they say."
              columns={[
                ...valueColumns<BatchRow>(route, groups),
                { head: "would save, USD", num: true, cell: (r) => <strong><USD v={r.saving_usd} /></strong> },
                { head: "with a batch price, USD", num: true, cell: (r) => <USD v={r.eligible_usd} /> },
                { head: "cost, USD", num: true, cell: (r) => <USD v={r.spend_usd} /> },
                { head: "calls", num: true, cell: (r) => <Count v={r.calls} /> },
                { head: "not in it", long: true, cell: notBatched },
              ]}
            />
          </>
        )}
      </Question>
      <Closes route={route} />
      <Bills route={route} />
    </>
  );
}

const notCached = (r: CacheRow) => (
  <Doubts
    of={[
      [r.unknown_price_calls, `of unknown unit price (${r.unknown_price_tokens} cached tokens)`],
      [r.cache_unknown_calls, "that never say what was cached"],
    ]}
  />
);

const notBatched = (r: BatchRow) => (
  <Doubts
    of={[
      [r.no_batch_price_calls, "without a batch price"],
      [r.unknown_price_calls, `of unknown unit price (${r.unknown_price_usd} USD)`],
      [r.unpriced_calls, "without a price"],
      [r.unknown_calls, "of unknown usage"],
    ]}
  />
);

const uncosted = (r: MoverRow) => (
  <Doubts
    of={[
      [r.before.uncosted_calls, "of no known cost before"],
      [r.after.uncosted_calls, "now"],
    ]}
  />
);

// moverColumns leave out effects that nothing had.
function moverColumns(a: Movers): Column<MoverRow>[] {
  const had = effects.filter((e) => [a.total, ...a.rows].some((r) => r.effects[e] !== "0"));
  return [
    { head: "change, USD", num: true, cell: (r) => <strong><Signed v={r.change_usd} /></strong> },
    { head: "mostly by", cell: (r) => r.main || "–" },
    { head: "before, USD", num: true, cell: (r) => <USD v={r.before_usd} /> },
    { head: "now, USD", num: true, cell: (r) => <USD v={r.after_usd} /> },
    ...had.map((e): Column<MoverRow> => ({ head: e, num: true, hint: meaning[e], cell: (r) => (r.effects[e] === "0" ? <span class="muted">0</span> : <span class="cut" title={r.effects[e] + " USD"}><Signed v={r.effects[e]} /></span>) })),
    { head: "not in it", long: true, cell: uncosted },
  ];
}

// Signed is money that came or went.
const Signed = ({ v }: { v: string }) => (
  <span>
    {v !== "0" && !v.startsWith("-") && "+"}
    <USD v={v} />
  </span>
);

const meaning: Record<(typeof effects)[number], string> = {
  volume: "more or fewer requests",
  amplification: "more or fewer model calls for each request",
  retries: "more or fewer attempts at each call",
  mix: "other models",
  tokens: "longer or shorter calls",
  price: "another price of a token",
  other: "what no call stands for, such as adjustments",
};

// Bridge leads from what was spent before to what was spent now, effect by effect.
function Bridge({ a }: { a: Movers }) {
  const { before, after } = a.total;
  const from = (x: string, y: string) => <span class="muted">{x} → {y}</span>;
  const each = (x: number, y: number) => (y ? ratio(x / y) : "–");
  const why: Partial<Record<(typeof effects)[number], preact.ComponentChild>> = {
    volume: a.requests_counted ? from(`${before.requests}`, `${after.requests} requests`) : from(`${before.model_calls}`, `${after.model_calls} model calls`),
    amplification: a.requests_counted && from(each(before.model_calls, before.requests), `${each(after.model_calls, after.requests)} model calls a request`),
    retries: from(each(before.attempts, before.model_calls), `${each(after.attempts, after.model_calls)} attempts a call`),
    tokens: from(each(before.tokens, before.attempts), `${each(after.tokens, after.attempts)} tokens an attempt`),
  };
  const lines: { what: string; sum: preact.ComponentChild; why?: preact.ComponentChild; key: string }[] = [
    { key: "before", what: "Before", sum: <USD v={a.total.before_usd} /> },
    ...effects.filter((e) => a.total.effects[e] !== "0").map((e) => ({ key: e, what: e, sum: <Signed v={a.total.effects[e]} />, why: <>{meaning[e]} {why[e]}</> })),
    { key: "now", what: "Now", sum: <strong><USD v={a.total.after_usd} /></strong>, why: <>{uncosted(a.total)}</> },
  ];
  if (a.rows.length === 0) return null;
  return (
    <Table
      label="From before to now"
      rows={lines}
      keyOf={(l) => l.key}
      columns={[
        { head: "of everything", cell: (l) => l.what },
        { head: "USD", num: true, cell: (l) => <span data-effect={l.key}>{l.sum}</span> },
        { head: "which is", long: true, cell: (l) => l.why },
      ]}
    />
  );
}

function Closes({ route }: { route: Route }) {
  const tenant = route.q.get("tenant") || undefined;
  const closes = useApi<{ closes: Closed[] }>(address("/close", { tenant }));
  const periods = [...new Set(closes.data?.closes.map((c) => c.period))].sort().reverse();
  const chosen = route.q.get("period");
  const period = chosen && periods.includes(chosen) ? chosen : periods[0];
  const report = useApi<CloseReport>(period && address("/close", { period, tenant, limit: 200 }));
  return (
    <Card title="Closed months" note="What was frozen, what it comes to with what was learned since, and the difference to book. Amounts do not follow the time above." wide>
      {period !== undefined && (
        <label class="by">
          month{" "}
          <select value={period} onChange={(e) => navigate(route, { period: e.currentTarget.value })}>
            {periods.map((p) => (
              <option key={p}>{p}</option>
            ))}
          </select>
        </label>
      )}
      <Loaded of={closes} bare>
        {() => (period === undefined ? <p class="empty">No month is closed. <code>flyball close YYYY-MM</code> freezes one that is over, for good.</p> : <Month report={report} />)}
      </Loaded>
    </Card>
  );
}

function Month({ report }: { report: Answer<CloseReport> }) {
  return (
    <Loaded of={report}>
      {(a) => (
        <>
          <div class="figures">
            <Figure name="Adjustment, USD" big>
              <Signed v={a.total.adjustment_usd} />
            </Figure>
            <Figure name="Frozen, USD">
              <USD v={a.total.frozen_usd} />
            </Figure>
            <Figure name="Now, USD">
              <USD v={a.total.current_usd} />
            </Figure>
          </div>
          <Table
            label="Closed month"
            rows={a.rows}
            keyOf={(r) => JSON.stringify([r.tenant, r.provider, r.model])}
            empty="Nothing was spent in that month, and nothing has come since."
            columns={[
              { head: "tenant", cell: (r) => <Name v={r.tenant} /> },
              { head: "model", cell: (r) => <Name v={r.model} /> },
              { head: "provider", cell: (r) => <Name v={r.provider} /> },
              { head: "adjustment, USD", num: true, cell: (r) => <strong><Signed v={r.adjustment_usd} /></strong> },
              { head: "frozen, USD", num: true, cell: (r) => <USD v={r.frozen_usd} /> },
              { head: "now, USD", num: true, cell: (r) => <USD v={r.current_usd} /> },
              { head: "calls", num: true, cell: (r) => (r.frozen_calls === r.current_calls ? <Count v={r.current_calls} /> : <><Count v={r.frozen_calls} /> → <Count v={r.current_calls} /></>) },
              { head: "not in it now", long: true, cell: (r) => <Doubts of={[[r.current_unpriced, "without a price"], [r.current_unknown, "of unknown usage"]]} /> },
            ]}
          />
          {a.truncated && <p class="note">Only the first {a.rows.length} rows are shown; the totals are of all. <code>flyball close show {a.closes[0]?.period} --csv</code> prints every one.</p>}
          <details>
            <summary>Who closed it, for whom</summary>
            <Table
              label="Closes"
              rows={a.closes}
              keyOf={(c) => c.tenant}
              columns={[
                { head: "tenant", cell: (c) => <Name v={c.tenant} /> },
                { head: "closed by", cell: (c) => <><Name v={c.closed_by} />, <Time at={c.closed_at} /></> },
                { head: "with what was known", cell: (c) => <Time at={c.as_of} /> },
                { head: "days begin in", cell: (c) => c.timezone },
                { head: "frozen, USD", num: true, cell: (c) => <USD v={c.cost_usd} /> },
              ]}
            />
          </details>
        </>
      )}
    </Loaded>
  );
}

type Parts = Pick<Reconciliation, "ours_usd" | "theirs_usd" | "difference_usd" | "priced_usd" | "only_ours_usd" | "only_theirs_usd" | "rounding_usd" | "unsplit_usd">;

const parts: Column<Parts>[] = [
  { head: "difference, USD", num: true, hint: "theirs less ours", cell: (r) => <strong><Signed v={r.difference_usd} /></strong> },
  { head: "ours, USD", num: true, cell: (r) => <USD v={r.ours_usd} /> },
  { head: "theirs, USD", num: true, cell: (r) => <USD v={r.theirs_usd} /> },
  { head: "by price", num: true, hint: "the same tokens at another price", cell: (r) => part(r.priced_usd) },
  { head: "only ours", num: true, hint: "we saw it, the bill does not have it", cell: (r) => part(r.only_ours_usd) },
  { head: "only theirs", num: true, hint: "the bill has it, we did not see it", cell: (r) => part(r.only_theirs_usd) },
  { head: "rounding", num: true, hint: "of the bill's last digit", cell: (r) => part(r.rounding_usd) },
  { head: "not known which", num: true, hint: "the bill says no tokens: price or volume", cell: (r) => part(r.unsplit_usd) },
];

const part = (v: string | null) => (v === "0" ? <span class="muted">0</span> : v === null ? <span class="muted">unknown</span> : <Signed v={v} />);

function Bills({ route }: { route: Route }) {
  const bills = useApi<{ reconciliations: Reconciliation[]; truncated: boolean }>(address("/reconcile", { limit: 50 }));
  const id = route.q.get("bill") || undefined;
  const bill = useApi<Reconciled>(id && address("/reconcile", { id, limit: 200 }));
  return (
    <Card title="Bills of providers" note="What was compared, for every tenant. The parts of a difference sum to it." wide>
      <Loaded of={bills}>
        {(a) => (
          <>
            <Table
              label="Bills"
              rows={a.reconciliations}
              keyOf={(r) => r.id}
              empty={<>No bill was compared. <code>flyball reconcile openai costs.json</code> lays one beside what was booked.</>}
              columns={[
                { head: "bill", long: true, cell: (r) => <a href={href("finance", { ...Object.fromEntries(route.q), bill: r.id })} aria-current={r.id === id ? "true" : undefined}>{r.source}, {r.from} to {r.to}</a> },
                ...(parts as Column<Reconciliation>[]),
                { head: "skipped", hint: "rows of the file that are of no AI service", cell: (r) => (r.skipped_rows ? <>{r.skipped_rows} rows, <USD v={r.skipped_usd} /> USD</> : <span class="muted">none</span>) },
                { head: "compared", cell: (r) => <><Time at={r.made_at} /> by <Name v={r.made_by} /></> },
              ]}
            />
            {a.truncated && <p class="note">Only the latest {a.reconciliations.length} are shown.</p>}
          </>
        )}
      </Loaded>
      {id && (
        <>
          <h3>The bill by day and item</h3>
          <Loaded of={bill}>
            {(a) => (
              <>
                <Table
                  label="The bill by day and item"
                  rows={a.rows}
                  keyOf={(r) => JSON.stringify([r.day, r.provider, r.model, r.item])}
                  empty="Neither side has anything on these days."
                  columns={[
                    { head: "model or item", cell: (r) => <Name v={r.model || r.item} /> },
                    { head: "day (UTC)", cell: (r) => r.day },
                    ...(parts as Column<(typeof a.rows)[number]>[]),
                    { head: "ours may lack", num: true, hint: "by calls without a price or usage, at the mean of the others", cell: (r) => <USD v={r.error_usd} /> },
                    { head: "not in ours", long: true, cell: (r) => <Doubts of={[[r.unpriced, "without a price"], [r.unknown, "of unknown usage"], [r.estimated, "estimated"], [r.sampled, "from sampled traces"]]} /> },
                  ]}
                />
                {a.truncated && <p class="note">Only the first {a.rows.length} rows are shown. <code>flyball reconcile show {id} --csv</code> prints every one.</p>}
              </>
            )}
          </Loaded>
        </>
      )}
    </Card>
  );
}

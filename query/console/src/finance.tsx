// What finance asks: why spend changed, what caches saved, what batches would, what a
// closed month comes to by now, and whether the provider's bill agrees.

import { useEffect, useId, useState } from "preact/hooks";
import { type BatchRow, type BillRow, type CacheRow, type Closed, type CloseReport, type MoverRow, type Movers, type Reconciled, type Reconciliation, Problem, type Rows, type Spend, address, effects, upload } from "./api";
import { type Answer, navigate, useApi, useTime } from "./hooks";
import { type Route, filtersOf, href, runDimensions } from "./route";
import { Card, type Column, Confirm, Count, Doubts, Failure, Figure, Filters, Loaded, Name, Question, Range, Table, Time, USD, Unknown, bytes, change, keyOf, percent, ratio, say, valueColumns } from "./ui";

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
  const done = (period: string) => {
    closes.reload();
    report.reload();
    navigate(route, { period });
  };
  return (
    <Card title="Closed months" note="What was frozen, what it comes to with what was learned since, and the difference to book. Amounts do not follow the time above." wide>
      {closes.data && <CloseMonth tenant={tenant} closes={closes.data.closes} done={done} />}
      {period !== undefined && (
        <label class="by">
          month shown{" "}
          <select value={period} onChange={(e) => navigate(route, { period: e.currentTarget.value })}>
            {periods.map((p) => (
              <option key={p}>{p}</option>
            ))}
          </select>
        </label>
      )}
      <Loaded of={closes} bare>
        {() => (period === undefined ? <p class="empty">No month is closed.</p> : <Month report={report} />)}
      </Loaded>
    </Card>
  );
}

// finished are the months that are over in UTC, the latest first.
const finished = () => Array.from({ length: 12 }, (_, n) => new Date(Date.UTC(new Date().getUTCFullYear(), new Date().getUTCMonth() - 1 - n, 1)).toISOString().slice(0, 7));

// after is the first day after a month.
const after = (month: string) => new Date(Date.UTC(Number(month.slice(0, 4)), Number(month.slice(5)), 1)).toISOString().slice(0, 10);

// CloseMonth freezes a month that is over, for good.
function CloseMonth({ tenant, closes, done }: { tenant?: string; closes: Closed[]; done: (period: string) => void }) {
  const months = finished();
  const closed = (m: string) => closes.filter((c) => c.period === m).length;
  const [month, setMonth] = useState(months.find((m) => !closed(m)) ?? months[0]);
  const [ask, setAsk] = useState(false);
  const count = (m: string) => (closed(m) === 0 ? "" : tenant ? ", closed" : `, closed for ${closed(m)} ${closed(m) === 1 ? "tenant" : "tenants"}`);
  return (
    <div class="buttons">
      <label class="by">
        month to close{" "}
        <select value={month} onChange={(e) => setMonth(e.currentTarget.value)}>
          {months.map((m) => (
            <option key={m} value={m}>
              {m}
              {count(m)}
            </option>
          ))}
        </select>
      </label>
      <button type="button" onClick={() => setAsk(true)}>
        Close the month …
      </button>
      {ask && (
        <Confirm
          title={`Close ${month}?`}
          text={<ToFreeze month={month} tenant={tenant} />}
          action="Close for good"
          danger
          onDone={() => setAsk(false)}
          run={async (reason) => {
            const a = await change<{ closed: Closed[]; already: string[] }>("/close" + (tenant ? "?" + new URLSearchParams({ tenant }) : ""), { period: month, reason });
            say(`Closed ${month} for ${a.closed.length} ${a.closed.length === 1 ? "tenant" : "tenants"}.${a.already.length ? ` ${a.already.length} had closed it before.` : ""}`);
            done(month);
          }}
        />
      )}
    </div>
  );
}

// ToFreeze says what a close is about to freeze: what was known when yesterday ended.
function ToFreeze({ month, tenant }: { month: string; tenant?: string }) {
  const known = new Date(Date.now() - 864e5).toISOString().slice(0, 10);
  const spend = useApi<Spend>(address("/spend", { from: month + "-01", to: after(month), tenant, group_by: "", as_of: known }));
  return (
    <>
      <p>
        What was known of {month} at the end of {known} (UTC) is frozen for {tenant ? <>tenant <Name v={tenant} /></> : "every tenant of this key that has not closed it"}. This is never undone or repeated; what is
        booked later shows as an adjustment.
      </p>
      <Loaded of={spend} bare>
        {(s) => (
          <p>
            The month comes to <strong><USD v={s.total.cost_usd} /> USD</strong> of <Count v={s.total.calls} /> calls, {s.timezone} days: <Unknown u={s.total} />.
          </p>
        )}
      </Loaded>
    </>
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
            <p class="note">
              Why is in the <a href={href("guards", { kind: "close", from: a.closes[0]?.closed_at })}>history of closes</a>.
            </p>
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

// bills are the forms of a provider's bill, and how they are sent.
const bills: [string, string, string][] = [
  ["openai", "application/json", "pages of the costs API, by line item and day; pages of the usage API may stand behind them"],
  ["anthropic", "application/json", "pages of the cost report, by description and day; pages of the usage report may stand behind them"],
  ["focus", "text/csv", "one FOCUS CSV, version 1.0 to 1.2"],
];

// billBytes is what the server takes.
const billBytes = 16 * 1024 ** 3;

function Bills({ route }: { route: Route }) {
  const list = useApi<{ reconciliations: Reconciliation[]; truncated: boolean }>(address("/reconcile", { limit: 50 }));
  const id = route.q.get("bill") || undefined;
  const bill = useApi<Reconciled>(id && address("/reconcile", { id, limit: 200 }));
  return (
    <Card title="Bills of providers" note="What was compared, for every tenant. The parts of a difference sum to it." wide>
      <Compare done={(id) => (list.reload(), navigate(route, { bill: id }))} />
      <Loaded of={list}>
        {(a) => (
          <>
            <Table
              label="Bills"
              rows={a.reconciliations}
              keyOf={(r) => r.id}
              empty="No bill was compared."
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
          <Loaded of={bill}>{(a) => <Bill a={a} />}</Loaded>
        </>
      )}
    </Card>
  );
}

// Bill is one comparison, as the command line prints it.
function Bill({ a }: { a: Reconciled }) {
  const foreign = a.reconciliation.currency !== "USD";
  const converted: Column<BillRow>[] = [
    { head: `theirs, ${a.reconciliation.currency}`, num: true, cell: (r) => <USD v={r.theirs} /> },
    { head: "rate", cell: (r) => (r.rate ? `${r.rate.usd} of ${r.rate.of} in ${r.rate.source}` : <span class="muted">none needed</span>) },
  ];
  return (
    <>
      <Table
        label="The bill by day and item"
        rows={a.rows}
        keyOf={(r) => JSON.stringify([r.day, r.provider, r.model, r.item])}
        empty="Neither side has anything on these days."
        columns={[
          { head: "model or item", cell: (r) => <Name v={r.model || r.item} /> },
          { head: "day (UTC)", cell: (r) => r.day },
          ...(parts as Column<BillRow>[]),
          ...(foreign ? converted : []),
          { head: "ours may lack", num: true, hint: "by calls without a price or usage, at the mean of the others", cell: (r) => <USD v={r.error_usd} /> },
          { head: "not in ours", long: true, cell: (r) => <Doubts of={[[r.unpriced, "without a price"], [r.unknown, "of unknown usage"], [r.estimated, "estimated"], [r.sampled, "from sampled traces"]]} /> },
          { head: "split by", hint: "which tokens told price from volume", cell: (r) => r.split_by || <span class="muted">not split</span> },
        ]}
      />
      {a.rows.some((r) => r.split_by === "totals") && <p class="note">Split by totals: the bill does not tell cost and tokens of each kind there, so that another mix of kinds counts as price.</p>}
      {a.rows.some((r) => r.priced_usd === null) && <p class="note">The bill has no tokens for some rows, so it is not known whether price or volume differs there. Compare it again with the pages of the usage report behind it.</p>}
      {a.truncated && <p class="note">Only the first {a.rows.length} rows are shown. <code>flyball reconcile show {a.reconciliation.id} --csv</code> prints every one.</p>}
    </>
  );
}

// Compare sends a provider's bill to be compared with what was booked.
function Compare({ done }: { done: (id: string) => void }) {
  const [source, setSource] = useState("openai");
  const [stop, setStop] = useState<AbortController>();
  const [error, setError] = useState<Problem>();
  const [before, setBefore] = useState<FormData>(); // a bill that was compared before
  const about = useId();
  const [, type, form] = bills.find(([name]) => name === source)!;
  useEffect(() => () => stop?.abort(), [stop]);
  const send = async (f: FormData, again: boolean) => {
    const files = f.getAll("file") as File[];
    const day = (name: string) => String(f.get(name)) || undefined;
    setError(undefined);
    setBefore(undefined);
    const size = files.reduce((n, file) => n + file.size, 0);
    if (size > billBytes) return setError(new Problem(0, `These are ${bytes(size)}; a bill has at most ${bytes(billBytes)}. Split it by days.`));
    if (source === "focus" && files.length > 1) return setError(new Problem(0, "A FOCUS file has one header; choose one file."));
    const ctl = new AbortController();
    setStop(ctl);
    try {
      const a = await upload<Reconciled>(address("/reconcile", { source, from: day("from"), to: day("to"), again: again ? "true" : undefined }), files, type, ctl.signal);
      if (a.already) setBefore(f);
      say(a.already ? "This bill was compared before." : `The bill was compared; theirs less ours is ${a.reconciliation.difference_usd} USD.`);
      done(a.reconciliation.id);
    } catch (e) {
      if (!ctl.signal.aborted) setError(e instanceof Problem ? e : new Problem(0, String(e)));
    }
    setStop(undefined);
  };
  return (
    <details>
      <summary>Compare a bill</summary>
      <form
        class="inline"
        aria-label="Compare a bill"
        onSubmit={(e) => {
          e.preventDefault();
          void send(new FormData(e.currentTarget), false);
        }}
      >
        <label>
          bill of{" "}
          <select value={source} onChange={(e) => (setSource(e.currentTarget.value), setBefore(undefined))}>
            {bills.map(([name]) => (
              <option key={name}>{name}</option>
            ))}
          </select>
        </label>
        <label>
          file
          <input type="file" name="file" required multiple={source !== "focus"} accept={source === "focus" ? ".csv,text/csv" : ".json,application/json"} aria-describedby={about} />
        </label>
        <label>
          from day (UTC) <input type="date" name="from" />
        </label>
        <label>
          to, exclusive <input type="date" name="to" />
        </label>
        <button type="submit" class="primary" disabled={!!stop}>
          {stop ? "Comparing …" : "Compare"}
        </button>
        {stop && (
          <button type="button" onClick={() => stop.abort()}>
            Cancel
          </button>
        )}
      </form>
      <p class="note" id={about}>
        The file holds {form}. Without days it is about those of the file. It is sent to this server only, and what is kept of it are the sums.
      </p>
      {before && (
        <p>
          This file was compared before; that comparison is shown below.{" "}
          <button type="button" onClick={() => send(before, true)}>
            Compare it with what is known now
          </button>
        </p>
      )}
      {error && <Failure error={error} />}
    </details>
  );
}

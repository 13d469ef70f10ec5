// Single calls, the oldest first, of whatever a number in another view was made of.

import { useEffect, useState } from "preact/hooks";
import { type Call, Problem, address, get } from "./api";
import { useApi, useTime } from "./hooks";
import { type Route, callDimensions, filtersOf, href, runDimensions } from "./route";
import { remarks } from "./run";
import { Badge, Card, Failure, Filters, Loaded, Name, Range, Table, Time, USD, duration } from "./ui";

const names = ["tenant", "model", "tool", "failure", "run_id", "trace_id", ...runDimensions.slice(1), ...callDimensions.filter((d) => !["model", "tool", "failure"].includes(d))];
const page = 100;

interface Answer {
  calls: Call[];
  next: string;
}

export function Calls({ route }: { route: Route }) {
  const t = useTime(route.q);
  const params = { from: t.from, to: t.to, ...filtersOf(route.q, names) };
  // The calls of one run or trace are all wanted, unless the address says a time.
  if (["run_id", "trace_id"].some((n) => route.q.has(n)) && !["last", "from", "to"].some((n) => route.q.has(n))) params.from = params.to = undefined;
  const first = useApi<Answer>(address("/calls", { ...params, limit: page }));
  return (
    <>
      <Range route={route} />
      <Filters route={route} key={route.q.toString()} names={names} label="Filter calls" />
      <Loaded of={first}>{(a) => <List first={a} params={params} />}</Loaded>
    </>
  );
}

function List({ first, params }: { first: Answer; params: Record<string, string | undefined> }) {
  const [more, setMore] = useState<Answer>({ calls: [], next: first.next });
  const [stop, setStop] = useState<AbortController>();
  const [error, setError] = useState<Problem>();
  useEffect(() => () => stop?.abort(), [stop]);
  useEffect(() => setMore({ calls: [], next: first.next }), [first]);
  const load = async () => {
    const ctl = new AbortController();
    setStop(ctl);
    setError(undefined);
    try {
      const a = await get<Answer>(address("/calls", { ...params, limit: page, cursor: more.next }), ctl.signal);
      setMore({ calls: [...more.calls, ...a.calls], next: a.next });
    } catch (e) {
      if (!ctl.signal.aborted) setError(e instanceof Problem ? e : new Problem(0, String(e)));
    }
    if (!ctl.signal.aborted) setStop(undefined);
  };
  const rows = [...first.calls, ...more.calls];
  return (
    <Card title="Calls" note={`${rows.length}${more.next ? " of more" : ""}, the oldest first`} wide>
      <Table
        label="Calls"
        rows={rows}
        keyOf={(c) => `${c.tenant} ${c.trace_id} ${c.span_id} ${c.part}`}
        empty="No call matches. Remove a filter or choose a longer time."
        columns={[
          { head: "call", long: true, cell: (c) => <><span class={"kind k-" + c.kind}>{c.kind}</span> <Name v={c.name || c.tool || c.model} /></> },
          { head: "started", cell: (c) => <Time at={c.started_at} short /> },
          { head: "run", long: true, cell: (c) => <a href={href("runs", { tenant: c.tenant }, c.run_id)}><Name v={c.run_id} /></a> },
          { head: "tenant", cell: (c) => <Name v={c.tenant} /> },
          { head: "model or tool", cell: (c) => <Name v={c.tool || c.model} /> },
          { head: "remarks", long: true, cell: (c) => remarks(c).map(([text, kind]) => <Badge key={text} kind={kind}>{text}</Badge>) },
          { head: "took", num: true, cell: (c) => duration(c.duration_ns) },
          { head: "USD", num: true, cell: (c) => (c.cost_status === "none" || c.aggregate || c.duplicate_of ? <span class="muted" title="nothing to bill, or counted elsewhere">–</span> : <USD v={c.cost_usd} />) },
        ]}
      />
      {error && <Failure error={error} retry={load} />}
      {more.next && (
        <div class="buttons">
          <button type="button" onClick={load} disabled={!!stop}>
            {stop ? "Loading …" : "Later calls"}
          </button>
        </div>
      )}
    </Card>
  );
}

// The list of runs, the newest first, narrowed by what the API knows about runs.

import { useEffect, useState } from "preact/hooks";
import { Problem, type Rows, type RunRow, address, get } from "./api";
import { useApi, useTime } from "./hooks";
import { Quiet } from "./overview";
import { type Route, filtersOf, href, runDimensions, timeParams } from "./route";
import { Badge, Card, Failure, Filters, Loaded, Name, Range, Table, Time, USD, Unknown, statusKind } from "./ui";

const page = 50;

export function Runs({ route }: { route: Route }) {
  const t = useTime(route.q);
  const filters = filtersOf(route.q, runDimensions);
  const params: Record<string, string | undefined> = { from: t.from, to: t.to, ...filters };
  const path = address("/runs", { ...params, limit: page });
  const first = useApi<Rows<RunRow>>(path);
  return (
    <>
      <Range route={route} />
      <Filters route={route} key={route.q.toString()} names={runDimensions} label="Filter runs" run />
      <Loaded of={first}>
        {(a) =>
          a.rows.length === 0 && Object.keys(filters).length === 0 ? <Quiet /> : <List first={a} params={params} calls={href("calls", { ...timeParams(route.q), ...filters })} />
        }
      </Loaded>
    </>
  );
}

const keyOf = (r: RunRow) => r.tenant + "\n" + r.run_id;

function List({ first, params, calls }: { first: Rows<RunRow>; params: Record<string, string | undefined>; calls: string }) {
  const [older, setOlder] = useState<RunRow[]>([]);
  const [more, setMore] = useState(first.truncated);
  const [stop, setStop] = useState<AbortController>();
  const [error, setError] = useState<Problem>();
  useEffect(() => () => stop?.abort(), [stop]);
  useEffect(() => {
    setOlder([]);
    setMore(first.truncated);
  }, [first]);
  const rows = [...first.rows, ...older];
  const load = async () => {
    const ctl = new AbortController();
    setStop(ctl);
    setError(undefined);
    const seen = new Set(rows.map(keyOf));
    // The list is ordered by start. The next page ends just after the last start of
    // this one, whole milliseconds up, and what it repeats is left out.
    const to = new Date(Date.parse(rows[rows.length - 1].started_at) + 1).toISOString();
    try {
      for (let limit = page; ; limit = Math.min(1000, limit * 2)) {
        const a = await get<Rows<RunRow>>(address("/runs", { ...params, to, limit }), ctl.signal);
        const fresh = a.rows.filter((r) => !seen.has(keyOf(r)));
        if (fresh.length > 0 || !a.truncated || limit === 1000) {
          setOlder([...older, ...fresh]);
          setMore(a.truncated);
          break;
        }
      }
    } catch (e) {
      if (!ctl.signal.aborted) setError(e instanceof Problem ? e : new Problem(0, String(e)));
    }
    if (!ctl.signal.aborted) setStop(undefined);
  };
  return (
    <Card title="Runs" note={`${rows.length}${more ? " of more" : ""}, the newest first`} wide>
      <Table
        label="Runs"
        rows={rows}
        keyOf={keyOf}
        empty="No run matches. Remove a filter or choose a longer time."
        columns={[
          { head: "run", long: true, cell: (r) => <a class="id" href={href("runs", { tenant: r.tenant }, r.run_id)}><Name v={r.run_id} /></a> },
          { head: "started", cell: (r) => <Time at={r.started_at} short /> },
          { head: "tenant", cell: (r) => <Name v={r.tenant} /> },
          { head: "workflow", cell: (r) => <Name v={r.workflow || r.name || r.agent} /> },
          { head: "user", cell: (r) => <Name v={r.user} /> },
          { head: "status", cell: (r) => <Badge kind={statusKind(r.status)}>{r.status}</Badge> },
          { head: "model", num: true, hint: "intended model calls", cell: (r) => r.model_calls },
          { head: "tools", num: true, hint: "intended tool calls", cell: (r) => r.tool_calls },
          { head: "retries", num: true, cell: (r) => r.retries },
          { head: "amplification", num: true, cell: (r) => r.amplification },
          { head: "USD", num: true, cell: (r) => <USD v={r.cost_usd} /> },
          { head: "unknown", long: true, cell: (r) => <Unknown u={r} /> },
        ]}
      />
      {error && <Failure error={error} retry={load} />}
      <div class="buttons">
        {more && (
          <button type="button" onClick={load} disabled={!!stop}>
            {stop ? "Loading …" : "Older runs"}
          </button>
        )}
        <a href={calls}>Their calls, one by one</a>
      </div>
    </Card>
  );
}

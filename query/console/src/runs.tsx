// The list of runs, the newest first, narrowed by what the API knows about runs.

import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { Problem, type Rows, type RunRow, address, get } from "./api";
import { type Route, href, navigate, timeOf, useApi } from "./hooks";
import { Quiet } from "./overview";
import { Badge, Card, Chips, Failure, Loaded, Name, Range, Table, Time, USD, Unknown, statusKind } from "./ui";

const dimensions = ["tenant", "user", "feature", "workflow", "workflow_version", "agent", "environment", "mode", "criticality"];
const page = 50;

export function Runs({ route }: { route: Route }) {
  const t = timeOf(route.q);
  const params: Record<string, string | undefined> = { from: t.from, to: t.to };
  // An empty value means calls that say none; a tenant always says one.
  for (const d of dimensions) if (route.q.has(d) && (d !== "tenant" || route.q.get(d))) params[d] = route.q.get(d) ?? "";
  const filtered = dimensions.some((d) => params[d] !== undefined);
  const path = address("/runs", { ...params, limit: page });
  const first = useApi<Rows<RunRow>>(path);
  return (
    <>
      <Range route={route} />
      <Filters route={route} key={route.q.toString()} />
      <Chips route={route} names={dimensions} />
      <Loaded of={first}>
        {(a) =>
          a.rows.length === 0 && !filtered ? <Quiet /> : <List first={a} params={params} reload={first.reload} />
        }
      </Loaded>
    </>
  );
}

function Filters({ route }: { route: Route }) {
  const submit = (e: JSX.TargetedEvent<HTMLFormElement>) => {
    e.preventDefault();
    const f = new FormData(e.currentTarget);
    const id = String(f.get("run") ?? "").trim();
    if (id) {
      location.hash = href("runs", { tenant: String(f.get("tenant")).trim() || undefined }, id);
      return;
    }
    const change: Record<string, string | undefined> = {};
    for (const d of dimensions) {
      const v = String(f.get(d) ?? "").trim();
      // What was filtered for being empty stays so until its chip is removed.
      if (v || route.q.get(d)) change[d] = v || undefined;
    }
    navigate(route, change);
  };
  const used = dimensions.slice(4).some((d) => route.q.has(d));
  const field = (d: string) => (
    <label key={d}>
      {d.replace("_", " ")}
      <input name={d} defaultValue={route.q.get(d) ?? ""} autocomplete="off" spellcheck={false} />
    </label>
  );
  return (
    <form class="filters" onSubmit={submit} aria-label="Filter runs" role="search">
      {dimensions.slice(0, 4).map(field)}
      <details open={used}>
        <summary>More filters</summary>
        <div class="filters">
          {dimensions.slice(4).map(field)}
          <label>
            run id
            <input name="run" autocomplete="off" spellcheck={false} />
          </label>
        </div>
      </details>
      <button type="submit" class="primary">
        Filter
      </button>
    </form>
  );
}

const keyOf = (r: RunRow) => r.tenant + "\n" + r.run_id;

function List({ first, params, reload }: { first: Rows<RunRow>; params: Record<string, string | undefined>; reload: () => void }) {
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
        <button type="button" onClick={reload}>
          Refresh
        </button>
      </div>
    </Card>
  );
}

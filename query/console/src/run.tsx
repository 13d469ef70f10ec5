// One run: what it cost and became, and its calls as a tree beside their times. Only
// the lines in sight exist as elements, so that thousands of calls scroll like ten.

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { type Call, type Run, address } from "./api";
import { useApi } from "./hooks";
import { type Route, href } from "./route";
import { type Line, flatten, shown } from "./tree";
import { Badge, Card, Loaded, Name, Time, USD, Unknown, duration, ratio, statusKind } from "./ui";

export function RunPage({ route }: { route: Route }) {
  const tenant = route.q.get("tenant") || undefined;
  const run = useApi<Run>(address("/run", { run_id: route.id, tenant }));
  return (
    <>
      <p>
        <a href={href("runs")}>All runs</a>
      </p>
      <Loaded of={run}>{(r) => <Report run={r} asked={route.id} reload={run.reload} />}</Loaded>
    </>
  );
}

const list = (m: Record<string, number>) =>
  Object.entries(m)
    .filter(([, n]) => n > 0)
    .sort((a, b) => b[1] - a[1])
    .map(([k, n]) => `${n} ${k}`)
    .join(", ");

function Report({ run, asked, reload }: { run: Run; asked: string; reload: () => void }) {
  const facts: [string, preact.ComponentChildren][] = [
    ["Cost, USD", <><USD v={run.cost_usd} /> <Unknown u={run} /></>],
    ["Status", <Badge kind={statusKind(run.status)}>{run.status}</Badge>],
    ["Amplification", `${run.amplification}: ` + list({ "model calls": run.model_calls, "tool calls": run.tool_calls, retries: run.retries, fallbacks: run.fallbacks, hedges: run.hedges })],
    ["Wasted, USD", <><USD v={run.wasted_usd} /> <span class="note">cost × {ratio(run.cost_amplification)}</span></>],
    ["Retries by", list(run.retries_by_layer) || "nobody"],
    ["Failures", list(run.failures) || "none"],
    ["Began", <Time at={run.started_at} />],
    ["Took", duration((Date.parse(run.ended_at) - Date.parse(run.started_at)) * 1e6)],
    ["Tenant", <Name v={run.tenant} />],
    ["User", <Name v={run.user} />],
    ["Feature", <Name v={run.feature} />],
    ["Workflow", <><Name v={run.workflow} /> <bdi>{run.workflow_version}</bdi></>],
    ["Agent", <Name v={run.agent} />],
    ["Sort", [run.mode, run.criticality, run.environment].filter(Boolean).join(", ")],
    ["Noted about it", list(run.flags) || "nothing"],
  ];
  return (
    <>
      {run.run_id !== asked && <p class="note">This run was known as <Name v={asked} /> before its own id came.</p>}
      <Card title="Report" wide>
        <dl class="facts">
          {facts.map(([k, v]) => (
            <div key={k}>
              <dt>{k}</dt>
              <dd>{v}</dd>
            </div>
          ))}
        </dl>
        <div class="buttons">
          <button type="button" onClick={reload}>
            Refresh
          </button>
        </div>
      </Card>
      <Calls run={run} />
    </>
  );
}

// remarks are what is worth seeing in a line of the tree without opening it: in words,
// how bad it is, and in one word where there is no room.
export function remarks(c: Call): [string, string, string][] {
  const out: [string, string, string][] = [];
  const after = (cause: string) => (cause ? " after " + cause : "");
  if (c.failure) out.push([c.failure + (c.http_status ? " " + c.http_status : ""), "bad", c.http_status ? String(c.http_status) : c.failure]);
  if (c.retry_layer) out.push([`retry by ${c.retry_layer}${after(c.retry_cause)}`, "warn", "retry"]);
  if (c.hidden_attempts) out.push([`${c.hidden_attempts} more inside, by sdk${after(c.hidden_cause)}`, "warn", "+" + c.hidden_attempts]);
  if (c.fallback) out.push(["fallback", "warn", "fallback"]);
  if (c.hedge) out.push(["hedge", "warn", "hedge"]);
  if (c.cost_status === "unpriced") out.push(["no price", "doubt", "no price"]);
  if (c.cost_status === "unknown") out.push(["usage unknown", "doubt", "no usage"]);
  if (c.duplicate_of) out.push(["counted elsewhere", "", "again"]);
  else if (c.aggregate) out.push(["sums up what is below", "", "sum"]);
  return out;
}

const title = (c: Call) => c.name || c.tool || c.model || c.kind;

function Calls({ run }: { run: Run }) {
  const { lines, total } = useMemo(() => flatten(run.calls), [run]);
  const [closed, setClosed] = useState<Set<string>>(new Set());
  const [at, setAt] = useState(0);
  const [top, setTop] = useState(0);
  const [height, setHeight] = useState(500);
  const narrow = useMedia("(max-width: 700px)");
  const step = narrow ? 56 : 32;
  const box = useRef<HTMLDivElement>(null);
  const rows = useMemo(() => shown(lines, closed), [lines, closed]);
  const here = Math.min(at, rows.length - 1);
  useEffect(() => {
    const el = box.current;
    if (!el) return;
    const seen = new ResizeObserver(() => setHeight(el.clientHeight));
    seen.observe(el);
    return () => seen.disconnect();
  }, []);
  const go = (i: number) => {
    i = Math.max(0, Math.min(rows.length - 1, i));
    setAt(i);
    const el = box.current;
    if (!el) return;
    if (i * step < el.scrollTop) el.scrollTop = i * step;
    else if ((i + 1) * step > el.scrollTop + el.clientHeight) el.scrollTop = (i + 1) * step - el.clientHeight;
  };
  const toggle = (l: Line, close: boolean) => {
    const next = new Set(closed);
    if (close) next.add(l.id);
    else next.delete(l.id);
    setClosed(next);
  };
  const key = (e: KeyboardEvent) => {
    const l = rows[here];
    const page = Math.max(1, Math.floor(height / step) - 1);
    const moves: Record<string, () => void> = {
      ArrowDown: () => go(here + 1),
      ArrowUp: () => go(here - 1),
      PageDown: () => go(here + page),
      PageUp: () => go(here - page),
      Home: () => go(0),
      End: () => go(rows.length - 1),
      ArrowRight: () => (l.children && closed.has(l.id) ? toggle(l, false) : go(here + (l.children ? 1 : 0))),
      ArrowLeft: () => {
        if (l.children && !closed.has(l.id)) return toggle(l, true);
        for (let i = here - 1; i >= 0; i--) if (rows[i].depth < l.depth) return go(i);
      },
    };
    if (moves[e.key] && !e.ctrlKey && !e.metaKey && !e.altKey) {
      e.preventDefault();
      moves[e.key]();
    }
  };
  if (rows.length === 0) return <Card title="Calls" wide><p class="empty">No call of this run is stored any more.</p></Card>;
  const from = Math.max(0, Math.floor(top / step) - 8);
  const to = Math.min(rows.length, Math.ceil((top + height) / step) + 8);
  const drawn = rows.slice(from, to).map((l, i) => [l, from + i] as const);
  if (here < from || here >= to) drawn.push([rows[here], here]); // what is selected exists, or it could not be spoken of
  return (
    <Card title="Calls" note={`${lines.length} lines over ${duration(total * 1e6)}. Arrow keys move, left closes and right opens.${run.truncated ? " Of this run only the first 10,000 calls are shown; its totals are of all." : ""}`} wide>
      <div class="buttons">
        <button type="button" onClick={() => (setClosed(new Set()), setAt(0))}>
          Open all
        </button>
        <button type="button" onClick={() => (setClosed(new Set(lines.filter((l) => l.children && l.depth > 0).map((l) => l.id))), setAt(0), box.current && (box.current.scrollTop = 0))}>
          Close all
        </button>
        <NextRemark rows={rows} here={here} go={go} />
      </div>
      <div class="split">
        <div
          ref={box}
          class={"calls" + (narrow ? " narrow" : "")}
          role="treegrid"
          aria-label="Calls"
          aria-rowcount={rows.length}
          aria-activedescendant={"line-" + here}
          tabIndex={0}
          onKeyDown={key}
          onScroll={(e) => setTop(e.currentTarget.scrollTop)}
        >
          <div role="rowgroup" style={{ height: rows.length * step + "px" }}>
            {drawn.map(([l, i]) => (
              <Row key={l.id} line={l} index={i} step={step} narrow={narrow} total={total} selected={i === here} open={!closed.has(l.id)} select={() => setAt(i)} toggle={() => toggle(l, !closed.has(l.id))} />
            ))}
          </div>
        </div>
        <Detail line={rows[here]} />
      </div>
    </Card>
  );
}

function NextRemark({ rows, here, go }: { rows: Line[]; here: number; go: (i: number) => void }) {
  const next = () => {
    for (let n = 1; n <= rows.length; n++) {
      const i = (here + n) % rows.length;
      if (remarks(rows[i].call).some(([, kind]) => kind)) return go(i);
    }
  };
  return (
    <button type="button" onClick={next}>
      Next failure, retry or unknown
    </button>
  );
}

interface RowProps {
  line: Line;
  index: number;
  step: number;
  narrow: boolean;
  total: number;
  selected: boolean;
  open: boolean;
  select: () => void;
  toggle: () => void;
}

function Row({ line, index, step, narrow, total, selected, open, select, toggle }: RowProps) {
  const c = line.call;
  const left = (line.start / total) * 100;
  const width = (line.length / total) * 100;
  return (
    <div
      id={"line-" + index}
      role="row"
      class="line"
      aria-level={line.depth + 1}
      aria-rowindex={index + 1}
      aria-selected={selected}
      aria-expanded={line.children ? open : undefined}
      style={{ top: index * step + "px", height: step + "px" }}
      onClick={select}
    >
      <span role="gridcell" class="what" style={{ paddingLeft: Math.min(line.depth, 14) * 14 + "px" }}>
        {line.children ? (
          <button type="button" class="twist" tabIndex={-1} aria-label={open ? "Close" : "Open"} onClick={(e) => (e.stopPropagation(), toggle())}>
            {open ? "▾" : "▸"}
          </button>
        ) : (
          <span class="twist" />
        )}
        <span class={"kind k-" + c.kind}>{c.kind}</span>
        <bdi class="title">{title(c)}</bdi>
        {!open && <span class="note">+{line.below}</span>}
        {remarks(c).map(([text, kind, short]) => (
          <Badge key={text} kind={kind} title={text}>
            {narrow ? short : text}
          </Badge>
        ))}
      </span>
      <span role="gridcell" class="fall" aria-label={`begins after ${duration(line.start * 1e6)}, takes ${duration(c.duration_ns)}`}>
        <i class={"k-" + c.kind + (c.failure ? " failed" : "")} style={{ left: Math.min(left, 99.6) + "%", width: Math.min(Math.max(width, 0.4), 100) + "%" }} />
      </span>
      <span role="gridcell" class="n took">{duration(c.duration_ns)}</span>
      <span role="gridcell" class="n cost">{c.cost_status === "none" || c.aggregate || c.duplicate_of ? <span class="muted">–</span> : <USD v={c.cost_usd} />}</span>
    </div>
  );
}

function Detail({ line }: { line: Line }) {
  const c = line.call;
  const tokens = Object.entries(c.tokens).filter(([, n]) => n > 0);
  const facts: [string, preact.ComponentChildren][] = [
    ["kind", [c.kind, c.operation].filter(Boolean).join(", ")],
    ["provider", c.provider],
    ["model", c.model],
    ["asked for", c.requested_model !== c.model ? String(c.requested_model ?? "") : ""],
    ["tool", c.tool && `${c.tool} (effect: ${c.tool_effect})`],
    ["began", <Time at={c.started_at} />],
    ["after", duration(line.start * 1e6)],
    ["took", duration(c.duration_ns)],
    ["cost, USD", c.aggregate || c.duplicate_of ? "counts nowhere" : c.cost_status === "none" ? "nothing to bill" : <><USD v={c.cost_usd} /> <span class="note">{c.cost_status}</span></>],
    ["estimate, USD", c.estimate_usd ?? ""],
    ["wasted, USD", c.wasted_usd !== "0" ? String(c.wasted_usd) : ""],
    ["tokens", tokens.map(([k, n]) => `${n} ${k.replaceAll("_", " ")}`).join(", ")],
    ["usage", c.usage === "none" ? "" : `${c.usage}${c.token_basis ? `, ${String(c.token_basis)}` : ""}`],
    ["price", String(c.price_id ?? "")],
    ["failure", [c.failure, c.http_status || ""].filter(Boolean).join(" ")],
    ["remarks", remarks(c).map(([t]) => t).join("; ")],
    ["attempt", c.attempt > 1 ? String(c.attempt) : ""],
    ["flags", c.flags.join(", ")],
    ["response id", String(c.response_id ?? "")],
    ["source", `${c.source}, ${c.scope || "no scope"}, version ${c.version}`],
    ["trace", c.trace_id],
    ["span", c.span_id + (c.part ? `, part ${c.part}` : "")],
    ["duplicate of", c.duplicate_of],
  ];
  return (
    <div class="detail" role="region" aria-label="The selected call">
      <h3>
        <bdi>{title(c)}</bdi>
      </h3>
      <dl>
        {facts
          .filter(([, v]) => v)
          .map(([k, v]) => (
            <div key={k}>
              <dt>{k}</dt>
              <dd>
                <bdi>{v}</bdi>
              </dd>
            </div>
          ))}
      </dl>
    </div>
  );
}

function useMedia(query: string): boolean {
  const [is, set] = useState(matchMedia(query).matches);
  useEffect(() => {
    const m = matchMedia(query);
    const on = () => set(m.matches);
    m.addEventListener("change", on);
    return () => m.removeEventListener("change", on);
  }, [query]);
  return is;
}

// Guards, where they act now, the budgets they decide by, and what was done.

import { useState } from "preact/hooks";
import { type Budget, type Event, type GuardRow, type Live, address } from "./api";
import { useApi, useTime } from "./hooks";
import { type Route, behind, filtersOf, href } from "./route";
import { Badge, Card, Chips, Confirm, Loaded, Meter, Name, Table, Time, USD, actionKind, change, duration, say, share, windowText } from "./ui";

// What narrows the events alone.
const narrower = ["kind", "class", "limiter", "user", "action", "directive"];

export function Guards({ route }: { route: Route }) {
  const guard = route.q.get("guard") || undefined;
  const tenant = route.q.get("tenant") || undefined;
  const live = useApi<{ live: Live[] }>(address("/guards/live", { guard, tenant, limit: 200 }), 5000);
  const guards = useApi<{ guards: GuardRow[] }>(address("/guards"), 10000);
  const [most, setMost] = useState(20);
  const budgets = useApi<{ budgets: Budget[] }>(address("/budgets", { guard, tenant, limit: most }), 10000);
  // Without a time the events are those of the last 30 days; links to what leaked say theirs.
  const t = useTime(route.q);
  const timed = ["last", "from", "to"].some((n) => route.q.has(n));
  const narrow = filtersOf(route.q, narrower);
  const events = useApi<{ events: Event[] }>(address("/enforcement", { ...narrow, guard, tenant, ...(timed && { from: t.from, to: t.to }), limit: 100 }), 10000);
  const [release, setRelease] = useState<Live>();
  return (
    <>
      <Chips route={route} names={["guard", "tenant", ...narrower, "last", "from", "to"]} />
      <Card title="In force now" wide>
        <Loaded of={live}>
          {(a) => (
            <Table
              label="In force now"
              rows={a.live}
              keyOf={(l) => l.id}
              empty="No guard acts on anything."
              columns={[
                { head: "does", cell: (l) => <><Badge kind={actionKind(l.action)}>{l.action.replace("_", " ")}</Badge>{l.shadow && <Badge title="Nobody is told: the guard only warns, or somebody released it">shadow</Badge>}</> },
                { head: "on", long: true, cell: (l) => <a href={where(l)}><Name v={l.scope_text} /></a> },
                { head: "guard", cell: (l) => <><Name v={l.guard} /> <span class="muted">{l.rung}</span></> },
                { head: "spent", num: true, cell: (l) => (l.limit ? `${l.spent || "–"} of ${l.limit}` : "–") },
                { head: "why", long: true, cell: (l) => <bdi>{l.reason}</bdi> },
                { head: "since", cell: (l) => <Time at={l.issued_at} short /> },
                { head: "until", cell: (l) => (l.expires_at ? <Time at={l.expires_at} short /> : "somebody releases it") },
                { head: "passed", hint: "calls that went through after the directive: before its acknowledgement, after it, and where no limiter is", cell: (l) => passed(l) },
                { head: "undo", cell: (l) => (l.shadow && l.reason === "released by hand" ? <span class="muted">released</span> : <button type="button" onClick={() => setRelease(l)}>Release<span class="hear"> {l.action} of {l.scope_text}</span></button>) },
              ]}
            />
          )}
        </Loaded>
      </Card>
      <Card title="Guards" wide note={<>The policy says which there are. <code>flyball guard apply FILE --reason …</code> changes it, <code>flyball guard backtest FILE</code> tries it on the past.</>}>
        <Loaded of={guards}>
          {(a) => (
            <Table
              label="Guards"
              rows={a.guards}
              keyOf={(g) => g.name}
              empty={<>The policy has no guard. <code>flyball guard default</code> prints one to start from.</>}
              columns={[
                { head: "guard", cell: (g) => <a href={href("guards", { guard: g.name })}><Name v={g.name} /></a> },
                { head: "of each", cell: (g) => g.scope.join(" + ") },
                { head: "limit", num: true, cell: (g) => `${g.limit} ${g.measure.replaceAll("_", " ")}` },
                { head: "window", cell: (g) => g.window },
                { head: "ladder", cell: (g) => (g.ladder ?? []).join(", ") },
                { head: "outcome", cell: (g) => g.outcome.replace("_", " ") },
                { head: "mode", cell: (g) => <><Badge kind={g.mode === "enforce" ? "good" : ""}>{g.mode}</Badge>{g.warming && <Badge kind="warn" title="what was spent before it came is still being read">warming</Badge>}</> },
                { head: "acts on", num: true, cell: (g) => g.live },
                { head: "blocks", num: true, cell: (g) => g.blocking },
              ]}
            />
          )}
        </Loaded>
      </Card>
      <Card title="Budgets" wide note="The numbers that decide, those nearest to their limit first.">
        <Loaded of={budgets}>
          {(a) => (
            <>
            <Table
              label="Budgets"
              rows={a.budgets}
              keyOf={(b) => b.guard + "\n" + b.scope + (b.window.start ?? "")}
              empty="No budget has been touched yet. A budget appears with the first call that it counts."
              columns={[
                { head: "guard", cell: (b) => <><Name v={b.guard} /> <span class="muted">{b.mode}{b.warming && ", warming"}</span></> },
                { head: "scope", long: true, cell: (b) => <Name v={b.scope} /> },
                { head: "spent", num: true, cell: (b) => <>{b.spend}{b.measure === "external_writes" && b.unclear_tool_calls ? <span class="doubt" title="tool calls of unknown effect, not part of the count"> + {b.unclear_tool_calls} not clear</span> : null}</> },
                { head: "holds", num: true, hint: "reported by a limiter, its span has not come yet", cell: (b) => b.holds },
                { head: "leases", num: true, hint: "reserved for calls under way", cell: (b) => b.leases },
                { head: "limit", num: true, cell: (b) => b.limit },
                { head: "left", num: true, cell: (b) => b.left },
                { head: "used", cell: (b) => <Meter value={share(b.spend, b.limit)} label={b.guard} /> },
                { head: "overshoot", hint: "by how much it may be overspent before the limit holds", cell: (b) => overshoot(b) },
                { head: "behind it", hint: "what was spent, and the runs or calls, of this scope in this window", cell: (b) => <BehindBudget b={b} /> },
                { head: "window", cell: (b) => <>{windowText(b.window)}{b.window.end && <span class="muted"> to <Time at={b.window.end} /></span>}</> },
              ]}
            />
            {a.budgets.length >= most && (
              <button type="button" onClick={() => setMost(most * 5)}>
                Show more
              </button>
            )}
            </>
          )}
        </Loaded>
      </Card>
      <Events events={events} note={timed ? "The latest 100 of the chosen time." : undefined} />
      {release && (
        <Confirm
          title="Release this rung?"
          text={
            <p>
              <strong>{release.action.replace("_", " ")}</strong> on <Name v={release.scope_text} /> by guard <Name v={release.guard} /> is taken back at once. The guard acts again at its next rung or in its next window.
            </p>
          }
          action="Release"
          onDone={() => setRelease(undefined)}
          run={async (reason) => {
            await change("/guards/release", { id: release.id, reason });
            say(`Released ${release.action} of guard ${release.guard}.`);
            live.reload();
            events.reload();
          }}
        />
      )}
    </>
  );
}

// where the run, the runs or the calls are that a directive is about.
function where(l: Live): string {
  const b = behind(l.scope, l.window, l.match);
  return b.run ?? b.list;
}

// BehindBudget leads to what a budget counts.
export function BehindBudget({ b }: { b: Budget }) {
  const to = behind(b.of, b.window, b.match);
  const of = <span class="hear"> of {b.scope}, guard {b.guard}</span>;
  if (to.run) return <a href={to.run}>run{of}</a>;
  return (
    <span class="links">
      <a href={to.spend}>spend{of}</a> <a href={to.list}>{to.calls ? "calls" : "runs"}{of}</a>
      {to.wider.length > 0 && <span class="note"> of which those of {to.wider.join(", ")} count</span>}
    </span>
  );
}

function passed(l: Live) {
  const p = [
    [l.leaked.Propagation, "on the way"],
    [l.leaked.Leak, "leaked"],
    [l.leaked.Unguarded, "unguarded"],
  ] as const;
  const text = p.filter(([n]) => n.calls > 0).map(([n, what]) => `${n.calls} ${what} (${n.usd} USD)`);
  return text.length ? <span class="doubt">{text.join(", ")}</span> : "none seen";
}

function overshoot(b: Budget) {
  const o = b.overshoot_bound;
  if (!o) return <span class="muted" title="not a budget of money, or nothing was measured yet">–</span>;
  return (
    <span title={`at ${o.usd_per_second} USD a second: ${duration(o.export_delay_ns)} until a span comes, ${duration(o.propagation_ns)} until limiters know`}>
      {o.usd} USD + calls under way
    </span>
  );
}

const leaked = (e: Event) => (
  <>
    {e.calls} {e.calls === 1 ? "call" : "calls"}, <USD v={e.usd} /> USD, {{ propagation: "on the way", leak: "leaked", unguarded: "unguarded" }[e.class ?? ""] ?? e.class}
    {e.limiter && <> past <Name v={e.limiter} /></>} {e.trace_id && <a href={href("calls", { trace_id: e.trace_id, tenant: e.tenant || undefined })}>its calls</a>}
  </>
);

export function Events({ events, note }: { events: ReturnType<typeof useApi<{ events: Event[] }>>; note?: string }) {
  return (
    <Card title="What was done" wide note={note ?? "The latest 100 of the last 30 days."}>
      <Loaded of={events}>
        {(a) => (
          <Table
            label="Events"
            rows={a.events}
            keyOf={(e) => String(e.seq)}
            empty="Nothing yet. What guards, people and limiters do is written down here."
            columns={[
              { head: "when", cell: (e) => <Time at={e.at} short /> },
              { head: "what", cell: (e) => <><Badge kind={e.kind === "directive" ? actionKind(e.action ?? "") : ""}>{e.kind}</Badge> {e.action?.replace("_", " ")}{e.shadow && " (nobody was told)"}</> },
              { head: "on", long: true, cell: (e) => <><Name v={e.scope || e.tenant || e.guard} /> {e.kind === "directive" && e.trace_id && <a href={href("calls", { trace_id: e.trace_id, tenant: e.tenant || undefined })}>the call that crossed it<span class="hear"> for {e.scope}</span></a>}</> },
              { head: "by", cell: (e) => <Name v={e.actor || (e.guard && `guard ${e.guard}`)} /> },
              { head: "why", long: true, cell: (e) => (e.kind === "leak" ? leaked(e) : <bdi>{e.reason}</bdi>) },
            ]}
          />
        )}
      </Loaded>
    </Card>
  );
}

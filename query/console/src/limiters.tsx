// Who enforces: what each limiter applied and how fast, what passed it; and the lights of
// providers.

import { type LeakRow, type Light, type Limiter, type Rows, type TimesRow, address } from "./api";
import { useApi, useTime } from "./hooks";
import { type Route, href, timeParams } from "./route";
import { Badge, Card, Chips, Count, Loaded, Name, Question, Range, Table, Time, USD, duration, keyOf } from "./ui";

export function LimiterTable({ limiters }: { limiters: Limiter[] }) {
  return (
    <Table
      label="Limiters"
      rows={limiters}
      keyOf={(l) => l.id}
      empty="No limiter follows. Until one does, guards only watch: put the Go library, Envoy, or any client of the feed in front of your models."
      columns={[
        { head: "limiter", cell: (l) => <Name v={l.id} /> },
        { head: "state", cell: (l) => (!l.active ? <Badge kind="bad" title="not heard of for five minutes">silent</Badge> : l.behind ? <Badge kind="warn">behind</Badge> : <Badge kind="good">current</Badge>) },
        { head: "acknowledged", num: true, cell: (l) => l.acknowledged },
        { head: "time to enforce", num: true, hint: "span received to acknowledgement, of the last directive", cell: (l) => (l.time_to_enforce_ns ? duration(l.time_to_enforce_ns) : "not measured") },
        { head: "seen", cell: (l) => <Time at={l.seen_at} short /> },
        { head: "follows since", cell: (l) => <Time at={l.since} short /> },
        { head: "key", cell: (l) => <Name v={l.key} /> },
      ]}
    />
  );
}

export function Limiters({ route }: { route: Route }) {
  const t = useTime(route.q);
  const params = { from: t.from, to: t.to, tenant: route.q.get("tenant") || undefined };
  const limiters = useApi<{ version: string; limiters: Limiter[]; connections: number }>(address("/limiters"), 5000);
  const lights = useApi<{ lights: Light[] }>(address("/lights"), 5000);
  return (
    <>
      <Card title="Limiters" wide>
        <Loaded of={limiters}>
          {(a) => (
            <>
              <p class="note">
                The state is at version {a.version}; {a.connections} {a.connections === 1 ? "connection follows" : "connections follow"}.
              </p>
              <LimiterTable limiters={a.limiters} />
            </>
          )}
        </Loaded>
      </Card>
      <Card title="Provider lights" wide note="How much of their limits providers have left, as limiters read it off their answers, and how often they refuse.">
        <Loaded of={lights}>
          {(a) => (
            <Table
              label="Provider lights"
              rows={a.lights}
              keyOf={(l) => l.provider}
              empty="No call to a provider was seen since the start."
              columns={[
                { head: "provider", cell: (l) => <Name v={l.provider} /> },
                { head: "light", cell: (l) => <Badge kind={{ green: "good", amber: "warn", red: "bad" }[l.color] ?? ""}>{l.color}</Badge> },
                { head: "since", cell: (l) => <Time at={l.since} short /> },
                { head: "left", cell: (l) => (l.headroom.length ? l.headroom.map((h) => `${h.remaining} of ${h.limit} ${h.dimension}${h.model ? " of " + h.model : ""}`).join(", ") : <span class="muted">no limiter reported any</span>) },
              ]}
            />
          )}
        </Loaded>
      </Card>
      <h2 class="part-of">Over time</h2>
      <Range route={route} />
      <Chips route={route} names={["tenant"]} />
      <Question<Rows<TimesRow>>
        route={route}
        title="Time to enforce"
        note="From the receipt of the span that crossed a limit to the acknowledgement of the limiter; and from that span's end, which has the delay of its export in it."
        name="times"
        path="/enforcement/times"
        params={params}
        by={["limiter", "guard", "action", "limiter,action", "tenant"]}
      >
        {(a, groups) => (
          <Table
            label="Time to enforce"
            rows={a.rows}
            keyOf={keyOf(groups)}
            empty="No limiter had anything new to enforce in this time."
            columns={[
              ...groups.map((g) => ({ head: g, cell: (r: TimesRow) => <Name v={String(r[g] ?? "")} /> })),
              { head: "applied", num: true, cell: (r) => <Count v={r.count} /> },
              { head: "p50", num: true, cell: (r) => took(r.p50_ns) },
              { head: "p90", num: true, cell: (r) => took(r.p90_ns) },
              { head: "p99", num: true, cell: (r) => <strong>{took(r.p99_ns)}</strong> },
              { head: "slowest", num: true, cell: (r) => took(r.max_ns) },
              { head: "p50 after the span's end", num: true, cell: (r) => took(r.after_span.p50_ns) },
              { head: "p99 after the span's end", num: true, cell: (r) => took(r.after_span.p99_ns) },
            ]}
          />
        )}
      </Question>
      <Question<Rows<LeakRow>>
        route={route}
        title="Leakage"
        note="Calls that started although a directive refused them: before the limiter had acknowledged it, after it, and where no limiter ever did. Calls of no known cost are counted and add no USD."
        name="leakage"
        path="/enforcement/leakage"
        params={params}
        by={["guard,limiter", "guard", "limiter", "tenant", "user", "action"]}
      >
        {(a, groups) => (
          <Table
            label="Leakage"
            rows={a.rows}
            keyOf={keyOf(groups)}
            empty="Nothing was seen to pass a directive in this time."
            columns={[
              ...groups.map((g) => ({ head: g, cell: (r: LeakRow) => <Name v={String(r[g] ?? "")} /> })),
              ...(["propagation", "leak", "unguarded"] as const).map((c) => ({
                head: { propagation: "on the way", leak: "leaked", unguarded: "unguarded" }[c],
                num: true,
                hint: { propagation: "before the acknowledgement", leak: "after the acknowledgement: the limiter let them pass", unguarded: "no limiter ever acknowledged" }[c],
                cell: (r: LeakRow) =>
                  r[`${c}_calls`] === 0 ? (
                    <span class="muted">none</span>
                  ) : (
                    <>
                      <a href={href("guards", { ...timeParams(route.q), ...Object.fromEntries(groups.map((g) => [g, String(r[g])])), kind: "leak", class: c })}>
                        <Count v={r[`${c}_calls`]} /> {r[`${c}_calls`] === 1 ? "call" : "calls"}
                      </a>
                      , <USD v={r[`${c}_usd`]} /> USD
                    </>
                  ),
              })),
            ]}
          />
        )}
      </Question>
    </>
  );
}

const took = (ns: number | null) => (ns === null ? <span class="muted">not measured</span> : duration(ns));

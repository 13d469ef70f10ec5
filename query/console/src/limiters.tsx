// Who enforces: what each limiter applied and how fast; and the lights of providers.

import { type Light, type Limiter, address } from "./api";
import { useApi } from "./hooks";
import { Badge, Card, Loaded, Name, Table, Time, duration } from "./ui";

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

export function Limiters() {
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
    </>
  );
}

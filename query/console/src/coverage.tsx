// What we do not know, and what would cure it.

import { type Coverage, address } from "./api";
import { useApi, useTime } from "./hooks";
import { type Route, href, lead } from "./route";
import { AsOf, Badge, Card, Chips, Loaded, Name, Range, Table, USD } from "./ui";

const meanings: [string, string, string][] = [
  ["model_attempts", "Model calls", "all that were seen"],
  ["unpriced", "Without a price", "usage is known, no price list has the model: add it to a file of prices.files, then flyball reprice"],
  ["unknown", "Of unknown usage", "a call that should have been billed and came without token counts, often a stream: the emitter has to send usage"],
  ["estimated", "Estimated", "the estimate stands beside totals, never in them"],
  ["assumed_basis", "Read by an assumption", "nobody said whether input tokens contain cached ones: pin basis for the emitter"],
  ["sampled", "From sampled traces", "what sampling dropped cannot be counted: sample after Flyball, not before"],
  ["late", "Late", "came after their trace was forgotten, so that retries of theirs may be taken for calls"],
  ["quarantined", "Quarantined", "entries that the database refuses, kept in the data directory: see the server's log"],
];

export function CoveragePage({ route }: { route: Route }) {
  const t = useTime(route.q);
  const a = useApi<Coverage>(address("/coverage", { from: t.from, to: t.to, tenant: route.q.get("tenant") || undefined, limit: 200 }), 30000);
  return (
    <>
      <Range route={route} />
      <Chips route={route} names={["tenant"]} />
      <p class="foot">
        <AsOf of={a} />
      </p>
      <Loaded of={a} bare>
        {(c) => (
          <>
            <Card title="What is not known" wide>
              <Table
                label="What is not known"
                rows={meanings.filter(([k]) => c.total[k] !== undefined)}
                keyOf={([k]) => k}
                columns={[
                  { head: "what", cell: ([, name]) => name },
                  { head: "calls", num: true, cell: ([k]) => <span class={c.total[k] && k !== "model_attempts" ? "doubt" : ""}>{c.total[k]}</span> },
                  { head: "which means", long: true, cell: ([, , text]) => text },
                ]}
              />
            </Card>
            <Card title="Findings" wide>
              {c.findings.length === 0 ? (
                <p class="empty">Nothing is wrong in how spans come in, as far as that can be seen.</p>
              ) : (
                <ul class="findings">
                  {c.findings.map((f) => (
                    <li key={f.finding + f.tenants.join("\n")}>
                      <bdi>{f.text}</bdi>{" "}
                      {f.tenants.map((tenant) => (
                        <a key={tenant} href={href("runs", { tenant }, f.trace_id)}>
                          part of <Name v={tenant} />
                        </a>
                      ))}
                    </li>
                  ))}
                </ul>
              )}
            </Card>
            <Card title="By model" wide>
              <Table
                label="By model"
                rows={c.rows}
                keyOf={(r) => r.provider + "\n" + r.model}
                empty="No model was called in this time."
                columns={[
                  { head: "model", cell: (r) => <a href={lead(route, { model: r.model, provider: r.provider })}><Name v={r.model} /></a> },
                  { head: "provider", cell: (r) => <Name v={r.provider} /> },
                  { head: "calls", num: true, cell: (r) => r.calls },
                  { head: "no price", num: true, cell: (r) => doubt(r.unpriced) },
                  { head: "unknown", num: true, cell: (r) => doubt(r.unknown) },
                  { head: "estimated", num: true, cell: (r) => doubt(r.estimated) },
                  { head: "assumed", num: true, cell: (r) => doubt(r.assumed_basis) },
                  { head: "sampled", num: true, cell: (r) => doubt(r.sampled) },
                  { head: "known USD", num: true, cell: (r) => <USD v={r.cost_usd} /> },
                ]}
              />
              {c.truncated && <p class="note">Only the first {c.rows.length} models are shown; the totals are of all.</p>}
            </Card>
            <Card title="Flags" wide note="What was noted about single calls. The documentation of figures says what each means.">
              {Object.keys(c.flags).length === 0 ? <p class="empty">None.</p> : <p class="chips">{Object.entries(c.flags).map(([f, n]) => <Badge key={f}>{n} {f.replaceAll("_", " ")}</Badge>)}</p>}
            </Card>
          </>
        )}
      </Loaded>
    </>
  );
}

const doubt = (n: number) => (n ? <span class="doubt">{n}</span> : <span class="muted">0</span>);

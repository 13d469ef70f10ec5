// Where work goes that bought little: retries, loops, polls that were told nothing, and
// what tools put into the context.

import type { LoopRow, PayloadRow, PollRow, Rows, WorkedRow } from "./api";
import { navigate, useTime } from "./hooks";
import { type Route, filtersOf, href, runDimensions, timeParams } from "./route";
import { type Column, Count, Doubts, Filters, Meter, Question, Range, Table, USD, bytes, keyOf, milliseconds, ratio, valueColumns } from "./ui";

export function Waste({ route }: { route: Route }) {
  const t = useTime(route.q);
  const params = { from: t.from, to: t.to, ...filtersOf(route.q, runDimensions) };
  return (
    <>
      <Range route={route} />
      <Filters route={route} key={route.q.toString()} names={runDimensions} label="Filter waste" fold />
      <Worked route={route} params={params} />
      <Question<Rows<LoopRow>>
        route={route}
        title="Loops"
        note="Tools called again with arguments that the run had used before; no retries. The cost is all that such runs cost."
        name="loops"
        path="/loops"
        params={params}
        only={(r, groups) => r.repeats !== 0 || !groups.includes("run_id")}
        by={["tenant,run_id,workflow", "workflow,agent", "tenant", "feature", "user", "tenant,workflow,workflow_version"]}
      >
        {(a, groups) => (
          <Table
            label="Loops"
            rows={a.rows}
            keyOf={keyOf(groups)}
            empty={groups.includes("run_id") ? "No run has repeated a tool call in this time, as far as arguments were recorded." : "No run has called a model in this time."}
            columns={[
              ...valueColumns<LoopRow>(route, groups.includes("run_id") ? ["run_id", ...groups.filter((g) => g !== "run_id")] : groups),
              { head: "repeat ratio", num: true, hint: "repeats for each intended tool call", cell: (r) => (r.repeat_ratio === null ? "–" : <Meter value={r.repeat_ratio} label="repeats" plain />) },
              { head: "repeats", num: true, cell: (r) => <Count v={r.repeats} /> },
              { head: "tool calls", num: true, cell: (r) => <Count v={r.tool_calls} /> },
              ...(groups.includes("run_id")
                ? []
                : ([
                    { head: "runs with repeats", num: true, cell: (r) => <><Count v={r.looping_requests} /> of <Count v={r.requests} /></> },
                    { head: "most in one run", num: true, cell: (r) => <Count v={r.most_repeats} /> },
                  ] satisfies Column<LoopRow>[])),
              { head: "USD of these runs", num: true, cell: (r) => <USD v={r.looping_cost_usd} /> },
              { head: "not in it", long: true, cell: (r) => <Doubts of={[[r.looping_uncosted_calls, "of no known cost"]]} /> },
            ]}
          />
        )}
      </Question>
      <Question<Rows<PollRow>>
        route={route}
        title="Empty polls"
        note="The same tool, called again with the same arguments, that was told nothing; and the turns of a model that did nothing else."
        name="polls"
        path="/empty-polls"
        params={params}
        by={["tool", "workflow,tool", "tenant,tool", "agent,tool", "workflow", "tenant"]}
      >
        {(a, groups) => (
          <Table
            label="Empty polls"
            rows={a.rows}
            keyOf={keyOf(groups)}
            empty="No tool was called in this time."
            columns={[
              ...valueColumns<PollRow>(route, groups, { kind: "tool" }),
              { head: "empty share", num: true, hint: "of the polls whose answer was seen", cell: (r) => (r.empty_share === null ? "–" : <Meter value={r.empty_share} label="empty" plain />) },
              { head: "empty", num: true, cell: (r) => <Count v={r.empty_polls} /> },
              { head: "polls", num: true, cell: (r) => <Count v={r.polls} /> },
              { head: "of calls", num: true, cell: (r) => <Count v={r.calls} /> },
              { head: "answer not seen", num: true, cell: (r) => <Count v={r.unknown_polls} /> },
              { head: "empty turns", num: true, hint: "model calls that made nothing but empty polls", cell: (r) => <Count v={r.empty_turns} /> },
              { head: "these cost, USD", num: true, cell: (r) => <USD v={r.empty_turns_usd} /> },
              { head: "not in it", long: true, cell: (r) => <Doubts of={[[r.empty_turns_uncosted, "of no known cost"]]} /> },
            ]}
          />
        )}
      </Question>
      <Question<Rows<PayloadRow>>
        route={route}
        title="Payloads"
        note="What tools put into the context. Tokens are counted where two model calls show them, and unknown elsewhere; so is what they cost."
        name="payloads"
        path="/payloads"
        params={params}
        by={["tool,payload_type", "tool", "payload_type", "workflow,tool", "tenant,tool", "agent,tool"]}
      >
        {(a, groups) => (
          <Table
            label="Payloads"
            rows={a.rows}
            keyOf={keyOf(groups)}
            empty="No tool was called in this time."
            columns={[
              ...valueColumns<PayloadRow>(route, groups, { kind: "tool" }),
              { head: "bytes", num: true, cell: (r) => bytes(r.bytes) },
              { head: "bytes / call", num: true, cell: (r) => bytes(r.bytes_per_call) },
              { head: "tokens / call", num: true, hint: "of the calls whose tokens were measured", cell: (r) => (r.tokens_per_call === null ? <span class="muted">not measured</span> : <strong>{ratio(Math.round(r.tokens_per_call))}</strong>) },
              { head: "tokens measured", num: true, cell: (r) => (r.measured_tokens === null ? "–" : <><Count v={r.measured_tokens} /> <span class="muted">of {r.measured_calls}</span></>) },
              { head: "calls", num: true, cell: (r) => <Count v={r.calls} /> },
              { head: "not in it", long: true, cell: (r) => <Doubts of={[[r.unsized_calls, "without a recorded result"]]} none="all results recorded" /> },
            ]}
          />
        )}
      </Question>
    </>
  );
}

function Worked({ route, params }: { route: Route; params: Record<string, string | undefined> }) {
  const requests = route.q.get("of") === "requests";
  return (
    <>
      <div class="buttons" role="group" aria-label="What worked after retries is counted in">
        {["calls", "requests"].map((of) => (
          <button key={of} type="button" aria-pressed={requests === (of === "requests")} onClick={() => navigate(route, { of: of === "calls" ? undefined : of })}>
            {of === "calls" ? "Calls that worked" : "Requests that worked"}
          </button>
        ))}
      </div>
      <Question<Rows<WorkedRow>>
        key={String(requests)}
        route={route}
        title={`${requests ? "Requests" : "Calls"} that worked after retries`}
        note="The cost is that of every attempt. It is compared with what as many of the same calls cost that worked at once."
        name="worked"
        path="/worked-after"
        params={{ ...params, of: requests ? "requests" : "calls" }}
        by={requests ? ["", "workflow", "tenant", "feature", "agent"] : ["layer", "layer,kind", "layer,workflow", "layer,provider,model", "tenant,layer", "layer,agent"]}
      >
        {(a, groups) => (
          <Table
            label="Worked after retries"
            rows={a.rows}
            keyOf={keyOf(groups)}
            empty={`No ${requests ? "request" : "call"} has worked in this time.`}
            columns={[
              { head: "worked", cell: (r) => tries(r.retries) },
              ...groups.map((g): Column<WorkedRow> => ({ head: g === "layer" ? "tried again by" : g.replaceAll("_", " "), cell: (r) => (g === "layer" ? layer(route, r) : <>{String(r[g]) || <span class="muted">(none)</span>}</>) })),
              { head: requests ? "requests" : "calls", num: true, cell: (r) => <Count v={r.calls} /> },
              { head: "cost × a first try", num: true, hint: "what they cost for each dollar of as many that worked at once", cell: (r) => (r.cost_ratio === null ? <span class="muted">{r.first_try_usd === null ? "not comparable" : "cost nothing"}</span> : <strong>× {ratio(r.cost_ratio)}</strong>) },
              { head: "USD compared", num: true, hint: "what those cost that could be compared, and what as many cost that worked at once", cell: (r) => (r.cost_ratio === null ? "–" : <><USD v={r.compared_usd} /> <span class="muted">to <USD v={r.first_try_usd} /></span></>) },
              { head: "all cost, USD", num: true, cell: (r) => <USD v={r.cost_usd} /> },
              { head: "not compared", long: true, cell: (r) => <Doubts of={[[r.uncosted_calls, "of no known cost"], [r.incomplete_calls, "begun before this time"]]} none={r.compared_calls === r.calls ? "all compared" : r.compared_calls === 0 ? "none like them worked at once" : `${r.compared_calls} compared`} /> },
              { head: "took", num: true, hint: "on average, from the first attempt to the end of the last", cell: (r) => milliseconds(r.mean_ms) },
              { head: "longer by", num: true, cell: (r) => milliseconds(r.extra_ms) },
            ]}
          />
        )}
      </Question>
    </>
  );
}

const tries = (retries: string) => ({ "0": "at once", "1": "after 1 retry" })[retries] ?? `after ${retries.replace("+", " or more")} retries`;

const layer = (route: Route, r: WorkedRow) =>
  r.layer ? <a href={href("calls", { ...timeParams(route.q), ...filtersOf(route.q, runDimensions), retry_layer: String(r.layer) })}>{String(r.layer)}</a> : <span class="muted">–</span>;

package query

import (
	"context"
	"math/big"
	"slices"
	"strconv"

	"github.com/flyball/flyball/schema"
)

// loopDimensions: by run_id the rows are runs, the worst first.
var loopDimensions = append(slices.Clone(runDimensions), "run_id")

// loops answers how often tools were called again with arguments that the run had
// used before, and what the runs cost in which they were.
func (a *API) loops(ctx context.Context, r *request) (any, error) {
	groups, err := r.groups(loopDimensions, "workflow,agent")
	if err != nil {
		return nil, err
	}
	q, err := a.thenRuns(ctx, r)
	if err != nil {
		return nil, err
	}
	q.runRange(r)
	q.vars["RunFilter"], q.vars["Info"] = q.filter(r, runDimensions), r.needs(groups, runDimensions[1:])
	columns := []string{"requests", "looping_requests", "tool_calls", "repeats", "repeat_ratio", "most_repeats", "cost_usd", "looping_cost_usd", "looping_uncosted_calls"}
	return a.sums(ctx, r, "loops.sql", q, groups, columns, func(get func(string) any) row {
		tools, again := get("tools").(int64), get("again").(int64)
		return row{"requests": get("requests"), "looping_requests": get("looping"), "tool_calls": tools, "repeats": again, "repeat_ratio": share(again, tools), "most_repeats": get("most"),
			"cost_usd": usd(get("cost")), "looping_cost_usd": usd(get("looping_cost")), "looping_uncosted_calls": get("uncosted")}
	})
}

// toolDimensions and payloadDimensions tell tool calls apart.
var (
	toolDimensions    = append(slices.Clone(runDimensions), "tool")
	payloadDimensions = append(slices.Clone(toolDimensions), "payload_type")
)

// measuredLines is how many lines are put in order to measure payloads, which takes
// some 250 bytes each.
const measuredLines = 1_000_000

// doubtful marks calls whose counts are no evidence of what was added to the next one's input.
const doubtful = schema.FlagUsageInvalid | schema.FlagUsageInconsistent | schema.FlagPartialUsage | schema.FlagBasisAssumed | schema.FlagEstimated | schema.FlagPromoted | schema.FlagResidual | schema.FlagCovered

// columns names the dimensions that lines carry; a statement that looks at runs and
// agents has two of them anyway.
func (q *question) columns(r *request, groups, dimensions []string) {
	columns := r.needs(groups, dimensions)
	q.vars["Columns"], q.vars["Filter"] = columns, q.filter(r, dimensions)
	q.vars["Own"] = slices.DeleteFunc(slices.Clone(columns), func(d string) bool { return d == "tenant" || d == "agent" })
}

// mask binds flags.
func (q *question) mask(name string, f schema.Flags) {
	q.bind(name, "UInt64", strconv.FormatUint(uint64(f), 10))
}

// journalOnly tells who asks for a time that the journal does not have any more.
const journalOnly = "this answer is made of entries; begin later"

// entries makes a question one about entries of the time. It refuses where some of
// them have expired.
func (a *API) entries(ctx context.Context, r *request, q *question) error {
	q.runRange(r)
	return a.journalHas(ctx, r, journalOnly)
}

// payloads answers how many bytes tools answered with, and how many tokens these
// became where two model calls show it.
func (a *API) payloads(ctx context.Context, r *request) (any, error) {
	groups, err := r.groups(payloadDimensions, "tool,payload_type")
	if err != nil {
		return nil, err
	}
	q := r.then()
	if err := a.entries(ctx, r, q); err != nil {
		return nil, err
	}
	q.columns(r, groups, payloadDimensions)
	q.mask("doubtful", doubtful)
	q.bind("lines", "UInt32", strconv.Itoa(measuredLines))
	names := []string{"calls", "unsized_calls", "bytes", "bytes_per_call", "measured_calls", "measured_bytes", "measured_tokens", "tokens_per_call"}
	return a.sums(ctx, r, "payloads.sql", q, groups, names, func(get func(string) any) row {
		n := func(name string) int64 { return get(name).(int64) }
		m := row{"calls": n("calls"), "unsized_calls": n("calls") - n("sized"), "bytes": nil, "bytes_per_call": share(n("bytes"), n("sized")),
			"measured_calls": n("measured"), "measured_bytes": n("measured_bytes"), "measured_tokens": nil, "tokens_per_call": share(n("tokens"), n("measured"))}
		if n("sized") != 0 {
			m["bytes"] = n("bytes")
		}
		if n("measured") != 0 {
			m["measured_tokens"] = n("tokens")
		}
		return m
	})
}

// emptyPolls answers how many tool calls asked again and were told nothing, and what
// the model calls cost that made nothing but such calls.
func (a *API) emptyPolls(ctx context.Context, r *request) (any, error) {
	groups, err := r.groups(toolDimensions, "tool")
	if err != nil {
		return nil, err
	}
	q := r.then()
	if err := a.entries(ctx, r, q); err != nil {
		return nil, err
	}
	q.columns(r, groups, toolDimensions)
	columns := []string{"calls", "polls", "empty_polls", "empty_share", "unknown_polls", "empty_turns", "empty_turns_usd", "empty_turns_uncosted"}
	return a.sums(ctx, r, "empty_polls.sql", q, groups, columns, func(get func(string) any) row {
		n := func(name string) int64 { return get(name).(int64) }
		return row{"calls": n("calls"), "polls": n("polls"), "empty_polls": n("empty"), "empty_share": share(n("empty"), n("polls")-n("unsaid")), "unknown_polls": n("unsaid"),
			"empty_turns": n("turns"), "empty_turns_usd": usd(get("cost").(*big.Int)), "empty_turns_uncosted": n("uncosted")}
	})
}

package query

import (
	"cmp"
	"context"
	"math/big"
	"slices"
	"time"

	"github.com/flyball/flyball/schema"
)

// amplification answers how much work a request became. By a property of calls
// the rows do not add up, since one request has calls of several values; the
// answer says so.
func (a *API) amplification(ctx context.Context, r *request) (any, error) {
	groups, err := r.groups(slices.Concat(runDimensions, callDimensions), "workflow")
	if err != nil {
		return nil, err
	}
	q, err := a.agentRuns(ctx, r, groups)
	if err != nil {
		return nil, err
	}
	q.vars["Filter"] = q.filter(r, callDimensions)
	var ofRuns, ofCalls []string
	for _, g := range groups {
		if slices.Contains(runDimensions, g) {
			ofRuns = append(ofRuns, g)
		} else {
			ofCalls = append(ofCalls, g)
		}
	}
	q.vars["Groups"], q.vars["RunGroups"], q.vars["CallGroups"], q.vars["OfRuns"] = groups, ofRuns, ofCalls, len(ofRuns) > 0
	q.paging(r, r.limit+1)
	r.columns = append(slices.Clone(groups), "requests", "model_calls", "tool_calls", "retries", "fallbacks", "hedges", "ratio", "retry_multiplier", "cost_usd", "wasted_usd", "cost_amplification", "unpriced_calls", "unknown_calls", "repeats", "p50", "p90", "p99")
	additive := len(ofCalls) == 0 && q.vars["Filter"] == "1"
	name := "amplification.sql"
	if !additive {
		name = "amplification_calls.sql"
	}
	out := []row{}
	if err := a.ask(ctx, r, name, q, func(get func(string) any) {
		n := func(name string) int64 { return get(name).(int64) }
		m := amplification(n("requests"), n("model_calls"), n("tool_calls"), n("retries"), n("fallbacks"), n("hedges"))
		for _, g := range groups {
			m[g] = get(g)
		}
		m.money(get("cost").(*big.Int), get("wasted").(*big.Int))
		m["unpriced_calls"], m["unknown_calls"], m["repeats"] = n("unpriced"), n("unknown"), n("repeats")
		var of []float64
		if additive {
			of = quantiles(n("requests"), get("works").([]int64), get("times").([]int64))
		} else {
			of = get("q").([]float64)
		}
		m["p50"], m["p90"], m["p99"] = of[0], of[1], of[2]
		out = append(out, row(m))
	}); err != nil {
		return nil, err
	}
	truncated := len(out) > r.limit
	return r.answer(row{"rows": out[:min(len(out), r.limit)], "additive": additive, "truncated": truncated, "next": r.next(r.limit, truncated)}), nil
}

// agentRuns starts a question about the runs of the request's time, each with its sign,
// grouped by dimensions of runs.
func (a *API) agentRuns(ctx context.Context, r *request, groups []string) (*question, error) {
	q, err := a.thenRuns(ctx, r)
	if err != nil {
		return nil, err
	}
	q.runRange(r)
	q.vars["RunFilter"], q.vars["Info"] = q.filter(r, runDimensions), r.needs(groups, runDimensions[1:])
	if r.asOf != (asOf{}) {
		return q, nil
	}
	states, err := schema.ReadRunStates(ctx, r.conn)
	if err != nil {
		return nil, err
	}
	if !states.Folded.IsZero() {
		q.vars["Folded"] = q.bind("folded", "Date", states.Folded.Format(time.DateOnly))
	}
	if !states.Open.IsZero() {
		q.vars["Open"] = "toDateTime64(" + q.bind("open", "String", states.Open.UTC().Format(clickhouseMicros)) + ", 6, 'UTC')"
	}
	if time.Since(states.Folded) > a.behind && time.Since(states.Open) > a.behind {
		q.vars["Within"] = "started_at >= toDateTime64({from:String}, 9, 'UTC') AND started_at < toDateTime64({to:String}, 9, 'UTC')"
	}
	return q, nil
}

// quantiles are those at 0.5, 0.9 and 0.99 of requests that did works[i] times[i] times:
// exact, and what quantilesExact of ClickHouse gives.
func quantiles(requests int64, works, times []int64) []float64 {
	order := make([]int, len(works))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(works[a], works[b]) })
	out := make([]float64, 0, 3)
	for _, level := range []float64{0.5, 0.9, 0.99} {
		before := int64(level * float64(requests))
		for _, i := range order {
			if before -= times[i]; before < 0 {
				out = append(out, float64(works[i]))
				break
			}
		}
	}
	return out
}

// measures are the counts of runs and the ratios made of them, as an answer has them.
type measures row

func amplification(requests, model, tool, retries, fallbacks, hedges int64) measures {
	logical := model + tool
	attempts := logical + retries + fallbacks + hedges
	m := measures{"requests": requests, "model_calls": model, "tool_calls": tool, "retries": retries, "fallbacks": fallbacks, "hedges": hedges, "ratio": nil, "retry_multiplier": nil}
	if requests > 0 {
		m["ratio"] = float64(attempts) / float64(requests)
	}
	if logical > 0 {
		m["retry_multiplier"] = float64(attempts) / float64(logical)
	}
	return m
}

// money adds what was spent and how much of it was of use.
func (m measures) money(cost, wasted *big.Int) {
	m["cost_usd"], m["wasted_usd"], m["cost_amplification"] = usd(cost), usd(wasted), nil
	if used := new(big.Int).Sub(cost, wasted); used.Sign() > 0 {
		m["cost_amplification"], _ = new(big.Rat).SetFrac(cost, used).Float64()
	}
}

// runRange binds the time for what runs are.
func (q *question) runRange(r *request) {
	q.bind("from", "String", r.from.UTC().Format(clickhouseNanos))
	q.bind("to", "String", r.to.UTC().Format(clickhouseNanos))
}

// retries answers who retried what, why, and what was wasted.
func (a *API) retries(ctx context.Context, r *request) (any, error) {
	groups, err := r.groups(retryDimensions, "layer,failure")
	if err != nil {
		return nil, err
	}
	r.quarters()
	if err := a.rollup(ctx, r); err != nil {
		return nil, err
	}
	q := r.then()
	q.rangeArgs(r)
	q.vars["FXCost"], q.vars["Filter"] = "s.wasted", q.filter(r, retryDimensions[3:]) // layer and failure are no columns
	fx, err := a.currency(ctx, r, q)
	if err != nil {
		return nil, err
	}
	r.tagged = r.closed(time.Now())
	fx.apply(q)
	columns := []string{}
	for _, d := range retryDimensions {
		if _, filtered := r.GetQuery(d); d != "layer" && d != "failure" && (filtered || slices.Contains(groups, d)) {
			columns = append(columns, d)
		}
	}
	q.vars["Groups"], q.vars["Columns"], q.vars["Filter"] = groups, columns, q.vars["Filter"].(string)+" AND "+q.filter(r, retryDimensions[:3])
	q.paging(r, r.limit+1)
	out := []row{}
	err = a.ask(ctx, r, "retries.sql", q, func(get func(string) any) {
		m := row{"retries": get("retries"), "fallbacks": get("fallbacks"), "hedges": get("hedges"), "wasted_usd": usd(get("wasted"))}
		if fx.currency != "" {
			m["wasted"], m["currency"] = usd(get("converted")), fx.currency
		}
		for _, g := range groups {
			m[g] = get(g)
		}
		out = append(out, m)
	})
	if err != nil {
		return nil, err
	}
	truncated := len(out) > r.limit
	r.columns = append(slices.Clone(groups), "retries", "fallbacks", "hedges", "wasted_usd")
	if fx.currency != "" {
		r.columns = append(r.columns, "wasted", "currency")
	}
	answer := r.answer(row{"rows": out[:min(len(out), r.limit)], "truncated": truncated, "next": r.next(r.limit, truncated)})
	fx.say(r, answer, fxRounding)
	return answer, nil
}

package query

import (
	"context"
	"math/big"
	"slices"
)

// loadDimensions are those that requests have, and those that tell calls apart which capacity is planned for.
var loadDimensions = append(slices.Clone(runDimensions), "provider", "model", "kind")

// modelLike is a condition on a column of kinds as text.
const modelLike = "kind IN ('model', 'embedding', 'rerank', 'image', 'speech', 'transcription')"

// load answers how many provider calls the requests that began in each interval
// became: requests x steps a request x attempts a step. Steps are logical calls of
// models, unless kind is asked for; the three counts are integers, so that the product
// of the quotients is the last of them.
func (a *API) load(ctx context.Context, r *request) (any, error) {
	groups, err := r.groups(loadDimensions, "workflow")
	if err != nil {
		return nil, err
	}
	q, err := a.agentRuns(ctx, r, groups)
	if err != nil {
		return nil, err
	}
	if q.vars["At"], err = r.bucket("toDateTime(i.started_at, 'UTC')"); err != nil {
		return nil, err
	}
	if err := a.journalHas(ctx, r, journalOnly); err != nil {
		return nil, err
	}
	filter := q.filter(r, loadDimensions[len(runDimensions):])
	if _, filtered := r.GetQuery("kind"); !filtered && !slices.Contains(groups, "kind") {
		filter += " AND " + modelLike
	}
	q.vars["Filter"], q.vars["OfRuns"] = filter, true
	q.vars["CallGroups"] = slices.DeleteFunc(slices.Clone(groups), func(g string) bool { return slices.Contains(runDimensions, g) })
	q.vars["RunGroups"] = slices.DeleteFunc(slices.Clone(groups), func(g string) bool { return !slices.Contains(runDimensions, g) })
	columns := []string{"requests", "steps", "retries", "fallbacks", "hedges", "provider_calls", "steps_per_request", "retry_multiplier", "calls_p50", "calls_p90", "calls_p99", "cost_usd", "unpriced_calls", "unknown_calls"}
	answer, err := a.sums(ctx, r, "amplification_calls.sql", q, groups, columns, func(get func(string) any) row {
		n := func(name string) int64 { return get(name).(int64) }
		steps := n("model_calls") + n("tool_calls")
		calls := steps + n("retries") + n("fallbacks") + n("hedges")
		p := get("q").([]float64)
		return row{"requests": n("requests"), "steps": steps, "retries": n("retries"), "fallbacks": n("fallbacks"), "hedges": n("hedges"), "provider_calls": calls,
			"steps_per_request": share(steps, n("requests")), "retry_multiplier": share(calls, steps), "calls_p50": p[0], "calls_p90": p[1], "calls_p99": p[2],
			"cost_usd": usd(get("cost").(*big.Int)), "unpriced_calls": n("unpriced"), "unknown_calls": n("unknown")}
	})
	if err != nil {
		return nil, err
	}
	// A request that used two models stands in the rows of both.
	answer["additive"] = len(q.vars["CallGroups"].([]string)) == 0
	return answer, nil
}

// limitDimensions tell attempts at models apart, whatever became of them.
var limitDimensions = slices.DeleteFunc(slices.Clone(dimensions), func(d string) bool { return d == "retry_layer" || d == "failure" })

// rateLimits answers how many attempts providers refused for rate or quota.
func (a *API) rateLimits(ctx context.Context, r *request) (any, error) {
	groups, err := r.groups(limitDimensions, "provider,model")
	if err != nil {
		return nil, err
	}
	r.quarters()
	if err := a.rollup(ctx, r); err != nil {
		return nil, err
	}
	q := r.then()
	if q.vars["At"], err = r.bucket("s.at"); err != nil {
		return nil, err
	}
	q.vars["Filter"] = q.filter(r, limitDimensions)
	q.rangeArgs(r)
	return a.sums(ctx, r, "rate_limits.sql", q, groups, []string{"attempts", "rate_limited", "rate"}, func(get func(string) any) row {
		attempts, limited := get("attempts").(int64), get("limited").(int64)
		return row{"attempts": attempts, "rate_limited": limited, "rate": share(limited, attempts)}
	})
}

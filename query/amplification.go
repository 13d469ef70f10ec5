package query

import (
	"cmp"
	"context"
	"maps"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"
)

// amplification answers how much work a request became. By a property of calls
// the rows do not add up, since one request has calls of several values; the
// answer says so.
func (a *API) amplification(ctx context.Context, r *request) (any, error) {
	groups, err := r.groups(slices.Concat(runDimensions, callDimensions), "workflow")
	if err != nil {
		return nil, err
	}
	q, err := a.thenRuns(ctx, r)
	if err != nil {
		return nil, err
	}
	q.runRange(r)
	q.vars["RunFilter"], q.vars["Filter"] = q.filter(r, runDimensions), q.filter(r, callDimensions)
	var ofRuns, ofCalls, info []string
	for _, g := range groups {
		if slices.Contains(runDimensions, g) {
			ofRuns = append(ofRuns, g)
		} else {
			ofCalls = append(ofCalls, g)
		}
	}
	for _, d := range runDimensions[1:] {
		if _, filtered := r.GetQuery(d); filtered || slices.Contains(groups, d) {
			info = append(info, d)
		}
	}
	q.vars["Groups"], q.vars["RunGroups"], q.vars["CallGroups"], q.vars["Info"] = groups, ofRuns, ofCalls, info
	r.columns = append(slices.Clone(groups), "requests", "model_calls", "tool_calls", "retries", "fallbacks", "hedges", "ratio", "retry_multiplier", "cost_usd", "wasted_usd", "cost_amplification", "unpriced_calls", "unknown_calls", "repeats", "p50", "p90", "p99")
	additive := len(ofCalls) == 0 && q.vars["Filter"] == "1"
	parts := []part{{of: 1}}
	if additive {
		if parts, err = a.parts(ctx, r); err != nil {
			return nil, err
		}
	}
	var list []*runsOfGroup
	if len(parts) > 1 {
		if list, err = a.together(ctx, r, parts, groups, info); err != nil {
			return nil, err
		}
		end := min(r.offset+r.limit+1, len(list))
		list = list[min(r.offset, end):end]
	}
	if list == nil {
		name := "amplification.sql"
		if !additive {
			name = "amplification_calls.sql"
		}
		q.paging(r, r.limit+1)
		q.vars["Wide"] = parts[0].wide
		if err := a.ask(ctx, r, name, q, func(get func(string) any) {
			g := newRunsOfGroup(get, groups)
			g.q = get("q").([]float64)
			list = append(list, g)
		}); err != nil {
			return nil, err
		}
	}
	truncated := len(list) > r.limit
	out := []row{}
	for _, g := range list[:min(len(list), r.limit)] {
		out = append(out, g.row())
	}
	return r.answer(row{"rows": out, "additive": additive, "truncated": truncated, "next": r.next(r.limit, truncated)}), nil
}

// runsOfGroup is what the runs of a group did.
type runsOfGroup struct {
	group        row
	counts       map[string]int64
	cost, wasted *big.Int
	works        map[int64]int64 // how many runs did so much
	q            []float64       // its quantiles, at 0.5, 0.9 and 0.99
}

var runCounts = []string{"requests", "model_calls", "tool_calls", "retries", "fallbacks", "hedges", "unpriced", "unknown", "repeats"}

func newRunsOfGroup(get func(string) any, groups []string) *runsOfGroup {
	g := &runsOfGroup{group: row{}, counts: map[string]int64{}, cost: get("cost").(*big.Int), wasted: get("wasted").(*big.Int)}
	for _, name := range groups {
		g.group[name] = get(name)
	}
	for _, n := range runCounts {
		g.counts[n] = get(n).(int64)
	}
	return g
}

func (g *runsOfGroup) row() row {
	c := g.counts
	m := amplification(c["requests"], c["model_calls"], c["tool_calls"], c["retries"], c["fallbacks"], c["hedges"])
	for name, v := range g.group {
		m[name] = v
	}
	m.money(g.cost, g.wasted)
	m["unpriced_calls"], m["unknown_calls"], m["repeats"] = c["unpriced"], c["unknown"], c["repeats"]
	m["p50"], m["p90"], m["p99"] = g.q[0], g.q[1], g.q[2]
	return row(m)
}

// add takes what other runs of the same group did.
func (g *runsOfGroup) add(o *runsOfGroup) {
	for n, v := range o.counts {
		g.counts[n] += v
	}
	g.cost.Add(g.cost, o.cost)
	g.wasted.Add(g.wasted, o.wasted)
	for w, n := range o.works {
		g.works[w] += n
	}
}

// quantiles are exact, and those that quantilesExact of ClickHouse gives.
func (g *runsOfGroup) quantiles() {
	works := slices.Sorted(maps.Keys(g.works))
	for _, level := range []float64{0.5, 0.9, 0.99} {
		before := int64(level * float64(g.counts["requests"]))
		for _, w := range works {
			if before -= g.works[w]; before < 0 {
				g.q = append(g.q, float64(w))
				break
			}
		}
	}
}

// together asks part by part and adds up what is answered, most requests first. It is nil
// where that would be too many groups to keep.
func (a *API) together(ctx context.Context, r *request, parts []part, groups, info []string) ([]*runsOfGroup, error) {
	index, list, rows := map[string]*runsOfGroup{}, []*runsOfGroup{}, 0
	for _, p := range parts {
		q := r.question()
		q.runRange(r)
		q.only(p)
		q.vars["RunFilter"], q.vars["Groups"], q.vars["Info"] = q.filter(r, runDimensions), groups, info
		q.bind("limit", "UInt32", strconv.Itoa(a.partGroups+1))
		q.bind("offset", "UInt32", "0")
		rows = 0
		err := a.ask(ctx, r, "amplification.sql", q, func(get func(string) any) {
			rows++
			g := newRunsOfGroup(get, groups)
			works, times := get("works").([]int64), get("times").([]int64)
			g.works = make(map[int64]int64, len(works))
			for i, w := range works {
				g.works[w] = times[i]
			}
			key := ""
			for _, name := range groups {
				key += strconv.Quote(g.group[name].(string))
			}
			if known := index[key]; known != nil {
				known.add(g)
				return
			}
			index[key] = g
			list = append(list, g)
		})
		if err != nil {
			return nil, err
		}
		if rows > a.partGroups || len(list) > a.partGroups {
			return nil, nil
		}
	}
	for _, g := range list {
		g.quantiles()
	}
	slices.SortFunc(list, func(x, y *runsOfGroup) int {
		if c := cmp.Compare(y.counts["requests"], x.counts["requests"]); c != 0 {
			return c
		}
		for _, name := range groups {
			if c := strings.Compare(x.group[name].(string), y.group[name].(string)); c != 0 {
				return c
			}
		}
		return 0
	})
	return list, nil
}

// part is which of the runs of a time one statement is about: those whose hash leaves the
// rest number, divided by of. With wide it reads every run of its tenants, where the time is
// much of what there is: to look each of them up costs more.
type part struct {
	number, of int64
	wide       bool
}

// parts are as many as it takes for each to have no more runs than a statement can group in
// memory. A run is of one of them, so that what is counted of the parts adds up.
func (a *API) parts(ctx context.Context, r *request) ([]part, error) {
	const long, share = 3 * 24 * time.Hour, 3
	if r.to.Sub(r.from) < long || r.asOf != (asOf{}) {
		return []part{{of: 1}}, nil
	}
	all, within := int64(0), int64(0)
	if err := a.ask(ctx, r, "run_days.sql", r.question(), func(get func(string) any) {
		day, n := get("day").(time.Time), get("runs").(int64)
		all += n
		if day.Before(r.to) && day.Add(24*time.Hour).After(r.from) {
			within += n
		}
	}); err != nil {
		return nil, err
	}
	out := make([]part, within/a.partRuns+1)
	for i := range out {
		out[i] = part{int64(i), int64(len(out)), share*within > all}
	}
	return out, nil
}

// only has a question be about one part.
func (q *question) only(p part) {
	q.vars["Wide"] = p.wide
	if p.of > 1 {
		q.vars["Part"] = true
		q.bind("part", "UInt64", strconv.FormatInt(p.number, 10))
		q.bind("parts", "UInt64", strconv.FormatInt(p.of, 10))
	}
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

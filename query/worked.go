package query

import (
	"context"
	"fmt"
	"math/big"
	"slices"
	"time"

	"github.com/flyball/flyball/schema"
)

// workedDimensions: the layer is the one that tried again last.
var workedDimensions = slices.Concat([]string{"tenant", "layer"}, limitDimensions[1:])

// workedLimit is how many attempts, or sums of them, one answer may be made of.
const workedLimit = 1_000_000

// target is what calls are compared by: those that worked at once, of the same tenant, kind, provider, model or
// tool, and workflow.
type target struct{ tenant, kind, provider, model, tool, workflow string }

// tried sums calls that worked after so many retries.
type tried struct {
	retries                     int
	calls, uncosted, incomplete int64
	cost                        *big.Int // 1e-12 USD, of every attempt
	compare                     map[target]*effort
}

// effort is what calls took, from the first attempt to the end of the last.
type effort struct {
	calls, costed int64
	cost, elapsed *big.Int // 1e-12 USD, of those that are costed; nanoseconds
}

func (e *effort) add(calls, costed int64, cost, elapsed *big.Int) {
	if e.cost == nil {
		e.cost, e.elapsed = new(big.Int), new(big.Int)
	}
	e.calls += calls
	e.costed += costed
	e.cost.Add(e.cost, cost)
	e.elapsed.Add(e.elapsed, elapsed)
}

// add counts calls. Those whose first attempts are not there, or whose cost is not
// known, are left out of what is compared.
func (t *tried) add(of target, calls, costed int64, cost, elapsed *big.Int, whole bool) {
	t.calls += calls
	t.cost.Add(t.cost, cost)
	if !whole {
		t.incomplete += calls
		return
	}
	t.uncosted += calls - costed
	if costed == 0 { // what is known of it is no cost of a call
		cost = new(big.Int)
	}
	e := t.compare[of]
	if e == nil {
		e = &effort{}
		t.compare[of] = e
	}
	e.add(calls, costed, cost, elapsed)
}

// row compares with calls that worked at once: as many of the same targets, at their mean.
func (t *tried) row(once map[target]*effort) row {
	cost, base, elapsed, usual := new(big.Int), new(big.Rat), new(big.Int), new(big.Rat)
	compared, costed := int64(0), int64(0)
	mean := func(sum *big.Int, n, times int64) *big.Rat {
		return new(big.Rat).Mul(new(big.Rat).SetFrac(sum, big.NewInt(n)), new(big.Rat).SetInt64(times))
	}
	for of, e := range t.compare {
		first := once[of]
		if first == nil || first.calls <= 0 {
			continue
		}
		compared += e.calls
		elapsed.Add(elapsed, e.elapsed)
		usual.Add(usual, mean(first.elapsed, first.calls, e.calls))
		if first.costed > 0 {
			costed += e.costed
			cost.Add(cost, e.cost)
			base.Add(base, mean(first.cost, first.costed, e.costed))
		}
	}
	m := row{"retries": retriesNames[t.retries], "calls": t.calls, "cost_usd": usd(t.cost), "uncosted_calls": t.uncosted, "incomplete_calls": t.incomplete,
		"compared_calls": costed, "compared_usd": usd(cost), "first_try_usd": nil, "cost_ratio": nil, "mean_ms": nil, "extra_ms": nil}
	if costed > 0 {
		m["first_try_usd"] = pico(new(big.Rat).Quo(base, big.NewRat(schema.PicoPerUSD, 1))).String()
		if base.Sign() > 0 {
			m["cost_ratio"], _ = new(big.Rat).Quo(new(big.Rat).SetInt(cost), base).Float64()
		}
	}
	if compared > 0 {
		ms := func(ns *big.Rat) float64 {
			v, _ := ns.Quo(ns, big.NewRat(compared*int64(time.Millisecond), 1)).Float64()
			return v
		}
		took := new(big.Rat).SetInt(elapsed)
		m["mean_ms"], m["extra_ms"] = ms(new(big.Rat).Set(took)), ms(took.Sub(took, usual))
	}
	return m
}

// mostRetries is the number from which retries are counted as so many and more.
const mostRetries = 3

// retriesNames are how a row says what it is of.
var retriesNames = []string{"0", "1", "2", mostRetries: fmt.Sprintf("%d+", mostRetries)}

// workedAfter answers what calls, or requests, took and cost that worked at once and
// after one, two, three and more retries.
func (a *API) workedAfter(ctx context.Context, r *request) (any, error) {
	of := r.DefaultQuery("of", "calls")
	dims, byDefault := workedDimensions, "layer"
	switch {
	case of == "requests":
		dims, byDefault = runDimensions, ""
		for _, d := range workedDimensions {
			if _, filtered := r.GetQuery(d); filtered && !slices.Contains(dims, d) {
				return nil, badRequest("%s is of calls; requests have %v", d, dims[1:])
			}
		}
	case of != "calls":
		return nil, badRequest("of %q: want calls or requests", of)
	}
	groups, err := r.groups(dims, byDefault)
	if err != nil {
		return nil, err
	}
	q := r.then()
	if of == "requests" {
		if q, err = a.thenRuns(ctx, r); err != nil {
			return nil, err
		}
	}
	q.bind("limit", "UInt32", fmt.Sprint(workedLimit+1))
	w := &workedAnswer{once: map[target]*effort{}, pages: newPage(append(slices.Clone(groups), "n"), func() *tried { return &tried{cost: new(big.Int), compare: map[target]*effort{}} })}
	q.vars["Columns"] = slices.DeleteFunc(slices.Clone(groups), func(g string) bool { return g == "tenant" || g == "layer" })
	if of == "requests" {
		err = a.workedRequests(ctx, r, q, w)
	} else if err = a.entries(ctx, r, q); err == nil {
		err = a.workedCalls(ctx, r, q, w)
	}
	if err != nil {
		return nil, err
	}
	if w.rows > workedLimit {
		return nil, badRequest("the answer would be made of more than %d attempts; ask for a shorter time, one tenant or one model", workedLimit)
	}
	slices.SortStableFunc(w.list, w.compare)
	w.groups = groups
	columns := []string{"retries", "calls", "cost_usd", "uncosted_calls", "incomplete_calls", "compared_calls", "compared_usd", "first_try_usd", "cost_ratio", "mean_ms", "extra_ms"}
	answer := w.answer(r, columns, func(t *tried) row { return t.row(w.once) })
	for _, m := range answer["rows"].([]row) {
		delete(m, "n")
	}
	answer["of"] = of
	return answer, nil
}

// workedAnswer collects an answer.
type workedAnswer struct {
	*pages[*tried]
	once map[target]*effort
	rows int
}

// after is where calls of a row of a statement belong that worked after n retries.
func (w *workedAnswer) after(get func(string) any, layer string, n int) *tried {
	n = min(max(n, 0), mostRetries) // what is left of a run whose first days have expired may be less than nothing
	t := w.find(func(name string) any {
		switch name {
		case "n":
			return fmt.Sprint(n)
		case "layer":
			return layer
		}
		return get(name)
	})
	t.retries = n
	return t
}

// first counts calls that worked at once.
func (w *workedAnswer) first(of target, calls, costed int64, cost, elapsed *big.Int) {
	e := w.once[of]
	if e == nil {
		e = &effort{}
		w.once[of] = e
	}
	e.add(calls, costed, cost, elapsed)
}

func (a *API) workedRequests(ctx context.Context, r *request, q *question, w *workedAnswer) error {
	q.runRange(r)
	q.vars["RunFilter"], q.vars["Info"] = q.filter(r, runDimensions), append([]string{"ended_at", "status"}, runDimensions[1:]...)
	return a.ask(ctx, r, "worked_after_requests.sql", q, func(get func(string) any) {
		w.rows++
		calls, costed, n := get("calls").(int64), get("calls").(int64), get("n").(int64)
		if get("uncosted").(uint8) == 1 {
			costed = 0
		}
		of := target{tenant: get("tenant").(string), kind: "request", workflow: get("of_workflow").(string)}
		cost, elapsed := get("cost").(*big.Int), get("elapsed").(*big.Int)
		if n == 0 {
			first := cost
			if costed == 0 {
				first = new(big.Int)
			}
			w.first(of, calls, costed, first, elapsed)
		}
		w.after(get, "", int(n)).add(of, calls, costed, cost, elapsed, true)
	})
}

// step is an attempt that failed and waits for the next one.
type step struct {
	attempt, hidden                 uint32
	start, end                      int64 // of the first attempt; of this one
	failure, parent, tool, provider string
	target                          string
	args                            uint64
	cost                            *big.Int
	costed, whole                   bool
}

func (a *API) workedCalls(ctx context.Context, r *request, q *question, w *workedAnswer) error {
	q.mask("promoted", schema.FlagPromoted|schema.FlagResidual)
	layer, byLayer := r.GetQuery("layer")
	q.vars["Filter"] = q.filter(r, limitDimensions)
	targetOf := func(get func(string) any) target {
		text := func(name string) string { return get(name).(string) }
		return target{text("tenant"), text("of_kind"), text("of_provider"), text("of_model"), text("of_tool"), text("of_workflow")}
	}
	err := a.ask(ctx, r, "worked_after.sql", q, func(get func(string) any) {
		w.rows++
		of, calls, costed, cost, elapsed := targetOf(get), get("calls").(int64), get("costed").(int64), get("cost").(*big.Int), get("elapsed").(*big.Int)
		w.first(of, calls, costed, cost, elapsed)
		if !byLayer || layer == "" {
			w.after(get, "", 0).add(of, calls, costed, cost, elapsed, true)
		}
	})
	if err != nil {
		return err
	}
	// The attempts of one trace and kind come in order of their start. Each failure is
	// taken up once, by the next attempt that names it as its cause.
	var waiting []step
	last := [3]string{}
	return a.ask(ctx, r, "worked_after_attempts.sql", q, func(get func(string) any) {
		w.rows++
		text := func(name string) string { return get(name).(string) }
		if here := [3]string{text("tenant"), text("trace"), text("of_kind")}; here != last {
			waiting, last = waiting[:0], here
		}
		s := step{attempt: get("attempt").(uint32), hidden: get("hidden_attempts").(uint32), start: get("start").(int64), end: get("end").(int64), failure: text("failed"), parent: text("parent"), tool: text("of_tool"),
			provider: text("of_provider"), target: text("target"), args: get("args_hash").(uint64), cost: new(big.Int), whole: true}
		if c := get("known_cost").(*int64); c != nil {
			s.cost.SetInt64(*c)
			s.costed = true
		}
		if s.attempt > 1 {
			fallback := get("fallback").(uint8) == 1
			i := len(waiting) - 1
			for ; i >= 0; i-- {
				f := &waiting[i]
				if f.attempt == s.attempt-1 && f.end <= s.start && f.failure == text("cause") && f.tool == s.tool && (f.provider == s.provider && f.target == s.target) != fallback &&
					(f.parent == s.parent && (f.args == 0 || s.args == 0 || f.args == s.args) || s.args != 0 && f.args == s.args) {
					break
				}
			}
			if i < 0 {
				s.whole = false
			} else {
				f := waiting[i]
				s.start, s.costed, s.whole = f.start, s.costed && f.costed, f.whole
				s.hidden += f.hidden
				s.cost.Add(s.cost, f.cost)
				waiting = slices.Delete(waiting, i, i+1)
			}
		}
		if s.failure != "" && s.failure != schema.Refused.String() {
			waiting = append(waiting, s)
			return
		}
		by := text("by")
		if s.attempt == 1 && s.hidden > 0 {
			by = schema.LayerSDK.String()
		}
		if get("wanted").(uint8) == 0 || byLayer && by != layer {
			return
		}
		costed := int64(0)
		if s.costed {
			costed = 1
		}
		w.after(get, by, int(s.attempt-1+s.hidden)).add(targetOf(get), 1, costed, s.cost, big.NewInt(s.end-s.start), s.whole)
	})
}

package query

import (
	"context"
	"fmt"
	"math/big"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"

	"github.com/flyball/flyball/schema"
)

// treeLimit is how many calls of a run are shown. Its totals are of all.
const treeLimit = 10_000

// runs lists the latest runs.
func (a *API) runs(ctx context.Context, r *request) (any, error) {
	if v := r.Query("cursor"); v != "" {
		c, err := parseRunCursor(v)
		if err != nil {
			return nil, err
		}
		if c.at.Before(r.from) {
			return nil, badRequest("cursor %q is of a time before from; ask the same question again, with only cursor added", v)
		}
		// Runs come by their start, latest first.
		if to := c.at.Add(1); to.Before(r.to) {
			r.to = to
		}
		r.after = &c
	}
	out, err := a.latest(ctx, r)
	if err != nil {
		return nil, err
	}
	truncated := len(out) > r.limit
	out = out[:min(len(out), r.limit)]
	if err := a.endings(ctx, r, out); err != nil {
		return nil, err
	}
	next := ""
	if truncated {
		last := out[len(out)-1]
		at, err := time.Parse(time.RFC3339Nano, last["started_at"].(string))
		if err != nil {
			panic("BUG: a run's started_at does not parse")
		}
		next = runCursor{at, last["tenant"].(string), last["run_id"].(string)}.String()
	}
	r.columns = []string{"started_at", "ended_at", "tenant", "run_id", "status", "name", "user", "feature", "workflow", "workflow_version", "agent", "model_calls", "tool_calls", "retries", "fallbacks", "hedges", "amplification", "cost_usd", "unpriced_calls", "unknown_calls"}
	return r.answer(row{"rows": out, "truncated": truncated, "next": next}), nil
}

// latest lists runs, one more than the limit. Some of the rows that began last are of no agent
// run, or not what their run is by now, so that the runs since the start of a few more rows than
// are wanted are mostly enough, and much cheaper than all.
func (a *API) latest(ctx context.Context, r *request) ([]row, error) {
	for newest := 2*r.limit + 100; ; newest *= 16 {
		part := *r
		if r.asOf == (asOf{}) { // there a run has a row for each entry
			since, err := a.startOfLatest(ctx, r, newest)
			if err != nil {
				return nil, err
			}
			part.from = since
		}
		out, err := a.runsOf(ctx, &part)
		if err != nil || len(out) > r.limit || !part.from.After(r.from) {
			return out, err
		}
	}
}

// startOfLatest is when the first of the so many rows of run_info that began last began: looked for within
// a day before it is within all of the time. Where there are fewer it is the start of the time.
func (a *API) startOfLatest(ctx context.Context, r *request, newest int) (time.Time, error) {
	day := *r
	if from := r.to.Add(-24 * time.Hour); from.After(r.from) {
		day.from = from
	}
	for _, part := range []*request{&day, r} {
		q := r.question()
		q.runRange(part)
		q.vars["RunFilter"] = q.filter(r, runDimensions)
		q.bind("newest", "UInt32", strconv.Itoa(newest))
		since := r.from
		if err := a.ask(ctx, r, "runs_since.sql", q, func(get func(string) any) {
			if get("rows").(uint64) == uint64(newest) {
				since = get("since").(time.Time)
			}
		}); err != nil || since.After(r.from) || !part.from.After(r.from) {
			return since, err
		}
	}
	return r.from, nil
}

// runsOf lists the runs of the time, one more than the limit.
func (a *API) runsOf(ctx context.Context, r *request) ([]row, error) {
	q, err := a.agentRuns(ctx, r, nil)
	if err != nil {
		return nil, err
	}
	q.vars["Info"], q.vars["After"] = runDimensions[1:], r.after != nil
	if c := r.after; c != nil {
		q.bind("after_at", "String", c.at.UTC().Format(clickhouseNanos))
		q.bind("after_tenant", "String", c.tenant)
		q.bind("after_run", "String", c.run)
	}
	q.bind("limit", "UInt32", strconv.Itoa(r.limit+1))
	out := []row{}
	var hashes []uint64
	index := map[[2]uint64]row{}
	if err := a.ask(ctx, r, "runs.sql", q, func(get func(string) any) {
		n := func(name string) int64 { return get(name).(int64) }
		m := row{"started_at": stamp(get("started_at")), "cost_usd": usd(get("cost")), "unpriced_calls": get("unpriced"), "unknown_calls": get("unknown"),
			"amplification": n("model_calls") + n("tool_calls") + n("retries") + n("fallbacks") + n("hedges")}
		for _, name := range []string{"tenant", "user", "feature", "workflow", "workflow_version", "agent", "model_calls", "tool_calls", "retries", "fallbacks", "hedges"} {
			m[name] = get(name)
		}
		hash := get("run_hash").(uint64)
		hashes, index[[2]uint64{hash, get("run_check").(uint64)}] = append(hashes, hash), m
		out = append(out, m)
	}); err != nil || len(out) == 0 {
		return out, err
	}
	q.args = append(q.args, clickhouse.Named("hashes", hashes))
	err = a.ask(ctx, r, "run_names.sql", q, func(get func(string) any) {
		if m := index[[2]uint64{get("run_hash").(uint64), get("run_check").(uint64)}]; m != nil {
			m["run_id"], m["status"], m["name"], m["ended_at"] = get("run_id"), get("status"), get("name"), stamp(get("ended_at"))
		}
	})
	// Between the two statements a run may have been dropped with its month.
	return slices.DeleteFunc(out, func(m row) bool { return m["run_id"] == nil }), err
}

// endings corrects the status of runs, which their root gave, by what their calls say.
func (a *API) endings(ctx context.Context, r *request, runs []row) error {
	if len(runs) == 0 {
		return nil
	}
	ids := make([]string, len(runs))
	index := make(map[[2]string]row, len(runs))
	for i, m := range runs {
		ids[i] = m["run_id"].(string)
		index[[2]string{m["tenant"].(string), ids[i]}] = m
	}
	q := r.then()
	q.args = append(q.args, clickhouse.Named("runs", ids))
	// The last run of the list began first, and a call may begin a little before
	// the root that reports it, by another clock.
	first, err := time.Parse(time.RFC3339Nano, runs[len(runs)-1]["started_at"].(string))
	if err != nil {
		panic("BUG: a run's started_at does not parse")
	}
	q.bind("first", "String", first.Add(-time.Hour).Format(clickhouseNanos))
	q.vars["Filter"] = "(tool_effect = 'write' OR failure = 'budget') AND run_id IN {runs:Array(String)} AND started_at >= toDateTime64({first:String}, 9, 'UTC') AND recorded_at >= toDateTime64({first:String}, 9, 'UTC') - INTERVAL 10 MINUTE"
	return a.ask(ctx, r, "run_endings.sql", q, func(get func(string) any) {
		if m := index[[2]string{get("tenant").(string), get("run_id").(string)}]; m != nil {
			m["status"] = runStatus(m["status"].(string), get("last_write").(string), get("denied").(uint64) > 0)
		}
	})
}

// runStatus is a run's status, given its root's ("unknown" where no root came),
// the failure of its last attempt at a write ("" where that succeeded or there was
// none) and whether a budget refused any of its calls. A write that nobody saw
// end leaves the run unknown, whatever its root believes. A run that ended well
// although a budget refused part of it is partial.
func runStatus(root, lastWrite string, denied bool) string {
	switch lastWrite {
	case "timeout", "cancelled", "unknown":
		return "unknown"
	}
	if root == "succeeded" && denied {
		return "partial"
	}
	return root
}

// rootStatus is the status that a root's failure stands for.
func rootStatus(failure string) string {
	switch failure {
	case "":
		return "succeeded"
	case "budget", "cancelled":
		return "stopped"
	}
	return "failed"
}

// run is the run report: totals, and the calls as a tree. The old id of a run
// that was given another answers 301.
func (a *API) run(ctx context.Context, r *request) (any, error) {
	id := strings.TrimPrefix(r.Param("id"), "/")
	if id == "" {
		id = r.Query("run_id")
	}
	if id == "" {
		return nil, badRequest("no run id; /api/v1/runs lists runs")
	}
	q := r.then()
	q.vars["Filter"] = strings.TrimPrefix(q.runClause(id, r.asOf != (asOf{})), " AND ")
	sum := newReport()
	if err := a.ask(ctx, r, "run_totals.sql", q, sum.add); err != nil {
		return nil, err
	}
	switch len(sum.tenants) {
	case 0:
		to, err := a.movedTo(ctx, r, id)
		if err != nil {
			return nil, err
		}
		if to == "" || to == id {
			return nil, problem{http.StatusNotFound, fmt.Sprintf("no run %s; it may not be in the journal yet (see /readyz), or another tenant's", id)}
		}
		u := "/api/v1/runs/" + url.PathEscape(to)
		params := r.Request.URL.Query()
		if params.Del("run_id"); len(params) > 0 {
			u += "?" + params.Encode()
		}
		r.Header("Cache-Control", "no-store")
		r.Redirect(http.StatusMovedPermanently, u)
		return nil, nil
	case 1:
	default:
		return nil, badRequest("tenants %s each have a run %s; say which with tenant=", strings.Join(sum.tenants, ", "), id)
	}
	calls, err := a.callsPage(ctx, r, q, false, false, start, treeLimit+1)
	if err != nil {
		return nil, err
	}
	truncated := len(calls) > treeLimit
	out := sum.report(id, calls[:min(len(calls), treeLimit)], truncated)
	if r.asOf != (asOf{}) {
		r.known(out)
	}
	return out, nil
}

// movedTo is the run that a trace, under whose id a run was known, belongs to now.
func (a *API) movedTo(ctx context.Context, r *request, id string) (string, error) {
	trace, err := schema.ParseTraceID(id)
	if err != nil {
		return "", nil
	}
	q := r.then()
	q.vars["Filter"] = "trace_id = toFixedString(unhex(" + q.bind("trace", "String", trace.String()) + "), 16)"
	to := ""
	err = a.ask(ctx, r, "moved.sql", q, func(get func(string) any) { to = get("run").(string) })
	return to, err
}

// report adds up the rows of run_totals.sql, which come in the order of their last start.
type report struct {
	tenants                        []string
	model, tool, hidden, own       int64
	fallbacks, hedges, repeats     int64
	unpriced, unknown, estimated   int64
	cost, wasted                   *big.Int
	layers, failures, kinds, flags map[string]int64
	root, lastWrite                string
	denied                         bool
	first                          time.Time
	ended                          int64
}

func newReport() *report {
	return &report{root: "unknown", cost: new(big.Int), wasted: new(big.Int), layers: map[string]int64{}, failures: map[string]int64{}, kinds: map[string]int64{}, flags: map[string]int64{}}
}

func (s *report) add(get func(string) any) {
	n := func(name string) int64 { return get(name).(int64) }
	if t := get("tenant").(string); !slices.Contains(s.tenants, t) {
		s.tenants = append(s.tenants, t)
	}
	s.model += n("model_calls")
	s.tool += n("tool_calls")
	s.own += n("retries")
	s.hidden += n("hidden_attempts")
	s.fallbacks += n("fallbacks")
	s.hedges += n("hedges")
	s.repeats += n("repeats")
	s.unpriced += n("unpriced")
	s.unknown += n("unknown")
	s.cost.Add(s.cost, get("cost").(*big.Int))
	s.wasted.Add(s.wasted, get("wasted").(*big.Int))
	failure, flags := get("failure").(string), schema.Flags(get("flags").(uint64))
	add := func(m map[string]int64, name string, n int64) {
		if name != "" && n > 0 {
			m[name] += n
		}
	}
	add(s.layers, get("retry_layer").(string), n("retries"))
	add(s.layers, schema.LayerSDK.String(), n("hidden_attempts"))
	add(s.kinds, get("kind").(string), n("counted"))
	add(s.failures, failure, n("counted"))
	for _, f := range flags.Names() {
		add(s.flags, f, n("counted"))
	}
	if flags&schema.FlagEstimated != 0 {
		s.estimated += n("counted")
	}
	if get("root").(uint8) == 1 {
		s.root = rootStatus(failure)
	}
	if get("write").(uint8) == 1 {
		s.lastWrite = failure
	}
	s.denied = s.denied || failure == schema.Budget.String()
	if at := get("first").(time.Time); s.first.IsZero() || at.Before(s.first) {
		s.first = at
	}
	s.ended = max(s.ended, n("ended"))
}

func (s *report) report(id string, calls []row, truncated bool) row {
	requests := int64(0)
	if s.model > 0 {
		requests = 1
	}
	m := amplification(requests, s.model, s.tool, s.own+s.hidden, s.fallbacks, s.hedges)
	delete(m, "ratio")
	m["amplification"] = float64(s.model + s.tool + s.own + s.hidden + s.fallbacks + s.hedges)
	m.money(s.cost, s.wasted)
	// Who it was for stands on the root, else on the first call.
	who := row{}
	for i, c := range calls {
		if i == 0 || c["parent_span_id"] == "" && c["part"].(uint16) == 0 {
			who = c
		}
	}
	for _, name := range []string{"name", "user", "feature", "workflow", "workflow_version", "agent", "session", "criticality", "mode", "environment"} {
		m[name] = who[name]
	}
	m["run_id"], m["tenant"], m["status"] = id, s.tenants[0], runStatus(s.root, s.lastWrite, s.denied)
	m["started_at"], m["ended_at"] = stamp(s.first), stamp(time.Unix(0, s.ended))
	m["retries_by_layer"], m["failures"], m["kinds"], m["flags"], m["repeats"] = s.layers, s.failures, s.kinds, s.flags, s.repeats
	m["unpriced_calls"], m["unknown_calls"], m["estimated_calls"] = s.unpriced, s.unknown, s.estimated
	m["truncated"], m["calls"] = truncated, tree(calls)
	return row(m)
}

// tree puts each call under its parent, a further part under its call. Calls
// without a parent here are roots, and so is one of each circle: spans come from
// outside and may name each other as parents.
func tree(calls []row) []row {
	type key [2]string
	at := make(map[key]int, len(calls))
	for i, c := range calls {
		if c["part"].(uint16) == 0 {
			at[key{c["trace_id"].(string), c["span_id"].(string)}] = i
		}
	}
	up := make([]int, len(calls))
	for i, c := range calls {
		parent := c["parent_span_id"].(string)
		if c["part"].(uint16) > 0 {
			parent = c["span_id"].(string)
		}
		j, ok := at[key{c["trace_id"].(string), parent}]
		if !ok {
			j = -1
		}
		up[i] = j
	}
	// Walk up from each call until a call of an earlier walk; meeting this walk's
	// own is a circle, which is cut there.
	walked := make([]int, len(calls))
	for i := range calls {
		for j := i; j >= 0 && walked[j] == 0; j = up[j] {
			walked[j] = i + 1
			if k := up[j]; k >= 0 && walked[k] == i+1 {
				up[j] = -1
			}
		}
	}
	roots := []row{}
	for i, c := range calls {
		if up[i] < 0 {
			roots = append(roots, c)
			continue
		}
		children, _ := calls[up[i]]["children"].([]row)
		calls[up[i]]["children"] = append(children, c)
	}
	return roots
}

package query

import (
	"context"
	"fmt"
	"math/big"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/gin-gonic/gin"

	"github.com/flyball/flyball/schema"
)

// row is one row of an answer, in JSON's own words.
type row = map[string]any

// scan reads rows of any shape into maps, text columns as strings.
func scan(rows driver.Rows, f func(get func(string) any) error) error {
	defer rows.Close()
	names := rows.Columns()
	types := rows.ColumnTypes()
	values := make([]any, len(names))
	index := map[string]int{}
	for i := range types {
		index[names[i]] = i
	}
	for rows.Next() {
		for i, t := range types {
			values[i] = newValue(t.ScanType().String())
		}
		if err := rows.Scan(values...); err != nil {
			return fmt.Errorf("read row: %w", err)
		}
		if err := f(func(name string) any {
			i, ok := index[name]
			if !ok {
				panic("BUG: no column " + name)
			}
			return deref(values[i])
		}); err != nil {
			return err
		}
	}
	return rows.Err()
}

func newValue(t string) any {
	switch t {
	case "string":
		return new(string)
	case "uint8":
		return new(uint8)
	case "uint16":
		return new(uint16)
	case "uint32":
		return new(uint32)
	case "uint64":
		return new(uint64)
	case "int8":
		return new(int8)
	case "int64":
		return new(int64)
	case "*int64":
		return new(*int64)
	case "big.Int", "*big.Int":
		return new(big.Int)
	case "time.Time":
		return new(time.Time)
	case "[]float64":
		return new([]float64)
	}
	panic("BUG: query does not know the type " + t)
}

func deref(v any) any {
	switch v := v.(type) {
	case *string:
		return *v
	case *uint8:
		return *v
	case *uint16:
		return *v
	case *uint32:
		return *v
	case *uint64:
		return *v
	case *int8:
		return *v
	case *int64:
		return *v
	case **int64:
		return *v
	case *time.Time:
		return *v
	case *[]float64:
		return *v
	}
	return v
}

func (a *API) spend(ctx context.Context, r *request) (any, error) {
	groups, err := r.groups(dimensions, "tenant")
	if err != nil {
		return nil, err
	}
	at := "toDateTime(0, 'UTC')"
	interval := time.Duration(0)
	if v := r.Query("interval"); v != "" {
		if interval, err = parseInterval(v); err != nil {
			return nil, err
		}
		zone := r.zone.String()
		at = fmt.Sprintf("toDateTime(toStartOfInterval(spend_15m.at, INTERVAL %d MINUTE, '%s'), 'UTC')", int(interval.Minutes()), zone)
		if interval >= 24*time.Hour {
			at = fmt.Sprintf("toDateTime(toStartOfInterval(spend_15m.at, INTERVAL %d DAY, '%s'), '%s')", int(interval.Hours()/24), zone, zone)
		}
	}
	filter, err := r.filter(dimensions)
	if err != nil {
		return nil, err
	}
	tenants := r.tenantClause()
	r.rangeArgs()
	rows, err := a.query(ctx, r, "spend.sql", gin.H{"Groups": groups, "At": at, "Tenants": tenants, "Filter": filter})
	if err != nil {
		return nil, err
	}
	out := []row{}
	var calls, unpriced, unknown, estimated, sampled int64
	cost := new(big.Int)
	err = scan(rows, func(get func(string) any) error {
		m := row{"calls": get("calls"), "cost_usd": usd(get("cost").(*big.Int)), "unpriced_calls": get("unpriced"), "unknown_calls": get("unknown"), "estimated_calls": get("estimated"), "sampled_calls": get("sampled"), "tokens": tokens(get)}
		for _, g := range groups {
			m[g] = get(g)
		}
		if interval > 0 {
			m["at"] = get("at").(time.Time).UTC().Format(time.RFC3339)
		}
		out = append(out, m)
		cost.Add(cost, get("cost").(*big.Int))
		calls += get("calls").(int64)
		unpriced += get("unpriced").(int64)
		unknown += get("unknown").(int64)
		estimated += get("estimated").(int64)
		sampled += get("sampled").(int64)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return gin.H{"rows": out, "total": row{"calls": calls, "cost_usd": usd(cost), "unpriced_calls": unpriced, "unknown_calls": unknown, "estimated_calls": estimated, "sampled_calls": sampled, "complete": unpriced+unknown+sampled == 0}, "as_of": time.Now().UTC().Format(time.RFC3339)}, nil
}

func parseInterval(v string) (time.Duration, error) {
	text := v
	mul := time.Duration(1)
	if n, ok := strings.CutSuffix(v, "d"); ok {
		text, mul = n+"h", 24
	}
	d, err := time.ParseDuration(text)
	d *= mul
	if err != nil || d < 15*time.Minute || d%(15*time.Minute) != 0 || d > 31*24*time.Hour {
		return 0, badRequest("interval %q: want a multiple of 15m up to 31d, e.g. 1h or 1d", v)
	}
	return d, nil
}

func tokens(get func(string) any) row {
	m := row{}
	for _, n := range schema.TokenNames {
		m[n] = get("tok_" + n)
	}
	return m
}

func (a *API) amplification(ctx context.Context, r *request) (any, error) {
	groups, err := r.groups(runDimensions, "workflow")
	if err != nil {
		return nil, err
	}
	filter, err := r.filter(runDimensions)
	if err != nil {
		return nil, err
	}
	tenants := r.tenantClause()
	r.rangeArgs()
	rows, err := a.query(ctx, r, "amplification.sql", gin.H{"Groups": groups, "Tenants": tenants, "Filter": filter})
	if err != nil {
		return nil, err
	}
	out := []row{}
	err = scan(rows, func(get func(string) any) error {
		if get("requests").(uint64) == 0 {
			return nil
		}
		m := amplification(int64(get("requests").(uint64)), get("model_calls").(int64), get("tool_calls").(int64), get("retries").(int64), get("fallbacks").(int64), get("hedges").(int64))
		for _, g := range groups {
			m[g] = get(g)
		}
		cost, wasted := get("cost").(*big.Int), get("wasted").(*big.Int)
		used := new(big.Int).Sub(cost, wasted)
		m["cost_usd"], m["wasted_usd"] = usd(cost), usd(wasted)
		m["cost_amplification"] = nil
		if used.Sign() > 0 {
			f, _ := new(big.Rat).SetFrac(cost, used).Float64()
			m["cost_amplification"] = f
		}
		m["unpriced_calls"], m["unknown_calls"], m["repeats"] = get("unpriced"), get("unknown"), get("repeats")
		if q := get("q").([]float64); len(q) == 3 {
			m["p50"], m["p90"], m["p99"] = q[0], q[1], q[2]
		}
		out = append(out, m)
		return nil
	})
	return gin.H{"rows": out}, err
}

// amplification are the measures of runs and the ratios made of them.
func amplification(requests, model, tool, retries, fallbacks, hedges int64) row {
	logical := model + tool
	attempts := logical + retries + fallbacks + hedges
	m := row{"requests": requests, "model_calls": model, "tool_calls": tool, "retries": retries, "fallbacks": fallbacks, "hedges": hedges, "ratio": nil, "retry_multiplier": nil}
	if requests > 0 {
		m["ratio"] = float64(attempts) / float64(requests)
	}
	if logical > 0 {
		m["retry_multiplier"] = float64(attempts) / float64(logical)
	}
	return m
}

func (a *API) retries(ctx context.Context, r *request) (any, error) {
	if _, err := r.groups([]string{"layer", "failure"}, "layer,failure"); err != nil {
		return nil, err
	}
	filter, err := r.filter(dimensions)
	if err != nil {
		return nil, err
	}
	tenants := r.tenantClause()
	r.rangeArgs()
	rows, err := a.query(ctx, r, "retries.sql", gin.H{"Tenants": tenants, "Filter": filter})
	if err != nil {
		return nil, err
	}
	out := []row{}
	err = scan(rows, func(get func(string) any) error {
		out = append(out, row{"layer": get("layer"), "failure": get("cause"), "retries": get("retries"), "wasted_usd": usd(get("wasted").(*big.Int))})
		return nil
	})
	return gin.H{"rows": out}, err
}

func (a *API) coverage(ctx context.Context, r *request) (any, error) {
	filter, err := r.filter(dimensions)
	if err != nil {
		return nil, err
	}
	tenants := r.tenantClause()
	r.rangeArgs()
	rows, err := a.query(ctx, r, "coverage.sql", gin.H{"Tenants": tenants, "Filter": filter})
	if err != nil {
		return nil, err
	}
	out := []row{}
	var calls, unpriced, unknown, estimated, assumed, sampled int64
	err = scan(rows, func(get func(string) any) error {
		out = append(out, row{"provider": get("provider"), "model": get("model"), "calls": get("calls"), "unpriced": get("unpriced"), "unknown": get("unknown"), "estimated": get("estimated"), "assumed_basis": get("assumed"), "sampled": get("sampled"), "cost_usd": usd(get("cost").(*big.Int))})
		calls += get("calls").(int64)
		unpriced += get("unpriced").(int64)
		unknown += get("unknown").(int64)
		estimated += get("estimated").(int64)
		assumed += get("assumed").(int64)
		sampled += get("sampled").(int64)
		return nil
	})
	return gin.H{"rows": out, "total": row{"model_attempts": calls, "unpriced": unpriced, "unknown": unknown, "estimated": estimated, "assumed_basis": assumed, "sampled": sampled}}, err
}

func (a *API) runs(ctx context.Context, r *request) (any, error) {
	filter, err := r.filter(runDimensions)
	if err != nil {
		return nil, err
	}
	tenants := r.tenantClause()
	r.rangeArgs()
	rows, err := a.query(ctx, r, "runs.sql", gin.H{"Tenants": tenants, "Filter": filter})
	if err != nil {
		return nil, err
	}
	out := []row{}
	err = scan(rows, func(get func(string) any) error {
		m, t, n := get("model_calls").(int64), get("tool_calls").(int64), get("retries").(int64)
		out = append(out, row{"tenant": get("tenant"), "run_id": get("run_id"), "started_at": stamp(get("started_at")), "ended_at": stamp(get("ended_at")), "status": get("status"), "name": get("name"),
			"user": get("user"), "feature": get("feature"), "workflow": get("workflow"), "agent": get("agent"), "model_calls": m, "tool_calls": t, "retries": n, "amplification": m + t + n,
			"cost_usd": usd(get("cost").(*big.Int)), "unpriced_calls": get("unpriced"), "unknown_calls": get("unknown")})
		return nil
	})
	return gin.H{"rows": out}, err
}

func stamp(v any) string { return v.(time.Time).UTC().Format(time.RFC3339Nano) }

// page is where a list of calls goes on.
type page struct {
	at, trace, span string
	part            string
}

func (a *API) netCalls(ctx context.Context, r *request, filter string, history bool, after page, limit int) ([]row, error) {
	tenants := r.tenantClause()
	r.arg("after_at", after.at)
	r.arg("after_trace", after.trace)
	r.arg("after_span", after.span)
	r.arg("after_part", after.part)
	r.arg("limit", strconv.Itoa(limit))
	rows, err := a.query(ctx, r, "calls.sql", gin.H{"Tenants": tenants, "Filter": filter, "History": history})
	if err != nil {
		return nil, err
	}
	out := []row{}
	err = scan(rows, func(get func(string) any) error {
		out = append(out, callRow(get, history))
		return nil
	})
	return out, err
}

var start = page{"1970-01-01 00:00:00", "", "", "0"}

func (a *API) calls(ctx context.Context, r *request) (any, error) {
	history := false
	switch r.Query("history") {
	case "", "0":
	case "1":
		history = true
	default:
		return nil, badRequest("history: want 1 or 0")
	}
	filter := "1"
	if v := r.Query("trace_id"); v != "" {
		id, err := schema.ParseTraceID(v)
		if err != nil {
			return nil, badRequest("trace_id %q: want 32 hex digits", v)
		}
		r.arg("trace", id.String())
		filter += " AND trace_id = unhex({trace:String})"
	}
	if v := r.Query("run_id"); v != "" {
		r.arg("run", v)
		filter += " AND run_id = {run:String}"
	}
	if r.Query("from") != "" || r.Query("to") != "" || filter == "1" {
		r.arg("cfrom", r.from.UTC().Format("2006-01-02 15:04:05.000000000"))
		r.arg("cto", r.to.UTC().Format("2006-01-02 15:04:05.000000000"))
		filter += " AND started_at >= toDateTime64({cfrom:String}, 9, 'UTC') AND started_at < toDateTime64({cto:String}, 9, 'UTC') AND recorded_at >= toDateTime64({cfrom:String}, 9, 'UTC') - INTERVAL 10 MINUTE"
	}
	after := start
	if v := r.Query("cursor"); v != "" {
		p := strings.Split(v, "/")
		if len(p) != 4 {
			return nil, badRequest("cursor %q is not one of ours; use the next of the last answer", v)
		}
		after = page{p[0], p[1], p[2], p[3]}
	}
	limit := r.limit
	if r.Query("limit") == "" {
		limit = 100
	}
	calls, err := a.netCalls(ctx, r, filter, history, after, limit)
	if err != nil {
		return nil, err
	}
	next := ""
	if len(calls) == limit {
		c := calls[len(calls)-1]
		t, _ := time.Parse(time.RFC3339Nano, c["started_at"].(string))
		next = fmt.Sprintf("%s/%s/%s/%d", t.Format("2006-01-02 15:04:05.000000000"), c["trace_id"], c["span_id"], c["part"])
	}
	return gin.H{"calls": calls, "next": next}, nil
}

// callRow is a Call as the API shows it.
func callRow(get func(string) any, history bool) row {
	money := func(name string) any {
		if v := get(name).(*int64); v != nil {
			return schema.Money(*v).String()
		}
		return nil
	}
	m := row{"tenant": get("tenant"), "trace_id": get("trace"), "span_id": get("span"), "parent_span_id": get("parent"), "part": get("part"), "run_id": get("run_id"),
		"started_at": stamp(get("started_at")), "duration_ns": get("duration_ns"), "tokens": tokens(get),
		"cost_usd": money("cost"), "exposure_usd": schema.Money(get("exposure").(int64)).String(), "estimate_usd": money("estimate"), "reported_cost_usd": money("reported_cost"),
		"amount": schema.Money(get("amount").(int64)).String(), "wasted_usd": schema.Money(get("wasted").(int64)).String(), "aggregate": get("aggregate").(uint8) == 1, "fallback": get("fallback").(uint8) == 1, "hedge": get("hedge").(uint8) == 1,
		"args_hash": "", "flags": schema.Flags(get("flags").(uint64)).Names(), "recorded_at": stamp(get("recorded_at"))}
	for _, n := range []string{"kind", "name", "operation", "provider", "model", "requested_model", "service_tier", "response_id", "scope", "user", "feature", "workflow", "workflow_version", "agent", "session", "criticality", "mode", "environment", "token_basis", "usage", "cost_status", "price_id", "currency", "duplicate_of", "tool", "tool_effect", "payload_bytes", "payload_type", "attempt", "retry_layer", "retry_cause", "hidden_attempts", "hidden_cause", "failure", "http_status", "source", "version", "web_searches", "images", "pages", "media_ms", "model_calls", "tool_calls", "retries", "fallbacks", "hedges", "repeats"} {
		m[n] = get(n)
	}
	if h := get("args_hash").(uint64); h != 0 {
		m["args_hash"] = fmt.Sprintf("%016x", h)
	}
	if history {
		m["sign"] = get("sign")
	}
	return m
}

// run is the run report: totals, and the calls as a tree.
func (a *API) run(ctx context.Context, r *request) (any, error) {
	id := r.Param("id")
	r.arg("run", id)
	const most = 20_000
	calls, err := a.netCalls(ctx, r, "run_id = {run:String}", false, start, most)
	if err != nil {
		return nil, err
	}
	if len(calls) == 0 {
		if t, err := schema.ParseTraceID(id); err == nil {
			q := *r
			q.args = nil
			tenants := q.tenantClause()
			q.arg("trace", t.String())
			rows, err := a.query(ctx, &q, "moved.sql", gin.H{"Tenants": tenants})
			if err != nil {
				return nil, err
			}
			to := ""
			defer rows.Close()
			for rows.Next() {
				if err := rows.Scan(&to); err != nil {
					return nil, err
				}
			}
			if to != "" && to != id {
				u := url.URL{Path: "/api/v1/runs/" + to, RawQuery: r.Request.URL.RawQuery}
				r.Redirect(http.StatusMovedPermanently, u.String())
				return nil, nil
			}
		}
		return nil, problem{http.StatusNotFound, fmt.Sprintf("no run %s; it may not be in the journal yet (see /readyz), or another tenant's", id)}
	}
	return report(id, calls, len(calls) == most), nil
}

func report(id string, calls []row, truncated bool) row {
	var model, tool, retries, fallbacks, hedges, unpriced, unknown, estimated int64
	var cost, wasted schema.Sum
	layers, failures, kinds := map[string]int64{}, map[string]int64{}, map[string]int64{}
	status := "unknown"
	bySpan := map[string]row{}
	first, last := "", time.Time{}
	flagged := map[string]int64{}
	for _, c := range calls {
		n := func(k string) int64 { return int64(c[k].(uint32)) }
		model += n("model_calls")
		tool += n("tool_calls")
		retries += n("retries") + n("hidden_attempts")
		fallbacks += n("fallbacks")
		hedges += n("hedges")
		if l := c["retry_layer"].(string); l != "" {
			layers[l] += n("retries")
		}
		if h := n("hidden_attempts"); h > 0 {
			layers["sdk"] += h
		}
		counted := n("model_calls")+n("tool_calls")+n("retries")+n("fallbacks")+n("hedges") > 0
		if counted {
			kinds[c["kind"].(string)]++
			if f := c["failure"].(string); f != "" {
				failures[f]++
			}
			for _, f := range c["flags"].([]string) {
				flagged[f]++
			}
		}
		switch c["cost_status"] {
		case "unpriced":
			unpriced++
		case "unknown":
			unknown++
		}
		if s, ok := c["cost_usd"].(string); ok {
			if m, err := schema.ParseMoney(s); err == nil {
				cost.Add(m, 1)
			}
		}
		if m, err := schema.ParseMoney(c["wasted_usd"].(string)); err == nil {
			wasted.Add(m, 1)
		}
		t, _ := time.Parse(time.RFC3339Nano, c["started_at"].(string))
		if end := t.Add(time.Duration(c["duration_ns"].(int64))); end.After(last) {
			last = end
		}
		if first == "" {
			first = c["started_at"].(string)
		}
		if c["part"].(uint16) == 0 {
			bySpan[c["trace_id"].(string)+c["span_id"].(string)] = c
		}
		if c["parent_span_id"] == "" && c["source"] == "span" {
			status = "succeeded"
			if f := c["failure"].(string); f == "budget" || f == "cancelled" {
				status = "stopped"
			} else if f != "" {
				status = "failed"
			} else if failures["tool_error"]+failures["server_error"] > 0 && status == "succeeded" {
				status = "succeeded"
			}
		}
	}
	roots := []row{}
	for _, c := range calls {
		up := c
		if c["part"].(uint16) > 0 {
			up = bySpan[c["trace_id"].(string)+c["span_id"].(string)]
		} else {
			up = bySpan[c["trace_id"].(string)+c["parent_span_id"].(string)]
		}
		if up == nil {
			roots = append(roots, c)
			continue
		}
		children, _ := up["children"].([]row)
		up["children"] = append(children, c)
	}
	ratio := float64(model + tool + retries + fallbacks + hedges)
	requests := int64(0)
	if model > 0 {
		requests = 1
	}
	m := amplification(requests, model, tool, retries, fallbacks, hedges)
	delete(m, "ratio")
	for k, v := range (row{"run_id": id, "tenant": calls[0]["tenant"], "user": calls[0]["user"], "feature": calls[0]["feature"], "workflow": calls[0]["workflow"], "started_at": first, "ended_at": last.UTC().Format(time.RFC3339Nano), "requests": requests, "retries_by_layer": layers, "failures": failures, "kinds": kinds, "flags": flagged,
		"amplification": ratio, "cost_usd": cost.String(), "wasted_usd": wasted.String(), "unpriced_calls": unpriced, "unknown_calls": unknown, "estimated_calls": estimated, "status": status, "truncated": truncated, "calls": roots}) {
		m[k] = v
	}
	return m
}

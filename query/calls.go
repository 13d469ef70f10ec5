package query

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/flyball/flyball/schema"
)

// cursor is the last entry of a page; its order is that of calls.sql.
type cursor struct {
	at      time.Time
	tenant  string
	trace   schema.TraceID
	span    schema.SpanID
	part    uint16
	version uint32
	sign    int8
}

// start is before every entry.
var start = cursor{at: time.Unix(0, 0), sign: 127}

func (c cursor) String() string {
	text := fmt.Sprintf("%d.%x.%x.%d.%d.%d.%s", c.at.UnixNano(), c.trace[:], c.span[:], c.part, c.version, c.sign, c.tenant)
	return base64.RawURLEncoding.EncodeToString([]byte(text))
}

func parseCursor(s string) (cursor, error) {
	refused := badRequest("cursor %q is not one of ours; use the next of the last answer as it is", s)
	text, err := base64.RawURLEncoding.DecodeString(s)
	p := strings.SplitN(string(text), ".", 7)
	if err != nil || len(p) != 7 {
		return cursor{}, refused
	}
	var c cursor
	var n [4]int64
	for i, part := range []struct {
		text      string
		low, high int64
	}{{p[0], 0, 1<<63 - 1}, {p[3], 0, 1<<16 - 1}, {p[4], 0, 1<<32 - 1}, {p[5], -1, 127}} {
		if n[i], err = strconv.ParseInt(part.text, 10, 64); err != nil || n[i] < part.low || n[i] > part.high {
			return c, refused
		}
	}
	c = cursor{at: time.Unix(0, n[0]), tenant: p[6], part: uint16(n[1]), version: uint32(n[2]), sign: int8(n[3])}
	trace, terr := hex.DecodeString(p[1])
	span, serr := hex.DecodeString(p[2])
	if terr != nil || serr != nil || copy(c.trace[:], trace) != len(c.trace) || copy(c.span[:], span) != len(c.span) {
		return cursor{}, refused
	}
	return c, nil
}

// callFilters are what calls may be listed by.
var callFilters = append(slices.Clone(dimensions), "tool")

// callsPage asks for net lines, or every entry, that come after a cursor. Of much time it reads only
// as much as the page takes.
func (a *API) callsPage(ctx context.Context, r *request, q *question, history, much bool, after cursor, limit int) ([]row, error) {
	q.vars["History"] = history
	q.bind("after_at", "String", after.at.UTC().Format(clickhouseNanos))
	q.bind("after_tenant", "String", after.tenant)
	q.bind("after_trace", "String", fmt.Sprintf("%x", after.trace[:]))
	q.bind("after_span", "String", fmt.Sprintf("%x", after.span[:]))
	q.bind("after_part", "UInt16", strconv.Itoa(int(after.part)))
	q.bind("after_version", "UInt32", strconv.Itoa(int(after.version)))
	q.bind("after_minus", "Int16", strconv.Itoa(-int(after.sign)))
	q.bind("limit", "UInt32", strconv.Itoa(limit))
	for window := 4 * limit; ; window *= 16 {
		page := q
		more := false
		if much && window < math.MaxInt32 {
			page = &question{vars: maps.Clone(q.vars), args: slices.Clone(q.args)}
			page.bind("window", "UInt32", strconv.Itoa(window))
			if err := a.ask(ctx, r, "calls_window.sql", page, func(get func(string) any) {
				if more = get("lines").(uint64) == uint64(window); more {
					page.vars["Window"] = "started_at <= toDateTime64(" + page.bind("last", "String", get("last").(time.Time).UTC().Format(clickhouseNanos)) + ", 9, 'UTC')"
				}
			}); err != nil {
				return nil, err
			}
		}
		out := []row{}
		if err := a.ask(ctx, r, "calls.sql", page, func(get func(string) any) { out = append(out, callRow(get, history)) }); err != nil {
			return nil, err
		}
		if !more || len(out) == limit {
			return out, nil
		}
	}
}

// calls lists calls, oldest first. Of a trace or a run all are meant, else those
// of the last day, unless from or to say.
func (a *API) calls(ctx context.Context, r *request) (any, error) {
	history := false
	switch v := r.Query("history"); v {
	case "", "0":
	case "1":
		history = true
	default:
		return nil, badRequest("history %q: want 1 for every entry with its sign, or 0", v)
	}
	q := r.then()
	filter := q.filter(r, callFilters)
	bounded, much := false, false
	if v, ok := r.GetQuery("trace_id"); ok {
		id, err := schema.ParseTraceID(v)
		if err != nil {
			return nil, badRequest("trace_id %q: want 32 hex digits", v)
		}
		filter += " AND trace_id = toFixedString(unhex(" + q.bind("trace", "String", id.String()) + "), 16)"
		bounded = true
	}
	if v, ok := r.GetQuery("run_id"); ok {
		filter += q.runClause(v, history || r.asOf != (asOf{}))
		bounded = true
	}
	if r.Query("from") != "" || r.Query("to") != "" || !bounded {
		q.runRange(r)
		much = !bounded
		filter += " AND started_at >= toDateTime64({from:String}, 9, 'UTC') AND started_at < toDateTime64({to:String}, 9, 'UTC') AND recorded_at >= toDateTime64({from:String}, 9, 'UTC') - INTERVAL 10 MINUTE"
	}
	q.vars["Filter"] = filter
	after := start
	if v := r.Query("cursor"); v != "" {
		var err error
		if after, err = parseCursor(v); err != nil {
			return nil, err
		}
	}
	calls, err := a.callsPage(ctx, r, q, history, much, after, r.limit+1)
	if err != nil {
		return nil, err
	}
	next := ""
	if len(calls) > r.limit {
		calls = calls[:r.limit]
		next = cursorOf(calls[r.limit-1]).String()
	}
	r.columns = slices.Concat([]string{"tenant", "trace_id", "span_id", "parent_span_id", "part", "run_id", "started_at", "duration_ns", "cost_usd", "amount", "wasted_usd", "estimate_usd", "reported_cost_usd", "exposure_usd"},
		plainColumns, tokenColumns(), []string{"aggregate", "fallback", "hedge", "args_hash", "flags", "recorded_at"})
	if history {
		r.columns = append(r.columns, "sign")
	}
	out := row{"calls": calls, "next": next}
	if r.asOf != (asOf{}) {
		r.known(out)
	}
	return out, nil
}

// runClause narrows the journal to a run. The rollup knows the first day on which
// anything of it was recorded; entries before that day cancel each other, so that
// only their history needs them, and what was known then.
func (q *question) runClause(id string, past bool) string {
	run := q.bind("run", "String", id)
	clause := " AND run_id = " + run
	if !past {
		clause += " AND recorded_at >= (SELECT toDateTime(min(booked_on), 'UTC') FROM runs WHERE " + q.vars["Tenants"].(string) + " AND run_hash = cityHash64(" + run + ") AND run_id = " + run + ")"
	}
	return clause
}

func cursorOf(c row) cursor {
	at, err := time.Parse(time.RFC3339Nano, c["started_at"].(string))
	if err != nil {
		panic("BUG: a call's started_at does not parse")
	}
	out := cursor{at: at, tenant: c["tenant"].(string), part: c["part"].(uint16), version: c["version"].(uint32), sign: 1}
	if s, ok := c["sign"].(int8); ok {
		out.sign = s
	}
	_, terr := hex.Decode(out.trace[:], []byte(c["trace_id"].(string)))
	_, serr := hex.Decode(out.span[:], []byte(c["span_id"].(string)))
	if terr != nil || serr != nil {
		panic("BUG: a call's ids are not hex")
	}
	return out
}

// plainColumns are the columns of a call whose name and value are the API's too.
var plainColumns = []string{"kind", "name", "operation", "provider", "model", "requested_model", "service_tier", "response_id", "scope",
	"user", "feature", "workflow", "workflow_version", "agent", "session", "criticality", "mode", "environment", "token_basis", "usage",
	"cost_status", "price_id", "currency", "duplicate_of", "tool", "tool_effect", "payload_bytes", "payload_type",
	"attempt", "retry_layer", "retry_cause", "hidden_attempts", "hidden_cause", "failure", "http_status", "source", "version",
	"web_searches", "images", "pages", "media_ms", "model_calls", "tool_calls", "retries", "fallbacks", "hedges", "repeats"}

// callRow is a Call as the API shows it.
func callRow(get func(string) any, history bool) row {
	known := func(name string) string { return schema.Money(get(name).(int64)).String() }
	maybe := func(name string) any {
		if v := get(name).(*int64); v != nil {
			return schema.Money(*v).String()
		}
		return nil
	}
	is := func(name string) bool { return get(name).(uint8) == 1 }
	m := row{"tenant": get("tenant"), "trace_id": get("trace"), "span_id": get("span"), "parent_span_id": get("parent"), "part": get("part"), "run_id": get("run_id"),
		"started_at": stamp(get("started_at")), "duration_ns": get("duration_ns"), "recorded_at": stamp(get("recorded_at")), "tokens": tokens(get),
		"cost_usd": maybe("cost"), "estimate_usd": maybe("estimate"), "reported_cost_usd": maybe("reported_cost"),
		"exposure_usd": known("exposure"), "amount": known("amount"), "wasted_usd": known("wasted"),
		"aggregate": is("aggregate"), "fallback": is("fallback"), "hedge": is("hedge"), "args_hash": "", "flags": schema.Flags(get("flags").(uint64)).Names()}
	for _, n := range plainColumns {
		m[n] = get(n)
	}
	if h := get("args_hash").(uint64); h != 0 {
		m["args_hash"] = fmt.Sprintf("%016x", h)
	}
	if m["source"] == schema.SourceNames[schema.SourceAdjustment] {
		m["adjustment"] = row{"id": m["response_id"], "by": m["scope"], "reason": m["name"]}
	}
	if history {
		m["sign"] = get("sign")
	}
	return m
}

package query

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/flyball/flyball/schema"
	"github.com/flyball/flyball/schema/engine"
)

// eventDimensions are what the history of enforcement may be filtered by,
// leakDimensions and timeDimensions what its sums may be grouped by as well. The tenant
// stands first: it is no filter, the credential binds it.
var (
	eventDimensions = []string{"tenant", "kind", "guard", "action", "user", "actor", "directive", "limiter", "class"}
	leakDimensions  = []string{"tenant", "guard", "limiter", "action", "user", "directive"}
	timeDimensions  = []string{"tenant", "guard", "limiter", "action", "directive"}
)

// happened is the condition that leaves measurements out, which are many and are no
// events: they are listed only where kind asks for them.
const happened = " AND kind NOT IN ('leak', 'applied')"

// enforcement lists what enforcement did, the newest first: from ClickHouse, and what
// that lacks from the local store. Where ClickHouse cannot be asked the local store
// answers alone, and the answer says that it is not complete.
func (a *API) enforcement(ctx context.Context, r *request) (any, error) {
	_, from := r.GetQuery("from")
	if !from {
		r.from = r.to.AddDate(0, 0, -30)
	}
	var after *eventCursor
	if v := r.Query("cursor"); v != "" {
		c, err := parseEventCursor(v)
		if err != nil {
			return nil, err
		}
		if c.identity != r.identity() {
			return nil, badRequest("cursor %q belongs to another question; ask the same one again, with only cursor added", v)
		}
		after, r.from, r.to = &c, c.from, c.to
	}
	// Before the question, so that a row which is stored in between is in one of both.
	list, err := a.local(false, r, after)
	if err != nil {
		return nil, err
	}
	complete := r.conn != nil
	if complete {
		stored, err := a.storedEnforcement(ctx, r, after)
		if err != nil && (a.o.Enforcement == nil || !engine.Transient(err)) {
			return nil, err
		}
		complete = err == nil
		list = append(list, stored...)
	}
	if !complete {
		kept, err := a.local(true, r, after)
		if err != nil {
			return nil, err
		}
		list = append(list, kept...)
	}
	slices.SortFunc(list, func(x, y schema.Enforcement) int { return compareEvents(&y, &x) })
	list = slices.CompactFunc(list, func(x, y schema.Enforcement) bool { return x.Node == y.Node && x.Seq == y.Seq })
	next := ""
	if len(list) > r.limit {
		list = list[:r.limit]
		last := &list[r.limit-1]
		next = eventCursor{r.from, r.to, last.At, last.Seq, r.identity(), last.Node}.String()
	}
	if !r.csv {
		if list == nil {
			list = []schema.Enforcement{}
		}
		return r.answer(row{"events": list, "complete": complete, "truncated": next != "", "next": next}), nil
	}
	r.columns = []string{"at", "kind", "guard", "tenant", "scope", "user", "action", "measure", "value", "limit", "rung", "window", "shadow", "actor", "reason", "directive", "revision", "limiter", "class", "calls", "usd", "took_ns", "after_span_ns", "trace_id", "node", "seq"}
	out := make([]row, len(list))
	for i := range list {
		out[i] = enforcementRow(&list[i])
	}
	return row{"rows": out, "next": next}, nil
}

func enforcementRow(e *schema.Enforcement) row {
	m := row{"at": stamp(e.At), "kind": e.Kind, "guard": e.Guard, "tenant": e.Tenant, "scope": e.Scope, "user": e.User, "action": e.Action, "measure": e.Measure, "value": e.Value, "limit": e.Limit, "rung": e.Rung, "window": e.Window, "shadow": e.Shadow,
		"actor": e.Actor, "reason": e.Reason, "directive": e.Directive, "revision": e.Revision, "limiter": e.Limiter, "class": e.Class, "trace_id": e.Trace, "node": e.Node, "seq": e.Seq, "calls": nil, "usd": nil, "took_ns": nil, "after_span_ns": nil}
	if e.USD != nil {
		m["calls"], m["usd"] = e.Calls, e.USD.String()
	}
	if e.Took != nil {
		m["took_ns"] = *e.Took
	}
	if e.AfterSpan != nil {
		m["after_span_ns"] = *e.AfterSpan
	}
	return m
}

// compareEvents is the order of the list, from the oldest.
func compareEvents(x, y *schema.Enforcement) int {
	return cmp.Or(x.At.Compare(y.At), strings.Compare(x.Node, y.Node), cmp.Compare(x.Seq, y.Seq))
}

// local are the rows of the local store that the request may see and asks for: those
// that ClickHouse lacks, or with every all events that are kept.
func (a *API) local(every bool, r *request, after *eventCursor) (out []schema.Enforcement, err error) {
	if a.o.Enforcement == nil {
		return nil, nil
	}
	list, err := a.o.Enforcement(r.from, r.to, every)
	if err != nil {
		return nil, fmt.Errorf("read local store: %w", err)
	}
	_, kinds := r.GetQuery("kind")
	for i := range list {
		e := &list[i]
		if !r.all && !slices.Contains(r.tenants, e.Tenant) || !kinds && (e.Kind == schema.EnforcementLeak || e.Kind == schema.EnforcementApplied) {
			continue
		}
		m := map[string]string{"kind": e.Kind, "guard": e.Guard, "action": e.Action, "user": e.User, "actor": e.Actor, "directive": e.Directive, "limiter": e.Limiter, "class": e.Class}
		same := true
		for name, has := range m {
			if v, ok := r.GetQuery(name); ok && v != has {
				same = false
			}
		}
		if same && (after == nil || compareEvents(e, &schema.Enforcement{At: after.at, Node: after.node, Seq: after.seq}) < 0) {
			out = append(out, *e)
		}
	}
	return out, nil
}

// storedEnforcement asks ClickHouse for a row more than the page has.
func (a *API) storedEnforcement(ctx context.Context, r *request, after *eventCursor) (out []schema.Enforcement, err error) {
	q := r.question()
	q.vars["Filter"] = q.filter(r, eventDimensions)
	if _, ok := r.GetQuery("kind"); !ok {
		q.vars["Filter"] = q.vars["Filter"].(string) + happened
	}
	q.eventRange(r)
	q.bind("limit", "UInt32", strconv.Itoa(r.limit+1))
	if after != nil {
		q.vars["After"] = true
		q.bind("after_at", "String", after.at.UTC().Format(clickhouseMicros))
		q.bind("after_node", "String", after.node)
		q.bind("after_seq", "UInt64", strconv.FormatUint(after.seq, 10))
	}
	err = a.ask(ctx, r, "enforcement.sql", q, func(get func(string) any) {
		s := func(name string) string { return get(name).(string) }
		e := schema.Enforcement{Seq: get("seq").(uint64), Node: s("node"), At: get("at").(time.Time).UTC(), Kind: s("kind"), Guard: s("guard"), Tenant: s("tenant"), Scope: s("scope"), User: s("user"), Action: s("action"), Measure: s("measure"),
			Value: s("value"), Limit: s("limit"), Rung: s("rung"), Window: s("window"), Shadow: get("shadow").(uint8) != 0, Actor: s("actor"), Reason: s("reason"), Directive: s("directive"), Revision: s("revision"), Limiter: s("limiter"), Class: s("class"),
			Calls: get("calls").(int64), Took: get("took_ns").(*int64), AfterSpan: get("after_span_ns").(*int64), Trace: s("trace_id")}
		if get("no_usd").(uint8) == 0 {
			sum, err := schema.SumFromBig(get("usd").(*big.Int))
			if err != nil {
				panic("BUG: a sum of Int128 is beyond 127 bits")
			}
			e.USD = &sum
		}
		out = append(out, e)
	})
	return out, err
}

// eventRange binds the time for the history, which is exact to the microsecond.
func (q *question) eventRange(r *request) {
	q.bind("from", "String", r.from.UTC().Format(clickhouseMicros))
	q.bind("to", "String", r.to.UTC().Format(clickhouseMicros))
}

// leakage answers what passed although a directive refused it.
func (a *API) leakage(ctx context.Context, r *request) (any, error) {
	groups, at, err := r.sums(leakDimensions, "guard,limiter")
	if err != nil {
		return nil, err
	}
	kinds := []string{"propagation", "leak", "unguarded"}
	out, more, err := a.enforcementSums(ctx, r, "leakage.sql", leakDimensions, groups, at, func(m row, get func(string) any) {
		for _, k := range kinds {
			m[k+"_calls"], m[k+"_usd"] = get(k+"_calls"), usd(get(k+"_usd"))
		}
	})
	if err != nil {
		return nil, err
	}
	for _, k := range kinds {
		r.columns = append(r.columns, k+"_calls", k+"_usd")
	}
	return r.answer(row{"rows": out, "truncated": more, "next": r.next(len(out), more)}), nil
}

// enforcementTimes answers how long limiters took to follow.
func (a *API) enforcementTimes(ctx context.Context, r *request) (any, error) {
	groups, at, err := r.sums(timeDimensions, "limiter")
	if err != nil {
		return nil, err
	}
	quantiles := func(m row, v any, n uint64) {
		for i, name := range []string{"p50_ns", "p90_ns", "p99_ns", "max_ns"} {
			if m[name] = nil; n > 0 {
				m[name] = int64(v.([]float64)[i])
			}
		}
	}
	out, more, err := a.enforcementSums(ctx, r, "enforcement_times.sql", timeDimensions, groups, at, func(m row, get func(string) any) {
		m["count"] = get("n")
		quantiles(m, get("took"), get("n").(uint64))
		span := row{"count": get("spans")}
		quantiles(span, get("after_span"), get("spans").(uint64))
		m["after_span"] = span
	})
	if err != nil {
		return nil, err
	}
	r.columns = append(r.columns, "count", "p50_ns", "p90_ns", "p99_ns", "max_ns", "after_span.count", "after_span.p50_ns", "after_span.p90_ns", "after_span.p99_ns", "after_span.max_ns")
	return r.answer(row{"rows": out, "truncated": more, "next": r.next(len(out), more)}), nil
}

// sums reads what sums are grouped by.
func (r *request) sums(allowed []string, byDefault string) (groups []string, at string, err error) {
	if groups, err = r.groups(allowed, byDefault); err != nil {
		return nil, "", err
	}
	at, err = r.bucket("s.at")
	return groups, at, err
}

// enforcementSums asks for sums over the history; fill adds what a row has beside
// what it is grouped by.
func (a *API) enforcementSums(ctx context.Context, r *request, name string, filters, groups []string, at string, fill func(m row, get func(string) any)) (out []row, more bool, err error) {
	q := r.question()
	q.vars["Groups"], q.vars["At"], q.vars["Filter"] = groups, at, q.filter(r, filters)
	q.eventRange(r)
	q.paging(r, r.limit)
	_, timed := r.GetQuery("interval")
	out, all := []row{}, uint64(0)
	err = a.ask(ctx, r, name, q, func(get func(string) any) {
		m := row{}
		for _, g := range groups {
			m[g] = get(g)
		}
		if timed {
			m["at"] = get("at").(time.Time).In(r.zone).Format(time.RFC3339)
		}
		fill(m, get)
		out, all = append(out, m), get("all_rows").(uint64)
	})
	r.columns = slices.Clone(groups)
	if timed {
		r.columns = append(r.columns, "at")
	}
	return out, all > uint64(r.offset+len(out)), err
}

// eventCursor is the last row of a page, with the question it belongs to and its time.
type eventCursor struct {
	from, to, at time.Time
	seq          uint64
	identity     string
	node         string
}

func (c eventCursor) String() string {
	return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "%d.%d.%d.%d.%s.%s", c.from.UnixNano(), c.to.UnixNano(), c.at.UnixMicro(), c.seq, c.identity, c.node))
}

func parseEventCursor(v string) (eventCursor, error) {
	refused := badRequest("cursor %q is not one of ours; use the next of the last answer as it is", v)
	text, err := base64.RawURLEncoding.DecodeString(v)
	p := strings.SplitN(string(text), ".", 6)
	if err != nil || len(p) != 6 {
		return eventCursor{}, refused
	}
	var n [3]int64
	for i := range n {
		if n[i], err = strconv.ParseInt(p[i], 10, 64); err != nil || n[i] < 0 {
			return eventCursor{}, refused
		}
	}
	seq, err := strconv.ParseUint(p[3], 10, 64)
	if err != nil || n[2] > 1<<52 {
		return eventCursor{}, refused
	}
	return eventCursor{time.Unix(0, n[0]), time.Unix(0, n[1]), time.UnixMicro(n[2]).UTC(), seq, p[4], p[5]}, nil
}

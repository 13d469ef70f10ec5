package dashboards

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/flyball/flyball/schema"
	"github.com/flyball/flyball/schema/engine"
	"github.com/flyball/flyball/schema/schematest"
)

// The generated store begins on this day and has three.
var firstDay = time.Date(2026, 3, 9, 0, 0, 0, 0, time.UTC)

// made is a generated store and what its boards have to show.
type made struct {
	*engine.Engine
	entries []schema.Entry
	seen    seen
}

// fill makes some two hundred runs with everything that the boards count: retries of
// each layer, hidden attempts, fallbacks, hedges, repeats, calls without a price or
// usage, refusals by a budget, values that are empty or hold quotes, and corrections
// that are booked days later.
func fill(t *testing.T) made {
	t.Helper()
	s := made{Engine: schematest.Open(t)}
	rnd := rand.New(rand.NewPCG(7, 7))
	var runs []schema.RunInfo
	for n := range 200 {
		r := one(rnd, n)
		s.entries = append(s.entries, r...)
		for i, e := range r {
			if i > 0 && e.Parent != (schema.SpanID{}) {
				continue
			}
			status := uint8(1)
			if n%5 == 0 {
				status = 2
			}
			runs = append(runs, schema.RunInfo{Tenant: e.Tenant, RunID: e.Posting.Identity[schema.Run], Name: "run", Version: uint64(e.RecordedAt) + uint64(i), Start: e.Start, End: e.Start + int64(time.Minute), Status: status, Identity: e.Posting.Identity})
		}
	}
	if err := schema.SendRunInfo(t.Context(), s.Conn(), "runs", runs); err != nil {
		t.Fatal(err)
	}
	var rows []schema.Enforcement
	for n := range 60 {
		e := schema.Enforcement{Seq: uint64(n + 1), Node: "n", At: firstDay.Add(time.Duration(n) * time.Hour), Kind: []string{"directive", "kill", schema.EnforcementLeak, schema.EnforcementApplied, "directive"}[n%5], Guard: "user-day", Tenant: []string{"t-1", "t-2", "t-3"}[n%3], Scope: "user u'3", Action: "soft_block", Reason: "it's over"}
		took := int64(n) * 1e6
		cost := schema.SumOf(int64(n) * schema.PicoPerUSD)
		switch n % 5 {
		case 1:
			e.Tenant, e.Guard = "", "kill"
		case 2:
			e.Class, e.Calls, e.USD, e.Limiter = []string{"propagation", "leak", "unguarded"}[n%3], 2, &cost, []string{"gw", ""}[n%2]
		case 3:
			e.Limiter, e.Took = "gw", &took
		case 4:
			e.Action = "warn"
		}
		rows = append(rows, e)
	}
	for _, token := range []string{"once", "again"} { // a row that is sent again is one row
		if err := schema.SendEnforcement(t.Context(), s.Conn(), token, rows); err != nil {
			t.Fatal(err)
		}
	}
	c := schema.NewColumns()
	for i := range s.entries {
		c.Append(&s.entries[i], 1)
	}
	if err := c.Send(t.Context(), s.Conn(), "entries"); err != nil {
		t.Fatal(err)
	}
	if err := s.Conn().Exec(t.Context(), "INSERT INTO reconciliations (id, line, source, day, starts_on, ends_on, made_at, provider, model, ours, theirs, priced) VALUES ('1', 0, 'openai', ?, ?, ?, now64(6), '', '', 0, 0, 0), ('1', 1, 'openai', ?, ?, ?, now64(6), 'openai', 'm-5', 1, 3, 2)",
		firstDay, firstDay, firstDay.AddDate(0, 0, 1), firstDay, firstDay, firstDay.AddDate(0, 0, 1)); err != nil {
		t.Fatal(err)
	}
	reported(t, &s)
	return s
}

// one is the entries of a run.
func one(rnd *rand.Rand, n int) []schema.Entry {
	pick := func(values ...string) string { return values[rnd.IntN(len(values))] }
	var id schema.Identity
	id[schema.Run], id[schema.User], id[schema.Feature] = fmt.Sprintf("run/%d", n), pick("u-1", "u-2", "u'3", ""), pick("quote", "search", "")
	id[schema.Workflow], id[schema.WorkflowVersion], id[schema.Environment] = pick("w-1", "w-2", ""), pick("1", "2"), pick("prod", "test", "")
	tenant := pick("t-1", "t-2", "t-3")
	start := firstDay.Add(time.Duration(rnd.Int64N(int64(71 * time.Hour))))
	trace := schema.TraceID{0: 1, 14: byte(n >> 8), 15: byte(n)}
	var out []schema.Entry
	add := func(kind schema.Kind, change ...func(*schema.Entry)) *schema.Entry {
		k := len(out) + 1
		e := schema.Entry{Sign: 1, Version: 1}
		e.Tenant, e.Trace, e.Span = tenant, trace, schema.SpanID{7: byte(k)}
		if k > 1 {
			e.Parent = schema.SpanID{7: 1}
		}
		e.Start, e.Duration, e.Kind, e.Name = start.Add(time.Duration(k)*time.Second).UnixNano(), int64(time.Second), kind, kind.String()
		e.RecordedAt = e.Start/1000 + 2_000_000
		e.Posting.Kind, e.Posting.Attempt, e.Posting.Identity = kind, 1, id
		for _, f := range change {
			f(&e)
		}
		out = append(out, e)
		return &out[len(out)-1]
	}
	cost := func(e *schema.Entry) {
		m := schema.Money(1 + rnd.Int64N(schema.PicoPerUSD/10))
		e.Posting.Status, e.Posting.Cost, e.Posting.Exposure, e.Posting.Amount, e.Posting.Currency = schema.CostPriced, m, m, m, "USD"
	}
	again := func(l schema.Layer, cause schema.Failure) func(*schema.Entry) {
		return func(e *schema.Entry) {
			p := &e.Posting
			p.Retries, p.ModelCalls, p.ToolCalls, p.Layer, p.Cause, p.Attempt = p.ModelCalls+p.ToolCalls, 0, 0, l, cause, 2
		}
	}
	model := func(change ...func(*schema.Entry)) *schema.Entry {
		call := func(e *schema.Entry) {
			e.Provider, e.Model, e.Usage, e.Posting.ModelCalls = pick("openai", "anthropic"), pick("m-5", "m-5-mini", "c'x"), schema.UsageKnown, 1
			e.Tokens = schema.Tokens{Input: uint64(rnd.IntN(1000)), CacheRead: uint64(rnd.IntN(5000)), Output: uint64(rnd.IntN(500))}
			e.Posting.Tokens = e.Tokens
			cost(e)
		}
		return add(schema.KindModel, append([]func(*schema.Entry){call}, change...)...)
	}
	tool := func(change ...func(*schema.Entry)) *schema.Entry {
		return add(schema.KindTool, append([]func(*schema.Entry){func(e *schema.Entry) { e.Tool, e.Posting.ToolCalls = "search", 1 }}, change...)...)
	}

	add(schema.KindRequest)
	if n%20 == 19 {
		tool() // a run without a model call, in no ratio
		return out
	}
	for range 1 + rnd.IntN(3) {
		model()
	}
	tool()
	switch n % 10 {
	case 0: // rate limited, and again
		e := model(func(e *schema.Entry) { e.Failure = schema.RateLimited })
		e.Posting.Wasted = e.Posting.Cost
		model(again(schema.LayerFramework, schema.RateLimited))
	case 1:
		model(func(e *schema.Entry) { e.Posting.Hidden, e.Posting.HiddenCause = 2, schema.RateLimited })
	case 2:
		tool(func(e *schema.Entry) { e.Failure = schema.Timeout })
		tool(again(schema.LayerAgent, schema.Timeout), func(e *schema.Entry) { e.Posting.Repeats = 1 })
	case 3:
		model(func(e *schema.Entry) { e.Posting.Status, e.Posting.Cost = schema.CostUnpriced, 0 })
	case 4:
		model(func(e *schema.Entry) {
			e.Usage, e.Posting.Status, e.Posting.Cost = schema.UsageUnknown, schema.CostUnknown, 0
		})
	case 5:
		model(func(e *schema.Entry) { e.Posting.ModelCalls, e.Posting.Fallbacks = 0, 1 })
		e := model(func(e *schema.Entry) { e.Posting.ModelCalls, e.Posting.Hedges, e.Posting.Hedge = 0, 1, true })
		e.Posting.Wasted = e.Posting.Cost
	case 6:
		model(func(e *schema.Entry) { e.Failure, e.Posting.Status, e.Posting.Cost = schema.Budget, schema.CostNone, 0 })
	case 7: // a correction on the next day, one two weeks later
		late := 24 * time.Hour
		if n%20 == 7 {
			late = 14 * 24 * time.Hour
		}
		old := out[1]
		old.Sign, old.RecordedAt = -1, old.RecordedAt+late.Microseconds()
		changed := out[1]
		changed.Version, changed.RecordedAt = 2, old.RecordedAt
		cost(&changed)
		out = append(out, old, changed)
	}
	return out
}

package query

import (
	"encoding/base64"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/flyball/flyball/schema"
)

// The fields that scripts read, as the documentation lists them. More are welcome, none may go.
func TestCallHasEveryDocumentedField(t *testing.T) {
	s := newStore(t)
	tr := newTrace("t-1", "r", 1, nil)
	s.post(tr.add(schema.KindModel, priced("0.0055"), func(e *schema.Entry) {
		e.Start++
		e.ArgsHash, e.Call.Flags = 0xab, schema.FlagSampled
		e.Posting.Tokens = schema.Tokens{Input: 1760, CacheRead: 10240, Output: 900, Reasoning: 640}
		e.HasReported, e.ReportedCost = true, 1
	}))
	c := list(s.get("/api/v1/calls?" + during)["calls"])[0]
	strs := []string{"tenant", "trace_id", "span_id", "parent_span_id", "run_id", "started_at", "kind", "operation", "provider", "model", "requested_model", "service_tier", "response_id", "scope",
		"user", "feature", "workflow", "workflow_version", "agent", "session", "criticality", "mode", "environment", "token_basis", "usage",
		"cost_usd", "cost_status", "price_id", "exposure_usd", "reported_cost_usd", "amount", "currency", "duplicate_of", "tool", "tool_effect", "args_hash", "payload_type",
		"retry_layer", "failure", "source", "recorded_at"}
	for _, n := range strs {
		if _, ok := c[n].(string); !ok {
			t.Errorf("%s: got %T, want a string", n, c[n])
		}
	}
	for _, n := range []string{"part", "duration_ns", "payload_bytes", "attempt", "hidden_attempts", "http_status", "version"} {
		if _, ok := c[n].(float64); !ok {
			t.Errorf("%s: got %T, want a number", n, c[n])
		}
	}
	for _, n := range []string{"aggregate", "fallback", "hedge"} {
		if _, ok := c[n].(bool); !ok {
			t.Errorf("%s: got %T, want true or false", n, c[n])
		}
	}
	if v, ok := c["estimate_usd"]; !ok || v != nil {
		t.Errorf("estimate_usd: got %v, want null", v)
	}
	tokens := c["tokens"].(map[string]any)
	for _, n := range []string{"input", "cache_read", "cache_write_5m", "cache_write_1h", "output", "reasoning"} {
		if _, ok := tokens[n].(float64); !ok {
			t.Errorf("tokens.%s: got %T, want a number", n, tokens[n])
		}
	}
	equal(t, "values", show([]map[string]any{c}, "started_at", "recorded_at", "cost_usd", "reported_cost_usd", "args_hash", "flags", "trace_id", "span_id", "parent_span_id", "source", "cost_status", "kind"),
		"2026-03-10T12:00:01.000000001Z 2026-03-10T12:00:02Z 0.0055 0.000000000001 00000000000000ab [sampled] 00000000000000000000000000000001 0000000000000001  span priced model")
	if _, ok := c["sign"]; ok {
		t.Error("a net line has a sign")
	}
}

func TestCallsAreNetAndHistoryIsAll(t *testing.T) {
	s := newStore(t)
	tr := newTrace("t-1", "r", 1, nil)
	a, b, dup, agg := tr.add(schema.KindModel, priced("1")), tr.add(schema.KindModel, priced("2")),
		tr.add(schema.KindModel, func(e *schema.Entry) { e.Posting.DuplicateOf, e.Posting.ModelCalls = "x/y", 0 }),
		tr.add(schema.KindAgent, func(e *schema.Entry) { e.Posting.Aggregate = true })
	s.post(a, b, dup, agg)
	s.post(replaced(a, priced("3"))...)
	s.post(cancel(b))
	f := func(query, want string) {
		t.Helper()
		equal(t, query, show(list(s.get("/api/v1/calls?" + query)["calls"]), "span_id", "version", "sign", "cost_usd"), want)
	}
	net := "0000000000000001 2 <nil> 3\n0000000000000003 1 <nil> <nil>\n0000000000000004 1 <nil> <nil>"
	trace := "trace_id=" + strings.ToUpper(a.Trace.String())
	f(during, net)
	f(trace, net)
	f("run_id=r", net)
	f("run_id=r&history=0&tenant=t-1", net)
	f("run_id=r&kind=agent", "0000000000000004 1 <nil> <nil>")
	f("run_id=r&tenant=t-2", "")
	f("run_id=r&from=2026-03-09&to=2026-03-10", "")
	f(trace+"&from=2026-03-10T12:00:02Z&to=2026-03-10T12:00:04Z", "0000000000000003 1 <nil> <nil>")
	f("history=1&run_id=r", "0000000000000001 1 1 1\n0000000000000001 1 -1 1\n0000000000000001 2 1 3\n0000000000000002 1 1 2\n0000000000000002 1 -1 2\n0000000000000003 1 1 <nil>\n0000000000000004 1 1 <nil>")
	equal(t, "spend agrees", show(list(s.get("/api/v1/spend?" + during)["rows"]), "calls", "cost_usd"), "1 3")
	s.post(tr.add(schema.KindTool, func(e *schema.Entry) { e.Tool = "crm.lookup" }))
	f("run_id=r&tool=crm.lookup", "0000000000000005 1 <nil> 0")
	f("run_id=r&tool=crm.lookup&kind=model", "")
	f("run_id=r&tool=", net)
	s.refuse("/api/v1/calls?trace_id=xyz", http.StatusBadRequest, "32 hex digits")
	s.refuse("/api/v1/calls?history=yes", http.StatusBadRequest, "want 1")
}

func TestPagesHaveNoGapAndNoRepeat(t *testing.T) {
	s := newStore(t)
	// All start at once; two tenants sent the same ids; lines have parts and versions.
	var entries []schema.Entry
	for tenant := range 2 {
		for id := range byte(3) {
			tr := newTrace(fmt.Sprintf("t.%d", tenant), "r", 200+id, nil)
			for range 4 {
				e := tr.add(schema.KindModel, priced("1"))
				e.Start = noon.UnixNano() + 123456789
				part := e
				part.Part = 1
				entries = append(entries, e, part)
				entries = append(entries, replaced(part, priced("2"))...)
			}
		}
	}
	s.post(entries...)
	f := func(query string, limit, want int) {
		t.Helper()
		seen := map[string]bool{}
		cursor, pages := "", 0
		for {
			m := s.get(fmt.Sprintf("/api/v1/calls?%s&limit=%d&cursor=%s", query, limit, url.QueryEscape(cursor)))
			calls := list(m["calls"])
			if len(calls) == 0 || len(calls) > limit {
				t.Fatalf("%s: a page of %d calls, limit %d", query, len(calls), limit)
			}
			for _, c := range calls {
				key := show([]map[string]any{c}, "tenant", "trace_id", "span_id", "part", "version", "sign")
				if seen[key] {
					t.Fatalf("%s, limit %d: %s stands twice", query, limit, key)
				}
				seen[key] = true
			}
			pages++
			if cursor = m["next"].(string); cursor == "" {
				break
			}
		}
		if len(seen) != want || pages != (want+limit-1)/limit {
			t.Errorf("%s, limit %d: got %d calls on %d pages, want %d", query, limit, len(seen), pages, want)
		}
	}
	f(during, 7, 48)
	f(during, 48, 48)
	f("run_id=r", 16, 48)
	f("run_id=r&history=1", 7, 96)
	f("history=1&tenant=t.1&"+during, 5, 48)
	f("trace_id="+schema.TraceID{15: 201}.String(), 1, 16)
	for _, bad := range []string{"x", "2026-03-10 12:00:00/a/b/0", base64.RawURLEncoding.EncodeToString([]byte("1.2.3.4.5.6.7")), base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "1.%032x.%016x.99999.1.1.t", 1, 1)), base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "-1.%032x.%016x.9.1.1.t", 1, 1))} {
		s.refuse("/api/v1/calls?cursor="+url.QueryEscape(bad), http.StatusBadRequest, "not one of ours")
	}
}

func FuzzCursor(f *testing.F) {
	f.Add(start.String())
	f.Add(cursor{at: time.Unix(0, math.MaxInt64), tenant: "a.b'\n", trace: schema.TraceID{1}, span: schema.SpanID{2}, part: 65535, version: math.MaxUint32, sign: -1}.String())
	f.Fuzz(func(t *testing.T, s string) {
		c, err := parseCursor(s)
		if err != nil {
			return
		}
		again, err := parseCursor(c.String())
		if err != nil || again != c {
			t.Fatalf("cursor %q does not read back: %+v, %v", s, again, err)
		}
	})
}

// The rollup forgets days whose sums are zero; the bound it gives must lose nothing.
func TestRunIsWholeAfterZeroDaysAreMergedAway(t *testing.T) {
	s := newStore(t)
	const day = int64(24 * time.Hour / time.Microsecond)
	tr := newTrace("t-1", "r", 1, nil)
	gone, kept := tr.add(schema.KindModel, priced("1")), tr.add(schema.KindModel, priced("2"))
	// The first day cancels itself, the third only renames.
	s.post(gone, cancel(gone))
	kept.RecordedAt += day
	s.post(kept)
	renamed := replaced(kept, func(e *schema.Entry) { e.Name = "renamed" })
	for i := range renamed {
		renamed[i].RecordedAt += day
	}
	s.post(renamed...)
	if err := s.e.Conn().Exec(t.Context(), "OPTIMIZE TABLE runs FINAL"); err != nil {
		t.Fatal(err)
	}
	if n := s.count("SELECT count() FROM runs"); n != 1 {
		t.Errorf("days in the rollup: got %d, want 1", n)
	}
	equal(t, "calls", show(list(s.get("/api/v1/calls?run_id=r")["calls"]), "name", "version", "cost_usd"), "renamed 2 2")
	equal(t, "history", show(list(s.get("/api/v1/calls?run_id=r&history=1")["calls"]), "version", "sign"), "1 1\n1 -1\n1 1\n1 -1\n2 1")
	equal(t, "report", show([]map[string]any{s.get("/api/v1/runs/r")}, "cost_usd", "model_calls"), "2 1")
	equal(t, "by model", show(list(s.get("/api/v1/amplification?group_by=model&" + during)["rows"]), "model", "ratio", "cost_usd"), "m-5 1 2")
}

package main

import (
	"encoding/hex"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
)

// decode reads a request the way a receiver does.
func decode(t *testing.T, b []byte) ptrace.Traces {
	t.Helper()
	req := ptraceotlp.NewExportRequest()
	if err := req.UnmarshalProto(b); err != nil {
		t.Fatalf("decode request: %v", err)
	}
	return req.Traces()
}

// each calls f for every span.
func each(td ptrace.Traces, f func(resource pcommon.Map, scope string, s ptrace.Span)) {
	for _, rs := range td.ResourceSpans().All() {
		for _, ss := range rs.ScopeSpans().All() {
			for _, s := range ss.Spans().All() {
				f(rs.Resource().Attributes(), ss.Scope().Name(), s)
			}
		}
	}
}

func text(m pcommon.Map, key string) string {
	v, ok := m.Get(key)
	if !ok {
		return ""
	}
	return v.AsString()
}

// seen checks that ids are unique over any number of requests.
type seen struct {
	spans  map[pcommon.SpanID]bool
	traces map[pcommon.TraceID]int
	ids    map[string]bool // response and tool call ids
}

func newSeen() *seen {
	return &seen{map[pcommon.SpanID]bool{}, map[pcommon.TraceID]int{}, map[string]bool{}}
}

func (u *seen) add(t *testing.T, td ptrace.Traces) {
	t.Helper()
	each(td, func(_ pcommon.Map, _ string, s ptrace.Span) {
		if s.TraceID().IsEmpty() || s.SpanID().IsEmpty() || u.spans[s.SpanID()] {
			t.Fatalf("span %s of trace %s is empty or not new", s.SpanID(), s.TraceID())
		}
		u.spans[s.SpanID()] = true
		u.traces[s.TraceID()]++
		for _, key := range []string{"gen_ai.response.id", "gen_ai.tool.call.id"} {
			if id := text(s.Attributes(), key); id != "" {
				if u.ids[id] {
					t.Fatalf("%s %s is not new", key, id)
				}
				u.ids[id] = true
			}
		}
	})
}

func TestTemplates(t *testing.T) {
	start := time.Date(2026, 11, 29, 10, 0, 0, 0, time.UTC)
	for _, sc := range scenarios {
		t.Run(sc.name, func(t *testing.T) {
			g := newGroup(sc, 1000, 5000, 50)
			src := newSource(7, 5000, 50)
			u := newSeen()
			spans := 0
			for round := range 3 {
				first := uint64(round * g.runs * runsOfResource)
				for phase, r := range g.requests {
					r.fill(src, first, start.UnixNano())
					td := decode(t, r.bytes)
					if td.SpanCount() != r.spans {
						t.Fatalf("phase %d: %d spans, the request says %d", phase, td.SpanCount(), r.spans)
					}
					spans += td.SpanCount()
					u.add(t, td)
					each(td, func(res pcommon.Map, _ string, s ptrace.Span) {
						checkSpan(t, start, phase, g.phases, res, s)
					})
				}
			}
			if spans != 3*g.spans || len(u.traces) != 3*g.runs {
				t.Errorf("%d spans of %d runs, want %d of %d", spans, len(u.traces), 3*g.spans, 3*g.runs)
			}
			if perPhase := g.spans / g.phases; perPhase < 1000 || perPhase > 1020 {
				t.Errorf("%d spans a request, asked for 1000", perPhase)
			}
		})
	}
}

func checkSpan(t *testing.T, start time.Time, phase, phases int, res pcommon.Map, s ptrace.Span) {
	t.Helper()
	if !strings.HasPrefix(text(res, "tenant.id"), "tenant-") || text(res, "service.name") != "agents" {
		t.Fatalf("resource is %v", res.AsRaw())
	}
	begin, end := s.StartTimestamp().AsTime(), s.EndTimestamp().AsTime()
	if begin.Before(start) || !end.After(begin) || end.After(start.Add(runLength)) {
		t.Fatalf("%s lasts from %s to %s", s.Name(), begin, end)
	}
	if phases > 1 && end.After(start.Add(time.Duration(phase+1)*exportEvery)) {
		t.Fatalf("%s is exported in phase %d, before its end %s", s.Name(), phase, end)
	}
	a := s.Attributes()
	conversation := text(a, "gen_ai.conversation.id")
	if conversation != "" && conversation != "conv_"+s.TraceID().String() {
		t.Fatalf("conversation %s in trace %s", conversation, s.TraceID())
	}
	if id := text(a, "gen_ai.response.id"); id != "" && !strings.HasSuffix(id, s.SpanID().String()) {
		t.Fatalf("response %s of span %s", id, s.SpanID())
	}
	switch op := text(a, "gen_ai.operation.name"); op {
	case "invoke_agent":
		if !s.ParentSpanID().IsEmpty() || s.Kind() != ptrace.SpanKindInternal || text(a, "user.id") == "" || text(a, "app.feature") == "" {
			t.Fatalf("root %s has parent %s, kind %s, %v", s.Name(), s.ParentSpanID(), s.Kind(), a.AsRaw())
		}
		if phase != phases-1 {
			t.Fatalf("root is in phase %d of %d", phase, phases)
		}
	case "chat":
		if s.Kind() != ptrace.SpanKindClient || s.ParentSpanID().IsEmpty() {
			t.Fatalf("%s has kind %s and parent %s", s.Name(), s.Kind(), s.ParentSpanID())
		}
		if s.Status().Code() == ptrace.StatusCodeError {
			return
		}
		input, _ := a.Get("gen_ai.usage.input_tokens")
		read, _ := a.Get("gen_ai.usage.cache_read.input_tokens")
		if input.Int() <= 0 || read.Int() > input.Int() || text(a, "gen_ai.response.finish_reasons") == "" {
			t.Fatalf("%s has %v", s.Name(), a.AsRaw())
		}
	case "execute_tool":
		if text(a, "gen_ai.tool.call.id") != "call_"+s.SpanID().String() {
			t.Fatalf("%s has %v", s.Name(), a.AsRaw())
		}
	case "":
		if text(a, "db.system.name") == "" && text(a, "http.request.method") == "" {
			t.Fatalf("%s has %v", s.Name(), a.AsRaw())
		}
	default:
		t.Fatalf("operation %s", op)
	}
}

// The first scenario is what the throughput is quoted for, so its shape is fixed.
func TestAttributedShape(t *testing.T) {
	sc, err := findScenario("attributed")
	if err != nil {
		t.Fatal(err)
	}
	g := newGroup(sc, 1000, 5000, 50)
	if g.runs != 100 || g.spans != 1000 || g.calls != 800 {
		t.Errorf("%d runs, %d spans, %d calls: want 100, 1000, 800", g.runs, g.spans, g.calls)
	}
	r := g.requests[0]
	r.fill(newSource(1, 5000, 50), 0, 1)
	td := decode(t, r.bytes)
	attrs, byTrace := 0, map[pcommon.TraceID]map[pcommon.SpanID]ptrace.Span{}
	each(td, func(_ pcommon.Map, _ string, s ptrace.Span) {
		attrs += s.Attributes().Len()
		if text(s.Attributes(), "user.id") == "" || text(s.Attributes(), "app.feature") == "" {
			t.Errorf("%s has no user or feature", s.Name())
		}
		if byTrace[s.TraceID()] == nil {
			byTrace[s.TraceID()] = map[pcommon.SpanID]ptrace.Span{}
		}
		byTrace[s.TraceID()][s.SpanID()] = s
	})
	if mean := attrs / g.spans; mean < 14 || mean > 16 {
		t.Errorf("%d attributes a span, want about 15", mean)
	}
	for id, run := range byTrace {
		roots := 0
		for _, s := range run {
			if s.ParentSpanID().IsEmpty() {
				roots++
			} else if _, ok := run[s.ParentSpanID()]; !ok {
				t.Errorf("trace %s: the parent of %s is not in it", id, s.Name())
			}
		}
		if roots != 1 || len(run) != 10 {
			t.Errorf("trace %s has %d roots, %d spans", id, roots, len(run))
		}
	}
}

func TestRootLastIdentity(t *testing.T) {
	sc, err := findScenario("root-last")
	if err != nil {
		t.Fatal(err)
	}
	g := newGroup(sc, 100, 10, 3)
	src := newSource(1, 10, 3)
	for _, r := range g.requests {
		r.fill(src, 0, 1)
		each(decode(t, r.bytes), func(_ pcommon.Map, _ string, s ptrace.Span) {
			if root := s.ParentSpanID().IsEmpty(); root != (text(s.Attributes(), "user.id") != "") {
				t.Errorf("%s: root %v, user %q", s.Name(), root, text(s.Attributes(), "user.id"))
			}
		})
	}
}

// mixed promises these cases; the sum of calls is checked by --verify.
func TestMixedHas(t *testing.T) {
	sc, err := findScenario("mixed")
	if err != nil {
		t.Fatal(err)
	}
	g := newGroup(sc, 1000, 5000, 50)
	r := g.requests[0]
	r.fill(newSource(1, 5000, 50), 0, 1)
	got := map[string]int{}
	each(decode(t, r.bytes), func(_ pcommon.Map, _ string, s ptrace.Span) {
		a := s.Attributes()
		got["error "+text(a, "error.type")]++
		got["model "+text(a, "gen_ai.request.model")]++
		got["db "+text(a, "db.system.name")]++
		got["http "+text(a, "http.request.method")]++
	})
	for _, want := range []string{"error rate_limit_exceeded", "error timeout", "model acme-house-7b", "model gpt-5", "model gpt-4o", "model claude-sonnet-4-5", "model gemini-2.5-pro", "db postgresql", "http POST", "http GET"} {
		if got[want] == 0 {
			t.Errorf("no span with %s", want)
		}
	}
}

func TestSource(t *testing.T) {
	f := func(users, tenants int) {
		t.Helper()
		s := newSource(3, users, tenants)
		owner := map[uint64]uint64{}
		seenTenants := map[uint64]bool{}
		for run := range uint64(200_000) {
			tenant, user := s.tenant(run), s.user(run)
			if tenant >= uint64(tenants) || user >= uint64(users) {
				t.Fatalf("tenant %d of %d, user %d of %d", tenant, tenants, user, users)
			}
			seenTenants[tenant] = true
			if tenants <= users {
				if was, ok := owner[user]; ok && was != tenant {
					t.Fatalf("user %d is of tenants %d and %d", user, was, tenant)
				}
			}
			owner[user] = tenant
		}
		if len(seenTenants) != tenants || len(owner) != users {
			t.Errorf("%d of %d tenants, %d of %d users were used", len(seenTenants), tenants, len(owner), users)
		}
	}
	f(5000, 50)
	f(7, 3)
	f(1, 1)
	f(3, 3)

	hi, lo := newSource(3, 1, 1).trace(1)
	if hi2, lo2 := newSource(4, 1, 1).trace(1); hi == hi2 || lo == lo2 {
		t.Error("two seeds made the same trace id")
	}
}

func TestDigits(t *testing.T) {
	for n, want := range map[uint64]int32{1: 1, 2: 1, 10: 1, 11: 2, 50: 2, 100: 2, 101: 3, 5000: 4, 10_000: 4, 10_001: 5} {
		if got := digitsOf(n); got != want {
			t.Errorf("digitsOf(%d) = %d, want %d", n, got, want)
		}
	}
	f := func(v uint64, width int, want string) {
		t.Helper()
		b := make([]byte, width)
		if putDecimal(b, v); string(b) != want {
			t.Errorf("%d in %d digits is %q, want %q", v, width, b, want)
		}
	}
	f(0, 3, "000")
	f(42, 4, "0042")
	b := make([]byte, 16)
	putHex(b, 0x0123456789abcdef)
	if raw, err := hex.DecodeString(string(b)); err != nil || string(b) != "0123456789abcdef" || len(raw) != 8 {
		t.Errorf("hex is %q", b)
	}
}

// BenchmarkFill is all the work of one request but the sending.
func BenchmarkFill(b *testing.B) {
	for _, sc := range scenarios {
		b.Run(sc.name, func(b *testing.B) {
			g := newGroup(sc, 1000, 5000, 50)
			src := newSource(1, 5000, 50)
			var size int64
			for _, r := range g.requests {
				size += int64(len(r.bytes))
			}
			b.SetBytes(size)
			b.ReportAllocs()
			block := uint64((g.runs + runsOfResource - 1) / runsOfResource * runsOfResource)
			first := uint64(0)
			for b.Loop() {
				for _, r := range g.requests {
					r.fill(src, first, 1)
				}
				first += block
			}
			b.ReportMetric(float64(g.spans)*float64(b.N)/b.Elapsed().Seconds(), "spans/s")
			b.ReportMetric(float64(size)/float64(g.spans), "B/span")
		})
	}
}

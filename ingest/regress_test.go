package ingest

import (
	"fmt"
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/flyball/flyball/ingest/dialect"
	"github.com/flyball/flyball/ingest/trace"
	"github.com/flyball/flyball/schema"
)

// Defects that reading the code again found, each by the spans that showed it.

// A preview decides nothing, whatever it looks at.
func TestPreviewLeavesNoTrace(t *testing.T) {
	b := newBench(t, withPrices(fieldPrices))
	call := func(trace, id string, start, end float64) ptrace.Traces {
		at := chat("openai", "two-ten", use(100, 10))
		at["gen_ai.response.id"] = "resp-1"
		return b.traces(trace, spec{id: id, start: start, end: end, attrs: at})
	}
	b.add(call("gateway", "g", 1, 2))
	b.add(call("client", "c", 0, 3))
	for _, tr := range []string{"gateway", "client"} {
		if _, _, err := b.asm.Reprice("default", schema.TraceID(traceID(tr)), nil, false, true, b.now, func(c *schema.Call, old, now *schema.Posting) {
			t.Errorf("%s: a preview without new prices shows a change", tr)
		}); err != nil {
			t.Fatal(err)
		}
	}
	b.add(b.traces("client", spec{id: "d", start: 5, attrs: chat("openai", "two-ten", use(1, 1))}))
	if s := b.totals(); s.model != 2 || len(b.net()) != 3 {
		t.Fatalf("%d calls in %d lines", s.model, len(b.net()))
	}
}

// Client and gateway are joined in either order, after a restart too, and never
// where they disagree on what was used.
func TestClientAndGateway(t *testing.T) {
	build := func(b *bench, trace, id string, start, end float64, cached int) ptrace.Traces {
		at := chat("openai", "half", map[string]any{"gen_ai.usage.input_tokens": 1000, "gen_ai.usage.cache_read.input_tokens": cached, "gen_ai.usage.output_tokens": 10, "gen_ai.response.id": "resp-1"})
		return b.traces(trace, spec{id: id, start: start, end: end, attrs: at})
	}
	for _, restart := range []bool{false, true} {
		for _, gatewayFirst := range []bool{false, true} {
			b := newBench(t, withPrices(fieldPrices))
			first, second := build(b, "c", "c", 0, 3, 500), build(b, "g", "g", 1, 2, 500)
			if gatewayFirst {
				first, second = second, first
			}
			b.add(first)
			if restart {
				b.resume()
			}
			b.add(second)
			if s := b.totals(); s.model != 1 {
				t.Fatalf("restart %v, gateway first %v: %d calls", restart, gatewayFirst, s.model)
			}
			for _, e := range b.net() {
				if (e.Posting.DuplicateOf != "") != (e.Span[0] == 'g') {
					t.Fatalf("span %c: duplicate of %q", e.Span[0], e.Posting.DuplicateOf)
				}
			}
		}
	}
	b := newBench(t, withPrices(fieldPrices))
	b.add(build(b, "g", "g", 1, 2, 0))
	b.add(build(b, "c", "c", 0, 3, 1000)) // the same totals, read cheaper
	if s := b.totals(); s.model != 2 {
		t.Fatalf("a cheaper reading replaced the gateway's: %d calls", s.model)
	}
}

// What waits when the service stops is settled after the start.
func TestWaitingSurvivesAStop(t *testing.T) {
	agent := func(b *bench) ptrace.Traces {
		return b.traces("t", spec{id: "a", name: "invoke_agent", attrs: map[string]any{"gen_ai.operation.name": "invoke_agent", "gen_ai.request.model": "two-ten", "gen_ai.provider.name": "openai", "gen_ai.usage.input_tokens": 113, "gen_ai.usage.output_tokens": 11}})
	}
	for _, down := range []time.Duration{0, time.Minute} {
		b := newBench(t, withPrices(fieldPrices))
		b.add(agent(b))
		safe, end, err := b.asm.Save(b.now, true, func(trace.Page) error { return nil })
		if err != nil || safe >= end {
			t.Fatalf("the store may start at %d of %d although something waits: %v", safe, end, err)
		}
		b.now += int64(down)
		b.resume()
		b.settle()
		if s := b.totals(); s.cost.String() != "0.000336" || s.model != 1 {
			t.Fatalf("after %v: %s, %d calls", down, s.cost, s.model)
		}
	}
	// So does what has a second version because its root told whose it was.
	b := newBench(t, withPrices(fieldPrices))
	td := agent(b)
	td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0).SetParentSpanID(spanID("r"))
	b.add(td)
	b.add(b.traces("t", spec{id: "r", name: "root", attrs: map[string]any{"user.id": "ann"}}))
	b.now += int64(time.Minute)
	b.resume()
	b.settle()
	if s := b.totals(); s.cost.String() != "0.000336" || s.model != 1 {
		t.Fatalf("after its root and a stop: %s, %d calls", s.cost, s.model)
	}
	// Usage that comes with the second version of the span waits as well.
	b = newBench(t, withPrices(fieldPrices))
	bare := b.traces("t", spec{id: "a", name: "invoke_agent", end: 0.1, attrs: map[string]any{"gen_ai.operation.name": "invoke_agent"}})
	b.add(bare)
	b.add(agent(b))
	b.settle()
	if s := b.totals(); s.model != 1 {
		t.Fatalf("usage of a re-sent agent span is lost: %+v", s)
	}
}

// The parts of an answer follow its call.
func TestPartsFollowTheirCall(t *testing.T) {
	raw := `{"input_tokens":400,"output_tokens":260,"cache_read_input_tokens":0,"iterations":[{"model":"P","input_tokens":400,"output_tokens":300},{"model":"Q","input_tokens":400,"output_tokens":260}]}`
	at := chat("anthropic", "Q", map[string]any{"gen_ai.usage.input_tokens": 400, "gen_ai.usage.output_tokens": 260, "gen_ai.usage.raw": raw})
	b := newBench(t, withPrices(fieldPrices))
	b.add(b.traces("t", spec{id: "outer", attrs: at}))
	if s := b.totals(); s.cost.String() != "0.0275" {
		t.Fatalf("got %s", s.cost)
	}
	b.add(b.traces("t", spec{id: "inner", parent: "outer", attrs: at}))
	if s := b.totals(); s.cost.String() != "0.0275" || s.model != 1 {
		t.Fatalf("with a nested twin: %s, %d calls", s.cost, s.model)
	}
}

func TestEmbeddingBelowAChatIsAnotherCall(t *testing.T) {
	b := newBench(t, withPrices(fieldPrices))
	b.add(b.traces("t", spec{id: "chat", attrs: chat("openai", "two-ten", use(8000, 100))},
		spec{id: "emb", parent: "chat", attrs: map[string]any{"gen_ai.operation.name": "embeddings", "gen_ai.provider.name": "openai", "gen_ai.request.model": "tiny", "gen_ai.usage.input_tokens": 12}}))
	if s := b.totals(); s.model != 2 || s.tokens.Input != 8012 {
		t.Fatalf("%+v", s)
	}
}

// A trusted gateway's record is not replaced by a neighbour that claims its answer.
func TestTrustedRecordWins(t *testing.T) {
	b := newBench(t, withPrices(fieldPrices))
	at := chat("openai", "two-ten", use(1000, 100))
	at["gen_ai.response.id"] = "resp-9"
	b.add(b.traces("t", spec{id: "g", scope: "gw", parent: "p", attrs: at}))
	b.from = dialect.Origin{}
	at["gen_ai.response.model"], at["gen_ai.request.model"], at["gen_ai.usage.output_tokens"] = "tiny", "tiny", 101
	b.add(b.traces("t", spec{id: "x", scope: "other", parent: "p", attrs: at}))
	if s := b.totals(); s.cost.String() != "0.003" || s.model != 1 {
		t.Fatalf("%s, %d calls", s.cost, s.model)
	}
}

// Spans without a time are the same when they come again later.
func TestTimelessSpansComeAgain(t *testing.T) {
	b := newBench(t, withPrices(fieldPrices))
	td := b.traces("t", spec{id: "a", attrs: chat("openai", "dime", use(1, 1))})
	sp := td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0)
	sp.SetStartTimestamp(0)
	sp.SetEndTimestamp(0)
	b.add(td)
	for range 3 {
		b.now += int64(time.Minute)
		if res := b.add(td); res.Entries != 0 || res.Duplicate != 1 {
			t.Fatalf("%+v", res)
		}
	}
}

// One attribute cannot become any number of calls.
func TestIterationsAreBounded(t *testing.T) {
	raw := `{"input_tokens":1,"output_tokens":1,"cache_read_input_tokens":0,"iterations":[`
	for i := range 5000 {
		if i > 0 {
			raw += ","
		}
		raw += fmt.Sprintf(`{"model":"m%d","input_tokens":1,"output_tokens":1}`, i)
	}
	b := newBench(t, withPrices(fieldPrices))
	b.add(b.traces("t", spec{id: "a", attrs: chat("anthropic", "Q", map[string]any{"gen_ai.usage.raw": raw + "]}"})}))
	if n := b.net(); len(n) != 1 || n[0].AllFlags()&schema.FlagUsageInvalid == 0 {
		t.Fatalf("%d lines", len(n))
	}
}

// A parent that only a later version names is honoured.
func TestLateParentOfAResentSpan(t *testing.T) {
	b := newBench(t, withPrices(fieldPrices))
	b.add(b.traces("t", spec{id: "root", name: "root", attrs: map[string]any{"user.id": "u"}}))
	b.add(b.traces("t", spec{id: "c", attrs: chat("openai", "dime", nil), end: 0.2}))
	b.add(b.traces("t", spec{id: "c", parent: "root", attrs: chat("openai", "dime", use(1, 1))}))
	for _, e := range b.net() {
		if e.Span[0] == 'c' && (e.Posting.Identity[schema.User] != "u" || e.Parent == (schema.SpanID{})) {
			t.Fatalf("%+v", e)
		}
	}
	if s := b.totals(); s.model != 1 || s.cost.String() != "0.1" {
		t.Fatalf("%+v", s)
	}
}

// inAnyOrder gives the batches to assemblers in every order, each of them over a stop as well,
// and has the outcome checked.
func inAnyOrder(t *testing.T, check func(s totals, lines []schema.Entry) string, batches func(b *bench) []ptrace.Traces) {
	t.Helper()
	order := make([]int, len(batches(newBench(t))))
	for i := range order {
		order[i] = i
	}
	var try func(k int)
	try = func(k int) {
		if k < len(order) {
			for i := k; i < len(order); i++ {
				order[k], order[i] = order[i], order[k]
				try(k + 1)
				order[k], order[i] = order[i], order[k]
			}
			return
		}
		for _, stop := range []bool{false, true} {
			b := newBench(t, withPrices(fieldPrices), ofTasks)
			all := batches(b)
			for _, i := range order {
				b.add(all[i])
				if stop {
					b.resume()
				}
			}
			b.settle()
			if wrong := check(b.totals(), b.net()); wrong != "" {
				t.Fatalf("order %v, stop %v: %s: %+v", order, stop, wrong, b.totals())
			}
		}
	}
	try(0)
}

func ofTasks(_ testing.TB, o *benchOptions) {
	o.dialect.Attributes = map[string][]string{"run": {"task.id"}}
}

func wantTotals(model, tool, retries, hidden uint32, cost string) func(totals, []schema.Entry) string {
	return func(s totals, _ []schema.Entry) string {
		if s.model != model || s.tool != tool || s.retries != retries || s.hidden != hidden || s.cost.String() != cost {
			return fmt.Sprintf("want %d model calls, %d tool calls, %d retries, %d hidden, cost %s", model, tool, retries, hidden, cost)
		}
		return ""
	}
}

func batch(b *bench, specs ...spec) []ptrace.Traces {
	var out []ptrace.Traces
	for _, s := range specs {
		out = append(out, b.traces("t", s))
	}
	return out
}

func answered(id string, in, out int) map[string]any {
	return with(chat("openai", "two-ten", use(in, out)), "gen_ai.response.id", id)
}

// Servers that number their answers use a number again, and mocks give each answer the same.
func TestEqualResponseIDs(t *testing.T) {
	same := func(scope string, start, end float64, in, out int) spec {
		return spec{id: fmt.Sprint(scope, start), parent: "r", scope: scope, start: start, end: end, attrs: answered("chatcmpl-771", in, out)}
	}
	f := func(want func(totals, []schema.Entry) string, specs ...spec) {
		t.Helper()
		inAnyOrder(t, want, func(b *bench) []ptrace.Traces { return batch(b, specs...) })
	}
	f(wantTotals(2, 0, 0, 0, "0.009"), same("a", 1, 2, 1000, 100), same("a", 5, 6, 2000, 200))
	f(wantTotals(3, 0, 0, 0, "0.009"), same("a", 1, 2, 1000, 100), same("a", 2, 3, 1000, 100), same("a", 5, 6, 1000, 100))
	f(wantTotals(2, 0, 0, 0, "0.009"), same("a", 1, 2, 1000, 100), same("a", 1.5, 3, 2000, 200))
	// One answer that two emitters tell of, and one whose event comes at its end.
	f(wantTotals(1, 0, 0, 0, "0.003"), same("a", 1, 2, 1000, 100), same("b", 1.1, 1.9, 1000, 100))
	f(wantTotals(1, 0, 0, 0, "0.003"), same("a", 1, 2, 1000, 100), spec{id: "e", parent: "r", scope: "b", start: 2.1, end: 2.1, attrs: answered("chatcmpl-771", 1000, 100)})
}

// What a guard did not let through is no call: no figure and no other guard counts it.
func TestRefusedCallsAreNoCalls(t *testing.T) {
	ok := func(id string, start float64) spec {
		return spec{id: id, parent: "r", start: start, attrs: chat("openai", "two-ten", use(1000, 100))}
	}
	refused := spec{id: "x", parent: "r", start: 2, err: "refused", attrs: with(chat("openai", "two-ten", nil), "error.type", "budget_exceeded")}
	failed := spec{id: "f", parent: "r", start: 1, err: "429", attrs: chat("openai", "two-ten", nil)}
	inAnyOrder(t, func(s totals, lines []schema.Entry) string {
		for i := range lines {
			if e := &lines[i]; e.Failure == schema.Budget && (e.Posting.Kind != schema.KindModel || e.Posting.Status != schema.CostNone || e.Posting.Cost != 0) {
				return "a refused call is " + e.Posting.Status.String()
			}
		}
		return wantTotals(1, 0, 1, 0, "0.003")(s, lines)
	}, func(b *bench) []ptrace.Traces { return batch(b, failed, refused, ok("a", 3)) })
}

// A gateway's records of a client's attempts are attempts of the client's call, though each is
// below a request of its own.
func TestRetriesThroughAGateway(t *testing.T) {
	const client, server = ptrace.SpanKindClient, ptrace.SpanKindServer
	request := func(id, parent string, kind ptrace.SpanKind, start float64, status int) spec {
		return spec{id: id, parent: parent, name: "POST", kind: kind, start: start, end: start + 0.9, attrs: map[string]any{"http.request.method": "POST", "http.response.status_code": status, "url.full": "http://gateway/v1/chat/completions"}}
	}
	inAnyOrder(t, func(s totals, lines []schema.Entry) string {
		for i := range lines {
			if e := &lines[i]; e.Posting.Retries > 0 && (e.Posting.Layer != schema.LayerSDK || e.Posting.Cause != schema.Overloaded) {
				return fmt.Sprintf("a retry of layer %s after %s", e.Posting.Layer, e.Posting.Cause)
			}
		}
		return wantTotals(1, 0, 1, 0, "0.003")(s, lines)
	}, func(b *bench) []ptrace.Traces {
		one := b.traces("t", spec{id: "c", parent: "r", scope: "client", start: 0, end: 3, attrs: chat("openai", "two-ten", use(1000, 100))})
		two := b.traces("t", request("p1", "c", client, 0.1, 503))
		three := b.traces("t", request("s1", "p1", server, 0.1, 503), spec{id: "g1", parent: "s1", scope: "gateway", start: 0.2, end: 0.8, err: "503", attrs: chat("openai", "two-ten", nil)})
		four := b.traces("t", request("p2", "c", client, 1.1, 200), request("s2", "p2", server, 1.1, 200), spec{id: "g2", parent: "s2", scope: "gateway", start: 1.2, end: 1.8, attrs: chat("openai", "two-ten", use(1000, 100))})
		return []ptrace.Traces{one, two, three, four}
	})
}

// Two instrumentations record a call one inside the other. What is tried again above both is
// a retry of the framework.
func TestRetriesOfNestedRecords(t *testing.T) {
	const failed, gaveUp = "503", "timeout"
	record := func(id, parent, scope string, start, end float64, err string, attrs map[string]any) spec {
		if err != "" {
			attrs = with(attrs, "error.type", err)
		}
		return spec{id: id, parent: parent, scope: scope, start: start, end: end, err: err, attrs: attrs}
	}
	f := func(wasted string, err, errInside string, endInside float64, inside map[string]any) {
		t.Helper()
		inAnyOrder(t, func(s totals, lines []schema.Entry) string {
			for i := range lines {
				if p := &lines[i].Posting; p.Retries > 0 && (p.Layer != schema.LayerFramework || !p.Cause.Retryable()) {
					return fmt.Sprintf("a retry of layer %s after %s", p.Layer, p.Cause)
				}
			}
			if s.model != 1 || s.retries != 1 || s.wasted.String() != wasted {
				return "want a call, a retry and " + wasted + " wasted"
			}
			return ""
		}, func(b *bench) []ptrace.Traces {
			return batch(b,
				record("c1", "r", "outer", 1, 3, err, chat("openai", "two-ten", nil)),
				record("g1", "c1", "inner", 1.1, endInside, errInside, inside),
				record("c2", "r", "outer", 6, 8, "", chat("openai", "two-ten", use(1000, 100))),
				record("g2", "c2", "inner", 6.1, 7.9, "", chat("openai", "two-ten", use(1000, 100))))
		})
	}
	f("0", failed, failed, 2.9, chat("openai", "two-ten", nil))
	// The client gave up, and the other side finished the answer at its cost.
	f("0.003", gaveUp, "", 6.5, chat("openai", "two-ten", use(1000, 100)))
}

// Two instrumentations record each attempt, beside or inside each other, and failures have
// neither counts nor ids by which they could be told to be one.
func TestRecordsOfFailures(t *testing.T) {
	record := func(id, parent, scope string, start, end float64, err string, attrs map[string]any) spec {
		return spec{id: id, parent: parent, scope: scope, start: start, end: end, err: err, attrs: attrs}
	}
	f := func(want func(totals, []schema.Entry) string, specs ...spec) {
		t.Helper()
		inAnyOrder(t, func(s totals, lines []schema.Entry) string {
			for i := range lines {
				if p := &lines[i].Posting; p.Repeats > 0 || p.Hedges > 0 {
					return "a repetition or a hedge"
				}
			}
			return want(s, lines)
		}, func(b *bench) []ptrace.Traces { return batch(b, specs...) })
	}
	call := func(counts map[string]any) map[string]any { return chat("openai", "two-ten", counts) }
	embed := func(counts map[string]any) map[string]any {
		return with(call(counts), "gen_ai.operation.name", "embeddings")
	}
	tool := map[string]any{"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "task", "gen_ai.tool.call.arguments": `{"a":1}`}
	f(wantTotals(1, 0, 1, 0, "0.003"), record("a1", "r", "a", 1, 3, "429", call(nil)), record("b1", "r", "b", 1.1, 2.9, "", with(call(nil), "error.type", "429")),
		record("a2", "r", "a", 4, 6, "", call(use(1000, 100))), record("b2", "r", "b", 4.1, 5.9, "", call(use(1000, 100))))
	f(wantTotals(1, 0, 1, 0, "0.002"), record("a1", "r", "a", 1, 3, "429", embed(nil)), record("b1", "a1", "b", 1.1, 2.9, "429", embed(nil)),
		record("a2", "r", "a", 4, 6, "", embed(use(1000, 0))), record("b2", "a2", "b", 4.1, 5.9, "", embed(use(1000, 0))))
	for _, inside := range []string{"b", "z"} { // the clock of both says the same start
		f(wantTotals(0, 1, 1, 0, "0"), record("c1", "r", "a", 1, 3, "x", tool), record(inside+"1", "c1", "b", 1, 3, "x", tool), record("c2", "r", "a", 4, 5, "", tool), record(inside+"2", "c2", "b", 4, 5, "", tool))
		f(wantTotals(0, 1, 1, 0, "0"), record("c1", "r", "a", 1, 3, "x", tool), record(inside+"1", "r", "b", 1, 3, "x", tool), record("c2", "r", "a", 4, 5, "", tool), record(inside+"2", "r", "b", 4, 5, "", tool))
	}
}

// Calls that look the same, at one time, each recorded by two instrumentations beside each other.
func TestTwinsOfEqualCalls(t *testing.T) {
	record := func(id, scope string, start, end float64, err string, in int) spec {
		attrs := chat("openai", "two-ten", nil)
		if in > 0 {
			attrs = chat("openai", "two-ten", use(in, 100))
		}
		return spec{id: id, parent: "r", scope: scope, start: start, end: end, err: err, attrs: attrs}
	}
	f := func(want func(totals, []schema.Entry) string, specs ...spec) {
		t.Helper()
		inAnyOrder(t, want, func(b *bench) []ptrace.Traces { return batch(b, specs...) })
	}
	two := wantTotals(2, 0, 0, 0, "0.006")
	f(two, record("a", "1", 1, 3, "", 1000), record("b", "1", 1, 3, "", 1000), record("c", "2", 1, 3, "", 1000), record("d", "2", 1, 3, "", 1000))
	f(two, record("a", "1", 1, 3, "", 1000), record("b", "1", 2, 4, "", 1000), record("c", "2", 1.1, 2.9, "", 1000), record("d", "2", 2.1, 4.1, "", 1000))
	f(two, record("a", "1", 1, 3, "", 1000), record("b", "1", 1, 3, "", 1000), record("d", "2", 1, 3, "", 1000))
	f(wantTotals(2, 0, 0, 0, "0"), record("a", "1", 1, 3, "429", 0), record("b", "1", 1, 3, "429", 0), record("c", "2", 1, 3, "429", 0), record("d", "2", 1, 3, "429", 0))
	// What is sent again with other counts is a twin no more, or becomes one.
	f(wantTotals(1, 0, 0, 0, "0.003"), record("a", "1", 1, 3, "", 1000), record("c", "2", 1, 2, "", 0), record("c", "2", 1, 3, "", 1000))
}

// The requests of an SDK lie below the record whose span was the current one, not below the one that counts.
func TestRequestsBesideTheRecord(t *testing.T) {
	request := func(id string, start, end float64, status int) spec {
		return spec{id: id, parent: "a", scope: "http", name: "POST", kind: ptrace.SpanKindClient, start: start, end: end, attrs: map[string]any{"http.request.method": "POST", "http.response.status_code": status, "url.full": "https://api.openai.com/v1/chat/completions"}}
	}
	inAnyOrder(t, wantTotals(1, 0, 0, 1, "0.003"), func(b *bench) []ptrace.Traces {
		return batch(b, spec{id: "a", parent: "r", scope: "1", start: 1, end: 9, attrs: chat("openai", "two-ten", use(1000, 100))},
			spec{id: "b", parent: "a", scope: "2", start: 1.1, end: 8.9, attrs: chat("openai", "two-ten", use(1000, 100))}, request("h1", 1.2, 2, 429), request("h2", 3, 8, 200))
	})
}

// A gateway that does not know the client's trace tries again in one of its own: that is one
// request of the client's run, tried again once, whatever else the gateway's trace has.
func TestRetriesInAGatewaysTrace(t *testing.T) {
	const server = ptrace.SpanKindServer
	f := func(want func(totals, []schema.Entry) string, tries ...spec) {
		t.Helper()
		inAnyOrder(t, func(s totals, lines []schema.Entry) string {
			run := schema.TraceID(traceID("client")).String()
			for i := range lines {
				e := &lines[i]
				if got := e.Posting.Identity; got[schema.Run] != run || got[schema.User] != "ann" {
					return fmt.Sprintf("%s is in run %s, of user %q", e.Name, got[schema.Run], got[schema.User])
				}
				if (e.Posting.Flags&schema.FlagGatewayTrace != 0) != (e.Trace.String() != run) {
					return fmt.Sprintf("%s: flags %b", e.Name, e.Posting.Flags)
				}
				if e.Posting.Retries+e.Posting.Fallbacks > 0 && e.Posting.Cause == schema.NoFailure {
					return "a retry without a cause"
				}
			}
			return want(s, lines)
		}, func(b *bench) []ptrace.Traces {
			out := []ptrace.Traces{
				b.traces("client", spec{id: "r", end: 9, attrs: map[string]any{"gen_ai.operation.name": "invoke_agent", "user.id": "ann"}}),
				b.traces("client", spec{id: "c", parent: "r", start: 1, end: 6, attrs: answered("resp-1", 1000, 100)}),
				b.traces("gateway", spec{id: "s", name: "POST", kind: server, start: 1.1, end: 5.9}),
			}
			for _, try := range tries {
				try.parent = "s"
				out = append(out, b.traces("gateway", try))
			}
			return out
		})
	}
	failed := func(id string, start float64, model string) spec {
		return spec{id: id, start: start, end: start + 0.5, err: "503", attrs: chat("openai", model, nil)}
	}
	answer := spec{id: "z", start: 4, end: 5, attrs: answered("resp-1", 1000, 100)}
	f(wantTotals(1, 0, 0, 0, "0.003"), answer)
	f(wantTotals(1, 0, 1, 0, "0.003"), failed("x", 2, "two-ten"), answer)
	f(wantTotals(1, 0, 2, 0, "0.003"), failed("w", 1.2, "two-ten"), failed("x", 2, "two-ten"), answer)
	f(func(s totals, _ []schema.Entry) string {
		if s.model != 1 || s.retries != 0 || s.fallbacks != 1 {
			return "want a call and a fallback"
		}
		return ""
	}, failed("x", 2, "dime"), answer)
}

// A gateway's trace that serves calls of two traces is in the run of neither.
func TestGatewaysTraceOfTwoClients(t *testing.T) {
	at := func(b *bench, trace, id string, start, end float64) ptrace.Traces {
		return b.traces(trace, spec{id: "a" + id, start: start, end: end, attrs: answered("resp-"+id, 1000, 100)})
	}
	inAnyOrder(t, func(s totals, lines []schema.Entry) string {
		runs := map[string]bool{}
		for i := range lines {
			if p := &lines[i].Posting; p.DuplicateOf != "" || p.ModelCalls == 0 {
				runs[p.Identity[schema.Run]] = true
			}
		}
		if len(runs) != 1 || !runs[schema.TraceID(traceID("gateway")).String()] {
			return fmt.Sprintf("the gateway's lines are in runs %v", runs)
		}
		return wantTotals(2, 0, 0, 0, "0.006")(s, lines)
	}, func(b *bench) []ptrace.Traces {
		return []ptrace.Traces{at(b, "one", "1", 1, 4), at(b, "two", "2", 5, 8), at(b, "gateway", "1", 2, 3), at(b, "gateway", "2", 6, 7)}
	})
}

// What a tool's agent tried again is no hidden attempt of the tool.
func TestRetriesBelowATool(t *testing.T) {
	inAnyOrder(t, wantTotals(1, 1, 1, 0, "0.003"), func(b *bench) []ptrace.Traces {
		return batch(b,
			spec{id: "tool", parent: "r", end: 9, attrs: map[string]any{"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "research"}},
			spec{id: "sub", parent: "tool", end: 8, attrs: map[string]any{"gen_ai.operation.name": "invoke_agent"}},
			spec{id: "a", parent: "sub", start: 1, err: "429", attrs: chat("openai", "two-ten", nil)},
			spec{id: "b", parent: "sub", start: 2, attrs: chat("openai", "two-ten", use(1000, 100))})
	})
}

// A tool that hands work to an agent which has the same tool.
func TestToolOfAToolsAgent(t *testing.T) {
	tool := func(id, parent, call string, end float64) spec {
		return spec{id: id, parent: parent, end: end, attrs: map[string]any{"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "task", "gen_ai.tool.call.id": call}}
	}
	agent := spec{id: "sub", parent: "one", end: 8, attrs: map[string]any{"gen_ai.operation.name": "invoke_agent"}}
	inAnyOrder(t, wantTotals(0, 2, 0, 0, "0"), func(b *bench) []ptrace.Traces {
		return batch(b, tool("one", "r", "call_1", 9), agent, tool("two", "sub", "call_2", 7))
	})
	inAnyOrder(t, wantTotals(0, 1, 0, 0, "0"), func(b *bench) []ptrace.Traces { // one use, told twice
		return batch(b, tool("one", "r", "call_1", 9), tool("two", "one", "", 7))
	})
}

// A span that failed and is sent again as a success takes its word back.
func TestFailureTakenBack(t *testing.T) {
	inAnyOrder(t, wantTotals(2, 0, 0, 0, "0.006"), func(b *bench) []ptrace.Traces {
		return batch(b,
			spec{id: "a", parent: "r", end: 1, err: "503", attrs: chat("openai", "two-ten", nil)},
			spec{id: "b", parent: "r", start: 3, attrs: chat("openai", "two-ten", use(1000, 100))},
			spec{id: "a", parent: "r", end: 2, attrs: chat("openai", "two-ten", use(1000, 100))})
	})
}

// One answer that three records in three traces tell of.
func TestThreeRecordsOfAnAnswer(t *testing.T) {
	inAnyOrder(t, wantTotals(1, 0, 0, 0, "0.003"), func(b *bench) []ptrace.Traces {
		var out []ptrace.Traces
		for i, trace := range []string{"client", "outer", "inner"} {
			d := float64(i) / 10
			out = append(out, b.traces(trace, spec{id: "a", start: d, end: 3 - d, attrs: answered("resp-1", 1000, 100)}))
		}
		return out
	})
}

// Two records of a call beside each other, one of which has the gateway's below it.
func TestRecordsBesideAGateway(t *testing.T) {
	inAnyOrder(t, wantTotals(1, 0, 0, 0, "0.003"), func(b *bench) []ptrace.Traces {
		return batch(b,
			spec{id: "a", parent: "r", scope: "one", start: 0, end: 3, attrs: answered("resp-1", 1000, 100)},
			spec{id: "b", parent: "r", scope: "other", start: 0.1, end: 2.9, attrs: answered("resp-1", 1000, 100)},
			spec{id: "g", parent: "a", scope: "gateway", start: 0.5, end: 2.5, attrs: chat("openai", "two-ten", use(1000, 100))})
	})
}

// A run that is started from another, which is started from a third: all are of one run, whose
// name comes with the root of the first.
func TestRunOverLinks(t *testing.T) {
	linked := func(b *bench, trace, to string) ptrace.Traces {
		td := b.traces(trace, spec{id: "r", end: 5, attrs: map[string]any{"gen_ai.operation.name": "invoke_agent"}}, spec{id: "c", parent: "r", start: 1, attrs: chat("openai", "two-ten", use(1000, 100))})
		for i := range td.ResourceSpans().Len() {
			if sp := td.ResourceSpans().At(i).ScopeSpans().At(0).Spans().At(0); to != "" && sp.ParentSpanID().IsEmpty() {
				sp.Links().AppendEmpty().SetTraceID(traceID(to))
			}
		}
		return td
	}
	for _, name := range []string{"task.id", "gcp.vertex.agent.invocation_id", ""} {
		want := "run-1"
		if name == "" {
			want = schema.TraceID(traceID("main")).String()
		}
		inAnyOrder(t, func(s totals, lines []schema.Entry) string {
			for i := range lines {
				if run := lines[i].Posting.Identity[schema.Run]; run != want {
					return fmt.Sprintf("%s: a span of trace %s is of run %s", name, lines[i].Trace, run)
				}
			}
			return ""
		}, func(b *bench) []ptrace.Traces {
			root := spec{id: "r", end: 9, attrs: map[string]any{"gen_ai.operation.name": "invoke_agent"}}
			if name != "" {
				root.attrs[name] = "run-1"
			}
			return []ptrace.Traces{b.traces("main", root), b.traces("main", spec{id: "c", parent: "r", start: 1, attrs: chat("openai", "two-ten", use(1000, 100))}), linked(b, "sub", "main"), linked(b, "subsub", "sub")}
		})
	}
}

// Two records of an answer beside each other, below one of which is a third: one call.
func TestRecordBesideNestedOnes(t *testing.T) {
	inAnyOrder(t, wantTotals(1, 0, 0, 0, "0.003"), func(b *bench) []ptrace.Traces {
		return batch(b,
			spec{id: "r", end: 5},
			spec{id: "a", parent: "r", scope: "one", start: 0, end: 3, attrs: answered("resp-1", 1000, 100)},
			spec{id: "b", parent: "r", scope: "other", start: 0.1, end: 2.9, attrs: answered("resp-1", 1000, 100)},
			spec{id: "g", parent: "b", scope: "gateway", start: 0.5, end: 2.5, attrs: answered("resp-1", 1000, 100)})
	})
}

// Two instrumentations, each with a span around its own.
func TestTwoNestedPairs(t *testing.T) {
	for _, id := range []string{"resp-1", ""} {
		inner := answered("resp-1", 1000, 100)
		if id == "" {
			inner = chat("openai", "two-ten", use(1000, 100))
		}
		inAnyOrder(t, wantTotals(1, 0, 0, 0, "0.003"), func(b *bench) []ptrace.Traces {
			return batch(b,
				spec{id: "a", parent: "r", scope: "one", start: 0, end: 3, attrs: answered("resp-1", 1000, 100)},
				spec{id: "ai", parent: "a", scope: "one.inner", start: 0.2, end: 2.8, attrs: answered("resp-1", 1000, 100)},
				spec{id: "b", parent: "r", scope: "other", start: 0.1, end: 2.9, attrs: answered("resp-1", 1000, 100)},
				spec{id: "bi", parent: "b", scope: "other.inner", start: 0.3, end: 2.7, attrs: inner})
		})
	}
}

// Two records of an answer below two spans: whichever of these comes first, one counts.
func TestTwinsBelowTwoParents(t *testing.T) {
	inAnyOrder(t, wantTotals(1, 0, 0, 0, "0.003"), func(b *bench) []ptrace.Traces {
		return batch(b,
			spec{id: "p1", parent: "r", start: 0, end: 3},
			spec{id: "p2", parent: "r", start: 0, end: 3},
			spec{id: "a", parent: "p1", scope: "one", start: 0, end: 3, attrs: answered("resp-1", 1000, 100)},
			spec{id: "b", parent: "p2", scope: "other", start: 0.1, end: 2.9, attrs: answered("resp-1", 1000, 100)})
	})
}

// A retry is one whatever the failure, the stream and its end come with.
func TestRetryBesideAStream(t *testing.T) {
	stream := func(id string, closing bool, start, end float64) spec {
		s := spec{id: id, parent: "r", name: "Chat Completion with {request_data[model]!r}", scope: "logfire.openai", version: "5", start: start, end: end, attrs: chat("openai", "two-ten", nil)}
		if closing {
			s.name, s.attrs = "streaming response from {request_data[model]!r} took {duration:.2f}s", answered("resp-1", 1000, 100)
		}
		return s
	}
	failed := spec{id: "f", parent: "r", start: 0, end: 0.5, err: "429", attrs: chat("openai", "two-ten", nil)}
	specs := []spec{failed, stream("o", false, 1, 1.1), stream("e", true, 2, 2.001)}
	inAnyOrder(t, wantTotals(1, 0, 1, 0, "0.003"), func(b *bench) []ptrace.Traces { return batch(b, specs...) })
	inAnyOrder(t, wantTotals(1, 0, 1, 0, "0.003"), func(b *bench) []ptrace.Traces {
		return []ptrace.Traces{b.traces("t", specs[2], specs[1], specs[0])} // in one request, as they end
	})
}

// Twins of which one has no response id: a gateway's record in its own trace is of the same call.
func TestTwinWithoutResponseIDAndGateway(t *testing.T) {
	inAnyOrder(t, wantTotals(1, 0, 0, 0, "0.003"), func(b *bench) []ptrace.Traces {
		return []ptrace.Traces{
			b.traces("t", spec{id: "a", parent: "r", scope: "one", start: 0, end: 3, attrs: chat("openai", "two-ten", use(1000, 100))}),
			b.traces("t", spec{id: "b", parent: "r", scope: "other", start: 0.1, end: 2.9, attrs: answered("resp-1", 1000, 100)}),
			b.traces("gw", spec{id: "g", scope: "gateway", start: 0.5, end: 2.5, attrs: answered("resp-1", 1000, 100)})}
	})
}

// Attempts below a tool that come after it.
func TestHiddenAttemptsOfATool(t *testing.T) {
	post := func(id string, start float64, status int) spec {
		return spec{id: id, parent: "tool", name: "POST", kind: ptrace.SpanKindClient, start: start, end: start + 0.5, attrs: map[string]any{"http.request.method": "POST", "http.response.status_code": status, "url.full": "https://search.example/q"}}
	}
	inAnyOrder(t, wantTotals(0, 1, 0, 1, "0"), func(b *bench) []ptrace.Traces {
		return batch(b, spec{id: "tool", parent: "r", end: 9, attrs: map[string]any{"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "research"}}, post("1", 1, 503), post("2", 2, 200))
	})
}

// What an aggregate knows beyond its leaves is the same whatever comes with them.
func TestResidualInAnyOrder(t *testing.T) {
	agent := func(id, parent, scope, user string) spec {
		s := spec{id: id, parent: parent, name: "invoke_agent", scope: scope, end: 9, attrs: map[string]any{"gen_ai.operation.name": "invoke_agent", "gen_ai.request.model": "two-ten", "gen_ai.provider.name": "openai", "gen_ai.usage.input_tokens": 5000, "gen_ai.usage.output_tokens": 500}}
		if user != "" {
			s.attrs["user.id"] = user
		}
		return s
	}
	leaf := func(id, parent string) spec {
		return spec{id: id, parent: parent, start: 1, attrs: chat("openai", "two-ten", use(1000, 100))}
	}
	b := newBench(t, withPrices(fieldPrices), sums)
	b.add(b.traces("t", agent("ag", "", "sum", ""), leaf("l1", "ag")))
	b.settle()
	b.add(b.traces("t", agent("sub", "ag", "", "ann"), leaf("l2", "sub")))
	b.settle()
	if s := b.totals(); s.tokens.Input != 5000 || s.model != 2 {
		t.Fatalf("%d tokens, %d calls", s.tokens.Input, s.model)
	}
}

func sums(_ testing.TB, o *benchOptions) { o.dialect.Emitters = sumsUp }

var sumsUp = []dialect.Emitter{{Scope: "sum", Covers: "subtree"}}

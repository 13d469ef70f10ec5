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
	// Usage that comes with the second version of the span waits as well.
	b := newBench(t, withPrices(fieldPrices))
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

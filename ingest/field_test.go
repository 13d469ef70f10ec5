package ingest

import (
	"fmt"
	"math"
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/flyball/flyball/ingest/dialect"
	"github.com/flyball/flyball/schema"
)

// These tests keep failures fixed that cost trackers really had. Each uses the
// figures of a public report and a neighbour of its own.

const fieldPrices = `
prices:
  - {provider: openai, models: [half], per_million: {input: "0.50", cache_read: "0.05", output: "3.00"}}
  - {provider: openai, models: [two], per_million: {input: "2", cache_read: "0.20", output: "8"}}
  - {provider: openai, models: [two-ten], per_million: {input: "2", output: "10"}}
  - {provider: openai, models: [thinker], per_million: {input: "30", output: "180"}}
  - {provider: openai, models: [three], per_million: {input: "3", cache_read: "0.30", output: "15"}}
  - {provider: openai, models: [dime], per_unit: {request: "0.10"}, per_million: {input: "0", output: "0"}}
  - {provider: openai, models: [tiny], per_million: {input: "0.02"}}
  - {provider: google, models: [gem], per_million: {input: "1.25", output: "10"}}
  - {provider: anthropic, models: [claude-x], per_million: {input: "3", cache_read: "0.30", cache_write_5m: "3.75", cache_write_1h: "6", output: "15"}}
  - {provider: anthropic, models: [P], per_million: {input: "10", output: "50"}}
  - {provider: anthropic, models: [Q], per_million: {input: "5", output: "25"}}
  - {provider: openai, models: [loopy], per_million: {input: "1", cache_read: "0.05", output: "1"}}
`

func chat(provider, model string, extra map[string]any) map[string]any {
	m := map[string]any{"gen_ai.operation.name": "chat", "gen_ai.provider.name": provider, "gen_ai.request.model": model, "gen_ai.response.model": model}
	for k, v := range extra {
		m[k] = v
	}
	return m
}

func use(in, out int) map[string]any {
	return map[string]any{"gen_ai.usage.input_tokens": in, "gen_ai.usage.output_tokens": out}
}

// one reads a single span and returns its net line.
func one(t *testing.T, s spec, opts ...benchOption) schema.Entry {
	t.Helper()
	b := newBench(t, append([]benchOption{withPrices(fieldPrices)}, opts...)...)
	s.id = "a"
	b.add(b.traces("t", s))
	b.settle()
	net := b.net()
	if len(net) == 0 {
		t.Fatal("no line")
	}
	return net[0]
}

func costOf(e *schema.Entry) string {
	if !e.Posting.Billed() {
		return "NULL"
	}
	return e.Posting.Cost.String()
}

func wantCost(t *testing.T, e schema.Entry, want string, flag schema.Flags) {
	t.Helper()
	if got := costOf(&e); got != want || flag != 0 && e.AllFlags()&flag == 0 {
		t.Fatalf("cost is %s, want %s (status %s, basis %s, flags %v, tokens %+v)", got, want, e.Posting.Status, e.TokenBasis, e.AllFlags().Names(), e.Posting.Tokens)
	}
}

func TestCachedTokensAreNotChargedTwice(t *testing.T) {
	e := one(t, spec{attrs: chat("openai", "half", map[string]any{"gen_ai.usage.input_tokens": 20000, "gen_ai.usage.cache_read.input_tokens": 16000, "gen_ai.usage.output_tokens": 900})})
	wantCost(t, e, "0.0055", 0)
}

func TestBothEncodingsOfOneCallCostTheSame(t *testing.T) {
	for _, in := range []int{1012, 12} {
		e := one(t, spec{scope: fmt.Sprintf("inst-%d", in), attrs: chat("openai", "three", map[string]any{"gen_ai.usage.input_tokens": in, "gen_ai.usage.cache_read.input_tokens": 1000, "gen_ai.usage.output_tokens": 40})})
		wantCost(t, e, "0.000936", 0)
	}
}

// An attribute that changes its meaning between majors needs the emitter's version.
func TestMeaningByEmitterVersion(t *testing.T) {
	pins := func(_ testing.TB, o *benchOptions) {
		o.dialect.Emitters = []dialect.Emitter{{Scope: "sdk-x", Version: ">=5 <6", Basis: "exclusive"}, {Scope: "sdk-x", Version: ">=6", Basis: "inclusive"}}
	}
	f := func(version, want string) {
		t.Helper()
		e := one(t, spec{scope: "sdk-x", version: version, attrs: chat("openai", "three", map[string]any{"gen_ai.usage.input_tokens": 5000, "gen_ai.usage.cache_read.input_tokens": 1000, "gen_ai.usage.output_tokens": 100})}, pins)
		wantCost(t, e, want, 0)
	}
	f("5.9.0", "0.0168")
	f("6.1.0", "0.0138")
	f("7.0.0-beta.1", "0.0138")
}

func TestEverySpellingOfTheCacheBucket(t *testing.T) {
	for _, key := range []string{"gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.cache_read_input_tokens", "gen_ai.usage.input_cached_tokens", "gen_ai.usage.input_tokens.cached", "gen_ai.usage.cached_tokens"} {
		wantCost(t, one(t, spec{attrs: chat("openai", "two", map[string]any{"gen_ai.usage.input_tokens": 10000, key: 8000, "gen_ai.usage.output_tokens": 100})}), "0.0064", 0)
	}
	wantCost(t, one(t, spec{attrs: map[string]any{"openinference.span.kind": "LLM", "llm.provider": "openai", "llm.model_name": "two", "llm.token_count.prompt": 10000, "llm.token_count.prompt_details.cache_read": 8000, "llm.token_count.completion": 100}}), "0.0064", 0)
	wantCost(t, one(t, spec{scope: "ai", attrs: map[string]any{"ai.operationId": "ai.streamText.doStream", "ai.model.provider": "openai.chat", "ai.model.id": "two", "ai.usage.inputTokens": 10000, "ai.usage.cachedInputTokens": 8000, "ai.usage.outputTokens": 100}}), "0.0064", 0)
}

func TestReasoningInsideAndOutsideTheOutput(t *testing.T) {
	wantCost(t, one(t, spec{attrs: chat("openai", "thinker", map[string]any{"gen_ai.usage.input_tokens": 15000, "gen_ai.usage.output_tokens": 2000, "gen_ai.usage.reasoning.output_tokens": 1400, "gen_ai.usage.total_tokens": 17000})}), "0.81", 0)
	wantCost(t, one(t, spec{attrs: chat("gcp.gemini", "gem", map[string]any{"gen_ai.usage.raw": `{"promptTokenCount":50000,"candidatesTokenCount":900,"thoughtsTokenCount":800,"totalTokenCount":51700}`})}), "0.0795", 0)
	wantCost(t, one(t, spec{attrs: chat("gcp.gemini", "gem", map[string]any{"gen_ai.usage.input_tokens": 50000, "gen_ai.usage.output_tokens": 900, "gen_ai.usage.reasoning_tokens": 800, "gen_ai.usage.total_tokens": 51700})}), "0.0795", 0)
}

func TestCachedMoreThanInput(t *testing.T) {
	attrs := chat("openai", "three", map[string]any{"gen_ai.usage.input_tokens": 1000, "gen_ai.usage.cache_read.input_tokens": 1200, "gen_ai.usage.output_tokens": 0})
	wantCost(t, one(t, spec{attrs: attrs}), "0.00336", schema.FlagBasisInferred)
	declared := func(_ testing.TB, o *benchOptions) {
		o.dialect.Emitters = []dialect.Emitter{{Scope: "sure", Basis: "inclusive"}}
	}
	wantCost(t, one(t, spec{scope: "sure", attrs: attrs}, declared), "0.0003", schema.FlagUsageInconsistent)
}

func TestMalformedCounts(t *testing.T) {
	f := func(v any, want string, flag schema.Flags) {
		t.Helper()
		e := one(t, spec{attrs: chat("openai", "three", map[string]any{"gen_ai.usage.input_tokens": v, "gen_ai.usage.output_tokens": 0})})
		wantCost(t, e, want, flag)
		if flag == schema.FlagUsageInvalid && e.Posting.Exposure <= 0 {
			t.Fatalf("%v: nothing is counted by a guard", v)
		}
	}
	f(-100000000, "NULL", schema.FlagUsageInvalid)
	f(math.NaN(), "NULL", schema.FlagUsageInvalid)
	f(math.Inf(1), "NULL", schema.FlagUsageInvalid)
	f(true, "NULL", schema.FlagUsageInvalid)
	f("1200", "0.0036", 0)
	f(1200.0, "0.0036", 0)
	f(1200.5, "NULL", schema.FlagUsageInvalid)
	f(int64(math.MaxInt64), "NULL", schema.FlagUsageInvalid)
	f("", "NULL", 0)
	f(`{"intValue":1200}`, "0.0036", 0)
	f([]any{int64(1200)}, "0.0036", 0)
	f("0x10", "NULL", schema.FlagUsageInvalid)
}

// A negative or absurd reported cost changes nothing.
func TestReportedCostsAreNoFigures(t *testing.T) {
	for _, v := range []any{2600, -1000.0, math.NaN(), math.Inf(1), "free"} {
		attrs := chat("openai", "two-ten", map[string]any{"gen_ai.usage.input_tokens": 1000, "gen_ai.usage.output_tokens": 60, "gen_ai.usage.cost": v})
		wantCost(t, one(t, spec{attrs: attrs}), "0.0026", schema.FlagReportedImplausible)
	}
}

func TestTwoModelsInOneAnswer(t *testing.T) {
	f := func(firstOut int, want string, parts int) {
		t.Helper()
		b := newBench(t, withPrices(fieldPrices))
		raw := fmt.Sprintf(`{"input_tokens":400,"output_tokens":260,"cache_read_input_tokens":0,"iterations":[{"model":"P","input_tokens":400,"output_tokens":%d,"stop":"refusal"},{"model":"Q","input_tokens":400,"output_tokens":260}]}`, firstOut)
		b.add(b.traces("t", spec{id: "a", attrs: chat("anthropic", "Q", map[string]any{"gen_ai.usage.input_tokens": 400, "gen_ai.usage.output_tokens": 260, "gen_ai.usage.raw": raw})}))
		s := b.totals()
		if s.cost.String() != want || s.model != 1 || len(b.net()) != parts {
			t.Fatalf("got %s USD, %d calls, %d lines; want %s, 1, %d", s.cost, s.model, len(b.net()), want, parts)
		}
	}
	f(300, "0.0275", 2)
	f(0, "0.0085", 1)
}

func TestTenDimesAreADollar(t *testing.T) {
	b := newBench(t, withPrices(fieldPrices))
	for i := range 10 {
		b.add(b.traces(fmt.Sprint("t", i), spec{id: "a", attrs: chat("openai", "dime", use(1, 1))}))
	}
	if s := b.totals(); s.cost.String() != "1" {
		t.Fatalf("got %s, want 1", s.cost)
	}
}

func TestAgentSpanRepeatsItsCalls(t *testing.T) {
	agent := spec{id: "a1", name: "invoke_agent", attrs: map[string]any{"gen_ai.operation.name": "invoke_agent", "gen_ai.request.model": "two-ten", "gen_ai.provider.name": "openai", "gen_ai.usage.input_tokens": 113, "gen_ai.usage.output_tokens": 11}}
	c1 := spec{id: "c1", parent: "a1", attrs: chat("openai", "two-ten", use(56, 5))}
	c2 := spec{id: "c2", parent: "a1", start: 1, attrs: chat("openai", "two-ten", use(57, 6))}
	f := func(batches ...[]spec) {
		t.Helper()
		b := newBench(t, withPrices(fieldPrices))
		for _, batch := range batches {
			b.add(b.traces("t", batch...))
		}
		b.settle()
		if s := b.totals(); s.cost.String() != "0.000336" || s.model != 2 || s.tokens.Input != 113 || s.tokens.Output != 11 {
			t.Fatalf("got %s, %d calls, %+v", s.cost, s.model, s.tokens)
		}
	}
	f([]spec{agent, c1, c2})
	f([]spec{c1}, []spec{c2}, []spec{agent})
	f([]spec{agent}, []spec{c1}, []spec{c2})
	// The leaf comes after the aggregate was promoted.
	b := newBench(t, withPrices(fieldPrices))
	b.add(b.traces("t", agent))
	b.settle()
	if s := b.totals(); s.cost.String() != "0.000336" || s.model != 1 {
		t.Fatalf("promoted: got %s, %d calls", s.cost, s.model)
	}
	b.add(b.traces("t", c1, c2))
	b.settle()
	if s := b.totals(); s.cost.String() != "0.000336" || s.model != 2 {
		t.Fatalf("after late leaves: got %s, %d calls", s.cost, s.model)
	}
}

// An emitter listed as covering its subtree has a residual, once, which late
// leaves eat up.
func TestResidualOfASubtree(t *testing.T) {
	covers := func(_ testing.TB, o *benchOptions) {
		o.dialect.Emitters = []dialect.Emitter{{Scope: "sum", Covers: "subtree"}}
	}
	b := newBench(t, withPrices(fieldPrices), covers)
	agent := spec{id: "ag", name: "invoke_agent", scope: "sum", attrs: map[string]any{"gen_ai.operation.name": "invoke_agent", "gen_ai.request.model": "two-ten", "gen_ai.provider.name": "openai", "gen_ai.usage.input_tokens": 60250, "gen_ai.usage.output_tokens": 806}}
	leaf := func(id string, in, out int) spec {
		return spec{id: id, parent: "ag", start: float64(in) / 1000, attrs: chat("openai", "two-ten", use(in, out))}
	}
	b.add(b.traces("t", agent, leaf("l1", 13942, 95), leaf("l2", 14065, 169), leaf("l3", 15487, 253)))
	b.settle()
	s := b.totals()
	if s.tokens.Input != 60250 || s.tokens.Output != 806 || s.model != 3 {
		t.Fatalf("got %+v, %d calls", s.tokens, s.model)
	}
	for _, e := range b.net() {
		if e.Part == 1 && (e.Posting.Tokens.Input != 16756 || e.Posting.Tokens.Output != 289 || e.Posting.Flags&schema.FlagResidual == 0) {
			t.Fatalf("residual is %+v", e.Posting.Tokens)
		}
	}
	total := s.cost
	b.add(b.traces("t", leaf("l4", 16756, 289)))
	b.settle()
	if s := b.totals(); s.tokens.Input != 60250 || s.tokens.Output != 806 || s.cost != total || s.model != 4 {
		t.Fatalf("after the late leaf: %+v, %s, %d calls", s.tokens, s.cost, s.model)
	}
}

func TestTokensAndMoneyOfTheSameSpans(t *testing.T) {
	b := newBench(t, withPrices(fieldPrices))
	b.add(b.traces("t", spec{id: "w", name: "wrapper", attrs: map[string]any{"gen_ai.operation.name": "invoke_agent", "gen_ai.usage.input_tokens": 100}},
		spec{id: "l1", parent: "w", attrs: chat("openai", "two-ten", use(60, 0))}, spec{id: "l2", parent: "w", start: 1, attrs: chat("openai", "two-ten", use(70, 0))}))
	b.settle()
	if s := b.totals(); s.tokens.Input != 130 || s.cost.String() != "0.00026" {
		t.Fatalf("got %d tokens for %s", s.tokens.Input, s.cost)
	}
}

func TestRedeliveryPostsNothing(t *testing.T) {
	b := newBench(t, withPrices(fieldPrices))
	var specs []spec
	for i := range 500 {
		specs = append(specs, spec{id: fmt.Sprintf("%03d", i), start: float64(i) / 100, attrs: chat("openai", "dime", use(1, 1))})
	}
	td := b.traces("t", specs...)
	first := b.add(td)
	again := b.add(td)
	if first.New != 500 || again.New != 0 || again.Duplicate != 500 || again.Entries != 0 || again.End < first.End {
		t.Fatalf("first %+v, again %+v", first, again)
	}
	if s := b.totals(); s.cost.String() != "50" || s.retries != 0 {
		t.Fatalf("got %s, %d retries", s.cost, s.retries)
	}
}

// Versions of one span merge, and their order does not matter.
func TestVersionsOfASpanMerge(t *testing.T) {
	base := newBench(t, withPrices(fieldPrices))
	early := base.traces("t", spec{id: "a", start: 0, end: 1, attrs: chat("openai", "two-ten", map[string]any{"gen_ai.usage.input_tokens": 27, "gen_ai.usage.output_tokens": 1})})
	late := base.traces("t", spec{id: "a", start: 0, end: 3, attrs: chat("openai", "two-ten", map[string]any{"gen_ai.usage.input_tokens": 310, "gen_ai.usage.output_tokens": 47, "user.id": "u"})})
	var results []schema.Entry
	for _, order := range [][]ptrace.Traces{{early, late}, {late, early}, {early, late, early, late}} {
		b := newBench(t, withPrices(fieldPrices))
		for _, td := range order {
			b.add(td)
		}
		net := b.net()
		if len(net) != 1 {
			t.Fatalf("%d lines", len(net))
		}
		e := net[0]
		e.Version, e.RecordedAt, e.Posting.PriceID = 0, 0, "" // the file's name differs
		results = append(results, e)
	}
	for _, e := range results {
		if e.Posting.Tokens.Input != 310 || e.Posting.Tokens.Output != 47 || e.Posting.Identity[schema.User] != "u" || e.Posting != results[0].Posting {
			t.Fatalf("got %+v\nand %+v", e.Posting, results[0].Posting)
		}
	}
}

func TestIdentityFromTheRootOnly(t *testing.T) {
	b := newBench(t, withPrices(fieldPrices))
	b.add(b.traces("t", spec{id: "l1", parent: "root", attrs: chat("openai", "dime", use(1, 1))}))
	if e := b.net()[0]; e.Posting.Identity[schema.User] != "" || e.Posting.Cost.String() != "0.1" {
		t.Fatalf("before the root: %v", e.Posting.Identity)
	}
	b.add(b.traces("t", spec{id: "root", attrs: map[string]any{"user.id": "u-1"}}))
	b.add(b.traces("t", spec{id: "l2", parent: "mid", start: 1, attrs: chat("openai", "dime", use(1, 1))}, spec{id: "mid", parent: "root", attrs: map[string]any{"user.id": "u-1"}}))
	spend := schema.Sum{}
	for _, e := range b.net() {
		if e.Posting.Identity[schema.User] == "u-1" {
			spend.Add(e.Posting.Cost, 1)
		}
	}
	if spend.String() != "0.2" {
		t.Fatalf("u-1 spent %s, want 0.2", spend)
	}
}

func TestOrphansAndRootsCost(t *testing.T) {
	b := newBench(t, withPrices(fieldPrices))
	b.add(b.traces("t1", spec{id: "o1", parent: "missing", attrs: chat("openai", "dime", use(1, 1))}))
	b.add(b.traces("t2", spec{id: "r", attrs: chat("openai", "dime", use(1, 1))}))
	b.add(b.traces("t3", spec{id: "r2", name: "root"}, spec{id: "c", parent: "r2", attrs: chat("openai", "dime", use(1, 1))}))
	b.settle()
	if s := b.totals(); s.cost.String() != "0.3" {
		t.Fatalf("got %s", s.cost)
	}
	b.add(b.traces("t1", spec{id: "missing", name: "root"}))
	if s := b.totals(); s.cost.String() != "0.3" {
		t.Fatalf("after the late parent: %s", s.cost)
	}
}

func TestOneClock(t *testing.T) {
	b := newBench(t, withPrices(fieldPrices))
	at := func(start, end int64) schema.Entry {
		t.Helper()
		td := b.traces(fmt.Sprint(start), spec{id: "a", attrs: chat("openai", "dime", use(1, 1))})
		sp := td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0)
		sp.SetStartTimestamp(timestamp(start))
		sp.SetEndTimestamp(timestamp(end))
		b.entries = nil
		b.add(td)
		return b.net()[0]
	}
	e := at(b.now-5e9, b.now-10e9)
	if e.Duration != 0 || e.AllFlags()&schema.FlagEndBeforeStart == 0 || e.Start != b.now-5e9 {
		t.Fatalf("end before start: %+v", e)
	}
	if e = at(0, 0); e.Start != b.now || e.AllFlags()&schema.FlagClockSkew == 0 {
		t.Fatalf("no time: %+v", e)
	}
	future := time.Date(2063, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano()
	if e = at(future, future+1e9); e.Start != b.now || e.AllFlags()&schema.FlagClockSkew == 0 {
		t.Fatalf("2063: %+v", e)
	}
	if e = at(b.now+180e9, b.now+181e9); e.Start != b.now+180e9 || e.AllFlags()&schema.FlagClockSkew != 0 {
		t.Fatalf("three minutes ahead: %+v", e)
	}
	old := time.Date(2019, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano()
	if e = at(old, old+1e9); e.Start != old || e.AllFlags()&schema.FlagClockSkew != 0 {
		t.Fatalf("an old start stands: %+v", e)
	}
}

func TestNestedRetryLayers(t *testing.T) {
	// Four attempts of the framework, each with two hidden by the SDK: 12 on the wire.
	counter := func(b *bench) ptrace.Traces {
		specs := []spec{{id: "root", name: "step", end: 20}}
		for i := range 4 {
			specs = append(specs, spec{id: fmt.Sprint("c", i), parent: "root", start: float64(2 * i), err: "429", attrs: chat("openai", "two-ten", map[string]any{"http.request.resend_count": 2})})
		}
		return b.traces("t", specs...)
	}
	children := func(b *bench) ptrace.Traces {
		specs := []spec{{id: "root", name: "step", end: 20}}
		for i := range 4 {
			call := fmt.Sprint("c", i)
			specs = append(specs, spec{id: call, parent: "root", start: float64(2 * i), end: float64(2*i) + 1, err: "429", attrs: chat("openai", "two-ten", nil)})
			for j := range 3 {
				specs = append(specs, spec{id: fmt.Sprint("h", i, j), parent: call, kind: ptrace.SpanKindClient, start: float64(2*i) + float64(j)*0.3, end: float64(2*i) + float64(j)*0.3 + 0.2, err: "429", attrs: map[string]any{"http.request.method": "POST", "http.response.status_code": 429}})
			}
		}
		return b.traces("t", specs...)
	}
	for name, make := range map[string]func(*bench) ptrace.Traces{"counter": counter, "children": children} {
		b := newBench(t, withPrices(fieldPrices))
		b.add(make(b))
		b.settle()
		s := b.totals()
		if attempts := s.model + s.retries + s.hidden; attempts != 12 || s.model != 1 || s.retries+s.hidden != 11 || s.cost.String() != "0" || s.unknown != 0 || s.tool != 0 {
			t.Fatalf("%s: %+v", name, s)
		}
	}
}

func TestLogicalCallsAreNotInflatedByAttempts(t *testing.T) {
	b := newBench(t, withPrices(fieldPrices))
	b.add(b.traces("t", spec{id: "p", name: "step", end: 9},
		spec{id: "1", parent: "p", start: 0, err: "429", attrs: chat("openai", "two-ten", nil)},
		spec{id: "2", parent: "p", start: 1, err: "429", attrs: chat("openai", "two-ten", nil)},
		spec{id: "3", parent: "p", start: 2, attrs: chat("openai", "two-ten", use(500, 500))}))
	s := b.totals()
	if s.model != 1 || s.retries != 2 || s.cost.String() != "0.006" || s.unpriced+s.unknown != 0 {
		t.Fatalf("%+v", s)
	}
	// By start, not by arrival.
	b = newBench(t, withPrices(fieldPrices))
	for _, sp := range []spec{{id: "3", parent: "p", start: 2, attrs: chat("openai", "two-ten", use(500, 500))}, {id: "2", parent: "p", start: 1, err: "429", attrs: chat("openai", "two-ten", nil)}, {id: "1", parent: "p", start: 0, err: "429", attrs: chat("openai", "two-ten", nil)}} {
		b.add(b.traces("t", sp))
	}
	if s := b.totals(); s.model != 1 || s.retries != 2 {
		t.Fatalf("out of order: %+v", s)
	}
	// Too long after the failure it is a new call.
	b = newBench(t, withPrices(fieldPrices))
	b.now += int64(time.Hour)
	b.add(b.traces("t", spec{id: "1", parent: "p", start: -600, end: -599, err: "429", attrs: chat("openai", "two-ten", nil)}, spec{id: "2", parent: "p", start: 0, attrs: chat("openai", "two-ten", use(1, 1))}))
	if s := b.totals(); s.model != 2 || s.retries != 0 {
		t.Fatalf("ten minutes later: %+v", s)
	}
}

func TestTimeoutsAreUnknownNotFree(t *testing.T) {
	b := newBench(t, withPrices(fieldPrices))
	specs := []spec{{id: "p", name: "step", end: 60}}
	for i := range 8 {
		specs = append(specs, spec{id: fmt.Sprint("t", i), parent: "p", start: float64(2 * i), err: "timeout", attrs: map[string]any{"gen_ai.operation.name": "embeddings", "gen_ai.provider.name": "openai", "gen_ai.request.model": "tiny"}})
	}
	specs = append(specs, spec{id: "ok", parent: "p", start: 20, attrs: map[string]any{"gen_ai.operation.name": "embeddings", "gen_ai.provider.name": "openai", "gen_ai.request.model": "tiny", "gen_ai.usage.input_tokens": 1000}})
	b.add(b.traces("t", specs...))
	s := b.totals()
	if s.model != 1 || s.retries != 8 || s.unknown != 8 || s.cost.String() != "0.00002" {
		t.Fatalf("%+v", s)
	}
}

func TestLoopIsSeenAndPriced(t *testing.T) {
	b := newBench(t, withPrices(fieldPrices))
	specs := []spec{{id: "root", name: "invoke_agent", end: 500, attrs: map[string]any{"gen_ai.operation.name": "invoke_agent"}}}
	for i := range 220 {
		specs = append(specs, spec{id: fmt.Sprintf("m%03d", i), parent: "root", start: float64(2 * i), attrs: chat("openai", "loopy", map[string]any{"gen_ai.usage.input_tokens": 200000, "gen_ai.usage.cache_read.input_tokens": 200000, "gen_ai.usage.output_tokens": 20})},
			spec{id: fmt.Sprintf("t%03d", i), parent: "root", start: float64(2*i) + 1, attrs: map[string]any{"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "noop", "gen_ai.tool.call.arguments": `{"n":1}`}})
	}
	b.add(b.traces("t", specs...))
	s := b.totals()
	repeats := uint32(0)
	for _, e := range b.net() {
		repeats += e.Posting.Repeats
	}
	if s.cost.String() != "2.2044" || s.model != 220 || s.tool != 220 || repeats != 219 || s.retries != 0 {
		t.Fatalf("%+v, %d repeats", s, repeats)
	}
}

func TestRunsOfSeveralTraces(t *testing.T) {
	b := newBench(t, withPrices(fieldPrices), ofTasks)
	call := func(trace string, cost int, task string) {
		at := chat("openai", "dime", use(1, 1))
		if task != "" {
			at["task.id"] = task
		}
		var specs []spec
		for i := range cost {
			specs = append(specs, spec{id: fmt.Sprint("c", i), start: float64(i), attrs: at})
		}
		b.add(b.traces(trace, specs...))
	}
	call("t0", 4, "task-7")
	call("t1", 2, "task-7")
	linked := b.traces("t2", spec{id: "r", name: "subtask"}, spec{id: "c", parent: "r", attrs: chat("openai", "dime", use(1, 1))}, spec{id: "d", parent: "r", start: 1, attrs: chat("openai", "dime", use(1, 1))})
	link := linked.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0).Links().AppendEmpty()
	link.SetTraceID(traceID("t0"))
	b.add(linked)
	call("t3", 2, "task-7")
	call("t4", 2, "task-7")
	call("t5", 2, "")
	spend := schema.Sum{}
	for _, e := range b.net() {
		if e.Posting.Identity[schema.Run] == "task-7" {
			spend.Add(e.Posting.Cost, 1)
		}
	}
	if spend.String() != "1.2" {
		t.Fatalf("task-7 spent %s, want 1.2", spend)
	}
}

func TestNoCallWaitsForItsRoot(t *testing.T) {
	b := newBench(t, withPrices(fieldPrices))
	for h := range 72 {
		b.now += int64(time.Hour)
		b.add(b.traces("t", spec{id: fmt.Sprintf("h%02d", h), parent: "root", attrs: chat("openai", "two-ten", use(1_000_000, 0))}))
		if s := b.totals(); s.model != uint32(h+1) {
			t.Fatalf("hour %d: %d calls are counted", h, s.model)
		}
	}
	if s := b.totals(); s.cost.String() != "144" {
		t.Fatalf("got %s", s.cost)
	}
}

func TestFallbackIsNoRetry(t *testing.T) {
	b := newBench(t, withPrices(fieldPrices))
	b.add(b.traces("t", spec{id: "p", name: "step", end: 9},
		spec{id: "1", parent: "p", start: 0, err: "500", attrs: chat("anthropic", "P", map[string]any{"error.type": "500"})},
		spec{id: "2", parent: "p", start: 1, err: "500", attrs: chat("anthropic", "P", map[string]any{"error.type": "500"})},
		spec{id: "3", parent: "p", start: 2, attrs: chat("openai", "two-ten", use(5000, 1000))}))
	s := b.totals()
	if s.model != 1 || s.retries != 1 || s.fallbacks != 1 || s.cost.String() != "0.02" {
		t.Fatalf("%+v", s)
	}
}

// Caller-made fields that look like ours change nothing.
func TestReservedAndClaimedAttributes(t *testing.T) {
	at := chat("openai", "two-ten", use(1000, 100))
	for k, v := range map[string]any{"budget.cap_usd": "999999", "budget.exempt": true, "reservation.id": "res-of-other", "internal.cost_usd": "0", "is_billable": false, "cache_hit": true, "flyball.cost_usd": "0", "app.criticality": "critical"} {
		at[k] = v
	}
	b := newBench(t, withPrices(fieldPrices), func(_ testing.TB, o *benchOptions) {
		o.dialect.Attributes = map[string][]string{"criticality": {"app.criticality"}}
	})
	b.from = dialect.Origin{}
	b.add(b.traces("t", spec{id: "a", attrs: at}))
	e := b.net()[0]
	wantCost(t, e, "0.003", schema.FlagClaim)
	if e.Posting.Identity[schema.Criticality] != "standard" {
		t.Fatalf("an untrusted claim raised criticality to %s", e.Posting.Identity[schema.Criticality])
	}
}

// What a trusted gateway answered from its own cache costs nothing, and is a call
// all the same. Nobody else is believed.
func TestCacheHit(t *testing.T) {
	trusted, app := dialect.Origin{Trusted: true}, dialect.Origin{Tenant: "default"}
	call := func(attrs ...any) map[string]any {
		at := chat("openai", "two-ten", use(1000, 100))
		for i := 0; i < len(attrs); i += 2 {
			at[attrs[i].(string)] = attrs[i+1]
		}
		return at
	}
	f := func(from dialect.Origin, attrs map[string]any, want string, flag schema.Flags) {
		t.Helper()
		b := newBench(t, withPrices(fieldPrices))
		b.from = from
		b.add(b.traces("t", spec{id: "a", attrs: attrs}))
		e := b.net()[0]
		wantCost(t, e, want, flag)
		if flags := e.AllFlags() & (schema.FlagCacheHit | schema.FlagClaim); flags != flag {
			t.Fatalf("flags %v, want %v", flags.Names(), flag.Names())
		}
		p := &e.Posting
		hit := flag == schema.FlagCacheHit
		if (p.Status == schema.CostNone) != hit || (p.Tokens == schema.Tokens{}) != hit || hit && p.Exposure != 0 || p.ModelCalls != 1 {
			t.Fatalf("status %s, %+v, exposure %s, %d calls", p.Status, p.Tokens, p.Exposure, p.ModelCalls)
		}
	}
	f(trusted, call("cache_hit", true), "0", schema.FlagCacheHit)
	f(trusted, call("cache_hit", "True"), "0", schema.FlagCacheHit)
	f(trusted, chat("openai", "two-ten", map[string]any{"cache_hit": true}), "0", schema.FlagCacheHit)
	f(trusted, call("cache_hit", true, "gen_ai.usage.input_tokens", -5), "0", schema.FlagCacheHit)
	f(trusted, call("cache_hit", false), "0.003", 0)
	f(trusted, call("cache_hit", "no"), "0.003", 0)
	f(app, call("cache_hit", true), "0.003", schema.FlagClaim)
	f(app, call("cache_hit", false), "0.003", 0)

	two := func(gateway dialect.Origin, same, gatewayFirst, restart bool, want string, attrs ...any) {
		t.Helper()
		b := newBench(t, withPrices(fieldPrices))
		outer := spec{id: "c", scope: "sdk", end: 3, attrs: call("gen_ai.response.id", "resp-1")}
		inner := spec{id: "g", scope: "gw", start: 1, end: 2, attrs: call(append(attrs, "gen_ai.response.id", "resp-1")...)}
		trace := "other"
		if same {
			inner.parent, trace = "c", "t"
		}
		client := func() { b.from = app; b.add(b.traces("t", outer)) }
		proxy := func() { b.from = gateway; b.add(b.traces(trace, inner)) }
		if gatewayFirst {
			client, proxy = proxy, client
		}
		client()
		if restart {
			b.resume()
		}
		proxy()
		b.settle()
		if s := b.totals(); s.model != 1 || s.cost.String() != want {
			t.Fatalf("same trace %v, gateway first %v, restart %v: %s, %d calls; want %s for one", same, gatewayFirst, restart, s.cost, s.model, want)
		}
	}
	for _, same := range []bool{true, false} {
		for _, gatewayFirst := range []bool{true, false} {
			for _, restart := range []bool{true, false} {
				two(trusted, same, gatewayFirst, restart, "0", "cache_hit", true)
				two(trusted, same, gatewayFirst, restart, "0.003")
				two(app, same, gatewayFirst, restart, "0.003", "cache_hit", true)
			}
		}
	}
}

// The run by which amplification is defined comes to 18, in any order of arrival.
func TestWorkedTrace(t *testing.T) {
	build := func(b *bench) []spec {
		specs := []spec{{id: "root", name: "POST /quote", kind: ptrace.SpanKindServer, end: 60}}
		at := 0.0
		add := func(s spec) {
			at++
			if s.parent == "" {
				s.parent = "root"
			}
			if s.start == 0 {
				s.start = at
			}
			specs = append(specs, s)
		}
		tool := func(id, name, args, err string) {
			add(spec{id: id, name: "execute_tool", err: err, attrs: map[string]any{"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name, "gen_ai.tool.call.arguments": args}})
		}
		add(spec{id: "m1", attrs: chat("openai", "two-ten", use(10, 10))})
		add(spec{id: "h1", parent: "m1", kind: ptrace.SpanKindClient, start: at, end: at + 0.1, err: "429", attrs: map[string]any{"http.request.method": "POST", "http.response.status_code": 429}})
		add(spec{id: "h2", parent: "m1", kind: ptrace.SpanKindClient, start: at - 0.5, end: at - 0.4, attrs: map[string]any{"http.request.method": "POST", "http.response.status_code": 200}})
		for i := range 7 {
			add(spec{id: fmt.Sprint("d", i), name: "SELECT", kind: ptrace.SpanKindClient, attrs: map[string]any{"db.system.name": "postgresql", "db.operation.name": "SELECT", "db.collection.name": fmt.Sprint("t", i)}})
		}
		tool("k1", "crm.lookup", `{"c":1}`, "timeout")
		add(spec{id: "m2", attrs: chat("openai", "two-ten", use(10, 10))})
		tool("k2", "crm.lookup", `{"c":1}`, "")
		tool("k3", "crm.history", `{"c":1}`, "")
		tool("k4", "crm.contacts", `{"c":1}`, "")
		add(spec{id: "m3", attrs: chat("openai", "two-ten", use(10, 10))})
		tool("p1", "price.base", `{}`, "")
		tool("p2", "price.discount", `{}`, "")
		add(spec{id: "m4", attrs: chat("openai", "two-ten", use(10, 10))})
		return specs
	}
	check := func(b *bench) {
		t.Helper()
		b.settle()
		s := b.totals()
		if s.model != 4 || s.tool != 12 || s.retries != 1 || s.hidden != 1 || s.model+s.tool+s.retries+s.hidden != 18 {
			t.Fatalf("%+v", s)
		}
		layers := map[schema.Layer]uint32{}
		for _, e := range b.net() {
			if e.Posting.Retries > 0 {
				layers[e.Posting.Layer]++
			}
		}
		if layers[schema.LayerAgent] != 1 || len(layers) != 1 {
			t.Fatalf("layers %v", layers)
		}
	}
	b := newBench(t, withPrices(fieldPrices))
	b.add(b.traces("t", build(b)...))
	check(b)
	b = newBench(t, withPrices(fieldPrices))
	specs := build(b)
	for i := len(specs) - 1; i >= 0; i-- {
		b.add(b.traces("t", specs[i]))
	}
	check(b)
}

func timestamp(ns int64) pcommon.Timestamp { return pcommon.Timestamp(ns) }

func TestSampledAndLateSpansSaySo(t *testing.T) {
	b := newBench(t, withPrices(fieldPrices))
	td := b.traces("t", spec{id: "a", attrs: chat("openai", "dime", use(1, 1))}, spec{id: "b", start: 1, attrs: chat("openai", "dime", use(1, 1))}, spec{id: "c", start: -100_000, end: -99_999, attrs: chat("openai", "dime", use(1, 1))})
	td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0).TraceState().FromRaw("vendor=1,ot=th:e6")
	td.ResourceSpans().At(1).ScopeSpans().At(0).Spans().At(0).TraceState().FromRaw("ot=th:0")
	b.add(td)
	for _, e := range b.net() {
		f := e.AllFlags()
		id := e.Span[0]
		if (f&schema.FlagSampled != 0) != (id == 'a') || (f&schema.FlagLate != 0) != (id == 'c') {
			t.Fatalf("span %c: %v", id, f.Names())
		}
	}
}

package ingest

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/flyball/flyball/schema"
)

const spellingPrices = `
prices:
  - {provider: "*", models: [three], per_million: {input: "3", cache_read: "0.30", cache_write_5m: "3.75", cache_write_1h: "6", output: "15"}}
  - {provider: "*", models: [gem], per_million: {input: "1.25", cache_read: "0.125", output: "10"}}
  - {provider: "*", models: [voice], per_million: {input: "4", cache_read: "0.4", output: "16", input_audio: "32", output_audio: "64"}}
  - {provider: "*", models: [painter], per_million: {input: "5", input_image: "10", output: "10", output_image: "40"}}
  - {provider: "*", models: [photos], per_unit: {image: "0.04"}}
  - {provider: "*", models: [tiny], per_million: {input: "0.02"}}
  - {provider: "*", models: [ranker], per_unit: {request: "0.002"}}
  - {provider: "*", models: [searcher], per_million: {input: "3", output: "15"}, per_unit: {web_search: "0.01"}}
  - {provider: "*", models: [scribe], per_unit: {second: "0.0001"}}
  - {provider: "*", models: [reader], per_unit: {page: "0.002"}}
  - {provider: "*", models: [tiered], per_million: {input: "1.25", cache_read: "0.125", output: "10"}, service_tiers: {flex: {per_million: {input: "0.625", cache_read: "0.0625", output: "5"}}, priority: {per_million: {input: "2.5", cache_read: "0.25", output: "20"}}}}
`

// read1 reads a span by both decoders, which must agree, and returns its net line.
func read1(t *testing.T, s spec) schema.Entry {
	t.Helper()
	b := newBench(t, withPrices(spellingPrices))
	s.id = "a"
	td := b.traces("t", s)
	slow, _ := b.reader.AppendSpans(nil, td, b.from, b.now)
	body, err := (&ptrace.ProtoMarshaler{}).MarshalTraces(td)
	if err != nil {
		t.Fatal(err)
	}
	if fast, _, _, ok := b.reader.AppendWire(nil, body, b.from, b.now); ok && !reflect.DeepEqual(fast, slow) {
		t.Fatalf("the decoders differ:\n%+v\n%+v", fast, slow)
	}
	b.add(td)
	b.settle()
	return b.net()[0]
}

func with(m map[string]any, extra ...any) map[string]any {
	for i := 0; i < len(extra); i += 2 {
		m[extra[i].(string)] = extra[i+1]
	}
	return m
}

func usageOf(extra ...any) map[string]any {
	m := map[string]any{}
	for i := 0; i < len(extra); i += 2 {
		m["gen_ai.usage."+extra[i].(string)] = extra[i+1]
	}
	return m
}

// Every emitter spells the parts of an input its own way, and one that is passed over is
// billed at another price: cached tokens at the full one, audio at that of text.
func TestUsageByItsWords(t *testing.T) {
	f := func(model, want string, attrs map[string]any) {
		t.Helper()
		wantCost(t, read1(t, spec{attrs: chat("openai", model, attrs)}), want, 0)
	}
	// 2000 × 3 + 10000 × 0.3 + 100 × 15
	for _, name := range []string{"input_tokens_details.cached_tokens", "prompt_token_details.cached_tokens", "input_token_details.cached_tokens", "input_token_details.cache_read",
		"cached_input_tokens", "cacheReadInputTokens", "prompt_cache_hit_tokens", "details.cache_read_input_tokens", "details.cached_content_tokens", "tokens.cached"} {
		f("three", "0.0105", usageOf("input_tokens", 12000, "output_tokens", 100, name, 10000))
	}
	f("three", "0.0105", map[string]any{"llm.usage.prompt_tokens": 12000, "llm.usage.completion_tokens": 100, "llm.usage.cache_read_input_tokens": 10000})
	f("three", "0.0105", usageOf("inputTokens", 12000, "outputTokens", "100", "cachedTokens", 10000.0))
	// A known name goes before words, and words that cannot be a count are nothing.
	f("three", "0.0105", usageOf("input_tokens", 12000, "output_tokens", 100, "cache_read.input_tokens", 10000, "cached_input_tokens", 5))
	f("three", "0.0375", usageOf("input_tokens", 12000, "output_tokens", 100, "cached_input_tokens", -1))
	f("three", "0.0375", usageOf("input_tokens", 12000, "output_tokens", 100, "cached_tokens_ratio", 1, "cached_input_tokens_cost", 3, "partial.cached_input_tokens", 7, "uncached_input_tokens", 12000, "text.cache_read.input_tokens", 9))
	// Lifetimes: 7000 × 3 + 1000 × 3.75 + 4000 × 6 + 100 × 15
	f("three", "0.05025", usageOf("input_tokens", 12000, "output_tokens", 100, "cache_creation.ephemeral_1h_input_tokens", 4000, "cache_creation.ephemeral_5m_input_tokens", 1000))
	f("three", "0.05025", usageOf("input_tokens", 12000, "output_tokens", 100, "cache_creation_1h_tokens", 4000, "cache_write_5m_tokens", 1000))
	// Structured values, and a provider's object without anything cached.
	f("three", "0.0105", usageOf("input_tokens", 12000, "output_tokens", 100, "input_token_details", map[string]any{"cache_read": int64(10000)}))
	f("three", "0.0105", usageOf("input_tokens", 12000, "output_tokens", 100, "prompt_tokens_details", `{"cached_tokens": 10000, "audio_tokens": 0}`))
	f("three", "0.0105", usageOf("input_tokens", 12000, "output_tokens", 100, "cache_read.input_tokens", 10000, "input_tokens_details", `{"text_tokens": 12000}`))
	f("three", "0.0375", map[string]any{"gen_ai.usage": map[string]any{"input_tokens": int64(12000), "output_tokens": int64(100)}})
	f("three", "0.00315", usageOf("raw", `{"input_tokens":1000,"output_tokens":10,"total_tokens":1010}`))
	f("three", "0.00315", usageOf("raw", `{"promptTokens":1000,"completionTokens":10}`))
	f("three", "0.00315", usageOf("raw", `{"inputTokenCount":1000,"outputTokenCount":10,"invocationLatency":5}`))
	f("three", "0.0105", usageOf("raw", `{"input_tokens":12000,"output_tokens":100}`, "input_tokens", 12000, "output_tokens", 100, "cache_read.input_tokens", 10000))
	f("three", "0.00315", usageOf("raw", `{"input_tokens":1000,"output_tokens":10}`, "input_tokens", 0, "output_tokens", 0))
	// A total gives away what is left out, but not which part was cached.
	f("three", "0.0375", usageOf("input_tokens", 12000, "total_tokens", 12100))
	f("three", "0.0375", usageOf("output_tokens", 100, "total_tokens", 12100))
	f("three", "NULL", usageOf("total_tokens", 12100))
	// Names of a convention that were set before anything was known do not hide those of another.
	f("three", "0.0375", usageOf("input_tokens", 0, "prompt_tokens", 12000, "output_tokens", 0, "completion_tokens", 100))
	f("three", "0.0375", usageOf("input_tokens", 12000, "output_tokens", 100, "cache_read.input_tokens", 0, "cached_input_tokens", 10000)) // that one is no name
	f("three", "NULL", usageOf("input_tokens", 0, "prompt_tokens", -1, "output_tokens", 0))
	// 400 × 1.25 + 600 × 0.125 + 350 × 10
	f("gem", "0.004075", usageOf("raw", `{"total_input_tokens":1000,"total_cached_tokens":600,"total_output_tokens":50,"total_thought_tokens":300,"total_tokens":1350}`))
}

// A total tells more of a call than a table of emitters: whether thoughts are on top.
func TestReasoningByTheTotal(t *testing.T) {
	f := func(provider, model, want string, attrs map[string]any) {
		t.Helper()
		wantCost(t, read1(t, spec{attrs: chat(provider, model, attrs)}), want, 0)
	}
	for _, provider := range []string{"openai", "azure.ai.openai", "groq", "deepseek", "x_ai", "gcp.gemini"} {
		f(provider, "three", "0.0135", usageOf("input_tokens", 1000, "output_tokens", 400, "reasoning_tokens", 300, "total_tokens", 1700)) // 1000 × 3 + 700 × 15
		f(provider, "three", "0.009", usageOf("input_tokens", 1000, "output_tokens", 400, "reasoning_tokens", 300, "total_tokens", 1400))
	}
	f("anthropic", "three", "0.0096", usageOf("input_tokens", 1000, "output_tokens", 400, "reasoning_tokens", 300, "cache_read.input_tokens", 2000, "total_tokens", 3400)) // 1000 × 3 + 2000 × 0.3 + 400 × 15: the total has the cache
	f("anthropic", "three", "0.0141", usageOf("input_tokens", 1000, "output_tokens", 400, "reasoning_tokens", 300, "cache_read.input_tokens", 2000, "total_tokens", 3700))
}

// Anthropic's models have Anthropic's API at hosts whose own API counts otherwise.
func TestClaudeElsewhere(t *testing.T) {
	for _, host := range []string{"gcp.vertex_ai", "azure.ai.inference"} {
		e := read1(t, spec{attrs: chat(host, "claude-three", usageOf("input_tokens", 5000, "output_tokens", 100, "cache_read.input_tokens", 1000))})
		if e.AllFlags()&schema.FlagBasisAssumed == 0 {
			t.Errorf("%s: the basis %s is not flagged", host, e.TokenBasis)
		}
	}
	// A total with cached tokens is no thoughts.
	e := read1(t, spec{attrs: chat("gcp.vertex_ai", "claude-three", usageOf("input_tokens", 100, "output_tokens", 50, "total_tokens", 10150))})
	if e.Posting.Tokens.Output != 50 {
		t.Errorf("output is %d", e.Posting.Tokens.Output)
	}
}

func TestModalitiesByTheirWords(t *testing.T) {
	f := func(want, provider, model string, attrs map[string]any) {
		t.Helper()
		e := read1(t, spec{attrs: chat(provider, model, attrs)})
		wantCost(t, e, want, 0)
		if e.AllFlags()&(schema.FlagUsageInconsistent|schema.FlagUsageInvalid) != 0 {
			t.Fatalf("flags are %v", e.AllFlags().Names())
		}
	}
	// 200 × 4 + 800 × 32 + 100 × 16 + 400 × 64
	f("0.0536", "openai", "voice", usageOf("input_tokens", 1000, "output_tokens", 500, "input_token_details.audio_tokens", 800, "output_token_details.audio_tokens", 400))
	f("0.0536", "openai", "voice", usageOf("prompt_tokens", 1000, "completion_tokens", 500, "prompt_tokens_details.audio_tokens", 800, "completion_tokens_details.audio_tokens", 400))
	f("0.0536", "openai", "voice", usageOf("input_tokens", 1000, "output_tokens", 500, "details.input_audio_tokens", 800, "details.output_audio_tokens", 400))
	f("0.0536", "openai", "voice", usageOf("raw", `{"total_tokens":1500,"input_tokens":1000,"output_tokens":500,"input_token_details":{"text_tokens":200,"audio_tokens":800,"cached_tokens":0},"output_token_details":{"text_tokens":100,"audio_tokens":400}}`))
	f("0.0536", "gcp.gemini", "voice", usageOf("raw", `{"promptTokenCount":1000,"candidatesTokenCount":500,"totalTokenCount":1500,"promptTokensDetails":[{"modality":"TEXT","tokenCount":200},{"modality":"AUDIO","tokenCount":800}],"candidatesTokensDetails":[{"modality":"AUDIO","tokenCount":400},{"modality":"TEXT","tokenCount":100}]}`))
	f("0.0536", "openai", "voice", usageOf("raw", `{"input_tokens":1000,"output_tokens":500,"input_tokens_details":{"audio_tokens":800},"output_tokens_details":{"audio_tokens":400}}`))
	f("0.0536", "gcp.gemini", "voice", usageOf("raw", `{"promptTokenCount":1000,"responseTokenCount":500,"totalTokenCount":1500,"promptTokensDetails":[{"modality":"AUDIO","tokenCount":800}],"responseTokensDetails":[{"modality":"AUDIO","tokenCount":400}]}`))
	// Cached audio is cached: 100 × 4 + 300 × 32 + 600 × 0.4 + 10 × 16.
	f("0.0104", "openai", "voice", usageOf("input_tokens", 1000, "audio.input_tokens", 800, "cache_read.input_tokens", 600, "audio.cache_read.input_tokens", 500, "output_tokens", 10))
	f("0.0104", "openai", "voice", usageOf("raw", `{"input_tokens":1000,"output_tokens":10,"input_token_details":{"text_tokens":200,"audio_tokens":800,"cached_tokens":600,"cached_tokens_details":{"text_tokens":100,"audio_tokens":500}}}`))
	// How much of it was audio is not said: of 400 that were not cached all may be. 400 × 32 + 600 × 0.4.
	f("0.01304", "openai", "voice", usageOf("input_tokens", 1000, "audio.input_tokens", 800, "cache_read.input_tokens", 600, "output_tokens", 0))
	// What an image model puts out is images, but for its thoughts: 10 × 5 + 40 × 10 + 4160 × 40.
	f("0.16685", "openai", "painter", with(usageOf("raw", `{"input_tokens":50,"output_tokens":4160,"total_tokens":4210,"input_tokens_details":{"text_tokens":10,"image_tokens":40}}`), "gen_ai.operation.name", "image_generation"))
	f("0.05165", "gcp.gemini", "painter", usageOf("raw", `{"promptTokenCount":10,"candidatesTokenCount":1290,"totalTokenCount":1300,"candidatesTokensDetails":[{"modality":"IMAGE","tokenCount":1290}]}`))
	f("0.05265", "gcp.gemini", "painter", with(usageOf("input_tokens", 10, "output_tokens", 1390, "reasoning_tokens", 100), "gen_ai.output.type", "image"))
	f("0.04", "openai", "photos", with(usageOf("image_count", 1), "gen_ai.operation.name", "image_generation"))
}

// What is billed by the piece is read from wherever emitters and providers put the count.
func TestUnitsByTheirWords(t *testing.T) {
	f := func(want, op, model string, attrs map[string]any) {
		t.Helper()
		wantCost(t, read1(t, spec{attrs: with(chat("openai", model, attrs), "gen_ai.operation.name", op)}), want, 0)
	}
	f("0.006", "transcription", "scribe", usageOf("audio_seconds", 60))
	f("0.00605", "transcription", "scribe", usageOf("seconds", 60.5))
	f("0.006", "transcription", "scribe", usageOf("raw", `{"type":"duration","seconds":60}`))
	f("NULL", "transcription", "scribe", nil)
	f("NULL", "chat", "scribe", usageOf("seconds", 60)) // how long a chat took is no unit
	f("0.006", "ocr", "reader", usageOf("raw", `{"pages_processed":3,"doc_size_bytes":99}`))
	f("0.05642", "chat", "searcher", usageOf("input_tokens", 9500, "output_tokens", 528, "details.web_search_requests", 2))
	f("0.05642", "chat", "searcher", usageOf("input_tokens", 9500, "output_tokens", 528, "server_tool_use.web_search_requests", 2))
	answer := `{"id":"resp_1","object":"response","usage":{"input_tokens":9500,"output_tokens":528,"input_tokens_details":{"cached_tokens":0}},"output":[{"type":"web_search_call","action":{"type":"search"}},{"type":"web_search_call"},{"type":"web_search_call","action":{"type":"open_page"}},{"type":"message"}]}`
	wantCost(t, read1(t, spec{attrs: map[string]any{"openinference.span.kind": "LLM", "llm.provider": "openai", "llm.model_name": "searcher", "output.mime_type": "application/json", "output.value": answer}}), "0.05642", 0)
	// Embeddings and reranking have no output, so a total is the input.
	f("0.02", "embeddings", "tiny", usageOf("total_tokens", 1000000))
	f("0.02", "rerank", "tiny", usageOf("total_tokens", 1000000))
	wantCost(t, read1(t, spec{attrs: map[string]any{"openinference.span.kind": "EMBEDDING", "llm.provider": "openai", "embedding.model_name": "tiny", "llm.token_count.total": 1000000}}), "0.02", 0)
	// A reranker is billed by the request, unless it was not answered, or nobody wrote down what a request costs.
	f("0.002", "rerank", "ranker", nil)
	late := read1(t, spec{err: "timeout", attrs: with(chat("openai", "ranker", nil), "gen_ai.operation.name", "rerank")})
	if late.Posting.Status != schema.CostUnknown {
		t.Fatalf("a reranker that timed out is %s", late.Posting.Status)
	}
	if e := read1(t, spec{attrs: with(chat("openai", "tiny", nil), "gen_ai.operation.name", "rerank")}); e.Posting.Status != schema.CostUnpriced || e.Posting.Exposure == 0 {
		t.Fatalf("a reranker with a price for tokens only is %s, exposure %s", e.Posting.Status, e.Posting.Exposure)
	}
}

func TestTierByItsWords(t *testing.T) {
	f := func(want string, attrs map[string]any) {
		t.Helper()
		e := read1(t, spec{attrs: attrs})
		wantCost(t, e, want, 0)
		if e.AllFlags()&schema.FlagTierUnknown != 0 {
			t.Fatalf("the tier %q is not known", e.ServiceTier)
		}
	}
	span := func(key, tier string) map[string]any {
		return with(chat("openai", "tiered", use(10000, 1000)), key, tier)
	}
	for tier, want := range map[string]string{"SERVICE_TIER_FLEX": "0.01125", "ON_DEMAND_FLEX": "0.01125", "ON_DEMAND_PRIORITY": "0.045", "ON_DEMAND": "0.0225", "standard_only": "0.0225", "TRAFFIC_TYPE_UNSPECIFIED": "0.0225", "NOT_GIVEN": "0.0225"} {
		f(want, span("gen_ai.response.service_tier", tier))
	}
	f("0.01125", chat("gcp.gemini", "tiered", usageOf("raw", `{"promptTokenCount":10000,"candidatesTokenCount":1000,"trafficType":"ON_DEMAND_FLEX"}`)))
	oi := func(more ...any) map[string]any {
		return with(map[string]any{"openinference.span.kind": "LLM", "llm.provider": "openai", "llm.model_name": "tiered", "llm.token_count.prompt": 10000, "llm.token_count.completion": 1000}, more...)
	}
	answer := `{"id":"chatcmpl-1","object":"chat.completion","service_tier":"default","usage":{"prompt_tokens":10000,"completion_tokens":1000}}`
	f("0.01125", oi("llm.invocation_parameters", `{"model":"tiered","service_tier":"flex"}`))
	f("0.01125", oi("output.value", strings.Replace(answer, "default", "flex", 1)))
	f("0.01125", oi("output.value", `{"response":{"object":"response","service_tier":"flex","usage":{"prompt_tokens":10000,"completion_tokens":1000}}}`))
	// What served beats what was asked for, wherever each of them is.
	f("0.0225", oi("llm.invocation_parameters", `{"service_tier":"priority"}`, "output.value", answer))
	f("0.0225", with(span("openai.request.service_tier", "priority"), "response_data", answer))
	f("0.01125", with(span("openai.response.service_tier", "flex"), "response_data", answer))
	// 400 × 2.5 + 600 × 0.25 + 50 × 20, of parts that are in the whole too, and what flex makes of the same as buckets.
	f("0.00215", langfuse("tiered", `{"input":1000,"output":50,"input_priority":400,"input_priority_cache_read":600,"output_priority":30,"output_priority_reasoning":20}`))
	f("0.0005375", langfuse("tiered", `{"input":0,"output":0,"input_flex":400,"input_flex_cache_read":600,"output_flex":30,"output_flex_reasoning":20}`))
	// LangChain puts the tier's name before the parts of its answers: (400 + 600 / 10) × 0.625 + 50 × 5.
	f("0.0005375", with(chat("openai", "tiered", nil), "langsmith.usage_metadata", `{"input_tokens":1000,"output_tokens":50,"input_token_details":{"flex":400,"flex_cache_read":600},"output_token_details":{"flex":30,"flex_reasoning":20}}`))
}

func langfuse(model, usage string) map[string]any {
	return map[string]any{"langfuse.observation.type": "generation", "gen_ai.system": "openai", "langfuse.observation.model.name": model, "langfuse.observation.usage_details": usage}
}

// Langfuse's clients take every part that they know by name out of input and output.
func TestBucketsOfLangfuse(t *testing.T) {
	f := func(want, model, usage string, more ...any) {
		t.Helper()
		wantCost(t, read1(t, spec{attrs: with(langfuse(model, usage), more...)}), want, 0)
	}
	f("0.044245", "painter", `{"input":0,"output":0,"total":1263,"input_text_tokens":13,"input_image_tokens":194,"output_image_tokens":1056}`)          // 13 × 5 + 194 × 10 + 1056 × 40
	f("0.005552", "voice", `{"input":0,"output":0,"input_text_tokens":100,"input_audio_tokens":50,"output_text_tokens":50,"output_audio_tokens":43.0}`) // 100 × 4 + 50 × 32 + 50 × 16 + 43 × 64
	f("0.00495", "three", `{"input":1000,"output":50,"output_accepted_prediction_tokens":40,"output_rejected_prediction_tokens":40}`)
	f("0.0018", "three", `{"input":0,"output":0}`, "gen_ai.usage.input_tokens", 500, "gen_ai.usage.output_tokens", 20)
}

// Spans that are calls of a model whatever else they are called.
func TestModelCallsUnderOtherNames(t *testing.T) {
	f := func(kind schema.Kind, want string, attrs map[string]any) {
		t.Helper()
		e := read1(t, spec{attrs: attrs})
		if e.Posting.Kind != kind {
			t.Fatalf("it is a %s, want a %s", e.Posting.Kind, kind)
		}
		wantCost(t, e, want, 0)
	}
	f(schema.KindModel, "0.0045", with(chat("openai", "three", use(1000, 100)), "mcp.method.name", "sampling/createMessage"))
	f(schema.KindModel, "0.0045", with(chat("openai", "three", use(1000, 100)), "mcp.method.name", "sampling/createMessage", "openinference.span.kind", "LLM"))
	f(schema.KindModel, "0.02", with(chat("mistral", "reader", usageOf("pages_processed", 10)), "gen_ai.operation.name", "ocr"))
	f(schema.KindModel, "NULL", with(chat("openai", "scribe", usageOf("video_seconds", 10)), "gen_ai.operation.name", "video_generation")) // no unit that is known here
	// The host bills, whomever the client names.
	bedrock := read1(t, spec{attrs: chat("anthropic", "us.anthropic.claude-sonnet-4-5-20250929-v1:0", use(1000, 100))})
	if bedrock.Provider != "bedrock" {
		t.Fatalf("the provider is %s", bedrock.Provider)
	}
}

// Words of allowances and of what was not used are no counts.
func TestAllowancesAreNoUsage(t *testing.T) {
	for _, name := range []string{"thinking_budget_tokens", "reasoning_tokens_limit", "cache_saved_tokens", "max_output_tokens", "image_width", "web_search_enabled", "estimated_reasoning_tokens"} {
		wantCost(t, read1(t, spec{attrs: chat("openai", "three", usageOf("input_tokens", 1000, "output_tokens", 100, name, 8000))}), "0.0045", 0)
	}
}

// Metadata of providers that the AI SDK passes on, and what tells its versions apart.
func TestMetadataOfTheAISDK(t *testing.T) {
	f := func(want, ua, metadata string) {
		t.Helper()
		wantCost(t, read1(t, spec{scope: "ai", attrs: map[string]any{"ai.operationId": "ai.generateText.doGenerate", "gen_ai.system": "x", "ai.model.provider": "deepseek.chat", "ai.model.id": "three", "ai.request.headers.user-agent": ua,
			"ai.usage.promptTokens": 1000, "ai.usage.completionTokens": 100, "ai.response.providerMetadata": metadata}}), want, 0)
	}
	f("0.00288", "ai/5.0.2", `{"deepseek":{"promptCacheHitTokens":600,"promptCacheMissTokens":400}}`) // 400 × 3 + 600 × 0.3 + 100 × 15
	f("0.00288", "ai/5.0.2", `{"openrouter":{"usage":{"promptTokensDetails":{"cachedTokens":600}}}}`)
	f("0.00468", "ai/5.0.2", `{"anthropic":{"cacheReadInputTokens":600}}`) // beside the input
	f("0.00468", "myapp openai/7.1 ai/5.0.2", `{"anthropic":{"cacheReadInputTokens":600}}`)
	f("0.00288", "ai-sdk/xai/2.0.1 ai/6.0.1", `{"anthropic":{"cacheReadInputTokens":600}}`)
	f("0.00288", "", `{"deepseek":{"promptCacheHitTokens":600}}`)
}

// What a model wrote is no answer of a provider, though both are JSON: it sets neither the cost
// of its call nor the id by which calls are told apart.
func TestModelsWordsAreNoAnswer(t *testing.T) {
	oi := func(value string) map[string]any {
		return map[string]any{"openinference.span.kind": "LLM", "llm.provider": "openai", "llm.model_name": "three", "llm.token_count.prompt": 1000, "llm.token_count.completion": 100, "output.mime_type": "application/json", "output.value": value}
	}
	f := func(value string) {
		t.Helper()
		e := read1(t, spec{attrs: oi(value)})
		wantCost(t, e, "0.0045", 0)
		if e.ResponseID != "" {
			t.Fatalf("%s is kept as the id of an answer", e.ResponseID)
		}
	}
	f(`{"id":"ticket-4711","step":1}`)
	f(`{"usage":{"prompt_tokens":1,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":0}}}`)
	f(`{"id":"ticket-4711","object":"chat.completion","usage":{"prompt_tokens":1,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":0}}}`)
	f(`{"id":"ticket-4711","object":"chat.completion","usage":{"prompt_tokens":999999,"completion_tokens":100}}`)
}

// Instrumentations name operations after an SDK's methods. A call that failed has nothing else
// that says what it is.
func TestOperationsByTheirWords(t *testing.T) {
	for op, want := range map[string]schema.Kind{"Chat": schema.KindModel, "chat.completions": schema.KindModel, "messages.create": schema.KindModel, "responses.create": schema.KindModel, "ConverseStream": schema.KindModel, "InvokeModel": schema.KindModel,
		"text_generation": schema.KindModel, "inference": schema.KindModel, "embed": schema.KindEmbedding, "create_embeddings": schema.KindEmbedding, "images.generate": schema.KindImage, "text_to_speech": schema.KindSpeech, "audio.transcriptions": schema.KindTranscription, "Rerank": schema.KindRerank,
		"Invoke_Agent": schema.KindAgent, "Execute_Tool": schema.KindTool, "messages.count_tokens": schema.KindOther, "moderations": schema.KindOther, "update_memory": schema.KindOther, "list_models": schema.KindOther, "retrieval": schema.KindRetrieval} {
		e := read1(t, spec{err: "429 Too Many Requests", attrs: with(chat("openai", "three", nil), "gen_ai.operation.name", op)})
		if e.Kind != want {
			t.Errorf("%s is read as %s, want %s", op, schema.KindNames[e.Kind], schema.KindNames[want])
		}
	}
}

func TestProvidersByTheirWords(t *testing.T) {
	for name, want := range map[string]string{"Azure OpenAI": "azure", "azure-ai-foundry": "azure", "AWS Bedrock": "bedrock", "bedrock-runtime": "bedrock", "vertex_ai-anthropic_models": "google", "google_anthropic_vertex": "google", "Google Vertex AI": "google",
		"ChatOpenAI": "openai", "openai-responses": "openai", "openai-compatible": "openai-compatible", "acme": "acme"} {
		if e := read1(t, spec{attrs: chat(name, "three", use(1, 1))}); e.Provider != want {
			t.Errorf("%s is read as %s, want %s", name, e.Provider, want)
		}
	}
	for model, want := range map[string]string{"anthropic:three": "anthropic", "google-gla:gem": "google", "arn:aws-cn:bedrock:cn-north-1:1:inference-profile/x.three": "bedrock"} {
		if e := read1(t, spec{attrs: chat("pydantic-ai", model, use(1, 1))}); e.Provider != want {
			t.Errorf("%s is of %s, want %s", model, e.Provider, want)
		}
	}
}

func TestFailuresByTheirWords(t *testing.T) {
	for text, want := range map[string]schema.Failure{"google.api_core.exceptions.ResourceExhausted": schema.RateLimited, "insufficient_quota": schema.RateLimited, "ModelNotReadyException": schema.Overloaded, "ContextWindowExceededError": schema.ClientError, "context_length_exceeded": schema.ClientError,
		"ContentPolicyViolationError": schema.Refused, "ModelStreamErrorException": schema.ServerError, "ENOTFOUND": schema.UnknownFailure, "ECONNABORTED": schema.UnknownFailure, "APIConnectionError": schema.UnknownFailure, "AbortError": schema.Cancelled} {
		if e := read1(t, spec{err: "x", attrs: with(chat("openai", "three", nil), "error.type", text)}); e.Failure != want {
			t.Errorf("%s is read as %s, want %s", text, schema.FailureNames[e.Failure], schema.FailureNames[want])
		}
	}
	rpc := func(key string, code any, want schema.Failure) {
		t.Helper()
		e := read1(t, spec{kind: ptrace.SpanKindClient, attrs: map[string]any{"rpc.system": "grpc", "rpc.service": "crm.Customers", "rpc.method": "Get", key: code}})
		if e.Failure != want {
			t.Errorf("%s %v is read as %s, want %s", key, code, schema.FailureNames[e.Failure], schema.FailureNames[want])
		}
	}
	rpc("rpc.grpc.status_code", 0, schema.NoFailure)
	rpc("rpc.grpc.status_code", 8, schema.RateLimited)
	rpc("rpc.grpc.status_code", 14, schema.Overloaded)
	rpc("rpc.response.status_code", "DEADLINE_EXCEEDED", schema.Timeout)
	rpc("rpc.response.status_code", "OK", schema.NoFailure)
	rpc("rpc.response.status_code", "-32602", schema.NoFailure)
}

// A tool may fail without its span saying so.
func TestToolsThatAnswerWithAnError(t *testing.T) {
	f := func(want schema.Failure, attrs map[string]any) {
		t.Helper()
		e := read1(t, spec{attrs: with(attrs, "gen_ai.operation.name", "execute_tool", "gen_ai.tool.name", "q")})
		if e.Failure != want {
			t.Errorf("%v: failure is %s, want %s", attrs, schema.FailureNames[e.Failure], schema.FailureNames[want])
		}
	}
	f(schema.ToolError, map[string]any{"gen_ai.tool.call.result": `{"content":[],"isError":true}`})
	f(schema.ToolError, map[string]any{"output.value": `{"is_error": true}`})
	f(schema.ToolError, map[string]any{"gen_ai.tool.call.result": map[string]any{"isError": true}})
	f(schema.ToolError, map[string]any{"success": false})
	f(schema.ToolError, map[string]any{"success": "False"})
	f(schema.NoFailure, map[string]any{"success": true, "gen_ai.tool.call.result": `{"isError":false}`})
	f(schema.NoFailure, map[string]any{"gen_ai.tool.call.result": `{"rows":[{"isError":true}]}`})
}

// A number that a call has among its attempts counts those that no span was sent of.
func TestNumberedAttempts(t *testing.T) {
	f := func(retries, hidden uint32, specs ...spec) {
		t.Helper()
		b := newBench(t, withPrices(spellingPrices))
		b.add(b.traces("t", append(specs, spec{id: "p", name: "step", end: 9})...))
		if s := b.totals(); s.model != 1 || s.retries != retries || s.hidden != hidden {
			t.Fatalf("%d calls, %d retries, %d hidden; want 1, %d, %d", s.model, s.retries, s.hidden, retries, hidden)
		}
	}
	try := func(i int, failure string, attrs map[string]any) spec {
		return spec{id: fmt.Sprint(i), parent: "p", start: float64(i), err: failure, attrs: chat("openai", "three", attrs)}
	}
	f(2, 0, try(0, "429", map[string]any{"retry.attempt": 0}), try(1, "429", map[string]any{"retry.attempt": 1}), try(2, "", with(use(1, 1), "retry.attempt", 2)))
	f(1, 1, try(1, "429", map[string]any{"attempt": 1}), try(2, "", with(use(1, 1), "attempt", 3))) // the second was not exported
	f(0, 2, try(2, "", with(use(1, 1), "attempt", 3)))
	f(1, 2, try(1, "429", nil), try(2, "", with(use(1, 1), "http.request.resend_count", 2))) // within the call: its own
	f(0, 1, try(1, "", with(use(1, 1), "gen_ai.fallback_index", 1)))                         // the model asked before has no span
	f(0, 2, try(1, "", with(use(1, 1), "gen_ai.fallback_index", 1, "gen_ai.number_of_retries", 2)))
	f(0, 0, try(1, "", with(use(1, 1), "gen_ai.fallback_index", 0, "gen_ai.number_of_retries", 0)))
}

// Of two records of one answer the one that says what was cached is the better one.
func TestRecordWithCacheFiguresCounts(t *testing.T) {
	full := with(chat("openai", "three", use(1000, 100)), "gen_ai.response.id", "chatcmpl-1")
	split := with(chat("openai", "three", use(1000, 100)), "gen_ai.response.id", "chatcmpl-1", "gen_ai.usage.cache_read.input_tokens", 800)
	for _, order := range [][2]map[string]any{{full, split}, {split, full}} {
		b := newBench(t, withPrices(spellingPrices))
		b.add(b.traces("t", spec{id: "r", name: "root", end: 9}, spec{id: "a", parent: "r", scope: "x", attrs: order[0]}, spec{id: "b", parent: "r", scope: "y", start: 0.1, attrs: order[1]}))
		if s := b.totals(); s.model != 1 || s.cost.String() != "0.00234" {
			t.Fatalf("%d calls for %s", s.model, s.cost.String())
		}
	}
}

// The events of agent command lines under all the names and numbers that they have.
func TestEventsOfCommandLines(t *testing.T) {
	type event struct {
		scope, own, body string
		attrs            map[string]any
	}
	f := func(check func(s totals, lines []schema.Entry) string, events ...event) {
		t.Helper()
		b := newBench(t, withPrices(spellingPrices))
		ld := plog.NewLogs()
		for i, e := range events {
			sl := ld.ResourceLogs().AppendEmpty().ScopeLogs().AppendEmpty()
			sl.Scope().SetName(e.scope)
			lr := sl.LogRecords().AppendEmpty()
			lr.SetTimestamp(pcommon.Timestamp(b.now - 60e9 + int64(i)*1e9))
			lr.SetEventName(e.own)
			if e.body != "" {
				lr.Body().SetStr(e.body)
			}
			putAttrs(lr.Attributes(), with(e.attrs, "session.id", "s"))
		}
		calls, ignored, _ := b.reader.AppendLogs(nil, ld, b.from, b.now)
		if ignored > 0 {
			t.Fatalf("%d events are ignored", ignored)
		}
		b.calls(calls)
		if wrong := check(b.totals(), b.net()); wrong != "" {
			t.Fatalf("%s: %+v", wrong, b.totals())
		}
	}
	cost := func(want string) func(totals, []schema.Entry) string {
		return func(s totals, _ []schema.Entry) string {
			if s.model != 1 || s.cost.String() != want {
				return "want one call for " + want
			}
			return ""
		}
	}
	const claude = "com.anthropic.claude_code.events"
	request := func() map[string]any {
		return map[string]any{"event.name": "api_request", "model": "three", "input_tokens": "10", "output_tokens": "100"}
	}
	f(cost("0.00153"), event{claude, "", "claude_code.api_request", request()})
	f(cost("0.00153"), event{"", "claude_code.api_request", "", request()})
	f(cost("0.00153"), event{claude, "", "", request()})
	// Subscriptions pay no such bill, and writes to the cache are for an hour: 100 × 15 + 1000 × 6.
	write := with(request(), "input_tokens", "0", "cache_creation_tokens", "1000")
	f(func(s totals, lines []schema.Entry) string {
		if lines[0].Flags&schema.FlagNotional == 0 {
			return "it is not flagged as notional"
		}
		return cost("0.0075")(s, lines)
	}, event{claude, "", "", write})
	f(func(_ totals, lines []schema.Entry) string {
		if lines[0].Provider != "bedrock" {
			return "the provider is " + lines[0].Provider
		}
		return ""
	}, event{claude, "", "", with(request(), "model", "us.anthropic.claude-sonnet-4-5-20250929-v1:0")})
	// Every attempt is an event, numbered: two retries, not five.
	failed := func(n string) event {
		return event{claude, "", "claude_code.api_error", map[string]any{"event.name": "api_error", "model": "three", "status_code": "429", "error": "rate", "attempt": n}}
	}
	f(func(s totals, _ []schema.Entry) string {
		if s.model != 1 || s.retries != 2 || s.hidden != 0 {
			return "want one call with two retries"
		}
		return ""
	}, failed("1"), failed("2"), event{claude, "", "claude_code.api_request", with(request(), "attempt", "3")})
	// Codex numbers attempts from 0 and tells of the one that succeeded in an event of its response.
	attempt := func(n, status any) event {
		e := event{"", "codex.api_request", "", map[string]any{"event.name": "codex.api_request", "model": "three", "attempt": n, "duration_ms": "5"}}
		if status != nil {
			e.attrs["http.response.status_code"] = status
		}
		return e
	}
	f(func(s totals, lines []schema.Entry) string {
		if s.model != 1 || s.retries != 2 || s.hidden != 0 || lines[0].Failure != schema.RateLimited {
			return "want one call with two retries, the first for a limit"
		}
		return ""
	}, attempt(0, 429), attempt(1, nil), event{"", "codex.sse_event", "", map[string]any{"event.name": "codex.sse_event", "event.kind": "response.completed", "model": "three", "input_token_count": "10", "output_token_count": "100"}})
	// Gemini CLI keeps thoughts and tool-use prompts apart: 420 × 1.25 + 600 × 0.125 + 350 × 10, with a total and without.
	for _, total := range []any{1370, ""} {
		f(cost("0.0041"), event{"", "gemini_cli.api_response", "", map[string]any{"event.name": "gemini_cli.api_response", "model": "gem", "input_token_count": 1000, "cached_content_token_count": 600, "output_token_count": 50, "thoughts_token_count": 300, "tool_token_count": 20, "total_token_count": total}})
	}
	f(cost("0.00925"), event{"", "gemini_cli.api_response", "", map[string]any{"event.name": "gemini_cli.api_response", "model": "gem", "input_token_count": 1000, "output_token_count": 500, "thoughts_token_count": 300, "tool_token_count": 0}})
	tool := func(want string) func(totals, []schema.Entry) string {
		return func(s totals, lines []schema.Entry) string {
			if s.tool != 1 || lines[0].Tool != want || lines[0].Failure != schema.ToolError {
				return "want a failed call of " + want
			}
			return ""
		}
	}
	f(tool("ls"), event{"", "gemini_cli.tool_call", "", map[string]any{"event.name": "gemini_cli.tool_call", "function_name": "ls", "success": false}})
	f(tool("shell"), event{"", "codex.tool_result", "", map[string]any{"event.name": "codex.tool_result", "tool_name": "shell", "success": "False"}})
}

// An emitter that tells what came of a stream in a record of its own has told of one call.
func TestStreamsToldTwice(t *testing.T) {
	half := func(id string, start, end float64, closing bool) spec {
		s := spec{id: id, parent: "r", name: "Chat Completion with {request_data[model]!r}", scope: "logfire.openai", version: "5", start: start, end: end, attrs: chat("openai", "three", nil)}
		if closing {
			s.name, s.end = "streaming response from {request_data[model]!r} took {duration:.2f}s", start+1e-9
			s.attrs = with(chat("openai", "three", use(1000, 100)), "gen_ai.response.id", "chatcmpl-"+id)
		}
		return s
	}
	f := func(calls uint32, unknown int, cost string, specs ...spec) {
		t.Helper()
		specs = append(specs, spec{id: "r", name: "POST /ask", end: 9})
		for _, backwards := range []bool{false, true} {
			b := newBench(t, withPrices(spellingPrices))
			for i := range specs {
				if backwards {
					i = len(specs) - 1 - i
				}
				b.add(b.traces("t", specs[i]))
			}
			b.settle()
			if s := b.totals(); s.model != calls || int(s.unknown) != unknown || s.cost.String() != cost {
				t.Fatalf("%d calls, %d unknown, for %s; want %d, %d, %s", s.model, s.unknown, s.cost.String(), calls, unknown, cost)
			}
		}
	}
	f(1, 0, "0.0045", half("a", 0, 0.1, false), half("b", 1, 0, true))
	f(2, 0, "0.009", half("a", 0, 0.1, false), half("b", 1, 0, true), half("c", 2, 2.1, false), half("d", 3, 0, true))   // one after the other
	f(2, 0, "0.009", half("a", 0, 0.1, false), half("c", 0.5, 0.6, false), half("b", 1, 0, true), half("d", 3, 0, true)) // at once
	f(2, 1, "0.0045", half("a", 0, 0.1, false), half("b", 1, 0, true), half("c", 2, 2.1, false))                         // the second broke off
	f(2, 1, "0.0045", half("a", 0, 0.1, false), half("c", 2, 2.1, false), half("d", 3, 0, true))                         // the first did
	f(1, 1, "0", half("a", 0, 0.1, false))
}

func TestIdentityByItsWords(t *testing.T) {
	f := func(user, session string, attrs map[string]any) {
		t.Helper()
		e := read1(t, spec{attrs: with(chat("openai", "three", use(1, 1)), flat(attrs)...)})
		if got := e.Identity; got[schema.User] != user || got[schema.Session] != session {
			t.Errorf("%v: user %q, session %q; want %q, %q", attrs, got[schema.User], got[schema.Session], user, session)
		}
		if e.Tenant != "default" {
			t.Errorf("%v: tenant is %s", attrs, e.Tenant)
		}
	}
	for _, prefix := range []string{"traceloop.association.properties.", "langfuse.trace.metadata.", "langsmith.metadata.", "ai.telemetry.metadata.", "ai.settings.context.", "baggage."} {
		f("ann", "s", map[string]any{prefix + "userId": "ann", prefix + "thread_id": "s", prefix + "org": "acme"})
	}
	f("ann", "7", map[string]any{"metadata": `{"user-id":"ann","session_id":7,"tenant_id":"acme","model_settings":{"user":"x"}}`})
	f("eve", "", map[string]any{"user.id": "eve", "metadata": `{"user_id":"ann"}`})
	// What languages print for nobody is nobody, and no budget of all who are.
	for _, nobody := range []any{"null", "None", "undefined", "[object Object]", " ", ""} {
		f("", "", map[string]any{"user.id": nobody})
		f("ann", "", map[string]any{"user.id": nobody, "enduser.id": "ann"})
	}
}

func flat(m map[string]any) (list []any) {
	for k, v := range m {
		list = append(list, k, v)
	}
	return list
}

// A zero beside a count of a chat that succeeded is one that never came.
func TestZeroBesideACount(t *testing.T) {
	f := func(partial bool, attrs map[string]any, err string) {
		t.Helper()
		e := read1(t, spec{err: err, attrs: chat("openai", "three", attrs)})
		if got := e.AllFlags()&schema.FlagPartialUsage != 0; got != partial {
			t.Errorf("%v: partial usage is %v", attrs, got)
		}
	}
	f(true, use(1000, 0), "")
	f(true, use(0, 100), "")
	f(false, use(1000, 100), "")
	f(false, use(1000, 0), "content_filter")
}

// A bare request to a model's host is a call of unknown usage if a model may have answered it.
func TestRequestsToModelHosts(t *testing.T) {
	f := func(method, url, provider string) {
		t.Helper()
		host, _, _ := strings.Cut(strings.TrimPrefix(url, "https://"), "/")
		e := read1(t, spec{kind: ptrace.SpanKindClient, name: method, attrs: map[string]any{"http.request.method": method, "server.address": host, "url.full": url, "http.response.status_code": 200}})
		switch {
		case provider != "" && (e.Posting.Kind != schema.KindModel || e.Posting.Status != schema.CostUnknown || e.Provider != provider):
			t.Errorf("%s %s is %s of %s, %s", method, url, schema.KindNames[e.Posting.Kind], e.Provider, e.Posting.Status)
		case provider == "" && (e.Posting.Kind != schema.KindTool || e.Posting.Exposure != 0):
			t.Errorf("%s %s is %s with exposure %s", method, url, schema.KindNames[e.Posting.Kind], e.Posting.Exposure)
		}
	}
	f("POST", "https://api.openai.com/v1/responses", "openai")
	f("POST", "https://eu.api.openai.com/v1/chat/completions", "openai")
	f("GET", "https://api.openai.com/v1/realtime?model=gpt-realtime", "openai")
	f("POST", "https://bedrock-runtime-fips.us-east-1.amazonaws.com/model/x/converse", "bedrock")
	f("POST", "https://bedrock-runtime.us-east-1.api.aws/model/x/invoke", "bedrock")
	f("POST", "https://gateway.example/model/x/converse-stream", "bedrock")
	f("POST", "https://aiplatform.us.rep.googleapis.com/v1/projects/p/models/x:streamRawPredict", "google")
	f("POST", "https://gateway.example/v1/audio/speech", "openai")
	for _, free := range []string{"GET https://api.openai.com/v1/models", "GET https://api.openai.com/v1/batches/b_1", "POST https://api.openai.com/v1/files", "POST https://api.openai.com/v1/moderations", "DELETE https://api.openai.com/v1/responses/r_1",
		"POST https://api.anthropic.com/v1/messages/count_tokens", "GET https://api.anthropic.com/v1/messages/batches/b_1/results", "POST https://generativelanguage.googleapis.com/v1/models/x:countTokens", "GET https://gateway.example/v1/chat/completions"} {
		method, url, _ := strings.Cut(free, " ")
		f(method, url, "")
	}
}

// The same arguments are the same whatever blanks are in them.
func TestArgumentsButForBlanks(t *testing.T) {
	hash := func(args any) uint64 {
		t.Helper()
		return read1(t, spec{attrs: map[string]any{"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "q", "gen_ai.tool.call.arguments": args}}).ArgsHash
	}
	long := strings.Repeat(`"x y\" z",`, 200)
	for _, same := range [][2]string{{`{"a":"b c","d":[1,2]}`, "{\n  \"a\": \"b c\",\n  \"d\": [1, 2]\n}"}, {`[` + long + `1]`, `[ ` + strings.ReplaceAll(long, `",`, `", `) + `1 ]`}} {
		if hash(same[0]) != hash(same[1]) {
			t.Errorf("%.40q and %.40q are told apart", same[0], same[1])
		}
	}
	for _, other := range [][2]string{{`{"a":"b c"}`, `{"a":"bc"}`}, {`{"a":"\" b"}`, `{"a":"\"b"}`}, {"a b", "ab"}, {`{"a":1}`, `{"a":11}`}} {
		if hash(other[0]) == hash(other[1]) {
			t.Errorf("%q and %q are taken for one", other[0], other[1])
		}
	}
	if hash(map[string]any{"a": int64(1)}) != hash(`{"a": 1}`) {
		t.Error("a structured value and its JSON are told apart")
	}
}

// What a guard, a judge or a retriever says that it spent itself is spent, once.
func TestGuardsAndJudgesSpend(t *testing.T) {
	for _, attrs := range []map[string]any{
		{"openinference.span.kind": "EVALUATOR", "llm.provider": "openai", "llm.model_name": "three", "llm.token_count.prompt": 1000, "llm.token_count.completion": 100},
		{"openinference.span.kind": "guardrail", "llm.provider": "openai", "llm.model_name": "three", "llm.token_count.prompt": 1000, "llm.token_count.completion": 100},
		with(chat("openai", "three", use(1000, 100)), "gen_ai.operation.name", "guardrail.run"),
		with(chat("openai", "three", use(1000, 100)), "gen_ai.operation.name", "retrieval"),
		with(chat("openai", "three", use(1000, 100)), "langsmith.span.kind", "LLM"),
	} {
		b := newBench(t, withPrices(spellingPrices))
		b.add(b.traces("t", spec{id: "g", attrs: attrs}))
		b.settle()
		if s := b.totals(); s.model != 1 || s.cost.String() != "0.0045" {
			t.Errorf("%v: %d calls for %s", attrs, s.model, s.cost.String())
		}
		b.add(b.traces("t", spec{id: "c", parent: "g", attrs: chat("openai", "three", use(900, 100))}))
		b.settle()
		if s := b.totals(); s.model != 1 || s.cost.String() != "0.0042" {
			t.Errorf("%v above the call: %d calls for %s", attrs, s.model, s.cost.String())
		}
	}
	// Without counts of its own it is nothing.
	if e := read1(t, spec{attrs: map[string]any{"openinference.span.kind": "GUARDRAIL", "llm.model_name": "three"}}); e.Posting.ModelCalls != 0 || e.Posting.Status != schema.CostNone {
		t.Errorf("%d calls, %s", e.Posting.ModelCalls, e.Posting.Status)
	}
}

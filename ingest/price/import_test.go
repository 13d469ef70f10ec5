package price

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/flyball/flyball/schema"
)

// genaiList is a copy of how genai-prices writes what the embedded catalogue is made of.
const genaiList = `[
 {"id":"openai","models":[
  {"id":"m-5","match":{"or":[{"starts_with":"M-5"},{"equals":"m-5-chat"}]},
   "prices":[{"prices":{"input_mtok":2,"output_mtok":8,"requests_kcount":5}},{"constraint":{"start_date":"2026-09-05"},"prices":{"input_mtok":{"base":1,"tiers":[{"start":200000,"price":3}]}}},
     {"constraint":{"start_time":"16:30:00Z","end_time":"00:30:00Z"},"prices":{"input_mtok":0.5}}],
   "price_variants":[{"when":{"processing":"batch"},"prices":{"input_mtok":{"base":0.4,"tiers":[{"start":200000,"price":1.2}]}},"constraint":{"start_date":"2026-09-08"}},
     {"when":{"service_tier":"flex"},"prices":{"input_mtok":0.6}},
     {"when":{"service_tier":"default"},"prices":{"input_mtok":1}},
     {"when":{"route":"eu"},"prices":{"input_mtok":7}}]},
  {"id":"listener","prices":{"audio_hours":0.36}},
  {"id":"reader","prices":{"input_document_kpages":2}}]},
 {"id":"x-ai","models":[{"id":"g-1","prices":{"input_mtok":4}}]}]`

// A newer copy of the catalogue's own source says no less than the catalogue.
func TestGenAIVariants(t *testing.T) {
	c, rejected := loadAll(t, genaiList)
	if len(rejected) != 1 || !strings.Contains(rejected[0].String(), "openai m-5: variant map[route:eu]: calls do not tell whether it holds") {
		t.Fatalf("got %v, want the variant of a route named", rejected)
	}
	f := func(model, tier, start string, input uint64, want string) {
		t.Helper()
		q := query("openai", model, schema.Tokens{Input: input})
		q.Tier, q.Start = tier, at(start)
		cost(t, c, q, want)
	}
	f("m-5", "", "2026-09-04T12:00:00Z", 1_000_000, "2.005") // with the fee of a request
	f("m-5-chat", "", "2026-09-05T01:00:00Z", 100_000, "0.1")
	f("m-5", "", "2026-09-05T01:00:00Z", 1_000_000, "3")
	f("m-5", "", "2026-09-05T17:00:00Z", 100_000, "0.05")
	f("m-5", "batch", "2026-09-07T12:00:00Z", 100_000, "0.1")
	f("m-5", "batch", "2026-09-08T00:00:00Z", 100_000, "0.04")
	f("m-5", "batch", "2026-09-08T00:00:00Z", 1_000_000, "1.2")
	f("m-5", "flex", "2026-09-04T12:00:00Z", 100_000, "0.065")
	q := query("openai", "listener", schema.Tokens{})
	q.Units.Milliseconds = 90_000
	cost(t, c, q, "0.009")
	q = query("openai", "reader", schema.Tokens{})
	q.Units.Pages = 3
	cost(t, c, q, "0.006")
	cost(t, c, query("xai", "g-1", schema.Tokens{Input: 1_000_000}), "4")
}

// litellmList has a row of each shape that LiteLLM's list has.
const litellmList = `{
 "sample_spec": {"litellm_provider": "one of many"},
 "azure/m-4o-2024-08-06": {"litellm_provider": "azure", "mode": "chat", "input_cost_per_token": 2.5e-06},
 "azure/us/m-4o-2024-08-06": {"litellm_provider": "azure", "mode": "chat", "input_cost_per_token": 2.75e-06},
 "azure/eu/m-only-eu": {"litellm_provider": "azure", "mode": "chat", "input_cost_per_token": 9e-06},
 "anthropic.claude-i-v1": {"litellm_provider": "bedrock", "mode": "chat", "input_cost_per_token": 8e-07},
 "bedrock/ap-northeast-1/anthropic.claude-i-v1": {"litellm_provider": "bedrock", "mode": "chat", "input_cost_per_token": 2.23e-06},
 "bedrock/us-west-2/anthropic.claude-i-v1": {"litellm_provider": "bedrock", "mode": "chat", "input_cost_per_token": 1e-06},
 "bedrock/us-west-2/1-month-commitment/anthropic.claude-i-v1": {"litellm_provider": "bedrock", "mode": "chat", "cost_per_second": 0.011, "input_cost_per_second": 0.011},
 "together_ai/meta-llama/L-70B": {"litellm_provider": "together_ai", "mode": "chat", "input_cost_per_token": 1.04e-06},
 "fireworks_ai/accounts/fireworks/models/d-3": {"litellm_provider": "fireworks_ai", "mode": "chat", "input_cost_per_token": 9e-07},
 "vertex_ai/claude-h": {"litellm_provider": "vertex_ai-anthropic_models", "mode": "chat", "input_cost_per_token": 1e-06},
 "text-completion": {"litellm_provider": "text-completion-openai", "mode": "completion", "input_cost_per_token": 4e-07},
 "gemini/g-pro": {"litellm_provider": "gemini", "mode": "chat", "input_cost_per_token": 1e-06},
 "vertex_ai/g-pro": {"litellm_provider": "vertex_ai-language-models", "mode": "chat", "input_cost_per_token": 2e-06},
 "gemini/g-new": {"litellm_provider": "gemini", "mode": "chat", "input_cost_per_token": 4e-06},
 "vertex_ai/g-new": {"litellm_provider": "vertex_ai-language-models", "mode": "chat", "input_cost_per_token": 4e-06, "input_cost_per_token_batches": 2e-06},
 "g-flash": {"litellm_provider": "vertex_ai-language-models", "mode": "chat", "input_cost_per_token": 3e-07},
 "gemini/g-flash": {"litellm_provider": "gemini", "mode": "chat", "input_cost_per_token": 5e-07},
 "long": {"litellm_provider": "openai", "mode": "chat", "input_cost_per_token": 1e-06, "input_cost_per_token_above_128k_tokens": 2e-06, "input_cost_per_token_above_272k_tokens": 4e-06, "cache_creation_input_token_cost_above_1hr": 6e-06,
   "input_cost_per_token_batches": 5e-07, "input_cost_per_token_above_272k_tokens_batches": 2.5e-06, "input_cost_per_token_priority": 8e-06, "input_cost_per_token_flex": null, "search_context_cost_per_query": {"search_context_size_low": 0.01, "search_context_size_high": 0.01}},
 "ranges": {"litellm_provider": "dashscope", "mode": "chat", "tiered_pricing": [{"range": [0, 32000.0], "input_cost_per_token": 1e-06}, {"range": [32000.0, 128000.0], "input_cost_per_token": 1.8e-06}]},
 "thinker": {"litellm_provider": "perplexity", "mode": "chat", "input_cost_per_token": 2e-06, "output_cost_per_token": 8e-06, "output_cost_per_reasoning_token": 3e-06},
 "same": {"litellm_provider": "perplexity", "mode": "chat", "input_cost_per_token": 2e-06, "output_cost_per_token": 8e-06, "output_cost_per_reasoning_token": 8e-06},
 "night": {"litellm_provider": "deepseek", "mode": "chat", "input_cost_per_token": 2e-06, "off_peak_pricing": {"input_cost_per_token": 1e-06, "windows": [{"hours_utc": ["10:00-13:00", "20:00-00:00"], "weekdays": [4]}, {"hours_utc": "00:00-00:00", "weekdays": [6, 7]}]}},
 "painter": {"litellm_provider": "openai", "mode": "image_generation", "output_cost_per_image": 0.04},
 "sketcher": {"litellm_provider": "openai", "mode": "image_generation", "output_cost_per_image": 0.04, "output_cost_per_image_4K": 0.16},
 "high/1024-x-1024/drawer": {"litellm_provider": "openai", "mode": "image_generation", "input_cost_per_image": 0.133},
 "both": {"litellm_provider": "openai", "mode": "chat", "input_cost_per_token": 1e-06, "output_cost_per_image": 0.04, "output_cost_per_image_token": 3e-05},
 "whisper": {"litellm_provider": "openai", "mode": "audio_transcription", "input_cost_per_second": 0.0001, "output_cost_per_second": 0.0},
 "rerank": {"litellm_provider": "cohere", "mode": "rerank", "input_cost_per_query": 0.002, "input_cost_per_token": 0.0, "output_cost_per_token": 0.0},
 "search": {"litellm_provider": "searxng", "mode": "search", "input_cost_per_query": 0.0},
 "ocr": {"litellm_provider": "mistral", "mode": "ocr", "ocr_cost_per_page": 0.004, "ocr_cost_per_page_batches": 0.002},
 "pixels": {"litellm_provider": "openai", "mode": "image_generation", "input_cost_per_pixel": 4e-08, "output_cost_per_token": 0.0},
 "tiny": {"litellm_provider": "openai", "mode": "chat", "input_cost_per_token": 1e-19},
 "huge": {"litellm_provider": "openai", "mode": "chat", "input_cost_per_token": 1e999999},
 "huge-hex": {"litellm_provider": "openai", "mode": "chat", "input_cost_per_token": "0x1p999999999"},
 "no-price": {"litellm_provider": "openai", "mode": "chat"},
 "free": {"litellm_provider": "openai", "mode": "chat", "input_cost_per_token": 0.0, "output_cost_per_token": 0}
}`

func TestLiteLLM(t *testing.T) {
	c, rejected := loadAll(t, litellmList)
	got := map[string]string{}
	for _, r := range rejected {
		got[r.Row] = r.Reason
	}
	for row, reason := range map[string]string{
		"bedrock/us-west-2/1-month-commitment/anthropic.claude-i-v1": "calls do not tell what it is priced by: cost_per_second, input_cost_per_second",
		"thinker":  "output_cost_per_reasoning_token differs from output_cost_per_token",
		"sketcher": "calls do not tell what it is priced by: output_cost_per_image, output_cost_per_image_4K",
		"pixels":   "calls do not tell what it is priced by: input_cost_per_pixel",
		"tiny":     "too small for 12 decimals",
		"huge":     "want a number",
		"huge-hex": "want a number",
	} {
		if !strings.Contains(got[row], reason) {
			t.Errorf("%s: got %q, want a rejection with %q", row, got[row], reason)
		}
		delete(got, row)
	}
	if len(got) > 0 {
		t.Errorf("more rejections: %v", got)
	}
	f := func(provider, model string, input uint64, tier, want string) {
		t.Helper()
		q := query(provider, model, schema.Tokens{Input: input})
		q.Tier = tier
		cost(t, c, q, want)
	}
	// A region's price is for calls that name the region, by a path or an ARN.
	f("azure", "m-4o-2024-08-06", 1_000_000, "", "2.5")
	f("azure", "azure/us/m-4o-2024-08-06", 1_000_000, "", "2.75")
	f("azure", "us/m-4o-2024-08-06", 1_000_000, "", "2.75")
	f("azure", "m-only-eu", 1_000_000, "", "NULL")
	f("bedrock", "anthropic.claude-i-v1", 1_000_000, "", "0.8")
	f("bedrock", "arn:aws:bedrock:ap-northeast-1::foundation-model/anthropic.claude-i-v1", 1_000_000, "", "2.23")
	f("bedrock", "arn:aws:bedrock:eu-west-1::foundation-model/anthropic.claude-i-v1", 1_000_000, "", "0.8")
	// Rows are found under the providers that calls have.
	f("together", "meta-llama/l-70b", 1_000_000, "", "1.04")
	f("together", "l-70b", 1_000_000, "", "1.04")
	f("fireworks", "accounts/fireworks/models/d-3", 1_000_000, "", "0.9")
	f("google", "claude-h", 1_000_000, "", "1")
	f("openai", "text-completion", 1_000_000, "", "0.4")
	// A name is a row's own, else that of the one that says more, or nobody's where two contradict each other.
	f("google", "g-new", 1_000_000, "batch", "2")
	f("google", "g-flash", 1_000_000, "", "0.3")
	f("google", "gemini/g-flash", 1_000_000, "", "0.5")
	f("google", "g-pro", 1_000_000, "", "NULL")
	f("google", "vertex_ai/g-pro", 1_000_000, "", "2")
	// Sizes of the input, tiers, and both.
	f("openai", "long", 128_000, "", "0.128")
	f("openai", "long", 200_000, "", "0.4")
	f("openai", "long", 1_000_000, "", "4")
	f("openai", "long", 100_000, "batch", "0.05")
	f("openai", "long", 200_000, "batch", "0.4") // no batch price for that size
	f("openai", "long", 1_000_000, "batch", "2.5")
	f("openai", "long", 100_000, "priority", "0.8")
	f("alibaba", "ranges", 32_000, "", "0.032")
	f("alibaba", "ranges", 100_000, "", "0.18")
	f("perplexity", "same", 1_000_000, "", "2")
	f("perplexity", "thinker", 1_000_000, "", "NULL")
	f("openai", "free", 1_000_000, "", "0")
	for start, want := range map[string]string{"2026-09-10T12:00:00Z": "1", "2026-09-10T13:00:00Z": "2", "2026-09-10T23:59:59Z": "1", "2026-09-11T12:00:00Z": "2", "2026-09-12T13:00:00Z": "1"} {
		q := query("deepseek", "night", schema.Tokens{Input: 1_000_000})
		q.Start = at(start)
		cost(t, c, q, want)
	}
	// Pieces.
	piece := func(provider, model, tier string, u schema.Units, want string) {
		t.Helper()
		q := query(provider, model, schema.Tokens{})
		q.Units, q.Tier = &u, tier
		cost(t, c, q, want)
	}
	piece("openai", "painter", "", schema.Units{Images: 2}, "0.08")
	piece("openai", "high/1024-x-1024/drawer", "", schema.Units{Images: 1}, "0.133")
	piece("openai", "drawer", "", schema.Units{Images: 1}, "NULL")
	piece("openai", "both", "", schema.Units{Images: 1}, "NULL") // priced by its tokens
	piece("openai", "whisper", "", schema.Units{Milliseconds: 90_500}, "0.00905")
	piece("cohere", "rerank", "", schema.Units{}, "0.002")
	piece("searxng", "search", "", schema.Units{}, "0")
	piece("mistral", "ocr", "", schema.Units{Pages: 3}, "0.012")
	piece("mistral", "ocr", "batch", schema.Units{Pages: 3}, "0.006")
	q := query("openai", "long", schema.Tokens{Input: 100_000})
	q.Units.WebSearches = 2
	cost(t, c, q, "0.12")
}

// A public list that lacks a tier does not hide that of the list below it; own lines do.
func TestListWithoutTheTier(t *testing.T) {
	list := filepath.Join(t.TempDir(), "list.json")
	if err := os.WriteFile(list, []byte(`{"gpt-4.1": {"litellm_provider": "openai", "mode": "chat", "input_cost_per_token": 3e-06}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	f := func(own *File, tier, want string, flagged bool) {
		t.Helper()
		c, rejected, err := Load(Options{Files: []string{list}, Own: own})
		if err != nil || len(rejected) > 0 {
			t.Fatal(err, rejected)
		}
		q := query("openai", "gpt-4.1", schema.Tokens{Input: 1_000_000})
		q.Tier, q.Start = tier, at("2026-11-01T00:00:00Z")
		if r := cost(t, c, q, want); r.Flags&schema.FlagTierUnknown != 0 != flagged {
			t.Errorf("%s: flags are %v", tier, r.Flags.Names())
		}
	}
	f(nil, "", "3", false)
	f(nil, "batch", "1", false)
	f(nil, "warp", "3", true)
	f(&File{Prices: []Row{{Provider: "openai", Models: []string{"gpt-4.1"}, PerMillion: map[string]string{"input": "5"}}}}, "batch", "5", true)
}

package price

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/flyball/flyball/schema"
)

// load builds a catalogue from own YAML alone and fails on rejected rows.
func load(t testing.TB, yaml string) *Catalogue {
	t.Helper()
	c, rejected := loadAll(t, yaml)
	if len(rejected) > 0 {
		t.Fatalf("rejected: %v", rejected)
	}
	return c
}

func loadAll(t testing.TB, files ...string) (*Catalogue, []Rejection) {
	t.Helper()
	o := Options{NoEmbedded: true}
	for i, text := range files {
		path := filepath.Join(t.TempDir(), strings.Repeat("p", i+1)+".yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		o.Files = append(o.Files, path)
	}
	c, rejected, err := Load(o)
	if err != nil {
		t.Fatal(err)
	}
	return c, rejected
}

func at(s string) int64 {
	v, err := time.Parse(time.RFC3339, s)
	if err != nil {
		panic(err)
	}
	return v.UnixNano()
}

// query is a model call of known usage in September 2026.
func query(provider, model string, tok schema.Tokens) *Query {
	return &Query{Tenant: "t-1", Provider: provider, Model: model, Start: at("2026-09-10T12:00:00Z"), Kind: schema.KindModel, Usage: schema.UsageKnown, Tokens: &tok, Units: &schema.Units{}}
}

func cost(t *testing.T, c *Catalogue, q *Query, want string) Result {
	t.Helper()
	r := c.Price(q)
	got := "NULL"
	if r.Status == schema.CostPriced || r.Status == schema.CostFree || r.Status == schema.CostNone {
		got = r.Cost.String()
	}
	if got != want {
		t.Fatalf("%s/%s: got %s (%s), want %s", q.Provider, q.Model, got, r.Status, want)
	}
	return r
}

const basic = `
prices:
  - {provider: "*", models: [cached], per_million: {input: "0.50", cache_read: "0.05", output: "3.00"}}
  - {provider: "*", models: [no-cache-rate], per_million: {input: "2", output: "8"}}
  - {provider: "*", models: [writes], per_million: {input: "5", cache_write_5m: "6.25", cache_write_1h: "10", output: "25"}}
  - {provider: "*", models: [thinker], per_million: {input: "30", output: "180"}}
  - {provider: "*", models: [long], per_million: {input: "2", output: "12"}, above_input_tokens: [{over: 200000, per_million: {input: "4", output: "18"}}]}
  - {provider: "*", models: [tiered], per_million: {input: "1.25", output: "10"}, service_tiers: {flex: {per_million: {input: "0.625", output: "5"}}, priority: {per_million: {input: "2.5", output: "20"}}}}
  - {provider: "*", models: [audio], per_million: {input: "4", input_audio: "32", output: "16", output_audio: "64"}}
  - {provider: "*", models: [embed], per_million: {input: "0.02"}}
  - {provider: "*", models: [painter], per_unit: {image: "0.04"}}
  - {provider: "*", models: [model-free], per_million: {input: "0", output: "0"}}
  - {provider: "*", models: [searcher], per_million: {input: "3", output: "15"}, per_unit: {web_search: "0.01"}}
tenants:
  t-2: {prices: [{provider: "*", models: [painter], per_unit: {image: "0.08"}}]}
  t-3: {discount: "0.10"}
`

func TestComponents(t *testing.T) {
	c := load(t, basic)
	// Cached tokens are priced once, at the cache rate.
	cost(t, c, query("openai", "cached", schema.Tokens{Input: 4000, CacheRead: 16000, Output: 900}), "0.0055")
	// A missing cache price falls back to the input price and says so.
	r := cost(t, c, query("openai", "no-cache-rate", schema.Tokens{Input: 2000, CacheRead: 8000, Output: 100}), "0.0208")
	if r.Flags&schema.FlagCacheRateMissing == 0 {
		t.Fatal("the fallback to the input rate is not flagged")
	}
	cost(t, c, query("anthropic", "writes", schema.Tokens{CacheWrite5m: 100_000, CacheWrite1h: 300_000}), "3.625")
	// Reasoning is inside the output and never on top.
	cost(t, c, query("openai", "thinker", schema.Tokens{Input: 15000, Output: 2000, Reasoning: 1400}), "0.81")
	// A cliff moves the whole call, output too; it is about one call, never a sum of calls.
	cost(t, c, query("google", "long", schema.Tokens{Input: 250_000, Output: 2000}), "1.036")
	cost(t, c, query("google", "long", schema.Tokens{Input: 200_000}), "0.4")
	cost(t, c, query("google", "long", schema.Tokens{Input: 1, CacheRead: 200_000}), "0.800004")
	cost(t, c, query("google", "long", schema.Tokens{Input: 90_000}), "0.18")
	// Modalities are disjoint.
	cost(t, c, query("openai", "audio", schema.Tokens{Input: 200, InputAudio: 800, Output: 100, OutputAudio: 400}), "0.0536")
	// An output price is not needed where there is no output.
	cost(t, c, query("openai", "embed", schema.Tokens{Input: 1_000_000}), "0.02")
	cost(t, c, query("openai", "embed", schema.Tokens{Input: 12}), "0.00000024")
	cost(t, c, query("openai", "embed", schema.Tokens{Input: 12, Output: 1}), "NULL")
	// Nothing of a call that this line has a price for is not a price of nothing.
	cost(t, c, query("openai", "embed", schema.Tokens{}), "NULL")
	q := query("openai", "painter", schema.Tokens{})
	q.Units.Images = 3
	cost(t, c, q, "0.12")
	q.Tenant = "t-2"
	cost(t, c, q, "0.24")
	q = query("anthropic", "searcher", schema.Tokens{Input: 9500, Output: 528})
	q.Units.WebSearches = 2
	cost(t, c, q, "0.05642")
	q.Tenant = "t-3"
	cost(t, c, q, "0.050778")
	q = query("anthropic", "thinker", schema.Tokens{Input: 9500, Output: 528})
	q.Units.WebSearches = 2
	if r := c.Price(q); r.Flags&schema.FlagUnitsUnpriced == 0 {
		t.Fatal("searches without a price are not flagged")
	}
}

func TestServedTierDecides(t *testing.T) {
	c := load(t, basic)
	f := func(tier, want string) Result {
		t.Helper()
		q := query("openai", "tiered", schema.Tokens{Input: 10_000, Output: 1000})
		q.Tier = tier
		return cost(t, c, q, want)
	}
	f("default", "0.0225")
	f("flex", "0.01125")
	f("priority", "0.045")
	if r := f("warp", "0.0225"); r.Flags&schema.FlagTierUnknown == 0 {
		t.Fatal("an unknown tier is not flagged")
	}
}

func TestUnknownFreeAndUnpricedAreThreeThings(t *testing.T) {
	c := load(t, basic)
	if r := cost(t, c, query("x", "model-free", schema.Tokens{Input: 1000, Output: 1000}), "0"); r.Status != schema.CostFree {
		t.Fatalf("got %s, want free", r.Status)
	}
	r := cost(t, c, query("x", "model-new", schema.Tokens{Input: 1000, Output: 1000}), "NULL")
	if r.Status != schema.CostUnpriced {
		t.Fatalf("got %s, want unpriced", r.Status)
	}
	if r.Exposure.String() != "0.21" { // the dearest listed model: 30 and 180 per million
		t.Fatalf("exposure of an unpriced call: got %s, want 0.21", r.Exposure)
	}
	q := query("x", "cached", schema.Tokens{})
	q.Usage = schema.UsageUnknown
	if r := c.Price(q); r.Status != schema.CostUnknown || r.Exposure.String() != "0.007" {
		t.Fatalf("unknown usage: got %s with exposure %s, want unknown with 0.007 (8,000 in, 1,000 out)", r.Status, r.Exposure)
	}
	q.Usage = schema.UsageNone
	if r := c.Price(q); r.Status != schema.CostNone || r.Exposure != 0 {
		t.Fatalf("nothing billable: got %s", r.Status)
	}
}

// Where the model that answered has no price, the one asked for stands in, and the call says so.
func TestPricedByTheModelAskedFor(t *testing.T) {
	c := load(t, `prices: [{provider: openai, models: [m-5], per_million: {input: "1.25"}}]`)
	f := func(answered string, want bool) {
		t.Helper()
		q := query("openai", answered, schema.Tokens{Input: 1_000_000})
		q.Requested = "m-5"
		if r := cost(t, c, q, "1.25"); r.Flags&schema.FlagModelFamily != 0 != want {
			t.Errorf("%s: flags are %v", answered, r.Flags.Names())
		}
	}
	f("m-5", false)
	f("m-5-2026-01-15", false)
	f("", false)
	f("m-5-0613-preview", true)
}

// A price file may spell names with capitals; calls never do.
func TestNamesWithCapitals(t *testing.T) {
	c := load(t, `
prices:
  - {provider: OpenAI, models: [M-5], per_million: {input: "1.25"}, service_tiers: {Flex: {per_million: {input: "0.625"}}}}
aliases:
  - {provider: Azure, model: Prod-1, is: {provider: OpenAI, model: M-5}}
`)
	cost(t, c, query("openai", "m-5", schema.Tokens{Input: 1_000_000}), "1.25")
	cost(t, c, query("azure", "prod-1", schema.Tokens{Input: 1_000_000}), "1.25")
	q := query("openai", "m-5", schema.Tokens{Input: 1_000_000})
	q.Tier = "flex"
	cost(t, c, q, "0.625")
}

func TestOnlyWholeNamesMatch(t *testing.T) {
	c := load(t, `
prices:
  - {provider: openai, models: [m-5], per_million: {input: "1.25", output: "10"}}
  - {provider: openai, models: [m-5-mini], per_million: {input: "0.25", output: "2"}}
  - {provider: openai, models: [o-3], per_million: {input: "2", output: "8"}}
  - {provider: openai, models: ["ft:m-5"], per_million: {input: "3", output: "12"}}
`)
	f := func(model, want string) {
		t.Helper()
		cost(t, c, query("openai", model, schema.Tokens{Input: 1_000_000}), want)
	}
	for _, m := range []string{"m-5", "M-5", "m-5-2026-01-15", "m-5-20260115", "m-5@20260115", "m-5[1m]", "openai/m-5", "openrouter/openai/m-5", "openrouter/openai/m-5:beta", "m-5@default", "openai:m-5", "openai-responses:m-5", "gateway/openai:m-5-2026-01-15"} {
		f(m, "1.25")
	}
	f("m-5-mini-2026-01-15", "0.25")
	f("ft:m-5:acme::9xy", "3")
	for _, m := range []string{"m-5.4", "m-5.4-mini", "m-5-pro-2026-01-15", "m-5-99-99", "m-5-2026-13-01", "m-5-audio-preview-2026-01-15", "o-3-pro", "m-50", "m-5:free", "ft:o-3:acme::9xy", "m-", "acme:m-5", "m-5:7b", "m-5-latest"} {
		f(m, "NULL")
	}
}

func TestBedrockProfiles(t *testing.T) {
	c := load(t, `
prices:
  - {provider: bedrock, models: [global.claude-x-4-5], per_million: {input: "2.00", output: "6.00"}}
  - {provider: bedrock, models: [regional.claude-x-4-5], per_million: {input: "2.20", output: "6.60"}}
aliases:
  - {provider: bedrock, model: "arn:aws:bedrock:eu-west-1:000000000000:application-inference-profile/mapped", is: {provider: bedrock, model: global.claude-x-4-5}}
`)
	f := func(model, want string) {
		t.Helper()
		cost(t, c, query("bedrock", model, schema.Tokens{Input: 100_000, Output: 10_000}), want)
		if got := Canonical("bedrock", model); want != "NULL" && !strings.Contains(model, "application") && got != "claude-x-4-5" {
			t.Fatalf("canonical name of %s: got %s", model, got)
		}
	}
	f("anthropic.claude-x-4-5-20250929-v1:0", "0.286")
	f("eu.anthropic.claude-x-4-5-20250929-v1:0", "0.286")
	f("us.anthropic.claude-x-4-5-20250929-v1:0", "0.286")
	f("apac.anthropic.claude-x-4-5-20250929-v1:0", "0.286")
	f("global.anthropic.claude-x-4-5-20250929-v1:0", "0.26")
	f("bedrock/eu.anthropic.claude-x-4-5-20250929-v1:0", "0.286")
	f("arn:aws:bedrock:eu-west-1:000000000000:inference-profile/eu.anthropic.claude-x-4-5-20250929-v1:0", "0.286")
	f("bedrock:us.anthropic.claude-x-4-5-20250929-v1:0", "0.286")
	f("anthropic.claude-x-4-5-20250929-v2:0", "0.286") // the date says which it is
	f("anthropic.claude-x-4-5-v1", "0.286")
	f("arn:aws:bedrock:eu-west-1:000000000000:application-inference-profile/abc123def", "NULL")
	for _, m := range []string{"anthropic.claude-x-4-5-v2", "anthropic.claude-x-4-5-v2:0", "us.anthropic.claude-x-4-5-v12:0"} { // other models
		cost(t, c, query("bedrock", m, schema.Tokens{Input: 100_000, Output: 10_000}), "NULL")
	}
	f("arn:aws:bedrock:eu-west-1:000000000000:application-inference-profile/mapped", "0.26")
}

// A bill's name of a model and ours meet in one, whatever the spelling.
func TestNameOf(t *testing.T) {
	c := load(t, `
prices:
  - {provider: bedrock, models: [regional.claude-x-4-5], per_million: {input: "2.20", output: "6.60"}}
  - {provider: openai, models: [m-5], per_million: {input: "1"}}
aliases:
  - {tenant: t-1, provider: azure, model: prod-chat, is: {provider: openai, model: m-5}}
`)
	f := func(tenant, provider, model, want string, listed bool) {
		t.Helper()
		if got, ok := c.NameOf(tenant, provider, model); got != want || ok != listed {
			t.Errorf("%s %s: got %q %v, want %q %v", provider, model, got, ok, want, listed)
		}
	}
	f("", "openai", "M-5-2026-01-15", "m-5", true)
	f("", "openai", "openai/m-5", "m-5", true)
	f("t-1", "azure", "prod-chat", "m-5", true)
	f("t-2", "azure", "prod-chat", "prod-chat", false)
	for _, name := range []string{"claude-x-4-5", "us.anthropic.claude-x-4-5-20250929-v1:0", "anthropic.claude-x-4-5", "regional.claude-x-4-5"} {
		f("", "bedrock", name, "claude-x-4-5", true)
	}
	f("", "openai", "web search tool calls", "web search tool calls", false)
	f("", "openai", "", "", false)
}

func TestDeploymentAliases(t *testing.T) {
	c := load(t, `
prices:
  - {provider: azure, models: [fam], per_million: {input: "30", output: "60"}}
  - {provider: azure, models: [fam-turbo], per_million: {input: "10", output: "30"}}
aliases:
  - {tenant: t-1, provider: azure, model: prod-chat-1, is: {provider: azure, model: fam-turbo}}
`)
	q := query("azure", "fam", schema.Tokens{Input: 9000, Output: 1000})
	q.Requested = "prod-chat-1"
	cost(t, c, q, "0.12")
	q.Tenant = "t-9"
	if r := cost(t, c, q, "0.33"); r.Flags&schema.FlagModelFamily == 0 {
		t.Fatal("a deployment priced by its family name is not flagged")
	}
}

func TestPriceOfTheStart(t *testing.T) {
	c := load(t, `
prices:
  - {provider: p, models: [m], to: 2026-08-16T16:00:00Z, per_million: {input: "0.14"}}
  - {provider: p, models: [m], from: 2026-08-16T16:00:00Z, per_million: {input: "0.22"}}
  - {provider: p, models: [banded], per_million: {input: "1"}, time_bands: [{days: [mon, tue, wed, thu, fri], from: "23:00", to: "04:00", per_million: {input: "0.44"}}]}
`)
	f := func(model, start, want string) {
		t.Helper()
		q := query("p", model, schema.Tokens{Input: 1_000_000})
		q.Start = at(start)
		cost(t, c, q, want)
	}
	f("m", "2026-08-16T15:59:59.5Z", "0.14")
	f("m", "2026-08-16T16:00:00Z", "0.22")
	f("m", "2026-08-10T09:00:00Z", "0.14")
	f("m", "2026-08-16T23:30:00+08:00", "0.14")
	f("banded", "2026-09-07T23:00:00Z", "0.44") // Monday night
	f("banded", "2026-09-08T03:59:59Z", "0.44")
	f("banded", "2026-09-08T04:00:00Z", "1")
	f("banded", "2026-09-05T03:00:00Z", "0.44") // Saturday, still Friday's band
	f("banded", "2026-09-06T23:30:00Z", "1")    // Sunday
}

func TestResellersHaveTheirOwnPrices(t *testing.T) {
	c := load(t, `
fallback: {azure: [openai]}
prices:
  - {provider: openai, models: [luna, only-openai], per_million: {input: "0.20", output: "1.20"}}
  - {provider: azure, models: [luna], per_million: {input: "1.00", output: "6.00"}}
`)
	tok := schema.Tokens{Input: 100_000, Output: 10_000}
	cost(t, c, query("azure", "luna", tok), "0.16")
	cost(t, c, query("openai", "luna", tok), "0.032")
	if r := cost(t, c, query("azure", "only-openai", tok), "0.032"); r.Flags&schema.FlagProviderFallback == 0 {
		t.Fatal("a price borrowed from the provider behind the reseller is not flagged")
	}
}

func TestCurrencies(t *testing.T) {
	c, rejected := loadAll(t, `
prices:
  - {provider: p, models: [model-cny], currency: CNY, per_million: {input: "2", output: "8"}}
  - {provider: p, models: [model-eur], currency: EUR, per_million: {input: "2"}}
fx:
  - {from: CNY, to: USD, rate: "0.14", as_of: 2026-09-01}
  - {from: CNY, to: USD, rate: "0.5", as_of: 2026-10-01}
`)
	if len(rejected) != 1 || !strings.Contains(rejected[0].String(), "add fx: [{from: EUR") {
		t.Fatalf("got %v, want the line without a rate named, with what to add", rejected)
	}
	r := cost(t, c, query("p", "model-cny", schema.Tokens{Input: 100_000, Output: 10_000}), "0.0392")
	if r.Amount.String() != "0.28" || r.Currency != "CNY" {
		t.Fatalf("original amount: got %s %s, want 0.28 CNY", r.Amount, r.Currency)
	}
	cost(t, c, query("p", "model-eur", schema.Tokens{Input: 1}), "NULL") // no rate is no guess
}

// What looks like another unit depends on what the currency is worth.
func TestSmallCurrencies(t *testing.T) {
	const fx = `
fx:
  - {from: JPY, to: USD, rate: "0.0067", as_of: 2026-09-01}
  - {from: KRW, to: USD, rate: "0.00072", as_of: 2026-09-01}
`
	c, rejected := loadAll(t, `
prices:
  - {provider: p, models: [jpy], currency: JPY, per_million: {input: "1500", output: "6000"}, per_unit: {image: "60"}}
  - {provider: p, models: [krw], currency: KRW, per_million: {input: "14000"}}
  - {provider: p, models: [absurd], currency: JPY, per_million: {input: "1500000"}}
`, fx) // a later file may bring the rates
	if len(rejected) != 1 || !strings.Contains(rejected[0].String(), "absurd): per_million.input: 1500000 is over 149253.7313") {
		t.Fatalf("got %v, want the absurd line named", rejected)
	}
	cost(t, c, query("p", "jpy", schema.Tokens{Input: 1_000_000, Output: 1_000_000}), "50.25")
	cost(t, c, query("p", "krw", schema.Tokens{Input: 1_000_000}), "10.08")
	q := query("p", "jpy", schema.Tokens{})
	q.Units.Images = 2
	cost(t, c, q, "0.804")
}

// A later file also takes back what an earlier one said.
func TestLaterFilesWin(t *testing.T) {
	c, rejected := loadAll(t, `
prices: [{provider: openai, models: [m-5], per_million: {input: "10"}}, {provider: p, models: [cny], currency: CNY, per_million: {input: "10"}}]
tenants: {t-1: {discount: "0.10"}, t-2: {discount: "0.20"}}
fx: [{from: CNY, to: USD, rate: "0.14", as_of: 2026-09-01}]
`, `
tenants: {t-1: {discount: "0"}}
fx: [{from: CNY, to: USD, rate: "0.15", as_of: 2026-09-01}, {from: CNY, to: USD, rate: "0.10", as_of: 2026-08-01}]
`)
	if len(rejected) > 0 {
		t.Fatal(rejected)
	}
	q := query("openai", "m-5", schema.Tokens{Input: 1_000_000})
	cost(t, c, q, "10")
	q.Tenant = "t-2"
	cost(t, c, q, "8")
	q = query("p", "cny", schema.Tokens{Input: 1_000_000})
	cost(t, c, q, "1.5")
	q.Start = at("2026-08-10T00:00:00Z")
	cost(t, c, q, "1")
}

// Lines and aliases meet calls under whatever name somebody gave the provider.
func TestProvidersBySpelling(t *testing.T) {
	c, rejected := loadAll(t, `
prices:
  - {provider: x_ai, models: [m-5], per_million: {input: "1"}}
  - {provider: azure_openai, models: [m-6], per_million: {input: "2"}}
  - {provider: langchain, models: [m-7], per_million: {input: "3"}}
  - {provider: house-gateway, models: [m-8], per_million: {input: "4"}}
aliases:
  - {provider: azure.ai.openai, model: prod-chat-2, is: {provider: Azure OpenAI, model: m-6}}
  - {provider: litellm, model: prod-chat-3, is: {model: m-6}}
`)
	if len(rejected) != 2 || !strings.Contains(rejected[0].String(), `(langchain m-7): provider "langchain" is a framework`) || !strings.Contains(rejected[1].String(), `alias 2: provider "litellm"`) {
		t.Fatalf("got %v, want the two frameworks named", rejected)
	}
	f := func(provider, model, want string) {
		t.Helper()
		cost(t, c, query(provider, model, schema.Tokens{Input: 1_000_000}), want)
	}
	f("xai", "m-5", "1")
	f("azure", "m-6", "2")
	f("azure", "prod-chat-2", "2")
	f("house-gateway", "m-8", "4")
}

// The name as sent comes first: a pattern for it is nearer than an exact line for what
// is left without the date, and a pattern that takes in both is not.
func TestPatternOfTheNameAsSent(t *testing.T) {
	c := load(t, `
prices:
  - {provider: openai, models: [m-4o], per_million: {input: "2.5"}}
  - {provider: openai, models: ["m-4o-2024-05-*"], per_million: {input: "5"}}
  - {provider: openai, models: ["m-4o-*"], per_million: {input: "6"}}
  - {provider: openai, models: [m-4o-2024-05-14], per_million: {input: "7"}}
  - {provider: openai, models: ["m-*"], per_million: {input: "8"}}
  - {provider: openai, models: ["*"], per_million: {input: "9"}}
  - {provider: google, models: [m-4o], per_million: {input: "2.5"}}
  - {provider: google, models: ["m-*"], per_million: {input: "8"}}
`)
	f := func(provider, model, want string) {
		t.Helper()
		cost(t, c, query(provider, model, schema.Tokens{Input: 1_000_000}), want)
	}
	f("openai", "m-4o-2024-05-13", "5")
	f("openai", "openai/m-4o-2024-05-13", "5")
	f("openai", "m-4o-2024-05-14", "7")
	f("openai", "m-4o-2024-08-06", "6")
	f("openai", "m-4o", "2.5")
	f("openai", "m-5-2024-08-06", "8")
	f("openai", "x", "9")
	f("google", "m-4o-2024-05-13", "2.5")
	f("google", "google/m-4o", "2.5")
}

func TestPrecedence(t *testing.T) {
	c, rejected := loadAll(t, `
prices:
  - {provider: "*", models: [m-5], per_million: {input: "9"}}
  - {provider: openai, models: ["m-*"], per_million: {input: "1"}}
  - {provider: openai, models: ["m-5-*"], per_million: {input: "2"}}
  - {provider: openai, models: [m-6], per_million: {input: "3"}}
`, `
prices:
  - {provider: openai, models: [m-6], per_million: {input: "4"}}
`)
	if len(rejected) > 0 {
		t.Fatal(rejected)
	}
	f := func(provider, model, want string) {
		t.Helper()
		cost(t, c, query(provider, model, schema.Tokens{Input: 1_000_000}), want)
	}
	f("openai", "m-5", "1")      // a named provider's glob beats "*"
	f("openai", "m-5-nano", "2") // the longest glob
	f("other", "m-5", "9")
	f("openai", "m-6", "4") // later files win
}

func TestUntrustworthyRowsAreNamed(t *testing.T) {
	f := func(row, reason string) {
		t.Helper()
		c, rejected := loadAll(t, "prices:\n  - "+row+"\n  - {provider: p, models: [good], per_million: {input: \"1\"}}\n")
		if len(rejected) != 1 || !strings.Contains(rejected[0].Reason, reason) {
			t.Fatalf("%s: got %v, want a rejection with %q", row, rejected, reason)
		}
		cost(t, c, query("p", "good", schema.Tokens{Input: 1_000_000}), "1")
	}
	f(`{provider: p, models: [auto], per_million: {input: "-1000000"}}`, "at least 0")
	f(`{provider: p, models: [m], per_million: {input: "NaN"}}`, "at least 0")
	f(`{provider: p, models: [m], per_million: {input: "1e3"}}`, "at least 0")
	f(`{provider: p, models: [m], per_million: {input: "2500"}}`, "another unit")
	f(`{provider: p, models: [m], per_million: {inputs: "1"}}`, "no such component")
	f(`{provider: p, models: [m]}`, "no price")
	f(`{provider: p, models: [], per_million: {input: "1"}}`, "models is empty")
	f(`{provider: p, models: [m], currency: dollars, per_million: {input: "1"}}`, "ISO 4217")
	f(`{provider: p, models: [m], from: tomorrow, per_million: {input: "1"}}`, "RFC 3339")
	f(`{provider: p, models: [m], per_million: {input: "1"}, service_tiers: {bacth: {per_million: {input: "0.5"}}}}`, "service_tiers.bacth: no such tier; want one of balanced, batch,")
	f(`{provider: p, models: [m], per_million: {input: "1"}, service_tiers: {Default: {per_million: {input: "0.5"}}}}`, "standard tier")
	f(`{provider: p, models: [m], from: 2026-02-01, to: 2026-01-01, per_million: {input: "1"}}`, "not after")
	// Numbers that would be written out in a billion digits are refused before they are.
	if _, rejected := loadAll(t, `
tenants: {t-1: {discount: "1e-999999999"}}
fx: [{from: CNY, to: USD, rate: "1e999999999", as_of: 2026-09-01}]
`); len(rejected) != 2 {
		t.Fatalf("got %v, want the discount and the rate named", rejected)
	}
	path := filepath.Join(t.TempDir(), "bad.yaml")
	if err := os.WriteFile(path, []byte("prices:\n  - provider: p\n    model: m\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Load(Options{NoEmbedded: true, Files: []string{path}}); err == nil || !strings.Contains(err.Error(), "3:5") {
		t.Fatalf("an unknown key must be an error with its line: %v", err)
	}
}

// The same price in the units of three public lists gives the same figure.
func TestForeignLists(t *testing.T) {
	c, rejected := loadAll(t, `[{"id":"openai","models":[
 {"id":"per-1m","match":{"equals":"per-1m"},"prices":{"input_mtok":2.50,"output_mtok":{"base":10,"tiers":[{"start":200000,"price":15}]}}},
 {"id":"auto","match":{"equals":"auto"},"prices":{"input_mtok":-1000000}},
 {"id":"dated","match":{"or":[{"equals":"dated"}]},"prices":[{"prices":{"input_mtok":1}},{"constraint":{"start_date":"2026-09-10"},"prices":{"input_mtok":2}}]}]}]`,
		`{"sample_spec":{},"per-token":{"litellm_provider":"openai","input_cost_per_token":0.0000025,"output_cost_per_token":1e-05,"input_cost_per_token_above_200k_tokens":5e-06},"openrouter/auto":{"litellm_provider":"openrouter","input_cost_per_token":-1}}`)
	if len(rejected) != 2 {
		t.Fatalf("got %v, want the two sentinels named", rejected)
	}
	cost(t, c, query("openai", "per-1m", schema.Tokens{Input: 1_000_000}), "2.5")
	cost(t, c, query("openai", "per-token", schema.Tokens{Input: 100_000}), "0.25")
	cost(t, c, query("openai", "per-token", schema.Tokens{Input: 1_000_000}), "5")
	cost(t, c, query("openai", "dated", schema.Tokens{Input: 1_000_000}), "2")
	cost(t, c, query("openai", "auto", schema.Tokens{Input: 2789}), "NULL")
}

func TestEmbeddedCatalogue(t *testing.T) {
	c, rejected, err := Load(Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range c.List("") {
		if !strings.HasPrefix(l.ID, l.Source+":"+schema.Provider(l.Provider)+"/") {
			t.Errorf("%s: calls never have the provider %s", l.ID, l.Provider)
		}
	}
	if len(rejected) > 0 {
		t.Fatalf("%d rows of the embedded catalogue are rejected, first: %v", len(rejected), rejected[0])
	}
	f := func(provider, model, want string) {
		t.Helper()
		cost(t, c, query(provider, model, schema.Tokens{Input: 1_000_000}), want)
	}
	f("openai", "gpt-5-2025-08-07", "1.25")
	f("anthropic", "claude-sonnet-4-5-20250929", "6") // over 200,000 tokens
	f("bedrock", "us.anthropic.claude-sonnet-4-5-20250929-v1:0", "3.3")
	f("openai", "text-embedding-3-small", "0.02")
	f("openai", "gpt-99", "NULL")
}

func TestRoundingIsHalfEvenOnce(t *testing.T) {
	f := func(n, rate uint64, want schema.Money) {
		t.Helper()
		if got, ok := component(n, rate, tokensPerPrice); !ok || got != want {
			t.Fatalf("%d × %d: got %d, want %d", n, rate, got, want)
		}
	}
	f(1, 500_000, 0)   // 0.5 pico
	f(1, 1_500_000, 2) // 1.5
	f(1, 2_500_000, 2)
	f(1, 2_500_001, 3)
	if _, ok := component(1<<62, 1<<62, tokensPerPrice); ok {
		t.Fatal("an overflow passed")
	}
}

func TestExplainAddsUp(t *testing.T) {
	c := load(t, basic)
	q := query("openai", "cached", schema.Tokens{Input: 4000, CacheRead: 16000, Output: 900})
	r, steps := c.Explain(q)
	var sum schema.Sum
	for _, s := range steps {
		m, err := schema.ParseMoney(s.Amount)
		if err != nil {
			t.Fatal(err)
		}
		sum.Add(m, 1)
	}
	if len(steps) != 3 || sum.String() != r.Cost.String() || steps[0].Rate != "0.5" {
		t.Fatalf("got %+v for %s", steps, r.Cost)
	}
}

func FuzzPriceFile(f *testing.F) {
	f.Add([]byte(basic))
	f.Add([]byte(`[{"id":"p","models":[{"id":"m","prices":{"input_mtok":1}}]}]`))
	f.Add([]byte(`{"m":{"litellm_provider":"p","input_cost_per_token":1e-6}}`))
	f.Add([]byte(genaiList))
	f.Add([]byte(litellmList))
	f.Fuzz(func(t *testing.T, data []byte) {
		file, lvl, _, err := parse(data, "fuzz")
		if err != nil {
			return
		}
		b := newBuilder(Options{})
		c := b.build(source{file, "fuzz", lvl})
		for _, r := range file.Prices {
			for _, m := range r.Models {
				if res := c.Price(query(r.Provider, m, schema.Tokens{Input: 1000, CacheRead: 5, Output: 1000})); res.Cost < 0 || res.Exposure < 0 {
					t.Fatalf("negative money for %s/%s: %+v", r.Provider, m, res)
				}
			}
		}
	})
}

func BenchmarkPrice(b *testing.B) {
	c, _, err := Load(Options{})
	if err != nil {
		b.Fatal(err)
	}
	q := query("openai", "gpt-5-2025-08-07", schema.Tokens{Input: 1760, CacheRead: 10240, Output: 900})
	b.ReportAllocs()
	for b.Loop() {
		if r := c.Price(q); r.Status != schema.CostPriced {
			b.Fatal(r.Status)
		}
	}
}

func BenchmarkLoadEmbedded(b *testing.B) {
	for b.Loop() {
		if _, _, err := Load(Options{}); err != nil {
			b.Fatal(err)
		}
	}
}

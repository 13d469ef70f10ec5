package query

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"

	"github.com/flyball/flyball/schema"
)

// FOCUS 1.2 rows: one for each tenant, day, provider, model, price line and kind of
// token or piece. deploy/docs/focus.md says how each column is made.

// focusGroups is how many groups of entries one export may have.
const focusGroups = 200_000

// PricedCall is what a unit price depends on.
type PricedCall struct {
	Line                    string // price_id
	Tenant, Provider, Model string
	ServiceTier             string
	Start                   time.Time
	InputTokens             uint64
	Currency                string
}

// UnitPrice is the price of one token or piece, in USD.
type UnitPrice struct {
	Component        string // a name of tokens, or request, web_search, image, page, second
	List, Contracted *big.Rat
}

// UnitPrices tells unit prices, which entries do not carry. ok is false where neither
// the line nor one in its place is known; prices that are not those that were used are
// noticed, since they do not give the stored cost.
type UnitPrices interface {
	// Breaks are where the prices of a line change between calls of one tier: above
	// these many input tokens, and for some lines at these minutes of the UTC day. A line
	// is named by what is behind the first colon of its price_id.
	Breaks() (inputTokens []uint64, minutes []int, byClock []string)
	// Eras are the instants, in unix nanoseconds and in order, from which on the prices of
	// a line may be others, for a tier of it too; by the line's name.
	Eras() map[string][]int64
	UnitPrices(PricedCall) (prices []UnitPrice, ok bool)
}

type focusType int

const (
	focusText focusType = iota
	focusDecimal
	focusTime
	focusCount
)

// focusColumns are FOCUS 1.2's, in its order, then our own.
var focusColumns = []struct {
	name string
	typ  focusType
}{
	{"BilledCost", focusDecimal}, {"BillingAccountId", focusText}, {"BillingAccountName", focusText}, {"BillingAccountType", focusText}, {"BillingCurrency", focusText},
	{"BillingPeriodEnd", focusTime}, {"BillingPeriodStart", focusTime}, {"ChargeCategory", focusText}, {"ChargeClass", focusText}, {"ChargeDescription", focusText},
	{"ChargeFrequency", focusText}, {"ChargePeriodEnd", focusTime}, {"ChargePeriodStart", focusTime}, {"ConsumedQuantity", focusDecimal}, {"ConsumedUnit", focusText},
	{"ContractedCost", focusDecimal}, {"ContractedUnitPrice", focusDecimal}, {"EffectiveCost", focusDecimal}, {"InvoiceId", focusText}, {"InvoiceIssuerName", focusText},
	{"ListCost", focusDecimal}, {"ListUnitPrice", focusDecimal}, {"PricingCategory", focusText}, {"PricingQuantity", focusDecimal}, {"PricingUnit", focusText},
	{"ProviderName", focusText}, {"PublisherName", focusText}, {"ServiceCategory", focusText}, {"ServiceName", focusText}, {"ServiceSubcategory", focusText},
	{"SkuId", focusText}, {"SkuMeter", focusText}, {"SkuPriceDetails", focusText}, {"SkuPriceId", focusText}, {"SubAccountId", focusText}, {"SubAccountName", focusText},
	{"SubAccountType", focusText}, {"Tags", focusText},
	{"x_FlyballAttempts", focusCount}, {"x_FlyballCostBasis", focusText}, {"x_FlyballCostStatus", focusText}, {"x_FlyballExchangeRate", focusDecimal}, {"x_FlyballExchangeRateDay", focusText}, {"x_FlyballExchangeRateSource", focusText}, {"x_FlyballMeter", focusText}, {"x_FlyballPriceCurrency", focusText},
	{"x_FlyballPriceId", focusText}, {"x_FlyballRequests", focusCount}, {"x_FlyballRetries", focusCount}, {"x_FlyballServiceTier", focusText}, {"x_FlyballTimezone", focusText},
	{"x_FlyballUnknownCalls", focusCount}, {"x_FlyballUnpricedCalls", focusCount}, {"x_FlyballWastedCost", focusDecimal},
}

// meter is one kind of thing that is priced.
type meter struct {
	component, name   string
	consumed, pricing string   // units
	perConsumed       *big.Rat // consumed units in one of the quantity
	perPricing        *big.Rat // pricing units in one of the quantity
}

var meters = func() (out []meter) {
	one, million, milli := big.NewRat(1, 1), big.NewRat(1, 1_000_000), big.NewRat(1, 1000)
	for _, t := range [][2]string{{"input", "Input Tokens"}, {"cache_read", "Cache Read Tokens"}, {"cache_write_5m", "Cache Write 5m Tokens"}, {"cache_write_1h", "Cache Write 1h Tokens"}, {"output", "Output Tokens"},
		{"input_audio", "Input Audio Tokens"}, {"input_image", "Input Image Tokens"}, {"output_audio", "Output Audio Tokens"}, {"output_image", "Output Image Tokens"}} {
		out = append(out, meter{t[0], t[1], "Tokens", "1000000 Tokens", one, million})
	}
	for _, t := range [][3]string{{"request", "Requests", "Requests"}, {"web_search", "Web Searches", "Searches"}, {"image", "Images", "Images"}, {"page", "Pages", "Pages"}} {
		out = append(out, meter{t[0], t[1], t[2], t[2], one, one})
	}
	return append(out, meter{"second", "Seconds", "Seconds", "Seconds", milli, milli})
}()

// focusGroup is a row of focus.sql.
type focusGroup struct {
	tenant, seller, product, state, line, currency, tier string
	by, reason                                           string // of an adjustment: who and why
	day, late, started                                   time.Time
	input                                                uint64
	lines, entries, attempts, retries                    int64
	cost, wasted                                         *big.Rat // USD
	quantity                                             []int64  // in the order of meters
}

// sheet collects the rows of an export.
type sheet struct {
	zone *time.Location
	fx   conversion
	rows []*focusRow
	// Rows that share everything but the quantity and the cost are one.
	index map[string]*focusRow
	// What is not of a kind of token stands on the first row of its day and model.
	counts map[string]*focusCounts
	order  []*focusCounts
}

type focusCounts struct {
	group                                          focusGroup // whose
	first                                          *focusRow
	requests, attempts, retries, unpriced, unknown int64
	wasted                                         *big.Rat
}

// focusRow is a row before its columns are written.
type focusRow struct {
	focusGroup
	basis, status      string // x_FlyballCostBasis, x_FlyballCostStatus
	meterName          string // SkuMeter
	component          string
	consumedUnit, unit string
	consumed, pricing  *big.Rat // nil is null
	list, contracted   *big.Rat // unit prices, per pricing unit; nil is null
	listCost, billed   *big.Rat
	counts             *focusCounts
}

func newSheet(zone *time.Location) *sheet {
	return &sheet{zone: zone, index: map[string]*focusRow{}, counts: map[string]*focusCounts{}}
}

// add merges a row into the sheet.
func (s *sheet) add(r focusRow) {
	key := fmt.Sprintf("%q", []string{r.tenant, r.day.String(), r.late.String(), r.seller, r.product, r.line, r.tier, r.by, r.reason, r.basis, r.status, r.component, r.unit, ratKey(r.list), ratKey(r.contracted)})
	if old := s.index[key]; old != nil {
		old.listCost.Add(old.listCost, r.listCost)
		old.billed.Add(old.billed, r.billed)
		if old.consumed != nil {
			old.consumed.Add(old.consumed, r.consumed)
		}
		if old.pricing != nil {
			old.pricing.Add(old.pricing, r.pricing)
		}
		return
	}
	row := &r
	s.index[key] = row
	s.rows = append(s.rows, row)
	c := s.count(&r.focusGroup)
	if c.first == nil {
		c.first = row
	}
}

// count is where a group's counts are summed.
func (s *sheet) count(g *focusGroup) *focusCounts {
	// What a person booked for no model is apart from the work of agents.
	booked := g.by != "" && g.seller == "" && g.product == ""
	key := fmt.Sprintf("%q %v", []string{g.tenant, g.day.String(), g.late.String(), g.seller, g.product}, booked)
	c := s.counts[key]
	if c == nil {
		c = &focusCounts{group: *g, wasted: new(big.Rat)}
		s.counts[key] = c
		s.order = append(s.order, c)
	}
	return c
}

func ratKey(r *big.Rat) string {
	if r == nil {
		return ""
	}
	return r.RatString()
}

const (
	basisUnit      = "unit_price" // quantity times price, exactly
	basisRemainder = "remainder"  // what rounding left
	basisTotal     = "total"      // the sum alone is known
	basisNone      = "none"       // no money
	basisBooked    = "booked"     // by a person
)

// charge adds the rows of a group that has a cost.
func (s *sheet) charge(g focusGroup, prices []UnitPrice, known bool) {
	rows, rest, ok := split(g, prices, known)
	if !ok {
		consumed := new(big.Rat)
		for i := range meters {
			if meters[i].consumed == "Tokens" {
				consumed.Add(consumed, new(big.Rat).SetInt64(g.quantity[i]))
			}
		}
		if g.cost.Sign() == 0 && consumed.Sign() == 0 {
			return
		}
		s.add(focusRow{focusGroup: g, basis: basisTotal, status: "priced", component: "all", meterName: "All Tokens", consumedUnit: "Tokens", consumed: consumed,
			unit: "Units", listCost: new(big.Rat).Set(g.cost), billed: new(big.Rat).Set(g.cost)})
		return
	}
	for _, r := range rows {
		s.add(r)
	}
	if rest.Sign() != 0 {
		s.add(focusRow{focusGroup: g, basis: basisRemainder, status: "priced", component: "remainder", meterName: "Rounding", listCost: new(big.Rat).Set(rest), billed: rest})
	}
}

// split takes a cost apart by kind; rest is what rounding each entry's components to
// 1e-12 USD left. It reports false where the prices are not those that were used.
func split(g focusGroup, prices []UnitPrice, known bool) (rows []focusRow, rest *big.Rat, ok bool) {
	if !known {
		return nil, nil, false
	}
	sum, parts := new(big.Rat), int64(0)
	for i := range meters {
		m, n := &meters[i], new(big.Rat).SetInt64(g.quantity[i])
		j := slices.IndexFunc(prices, func(p UnitPrice) bool { return p.Component == m.component })
		if n.Sign() == 0 || j < 0 {
			continue
		}
		parts++
		// The quantity is in thousandths of a second there, the price is a second's.
		consumed := new(big.Rat).Mul(n, m.perConsumed)
		each := func(p *big.Rat) (unit, cost *big.Rat) {
			cost = new(big.Rat).Mul(consumed, p)
			return new(big.Rat).Quo(new(big.Rat).Mul(p, m.perConsumed), m.perPricing), cost
		}
		r := focusRow{focusGroup: g, basis: basisUnit, status: "priced", component: m.component, meterName: m.name, consumedUnit: m.consumed, unit: m.pricing,
			consumed: consumed, pricing: new(big.Rat).Mul(n, m.perPricing)}
		r.list, r.listCost = each(prices[j].List)
		r.contracted, r.billed = each(prices[j].Contracted)
		if !short(r.list, r.contracted, r.listCost, r.billed) {
			return nil, nil, false
		}
		if prices[j].Contracted.Sign() == 0 {
			r.status = "free"
		}
		sum.Add(sum, r.billed)
		rows = append(rows, r)
	}
	rest = new(big.Rat).Sub(g.cost, sum)
	// Each component of each entry was rounded by half a unit at the most.
	most := new(big.Rat).SetFrac64(g.entries*max(parts, 1), 2*schema.PicoPerUSD)
	if new(big.Rat).Abs(rest).Cmp(most) > 0 {
		return nil, nil, false
	}
	return rows, rest, true
}

// decimals are those of a figure in the file.
const decimals = 18

// short reports whether figures can be written exactly.
func short(list ...*big.Rat) bool {
	for _, r := range list {
		if !new(big.Rat).Mul(r, scale).IsInt() {
			return false
		}
	}
	return true
}

var scale = new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(decimals), nil))

func decimalText(r *big.Rat) string {
	s := r.FloatString(decimals)
	return strings.TrimSuffix(strings.TrimRight(s, "0"), ".")
}

// uncharged adds the row of calls without a cost. FOCUS wants a cost and a price on
// every row: they are 0 there, and x_FlyballCostStatus says what the 0 means.
func (s *sheet) uncharged(g focusGroup, status string) {
	tokens := int64(0)
	for i := range meters {
		if meters[i].consumed == "Tokens" {
			tokens += g.quantity[i]
		}
	}
	r := focusRow{focusGroup: g, basis: basisNone, status: status, component: "calls", meterName: "Calls", consumedUnit: "Calls", unit: "Calls",
		consumed: new(big.Rat).SetInt64(g.lines), list: new(big.Rat), contracted: new(big.Rat), listCost: new(big.Rat), billed: new(big.Rat)}
	r.pricing = new(big.Rat).Set(r.consumed)
	if g.seller == "" && g.product == "" && status == "none" {
		n := new(big.Rat).SetInt64(s.count(&g).requests)
		r.component, r.meterName, r.consumedUnit, r.unit, r.consumed, r.pricing = "requests", "User Requests", "Requests", "Requests", n, n
	}
	if status == "unpriced" && tokens != 0 {
		r.component, r.meterName, r.consumedUnit, r.unit = "tokens", "Tokens", "Tokens", "1000000 Tokens"
		r.consumed, r.pricing = new(big.Rat).SetInt64(tokens), big.NewRat(tokens, 1_000_000)
	}
	r.line, r.tier, r.currency = "", "", ""
	s.add(r)
}

// take adds a group of entries.
func (s *sheet) take(g focusGroup, prices UnitPrices) {
	c := s.count(&g)
	c.attempts += g.attempts
	c.retries += g.retries
	c.wasted.Add(c.wasted, g.wasted)
	if g.by != "" {
		s.add(focusRow{focusGroup: g, basis: basisBooked, status: "priced", component: "adjustment", meterName: "Adjustment", listCost: new(big.Rat).Set(g.cost), billed: new(big.Rat).Set(g.cost)})
		return
	}
	switch g.state {
	case "unpriced":
		c.unpriced += g.lines
		s.uncharged(g, g.state)
	case "unknown":
		c.unknown += g.lines
		s.uncharged(g, g.state)
	case "priced", "free":
		var list []UnitPrice
		known := false
		if prices != nil && g.line != "" {
			list, known = prices.UnitPrices(PricedCall{Line: g.line, Tenant: g.tenant, Provider: g.seller, Model: g.product, ServiceTier: g.tier, Start: g.started, InputTokens: g.input, Currency: g.currency})
		}
		s.charge(g, list, known)
	default:
		if g.cost.Sign() != 0 {
			s.charge(g, nil, false)
		}
	}
}

// finish gives every count a row to stand on and drops rows of nothing.
func (s *sheet) finish() {
	for _, c := range s.order {
		if c.first == nil && (c.requests != 0 || c.attempts != 0 || c.retries != 0 || c.wasted.Sign() != 0) {
			g := c.group
			g.line, g.tier, g.currency, g.lines = "", "", "", c.attempts
			g.quantity = make([]int64, len(meters))
			s.uncharged(g, "none")
		}
		if c.first != nil {
			c.first.counts = c
		}
	}
	s.rows = slices.DeleteFunc(s.rows, func(r *focusRow) bool {
		return r.counts == nil && r.billed.Sign() == 0 && r.listCost.Sign() == 0 && (r.consumed == nil || r.consumed.Sign() == 0)
	})
	order := map[string]int{}
	for i, m := range meters {
		order[m.component] = i
	}
	slices.SortStableFunc(s.rows, func(a, b *focusRow) int {
		for _, d := range []int{strings.Compare(a.tenant, b.tenant), a.day.Compare(b.day), a.late.Compare(b.late), strings.Compare(a.seller, b.seller), strings.Compare(a.product, b.product),
			strings.Compare(a.status, b.status), strings.Compare(a.line, b.line), strings.Compare(a.tier, b.tier), order[a.component] - order[b.component]} {
			if d != 0 {
				return d
			}
		}
		return 0
	})
}

// sellers are who bills for a provider, makers who makes its models.
var (
	sellers = map[string]string{"openai": "OpenAI", "anthropic": "Anthropic", "google": "Google", "azure": "Microsoft", "bedrock": "Amazon Web Services", "aws.bedrock": "Amazon Web Services", "mistral": "Mistral AI", "deepseek": "DeepSeek",
		"xai": "xAI", "x-ai": "xAI", "cohere": "Cohere", "meta": "Meta", "openrouter": "OpenRouter", "groq": "Groq", "together": "Together AI", "fireworks": "Fireworks AI", "perplexity": "Perplexity", "databricks": "Databricks", "cloudflare": "Cloudflare",
		"voyageai": "Voyage AI", "elevenlabs": "ElevenLabs", "github-copilot": "GitHub", "cerebras": "Cerebras", "moonshot": "Moonshot AI", "minimax": "MiniMax", "zai": "Z.ai"}
	families = [][2]string{{"claude", "Anthropic"}, {"gpt", "OpenAI"}, {"o1", "OpenAI"}, {"o3", "OpenAI"}, {"o4", "OpenAI"}, {"gemini", "Google"}, {"gemma", "Google"}, {"llama", "Meta"}, {"mistral", "Mistral AI"}, {"mixtral", "Mistral AI"},
		{"deepseek", "DeepSeek"}, {"grok", "xAI"}, {"command", "Cohere"}, {"qwen", "Alibaba"}, {"nova", "Amazon"}, {"titan", "Amazon"}}
)

func seller(provider string) string {
	switch {
	case sellers[provider] != "":
		return sellers[provider]
	case provider == "":
		return "Unknown"
	}
	return provider
}

func publisher(provider, model string) string {
	name := strings.ToLower(model[strings.LastIndexAny(model, "/")+1:])
	for _, f := range families {
		if strings.HasPrefix(name, f[0]) || strings.Contains(name, "."+f[0]) {
			return f[1]
		}
	}
	return seller(provider)
}

// cells are a row's columns; nil is null.
func (s *sheet) cells(r *focusRow) []*string {
	m := map[string]string{}
	set := func(name, v string) {
		if v != "" {
			m[name] = v
		}
	}
	number := func(name string, v *big.Rat) {
		if v != nil {
			m[name] = decimalText(v)
		}
	}
	at := func(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05Z") }
	day := r.day.In(s.zone)
	booked := day
	work := r.seller == "" && r.product == "" && r.by == ""
	for _, n := range []string{"BilledCost", "EffectiveCost", "ContractedCost"} {
		number(n, r.billed)
	}
	number("ListCost", r.listCost)
	number("ListUnitPrice", r.list)
	number("ContractedUnitPrice", r.contracted)
	number("ConsumedQuantity", r.consumed)
	number("PricingQuantity", r.pricing)
	set("ConsumedUnit", r.consumedUnit)
	m["ChargeCategory"], m["PricingCategory"], m["ChargeFrequency"] = "Usage", "Standard", "Usage-Based"
	late := r.late.Unix() > 0
	if late {
		m["ChargeClass"] = "Correction"
		booked = r.late.In(s.zone)
	}
	switch r.basis {
	case basisRemainder:
		m["ChargeCategory"] = "Adjustment"
		delete(m, "PricingCategory")
	case basisBooked:
		m["ChargeCategory"], m["ChargeFrequency"] = "Adjustment", "One-Time"
		delete(m, "PricingCategory")
	case basisTotal:
		// One unit at the price of it all: FOCUS wants a quantity and a price.
		unit, n := new(big.Rat).Abs(r.billed), "1"
		if r.billed.Sign() < 0 {
			n = "-1"
		}
		m["PricingQuantity"], m["PricingCategory"] = n, "Other"
		number("ListUnitPrice", unit)
		number("ContractedUnitPrice", unit)
	case basisNone:
		m["PricingCategory"] = "Other"
	}
	set("PricingUnit", r.unit)
	seller, maker, product := seller(r.seller), publisher(r.seller, r.product), r.product
	m["ServiceName"], m["ServiceSubcategory"] = seller+" API", "Generative AI"
	if work {
		seller, maker, product = "Flyball", "Flyball", "agent work"
		m["ServiceName"], m["ServiceSubcategory"] = "Agent Work", "Other (AI and Machine Learning)"
	}
	if product == "" {
		product = "unknown"
	}
	m["ServiceCategory"] = "AI and Machine Learning"
	m["BillingCurrency"] = "USD"
	if s.fx.currency != "" {
		m["BillingCurrency"] = s.fx.currency
		if rate, ok := s.rate(r); ok {
			m["x_FlyballExchangeRate"], m["x_FlyballExchangeRateDay"], m["x_FlyballExchangeRateSource"] = rate.Text, rate.Day.Format(time.DateOnly), rate.Source
		}
	}
	m["BillingAccountId"], m["BillingAccountType"] = r.seller, "Provider"
	if r.seller == "" {
		m["BillingAccountId"] = strings.ToLower(seller)
	}
	m["BillingPeriodStart"], m["BillingPeriodEnd"] = at(monthStart(booked, 0)), at(monthStart(booked, 1))
	m["ChargePeriodStart"], m["ChargePeriodEnd"] = at(day), at(schema.StartOfDay(day.AddDate(0, 0, 1), s.zone))
	m["InvoiceIssuerName"], m["ProviderName"], m["PublisherName"] = seller, seller, maker
	m["SkuId"], m["SkuMeter"] = m["BillingAccountId"]+"/"+product, r.meterName
	m["ChargeDescription"] = product + ": " + strings.ToLower(r.meterName)
	switch {
	case work:
		m["ChargeDescription"] = "user requests, and beside them the attempts of tools; nobody bills them here"
	case r.basis == basisBooked:
		m["ChargeDescription"] = "adjustment by " + r.by + ": " + r.reason
		if r.product == "" {
			delete(m, "SkuId")
		}
	case r.status == "unpriced":
		m["ChargeDescription"] += " without a price, which are missing in the cost"
	case r.status == "unknown":
		m["ChargeDescription"] += " of unknown usage, which are missing in the cost"
	case r.basis == basisTotal:
		m["ChargeDescription"] += ", not split: the unit prices are no longer known"
	}
	if r.basis == basisUnit {
		m["SkuPriceId"] = r.line + "#" + r.component + "=" + decimalText(r.list)
		details := map[string]string{"x_PriceLine": r.line}
		if r.tier != "" {
			details["x_ServiceTier"] = r.tier
		}
		b, _ := json.Marshal(details) // of strings
		m["SkuPriceDetails"] = string(b)
	}
	m["SubAccountId"], m["SubAccountName"], m["SubAccountType"] = r.tenant, r.tenant, "Tenant"
	if r.tenant == "" {
		m["SubAccountId"], m["SubAccountName"] = "default", "default"
	}
	m["Tags"] = "{}"
	m["x_FlyballCostBasis"], m["x_FlyballCostStatus"], m["x_FlyballMeter"], m["x_FlyballTimezone"] = r.basis, r.status, r.component, s.zone.String()
	set("x_FlyballPriceCurrency", r.currency)
	set("x_FlyballPriceId", r.line)
	set("x_FlyballServiceTier", r.tier)
	c := r.counts
	if c == nil {
		c = &focusCounts{wasted: new(big.Rat)}
	}
	for name, n := range map[string]int64{"x_FlyballRequests": c.requests, "x_FlyballAttempts": c.attempts, "x_FlyballRetries": c.retries, "x_FlyballUnpricedCalls": c.unpriced, "x_FlyballUnknownCalls": c.unknown} {
		m[name] = fmt.Sprint(n)
	}
	number("x_FlyballWastedCost", c.wasted)
	out := make([]*string, len(focusColumns))
	for i, col := range focusColumns {
		if v, ok := m[col.name]; ok {
			out[i] = &v
		}
	}
	return out
}

// monthStart is the first instant of a month in the zone of t.
func monthStart(t time.Time, after int) time.Time {
	return schema.StartOfDay(time.Date(t.Year(), t.Month()+time.Month(after), 1, 0, 0, 0, 0, time.UTC), t.Location())
}

// focus answers the FOCUS file of a time that is made of whole days.
func (a *API) focus(ctx context.Context, r *request) (any, error) {
	format := r.DefaultQuery("format", "csv")
	if format != "csv" && format != "parquet" {
		return nil, badRequest("format %q: want csv or parquet", format)
	}
	for _, name := range []string{"from", "to"} {
		t := map[string]time.Time{"from": r.from, "to": r.to}[name].In(r.zone)
		if r.Query(name) == "" {
			return nil, badRequest("%s is missing: want the first and the day after the last, e.g. from=2026-11-01&to=2026-12-01", name)
		}
		if start := schema.StartOfDay(t, r.zone); !start.Equal(t) {
			return nil, badRequest("%s %s: rows are whole days of %s, which begin at %s", name, r.Query(name), r.zone, start.Format(time.RFC3339))
		}
	}
	if format == "parquet" && (a.o.SQL == nil || a.o.Write == nil) {
		return nil, problem{http.StatusNotImplemented, "the embedded engine writes Parquet, and there is none; ask for format=csv"}
	}
	if err := a.journalHas(ctx, r, "a FOCUS file is made of entries; begin later, or use GET /api/v1/spend?interval=1d, which is made of sums"); err != nil {
		return nil, err
	}
	q := r.then()
	q.rangeArgs(r)
	fx, err := a.currency(ctx, r, q)
	if err != nil {
		return nil, err
	}
	s, err := a.focusSheet(ctx, r, fx)
	if err != nil {
		return nil, err
	}
	name := "flyball-focus-" + r.from.In(r.zone).Format(time.DateOnly) + "-" + r.to.In(r.zone).Format(time.DateOnly) + "." + format
	var body []byte
	typ := "text/csv; charset=utf-8; header=present"
	if format == "csv" {
		body = s.csv()
	} else {
		typ = "application/vnd.apache.parquet"
		if body, err = a.parquet(ctx, s); err != nil {
			return nil, err
		}
	}
	r.Header("Cache-Control", "no-store")
	r.Header("X-Content-Type-Options", "nosniff")
	r.Header("Content-Disposition", `attachment; filename="`+name+`"`)
	r.Data(http.StatusOK, typ, body)
	return nil, nil
}

// breaks binds where unit prices change between since and till, so that entries are
// summed in between.
func (q *question) breaks(prices UnitPrices, since, till time.Time) {
	above, minutes, byClock := []uint64{}, []uint16{}, []string{}
	eras := map[string][]int64{}
	if prices != nil {
		tokens, edges, lines := prices.Breaks()
		above, byClock = append(above, tokens...), append(byClock, lines...)
		for _, m := range edges {
			minutes = append(minutes, uint16(m))
		}
		eras = prices.Eras()
	}
	q.args = append(q.args, clickhouse.Named("above", above), clickhouse.Named("minutes", minutes), clickhouse.Named("by_clock", byClock))
	// Lines that change at the same instants share a calendar: few are asked for each entry.
	var lines []string
	var calendars, of []uint16
	var at []int64
	known := map[string]uint16{}
	for _, name := range slices.Sorted(maps.Keys(eras)) {
		within := slices.DeleteFunc(slices.Clone(eras[name]), func(t int64) bool { return t <= since.UnixNano() || t >= till.UnixNano() })
		if len(within) == 0 {
			continue
		}
		key := fmt.Sprint(within)
		if known[key] == 0 {
			known[key] = uint16(len(known) + 1)
			for _, t := range within {
				of, at = append(of, known[key]), append(at, t)
			}
		}
		lines, calendars = append(lines, name), append(calendars, known[key])
	}
	q.vars["Eras"] = len(lines) > 0
	q.args = append(q.args, clickhouse.Named("era_lines", lines), clickhouse.Named("era_calendars", calendars), clickhouse.Named("era_of", of), clickhouse.Named("era_at", at))
}

// focusSheet reads the entries and makes the rows.
func (a *API) focusSheet(ctx context.Context, r *request, fx conversion) (*sheet, error) {
	zone := "'" + quoteZone(r.zone) + "'"
	q, err := a.thenRuns(ctx, r)
	if err != nil {
		return nil, err
	}
	q.runRange(r)
	q.vars["Day"] = "toDateTime(toStartOfDay(toDateTime(j.started_at, 'UTC'), " + zone + "), 'UTC')"
	q.vars["Late"] = "if(arrayExists(m -> j.started_at >= m.1 AND j.started_at < m.2 AND j.recorded_at >= toDateTime(m.3, 'UTC'), c.months), toDateTime(toDateTime(toStartOfMonth(toDateTime(j.recorded_at, 'UTC'), " + zone + "), " + zone + "), 'UTC'), toDateTime(0, 'UTC'))"
	q.bind("limit", "UInt32", fmt.Sprint(focusGroups+1))
	q.breaks(a.o.Prices, r.from, r.to)
	s := newSheet(r.zone)
	groups := 0
	err = a.ask(ctx, r, "focus.sql", q, func(get func(string) any) {
		groups++
		n := func(name string) int64 { return get(name).(int64) }
		text := func(name string) string { return get(name).(string) }
		usd := func(name string) *big.Rat {
			return new(big.Rat).SetFrac(get(name).(*big.Int), big.NewInt(schema.PicoPerUSD))
		}
		g := focusGroup{tenant: text("tenant"), seller: text("seller"), product: text("product"), state: text("state"), line: text("price_id"), currency: text("currency"), tier: text("service_tier"), by: text("booked_by"), reason: text("reason"),
			day: get("day").(time.Time), late: get("late").(time.Time), started: get("started").(time.Time), input: get("input_of_one").(uint64),
			lines: n("lines"), entries: n("entries"), attempts: n("attempts"), retries: n("retries"), cost: usd("cost"), wasted: usd("wasted"), quantity: make([]int64, len(meters))}
		for i := range meters {
			g.quantity[i] = n("q_" + meters[i].component)
		}
		s.take(g, a.o.Prices)
	})
	if err != nil {
		return nil, err
	}
	if groups > focusGroups {
		return nil, badRequest("the file would have more than %d groups; ask for fewer days or one tenant", focusGroups)
	}
	if q, err = a.agentRuns(ctx, r, nil); err != nil {
		return nil, err
	}
	q.vars["RunDay"] = "toDateTime(toStartOfDay(toDateTime(r.started_at, 'UTC'), " + zone + "), 'UTC')"
	if err := a.ask(ctx, r, "focus_requests.sql", q, func(get func(string) any) {
		s.count(&focusGroup{tenant: get("tenant").(string), day: get("day").(time.Time), late: time.Unix(0, 0).UTC()}).requests += get("requests").(int64)
	}); err != nil {
		return nil, err
	}
	if err := s.convert(fx); err != nil {
		return nil, err
	}
	s.finish()
	return s, nil
}

// csv is the file; a null is an empty cell without quotes.
func (s *sheet) csv() []byte {
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	line := make([]string, len(focusColumns))
	for i, c := range focusColumns {
		line[i] = c.name
	}
	_ = w.Write(line) // into memory
	for _, r := range s.rows {
		for i, v := range s.cells(r) {
			line[i] = ""
			if v != nil {
				line[i] = csvCell(*v)
			}
		}
		_ = w.Write(line)
	}
	w.Flush()
	return b.Bytes()
}

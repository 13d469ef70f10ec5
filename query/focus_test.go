package query

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"math/big"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/flyball/flyball/schema"
)

// unitPrices is a price list: USD per token by line and component, and what is left
// after the discount of a tenant.
type unitPrices struct {
	lines    map[string]map[string]string
	above    uint64 // input tokens over which a line named …/above holds
	discount map[string]string
	eras     map[string][]int64 // a line named …/era holds from the first on, and its batch tier
}

func (p unitPrices) Eras() map[string][]int64 { return p.eras }

func (p unitPrices) Breaks() ([]uint64, []int, []string) {
	if p.above == 0 {
		return nil, nil, nil
	}
	return []uint64{p.above}, []int{12 * 60}, []string{"line/clock"}
}

func (p unitPrices) UnitPrices(c PricedCall) (out []UnitPrice, ok bool) {
	name := c.Line
	if p.above > 0 && c.InputTokens > p.above {
		name += "/above"
	}
	if c.Line == "line/clock" && c.Start.UTC().Hour() >= 12 {
		name += "/noon"
	}
	if at := p.eras[strings.TrimSuffix(c.Line[strings.Index(c.Line, ":")+1:], "/batch")]; len(at) > 0 && c.Start.UnixNano() >= at[0] {
		name += "/era"
	}
	line, ok := p.lines[name]
	for component, text := range line {
		list, _ := new(big.Rat).SetString(text)
		u := UnitPrice{component, list, list}
		if d := p.discount[c.Tenant]; d != "" {
			left, _ := new(big.Rat).SetString(d)
			u.Contracted = new(big.Rat).Mul(list, left)
		}
		out = append(out, u)
	}
	return out, ok
}

// used sets tokens and the price line of a call, after its cost.
func used(line string, tokens schema.Tokens) func(*schema.Entry) {
	return func(e *schema.Entry) { e.Posting.PriceID, e.Posting.Tokens = line, tokens }
}

var listed = unitPrices{lines: map[string]map[string]string{
	"line/m-5":   {"input": "0.00000125", "cache_read": "0.000000125", "output": "0.00001", "web_search": "0.01"},
	"line/odd":   {"input": "0.0000000000003"},
	"line/media": {"second": "0.006", "request": "0.5"},
	"line/free":  {"input": "0", "output": "0"},
}}

// focusRows is the FOCUS file of a time as maps, checked against the rules that every row obeys.
func (s *store) focusRows(query string) []map[string]string {
	s.t.Helper()
	_, file := s.file("/api/v1/export/focus?" + query)
	var out []map[string]string
	for _, line := range file[1:] {
		m := map[string]string{}
		for i, v := range line {
			m[file[0][i]] = v
		}
		out = append(out, m)
		checkFocus(s.t, m)
	}
	return out
}

// bills leaves out what nobody bills: the row of requests and tools.
func bills(rows []map[string]string) []map[string]string {
	return slices.DeleteFunc(slices.Clone(rows), func(r map[string]string) bool { return r["x_FlyballMeter"] == "requests" })
}

func pick(rows []map[string]string, fields ...string) string {
	var out []string
	for _, r := range rows {
		var cells []string
		for _, f := range fields {
			cells = append(cells, r[f])
		}
		out = append(out, strings.Join(cells, " "))
	}
	return strings.Join(out, "\n")
}

func sumOf(rows []map[string]string, field string) string {
	sum := new(big.Rat)
	for _, r := range rows {
		if v, ok := new(big.Rat).SetString(r[field]); ok {
			sum.Add(sum, v)
		}
	}
	return decimalText(sum)
}

var (
	focusDecimalForm = regexp.MustCompile(`^-?[0-9]+(\.[0-9]+)?$`)
	focusTimeForm    = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$`)
)

// mandatory are the columns of FOCUS 1.2 that may not be null in a usage row.
var mandatory = []string{"BilledCost", "BillingAccountId", "BillingCurrency", "BillingPeriodEnd", "BillingPeriodStart", "ChargeCategory", "ChargePeriodEnd", "ChargePeriodStart", "ContractedCost", "EffectiveCost",
	"InvoiceIssuerName", "ListCost", "ProviderName", "PublisherName", "ServiceCategory", "ServiceName", "SubAccountId"}

// checkFocus restates what FOCUS 1.2 wants of a row.
func checkFocus(t *testing.T, r map[string]string) {
	t.Helper()
	for _, c := range mandatory {
		if r[c] == "" {
			t.Errorf("%s is null in %v", c, r)
		}
	}
	rat := func(name string) *big.Rat {
		v, ok := new(big.Rat).SetString(r[name])
		if !ok {
			return nil
		}
		return v
	}
	for _, c := range focusColumns {
		v := r[c.name]
		if c.typ == focusDecimal && v != "" && !focusDecimalForm.MatchString(v) || c.typ == focusTime && !focusTimeForm.MatchString(v) {
			t.Errorf("%s is %q", c.name, v)
		}
	}
	if r["ChargePeriodStart"] >= r["ChargePeriodEnd"] || r["BillingPeriodStart"] >= r["BillingPeriodEnd"] {
		t.Errorf("periods of %v", r)
	}
	if c := r["ChargeClass"]; c != "" && c != "Correction" {
		t.Errorf("ChargeClass %q", c)
	}
	if r["ChargeClass"] == "" && (r["ChargePeriodStart"] < r["BillingPeriodStart"] || r["ChargePeriodEnd"] > r["BillingPeriodEnd"]) {
		t.Errorf("a charge outside of its billing period: %v", r)
	}
	if r["BilledCost"] != r["EffectiveCost"] || r["BilledCost"] != r["ContractedCost"] {
		t.Errorf("costs of %v", r)
	}
	switch r["ChargeCategory"] {
	case "Usage":
		for _, c := range []string{"PricingQuantity", "PricingUnit", "PricingCategory", "ListUnitPrice", "ContractedUnitPrice", "ConsumedQuantity", "ConsumedUnit", "ChargeFrequency"} {
			if r[c] == "" {
				t.Errorf("%s is null in the usage row %v", c, r)
				return
			}
		}
		for unit, cost := range map[string]string{"ListUnitPrice": "ListCost", "ContractedUnitPrice": "ContractedCost"} {
			if product := new(big.Rat).Mul(rat("PricingQuantity"), rat(unit)); product.Cmp(rat(cost)) != 0 || rat(unit).Sign() < 0 {
				t.Errorf("%s x %s is not %s in %v", r["PricingQuantity"], r[unit], r[cost], r)
			}
		}
		if r["ChargeClass"] == "" && rat("PricingQuantity").Sign() < 0 {
			t.Errorf("a negative quantity: %v", r)
		}
	case "Adjustment":
		for _, c := range []string{"PricingQuantity", "PricingUnit", "ListUnitPrice", "ContractedUnitPrice", "PricingCategory"} {
			if r[c] != "" {
				t.Errorf("%s of an adjustment is %q", c, r[c])
			}
		}
	default:
		t.Errorf("ChargeCategory %q", r["ChargeCategory"])
	}
}

func TestFocusSplitsByKind(t *testing.T) {
	s := newStore(t, func(o *Options) { o.Prices = listed })
	tr := newTrace("t-1", "r-1", 1, map[schema.Dim]string{schema.Workflow: "quote"})
	s.post(
		tr.add(schema.KindRequest),
		tr.add(schema.KindModel, priced("0.0145"), used("line/m-5", schema.Tokens{Input: 2000, CacheRead: 16000, Output: 1000, Reasoning: 900}), hidden(2, schema.RateLimited)),
		tr.add(schema.KindModel, priced("0.0325"), used("line/m-5", schema.Tokens{Input: 2000, Output: 1000}), func(e *schema.Entry) { e.Units.WebSearches = 2 }, failed(schema.Timeout), wasted),
		tr.add(schema.KindModel, priced("7"), used("line/gone", schema.Tokens{Input: 100, Output: 11}), model("m-old")),
		tr.add(schema.KindModel, priced("5.00"), used("line/media", schema.Tokens{}), model("m-voice"), func(e *schema.Entry) { e.Units.Milliseconds = 750_000 }),
		tr.add(schema.KindModel, status(schema.CostFree), used("line/free", schema.Tokens{Input: 5}), model("m-free")),
		tr.add(schema.KindModel, status(schema.CostUnpriced), used("", schema.Tokens{Input: 70, Output: 7}), model("m-new")),
		tr.add(schema.KindModel, status(schema.CostUnknown), model("m-new")),
		tr.add(schema.KindModel, status(schema.CostNone), model("m-refused"), failed(schema.RateLimited), retry(schema.LayerFramework, schema.RateLimited)),
		tr.add(schema.KindTool, tool("crm")), tr.add(schema.KindTool, tool("crm"), retry(schema.LayerAgent, schema.Timeout)),
	)
	rows := s.focusRows(during)
	equal(t, "rows", pick(rows, "SkuId", "SkuMeter", "PricingQuantity", "PricingUnit", "ListUnitPrice", "BilledCost", "x_FlyballCostBasis", "x_FlyballCostStatus"), `
flyball/agent work User Requests 1 Requests 0 0 none none
openai/m-5 Input Tokens 0.004 1000000 Tokens 1.25 0.005 unit_price priced
openai/m-5 Cache Read Tokens 0.016 1000000 Tokens 0.125 0.002 unit_price priced
openai/m-5 Output Tokens 0.002 1000000 Tokens 10 0.02 unit_price priced
openai/m-5 Web Searches 2 Searches 0.01 0.02 unit_price priced
openai/m-free Input Tokens 0.000005 1000000 Tokens 0 0 unit_price free
openai/m-new Calls 1 Calls 0 0 none unknown
openai/m-new Tokens 0.000077 1000000 Tokens 0 0 none unpriced
openai/m-old All Tokens 1 Units 7 7 total priced
openai/m-refused Calls 1 Calls 0 0 none none
openai/m-voice Requests 1 Requests 0.5 0.5 unit_price priced
openai/m-voice Seconds 750 Seconds 0.006 4.5 unit_price priced`)
	equal(t, "counts", pick(rows, "SkuId", "x_FlyballRequests", "x_FlyballAttempts", "x_FlyballRetries", "x_FlyballUnpricedCalls", "x_FlyballUnknownCalls", "x_FlyballWastedCost"), `
flyball/agent work 1 2 1 0 0 0
openai/m-5 0 4 2 0 0 0.0325
openai/m-5 0 0 0 0 0 0
openai/m-5 0 0 0 0 0 0
openai/m-5 0 0 0 0 0 0
openai/m-free 0 1 0 0 0 0
openai/m-new 0 2 0 1 1 0
openai/m-new 0 0 0 0 0 0
openai/m-old 0 1 0 0 0 0
openai/m-refused 0 1 1 0 0 0
openai/m-voice 0 1 0 0 0 0
openai/m-voice 0 0 0 0 0 0`)
	spend := s.get("/api/v1/spend?" + during)["total"].(map[string]any)
	equal(t, "the sum is the spend", sumOf(rows, "BilledCost"), fmt.Sprint(spend["cost_usd"]))
	amp := list(s.get("/api/v1/amplification?group_by=&" + during)["rows"])[0]
	equal(t, "attempts per request", sumOf(rows, "x_FlyballAttempts")+"/"+sumOf(rows, "x_FlyballRequests"), fmt.Sprint(amp["ratio"], "/1"))
	r := rows[1]
	equal(t, "a row", pick(rows[1:2], "BillingAccountId", "ProviderName", "PublisherName", "ServiceName", "ServiceCategory", "SubAccountId", "ChargePeriodStart", "ChargePeriodEnd", "BillingPeriodStart", "BillingPeriodEnd", "SkuPriceId", "ChargeClass", "InvoiceId"),
		"openai OpenAI OpenAI OpenAI API AI and Machine Learning t-1 2026-03-10T00:00:00Z 2026-03-11T00:00:00Z 2026-03-01T00:00:00Z 2026-04-01T00:00:00Z line/m-5#input=1.25  ")
	if r["SkuPriceDetails"] != `{"x_PriceLine":"line/m-5"}` {
		t.Errorf("details: %s", r["SkuPriceDetails"])
	}
}

// What rounding left is a row of its own, and a price that is another now splits nothing.
func TestFocusRemaindersAndOtherPrices(t *testing.T) {
	prices := listed
	prices.discount = map[string]string{"t-2": "0.9", "t-3": "0.987654321"}
	s := newStore(t, func(o *Options) { o.Prices = prices })
	one := newTrace("t-1", "r", 1, nil)
	// 1 token at 3e-13 is nothing when rounded, and so it was posted, three times.
	for range 3 {
		s.post(one.add(schema.KindModel, priced("0"), used("line/odd", schema.Tokens{Input: 1})))
	}
	s.post(one.add(schema.KindModel, priced("0.0025000001"), model("m-6"), used("line/m-5", schema.Tokens{Input: 2000})))
	s.post(newTrace("t-2", "r", 2, nil).add(schema.KindModel, priced("0.00225"), used("line/m-5", schema.Tokens{Input: 2000})))
	s.post(newTrace("t-3", "r", 3, nil).add(schema.KindModel, priced("0.000000246914"), used("line/odd", schema.Tokens{Input: 833334})))
	rows := s.focusRows(during)
	equal(t, "rows", pick(bills(rows), "SubAccountId", "SkuId", "SkuMeter", "ListUnitPrice", "ContractedUnitPrice", "ListCost", "BilledCost", "ChargeCategory", "x_FlyballCostBasis"), `
t-1 openai/m-5 Input Tokens 0.0000003 0.0000003 0.0000000000009 0.0000000000009 Usage unit_price
t-1 openai/m-5 Rounding   -0.0000000000009 -0.0000000000009 Adjustment remainder
t-1 openai/m-6 All Tokens 0.0025000001 0.0025000001 0.0025000001 0.0025000001 Usage total
t-2 openai/m-5 Input Tokens 1.25 1.125 0.0025 0.00225 Usage unit_price
t-3 openai/m-5 All Tokens 0.000000246914 0.000000246914 0.000000246914 0.000000246914 Usage total`)
	equal(t, "sum", sumOf(rows, "BilledCost"), fmt.Sprint(s.get("/api/v1/spend?" + during)["total"].(map[string]any)["cost_usd"]))
	none := newStore(t)
	none.post(newTrace("t-1", "r", 1, nil).add(schema.KindModel, priced("3"), used("line/m-5", schema.Tokens{Input: 2000})))
	equal(t, "without unit prices", pick(bills(none.focusRows(during)), "SkuMeter", "BilledCost", "ConsumedQuantity", "x_FlyballMeter"), "All Tokens 3 2000 all")
}

// Prices of one line that differ by size or by the clock are rows of their own.
func TestFocusSplitsWherePricesChange(t *testing.T) {
	s := newStore(t, func(o *Options) {
		o.Prices = unitPrices{above: 1000, lines: map[string]map[string]string{
			"line/m-5": {"input": "0.000001"}, "line/m-5/above": {"input": "0.000002"}, "line/clock": {"input": "0.000001"}, "line/clock/noon": {"input": "0.000005"}}}
	})
	tr := newTrace("t-1", "r", 1, nil)
	s.post(
		tr.add(schema.KindModel, priced("0.001"), used("line/m-5", schema.Tokens{Input: 1000})),
		tr.add(schema.KindModel, priced("0.0005"), used("line/m-5", schema.Tokens{Input: 500})),
		tr.add(schema.KindModel, priced("0.002002"), used("line/m-5", schema.Tokens{Input: 1001})),
		at(tr.add(schema.KindModel, priced("0.0001"), model("m-6"), used("line/clock", schema.Tokens{Input: 100})), "2026-03-10T11:59:59.999Z", "2026-03-10T13:00:00Z"),
		at(tr.add(schema.KindModel, priced("0.0005"), model("m-6"), used("line/clock", schema.Tokens{Input: 100})), "2026-03-10T12:00:00Z", "2026-03-10T13:00:00Z"),
	)
	equal(t, "rows", pick(bills(s.focusRows(during)), "SkuPriceId", "ConsumedQuantity", "BilledCost"), `
line/m-5#input=1 1500 0.0015
line/m-5#input=2 1001 0.002002
line/clock#input=1 100 0.0001
line/clock#input=5 100 0.0005`)
}

// A change of a line's prices within a day is two rows and no sum of a whole.
func TestFocusSplitsWherePricesChangeForGood(t *testing.T) {
	s := newStore(t, func(o *Options) {
		o.Prices = unitPrices{eras: map[string][]int64{"line/m-5": {noon.UnixNano()}}, lines: map[string]map[string]string{
			"v1:line/m-5": {"input": "0.000001"}, "v1:line/m-5/era": {"input": "0.000002"}}}
	})
	tr := newTrace("t-1", "r", 1, nil)
	s.post(
		at(tr.add(schema.KindModel, priced("0.001"), used("v1:line/m-5", schema.Tokens{Input: 1000})), "2026-03-10T11:59:59.999999999Z", "2026-03-10T13:00:00Z"),
		at(tr.add(schema.KindModel, priced("0.002"), used("v1:line/m-5", schema.Tokens{Input: 1000})), "2026-03-10T12:00:00Z", "2026-03-10T13:00:00Z"),
	)
	equal(t, "rows", pick(bills(s.focusRows(during)), "SkuPriceId", "ConsumedQuantity", "BilledCost"), "v1:line/m-5#input=1 1000 0.001\nv1:line/m-5#input=2 1000 0.002")
}

// Corrections are that only of a month that was closed, and then in the month that booked them.
func TestFocusCorrections(t *testing.T) {
	s := newStore(t, func(o *Options) { o.Prices = listed })
	tr := newTrace("t-1", "r", 1, nil)
	first := tr.add(schema.KindModel, priced("0.0025"), used("line/m-5", schema.Tokens{Input: 2000}))
	gone := tr.add(schema.KindModel, priced("0.01"), used("line/m-5", schema.Tokens{Output: 1000}))
	s.post(first, gone)
	pair := replaced(first, func(e *schema.Entry) { priced("0.00375")(e); e.Posting.Tokens.Input = 3000 })
	s.post(moved(pair[0], "2026-04-10T00:00:00Z"), moved(pair[1], "2026-04-10T00:00:00Z"))
	fields := []string{"ChargeClass", "SkuMeter", "PricingQuantity", "BilledCost", "ChargePeriodStart", "BillingPeriodStart"}
	const open = "\n Input Tokens 0.003 0.00375 2026-03-10T00:00:00Z 2026-03-01T00:00:00Z\n Output Tokens 0.001 0.01 2026-03-10T00:00:00Z 2026-03-01T00:00:00Z"
	equal(t, "open month", pick(bills(s.focusRows(during)), fields...), open)
	if code, body := s.send("/api/v1/close", "", `{"period":"2026-03","as_of":"2026-04-09"}`); code != http.StatusOK {
		t.Fatal(code, body)
	}
	s.post(moved(cancel(gone), "2026-05-02T00:00:00Z"))
	rows := s.focusRows(during)
	equal(t, "closed month", pick(bills(rows), fields...), `
 Input Tokens 0.002 0.0025 2026-03-10T00:00:00Z 2026-03-01T00:00:00Z
 Output Tokens 0.001 0.01 2026-03-10T00:00:00Z 2026-03-01T00:00:00Z
Correction Input Tokens 0.001 0.00125 2026-03-10T00:00:00Z 2026-04-01T00:00:00Z
Correction Output Tokens -0.001 -0.01 2026-03-10T00:00:00Z 2026-05-01T00:00:00Z`)
	equal(t, "sum", sumOf(rows, "BilledCost"), "0.00375")
	_, total := s.closeRows("period=2026-03")
	equal(t, "the close says the same", total, "0.0125 0.00375 -0.00875 2 1")
	// A repricing under the same line, booked after the close: quantities cancel, the money does not.
	again := replaced(pair[1], priced("0.005"))
	s.post(moved(again[0], "2026-04-11T00:00:00Z"), moved(again[1], "2026-04-11T00:00:00Z"))
	equal(t, "repriced", pick(bills(s.focusRows(during))[2:3], "ChargeClass", "SkuMeter", "PricingQuantity", "BilledCost"), "Correction All Tokens 1 0.0025")
}

// Days and months are the tenant's.
func TestFocusInTheTenantsZone(t *testing.T) {
	zone, err := time.LoadLocation("America/New_York")
	if err != nil {
		t.Fatal(err)
	}
	s := newStore(t, func(o *Options) { o.Prices, o.Zone = listed, func(string) *time.Location { return zone } })
	tr := newTrace("t-1", "r", 1, nil)
	for _, start := range []string{"2026-03-08T04:59:59Z", "2026-03-08T05:00:00Z", "2026-03-09T03:59:59Z", "2026-03-09T04:00:00Z", "2026-04-01T03:59:59Z"} {
		s.post(at(tr.add(schema.KindModel, priced("0.0025"), used("line/m-5", schema.Tokens{Input: 2000})), start, start))
	}
	equal(t, "days", pick(bills(s.focusRows("tenant=t-1&from=2026-03-01&to=2026-04-01")), "ChargePeriodStart", "ChargePeriodEnd", "BilledCost", "BillingPeriodStart", "BillingPeriodEnd"), `
2026-03-07T05:00:00Z 2026-03-08T05:00:00Z 0.0025 2026-03-01T05:00:00Z 2026-04-01T04:00:00Z
2026-03-08T05:00:00Z 2026-03-09T04:00:00Z 0.005 2026-03-01T05:00:00Z 2026-04-01T04:00:00Z
2026-03-09T04:00:00Z 2026-03-10T04:00:00Z 0.0025 2026-03-01T05:00:00Z 2026-04-01T04:00:00Z
2026-03-31T04:00:00Z 2026-04-01T04:00:00Z 0.0025 2026-03-01T05:00:00Z 2026-04-01T04:00:00Z`)
	s.refuse("/api/v1/export/focus?tenant=t-1&from=2026-03-01T00:00:00Z&to=2026-03-02", http.StatusBadRequest, "whole days of America/New_York")
}

func TestFocusRefuses(t *testing.T) {
	s := newStore(t)
	f := func(query, words string) {
		t.Helper()
		s.refuse("/api/v1/export/focus?"+query, http.StatusBadRequest, words)
	}
	f("to=2026-03-10", "from is missing")
	f("from=2026-03-10", "to is missing")
	f("from=2026-03-10&to=2026-03-11T00:30:00Z", "whole days of UTC")
	f("format=xlsx&"+during, "csv or parquet")
	f("group_by=model&"+during, "unknown parameter")
	f("from=2026-03-11&to=2026-03-10", "not before")
	s.refuse("/api/v1/export/focus?format=parquet&"+during, http.StatusNotImplemented, "format=csv")
}

// The engine writes Parquet, with decimals, and reads the same from it.
func TestFocusParquet(t *testing.T) {
	var s *store
	s = newStore(t, func(o *Options) {
		o.Prices = listed
		o.SQL = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.e.ReadHandler().ServeHTTP(w, r) })
	})
	tr := newTrace("t-1", "r-1", 1, map[schema.Dim]string{schema.Workflow: "quote"})
	s.post(tr.add(schema.KindRequest), tr.add(schema.KindModel, priced("0.0145"), used("line/m-5", schema.Tokens{Input: 2000, CacheRead: 16000, Output: 1000})), tr.add(schema.KindModel, priced("0"), used("line/odd", schema.Tokens{Input: 1})))
	status, h, body := s.do("/api/v1/export/focus?format=parquet&"+during, "")
	if status != http.StatusOK || !strings.HasPrefix(body, "PAR1") || !strings.HasSuffix(body, "PAR1") || !strings.Contains(h.Get("Content-Disposition"), "flyball-focus-2026-03-10-2026-03-11.parquet") {
		t.Fatalf("got %d %v %.100q", status, h, body)
	}
	name := filepath.Join(t.TempDir(), "focus.parquet")
	if err := os.WriteFile(name, []byte(body), 0o600); err != nil {
		t.Fatal(err)
	}
	if n := s.count("SELECT count() FROM system.tables WHERE name LIKE 'export%'"); n != 0 {
		t.Errorf("%d tables are left", n)
	}
	if status, _, body := s.do("/api/v1/export/focus?format=parquet&from=2026-05-01&to=2026-05-02", ""); status != http.StatusOK || !strings.HasPrefix(body, "PAR1") {
		t.Errorf("of nothing: %d %.200q", status, body)
	}
	want := s.focusRows(during)
	// The engine's child may read its own directory alone; what the file holds is asked by text.
	for _, c := range focusColumns {
		if !strings.Contains(body, c.name) {
			t.Errorf("no column %s in the file", c.name)
		}
	}
	if len(want) != 6 {
		t.Errorf("rows: %s", pick(want, "SkuMeter", "BilledCost"))
	}
	python := os.Getenv("FLYBALL_PYTHON")
	if python == "" {
		t.Log("FLYBALL_PYTHON is not set to a Python with pyarrow: the file is not read back")
		return
	}
	out, err := exec.CommandContext(t.Context(), python, "-c", "import pyarrow.parquet as p,sys\nt=p.read_table(sys.argv[1])\nprint(t.schema.field('BilledCost').type, t.schema.field('ChargePeriodStart').type)\nfor r in t.to_pylist(): print(r['SkuMeter'], format(r['BilledCost'].normalize(),'f'), r['InvoiceId'])", name).CombinedOutput()
	if err != nil {
		t.Fatalf("read Parquet: %v %s", err, out)
	}
	text := strings.Split(strings.TrimSpace(string(out)), "\n")
	var lines []string
	for _, r := range want {
		lines = append(lines, r["SkuMeter"]+" "+r["BilledCost"]+" None")
	}
	if !strings.HasPrefix(text[0], "decimal128(38, 18) timestamp") || !slices.Equal(text[1:], lines) {
		t.Errorf("got %q, want %q", text, lines)
	}
}

// The FinOps Foundation's validator, where it is installed as focus-validator.
func TestFocusValidator(t *testing.T) {
	bin := os.Getenv("FLYBALL_FOCUS_VALIDATOR")
	if bin == "" {
		var err error
		if bin, err = exec.LookPath("focus-validator"); err != nil {
			t.Skip("focus-validator is not installed (pip install focus_validator); checkFocus restates its rules")
		}
	}
	s := newStore(t, func(o *Options) { o.Prices = listed })
	tr := newTrace("t-1", "r-1", 1, map[schema.Dim]string{schema.Workflow: "quote"})
	s.post(tr.add(schema.KindRequest), tr.add(schema.KindModel, priced("0.0145"), used("line/m-5", schema.Tokens{Input: 2000, CacheRead: 16000, Output: 1000})),
		tr.add(schema.KindModel, priced("7"), model("m-old")), tr.add(schema.KindModel, status(schema.CostUnknown)), tr.add(schema.KindModel, status(schema.CostUnpriced), used("", schema.Tokens{Input: 5})))
	_, _, body := s.do("/api/v1/export/focus?"+during, "")
	rows, err := csv.NewReader(strings.NewReader(body)).ReadAll()
	if err != nil || len(rows) < 5 {
		t.Fatal(err, body)
	}
	name := filepath.Join(t.TempDir(), "focus.csv")
	if err := os.WriteFile(name, []byte(body), 0o600); err != nil {
		t.Fatal(err)
	}
	versions, err := exec.CommandContext(t.Context(), bin, "--supported-versions").CombinedOutput()
	if err != nil {
		t.Fatalf("ask for versions: %v %s", err, versions)
	}
	if !bytes.Contains(versions, []byte("1.2")) {
		t.Skipf("this focus-validator knows %s, which is older than the file", bytes.Join(bytes.Fields(versions), []byte(", ")))
	}
	out, err := exec.CommandContext(t.Context(), bin, "--data-file", name, "--validate-version", "1.2", "--applicability-criteria", "ALL").CombinedOutput()
	if err != nil || bytes.Contains(out, []byte("Validation failed")) {
		t.Errorf("the validator does not pass the file: %v %s", err, out)
	}
}

// What a person booked stands by itself, and corrects a month that is closed.
func TestFocusAdjustments(t *testing.T) {
	s := newStore(t)
	tr := newTrace("t-1", "r", 1, nil)
	booked := func(usd, reason, provider, model, recorded string) schema.Entry {
		e := at(tr.add(schema.KindAdjustment, priced(usd)), "2026-03-10T12:00:00Z", recorded)
		e.Source, e.Scope, e.Name, e.Provider, e.Model = schema.SourceAdjustment, "jo", reason, provider, model
		return e
	}
	s.post(at(tr.add(schema.KindModel, priced("1")), "2026-03-10T12:00:00Z", "2026-03-10T12:00:01Z"), booked("2", "fee", "openai", "m-5", "2026-03-11T00:00:00Z"), booked("3", "fee", "openai", "m-5", "2026-03-12T00:00:00Z"), booked("0.5", "support", "", "", "2026-03-12T00:00:00Z"))
	if code, body := s.send("/api/v1/close", "", `{"period":"2026-03","as_of":"2026-04-01"}`); code != http.StatusOK {
		t.Fatal(code, body)
	}
	s.post(booked("-4", "credit note 7", "openai", "m-5", "2026-04-03T00:00:00Z"))
	rows := s.focusRows("from=2026-03-01&to=2026-04-01")
	equal(t, "the work of agents is apart", pick(rows[:2], "ServiceName", "BilledCost", "x_FlyballRequests"), "Agent Work 0 1\nUnknown API 0.5 0")
	equal(t, "rows", pick(bills(rows), "ChargeCategory", "ChargeClass", "BilledCost", "ChargeDescription", "SkuId", "BillingPeriodStart", "x_FlyballCostBasis"), `
Adjustment  0.5 adjustment by jo: support  2026-03-01T00:00:00Z booked
Usage  1 m-5: all tokens, not split: the unit prices are no longer known openai/m-5 2026-03-01T00:00:00Z total
Adjustment  5 adjustment by jo: fee openai/m-5 2026-03-01T00:00:00Z booked
Adjustment Correction -4 adjustment by jo: credit note 7 openai/m-5 2026-04-01T00:00:00Z booked`)
	equal(t, "sum", sumOf(rows, "BilledCost"), "2.5")
}

package query

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/flyball/flyball/schema"
)

// euros is a file of rates: none before 2026-03-05, none of its own on the 11th.
func euros(t *testing.T) *schema.Rates {
	t.Helper()
	name := filepath.Join(t.TempDir(), "ecb.csv")
	if err := os.WriteFile(name, []byte("date,currency,rate\n2026-03-05,EUR,1.0842\n2026-03-09,EUR,1.25\n2026-03-10,EUR,3\n2026-03-12,EUR,0.7\n2026-03-31,EUR,1.5\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := schema.LoadRates([]string{name})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func withEuros(t *testing.T) func(*Options) {
	r := euros(t)
	return func(o *Options) { o.Rates = func() *schema.Rates { return r } }
}

func TestSpendInAnotherCurrency(t *testing.T) {
	s := newStore(t, withEuros(t))
	tr := newTrace("t-1", "r", 1, nil)
	s.post(
		at(tr.add(schema.KindModel, priced("1")), "2026-03-09T23:59:59Z", "2026-03-12T00:00:00Z"),
		at(tr.add(schema.KindModel, priced("1")), "2026-03-10T00:00:00Z", "2026-03-12T00:00:00Z"),
		at(tr.add(schema.KindModel, priced("-1"), model("m-6")), "2026-03-10T23:00:00Z", "2026-03-12T00:00:00Z"),
		at(tr.add(schema.KindModel, priced("2"), model("m-6")), "2026-03-11T10:00:00Z", "2026-03-12T00:00:00Z"),
		at(tr.add(schema.KindModel, status(schema.CostUnknown), model("m-7")), "2026-03-01T10:00:00Z", "2026-03-12T00:00:00Z"))
	m := s.get("/api/v1/spend?group_by=model&from=2026-03-09&to=2026-03-13&currency=EUR")
	// 1/1.25 + 1/3; the 11th has the rate of the 10th: -1/3 + 2/3, each rounded.
	equal(t, "rows", show(list(m["rows"]), "model", "cost_usd", "cost", "currency"), "m-5 2 1.133333333333 EUR\nm-6 1 0.333333333334 EUR")
	equal(t, "total", show([]map[string]any{m["total"].(map[string]any)}, "cost_usd", "cost"), "3 1.466666666667")
	equal(t, "rates", show(list(m["rates"]), "day", "usd", "of", "source", "carried"), "2026-03-09 1.25 2026-03-09 ecb.csv false\n2026-03-10 3 2026-03-10 ecb.csv false\n2026-03-11 3 2026-03-10 ecb.csv true")
	h, file := s.file("/api/v1/spend?group_by=model&from=2026-03-09&to=2026-03-13&currency=EUR&format=csv")
	equal(t, "file", columns(t, file, "model", "cost", "currency", "cost_usd"), "m-5 1.133333333333 EUR 2\nm-6 0.333333333334 EUR 1")
	equal(t, "header", h.Get("X-Flyball-Currency"), `EUR; days=3; carried=1; sources="ecb.csv"`)
	day := s.get("/api/v1/spend?group_by=&interval=1d&from=2026-03-09&to=2026-03-13&currency=EUR")
	equal(t, "days", show(list(day["rows"]), "at", "cost"), "2026-03-09T00:00:00Z 0.8\n2026-03-10T00:00:00Z 0\n2026-03-11T00:00:00Z 0.666666666667")
	page := s.get("/api/v1/spend?group_by=model&from=2026-03-09&to=2026-03-13&currency=EUR&limit=1")
	next := s.get("/api/v1/spend?group_by=model&from=2026-03-09&to=2026-03-13&currency=EUR&limit=1&cursor=" + page["next"].(string))
	if fmt.Sprint(page["total"]) != fmt.Sprint(next["total"]) || show(list(next["rows"]), "cost") != "0.333333333334" {
		t.Errorf("pages: %v %v", page, next)
	}
	if m := s.get("/api/v1/spend?from=2026-03-09&to=2026-03-13&currency=USD"); m["rates"] != nil || list(m["rows"])[0]["cost"] != nil {
		t.Errorf("in USD: %v", m)
	}
	// As of an instant, from the journal.
	m = s.get("/api/v1/spend?group_by=model&from=2026-03-09&to=2026-03-13&currency=EUR&as_of=2026-03-12T00:00:01Z")
	equal(t, "as of", show(list(m["rows"]), "model", "cost"), "m-5 1.133333333333\nm-6 0.333333333334")

	// A day without a cost needs no rate, one with a cost does.
	if m := s.get("/api/v1/spend?from=2026-03-01&to=2026-03-13&currency=EUR"); list(m["rows"])[0]["cost"] != "1.466666666667" {
		t.Errorf("with a day before the first rate: %v", m)
	}
	s.post(at(tr.add(schema.KindModel, priced("1")), "2026-03-04T10:00:00Z", "2026-03-12T00:00:00Z"))
	s.refuse("/api/v1/spend?from=2026-03-01&to=2026-03-13&currency=EUR", http.StatusBadRequest, "no rate of EUR on 2026-03-04 or before")
	s.refuse("/api/v1/spend?currency=GBP", http.StatusBadRequest, "no rate of GBP is known, there are those of EUR")
	s.refuse("/api/v1/spend?currency=euro", http.StatusBadRequest, "want a code such as EUR")
	s.refuse("/api/v1/amplification?currency=EUR", http.StatusBadRequest, "this answer is in USD; spend, movers")
	plain := newStore(t)
	plain.refuse("/api/v1/spend?currency=EUR", http.StatusBadRequest, "there are none; name files")
}

// The database rounds as the integers do here, half even on both sides of zero.
func TestConversionIsExact(t *testing.T) {
	s := newStore(t, withEuros(t))
	rnd := rand.New(rand.NewPCG(5, 6))
	rates := euros(t)
	want := new(big.Int)
	tr := newTrace("t-1", "r", 1, nil)
	var entries []schema.Entry
	for i := range 200 {
		day := time.Date(2026, 3, 5+i%8, 1, 0, 0, 0, time.UTC)
		v := rnd.Int64N(1<<(10+i%50)) - 1<<(9+i%50)
		if i < 40 {
			v = int64(i - 20) // quarters of 1.25 and halves of 1.5 fall in between
		}
		e := at(tr.add(schema.KindModel, priced("1"), model(fmt.Sprint("m-", i))), day.Format(time.RFC3339), "2026-04-01T00:00:00Z")
		e.Posting.Cost = schema.Money(v)
		entries = append(entries, e)
		rate, ok := rates.On("EUR", day.Truncate(24*time.Hour))
		if !ok {
			t.Fatal(day)
		}
		want.Add(want, rate.FromUSD(big.NewInt(v)))
	}
	s.post(entries...)
	m := s.get("/api/v1/spend?group_by=model&from=2026-03-01&to=2026-04-01&currency=EUR")
	if got := m["total"].(map[string]any)["cost"]; got != usd(want) {
		t.Errorf("got %v, want %s", got, usd(want))
	}
	sum := new(big.Rat)
	for _, r := range list(m["rows"]) {
		sum.Add(sum, rat(t, r["cost"].(string)))
	}
	if sum.Cmp(rat(t, usd(want))) != 0 {
		t.Errorf("the rows sum to %s", sum.FloatString(12))
	}
}

func TestCloseInAnotherCurrency(t *testing.T) {
	s := newStore(t, withEuros(t))
	tr := newTrace("t-1", "r", 1, nil)
	s.post(at(tr.add(schema.KindModel, priced("1")), "2026-03-09T12:00:00Z", "2026-03-09T12:00:00Z"), at(tr.add(schema.KindModel, priced("1")), "2026-03-10T12:00:00Z", "2026-03-10T12:00:00Z"),
		at(tr.add(schema.KindModel, priced("50")), "2026-02-28T12:00:00Z", "2026-02-28T12:00:00Z")) // no rate, and none is needed
	if code, body := s.send("/api/v1/close", "", `{"period":"2026-03","as_of":"2026-04-01"}`); code != http.StatusOK {
		t.Fatal(code, body)
	}
	s.post(at(tr.add(schema.KindModel, priced("0.7"), model("m-late")), "2026-03-12T12:00:00Z", "2026-04-03T00:00:00Z"))
	m := s.get("/api/v1/close?period=2026-03&currency=EUR")
	equal(t, "rows", show(list(m["rows"]), "model", "frozen_usd", "frozen", "current", "adjustment", "currency"), "m-5 2 1.133333333333 1.133333333333 0 EUR\nm-late 0 0 1 1 EUR")
	equal(t, "total", show([]map[string]any{m["total"].(map[string]any)}, "frozen", "current", "adjustment"), "1.133333333333 2.133333333333 1")
	_, file := s.file("/api/v1/close?period=2026-03&currency=EUR&format=csv")
	equal(t, "file", columns(t, file, "model", "adjustment", "currency"), "m-5 0 EUR\nm-late 1 EUR")

	// The rollup has expired.
	if err := s.e.Conn().Exec(t.Context(), "ALTER TABLE spend_15m DELETE WHERE booked_on < '2026-03-10' SETTINGS mutations_sync = 1"); err != nil {
		t.Fatal(err)
	}
	s.refuse("/api/v1/close?period=2026-03&currency=EUR", http.StatusConflict, "no longer all there")
}

// A credit that takes back what another day cost leaves nothing in USD, and something in a
// currency whose rate has changed. The row stays, so that a total is the same by whatever it is grouped.
func TestNothingInUSDMayBeSomethingInAnotherCurrency(t *testing.T) {
	s := newStore(t, withEuros(t))
	tr := newTrace("t-1", "r", 1, nil)
	adjustment := func(usd, day string) schema.Entry {
		e := at(tr.add(schema.KindAdjustment, priced(usd)), day+"T12:00:00Z", "2026-03-20T00:00:00Z")
		e.Source, e.Scope, e.Name = schema.SourceAdjustment, "jo", "fee"
		e.Provider, e.Model = "openai", "m-5"
		return e
	}
	s.post(at(tr.add(schema.KindModel, priced("1"), model("m-6")), "2026-03-09T12:00:00Z", "2026-03-20T00:00:00Z"), adjustment("1", "2026-03-09"), adjustment("-1", "2026-03-10"))
	const want = "0 0.466666666667" // 1/1.25 - 1/3
	for _, groups := range []string{"model", "model&interval=1d", "model&interval=1mo"} {
		m := s.get("/api/v1/spend?group_by=" + groups + "&model=m-5&from=2026-03-01&to=2026-04-01&currency=EUR")
		equal(t, groups, show([]map[string]any{m["total"].(map[string]any)}, "cost_usd", "cost"), want)
	}
	m := s.get("/api/v1/spend?group_by=model&from=2026-03-01&to=2026-04-01&currency=EUR")
	equal(t, "rows", show(list(m["rows"]), "model", "cost_usd", "cost"), "m-6 1 0.8\nm-5 0 0.466666666667")
	if code, body := s.send("/api/v1/close", "", `{"period":"2026-03","as_of":"2026-04-01"}`); code != http.StatusOK {
		t.Fatal(code, body)
	}
	m = s.get("/api/v1/close?period=2026-03&currency=EUR")
	equal(t, "closed", show(list(m["rows"]), "model", "frozen_usd", "frozen", "adjustment"), "m-5 0 0.466666666667 0\nm-6 1 0.8 0")
	equal(t, "closed in all", show([]map[string]any{m["total"].(map[string]any)}, "frozen_usd", "frozen"), "1 1.266666666667")
	m = s.get("/api/v1/close?period=2026-03")
	equal(t, "closed in USD", show(list(m["rows"]), "model", "frozen_usd"), "m-6 1")
}

// Quantity times price stays the cost of each row, and the file the sum of spend.
func TestFocusInAnotherCurrency(t *testing.T) {
	s := newStore(t, withEuros(t), func(o *Options) { o.Prices = listed })
	tr := newTrace("t-1", "r", 1, nil)
	s.post(tr.add(schema.KindModel, priced("0.000138750000"), used("line/m-5", schema.Tokens{Input: 100, CacheRead: 30, Output: 1})), tr.add(schema.KindModel, priced("0.1"), model("m-6"), wasted), tr.add(schema.KindModel, status(schema.CostUnknown), model("m-7")))
	rows := bills(s.focusRows(during + "&currency=EUR")) // checks each row
	for _, r := range rows {
		if r["BillingCurrency"] != "EUR" || r["x_FlyballExchangeRate"] != "3" || r["x_FlyballExchangeRateDay"] != "2026-03-10" || r["x_FlyballExchangeRateSource"] != "ecb.csv" {
			t.Errorf("row: %v", r)
		}
	}
	spend := s.get("/api/v1/spend?group_by=tenant,provider,model&" + during + "&currency=EUR")
	if got, want := sumOf(rows, "BilledCost"), spend["total"].(map[string]any)["cost"]; got != want {
		t.Errorf("the file sums to %s, spend is %v", got, want)
	}
	text := pick(rows, "SkuMeter", "x_FlyballCostBasis", "x_FlyballWastedCost")
	for _, want := range []string{"Input Tokens unit_price", "All Tokens total 0.033333333333", "Calls none"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

// So it is with corrections of a closed month and with what a person booked, each of
// which has a part of the day's rounding; the rows of before stay as they were.
func TestFocusWithCorrectionsInAnotherCurrency(t *testing.T) {
	s := newStore(t, withEuros(t), func(o *Options) { o.Prices = listed })
	tr := newTrace("t-1", "r", 1, nil)
	entry := func(kind schema.Kind, usd, model, recorded string) schema.Entry {
		e := at(tr.add(kind, priced(usd)), "2026-03-10T12:00:00Z", recorded)
		e.Provider, e.Model = "openai", model
		if kind == schema.KindAdjustment {
			e.Source, e.Scope, e.Name = schema.SourceAdjustment, "jo", "fee"
			if model == "" {
				e.Provider = ""
			}
		}
		return e
	}
	const then, later = "2026-03-10T12:00:01Z", "2026-04-03T00:00:00Z"
	s.post(entry(schema.KindModel, "0.1", "m-5", then), entry(schema.KindModel, "0.1", "m-6", then), entry(schema.KindAdjustment, "0.1", "", then))
	if code, body := s.send("/api/v1/close", "", `{"period":"2026-03","as_of":"2026-04-01"}`); code != http.StatusOK {
		t.Fatal(code, body)
	}
	fields := []string{"SkuId", "ChargeClass", "SkuMeter", "BilledCost"}
	const query = during + "&currency=EUR"
	const before = `
openai/m-5  All Tokens 0.033333333333
openai/m-6  All Tokens 0.033333333333`
	f := func(name, want string) {
		t.Helper()
		rows := bills(s.focusRows(query))
		equal(t, name, pick(rows, fields...), want)
		groups := map[string]*big.Rat{}
		for _, r := range rows {
			if groups[r["SkuId"]] == nil {
				groups[r["SkuId"]] = new(big.Rat)
			}
			groups[r["SkuId"]].Add(groups[r["SkuId"]], rat(t, r["BilledCost"]))
		}
		for _, r := range list(s.get("/api/v1/spend?group_by=tenant,provider,model&" + query)["rows"]) {
			key := fmt.Sprint(r["provider"], "/", r["model"])
			got := groups[key]
			if key == "/" { // what was booked for no model, and what rounding left of it
				if got = groups[""]; groups["unknown/unknown"] != nil {
					got.Add(got, groups["unknown/unknown"])
				}
			}
			if got == nil || got.Cmp(rat(t, r["cost"].(string))) != 0 {
				t.Errorf("%s: %q is %v in the file, spend says %v", name, key, got, r["cost"])
			}
		}
	}
	f("before", "  Adjustment 0.033333333333"+before)
	s.post(entry(schema.KindModel, "0.1", "m-5", later), entry(schema.KindAdjustment, "0.1", "m-6", later), entry(schema.KindAdjustment, "0.1", "", later))
	f("after", "  Adjustment 0.033333333333"+before+`
 Correction Adjustment 0.033333333333
unknown/unknown Correction Rounding of the conversion 0.000000000001
openai/m-5 Correction All Tokens 0.033333333333
openai/m-5 Correction Rounding of the conversion 0.000000000001
openai/m-6 Correction Adjustment 0.033333333333
openai/m-6 Correction Rounding of the conversion 0.000000000001`)
}

// What retries wasted, and what caches and batches save, by the rates of each day.
func TestSavingsAndWasteInAnotherCurrency(t *testing.T) {
	s := newStore(t, withEuros(t), withPrices(cachePrices))
	tr := newTrace("t-1", "r", 1, nil)
	batched := func(e *schema.Entry) { e.Posting.Identity[schema.Mode] = "batch" }
	post := func(day string, usd string, tok schema.Tokens, change ...func(*schema.Entry)) {
		e := tr.add(schema.KindModel, append([]func(*schema.Entry){priced(usd), used("line/m-5", tok), wasted}, change...)...)
		s.post(at(e, day+"T12:00:00Z", "2026-03-20T00:00:00Z"))
	}
	post("2026-03-09", "0.01", schema.Tokens{CacheRead: 100_000}, batched)
	post("2026-03-10", "0.01", schema.Tokens{CacheRead: 100_000}, batched)
	const window = "&from=2026-03-01&to=2026-03-20&currency=EUR"
	// 0.09 USD were saved on each day: 0.072 and 0.03 EUR.
	m := s.get("/api/v1/cache?group_by=model" + window)
	equal(t, "cache", show(append(list(m["rows"]), m["total"].(map[string]any)), "model", "saved_usd", "read_saved", "write_extra", "saved", "currency"), "m-5 0.18 0.102 0 0.102 EUR\n<nil> 0.18 0.102 0 0.102 EUR")
	m = s.get("/api/v1/batch?group_by=model" + window)
	equal(t, "batch", show(list(m["rows"]), "spend", "eligible", "saving", "unknown_price"), "0.011333333333 0.011333333333 0.005666666667 0")
	equal(t, "rates", show(list(m["rates"]), "day", "usd"), "2026-03-09 1.25\n2026-03-10 3")
	m = s.get("/api/v1/retries?group_by=model&model=m-5" + window)
	equal(t, "retries", show(list(m["rows"]), "model", "wasted_usd", "wasted", "currency"), "m-5 0.02 0.011333333333 EUR")
	_, file := s.file("/api/v1/cache?group_by=model&format=csv" + window)
	equal(t, "file", columns(t, file, "model", "saved", "currency"), "m-5 0.102 EUR")
	// A cost before the first rate.
	post("2026-03-04", "0.01", schema.Tokens{CacheRead: 100_000})
	for _, q := range []string{"cache", "batch", "retries"} {
		s.refuse("/api/v1/"+q+"?group_by=model"+window, http.StatusBadRequest, "no rate of EUR on 2026-03-04 or before")
	}
}

package query

import (
	"fmt"
	"math/big"
	"net/http"
	"testing"
	"time"

	"github.com/flyball/flyball/schema"
)

// tiered is a price list in which a line has a batch tier under its name and /batch.
type tiered struct{ unitPrices }

func (p tiered) UnitPrices(c PricedCall) ([]UnitPrice, bool) {
	if _, ok := p.lines[c.Line+"/batch"]; ok && c.ServiceTier == "batch" {
		c.Line += "/batch"
	}
	return p.unitPrices.UnitPrices(c)
}

var cachePrices = tiered{unitPrices{lines: map[string]map[string]string{
	"line/m-5":         {"input": "0.000001", "cache_read": "0.0000001", "cache_write_5m": "0.00000125", "cache_write_1h": "0.000002", "output": "0.00001"},
	"line/m-5/batch":   {"input": "0.0000005", "cache_read": "0.00000005", "cache_write_5m": "0.000000625", "cache_write_1h": "0.000001", "output": "0.000005"},
	"line/m-5/above":   {"input": "0.000002", "cache_read": "0.0000002", "cache_write_5m": "0.0000025", "cache_write_1h": "0.000004", "output": "0.00002"},
	"line/plain":       {"input": "0.0000003", "cache_read": "0.0000003", "output": "0.000001"},
	"line/clock":       {"input": "0.000001", "cache_read": "0.0000001", "output": "0.00001"},
	"line/clock/noon":  {"input": "0.000003", "cache_read": "0.0000003", "output": "0.00003"},
	"line/other-price": {"input": "1", "cache_read": "1", "output": "1"},
}, above: 200_000, discount: map[string]string{"t-2": "0.9"}}}

func withPrices(p UnitPrices) func(*Options) { return func(o *Options) { o.Prices = p } }

func TestCacheSavings(t *testing.T) {
	s := newStore(t, withPrices(cachePrices))
	fields := []string{"model", "calls", "input_tokens", "cache_read_tokens", "cache_write_tokens", "hit_rate", "read_saved_usd", "write_extra_usd", "saved_usd", "unknown_price_calls", "unknown_price_tokens", "cache_unknown_calls"}
	tr := newTrace("t-1", "r", 1, quote)
	flagged := func(f schema.Flags) func(*schema.Entry) { return func(e *schema.Entry) { e.Call.Flags = f } }
	late := tr.add(schema.KindModel, priced("0.0071"), used("line/m-5", schema.Tokens{CacheRead: 1000, Output: 700}))
	late.RecordedAt = noon.AddDate(0, 0, 3).UnixMicro()
	gone := tr.add(schema.KindModel, priced("0.0001"), used("line/m-5", schema.Tokens{CacheRead: 1000}))
	s.post(
		// A write of 1000 for 5 minutes and of 500 for an hour, beside 500 plain: 0.00125 + 0.001 + 0.0005.
		tr.add(schema.KindModel, priced("0.00275"), used("line/m-5", schema.Tokens{Input: 500, CacheWrite5m: 1000, CacheWrite1h: 500})),
		// 8000 read at a tenth: 0.0008, and 100 out: 0.001.
		tr.add(schema.KindModel, priced("0.0018"), used("line/m-5", schema.Tokens{CacheRead: 8000, Output: 100})),
		// Above the cliff, where everything is twice as dear: 300,000 read cost 0.06 instead of 0.6.
		tr.add(schema.KindModel, priced("0.06"), used("line/m-5", schema.Tokens{CacheRead: 300_000})),
		gone, late,
		// Reads at the price of input save nothing.
		tr.add(schema.KindModel, model("plain"), priced("0.0003"), used("line/plain", schema.Tokens{CacheRead: 1000}), flagged(schema.FlagCacheRateMissing)),
		// No cache figures, a price that is not the one that was used, none at all, and unknown usage.
		tr.add(schema.KindModel, model("mute"), priced("0.001"), used("line/m-5", schema.Tokens{Input: 1000}), flagged(schema.FlagCacheUnknown)),
		tr.add(schema.KindModel, model("changed"), priced("0.5"), used("line/other-price", schema.Tokens{Input: 10, CacheRead: 30})),
		tr.add(schema.KindModel, model("unpriced"), status(schema.CostUnpriced), used("", schema.Tokens{Input: 25, CacheRead: 75})),
		tr.add(schema.KindModel, model("unknown"), status(schema.CostUnknown)),
		tr.add(schema.KindTool, tool("search")),
	)
	s.post(cancel(gone))
	// At noon the line of the clock is three times as dear.
	for i, before := range []time.Duration{-time.Hour, 0} {
		c := newTrace("t-2", fmt.Sprint(i), byte(2+i), nil).later(before)
		usd := []string{"0.00009", "0.00027"}[i] // with a tenth off
		s.post(c.add(schema.KindModel, model("clock"), priced(usd), used("line/clock", schema.Tokens{CacheRead: 1000})))
	}
	const all = `
m-5 4 311000 309000 1500 0.9935691318327974 0.5481 0.00075 0.54735 0 0 0
changed 1 40 30 0 0.75 0 0 0 1 30 0
mute 1 1000 0 0 0 0 0 0 0 0 1
plain 1 1000 1000 0 1 0 0 0 0 0 0
unpriced 1 100 75 0 0.75 0 0 0 1 75 0`
	equal(t, "by model", s.one("cache?tenant=t-1", fields...), all)
	equal(t, "the other tenant", s.one("cache?tenant=t-2", fields...), "clock 2 2000 2000 0 1 0.00324 0 0.00324 0 0 0")
	m := s.get("/api/v1/cache?group_by=tenant&limit=1&" + during)
	equal(t, "total", show([]map[string]any{m["total"].(map[string]any)}, "calls", "read_saved_usd", "write_extra_usd", "saved_usd", "unknown_price_calls"), "10 0.55134 0.00075 0.55059 2")
	equal(t, "first page", show(list(m["rows"]), "tenant", "saved_usd"), "t-1 0.54735")
	m = s.get("/api/v1/cache?group_by=tenant&limit=1&cursor=" + m["next"].(string) + "&" + during)
	equal(t, "second page", show(list(m["rows"]), "tenant", "saved_usd"), "t-2 0.00324")
	// What came three days later was not known on the 12th: 1000 reads less.
	equal(t, "as of a day", s.one("cache?tenant=t-1&model=m-5&as_of=2026-03-12", "calls", "read_saved_usd"), "3 0.5472")
	equal(t, "as of an instant", s.one("cache?tenant=t-1&model=m-5&as_of=2026-03-13T11:59:59Z", "calls", "read_saved_usd"), "3 0.5472")
	equal(t, "as of a later instant", s.one("cache?tenant=t-1&model=m-5&as_of=2026-03-13T12:00:01Z", "calls", "read_saved_usd"), "4 0.5481")
	_, file := s.file("/api/v1/cache?tenant=t-1&model=m-5&format=csv&" + during)
	equal(t, "file", columns(t, file, "provider", "model", "saved_usd"), "openai m-5 0.54735")
}

// Without a price list, what was saved is not known; it is not nothing.
func TestCacheWithoutPrices(t *testing.T) {
	s := newStore(t)
	tr := newTrace("t-1", "r", 1, nil)
	s.post(tr.add(schema.KindModel, priced("0.0001"), used("line/m-5", schema.Tokens{CacheRead: 1000})))
	equal(t, "cache", s.one("cache?", "calls", "hit_rate", "saved_usd", "unknown_price_calls", "unknown_price_tokens"), "1 1 0 1 1000")
	s.refuse("/api/v1/cache?group_by=tool&"+during, http.StatusBadRequest, "want any of tenant, user")
	s.refuse("/api/v1/cache?interval=1h&"+during, http.StatusBadRequest, "unknown parameter")
}

// A priced call with random tokens saves what its two prices say, to the last digit.
func TestCacheSavingsAreExact(t *testing.T) {
	s := newStore(t, withPrices(cachePrices))
	tr := newTrace("t-1", "r", 1, nil)
	want := new(big.Rat)
	var out []schema.Entry
	for i := range 50 {
		n := uint64(i*i*977 + 13)
		cost := schema.Money(n*100_000 + 7*10_000_000)
		out = append(out, tr.add(schema.KindModel, priced(cost.String()), used("line/m-5", schema.Tokens{CacheRead: n % 190_000, Output: 7})))
		out[i].Posting.Cost = schema.Money(n%190_000*100_000 + 7*10_000_000)
		want.Add(want, new(big.Rat).SetFrac64(int64(n%190_000)*9, 10_000_000))
	}
	s.post(out...)
	equal(t, "saved", s.one("cache?", "saved_usd"), pico(want).String())
}

func TestBatchSavings(t *testing.T) {
	s := newStore(t, withPrices(cachePrices))
	fields := []string{"model", "calls", "spend_usd", "eligible_usd", "saving_usd", "no_batch_price_calls", "unknown_price_calls", "unknown_price_usd", "unpriced_calls", "unknown_calls"}
	tier := func(name string) func(*schema.Entry) { return func(e *schema.Entry) { e.ServiceTier = name } }
	tokens := schema.Tokens{Input: 1000, CacheRead: 10_000, CacheWrite5m: 800, Output: 300} // 0.001 + 0.001 + 0.001 + 0.003
	batch := newTrace("t-1", "b", 1, map[schema.Dim]string{schema.Mode: "batch"})
	gone := batch.add(schema.KindModel, priced("0.006"), used("line/m-5", tokens))
	late := batch.add(schema.KindModel, priced("0.006"), used("line/m-5", tokens))
	late.RecordedAt = noon.AddDate(0, 0, 3).UnixMicro()
	back := newTrace("t-1", "g", 2, map[schema.Dim]string{schema.Criticality: "background"})
	now := newTrace("t-1", "i", 3, map[schema.Dim]string{schema.Mode: "interactive", schema.Criticality: "standard"})
	other := newTrace("t-2", "b", 4, map[schema.Dim]string{schema.Mode: "batch"})
	s.post(gone, late,
		batch.add(schema.KindModel, priced("0.006"), used("line/m-5", tokens)),
		batch.add(schema.KindModel, priced("0.003"), used("line/m-5", tokens), tier("batch")), // has it already
		batch.add(schema.KindModel, priced("0.0003"), model("plain"), used("line/plain", schema.Tokens{CacheRead: 1000})),
		batch.add(schema.KindModel, priced("0.5"), model("changed"), used("line/other-price", schema.Tokens{Input: 10})),
		batch.add(schema.KindModel, model("unpriced"), status(schema.CostUnpriced), used("", schema.Tokens{Input: 10})),
		batch.add(schema.KindModel, model("unknown"), status(schema.CostUnknown)),
		back.add(schema.KindModel, priced("0.006"), used("line/m-5", tokens), tier("default")),
		back.add(schema.KindModel, priced("0.012"), used("line/m-5", tokens), tier("priority")),
		now.add(schema.KindModel, priced("0.006"), used("line/m-5", tokens)),
		other.add(schema.KindModel, priced("0.0054"), used("line/m-5", tokens)), // with a tenth off
	)
	s.post(cancel(gone))
	equal(t, "by model", s.one("batch?tenant=t-1", fields...), `
m-5 3 0.018 0.018 0.009 0 0 0 0 0
changed 1 0.5 0 0 0 1 0.5 0 0
plain 1 0.0003 0 0 1 0 0 0 0
unknown 1 0 0 0 0 0 0 0 1
unpriced 1 0 0 0 0 0 0 1 0`)
	equal(t, "by mode", s.one("batch?tenant=t-1&model=m-5&group_by=mode,criticality", "mode", "criticality", "calls", "saving_usd"), "batch  2 0.006\n background 1 0.003")
	equal(t, "as of", s.one("batch?tenant=t-1&model=m-5&as_of=2026-03-11", "calls", "saving_usd"), "2 0.006")
	m := s.get("/api/v1/batch?group_by=tenant&" + during)
	equal(t, "by tenant", show(list(m["rows"]), "tenant", "eligible_usd", "saving_usd"), "t-1 0.018 0.009\nt-2 0.0054 0.0027")
	equal(t, "total", show([]map[string]any{m["total"].(map[string]any)}, "spend_usd", "eligible_usd", "saving_usd"), "0.5237 0.0234 0.0117")
	_, file := s.file("/api/v1/batch?tenant=t-1&format=csv&model=m-5&" + during)
	equal(t, "file", columns(t, file, "model", "saving_usd"), "m-5 0.009")
}

// The rows of any grouping add up to the total of none, also where the batch tier of a
// line begins, or its prices change, between calls of a group.
func TestSavingsOfAnyGroupingAddUp(t *testing.T) {
	s := newStore(t, withPrices(tiered{unitPrices{eras: map[string][]int64{"line/tier": {noon.UnixNano()}, "line/fx": {noon.UnixNano(), noon.Add(48 * time.Hour).UnixNano()}}, lines: map[string]map[string]string{
		"v1:line/tier":           {"input": "0.000001", "cache_read": "0.0000001"},
		"v1:line/tier/era":       {"input": "0.000001", "cache_read": "0.0000001"},
		"v1:line/tier/batch":     {"input": "0.000001", "cache_read": "0.0000001"}, // begins with the era
		"v1:line/tier/batch/era": {"input": "0.0000005", "cache_read": "0.00000005"},
		"v1:line/fx":             {"input": "0.00000014", "cache_read": "0.000000014"},
		"v1:line/fx/era":         {"input": "0.00000015", "cache_read": "0.000000015"},
	}}}))
	batch := func(user string) map[schema.Dim]string {
		return map[schema.Dim]string{schema.User: user, schema.Mode: "batch"}
	}
	tokens := schema.Tokens{Input: 1000, CacheRead: 1000}
	for i, user := range []string{"early", "late", "both", "both"} {
		tr := newTrace("t-1", fmt.Sprint(i), byte(1+i), batch(user))
		fx := "0.000154"
		if i%2 == 0 {
			tr.later(-2*time.Second - time.Nanosecond) // its second call is the last of the old era
		} else {
			fx = "0.000165"
		}
		s.post(tr.add(schema.KindModel, priced("0.0011"), used("v1:line/tier", tokens)), tr.add(schema.KindModel, model("fx"), priced(fx), used("v1:line/fx", tokens)))
	}
	cacheFields, batchFields := []string{"calls", "saved_usd", "unknown_price_calls"}, []string{"calls", "spend_usd", "eligible_usd", "saving_usd", "no_batch_price_calls", "unknown_price_calls"}
	for _, group := range []string{"", "user", "model", "user,model"} {
		f := func(path, want string, fields []string) {
			t.Helper()
			m := s.get("/api/v1/" + path + "?group_by=" + group + "&" + during)
			equal(t, path+" by "+group, show([]map[string]any{m["total"].(map[string]any)}, fields...), want)
			sum := map[string]any{}
			for _, name := range fields {
				all := new(big.Rat)
				for _, row := range list(m["rows"]) {
					n, ok := new(big.Rat).SetString(fmt.Sprint(row[name]))
					if !ok {
						t.Fatalf("%s by %s: %s is %v", path, group, name, row[name])
					}
					all.Add(all, n)
				}
				sum[name] = decimalText(all)
			}
			equal(t, "rows of "+path+" by "+group, show([]map[string]any{sum}, fields...), want)
		}
		f("cache", "8 0.004122 0", cacheFields)
		f("batch", "8 0.005038 0.0022 0.0011 6 0", batchFields)
	}
}

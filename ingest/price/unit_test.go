package price

import (
	"maps"
	"math/big"
	"slices"
	"testing"

	"github.com/flyball/flyball/schema"
)

// Quantities times unit prices are the price, wherever nothing is rounded.
func TestUnitPricesAddUp(t *testing.T) {
	c := load(t, basic+`
  t-4: {prices: [{provider: openai, models: [cached], per_million: {input: "0.40", output: "2.00"}}]}
`)
	f := func(q *Query) {
		t.Helper()
		r := c.Price(q)
		units, ok := c.UnitPrices(r.PriceID, q)
		if !ok {
			t.Fatalf("line %q is not known", r.PriceID)
		}
		quantity := map[string]uint64{"request": 1, "web_search": q.Units.WebSearches, "image": q.Units.Images, "page": q.Units.Pages}
		for i, v := range q.Tokens.Fields() {
			quantity[schema.TokenNames[i]] = *v
		}
		sum := new(big.Rat)
		for _, u := range units {
			sum.Add(sum, new(big.Rat).Mul(u.Contracted, new(big.Rat).SetInt(new(big.Int).SetUint64(quantity[u.Component]))))
			if u.Contracted.Cmp(u.List) > 0 || q.Tenant != "t-3" && u.Contracted.Cmp(u.List) != 0 {
				t.Errorf("%s: list %s, contracted %s", u.Component, u.List, u.Contracted)
			}
		}
		if want := new(big.Rat).SetFrac64(int64(r.Cost), schema.PicoPerUSD); r.Status != schema.CostPriced || sum.Cmp(want) != 0 {
			t.Errorf("%s: units give %s, the price is %s", q.Model, sum.FloatString(18), want.FloatString(18))
		}
	}
	f(query("openai", "cached", schema.Tokens{Input: 4000, CacheRead: 16000, Output: 900, Reasoning: 100}))
	f(query("openai", "no-cache-rate", schema.Tokens{Input: 2000, CacheRead: 8000, CacheWrite1h: 7, InputAudio: 3, Output: 100, OutputImage: 2}))
	f(query("anthropic", "writes", schema.Tokens{CacheWrite5m: 100_000, CacheWrite1h: 300_000}))
	f(query("google", "long", schema.Tokens{Input: 250_000, Output: 2000}))
	f(query("google", "long", schema.Tokens{Input: 200_000, Output: 2000}))
	q := query("openai", "tiered", schema.Tokens{Input: 10, Output: 1})
	q.Tier = "flex"
	f(q)
	q = query("anthropic", "searcher", schema.Tokens{Input: 9500, Output: 528})
	q.Units.WebSearches, q.Tenant = 2, "t-3"
	f(q)
	q = query("openai", "cached", schema.Tokens{Input: 10, Output: 1})
	q.Tenant = "t-4"
	f(q)
	if _, ok := c.UnitPrices("gone:openai/m-0", query("openai", "m-0", schema.Tokens{})); ok {
		t.Error("a line that is not there has prices")
	}
	if u, ok := c.UnitPrices("older version:openai/cached", query("openai", "cached", schema.Tokens{})); !ok || len(u) < 3 {
		t.Errorf("a line of an older version: %v %v", u, ok)
	}
	tokens, minutes, _ := c.Breaks()
	if !slices.Equal(tokens, []uint64{200000}) || len(minutes) != 0 {
		t.Errorf("breaks: %v %v", tokens, minutes)
	}
}

func TestBreaksOfTheClock(t *testing.T) {
	c := load(t, `
prices:
  - {provider: x, models: [night], per_million: {input: "2", output: "4"}, time_bands: [{from: "22:00", to: "04:30", per_million: {input: "1"}}]}
  - {provider: x, models: [day], per_million: {input: "2"}}
`)
	_, minutes, ids := c.Breaks()
	if !slices.Equal(minutes, []int{270, 1320}) || len(ids) != 1 {
		t.Errorf("breaks: %v %v", minutes, ids)
	}
	q := query("x", "night", schema.Tokens{Input: 1})
	for start, want := range map[string]string{"2026-09-10T21:59:59Z": "2.000000", "2026-09-10T22:00:00Z": "1.000000", "2026-09-10T04:30:00Z": "2.000000"} {
		q.Start = at(start)
		u, _ := c.UnitPrices(ids[0], q)
		if got := new(big.Rat).Mul(u[0].List, big.NewRat(1_000_000, 1)).FloatString(6); got != want {
			t.Errorf("%s: got %s, want %s", start, got, want)
		}
	}
}

// A line of an older version is the one of its name, also where another one holds by now:
// calls of one id have one line.
func TestUnitPricesOfAnOlderVersion(t *testing.T) {
	c := load(t, `
prices:
  - {provider: x, models: [m], to: 2026-09-10, per_million: {input: "2"}}
  - {provider: x, models: [m], from: 2026-09-10, per_million: {input: "1"}}
`)
	f := func(id, start, want string) {
		t.Helper()
		q := query("x", "m", schema.Tokens{Input: 1})
		q.Start = at(start)
		u, ok := c.UnitPrices(id, q)
		if !ok || new(big.Rat).Mul(u[0].List, big.NewRat(1_000_000, 1)).FloatString(6) != want {
			t.Errorf("%s on %s: got %v %v, want %s", id, start, u, ok, want)
		}
	}
	f("v0:x/m", "2026-09-09T23:59:59Z", "2.000000")
	f("v0:x/m", "2026-09-10T00:00:00Z", "2.000000")
	f("v0:x/m@2026-09-10", "2026-09-09T00:00:00Z", "1.000000")
	f("v0:x/m-0", "2026-09-09T00:00:00Z", "2.000000")
	f("v0:x/m-0", "2026-09-10T00:00:00Z", "1.000000")
}

func TestEras(t *testing.T) {
	c := load(t, `
prices:
  - {provider: x, models: [tiered], per_million: {input: "2"}, service_tiers: {batch: {from: 2026-09-10, per_million: {input: "1"}}, flex: {per_million: {input: "1"}}}}
  - {provider: x, models: [tiered], from: 2026-10-01, per_million: {input: "3"}}
  - {provider: x, models: [cny], currency: CNY, per_million: {input: "2"}}
fx:
  - {from: CNY, to: USD, rate: "0.15", as_of: 2026-09-05}
  - {from: CNY, to: USD, rate: "0.14", as_of: 2026-09-01}
  - {from: EUR, to: USD, rate: "1.1", as_of: 2026-09-02}
`)
	want := map[string][]int64{"x/tiered": {at("2026-09-10T00:00:00Z")}, "x/cny": {at("2026-09-01T00:00:00Z"), at("2026-09-05T00:00:00Z")}}
	if got := c.Eras(); !maps.EqualFunc(got, want, slices.Equal) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// A line in another currency has prices where a rate is known, at the rate of the day.
func TestUnitPricesOfAnotherCurrency(t *testing.T) {
	c, _ := loadAll(t, `
prices:
  - {provider: x, models: [cny], currency: CNY, per_million: {input: "2"}}
  - {provider: x, models: [eur], currency: EUR, per_million: {input: "2"}}
fx: [{from: CNY, to: USD, rate: "0.14", as_of: 2026-09-01}]
`)
	q := query("x", "cny", schema.Tokens{Input: 1})
	u, ok := c.UnitPrices(c.Price(q).PriceID, q)
	if !ok || u[0].List.FloatString(10) != "0.0000002800" {
		t.Errorf("got %v %v", u, ok)
	}
	for _, l := range c.List("x") {
		if l.Currency == "EUR" {
			if _, ok := c.UnitPrices(l.ID, query("x", "eur", schema.Tokens{Input: 1})); ok {
				t.Error("a currency without a rate has prices")
			}
		}
	}
}

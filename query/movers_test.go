package query

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/flyball/flyball/schema"
)

const nextDay = "from=2026-03-11&to=2026-03-12"

// work posts a run of one tenant on a day: model calls that cost so much and use so many tokens each.
type work struct {
	runs, calls, retries int
	model, usd           string
	tokens               uint64
}

func (s *store) work(tenant string, day int, list ...work) {
	s.t.Helper()
	var out []schema.Entry
	for _, w := range list {
		for range w.runs {
			s.sent++
			tr := newTrace(tenant, fmt.Sprintf("run-%d-%d", s.sent, day), byte(s.sent), nil)
			tr.at = noon.AddDate(0, 0, day)
			out = append(out, tr.add(schema.KindRequest))
			change := []func(*schema.Entry){priced(w.usd), model(w.model), used("line", schema.Tokens{Input: w.tokens})}
			for range w.calls {
				out = append(out, tr.add(schema.KindModel, change...))
			}
			for range w.retries {
				out = append(out, tr.add(schema.KindModel, append(change, retry(schema.LayerSDK, schema.Timeout))...))
			}
		}
	}
	s.post(out...)
}

func effectsOf(m map[string]any) string {
	by := m["effects"].(map[string]any)
	out := []string{fmt.Sprint(m["change_usd"]), fmt.Sprint(m["main"])}
	for _, e := range effects {
		if by[e] != "0" {
			out = append(out, e+"="+fmt.Sprint(by[e]))
		}
	}
	return strings.Join(out, " ")
}

// Each reason alone is found as that reason, to the last digit.
func TestMoversFindTheReason(t *testing.T) {
	s := newStore(t)
	f := func(tenant string, then, now []work) {
		s.work(tenant, 0, then...)
		s.work(tenant, 1, now...)
	}
	base := []work{{2, 2, 0, "m-5", "1", 100}}
	f("amplified", base, []work{{2, 3, 0, "m-5", "1", 100}})
	f("busier", base, []work{{5, 2, 0, "m-5", "1", 100}})
	f("dearer", base, []work{{2, 2, 0, "m-5", "1.000000000003", 100}})
	f("gone", base, nil)
	f("larger", base, []work{{2, 2, 0, "m-5", "1.5", 150}})
	f("mixed", base, []work{{1, 2, 0, "m-5", "1", 100}, {1, 2, 0, "m-big", "7", 100}})
	f("new", nil, base)
	f("retrying", base, []work{{2, 2, 1, "m-5", "1", 100}})
	f("same", base, base)
	m := s.get("/api/v1/movers?" + nextDay)
	got := map[string]string{}
	sum := new(big.Rat)
	for _, r := range list(m["rows"]) {
		got[r["tenant"].(string)] = effectsOf(r)
		v, _ := new(big.Rat).SetString(r["change_usd"].(string))
		sum.Add(sum, v)
	}
	for tenant, want := range map[string]string{
		"amplified": "2 amplification amplification=2", "busier": "6 volume volume=6", "dearer": "0.000000000012 price price=0.000000000012", "gone": "-4 volume volume=-4",
		"larger": "2 tokens tokens=2", "mixed": "12 mix mix=12", "new": "4 volume volume=4", "retrying": "2 retries retries=2", "same": "0 ",
	} {
		equal(t, tenant, got[tenant], want)
	}
	total := m["total"].(map[string]any)
	equal(t, "total", effectsOf(total), "24.000000000012 mix volume=6 amplification=2 retries=2 mix=12 tokens=2 price=0.000000000012")
	if fmt.Sprint(m["base_from"], m["base_to"]) != "2026-03-10T00:00:00Z2026-03-11T00:00:00Z" && fmt.Sprint(m["base_from"], " ", m["base_to"]) != "2026-03-10T00:00:00Z 2026-03-11T00:00:00Z" {
		t.Errorf("base: %v %v", m["base_from"], m["base_to"])
	}
	spend := func(window string) string {
		return fmt.Sprint(s.get("/api/v1/spend?" + window)["total"].(map[string]any)["cost_usd"])
	}
	equal(t, "the two times", show([]map[string]any{total}, "before_usd", "after_usd"), spend(during)+" "+spend(nextDay))
	first := list(s.get("/api/v1/movers?limit=1&" + nextDay)["rows"])[0]
	equal(t, "largest first", fmt.Sprint(first["tenant"]), "mixed")
	// By model there are no requests; the models of a tenant are rows instead of its mix.
	m = s.get("/api/v1/movers?tenant=mixed&group_by=model&" + nextDay)
	if m["requests_counted"] != false {
		t.Error("requests are counted by model")
	}
	equal(t, "by model", show(list(m["rows"]), "model", "change_usd", "main"), "m-big 14 volume\nm-5 -2 volume")
	_, file := s.file("/api/v1/movers?tenant=mixed&format=csv&" + nextDay)
	equal(t, "file", columns(t, file, "tenant", "change_usd", "main", "effects_mix", "before_requests"), "mixed 12 mix 12 2")
}

// Corrections and calls of no attempt are in the change too.
func TestMoversSumToTheChange(t *testing.T) {
	s := newStore(t)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range 12 {
		for day := range 2 {
			var list []work
			for range rng.IntN(4) {
				list = append(list, work{1 + rng.IntN(3), rng.IntN(4), rng.IntN(3), fmt.Sprint("m-", rng.IntN(3)), fmt.Sprintf("0.%012d", rng.Int64N(1e12)), uint64(rng.IntN(3) * rng.IntN(1000))})
			}
			s.work(fmt.Sprint("t-", i), day, list...)
		}
	}
	tr := newTrace("t-0", "extra", 250, nil)
	tr.at = noon.AddDate(0, 0, 1)
	part := tr.add(schema.KindModel, priced("0.333333333333"), model("advisor"), func(e *schema.Entry) { e.Posting.ModelCalls, e.Part = 0, 1 })
	gone := tr.add(schema.KindModel, priced("5"))
	s.post(part, tr.add(schema.KindTool, priced("0.01"), tool("search")), gone)
	s.post(cancel(gone))
	for _, by := range []string{"tenant", "", "model", "tenant,model", "workflow"} {
		m := s.get("/api/v1/movers?group_by=" + by + "&" + nextDay)
		for i, r := range append(list(m["rows"]), m["total"].(map[string]any)) {
			sum, rat := new(big.Rat), func(v any) *big.Rat {
				x, ok := new(big.Rat).SetString(fmt.Sprint(v))
				if !ok {
					t.Fatalf("no number: %v", v)
				}
				return x
			}
			for _, v := range r["effects"].(map[string]any) {
				sum.Add(sum, rat(v))
			}
			if change := rat(r["change_usd"]); sum.Cmp(change) != 0 || new(big.Rat).Sub(rat(r["after_usd"]), rat(r["before_usd"])).Cmp(change) != 0 {
				t.Errorf("by %q, row %d: effects give %s: %v", by, i, sum.FloatString(13), r)
			}
		}
		equal(t, "after, by "+by, fmt.Sprint(m["total"].(map[string]any)["after_usd"]), fmt.Sprint(s.get("/api/v1/spend?" + nextDay)["total"].(map[string]any)["cost_usd"]))
	}
}

// The time before is as long in the calendar.
func TestMoversBase(t *testing.T) {
	zone, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	s := newStore(t, func(o *Options) { o.Zone = func(string) *time.Location { return zone } })
	f := func(query, want string) {
		t.Helper()
		m := s.get("/api/v1/movers?tenant=t-1&" + query)
		equal(t, query, show([]map[string]any{m}, "base_from", "base_to"), want)
	}
	f("from=2026-03-01&to=2026-04-01", "2026-02-01T00:00:00+01:00 2026-03-01T00:00:00+01:00")
	f("from=2026-04-01&to=2026-05-01", "2026-03-01T00:00:00+01:00 2026-04-01T00:00:00+02:00")
	f("from=2026-01-01&to=2026-04-01", "2025-10-01T00:00:00+02:00 2026-01-01T00:00:00+01:00")
	f("from=2026-03-30&to=2026-04-06", "2026-03-23T00:00:00+01:00 2026-03-30T00:00:00+02:00")
	f("from=2026-03-30T10:00:00Z&to=2026-03-30T12:00:00Z", "2026-03-30T10:00:00+02:00 2026-03-30T12:00:00+02:00")
	f("from=2026-03-30&to=2026-04-06&base_from=2026-01-01&base_to=2026-02-01", "2026-01-01T00:00:00+01:00 2026-02-01T00:00:00+01:00")
	bad := func(query, words string) {
		t.Helper()
		s.refuse("/api/v1/movers?"+query, http.StatusBadRequest, words)
	}
	bad("base_from=2026-03-01&"+nextDay, "or neither")
	bad("base_from=2026-03-10&base_to=2026-03-12&"+nextDay, "overlap")
	bad("base_from=2026-03-10&base_to=2026-03-09&"+nextDay, "not before base_to")
	bad("base_from=soon&base_to=2026-03-09&"+nextDay, "RFC 3339")
	bad("group_by=kind&"+nextDay, "want any of tenant, user")
}

// In another currency the effects sum to the change as well, and what the rate did is
// an effect of its own.
func TestMoversInAnotherCurrency(t *testing.T) {
	s := newStore(t, withEuros(t))
	// The rate is 1.25 on the 9th and 3 on the 10th.
	s.work("busier", -1, work{2, 1, 0, "m-5", "1.5", 100})
	s.work("busier", 0, work{4, 1, 0, "m-5", "1.5", 100})
	s.work("dearer", -1, work{1, 1, 0, "m-5", "1.5", 100})
	s.work("dearer", 0, work{1, 1, 0, "m-5", "3", 100})
	s.work("new", 0, work{1, 1, 0, "m-5", "3", 100})
	s.work("free", -1, work{1, 1, 0, "m-5", "0", 100})
	s.work("free", 0, work{1, 1, 0, "m-5", "0", 100})
	const q = "/api/v1/movers?from=2026-03-10&to=2026-03-11&currency=EUR"
	m := s.get(q)
	effects := func(r map[string]any) string {
		out := []string{fmt.Sprint(r["tenant"]), fmt.Sprint(r["change"]), fmt.Sprint(r["change_main"])}
		for _, e := range effectsInThem {
			if v := r["change_effects"].(map[string]any)[e]; v != "0" {
				out = append(out, e+"="+fmt.Sprint(v))
			}
		}
		return strings.Join(out, " ")
	}
	var got []string
	for _, r := range list(m["rows"]) {
		got = append(got, effects(r))
	}
	equal(t, "rows", strings.Join(got, "\n"), `
busier -0.4 exchange volume=2.4 exchange=-2.8
new 1 volume volume=1
dearer -0.2 exchange price=1.2 exchange=-1.4
free 0 `)
	equal(t, "in USD", effectsOf(list(m["rows"])[0]), "3 volume volume=3")
	equal(t, "sides", show([]map[string]any{list(m["rows"])[0]["before"].(map[string]any), list(m["rows"])[0]["after"].(map[string]any)}, "cost", "cost_usd"), "2.4 3\n2 6")
	total := m["total"].(map[string]any)
	total["tenant"] = "all"
	equal(t, "total", effects(total), "all 0.4 exchange volume=3.4 price=1.2 exchange=-4.2")
	equal(t, "rates", show(list(m["rates"]), "day", "usd"), "2026-03-09 1.25\n2026-03-10 3")
	_, file := s.file(q + "&format=csv")
	equal(t, "file", columns(t, file, "tenant", "change", "before_cost", "change_effects_exchange", "currency")[:26], "busier -0.4 2.4 -2.8 EUR\nn")
	s.refuse("/api/v1/movers?from=2026-03-05&to=2026-03-11&base_from=2026-03-01&base_to=2026-03-02&currency=GBP", http.StatusBadRequest, "no rate of GBP is known")
	// A cost of the time to compare with needs a rate too.
	s.work("early", -8, work{1, 1, 0, "m-5", "1", 100})
	s.refuse("/api/v1/movers?from=2026-03-10&to=2026-03-11&base_from=2026-03-01&base_to=2026-03-04&currency=EUR", http.StatusBadRequest, "no rate of EUR on 2026-03-02 or before")

	// With anything at all, credits among it.
	rng := rand.New(rand.NewPCG(3, 4))
	for i := range 8 {
		for day := range 6 {
			var list []work
			for range rng.IntN(3) {
				list = append(list, work{1 + rng.IntN(2), rng.IntN(3), rng.IntN(2), fmt.Sprint("m-", rng.IntN(3)), fmt.Sprintf("%s0.%012d", []string{"", "-"}[rng.IntN(2)], rng.Int64N(1e12)), uint64(rng.IntN(1000))})
			}
			s.work(fmt.Sprint("t-", i), day-4, list...)
		}
	}
	for _, by := range []string{"tenant", "", "model", "tenant,model"} {
		m := s.get("/api/v1/movers?group_by=" + by + "&from=2026-03-09&to=2026-03-12&base_from=2026-03-06&base_to=2026-03-09&currency=EUR")
		for i, r := range append(list(m["rows"]), m["total"].(map[string]any)) {
			sum := new(big.Rat)
			for _, v := range r["change_effects"].(map[string]any) {
				sum.Add(sum, rat(t, v.(string)))
			}
			after, before := rat(t, r["after"].(map[string]any)["cost"].(string)), rat(t, r["before"].(map[string]any)["cost"].(string))
			if change := rat(t, r["change"].(string)); sum.Cmp(change) != 0 || new(big.Rat).Sub(after, before).Cmp(change) != 0 {
				t.Errorf("by %q, row %d: effects give %s: %v", by, i, sum.FloatString(13), r)
			}
		}
	}
}

package enforce

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"net/http"
	"strings"
	"testing"

	"github.com/flyball/flyball/enforce/directive"
	"github.com/flyball/flyball/schema"
)

// TestUnpricedModelsAreBounded: who makes model names up fills neither the memory nor the
// sets of limiters, and what was refused stays refused, over a restart too.
func TestUnpricedModelsAreBounded(t *testing.T) {
	s := newScript(t, t.TempDir())
	s.policy = []byte("guards:\n  - {name: priced, scope: [tenant], measure: cost, window: {calendar: month, tz: UTC}, limit: \"1000000\", unpriced: block, ladder: [{at: 100%, do: soft_block}], outcome: pause, mode: enforce}\n")
	s.start()
	defer func() { _ = s.store.Close() }()
	call := func(tenant string, i int) {
		s.post(s.entry(0, map[string]string{"tenant": tenant, "model": fmt.Sprint("made-up-", i), "exposure": "0.01"}))
	}
	for i := range mostUnpriced + 50 {
		call("t-1", i)
	}
	call("t-2", 0) // another scope has its own
	check := func() {
		t.Helper()
		if n := len(s.loop.set.State().Directives); n < mostUnpriced-20 || n > mostUnpriced+1 {
			t.Errorf("%d directives, want about %d", n, mostUnpriced)
		}
		for _, c := range []directive.Call{{Tenant: "t-1", Model: "made-up-7"}, {Tenant: "t-2", Model: "made-up-0"}} {
			if a, err := s.loop.Check(&c); err != nil || a.Decision != directive.Deny {
				t.Errorf("%+v: %+v, %v", c, a, err)
			}
		}
	}
	check()
	if _, err := s.loop.checkpoint(true); err != nil {
		t.Fatal(err)
	}
	s.start()
	call("t-1", 100_000)
	check()
}

// TestSettlementIsBounded: what is kept of a settled call for minutes is as small as what is
// asked about one.
func TestSettlementIsBounded(t *testing.T) {
	s := newScript(t, t.TempDir())
	s.policy = []byte("guards:\n  - {name: cap, scope: [tenant], measure: cost, window: {calendar: month, tz: UTC}, limit: \"10\", ladder: [{at: 100%, do: soft_block}], outcome: pause}\n")
	s.start()
	defer func() { _ = s.store.Close() }()
	l, a, err := s.loop.Reserve(t.Context(), []directive.Call{{Tenant: "t-1", Model: "m-5"}}, "k")
	if err != nil || len(l) != 1 {
		t.Fatal(a, err)
	}
	long := strings.Repeat("x", maxValue+1)
	for _, u := range []Settlement{{Model: long}, {Provider: long}, {TraceID: long}, {SpanID: long}, {ResponseID: long}} {
		var in InputError
		if err := s.loop.Settle(t.Context(), l[0].Lease, "k", u); !errors.As(err, &in) || in.Status != http.StatusBadRequest {
			t.Errorf("%v, want a 400", err)
		}
	}
	if err := s.loop.Settle(t.Context(), l[0].Lease, "k", Settlement{ResponseID: long[1:]}); err != nil {
		t.Error(err)
	}
}

// TestBudgetsNearestFirst: a list of budgets holds everything up while it is made, so all
// accounts are only weighed; the list is the nearest to their limits all the same, of the
// tenants that the reader may see.
func TestBudgetsNearestFirst(t *testing.T) {
	s := newScript(t, t.TempDir())
	s.policy = []byte(`guards:
  - {name: user, scope: [tenant, user], measure: cost, window: {calendar: month, tz: UTC}, limit: "1000", ladder: [{at: 100%, do: soft_block}], outcome: pause}
  - {name: calls, scope: [tenant, user], measure: model_calls, window: {rolling: 1h}, limit: "1000000", ladder: [{at: 100%, do: throttle}], outcome: pause}
  - {name: org, scope: [org], measure: cost, window: {calendar: month, tz: UTC}, limit: "100000", ladder: [{at: 100%, do: warn}], outcome: pause}
`)
	s.start()
	defer func() { _ = s.store.Close() }()
	const users = 97
	for i := range users {
		u := (i * 31) % users // in no order
		s.post(s.entry(0, map[string]string{"tenant": fmt.Sprint("t-", u%2), "user": fmt.Sprint("u-", u), "cost": fmt.Sprint(u + 1)}))
	}
	f := func(allow func(string) bool, guard string, most int, want ...string) {
		t.Helper()
		var got []string
		for _, b := range s.loop.Budgets(allow, guard, most) {
			got = append(got, b.Guard+" "+b.Scope+" "+b.Spend)
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("the first %d of %q are %q, want %q", most, guard, got, want)
		}
	}
	all := func(string) bool { return true }
	even := func(tenant string) bool { return tenant == "t-0" }
	f(all, "", 3, "user user u-96 of tenant t-0 $97", "user user u-95 of tenant t-1 $96", "user user u-94 of tenant t-0 $95")
	f(even, "", 2, "user user u-96 of tenant t-0 $97", "user user u-94 of tenant t-0 $95")
	f(all, "org", 5, "org the whole org $4753")
	f(even, "org", 5)
	if n := len(s.loop.Budgets(all, "", 10_000)); n != 2*users+1 {
		t.Errorf("%d budgets, want %d", n, 2*users+1)
	}
}

// TestBudgetsSayOfWhat: what a budget counts is told by dimension too, so that a reader
// finds the runs behind it.
func TestBudgetsSayOfWhat(t *testing.T) {
	s := newScript(t, t.TempDir())
	s.policy = []byte(`guards:
  - {name: user, scope: [tenant, user], match: {mode: [interactive, batch]}, measure: cost, window: {calendar: month, tz: UTC}, limit: "1000", ladder: [{at: 100%, do: soft_block}], outcome: pause}
  - {name: run, scope: [run], measure: cost, window: run, limit: "1000", ladder: [{at: 100%, do: terminate}], outcome: pause}
  - {name: org, scope: [org], measure: cost, window: {rolling: 1h}, limit: "100000", ladder: [{at: 100%, do: warn}], outcome: pause}
`)
	s.start()
	defer func() { _ = s.store.Close() }()
	s.post(s.entry(0, map[string]string{"tenant": "t-0", "user": "u-1", "run_id": "r 1", "cost": "1"}))
	f := func(guard, want string) {
		t.Helper()
		b := s.loop.Budgets(func(string) bool { return true }, guard, 10)
		if len(b) != 1 {
			t.Fatalf("%d budgets of %s", len(b), guard)
		}
		if got := fmt.Sprint(b[0].Of.Values, b[0].Of.Runs, b[0].Match); got != want {
			t.Errorf("%s is of %s, want %s", guard, got, want)
		}
	}
	f("user", "map[tenant:t-0 user:u-1] [] map[mode:[interactive batch]]")
	f("run", "map[tenant:t-0] [r 1 30303030303030303030303030303031] map[]") // and the trace, by which it is known too
	f("org", "map[] [] map[]")
}

// TestFloat: what is shown and compared roughly is near the exact sum, whatever its sign.
func TestFloat(t *testing.T) {
	for _, v := range []int64{0, 1, -1, 5, -5, 1 << 62, -1 << 62} {
		s := schema.SumOf(v)
		if got := float(s); got != float64(v) {
			t.Errorf("%s is %g, want %g", s, got, float64(v))
		}
		for range 3 { // beyond what 64 bits hold
			s = s.Plus(s).Plus(s)
		}
		want, _ := new(big.Float).SetInt(s.Big()).Float64()
		if got := float(s); math.Abs(got-want) > math.Abs(want)/(1<<50) {
			t.Errorf("%s is %g, want %g", s, got, want)
		}
	}
}

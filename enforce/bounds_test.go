package enforce

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/flyball/flyball/enforce/directive"
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

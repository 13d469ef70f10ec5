package enforce

import (
	"strings"
	"testing"
	"time"

	"github.com/flyball/flyball/enforce/directive"
	"github.com/flyball/flyball/enforce/ledger"
	"github.com/flyball/flyball/schema"
)

// TestOvershoot is the bound of a budget that spends 0.2 USD a second, whose spans are
// exported 5 s after their end and known to be its own 1 s later: 1.20 USD.
func TestOvershoot(t *testing.T) {
	now := time.Date(2026, 11, 29, 10, 0, 0, 0, time.UTC)
	a := &ledger.Account{First: now.Add(-100 * time.Second).UnixNano(), Touched: now.UnixNano(), Received: now.Add(-time.Second).UnixMilli(), Ended: now.Add(-6 * time.Second).UnixNano()}
	a.Exposure = schema.SumOf(20 * schema.PicoPerUSD)
	l := &Loop{}
	l.limiters.init()
	g := &Guard{Measure: "cost"}
	o := l.overshoot(g, a)
	if o == nil || o.USD != "1.2" || o.PerSecond != "0.2" || o.ExportDelay != 5*time.Second || o.IdentityDelay != time.Second {
		t.Fatalf("got %+v", o)
	}
	l.limiters.put(&limiter{ID: "l", Took: 500 * time.Millisecond})
	if o = l.overshoot(g, a); o.USD != "1.3" {
		t.Errorf("with half a second of propagation: %+v", o)
	}
	if o = l.overshoot(&Guard{Measure: "tokens"}, a); o != nil {
		t.Errorf("of tokens: %+v", o)
	}
	if o = l.overshoot(g, &ledger.Account{}); o != nil {
		t.Errorf("nothing was measured: %+v", o)
	}
}

// TestDecideForOneTenant: a gateway whose key is of one tenant hears that a limit of
// the organisation is reached, not what the organisation spent.
func TestDecideForOneTenant(t *testing.T) {
	s := &script{t: t, dir: t.TempDir(), zones: map[string]*time.Location{}, log: &memoryLog{}, posted: map[string]*schema.Entry{}}
	s.policy = []byte("guards:\n  - {name: org, scope: [org], measure: cost, window: {rolling: 1h}, limit: \"2\", ladder: [{at: 100%, do: halt}], outcome: pause}\n")
	s.start()
	defer func() { _ = s.store.Close() }()
	s.post(s.entry(0, map[string]string{"tenant": "t-2", "cost": "12345"}))
	c := directive.Call{Tenant: "t-1", Model: "m"}
	for org, tells := range map[bool]bool{true: true, false: false} {
		d, _, err := s.loop.Decide(&c, org)
		if err != nil {
			t.Fatal(err)
		}
		if d.Verdict != directive.Deny || strings.Contains(d.Reason, "12345") != tells || d.Reason == "" {
			t.Errorf("org %v: %+v", org, d)
		}
	}
}

// Whom schema forgets and whom guards take for the same user have to be the same.
func TestForgottenIsOneUser(t *testing.T) {
	ids := []string{"u-1", "U-1", " u-1\t", "u-12", "ÄÖ", "äö", "İ", "i", "", " ", "\u00a0x", "x", "K", "k"}
	for _, a := range ids {
		for _, b := range ids {
			same := b != "" && directive.NormalUser(a) == directive.NormalUser(b)
			if got := schema.NewForgetting("t-1", a, "p").Is("t-1", b); got != same {
				t.Errorf("forgetting %q renames %q: %v, guards take them for one: %v", a, b, got, same)
			}
		}
	}
}

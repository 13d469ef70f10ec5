package app

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/flyball/flyball/schema"
)

// An adjustment is in the journal, the rollups, the files and the budgets of guards,
// and only who may act for the tenant posts one.
func TestAdjust(t *testing.T) {
	secrets := map[string]string{}
	var keys []string
	for _, k := range []struct{ name, role, tenants string }{{"reader", "read", `["t-1"]`}, {"boss-1", "admin", `["t-1"]`}, {"boss", "admin", `"*"`}} {
		secret, sum := schema.NewSecret()
		secrets[k.name] = secret
		keys = append(keys, fmt.Sprintf(`{"name":%q,"sha256":%q,"role":%q,"tenants":%s}`, k.name, sum, k.role, k.tenants))
	}
	rates := filepath.Join(t.TempDir(), "ecb.csv")
	if err := os.WriteFile(rates, []byte("date,currency,rate\n2025-01-01,EUR,1.25\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := newService(t, "", append(withPolicy(t, `
guards:
  - {name: cap, scope: [tenant, feature], measure: cost, window: day, limit: "10", ladder: [{at: 100%, do: soft_block}], outcome: pause}
  - {name: run, scope: [run], measure: cost, window: run, limit: "1", ladder: [{at: 100%, do: terminate}], outcome: pause}
kill: {multiple: 2, floor: "1", exempt: [critical], mode: enforce}
`), `FLYBALL_FX__FILES=["`+rates+`"]`, "FLYBALL_KEYS=["+strings.Join(keys, ",")+"]", "FLYBALL_LIMITS__SETTLE=300ms")...)
	s.start()
	now := time.Now().UTC()
	body := func(change ...string) map[string]any {
		m := map[string]any{"tenant": "t-1", "id": "fee-1", "amount": "12.5", "at": now.Format(time.RFC3339Nano), "reason": "seat fee", "feature": "search", "provider": "openai"}
		for i := 0; i < len(change); i += 2 {
			m[change[i]] = change[i+1]
		}
		return m
	}
	f := func(who string, in map[string]any, want int, words string) {
		t.Helper()
		if code, text := s.as(secrets[who], "POST", "/adjust", in); code != want || !strings.Contains(text, words) {
			t.Errorf("%s: %d %s, want %d with %q", who, code, text, want, words)
		}
	}
	eventually(t, "ClickHouse is up", func() bool {
		code, _ := s.as(secrets["boss"], "GET", "/spend", nil)
		return code == 200
	})
	f("reader", body(), 403, "role read")
	f("nobody", body(), 401, "key")
	f("boss-1", body("tenant", "t-2"), 403, "may not act for tenant t-2")
	f("boss-1", body("tenant", ""), 400, "tenant is missing")
	f("boss-1", body("id", "a b"), 400, "letters, digits")
	f("boss-1", body("reason", " "), 400, "want why")
	f("boss-1", body("reason", "two\nlines"), 400, "one line")
	f("boss-1", body("feature", "two\nlines"), 400, "without line breaks")
	f("boss-1", body("amount", "0.0"), 400, "adjusts nothing")
	f("boss-1", body("amount", "1e3"), 400, "want a decimal number")
	f("boss-1", body("amount", "0.0000000000001"), 400, "more than 12 decimals")
	f("boss-1", body("at", "soon"), 400, "want RFC 3339 or a date")
	f("boss-1", body("at", now.AddDate(0, 0, 2).Format(time.DateOnly)), 400, "that has passed")
	f("boss-1", body("provider", "", "model", "no-such-model"), 400, "give provider too")
	f("boss-1", body("colour", "red"), 400, `unknown field \"colour\"`)
	f("boss-1", body("currency", "GBP"), 400, "no rate of GBP on")
	f("boss-1", body("currency", "eur"), 400, "want a code such as EUR")
	f("boss-1", body("currency", "JPY", "amount", "10000000"), 400, "one entry holds at most 9223372.036854775807 of a currency; book it in parts")
	f("boss-1", body("currency", "EUR", "amount", "9000000", "at", "2025-01-02"), 400, "within ±9223372 USD")
	f("boss-1", body("currency", "EUR", "at", "2024-12-31"), 400, "no rate of EUR on 2024-12-31 or before")
	f("boss-1", body("currency", "EUR", "amount", "10", "id", "fee-eur", "at", "2025-01-02", "feature", ""), 200, `"cost_usd":"12.5","amount":"10","currency":"EUR"`)
	f("boss-1", body("currency", "USD", "amount", "12.5", "id", "fee-eur", "at", "2025-01-02", "feature", ""), 409, "choose another id")
	f("boss-1", body(), 200, `"already":false`)
	f("boss-1", body(), 200, `"already":true`)
	f("boss-1", body("amount", "13"), 409, "choose another id")

	// The guard of the feature sees it at once, before the journal; the one of runs does not.
	eventually(t, "the budget counts it", func() bool {
		_, text := s.as(secrets["boss"], "GET", "/guards/live", nil)
		return strings.Contains(text, `"cap"`)
	})
	if _, text := s.as(secrets["boss"], "GET", "/guards/live", nil); strings.Contains(text, `"run"`) {
		t.Errorf("a guard of runs fired: %s", text)
	}
	if _, text := s.as(secrets["boss"], "GET", "/kill", nil); strings.Contains(text, `"state":"on"`) {
		t.Errorf("money that a person booked tripped the kill switch: %s", text)
	}
	s.drain()
	_, text := s.as(secrets["boss-1"], "GET", "/spend?group_by=kind,feature,provider", nil)
	if !strings.Contains(text, `"kind":"adjustment"`) || !strings.Contains(text, `"cost_usd":"12.5"`) {
		t.Errorf("spend: %s", text)
	}
	_, text = s.as(secrets["boss-1"], "GET", "/spend?from=2025-01-01&to=2026-01-01&currency=EUR", nil)
	if !strings.Contains(text, `"cost":"10"`) || !strings.Contains(text, `"source":"ecb.csv"`) {
		t.Errorf("spend in EUR: %s", text)
	}
	_, text = s.as(secrets["boss-1"], "GET", "/calls?kind=adjustment", nil)
	var calls struct {
		Calls []struct {
			Source, Trace string
			Adjustment    map[string]string
		}
	}
	if err := json.Unmarshal([]byte(text), &calls); err != nil || len(calls.Calls) != 1 || calls.Calls[0].Source != "adjustment" || fmt.Sprint(calls.Calls[0].Adjustment) != "map[by:boss-1 id:fee-1 reason:seat fee]" {
		t.Errorf("calls: %v %s", err, text)
	}
	day := now.Format(time.DateOnly)
	_, text = s.as(secrets["boss-1"], "GET", "/export/focus?from="+day+"&to="+now.AddDate(0, 0, 1).Format(time.DateOnly), nil)
	rows, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	if err != nil || len(rows) != 2 {
		t.Fatalf("focus: %v %s", err, text)
	}
	got := map[string]string{}
	for i, name := range rows[0] {
		got[name] = rows[1][i]
	}
	for name, want := range map[string]string{"ChargeCategory": "Adjustment", "ChargeClass": "", "ChargeFrequency": "One-Time", "ChargeDescription": "adjustment by boss-1: seat fee", "BilledCost": "12.5", "ListCost": "12.5", "PricingQuantity": "", "ProviderName": "OpenAI", "x_FlyballCostBasis": "booked"} {
		if got[name] != want {
			t.Errorf("focus: %s is %q, want %q", name, got[name], want)
		}
	}

	// What guards counted is what the journal has.
	code, text := s.as(secrets["boss"], "POST", "/guards/verify", map[string]any{"since": now.AddDate(0, 0, -2).Format(time.RFC3339)})
	var v struct{ Drift, Accounts float64 }
	if err := json.Unmarshal([]byte(text), &v); code != 200 || err != nil || v.Drift != 0 || v.Accounts == 0 {
		t.Errorf("ledger and journal: %d %s", code, text)
	}
}

// A date is booked on its first instant, also where the clocks skip midnight and the
// first of a month would be read as the last day of the one before.
func TestAdjustmentsOfADayThatHasNoMidnight(t *testing.T) {
	zone, err := time.LoadLocation("America/Asuncion")
	if err != nil {
		t.Fatal(err)
	}
	a := &App{}
	a.tenants.Store(&map[string]*time.Location{"t-1": zone})
	out, err := a.readAdjustment(&adjustment{Tenant: "t-1", ID: "x", Amount: "-1", At: "2017-10-01", Reason: "credit"}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if at := out.At.In(zone); at.Month() != time.October || at.Day() != 1 || out.Cost != -schema.PicoPerUSD {
		t.Errorf("booked %s at %s", out.Cost, at)
	}
}

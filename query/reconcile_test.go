package query

import (
	"fmt"
	"io"
	"math/big"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/flyball/flyball/schema"
)

// dateless drops the date of an OpenAI model's name, as the catalogue does; m-listed
// stands in the prices.
func dateless(_, _, model string) (string, bool) {
	m := strings.ToLower(model)
	if d, ok := strings.CutSuffix(m, "-2026-01-15"); ok {
		m = d
	}
	return m, m == "m-listed"
}

// bill posts a file to be compared.
func (s *store) bill(query, key, body string) (int, string) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, s.url+"/api/v1/reconcile?"+query, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if strings.Contains(query, "focus") {
		req.Header.Set("Content-Type", "text/csv")
	}
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// reconciled compares a bill and checks that the parts of each row, and of all, sum
// to the difference.
func (s *store) reconciled(query, body string) map[string]any {
	s.t.Helper()
	code, text := s.bill(query, "", body)
	if code != http.StatusOK {
		s.t.Fatal(code, text)
	}
	m := decode(s.t, text)
	for _, r := range append(list(m["rows"]), m["reconciliation"].(map[string]any)) {
		sum := new(big.Rat)
		for _, p := range parts {
			if v, known := r[p+"_usd"].(string); known {
				sum.Add(sum, rat(s.t, v))
			}
		}
		if diff := new(big.Rat).Sub(rat(s.t, r["theirs_usd"].(string)), rat(s.t, r["ours_usd"].(string))); sum.Cmp(diff) != 0 || diff.Cmp(rat(s.t, r["difference_usd"].(string))) != 0 {
			s.t.Errorf("the parts sum to %s, the difference is %s: %v", sum.RatString(), diff.RatString(), r)
		}
	}
	return m
}

func rat(t *testing.T, v string) *big.Rat {
	t.Helper()
	r, ok := new(big.Rat).SetString(v)
	if !ok {
		t.Fatalf("%q is no number", v)
	}
	return r
}

const partFields = "model item ours_usd theirs_usd difference_usd priced_usd only_ours_usd only_theirs_usd rounding_usd unsplit_usd"

func parted(m map[string]any) string {
	return show(list(m["rows"]), strings.Fields(partFields)...)
}

// The days of noon's as OpenAI writes them.
const march10, march11 = 1773100800, 1773187200

func openAIPage(results ...string) string {
	return fmt.Sprintf(`{"object":"page","data":[{"object":"bucket","start_time":%d,"end_time":%d,"results":[%s]}],"has_more":false,"next_page":null}`+"\n", march10, march11, strings.Join(results, ","))
}

func openAICost(item, usd string) string {
	return fmt.Sprintf(`{"object":"organization.costs.result","amount":{"value":%s,"currency":"usd"},"line_item":%q,"project_id":null}`, usd, item)
}

func openAIUsage(model string, in, out int) string {
	return fmt.Sprintf(`{"object":"organization.usage.completions.result","input_tokens":%d,"output_tokens":%d,"num_model_requests":1,"model":%q,"batch":null}`, in, out, model)
}

func TestReconcileOpenAI(t *testing.T) {
	if got := time.Unix(march10, 0).UTC(); !got.Equal(noon.Add(-12 * time.Hour)) {
		t.Fatal(got)
	}
	reg := prometheus.NewRegistry()
	s := newStore(t, func(o *Options) { o.ModelName, o.Registerer = dateless, reg })
	call := func(name, usd string, in uint64, change ...func(*schema.Entry)) schema.Entry {
		tr := newTrace("t-1", "r-"+name, byte(len(name)), nil)
		return tr.add(schema.KindModel, append([]func(*schema.Entry){priced(usd), model(name), used("", schema.Tokens{Input: in})}, change...)...)
	}
	s.post(call("m-same-2026-01-15", "1.25", 100), call("m-dearer1", "2", 100), call("m-more12", "3", 100), call("m-less123", "4", 100), call("m-ours1234", "5", 100),
		call("m-blind12345", "6", 100), call("m-unpriced1", "0", 50, status(schema.CostUnpriced)), call("m-other123456", "77", 1, func(e *schema.Entry) { e.Provider = "anthropic" }))
	costs := openAIPage(openAICost("m-same-2026-01-15, input", "1"), openAICost("m-same-2026-01-15, cached input", "2.5000049e-1"), openAICost("m-dearer1, input", "2.500001"), openAICost("m-more12, input", "6.000001"),
		openAICost("m-less123, input", "1"), openAICost("m-listed, input", "0.5"), openAICost("m-blind12345, output", "6.6"), openAICost("m-unpriced1, output", "0.25"), openAICost("web search tool calls", "-0.01"))
	usage := openAIPage(openAIUsage("m-same-2026-01-15", 60, 40), openAIUsage("m-dearer1", 100, 0), openAIUsage("m-more12", 150, 50), openAIUsage("m-less123", 25, 0), openAIUsage("m-unpriced1", 50, 0))
	m := s.reconciled("source=openai", costs+usage)
	equal(t, "rows", parted(m), `
 web search tool calls 0 -0.01 -0.01 0 0 -0.01 0 0
m-blind12345  6 6.6 0.6 <nil> <nil> <nil> 0 0.6
m-dearer1  2 2.500001 0.500001 0.500001 0 0 0 0
m-less123  4 1 -3 0 -3 0 0 0
m-listed  0 0.5 0.5 0 0 0.5 0 0
m-more12  3 6.000001 3.000001 0.0000005 0 3.0000005 0 0
m-ours1234  5 0 -5 0 -5 0 0 0
m-same  1.25 1.25000049 0.00000049 0.00000049 0 0 0 0
m-unpriced1  0 0.25 0.25 0.25 0 0 0 0`)
	equal(t, "all", show([]map[string]any{m["reconciliation"].(map[string]any)}, "from", "to", "made_by", "ours_usd", "theirs_usd", "unsplit_usd"), "2026-03-10 2026-03-11 local 21.25 18.09000249 0.6")
	equal(t, "error bars", show(list(m["rows"])[8:], "model", "unpriced", "error_usd"), "m-unpriced1 1 <nil>")
	if m["already"] != false {
		t.Error("a new file is recognised")
	}

	// Without usage nothing says why, and it is not guessed. Half a digit of each row is rounding.
	m = s.reconciled("source=openai&tenant=t-1", "["+openAIPage(openAICost("m-same-2026-01-15", "1.2500001"), openAICost("m-dearer1", "2.5"))+"]")
	equal(t, "costs alone", show(list(m["rows"])[:2], "model", "priced_usd", "rounding_usd", "unsplit_usd", "their_tokens"), "m-blind12345 0 0 0 <nil>\nm-dearer1 <nil> 0 0.5 <nil>")
	m = s.reconciled("source=openai", openAIPage(openAICost("m-same-2026-01-15", "1.25000004"), openAICost("m-same-2026-01-15, output", "-0.00000003")))
	equal(t, "rounding", show(list(m["rows"])[5:6], "model", "difference_usd", "rounding_usd", "unsplit_usd"), "m-same 0.00000001 0.00000001 0")

	// The same file is recognised, and compared again only on demand.
	again := s.reconciled("source=openai", costs+usage)
	if again["already"] != true || parted(again) != parted(s.get("/api/v1/reconcile?id="+again["reconciliation"].(map[string]any)["id"].(string))) {
		t.Errorf("the same file: %v", again)
	}
	s.post(call("m-late1234567890", "0.125", 10))
	more := s.reconciled("source=openai&again=true", costs+usage)
	if more["already"] != false || more["reconciliation"].(map[string]any)["ours_usd"] != "21.375" {
		t.Errorf("again: %v", more["reconciliation"])
	}
	equal(t, "list", show(list(s.get("/api/v1/reconcile")["reconciliations"])[:1], "id", "source", "difference_usd"), fmt.Sprintf("%s openai -3.28499751", more["reconciliation"].(map[string]any)["id"]))
	_, file := s.file("/api/v1/reconcile?format=csv&id=" + more["reconciliation"].(map[string]any)["id"].(string))
	if len(file) != 11 || !strings.HasPrefix(columns(t, file, "day", "model", "priced_usd", "unsplit_usd"), "2026-03-10  0 0\n2026-03-10 m-blind12345  0.6\n") {
		t.Errorf("file: %q", columns(t, file, "day", "model", "priced_usd", "unsplit_usd"))
	}
	page := s.get("/api/v1/reconcile?limit=2")
	if next := s.get("/api/v1/reconcile?limit=2&cursor=" + page["next"].(string)); len(list(next["reconciliations"])) != 2 || next["truncated"] != false {
		t.Errorf("pages: %v %v", page, next)
	}
	all, err := reg.Gather()
	if err != nil || len(all) != 2 {
		t.Fatalf("gauges: %v %v", all, err)
	}
	if m := all[0].Metric[0]; all[0].GetName() != "flyball_reconciliation_drift_ratio" || m.Label[0].GetValue() != "openai" || fmt.Sprintf("%.6f", m.Gauge.GetValue()) != "-0.181592" {
		t.Errorf("gauge: %v", all[0])
	}
	if at := all[1].Metric[0].Gauge.GetValue(); time.Since(time.Unix(int64(at), 0)) > time.Hour {
		t.Errorf("gauge: %v", all[1])
	}
}

func TestReconcileAnthropic(t *testing.T) {
	s := newStore(t)
	tr := newTrace("t-1", "r", 1, nil)
	e := tr.add(schema.KindModel, priced("1.2345"), model("claude-x-4-5"), used("", schema.Tokens{Input: 10, CacheRead: 20, CacheWrite5m: 3, CacheWrite1h: 4, Output: 5}))
	e.Provider = "anthropic"
	s.post(e)
	cost := func(cents, model, kind string) string {
		return fmt.Sprintf(`{"currency":"USD","amount":%q,"workspace_id":null,"description":"Claude X Usage - %s","cost_type":"tokens","context_window":"0-200k","model":%s,"service_tier":"standard","token_type":%q}`, cents, kind, model, kind)
	}
	body := func(results ...string) string {
		return `{"data":[{"starting_at":"2026-03-10T00:00:00Z","ending_at":"2026-03-11T00:00:00Z","results":[` + strings.Join(results, ",") + `]},{"starting_at":"2026-03-11T00:00:00Z","ending_at":"2026-03-12T00:00:00Z","results":[]}],"has_more":false,"next_page":null}`
	}
	search := `{"currency":"USD","amount":"100","description":"Web Search Usage","cost_type":"web_search","model":null}`
	usage := `{"uncached_input_tokens":10,"cache_read_input_tokens":20,"cache_creation":{"ephemeral_5m_input_tokens":3,"ephemeral_1h_input_tokens":4},"output_tokens":5,"server_tool_use":{"web_search_requests":0},"model":"claude-x-4-5"}`
	// Amounts are cents: 150 and 0.00001 cents are 1.5000001 USD.
	m := s.reconciled("source=anthropic", body(cost("150", `"claude-x-4-5"`, "input"), cost("0.00001", `"claude-x-4-5"`, "output"), search)+body(usage))
	equal(t, "rows", parted(m), " Web Search Usage 0 1 1 0 0 1 0 0\nclaude-x-4-5  1.2345 1.5000001 0.2655001 0.2655001 0 0 0 0")
	equal(t, "tokens", show(list(m["rows"])[1:], "our_tokens", "their_tokens", "bill_rows", "calls"), "42 42 2 1")
	equal(t, "days", show([]map[string]any{m["reconciliation"].(map[string]any)}, "from", "to"), "2026-03-10 2026-03-12")
}

// Our own FOCUS file is our own figures.
func TestReconcileFocus(t *testing.T) {
	s := newStore(t, func(o *Options) { o.Prices = listed })
	tr := newTrace("t-1", "r", 1, nil)
	s.post(tr.add(schema.KindModel, priced("0.000000125000"), used("line/m-5", schema.Tokens{Input: 100})), tr.add(schema.KindModel, priced("0.1"), model("m-6")), tr.add(schema.KindModel, status(schema.CostUnknown), model("m-7")))
	code, _, own := s.do("/api/v1/export/focus?"+during, "")
	if code != http.StatusOK {
		t.Fatal(own)
	}
	m := s.reconciled("source=focus", own)
	equal(t, "our own", show(list(m["rows"]), "provider", "model", "difference_usd", "bill_rows"), "openai m-5 0 1\nopenai m-6 0 1\nopenai m-7 0 0")

	head := "BilledCost,BillingCurrency,ChargeCategory,ChargePeriodStart,ChargePeriodEnd,ProviderName,ServiceCategory,ServiceName,SkuId,ConsumedQuantity,ConsumedUnit,ChargeDescription\n"
	day := "2026-03-10T00:00:00Z,2026-03-11T00:00:00Z"
	hour := "2026-03-10 13:00:00 UTC,2026-03-10 14:00:00 UTC" // as BigQuery writes them
	file := "\ufeff" + head +
		"0.2,USD,Usage," + hour + ",OpenAI,AI and Machine Learning,OpenAI API,openai/m-6,1,1K tokens,\n" +
		"1.5,USD,Usage," + hour + ",AWS,AI and Machine Learning,Bedrock,ABC123,7,Tokens,\n" +
		"9,USD,Usage," + day + ",AWS,Compute,EC2,i-1,1,Hours,\n" +
		"0.3,USD,Tax," + day + ",OpenAI,AI and Machine Learning,OpenAI API,,,,VAT\n" +
		"20,USD,Purchase,2026-03-10T00:00:00Z,2026-04-10T00:00:00Z,OpenAI,AI and Machine Learning,OpenAI API,openai/m-6,,,\n"
	m = s.reconciled("source=focus", file)
	equal(t, "of others", show(list(m["rows"]), "provider", "model", "item", "theirs_usd", "only_theirs_usd", "unsplit_usd", "their_tokens"), `
bedrock  ABC123 1.5 1.5 0 7
openai  Tax: VAT 0.3 0.3 0 <nil>
openai  openai/m-6 (2026-03-10 to 2026-04-10) 20 20 0 <nil>
openai m-5  0 0 0 <nil>
openai m-6  0.2 0.2 0 1000
openai m-7  0 0 0 <nil>`)
	equal(t, "skipped", show([]map[string]any{m["reconciliation"].(map[string]any)}, "skipped_rows", "skipped_usd", "to"), "1 9 2026-03-11")
}

func TestReconcileRefuses(t *testing.T) {
	ring, secrets := keys(t, schema.Key{Name: "one", Role: schema.KeyAdmin, Tenant: "t-1"}, schema.Key{Name: "reader", Role: schema.KeyRead, Tenants: schema.TenantList{"*"}}, schema.Key{Name: "all", Role: schema.KeyAdmin, Tenants: schema.TenantList{"*"}})
	s := newStore(t, func(o *Options) { o.Keys = ring })
	f := func(query, body, words string) {
		t.Helper()
		code, text := s.bill(query, secrets["all"], body)
		if code != http.StatusBadRequest || !strings.Contains(fmt.Sprint(decode(t, text)["detail"]), words) {
			t.Errorf("%s: got %d %s, want 400 with %q", query, code, text, words)
		}
	}
	good := openAIPage(openAICost("m-5, input", "1"))
	f("source=gemini", good, "want one of openai, anthropic, focus")
	f("source=openai&from=yesterday", good, "want RFC 3339 or a date")
	f("source=openai&from=2026-03-10T00:00:00Z", good, "want a UTC day")
	f("source=openai&from=2026-04-01", good, "nothing of the days")
	f("source=openai&colour=red", good, "unknown parameter")
	f("source=openai", "", "the file is empty")
	f("source=openai", "BilledCost,x\n", "byte 0: invalid character")
	f("source=openai", good[:len(good)-30], "ends in the middle of page 1")
	f("source=openai", `{"error":{"message":"Incorrect API key provided"}}`, "page 1 is an answer with an error")
	f("source=openai", `{"object":"page"}`, "page 1 has no data")
	f("source=openai", `[[]]`, "is a list")
	f("source=openai", strings.Replace(good, `"has_more":false`, `"has_more":true`, 1), "fetch the rest")
	f("source=openai", good+good, "page 2, data[0].results[0] is the organization.costs.result of 2026-03-10T00:00:00Z, as is page 1, data[0].results[0]")
	f("source=openai", openAIPage(openAICost("m-5", `"1,5"`)), `page 1, data[0].results[0].amount.value "1,5": want a decimal number`)
	f("source=openai", openAIPage(openAICost("m-5", `1e99`)), "no amount that anybody pays")
	f("source=openai", strings.Replace(good, `"usd"`, `"eur"`, 1), "the bill is in EUR, and no rate of it is known on 2026-03-10 or before")
	f("source=openai", strings.Replace(good, `"usd"`, `"euro"`, 1), `amount.currency is "euro": want a code such as USD`)
	f("source=openai", openAIPage(openAICost("m-5", "1"), strings.Replace(openAICost("m-6", "1"), `"usd"`, `"eur"`, 1)), "compare the bill of each currency by itself")
	f("source=openai", strings.Replace(good, "1773187200", "1775692800", 1), "want parts of one UTC day: fetch it with bucket_width=1d")
	f("source=openai", strings.Replace(good, `"m-5, input"`, "null", 1), "group_by[]=line_item")
	f("source=openai", openAIPage(openAIUsage("m-5", 1, 2)), "usage and no costs")
	f("source=openai", openAIPage(`{"object":"organization.usage.images.result","images":3}`), "usage that counts tokens")
	f("source=anthropic", good, "page 1, data[0] has no starting_at")
	day := func(result string) string {
		return `{"data":[{"starting_at":"2026-03-10T00:00:00Z","ending_at":"2026-03-11T00:00:00Z","results":[` + result + `]}],"has_more":false}`
	}
	f("source=anthropic", day(`{"currency":"USD","amount":12.5,"model":"m"}`), "results[0].amount is 12.5; want cents in a string")
	f("source=anthropic", day(`{"currency":"USD","amount":"12.5"}`), "group_by[]=description")
	f("source=anthropic", day(`{"currency":"USD","amount":"12.5","model":7}`), "results[0].model is a number; want a string")
	head := strings.Join(focusWanted, ",") + "\n"
	f("source=focus", good, "line 1")
	f("source=focus", "BilledCost,BilledCost\n", "stands twice")
	f("source=focus", strings.Replace(head, "ChargeCategory", "Category", 1), "no column ChargeCategory")
	f("source=focus", head+"1,USD,Usage,2026-03-10T00:00:00Z,2026-03-11T00:00:00Z,OpenAI,AI and Machine Learning,x\nEUR\n", "line 3")
	f("source=focus", head+"1,EUR,Usage,2026-03-10T00:00:00Z,2026-03-11T00:00:00Z,OpenAI,AI and Machine Learning,x\n", "no rate of it is known on 2026-03-10")
	f("source=focus", head+"1,,Usage,2026-03-10T00:00:00Z,2026-03-11T00:00:00Z,OpenAI,AI and Machine Learning,x\n", `line 2, BillingCurrency "": want a code`)
	f("source=focus", head+"1,USD,Usage,2026-03-10T00:00:00Z,9999-12-31T00:00:00Z,OpenAI,AI and Machine Learning,x\n", "line 2, ChargePeriodEnd")
	f("source=focus", head+"1.5.5,USD,Usage,2026-03-10T00:00:00Z,2026-03-11T00:00:00Z,OpenAI,AI and Machine Learning,x\n", `line 2, BilledCost "1.5.5"`)
	f("source=focus", head+"1,USD,Usage,10/03/2026,2026-03-11T00:00:00Z,OpenAI,AI and Machine Learning,x\n", `line 2, ChargePeriodStart`)
	if n := s.count("SELECT count() FROM reconciliations"); n != 0 {
		t.Errorf("%d rows are stored of refused files", n)
	}
	for key, want := range map[string]int{"one": http.StatusForbidden, "reader": http.StatusForbidden, "none": http.StatusUnauthorized} {
		if code, text := s.bill("source=openai", secrets[key], good); code != want {
			t.Errorf("key %s: %d %s, want %d", key, code, text, want)
		}
	}
	if code, _, body := s.do("/api/v1/reconcile", secrets["one"]); code != http.StatusForbidden || !strings.Contains(body, "not for every tenant") {
		t.Errorf("one tenant's key: %d %s", code, body)
	}
	if code, _, body := s.do("/api/v1/reconcile?id=nothing", secrets["reader"]); code != http.StatusNotFound {
		t.Errorf("no such comparison: %d %s", code, body)
	}
}

// Whatever the two sides are, the parts sum to the difference.
func TestDifferencesAreSplitExactly(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	money := func() *big.Int { return big.NewInt(rnd.Int64N(1<<50) - 1<<49) }
	how := map[string]int{}
	for range 20_000 {
		kinds, ourKinds := map[string]*billed{}, map[string]int64{}
		for _, kind := range tokenKinds[:rnd.IntN(6)] {
			kinds[kind], ourKinds[kind] = &billed{money(), rnd.Int64N(50)}, rnd.Int64N(50)
			kinds[kind].cost.Abs(kinds[kind].cost)
		}
		theirs := money()
		c := compared{billed: theirs, theirKinds: kinds, ourKinds: ourKinds, reportedKinds: map[string]int64{"input": rnd.Int64N(50)}, ours: money(), theirs: theirs, ourTokens: rnd.Int64N(50), seen: rnd.IntN(4) > 0, billRows: rnd.Int64N(3), calls: rnd.Int64N(9), bare: rnd.IntN(2) == 0, counted: rnd.Int64N(50)}
		if rnd.IntN(3) == 0 {
			n := rnd.Int64N(50)
			c.reported = &n
		}
		if rnd.IntN(3) == 0 {
			c.theirs = new(big.Int).Add(c.ours, big.NewInt(rnd.Int64N(9)-4))
		}
		c.explain(big.NewInt(1))
		how[c.splitBy]++
		sum := new(big.Int)
		for _, p := range []*big.Int{c.priced, c.onlyOurs, c.onlyTheirs, c.rounding, c.unsplit} {
			sum.Add(sum, p)
		}
		if sum.Cmp(new(big.Int).Sub(c.theirs, c.ours)) != 0 {
			t.Fatalf("%+v", c)
		}
	}
	if len(how) != 3 || how[splitKinds] < 500 || how[splitTotals] < 500 {
		t.Errorf("how they were split: %v", how)
	}
}

func FuzzBill(f *testing.F) {
	f.Add(openAIPage(openAICost("m-5, input", "1.5e-3"), openAIUsage("m-5", 1, 2)))
	f.Add(`{"data":[{"starting_at":"2026-03-10T00:00:00Z","ending_at":"2026-03-11T00:00:00Z","results":[{"currency":"USD","amount":"12.5","model":"m"}]}]}`)
	f.Add(strings.Join(focusWanted, ",") + "\n1,USD,Usage,2026-03-10T00:00:00Z,2026-03-11T00:00:00Z,OpenAI,AI and Machine Learning,x\n")
	f.Fuzz(func(t *testing.T, text string) {
		for _, read := range []func(*bill, io.Reader) error{(*bill).openAI, (*bill).anthropic, (*bill).focusCSV} {
			b := newBill(time.Time{}, time.Time{})
			if err := read(b, strings.NewReader(text)); err != nil {
				continue
			}
			if b.rows > 0 && (b.from.IsZero() || !b.from.Before(b.to)) {
				t.Errorf("%d rows of no day", b.rows)
			}
		}
	})
}

func openAIUsageOf(model string, in, cached, out int) string {
	return fmt.Sprintf(`{"object":"organization.usage.completions.result","input_tokens":%d,"input_cached_tokens":%d,"input_audio_tokens":0,"output_tokens":%d,"output_audio_tokens":0,"model":%q}`, in, cached, out, model)
}

// The same prices and another mix of kinds is volume, not price.
func TestBillsAreSplitByKindOfToken(t *testing.T) {
	s := newStore(t, func(o *Options) { o.ModelName = dateless })
	tr := newTrace("t-1", "r", 1, nil)
	call := func(name, usd string, tok schema.Tokens, change ...func(*schema.Entry)) schema.Entry {
		return tr.add(schema.KindModel, append([]func(*schema.Entry){priced(usd), model(name), used("", tok)}, change...)...)
	}
	// Input is 1, cached input 0.1 and output 10 for a token, by both sides unless it says so.
	s.post(call("m-mix", "1100", schema.Tokens{Input: 100, Output: 100}),
		call("m-price", "1100", schema.Tokens{Input: 100, Output: 100}),
		call("m-both", "1110", schema.Tokens{Input: 100, CacheRead: 100, Output: 100}),
		call("m-cache", "110", schema.Tokens{Input: 100, CacheRead: 100}),
		call("m-fee", "100", schema.Tokens{Input: 100}))
	costs := openAIPage(openAICost("m-mix, input", "150"), openAICost("m-mix, output", "500"), openAICost("m-price, input", "200"), openAICost("m-price, output", "1000"),
		openAICost("priority | m-both-2026-01-15, cached input", "20"), openAICost("priority | m-both-2026-01-15, input", "50"), openAICost("priority | m-both-2026-01-15, output, long context", "2000"),
		openAICost("m-cache, input", "220"), openAICost("m-fee, input", "100"), openAICost("m-fee, training", "7"))
	usage := openAIPage(openAIUsageOf("m-mix", 150, 0, 50), openAIUsageOf("m-price", 100, 0, 100), openAIUsageOf("m-both-2026-01-15", 250, 200, 100), openAIUsageOf("m-cache", 220, 0, 0), openAIUsageOf("m-fee", 100, 0, 0))
	m := s.reconciled("source=openai", costs+usage)
	fields := append(strings.Fields(partFields), "split_by")
	equal(t, "openai", show(list(m["rows"]), fields...), `
m-both  1110 2070 960 1000 -50 10 0 0 kinds
m-cache  110 220 110 90 0 20 0 0 totals
m-fee  100 107 7 7 0 0 0 0 totals
m-mix  1100 650 -450 0 -500 50 0 0 kinds
m-price  1100 1200 100 100 0 0 0 0 kinds`)

	// The costs know their quantities themselves.
	cost := func(item, usd string, n string) string {
		return strings.Replace(openAICost(item, usd), `"project_id"`, `"quantity":`+n+`,"quantity_unit":"tokens","project_id"`, 1)
	}
	m = s.reconciled("source=openai", openAIPage(cost("m-mix, input", "150", "150"), cost("m-mix, output", "500", "50.0")))
	equal(t, "quantities", show(list(m["rows"])[3:4], fields...), "m-mix  1100 650 -450 0 -500 50 0 0 kinds")
	m = s.reconciled("source=openai", openAIPage(cost("m-mix, input", "150", "150.5"), cost("m-mix, output", "500", "50")))
	equal(t, "half a token", show(list(m["rows"])[3:4], "unsplit_usd", "split_by"), "-450 ")

	// Anthropic by the type of token, one hour's cache writes apart.
	e := call("claude-x", "360", schema.Tokens{Input: 100, CacheRead: 100, CacheWrite5m: 40, CacheWrite1h: 100})
	e.Provider = "anthropic"
	s.post(e)
	row := func(cents, kind string) string {
		return fmt.Sprintf(`{"currency":"USD","amount":%q,"description":"Claude X","cost_type":"tokens","model":"claude-x","token_type":%q}`, cents, kind)
	}
	m = s.reconciled("source=anthropic", `{"data":[{"starting_at":"2026-03-10T00:00:00Z","ending_at":"2026-03-11T00:00:00Z","results":[`+
		row("10000", "uncached_input_tokens")+","+row("2000", "cache_read_input_tokens")+","+row("5000", "cache_creation.ephemeral_5m_input_tokens")+","+row("10000", "cache_creation.ephemeral_1h_input_tokens")+`]}]}`+
		`{"data":[{"starting_at":"2026-03-10T00:00:00Z","ending_at":"2026-03-11T00:00:00Z","results":[{"model":"claude-x","uncached_input_tokens":100,"cache_read_input_tokens":200,"cache_creation":{"ephemeral_5m_input_tokens":40,"ephemeral_1h_input_tokens":50},"output_tokens":0}]}]}`)
	// At the bill's prices ours would be 100 + 10 + 50 + 200, which it is: 50 writes fewer, 100 reads more.
	equal(t, "anthropic", show(list(m["rows"]), fields...), "claude-x  360 270 -90 0 -100 10 0 0 kinds")

	// FOCUS by its meters; audio and image tokens that it does not price apart are input.
	head := "BilledCost,BillingCurrency,ChargeCategory,ChargePeriodStart,ChargePeriodEnd,ProviderName,ServiceCategory,ServiceName,SkuId,SkuMeter,ConsumedQuantity,ConsumedUnit\n"
	line := func(usd, meter, n string) string {
		return usd + ",USD,Usage,2026-03-10T00:00:00Z,2026-03-11T00:00:00Z,Mistral AI,AI and Machine Learning,x,mistral/m-9," + meter + "," + n + ",Tokens\n"
	}
	e = call("m-9", "300", schema.Tokens{Input: 60, InputAudio: 40, Output: 20})
	e.Provider = "mistral"
	s.post(e)
	m = s.reconciled("source=focus", head+line("150", "Input Tokens", "150")+line("100", "Output Tokens", "10"))
	equal(t, "focus", show(list(m["rows"]), fields...), "m-9  300 250 -50 0 -100 50 0 0 kinds")
	m = s.reconciled("source=focus", head+line("150", "Tokens", "150")+line("100", "Tokens", "10"))
	equal(t, "focus without kinds", show(list(m["rows"]), fields...), "m-9  300 250 -50 -112.5 0 62.5 0 0 totals")
	_, file := s.file("/api/v1/reconcile?format=csv&id=" + m["reconciliation"].(map[string]any)["id"].(string))
	equal(t, "file", columns(t, file, "model", "split_by", "theirs", "currency", "rate_usd", "rate_of"), "m-9 totals 250 USD  ")
}

// A bill in euros is converted day by day, and the rates stay with it.
func TestReconcileInAnotherCurrency(t *testing.T) {
	s := newStore(t, withEuros(t))
	tr := newTrace("t-1", "r", 1, nil)
	s.post(at(tr.add(schema.KindModel, priced("3"), used("", schema.Tokens{Input: 10})), "2026-03-10T12:00:00Z", "2026-03-10T12:00:01Z"),
		at(tr.add(schema.KindModel, priced("1"), model("m-6"), used("", schema.Tokens{Input: 10})), "2026-03-11T12:00:00Z", "2026-03-11T12:00:01Z"),
		at(tr.add(schema.KindModel, priced("1.25"), used("", schema.Tokens{Input: 10})), "2026-03-09T12:00:00Z", "2026-03-09T12:00:01Z"))
	head := "BilledCost,BillingCurrency,ChargeCategory,ChargePeriodStart,ChargePeriodEnd,ProviderName,ServiceCategory,ServiceName,SkuId,SkuMeter,ConsumedQuantity,ConsumedUnit\r\n"
	line := func(amount, day, sku, n string) string {
		return `"` + amount + `",EUR,Usage,2026-03-` + day + "T00:00:00Z,2026-03-" + day + "T23:00:00Z,OpenAI,AI and Machine Learning,x,openai/" + sku + ",Input Tokens," + n + ",Tokens\r\n"
	}
	file := "\ufeff" + head + line("1.000001", "10", "m-5", "10") + line("2.000000", "11", "m-6", "20") + line("1.000000", "09", "m-5", "10") + line("-0.100000", "09", "credit", "0") +
		"5,EUR,Usage,2026-03-09T00:00:00Z,2026-03-10T00:00:00Z,AWS,Compute,EC2,i-1,,1,Hours\r\n"
	m := s.reconciled("source=focus", file)
	// 0.1 EUR are 0.125 USD; half of the last digit, 0.000001 EUR, is 0.0000015 USD on the 10th.
	equal(t, "rows", show(list(m["rows"]), "day", "model", "item", "ours_usd", "theirs_usd", "theirs", "currency", "priced_usd", "only_theirs_usd", "rounding_usd", "split_by"), `
2026-03-09  openai/credit 0 -0.125 -0.1 EUR 0 -0.125 0 
2026-03-09 m-5  1.25 1.25 1 EUR 0 0 0 
2026-03-10 m-5  3 3.000003 1.000001 EUR 0.000003 0 0 kinds
2026-03-11 m-6  1 6 2 EUR 2 3 0 kinds`)
	var rates []string
	for _, r := range list(m["rows"]) {
		rates = append(rates, fmt.Sprint(r["rate"]))
	}
	equal(t, "rates", strings.Join(rates[1:], "\n"), `
map[carried:false of:2026-03-09 source:ecb.csv usd:1.25]
map[carried:false of:2026-03-10 source:ecb.csv usd:3]
map[carried:true of:2026-03-10 source:ecb.csv usd:3]`)
	equal(t, "all", show([]map[string]any{m["reconciliation"].(map[string]any)}, "currency", "theirs", "theirs_usd", "ours_usd", "skipped_usd"), "EUR 3.900001 10.125003 5.25 6.25")
	if again := s.reconciled("source=focus", file); again["already"] != true || fmt.Sprint(again["rows"]) != fmt.Sprint(m["rows"]) {
		t.Errorf("again: %v", again)
	}
	// A figure within half a digit of the bill is rounding, in USD.
	m = s.reconciled("source=focus", head+line("1.0000003", "10", "m-5", "10")+line("-0.0000004", "10", "m-5", "10"))
	equal(t, "rounding", show(list(m["rows"]), "difference_usd", "rounding_usd"), "-0.0000003 -0.0000003")
	code, text := s.bill("source=focus", "", head+line("1", "04", "m-5", "10"))
	if code != http.StatusBadRequest || !strings.Contains(text, "no rate of it is known on 2026-03-04 or before") {
		t.Errorf("a day before the first rate: %d %s", code, text)
	}
	// What nobody paid needs no rate.
	if m := s.reconciled("source=focus", head+line("0", "04", "m-5", "10")); show(list(m["rows"]), "theirs_usd", "rate") != "0 <nil>" {
		t.Errorf("nothing: %v", m["rows"])
	}
}

// A bill is compared with what was known when it was paid.
func TestReconcileWithWhatWasKnownThen(t *testing.T) {
	s := newStore(t)
	tr := newTrace("t-1", "r", 1, nil)
	first := tr.add(schema.KindModel, priced("1"))
	s.post(first)
	late := tr.add(schema.KindModel, priced("2"))
	s.post(moved(late, "2026-03-20T00:00:00Z"))
	page := openAIPage(openAICost("m-5, input", "1"))
	then, now := s.reconciled("source=openai&as_of=2026-03-15", page), s.reconciled("source=openai", page)
	f := func(m map[string]any) string {
		return show([]map[string]any{m["reconciliation"].(map[string]any)}, "ours_usd", "difference_usd")
	}
	equal(t, "then", f(then), "1 0")
	equal(t, "now", f(now), "3 -2")
	if got := then["reconciliation"].(map[string]any)["as_of"]; got != "2026-03-16T00:00:00Z" {
		t.Errorf("as_of: %v", got)
	}
	if again := s.reconciled("source=openai&as_of=2026-03-15", page); again["already"] != true || f(again) != "1 0" {
		t.Errorf("again: %v", again)
	}
	s.refuse("/api/v1/reconcile?as_of=2026-03-15", http.StatusBadRequest, "a comparison stays as it was made")
}

// What was not fetched is not held against the bill.
func TestBillsOfPartOfADayAreRefused(t *testing.T) {
	s := newStore(t)
	tr := newTrace("t-1", "r", 1, nil)
	s.post(tr.add(schema.KindModel, priced("1")))
	f := func(query, body, words string) {
		t.Helper()
		code, text := s.bill("source=openai"+query, "", body)
		if words == "" && code != http.StatusOK || words != "" && (code != http.StatusBadRequest || !strings.Contains(text, words)) {
			t.Errorf("got %d %s, want %q", code, text, words)
		}
	}
	bucket := func(from, to int, results string) string {
		return fmt.Sprintf(`{"data":[{"start_time":%d,"end_time":%d,"results":[%s]}]}`, from, to, results)
	}
	cost, use := openAICost("m-5, input", "1"), openAIUsage("m-5", 1, 2)
	const hour, day = 3600, 24 * 3600
	f("", bucket(march10, march10+15*hour, cost), "no costs of 2026-03-10 from 15:00:00Z on")
	f("", bucket(march10+hour, march11, cost), "no costs of 2026-03-10 from 00:00:00Z on")
	f("", bucket(march10, march11, cost)+bucket(march11+day, march11+2*day, ""), "no costs of 2026-03-11 from 00:00:00Z on")
	f("", bucket(march10, march10+hour, cost)+bucket(march10+hour, march11, use), "no costs of 2026-03-10 from 01:00:00Z on")
	f("", bucket(march10, march11, cost)+bucket(march11, march11+hour, ""), "no costs of 2026-03-11 from 01:00:00Z on")
	f("&to=2026-03-11", bucket(march10, march11, cost)+bucket(march11, march11+hour, ""), "")
	f("", bucket(march10, march10+hour, cost)+bucket(march10+hour, march11, cost)+bucket(march10, march10+hour, use), "")
	f("", bucket(-march10*99999, -march10*99999+hour, cost), "want one from 2000 to 2099")
}

func TestKindsOfTokens(t *testing.T) {
	for words, want := range map[string]string{
		"uncached_input_tokens": "input", "cache_read_input_tokens": "cache_read", "cache_creation.ephemeral_5m_input_tokens": "cache_write_5m", "cache_creation.ephemeral_1h_input_tokens": "cache_write_1h", "output_tokens": "output",
		"USE1-ClaudeX-cache-write-input-token-count": "cache_write_5m", "USE1-ClaudeX-output-tokens": "output", "m-5 Inp glbl Tokens": "input", "m-5 Outp glbl Tokens": "output", "m-5 cached Inp glbl Tokens": "cache_read", "m-5 cchd Inp": "cache_read",
		"Input Audio Tokens": "input_audio", "Output Image Tokens": "output_image", "Cache Write 1h Tokens": "cache_write_1h", "input and output tokens": "", "Tokens": "", "Hours": "", "": "",
	} {
		if got := tokenKind(words); got != want {
			t.Errorf("%q: got %q, want %q", words, got, want)
		}
	}
	for _, m := range meters { // our own file tells its kinds
		if want := m.component; m.consumed == "Tokens" && tokenKind(m.name) != want {
			t.Errorf("%s: got %q", m.name, tokenKind(m.name))
		}
	}
}

func TestLineItemsOfOpenAI(t *testing.T) {
	f := func(item, names, kind string) {
		t.Helper()
		n, k := openAIItem(item)
		if got := strings.Join(n, "|"); got != names || k != kind {
			t.Errorf("%s: got %s and %q, want %s and %q", item, got, k, names, kind)
		}
	}
	f("gpt-5-2026-01-15, input", "gpt-5-2026-01-15", "input")
	f("gpt-5, cached input", "gpt-5", "cache_read")
	f("gpt-5, output", "gpt-5", "output")
	f("priority | gpt-5, output, long context", "gpt-5|priority", "output")
	f("gpt-audio audio, input", "gpt-audio audio|gpt-audio", "input_audio")
	f("gpt-image-2 image, output", "gpt-image-2 image|gpt-image-2", "output_image")
	f("gpt-image-2 text, cached input", "gpt-image-2 text|gpt-image-2", "cache_read")
	f("whisper-1, audio", "whisper-1", "")
	f("web search tool calls", "web search tool calls", "")
}

// Marks in front, quotes, line ends, days of 25 hours, quantities that are given back,
// and numbers that nobody has.
func TestBillsAsTheyComeOutOfOtherPrograms(t *testing.T) {
	s := newStore(t, withEuros(t))
	tr := newTrace("t-1", "r", 1, nil)
	s.post(tr.add(schema.KindModel, priced("1"), used("", schema.Tokens{Input: 10})))
	head := `"BilledCost","BillingCurrency","ChargeCategory","ChargePeriodStart","ChargePeriodEnd","ProviderName","ServiceCategory","ServiceName","SkuId","SkuMeter","ConsumedQuantity","ConsumedUnit"` + "\r\n"
	line := func(cost, currency, end, n string) string {
		return strings.Join([]string{cost, currency, "Usage", "2026-03-10T00:00:00Z", end, "OpenAI", "AI and Machine Learning", `"a, ""b"""`, "openai/m-5", "Input Tokens", n, "Tokens\r\n"}, ",")
	}
	const day, long, month = "2026-03-11T00:00:00Z", "2026-03-11T01:00:00Z", "2026-04-10T00:00:00Z"
	fields := []string{"model", "item", "theirs_usd", "their_tokens", "only_ours_usd", "priced_usd", "split_by"}
	m := s.reconciled("source=focus", "\ufeff"+head+line("3", "USD", day, "30")+line("-2", "USD", long, "-20"))
	equal(t, "given back", show(list(m["rows"]), fields...), "m-5  1 10 0 0 ")
	m = s.reconciled("source=focus", "\ufeff"+head+line("3", "USD", day, "10")+line("-2", "USD", long, "-5"))
	equal(t, "half given back", show(list(m["rows"]), fields...), "m-5  1 5 0 0 ")
	m = s.reconciled("source=focus", head+line("1", "USD", month, ""))
	equal(t, "a commitment", show(list(m["rows"])[:1], fields[:3]...), " openai/m-5 (2026-03-10 to 2026-04-10) 1")
	m = s.reconciled("source=openai", "\ufeff"+openAIPage(openAICost("m-5, input", "1")))
	equal(t, "JSON with a mark", show(list(m["rows"]), "model", "theirs_usd"), "m-5 1")
	f := func(source, body, words string) {
		t.Helper()
		if code, text := s.bill("source="+source, "", body); code != http.StatusBadRequest || !strings.Contains(text, words) {
			t.Errorf("got %d %s, want 400 with %q", code, text, words)
		}
	}
	f("focus", head, "the file has no rows")
	f("focus", head+line("1", "USD", day, "1152921504606846977"), "nothing that anybody used")
	f("focus", head+line("1", "USD", day, "1152921504606846976")+line("1", "USD", day, "1"), "nothing that anybody used")
	f("focus", head+line("999999999999999999", "EUR", day, "1"), "more than anybody pays at the rate 3")
	f("focus", head+line("1", "EUR", day, "1")+line("1", "USD", day, "1"), "compare the bill of each currency by itself")
	f("openai", openAIPage(openAICost("m-5", "1"), openAIUsage("m-5", 1<<60, 1<<60)), "nothing that anybody used")
}

// Amounts of Anthropic are in the least unit of their currency, which is no cent everywhere.
func TestCentsOfOtherCurrencies(t *testing.T) {
	for code, want := range map[string]string{"USD": "15", "EUR": "15", "JPY": "1500", "KWD": "1.5"} {
		b := newBill(time.Time{}, time.Time{})
		err := b.anthropic(strings.NewReader(fmt.Sprintf(`{"data":[{"starting_at":"2026-03-10T00:00:00Z","ending_at":"2026-03-11T00:00:00Z","results":[{"currency":%q,"amount":"1500","model":"m"}]}]}`, code)))
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range b.lines {
			if got := usd(l.cost); got != want || b.currency != code {
				t.Errorf("%s: got %s of %s, want %s", code, got, b.currency, want)
			}
		}
	}
}

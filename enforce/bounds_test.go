package enforce

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

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

// TestKeysShareLeasesAndLimiters: a key that takes all it can get, of leases, of reported
// calls and of limiters' ids, leaves room for others, is told what to do, and gets more when
// it has done so. Senders without keys are one.
func TestKeysShareLeasesAndLimiters(t *testing.T) {
	s := newScript(t, t.TempDir())
	s.policy = []byte(capPolicy)
	s.start()
	defer func() { _ = s.store.Close() }()
	secrets := map[string]string{}
	var keys []schema.Key
	for _, name := range []string{"greedy", "other", "third"} {
		secret, sum := schema.NewSecret()
		secrets[name] = secret
		keys = append(keys, schema.Key{Name: name, SHA256: sum, Role: schema.KeyLimiter, Tenant: "t-1"})
	}
	ring, err := schema.NewKeyring(keys)
	if err != nil {
		t.Fatal(err)
	}
	var router http.Handler
	const places = 64
	open := func() { // as after a restart
		t.Helper()
		s.start()
		s.loop.book.most, s.loop.limiters.most = places, places
		gin.SetMode(gin.TestMode)
		r := gin.New()
		s.loop.Mount(r, func() *schema.Keyring { return ring }, nil)
		router = r
	}
	send := func(key, path string, body any) (int, http.Header, string) {
		t.Helper()
		b, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequest(http.MethodPost, "http://127.0.0.1/api/v1"+path, strings.NewReader(string(b)))
		r.Header.Set("Content-Type", "application/json")
		if key != "" {
			r.Header.Set("Authorization", "Bearer "+secrets[key])
		} else {
			r.RemoteAddr = "127.0.0.1:4711"
		}
		w := httptest.NewRecorder()
		router.ServeHTTP(w, r)
		return w.Code, w.Header(), w.Body.String()
	}
	refused := func(what string, want, code int, h http.Header, text string, says ...string) {
		t.Helper()
		if code != want || h.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: %d %s %s, want problem+json of %d", what, code, h.Get("Content-Type"), text, want)
		}
		for _, word := range says {
			if !strings.Contains(text, word) {
				t.Errorf("%s: it does not say %q: %s", what, word, text)
			}
		}
	}
	call := directive.Call{Tenant: "t-1", Model: "m-5"}
	var leases []string
	reserve := func(key string) (int, http.Header, string) {
		t.Helper()
		code, h, text := send(key, "/reserve", call)
		var got struct{ Lease string }
		if err := json.Unmarshal([]byte(text), &got); err != nil {
			t.Fatal(err)
		}
		if code == http.StatusOK {
			leases = append(leases, got.Lease)
		}
		return code, h, text
	}
	open()
	fill := func(key string) (n int) {
		for code := 0; ; n++ {
			if code, _, _ = reserve(key); code != http.StatusOK {
				return n
			}
		}
	}
	if n := fill("greedy"); n != places/2 {
		t.Errorf("one key gets %d of %d leases, want half", n, places)
	}
	open()
	code, h, text := reserve("greedy")
	refused("a lease too many, after a restart", http.StatusTooManyRequests, code, h, text, "greedy", "settle or release", "32 of 64")
	if h.Get("Retry-After") != "5" {
		t.Errorf("Retry-After is %q", h.Get("Retry-After"))
	}
	if err := s.loop.Charge(call, Settlement{Tokens: map[string]uint64{"input": 1}}, 0, "greedy"); err == nil {
		t.Error("a gateway's report of the same key is taken beside its leases")
	}
	code, h, text = send("other", "/reserve", map[string]any{"plan": make([]directive.Call, places/2+1)})
	refused("a plan of more than there are places", http.StatusTooManyRequests, code, h, text, "other")
	if n := fill("other"); n != places/4 {
		t.Errorf("a second key gets %d leases, want %d", n, places/4)
	}
	if n := fill("third"); n == 0 {
		t.Error("a third key gets no lease")
	}
	// Who gives back gets again.
	for _, l := range leases[:places/2] {
		if code, _, text := send("greedy", "/leases/"+l+"/release", map[string]any{}); code != http.StatusOK {
			t.Fatal(code, text)
		}
	}
	if n := fill("greedy"); n == 0 {
		t.Error("who gave leases back gets none")
	}

	ack := func(key, id string) (int, http.Header, string) {
		t.Helper()
		v := s.loop.current
		return send(key, "/limiters/"+id+"/ack", map[string]any{"epoch": v.Epoch, "revision": v.Revision, "token": s.loop.sign(v)})
	}
	join := func(key string) (n int) {
		t.Helper()
		for ; n <= places; n++ {
			if code, _, _ := ack(key, fmt.Sprint(key, "-", n)); code != http.StatusNoContent {
				break
			}
		}
		return n
	}
	if n := join("greedy"); n != places/2 {
		t.Errorf("one key gets %d of %d limiters, want half", n, places)
	}
	if _, err := s.loop.checkpoint(true); err != nil {
		t.Fatal(err)
	}
	open()
	code, h, text = ack("greedy", "one-more")
	refused("a limiter too many, after a restart", http.StatusConflict, code, h, text, "greedy", "keeps its id", "32 of 64")
	if code, _, text := ack("greedy", "greedy-0"); code != http.StatusNoContent {
		t.Errorf("a limiter that is known: %d %s", code, text)
	}
	if n := join("other"); n != places/4 {
		t.Errorf("a second key gets %d limiters, want %d", n, places/4)
	}
	// Limiters that are not heard of leave their places.
	s.loop.mu.Lock()
	s.loop.limiters.pass(time.Now().Add(25 * time.Hour))
	s.loop.mu.Unlock()
	if n := join("greedy"); n != places/2 {
		t.Errorf("after a day without a word a key gets %d limiters, want %d", n, places/2)
	}

	ring = nil // no keys: all of this machine are one
	open()
	if n := fill(""); n == 0 || n > places/2 {
		t.Errorf("without keys %d leases", n)
	}
	code, h, text = reserve("")
	refused("without keys", http.StatusTooManyRequests, code, h, text, schema.LocalKey.Name)
}

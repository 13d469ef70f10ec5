package app

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/flyball/flyball/enforce/directive"
	"github.com/flyball/flyball/enforce/limiter"
	"github.com/flyball/flyball/schema"
)

// withPolicy is the environment of a service with a policy, on an HTTP port that
// stays the same over restarts, since limiters come back to it.
func withPolicy(t *testing.T, policy string) []string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(file, []byte(policy), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	_ = l.Close()
	return []string{"FLYBALL_POLICY=" + file, "FLYBALL_LISTEN__HTTP=" + addr}
}

// follow starts a limiter and waits until it has a set.
func (s *service) follow(id string) *limiter.Limiter {
	s.t.Helper()
	l, err := limiter.New(limiter.Options{URL: s.url("http", ""), ID: id})
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = l.Follow(ctx) }()
	s.t.Cleanup(func() { cancel(); <-done })
	eventually(s.t, "the limiter has a set", func() bool { _, ok := l.Version(); return ok })
	return l
}

// post sends JSON to the API; want is the status.
func (s *service) post(path string, body any, want int) map[string]any {
	s.t.Helper()
	b, err := json.Marshal(body)
	if err != nil {
		s.t.Fatal(err)
	}
	res, err := client.Post(s.url("http", "/api/v1"+path), "application/json", bytes.NewReader(b))
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	if res.StatusCode != want {
		s.t.Fatalf("POST %s: %s, want %d: %s", path, res.Status, want, text)
	}
	var out map[string]any
	_ = json.Unmarshal(text, &out)
	return out
}

func (s *service) get(path string) map[string]any {
	s.t.Helper()
	res, err := client.Get(s.url("http", "/api/v1"+path))
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	var out map[string]any
	if err := json.NewDecoder(res.Body).Decode(&out); err != nil || res.StatusCode != http.StatusOK {
		s.t.Fatalf("GET %s: %s %v %v", path, res.Status, err, out)
	}
	return out
}

// TestLoopClosed goes the whole way: a span crosses a limit, a limiter that follows
// denies the run, acknowledges, and goes on denying while the service is dead and
// after it has come back.
func TestLoopClosed(t *testing.T) {
	s := newService(t, "", withPolicy(t, `
guards:
  - {name: task, scope: [run], measure: cost, window: run, limit: "0.001", ladder: [{at: 100%, do: terminate}], outcome: checkpoint}
`)...)
	s.start()
	l := s.follow("gateway-1")
	trace := uint64(77)
	call := &limiter.Call{Tenant: fmt.Sprintf("tenant-%d", trace%5), TraceID: fmt.Sprintf("%016x%016x", 0xf1, trace), Model: "m-1"}
	if d := l.Check(call); d.Verdict != directive.Allow {
		t.Fatalf("before anything was spent: %+v", d)
	}
	b := newBatch()
	b.chat(trace, 2, 0, 400)
	s.mustSend(b.td)
	b = newBatch()
	b.chat(trace, 3, 0, 700)
	sent := time.Now()
	s.mustSend(b.td)
	for l.Check(call).Verdict != directive.Deny {
		if time.Since(sent) > 5*time.Second {
			t.Fatal("the limiter does not deny")
		}
		time.Sleep(200 * time.Microsecond)
	}
	t.Logf("denied %s after the span was sent", time.Since(sent))
	d := l.Check(call)
	if d.Guard != "task" || d.Outcome != "checkpoint" || d.Status() != http.StatusForbidden {
		t.Errorf("denial %+v", d)
	}
	eventually(t, "the acknowledgement is counted", func() bool {
		return s.counters()[`flyball_time_to_enforce_seconds_count{limiter="gateway-1"}`] == 1
	})
	// A call that was made all the same is leakage.
	b = newBatch()
	late := b.chat(trace, 4, 0, 10)
	now := time.Now()
	late.SetStartTimestamp(pcommon.NewTimestampFromTime(now))
	late.SetEndTimestamp(pcommon.NewTimestampFromTime(now.Add(time.Millisecond)))
	s.mustSend(b.td)
	eventually(t, "the leak is counted", func() bool { return s.counters()[`flyball_leaked_calls_total{kind="leak"}`] == 1 })

	before, _ := l.Version()
	s.kill(s.engines()...)
	if d := l.Check(call); d.Verdict != directive.Deny {
		t.Errorf("while the service is dead: %+v", d)
	}
	s.start()
	eventually(t, "the limiter is back", func() bool { v, ok := l.Version(); return ok && before.Less(v) })
	if d := l.Check(call); d.Verdict != directive.Deny || d.Guard != "task" {
		t.Errorf("after the restart: %+v", d)
	}
	live := s.get("/guards/live")["live"].([]any)
	if len(live) != 1 {
		t.Errorf("live: %v", live)
	}
	events := s.get("/enforcement")["events"].([]any)
	n := 0
	for _, e := range events {
		if e.(map[string]any)["kind"] == "directive" {
			n++
		}
	}
	if n != 1 {
		t.Errorf("%d directives were issued, want 1: the restart decided again: %v", n, events)
	}
}

// TestKillSwitchSurvives flips the switch and kills the service in between: who was
// told stays stopped, who connects later is stopped from its first call.
func TestKillSwitchSurvives(t *testing.T) {
	s := newService(t, "", withPolicy(t, `
critical: {features: [checkout]}
guards: []
kill: {multiple: "3", floor: "50", exempt: [critical]}
`)...)
	s.start()
	first := s.follow("l-1")
	call, vital := &limiter.Call{Tenant: "t", RunID: "r"}, &limiter.Call{Tenant: "t", RunID: "r", Feature: "checkout"}
	s.post("/kill/drill", map[string]any{"wait_ms": 3000}, http.StatusOK)
	if d := first.Check(call); d.Verdict != directive.Allow {
		t.Errorf("a drill stops nobody: %+v", d)
	}
	s.post("/kill", map[string]any{"state": "on"}, http.StatusBadRequest)
	s.post("/kill", map[string]any{"state": "on", "reason": "test"}, http.StatusOK)
	eventually(t, "the limiter denies", func() bool { return first.Check(call).Guard == "kill" })
	if d := first.Check(vital); d.Verdict != directive.Allow {
		t.Errorf("critical calls pass: %+v", d)
	}
	s.kill(s.engines()...)
	if d := first.Check(call); d.Guard != "kill" {
		t.Errorf("while the service is dead: %+v", d)
	}
	s.start()
	if second := s.follow("l-2"); second.Check(call).Guard != "kill" {
		t.Error("a limiter that connects after the restart admits")
	}
	// Recovery in stages: more and more runs, always the same ones.
	admitted := func() (n int) {
		for i := range 1000 {
			c := limiter.Call{Tenant: "t", RunID: fmt.Sprintf("run-%d", i)}
			if first.Check(&c).Verdict == directive.Allow {
				n++
			}
		}
		return n
	}
	last := 0
	for _, stage := range []int{10, 50, 100} {
		s.post("/kill", map[string]any{"state": "on", "stage": stage, "reason": "recovery"}, http.StatusOK)
		eventually(t, "the stage is there", func() bool { return first.Set().KillState().Stage == stage })
		n := admitted()
		if n <= last || n < stage*7 || n > stage*13 {
			t.Errorf("stage %d admits %d of 1000 runs, the one before %d", stage, n, last)
		}
		last = n
	}
	s.post("/kill", map[string]any{"state": "off", "reason": "over"}, http.StatusOK)
	eventually(t, "calls pass again", func() bool { return first.Check(call).Verdict == directive.Allow })
	// A limiter that does not answer makes a drill fail.
	s.post("/limiters/dead/ack", map[string]any{"epoch": 1, "revision": 1, "token": "forged"}, http.StatusBadRequest)
	version := s.get("/directives")
	s.post("/limiters/dead/ack", map[string]any{"epoch": version["epoch"], "revision": version["revision"], "token": version["token"]}, http.StatusNoContent)
	r := s.post("/kill/drill", map[string]any{"wait_ms": 500}, http.StatusConflict)
	if !strings.Contains(fmt.Sprint(r["detail"]), "dead") {
		t.Errorf("the drill does not name who failed: %v", r)
	}
}

// TestLeasesHold lets many callers race for one budget while the service is killed
// at random: what they spent in the end is never more than the limit.
func TestLeasesHold(t *testing.T) {
	s := newService(t, "", withPolicy(t, `
guards:
  - {name: cap, scope: [tenant], measure: cost, window: day, limit: "0.5", ladder: [{at: 100%, do: soft_block}], outcome: pause}
`)...)
	s.start()
	l := s.follow("l-1")
	stop := make(chan struct{})
	var mu sync.Mutex
	var spent schema.Sum
	var granted, denied, failed int
	var wg sync.WaitGroup
	for w := range 6 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(w), 7))
			for {
				select {
				case <-stop:
					return
				default:
				}
				ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
				// A call may use 1,000 tokens in and 1,000 out: 0.003 USD.
				lease, d, err := l.Reserve(ctx, &limiter.Call{Tenant: "t", Model: "m-1", Provider: "openai", InputTokens: 1000, MaxOutputTokens: 1000})
				var refused *limiter.ServiceError
				mu.Lock()
				switch {
				case err != nil && !errors.As(err, &refused):
					failed++ // nobody knows whether it was reserved: the call is not made
				case err != nil:
					t.Error(err)
				case lease == nil && d.Verdict == directive.Deny:
					denied++
				case lease != nil:
					granted++
				}
				mu.Unlock()
				if lease != nil {
					in, out := uint64(r.IntN(1001)), uint64(r.IntN(1001))
					switch r.IntN(10) {
					case 0: // not made after all
						if err := lease.Release(ctx); err != nil {
							t.Log(err) // it runs out by itself
						}
					case 1: // dies without a word, having spent all of it
						mu.Lock()
						spent.Add(schema.Money(1000*1e6+1000*2e6), 1)
						mu.Unlock()
					default:
						mu.Lock()
						spent.Add(schema.Money(in*1e6+out*2e6), 1)
						mu.Unlock()
						settle, done := context.WithTimeout(context.Background(), 20*time.Second)
						if err := lease.Settle(settle, limiter.Usage{Tokens: map[string]uint64{"input": in, "output": out}, ResponseID: fmt.Sprintf("r-%d-%d", w, r.Uint64())}); err != nil {
							t.Error(err)
						}
						done()
					}
				}
				cancel()
				if err != nil || lease == nil {
					time.Sleep(20 * time.Millisecond)
				}
			}
		})
	}
	for range rounds(4, 30) {
		time.Sleep(time.Duration(300+rand.IntN(700)) * time.Millisecond)
		s.kill(s.engines()...)
		s.start()
	}
	eventually(t, "the budget is used up", func() bool { mu.Lock(); defer mu.Unlock(); return denied > 20 })
	close(stop)
	wg.Wait()
	limit, _ := schema.ParseMoney("0.5")
	if spent.Cmp(schema.SumOf(int64(limit))) > 0 {
		t.Errorf("%s USD were spent of 0.5", spent)
	}
	b := s.get("/budgets?guard=cap")["budgets"].([]any)[0].(map[string]any)
	money := func(v any) schema.Sum {
		m, err := schema.ParseMoney(strings.TrimPrefix(fmt.Sprint(v), "$"))
		if err != nil {
			t.Fatal(err)
		}
		return schema.SumOf(int64(m))
	}
	counted := money(b["spend"]).Plus(money(b["holds"])).Plus(money(b["leases"]))
	if counted.Cmp(spent) < 0 {
		t.Errorf("the budget knows of %s USD, but %s were spent: %v", counted, spent, b)
	}
	t.Logf("%d leases granted, %d denied, %d of unknown outcome; %s USD spent, %s counted", granted, denied, failed, spent, counted)
	if granted < 100 || failed == 0 {
		t.Errorf("the test tests little: %d granted, %d of unknown outcome", granted, failed)
	}
}

// TestLedgerKilled compares the counters that decide with the journal after kills
// under load: both have every entry once.
func TestLedgerKilled(t *testing.T) {
	s := newService(t, "", append(withPolicy(t, `
guards:
  - {name: user, scope: [tenant, user], measure: cost, window: day, limit: "1000000", ladder: [{at: 100%, do: soft_block}], outcome: pause}
  - {name: fan, scope: [tenant, feature], measure: amplification, window: day, limit: "1000000", ladder: [{at: 100%, do: soft_block}], outcome: pause}
  - {name: task, scope: [run], measure: tokens, window: run, limit: "1000000", ladder: [{at: 100%, do: terminate}], outcome: pause}
`), "FLYBALL_LIMITS__WAL_BYTES=8388608")...)
	s.start()
	l := newLoad(s, 3, true)
	for i := range rounds(3, 40) {
		time.Sleep(time.Duration(500+rand.IntN(1200)) * time.Millisecond)
		if i%2 == 0 {
			s.kill()
		} else {
			s.kill(s.engines()...)
		}
		s.start()
	}
	l.wait()
	s.drain()
	v := s.post("/guards/verify", map[string]any{"since": time.Now().Add(-40 * time.Hour).Format(time.RFC3339)}, http.StatusOK)
	if v["drift"] != 0.0 || v["accounts"].(float64) < 50 {
		t.Errorf("ledger and journal: %v", v)
	}
	t.Logf("%v counters agree with the journal", v["accounts"])
}

// TestPolicyOverAPI changes the policy of a running service, wrongly first.
func TestPolicyOverAPI(t *testing.T) {
	s := newService(t, "", withPolicy(t, "guards: []\n")...)
	s.start()
	p := s.post("/policy", map[string]any{"reason": "x", "text": "guards:\n  - {name: a, scope: [run], measure: cost, window: day, limit: \"1\", ladder: [{at: 100%, do: terminate}], outcome: pause}\n"}, http.StatusBadRequest)
	if !strings.Contains(fmt.Sprint(p["detail"]), "line 2") {
		t.Errorf("the mistake has no line: %v", p)
	}
	good := "guards:\n  - {name: a, scope: [tenant], measure: cost, window: day, limit: \"0\", ladder: [{at: 100%, do: soft_block}], outcome: pause}\n"
	s.post("/policy", map[string]any{"text": good}, http.StatusBadRequest) // no reason
	s.post("/policy", map[string]any{"text": good, "reason": "stop all"}, http.StatusOK)
	if a := s.post("/check", map[string]any{"tenant": "t", "model": "m-1"}, http.StatusOK); a["decision"] != "deny" {
		t.Errorf("a limit of 0: %v", a)
	}
	// The configured file did not change, so the API's policy holds over a restart.
	s.kill()
	s.start()
	if a := s.post("/check", map[string]any{"tenant": "t", "model": "m-1"}, http.StatusOK); a["decision"] != "deny" {
		t.Errorf("after a restart: %v", a)
	}
	versions := s.get("/policy/versions")["versions"].([]any)
	if len(versions) != 2 || versions[1].(map[string]any)["reason"] != "stop all" || versions[1].(map[string]any)["actor"] != "local" {
		t.Errorf("versions: %v", versions)
	}
}

// spend sends one call of a run that starts now, of so many input tokens, which are
// micro-dollars.
func (s *service) spend(trace uint64, n byte, input int64) {
	s.t.Helper()
	b := newBatch()
	sp := b.chat(trace, n, 0, input)
	now := time.Now()
	sp.SetStartTimestamp(pcommon.NewTimestampFromTime(now.Add(-time.Millisecond)))
	sp.SetEndTimestamp(pcommon.NewTimestampFromTime(now))
	sp.Attributes().PutStr("user.id", fmt.Sprintf("user-%d", trace%3))
	s.mustSend(b.td)
}

// TestBacktestAndWarming: what was spent before a guard is in its counters once the
// journal was read, and a backtest of the same guard says what it would have done.
func TestBacktestAndWarming(t *testing.T) {
	s := newService(t, "", withPolicy(t, "guards: []\n")...)
	s.start()
	// Three users, each 20 calls of 990+10 micro-dollars: 0.02 USD a user.
	for i := range 60 {
		s.spend(uint64(1000+i), 2, 990)
	}
	s.drain()
	policy := `
guards:
  - {name: user, scope: [tenant, user], measure: cost, window: {rolling: 6h}, limit: "0.002", ladder: [{at: 100%, do: soft_block}], outcome: upgrade}
`
	r := s.post("/guards/backtest", map[string]any{"text": policy, "since": time.Now().Add(-time.Hour).Format(time.RFC3339)}, http.StatusOK)
	g := r["guards"].([]any)[0].(map[string]any)
	// A tenant and user together have 4 of the 60 calls each (15 pairs): the third and
	// fourth come after the limit was reached.
	if r["calls"] != 60.0 || r["spend_usd"] != "0.06" || g["refused_calls"] != 30.0 || g["saved_usd"] != "0.03" || g["fired"].(map[string]any)["soft_block"] != 15.0 {
		t.Errorf("backtest: %v", r)
	}
	if n := len(s.get("/guards/live")["live"].([]any)); n != 0 {
		t.Errorf("a backtest left %d rungs behind", n)
	}
	s.post("/policy", map[string]any{"text": policy, "reason": "turn it on"}, http.StatusOK)
	s.spend(2000, 2, 10) // so that the guard's first chunk ends
	eventually(t, "the guard knows what was before it", func() bool {
		return s.get("/guards")["guards"].([]any)[0].(map[string]any)["warming"] == false
	})
	live := s.get("/guards/live")["live"].([]any)
	if len(live) != 15 {
		t.Errorf("%d users are over their limit, want 15", len(live))
	}
	v := s.post("/guards/verify", map[string]any{"since": time.Now().Add(-time.Hour).Format(time.RFC3339)}, http.StatusOK)
	if v["drift"] != 0.0 {
		t.Errorf("drift: %v", v)
	}
	// The same over a restart.
	s.kill()
	s.start()
	if n := len(s.get("/guards/live")["live"].([]any)); n != 15 {
		t.Errorf("after a restart %d rungs hold", n)
	}
	if a := s.post("/check", map[string]any{"tenant": "tenant-0", "user": "user-0", "model": "m-1"}, http.StatusOK); a["decision"] != "deny" || a["guard"] != "user" {
		t.Errorf("check: %v", a)
	}
}

// TestReportedCalls: a call that was leased, settled and never seen as a span becomes
// an entry of the journal; the span that comes after all takes its place.
func TestReportedCalls(t *testing.T) {
	s := newService(t, "", withPolicy(t, `
guards:
  - {name: cap, scope: [tenant], measure: cost, window: day, limit: "5", ladder: [{at: 100%, do: soft_block}], outcome: pause}
`)...)
	s.start()
	l := s.follow("l-1")
	trace, span := fmt.Sprintf("%016x%016x", 0xf1, 3005), fmt.Sprintf("%016x", 3005<<8|2)
	c := limiter.Call{Tenant: "tenant-0", Model: "m-1", Provider: "openai", InputTokens: 1000, MaxOutputTokens: 1000, TraceID: trace, SpanID: span}
	lease, _, err := l.Reserve(t.Context(), &c)
	if err != nil {
		t.Fatal(err)
	}
	if err := lease.Settle(t.Context(), limiter.Usage{Tokens: map[string]uint64{"input": 400, "output": 5}}); err != nil {
		t.Fatal(err)
	}
	budget := func() map[string]any { return s.get("/budgets?guard=cap")["budgets"].([]any)[0].(map[string]any) }
	if b := budget(); b["holds"] != "$0.00041" || b["spend"] != "$0" || b["leases"] != "$0" {
		t.Errorf("after settling: %v", b)
	}
	b := newBatch()
	b.chat(3005, 2, 0, 400)
	s.mustSend(b.td)
	eventually(t, "the span takes the place of the hold", func() bool { b := budget(); return b["holds"] == "$0" })
	// The span began twenty minutes ago, maybe yesterday: look at the journal, not at today.
	s.drain()
	if got := s.one("SELECT toString(sum(sign * cost)) FROM journal"); got != "410000000" {
		t.Errorf("the journal has %s, want one call of 410 micro-dollars", got)
	}
	// A refused call is a call of its own, with the failure budget and nothing to pay.
	d := l.Check(&c)
	d.Guard = "cap"
	refused := c
	refused.SpanID = ""
	l.Refused(&refused, &d)
	eventually(t, "the refusal is in the journal", func() bool {
		return s.one("SELECT count() FROM journal WHERE failure = 'budget' AND source = 'limiter' AND sign = 1 AND cost = 0") == "1"
	})
}

// TestTaught: who asks about a call says whose its trace is, and spans of it that do
// not say so count for that user at once, not only when the root arrives.
func TestTaught(t *testing.T) {
	s := newService(t, "", withPolicy(t, `
guards:
  - {name: user, scope: [tenant, user], measure: cost, window: {rolling: 6h}, limit: "0.001", ladder: [{at: 100%, do: soft_block}], outcome: upgrade}
`)...)
	s.start()
	trace := fmt.Sprintf("%016x%016x", 0xf1, 4005)
	call := map[string]any{"tenant": "tenant-0", "user": "ann", "feature": "quote", "trace_id": trace, "model": "m-1"}
	if a := s.post("/check", call, http.StatusOK); a["decision"] != "allow" {
		t.Fatalf("check: %v", a)
	}
	b := newBatch()
	sp := b.chat(4005, 2, 1, 2000) // its parent, the root, is still open
	now := time.Now()
	sp.SetStartTimestamp(pcommon.NewTimestampFromTime(now.Add(-time.Millisecond)))
	sp.SetEndTimestamp(pcommon.NewTimestampFromTime(now))
	s.mustSend(b.td)
	eventually(t, "ann is over her limit", func() bool { return s.post("/check", call, http.StatusOK)["decision"] == "deny" })
	s.drain()
	if got := s.one("SELECT concat(user, ' ', feature) FROM journal WHERE sign = 1 AND span_id != '' AND model_calls = 1"); got != "ann quote" {
		t.Errorf("the journal has %q", got)
	}
}

// TestRefusedReload: a configuration of which one part is wrong changes nothing, also
// of its other parts.
func TestRefusedReload(t *testing.T) {
	dir := t.TempDir()
	file, policy := filepath.Join(dir, "flyball.yaml"), filepath.Join(dir, "policy.yaml")
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const (
		good   = "guards:\n  - {name: a, scope: [tenant], measure: cost, window: day, limit: \"5\", ladder: [{at: 100%, do: soft_block}], outcome: pause, page: [new]}\n"
		config = "policy: %s\ntenants: {t-1: {timezone: Asia/Tokyo}}\npages: {receivers: [{name: new, slack: {url: \"https://example.com/hook\"}}]}\nattributes: {feature: [x.feature]}\n"
	)
	write(policy, "guards: []\n")
	write(file, "policy: "+policy+"\n")
	s := newService(t, "", configEnv+"="+file)
	s.start()
	state := func() string {
		t.Helper()
		b := s.get("/budgets?tenant=t-1")
		p := s.post("/pages/test", map[string]any{"receiver": "new"}, http.StatusOK)
		return fmt.Sprint(len(s.get("/guards")["guards"].([]any)), b["budgets"], strings.Contains(fmt.Sprint(p), "no such receiver"))
	}
	before := state()
	write(file, fmt.Sprintf(config, policy))
	for _, wrong := range []string{"", "guards: [{name: a}]\n", strings.Replace(good, "new", "old", 1)} {
		write(policy, wrong)
		s.post("/reload", map[string]any{}, http.StatusBadRequest)
		if after := state(); after != before {
			t.Errorf("a refused reload made %s of %s", after, before)
		}
	}
	write(policy, good)
	write(file, fmt.Sprintf(config, policy)+"keys: [{name: k, sha256: \"12\", role: read, tenant: t-1}]\n")
	s.post("/reload", map[string]any{}, http.StatusBadRequest)
	if after := state(); after != before {
		t.Errorf("a refused reload made %s of %s", after, before)
	}
	write(file, fmt.Sprintf(config, policy))
	s.post("/reload", map[string]any{}, http.StatusOK)
	if n := len(s.get("/guards")["guards"].([]any)); n != 1 {
		t.Errorf("%d guards after the reload", n)
	}
}

// TestBudgetsOfACall: a budget of each run is none of a user's whose run is not named, and
// a guard that does not exist is not one without budgets.
func TestBudgetsOfACall(t *testing.T) {
	s := newService(t, "", withPolicy(t, `
guards:
  - {name: task, scope: [run], measure: cost, window: run, limit: "1", ladder: [{at: 100%, do: terminate}], outcome: checkpoint}
  - {name: user-day, scope: [tenant, user], measure: cost, window: day, limit: "5", ladder: [{at: 100%, do: soft_block}], outcome: pause}
`)...)
	s.start()
	f := func(query, want string) {
		t.Helper()
		got := []string{}
		for _, b := range s.get("/budgets?" + query)["budgets"].([]any) {
			got = append(got, b.(map[string]any)["guard"].(string))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: got %q, want %s", query, got, want)
		}
	}
	f("tenant=t-1&user=ann", "user-day")
	f("tenant=t-1&user=ann&run_id=r", "task user-day")
	f("tenant=t-1&user=ann&run_id=r&guard=task", "task")
	f("guard=task", "")
	refused := func(path, want string) {
		t.Helper()
		if code, text := s.as("", http.MethodGet, path, nil); code != http.StatusBadRequest || !strings.Contains(text, want) {
			t.Errorf("%s: %d %s", path, code, text)
		}
	}
	refused("/budgets?guard=nope", `no guard is named`)
	refused("/guards/live?guard=nope", `no guard is named`)
	s.get("/guards/live?guard=light")
}

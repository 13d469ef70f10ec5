package page

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// One crossing, one message: replicas, restarts and corrections decide it again.
func TestPutOnce(t *testing.T) {
	s := newSink(t, nil)
	dir := t.TempDir()
	st, shut := openStore(t, dir)
	p, stop := start(t, Options{Store: st, Receivers: []Receiver{slack("chat", s.URL)}})
	first := sample("window-1")
	b := st.NewBatch()
	if _, err := p.Put(b, first); err != nil { // never committed
		t.Fatal(err)
	}
	p.Wake()
	time.Sleep(60 * time.Millisecond)
	if n := len(s.requests()); n != 0 {
		t.Fatalf("%d requests for a batch that was not committed", n)
	}
	put(t, p, first, first)
	idle(t, p)
	put(t, p, first)
	stop()
	shut()

	st, _ = openStore(t, dir)
	p, _ = start(t, Options{Store: st, Receivers: []Receiver{slack("chat", s.URL)}})
	put(t, p, first)
	next := sample("window-2") // a new window arms the alert again
	put(t, p, next)
	s.wait(t, 2)
	idle(t, p)
	time.Sleep(60 * time.Millisecond)
	if n := len(s.requests()); n != 2 {
		t.Errorf("%d messages, want one a window", n)
	}
	if _, err := p.Put(st.NewBatch(), Page{Title: "no identity"}); err == nil {
		t.Error("a page without an ID is taken")
	}
}

// What one message says for others is not sent again for them, and is not for new.
func TestPutCovered(t *testing.T) {
	p, err := New(quick(Options{Store: newStore(t)}))
	if err != nil {
		t.Fatal(err)
	}
	f := func(pg Page, want int, covers ...string) {
		t.Helper()
		pg.Covers = covers
		b := p.o.Store.NewBatch()
		fresh, err := p.Put(b, pg)
		if err == nil {
			err = b.Commit(false)
		}
		if err != nil || len(fresh) != want {
			t.Errorf("%s: %d are new, %v; want %d", pg.ID, len(fresh), err, want)
		}
	}
	f(sample("high"), 1, sample("low").ID, "with a space")
	f(sample("low"), 0)
	f(sample("high"), 0, sample("middle").ID)
	f(sample("middle"), 1)
	spaced := sample("spaced")
	spaced.ID = "with a space" // sent as a hash
	f(spaced, 0)
}

// An ID may come again when no window can decide it any more.
func TestForget(t *testing.T) {
	p, err := New(quick(Options{Store: newStore(t)}))
	if err != nil {
		t.Fatal(err)
	}
	put(t, p, sample("a"))
	now := time.Now()
	for _, days := range []int{0, 40, 46} {
		if err := p.forget(now.AddDate(0, 0, days)); err != nil {
			t.Fatal(err)
		}
		if v, err := p.o.Store.Get(seenPrefix + hash("a")); err != nil || (v != nil) != (days <= 40) {
			t.Errorf("after %d days: known %v, %v", days, v != nil, err)
		}
	}
}

func TestRetry(t *testing.T) {
	down := newSink(t, func(w http.ResponseWriter, _ *http.Request, n int) {
		if n == 1 {
			w.Header().Set("Retry-After", "1")
		}
		w.WriteHeader([]int{503, 429, 500, 200}[min(n, 3)])
	})
	fine := newSink(t, nil)
	reg := prometheus.NewRegistry()
	p, _ := start(t, Options{RetryMax: 5 * time.Second, Registerer: reg, Receivers: []Receiver{webhook("down", down.URL), webhook("fine", fine.URL)}})
	put(t, p, sample("a"))
	down.wait(t, 2)
	eventually(t, func() bool { return len(p.Pending()) == 1 && p.Pending()[0].Attempts == 2 }, "two failed tries")
	st := p.Pending()[0]
	if st.ID != "a" || st.Receiver != "down" || st.LastError != "answered 4xx" || st.Pages != 1 || time.Until(st.Next) < 500*time.Millisecond {
		t.Errorf("pending: %+v", st)
	}
	got := down.wait(t, 4)
	idle(t, p)
	for _, r := range got {
		if r.header.Get("webhook-id") != "a" {
			t.Errorf("id %q", r.header.Get("webhook-id"))
		}
	}
	if d := got[2].at.Sub(got[1].at); d < time.Second {
		t.Errorf("came again after %v, was asked to wait 1 s", d)
	}
	if n := len(fine.requests()); n != 1 {
		t.Errorf("the other receiver got %d messages", n)
	}
	if count(t, reg, "down", "retried") != 3 || count(t, reg, "down", "delivered") != 1 || count(t, reg, "fine", "delivered") != 1 {
		t.Error("counters are wrong")
	}
}

func TestNoRetry(t *testing.T) {
	s := newSink(t, status(400))
	var l logs
	reg := prometheus.NewRegistry()
	p, _ := start(t, Options{Logger: l.logger(), Registerer: reg, Receivers: []Receiver{slack("chat", s.URL)}})
	put(t, p, sample("a"))
	eventually(t, func() bool { return count(t, reg, "chat", "refused") == 1 }, "a refused page")
	idle(t, p)
	if n := len(s.requests()); n != 1 {
		t.Errorf("%d tries", n)
	}
	if !strings.Contains(l.String(), "page is lost") {
		t.Errorf("log: %s", l.String())
	}
}

func TestGiveUp(t *testing.T) {
	s := newSink(t, status(500))
	var l logs
	reg := prometheus.NewRegistry()
	p, _ := start(t, Options{GiveUp: 150 * time.Millisecond, Resend: 50 * time.Millisecond, Logger: l.logger(), Registerer: reg, Receivers: []Receiver{slack("chat", s.URL)}})
	put(t, p, sample("a"))
	eventually(t, func() bool { return count(t, reg, "chat", "expired") == 1 }, "an expired page")
	idle(t, p)
	if !strings.Contains(l.String(), "page is lost") {
		t.Errorf("log: %s", l.String())
	}
}

func TestGoneUntilReload(t *testing.T) {
	s := newSink(t, status(410, 200))
	reg := prometheus.NewRegistry()
	rs := []Receiver{webhook("hook", s.URL)}
	p, _ := start(t, Options{Registerer: reg, Receivers: rs})
	put(t, p, sample("a"))
	eventually(t, func() bool { return count(t, reg, "hook", "retried") == 1 }, "a first try")
	other := sample("b")
	other.Alert = "another"
	put(t, p, other)
	time.Sleep(150 * time.Millisecond)
	if n := len(s.requests()); n != 1 {
		t.Fatalf("%d requests after a 410", n)
	}
	if err := p.UseReceivers([]Receiver{{Name: "bad"}}); err == nil {
		t.Fatal("a bad receiver is taken")
	}
	if err := p.UseReceivers(append(rs, rs...)); err == nil {
		t.Fatal("two receivers of one name are taken")
	}
	time.Sleep(50 * time.Millisecond)
	if n := len(s.requests()); n != 1 {
		t.Fatalf("%d requests after a refused reload", n)
	}
	if err := p.UseReceivers(rs); err != nil {
		t.Fatal(err)
	}
	s.wait(t, 3)
	idle(t, p)
}

// A receiver that never answers must cost the others nothing.
func TestHangingReceiver(t *testing.T) {
	release := make(chan struct{})
	hang := newSink(t, func(http.ResponseWriter, *http.Request, int) { <-release })
	fine := newSink(t, nil)
	p, _ := start(t, Options{Receivers: []Receiver{slack("hang", hang.URL), slack("fine", fine.URL)}})
	for i := range 3 {
		pg := sample(fmt.Sprint("p-", i))
		pg.Alert = pg.ID
		put(t, p, pg)
		fine.wait(t, i+1)
	}
	if n := len(hang.requests()); n != 1 {
		t.Errorf("%d requests at once to one receiver", n)
	}
	close(release)
	idle(t, p)

	slow := newSink(t, func(_ http.ResponseWriter, r *http.Request, _ int) { <-r.Context().Done() })
	p, _ = start(t, Options{Timeout: 100 * time.Millisecond, Receivers: []Receiver{slack("slow", slow.URL)}})
	if r := p.Test(t.Context(), "slow")[0]; r.OK || r.Error != "timed out" || r.Latency < 100*time.Millisecond || r.Latency > 3*time.Second {
		t.Errorf("test: %+v", r)
	}
}

// A resolution that overtakes its alarm would leave an incident open for ever.
func TestResolveWaitsForItsAlarm(t *testing.T) {
	s := newSink(t, status(500, 500, 202))
	p, _ := start(t, Options{Receivers: []Receiver{pagerDuty("pd", s.URL)}})
	pg := sample("a")
	put(t, p, pg)
	s.wait(t, 1)
	put(t, p, end(pg, "a-end"))
	idle(t, p)
	var got []string
	for _, r := range s.requests() {
		got = append(got, decode[pagerDutyEvent](t, r.body).Action)
	}
	if want := "[trigger trigger trigger resolve]"; fmt.Sprint(got) != want {
		t.Errorf("got %v, want %s", got, want)
	}
}

func TestGrouping(t *testing.T) {
	hook, chat, pd, am := newSink(t, status(500, 200)), newSink(t, nil), newSink(t, status(202)), newSink(t, nil)
	p, _ := start(t, Options{GroupWait: 500 * time.Millisecond, Receivers: []Receiver{webhook("hook", hook.URL), slack("chat", chat.URL), pagerDuty("pd", pd.URL), alertmanager("am", am.URL)}})
	pages := many(45)
	pages[44].Severity = "critical"
	lone := sample("lone")
	lone.Guard, lone.Alert = "feature-month", "feature-month f-1"
	for some := range slices.Chunk(pages, 15) {
		put(t, p, some...)
	}
	put(t, p, lone)
	idle(t, p)

	got := hook.wait(t, 3)
	var groups int
	var id string
	for _, r := range got {
		v := decode[webhookPayload](t, r.body)
		if len(v.Data.Alerts) == 1 {
			continue
		}
		groups++
		if len(v.Data.Alerts) != 20 || v.Data.More != 25 || v.Data.Alerts[0].Severity != "critical" {
			t.Errorf("%d listed, %d more, first %s", len(v.Data.Alerts), v.Data.More, v.Data.Alerts[0].Severity)
		}
		if id != "" && id != r.header.Get("webhook-id") {
			t.Errorf("the group was sent under %q and %q", id, r.header.Get("webhook-id"))
		}
		id = r.header.Get("webhook-id")
	}
	if len(got) != 3 || groups == 0 {
		t.Errorf("%d requests, %d of a group", len(got), groups)
	}
	if got := chat.requests(); len(got) != 2 || !strings.Contains(got[0].body+got[1].body, "and 25 more") || !strings.Contains(got[0].body+got[1].body, "45 alerts of guard user-day") {
		t.Errorf("Slack got %d messages, or not what they should say", len(got))
	}
	if got := am.requests(); len(got) != 2 && len(got) != 1 || strings.Count(got[0].body, `"alertname"`) != 46 {
		t.Errorf("Alertmanager got %d requests", len(got))
	}
	events := pd.requests()
	if len(events) != 2 {
		t.Fatalf("PagerDuty got %d events", len(events))
	}
	first := decode[pagerDutyEvent](t, events[0].body)
	if !strings.HasPrefix(first.Payload.Summary, "45 alerts of guard user-day") || first.Payload.Severity != "critical" {
		t.Errorf("got %+v", first.Payload)
	}

	// One alert of the group fires again and stays with its incident.
	again := pages[0]
	again.ID = "again"
	put(t, p, again)
	idle(t, p)
	if ev := decode[pagerDutyEvent](t, pd.wait(t, 3)[2].body); ev.DedupKey != first.DedupKey {
		t.Errorf("key %q, want %q", ev.DedupKey, first.DedupKey)
	}
	// The incident of many ends with the last of them.
	var ends []Page
	for i, pg := range pages {
		ends = append(ends, end(pg, fmt.Sprint("end-", i)))
	}
	put(t, p, ends[:44]...)
	idle(t, p)
	if n := len(pd.requests()); n != 3 {
		t.Errorf("PagerDuty got %d events while one of the group fires", n)
	}
	put(t, p, ends[44], end(lone, "lone-end"))
	idle(t, p)
	keys := map[string]int{}
	for _, r := range pd.wait(t, 5)[3:] {
		if ev := decode[pagerDutyEvent](t, r.body); ev.Action == "resolve" {
			keys[ev.DedupKey]++
		}
	}
	if len(keys) != 2 || keys[first.DedupKey] != 1 || keys[lone.Alert] != 1 {
		t.Errorf("resolved %v", keys)
	}
}

func TestFewAlertsAreSingleIncidents(t *testing.T) {
	pd := newSink(t, status(202))
	p, _ := start(t, Options{Receivers: []Receiver{pagerDuty("pd", pd.URL)}})
	put(t, p, many(20)...)
	idle(t, p)
	keys := map[string]bool{}
	for _, r := range pd.requests() {
		keys[decode[pagerDutyEvent](t, r.body).DedupKey] = true
	}
	if len(keys) != 20 || len(pd.requests()) != 20 {
		t.Errorf("%d events, %d keys", len(pd.requests()), len(keys))
	}
}

func TestRouting(t *testing.T) {
	a, b := newSink(t, nil), newSink(t, nil)
	reg := prometheus.NewRegistry()
	p, _ := start(t, Options{Registerer: reg, Receivers: []Receiver{slack("a", a.URL), slack("b", b.URL)}})
	pg := sample("x")
	pg.Receivers = []string{"b", "nobody"}
	put(t, p, pg)
	idle(t, p)
	b.wait(t, 1)
	if len(a.requests()) != 0 || count(t, reg, "", "unrouted") != 1 {
		t.Errorf("a got %d, unrouted %d", len(a.requests()), count(t, reg, "", "unrouted"))
	}
	if err := p.UseReceivers(nil); err != nil {
		t.Fatal(err)
	}
	put(t, p, sample("y"))
	if count(t, reg, "", "unrouted") != 2 {
		t.Error("a page for nobody is not counted")
	}
}

// What waits for a receiver that is renamed or commented out waits for its return.
func TestReceiverReturns(t *testing.T) {
	s := newSink(t, status(500, 200))
	rs := []Receiver{slack("chat", s.URL)}
	p, _ := start(t, Options{RetryMin: 300 * time.Millisecond, RetryMax: 300 * time.Millisecond, Receivers: rs})
	put(t, p, sample("a"))
	eventually(t, func() bool { return len(p.Pending()) == 1 && p.Pending()[0].Attempts == 1 }, "a failed try")
	if err := p.UseReceivers(nil); err != nil {
		t.Fatal(err)
	}
	time.Sleep(350 * time.Millisecond)
	if len(s.requests()) != 1 || len(p.Pending()) != 1 {
		t.Fatalf("%d requests, %d pending", len(s.requests()), len(p.Pending()))
	}
	if err := p.UseReceivers(rs); err != nil {
		t.Fatal(err)
	}
	idle(t, p)
}

func TestTestPage(t *testing.T) {
	hook, pd, chat, am := newSink(t, nil), newSink(t, status(202)), newSink(t, status(500)), newSink(t, nil)
	p, err := New(quick(Options{Store: newStore(t), Receivers: []Receiver{webhook("hook", hook.URL), pagerDuty("pd", pd.URL), slack("chat", chat.URL), alertmanager("am", am.URL), slack("dead", "http://127.0.0.1:1/")}}))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]Result{
		"hook": {OK: true, Status: "2xx"}, "pd": {OK: true, Status: "2xx"}, "chat": {Status: "5xx", Error: "answered 5xx"},
		"am": {OK: true, Status: "2xx"}, "dead": {Error: "connection refused"},
	}
	results := p.Test(t.Context(), "")
	for _, r := range results {
		w := want[r.Receiver]
		w.Receiver, w.Latency = r.Receiver, r.Latency
		if r != w || r.Latency <= 0 {
			t.Errorf("got %+v, want %+v", r, w)
		}
	}
	if len(results) != len(want) || len(p.Pending()) != 0 {
		t.Errorf("%d results, %d pending", len(results), len(p.Pending()))
	}
	if v := decode[webhookPayload](t, hook.requests()[0].body); v.Type != "flyball.test" {
		t.Errorf("type %s", v.Type)
	}
	if r := p.Test(t.Context(), "nobody"); len(r) != 1 || r[0].OK || r[0].Error == "" {
		t.Errorf("unknown receiver: %+v", r)
	}
}

// What fires is told again through an outage, once it is over, and no longer to a
// receiver that was taken away: nobody would tell it the end.
func TestRepeat(t *testing.T) {
	am := newSink(t, status(200, 500, 503, 200))
	rs := []Receiver{alertmanager("am", am.URL)}
	reg := prometheus.NewRegistry()
	p, _ := start(t, Options{Resend: 30 * time.Millisecond, Registerer: reg, Receivers: rs})
	pg := sample("a")
	put(t, p, pg)
	am.wait(t, 6)
	if got := count(t, reg, "am", "delivered"); got != 1 {
		t.Errorf("%d delivered, want 1: a repeat is no page", got)
	}
	put(t, p, end(pg, "a-end"))
	idle(t, p)
	time.Sleep(300 * time.Millisecond) // the end is repeated for 4 intervals
	n := len(am.requests())
	time.Sleep(100 * time.Millisecond)
	if len(am.requests()) != n {
		t.Error("the end is repeated for ever")
	}
	put(t, p, sample("b"))
	idle(t, p)
	for _, some := range [][]Receiver{nil, rs} {
		if err := p.UseReceivers(some); err != nil {
			t.Fatal(err)
		}
		time.Sleep(60 * time.Millisecond)
		n = len(am.requests())
	}
	time.Sleep(100 * time.Millisecond)
	if len(am.requests()) != n {
		t.Error("an alert from before is repeated")
	}
}

func TestIDs(t *testing.T) {
	for _, id := range []string{"a", "user-day/t-1/u_1:2026-11-29/80", strings.Repeat("x", 128)} {
		if token(id) != id {
			t.Errorf("%q becomes %q", id, token(id))
		}
	}
	for _, id := range []string{"a.b", "a b", "a\nb", "ä", strings.Repeat("x", 129)} {
		if got := token(id); got == id || token(got) != got || got == token(id+"x") {
			t.Errorf("%q becomes %q", id, got)
		}
	}
}

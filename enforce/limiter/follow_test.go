package limiter

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flyball/flyball/enforce/directive"
)

// feed is a service that says what a test tells it to.
type feed struct {
	t   *testing.T
	srv *httptest.Server

	mu    sync.Mutex // guards below
	asked []http.Header
	acks  []string // version and digest
	posts map[string][]byte
	reply map[string]http.HandlerFunc // by path, instead of 204
	say   []func(w http.ResponseWriter, r *http.Request)
}

// newFeed makes a service whose stream says one of say for each connection, the last
// one for all after it.
func newFeed(t *testing.T, say ...func(http.ResponseWriter, *http.Request)) *feed {
	f := &feed{t: t, say: say, posts: map[string][]byte{}, reply: map[string]http.HandlerFunc{}}
	f.srv = httptest.NewServer(http.HandlerFunc(f.serve))
	t.Cleanup(func() { f.srv.CloseClientConnections(); f.srv.Close() })
	return f
}

func (f *feed) serve(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/api/v1/directives/stream" {
		f.mu.Lock()
		f.asked = append(f.asked, r.Header.Clone())
		say := f.say[min(len(f.asked), len(f.say))-1]
		f.mu.Unlock()
		w.Header().Set("Content-Type", "text/event-stream")
		say(w, r)
		return
	}
	f.mu.Lock()
	reply := f.reply[r.URL.Path]
	f.mu.Unlock()
	if reply != nil {
		reply(w, r)
		return
	}
	if strings.HasSuffix(r.URL.Path, "/ack") {
		var a struct {
			directive.Version
			Token, Digest string
		}
		_ = json.NewDecoder(r.Body).Decode(&a)
		f.mu.Lock()
		f.acks = append(f.acks, a.Version.String()+" "+a.Token+" "+a.Digest)
		f.mu.Unlock()
	}
	w.WriteHeader(http.StatusNoContent)
}

// follow starts a limiter that follows the feed until the test ends.
func (f *feed) follow(o Options) *Limiter {
	f.t.Helper()
	o.URL, o.ID = f.srv.URL, "l-1"
	l, err := New(o)
	if err != nil {
		f.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = l.Follow(ctx) }()
	f.t.Cleanup(func() { cancel(); <-done })
	return l
}

func (f *feed) connections() []http.Header {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.asked)
}

func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if f() {
			return
		}
	}
	t.Fatal("timed out: ", what)
}

func block(id, tenant string) directive.Directive {
	return directive.Directive{ID: id, Guard: "g", Action: directive.Terminate, Scope: directive.Scope{Values: map[string]string{"tenant": tenant}}, Reason: "spent"}
}

func digest(ds ...directive.Directive) string {
	var x uint64
	for i := range ds {
		x ^= directive.Fingerprint(&ds[i])
	}
	return directive.FormatDigest(x)
}

func state(revision uint64, ds ...directive.Directive) directive.State {
	v := directive.Version{Epoch: 1, Revision: revision}
	return directive.State{Version: v, Token: "t" + v.String(), ValidUntil: time.Now().Add(time.Hour), Directives: ds, Digest: digest(ds...)}
}

func change(from, to uint64, digest string, upsert ...directive.Directive) directive.Change {
	v := directive.Version{Epoch: 1, Revision: to}
	return directive.Change{Version: v, Token: "t" + v.String(), From: directive.Version{Epoch: 1, Revision: from}, ValidUntil: time.Now().Add(time.Hour), Upsert: upsert, Digest: digest}
}

func event(name string, v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic("BUG: event has no JSON: " + err.Error())
	}
	return "event: " + name + "\ndata: " + string(b) + "\n\n"
}

// says sends a text and then holds the connection.
func says(text string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprint(w, text)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}
}

// saysAndEnds sends a text and ends the connection.
func saysAndEnds(text string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, text) }
}

func denies(l *Limiter, tenant string) bool {
	return l.Check(&Call{Tenant: tenant, Model: "m"}).Verdict == directive.Deny
}

// TestStream reads a feed whose lines end in either way, that is cut at any byte, and
// that has events, fields and comments of a later version of the service.
func TestStream(t *testing.T) {
	a, b := block("a", "t-a"), block("b", "t-b")
	text := ": hello\nretry: 1000\n\nid: 9.9\n\nevent: later\ndata: {nothing we know\n\n" +
		event("set", state(1, a)) + event("weather", map[string]int{"sun": 1}) + "whatever\ndata:\n\n" + event("change", change(1, 2, digest(a, b), b)) + event("alive", map[string]any{"valid_until": time.Now().Add(time.Hour)})
	f := func(text string, cut func(rest int) int) {
		t.Helper()
		srv := newFeed(t, func(w http.ResponseWriter, r *http.Request) {
			for s := text; s != ""; {
				n := min(len(s), cut(len(s)))
				_, _ = fmt.Fprint(w, s[:n])
				w.(http.Flusher).Flush()
				s = s[n:]
			}
			<-r.Context().Done()
		})
		l := srv.follow(Options{})
		eventually(t, "both directives are in force", func() bool { return l.Set().Len() == 2 })
		if v, ok := l.Version(); !ok || v != (directive.Version{Epoch: 1, Revision: 2}) || !denies(l, "t-a") || !denies(l, "t-b") || denies(l, "t-c") {
			t.Errorf("version %s %v: %+v", v, ok, l.Set().State())
		}
		eventually(t, "the acknowledgement is there", func() bool {
			srv.mu.Lock()
			defer srv.mu.Unlock()
			return slices.Contains(srv.acks, "1.2 t1.2 "+digest(a, b))
		})
		if n := len(srv.connections()); n != 1 {
			t.Errorf("%d connections, want 1", n)
		}
	}
	crlf := strings.ReplaceAll(text, "\n", "\r\n")
	f(text, func(rest int) int { return rest })
	f(crlf, func(rest int) int { return rest })
	f(text, func(int) int { return 1 + rand.IntN(7) })
	f(crlf, func(int) int { return 1 + rand.IntN(7) })
	f(crlf, func(int) int { return 1 })
}

// TestReconnect is cut off and comes back with what it has.
func TestReconnect(t *testing.T) {
	a, b := block("a", "t-a"), block("b", "t-b")
	srv := newFeed(t, saysAndEnds(event("set", state(1, a))+"event: change\ndata: {\"half"), says(event("change", change(1, 2, digest(a, b), b))))
	l := srv.follow(Options{Key: "k-1"})
	eventually(t, "the change came over the second connection", func() bool { return l.Set().Len() == 2 && denies(l, "t-b") })
	h := srv.connections()
	if len(h) != 2 {
		t.Fatalf("%d connections, want 2", len(h))
	}
	if h[0].Get("Last-Event-ID") != "" || h[0].Get("Flyball-Version") != "" {
		t.Errorf("the first connection presents a version: %v", h[0])
	}
	if h[1].Get("Last-Event-ID") != "1.1" || h[1].Get("Flyball-Version") != "1.1" || h[1].Get("Flyball-Token") != "t1.1" || h[1].Get("Authorization") != "Bearer k-1" {
		t.Errorf("the second connection: %v", h[1])
	}
}

// TestAcknowledgesAgain: an acknowledgement that was lost with the connection is repeated over
// the next one, also where the service has nothing new to say on it.
func TestAcknowledgesAgain(t *testing.T) {
	a := block("a", "t-a")
	cut := make(chan struct{})
	srv := newFeed(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprint(w, event("set", state(1, a)))
		w.(http.Flusher).Flush()
		<-cut
	}, says("retry: 1000\n\n"))
	const path = "/api/v1/limiters/l-1/ack"
	srv.reply[path] = func(w http.ResponseWriter, _ *http.Request) {
		srv.mu.Lock()
		defer srv.mu.Unlock()
		delete(srv.reply, path)
		http.Error(w, "{}", http.StatusBadGateway)
		close(cut)
	}
	srv.follow(Options{ID: "l-1"})
	eventually(t, "the acknowledgement is there", func() bool {
		srv.mu.Lock()
		defer srv.mu.Unlock()
		return slices.Contains(srv.acks, "1.1 t1.1 "+digest(a))
	})
}

// TestDiffers asks for the whole set where what it has is not what the service has;
// meanwhile what it has stays in force.
func TestDiffers(t *testing.T) {
	a, b := block("a", "t-a"), block("b", "t-b")
	f := func(what, second string) {
		t.Helper()
		release := make(chan struct{})
		srv := newFeed(t, saysAndEnds(event("set", state(1, a))+second), func(w http.ResponseWriter, r *http.Request) {
			<-release
			says(event("set", state(3, b)))(w, r)
		})
		l := srv.follow(Options{})
		eventually(t, what+": a second connection", func() bool { return len(srv.connections()) == 2 })
		if h := srv.connections()[1]; h.Get("Last-Event-ID") != "" {
			t.Errorf("%s: presents %s instead of asking for all", what, h.Get("Last-Event-ID"))
		}
		if !denies(l, "t-a") {
			t.Errorf("%s: what it has is not in force meanwhile", what)
		}
		close(release)
		eventually(t, what+": the whole set", func() bool { return denies(l, "t-b") && !denies(l, "t-a") })
	}
	f("wrong digest", event("change", change(1, 2, "1234", b)))
	f("a change that was missed", event("change", change(2, 3, digest(a, b), b)))
	f("a set whose digest is wrong", strings.Replace(event("set", state(2, a)), digest(a), "1234", 1))
}

// TestOlderSet does not go back: what a service that was restored from an old copy
// sends is not taken.
func TestOlderSet(t *testing.T) {
	a := block("a", "t-a")
	srv := newFeed(t, saysAndEnds(event("set", state(5, a))), saysAndEnds(event("set", state(4))), says(event("set", state(6))))
	l := srv.follow(Options{})
	eventually(t, "the second connection", func() bool { return len(srv.connections()) >= 2 })
	for len(srv.connections()) < 3 {
		if v, ok := l.Version(); ok && v.Revision < 5 || !denies(l, "t-a") {
			t.Fatalf("went back to %s", v)
		}
		time.Sleep(time.Millisecond)
	}
	eventually(t, "the newer set", func() bool { v, _ := l.Version(); return v.Revision == 6 })
	if denies(l, "t-a") {
		t.Error("the newer set has no directives")
	}
}

// TestRefusedFeed says why, and goes on trying.
func TestRefusedFeed(t *testing.T) {
	srv := newFeed(t, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "who are you", http.StatusUnauthorized) }, says(event("set", state(1))))
	l := srv.follow(Options{})
	eventually(t, "a set in the end", func() bool { _, ok := l.Version(); return ok })
}

func TestNew(t *testing.T) {
	for _, u := range []string{"", "127.0.0.1:80", "ftp://host", "http://", "http://%zz"} {
		if _, err := New(Options{URL: u}); err == nil {
			t.Errorf("URL %q is taken", u)
		}
	}
	a, err := New(Options{URL: "http://h/"})
	if err != nil {
		t.Fatal(err)
	}
	if b, _ := New(Options{URL: "http://h"}); a.ID() == b.ID() || a.ID() == "" {
		t.Errorf("ids %q and %q", a.ID(), b.ID())
	}
}

// TestUnknown has the answers without a set and with a stale one.
func TestUnknown(t *testing.T) {
	background, standard, critical, claims := &Call{Criticality: "background"}, &Call{}, &Call{Feature: "checkout"}, &Call{Feature: "checkout", Criticality: "background"}
	list := directive.CriticalList{Features: []string{"checkout"}}
	f := func(what string, o Options, s *directive.State, c *Call, want directive.Verdict, guard string) {
		t.Helper()
		o.URL = "http://127.0.0.1:1"
		l, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		if s != nil {
			if err := l.set.Replace(s); err != nil {
				t.Fatal(err)
			}
		}
		d := l.Check(c)
		if d.Verdict != want || d.Guard != guard || !d.Unknown {
			t.Errorf("%s, call %+v: %s by %q, unknown %v; want %s by %q", what, *c, d.Verdict, d.Guard, d.Unknown, want, guard)
		}
		if want == directive.Deny && guard == "unknown" && (d.RetryAfter <= 0 || d.Reason == "") {
			t.Errorf("%s: denial %+v", what, d)
		}
	}
	const never = "never connected"
	f(never, Options{}, nil, standard, directive.Deny, "unknown")
	f(never, Options{}, nil, background, directive.Deny, "unknown")
	f(never, Options{}, nil, critical, directive.Deny, "unknown") // nobody said what is critical
	f(never, Options{Critical: list}, nil, critical, directive.Allow, "")
	f(never, Options{Critical: list}, nil, claims, directive.Deny, "unknown")
	f(never, Options{Critical: directive.CriticalList{Workflows: []string{"w"}}}, nil, &Call{Workflow: "w"}, directive.Allow, "")
	f(never, Options{Critical: directive.CriticalList{Keys: []string{"k"}}}, nil, &Call{Key: "k"}, directive.Allow, "")
	f(never, Options{Critical: list, WhenUnknown: directive.WhenUnknown{Critical: "closed"}}, nil, critical, directive.Deny, "unknown")
	f(never, Options{WhenUnknown: directive.WhenUnknown{Standard: "open"}}, nil, standard, directive.Allow, "")
	f(never, Options{WhenUnknown: directive.WhenUnknown{Standard: "open"}}, nil, background, directive.Deny, "unknown")
	f(never, Options{WhenUnknown: directive.WhenUnknown{Background: "open"}}, nil, background, directive.Allow, "")

	stale := func(w directive.WhenUnknown, ds ...directive.Directive) *directive.State {
		s := state(1, ds...)
		s.ValidUntil, s.WhenUnknown, s.Critical = time.Now().Add(-time.Second), w, list
		return &s
	}
	open := Options{WhenUnknown: directive.WhenUnknown{Standard: "open", Background: "open"}} // before the first set only
	f("stale", open, stale(directive.WhenUnknown{}), standard, directive.Deny, "unknown")
	f("stale", open, stale(directive.WhenUnknown{}), background, directive.Deny, "unknown")
	f("stale", open, stale(directive.WhenUnknown{}), critical, directive.Allow, "")
	f("stale", open, stale(directive.WhenUnknown{Critical: "closed"}), critical, directive.Deny, "unknown")
	f("stale", Options{}, stale(directive.WhenUnknown{Standard: "open"}), standard, directive.Allow, "")
	f("stale", Options{}, stale(directive.WhenUnknown{Background: "open"}), background, directive.Allow, "")
	f("stale", Options{}, stale(directive.WhenUnknown{Background: "open"}), standard, directive.Deny, "unknown")
	// What a stale set denies stays denied, whatever the policy; what it downgrades too.
	f("stale", Options{}, stale(directive.WhenUnknown{Standard: "open"}, block("a", "t")), &Call{Tenant: "t"}, directive.Deny, "g")
	f("stale", Options{}, stale(directive.WhenUnknown{Standard: "open"}, directive.Directive{ID: "d", Guard: "g", Action: directive.Downgrade, Models: map[string]string{"*": "small"}}), &Call{Model: "big"}, directive.Downgraded, "g")
	killed := stale(directive.WhenUnknown{Standard: "open"})
	killed.Kill = directive.Kill{On: true}
	f("stale", Options{}, killed, standard, directive.Deny, "kill")
}

// TestThrottle gives every call a slot of its own, in order.
func TestThrottle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := New(Options{URL: "http://127.0.0.1:1"})
		if err != nil {
			t.Fatal(err)
		}
		s := state(1, directive.Directive{ID: "slow", Guard: "g", Action: directive.Throttle, IntervalMS: 200, Park: []string{"background"}, Exempt: []string{"critical"}, Scope: directive.Scope{Values: map[string]string{"tenant": "t"}}})
		s.Critical.Features = []string{"checkout"}
		if err := l.set.Replace(&s); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		admit := func(c *Call, want directive.Verdict, after time.Duration) {
			t.Helper()
			d, err := l.Admit(t.Context(), c)
			if got := time.Since(start); err != nil || d.Verdict != want || got != after {
				t.Errorf("%s after %s, %v; want %s after %s", d.Verdict, got, err, want, after)
			}
		}
		c := &Call{Tenant: "t"}
		admit(c, directive.Wait, 0)
		admit(c, directive.Wait, 200*time.Millisecond)
		admit(c, directive.Wait, 400*time.Millisecond)
		admit(&Call{Tenant: "other"}, directive.Allow, 400*time.Millisecond)
		admit(&Call{Tenant: "t", Feature: "checkout"}, directive.Allow, 400*time.Millisecond)
		parked := &Call{Tenant: "t", Criticality: "background"}
		admit(parked, directive.Deny, 400*time.Millisecond)
		if d := l.Check(parked); d.Status() != http.StatusTooManyRequests || d.RetryAfter != time.Minute {
			t.Errorf("parked: %+v", d)
		}
		time.Sleep(time.Second) // slots that nobody took do not add up
		start = time.Now()
		admit(c, directive.Wait, 0)
		admit(c, directive.Wait, 200*time.Millisecond)

		var mu sync.Mutex
		var at []time.Duration
		var wg sync.WaitGroup
		start = time.Now()
		for range 5 {
			wg.Go(func() {
				_, _ = l.Admit(t.Context(), c)
				mu.Lock()
				at = append(at, time.Since(start))
				mu.Unlock()
			})
		}
		wg.Wait()
		slices.Sort(at)
		if want := []time.Duration{200e6, 400e6, 600e6, 800e6, 1000e6}; !slices.Equal(at, want) {
			t.Errorf("five at once at %v, want %v", at, want)
		}

		_ = l.Check(c) // takes a slot, so that the next one waits
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		start = time.Now()
		if _, err := l.Admit(ctx, c); err != context.DeadlineExceeded || time.Since(start) != 50*time.Millisecond {
			t.Errorf("a caller that leaves: %v after %s", err, time.Since(start))
		}
	})
}

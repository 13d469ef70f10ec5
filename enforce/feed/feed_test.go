package feed

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/flyball/flyball/enforce/directive"
)

func block(id, tenant, run string) directive.Directive {
	return directive.Directive{ID: id, Guard: "g", Action: directive.Terminate, Scope: directive.Scope{Values: map[string]string{"tenant": tenant}, Runs: []string{run}}, Reason: "test"}
}

// served is a feed behind a real HTTP server, with the publisher's own set beside it.
type served struct {
	*Feed
	set *directive.Set
	at  directive.Version
	url string
}

func serve(t testing.TB, o Options) *served {
	t.Helper()
	s := &served{set: directive.NewSet(), at: directive.Version{Epoch: 1, Revision: 1}}
	if err := s.set.Replace(&directive.State{Version: s.at}); err != nil {
		t.Fatal(err)
	}
	s.Feed = New(o, s.set.State())
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who := Viewer{Key: "*", Allow: func(string) bool { return true }, Org: true}
		if t := r.URL.Query().Get("tenant"); t != "" {
			who = Viewer{Key: t, Allow: func(o string) bool { return o == t }}
		}
		s.ServeSSE(w, r, who)
	}))
	t.Cleanup(func() { s.Close(); srv.Close() })
	s.url = srv.URL
	return s
}

func (s *served) publish(t testing.TB, c directive.Change) {
	t.Helper()
	c.From = s.at
	s.at.Revision++
	c.Version = s.at
	if err := s.set.Apply(&c); err != nil {
		t.Fatal(err)
	}
	s.Publish(c)
}

// follower applies a feed to a set of its own, as a limiter does.
type follower struct {
	set   *directive.Set
	names []string
	in    *bufio.Reader
	close func()
}

func (s *served) follow(t testing.TB, tenant, last string) *follower {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"?tenant="+tenant, nil)
	if err != nil {
		t.Fatal(err)
	}
	if last != "" {
		r.Header.Set("Last-Event-ID", last)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cancel(); resp.Body.Close() })
	return &follower{set: directive.NewSet(), in: bufio.NewReader(resp.Body), close: func() { cancel(); resp.Body.Close() }}
}

// next reads one event and applies it; the digest is checked by the set.
func (f *follower) next(t testing.TB) string {
	t.Helper()
	var name, data string
	for {
		line, err := f.in.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		line = strings.TrimRight(line, "\n")
		switch {
		case strings.HasPrefix(line, "event: "):
			name = line[7:]
		case strings.HasPrefix(line, "data: "):
			data = line[6:]
		case line == "" && data != "":
			f.names = append(f.names, name)
			switch name {
			case "set":
				var s directive.State
				if err := json.Unmarshal([]byte(data), &s); err != nil {
					t.Fatal(err)
				}
				if err := f.set.Replace(&s); err != nil {
					t.Fatal(err)
				}
			case "change":
				var c directive.Change
				if err := json.Unmarshal([]byte(data), &c); err != nil {
					t.Fatal(err)
				}
				if err := f.set.Apply(&c); err != nil {
					t.Fatal(err)
				}
			}
			return name
		}
	}
}

func TestFollow(t *testing.T) {
	s := serve(t, Options{})
	s.publish(t, directive.Change{Upsert: []directive.Directive{block("a", "t-1", "r-1"), block("b", "t-2", "r-2")}})
	all, one := s.follow(t, "", ""), s.follow(t, "t-1", "")
	if all.next(t) != "set" || one.next(t) != "set" || all.set.Len() != 2 || one.set.Len() != 1 {
		t.Fatalf("all has %d directives, one %d", all.set.Len(), one.set.Len())
	}
	s.publish(t, directive.Change{Upsert: []directive.Directive{block("c", "t-1", "r-3")}})
	if all.next(t) != "change" || one.next(t) != "change" || all.set.Len() != 3 || one.set.Len() != 2 {
		t.Fatal("a change did not come to both")
	}
	// What concerns another tenant is not seen at all; what concerns everybody is.
	s.publish(t, directive.Change{Upsert: []directive.Directive{block("d", "t-2", "r-4")}, Remove: []string{"b"}})
	s.publish(t, directive.Change{Kill: &directive.Kill{On: true, Reason: "x"}})
	if all.next(t) != "change" || all.next(t) != "change" || one.next(t) != "change" {
		t.Fatal("changes")
	}
	if !one.set.KillState().On || !all.set.KillState().On || one.set.Len() != 2 || all.set.Len() != 3 {
		t.Fatalf("one %d, all %d", one.set.Len(), all.set.Len())
	}
	v, _, _ := one.set.Version()
	// Who comes back gets what it missed, not all of it.
	one.close()
	s.publish(t, directive.Change{Remove: []string{"a"}})
	back := s.follow(t, "t-1", v.String())
	back.set = one.set
	if back.next(t) != "change" || back.set.Len() != 1 {
		t.Fatal("a change was missed")
	}
	// Who was away too long, or has a version of nobody, gets the whole set.
	if f := s.follow(t, "t-1", "7.7"); f.next(t) != "set" || f.set.Len() != 1 {
		t.Fatal("want the whole set")
	}
	whole := s.set.State()
	whole.Epoch++
	s.Reset(whole)
	if back.next(t) != "set" {
		t.Fatal("a reset sends the whole set")
	}
}

// TestOrgFigures: a directive over all tenants reaches everybody, its figures do not.
func TestOrgFigures(t *testing.T) {
	s := serve(t, Options{})
	org := directive.Directive{ID: "org", Guard: "g", Action: directive.Halt, Reason: "the org spent $12345", Spent: "$12345", Limit: "$1"}
	all, one := s.follow(t, "", ""), s.follow(t, "t-1", "")
	all.next(t)
	one.next(t)
	s.publish(t, directive.Change{Upsert: []directive.Directive{org}, Kill: &directive.Kill{On: true, Actor: "automatic", Reason: "cost $12345"}})
	all.next(t)
	one.next(t)
	late := s.follow(t, "t-1", "")
	late.next(t)
	for who, want := range map[*follower]string{all: "the org spent $12345", one: OrgReason, late: OrgReason} {
		got := who.set.State()
		if len(got.Directives) != 1 || got.Directives[0].Reason != want || !got.Kill.On || strings.Contains(got.Kill.Reason, "12345") != (who == all) || (got.Directives[0].Spent == "") != (who != all) {
			t.Errorf("got %+v, %+v; want the reason %q", got.Directives, got.Kill, want)
		}
	}
}

func TestHistoryIsBounded(t *testing.T) {
	s := serve(t, Options{History: 4})
	f := s.follow(t, "", "")
	f.next(t)
	v, _, _ := f.set.Version()
	f.close()
	for i := range 5 {
		s.publish(t, directive.Change{Upsert: []directive.Directive{block(fmt.Sprint(i), "t", "r")}})
	}
	if g := s.follow(t, "", v.String()); g.next(t) != "set" || g.set.Len() != 5 {
		t.Fatal("want the whole set: the history does not reach back")
	}
}

func TestAlive(t *testing.T) {
	s := serve(t, Options{Heartbeat: 20 * time.Millisecond})
	f := s.follow(t, "", "")
	if f.next(t) != "set" || f.next(t) != "alive" {
		t.Fatalf("events %q", f.names)
	}
}

func TestPoll(t *testing.T) {
	s := serve(t, Options{})
	who := Viewer{Key: "*", Allow: func(string) bool { return true }}
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	set, at, changed := s.Poll(r, who, directive.Version{}, 0)
	var state directive.State
	if err := json.Unmarshal(set, &state); !changed || err != nil || state.Version != at {
		t.Fatalf("want the set, got %s at %s, %v", set, at, err)
	}
	// Whoever asks at about the same time gets the same bytes.
	if again, _, _ := s.Poll(r, who, directive.Version{}, 0); &again[0] != &set[0] {
		t.Error("the set was made twice")
	}
	if _, _, changed := s.Poll(r, who, at, 20*time.Millisecond); changed {
		t.Fatal("nothing changed")
	}
	go func() {
		time.Sleep(20 * time.Millisecond)
		s.publish(t, directive.Change{Upsert: []directive.Directive{block("a", "t", "r")}})
	}()
	set, at, changed = s.Poll(r, who, at, 10*time.Second)
	if err := json.Unmarshal(set, &state); !changed || err != nil || len(state.Directives) != 1 || state.Version != at {
		t.Fatalf("the change did not end the wait: %s at %s", set, at)
	}
}

// TestRingIsBounded: changes are kept for who reconnects, so many and so large ones, the
// latest always.
func TestRingIsBounded(t *testing.T) {
	f := func(most, size, changes, want int) {
		t.Helper()
		v := &view{}
		for i := range changes {
			v.keep(event{version: directive.Version{Epoch: 1, Revision: uint64(i)}, data: make([]byte, size)}, most)
		}
		bytes := 0
		for _, e := range v.ring {
			bytes += len(e.data)
		}
		if len(v.ring) != want || v.bytes != bytes || v.ring[want-1].version.Revision != uint64(changes-1) {
			t.Errorf("%d changes of %d bytes: %d are kept with %d bytes counted as %d, want %d", changes, size, len(v.ring), bytes, v.bytes, want)
		}
	}
	f(1024, 100, 5000, 1024)
	f(1024, 1<<20, 100, 4)
	f(1024, 5<<20, 3, 1)
	f(2, 10, 1, 1)
}

// TestSilentFollower connects limiters that never read. They hold nobody up, and lose
// their connection.
func TestSilentFollower(t *testing.T) {
	s := serve(t, Options{Write: time.Second, Heartbeat: 50 * time.Millisecond})
	addr := strings.TrimPrefix(s.url, "http://")
	for range 5 {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.(*net.TCPConn).SetReadBuffer(4096)
		fmt.Fprintf(c, "GET /?tenant= HTTP/1.1\r\nHost: x\r\n\r\n")
	}
	good := s.follow(t, "", "")
	good.next(t)
	began := time.Now()
	for i := range 300 {
		d := block(fmt.Sprint(i), "t", strings.Repeat("r", 20_000))
		s.publish(t, directive.Change{Upsert: []directive.Directive{d}})
		for good.next(t) == "alive" {
		}
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("300 changes took %s beside limiters that do not read", took)
	}
	for end := time.Now().Add(10 * time.Second); s.Connections() > 1; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d connections are left, want 1", s.Connections())
		}
	}
}

// BenchmarkPublish is one change of a set of ten thousand blocks, until a thousand
// limiters have it: most of it is the limiters' own reading on the same machine.
func BenchmarkPublish(b *testing.B) {
	s := serve(b, Options{})
	var all []directive.Directive
	for i := range 10_000 {
		all = append(all, block(fmt.Sprintf("guard/%d", i), fmt.Sprintf("t-%d", i%50), fmt.Sprintf("run-%d", i)))
	}
	s.publish(b, directive.Change{Upsert: all})
	const limiters = 1000
	var got atomic.Int64
	for range limiters {
		f := s.follow(b, "", s.at.String())
		go func() {
			for {
				line, err := f.in.ReadSlice('\n')
				if err != nil && err != bufio.ErrBufferFull {
					return
				}
				if strings.HasPrefix(string(line), "event: change") {
					got.Add(1)
				}
			}
		}()
	}
	for s.Connections() < limiters {
		time.Sleep(time.Millisecond)
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		want := got.Load() + limiters
		s.publish(b, directive.Change{Upsert: []directive.Directive{block(fmt.Sprintf("guard/%d", i%10_000), "t-1", fmt.Sprintf("again-%d", i))}})
		for got.Load() < want {
			time.Sleep(20 * time.Microsecond)
		}
		i++
	}
}

// TestFollowerLosesItsKey: a connection ends with the right to it, not when it happens to
// be cut off.
func TestFollowerLosesItsKey(t *testing.T) {
	var may atomic.Bool
	may.Store(true)
	f := New(Options{Heartbeat: 10 * time.Millisecond}, directive.State{Version: directive.Version{Epoch: 1, Revision: 1}})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.ServeSSE(w, r, Viewer{Key: "*", Allow: func(string) bool { return true }, Still: may.Load})
	}))
	defer srv.Close()
	defer f.Close()
	resp, err := http.Get(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	alive, in := 0, bufio.NewScanner(resp.Body)
	for in.Scan() {
		if in.Text() == "event: alive" {
			if alive++; alive == 3 {
				may.Store(false)
			}
		}
	}
	if alive < 3 || alive > 4 || f.Connections() != 0 && !waits(func() bool { return f.Connections() == 0 }) {
		t.Errorf("%d signs of life, %d connections", alive, f.Connections())
	}
}

func waits(f func() bool) bool {
	for range 200 {
		if f() {
			return true
		}
		time.Sleep(10 * time.Millisecond)
	}
	return false
}

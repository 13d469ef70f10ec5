package page

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/flyball/flyball/schema/state"
)

var loopback = []string{"127.0.0.0/8"}

// openStore opens a store that is closed by the function or else when the test ends.
func openStore(t *testing.T, dir string) (*state.Store, func()) {
	t.Helper()
	st, err := state.Open(state.Options{Dir: dir, Registerer: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	shut := sync.OnceFunc(func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(shut)
	return st, shut
}

func newStore(t *testing.T) *state.Store {
	t.Helper()
	st, _ := openStore(t, t.TempDir())
	return st
}

// quick fills in timings that suit a test.
func quick(o Options) Options {
	if o.GroupWait == 0 {
		o.GroupWait = 20 * time.Millisecond
	}
	if o.RetryMin == 0 {
		o.RetryMin = 20 * time.Millisecond
	}
	if o.RetryMax == 0 {
		o.RetryMax = 100 * time.Millisecond
	}
	if o.Registerer == nil {
		o.Registerer = prometheus.NewRegistry()
	}
	return o
}

// start makes a pager and runs it until the test ends or the function is called.
func start(t *testing.T, o Options) (*Pager, func()) {
	t.Helper()
	if o.Store == nil {
		o.Store = newStore(t)
	}
	p, err := New(quick(o))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	stop := sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("run: %v", err)
		}
	})
	t.Cleanup(stop)
	return p, stop
}

func put(t *testing.T, p *Pager, pages ...Page) {
	t.Helper()
	b := p.o.Store.NewBatch()
	if _, err := p.Put(b, pages...); err != nil {
		t.Fatal(err)
	}
	if err := b.Commit(true); err != nil {
		t.Fatal(err)
	}
	p.Wake()
}

// sample is a page as a guard would make it.
func sample(id string) Page {
	return Page{
		ID: id, Alert: "user-day tenant t-1 user u-1 2026-11-29 80%", Severity: "warning", Kind: "guard", Guard: "user-day",
		Tenant: "t-1", Scope: "user u-1 of tenant t-1", Title: "User u-1 of tenant t-1 spent 81 of 100 USD today",
		Measure: "cost", Limit: "100", Value: "81", Threshold: "80%", Window: "2026-11-29",
		Since: time.Now().Add(-time.Second), At: time.Now(), Action: "downgraded m-5 to m-5-mini", Undo: "flyball guard release user-day --user u-1",
	}
}

// end is the resolution of a page.
func end(pg Page, id string) Page {
	pg.ID, pg.Resolved, pg.At, pg.Severity, pg.Title = id, true, time.Now(), "info", "User u-1 of tenant t-1 is under the limit again"
	return pg
}

// many are n alerts of one guard.
func many(n int) []Page {
	var out []Page
	for i := range n {
		pg := sample(fmt.Sprintf("m-%d", i))
		pg.Alert = fmt.Sprintf("user-day u-%d", i)
		out = append(out, pg)
	}
	return out
}

// request is what a sink got.
type request struct {
	path   string
	header http.Header
	body   string
	at     time.Time
}

// sink is an HTTP server that keeps what it gets.
type sink struct {
	*httptest.Server
	mu  sync.Mutex // guards got
	got []request
}

// newSink answers the n-th request (from 0) by answer, or with 200 without one.
func newSink(t *testing.T, answer func(w http.ResponseWriter, r *http.Request, n int)) *sink {
	t.Helper()
	s := &sink{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		s.mu.Lock()
		n := len(s.got)
		s.got = append(s.got, request{r.URL.Path, r.Header.Clone(), string(body), time.Now()})
		s.mu.Unlock()
		if answer != nil {
			answer(w, r, n)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

func status(codes ...int) func(http.ResponseWriter, *http.Request, int) {
	return func(w http.ResponseWriter, _ *http.Request, n int) { w.WriteHeader(codes[min(n, len(codes)-1)]) }
}

func (s *sink) requests() []request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]request(nil), s.got...)
}

// wait returns the requests once there are n.
func (s *sink) wait(t *testing.T, n int) []request {
	t.Helper()
	eventually(t, func() bool { return len(s.requests()) >= n }, "%d requests, have %d", n, len(s.requests()))
	return s.requests()
}

func eventually(t *testing.T, ok func() bool, format string, args ...any) {
	t.Helper()
	for deadline := time.Now().Add(8 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for "+format, args...)
		}
	}
}

// idle waits until nothing is left to deliver.
func idle(t *testing.T, p *Pager) {
	t.Helper()
	eventually(t, func() bool {
		n := 0
		if err := p.o.Store.Each(outPrefix, func(string, []byte) error { n++; return nil }); err != nil {
			t.Fatal(err)
		}
		return n == 0 && len(p.Pending()) == 0
	}, "an empty outbox: %+v", p.Pending())
}

func secret() string {
	key := make([]byte, 32)
	_, _ = rand.Read(key)
	return "whsec_" + base64.StdEncoding.EncodeToString(key)
}

func webhook(name, url string) Receiver {
	return Receiver{Name: name, Webhook: &Webhook{URL: url, Secrets: []string{secret()}}, Allow: loopback}
}

func slack(name, url string) Receiver {
	return Receiver{Name: name, Slack: &Slack{URL: url}, Allow: loopback}
}

func pagerDuty(name, url string) Receiver {
	return Receiver{Name: name, PagerDuty: &PagerDuty{RoutingKey: strings.Repeat("k", 32), URL: url}, Allow: loopback}
}

func alertmanager(name, url string) Receiver {
	return Receiver{Name: name, Alertmanager: &Alertmanager{URL: url}, Allow: loopback}
}

// logs collects what a logger writes.
type logs struct {
	mu sync.Mutex // guards b
	b  bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (l *logs) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// count is the value of flyball_pages_total.
func count(t *testing.T, reg *prometheus.Registry, receiver, outcome string) int {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			l := m.GetLabel()
			if f.GetName() == "flyball_pages_total" && l[0].GetValue() == outcome && l[1].GetValue() == receiver {
				return int(m.GetCounter().GetValue())
			}
		}
	}
	return 0
}

// stubDNS is a resolver whose answer to the n-th question for an address (from 0)
// comes from the function; it is asked for nothing else.
func stubDNS(t *testing.T, answer func(n int) []string) *net.Resolver {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	go func() {
		buf := make([]byte, 2048)
		for n := 0; ; {
			size, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			q := buf[12:size]
			labels := bytes.IndexByte(q, 0) + 1
			question := q[:labels+4]
			var ips []string
			if binary.BigEndian.Uint16(question[labels:]) == 1 { // A
				ips = answer(n)
				n++
			}
			out := append([]byte{buf[0], buf[1], 0x81, 0x80, 0, 1, 0, byte(len(ips)), 0, 0, 0, 0}, question...)
			for _, ip := range ips {
				addr := netip.MustParseAddr(ip).As4()
				out = append(out, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4)
				out = append(out, addr[:]...)
			}
			_, _ = conn.WriteTo(out, from)
		}
	}()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
}

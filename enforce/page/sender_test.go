package page

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

func TestJudge(t *testing.T) {
	f := func(status int, after time.Duration, err error, retry bool, wantAfter time.Duration, want string) {
		t.Helper()
		r, a, e := judge(status, after, err)
		got := ""
		if e != nil {
			got = e.Error()
		}
		if r != retry || a != wantAfter || got != want {
			t.Errorf("%d %v %v: got %v %v %q, want %v %v %q", status, after, err, r, a, got, retry, wantAfter, want)
		}
	}
	f(200, 0, nil, false, 0, "")
	f(202, time.Hour, nil, false, 0, "")
	f(301, 0, nil, false, 0, "answered 3xx")
	f(307, time.Second, nil, false, 0, "answered 3xx")
	for _, code := range []int{400, 401, 403, 404, 413, 422} {
		f(code, time.Second, nil, false, 0, "answered 4xx")
	}
	f(408, 0, nil, true, 0, "answered 4xx")
	f(425, 0, nil, true, 0, "answered 4xx")
	f(429, time.Minute, nil, true, time.Minute, "answered 4xx")
	f(410, time.Minute, nil, true, 0, errGone.Error())
	f(500, 0, nil, true, 0, "answered 5xx")
	f(503, time.Second, nil, true, time.Second, "answered 5xx")
	f(0, 0, errors.New("https://hooks.example.com/SECRET"), true, 0, "connection failed")
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 11, 29, 10, 0, 0, 0, time.UTC)
	for value, want := range map[string]time.Duration{
		"": 0, "0": 0, "7": 7 * time.Second, "-1": 0, "soon": 0, "99999999999999": 0,
		"Sun, 29 Nov 2026 10:01:00 GMT": time.Minute, "Sun, 29 Nov 2026 09:00:00 GMT": 0,
	} {
		if got := retryAfter(value, now); got != want {
			t.Errorf("%q: got %v, want %v", value, got, want)
		}
	}
}

// A name that was public when it was written down and is private when it is
// dialled must not be reached, whatever DNS says in between.
func TestRebinding(t *testing.T) {
	var inside, allowed atomic.Int32
	serve := func(address string, n *atomic.Int32) net.Addr {
		l, err := net.Listen("tcp4", address)
		if err != nil {
			t.Fatal(err)
		}
		srv := &httptest.Server{Listener: l, Config: &http.Server{
			Handler:   http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}),
			ConnState: func(_ net.Conn, s http.ConnState) { n.Add(int32(1 - min(1, int(s)))) }, // StateNew is 0
		}}
		srv.Start()
		t.Cleanup(srv.Close)
		return l.Addr()
	}
	port := serve("127.0.0.1:0", &inside).(*net.TCPAddr).Port
	serve(fmt.Sprintf("127.0.0.2:%d", port), &allowed)

	f := func(scheme string, allow []string, answers [][]string, want ...bool) {
		t.Helper()
		inside.Store(0)
		dns := stubDNS(t, func(n int) []string { return answers[min(n, len(answers)-1)] })
		url := fmt.Sprintf("%s://hook.flyball.example:%d/", scheme, port)
		if scheme == "https" {
			url = "https://hook.flyball.example/"
		}
		p, err := New(quick(Options{Store: newStore(t), Receivers: []Receiver{{Name: "r", Slack: &Slack{URL: url}, Allow: allow}}, resolver: dns}))
		if err != nil {
			t.Fatal(err)
		}
		for i, ok := range want {
			r := p.Test(t.Context(), "r")[0]
			if r.OK != ok || !ok && !strings.Contains(r.Error, "not dialled") {
				t.Errorf("%v, send %d: got %+v, want ok %v", answers, i, r, ok)
			}
		}
		if inside.Load() != 0 {
			t.Errorf("%v: %d connections to an address that is not allowed", answers, inside.Load())
		}
	}
	only := []string{"127.0.0.2/32"}
	f("http", only, [][]string{{"127.0.0.2"}, {"127.0.0.1"}, {"127.0.0.2"}}, true, false, true)
	f("http", only, [][]string{{"127.0.0.2", "127.0.0.1"}}, true)
	f("http", only, [][]string{{"127.0.0.1", "127.0.0.2"}}, true)
	f("http", only, [][]string{{"203.0.113.10"}, {"127.0.0.1"}, {"203.0.113.10", "127.0.0.1"}}, false, false, false)
	f("https", nil, [][]string{{"203.0.113.10"}, {"127.0.0.1"}, {"169.254.169.254"}, {"10.0.0.1"}, {"0.0.0.0"}, {"203.0.113.10", "127.0.0.1"}}, false, false, false, false, false, false)
	// Without TLS, an allow list opens what it lists and nothing public beside it.
	f("http", only, [][]string{{"1.1.1.1"}}, false)
	if allowed.Load() != 4 {
		t.Errorf("%d connections to the allowed address, want 4: one a send, none kept", allowed.Load())
	}
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	inner := newSink(t, nil)
	outer := newSink(t, func(w http.ResponseWriter, r *http.Request, _ int) {
		http.Redirect(w, r, inner.URL, http.StatusTemporaryRedirect)
	})
	reg := prometheus.NewRegistry()
	p, _ := start(t, Options{Receivers: []Receiver{slack("r", outer.URL)}, Registerer: reg})
	if r := p.Test(t.Context(), ""); r[0].OK || r[0].Status != "3xx" {
		t.Errorf("test: %+v", r)
	}
	put(t, p, sample("a"))
	eventually(t, func() bool { return count(t, reg, "r", "refused") == 1 }, "a refused page")
	if n := len(inner.requests()); n != 0 {
		t.Errorf("%d requests where the redirect points", n)
	}
	if n := len(outer.requests()); n != 2 {
		t.Errorf("%d requests, want the test and one try", n)
	}
}

func TestTLS(t *testing.T) {
	var n atomic.Int32
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n.Add(1)
		w.WriteHeader(http.StatusEarlyHints) // comes before the answer and is none
	}))
	srv.Config.ErrorLog = log.New(io.Discard, "", 0) // says that we hung up
	srv.StartTLS()
	t.Cleanup(srv.Close)
	roots := x509.NewCertPool()
	roots.AddCert(srv.Certificate())
	f := func(roots *x509.CertPool, want Result) {
		t.Helper()
		p, err := New(quick(Options{Store: newStore(t), Receivers: []Receiver{webhook("r", srv.URL)}, roots: roots}))
		if err != nil {
			t.Fatal(err)
		}
		got := p.Test(t.Context(), "")[0]
		want.Latency = got.Latency
		if got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
	f(roots, Result{Receiver: "r", OK: true, Status: "2xx"})
	f(x509.NewCertPool(), Result{Receiver: "r", Error: "certificate not accepted"})
	if n.Load() != 1 {
		t.Errorf("%d requests", n.Load())
	}
}

// The proxy of the environment would resolve and dial for us.
func TestNoProxy(t *testing.T) {
	proxy := newSink(t, nil)
	t.Setenv("HTTP_PROXY", proxy.URL)
	t.Setenv("HTTPS_PROXY", proxy.URL)
	p, err := New(quick(Options{Store: newStore(t), Receivers: []Receiver{{Name: "r", Slack: &Slack{URL: "https://203.0.113.10.flyball.example"}}}, resolver: stubDNS(t, func(int) []string { return []string{"203.0.113.10"} })}))
	if err != nil {
		t.Fatal(err)
	}
	if r := p.Test(t.Context(), "r"); r[0].OK || !strings.Contains(r[0].Error, "not dialled") {
		t.Errorf("test: %+v", r)
	}
	if len(proxy.requests()) != 0 {
		t.Error("the proxy was asked")
	}
}

// What a receiver answers would be a way to read an internal service, so nothing
// of it is kept anywhere; nor is the URL, which may be a secret.
func TestAnswersAreNotKept(t *testing.T) {
	const canary = "CANARY-7f3a"
	talk := func(w http.ResponseWriter, code int) {
		w.Header().Set("X-Note", canary)
		w.WriteHeader(code)
		_, _ = w.Write([]byte(strings.Repeat(canary+"\n", 10_000)))
	}
	garbage, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = garbage.Close() })
	go func() {
		for {
			c, err := garbage.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte(canary + " is no HTTP\r\n\r\n"))
			_ = c.Close()
		}
	}()
	busy := newSink(t, func(w http.ResponseWriter, _ *http.Request, _ int) { talk(w, 500) })
	wrong := newSink(t, func(w http.ResponseWriter, _ *http.Request, _ int) { talk(w, 400) })
	fine := newSink(t, func(w http.ResponseWriter, _ *http.Request, _ int) { talk(w, 200) })
	secretPath := "/services/" + canary
	dir := t.TempDir()
	st, shut := openStore(t, dir)
	var l logs
	log.SetOutput(&l) // where net/http would complain
	t.Cleanup(func() { log.SetOutput(os.Stderr) })
	reg := prometheus.NewRegistry()
	p, stop := start(t, Options{Store: st, Logger: l.logger(), Registerer: reg, Receivers: []Receiver{
		slack("garbage", "http://"+garbage.Addr().String()+secretPath), slack("busy", busy.URL+secretPath), slack("wrong", wrong.URL+secretPath), slack("fine", fine.URL+secretPath),
	}})
	results := fmt.Sprintf("%+v", p.Test(t.Context(), ""))
	put(t, p, sample("a"))
	eventually(t, func() bool {
		return count(t, reg, "garbage", "retried") > 1 && count(t, reg, "busy", "retried") > 1 && count(t, reg, "wrong", "refused") == 1 && count(t, reg, "fine", "delivered") == 1
	}, "all outcomes")
	shown := results + fmt.Sprintf("%+v", p.Pending()) + l.String()
	stop()
	if strings.Contains(shown, canary) {
		t.Errorf("shown or logged:\n%s", shown)
	}
	if err := st.Each("page/", func(name string, value []byte) error {
		if strings.Contains(name+string(value), canary) {
			t.Errorf("stored: %s %s", name, value)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	shut()
	if err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if strings.Contains(string(data), canary) {
			t.Errorf("on disk in %s", path)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

package limiter

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flyball/flyball/enforce/directive"
)

// roundTrip is a base that is no network.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// guarded is a limiter with a set and no service.
func guarded(t *testing.T, ds ...directive.Directive) *Limiter {
	t.Helper()
	l, err := New(Options{URL: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	s := state(1, ds...)
	if err := l.set.Replace(&s); err != nil {
		t.Fatal(err)
	}
	return l
}

// sent is what arrived at the base.
type sent struct {
	n      int
	method string
	path   string
	header http.Header
	body   string
	length int64
}

// through sends a request through the transport to a base that notes it.
func through(t *testing.T, l *Limiter, o TransportOptions, r *http.Request) (*http.Response, *sent) {
	t.Helper()
	var s sent
	o.Base = roundTrip(func(r *http.Request) (*http.Response, error) {
		s.n++
		s.method, s.path, s.header, s.length = r.Method, r.URL.EscapedPath(), r.Header, r.ContentLength
		if r.Body != nil {
			b, err := io.ReadAll(r.Body)
			if err != nil {
				return nil, err
			}
			_ = r.Body.Close()
			s.body = string(b)
		}
		return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("{}")), Request: r}, nil
	})
	resp, err := l.Transport(o).RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	return resp, &s
}

func post(path, body string) *http.Request {
	r, err := http.NewRequest(http.MethodPost, "http://provider.test"+path, strings.NewReader(body))
	if err != nil {
		panic(err)
	}
	return r
}

var cheaper = directive.Directive{ID: "d", Guard: "feature", Action: directive.Downgrade, Reason: "over", Models: map[string]string{"m-5": "m-5-mini", "gemini-5": "gemini-5-flash"}}

// TestModelRewrite changes the model and no other byte.
func TestModelRewrite(t *testing.T) {
	f := func(body, want string) {
		t.Helper()
		resp, s := through(t, guarded(t, cheaper), TransportOptions{}, post("/v1/chat/completions", body))
		if s.body != want || s.length != int64(len(want)) {
			t.Errorf("sent %s of length %d\nwant %s", s.body, s.length, want)
		}
		model := ""
		if body != want {
			model = "m-5-mini"
		}
		if got := resp.Header.Get("X-Flyball-Model"); got != model {
			t.Errorf("X-Flyball-Model is %q for %s", got, body)
		}
	}
	f(`{"model":"m-5","messages":[]}`, `{"model":"m-5-mini","messages":[]}`)
	f("{ \"messages\" : [ {\"content\":\"model\"} ] ,\n\t\"model\" :  \"m-5\"\r\n}\n", "{ \"messages\" : [ {\"content\":\"model\"} ] ,\n\t\"model\" :  \"m-5-mini\"\r\n}\n")
	f(`{"tools":[{"model":"m-5"}],"model":"m-5","x":{"model":"m-5"}}`, `{"tools":[{"model":"m-5"}],"model":"m-5-mini","x":{"model":"m-5"}}`)
	f(`{"model":"other","model":"m-5"}`, `{"model":"other","model":"m-5-mini"}`) // the last one counts
	f(`{"model":"m-5","model":"other"}`, `{"model":"m-5","model":"other"}`)
	f(`{"mod\u0065l":"m\u002d5","n":1e400}`, `{"mod\u0065l":"m-5-mini","n":1e400}`)
	f(`{"model":"m-5","MODEL":"other","Model":null}`, `{"model":"m-5-mini","MODEL":"other","Model":null}`) // providers tell letter case apart
	f(`{"model":"m-5","max_tokens":100.0}`, `{"model":"m-5-mini","max_tokens":100.0}`)
	f(`{"model":"m-5","max_tokens":"many"}`, `{"model":"m-5-mini","max_tokens":"many"}`)
	f(`{"model":null}`, `{"model":null}`)
	f(`["m-5"]`, `["m-5"]`)
	f(`{"model":"m-5"`, `{"model":"m-5-mini"`) // no JSON: the provider refuses it either way
	f(`{"model":"m-5",`, `{"model":"m-5",`)
	f(``, ``)
}

// TestModelRewriteRandom is TestModelRewrite for JSON made at random: what surrounds
// the value stays, and the value is what JSON readers find.
func TestModelRewriteRandom(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	pick := func(list ...string) string { return list[r.IntN(len(list))] }
	space := func() string { return pick("", "", " ", "\n", "\t ", "\r\n") }
	text := func() string {
		return pick(`"model"`, `"m-5"`, `"mod\u0065l\":\"m-5"`, `"{\"model\":\"m-5\"}"`, `"é\n\\\""`, `"\ud83d\ude00"`, `""`, `"\\"`, `"}"`)
	}
	var value func(depth int) string
	value = func(depth int) string {
		switch n := r.IntN(8); {
		case n < 3 || depth > 3:
			return pick(text(), "null", "true", "-0.5e+10", "12345678901234567890", "0")
		case n < 5:
			var b strings.Builder
			b.WriteString("[")
			for i := range r.IntN(4) {
				if i > 0 {
					b.WriteString(",")
				}
				b.WriteString(space() + value(depth+1) + space())
			}
			return b.String() + "]"
		default:
			var b strings.Builder
			b.WriteString("{" + space())
			for i := range r.IntN(4) {
				if i > 0 {
					b.WriteString(",")
				}
				b.WriteString(space() + text() + space() + ":" + space() + value(depth+1) + space())
			}
			return b.String() + "}"
		}
	}
	l := guarded(t, cheaper)
	for range 3000 {
		before, after := "{"+space(), ""
		for range r.IntN(4) {
			before += pick(text(), `"model"`, `"MODEL"`) + space() + ":" + space() + value(0) + space() + "," + space()
		}
		before += pick(`"model"`, `"mod\u0065l"`, `"\u006d\u006f\u0064\u0065\u006c"`) + space() + ":" + space()
		for range r.IntN(4) {
			after += space() + "," + space() + pick(`"models"`, `"Model"`, `"x"`, `"mod\\u0065l"`) + ":" + space() + value(0)
		}
		after += space() + "}" + space()
		body := before + pick(`"m-5"`, `"m\u002d5"`, `"\u006d-5"`) + after
		if !json.Valid([]byte(body)) {
			t.Fatalf("the test makes no JSON: %s", body)
		}
		_, s := through(t, l, TransportOptions{}, post("/v1/messages", body))
		if want := before + `"m-5-mini"` + after; s.body != want {
			t.Fatalf("body %s\nsent %s\nwant %s", body, s.body, want)
		}
		var top map[string]any
		if json.Unmarshal([]byte(s.body), &top) != nil || top["model"] != "m-5-mini" {
			t.Fatalf("the provider reads model %v from %s", top["model"], s.body)
		}
	}
}

// TestModelEscaped writes a name that JSON has to escape.
func TestModelEscaped(t *testing.T) {
	d := cheaper
	d.Models = map[string]string{"*": "a\"b\\c<é"}
	_, s := through(t, guarded(t, d), TransportOptions{}, post("/v1/responses", `{"model":"m-5"}`))
	var top map[string]string
	if json.Unmarshal([]byte(s.body), &top) != nil || top["model"] != d.Models["*"] {
		t.Errorf("sent %s", s.body)
	}
}

func TestGeminiPath(t *testing.T) {
	f := func(path, want string) {
		t.Helper()
		_, s := through(t, guarded(t, cheaper), TransportOptions{}, post(path, `{"model":"m-5","contents":[]}`))
		if s.path != want || s.body != `{"model":"m-5","contents":[]}` {
			t.Errorf("%s: sent %s %s, want %s", path, s.path, s.body, want)
		}
	}
	f("/v1beta/models/gemini-5:generateContent", "/v1beta/models/gemini-5-flash:generateContent")
	f("/v1beta/models/gemini-5:streamGenerateContent?alt=sse", "/v1beta/models/gemini-5-flash:streamGenerateContent")
	f("/v1beta/models/gemini-5%3AgenerateContent", "/v1beta/models/gemini-5-flash:generateContent")
	f("/v1/projects/p/locations/l/publishers/google/models/gemini-5:generateContent", "/v1/projects/p/locations/l/publishers/google/models/gemini-5-flash:generateContent")
	f("/v1beta/models/gemini-4:generateContent", "/v1beta/models/gemini-4:generateContent")
	f("/v1beta/tunedModels/gemini-5:generateContent", "/v1beta/tunedModels/gemini-5:generateContent")
}

// closing notes whether a body was closed.
type closing struct {
	io.Reader
	closed bool
}

func (c *closing) Close() error { c.closed = true; return nil }

// TestBodyLimit sends what is too large as it is, and refuses it where it would have
// to be changed: the model is unknown, so nothing of a model applies, but all else does.
func TestBodyLimit(t *testing.T) {
	body := `{"model":"m-5","x":"` + strings.Repeat("y", 1000) + `"}`
	f := func(limit int64, want string, n int, ds ...directive.Directive) {
		t.Helper()
		r := post("/v1/chat/completions", body)
		c := &closing{Reader: strings.NewReader(body)}
		r.Body = c
		resp, s := through(t, guarded(t, ds...), TransportOptions{BodyLimit: limit}, r)
		if s.n != n || s.body != want || n > 0 && s.length != int64(len(want)) {
			t.Errorf("limit %d: sent %d times, %d bytes of %d; status %d", limit, s.n, len(s.body), s.length, resp.StatusCode)
		}
		if n == 0 && resp.StatusCode != http.StatusForbidden || !c.closed {
			t.Errorf("limit %d: status %d, body closed %v", limit, resp.StatusCode, c.closed)
		}
	}
	small := strings.Replace(body, "m-5", "m-5-mini", 1)
	f(0, small, 1, cheaper)
	f(int64(len(body)), small, 1, cheaper)
	f(int64(len(body))-1, body, 1, cheaper)
	f(10, body, 1)
	all := directive.Directive{ID: "a", Guard: "g", Action: directive.Terminate}
	f(0, "", 0, all)
	f(10, "", 0, all)
}

// TestBodyError closes the body and sends nothing.
func TestBodyError(t *testing.T) {
	r := post("/v1/chat/completions", "")
	c := &closing{Reader: io.MultiReader(strings.NewReader("{"), errReader{})}
	r.Body = c
	if _, err := guarded(t).Transport(TransportOptions{Base: roundTrip(func(*http.Request) (*http.Response, error) { t.Error("sent"); return nil, nil })}).RoundTrip(r); err == nil || !c.closed {
		t.Errorf("%v, closed %v", err, c.closed)
	}
}

type errReader struct{}

func (errReader) Read([]byte) (int, error) { return 0, errors.New("gone") }

// TestIdentity reads whose call it is and sends none of that on.
func TestIdentity(t *testing.T) {
	r := post("/v1/chat/completions", `{"model":"m-5"}`)
	for k, v := range map[string]string{"Run": "r", "User": "u", "Feature": "f", "Workflow": "w", "Agent": "a", "Tenant": "t", "Mode": "batch", "Criticality": "background", "Whatever": "x"} {
		r.Header.Set("X-Flyball-"+k, v)
	}
	r.Header["x-flyball-raw"] = []string{"x"}
	r.Header.Set("Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	r.Header.Set("Authorization", "Bearer provider")
	want := Call{RunID: "r", User: "u", Feature: "f", Workflow: "w", Agent: "a", Tenant: "t", Mode: "batch", Criticality: "background", TraceID: "0af7651916cd43dd8448eb211c80319c", SpanID: "b7ad6b7169203331"}
	if got := identify(r); got != want {
		t.Errorf("identity %+v", got)
	}
	before := fmt.Sprint(r.Header)
	_, s := through(t, guarded(t), TransportOptions{}, r)
	for k := range s.header {
		if strings.HasPrefix(strings.ToLower(k), "x-flyball") {
			t.Errorf("%s is sent on", k)
		}
	}
	if s.header.Get("Authorization") != "Bearer provider" || s.header.Get("Traceparent") == "" {
		t.Errorf("sent %v", s.header)
	}
	if fmt.Sprint(r.Header) != before {
		t.Error("the caller's request was changed")
	}
	// The context says more than headers do, and may say who bills.
	r = r.WithContext(WithCall(t.Context(), Call{RunID: "mine", Provider: "azure"}))
	if c := identify(r); c.RunID != "mine" || c.User != "u" || c.Provider != "azure" {
		t.Errorf("identity %+v", c)
	}
	azure := directive.Directive{ID: "a", Guard: "g", Action: directive.Terminate, Match: map[string][]string{"provider": {"azure"}}}
	if resp, s := through(t, guarded(t, azure), TransportOptions{}, r); resp.StatusCode != http.StatusForbidden || s.n != 0 {
		t.Errorf("a provider that the context says: status %d", resp.StatusCode)
	}
	for _, bad := range []string{"", "00-short-b7ad6b7169203331-01", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331"} {
		r.Header.Set("Traceparent", bad)
		if c := identify(r); c.TraceID != "" {
			t.Errorf("traceparent %q is read as %s", bad, c.TraceID)
		}
	}
}

func TestShape(t *testing.T) {
	f := func(url, provider, kind string) {
		t.Helper()
		r := httptest.NewRequest(http.MethodPost, url, nil)
		if s := shapeOf(r); s != (apiShape{provider, kind}) {
			t.Errorf("%s: %+v", url, s)
		}
	}
	f("https://api.openai.com/v1/chat/completions", "openai", "openai")
	f("https://api.openai.com/v1/responses", "openai", "openai")
	f("https://r.openai.azure.com/openai/deployments/d/chat/completions?api-version=1", "azure", "openai")
	f("https://api.groq.com/openai/v1/chat/completions", "groq", "openai")
	f("https://notgroq.com/v1/chat/completions", "openai", "openai")
	f("https://api.anthropic.com/v1/messages", "anthropic", "anthropic")
	f("https://api.deepseek.com/anthropic/v1/messages", "deepseek", "anthropic")
	f("https://generativelanguage.googleapis.com/v1beta/models/g:streamGenerateContent?alt=sse", "google", "gemini")
	f("https://generativelanguage.googleapis.com/v1beta/models/g:embedContent", "google", "gemini")
	f("https://generativelanguage.googleapis.com/v1beta/models/g:batchEmbedContents", "google", "gemini")
}

func TestMaxOutput(t *testing.T) {
	f := func(body string, want uint64) {
		t.Helper()
		if got := maxOutput([]byte(body)); got != want {
			t.Errorf("%s: %d, want %d", body, got, want)
		}
	}
	f(`{"max_tokens":100}`, 100)
	f(`{"max_completion_tokens":200,"max_tokens":100}`, 200)
	f(`{"max_output_tokens":300,"n":null}`, 300)
	f(`{"max_tokens":100,"Max_Tokens":1}`, 100)
	f(`{"max_tokens":99.5,"model":1}`, 100)
	f(`{"max_tokens":100,"n":4}`, 400)
	f(`{"max_tokens":100,"n":1e9}`, 100_000)
	f(`{"max_tokens":"100"}`, 0)
	f(`{"max_tokens":-1}`, 0)
	f(`{"max_tokens":1e300}`, 0)
	f(`{"generationConfig":{"maxOutputTokens":64,"candidateCount":2}}`, 128)
	f(`{"generation_config":{"max_output_tokens":64}}`, 64)
	f(`{"generationConfig":null}`, 0)
	f(`[]`, 0)
}

// TestGetBody lets an HTTP client follow a redirect, and retry on a connection that
// died, with the body that was rewritten.
func TestGetBody(t *testing.T) {
	var bodies []string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		bodies = append(bodies, r.URL.Path+" "+string(b))
		if r.URL.Path == "/v1/chat/completions" {
			http.Redirect(w, r, "/eu/v1/chat/completions", http.StatusPermanentRedirect)
		}
	}))
	defer srv.Close()
	c := &http.Client{Transport: guarded(t, cheaper).Transport(TransportOptions{})}
	resp, err := c.Post(srv.URL+"/v1/chat/completions", "application/json", strings.NewReader(`{"model":"m-5"}`))
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	want := []string{`/v1/chat/completions {"model":"m-5-mini"}`, `/eu/v1/chat/completions {"model":"m-5-mini"}`}
	if fmt.Sprint(bodies) != fmt.Sprint(want) {
		t.Errorf("received %v", bodies)
	}
	base := roundTrip(func(r *http.Request) (*http.Response, error) {
		for range 3 { // as http.Transport does for each attempt
			rc, err := r.GetBody()
			if err != nil {
				return nil, err
			}
			if b, _ := io.ReadAll(rc); string(b) != `{"model":"m-5-mini"}` {
				t.Errorf("GetBody has %s", b)
			}
		}
		return nil, io.ErrUnexpectedEOF
	})
	if _, err := guarded(t, cheaper).Transport(TransportOptions{Base: base}).RoundTrip(post("/v1/chat/completions", `{"model":"m-5"}`)); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("the base's error became %v", err)
	}
}

// TestRefusal has the answers that clients see.
func TestRefusal(t *testing.T) {
	f := func(what string, s directive.State, want int, kind, guard, retryAfter, shouldRetry string) {
		t.Helper()
		l := guarded(t)
		s.Digest = ""
		if err := l.set.Replace(&s); err != nil {
			t.Fatal(err)
		}
		resp, at := through(t, l, TransportOptions{}, post("/v1/chat/completions", `{"model":"m-5"}`))
		b, _ := io.ReadAll(resp.Body)
		var p struct {
			Type, Detail, Guard, Outcome string
			Status                       int
			Error                        struct{ Type, Code, Message string }
		}
		if err := json.Unmarshal(b, &p); err != nil {
			t.Fatalf("%s: %v: %s", what, err, b)
		}
		if at.n != 0 || resp.StatusCode != want || p.Status != want || p.Type != "urn:flyball:problem:"+kind || p.Guard != guard || p.Detail == "" || p.Error.Message != p.Detail || p.Error.Type != "flyball_"+strings.ReplaceAll(kind, "-", "_") {
			t.Errorf("%s: %s, sent %d: %s", what, resp.Status, at.n, b)
		}
		h := resp.Header
		if h.Get("Retry-After") != retryAfter || h.Get("X-Should-Retry") != shouldRetry || h.Get("Content-Type") != "application/problem+json" || resp.ContentLength != int64(len(b)) {
			t.Errorf("%s: headers %v", what, h)
		}
		if (h.Get("RateLimit") != "") != (retryAfter != "") {
			t.Errorf("%s: RateLimit is %q", what, h.Get("RateLimit"))
		}
	}
	soft := func(left time.Duration) directive.State {
		return state(1, directive.Directive{ID: "s", Guard: "soft", Action: directive.SoftBlock, Reason: "used up", Outcome: "pause", Expires: time.Now().Add(left)})
	}
	f("terminated", state(1, directive.Directive{ID: "t", Guard: "task", Action: directive.Terminate, Reason: "used up", Expires: time.Now().Add(time.Second)}), 403, "budget-exceeded", "task", "", "false")
	f("until tomorrow", soft(time.Hour), 403, "budget-exceeded", "soft", "", "false")
	f("for half a minute", soft(29500*time.Millisecond), 429, "budget-exceeded", "soft", "30", "false")
	f("parked", state(1, directive.Directive{ID: "l", Guard: "light", Action: directive.Throttle, Park: []string{"standard"}, Reason: "red"}), 429, "budget-exceeded", "light", "60", "false")
	killed := state(1)
	killed.Kill = directive.Kill{On: true, Reason: "test"}
	f("killed", killed, 403, "kill-switch", "kill", "", "false")
	old := state(1)
	old.ValidUntil = time.Now().Add(-time.Second)
	f("stale", old, 503, "governor-unavailable", "unknown", "5", "")
}

// TestStoppedWhileWaiting asks again when a throttle's wait is over.
func TestStoppedWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := guarded(t, directive.Directive{ID: "slow", Guard: "g", Action: directive.Throttle, IntervalMS: 1000})
		n := 0
		rt := l.Transport(TransportOptions{Base: roundTrip(func(r *http.Request) (*http.Response, error) {
			n++
			return &http.Response{StatusCode: 200, Header: http.Header{}, Body: http.NoBody}, nil
		})})
		send := func(ctx context.Context) (int, error) {
			resp, err := rt.RoundTrip(post("/v1/chat/completions", `{"model":"m-5"}`).WithContext(ctx))
			if err != nil {
				return 0, err
			}
			return resp.StatusCode, nil
		}
		if s, err := send(t.Context()); s != 200 || err != nil {
			t.Fatalf("%d %v", s, err)
		}
		go func() {
			time.Sleep(500 * time.Millisecond)
			if err := l.set.Apply(&directive.Change{Version: directive.Version{Epoch: 1, Revision: 2}, From: directive.Version{Epoch: 1, Revision: 1}, ValidUntil: time.Now().Add(time.Hour), Kill: &directive.Kill{On: true}}); err != nil {
				t.Error(err)
			}
		}()
		if s, err := send(t.Context()); s != http.StatusForbidden || err != nil || n != 1 {
			t.Errorf("killed while it waited: %d %v, sent %d", s, err, n)
		}
	})
}

// service answers reservations as a test says and notes how they end.
func service(t *testing.T, reserve http.HandlerFunc) (*Limiter, chan string) {
	t.Helper()
	srv := newFeed(t, says(""))
	ends := make(chan string, 100)
	srv.reply["/api/v1/reserve"] = reserve
	for _, what := range []string{"settle", "release"} {
		srv.reply["/api/v1/leases/x.y/"+what] = func(w http.ResponseWriter, r *http.Request) {
			b, _ := io.ReadAll(r.Body)
			ends <- what + " " + string(b)
			_, _ = io.WriteString(w, "{}")
		}
	}
	l, err := New(Options{URL: srv.srv.URL})
	if err != nil {
		t.Fatal(err)
	}
	s := state(1)
	if err := l.set.Replace(&s); err != nil {
		t.Fatal(err)
	}
	return l, ends
}

func grant(w http.ResponseWriter, _ *http.Request) {
	_, _ = io.WriteString(w, `{"decision":"allow","lease":"x.y","reserved_usd":"0.01"}`)
}

func ended(t *testing.T, ends chan string, want string) {
	t.Helper()
	select {
	case got := <-ends:
		if !strings.HasPrefix(got, want) {
			t.Errorf("the lease ended by %s, want %s", got, want)
		}
	case <-time.After(10 * time.Second):
		t.Errorf("the lease did not end, want %s", want)
	}
}

// TestLease has what becomes of a lease, and of a call whose lease is not to be had.
func TestLease(t *testing.T) {
	answers := func(status int, h http.Header, body io.Reader) http.RoundTripper {
		return roundTrip(func(r *http.Request) (*http.Response, error) {
			if r.Header.Get("Accept-Encoding") != "identity" {
				t.Errorf("the answer may come compressed: %v", r.Header)
			}
			return &http.Response{StatusCode: status, Header: h, Body: io.NopCloser(body)}, nil
		})
	}
	send := func(l *Limiter, base http.RoundTripper, r *http.Request) (int, error) {
		resp, err := l.Transport(TransportOptions{Base: base, Lease: true}).RoundTrip(r)
		if err != nil {
			return 0, err
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		return resp.StatusCode, nil
	}
	never := roundTrip(func(*http.Request) (*http.Response, error) { t.Error("sent"); return nil, errors.New("sent") })
	chat := func() *http.Request {
		r := post("/v1/chat/completions", `{"model":"m-5","max_tokens":10}`)
		r.Header.Set("Accept-Encoding", "gzip, br")
		return r
	}
	var asked Call
	l, ends := service(t, func(w http.ResponseWriter, r *http.Request) {
		_ = json.NewDecoder(r.Body).Decode(&asked)
		grant(w, r)
	})
	json200 := http.Header{"Content-Type": {"application/json"}}
	if s, err := send(l, answers(200, json200, strings.NewReader(`{"id":"r-1","model":"m-5-x","usage":{"prompt_tokens":3,"completion_tokens":4}}`)), chat()); s != 200 || err != nil {
		t.Errorf("%d %v", s, err)
	}
	ended(t, ends, `settle {"tokens":{"input":3,"output":4},"model":"m-5-x","provider":"openai","response_id":"r-1"}`)
	if asked.Model != "m-5" || asked.MaxOutputTokens != 10 || asked.InputTokens < 10 {
		t.Errorf("reserved for %+v", asked)
	}
	if s, err := send(l, answers(500, json200, strings.NewReader(`{"error":{}}`)), chat()); s != 500 || err != nil {
		t.Errorf("%d %v", s, err)
	}
	ended(t, ends, `settle {"provider":"openai","failed":true}`)
	if _, err := send(l, roundTrip(func(*http.Request) (*http.Response, error) { return nil, io.ErrUnexpectedEOF }), chat()); err == nil {
		t.Error("no error")
	}
	ended(t, ends, `settle {}`) // it may have been sent
	dead := httptest.NewServer(http.NotFoundHandler())
	dead.Close()
	r := chat()
	r.URL.Host = strings.TrimPrefix(dead.URL, "http://")
	if _, err := send(l, http.DefaultTransport, r); err == nil {
		t.Error("no error")
	}
	ended(t, ends, `release`) // nobody was there
	// What costs nothing needs no lease.
	plain := roundTrip(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 200, Header: http.Header{}, Body: http.NoBody}, nil
	})
	get, _ := http.NewRequest(http.MethodGet, "http://provider.test/v1/models", nil)
	for _, r := range []*http.Request{get, post("/v1/messages/count_tokens", `{"model":"m-5"}`), post("/v1beta/models/g:countTokens", `{}`)} {
		if s, err := send(l, plain, r); s != 200 || err != nil {
			t.Errorf("%s: %d %v", r.URL, s, err)
		}
	}
	select {
	case got := <-ends:
		t.Errorf("a lease for nothing: %s", got)
	case <-time.After(50 * time.Millisecond):
	}

	l, _ = service(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"decision":"deny","guard":"cap","reason":"used up","revision":"1.1"}`)
	})
	if s, err := send(l, never, chat()); s != 403 || err != nil {
		t.Errorf("denied: %d %v", s, err)
	}
	// The service does not take the call, e.g. since a name is too long: it is not made
	// beside every budget.
	l, _ = service(t, func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, `{"detail":"too long"}`, http.StatusBadRequest)
	})
	if s, err := send(l, never, chat()); s != 403 || err != nil {
		t.Errorf("not taken: %d %v", s, err)
	}
	// Nor is it made where its key has more leases open than it may: it may come again.
	l, _ = service(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "5")
		http.Error(w, `{"detail":"too many leases"}`, http.StatusTooManyRequests)
	})
	if s, err := send(l, never, chat()); s != 429 || err != nil {
		t.Errorf("too many leases: %d %v", s, err)
	}
	// The service is away, or does not know the key: the set, which is fresh, admits.
	for _, status := range []int{http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusUnauthorized} {
		l, _ = service(t, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "{}", status) })
		if s, err := send(l, plain, chat()); s != 200 || err != nil {
			t.Errorf("the service answers %d: %d %v", status, s, err)
		}
	}
	// So it does for who never had a set and is told to admit then.
	lone, err := New(Options{URL: "http://127.0.0.1:1", WhenUnknown: directive.WhenUnknown{Standard: "open"}})
	if err != nil {
		t.Fatal(err)
	}
	if s, err := send(lone, plain, chat()); s != 200 || err != nil {
		t.Errorf("never connected, open: %d %v", s, err)
	}
	// A downgrade that only the service knows of, and a throttle.
	l, ends = service(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"decision":"downgrade","model":"m-5-mini","guard":"cap","lease":"x.y","revision":"1.1"}`)
	})
	if s, err := send(l, roundTrip(func(r *http.Request) (*http.Response, error) {
		if b, _ := io.ReadAll(r.Body); !bytes.Contains(b, []byte(`"m-5-mini"`)) {
			t.Errorf("sent %s", b)
		}
		return &http.Response{StatusCode: 200, Header: http.Header{}, Body: http.NoBody}, nil
	}), chat()); s != 200 || err != nil {
		t.Errorf("downgraded: %d %v", s, err)
	}
	ended(t, ends, "settle")
	l, ends = service(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"decision":"wait","wait_ms":80,"guard":"cap","lease":"x.y","revision":"1.1"}`)
	})
	from := time.Now()
	if s, err := send(l, plain, chat()); s != 200 || err != nil || time.Since(from) < 80*time.Millisecond {
		t.Errorf("throttled: %d %v after %s", s, err, time.Since(from))
	}
	ended(t, ends, "settle")
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	if _, err := send(l, never, chat().WithContext(ctx)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("left while it waited: %v", err)
	}
	ended(t, ends, "release")
	// A model that cannot be put in gives the lease back.
	l, ends = service(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"decision":"downgrade","model":"m-5-mini","lease":"x.y","revision":"1.1"}`)
	})
	resp, err := l.Transport(TransportOptions{Base: never, Lease: true, BodyLimit: 5}).RoundTrip(chat())
	if err != nil || resp.StatusCode != 403 {
		t.Errorf("too large to be changed: %v %v", resp, err)
	}
	ended(t, ends, "release")
}

// TestHeadroomOfModelUsed books what is left to the model that was called.
func TestHeadroomOfModelUsed(t *testing.T) {
	l := guarded(t, cheaper)
	h := http.Header{}
	h.Set("X-Ratelimit-Limit-Requests", "100")
	h.Set("X-Ratelimit-Remaining-Requests", "7")
	_, err := l.Transport(TransportOptions{Base: roundTrip(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 200, Header: h, Body: http.NoBody}, nil
	})}).RoundTrip(post("/v1/chat/completions", `{"model":"m-5"}`))
	if err != nil {
		t.Fatal(err)
	}
	if r := l.rooms["openai|m-5-mini|requests"]; r.Remaining != 7 || len(l.rooms) != 1 {
		t.Errorf("rooms %v", l.rooms)
	}
}

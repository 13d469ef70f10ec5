package envoy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	limitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/flyball/flyball/enforce/directive"
	"github.com/flyball/flyball/schema"
)

// TestEnvoy runs the configuration of DESIGN.md through a real Envoy, so that the
// page cannot promise what Envoy does not do.
func TestEnvoy(t *testing.T) {
	if testing.Short() {
		t.Skip("starts an Envoy")
	}
	path, err := exec.Command("./envoy.sh").Output()
	if err != nil {
		why := err.Error()
		if e := (*exec.ExitError)(nil); errors.As(err, &e) {
			why = string(e.Stderr)
		}
		t.Skipf("no Envoy to be had: %s", why)
	}

	// A child told to die with its parent dies with the thread that started it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	f := newFixture(t, "gateway", "t-1", "t-2")
	between := relayTo(t, f)
	var frontier, small atomic.Int64
	var seen atomic.Value // headers of the last request that came through
	upstream := func(n *atomic.Int64) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			n.Add(1)
			seen.Store(r.Header.Clone())
			io.Copy(io.Discard, r.Body)
			w.Header().Set("X-Input-Tokens", "1760")
			w.Header().Set("X-Output-Tokens", "900")
			io.WriteString(w, "answer")
		}))
		t.Cleanup(s.Close)
		_, port, _ := net.SplitHostPort(s.Listener.Addr().String())
		return port
	}
	page, err := os.ReadFile("DESIGN.md")
	if err != nil {
		t.Fatal(err)
	}
	_, config, found := strings.Cut(string(page), "```yaml\n")
	config, _, closed := strings.Cut(config, "```\n")
	if !found || !closed {
		t.Fatal("DESIGN.md has no YAML block")
	}
	_, flyball, _ := net.SplitHostPort(between.addr)
	for from, to := range map[string]string{"8000": "0", "9901": "0", "8081": flyball, "9001": upstream(&frontier), "9002": upstream(&small)} {
		old := "port_value: " + from + "}"
		if strings.Count(config, old) != 1 {
			t.Fatalf("DESIGN.md has not one %q", old)
		}
		config = strings.Replace(config, old, "port_value: "+to+"}", 1)
	}
	config = strings.ReplaceAll(config, "fb_gateway", f.secret("gateway"))
	// What the page leaves to Envoy Gateway: a limit out of what ext_authz answered.
	const question = "- hits_addend: {number: 0}"
	if strings.Count(config, question) != 1 {
		t.Fatalf("DESIGN.md has not one %q", question)
	}
	config = strings.Replace(config, question, "- limit: {dynamic_metadata: {metadata_key: {key: envoy.filters.http.ext_authz, path: [{key: limit}]}}}\n                          hits_addend: {number: 0}", 1)

	dir := t.TempDir()
	name, adminPath := filepath.Join(dir, "envoy.yaml"), filepath.Join(dir, "admin")
	if err := os.WriteFile(name, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	var logs bytes.Buffer
	cmd := exec.Command(strings.TrimSpace(string(path)), "-c", name, "--admin-address-path", adminPath, "--concurrency", "1", "--use-dynamic-base-id", "-l", "warning")
	cmd.Stderr = &logs
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		if t.Failed() {
			t.Logf("Envoy said:\n%s", logs.String())
		}
	})
	gateway := ""
	until(t, 30*time.Second, "Envoy listens", func() bool {
		admin, err := os.ReadFile(adminPath)
		if err != nil || len(admin) == 0 {
			return false
		}
		r, err := http.Get("http://" + string(admin) + "/listeners?format=json")
		if err != nil {
			return false
		}
		defer r.Body.Close()
		var list struct {
			Statuses []struct {
				Address struct {
					Socket struct {
						Port int `json:"port_value"`
					} `json:"socket_address"`
				} `json:"local_address"`
			} `json:"listener_statuses"`
		}
		if json.NewDecoder(r.Body).Decode(&list) != nil || len(list.Statuses) == 0 || list.Statuses[0].Address.Socket.Port == 0 {
			return false
		}
		gateway = fmt.Sprintf("http://127.0.0.1:%d/v1/chat/completions", list.Statuses[0].Address.Socket.Port)
		return true
	})

	call := func(headers ...string) (*http.Response, string) {
		t.Helper()
		f.forget()
		r, err := http.NewRequest("POST", gateway, strings.NewReader(`{"model":"m-5","max_tokens":900,"messages":[{"role":"user","content":"hi"}]}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
		for i := 0; i < len(headers); i += 2 {
			r.Header.Add(headers[i], headers[i+1])
		}
		client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
		resp, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp, string(b)
	}

	t.Run("admits and charges", func(t *testing.T) {
		f.budget(&Budget{LimitCents: 10_000, LeftCents: 2_500, ResetIn: time.Hour, Window: 24 * time.Hour, Name: "user-day"})
		defer f.budget(nil)
		r, body := call("X-Tenant-Id", "t-1", "X-User-Id", "u-1", "X-Flyball-Tier", "small", "X-Flyball-Model", "forged")
		if r.StatusCode != 200 || body != "answer" {
			t.Fatalf("answer %d %q", r.StatusCode, body)
		}
		if n := small.Load(); n != 0 {
			t.Error("a client chose its tier with a forged header")
		}
		if h := seen.Load().(http.Header); h.Get("X-Flyball-Tier") != "" || h.Get("X-Flyball-Model") != "" {
			t.Errorf("forged headers reached the model: %v", h)
		}
		if got := r.Header.Get("X-Ratelimit-Remaining"); got != "2500" {
			t.Errorf("x-ratelimit-remaining is %q, want 2500 cents", got)
		}
		if got := between.limit.Load(); got.GetRequestsPerUnit() != 10_000 || got.GetUnit() != typev3.RateLimitUnit_DAY {
			t.Errorf("Envoy read the limit of the metadata as %v", got)
		}
		until(t, 5*time.Second, "the charge", func() bool { return len(f.charged()) == 1 })
		got := f.charged()[0]
		if got.call.Tenant != "t-1" || got.call.User != "u-1" || got.call.TraceID != "0af7651916cd43dd8448eb211c80319c" || got.usage.Tokens["input"] != 1760 || got.usage.Tokens["output"] != 900 || got.key != "gateway" {
			t.Errorf("charge %+v", got)
		}
		asked := f.asked()
		if asked.Model != "m-5" || asked.MaxOutputTokens != 900 {
			t.Errorf("the call was read as %+v", asked)
		}
	})
	t.Run("downgrade", func(t *testing.T) {
		f.set(t, directive.Directive{ID: "d", Guard: "feature-month", Action: directive.Downgrade, Scope: scope("tenant", "t-1"), Models: map[string]string{"m-5": "m-5-mini"}, Tier: "small", Reason: "over 100%"})
		r, _ := call("X-Tenant-Id", "t-1", "X-Flyball-Tier", "frontier")
		if r.StatusCode != 200 || small.Load() != 1 {
			t.Fatalf("status %d, the small backend had %d requests", r.StatusCode, small.Load())
		}
		h := seen.Load().(http.Header)
		if got := h.Values("X-Flyball-Tier"); len(got) != 1 || got[0] != "small" {
			t.Errorf("tier %q", got)
		}
		if got := h.Values("X-Flyball-Model"); len(got) != 1 || got[0] != "m-5-mini" {
			t.Errorf("model %q", got)
		}
	})
	refused := func(name string, status int, contentType, kind string, want map[string]string, headers ...string) {
		t.Run(name, func(t *testing.T) {
			before := frontier.Load() + small.Load()
			r, body := call(headers...)
			if r.StatusCode != status || r.Header.Get("Content-Type") != contentType || !strings.Contains(body, kind) {
				t.Errorf("answer %d %s %s\n%v", r.StatusCode, r.Header.Get("Content-Type"), body, r.Header)
			}
			for k, v := range want {
				if got := strings.Join(r.Header.Values(k), "|"); got != v {
					t.Errorf("%s is %q, want %q", k, got, v)
				}
			}
			if frontier.Load()+small.Load() != before {
				t.Error("the call reached a model")
			}
		})
	}
	const problemJSON = "application/problem+json"
	f.set(t, directive.Directive{ID: "d", Guard: "user-day", Action: directive.SoftBlock, Scope: scope("tenant", "t-1", "user", "u-1"), Reason: "spent", Outcome: "upgrade", Expires: time.Now().Add(30 * time.Second)})
	refused("soon again", 429, problemJSON, "quota-exceeded", map[string]string{"X-Should-Retry": "false", "Retry-After": "30", "Ratelimit": `"user-day";r=0;t=30`}, "X-Tenant-Id", "t-1", "X-User-Id", "u-1")
	f.set(t, directive.Directive{ID: "d", Guard: "user-day", Action: directive.SoftBlock, Scope: scope("tenant", "t-1", "user", "u-1"), Reason: "spent", Expires: time.Now().Add(time.Hour)})
	refused("not soon", 403, problemJSON, "problem:budget", map[string]string{"X-Should-Retry": "false", "Retry-After": "", "Ratelimit": ""}, "X-Tenant-Id", "t-1", "X-User-Id", "u-1")
	refused("foreign tenant", 403, problemJSON, "problem:tenant", map[string]string{"X-Should-Retry": "false"}, "X-Tenant-Id", "t-9")
	f.set(t)
	f.budget(&Budget{LimitCents: 500, ResetIn: time.Hour, Window: time.Hour, Name: "tenant-hour"})
	refused("budget over the rate limit service", 429, problemJSON, "problem:budget", map[string]string{"X-Should-Retry": "false", "Retry-After": ""}, "X-Tenant-Id", "t-1")
	f.budget(nil)
	f.kill(t, true)
	refused("kill", 403, problemJSON, "problem:kill", map[string]string{"X-Should-Retry": "false", "Retry-After": ""}, "X-Tenant-Id", "t-1")
	f.kill(t, false)

	t.Run("an own failure follows the failure mode", func(t *testing.T) {
		f.fail(errors.New("store is away"))
		defer f.fail(nil)
		if r, body := call("X-Tenant-Id", "t-1"); r.StatusCode != 200 {
			t.Errorf("answer %d %s", r.StatusCode, body)
		}
	})
	t.Run("a key that is withdrawn", func(t *testing.T) {
		f.mu.Lock()
		ring := f.ring
		f.ring, _ = schema.NewKeyring([]schema.Key{{Name: "other", SHA256: strings.Repeat("a", 64), Role: schema.KeyLimiter, Tenant: "t-1"}})
		f.mu.Unlock()
		// Envoy takes it for a failure like any other, so that this is the failure mode.
		if r, body := call("X-Tenant-Id", "t-1"); r.StatusCode != 200 || len(f.calls) != 0 {
			t.Errorf("answer %d %s", r.StatusCode, body)
		}
		if n := f.counter(t, "flyball_envoy_requests_total", "unauthenticated", "ext_authz"); n != 1 {
			t.Errorf("%v requests without a key were counted", n)
		}
		f.mu.Lock()
		f.ring = ring
		f.mu.Unlock()
	})
	t.Run("a huge header", func(t *testing.T) {
		if r, body := call("X-Tenant-Id", "t-1", "X-User-Id", strings.Repeat("u", 2000)); r.StatusCode != 400 || !strings.Contains(body, "1,024") {
			t.Errorf("answer %d %s", r.StatusCode, body)
		}
	})
	t.Run("bytes that are no UTF-8", func(t *testing.T) {
		if r, body := call("X-Tenant-Id", "t-1", "X-User-Id", "\xff\xfe"); r.StatusCode != 200 || f.asked().User != "!!" {
			t.Errorf("answer %d %s, user %q", r.StatusCode, body, f.asked().User)
		}
	})
}

// relay passes requests on and remembers the limit that a gateway asked for.
type relay struct {
	f     *fixture
	addr  string
	limit atomic.Pointer[limitv3.RateLimitDescriptor_RateLimitOverride]
}

func relayTo(t *testing.T, f *fixture) *relay {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{f: f, addr: l.Addr().String()}
	s := grpc.NewServer()
	authv3.RegisterAuthorizationServer(s, r)
	rlsv3.RegisterRateLimitServiceServer(s, r)
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		<-done
	})
	return r
}

func through(ctx context.Context) context.Context {
	md, _ := metadata.FromIncomingContext(ctx)
	return metadata.AppendToOutgoingContext(ctx, "authorization", strings.Join(md.Get("authorization"), ","))
}

func (r *relay) Check(ctx context.Context, q *authv3.CheckRequest) (*authv3.CheckResponse, error) {
	return r.f.auth.Check(through(ctx), q)
}

func (r *relay) ShouldRateLimit(ctx context.Context, q *rlsv3.RateLimitRequest) (*rlsv3.RateLimitResponse, error) {
	if l := q.GetDescriptors()[0].GetLimit(); l != nil {
		r.limit.Store(l)
	}
	return r.f.rls.ShouldRateLimit(through(ctx), q)
}

package app

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/flyball/flyball/schema"
)

// as sends a request with a key and returns status and body.
func (s *service) as(secret, method, path string, body any) (int, string) {
	s.t.Helper()
	var rd io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			s.t.Fatal(err)
		}
		rd = bytes.NewReader(b)
	}
	r, err := http.NewRequest(method, s.url("http", "/api/v1"+path), rd)
	if err != nil {
		s.t.Fatal(err)
	}
	if secret != "" {
		r.Header.Set("Authorization", "Bearer "+secret)
	}
	r.Header.Set("Content-Type", "application/json")
	res, err := client.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return res.StatusCode, string(text)
}

// TestEnforcementAccess says who may do what: a limiter of one tenant sees and asks
// for that tenant alone, nobody but an org admin changes anything, and what the
// service did not sign is nothing.
func TestEnforcementAccess(t *testing.T) {
	secrets := map[string]string{}
	var keys []string
	for _, k := range []struct{ name, role, tenants string }{{"lim-1", "limiter", `["t-1"]`}, {"lim-2", "limiter", `["t-2"]`}, {"reader", "read", `["t-1"]`}, {"boss-1", "admin", `["t-1"]`}, {"boss", "admin", `"*"`}, {"sender", "ingest", `["t-1"]`}} {
		secret, sum := schema.NewSecret()
		secrets[k.name] = secret
		tenant := ""
		if k.role == "ingest" {
			tenant = `"tenant":"t-1",`
		}
		keys = append(keys, fmt.Sprintf(`{"name":%q,"sha256":%q,"role":%q,%s"tenants":%s}`, k.name, sum, k.role, tenant, k.tenants))
	}
	s := newService(t, "", append(withPolicy(t, `
guards:
  - {name: none, scope: [tenant], match: {tenant: t-2}, measure: cost, window: day, limit: "0", ladder: [{at: 100%, do: soft_block}], outcome: pause}
  - {name: cap, scope: [tenant], measure: cost, window: day, limit: "10", ladder: [{at: 100%, do: soft_block}], outcome: pause}
`), "FLYBALL_KEYS=["+strings.Join(keys, ",")+"]", "FLYBALL_LIMITS__SETTLE=300ms")...)
	s.start()
	f := func(who, method, path string, body any, want int) string {
		t.Helper()
		code, text := s.as(secrets[who], method, path, body)
		if code != want {
			t.Errorf("%s %s %s: %d, want %d: %s", who, method, path, code, want, text)
		}
		if code >= 400 && !strings.Contains(text, "detail") {
			t.Errorf("%s %s %s: no problem+json: %s", who, method, path, text)
		}
		return text
	}
	call := func(tenant string) map[string]any {
		return map[string]any{"tenant": tenant, "model": "m-1", "input_tokens": 10, "max_output_tokens": 10}
	}
	// Nobody without a key, and a wrong one is none.
	f("", "GET", "/guards", nil, 401)
	secrets["forged"] = "fb_" + strings.Repeat("0", 64)
	f("forged", "GET", "/directives", nil, 401)
	// Roles.
	f("sender", "GET", "/directives", nil, 403)
	f("reader", "POST", "/check", call("t-1"), 403)
	f("reader", "POST", "/reserve", call("t-1"), 403)
	f("reader", "GET", "/guards", nil, 200)
	f("lim-1", "POST", "/kill", map[string]any{"state": "on", "reason": "x"}, 403)
	f("boss-1", "POST", "/kill", map[string]any{"state": "on", "reason": "x"}, 403)
	f("boss-1", "POST", "/policy", map[string]any{"text": "guards: []", "reason": "x"}, 403)
	f("lim-1", "POST", "/guards/release", map[string]any{"id": "x", "reason": "x"}, 403)
	f("lim-1", "GET", "/limiters", nil, 403)
	f("boss", "GET", "/limiters", nil, 200)
	// Tenants.
	f("lim-1", "POST", "/check", call("t-1"), 200)
	f("lim-1", "POST", "/check", call("t-2"), 403)
	f("lim-1", "POST", "/reserve", call("t-2"), 403)
	f("lim-1", "POST", "/reserve", map[string]any{"plan": []any{call("t-1"), call("t-2")}}, 403)
	f("lim-1", "GET", "/budgets?tenant=t-2", nil, 403)
	if a := f("lim-2", "POST", "/check", call("t-2"), 200); !strings.Contains(a, `"deny"`) {
		t.Errorf("the guard of t-2 does not act on it: %s", a)
	}
	// Leases: only who took one may settle it, and only what was signed is one.
	var lease struct{ Lease string }
	if err := json.Unmarshal([]byte(f("lim-1", "POST", "/reserve", call("t-1"), 200)), &lease); err != nil || lease.Lease == "" {
		t.Fatal("no lease: ", err)
	}
	f("lim-2", "POST", "/leases/"+lease.Lease+"/settle", map[string]any{"tokens": map[string]int{"input": 1}}, 403)
	f("lim-1", "POST", "/leases/"+lease.Lease+"0/settle", map[string]any{}, 403)
	f("lim-1", "POST", "/leases/x/settle", map[string]any{}, 403)
	f("lim-1", "POST", "/leases/"+lease.Lease+"/settle", map[string]any{"tokens": map[string]int{"inputs": 1}}, 400)
	f("lim-1", "POST", "/leases/"+lease.Lease+"/settle", map[string]any{"tokens": map[string]int{"input": 1}}, 200)
	f("lim-1", "POST", "/leases/"+lease.Lease+"/heartbeat", map[string]any{}, 410)
	// Acknowledgements: signed versions only, and an id belongs to its first key.
	var set struct {
		Epoch, Revision uint64
		Token           string
		Directives      []map[string]any
	}
	if err := json.Unmarshal([]byte(f("lim-1", "GET", "/directives", nil, 200)), &set); err != nil {
		t.Fatal(err)
	}
	ack := map[string]any{"epoch": set.Epoch, "revision": set.Revision, "token": set.Token}
	f("lim-1", "POST", "/limiters/l/ack", ack, 204)
	f("lim-2", "POST", "/limiters/l/ack", ack, 403)
	ack["revision"] = set.Revision + 5
	f("lim-1", "POST", "/limiters/l/ack", ack, 400)
	f("reader", "POST", "/limiters/l/ack", ack, 403)
	// Bad input says what to do.
	f("lim-1", "POST", "/check", map[string]any{"tenat": "t-1"}, 400)
	f("lim-1", "POST", "/check", map[string]any{"tenant": "t-1", "user": strings.Repeat("x", 2000)}, 400)
	f("lim-1", "GET", "/budgets?colour=red", nil, 400)
	f("lim-1", "POST", "/limiters/l/headroom", map[string]any{"headroom": []any{map[string]any{"provider": "openai", "limit": -1}}}, 400)
	f("boss", "POST", "/kill", map[string]any{"state": "off", "reason": "x", "stage": 50}, 400)
	f("boss", "POST", "/kill", map[string]any{"state": "on", "reason": "x", "stage": 101}, 400)
}

// TestForeignPages: without keys a page of another site changes nothing, whatever its
// name resolves to.
func TestForeignPages(t *testing.T) {
	s := newService(t, "", withPolicy(t, "guards: []\n")...)
	s.start()
	f := func(what string, change func(*http.Request), want int) {
		t.Helper()
		r, err := http.NewRequest(http.MethodPost, s.url("http", "/api/v1/kill"), strings.NewReader(`{"state":"on","reason":"x"}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		change(r)
		res, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != want {
			t.Errorf("%s: %s, want %d", what, res.Status, want)
		}
	}
	f("a form", func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") }, 415)
	f("a foreign origin", func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") }, 403)
	f("a name that resolves here", func(r *http.Request) { r.Host = "evil.example" }, 401)
	f("its own page", func(r *http.Request) { r.Header.Set("Origin", s.url("http", "")) }, 200)
}

// TestBoundKey: a key that is bound to a user and a feature speaks for no other, in
// spans and in checks; and rate limits on spans turn no light unless their sender is
// one for every tenant.
func TestBoundKey(t *testing.T) {
	secret := map[string]string{}
	var keys []string
	for name, rest := range map[string]string{"bound": "role: ingest, tenant: acme, bind: {user: u-1, feature: checkout}", "asks": "role: limiter, tenant: acme, bind: {user: u-1}", "all": `role: admin, tenants: "*"`} {
		secret[name] = "fb_" + name + strings.Repeat("x", 40)
		sum := sha256.Sum256([]byte(secret[name]))
		keys = append(keys, fmt.Sprintf(`{name: %s, sha256: "%s", %s}`, name, hex.EncodeToString(sum[:]), rest))
	}
	env := append(withPolicy(t, `
guards:
  - {name: user, scope: [tenant, user], measure: cost, window: month, limit: "0.001", ladder: [{at: 100%, do: soft_block}], outcome: pause}
light: {green: 40%, red: 10%}
`), "FLYBALL_KEYS=["+strings.Join(keys, ", ")+"]")
	s := newService(t, "", env...)
	s.start()
	send := func(key string, trace uint64, user string) {
		t.Helper()
		b := newBatch()
		sp := b.chat(trace, 2, 0, 2000)
		now := pcommon.NewTimestampFromTime(time.Now())
		sp.SetStartTimestamp(now)
		sp.SetEndTimestamp(now)
		sp.Attributes().PutStr("user.id", user)
		sp.Attributes().PutEmptySlice("http.response.header.x-ratelimit-limit-requests").AppendEmpty().SetStr("1000")
		sp.Attributes().PutEmptySlice("http.response.header.x-ratelimit-remaining-requests").AppendEmpty().SetStr("50")
		req, err := http.NewRequest(http.MethodPost, s.url("otlp_http", "/v1/traces"), bytes.NewReader(encode(t, b.td)))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/x-protobuf")
		req.Header.Set("Authorization", "Bearer "+secret[key])
		res, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if res.StatusCode != http.StatusOK {
			t.Fatalf("spans: %s", res.Status)
		}
	}
	send("bound", 1, "victim")
	eventually(t, "a bound key that asks about another user is denied as its own", func() bool {
		_, body := s.as(secret["asks"], http.MethodPost, "/check", map[string]any{"tenant": "acme", "user": "victim", "model": "m-1"})
		return strings.Contains(body, `"decision":"deny"`)
	})
	if _, body := s.as(secret["all"], http.MethodPost, "/check", map[string]any{"tenant": "acme", "user": "victim", "model": "m-1"}); !strings.Contains(body, `"decision":"allow"`) {
		t.Errorf("the victim: %s", body)
	}
	time.Sleep(1500 * time.Millisecond)
	if _, body := s.as(secret["all"], http.MethodGet, "/lights", nil); strings.Contains(body, "x-ratelimit") || strings.Contains(body, `"remaining":50`) {
		t.Errorf("a tenant's span turned the light: %s", body)
	}
	send("all", 2, "u-2")
	eventually(t, "the light is red", func() bool {
		_, body := s.as(secret["all"], http.MethodGet, "/lights", nil)
		return strings.Contains(body, `"color":"red"`) && strings.Contains(body, `"remaining":50`)
	})
	eventually(t, "the calls are listed under the bound user", func() bool {
		_, body := s.as(secret["all"], http.MethodGet, "/calls?tenant=acme", nil)
		return strings.Contains(body, `"user":"u-1"`) && strings.Contains(body, `"feature":"checkout"`) && !strings.Contains(body, "victim")
	})
}

package envoy

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/flyball/flyball/enforce/directive"
	"github.com/flyball/flyball/schema"
)

// request is what a gateway sends of a request with the headers.
func request(body string, extensions map[string]string, headers ...string) *authv3.CheckRequest {
	m := map[string]string{":method": "POST", ":path": "/v1/chat/completions"}
	for i := 0; i < len(headers); i += 2 {
		m[headers[i]] = headers[i+1]
	}
	return &authv3.CheckRequest{Attributes: &authv3.AttributeContext{
		ContextExtensions: extensions,
		Request:           &authv3.AttributeContext_Request{Http: &authv3.AttributeContext_HttpRequest{Headers: m, Body: body}},
	}}
}

func (f *fixture) check(t testing.TB, key string, r *authv3.CheckRequest) *authv3.CheckResponse {
	t.Helper()
	f.forget()
	out, err := f.auth.Check(f.as(t, key), r)
	if err != nil {
		t.Fatalf("check: %v", err)
	}
	return out
}

// problem is the body of a refusal and its headers.
func problem(t testing.TB, r *authv3.CheckResponse) (code int, doc map[string]any, headers map[string]string) {
	t.Helper()
	d := r.GetDeniedResponse()
	if d == nil || codes.Code(r.GetStatus().GetCode()) == codes.OK {
		t.Fatalf("not refused: %v", r)
	}
	if err := json.Unmarshal([]byte(d.GetBody()), &doc); err != nil {
		t.Fatalf("read body %q: %v", d.GetBody(), err)
	}
	headers = map[string]string{}
	for _, h := range d.GetHeaders() {
		headers[h.GetHeader().GetKey()] = h.GetHeader().GetValue()
	}
	if headers["content-type"] != "application/problem+json" {
		t.Errorf("content type %q", headers["content-type"])
	}
	code = int(d.GetStatus().GetCode())
	if doc["status"] != float64(code) {
		t.Errorf("the body says status %v, the answer %d", doc["status"], code)
	}
	return code, doc, headers
}

func TestCheckCall(t *testing.T) {
	f := newFixture(t, "gateway", "*")
	ok := func(r *authv3.CheckRequest, want directive.Call) {
		t.Helper()
		want.Key = "gateway"
		if want.Tenant == "" {
			want.Tenant = "default"
		}
		f.check(t, "gateway", r)
		if got := f.asked(); got != want {
			t.Errorf("asked about\n%+v, want\n%+v", got, want)
		}
	}
	ok(request("", nil), directive.Call{})
	ok(request("", nil, "x-tenant-id", "t-1", "x-user-id", "u", "x-feature", "f", "x-workflow", "w", "x-agent", "a", "x-run-id", "r", "x-criticality", "background", "x-model", "m-5",
		"traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
		directive.Call{Tenant: "t-1", User: "u", Feature: "f", Workflow: "w", Agent: "a", RunID: "r", Criticality: "background", Model: "m-5", TraceID: "0af7651916cd43dd8448eb211c80319c", SpanID: "b7ad6b7169203331"})
	ok(request("", nil, "x-model", "one", "x-ai-eg-model", "two"), directive.Call{Model: "two"})
	// What is asked for is what will be billed; a header that says otherwise is the client's.
	ok(request(`{"model":"m-5","max_tokens":100}`, nil, "x-model", "cheap"), directive.Call{Model: "m-5", MaxOutputTokens: 100})
	ok(request(`{"model":"m-5"}`, map[string]string{"tenant": "t-2", "model": "m-6", "x-user-id": "ops", "mode": "batch", "run": "r-1", "unknown": "x", "feature": ""}, "x-tenant-id", "t-1", "x-user-id", "u", "x-feature", "f"),
		directive.Call{Tenant: "t-2", Model: "m-6", User: "ops", Mode: "batch", RunID: "r-1", Feature: "f"})
	ok(request("", nil, "x-mode", "batch", "mode", "batch", "tenant", "t-1"), directive.Call{}) // names of fields are not headers
	ok(request("", nil, "traceparent", "00-00000000000000000000000000000000-b7ad6b7169203331-01"), directive.Call{})

	raw := &authv3.CheckRequest{Attributes: &authv3.AttributeContext{Request: &authv3.AttributeContext_Request{Http: &authv3.AttributeContext_HttpRequest{
		HeaderMap: &corev3.HeaderMap{Headers: []*corev3.HeaderValue{{Key: "X-Tenant-Id", RawValue: []byte("t-1")}, {Key: "x-user-id", RawValue: []byte("a\xff")}, {Key: "x-user-id", RawValue: []byte("b")}}},
		RawBody:   []byte(`{"model":"m-5"}`),
	}}}}
	ok(raw, directive.Call{Tenant: "t-1", User: "a!,b", Model: "m-5"})
	ok(&authv3.CheckRequest{}, directive.Call{})

	g := newFixture(t, "")
	g.check(t, "", request("", nil, "x-tenant-id", "t-1"))
	if got := g.asked(); got.Tenant != "t-1" || got.Key != "local" {
		t.Errorf("without keys asked about %+v", got)
	}
}

func TestCheckAllow(t *testing.T) {
	f := newFixture(t, "gateway", "t-1")
	f.budget(&Budget{LimitCents: 5_000_000_000, LeftCents: 1234, ResetIn: time.Hour, Window: 24 * time.Hour, Name: "tenant-day"})
	r := f.check(t, "gateway", request("", nil, "x-tenant-id", "t-1", "x-feature", "checkout", "x-flyball-tier", "small"))
	ok := r.GetOkResponse()
	if codes.Code(r.GetStatus().GetCode()) != codes.OK || ok == nil || len(ok.GetHeaders()) != 0 {
		t.Fatalf("answer %v", r)
	}
	if got := fmt.Sprint(ok.GetHeadersToRemove()); got != "[x-flyball-tier x-flyball-model]" {
		t.Errorf("removes %s", got)
	}
	want := map[string]any{"decision": "allow", "criticality": "critical", "revision": "1.1", "left_cents": 1234.0,
		"limit": map[string]any{"requests_per_unit": 4294967295.0, "unit": "DAY"}}
	if got := r.GetDynamicMetadata().AsMap(); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("metadata %v, want %v", got, want)
	}
	f.budget(&Budget{LimitCents: 5, LeftCents: 1, Window: 6 * time.Hour, Name: "six hours"})
	if got := f.check(t, "gateway", request("", nil)).GetDynamicMetadata().AsMap(); got["limit"] != nil {
		t.Errorf("a window that is none of Envoy's units became %v", got["limit"])
	}
	if n := f.counter(t, "flyball_envoy_requests_total", "allow", "ext_authz"); n != 2 {
		t.Errorf("%v requests counted", n)
	}
}

func TestCheckDowngrade(t *testing.T) {
	f := newFixture(t, "gateway", "t-1")
	d := directive.Directive{ID: "d", Guard: "feature-month", Action: directive.Downgrade, Scope: scope("tenant", "t-1"), Models: map[string]string{"*": "m-5-mini"}, Tier: "small", Outcome: "return_partial"}
	f.set(t, d)
	headers := func(r *authv3.CheckResponse) string {
		t.Helper()
		if r.GetOkResponse() == nil || r.GetStatus().GetCode() != 0 {
			t.Fatalf("answer %v", r)
		}
		var s []string
		for _, h := range r.GetOkResponse().GetHeaders() {
			if h.GetAppendAction() != corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD {
				t.Errorf("%s does not overwrite", h.GetHeader().GetKey())
			}
			s = append(s, h.GetHeader().GetKey()+"="+h.GetHeader().GetValue())
		}
		return strings.Join(s, " ") + fmt.Sprint(r.GetOkResponse().GetHeadersToRemove())
	}
	r := f.check(t, "gateway", request(`{"model":"m-5"}`, nil, "x-flyball-tier", "frontier"))
	if got := headers(r); got != "x-flyball-tier=small x-flyball-model=m-5-mini[]" {
		t.Errorf("headers %s", got)
	}
	if m := r.GetDynamicMetadata().AsMap(); m["decision"] != "downgrade" || m["guard"] != "feature-month" || m["outcome"] != "return_partial" {
		t.Errorf("metadata %v", m)
	}
	// The cheaper model needs no tier, and gets none by asking for it.
	if got := headers(f.check(t, "gateway", request(`{"model":"m-5-mini"}`, nil, "x-flyball-tier", "frontier"))); got != "[x-flyball-tier x-flyball-model]" {
		t.Errorf("headers %s", got)
	}
	d.Tier, d.Models = "", map[string]string{"m-5": "m\r\nx-evil: 1"}
	f.set(t, d)
	if got := headers(f.check(t, "gateway", request(`{"model":"m-5"}`, nil))); got != "x-flyball-tier=downgraded x-flyball-model=m__x-evil: 1[]" {
		t.Errorf("headers %q", got)
	}
}

func TestCheckDenials(t *testing.T) {
	f := newFixture(t, "gateway", "t-1")
	deny := func(name string, code int, kind string, retry string, list ...directive.Directive) (map[string]any, map[string]string) {
		t.Helper()
		f.set(t, list...)
		got, doc, headers := problem(t, f.check(t, "gateway", request(`{"model":"m-5"}`, nil, "x-user-id", "u-1", "x-run-id", "r-1")))
		if got != code || !strings.HasSuffix(doc["type"].(string), kind) || headers["retry-after"] != retry || headers["x-should-retry"] != "false" {
			t.Errorf("%s: %d %v %v, want %d %s, retry after %q", name, got, doc, headers, code, kind, retry)
		}
		if (headers["ratelimit"] != "") != (retry != "") {
			t.Errorf("%s: RateLimit %q with Retry-After %q", name, headers["ratelimit"], retry)
		}
		return doc, headers
	}
	block := directive.Directive{ID: "b", Guard: "user-day", Action: directive.SoftBlock, Scope: scope("user", "u-1"), Reason: "$5 of $5 used", Outcome: "upgrade", Expires: time.Now().Add(6 * time.Hour)}
	doc, _ := deny("hours away", 403, "problem:budget", "", block)
	if doc["detail"] != "$5 of $5 used" || doc["guard"] != "user-day" || doc["outcome"] != "upgrade" || doc["revision"] != "1.2" || doc["title"] == "" {
		t.Errorf("problem %v", doc)
	}
	block.Expires = time.Now().Add(20*time.Second - time.Millisecond)
	f.budget(&Budget{LimitCents: 500, Window: time.Minute, Name: "user-day"})
	_, headers := deny("20 s away", 429, "#quota-exceeded", "20", block)
	if headers["ratelimit"] != `"user-day";r=0;t=20` || headers["ratelimit-policy"] != `"user-day";q=500;qu="usd-cents";w=60` {
		t.Errorf("headers %v", headers)
	}
	f.budget(nil)
	block.Expires = time.Time{}
	deny("for ever", 403, "problem:budget", "", block)
	deny("terminated", 403, "problem:stopped", "", directive.Directive{ID: "t", Guard: "task", Action: directive.Terminate, Scope: scope("run", "r-1"), Expires: time.Now().Add(time.Second)})
	deny("parked", 429, "#quota-exceeded", "60", directive.Directive{ID: "p", Guard: "light", Action: directive.Throttle, Park: []string{"standard"}})
	if n := f.counter(t, "flyball_envoy_requests_total", "deny", "ext_authz"); n != 5 {
		t.Errorf("%v denials counted", n)
	}

	f.set(t)
	f.kill(t, true)
	got, doc, headers := problem(t, f.check(t, "gateway", request("", nil)))
	if got != 403 || doc["type"] != "urn:flyball:problem:kill" || doc["detail"] != "3 x the expected spend" || doc["outcome"] != "pause" || headers["retry-after"] != "" || headers["x-should-retry"] != "false" {
		t.Errorf("kill: %d %v %v", got, doc, headers)
	}
	if r := f.check(t, "gateway", request("", nil, "x-feature", "checkout")); r.GetOkResponse() == nil {
		t.Errorf("a critical call met the kill: %v", r)
	}
	if r := f.check(t, "gateway", request("", nil, "x-criticality", "critical")); r.GetDeniedResponse() == nil {
		t.Error("a claim made a call critical")
	}
	if n := f.counter(t, "flyball_envoy_requests_total", "kill", "ext_authz"); n != 2 {
		t.Errorf("%v kills counted", n)
	}
}

func TestCheckThrottle(t *testing.T) {
	f := newFixture(t, "gateway", "t-1")
	throttle := directive.Directive{ID: "th", Guard: "rate", Action: directive.Throttle, IntervalMS: 30_500, Scope: scope("user", "u-1")}
	f.set(t, throttle)
	call := request("", nil, "x-user-id", "u-1")
	if r := f.check(t, "gateway", call); r.GetOkResponse() == nil {
		t.Fatalf("the first call of an interval was refused: %v", r)
	}
	code, doc, headers := problem(t, f.check(t, "gateway", call))
	if code != 429 || headers["retry-after"] != "31" || doc["type"] != quotaType || headers["ratelimit"] != `"rate";r=0;t=31` || fmt.Sprint(doc["violated-policies"]) != "[rate]" {
		t.Errorf("second call: %d %v %v", code, doc, headers)
	}
	if r := f.check(t, "gateway", request("", nil, "x-user-id", "u-2")); r.GetOkResponse() == nil {
		t.Errorf("another user was throttled: %v", r)
	}
	throttle.IntervalMS = 120_000
	throttle.ID = "th2"
	f.set(t, throttle)
	f.check(t, "gateway", call)
	if code, _, headers := problem(t, f.check(t, "gateway", call)); code != 403 || headers["retry-after"] != "" {
		t.Errorf("two minutes: %d %v", code, headers)
	}
	throttle.IntervalMS = 0
	f.set(t, throttle)
	for range 3 {
		if r := f.check(t, "gateway", call); r.GetOkResponse() == nil {
			t.Errorf("an interval of 0 refused: %v", r)
		}
	}
}

func TestKeys(t *testing.T) {
	f := newFixture(t, "gateway", "t-1", "t-2")
	f.addKey(t, schema.Key{Name: "one", Role: schema.KeyLimiter, Tenant: "t-7"})
	f.addKey(t, schema.Key{Name: "boss", Role: schema.KeyAdmin, Tenants: schema.TenantList{"*"}})
	f.addKey(t, schema.Key{Name: "collector", Role: schema.KeyIngest, Tenant: "t-1"})
	f.addKey(t, schema.Key{Name: "old", Role: schema.KeyLimiter, Tenant: "t-1", Expires: time.Now().Add(-time.Second)})
	f.secrets["stranger"] = "fb_0123"

	refused := func(key string, want codes.Code) {
		t.Helper()
		f.forget()
		_, err := f.auth.Check(f.as(t, key), request("", nil, "x-tenant-id", "t-1"))
		_, err2 := f.rls.ShouldRateLimit(f.as(t, key), limits(0, descriptor(nil, "tenant", "t-1")))
		if status.Code(err) != want || status.Code(err2) != want || len(f.calls) != 0 {
			t.Errorf("key %q: %v and %v, want %v", key, err, err2, want)
		}
	}
	refused("", codes.Unauthenticated)
	refused("stranger", codes.Unauthenticated)
	refused("old", codes.Unauthenticated)
	refused("collector", codes.PermissionDenied)

	tenant := func(key, says, want string) {
		t.Helper()
		headers := []string{"x-tenant-id", says}
		if says == "" {
			headers = nil
		}
		r := f.check(t, key, request("", nil, headers...))
		if want == "" {
			if code, doc, _ := problem(t, r); code != 403 || doc["type"] != "urn:flyball:problem:tenant" || len(f.calls) != 0 {
				t.Errorf("%s for %q: %d %v", key, says, code, doc)
			}
		} else if got := f.asked().Tenant; r.GetOkResponse() == nil || got != want {
			t.Errorf("%s for %q: %v, asked about %q, want %q", key, says, r, got, want)
		}
		f.forget()
		var entries []string
		if says != "" {
			entries = []string{"tenant", says}
		}
		// The charge of a foreign tenant is not booked either, and is answered OK.
		out := f.limit(t, key, limits(0, descriptor(nil, entries...), descriptor(n(100), entries...)))
		if over := out.GetStatuses()[0].GetCode() != 1; over != (want == "") || out.GetStatuses()[1].GetCode() != 1 || (len(f.charged()) == 0) != (want == "") {
			t.Errorf("%s for %q over RLS: %v, %d charges", key, says, out, len(f.charged()))
		}
		for _, c := range f.charged() {
			if c.call.Tenant != want || c.key != key {
				t.Errorf("%s charged %+v", key, c)
			}
		}
	}
	tenant("gateway", "t-1", "t-1")
	tenant("gateway", "t-2", "t-2")
	tenant("gateway", "t-3", "")
	tenant("gateway", "T-1", "")
	tenant("gateway", "t-1,t-2", "")
	tenant("gateway", "", "") // it has two tenants and none of its own
	tenant("one", "", "t-7")
	tenant("one", "t-7", "t-7")
	tenant("one", "t-1", "")
	tenant("one", "*", "")
	tenant("boss", "t-9", "t-9")
	tenant("boss", "", "default")

	// Gateways that set no metadata send the key as a context extension; a client's
	// header is no key.
	if r := f.check(t, "", request("", map[string]string{"authorization": "Bearer " + f.secret("one")})); r.GetOkResponse() == nil || f.asked().Tenant != "t-7" {
		t.Errorf("answer %v", r)
	}
	if _, err := f.auth.Check(f.as(t, ""), request("", nil, "authorization", "Bearer "+f.secret("one"))); status.Code(err) != codes.Unauthenticated {
		t.Errorf("a key in a client's header: %v", err)
	}
}

func TestHealthNeedsNoKey(t *testing.T) {
	f := newFixture(t, "gateway", "t-1")
	for _, name := range []string{"", "envoy.service.auth.v3.Authorization", "envoy.service.ratelimit.v3.RateLimitService"} {
		r, err := healthv1.NewHealthClient(f.conn).Check(f.as(t, ""), &healthv1.HealthCheckRequest{Service: name})
		if err != nil || r.GetStatus() != healthv1.HealthCheckResponse_SERVING {
			t.Errorf("health of %q: %v %v", name, r, err)
		}
	}
}

func TestOwnFailureIsNoDenial(t *testing.T) {
	f := newFixture(t, "gateway", "t-1")
	f.fail(errors.New("open /data/state: secret path"))
	_, err := f.auth.Check(f.as(t, "gateway"), request("", nil))
	_, err2 := f.rls.ShouldRateLimit(f.as(t, "gateway"), limits(0, descriptor(nil, "user", "u"), descriptor(n(5), "user", "u")))
	for _, err := range []error{err, err2} {
		if status.Code(err) != codes.Unavailable || strings.Contains(err.Error(), "secret") {
			t.Errorf("failure: %v", err)
		}
	}
	if got := f.charged(); len(got) != 0 {
		t.Errorf("a request that failed was charged: %+v", got)
	}
}

// rawCodec sends bytes as they are, for messages that no client library would make.
type rawCodec struct{}

func (rawCodec) Marshal(v any) ([]byte, error) { return *v.(*[]byte), nil }
func (rawCodec) Unmarshal(b []byte, v any) error {
	*v.(*[]byte) = append([]byte(nil), b...)
	return nil
}
func (rawCodec) Name() string { return "proto" }
func sendRaw(f *fixture, t *testing.T, b []byte) error {
	var out []byte
	var _ encoding.Codec = rawCodec{}
	return f.conn.Invoke(f.as(t, "gateway"), authv3.Authorization_Check_FullMethodName, &b, &out, grpc.ForceCodec(rawCodec{}))
}

func TestMalformedAndHuge(t *testing.T) {
	f := newFixture(t, "gateway", "t-1")

	// Strings of protobuf are UTF-8: what is not is no message, which is an error and no denial.
	bad := request("", nil, "x-user-id", "uXY")
	b, err := proto.Marshal(bad)
	if err != nil {
		t.Fatal(err)
	}
	if err := sendRaw(f, t, []byte(strings.Replace(string(b), "uXY", "u\xff\xfe", 1))); status.Code(err) != codes.Internal {
		t.Errorf("invalid UTF-8: %v", err)
	}
	if err := sendRaw(f, t, []byte("\xff\xff\xff\xff")); status.Code(err) != codes.Internal {
		t.Errorf("no protobuf: %v", err)
	}
	if _, err := f.auth.Check(f.as(t, "gateway"), request(strings.Repeat("x", maxMessage), nil)); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("over the size: %v", err)
	}

	flood := request("", nil)
	for i := range 20_000 {
		flood.Attributes.Request.Http.Headers[fmt.Sprintf("x-flood-%d", i)] = "v"
	}
	start := time.Now()
	if r := f.check(t, "gateway", flood); r.GetOkResponse() == nil {
		t.Errorf("a flood of headers: %v", r)
	}
	rawFlood := &authv3.CheckRequest{Attributes: &authv3.AttributeContext{Request: &authv3.AttributeContext_Request{Http: &authv3.AttributeContext_HttpRequest{HeaderMap: &corev3.HeaderMap{}}}}}
	for range 20_000 {
		m := rawFlood.Attributes.Request.Http.HeaderMap
		m.Headers = append(m.Headers, &corev3.HeaderValue{Key: "x-flood", RawValue: []byte("v")})
	}
	if r := f.check(t, "gateway", rawFlood); r.GetOkResponse() == nil {
		t.Errorf("a flood of raw headers: %v", r)
	}
	bomb := `{"messages":` + strings.Repeat("[", 1_000_000) + strings.Repeat("]", 1_000_000) + `,"model":"m-5"}`
	if f.check(t, "gateway", request(bomb, nil)); f.asked().Model != "m-5" {
		t.Errorf("behind a million brackets: model %q", f.asked().Model)
	}
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("it took %s", took)
	}
	for name, r := range map[string]*authv3.CheckRequest{
		"user":  request("", nil, "x-user-id", strings.Repeat("u", maxValue+1)),
		"model": request(`{"model":"`+strings.Repeat(`\u006d`, 3000)+`"}`, nil),
	} {
		code, doc, _ := problem(t, f.check(t, "gateway", r))
		if code != 400 || !strings.Contains(doc["detail"].(string), name) {
			t.Errorf("a long %s: %d %v", name, code, doc)
		}
	}
	// The server is still there.
	if r := f.check(t, "gateway", request("", nil)); r.GetOkResponse() == nil {
		t.Errorf("afterwards: %v", r)
	}
}

func TestNewRefuses(t *testing.T) {
	f := func(want string, o Options) {
		t.Helper()
		if _, err := New(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("New: %v, want %q", err, want)
		}
	}
	whole := func(names map[string][]string, unit string) Options {
		return Options{Decide: func(*directive.Call) (d directive.Decision, b *Budget, err error) { return }, Charge: func(directive.Call, Usage, string) error { return nil }, Keys: func() *schema.Keyring { return nil }, Names: names, Unit: unit}
	}
	f("required", Options{})
	f(`unknown field "tennant"`, whole(map[string][]string{"tennant": {"x"}}, ""))
	f(`"x-user-id" stands for`, whole(map[string][]string{"tenant": {"X-User-Id"}}, ""))
	f(`unknown unit "dollars"`, whole(nil, "dollars"))
	if _, err := New(whole(map[string][]string{"tenant": {"X-Org"}}, "output_tokens")); err != nil {
		t.Error(err)
	}
}

package envoy

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	limitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/flyball/flyball/enforce/directive"
	"github.com/flyball/flyball/schema"
)

func n(addend uint64) *wrapperspb.UInt64Value { return wrapperspb.UInt64(addend) }

func descriptor(addend *wrapperspb.UInt64Value, entries ...string) *limitv3.RateLimitDescriptor {
	d := &limitv3.RateLimitDescriptor{HitsAddend: addend}
	for i := 0; i < len(entries); i += 2 {
		d.Entries = append(d.Entries, &limitv3.RateLimitDescriptor_Entry{Key: entries[i], Value: entries[i+1]})
	}
	return d
}

func limits(addend uint32, list ...*limitv3.RateLimitDescriptor) *rlsv3.RateLimitRequest {
	return &rlsv3.RateLimitRequest{Domain: "flyball", HitsAddend: addend, Descriptors: list}
}

func (f *fixture) limit(t testing.TB, key string, r *rlsv3.RateLimitRequest) *rlsv3.RateLimitResponse {
	t.Helper()
	f.forget()
	out, err := f.rls.ShouldRateLimit(f.as(t, key), r)
	if err != nil {
		t.Fatalf("ask rate limit service: %v", err)
	}
	if len(out.GetStatuses()) != len(r.GetDescriptors()) {
		t.Fatalf("%d statuses for %d descriptors", len(out.GetStatuses()), len(r.GetDescriptors()))
	}
	return out
}

func code(r *rlsv3.RateLimitResponse) string {
	var s []string
	for _, st := range r.GetStatuses() {
		s = append(s, st.GetCode().String())
	}
	return r.GetOverallCode().String() + ": " + strings.Join(s, " ")
}

func TestRateLimitQuestions(t *testing.T) {
	f := newFixture(t, "gateway", "t-1")
	f.budget(&Budget{LimitCents: 10_000, LeftCents: 1, ResetIn: 90 * time.Minute, Window: 24 * time.Hour, Name: "tenant-day"})
	ask := func(name string, r *rlsv3.RateLimitRequest) {
		t.Helper()
		for left, want := range []string{"OVER_LIMIT: OVER_LIMIT", "OK: OK"} {
			f.budget(&Budget{LimitCents: 10_000, LeftCents: uint64(left), ResetIn: 90 * time.Minute, Window: 24 * time.Hour, Name: "tenant-day"})
			out := f.limit(t, "gateway", r)
			if code(out) != want || len(f.charged()) != 0 || len(f.calls) != 1 {
				t.Errorf("%s with %d left: %s, %d charges, %d questions", name, left, code(out), len(f.charged()), len(f.calls))
			}
			if st := out.GetStatuses()[0]; st.GetLimitRemaining() != uint32(left) || st.GetCurrentLimit().GetRequestsPerUnit() != 10_000 || st.GetCurrentLimit().GetUnit() != rlsv3.RateLimitResponse_RateLimit_DAY || st.GetCurrentLimit().GetName() != "tenant-day" || st.GetDurationUntilReset().AsDuration() != 90*time.Minute {
				t.Errorf("%s: status %v", name, st)
			}
		}
	}
	ask("0 on the descriptor", limits(0, descriptor(n(0), "tenant", "t-1")))
	ask("0 on the descriptor wins over the request", limits(1000, descriptor(n(0), "tenant", "t-1")))
	ask("0 with a measure", limits(0, descriptor(n(0), "tenant", "t-1", "measure", "input_tokens")))
	ask("not set", limits(0, descriptor(nil, "tenant", "t-1")))
	ask("not set with a measure", limits(0, descriptor(nil, "tenant", "t-1", "output_tokens", "x")))
	ask("one hit of agentgateway", limits(0, descriptor(n(1), "tenant", "t-1")))
	ask("one hit of the request", limits(1, descriptor(nil, "tenant", "t-1")))

	f.budget(nil)
	if out := f.limit(t, "gateway", limits(0, descriptor(n(0), "x-user-id", "u", "feature", "f", "run", "r", "x-ai-eg-model", "m-5", "traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "generic_key", "whatever"))); code(out) != "OK: OK" {
		t.Error(code(out))
	}
	if want := (directive.Call{Tenant: "t-1", User: "u", Feature: "f", RunID: "r", Model: "m-5", TraceID: "0af7651916cd43dd8448eb211c80319c", SpanID: "b7ad6b7169203331", Key: "gateway"}); f.asked() != want {
		t.Errorf("asked about %+v", f.asked())
	}
	for _, r := range []*rlsv3.RateLimitRequest{limits(0), limits(0, make([]*limitv3.RateLimitDescriptor, maxDescriptors+1)...)} {
		for i := range r.Descriptors {
			r.Descriptors[i] = descriptor(nil)
		}
		if _, err := f.rls.ShouldRateLimit(f.as(t, "gateway"), r); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%d descriptors: %v", len(r.Descriptors), err)
		}
	}
}

func TestRateLimitDecisions(t *testing.T) {
	f := newFixture(t, "gateway", "t-1")
	r := limits(0, descriptor(n(0), "user", "u-1", "model", "m-5"))
	some, none := &Budget{LimitCents: 100, LeftCents: 40, Name: "g"}, &Budget{LimitCents: 100, Name: "g"}
	is := func(name, want string, b *Budget, list ...directive.Directive) *rlsv3.RateLimitResponse {
		t.Helper()
		f.set(t, list...)
		f.budget(b)
		out := f.limit(t, "gateway", r)
		if code(out) != want+": "+want {
			t.Errorf("%s: %s, want %s", name, code(out), want)
		}
		return out
	}
	is("nothing", "OK", nil)
	is("some left", "OK", some)
	is("none left", "OVER_LIMIT", none)
	is("downgrade", "OK", some, directive.Directive{ID: "d", Guard: "g", Action: directive.Downgrade, Models: map[string]string{"*": "mini"}})
	is("downgrade, none left", "OK", none, directive.Directive{ID: "d", Guard: "g", Action: directive.Downgrade, Models: map[string]string{"*": "mini"}})
	is("throttle", "OK", some, directive.Directive{ID: "d", Guard: "g", Action: directive.Throttle, IntervalMS: 1000})
	is("terminate", "OVER_LIMIT", some, directive.Directive{ID: "d", Guard: "g", Action: directive.Terminate})
	f.kill(t, true)
	out := is("kill", "OK", some)
	if len(out.GetRawBody()) != 0 || len(out.GetResponseHeadersToAdd()) != 0 {
		t.Errorf("a kill leaks into RLS: %v", out)
	}
	is("kill without a budget", "OK", nil)
	is("kill and an empty budget", "OVER_LIMIT", none)
	f.kill(t, false)

	over := func(want string, b *Budget, list ...directive.Directive) map[string]any {
		t.Helper()
		out := is(want, "OVER_LIMIT", b, list...)
		var h []string
		for _, v := range out.GetResponseHeadersToAdd() {
			h = append(h, v.GetKey()+": "+v.GetValue())
		}
		if got := strings.Join(h, " | "); got != want {
			t.Errorf("headers\n%s, want\n%s", got, want)
		}
		var doc map[string]any
		if err := json.Unmarshal(out.GetRawBody(), &doc); err != nil {
			t.Fatal(err)
		}
		if _, has := doc["status"]; has {
			t.Error("the body has a status, which the gateway chooses")
		}
		return doc
	}
	const common = "content-type: application/problem+json | x-should-retry: false"
	block := directive.Directive{ID: "d", Guard: "g", Action: directive.SoftBlock, Reason: "used up", Outcome: "upgrade", Expires: time.Now().Add(time.Hour)}
	doc := over(common, some, block)
	if doc["detail"] != "used up" || doc["guard"] != "g" || doc["outcome"] != "upgrade" || doc["type"] != "urn:flyball:problem:budget" || doc["revision"] == "" {
		t.Errorf("problem %v", doc)
	}
	block.Expires = time.Now().Add(10 * time.Second)
	doc = over(common+` | retry-after: 10 | ratelimit: "g";r=0;t=10 | ratelimit-policy: "g";q=100;qu="usd-cents"`, some, block)
	if doc["type"] != quotaType {
		t.Errorf("problem %v", doc)
	}
	doc = over(common+` | retry-after: 3 | ratelimit: "a \"day\"_";r=0;t=3 | ratelimit-policy: "a \"day\"_";q=100;qu="usd-cents";w=3600`, &Budget{LimitCents: 100, ResetIn: 2100 * time.Millisecond, Window: time.Hour, Name: "a \"day\"\n"})
	if doc["type"] != quotaType {
		t.Errorf("problem %v", doc)
	}
	over(common, &Budget{LimitCents: 100, ResetIn: 2 * time.Hour, Name: "g"})
}

func TestRateLimitDescriptorsAnsweredEach(t *testing.T) {
	f := newFixture(t, "gateway", "t-1")
	f.set(t, directive.Directive{ID: "soon", Guard: "soon", Action: directive.SoftBlock, Scope: scope("user", "u-1"), Expires: time.Now().Add(5 * time.Second)},
		directive.Directive{ID: "late", Guard: "late", Action: directive.SoftBlock, Scope: scope("user", "u-2"), Expires: time.Now().Add(time.Hour)})
	out := f.limit(t, "gateway", limits(0, descriptor(n(0), "user", "u-0"), descriptor(n(0), "user", "u-1"), descriptor(n(0), "user", "u-2"), descriptor(n(0), "user", "u-1"), descriptor(n(500), "user", "u-1")))
	if code(out) != "OVER_LIMIT: OK OVER_LIMIT OVER_LIMIT OVER_LIMIT OK" {
		t.Error(code(out))
	}
	if !strings.Contains(string(out.GetRawBody()), `"guard":"late"`) || len(out.GetResponseHeadersToAdd()) != 2 {
		t.Errorf("the refusal that lasts is not the one told: %s %v", out.GetRawBody(), out.GetResponseHeadersToAdd())
	}
	if got := f.charged(); len(got) != 1 || got[0].call.User != "u-1" {
		t.Errorf("charges %+v", got)
	}
}

func TestRateLimitCharges(t *testing.T) {
	f := newFixture(t, "gateway", "t-1")
	// Charges never meet a limit.
	f.set(t, directive.Directive{ID: "d", Guard: "g", Action: directive.Halt})
	f.budget(&Budget{LimitCents: 100, Name: "g"})
	is := func(name string, r *rlsv3.RateLimitRequest, want ...string) {
		t.Helper()
		out := f.limit(t, "gateway", r)
		if out.GetOverallCode() != rlsv3.RateLimitResponse_OK || len(out.GetRawBody()) != 0 {
			t.Errorf("%s: %v", name, out)
		}
		var got []string
		for _, c := range f.charged() {
			got = append(got, fmt.Sprintf("%s/%s %v %d %s", c.call.Tenant, c.call.User, c.usage.Tokens, c.usage.CostPicoUSD, c.usage.ResponseID))
		}
		if strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("%s: charged\n%s\nwant\n%s", name, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	is("default unit", limits(0, descriptor(n(1200), "user", "u")), "t-1/u map[input:1200] 0 ")
	is("addend of the request", limits(1200, descriptor(nil, "user", "u")), "t-1/u map[input:1200] 0 ")
	is("one token of a measure", limits(0, descriptor(n(1), "measure", "output_tokens")), "t-1/ map[output:1] 0 ")
	is("measure as a key", limits(0, descriptor(n(7), "output_tokens", "")), "t-1/ map[output:7] 0 ")
	is("a measure nobody knows", limits(0, descriptor(n(7), "measure", "apples")), "t-1/ map[input:7] 0 ")
	is("micro", limits(0, descriptor(n(2500), "measure", "cost_microusd", "response_id", "r-1")), "t-1/ map[] 2500000000 r-1")
	is("pico", limits(0, descriptor(n(2500), "cost_picousd", "x")), "t-1/ map[] 2500 ")
	is("parts of one call", limits(0,
		descriptor(n(1000), "measure", "input_tokens", "user", "u"),
		descriptor(n(600), "measure", "cached_input_tokens", "user", "u"),
		descriptor(n(50), "measure", "cache_write_5m_tokens"),
		descriptor(n(200), "measure", "output_tokens", "user", "u"),
		descriptor(n(150), "measure", "reasoning_tokens"),
		descriptor(n(1200), "measure", "tokens", "tenant", "t-1"),
		descriptor(n(99), "measure", "cost_microusd", "response_id", "r-1")),
		"t-1/u map[cache_read:600 cache_write_5m:50 input:350 output:200 reasoning:150] 99000000 r-1")
	is("cached beside the input", limits(0, descriptor(n(10), "input_tokens", ""), descriptor(n(600), "cache_read_tokens", "")), "t-1/ map[cache_read:600 input:10] 0 ")
	is("one count for two scopes", limits(0, descriptor(n(1000), "tenant", "t-1"), descriptor(n(1000), "tenant", "t-1", "user", "u")), "t-1/u map[input:1000] 0 ")
	f.addKey(t, schema.Key{Name: "all", Role: schema.KeyLimiter, Tenants: schema.TenantList{"*"}})
	f.limit(t, "all", limits(0, descriptor(n(10), "output_tokens", ""), descriptor(n(20), "tenant", "t-5", "input_tokens", "")))
	if got := f.charged(); len(got) != 1 || got[0].call.Tenant != "t-5" {
		t.Errorf("a tenant that one descriptor names: %+v", got)
	}
	is("two calls", limits(0, descriptor(n(1000), "user", "u"), descriptor(n(300), "user", "v"), descriptor(n(5), "user", "u", "output_tokens", "")), "t-1/u map[output:5] 0 ", "t-1/v map[input:300] 0 ")
	is("overflow", limits(math.MaxUint32, descriptor(n(math.MaxUint64), "measure", "input_tokens"), descriptor(n(math.MaxUint64), "measure", "cost_microusd"), descriptor(nil, "measure", "output_tokens")), "t-1/ map[input:1000000000 output:1000000000] 1000000000000000000 ")
	refund := descriptor(n(500), "user", "u")
	refund.IsNegativeHits = true
	is("refund", limits(0, refund))
	for name, want := range map[string]float64{"refund_ignored": 1, "capped": 1, "refused": 0, "failed": 0} {
		if got := f.counter(t, "flyball_envoy_charges_total", name); got != want {
			t.Errorf("%v charges %s, want %v", got, name, want)
		}
	}

	is("a long user", limits(0, descriptor(n(500), "user", strings.Repeat("u", 2000))))
	is("a long response", limits(0, descriptor(n(500), "response_id", strings.Repeat("r", 2000))), "t-1/ map[input:500] 0 ")
	// A charge that cannot be booked is told to the operator, not to the caller.
	f.fail(errors.New("log is full"))
	if out := f.limit(t, "gateway", limits(0, descriptor(n(5), "user", "u"))); code(out) != "OK: OK" {
		t.Error(code(out))
	}
	for name, want := range map[string]float64{"refused": 1, "failed": 1} {
		if got := f.counter(t, "flyball_envoy_charges_total", name); got != want {
			t.Errorf("%v charges %s, want %v", got, name, want)
		}
	}
}

func TestRateLimitClamps(t *testing.T) {
	f := newFixture(t, "gateway", "t-1")
	f.budget(&Budget{LimitCents: math.MaxUint64, LeftCents: math.MaxUint32 + 1, Window: 6 * time.Hour, ResetIn: time.Second, Name: "bad\xff"})
	st := f.limit(t, "gateway", limits(0, descriptor(nil))).GetStatuses()[0]
	if st.GetCurrentLimit().GetRequestsPerUnit() != math.MaxUint32 || st.GetLimitRemaining() != math.MaxUint32 || st.GetCurrentLimit().GetUnit() != rlsv3.RateLimitResponse_RateLimit_HOUR || st.GetCurrentLimit().GetUnitMultiplier().GetValue() != 6 || st.GetCurrentLimit().GetName() != "bad!" {
		t.Errorf("status %v", st)
	}
}

func TestUnitOf(t *testing.T) {
	f := func(w time.Duration, want string) {
		t.Helper()
		unit, times := unitOf(w)
		if got := fmt.Sprintf("%d %s", times, unit); got != want {
			t.Errorf("unitOf(%s) is %s, want %s", w, got, want)
		}
	}
	const day = 24 * time.Hour
	f(0, "0 UNKNOWN")
	f(-time.Hour, "0 UNKNOWN")
	f(time.Second, "1 SECOND")
	f(time.Millisecond, "1 SECOND")
	f(time.Minute, "1 MINUTE")
	f(15*time.Minute, "15 MINUTE")
	f(time.Hour, "1 HOUR")
	f(day, "1 DAY")
	f(23*time.Hour, "1 DAY") // of the change to summer time
	f(25*time.Hour, "1 DAY")
	f(7*day, "7 DAY")
	f(7*day-time.Hour, "7 DAY")
	f(28*day, "1 MONTH")
	f(31*day+time.Hour, "1 MONTH")
	f(90*day, "90 DAY")
	f(366*day, "1 YEAR")
	f(90*time.Second, "90 SECOND")
	f(math.MaxInt64, "4294967295 SECOND")
}

package dialect

import (
	"math"
	"strings"
	"testing"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/flyball/flyball/schema"
)

// A call says that one of its attributes was cut, whichever reader cut it.
func TestTruncated(t *testing.T) {
	r, err := New(Options{HashKey: []byte("k"), Attributes: map[string][]string{"feature": {"app.feature"}}})
	if err != nil {
		t.Fatal(err)
	}
	check := func(what string, c *schema.Call, want bool) {
		t.Helper()
		if got := c.Flags&schema.FlagTruncated != 0; got != want {
			t.Errorf("%s: truncated is %v, want %v", what, got, want)
		}
	}
	f := func(key string, bound int, attrs map[string]any) {
		t.Helper()
		for _, over := range []bool{false, true, false} { // a span's cut is not the next one's
			td := ptrace.NewTraces()
			rs := td.ResourceSpans().AppendEmpty()
			sp := rs.ScopeSpans().AppendEmpty().Spans().AppendEmpty()
			sp.SetTraceID(pcommon.TraceID{1})
			sp.SetSpanID(pcommon.SpanID{1})
			sp.SetName(strings.Repeat("n", 200))
			if err := sp.Attributes().FromRaw(attrs); err != nil {
				t.Fatal(err)
			}
			value := strings.Repeat("x", bound)
			if over {
				value += "y"
			}
			sp.Attributes().PutStr(key, value)
			body, err := (&ptrace.ProtoMarshaler{}).MarshalTraces(td)
			if err != nil {
				t.Fatal(err)
			}
			if !sameAsPdata(t, r, body) {
				t.Fatalf("%s: the wire reader did not take it", key)
			}
			calls, _ := r.AppendSpans(nil, td, Origin{}, wireReceived)
			for i := range calls {
				check(key, &calls[i], over)
			}
		}
	}
	chat := map[string]any{"gen_ai.operation.name": "chat", "gen_ai.usage.input_tokens": 5, "gen_ai.usage.output_tokens": 5}
	for _, key := range []string{"tenant.id", "user.id", "app.feature", "session.id", "gen_ai.agent.name"} {
		f(key, 256, chat)
	}
	for _, key := range []string{"gen_ai.request.model", "gen_ai.response.model", "gen_ai.response.id", "request_id"} {
		f(key, 128, chat)
	}
	f("gen_ai.provider.name", 64, chat)
	f("gen_ai.response.service_tier", 32, chat)
	f("gen_ai.tool.name", 128, map[string]any{"gen_ai.operation.name": "execute_tool"})
	f("gen_ai.tool.call.id", 128, map[string]any{"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "t"})
}

func TestTruncatedParts(t *testing.T) {
	r, err := New(Options{HashKey: []byte("k")})
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("u", 300)
	td := ptrace.NewTraces()
	sp := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans().AppendEmpty()
	sp.SetTraceID(pcommon.TraceID{1})
	sp.SetSpanID(pcommon.SpanID{1})
	if err := sp.Attributes().FromRaw(map[string]any{"gen_ai.operation.name": "chat", "gen_ai.request.model": "claude-x", "user.id": long,
		"gen_ai.usage.raw": `{"input_tokens":9,"output_tokens":9,"iterations":[{"type":"compaction","model":"claude-y","input_tokens":5,"output_tokens":5},{"type":"message","model":"claude-x","input_tokens":9,"output_tokens":9}]}`}); err != nil {
		t.Fatal(err)
	}
	calls, _ := r.AppendSpans(nil, td, Origin{}, wireReceived)
	ld := plog.NewLogs()
	lr := ld.ResourceLogs().AppendEmpty().ScopeLogs().AppendEmpty().LogRecords().AppendEmpty()
	if err := lr.Attributes().FromRaw(map[string]any{"event.name": "gemini_cli.api_response", "model": "gemini-x", "user.id": long, "input_token_count": 5, "output_token_count": 5}); err != nil {
		t.Fatal(err)
	}
	calls, _, _ = r.AppendLogs(calls, ld, Origin{}, wireReceived)
	if len(calls) != 3 {
		t.Fatalf("%d calls, want two parts and an event", len(calls))
	}
	for i := range calls {
		if calls[i].Flags&schema.FlagTruncated == 0 {
			t.Errorf("call %d (part %d, %s) is not marked", i, calls[i].Part, calls[i].Model)
		}
	}
}

// Whatever a span says of its times, start, end and duration are instants and spans of time.
func TestTimesAddUp(t *testing.T) {
	instants := []int64{math.MinInt64, -1, 0, 1, earliest - 1, earliest, wireReceived - 1, wireReceived, wireReceived + 1e9, wireReceived + 3600e9, math.MaxInt64 - 1, math.MaxInt64}
	for _, start := range instants {
		for _, end := range instants {
			at, took, flags := times(start, end, wireReceived)
			if took < 0 || at+took < at || at < earliest || at > wireReceived+600e9 || at != start && flags&schema.FlagClockSkew == 0 {
				t.Errorf("from %d to %d: %d for %d, flags %d", start, end, at, took, flags)
			}
		}
	}
}

// What a key fixes holds for every part of an event, as it does for every part of a span.
func TestBoundParts(t *testing.T) {
	r, err := New(Options{HashKey: []byte("k"), Attributes: map[string][]string{"user": {"user.id"}}})
	if err != nil {
		t.Fatal(err)
	}
	said := map[string]any{"event.name": "claude_code.api_request", "gen_ai.operation.name": "chat", "model": "claude-x", "gen_ai.request.model": "claude-x", "user.id": "somebody else",
		"gen_ai.usage.raw": `{"input_tokens":9,"output_tokens":9,"iterations":[{"type":"compaction","model":"claude-y","input_tokens":5,"output_tokens":5},{"type":"message","model":"claude-x","input_tokens":9,"output_tokens":9}]}`}
	td, ld := ptrace.NewTraces(), plog.NewLogs()
	sp := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans().AppendEmpty()
	sp.SetTraceID(pcommon.TraceID{1})
	sp.SetSpanID(pcommon.SpanID{1})
	lr := ld.ResourceLogs().AppendEmpty().ScopeLogs().AppendEmpty().LogRecords().AppendEmpty()
	for _, m := range []pcommon.Map{sp.Attributes(), lr.Attributes()} {
		if err := m.FromRaw(said); err != nil {
			t.Fatal(err)
		}
	}
	from := Origin{Tenant: "t-1", Bound: func(id *schema.Identity) { id[schema.User] = "the key's" }}
	calls, _ := r.AppendSpans(nil, td, from, wireReceived)
	calls, _, _ = r.AppendLogs(calls, ld, from, wireReceived)
	if len(calls) != 4 {
		t.Fatalf("%d calls, want two parts of a span and two of an event", len(calls))
	}
	for i := range calls {
		if got := calls[i].Identity[schema.User]; got != "the key's" {
			t.Errorf("call %d, part %d: user %q", i, calls[i].Part, got)
		}
	}
}

// Two events that say the same are told apart by when they were, also where only the time at
// which they were seen is set.
func TestEventsAtObservedTimes(t *testing.T) {
	r, err := New(Options{HashKey: []byte("k")})
	if err != nil {
		t.Fatal(err)
	}
	read := func(at, seen pcommon.Timestamp) schema.Call {
		ld := plog.NewLogs()
		lr := ld.ResourceLogs().AppendEmpty().ScopeLogs().AppendEmpty().LogRecords().AppendEmpty()
		lr.SetTimestamp(at)
		lr.SetObservedTimestamp(seen)
		lr.Attributes().PutStr("event.name", "gemini_cli.api_response")
		lr.Attributes().PutStr("model", "gemini-x")
		lr.Attributes().PutInt("input_token_count", 5)
		lr.Attributes().PutInt("output_token_count", 5)
		calls, _, _ := r.AppendLogs(nil, ld, Origin{}, wireReceived)
		if len(calls) != 1 {
			t.Fatalf("%d calls", len(calls))
		}
		return calls[0]
	}
	first, again, second := read(0, wireReceived-2e9), read(0, wireReceived-2e9), read(0, wireReceived-1e9)
	if first.Span != again.Span {
		t.Error("an event that is sent again is another call")
	}
	if first.Span == second.Span {
		t.Error("two events a second apart are one call")
	}
	if a, b := read(wireReceived-2e9, wireReceived-1e9), read(wireReceived-2e9, wireReceived); a.Span != b.Span {
		t.Error("an event is another call where a relay saw it later")
	}
}

// A call that a limiter refused failed for the budget, whatever an SDK calls a 403,
// and is no client error that could be taken for a call that was made.
func TestOwnRefusal(t *testing.T) {
	r, err := New(Options{HashKey: []byte("k")})
	if err != nil {
		t.Fatal(err)
	}
	f := func(errType, message string, want schema.Failure) {
		t.Helper()
		td := ptrace.NewTraces()
		sp := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans().AppendEmpty()
		sp.SetTraceID(pcommon.TraceID{1})
		sp.SetSpanID(pcommon.SpanID{1})
		sp.SetName("chat")
		if err := sp.Attributes().FromRaw(map[string]any{"gen_ai.operation.name": "chat", "gen_ai.request.model": "m-5", "error.type": errType, "http.response.status_code": 403}); err != nil {
			t.Fatal(err)
		}
		sp.Status().SetCode(ptrace.StatusCodeError)
		sp.Status().SetMessage(message)
		calls, _ := r.AppendSpans(nil, td, Origin{}, wireReceived)
		if len(calls) != 1 || calls[0].Failure != want {
			t.Errorf("%s %s: %+v, want %s", errType, message, calls, schema.FailureNames[want])
		}
	}
	f("flyball_budget_exceeded", "", schema.Budget)
	f("flyball_kill_switch", "", schema.Budget)
	f("flyball_governor_unavailable", "", schema.Budget)
	f("PermissionDeniedError", "Error code: 403 - {'type': 'urn:flyball:problem:kill-switch', 'title': 'Refused by a budget guard'}", schema.Budget)
	f("PermissionDeniedError", "Error code: 403 - {'error': {'type': 'flyball_budget_exceeded'}}", schema.Budget)
	f("PermissionDeniedError", "Error code: 403 - {'type': 'urn:flyball:problem:stopped'}", schema.Budget)
	f("PermissionDeniedError", "Error code: 403 - {'type': 'urn:flyball:problem:tenant'}", schema.ClientError)
	f("PermissionDeniedError", "Error code: 403 - no access to this model", schema.ClientError)
}

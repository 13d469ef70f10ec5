package app

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// tieredPrices are USD per million tokens, so that a token costs as many micro-dollars.
const tieredPrices = `prices:
  - provider: anthropic
    models: [m-1]
    per_million: {input: "10", cache_read: "1", cache_write_5m: "12.5", output: "50"}
    service_tiers: {batch: {per_million: {input: "5", cache_read: "0.5", cache_write_5m: "6.25", output: "25"}}}
`

// wasteful is a run of which every question about capacity and waste has something to
// tell, for a service with tieredPrices and the mode in app.mode.
func wasteful(t *testing.T) ptrace.Traces {
	t.Helper()
	td := ptrace.NewTraces()
	spans := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans()
	start := time.Now().Add(-time.Minute)
	n := 0
	span := func(name string, attributes map[string]any) ptrace.Span {
		n++
		x := spans.AppendEmpty()
		x.SetName(name)
		x.SetTraceID(pcommon.TraceID{1})
		x.SetSpanID(pcommon.SpanID{byte(n)})
		if n > 1 {
			x.SetParentSpanID(pcommon.SpanID{1})
		}
		x.SetStartTimestamp(pcommon.NewTimestampFromTime(start.Add(time.Duration(n) * time.Second)))
		x.SetEndTimestamp(pcommon.NewTimestampFromTime(start.Add(time.Duration(n)*time.Second + time.Second/2)))
		attributes["app.mode"] = "batch"
		if err := x.Attributes().FromRaw(attributes); err != nil {
			t.Fatal(err)
		}
		return x
	}
	chat := func(input, read, write, output int64) {
		x := span("chat m-1", map[string]any{"gen_ai.operation.name": "chat", "gen_ai.provider.name": "anthropic", "gen_ai.request.model": "m-1", "gen_ai.response.model": "m-1",
			"gen_ai.usage.input_tokens": input + read + write, "gen_ai.usage.output_tokens": output, "gen_ai.usage.cache_read.input_tokens": read, "gen_ai.usage.cache_creation.input_tokens": write})
		x.SetKind(ptrace.SpanKindClient)
	}
	call := func(tool, args, result string) {
		span("execute_tool "+tool, map[string]any{"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool, "gen_ai.tool.call.arguments": args, "gen_ai.tool.call.result": result})
	}
	span("POST /ask", map[string]any{"http.request.method": "POST"}).SetKind(ptrace.SpanKindServer)
	limited := span("chat m-1", map[string]any{"gen_ai.operation.name": "chat", "gen_ai.provider.name": "anthropic", "gen_ai.request.model": "m-1", "http.response.status_code": int64(429), "error.type": "429"})
	limited.Status().SetCode(ptrace.StatusCodeError)
	limited.SetKind(ptrace.SpanKindClient)
	chat(100, 0, 1000, 10) // after the refusal: 1000 + 12500 + 500 micro-dollars
	call("status", `{"job":7}`, "[]")
	chat(20, 1000, 0, 10) // 200 + 1000 + 500
	call("status", `{"job":7}`, "{}")
	chat(1130, 0, 0, 10) // 11300 + 500, and the counts are certain
	call("fetch", `{"url":"/"}`, "<html>"+strings.Repeat("x", 994))
	chat(1440, 0, 0, 20) // 14400 + 1000
	return td
}

// What the questions about capacity and waste answer of spans that came through the
// whole service, priced by a real list, and worked out by hand.
func TestQuestionsOfARunningService(t *testing.T) {
	list := filepath.Join(t.TempDir(), "list.yaml")
	if err := os.WriteFile(list, []byte(tieredPrices), 0o600); err != nil {
		t.Fatal(err)
	}
	s := newService(t, "", `FLYBALL_PRICES__FILES=["`+list+`"]`, `FLYBALL_ATTRIBUTES__MODE=["app.mode"]`)
	s.start()
	s.mustSend(wasteful(t))
	s.drain()
	ask := func(question, want string, fields ...string) {
		t.Helper()
		res, err := client.Get(s.url("http", "/api/v1/"+question))
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		var answer struct {
			Rows   []map[string]any
			Detail string
		}
		if err := json.NewDecoder(res.Body).Decode(&answer); err != nil || res.StatusCode != http.StatusOK {
			t.Fatalf("%s: %d %s %v", question, res.StatusCode, answer.Detail, err)
		}
		var got []string
		for _, r := range answer.Rows {
			for _, f := range fields {
				got = append(got, fmt.Sprint(r[f]))
			}
		}
		if text := strings.Join(got, " "); text != want {
			t.Errorf("%s:\n got %s\nwant %s", question, text, want)
		}
	}
	ask("spend?group_by=tenant", "0.0429", "cost_usd")
	ask("load?group_by=", "1 4 1 5 4 1.25", "requests", "steps", "retries", "provider_calls", "steps_per_request", "retry_multiplier")
	ask("rate-limits", "m-1 5 1 0.2", "model", "attempts", "rate_limited", "rate")
	// Three at once cost 0.0289, and the one after a retry 0.014.
	ask("worked-after?kind=model", " 0 3 0.0289 framework 1 1 0.014", "layer", "retries", "calls", "cost_usd")
	ask("loops?group_by=", "1 1 3 1 0.0429", "requests", "looping_requests", "tool_calls", "repeats", "looping_cost_usd")
	ask("empty-polls", "status 2 2 2 2 0.0157 fetch 1 0 0 0 0", "tool", "calls", "polls", "empty_polls", "empty_turns", "empty_turns_usd")
	ask("payloads?tool=fetch", "html 1000 1 300", "payload_type", "bytes", "measured_calls", "measured_tokens")
	// 1000 read at 1 instead of 10, 1000 written at 12.5 instead of 10.
	ask("cache", "4690 1000 0.009 0.0025 0.0065 0", "input_tokens", "cache_read_tokens", "read_saved_usd", "write_extra_usd", "saved_usd", "unknown_price_calls")
	ask("batch", "0.0429 0.0429 0.02145 0", "spend_usd", "eligible_usd", "saving_usd", "no_batch_price_calls")
}

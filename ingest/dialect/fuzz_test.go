package dialect

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/flyball/flyball/schema"
)

// checkCall fails on a Call that no reading of any span may give.
func checkCall(t *testing.T, c *schema.Call) {
	t.Helper()
	for i, n := range c.Tokens.Fields() {
		if *n > 4*maxCount {
			t.Fatalf("%s is %d", schema.TokenNames[i], *n)
		}
	}
	if c.Tokens.Reasoning > c.Tokens.Output {
		t.Fatalf("reasoning %d is more than output %d", c.Tokens.Reasoning, c.Tokens.Output)
	}
	if c.Duration < 0 || c.Start+c.Duration < c.Start || c.ReportedCost < 0 || c.Tenant == "" || len(c.Name) > 128 || c.Start < earliest {
		t.Fatalf("impossible call %+v", c)
	}
	if c.Usage == schema.UsageKnown && c.Flags&schema.FlagUsageInvalid != 0 {
		t.Fatal("invalid usage is taken as known")
	}
	var again schema.Call
	if err := schema.DecodeCall(schema.AppendCall(nil, c), &again); err != nil || again != *c {
		t.Fatalf("a call does not read back: %v", err)
	}
}

// FuzzDialects reads arbitrary spans and log records by every dialect.
func FuzzDialects(f *testing.F) {
	files, _ := filepath.Glob("testdata/captures/*.jsonl")
	for i, file := range files {
		if i%12 != 0 {
			continue
		}
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		line, _, _ := bytes.Cut(data, []byte("\n"))
		f.Add(line)
	}
	f.Add([]byte(`{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"timeUnixNano":"1","attributes":[{"key":"event.name","value":{"stringValue":"gemini_cli.api_response"}},{"key":"input_token_count","value":{"intValue":"10"}}]}]}]}]}`))
	r, err := New(Options{HashKey: []byte("k"), Attributes: map[string][]string{"user": {"user.id"}, "criticality": {"c"}}})
	if err != nil {
		f.Fatal(err)
	}
	const received = 1_800_000_000_000_000_000
	f.Fuzz(func(t *testing.T, data []byte) {
		if td, err := (&ptrace.JSONUnmarshaler{}).UnmarshalTraces(data); err == nil {
			calls, _ := r.AppendSpans(nil, td, Origin{}, received)
			for i := range calls {
				checkCall(t, &calls[i])
			}
		}
		if ld, err := (&plog.JSONUnmarshaler{}).UnmarshalLogs(data); err == nil {
			calls, ignored, _ := r.AppendLogs(nil, ld, Origin{}, received)
			if len(calls)+int(ignored) < ld.LogRecordCount() {
				t.Fatal("a log record is neither a call nor ignored")
			}
			for i := range calls {
				checkCall(t, &calls[i])
			}
		}
	})
}

// FuzzSamples reads arbitrary metrics: each point is a sample, ignored or refused.
func FuzzSamples(f *testing.F) {
	for name, data := range map[string]string{
		"bucket.fill":         `"gauge":{"dataPoints":[{"asDouble":0.5,"timeUnixNano":"1","attributes":[{"key":"gen_ai.provider.name","value":{"stringValue":"openai"}},{"key":"flyball.limiter.dimension","value":{"stringValue":"tokens"}}]}]}`,
		"attempts":            `"sum":{"isMonotonic":true,"aggregationTemporality":1,"dataPoints":[{"asInt":"3"}]}`,
		"queue.wait_time":     `"unit":"ms","histogram":{"aggregationTemporality":2,"dataPoints":[{"count":"2","sum":3,"explicitBounds":[1],"bucketCounts":["1","1"]}]}`,
		"breaker.transitions": `"summary":{"dataPoints":[{"count":"2","sum":3}]}`,
	} {
		f.Add([]byte(`{"resourceMetrics":[{"scopeMetrics":[{"metrics":[{"name":"flyball.limiter.` + name + `",` + data + `}]}]}]}`))
	}
	r, err := New(Options{})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		md, err := (&pmetric.JSONUnmarshaler{}).UnmarshalMetrics(data)
		if err != nil {
			return
		}
		samples, n, rejected := r.AppendSamples(nil, md, Origin{}, 1_800_000_000_000_000_000)
		for _, x := range rejected {
			n += x
		}
		if n += int64(len(samples)); n != int64(md.DataPointCount()) {
			t.Fatalf("%d points of %d", n, md.DataPointCount())
		}
		text, err := json.Marshal(samples)
		if err != nil {
			t.Fatalf("samples have no form in the log: %v", err)
		}
		var again []schema.Sample
		if err := json.Unmarshal(text, &again); err != nil || len(again) != len(samples) {
			t.Fatalf("samples do not read back: %v", err)
		}
		for i := range samples {
			if s := &samples[i]; s.At < earliest || s.Start > s.At || s.Value < 0 || len(s.Buckets) > 0 && len(s.Buckets) != len(s.Bounds)+1 || s.Tenant == "" || len(s.Model) > 128 {
				t.Fatalf("impossible sample %+v", s)
			}
		}
	})
}

// FuzzAttributeMapping maps arbitrary attribute names and values to identity.
func FuzzAttributeMapping(f *testing.F) {
	f.Add("tenant.id", "user.id", "app.feature", "t-1", "u 1 ", "critical")
	f.Add("", "flyball.user", "gen_ai.usage.input_tokens", "\xff", "a\x00b", "SHEDDABLE")
	f.Fuzz(func(t *testing.T, tenantKey, userKey, critKey, tenant, user, crit string) {
		r, err := New(Options{HashKey: []byte("k"), Attributes: map[string][]string{"tenant": {tenantKey}, "user": {userKey}, "criticality": {critKey}}})
		if err != nil {
			return
		}
		td := ptrace.NewTraces()
		sp := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans().AppendEmpty()
		sp.SetTraceID([16]byte{1})
		sp.SetSpanID([8]byte{1})
		sp.SetName(user)
		sp.Attributes().PutStr(tenantKey, tenant)
		sp.Attributes().PutStr(userKey, user)
		sp.Attributes().PutStr(critKey, crit)
		calls, _ := r.AppendSpans(nil, td, Origin{}, 1_800_000_000_000_000_000)
		for i := range calls {
			checkCall(t, &calls[i])
			switch calls[i].Identity[schema.Criticality] {
			case "", "standard", "background":
			default:
				t.Fatalf("an untrusted claim made the call %s", calls[i].Identity[schema.Criticality])
			}
			for _, v := range calls[i].Identity {
				if len(v) > 256 {
					t.Fatalf("an identity of %d bytes", len(v))
				}
			}
		}
	})
}

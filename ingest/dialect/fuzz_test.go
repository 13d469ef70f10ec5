package dialect

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"go.opentelemetry.io/collector/pdata/plog"
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
	if c.Duration < 0 || c.ReportedCost < 0 || c.Tenant == "" || len(c.Name) > 128 || c.Start < earliest {
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

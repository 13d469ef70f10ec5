package ingest

import (
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/flyball/flyball/ingest/dialect"
	"github.com/flyball/flyball/ingest/otlp"
	"github.com/flyball/flyball/schema"
)

// TestKeyDecidesTenant: a key's own tenant is that of all it sends, unless the key leaves
// the tenant to its sender, by a list or as a trusted gateway; then it is that of spans
// which name none. "" is a span that is rejected.
func TestKeyDecidesTenant(t *testing.T) {
	r, err := dialect.New(dialect.Options{})
	if err != nil {
		t.Fatal(err)
	}
	f := func(k schema.Key, named, want string) {
		t.Helper()
		k.Name, k.SHA256 = "k", schema.HashSecret("x")
		if err := k.Validate(); err != nil {
			t.Fatal(err)
		}
		td := ptrace.NewTraces()
		rs := td.ResourceSpans().AppendEmpty()
		s := rs.ScopeSpans().AppendEmpty().Spans().AppendEmpty()
		s.SetName("chat m-5")
		s.SetTraceID([16]byte{1})
		s.SetSpanID([8]byte{1})
		s.Attributes().PutStr("gen_ai.operation.name", "chat")
		if named != "" {
			s.Attributes().PutStr("tenant.id", named)
		}
		calls, rejected := r.AppendSpans(nil, td, origin(otlp.Sender{Key: k}), time.Now().UnixNano())
		got := ""
		if len(calls) == 1 {
			got = calls[0].Tenant
		}
		if got != want || (want == "") != (rejected["tenant not allowed by the key"] == 1) {
			t.Errorf("%+v, a span of %q: tenant %q, want %q; rejected %v", k, named, got, want, rejected)
		}
		if got != "" && !k.Allows(got) {
			t.Errorf("%+v: a span of tenant %q was taken, for which the key may not act", k, got)
		}
	}
	own := schema.Key{Role: schema.KeyIngest, Tenant: "t-1"}
	f(own, "", "t-1")
	f(own, "t-2", "t-1")
	list := schema.Key{Role: schema.KeyIngest, Tenant: "t-1", Tenants: []string{"t-2"}}
	f(list, "", "t-1")
	f(list, "t-1", "t-1")
	f(list, "t-2", "t-2")
	f(list, "t-3", "")
	gateway := schema.Key{Role: schema.KeyIngest, Tenant: "t-1", Trusted: schema.TrustedGateway}
	f(gateway, "", "t-1")
	f(gateway, "t-2", "t-2")
	bound := schema.Key{Role: schema.KeyIngest, Tenant: "t-1", Tenants: []string{"t-1"}, Trusted: schema.TrustedGateway}
	f(bound, "", "t-1")
	f(bound, "t-2", "")
	open := schema.Key{Role: schema.KeyIngest, Trusted: schema.TrustedGateway}
	f(open, "", "default")
	f(open, "t-2", "t-2")
	few := schema.Key{Role: schema.KeyIngest, Tenants: []string{"t-2", "t-3"}, Trusted: schema.TrustedGateway}
	f(few, "", "")
	f(few, "t-3", "t-3")
	// What an administrator may do is what his key lists, also where it is trusted.
	f(schema.Key{Role: schema.KeyAdmin, Tenant: "t-1", Trusted: schema.TrustedGateway}, "t-2", "t-1")
	f(schema.Key{Role: schema.KeyAdmin, Tenants: []string{schema.AllTenants}}, "t-2", "t-2")
}

package schema_test

import (
	"math/big"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/flyball/flyball/schema"
	"github.com/flyball/flyball/schema/schematest"
)

// What is sent again is one row, under the same token and, after a crash, under another.
func TestEnforcementRowsAreThereOnce(t *testing.T) {
	conn := schematest.Open(t).Conn()
	if err := schema.Retain(t.Context(), conn, "", 13, 37); err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 11, 29, 10, 0, 0, 123_456_000, time.UTC)
	var much schema.Sum
	for range 3 {
		much = much.Plus(schema.SumOf(1<<63 - 1)) // more than 64 bits hold
	}
	took := int64(2_500_000)
	rows := []schema.Enforcement{
		{Seq: 1, Node: "n", At: at, Kind: "directive", Guard: "user-day", Tenant: "t-1", Scope: "user u-1 of tenant t-1", User: "u-1", Action: "warn", Measure: "cost", Value: "$5", Limit: "$6", Rung: "80%", Window: "day", Shadow: true, Directive: "user-day/1", Revision: "1.2", Reason: "r"},
		{Seq: 2, Node: "n", At: at, Kind: schema.EnforcementLeak, Guard: "user-day", Tenant: "t-1", Class: "propagation", Calls: 3, USD: &much, Limiter: "gw", Trace: "00ff"},
		{Seq: 3, Node: "n", At: at, Kind: schema.EnforcementApplied, Guard: "user-day", Tenant: "t-1", Limiter: "gw", Took: &took},
	}
	for _, token := range []string{"a", "a", "b"} {
		if err := schema.SendEnforcement(t.Context(), conn, token, rows); err != nil {
			t.Fatal(err)
		}
	}
	if err := schema.SendEnforcement(t.Context(), conn, "none", nil); err != nil {
		t.Fatal(err)
	}
	n := 0
	each(t, conn, "SELECT seq, at, shadow, calls, cost, took_ns, after_span_ns, user, class FROM enforcement FINAL ORDER BY seq", func(r driver.Rows) error {
		var seq uint64
		var when time.Time
		var shadow uint8
		var calls int64
		var cost *big.Int
		var ns, after *int64
		var user, class string
		if err := r.Scan(&seq, &when, &shadow, &calls, &cost, &ns, &after, &user, &class); err != nil {
			return err
		}
		want := rows[n]
		n++
		if seq != want.Seq || !when.Equal(at) || (shadow == 1) != want.Shadow || calls != want.Calls || user != want.User || class != want.Class || after != nil {
			t.Errorf("row %d: %v %d %d %q %q %v", seq, when, shadow, calls, user, class, after)
		}
		if (cost == nil) != (want.USD == nil) || cost != nil && cost.Cmp(want.USD.Big()) != 0 {
			t.Errorf("row %d: cost %v, want %v", seq, cost, want.USD)
		}
		if (ns == nil) != (want.Took == nil) || ns != nil && *ns != took {
			t.Errorf("row %d: took %v", seq, ns)
		}
		return nil
	})
	if n != len(rows) {
		t.Errorf("%d rows, want %d", n, len(rows))
	}
}

func TestSumJSON(t *testing.T) {
	good := func(text string) {
		t.Helper()
		var s schema.Sum
		if err := s.UnmarshalJSON([]byte(text)); err != nil {
			t.Error(err)
		} else if b, err := s.MarshalJSON(); err != nil || string(b) != text {
			t.Errorf("%s comes back as %s, %v", text, b, err)
		}
	}
	good(`"0"`)
	good(`"-0.000000000001"`)
	good(`"92233720368547.75807"`)
	bad := func(text string) {
		t.Helper()
		var s schema.Sum
		if err := s.UnmarshalJSON([]byte(text)); err == nil {
			t.Errorf("%s is read as %s", text, s)
		}
	}
	bad(`1`)
	bad(`""`)
	bad(`"1e3"`)
	bad(`"1/3"`)
	bad(`"0.0000000000001"`)
}

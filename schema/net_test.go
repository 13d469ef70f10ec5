package schema_test

import (
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/flyball/flyball/schema"
	"github.com/flyball/flyball/schema/schematest"
)

// An entry that is read back leaves the same in every column when it is stored
// again, and cancelled versions are not read.
func TestEachNet(t *testing.T) {
	conn := schematest.Open(t).Conn()
	r := rand.New(rand.NewPCG(7, 8))
	want := map[string]schema.Entry{}
	var all []schema.Entry
	for i := range 40 {
		e := randomEntry(r)
		e.Sign = 1
		all = append(all, e)
		if i%2 == 0 { // corrected, and every fourth then taken back
			minus, plus := e, e
			minus.Sign, plus.Version = -1, 2
			plus.Posting.Cost++
			all = append(all, minus, plus)
			e = plus
			if i%4 == 0 {
				minus = plus
				minus.Sign = -1
				all = append(all, minus)
				continue
			}
		}
		want[e.Trace.String()+e.Span.String()] = e
	}
	send(t, conn, "net", all...)
	got := 0
	if err := schema.EachNet(t.Context(), conn, "part >= ?", []any{0}, func(e schema.Entry) error {
		got++
		w, ok := want[e.Trace.String()+e.Span.String()]
		if !ok {
			t.Errorf("line %s was taken back, version %d", e.Span, e.Version)
			return nil
		}
		if a, b := texts(&w), texts(&e); !maps.Equal(a, b) {
			for k := range a {
				if a[k] != b[k] {
					t.Errorf("%s: %q, want %q", k, b[k], a[k])
				}
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if got != len(want) {
		t.Errorf("%d lines, want %d", got, len(want))
	}
}

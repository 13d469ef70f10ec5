package enforce

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/flyball/flyball/enforce/directive"
	"github.com/flyball/flyball/schema"
	"github.com/flyball/flyball/schema/state"
)

// TestSeenIsRemembered: what was posted lately is the same after any restart, place by
// place, also when the oldest made room more than once; and it does not grow.
func TestSeenIsRemembered(t *testing.T) {
	store, err := state.Open(state.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	s := seen{has: map[uint64]bool{}}
	next := uint64(0)
	f := func(add int) {
		t.Helper()
		for range add {
			next++
			s.add(next * 0x9e3779b97f4a7c15)
			s.add((next - next%3) * 0x9e3779b97f4a7c15) // known already
		}
		b := store.NewBatch()
		if err := s.save(b); err != nil {
			t.Fatal(err)
		}
		if err := b.Commit(false); err != nil {
			t.Fatal(err)
		}
		var again seen
		if err := again.restore(store); err != nil {
			t.Fatal(err)
		}
		if again.n != s.n || !slices.Equal(again.ring, s.ring) || !maps.Equal(again.has, s.has) || len(s.ring) > seenEntries || len(s.has) != len(s.ring) {
			t.Fatalf("after %d: %d places and %d known, restored %d and %d", s.n, len(s.ring), len(s.has), len(again.ring), len(again.has))
		}
		s = again
	}
	for _, n := range []int{0, 1, 0, 254, 1, 1, 300, 5000, 3*seenEntries/2 + 7, 100, seenBlock, 2*seenEntries + 1, 1} {
		f(n)
	}
	blocks := 0
	if err := store.Each(keySeenBlock, func(string, []byte) error { blocks++; return nil }); err != nil {
		t.Fatal(err)
	}
	if blocks != seenEntries/seenBlock {
		t.Errorf("%d blocks in the store, want %d", blocks, seenEntries/seenBlock)
	}
}

// lagging is a log whose entries are applied after a promise that stands behind them was
// made, as while the loop is behind.
func lagging(t *testing.T, s *script, entry *schema.Entry, promise func()) {
	t.Helper()
	var b schema.Batch
	b.Reset(time.Now().UnixMicro())
	b.Add(entry.Sign, entry.Version, time.Now().UnixMilli(), schema.AppendCall(nil, &entry.Call), schema.AppendPosting(nil, &entry.Posting, &entry.Call))
	s.log.add(RecordEntries, b.Bytes())
	promise()
	s.follow()
}

// TestPromiseBehindItsEntry: a call was promised while its entry, which stands before the
// promise in the log, was not applied yet. Read again, the two come the other way round,
// and must end the same: nothing stays held for it.
func TestPromiseBehindItsEntry(t *testing.T) {
	const trace, span = "000000000000000000000000000000aa", "00000000000000aa"
	call := directive.Call{Tenant: "t-1", Model: "m-5", TraceID: trace, SpanID: span}
	f := func(what string, promise func(s *script)) {
		t.Helper()
		s := newScript(t, t.TempDir())
		s.policy = []byte("guards:\n  - {name: cap, scope: [tenant], measure: cost, window: {calendar: month, tz: UTC}, limit: \"1000\", ladder: [{at: 100%, do: soft_block}], outcome: pause}\n")
		s.start()
		defer func() { _ = s.store.Close() }()
		lagging(t, s, s.entry(0, map[string]string{"tenant": "t-1", "model": "m-5", "cost": "2", "trace": trace, "span": span}), func() { promise(s) })
		for _, when := range []string{"at once", "after a crash"} {
			b, err := s.loop.BudgetsFor(&call, true)
			if err != nil || len(b) != 1 {
				t.Fatal(b, err)
			}
			if b[0].Spend != "$2" || b[0].Holds != "$0" || b[0].Leases != "$0" {
				t.Errorf("%s, %s: spent %s, held %s, leased %s; want $2 and nothing", what, when, b[0].Spend, b[0].Holds, b[0].Leases)
			}
			s.start()
		}
	}
	f("a charge", func(s *script) {
		if err := s.loop.Charge(call, Settlement{Tokens: map[string]uint64{"input": 1000}}, 0, "k"); err != nil {
			t.Fatal(err)
		}
	})
	f("a lease", func(s *script) {
		if l, a, err := s.loop.Reserve(t.Context(), []directive.Call{call}, "k"); err != nil || len(l) != 1 {
			t.Fatal(a, err)
		}
	})
}

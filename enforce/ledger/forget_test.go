package ledger

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/flyball/flyball/enforce/directive"
	"github.com/flyball/flyball/schema"
	"github.com/flyball/flyball/schema/state"
)

func save(t testing.TB, l *Ledger, s *state.Store) {
	t.Helper()
	b := s.NewBatch()
	if err := l.Save(b); err != nil {
		t.Fatal(err)
	}
	if err := b.Commit(false); err != nil {
		t.Fatal(err)
	}
	l.Begin()
	l.Shrink()
}

// TestRename: one user's accounts, most of which are in the store only, go on under a
// pseudonym with the sums they had, also after a restart; nothing in the store has him
// any more, nor what was kept of a guard that is gone.
func TestRename(t *testing.T) {
	s := open(t, t.TempDir())
	defer s.Close()
	families := append([]Family{
		{Scope: []directive.Dim{directive.Feature, directive.User}, Window: Window{Unit: Rolling, Over: time.Hour}, PerRun: true},
		{Scope: []directive.Dim{directive.Tenant}, Match: []Match{{"user", []string{"u-7"}}}, Window: Window{Unit: Day}},
	}, testFamilies...)
	small, plain := New(Options{Store: s, MaxAccounts: 20}), New(Options{})
	use := func(list []Family) {
		t.Helper()
		for _, l := range []*Ledger{small, plain} {
			if err := l.Use(list, 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	use(families)
	r := rand.New(rand.NewPCG(3, 4))
	at := time.Date(2026, 11, 29, 10, 0, 0, 0, time.UTC)
	who := schema.NewForgetting("t-1", " U-7", "forgotten-0011223344556677")
	apply := func(n int, rename bool) {
		t.Helper()
		for i := range n {
			at = at.Add(time.Second)
			e := testEntry(r, 30, at)
			for _, l := range []*Ledger{small, plain} {
				l.Begin()
				if l == plain || rename {
					who.Entry(&e) // the one that has never heard of him
				}
				if err := l.Apply(&e, 0); err != nil {
					t.Fatal(err)
				}
				if l == small && i%50 == 0 {
					save(t, small, s)
				}
			}
		}
	}
	// plain has the pseudonym from the beginning, and small gets the entries first.
	apply(2000, false)
	save(t, small, s)
	use(families[2:]) // the policy that named him, and another guard, are gone
	if accounts, _, _ := small.Stats(); accounts > 20 {
		t.Fatalf("%d accounts in memory", accounts)
	}
	renamed := 0
	if err := small.Rename(who, func(a *Account, before string) {
		renamed++
		if small.Renamed(who, before) != a.Key() {
			t.Errorf("%q became %q", before, a.Key())
		}
	}); err != nil {
		t.Fatal(err)
	}
	if renamed == 0 {
		t.Fatal("nothing was renamed: the test tests nothing")
	}
	apply(500, true)
	save(t, small, s)
	if err := small.Purge(who); err != nil {
		t.Fatal(err)
	}
	if err := s.Each("ledger/", func(name string, _ []byte) error {
		// Of other tenants the same id is somebody else's.
		if strings.Contains(name, "\x03t-1") && strings.Contains(name, "\x03u-7") || strings.Contains(name, `"u-7"`) {
			t.Errorf("the store has %q", name)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	again := New(Options{Store: s})
	if err := again.Use(families[2:], 0); err != nil {
		t.Fatal(err)
	}
	for key, want := range plain.All() {
		if want.Family < 0 {
			continue
		}
		got, err := again.ByKey(key, want.Start, want.End)
		if err != nil {
			t.Fatal(err)
		}
		again.Advance(got, at)
		plain.Advance(want, at)
		if got.Counts != want.Counts {
			t.Errorf("account %q is %s, want %s", key, got.Counts, want.Counts)
		}
	}
}

// BenchmarkRename is what one user costs among so many accounts of a guard that has
// users in its scope; decisions wait for it.
func BenchmarkRename(b *testing.B) {
	const users = 200_000
	s := open(b, b.TempDir())
	defer s.Close()
	l := New(Options{Store: s, MaxAccounts: 1000})
	if err := l.Use([]Family{{Scope: []directive.Dim{directive.Tenant, directive.User}, Window: Window{Unit: Day}}}, 0); err != nil {
		b.Fatal(err)
	}
	e := testEntry(rand.New(rand.NewPCG(1, 2)), 10, time.Now())
	for i := range users {
		e.Posting.Identity[schema.User] = fmt.Sprintf("user-%d", i)
		if i%512 == 0 {
			save(b, l, s)
		}
		if err := l.Apply(&e, 0); err != nil {
			b.Fatal(err)
		}
	}
	save(b, l, s)
	n := 0
	for b.Loop() {
		n++
		if err := l.Rename(schema.NewForgetting(e.Tenant, fmt.Sprintf("user-%d", n), schema.Pseudonym()), func(*Account, string) {}); err != nil {
			b.Fatal(err)
		}
	}
}

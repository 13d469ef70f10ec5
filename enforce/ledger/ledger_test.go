package ledger

import (
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/flyball/flyball/enforce/directive"
	"github.com/flyball/flyball/schema"
	"github.com/flyball/flyball/schema/state"
)

func TestWindowBounds(t *testing.T) {
	f := func(w Window, zone, at, start, end string) {
		t.Helper()
		z, err := time.LoadLocation(zone)
		if err != nil {
			t.Fatal(err)
		}
		in, err := time.Parse(time.RFC3339, at)
		if err != nil {
			t.Fatal(err)
		}
		s, e := w.Bounds(in, z)
		if got := s.UTC().Format(time.RFC3339); got != start {
			t.Errorf("%s in %s at %s starts %s, want %s", w, zone, at, got, start)
		}
		if got := e.UTC().Format(time.RFC3339); got != end {
			t.Errorf("%s in %s at %s ends %s, want %s", w, zone, at, got, end)
		}
	}
	day, month, week, hour := Window{Unit: Day}, Window{Unit: Month}, Window{Unit: Week}, Window{Unit: Hour}
	f(day, "Asia/Shanghai", "2026-09-10T13:30:00Z", "2026-09-09T16:00:00Z", "2026-09-10T16:00:00Z")
	f(day, "Asia/Shanghai", "2026-09-10T16:00:00Z", "2026-09-10T16:00:00Z", "2026-09-11T16:00:00Z")
	f(day, "America/New_York", "2027-03-14T12:00:00Z", "2027-03-14T05:00:00Z", "2027-03-15T04:00:00Z") // 23 hours
	f(day, "America/New_York", "2026-11-01T12:00:00Z", "2026-11-01T04:00:00Z", "2026-11-02T05:00:00Z") // 25 hours
	f(day, "America/Santiago", "2026-09-06T12:00:00Z", "2026-09-06T04:00:00Z", "2026-09-07T03:00:00Z") // midnight is skipped
	f(hour, "Asia/Kolkata", "2026-11-01T10:40:00Z", "2026-11-01T10:30:00Z", "2026-11-01T11:30:00Z")
	f(hour, "America/New_York", "2026-11-01T06:10:00Z", "2026-11-01T06:00:00Z", "2026-11-01T07:00:00Z") // the second one o'clock
	f(week, "UTC", "2026-11-29T23:59:59Z", "2026-11-23T00:00:00Z", "2026-11-30T00:00:00Z")
	f(Window{Unit: Week, Anchor: 7}, "UTC", "2026-11-29T00:00:00Z", "2026-11-29T00:00:00Z", "2026-12-06T00:00:00Z")
	f(month, "UTC", "2026-12-31T23:00:00Z", "2026-12-01T00:00:00Z", "2027-01-01T00:00:00Z")
	anchor := Window{Unit: Month, Anchor: 31}
	for _, m := range [][3]string{
		{"2026-02-10T00:00:00Z", "2026-01-31T00:00:00Z", "2026-02-28T00:00:00Z"},
		{"2026-02-28T00:00:00Z", "2026-02-28T00:00:00Z", "2026-03-31T00:00:00Z"},
		{"2026-04-01T00:00:00Z", "2026-03-31T00:00:00Z", "2026-04-30T00:00:00Z"},
		{"2026-05-30T23:59:59Z", "2026-04-30T00:00:00Z", "2026-05-31T00:00:00Z"},
		{"2028-02-29T00:00:00Z", "2028-02-29T00:00:00Z", "2028-03-31T00:00:00Z"},
	} {
		f(anchor, "UTC", m[0], m[1], m[2])
	}
	f(Window{Unit: Month, Anchor: 31, Zone: time.FixedZone("x", 2*3600)}, "UTC", "2026-02-10T00:00:00Z", "2026-01-30T22:00:00Z", "2026-02-27T22:00:00Z")
}

// TestWindowsTile says that windows follow each other without a gap or an overlap,
// in every zone and for every anchor.
func TestWindowsTile(t *testing.T) {
	for _, zone := range []string{"UTC", "Europe/Berlin", "America/Santiago", "Pacific/Apia", "Asia/Kathmandu", "Australia/Lord_Howe", "Africa/Casablanca"} {
		z, err := time.LoadLocation(zone)
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range []Window{{Unit: Hour}, {Unit: Day}, {Unit: Week, Anchor: 3}, {Unit: Month}, {Unit: Month, Anchor: 29}, {Unit: Month, Anchor: 31}} {
			at := time.Date(2011, 12, 20, 3, 0, 0, 0, time.UTC) // Apia skipped a whole day at the end of that year
			n := 800
			if w.Unit == Month {
				n = 60
			}
			for range n {
				s, e := w.Bounds(at, z)
				if at.Before(s) || !at.Before(e) || !s.Before(e) {
					t.Fatalf("%s in %s: %s is not in [%s, %s)", w, zone, at, s, e)
				}
				if s2, e2 := w.Bounds(e.Add(-1), z); !s2.Equal(s) || !e2.Equal(e) {
					t.Fatalf("%s in %s: the window of its last instant is [%s, %s), not [%s, %s)", w, zone, s2, e2, s, e)
				}
				if s2, _ := w.Bounds(e, z); !s2.Equal(e) {
					t.Fatalf("%s in %s: the window after [%s, %s) begins at %s", w, zone, s, e, s2)
				}
				at = e
			}
		}
	}
}

func open(t testing.TB, dir string) *state.Store {
	t.Helper()
	s, err := state.Open(state.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

var testFamilies = []Family{
	{Scope: []directive.Dim{directive.Run}},
	{Scope: []directive.Dim{directive.Run}, Match: []Match{{"mode", []string{"batch"}}}},
	{Scope: []directive.Dim{directive.Tenant, directive.User}, Window: Window{Unit: Day}},
	{Scope: []directive.Dim{directive.Tenant, directive.Feature}, Window: Window{Unit: Month}},
	{Scope: []directive.Dim{directive.Tenant}, Window: Window{Unit: Rolling, Over: 10 * time.Minute}},
	{Scope: []directive.Dim{directive.Workflow}, Window: Window{Unit: Rolling, Over: time.Hour}, PerRun: true},
	{Org: true, Window: Window{Unit: Hour}},
	{Org: true, Scope: []directive.Dim{directive.Model}, Window: Window{Unit: Rolling, Over: 10 * time.Minute}},
}

func testEntry(r *rand.Rand, users int, at time.Time) schema.Entry {
	e := schema.Entry{Sign: 1, Version: 1, RecordedAt: at.UnixMicro()}
	e.Tenant, e.Start, e.Duration, e.Model, e.RequestedModel = fmt.Sprintf("t-%d", r.IntN(3)), at.UnixNano(), 1e9, "m-5-2026", "m-5"
	id := &e.Posting.Identity
	id[schema.Run], id[schema.User], id[schema.Feature], id[schema.Workflow] = fmt.Sprintf("r-%d", r.IntN(users)), fmt.Sprintf("u-%d", r.IntN(users)), "f", "w"
	e.Posting.Kind, e.Posting.ModelCalls = schema.KindModel, 1
	e.Posting.Status, e.Posting.Cost = schema.CostPriced, schema.Money(r.Int64N(1e12))
	e.Posting.Exposure = e.Posting.Cost
	e.Posting.Tokens.Input, e.Posting.Tokens.Output = uint64(r.IntN(10_000)), uint64(r.IntN(1000))
	return e
}

// TestEvictionKeepsSums lets nearly every account leave memory between two changes.
func TestEvictionKeepsSums(t *testing.T) {
	s := open(t, t.TempDir())
	defer s.Close()
	small, large := New(Options{Store: s, MaxAccounts: 50}), New(Options{})
	for _, l := range []*Ledger{small, large} {
		if err := l.Use(testFamilies, 0); err != nil {
			t.Fatal(err)
		}
	}
	r := rand.New(rand.NewPCG(1, 2))
	at := time.Date(2026, 11, 29, 10, 0, 0, 0, time.UTC)
	for i := range 5000 {
		at = at.Add(time.Second)
		e := testEntry(r, 300, at)
		if i%7 == 0 {
			e.Sign = -1
		}
		for _, l := range []*Ledger{small, large} {
			l.Begin()
			if err := l.Apply(&e, 0); err != nil {
				t.Fatal(err)
			}
		}
		if i%100 == 0 {
			b := s.NewBatch()
			if err := small.Save(b); err != nil {
				t.Fatal(err)
			}
			if err := b.Commit(false); err != nil {
				t.Fatal(err)
			}
			small.Shrink()
			if n, _, _ := small.Stats(); n > 50 {
				t.Fatalf("%d accounts in memory, want at most 50", n)
			}
		}
	}
	if _, _, loads := small.Stats(); loads == 0 {
		t.Fatal("nothing came back from the store: the test tests nothing")
	}
	for k, want := range large.All() {
		got, err := small.ByKey(k, want.Start, want.End)
		if err != nil {
			t.Fatal(err)
		}
		small.Advance(got, at)
		large.Advance(want, at)
		if got.Counts != want.Counts || got.First != want.First {
			t.Fatalf("account %q is %s, want %s", k, got.Counts, want.Counts)
		}
	}
}

// TestPerRunMoves says that attempts count for a scope only of runs that have a model
// call, whatever the order in which calls come and are taken back.
func TestPerRunMoves(t *testing.T) {
	l := New(Options{})
	if err := l.Use([]Family{{Scope: []directive.Dim{directive.Workflow}, Window: Window{Unit: Day}, PerRun: true}}, 0); err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 11, 29, 10, 0, 0, 0, time.UTC)
	post := func(sign int8, run, workflow string, model bool) {
		t.Helper()
		e := schema.Entry{Sign: sign, RecordedAt: at.UnixMicro()}
		e.Tenant, e.Start = "t", at.UnixNano()
		e.Posting.Identity[schema.Run], e.Posting.Identity[schema.Workflow] = run, workflow
		if model {
			e.Posting.ModelCalls = 1
		} else {
			e.Posting.ToolCalls = 1
		}
		l.Begin()
		if err := l.Apply(&e, 0); err != nil {
			t.Fatal(err)
		}
	}
	want := func(workflow string, requests, attempts int64) {
		t.Helper()
		a, err := l.Find(0, at, func(d directive.Dim) string {
			return map[directive.Dim]string{directive.Tenant: "t", directive.Workflow: workflow}[d]
		}, true)
		if err != nil {
			t.Fatal(err)
		}
		if a.Requests != requests || a.Attempts != attempts {
			t.Fatalf("workflow %q: %d requests, %d attempts; want %d, %d", workflow, a.Requests, a.Attempts, requests, attempts)
		}
	}
	post(1, "r", "", false)
	post(1, "r", "", false)
	want("", 0, 0)
	post(1, "r", "", true)
	want("", 1, 3)
	post(1, "s", "", true)
	want("", 2, 4)
	// The run turns out to be of a workflow: its calls move one by one.
	for _, model := range []bool{false, false, true} {
		post(-1, "r", "", model)
		post(1, "r", "w", model)
	}
	want("", 1, 1)
	want("w", 1, 3)
	post(-1, "r", "w", true)
	want("w", 0, 0)
}

// BenchmarkApply is the cost of an entry for eight families, which guards share.
func BenchmarkApply(b *testing.B) {
	l := New(Options{})
	if err := l.Use(testFamilies, 0); err != nil {
		b.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	at := time.Now()
	entries := make([]schema.Entry, 10_000)
	for i := range entries {
		entries[i] = testEntry(r, 1000, at)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if i%512 == 0 {
			l.Begin()
		}
		if err := l.Apply(&entries[i%len(entries)], 0); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkAccounts is the memory of an account, in the metric B/account.
func BenchmarkAccounts(b *testing.B) {
	l := New(Options{MaxAccounts: 1 << 30})
	if err := l.Use(testFamilies[2:3], 0); err != nil {
		b.Fatal(err)
	}
	at := time.Now()
	e := testEntry(rand.New(rand.NewPCG(1, 2)), 10, at)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		e.Posting.Identity[schema.User] = fmt.Sprintf("user-%d", i)
		if i%512 == 0 {
			l.Begin()
		}
		if err := l.Apply(&e, 0); err != nil {
			b.Fatal(err)
		}
	}
}

// TestManyUsers is a sender that makes up user ids: memory stays bounded, every sum
// stays right, and the caps of wider scopes still see all of it.
func TestManyUsers(t *testing.T) {
	users := 100_000
	if os.Getenv("FLYBALL_FAULT") == "long" {
		users = 1_000_000
	}
	s := open(t, t.TempDir())
	defer s.Close()
	l := New(Options{Store: s, MaxAccounts: 20_000})
	if err := l.Use([]Family{{Scope: []directive.Dim{directive.Tenant, directive.User}, Window: Window{Unit: Day}}, {Scope: []directive.Dim{directive.Tenant}, Window: Window{Unit: Day}}}, 0); err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 11, 29, 10, 0, 0, 0, time.UTC)
	e := schema.Entry{Sign: 1, Version: 1, RecordedAt: at.UnixMicro()}
	e.Tenant, e.Start = "t", at.UnixNano()
	e.Posting.Kind, e.Posting.ModelCalls, e.Posting.Status, e.Posting.Cost, e.Posting.Exposure = schema.KindModel, 1, schema.CostPriced, 9e10, 9e10 // 0.09 USD
	save := func() {
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
	for round := range 2 { // the second time every account comes back from the store
		for i := range users {
			if round == 1 && i%10 != 0 {
				continue
			}
			e.Posting.Identity[schema.User] = fmt.Sprintf("made-up-%d", i)
			if i%512 == 0 {
				l.Begin()
			}
			if err := l.Apply(&e, 0); err != nil {
				t.Fatal(err)
			}
			if i%5000 == 4999 {
				save()
				if n, _, _ := l.Stats(); n > 20_000 {
					t.Fatalf("%d accounts in memory", n)
				}
			}
		}
		save()
	}
	find := func(family int, user string) *Account {
		t.Helper()
		a, err := l.Find(family, at, func(d directive.Dim) string {
			return map[directive.Dim]string{directive.Tenant: "t", directive.User: user}[d]
		}, false)
		if err != nil || a == nil {
			t.Fatalf("user %q: %v, %v", user, a, err)
		}
		return a
	}
	if got := find(0, "made-up-10").Exposure.String(); got != "0.18" {
		t.Errorf("a user that came twice has %s, want 0.18", got)
	}
	if got := find(0, "made-up-11").Exposure.String(); got != "0.09" {
		t.Errorf("a user that came once has %s, want 0.09", got)
	}
	want := schema.Money(int64(users+users/10) * 9e10).String()
	if got := find(1, "").Exposure.String(); got != want {
		t.Errorf("the tenant has %s, want %s", got, want)
	}
	if l.Opened() != uint64(users)+1 {
		t.Errorf("%d accounts were opened, want %d", l.Opened(), users+1)
	}
}

// TestFamilyThatWasAway: a guard that is taken out of the policy and put back has
// missed what came meanwhile, so it starts anew and says that it is warming.
func TestFamilyThatWasAway(t *testing.T) {
	s := open(t, t.TempDir())
	defer s.Close()
	l := New(Options{Store: s})
	family := testFamilies[2:3]
	if err := l.Use(family, 0); err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 11, 29, 10, 0, 0, 0, time.UTC)
	e := testEntry(rand.New(rand.NewPCG(1, 2)), 1, at)
	apply := func() {
		t.Helper()
		l.Begin()
		if err := l.Apply(&e, 0); err != nil {
			t.Fatal(err)
		}
	}
	apply()
	l.Boundary(1)
	if _, warming := l.Warming(0); warming {
		t.Fatal("nothing was before the first chunk")
	}
	apply()
	if err := l.Use(nil, 1); err != nil {
		t.Fatal(err)
	}
	apply()
	l.Boundary(2)
	if err := l.Use(family, 2); err != nil {
		t.Fatal(err)
	}
	since, warming := l.Warming(0)
	if !warming || since != 3 {
		t.Errorf("since chunk %d, warming %v; want 3, true", since, warming)
	}
	l.Boundary(3)
	apply()
	a, err := l.Find(0, at, func(d directive.Dim) string { return dimOf(&e, d) }, true)
	if err != nil {
		t.Fatal(err)
	}
	if a.ModelCalls != 1 {
		t.Errorf("%d calls, want 1: what was before comes from the journal, once", a.ModelCalls)
	}
	// The same over a restart with another policy in between.
	for _, f := range [][]Family{nil, family} {
		l = New(Options{Store: s})
		if err := l.Use(f, 3); err != nil {
			t.Fatal(err)
		}
	}
	if since, warming := l.Warming(0); !warming || since != 4 {
		t.Errorf("since chunk %d, warming %v; want 4, true", since, warming)
	}
}

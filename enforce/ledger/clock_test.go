package ledger

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flyball/flyball/enforce/directive"
	"github.com/flyball/flyball/schema/state"
)

var rollingHour = []Family{{Scope: []directive.Dim{directive.Tenant}, Window: Window{Unit: Rolling, Over: time.Hour}}}

// rolling is a ledger with one rolling hour of one tenant.
type rolling struct {
	*Ledger
	t     *testing.T
	r     *rand.Rand
	store *state.Store
}

func (l *rolling) open() {
	l.t.Helper()
	l.Ledger = New(Options{Store: l.store})
	if err := l.Use(rollingHour, 0); err != nil {
		l.t.Fatal(err)
	}
}

// call counts a call that started at one instant while the clock said another.
func (l *rolling) call(start, now time.Time) {
	l.t.Helper()
	e := testEntry(l.r, 1, start)
	e.Tenant, e.RecordedAt = "t", now.UnixMicro()
	l.Begin()
	if err := l.Apply(&e, 0); err != nil {
		l.t.Fatal(err)
	}
}

func (l *rolling) at(now time.Time) *Account {
	l.t.Helper()
	a, err := l.Find(0, now, func(directive.Dim) string { return "t" }, false)
	if err != nil || a == nil {
		l.t.Fatal(a, err)
	}
	return a
}

func (l *rolling) want(what string, now time.Time, calls int64) {
	l.t.Helper()
	a := l.at(now)
	if a.ModelCalls != calls {
		l.t.Errorf("%s: %d calls in the last hour, want %d", what, a.ModelCalls, calls)
	}
	var sum Counts
	for i := range a.buckets {
		if a.buckets[i].at > a.left {
			sum.plus(&a.buckets[i].Counts)
		}
	}
	if sum != a.Counts {
		l.t.Errorf("%s: the sums are %s, and their parts %s", what, a.Counts.String(), sum.String())
	}
}

func (l *rolling) save() {
	l.t.Helper()
	b := l.store.NewBatch()
	if err := l.Save(b); err != nil {
		l.t.Fatal(err)
	}
	if err := b.Commit(true); err != nil {
		l.t.Fatal(err)
	}
}

// ticks runs a test on a clock of its own, of which the ledger sees how much time passes:
// what time it is said to be is up to the test.
func ticks(t *testing.T, f func(l *rolling)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		l := &rolling{t: t, r: rand.New(rand.NewPCG(1, 2)), store: open(t, dir)}
		defer l.store.Close()
		l.open()
		f(l)
	})
}

// TestClockAheadAndBack: a clock that runs hours ahead and is then set right finds the last
// hour as it was, with the calls of meanwhile, over restarts and over what is saved.
func TestClockAheadAndBack(t *testing.T) {
	const ahead = 3 * time.Hour
	now := time.Date(2026, 11, 2, 10, 0, 0, 0, time.UTC)
	pass := func(d time.Duration) { time.Sleep(d); now = now.Add(d) }
	ticks(t, func(l *rolling) {
		for range 60 {
			l.call(now, now)
			pass(time.Minute)
		}
		l.want("before", now, 59) // the first one was an hour ago
		l.want("ahead", now.Add(ahead), 0)
		l.want("and back", now, 59)
		l.save()

		// Twenty minutes ahead, with calls by the right clock and by the wrong one.
		l.want("ahead again", now.Add(ahead), 0)
		for range 20 {
			l.call(now, now.Add(ahead))
			l.call(now.Add(ahead), now.Add(ahead))
			pass(time.Minute)
		}
		l.want("ahead with calls", now.Add(ahead), 20)
		l.save()
		l.open() // the process starts again with the clock ahead
		l.want("ahead after a restart", now.Add(ahead), 20)
		l.call(now.Add(ahead), now.Add(ahead))
		l.save()
		l.open() // and with the clock set right
		// What was called by the wrong clock was called in the last hour too.
		l.want("back after a restart", now, 39+20+20+1)
		l.call(now, now)
		l.want("after a call", now, 39+20+20+1+1)
	})
}

// TestClockAheadIsBounded: what a return would need is kept for as long as the window is long,
// and not more of it than the window has, whoever sends calls of other times.
func TestClockAheadIsBounded(t *testing.T) {
	now := time.Date(2026, 11, 2, 10, 0, 0, 0, time.UTC)
	pass := func(d time.Duration) { time.Sleep(d); now = now.Add(d) }
	ticks(t, func(l *rolling) {
		most := 0
		for range 300 { // nothing is wrong with the clock
			l.call(now, now)
			pass(time.Minute)
			most = max(most, len(l.at(now).buckets))
		}
		if most > 63 {
			t.Errorf("%d sums are kept of a window of 60", most)
		}
		for i := range 3000 { // calls of long ago, the latest last
			l.call(now.Add(-100*time.Hour+time.Duration(i)*time.Minute), now)
			most = max(most, len(l.at(now).buckets))
		}
		for i := range 30 { // the clock goes wherever it likes
			at := now.Add(time.Duration(i*i) * time.Hour)
			l.call(at, at)
			most = max(most, len(l.at(at).buckets))
		}
		if most > 2*62+keepLeft {
			t.Errorf("%d sums are kept", most)
		}
		pass(2 * time.Hour)
		l.want("after two hours", now.Add(1000*time.Hour), 0)
		if n := len(l.at(now.Add(1000 * time.Hour)).buckets); n != 0 {
			t.Errorf("%d sums are kept after two hours", n)
		}
	})
}

// TestEarlierForm: an account that was stored before sums were kept for a return is read.
func TestEarlierForm(t *testing.T) {
	ticks(t, func(l *rolling) {
		now := time.Date(2026, 11, 2, 10, 0, 0, 0, time.UTC)
		l.call(now.Add(-10*time.Minute), now)
		l.call(now, now)
		a := l.at(now)
		v := a.encode(nil)
		left := len(v) - varintLen(a.left)
		old := append([]byte{2}, v[1:left]...)
		var b Account
		if err := b.decode(old); err != nil {
			t.Fatal(err)
		}
		b.Family = 0
		if b.Counts != a.Counts || len(b.buckets) != 2 {
			t.Fatalf("read %s, want %s", b.Counts.String(), a.Counts.String())
		}
		l.Advance(&b, now.Add(55*time.Minute))
		if b.ModelCalls != 1 {
			t.Errorf("%d calls are left in the window, want 1", b.ModelCalls)
		}
	})
}

func varintLen(v int64) int {
	n := 1
	for u := uint64(v)<<1 ^ uint64(v>>63); u >= 0x80; u >>= 7 {
		n++
	}
	return n
}

package enforce

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/flyball/flyball/enforce/ledger"
	"github.com/flyball/flyball/schema"
)

// Warm fills in what the counters of new guards lack: calls of before the guard that
// fall into a window which is still open. It reads the journal once for all of them,
// up to the chunk from which on they were counted live; confirmed says up to which
// chunk the journal is complete. Guards say `warming` until then.
func (l *Loop) Warm(ctx context.Context, journal Journal, confirmed func() uint64) error {
	l.mu.Lock()
	now := time.Now()
	from := now
	var cold []int
	var begins []uint64
	var last uint64
	for i := range l.byFamily {
		since, warming := l.ledger.Warming(i)
		if !warming || since == 0 {
			continue
		}
		cold, begins = append(cold, i), append(begins, since)
		last = max(last, since)
		from = earlier(from, l.windowStart(i, now))
	}
	families, renamings := l.policy.families(), l.renamings
	// A scratch ledger for each chunk at which families began.
	groups, scratches, runs := map[uint64][]int{}, map[uint64]*ledger.Ledger{}, map[uint64]*ledger.Ledger{}
	for n, i := range cold {
		groups[begins[n]] = append(groups[begins[n]], i)
	}
	for since, members := range groups {
		scratches[since] = l.ledger.Scratch(members)
		if slices.ContainsFunc(members, func(i int) bool { return l.ledger.Window(i).Unit == ledger.Run }) {
			runs[since] = l.ledger.Scratch(members)
		}
	}
	l.mu.Unlock()
	if len(cold) == 0 {
		return nil
	}
	if confirmed() < last {
		return nil // the journal will have it soon
	}
	for since, members := range groups {
		scratch := scratches[since]
		if err := journal(ctx, from, now.Add(time.Hour), since, func(e *schema.Entry) error {
			scratch.Begin()
			return scratch.Apply(e, 0)
		}); err != nil {
			return fmt.Errorf("fill in guards: %w", err)
		}
		if before := now.Add(-ledger.KeepRuns); runs[since] != nil && before.Before(from) {
			if err := fillRuns(ctx, journal, before, from, since, scratch, runs[since]); err != nil {
				return fmt.Errorf("fill in guards: %w", err)
			}
		}
		if err := l.fill(scratch, members, families, renamings); err != nil {
			return err
		}
	}
	return nil
}

// fillRuns adds to the runs of a scratch ledger what they had before it: a run that goes on
// may have begun long ago, and others need no account.
func fillRuns(ctx context.Context, journal Journal, from, to time.Time, chunk uint64, scratch, older *ledger.Ledger) error {
	if err := journal(ctx, from, to, chunk, func(e *schema.Entry) error {
		c := callOf(e)
		for i := range older.Len() {
			if older.Window(i).Unit != ledger.Run {
				continue
			}
			if a, err := scratch.Find(i, time.Unix(0, e.Start), c.Value, false); err != nil {
				return err
			} else if a != nil {
				older.Begin()
				return older.Apply(e, 0)
			}
		}
		return nil
	}); err != nil {
		return err
	}
	for key, a := range older.All() {
		if older.Window(a.Family).Unit == ledger.Run && scratch.All()[key] != nil {
			if err := scratch.Fill(key, a.Family, a); err != nil {
				return err
			}
		}
	}
	return nil
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// windowStart is the earliest instant that may count in an open window of a family.
func (l *Loop) windowStart(family int, now time.Time) time.Time {
	w := l.ledger.Window(family)
	switch w.Unit {
	case ledger.Run:
		return now.Add(-24 * time.Hour)
	case ledger.Rolling:
		return now.Add(-w.Over)
	}
	start, _ := w.Bounds(now, time.UTC)
	if w.Zone == nil {
		start = start.Add(-14 * time.Hour) // the tenant furthest east began first
	}
	return start
}

// fill adds a scratch ledger's sums to the live one.
func (l *Loop) fill(scratch *ledger.Ledger, members []int, families []ledger.Family, renamings int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.renamings != renamings {
		return errors.New("fill in guards: a user was forgotten meanwhile; it is tried again")
	}
	now := time.Now()
	current := l.policy.families()
	for n, i := range members {
		if i >= len(current) || current[i].Name() != families[i].Name() {
			return errors.New("fill in guards: the policy changed meanwhile; it is tried again")
		}
		var err error
		for key, a := range scratch.All() {
			if a.Family != n {
				continue
			}
			if key[0] == 'a' {
				scratch.Advance(a, now)
			}
			if err = l.ledger.Fill(key, i, a); err != nil {
				return err
			}
		}
		l.ledger.Warm(i)
		l.ledger.Each(func(a *ledger.Account) bool {
			if a.Family == i {
				for _, g := range l.byFamily[i] {
					if err = l.judge(g, a, now, false); err != nil {
						return false
					}
				}
			}
			return true
		})
		if err != nil {
			return err
		}
		l.event(Event{At: now.UTC(), Kind: "policy", Action: "warm", Reason: "counters of " + families[i].Name() + " have their history"})
	}
	return l.flush()
}

// Verification is what a comparison of ledger and journal found.
type Verification struct {
	Since    time.Time `json:"since"`
	Chunk    uint64    `json:"chunk"` // up to which both were compared
	Accounts int       `json:"accounts"`
	Drift    int       `json:"drift"`
	Examples []string  `json:"examples,omitempty"`
	Took     string    `json:"took"`
}

// snapshot is the counters at the end of a chunk.
type snapshot struct {
	from   int64
	chunk  uint64
	clock  int64 // unix microseconds of the last entry
	counts map[string]ledger.Counts
	ready  chan struct{}
}

// mostStored bounds how many accounts a verification brings back from the store.
const mostStored = 50_000

// Verify rebuilds from the journal the counters of windows and runs that began since
// an instant, and compares them with the ledger as it stood at the end of the same
// chunk. What differs is drift: a lost or doubled entry on either side.
func (l *Loop) Verify(ctx context.Context, journal Journal, confirmed func() uint64, since time.Time) (Verification, error) {
	started := time.Now()
	out := Verification{Since: since.UTC()}
	snap := &snapshot{from: since.UnixNano(), ready: make(chan struct{})}
	l.mu.Lock()
	if l.verifying {
		l.mu.Unlock()
		return out, unavailable(time.Minute, "the ledger is being verified already")
	}
	l.verifying = true
	renamings := l.renamings
	if l.atEnd && l.chunk > 0 {
		snap.take(l, l.chunk)
	} else {
		l.snap = snap
	}
	warm, all := map[int]bool{}, []int{}
	for i := range l.byFamily {
		_, warming := l.ledger.Warming(i)
		warm[i], all = !warming, append(all, i)
	}
	rebuilt := l.ledger.Scratch(all)
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		l.snap, l.verifying = nil, false
		l.mu.Unlock()
	}()
	select {
	case <-snap.ready:
	case <-ctx.Done():
		return out, unavailable(time.Minute, "nothing was received meanwhile; the ledger is compared at the end of a chunk")
	}
	for confirmed() < snap.chunk {
		select {
		case <-ctx.Done():
			return out, unavailable(time.Minute, "the journal does not have chunk %d yet", snap.chunk)
		case <-time.After(100 * time.Millisecond):
		}
	}
	if err := journal(ctx, since, started.Add(time.Hour), snap.chunk, func(e *schema.Entry) error {
		rebuilt.Begin()
		return rebuilt.Apply(e, 0)
	}); err != nil {
		return out, fmt.Errorf("verify ledger: %w", err)
	}
	l.mu.Lock()
	other := l.renamings != renamings
	l.mu.Unlock()
	if other {
		return out, unavailable(time.Minute, "a user was forgotten meanwhile, whose counters have another name now")
	}
	accounts := rebuilt.All()
	for key, want := range snap.counts {
		var got ledger.Counts
		if a := accounts[key]; a != nil {
			if !warm[a.Family] {
				continue
			}
			got = a.Counts
		}
		out.Accounts++
		if got != want {
			out.Drift++
			if len(out.Examples) < 10 {
				out.Examples = append(out.Examples, fmt.Sprintf("%q: ledger %s, journal %s", key, want, got))
			}
		}
	}
	// Accounts that were not in memory then stand in the store as they stood at that
	// chunk, unless they changed since.
	looked := 0
	for key, a := range accounts {
		w := rebuilt.Window(max(a.Family, 0))
		if _, done := snap.counts[key]; done || key[0] != 'a' || a.Family < 0 || !warm[a.Family] || w.Unit == ledger.Rolling || w.Unit != ledger.Run && a.Start < snap.from {
			continue
		}
		if looked++; looked > mostStored {
			break
		}
		l.mu.Lock()
		have, err := l.ledger.ByKey(key, a.Start, a.End)
		var counts ledger.Counts
		later := false
		if err == nil {
			counts, later = have.Counts, have.Touched > snap.clock*1000
		}
		l.mu.Unlock()
		if err != nil {
			return out, err
		}
		if later || w.Unit == ledger.Run && have.First < snap.from {
			continue
		}
		out.Accounts++
		if counts != a.Counts {
			out.Drift++
			if len(out.Examples) < 10 {
				out.Examples = append(out.Examples, fmt.Sprintf("%q: ledger %s, journal %s", key, counts, a.Counts))
			}
		}
	}
	out.Chunk, out.Took = snap.chunk, time.Since(started).Round(time.Millisecond).String()
	l.metrics.drift.Set(float64(out.Drift))
	if out.Drift > 0 {
		l.o.Logger.Error("ledger and journal differ", "accounts", out.Drift, "of", out.Accounts, "example", out.Examples[0])
	}
	return out, nil
}

// take copies the counters that a verification compares. mu is held, at the end of a chunk.
func (s *snapshot) take(l *Loop, chunk uint64) {
	select {
	case <-s.ready:
		return
	default:
	}
	s.chunk, s.clock, s.counts = chunk, l.clock, map[string]ledger.Counts{}
	l.ledger.Each(func(a *ledger.Account) bool {
		if w := l.ledger.Window(a.Family); w.Unit != ledger.Rolling && a.First >= s.from && a.Start >= 0 && (w.Unit == ledger.Run || a.Start >= s.from) {
			s.counts[a.Key()] = a.Counts
		}
		return true
	})
	close(s.ready)
}

package enforce

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flyball/flyball/enforce/directive"
	"github.com/flyball/flyball/enforce/page"
	"github.com/flyball/flyball/schema"
	"github.com/flyball/flyball/schema/state"
)

// Event is one thing that enforcement did, for audit and reports.
type Event = schema.Enforcement

// archive is what enforcement did and measured, on its way to ClickHouse. A row is
// stored with the decision that made it and kept until ClickHouse has it; nothing
// here waits for that.
type archive struct {
	node   string               // tells this store's rows from those of others
	leaks  map[leakKey]*leakSum // what leaked and is no row yet
	queued atomic.Int64         // rows in the store
	oldest atomic.Int64         // instant of the first of them, unix microseconds
	wake   chan struct{}
	busy   sync.Mutex // held while rows are sent, and by who changes them
}

// leakKey tells apart what is counted together until it becomes a row.
type leakKey struct{ tenant, directive, class, limiter string }

type leakSum struct {
	Event
	usd schema.Sum
}

const (
	keyArchive  = "enforce/archive/" // rows that ClickHouse lacks, by their number
	keyArchived = "enforce/archived" // events from before there was an archive are in it
)

// archiveRows is how many rows are sent at once.
const archiveRows = 5000

// openArchive counts what waits, and queues the events of a store from before there
// was an archive.
func (l *Loop) openArchive() error {
	a := &l.archive
	a.node, a.leaks, a.wake = l.mac("archive")[:16], map[leakKey]*leakSum{}, make(chan struct{}, 1)
	// Numbers go on from the last one, also where the clock was set back.
	for _, prefix := range []string{keyEvents, keyArchive} {
		last, err := l.o.Store.Last(prefix)
		if err != nil {
			return err
		}
		if last == "" {
			continue
		}
		n, err := strconv.ParseUint(last[len(prefix):], 16, 64)
		if err != nil {
			return fmt.Errorf("read %s: %w", last, err)
		}
		l.limiters.seq = max(l.limiters.seq, n)
	}
	if l.o.Archive == nil {
		return nil
	}
	begun, err := l.o.Store.Get(keyArchived)
	if err != nil {
		return err
	}
	if begun == nil {
		b := l.o.Store.NewBatch()
		err := l.o.Store.Each(keyEvents, func(_ string, v []byte) error {
			var e Event
			if err := json.Unmarshal(v, &e); err != nil {
				return err
			}
			e.Node = a.node
			return a.put(b, &e)
		})
		if err == nil {
			err = b.Put(keyArchived, []byte{1})
		}
		if err == nil {
			err = b.Commit(true)
		}
		return err
	}
	return l.o.Store.Each(keyArchive, func(_ string, v []byte) error {
		var e Event
		if err := json.Unmarshal(v, &e); err != nil {
			return err
		}
		a.counted(&e)
		return nil
	})
}

func (a *archive) put(b *state.Batch, e *Event) error {
	v, err := json.Marshal(e)
	if err != nil {
		return err
	}
	a.counted(e)
	return b.Put(fmt.Sprintf("%s%016x", keyArchive, e.Seq), v)
}

func (a *archive) counted(e *Event) {
	if a.queued.Add(1) == 1 {
		a.oldest.Store(e.At.UnixMicro())
	}
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// lag is how long the oldest row has waited.
func (a *archive) lag() time.Duration {
	if a.queued.Load() == 0 {
		return 0
	}
	return max(0, time.Since(time.UnixMicro(a.oldest.Load())))
}

// measurement reports whether a row is no event: it is in no list of what happened
// unless somebody asks for it.
func measurement(kind string) bool {
	return kind == schema.EnforcementLeak || kind == schema.EnforcementApplied
}

// leaked counts a call that started although a directive refused it. Calls that are
// alike become one row within a quarter of a second.
func (l *Loop) leaked(e *schema.Entry, h *live, class, limiter string) {
	k := leakKey{tenant: e.Tenant, directive: "kill", class: class, limiter: limiter}
	if h != nil {
		k.directive = h.ID
	}
	s := l.archive.leaks[k]
	if s == nil {
		// The entry's strings are part of a record.
		k.tenant = strings.Clone(k.tenant)
		s = &leakSum{Event: Event{Kind: schema.EnforcementLeak, Guard: "kill", Tenant: k.tenant, Scope: "the whole org", Directive: k.directive, Class: class, Limiter: limiter, Trace: e.Trace.String()}}
		if h != nil {
			s.Guard, s.Scope, s.User, s.Action = h.Guard, h.Scoped, h.Directive.Scope.Values["user"], string(h.Action)
		}
		l.archive.leaks[k] = s
	}
	s.Calls++
	s.usd.Add(e.Posting.Exposure, 1)
}

// drainLeaks makes rows of what leaked. It goes with whatever stores how far
// decisions are made, so that no call is counted twice after a crash.
func (l *Loop) drainLeaks(now time.Time) {
	for k, s := range l.archive.leaks {
		s.At, s.USD = now.UTC(), &s.usd
		l.event(s.Event)
		delete(l.archive.leaks, k)
	}
}

// late are the limiters that had not acknowledged a version when a call started.
func late(has, waiting []*limiter, v directive.Version, start int64) []*limiter {
	for _, x := range has {
		if x.ackTime(v) >= start {
			waiting = append(waiting, x)
		}
	}
	return waiting
}

// throughWhich is the only limiter that a leaked call can have come through, "" where
// there are several or none.
func throughWhich(could []*limiter) string {
	if len(could) == 1 {
		return could[0].ID
	}
	return ""
}

// followed records how long a limiter took for a directive.
func (l *Loop) followed(s *issue, id string, took time.Duration, now time.Time) {
	e := Event{At: now.UTC(), Kind: schema.EnforcementApplied, Guard: s.id, Directive: s.id, Limiter: id, Took: new(int64)}
	*e.Took = int64(took)
	if o := &s.of; o.Kind != "" {
		e.Guard, e.Tenant, e.Scope, e.User, e.Action, e.Trace = o.Guard, o.Tenant, o.Scope, o.User, o.Action, o.Trace
	}
	label := l.limiterLabel(id)
	observe(l.metrics.enforce.WithLabelValues(label), took.Seconds(), e.Trace)
	if s.ended != 0 {
		after := max(0, now.Sub(time.Unix(0, s.ended)))
		e.AfterSpan = new(int64)
		*e.AfterSpan = int64(after)
		observe(l.metrics.spanToAck.WithLabelValues(label), after.Seconds(), e.Trace)
	}
	l.event(e)
}

// pageEvent is the event of a page that was put into the outbox.
func pageEvent(p *page.Page, now time.Time) Event {
	e := Event{At: now.UTC(), Kind: "page", Guard: p.Guard, Tenant: p.Tenant, Scope: p.Scope, Action: "raised", Measure: p.Measure, Value: p.Value, Limit: p.Limit, Rung: p.Threshold, Window: p.Window, Reason: p.Title}
	if len(p.Receivers) > 0 {
		e.Reason += "; to " + strings.Join(p.Receivers, ", ")
	}
	if p.Resolved {
		e.Action = "resolved"
	}
	return e
}

// ship sends rows to ClickHouse until ctx ends.
func (l *Loop) ship(ctx context.Context) {
	const first, longest = time.Second, 30 * time.Second
	pause := first
	for ctx.Err() == nil {
		n, err := l.shipSome(ctx)
		wait := longest
		switch {
		case err != nil && ctx.Err() == nil:
			if pause == first {
				l.o.Logger.Warn("history of enforcement waits", "rows", l.archive.queued.Load(), "err", err)
			}
			wait, pause = pause, min(2*pause, longest)
		case n > 0:
			pause = first
			continue
		case l.archive.queued.Load() > 0:
			wait = 100 * time.Millisecond // counted, and about to be committed
		}
		woken := l.archive.wake
		if err != nil {
			woken = nil // new rows are no reason to ask sooner
		}
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-t.C:
		case <-woken:
		}
		t.Stop()
	}
}

// shipSome sends the oldest rows and lets them go.
func (l *Loop) shipSome(ctx context.Context) (int, error) {
	l.archive.busy.Lock()
	defer l.archive.busy.Unlock()
	if l.archive.queued.Load() == 0 {
		return 0, nil
	}
	var rows []Event
	var names []string
	enough := errors.New("enough")
	err := l.o.Store.Each(keyArchive, func(name string, v []byte) error {
		if len(rows) == archiveRows {
			l.archive.oldest.Store(rows[0].At.UnixMicro())
			return enough
		}
		var e Event
		if err := json.Unmarshal(v, &e); err != nil {
			return fmt.Errorf("read %s: %w", name, err)
		}
		rows, names = append(rows, e), append(names, name)
		return nil
	})
	if err != nil && !errors.Is(err, enough) || len(rows) == 0 {
		return 0, err
	}
	l.archive.oldest.Store(rows[0].At.UnixMicro())
	// A decision that a crash forgets is made again and gets another number. So nothing
	// is sent that a crash may forget.
	if err := l.o.Store.Sync(); err != nil {
		return 0, err
	}
	token := fmt.Sprintf("enforcement-%s-%x-%x", l.archive.node, rows[0].Seq, rows[len(rows)-1].Seq)
	if err := l.o.Archive(ctx, token, rows); err != nil {
		return 0, err
	}
	b := l.o.Store.NewBatch()
	for _, name := range names {
		if err := b.Delete(name); err != nil {
			return 0, err
		}
	}
	if err := b.Commit(false); err != nil {
		return 0, err
	}
	l.archive.queued.Add(-int64(len(rows)))
	return len(rows), nil
}

// Unstored are the rows that the history may lack, within a time: with every, all
// that the local store has. The oldest come first.
func (l *Loop) Unstored(from, to time.Time, every bool) (out []Event, err error) {
	add := func(_ string, v []byte) error {
		var e Event
		if err := json.Unmarshal(v, &e); err != nil {
			return err
		}
		if e.At.Before(from) || !e.At.Before(to) || every && measurement(e.Kind) {
			return nil
		}
		e.Node = l.archive.node
		out = append(out, e)
		return nil
	}
	if every {
		err = l.o.Store.Each(keyEvents, add)
	} else {
		err = l.o.Store.Each(keyArchive, add)
	}
	return out, err
}

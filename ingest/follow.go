package ingest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/flyball/flyball/ingest/wal"
	"github.com/flyball/flyball/schema"
	"github.com/flyball/flyball/schema/state"
)

// Event is a record of the log for who follows it. Exactly one of Entries, Chunk
// and Own says what it is.
type Event struct {
	Entries []byte // a schema.Batch, valid until the next event
	Chunk   uint64 // number of the chunk that ends here
	Own     []byte // what Append wrote
	Start   uint64
	End     uint64
}

// Follower reads every durable record in the order of the log. It is for one
// goroutine; Append, Sync and Release are safe beside it.
type Follower struct {
	p *Pipeline
	r *wal.Reader
}

// Follow reads the log from a position on: 0 is whatever is left of it. The log
// keeps what was not released, where Options.Followed said that somebody will
// follow. gap says that the log does not reach back so far any more, and that it is
// read from where it begins.
func (p *Pipeline) Follow(from uint64) (f *Follower, gap bool, err error) {
	gap = from > 0 && wal.Position(from) < p.log.Oldest()
	r, err := p.log.NewReader(max(wal.Position(from), p.log.Oldest()))
	if errors.Is(err, wal.ErrPruned) { // pruned in between
		gap = from > 0
		r, err = p.log.NewReader(p.log.Oldest())
	}
	if err != nil {
		return nil, gap, fmt.Errorf("follow log: %w", err)
	}
	return &Follower{p, r}, gap, nil
}

// Next returns the next record of interest. Without wait it returns false where there
// is none yet that is durable.
func (f *Follower) Next(ctx context.Context, wait bool) (e Event, ok bool, err error) {
	for {
		var rec wal.Record
		if wait {
			rec, err = f.r.Next(ctx)
		} else if rec, ok, err = f.r.TryNext(); !ok {
			return e, false, err
		}
		if err != nil {
			return e, false, err
		}
		e = Event{Start: uint64(rec.Start), End: uint64(rec.End)}
		switch rec.Kind {
		case recordEntries, recordReprice:
			e.Entries = rec.Data
		case recordBoundary:
			e.Chunk, _ = binary.Uvarint(rec.Data)
		case recordOwn:
			e.Own = rec.Data
		default:
			continue
		}
		return e, true, nil
	}
}

// Append adds a record of the follower's own; Sync waits until it is durable. The
// journal does not see it.
func (f *Follower) Append(data []byte) (end uint64, err error) {
	_, pos, err := f.p.log.Append(recordOwn, data)
	if err != nil {
		f.p.failed(err)
	}
	return uint64(pos), err
}

// Sync waits until the log is durable up to a position.
func (f *Follower) Sync(ctx context.Context, end uint64) error {
	return f.p.log.Sync(ctx, wal.Position(end))
}

// Release says that the follower needs nothing before a position any more.
func (f *Follower) Release(pos uint64) { f.p.followed.Store(pos) }

// Close ends the following.
func (f *Follower) Close() error { return f.r.Close() }

// Store is the local store, which others keep named values in too.
func (p *Pipeline) Store() *state.Store { return p.store }

// Report takes calls in that no span was received of, as a limiter reported them. A
// span that comes later takes the place of the call with its id.
func (p *Pipeline) Report(ctx context.Context, calls []schema.Call) error {
	for i := range calls {
		calls[i].Source = schema.SourceLimiter
	}
	buf := p.calls.Get().(*[]schema.Call)
	_, err := p.take(ctx, buf, append((*buf)[:0], calls...), nil, "spans")
	return err
}

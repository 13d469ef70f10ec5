package wal

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sort"
)

// Reader follows the log from a position. It is for one goroutine; a log may
// have many readers. Close it to release its file.
type Reader struct {
	l     *Log
	pos   Position // of the next record
	limit Position // records before it are durable and in the open segment
	seg   segment  // the open segment, as it was when limit was taken
	f     *os.File
	c     cursor
	dst   []byte // the decompressed record
	err   error  // sticky
}

// NewReader returns a reader whose first record is the one at from: 0 for an
// unpruned log, Oldest, the End of a record, or the Next of a CorruptionError.
// It is ErrPruned if from is no longer there, and an error if it is beyond the
// end. Any other place is reported as corruption by the first read.
func (l *Log) NewReader(from Position) (*Reader, error) {
	l.mu.Lock()
	oldest, end := l.oldestLocked(), l.end
	l.mu.Unlock()
	switch {
	case from < oldest:
		return nil, fmt.Errorf("read from %d: %w, the log begins at %d", from, ErrPruned, oldest)
	case from > end:
		return nil, fmt.Errorf("read from %d: the log ends at %d", from, end)
	}
	return &Reader{l: l, pos: from}, nil
}

// Next returns the next record and waits until there is a durable one. Besides
// the end of ctx it fails with a *CorruptionError (for good: open a new reader
// at its Next to go on without the damaged bytes), ErrPruned, ErrClosed or the
// log's failure; the last two only after every durable record was returned.
func (r *Reader) Next(ctx context.Context) (Record, error) {
	for {
		rec, ok, err := r.TryNext()
		if ok || err != nil {
			return rec, err
		}
		if err := r.l.wait(ctx, r.pos+1, false); err != nil {
			return Record{}, fmt.Errorf("wait for record: %w", err)
		}
	}
}

// TryNext is Next without the wait: false without an error means that there is
// no durable record yet.
func (r *Reader) TryNext() (Record, bool, error) {
	if r.err != nil {
		return Record{}, false, r.err
	}
	if r.pos >= r.limit {
		if ok, err := r.advance(); !ok {
			return Record{}, false, err
		}
	}
	h, stored, err := r.c.record(r.pos, r.limit)
	if err == nil {
		if cap(r.dst) > keepBytes {
			r.dst = nil
		}
		var data []byte
		if data, err = decode(r.dst[:cap(r.dst)], h, stored); err == nil {
			if h.flags&flagS2 != 0 {
				r.dst = data
			}
			rec := Record{Kind: h.kind, Start: r.pos, CRC: h.crc, Millis: h.time, Data: data}
			r.pos += headerSize + Position(h.length)
			rec.End = r.pos
			return rec, true, nil
		}
	}
	d, ok := err.(damage)
	if !ok {
		return Record{}, false, fmt.Errorf("read segment %d: %w", r.seg.base, err)
	}
	next, _ := r.c.search(r.pos+1, r.limit)
	r.l.metrics.corruptions.Inc()
	r.err = r.seg.corruption(r.pos, next, 0, d)
	return Record{}, false, r.err
}

// advance extends limit, moving to the next segment when the open one is read.
// It returns false without an error if nothing more is durable.
func (r *Reader) advance() (bool, error) {
	seg, limit, err := r.l.locate(r.pos)
	if err != nil {
		var c *CorruptionError
		if errors.As(err, &c) {
			r.err = err
		}
		return false, err
	}
	if limit <= r.pos {
		return false, nil
	}
	if r.f == nil || seg.base != r.seg.base {
		f, err := os.Open(r.l.path(seg.base))
		if errors.Is(err, os.ErrNotExist) {
			// Prune removes the file first and the segment from the list then.
			return false, fmt.Errorf("read from %d: %w", r.pos, ErrPruned)
		}
		if err != nil {
			return false, fmt.Errorf("open segment %d: %w", seg.base, err)
		}
		if r.f != nil {
			_ = r.f.Close()
		}
		r.f = f
		r.c.reset(f, seg.base)
	}
	r.seg, r.limit = seg, limit
	return true, nil
}

// locate returns the segment that holds pos and up to where it is durable; the
// limit is at most pos if nothing durable is there yet.
func (l *Log) locate(pos Position) (segment, Position, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if pos >= l.synced {
		return segment{}, pos, l.terminalLocked()
	}
	if oldest := l.oldestLocked(); pos < oldest {
		return segment{}, 0, fmt.Errorf("read from %d: %w, the log begins at %d", pos, ErrPruned, oldest)
	}
	// The last segment that begins at or before pos. There is one: pos is
	// durable and not pruned.
	i := sort.Search(len(l.segs), func(i int) bool { return l.segs[i].base > pos }) - 1
	s := l.segs[i]
	if pos >= s.end {
		// A hole that OnCorruption accepted.
		return segment{}, 0, s.corruption(s.end, l.segs[i+1].base, 0, "records are missing before the next segment")
	}
	return s, min(s.end, l.synced), nil
}

// terminalLocked returns why there will be no further record, or nil.
func (l *Log) terminalLocked() error {
	if l.err != nil {
		return l.err
	}
	if l.released {
		return ErrClosed
	}
	return nil
}

// Close releases the reader's file. It is safe to call twice.
func (r *Reader) Close() error {
	r.err = ErrClosed
	if r.f == nil {
		return nil
	}
	err := r.f.Close()
	r.f = nil
	if err != nil {
		return fmt.Errorf("close reader: %w", err)
	}
	return nil
}

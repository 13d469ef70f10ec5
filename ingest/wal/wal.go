// Package wal is the write-ahead log of one node: a segmented, checksummed,
// group-committed log of opaque records. It stands between trace, which
// decides what is posted, and everything that follows (the ledger, the writer
// to ClickHouse), which tails it with readers. Nothing else on the node is
// durable before it.
//
// It guarantees that a record whose position Sync has confirmed is on stable
// storage and will be read back bit for bit or reported as a CorruptionError;
// that records keep the order in which Append was called; that a reader sees
// fsynced records only; and that after one failed write or fsync nothing is
// confirmed any more. It refuses new data, with an error that is ErrFull,
// before its size cap or the reserve of the file system is touched.
//
// It does not know what a record means, does not replicate, and does not
// decide which segments are needed: the owner prunes. DESIGN.md in this
// directory has the format and what happens on each fault.
package wal

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Position is a logical byte offset since the log began. It grows
// monotonically over segments, counts record headers and stored payloads but
// not segment headers, and 0 is the beginning. The end of one record is the
// start of the next, also across segments.
type Position uint64

const (
	// MaxRecord is the largest payload of one record, in bytes before compression.
	MaxRecord = 256 << 20

	defaultSegmentBytes = 64 << 20
	defaultMaxBytes     = 10 << 30
	defaultReserveBytes = 512 << 20

	// writeAhead is how much may gather in memory before the flusher hands it
	// to the kernel without being asked to sync.
	writeAhead = 1 << 20
	// maxPending is how much may gather in memory before Append waits for the
	// flusher. It bounds memory (twice this) when the disk stalls.
	maxPending = 64 << 20
	// keepBytes is the largest buffer kept for reuse; one big record must not
	// hold its memory for ever.
	keepBytes = 8 << 20
)

var (
	// ErrClosed is returned by calls on a log that Close was called on.
	ErrClosed = errors.New("log is closed")
	// ErrPruned is returned by a reader whose next record was pruned.
	ErrPruned = errors.New("position was pruned")
)

// Options configure a Log. Only Dir is required.
type Options struct {
	// Dir holds the segments and nothing else. It is created if absent and
	// locked (flock) while the log is open.
	Dir string
	// SegmentBytes is the size at which a new segment is begun, by default
	// 64 MiB and at most a quarter of MaxBytes. A larger record has a segment
	// of its own.
	SegmentBytes int64
	// MaxBytes is the size on disk at which Admit refuses, by default 10 GiB.
	MaxBytes int64
	// ReserveBytes is the space on the file system that Admit leaves free, by
	// default 512 MiB; a negative value reserves nothing.
	ReserveBytes int64
	// OnCorruption is asked about each damage that Open finds outside the torn
	// tail. Without it, or if it returns an error, Open fails with the
	// CorruptionError. If it returns nil the damaged bytes stay where they are,
	// readers report the same error when they get there, and their owner goes
	// on at its Next.
	OnCorruption func(*CorruptionError) error
	// Logger receives one line per torn tail, accepted damage and failure.
	Logger *slog.Logger
	// Registerer receives the metrics until Close; nil registers none.
	Registerer prometheus.Registerer
}

func (o *Options) setDefaults() error {
	if o.Dir == "" {
		return errors.New("no directory given")
	}
	if o.MaxBytes <= 0 {
		o.MaxBytes = defaultMaxBytes
	}
	if o.SegmentBytes <= 0 {
		o.SegmentBytes = min(defaultSegmentBytes, o.MaxBytes/4)
	}
	// The segment being written is never pruned, so it must not be able to
	// fill the cap alone: Admit would refuse for ever.
	if o.SegmentBytes > o.MaxBytes/4 {
		return fmt.Errorf("segment size %d is more than a quarter of the cap %d", o.SegmentBytes, o.MaxBytes)
	}
	if o.ReserveBytes == 0 {
		o.ReserveBytes = defaultReserveBytes
	}
	o.ReserveBytes = max(o.ReserveBytes, 0)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}

// Log is an open log. Its methods are safe for concurrent use.
type Log struct {
	opts     Options
	disk     disk
	log      *slog.Logger
	metrics  *metrics
	encoders sync.Pool // *encoder
	space    space
	failed   chan struct{} // closed by the first failure
	done     chan struct{} // closed when the flusher has returned

	pruneMu sync.Mutex // serialises Prune; taken before mu

	// The flusher's own; nobody else touches them after Open.
	active     file
	activeSize int64 // payload bytes in the active segment
	seq        uint64

	// mu guards everything below.
	mu       sync.Mutex
	work     sync.Cond     // the flusher waits here
	room     sync.Cond     // Append waits here when maxPending is reached
	segs     []segment     // oldest first, the last one is being written
	bytes    int64         // size of all segments on disk
	buf      []byte        // encoded records in [written, end)
	spare    []byte        // the other half of the double buffer
	records  uint64        // ordinal of the next record
	end      Position      // end of the last appended record
	synced   Position      // everything before is on stable storage
	wanted   Position      // the highest position somebody waits for
	sealing  chan struct{} // closed when the active segment is sealed; nil: nobody asks
	waiters  []*waiter
	idle     []*waiter // for reuse
	err      error     // sticky
	closing  bool
	released bool // Close has run to its end
}

// Stats describe what is on disk, not yet written records included in Records.
type Stats struct {
	Bytes    int64     // size of all segments
	Segments int       // number of segments
	Records  uint64    // number of records in them
	Oldest   time.Time // when the oldest record was appended; zero if there is none
}

// Append adds a record and returns where it starts and ends. The data is
// copied (or compressed) before Append returns; it is durable only once Sync
// has confirmed end. Records have the order of the calls.
//
// Append does no I/O. It waits only when 64 MiB of records are in memory
// because the disk does not keep up. It does not look at the cap: what Admit
// let in, and the small records that let the owner prune, must always fit.
func (l *Log) Append(kind byte, data []byte) (start, end Position, err error) {
	if len(data) > MaxRecord {
		return 0, 0, fmt.Errorf("append record: %d bytes are more than %d", len(data), MaxRecord)
	}
	e := l.encoders.Get().(*encoder)
	stored, flags := e.encode(data)
	sum := crc32.Update(0, castagnoli, stored)
	now := time.Now().UnixMilli()
	size := headerSize + len(stored)

	l.mu.Lock()
	for len(l.buf) >= maxPending && l.err == nil && !l.closing {
		l.room.Wait()
	}
	if err := l.stateLocked(); err != nil {
		l.mu.Unlock()
		l.encoders.Put(e)
		return 0, 0, fmt.Errorf("append record: %w", err)
	}
	start = l.end
	end = start + Position(size)
	e.seal(sum, header{kind: kind, flags: flags, length: uint32(len(stored)), time: now, synced: l.synced}, start)
	l.buf = append(l.buf, e.head[:headerSize]...)
	l.buf = append(l.buf, stored...)
	l.end = end
	l.records++
	if len(l.buf) >= writeAhead {
		l.work.Signal()
	}
	l.mu.Unlock()

	e.recycle()
	l.encoders.Put(e)
	l.metrics.records.Inc()
	l.metrics.bytes.Add(float64(size))
	return start, end, nil
}

// Synced returns the position before which everything is on stable storage.
func (l *Log) Synced() Position {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.synced
}

// End returns the end of the last appended record, durable or not.
func (l *Log) End() Position {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.end
}

// Oldest returns the position of the first record that was not pruned.
func (l *Log) Oldest() Position {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.oldestLocked()
}

// Stats returns the figures of this moment.
func (l *Log) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := Stats{Bytes: l.bytes, Segments: len(l.segs), Records: l.records}
	if len(l.segs) > 0 {
		s.Records -= l.segs[0].seq
		if first := &l.segs[0]; first.end > first.base {
			s.Oldest = time.UnixMilli(first.time)
		}
	}
	return s
}

// Failed is closed when a write or an fsync has failed. From then on nothing
// is appended or confirmed; the process must stop, because the kernel may have
// dropped the pages and a later fsync would succeed without them.
func (l *Log) Failed() <-chan struct{} { return l.failed }

// Err returns the failure that closed Failed, or nil.
func (l *Log) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// Seal begins a new segment and returns its base: everything before it is durable, and
// goes with Prune. A segment without a record is left as it is.
func (l *Log) Seal(ctx context.Context) (Position, error) {
	l.mu.Lock()
	if err := l.stateLocked(); err != nil {
		l.mu.Unlock()
		return 0, fmt.Errorf("seal segment: %w", err)
	}
	if l.sealing == nil {
		l.sealing = make(chan struct{})
	}
	done := l.sealing
	l.work.Signal()
	l.mu.Unlock()
	select {
	case <-done:
	case <-l.failed:
		return 0, fmt.Errorf("seal segment: %w", l.Err())
	case <-l.done:
		return 0, fmt.Errorf("seal segment: %w", ErrClosed)
	case <-ctx.Done():
		return 0, fmt.Errorf("seal segment: %w", context.Cause(ctx))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.segs) == 0 {
		return 0, nil
	}
	return l.segs[len(l.segs)-1].base, nil
}

// Prune removes whole segments, oldest first, that end at or below before. It
// never removes the segment being written. A reader inside a removed segment
// finishes it; its next segment is then ErrPruned if that is gone too.
func (l *Log) Prune(before Position) error {
	l.pruneMu.Lock()
	defer l.pruneMu.Unlock()
	for {
		l.mu.Lock()
		if err := l.stateLocked(); err != nil {
			l.mu.Unlock()
			return fmt.Errorf("prune log: %w", err)
		}
		if len(l.segs) < 2 || l.segs[0].end > before {
			l.mu.Unlock()
			return nil
		}
		victim := l.segs[0]
		l.mu.Unlock()

		if err := l.disk.remove(segmentName(victim.base)); err != nil {
			return fmt.Errorf("remove segment %d: %w", victim.base, err)
		}
		// One directory fsync a segment, so that no order in which a file
		// system may persist several removals leaves a hole in the middle.
		err := l.disk.syncDir()

		l.mu.Lock()
		l.segs = slices.Delete(l.segs, 0, 1)
		l.bytes -= victim.fileSize()
		if err != nil {
			l.failLocked(fmt.Errorf("fsync directory: %w", err))
			err = l.err
		}
		l.mu.Unlock()
		if err != nil {
			return fmt.Errorf("prune log: %w", err)
		}
	}
}

// Close makes everything appended durable, stops the flusher and releases the
// directory. It returns the sticky failure, if there was one. It is safe to
// call twice. Readers keep the records they can see and then get ErrClosed;
// they are closed by their owners.
func (l *Log) Close() error {
	l.pruneMu.Lock()
	defer l.pruneMu.Unlock()
	l.mu.Lock()
	l.closing = true
	l.work.Broadcast()
	l.room.Broadcast()
	l.mu.Unlock()
	<-l.done

	l.mu.Lock()
	defer l.mu.Unlock()
	if l.released {
		return l.err
	}
	l.released = true
	l.wakeLocked(ErrClosed)
	l.metrics.unregister()
	err := l.err
	if l.active != nil {
		if cerr := l.active.Close(); cerr != nil && err == nil {
			err = fmt.Errorf("close segment: %w", cerr)
		}
	}
	if cerr := l.disk.close(); cerr != nil && err == nil {
		err = fmt.Errorf("close directory: %w", cerr)
	}
	return err
}

// stateLocked returns why the log takes nothing more, or nil.
func (l *Log) stateLocked() error {
	if l.err != nil {
		return l.err
	}
	if l.closing {
		return ErrClosed
	}
	return nil
}

func (l *Log) oldestLocked() Position {
	if len(l.segs) == 0 {
		return l.end
	}
	return l.segs[0].base
}

// failLocked makes err sticky, wakes everybody with it and stops the flusher.
func (l *Log) failLocked(err error) {
	if l.err != nil {
		return
	}
	l.err = err
	l.log.Error("log failed, nothing is confirmed from here on", "dir", l.opts.Dir, "synced", uint64(l.synced), "err", err)
	close(l.failed)
	l.wakeLocked(err)
	l.work.Broadcast()
	l.room.Broadcast()
}

// waiter is somebody who waits for synced to reach upTo.
type waiter struct {
	upTo Position
	err  error
	ch   chan struct{} // capacity 1
}

// Sync returns nil once everything before upTo is on stable storage. Waiters
// share fsyncs: whoever comes while one is running is covered by the next. The
// end of ctx abandons the wait, not the fsync. After a failure every call
// returns it, whatever was confirmed before.
func (l *Log) Sync(ctx context.Context, upTo Position) error {
	if err := l.wait(ctx, upTo, true); err != nil {
		return fmt.Errorf("sync log: %w", err)
	}
	return nil
}

// wait blocks until synced has reached upTo. With demand it asks for the fsync.
func (l *Log) wait(ctx context.Context, upTo Position, demand bool) error {
	l.mu.Lock()
	switch {
	case demand && l.err != nil:
		defer l.mu.Unlock()
		return l.err
	case l.synced >= upTo:
		l.mu.Unlock()
		return nil
	case demand && upTo > l.end:
		defer l.mu.Unlock()
		return fmt.Errorf("position %d is beyond the end %d", upTo, l.end)
	case l.err != nil:
		defer l.mu.Unlock()
		return l.err
	case l.released:
		// While Close drains, waiters are still met.
		l.mu.Unlock()
		return ErrClosed
	}
	var w *waiter
	if n := len(l.idle); n > 0 {
		w, l.idle = l.idle[n-1], l.idle[:n-1]
	} else {
		w = &waiter{ch: make(chan struct{}, 1)}
	}
	w.upTo, w.err = upTo, nil
	l.waiters = append(l.waiters, w)
	if demand && upTo > l.wanted {
		l.wanted = upTo
		l.work.Signal()
	}
	l.mu.Unlock()

	select {
	case <-w.ch:
	case <-ctx.Done():
		l.mu.Lock()
		defer l.mu.Unlock()
		i := slices.Index(l.waiters, w)
		if i >= 0 {
			l.waiters = slices.Delete(l.waiters, i, i+1)
			l.idle = append(l.idle, w)
			return context.Cause(ctx)
		}
		// The wake-up won the race; its outcome counts.
		<-w.ch
		err := w.err
		l.idle = append(l.idle, w)
		return err
	}
	err := w.err
	l.mu.Lock()
	l.idle = append(l.idle, w)
	l.mu.Unlock()
	return err
}

// wakeLocked releases the waiters that synced has reached, and with a non-nil
// err all the others too.
func (l *Log) wakeLocked(err error) {
	left := l.waiters[:0]
	for _, w := range l.waiters {
		if w.upTo > l.synced {
			if err == nil {
				left = append(left, w)
				continue
			}
			w.err = err
		}
		w.ch <- struct{}{}
	}
	clear(l.waiters[len(left):])
	l.waiters = left
}

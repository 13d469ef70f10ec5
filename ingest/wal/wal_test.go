package wal

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// testOptions keep no reserve, so that a full disk does not fail a test that
// is about something else.
func testOptions(dir string) Options {
	return Options{Dir: dir, ReserveBytes: -1}
}

func mustOpen(t testing.TB, opts Options) *Log {
	t.Helper()
	l, err := Open(opts)
	if err != nil {
		t.Fatalf("cannot open log: %s", err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func mustAppend(t testing.TB, l *Log, kind byte, data []byte) (start, end Position) {
	t.Helper()
	start, end, err := l.Append(kind, data)
	if err != nil {
		t.Fatalf("cannot append: %s", err)
	}
	return start, end
}

func mustSync(t testing.TB, l *Log, upTo Position) {
	t.Helper()
	if err := l.Sync(t.Context(), upTo); err != nil {
		t.Fatalf("cannot sync: %s", err)
	}
}

func mustClose(t testing.TB, l *Log) {
	t.Helper()
	if err := l.Close(); err != nil {
		t.Fatalf("cannot close: %s", err)
	}
}

func mustReader(t testing.TB, l *Log, from Position) *Reader {
	t.Helper()
	r, err := l.NewReader(from)
	if err != nil {
		t.Fatalf("cannot read from %d: %s", from, err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r
}

// readAll returns copies of the records that are durable now, and the error
// that ended them.
func readAll(r *Reader) (out []Record, err error) {
	for {
		rec, ok, err := r.TryNext()
		if !ok {
			return out, err
		}
		rec.Data = bytes.Clone(rec.Data)
		out = append(out, rec)
	}
}

// payload is about size bytes that say i, and compress about as spans do if
// even, not at all if odd.
func payload(i, size int) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(i))
	if i%2 == 1 {
		rng := rand.New(rand.NewPCG(uint64(i), 1))
		for len(b) < size {
			b = binary.LittleEndian.AppendUint64(b, rng.Uint64())
		}
		return b[:max(size, 8)]
	}
	for len(b) < size {
		b = fmt.Appendf(b, "span %d model m-%d tenant t-%d;", i*len(b), i%7, i%3)
	}
	return b[:max(size, 8)]
}

// fill appends n synced records of about size bytes and returns their starts.
func fill(t testing.TB, l *Log, n, size int) []Position {
	t.Helper()
	var starts []Position
	for i := range n {
		start, end := mustAppend(t, l, byte(i), payload(i, size))
		mustSync(t, l, end)
		starts = append(starts, start)
	}
	return starts
}

// checkRecords checks that recs are payload(first), payload(first+1), …
func checkRecords(t *testing.T, recs []Record, first, n, size int) {
	t.Helper()
	if len(recs) != n {
		t.Fatalf("unexpected number of records: %d; want %d", len(recs), n)
	}
	for i, rec := range recs {
		if rec.Kind != byte(first+i) || !bytes.Equal(rec.Data, payload(first+i, size)) {
			t.Fatalf("record %d is not what was appended", first+i)
		}
		if i > 0 && rec.Start != recs[i-1].End {
			t.Fatalf("record %d starts at %d; the one before ends at %d", i, rec.Start, recs[i-1].End)
		}
	}
}

func segmentFiles(t testing.TB, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*"+segmentSuffix))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestReopenAndReadBack(t *testing.T) {
	f := func(segmentBytes int64, n, size int) {
		t.Helper()
		opts := testOptions(t.TempDir())
		opts.SegmentBytes = segmentBytes
		l := mustOpen(t, opts)
		fill(t, l, n/2, size)
		end := l.End()
		mustClose(t, l)

		l = mustOpen(t, opts)
		if l.End() != end || l.Synced() != end {
			t.Fatalf("unexpected end %d, synced %d after reopening; want %d", l.End(), l.Synced(), end)
		}
		for i := n / 2; i < n; i++ {
			mustAppend(t, l, byte(i), payload(i, size))
		}
		// Close makes durable what nobody synced.
		mustClose(t, l)

		l = mustOpen(t, opts)
		recs, err := readAll(mustReader(t, l, 0))
		if err != nil {
			t.Fatalf("unexpected error: %s", err)
		}
		checkRecords(t, recs, 0, n, size)
		if recs[0].Start != 0 || recs[n-1].End != l.End() {
			t.Fatalf("records span %d to %d; want 0 to %d", recs[0].Start, recs[n-1].End, l.End())
		}
		s := l.Stats()
		var onDisk int64
		for _, name := range segmentFiles(t, opts.Dir) {
			info, _ := os.Stat(name)
			onDisk += info.Size()
		}
		if s.Records != uint64(n) || s.Bytes != onDisk || s.Segments != len(segmentFiles(t, opts.Dir)) {
			t.Fatalf("unexpected stats %+v with %d bytes on disk", s, onDisk)
		}
		if age := time.Since(s.Oldest); age < 0 || age > time.Minute {
			t.Fatalf("unexpected time of the oldest record: %s", s.Oldest)
		}
		// Any record boundary is a place to start.
		for _, rec := range recs {
			got, ok, err := mustReader(t, l, rec.Start).TryNext()
			if !ok || err != nil || got.CRC != rec.CRC {
				t.Fatalf("cannot read from %d: %v %v", rec.Start, ok, err)
			}
		}
		mustClose(t, l)
	}
	f(0, 20, 300)        // one segment
	f(1000, 40, 300)     // a few records a segment
	f(100, 20, 300)      // each record has a segment of its own
	f(0, 6, 0)           // tiny payloads
	f(0, 4, 2*1024*1024) // larger than any buffer
}

func TestAppendRefusesTooLarge(t *testing.T) {
	l := mustOpen(t, testOptions(t.TempDir()))
	if _, _, err := l.Append(0, make([]byte, MaxRecord+1)); err == nil {
		t.Fatal("expecting an error")
	}
	if l.End() != 0 {
		t.Fatalf("unexpected end %d", l.End())
	}
}

func TestLargeRecords(t *testing.T) {
	opts := testOptions(t.TempDir())
	l := mustOpen(t, opts)
	size := MaxRecord
	if testing.Short() {
		size = 20 << 20
	}
	largest := make([]byte, size)
	largest[size-1] = 1
	records := [][]byte{largest, payload(1, 12<<20), []byte("after")}
	for i, data := range records {
		mustAppend(t, l, byte(i), data)
	}
	mustSync(t, l, l.End())
	if n := l.Stats().Bytes; n < 12<<20 || n > 30<<20 {
		t.Fatalf("unexpected size on disk: %d", n)
	}
	mustClose(t, l)
	l = mustOpen(t, opts)
	r := mustReader(t, l, 0)
	for i, data := range records {
		rec, err := r.Next(t.Context())
		if err != nil || rec.Kind != byte(i) || !bytes.Equal(rec.Data, data) {
			t.Fatalf("record %d is not what was appended: %v", i, err)
		}
	}
}

func TestOpenLocksDirectory(t *testing.T) {
	opts := testOptions(filepath.Join(t.TempDir(), "a", "b"))
	l := mustOpen(t, opts)
	if _, err := Open(opts); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Fatalf("unexpected error from a second open: %v", err)
	}
	mustClose(t, l)
	mustClose(t, mustOpen(t, opts))
}

func TestOpenRefusesSegmentsThatFillTheCap(t *testing.T) {
	opts := testOptions(t.TempDir())
	opts.MaxBytes, opts.SegmentBytes = 1000, 251
	if _, err := Open(opts); err == nil {
		t.Fatal("expecting an error")
	}
}

func TestReaderSeesOnlyDurableRecords(t *testing.T) {
	l := mustOpen(t, testOptions(t.TempDir()))
	r := mustReader(t, l, 0)
	_, end := mustAppend(t, l, 1, []byte("one"))
	if _, ok, err := r.TryNext(); ok || err != nil {
		t.Fatalf("unexpected record before the sync: %v %v", ok, err)
	}
	mustSync(t, l, end)
	if rec, ok, err := r.TryNext(); !ok || err != nil || string(rec.Data) != "one" {
		t.Fatalf("unexpected answer after the sync: %v %v", ok, err)
	}
	if _, err := l.NewReader(end + 1); err == nil {
		t.Fatal("expecting an error beyond the end")
	}
}

func TestReaderFollowsAcrossSegments(t *testing.T) {
	opts := testOptions(t.TempDir())
	opts.SegmentBytes = 2000
	l := mustOpen(t, opts)
	const n, readers = 300, 3
	var wg sync.WaitGroup
	for range readers {
		r := mustReader(t, l, 0)
		wg.Go(func() {
			for i := range n {
				rec, err := r.Next(t.Context())
				if err != nil || rec.Kind != byte(i) || !bytes.Equal(rec.Data, payload(i, 200+i)) {
					t.Errorf("record %d is not what was appended: %v", i, err)
					return
				}
				if rec.End > l.Synced() {
					t.Errorf("record %d was read before it was durable", i)
				}
			}
		})
	}
	for i := range n {
		_, end := mustAppend(t, l, byte(i), payload(i, 200+i))
		if i%3 == 0 {
			mustSync(t, l, end)
		}
	}
	mustSync(t, l, l.End())
	wg.Wait()
	if s := l.Stats().Segments; s < 10 {
		t.Fatalf("unexpected number of segments: %d", s)
	}
}

func TestReaderWaits(t *testing.T) {
	l := mustOpen(t, testOptions(t.TempDir()))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	r := mustReader(t, l, 0)
	if _, err := r.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("unexpected error: %v", err)
	}
	// Close makes the last record durable and shows it before it says so.
	mustAppend(t, l, 1, []byte("last"))
	got := make(chan error, 1)
	go func() {
		rec, err := r.Next(t.Context())
		if err == nil && string(rec.Data) != "last" {
			err = errors.New("another record")
		}
		got <- err
	}()
	mustClose(t, l)
	if err := <-got; err != nil {
		t.Fatalf("cannot read the last record: %s", err)
	}
	if _, err := r.Next(t.Context()); !errors.Is(err, ErrClosed) {
		t.Fatalf("unexpected error after close: %v", err)
	}
	if _, _, err := l.Append(1, nil); !errors.Is(err, ErrClosed) {
		t.Fatalf("unexpected error from append: %v", err)
	}
	mustClose(t, l)
}

func TestPrune(t *testing.T) {
	opts := testOptions(t.TempDir())
	opts.SegmentBytes = 1000
	l := mustOpen(t, opts)
	old := mustReader(t, l, 0)
	fill(t, l, 30, 300)
	recs, err := readAll(mustReader(t, l, 0))
	if err != nil {
		t.Fatal(err)
	}
	if _, ok, err := old.TryNext(); !ok || err != nil {
		t.Fatalf("cannot read the first record: %v", err)
	}
	before := l.Stats()
	bases := segmentFiles(t, opts.Dir)

	// A position inside the third segment keeps the third.
	third, _ := parseSegmentName(filepath.Base(bases[2]))
	if err := l.Prune(third + 1); err != nil {
		t.Fatalf("cannot prune: %s", err)
	}
	if got := segmentFiles(t, opts.Dir); len(got) != len(bases)-2 || l.Oldest() != third {
		t.Fatalf("unexpected segments after pruning: %d, oldest %d", len(got), l.Oldest())
	}
	if s := l.Stats(); s.Bytes >= before.Bytes || s.Records >= before.Records {
		t.Fatalf("unexpected stats after pruning: %+v, before %+v", s, before)
	}
	// A reader inside a pruned segment finishes it and is told then.
	got, err := readAll(old)
	if !errors.Is(err, ErrPruned) {
		t.Fatalf("unexpected error: %v", err)
	}
	second, _ := parseSegmentName(filepath.Base(bases[1]))
	if end := got[len(got)-1].End; end != second {
		t.Fatalf("the reader stopped at %d; want the end of its segment %d", end, second)
	}
	if _, err := l.NewReader(0); !errors.Is(err, ErrPruned) {
		t.Fatalf("unexpected error: %v", err)
	}

	// The one being written stays, and with it the position, also over a restart.
	if err := l.Prune(l.End() + 1000); err != nil {
		t.Fatalf("cannot prune: %s", err)
	}
	end := l.End()
	if s := l.Stats(); s.Segments != 1 {
		t.Fatalf("unexpected number of segments: %d", s.Segments)
	}
	mustClose(t, l)
	l = mustOpen(t, opts)
	if l.End() != end || l.Stats().Segments != 1 || l.records != uint64(len(recs)) {
		t.Fatalf("unexpected end %d, %d records after reopening; want %d, %d", l.End(), l.records, end, len(recs))
	}
}

func TestPruneRacesReaders(t *testing.T) {
	opts := testOptions(t.TempDir())
	opts.SegmentBytes = 1000
	l := mustOpen(t, opts)
	const n = 400
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	for range 2 {
		r := mustReader(t, l, 0)
		wg.Go(func() {
			seen := 0
			for {
				rec, err := r.Next(ctx)
				if errors.Is(err, ErrPruned) {
					_ = r.Close()
					if r, err = l.NewReader(l.Oldest()); err != nil {
						continue // pruned again between the two calls
					}
					continue
				}
				if err != nil {
					if ctx.Err() == nil {
						t.Errorf("unexpected error: %s", err)
					}
					_ = r.Close()
					return
				}
				i := int(binary.LittleEndian.Uint64(rec.Data))
				if i < seen || !bytes.Equal(rec.Data, payload(i, 250)) {
					t.Errorf("unexpected record %d after %d", i, seen)
				}
				if seen = i; i == n-1 {
					return
				}
			}
		})
	}
	for i := range n {
		_, end := mustAppend(t, l, 0, payload(i, 250))
		if i%5 == 0 || i == n-1 {
			mustSync(t, l, end)
		}
		if i%7 == 0 && i < n-20 {
			if err := l.Prune(end); err != nil {
				t.Fatalf("cannot prune: %s", err)
			}
		}
	}
	time.AfterFunc(5*time.Second, cancel)
	wg.Wait()
}

// Seal lets everything before it be pruned, also where nothing more comes.
func TestSeal(t *testing.T) {
	l := mustOpen(t, testOptions(t.TempDir()))
	if _, err := l.Seal(t.Context()); err != nil {
		t.Fatal("an empty log cannot be sealed: ", err)
	}
	for round := range 3 {
		_, end := mustAppend(t, l, 1, []byte("secret"))
		for range 2 { // twice is once
			base, err := l.Seal(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if base != end || l.Synced() != end {
				t.Fatalf("sealed at %d, synced %d, want %d", base, l.Synced(), end)
			}
		}
		if n := l.Stats().Segments; n != 2 {
			t.Fatalf("round %d: %d segments, want 2", round, n)
		}
		if err := l.Prune(end); err != nil {
			t.Fatal(err)
		}
		if l.Oldest() != end {
			t.Fatalf("the log begins at %d, want %d", l.Oldest(), end)
		}
	}
	start, end := mustAppend(t, l, 1, []byte("after"))
	mustSync(t, l, end)
	r := mustReader(t, l, start)
	if rec, ok, err := r.TryNext(); err != nil || !ok || string(rec.Data) != "after" {
		t.Fatalf("got %q, %v, %v", rec.Data, ok, err)
	}
	mustClose(t, l)
	if _, err := l.Seal(t.Context()); !errors.Is(err, ErrClosed) {
		t.Fatalf("a closed log: %v", err)
	}
}

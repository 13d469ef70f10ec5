package wal

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// copyDir copies the segments of dir into a new directory.
func copyDir(t testing.TB, dir string) string {
	t.Helper()
	out := t.TempDir()
	for _, name := range segmentFiles(t, dir) {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		writeFile(t, filepath.Join(out, filepath.Base(name)), b)
	}
	return out
}

func writeFile(t testing.TB, name string, b []byte) {
	t.Helper()
	if err := os.WriteFile(name, b, 0o640); err != nil {
		t.Fatal(err)
	}
}

func readFile(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestTornTail cuts, zeroes and scrambles the last record from every one of
// its bytes on, as a crash may leave it.
func TestTornTail(t *testing.T) {
	const n, size = 6, 150
	opts := testOptions(t.TempDir())
	l := mustOpen(t, opts)
	starts := fill(t, l, n, size)
	mustClose(t, l)
	name := segmentFiles(t, opts.Dir)[0]
	whole := readFile(t, name)
	last := segmentHeaderSize + int(starts[n-1])

	f := func(content []byte) {
		t.Helper()
		writeFile(t, name, content)
		opts := opts
		reg := prometheus.NewRegistry()
		opts.Registerer = reg
		l := mustOpen(t, opts)
		if l.End() != starts[n-1] {
			t.Fatalf("unexpected end %d; want %d", l.End(), starts[n-1])
		}
		if torn := gathered(t, reg)["flyball_wal_torn_tails_total"]; torn != 1 {
			t.Fatalf("unexpected number of torn tails: %v", torn)
		}
		// The log goes on where the good records end.
		_, end := mustAppend(t, l, n-1, payload(n-1, size))
		mustSync(t, l, end)
		recs, err := readAll(mustReader(t, l, 0))
		if err != nil {
			t.Fatalf("unexpected error: %s", err)
		}
		checkRecords(t, recs, 0, n, size)
		mustClose(t, l)
	}
	for at := last + 1; at < len(whole); at++ {
		f(whole[:at])
		if whole[at] != 0 || bytes.Trim(whole[at:], "\x00") != nil {
			f(append(bytes.Clone(whole[:at]), make([]byte, len(whole)-at)...))
		}
		scrambled := bytes.Clone(whole)
		for i := at; i < len(whole); i++ {
			scrambled[i] ^= 0xA5
		}
		f(scrambled)
	}
	// More zeros than the record had.
	f(append(bytes.Clone(whole[:last]), make([]byte, 5000)...))
}

// TestUnbornSegment is a crash between the creation of a segment and its first fsync.
func TestUnbornSegment(t *testing.T) {
	const n, size = 8, 300
	f := func(head []byte) {
		t.Helper()
		opts := testOptions(t.TempDir())
		opts.SegmentBytes = 1000
		l := mustOpen(t, opts)
		fill(t, l, n, size)
		end := l.End()
		mustClose(t, l)
		writeFile(t, filepath.Join(opts.Dir, segmentName(end)), head)
		l = mustOpen(t, opts)
		if l.End() != end {
			t.Fatalf("unexpected end %d; want %d", l.End(), end)
		}
		mustAppend(t, l, n, payload(n, size))
		mustClose(t, l)
		l = mustOpen(t, opts)
		recs, err := readAll(mustReader(t, l, 0))
		if err != nil {
			t.Fatalf("unexpected error: %s", err)
		}
		checkRecords(t, recs, 0, n+1, size)
	}
	seg := segment{base: 1}
	f(nil)
	f(make([]byte, 10))
	f(make([]byte, segmentHeaderSize))
	f(seg.appendHeader(nil)) // of another position
}

// TestBitFlips damages each byte of a record in the middle of the last segment
// and of an earlier one. Open or the reader must say so, and nothing else may
// be lost.
func TestBitFlips(t *testing.T) {
	const n, size = 12, 150
	opts := testOptions(t.TempDir())
	opts.SegmentBytes = 600
	l := mustOpen(t, opts)
	fill(t, l, n, size)
	recs, err := readAll(mustReader(t, l, 0))
	if err != nil {
		t.Fatal(err)
	}
	mustClose(t, l)
	files := segmentFiles(t, opts.Dir)
	if len(files) < 3 {
		t.Fatalf("unexpected number of segments: %d", len(files))
	}
	lastBase, _ := parseSegmentName(filepath.Base(files[len(files)-1]))

	f := func(victim int, at Position, bit byte) {
		t.Helper()
		rec := recs[victim]
		name := files[0]
		base := Position(0)
		for _, file := range files {
			if b, _ := parseSegmentName(filepath.Base(file)); b <= rec.Start {
				name, base = file, b
			}
		}
		whole := readFile(t, name)
		bad := bytes.Clone(whole)
		bad[segmentHeaderSize+int(at-base)] ^= bit
		writeFile(t, name, bad)
		defer writeFile(t, name, whole)

		want := CorruptionError{
			Segment: filepath.Base(name),
			Offset:  segmentHeaderSize + int64(rec.Start-base),
			At:      rec.Start,
			Next:    rec.End,
		}
		check := func(err error) *CorruptionError {
			t.Helper()
			var c *CorruptionError
			if !errors.As(err, &c) {
				t.Fatalf("unexpected error for a flip at %d: %v", at, err)
			}
			got := *c
			got.Reason = ""
			if got != want {
				t.Fatalf("unexpected corruption for a flip at %d: %+v; want %+v", at, got, want)
			}
			return c
		}
		opts := opts
		if rec.Start >= lastBase {
			_, err := Open(opts)
			check(err)
			// The owner may accept it, and then meets it while reading.
			asked := 0
			opts.OnCorruption = func(c *CorruptionError) error { asked++; check(c); return nil }
			defer func() {
				if asked != 1 {
					t.Fatalf("asked about the corruption %d times", asked)
				}
			}()
		}
		l := mustOpen(t, opts)
		defer mustClose(t, l)
		r := mustReader(t, l, 0)
		before, err := readAll(r)
		c := check(err)
		checkRecords(t, before, 0, victim, size)
		if _, _, err := r.TryNext(); !errors.Is(err, c) {
			t.Fatalf("the reader went on after a corruption: %v", err)
		}
		after, err := readAll(mustReader(t, l, c.Next))
		if err != nil {
			t.Fatalf("unexpected error after the damage: %s", err)
		}
		checkRecords(t, after, victim+1, n-victim-1, size)
	}
	for _, victim := range []int{1, n - 2} {
		if victim == n-2 && recs[victim].Start < lastBase {
			t.Fatal("BUG: the victim should be in the last segment")
		}
		for at := recs[victim].Start; at < recs[victim].End; at++ {
			f(victim, at, 1<<(at%8))
		}
	}
}

// TestDamagedStructure damages what is between the records.
func TestDamagedStructure(t *testing.T) {
	const n, size = 12, 150
	src := testOptions(t.TempDir())
	src.SegmentBytes = 600
	l := mustOpen(t, src)
	fill(t, l, n, size)
	end := l.End()
	mustClose(t, l)

	f := func(damage func(files []string), readable bool) {
		t.Helper()
		opts := src
		opts.Dir = copyDir(t, src.Dir)
		damage(segmentFiles(t, opts.Dir))
		var c *CorruptionError
		if _, err := Open(opts); !errors.As(err, &c) {
			t.Fatalf("unexpected error: %v", err)
		}
		refused := errors.New("refused")
		opts.OnCorruption = func(*CorruptionError) error { return refused }
		if _, err := Open(opts); !errors.As(err, &c) || !errors.Is(err, refused) {
			t.Fatalf("unexpected error: %v", err)
		}
		opts.OnCorruption = func(*CorruptionError) error { return nil }
		l := mustOpen(t, opts)
		if l.End() != end {
			t.Fatalf("unexpected end %d; want %d", l.End(), end)
		}
		recs, err := readAll(mustReader(t, l, 0))
		for errors.As(err, &c) && !readable {
			var more []Record
			more, err = readAll(mustReader(t, l, c.Next))
			recs = append(recs, more...)
		}
		if err != nil {
			t.Fatalf("unexpected error: %s", err)
		}
		if readable {
			checkRecords(t, recs, 0, n, size)
		} else if len(recs) == 0 || len(recs) >= n || recs[len(recs)-1].End != end {
			t.Fatalf("unexpected records after the damage: %d", len(recs))
		}
		// Appending still works.
		_, to := mustAppend(t, l, 1, []byte("more"))
		mustSync(t, l, to)
		mustClose(t, l)
	}
	flip := func(name string, off int) {
		b := readFile(t, name)
		b[off] ^= 4
		writeFile(t, name, b)
	}
	f(func(files []string) { flip(files[0], 3) }, true)
	f(func(files []string) { flip(files[1], 20) }, true)
	f(func(files []string) { flip(files[len(files)-1], 30) }, true)
	f(func(files []string) { _ = os.Remove(files[1]) }, false)
	f(func(files []string) {
		b := readFile(t, files[1])
		writeFile(t, files[1], b[:len(b)-7])
	}, false)
	f(func(files []string) { writeFile(t, files[0], append(readFile(t, files[0]), 1, 2, 3)) }, true)
}

func TestOpenRefusesAnotherVersion(t *testing.T) {
	opts := testOptions(t.TempDir())
	l := mustOpen(t, opts)
	fill(t, l, 2, 100)
	mustClose(t, l)
	name := segmentFiles(t, opts.Dir)[0]
	b := readFile(t, name)
	b[8] = segmentVersion + 1
	writeFile(t, name, b)
	opts.OnCorruption = func(*CorruptionError) error { return nil }
	if _, err := Open(opts); err == nil || !strings.Contains(err.Error(), "format version 2") {
		t.Fatalf("unexpected error: %v", err)
	}
}

// TestUnwrittenSectors is a power cut in the middle of the last group: later
// sectors of it reached the disk, an earlier one did not. None of the group was
// confirmed, so it is a torn tail although good records follow; the same zeros
// below a confirmed position are corruption.
func TestUnwrittenSectors(t *testing.T) {
	opts := testOptions(t.TempDir())
	l := mustOpen(t, opts)
	fill(t, l, 4, 700)
	confirmed := l.End()
	for i := 4; i < 8; i++ {
		mustAppend(t, l, byte(i), payload(i|1, 1400))
	}
	mustClose(t, l)
	name := segmentFiles(t, opts.Dir)[0]
	whole := readFile(t, name)
	hole := func(from Position) []byte {
		b := bytes.Clone(whole)
		off := (segmentHeaderSize + int(from) + sectorBytes) / sectorBytes * sectorBytes
		clear(b[off : off+sectorBytes])
		return b
	}

	writeFile(t, name, hole(confirmed))
	l = mustOpen(t, opts)
	if l.End() != confirmed {
		t.Fatalf("unexpected end %d; want %d", l.End(), confirmed)
	}
	mustClose(t, l)

	writeFile(t, name, hole(100))
	var c *CorruptionError
	if _, err := Open(opts); !errors.As(err, &c) {
		t.Fatalf("unexpected error: %v", err)
	}

	// A flipped bit is not what a power cut leaves, also in the last group.
	flipped := bytes.Clone(whole)
	flipped[segmentHeaderSize+int(confirmed)+700] ^= 1
	writeFile(t, name, flipped)
	if _, err := Open(opts); !errors.As(err, &c) || c.At != confirmed {
		t.Fatalf("unexpected error: %v", err)
	}
}

const childEnv = "FLYBALL_WAL_TEST_CHILD"

// TestKill kills a child with SIGKILL in an append+sync loop, several times
// over the same directory, and reads everything back that the child was told
// is durable.
func TestKill(t *testing.T) {
	if dir := os.Getenv(childEnv); dir != "" {
		killedChild(t, dir)
		return
	}
	opts := testOptions(t.TempDir())
	opts.SegmentBytes = 50_000
	acked := map[Position]uint64{} // start -> number in the payload
	for round := range 6 {
		cmd := exec.Command(os.Args[0], "-test.run=^TestKill$", "-test.v=false")
		cmd.Env = append(os.Environ(), childEnv+"="+opts.Dir)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Duration(100+37*round)*time.Millisecond, func() { _ = cmd.Process.Signal(syscall.SIGKILL) })
		said, err := io.ReadAll(out)
		if err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		for len(said) >= 16 {
			acked[Position(binary.LittleEndian.Uint64(said))] = binary.LittleEndian.Uint64(said[8:])
			said = said[16:]
		}

		l := mustOpen(t, opts)
		recs, err := readAll(mustReader(t, l, 0))
		if err != nil {
			t.Fatalf("round %d: %s", round, err)
		}
		found := 0
		for i, rec := range recs {
			if i > 0 && rec.Start != recs[i-1].End {
				t.Fatalf("round %d: hole before %d", round, rec.Start)
			}
			if id, ok := acked[rec.Start]; ok {
				found++
				if !bytes.Equal(rec.Data, payload(int(id), 500)) {
					t.Fatalf("round %d: record at %d is not what was confirmed", round, rec.Start)
				}
			}
		}
		if found != len(acked) {
			t.Fatalf("round %d: %d of %d confirmed records are there", round, found, len(acked))
		}
		mustClose(t, l)
	}
	if len(acked) < 20 {
		t.Fatalf("only %d records were confirmed", len(acked))
	}
	t.Logf("%d confirmed records survived", len(acked))
}

// killedChild appends and syncs from four goroutines until it is killed, and
// writes start and number of each confirmed record to standard output.
func killedChild(t *testing.T, dir string) {
	opts := testOptions(dir)
	opts.SegmentBytes = 50_000
	l := mustOpen(t, opts)
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			for i := 0; ; i++ {
				id := g*1_000_000 + i
				start, end, err := l.Append(1, payload(id, 500))
				if err == nil {
					err = l.Sync(context.Background(), end)
				}
				if err != nil {
					t.Error(err)
					return
				}
				b := binary.LittleEndian.AppendUint64(nil, uint64(start))
				_, _ = os.Stdout.Write(binary.LittleEndian.AppendUint64(b, uint64(id)))
			}
		})
	}
	wg.Wait()
}

// recorder is a disk that notes what is done to it, in order, and what would
// survive a power cut: file contents as of their last fsync, and names as of
// the last directory fsync.
type recorder struct {
	mu      sync.Mutex // guards everything below
	events  []string
	written map[string]int
	durable map[string]int // bytes of each file as of its fsync
	names   map[string]bool
	listed  map[string]bool // names as of the last directory fsync
	free    int64
	stats   int
	gate    chan struct{} // if not nil, each fsync of a file takes one token
	failing func(event string) error
}

func (r *recorder) note(event string) error {
	r.events = append(r.events, event)
	if r.failing != nil {
		return r.failing(event)
	}
	return nil
}

func (r *recorder) count(prefix string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, e := range r.events {
		if strings.HasPrefix(e, prefix) {
			n++
		}
	}
	return n
}

// openRecorded opens a log on an empty directory whose disk is recorded.
func openRecorded(t testing.TB, opts Options, r *recorder) (*Log, error) {
	t.Helper()
	if err := opts.setDefaults(); err != nil {
		t.Fatal(err)
	}
	d, err := openDisk(opts.Dir)
	if err != nil {
		t.Fatal(err)
	}
	r.written, r.durable = map[string]int{}, map[string]int{}
	r.names, r.listed = map[string]bool{}, map[string]bool{}
	create, remove, syncDir := d.create, d.remove, d.syncDir
	d.create = func(name string) (file, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if err := r.note("create " + name); err != nil {
			return nil, err
		}
		r.names[name] = true
		f, err := create(name)
		return &recordedFile{file: f, r: r, name: name}, err
	}
	d.remove = func(name string) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		if err := r.note("remove " + name); err != nil {
			return err
		}
		delete(r.names, name)
		return remove(name)
	}
	d.syncDir = func() error {
		r.mu.Lock()
		defer r.mu.Unlock()
		if err := r.note("fsync directory"); err != nil {
			return err
		}
		clear(r.listed)
		for name := range r.names {
			r.listed[name] = true
		}
		return syncDir()
	}
	if r.free > 0 {
		d.free = func() (int64, error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.stats++
			return r.free, nil
		}
	}
	l, err := open(opts, d)
	if err == nil {
		t.Cleanup(func() { _ = l.Close() })
	}
	return l, err
}

type recordedFile struct {
	file
	r    *recorder
	name string
}

func (f *recordedFile) Write(b []byte) (int, error) {
	f.r.mu.Lock()
	defer f.r.mu.Unlock()
	if err := f.r.note("write " + f.name); err != nil {
		n, _ := f.file.Write(b[:len(b)/2])
		return n, err
	}
	f.r.written[f.name] += len(b)
	return f.file.Write(b)
}

func (f *recordedFile) Sync() error {
	f.r.mu.Lock()
	gate := f.r.gate
	f.r.mu.Unlock()
	if gate != nil {
		<-gate
	}
	f.r.mu.Lock()
	defer f.r.mu.Unlock()
	if err := f.r.note("fsync " + f.name); err != nil {
		return err
	}
	f.r.durable[f.name] = f.r.written[f.name]
	return f.file.Sync()
}

// TestOrder checks the order of writes and fsyncs over two segments.
func TestOrder(t *testing.T) {
	opts := testOptions(t.TempDir())
	opts.SegmentBytes = 1000
	r := new(recorder)
	l, err := openRecorded(t, opts, r)
	if err != nil {
		t.Fatal(err)
	}
	_, end := mustAppend(t, l, 1, payload(1, 700))
	mustSync(t, l, end)
	ackedAfter := len(r.events)
	_, end2 := mustAppend(t, l, 1, payload(1, 700))
	mustSync(t, l, end2)
	a, b := segmentName(0), segmentName(end)
	want := []string{
		"create " + a, "write " + a, "fsync " + a, "fsync directory", // a durable, empty segment
		"write " + a, "fsync " + a, // the record, then the answer
		"fsync " + a,                                                 // sealed before the next one exists
		"create " + b, "write " + b, "fsync " + b, "fsync directory", // a durable, empty segment
		"write " + b, "fsync " + b,
	}
	if got := strings.Join(r.events, "\n"); got != strings.Join(want, "\n") {
		t.Fatalf("unexpected order:\n%s\nwant:\n%s", got, strings.Join(want, "\n"))
	}
	if ackedAfter != 6 {
		t.Fatalf("the first record was confirmed after %d steps; want 6", ackedAfter)
	}
}

// TestPowerCut keeps, after each confirmation, only what fsync made durable,
// and opens that.
func TestPowerCut(t *testing.T) {
	opts := testOptions(t.TempDir())
	opts.SegmentBytes = 1500
	r := new(recorder)
	l, err := openRecorded(t, opts, r)
	if err != nil {
		t.Fatal(err)
	}
	const n, size = 25, 250
	for i := range n {
		_, end := mustAppend(t, l, byte(i), payload(i, size))
		mustSync(t, l, end)
		if i%10 == 9 {
			if err := l.Prune(end); err != nil {
				t.Fatal(err)
			}
		}
		r.mu.Lock()
		cut := opts
		cut.Dir = t.TempDir()
		last := slices.Max(slices.Collect(maps.Keys(r.listed)))
		for name := range r.listed {
			b, err := os.ReadFile(filepath.Join(opts.Dir, name))
			if err != nil {
				continue // removed, but the removal is not durable
			}
			b = b[:r.durable[name]]
			if name == last {
				// What would be written next survives as zeros, or not at all.
				b = append(b, make([]byte, i%3*100)...)
			}
			writeFile(t, filepath.Join(cut.Dir, name), b)
		}
		oldest := l.Oldest()
		r.mu.Unlock()

		after := mustOpen(t, cut)
		recs, err := readAll(mustReader(t, after, oldest))
		if err != nil {
			t.Fatalf("after record %d: %s", i, err)
		}
		if after.End() != end || recs[len(recs)-1].End != end {
			t.Fatalf("after record %d: the log ends at %d; want %d", i, after.End(), end)
		}
		mustClose(t, after)
	}
}

// TestGroupCommit holds one fsync back while many waiters come, and counts how
// many fsyncs answer them all.
func TestGroupCommit(t *testing.T) {
	r := new(recorder)
	l, err := openRecorded(t, testOptions(t.TempDir()), r)
	if err != nil {
		t.Fatal(err)
	}
	fill(t, l, 1, 10)
	gate := make(chan struct{})
	r.mu.Lock()
	r.gate = gate
	r.mu.Unlock()
	before := r.count("fsync 0")

	const waiters = 50
	var wg sync.WaitGroup
	one := func(i int) {
		_, end := mustAppend(t, l, 1, payload(i, 100))
		wg.Go(func() {
			if err := l.Sync(t.Context(), end); err != nil {
				t.Errorf("cannot sync: %s", err)
			}
			if l.Synced() < end {
				t.Errorf("confirmed %d with %d synced", end, l.Synced())
			}
		})
	}
	one(0)
	// The flusher is in the first fsync once it has emptied the buffer.
	for {
		l.mu.Lock()
		taken := len(l.buf) == 0
		l.mu.Unlock()
		if taken {
			break
		}
		time.Sleep(time.Millisecond)
	}
	for i := 1; i < waiters; i++ {
		one(i)
	}
	for {
		l.mu.Lock()
		n := len(l.waiters)
		l.mu.Unlock()
		if n == waiters {
			break
		}
		time.Sleep(time.Millisecond)
	}
	// An abandoned wait does not disturb the others.
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("no longer interested")
	cancel(why)
	if err := l.Sync(ctx, l.End()); !errors.Is(err, why) {
		t.Fatalf("unexpected error: %v", err)
	}
	gate <- struct{}{}
	gate <- struct{}{}
	wg.Wait()
	if got := r.count("fsync 0") - before; got != 2 {
		t.Fatalf("unexpected number of fsyncs: %d; want 2", got)
	}
	close(gate)
}

// TestStickyFailure fails each kind of step once; from then on nothing is
// confirmed although every later step would succeed.
func TestStickyFailure(t *testing.T) {
	f := func(step string, nth int) {
		t.Helper()
		opts := testOptions(t.TempDir())
		opts.SegmentBytes = 1000
		boom := errors.New("disk on fire")
		armed, seen := false, 0
		r := &recorder{failing: func(event string) error {
			if armed && strings.HasPrefix(event, step) {
				if seen++; seen == nth {
					return boom
				}
			}
			return nil
		}}
		l, err := openRecorded(t, opts, r)
		if err != nil {
			t.Fatal(err)
		}
		fill(t, l, 2, 300)
		r.mu.Lock()
		armed = true
		r.mu.Unlock()
		synced := l.Synced()
		reader := mustReader(t, l, 0)
		follower := mustReader(t, l, synced)
		waiting := make(chan error, 1)
		go func() {
			var err error
			for err == nil {
				_, err = follower.Next(t.Context())
			}
			waiting <- err
		}()

		var failed error
		for i := 0; i < 10 && failed == nil; i++ {
			_, end, err := l.Append(9, payload(i, 300))
			if err == nil {
				err = l.Sync(t.Context(), end)
			}
			if err == nil {
				synced = end
			}
			failed = err
		}
		if !errors.Is(failed, boom) {
			t.Fatalf("%s: unexpected error: %v", step, failed)
		}
		select {
		case <-l.Failed():
		case <-time.After(5 * time.Second):
			t.Fatalf("%s: Failed was not closed", step)
		}
		if !errors.Is(l.Err(), boom) || !errors.Is(l.Admit(1), boom) || !errors.Is(l.Prune(synced), boom) {
			t.Fatalf("%s: the failure is not sticky: %v", step, l.Err())
		}
		if _, _, err := l.Append(9, nil); !errors.Is(err, boom) {
			t.Fatalf("%s: unexpected error from append: %v", step, err)
		}
		if err := l.Sync(t.Context(), synced); !errors.Is(err, boom) {
			t.Fatalf("%s: unexpected error from sync: %v", step, err)
		}
		if err := <-waiting; !errors.Is(err, boom) {
			t.Fatalf("%s: unexpected error from a waiting reader: %v", step, err)
		}
		// What was confirmed is still there, and nothing else.
		recs, err := readAll(reader)
		if !errors.Is(err, boom) {
			t.Fatalf("%s: unexpected error: %v", step, err)
		}
		if end := recs[len(recs)-1].End; end != synced {
			t.Fatalf("%s: records end at %d; want %d", step, end, synced)
		}
		if err := l.Close(); !errors.Is(err, boom) {
			t.Fatalf("%s: unexpected error from close: %v", step, err)
		}
		// A new process finds all of it, with the torn write cut.
		l = mustOpen(t, opts)
		recs, err = readAll(mustReader(t, l, 0))
		if err != nil {
			t.Fatalf("%s: %s", step, err)
		}
		if end := recs[len(recs)-1].End; end < synced {
			t.Fatalf("%s: records end at %d; want at least %d", step, end, synced)
		}
	}
	f("fsync 0", 1)
	f("fsync 0", 2)
	f("write", 1)
	f("write", 3)
	f("create", 1)
	f("fsync directory", 1)
}

func TestPruneFailure(t *testing.T) {
	opts := testOptions(t.TempDir())
	opts.SegmentBytes = 1000
	var failing string
	boom := errors.New("disk on fire")
	r := &recorder{failing: func(event string) error {
		if failing != "" && strings.HasPrefix(event, failing) {
			return boom
		}
		return nil
	}}
	l, err := openRecorded(t, opts, r)
	if err != nil {
		t.Fatal(err)
	}
	fill(t, l, 20, 300)
	set := func(s string) { r.mu.Lock(); failing = s; r.mu.Unlock() }

	// A segment that cannot be removed is still there, and the log goes on.
	before := l.Stats()
	set("remove")
	if err := l.Prune(l.End()); !errors.Is(err, boom) {
		t.Fatalf("unexpected error: %v", err)
	}
	if l.Stats() != before || l.Err() != nil {
		t.Fatalf("unexpected state: %+v, %v", l.Stats(), l.Err())
	}
	set("fsync directory")
	if err := l.Prune(l.End()); !errors.Is(err, boom) || !errors.Is(l.Err(), boom) {
		t.Fatalf("unexpected error: %v, sticky %v", err, l.Err())
	}
}

func TestAdmitCap(t *testing.T) {
	opts := testOptions(t.TempDir())
	opts.MaxBytes = 8000
	l := mustOpen(t, opts)
	n := 0
	for ; n < 100; n++ {
		err := l.Admit(1000)
		if err != nil {
			var full *FullError
			if !errors.Is(err, ErrFull) || !errors.As(err, &full) || full.What != FullCap || full.Asked != 1000 || full.Left >= 1000 {
				t.Fatalf("unexpected error: %v", err)
			}
			break
		}
		// Not synced: what is in memory counts as well.
		mustAppend(t, l, 1, payload(2*n+1, 900))
	}
	if n < 5 || n > 8 {
		t.Fatalf("the log was full after %d records", n)
	}
	mustSync(t, l, l.End())
	if err := l.Admit(1000); !errors.Is(err, ErrFull) {
		t.Fatalf("unexpected error after the sync: %v", err)
	}
	if l.Stats().Bytes > opts.MaxBytes {
		t.Fatalf("the log has %d bytes; the cap is %d", l.Stats().Bytes, opts.MaxBytes)
	}
	if err := l.Prune(l.End()); err != nil {
		t.Fatal(err)
	}
	if err := l.Admit(1000); err != nil {
		t.Fatalf("unexpected error after pruning: %s", err)
	}
	if err := l.Admit(-1); err != nil {
		t.Fatalf("unexpected error: %s", err)
	}
}

// TestFullSegmentCanBePruned keeps the log from being full for ever of one
// record that is larger than a segment.
func TestFullSegmentCanBePruned(t *testing.T) {
	opts := testOptions(t.TempDir())
	opts.MaxBytes = 8000
	l := mustOpen(t, opts)
	_, end := mustAppend(t, l, 1, payload(1, 7900))
	mustSync(t, l, end)
	if err := l.Admit(1000); !errors.Is(err, ErrFull) {
		t.Fatalf("unexpected error: %v", err)
	}
	for deadline := time.Now().Add(5 * time.Second); l.Admit(1000) != nil; time.Sleep(time.Millisecond) {
		if err := l.Prune(end); err != nil {
			t.Fatal(err)
		}
		if time.Now().After(deadline) {
			t.Fatal("the full segment was not sealed")
		}
	}
}

func TestAdmitDisk(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{free: 10_000}
		l, err := openRecorded(t, Options{Dir: dir, ReserveBytes: 4000}, r)
		if err != nil {
			t.Fatal(err)
		}
		f := func(n int, full bool, looks int) {
			t.Helper()
			err := l.Admit(n)
			var e *FullError
			if full != (errors.As(err, &e) && e.What == FullDisk) || (!full && err != nil) {
				t.Fatalf("unexpected answer for %d bytes: %v", n, err)
			}
			if r.stats != looks {
				t.Fatalf("looked at the file system %d times; want %d", r.stats, looks)
			}
		}
		f(6000, false, 1)
		f(6001, true, 1)
		// What was appended since the last look counts.
		mustAppend(t, l, 1, payload(1, 3000))
		f(3100, true, 1)
		f(2900, false, 1)
		r.free = 100_000
		time.Sleep(statInterval - time.Nanosecond)
		f(6000, true, 1)
		time.Sleep(time.Nanosecond)
		f(6000, false, 2)
		// Below the reserve not even nothing is admitted.
		r.free = 3000
		time.Sleep(statInterval)
		f(0, true, 3)
		mustClose(t, l)
	})
}

// gathered returns the value of each metric, the count of a histogram.
func gathered(t *testing.T, reg *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, family := range families {
		m := family.GetMetric()[0]
		out[family.GetName()] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
	}
	return out
}

func TestMetrics(t *testing.T) {
	dir := t.TempDir()
	reg := prometheus.NewPedanticRegistry()
	synctest.Test(t, func(t *testing.T) {
		opts := testOptions(dir)
		opts.Registerer = reg
		l := mustOpen(t, opts)
		_, end := mustAppend(t, l, 1, make([]byte, 10))
		mustAppend(t, l, 1, make([]byte, 10))
		mustSync(t, l, l.End())
		time.Sleep(90 * time.Second)
		want := map[string]float64{
			"flyball_wal_appended_bytes_total":   float64(2 * end),
			"flyball_wal_appended_records_total": 2,
			"flyball_wal_bytes":                  float64(segmentHeaderSize + 2*end),
			"flyball_wal_corruptions_total":      0,
			"flyball_wal_fsync_seconds":          2, // one of them for the new segment
			"flyball_wal_oldest_age_seconds":     90,
			"flyball_wal_segments":               1,
			"flyball_wal_torn_tails_total":       0,
		}
		if got := gathered(t, reg); !maps.Equal(got, want) {
			t.Fatalf("unexpected metrics: %v; want %v", got, want)
		}
		mustClose(t, l)
		// The registry is free for the next one.
		mustClose(t, mustOpen(t, opts))
	})
}

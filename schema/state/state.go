// Package state is the local store of one node: an embedded key-value store for
// what must survive a restart and is not in the write-ahead log any more.
//
// It guarantees that what Commit returned for with sync is on stable storage,
// all of a batch or nothing, and that looking for a trace nobody stored costs a
// Bloom filter in memory. It refuses to be opened twice. It keeps traces by the day they
// were first saved, so that forgetting a day is one range delete. Its owner makes
// sure that it is never ahead of the log.
package state

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble"
	"github.com/cockroachdb/pebble/bloom"
	"github.com/cockroachdb/pebble/vfs"
	"github.com/klauspost/compress/s2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Options of Open.
type Options struct {
	Dir        string
	KeepDays   int    // days a trace is kept after it was first saved, default 2
	MaxBytes   int64  // oldest days go beyond this, default 4 GiB
	FS         vfs.FS // nil is the disk; tests have one that loses what was not synced
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Store is an open local store. It is safe for concurrent use.
type Store struct {
	o    Options
	db   *pebble.DB
	seen *seen

	closing, keysRead chan struct{}
}

const day = 24 * time.Hour

const (
	cacheBytes    = 48 << 20
	memTableBytes = 16 << 20
)

// Open opens or creates the store.
func Open(o Options) (*Store, error) {
	if o.KeepDays == 0 {
		o.KeepDays = 2
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = 4 << 30
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.FS == nil {
		o.FS = vfs.Default
	}
	// The engine takes its memory tables, two of them, out of this.
	cache := pebble.NewCache(cacheBytes + 2*memTableBytes)
	defer cache.Unref()
	opts := &pebble.Options{
		Cache:                    cache,
		MemTableSize:             memTableBytes,
		Logger:                   quiet{o.Logger},
		FormatMajorVersion:       pebble.FormatNewest,
		FS:                       o.FS,
		MaxConcurrentCompactions: func() int { return 1 },
		Cleaner:                  cleaner{},
		MaxManifestFileSize:      1, // as often as it is worth it: it has keys of tables that are gone
	}
	// Pages are compressed before they come here, and most are never read again:
	// few levels, wide apart, rewrite them seldom.
	opts.L0CompactionThreshold, opts.L0StopWritesThreshold, opts.LBaseMaxBytes = 24, 96, 512<<20
	for range 7 {
		opts.Levels = append(opts.Levels, pebble.LevelOptions{FilterPolicy: bloom.FilterPolicy(10), Compression: pebble.NoCompression, BlockSize: 16 << 10})
	}
	db, err := pebble.Open(o.Dir, opts)
	if errors.Is(err, syscall.EAGAIN) { // its lock is held
		return nil, fmt.Errorf("open local store %s: another flyball uses it; stop that one, or give this one a directory of its own (FLYBALL_DATA)", o.Dir)
	}
	if err != nil {
		return nil, fmt.Errorf("open local store %s: %w", o.Dir, err)
	}
	// The engine makes its directory and leaves it to us that it is there after a crash.
	err = syncDir(opts.FS, opts.FS.PathDir(o.Dir))
	if err != nil {
		_ = db.Close()
		return nil, fmt.Errorf("open local store %s: %w", o.Dir, err)
	}
	s := &Store{o: o, db: db, closing: make(chan struct{}), keysRead: make(chan struct{})}
	last, err := s.lastDay()
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	s.seen = newSeen(last)
	go s.readKeys()
	promauto.With(o.Registerer).NewGaugeFunc(prometheus.GaugeOpts{Name: "flyball_state_bytes", Help: "Size of the local store on disk."}, func() float64 {
		return float64(s.db.Metrics().DiskSpaceUsage())
	})
	return s, nil
}

func syncDir(fs vfs.FS, dir string) error {
	d, err := fs.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Close flushes and closes the store.
func (s *Store) Close() error {
	close(s.closing)
	<-s.keysRead
	if err := s.db.Close(); err != nil {
		return fmt.Errorf("close local store: %w", err)
	}
	return nil
}

// Day is the day number under which something is kept.
func Day(unixNano int64) uint32 { return uint32(unixNano / int64(day)) }

func traceKey(b []byte, d uint32, key []byte, page int) []byte {
	b = append(b, 't')
	b = binary.BigEndian.AppendUint32(b, d)
	b = append(b, key...)
	return binary.BigEndian.AppendUint32(b, uint32(page))
}

func traceBounds() *pebble.IterOptions {
	return &pebble.IterOptions{LowerBound: []byte{'t'}, UpperBound: []byte{'t' + 1}}
}

// lastDay is the last day that has a trace, 0 where none has.
func (s *Store) lastDay() (last uint32, err error) {
	it, err := s.db.NewIter(traceBounds())
	if err != nil {
		return 0, fmt.Errorf("read local store: %w", err)
	}
	if it.Last() && len(it.Key()) > 5 {
		last = binary.BigEndian.Uint32(it.Key()[1:])
	}
	if err := errors.Join(it.Error(), it.Close()); err != nil {
		return 0, fmt.Errorf("read local store: %w", err)
	}
	return last, nil
}

// GetTrace returns the pages of a trace, one after the other, and the day they
// are kept under; nil where there is none.
func (s *Store) GetTrace(key []byte, now int64) (data []byte, d uint32, err error) {
	today := Day(now)
	var buf [128]byte
	for back := range uint32(s.o.KeepDays + 1) {
		if d = today - back; !s.seen.may(d, key) {
			continue
		}
		for n := 0; ; n++ {
			v, closer, err := s.db.Get(traceKey(buf[:0], d, key, n))
			if errors.Is(err, pebble.ErrNotFound) {
				break
			}
			if err != nil {
				return nil, 0, fmt.Errorf("read local store: %w", err)
			}
			page, derr := s2.Decode(nil, v)
			data = append(data, page...)
			if err = errors.Join(derr, err); err != nil {
				return nil, 0, fmt.Errorf("read local store: %w", err)
			}
			if err := closer.Close(); err != nil {
				return nil, 0, fmt.Errorf("read local store: %w", err)
			}
		}
		if data != nil {
			return data, d, nil
		}
	}
	return nil, 0, nil
}

// Get returns a named value, nil where there is none.
func (s *Store) Get(name string) ([]byte, error) {
	v, closer, err := s.db.Get([]byte("m" + name))
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read local store: %w", err)
	}
	out := append([]byte{}, v...)
	return out, closer.Close()
}

// Each calls f for the named values whose name begins with prefix, in the order of
// the names, as they are when it begins. The value is f's only until it returns.
func (s *Store) Each(prefix string, f func(name string, value []byte) error) error {
	from := []byte("m" + prefix)
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: after(from)})
	if err != nil {
		return fmt.Errorf("read local store: %w", err)
	}
	defer it.Close()
	for ok := it.First(); ok; ok = it.Next() {
		if err := f(string(it.Key()[1:]), it.Value()); err != nil {
			return err
		}
	}
	if err := it.Error(); err != nil {
		return fmt.Errorf("read local store: %w", err)
	}
	return nil
}

// Last returns the last of the names that begin with prefix, "" where there is none.
func (s *Store) Last(prefix string) (string, error) {
	from := []byte("m" + prefix)
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: after(from)})
	if err != nil {
		return "", fmt.Errorf("read local store: %w", err)
	}
	defer it.Close()
	if !it.Last() {
		if err := it.Error(); err != nil {
			return "", fmt.Errorf("read local store: %w", err)
		}
		return "", nil
	}
	return string(it.Key()[1:]), nil
}

// after is the first key behind all that begin with prefix, which begins with a
// letter and so has one.
func after(prefix []byte) []byte {
	end := append([]byte(nil), prefix...)
	for end[len(end)-1] == 0xff {
		end = end[:len(end)-1]
	}
	end[len(end)-1]++
	return end
}

// Batch gathers writes for one atomic commit.
type Batch struct {
	s        *Store
	b        *pebble.Batch
	key, buf []byte
}

// NewBatch starts a batch.
func (s *Store) NewBatch() *Batch { return &Batch{s: s, b: s.db.NewBatch()} }

// PutTrace stores a page of a trace.
func (b *Batch) PutTrace(d uint32, key []byte, page int, value []byte) error {
	if page == 0 {
		b.s.seen.add(d, key)
	}
	b.key = traceKey(b.key[:0], d, key, page)
	b.buf = s2.Encode(b.buf[:cap(b.buf)], value)
	return b.b.Set(b.key, b.buf, nil)
}

// Len is the size of what was gathered, in bytes.
func (b *Batch) Len() int { return b.b.Len() }

// Put stores a named value.
func (b *Batch) Put(name string, value []byte) error { return b.b.Set([]byte("m"+name), value, nil) }

// Delete removes a named value.
func (b *Batch) Delete(name string) error { return b.b.Delete([]byte("m"+name), nil) }

// DeletePrefix removes every named value whose name begins with prefix.
func (b *Batch) DeletePrefix(prefix string) error {
	from := []byte("m" + prefix)
	return b.b.DeleteRange(from, after(from), nil)
}

// Commit applies the batch; with sync it is durable when Commit returns.
func (b *Batch) Commit(sync bool) error {
	o := pebble.NoSync
	if sync {
		o = pebble.Sync
	}
	if err := b.b.Commit(o); err != nil {
		return fmt.Errorf("write local store: %w", err)
	}
	return b.b.Close()
}

// RewriteTraces hands the stored pages of traces to f, from a key on, and stores what f
// returns in their place; nil keeps a page. It stops after about so many bytes and
// returns the key to go on from, nil at the end. Nobody may write traces meanwhile.
func (s *Store) RewriteTraces(from []byte, most int, f func(page []byte) ([]byte, error)) (next []byte, err error) {
	if from == nil {
		from = []byte{'t'}
	}
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: []byte{'t' + 1}})
	if err != nil {
		return nil, fmt.Errorf("rewrite traces: %w", err)
	}
	defer it.Close()
	b := s.NewBatch()
	seen := 0
	for ok := it.First(); ok; ok = it.Next() {
		if seen >= most {
			next = append([]byte(nil), it.Key()...)
			break
		}
		page, err := s2.Decode(nil, it.Value())
		if err != nil {
			return nil, fmt.Errorf("rewrite traces: %w", err)
		}
		seen += len(page)
		fresh, err := f(page)
		if err != nil {
			return nil, fmt.Errorf("rewrite traces: %w", err)
		}
		if fresh == nil {
			continue
		}
		if err := b.b.Set(it.Key(), s2.Encode(nil, fresh), nil); err != nil {
			return nil, fmt.Errorf("rewrite traces: %w", err)
		}
	}
	if err := it.Error(); err != nil {
		return nil, fmt.Errorf("rewrite traces: %w", err)
	}
	return next, b.Commit(false)
}

// Scrub returns once no file of the store has anything that was deleted or replaced
// before. It rewrites all of it.
func (s *Store) Scrub(ctx context.Context) error {
	select { // who reads has old files open
	case <-s.keysRead:
	case <-ctx.Done():
		return ctx.Err()
	}
	touch := func(keys ...[]byte) error {
		b := s.NewBatch()
		for _, k := range keys {
			if err := b.b.Set(k, nil, nil); err != nil {
				return err
			}
		}
		if err := b.Commit(true); err != nil {
			return err
		}
		return s.db.Flush()
	}
	// The engine moves a table down as it is where it overlaps nothing, with what was
	// deleted in it. Two tables from the first key to the last one overlap each other and
	// every table of every level, so that all are merged.
	first, last := []byte{0}, []byte{0xff}
	if err := errors.Join(touch(first, last), touch(first, last), s.db.Compact(first, last, false)); err != nil {
		return fmt.Errorf("scrub local store: %w", err)
	}
	// Logs and manifests of until now go when there are newer ones.
	old := map[string]bool{}
	files := func(f func(name string)) error {
		names, err := s.o.FS.List(s.o.Dir)
		for _, name := range names {
			if strings.HasSuffix(name, ".log") || strings.HasPrefix(name, "MANIFEST-") {
				f(name)
			}
		}
		return err
	}
	err := files(func(name string) { old[name] = true })
	for left := len(old); left > 0 && err == nil; {
		if err = ctx.Err(); err == nil {
			err = touch([]byte("m" + keyScrub))
		}
		if err == nil {
			left = 0
			err = files(func(name string) {
				if old[name] {
					left++
				}
			})
		}
	}
	if err != nil {
		return fmt.Errorf("scrub local store: %w", err)
	}
	return nil
}

const keyScrub = "scrub"

// cleaner deletes files that are done with. Logs are not kept to be written over, since
// what is deleted would stay readable in them: the engine does that only with a cleaner
// that does not look at files, which looks says it does.
type cleaner struct {
	pebble.DeleteCleaner
	looks
}

type looks struct{ pebble.ArchiveCleaner }

// Sync makes everything durable that was committed without.
func (s *Store) Sync() error {
	if err := s.db.LogData(nil, pebble.Sync); err != nil {
		return fmt.Errorf("sync local store: %w", err)
	}
	return nil
}

// Expire forgets traces that are older than the store keeps them, and whole days
// beyond the size cap, today excepted.
func (s *Store) Expire(now int64) error {
	limit := Day(now) - uint32(s.o.KeepDays)
	if err := s.deleteBefore(limit); err != nil {
		return err
	}
	for d := limit; d < Day(now) && int64(s.db.Metrics().DiskSpaceUsage()) > s.o.MaxBytes; d++ {
		if !s.seen.any(d) {
			continue
		}
		s.o.Logger.Warn("local store is over its cap; spans of older traces will be taken as new", "bytes", s.o.MaxBytes)
		if err := s.deleteBefore(d + 1); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) deleteBefore(d uint32) error {
	from, to := []byte{'t'}, binary.BigEndian.AppendUint32([]byte{'t'}, d)
	if err := s.db.DeleteRange(from, to, pebble.NoSync); err != nil {
		return fmt.Errorf("expire local store: %w", err)
	}
	s.seen.forget(d)
	return nil
}

// quiet passes only errors of the store's own log on.
type quiet struct{ log *slog.Logger }

func (quiet) Infof(string, ...any) {}

func (q quiet) Errorf(format string, args ...any) { q.log.Error(fmt.Sprintf(format, args...)) }

func (q quiet) Fatalf(format string, args ...any) {
	panic("BUG: local store: " + fmt.Sprintf(format, args...))
}

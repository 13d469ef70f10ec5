package wal

import (
	"context"
	"fmt"
	"io"
	"sync"
	"testing"
)

// spans is 60 KB like the slim calls of 300 spans: names repeat, ids do not.
func spans() []byte {
	var b []byte
	for i := 0; len(b) < 60_000; i++ {
		id := uint64(i+1) * 0x9E3779B97F4A7C15
		b = fmt.Appendf(b, "%016x%016x|tenant-%d|openai|m-5-2026-01-01|chat|user-%d|feature-%d|in=%d,cr=%d,out=%d|%d|agent-planner|quote@v12|",
			id, id*31, i%5, id%997, i%11, id%20000, id%7000, id%900, id>>20)
	}
	return b[:60_000]
}

// nullFile is a segment whose writes and fsyncs cost nothing.
type nullFile struct{ io.Writer }

func (nullFile) Sync() error  { return nil }
func (nullFile) Close() error { return nil }

type nosyncFile struct{ file }

func (nosyncFile) Sync() error { return nil }

func benchLog(b *testing.B, wrap func(file) file) *Log {
	b.Helper()
	opts := testOptions(b.TempDir())
	opts.MaxBytes = 1 << 40
	if err := opts.setDefaults(); err != nil {
		b.Fatal(err)
	}
	opts.SegmentBytes = defaultSegmentBytes
	d, err := openDisk(opts.Dir)
	if err != nil {
		b.Fatal(err)
	}
	if wrap != nil {
		create := d.create
		d.create = func(name string) (file, error) {
			f, err := create(name)
			return wrap(f), err
		}
	}
	l, err := open(opts, d)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = l.Close() })
	return l
}

// BenchmarkAppend is one append of 60 KB, without the disk.
func BenchmarkAppend(b *testing.B) {
	l := benchLog(b, func(f file) file { return nullFile{io.Discard} })
	data := spans()
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := l.Append(1, data); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkAppendSync is 8 goroutines that append 60 KB and wait for the sync.
func BenchmarkAppendSync(b *testing.B) {
	f := func(name string, wrap func(file) file) {
		b.Run(name, func(b *testing.B) {
			l := benchLog(b, wrap)
			data := spans()
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			b.ResetTimer()
			var wg sync.WaitGroup
			for g := range 8 {
				wg.Go(func() {
					for i := g; i < b.N; i += 8 {
						_, end, err := l.Append(1, data)
						if err == nil {
							err = l.Sync(context.Background(), end)
						}
						if err != nil {
							b.Error(err)
							return
						}
						if i%1000 == 0 {
							_ = l.Prune(end) // keeps the disk small
						}
					}
				})
			}
			wg.Wait()
		})
	}
	f("nofsync", func(f file) file { return nosyncFile{f} })
	f("fsync", nil)
}

// BenchmarkRead reads 60 KB records from the page cache.
func BenchmarkRead(b *testing.B) {
	l := benchLog(b, nil)
	data := spans()
	for range 500 {
		if _, _, err := l.Append(1, data); err != nil {
			b.Fatal(err)
		}
	}
	mustSync(b, l, l.End())
	r := mustReader(b, l, 0)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		_, ok, err := r.TryNext()
		if err != nil {
			b.Fatal(err)
		}
		if !ok {
			r.pos, r.limit = 0, 0
		}
	}
}

// BenchmarkSyncLatency is one append and sync with nobody else there: the cost
// of the hand-over to the flusher and back.
func BenchmarkSyncLatency(b *testing.B) {
	l := benchLog(b, func(f file) file { return nullFile{io.Discard} })
	data := make([]byte, 100)
	b.ReportAllocs()
	for b.Loop() {
		_, end, err := l.Append(1, data)
		if err == nil {
			err = l.Sync(context.Background(), end)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}

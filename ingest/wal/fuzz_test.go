package wal

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"os"
	"path/filepath"
	"testing"
)

// FuzzReader reads arbitrary bytes as a segment: nothing panics, and a record
// is returned only if its bytes have the checksum it is returned with.
func FuzzReader(f *testing.F) {
	opts := testOptions(f.TempDir())
	l := mustOpen(f, opts)
	fill(f, l, 4, 200)
	mustClose(f, l)
	whole := readFile(f, segmentFiles(f, opts.Dir)[0])
	f.Add(whole, false)
	f.Add(whole[segmentHeaderSize:], true)
	f.Add(whole[:len(whole)-5], false)
	bad := append([]byte(nil), whole...)
	bad[segmentHeaderSize+300] ^= 1
	f.Add(bad, false)
	f.Add([]byte{}, false)
	f.Add(make([]byte, 600), true)

	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, content []byte, head bool) {
		name := filepath.Join(dir, segmentName(0))
		defer os.Remove(name)
		if head {
			content = append((&segment{}).appendHeader(nil), content...)
		}
		writeFile(t, name, content)
		opts := testOptions(dir)
		opts.OnCorruption = func(*CorruptionError) error { return nil }
		if err := opts.setDefaults(); err != nil {
			t.Fatal(err)
		}
		d, err := openDisk(dir)
		if err != nil {
			t.Fatal(err)
		}
		// Without the cost of the fsyncs.
		reopen := d.reopen
		d.syncDir = func() error { return nil }
		d.reopen = func(name string, size int64) (file, error) {
			f, err := reopen(name, size)
			return nosyncFile{f}, err
		}
		l, err := open(opts, d)
		if err != nil {
			return
		}
		defer l.Close()
		for from := Position(0); ; {
			r, err := l.NewReader(from)
			if err != nil {
				t.Fatalf("cannot read from %d: %s", from, err)
			}
			for {
				rec, ok, rerr := r.TryNext()
				if !ok {
					err = rerr
					break
				}
				stored := content[segmentHeaderSize+rec.Start : segmentHeaderSize+rec.End]
				sum := crc32.Checksum(stored[headerSize:], castagnoli)
				sum = crc32.Update(sum, castagnoli, stored[8:headerSize])
				sum = crc32.Update(sum, castagnoli, binary.LittleEndian.AppendUint64(nil, uint64(rec.Start)))
				if sum != rec.CRC || sum != binary.LittleEndian.Uint32(stored) {
					t.Fatalf("record at %d has another checksum", rec.Start)
				}
			}
			_ = r.Close()
			if err == nil {
				break
			}
			var c *CorruptionError
			if !errors.As(err, &c) || c.Next <= from && c.At != from {
				t.Fatalf("unexpected error: %v", err)
			}
			if c.Next <= c.At {
				t.Fatalf("no way past %v", c)
			}
			from = c.Next
		}
	})
}

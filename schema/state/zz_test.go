package state

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"
)

func TestZZ(t *testing.T) {
	s, err := Open(Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	n, _ := strconv.Atoi(os.Getenv("ZZN"))
	val := make([]byte, 700)
	rand.Read(val)
	now := time.Now().UnixNano()
	cpu := func() float64 {
		var r syscall.Rusage
		syscall.Getrusage(0, &r)
		return float64(r.Utime.Sec+r.Stime.Sec) + float64(r.Utime.Usec+r.Stime.Usec)/1e6
	}
	start := cpu()
	var ids [][]byte
	for i := 0; i < n; i += 500 {
		ids = ids[:0]
		b := s.NewBatch()
		for range 500 {
			id := make([]byte, 24)
			rand.Read(id)
			ids = append(ids, id)
			if _, _, err := s.GetTrace(id, now); err != nil {
				t.Fatal(err)
			}
			binary.BigEndian.PutUint32(val, uint32(i))
			b.PutTrace(Day(now), id, 0, val)
		}
		if err := b.Commit(false); err != nil {
			t.Fatal(err)
		}
	}
	m := s.db.Metrics()
	fmt.Printf("cpu %.2f us/trace; write amp %.2f, compacted %d MB, flushed %d MB, L0 files %d, disk %d MB\n", (cpu()-start)/float64(n)*1e6, func() float64 { x := m.Total(); return x.WriteAmp() }(), func() (x uint64) {
		for _, l := range m.Levels {
			x += l.BytesCompacted
		}
		return
	}()>>20, m.Levels[0].BytesFlushed>>20, m.Levels[0].NumFiles, m.DiskSpaceUsage()>>20)
	s.Close()
}

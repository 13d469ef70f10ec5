package app

import (
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestDiskFull: a file system without the space that the log leaves free is
// refused with a retryable code before anything is claimed, and taken again once
// there is room.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("mounting a small file system needs root")
	}
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=800m"); err != nil {
		t.Skip("mount a small file system: ", err)
	}
	t.Cleanup(func() {
		// The engine outlives a killed service by up to three seconds.
		eventually(t, "the file system is idle", func() bool { return syscall.Unmount(dir, 0) == nil })
	})
	s := newService(t, dir)
	s.start()
	s.drain()
	first := runs(0, 20)
	s.mustSend(first.td)

	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		t.Fatal(err)
	}
	filler := filepath.Join(dir, "filler")
	f, err := os.Create(filler)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Fallocate(int(f.Fd()), 0, 0, int64(st.Bavail)*st.Bsize-400<<20); err != nil {
		t.Skip("fill the file system: ", err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	second := runs(100, 120)
	taken := map[string]bool{}
	for _, id := range first.ids {
		taken[id] = true
	}
	eventually(t, "spans are refused", func() bool {
		b := runs(uint64(1000+len(taken)), uint64(1001+len(taken)))
		res, answer, err := s.send(encode(t, b.td))
		if err != nil {
			t.Fatal(err)
		}
		if res.StatusCode == http.StatusOK {
			for _, id := range b.ids {
				taken[id] = true
			}
			return false
		}
		if res.StatusCode != http.StatusServiceUnavailable || res.Header.Get("Retry-After") == "" {
			t.Fatalf("status %s, answer %q", res.Status, answer)
		}
		return true
	})
	if got := s.counters()[`flyball_spans_total{result="new"}`]; got != float64(len(taken)) {
		t.Errorf("%.0f spans claimed, %d acknowledged", got, len(taken))
	}
	// What was taken before is stored meanwhile, and a restart changes nothing.
	s.drain()
	s.kill()
	s.start()
	if res, _, err := s.send(encode(t, second.td)); err != nil || res.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("after a restart: %v %v", res, err)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	eventually(t, "spans are taken again", func() bool {
		res, _, err := s.send(encode(t, second.td))
		return err == nil && res.StatusCode == http.StatusOK
	})
	for _, id := range second.ids {
		taken[id] = true
	}
	s.drain()
	s.checkBooks()
	s.checkSpans(taken, nil)
	s.kill()
}

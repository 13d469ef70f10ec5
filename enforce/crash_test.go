package enforce

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/vfs"
)

// mortalFS is a disk in memory that dies after so many syncs: what comes later is lost.
type mortalFS struct {
	*vfs.MemFS
	syncs atomic.Int64
	last  int64 // the sync after which it dies, 0 is never
}

func (m *mortalFS) count() {
	if m.syncs.Add(1) == m.last {
		m.SetIgnoreSyncs(true)
	}
}

func (m *mortalFS) dead() bool { return m.last > 0 && m.syncs.Load() >= m.last }

// revive is the disk after the crash.
func (m *mortalFS) revive() {
	m.ResetToSyncedState()
	m.SetIgnoreSyncs(false)
	m.last = 0
}

func (m *mortalFS) wrap(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return &mortalFile{f, m}, nil
}

func (m *mortalFS) Create(name string) (vfs.File, error) { return m.wrap(m.MemFS.Create(name)) }

func (m *mortalFS) OpenDir(name string) (vfs.File, error) { return m.wrap(m.MemFS.OpenDir(name)) }

func (m *mortalFS) ReuseForWrite(old, name string) (vfs.File, error) {
	return m.wrap(m.MemFS.ReuseForWrite(old, name))
}

type mortalFile struct {
	vfs.File
	fs *mortalFS
}

func (f *mortalFile) Sync() error {
	err := f.File.Sync()
	f.fs.count()
	return err
}

func (f *mortalFile) SyncData() error {
	err := f.File.SyncData()
	f.fs.count()
	return err
}

func (f *mortalFile) SyncTo(n int64) (bool, error) {
	full, err := f.File.SyncTo(n)
	f.fs.count()
	return full, err
}

// TestCrashes runs every script again and again, and lets the machine die after each
// of the syncs of the local store in turn: between any two steps that are durable.
// What the script expects has to hold all the same: the sums to the last digit, what is
// in force, and every page under the id that it had.
func TestCrashes(t *testing.T) {
	files, err := filepath.Glob("testdata/*.script")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	total := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(strings.TrimSuffix(filepath.Base(file), ".script"), func(t *testing.T) {
			syncs := crash(t, string(text), 0)
			for at := int64(1); at <= syncs; at++ {
				crash(t, string(text), at)
				total++
				if t.Failed() {
					t.Fatalf("with a crash after sync %d of %d", at, syncs)
				}
			}
		})
	}
	t.Logf("%d crashes", total)
}

// crash runs a script on a disk that dies after so many syncs, and returns how many
// there were.
func crash(t *testing.T, text string, last int64) (syncs int64) {
	t.Helper()
	bubble(t, func(t *testing.T) {
		time.Sleep(time.Until(time.Date(2026, 11, 2, 0, 0, 0, 0, time.UTC)))
		disk := &mortalFS{MemFS: vfs.NewStrictMem(), last: last}
		s := newScript(t, "/state")
		s.fs = disk
		defer func() {
			if s.store != nil {
				_ = s.store.Close()
			}
		}()
		warmed, room := false, ""
		die := func() {
			_ = s.store.Close()
			disk.revive()
			s.store = nil
			s.start()
			// What the service does by itself all the time.
			s.pass(0)
			if warmed {
				s.run(0, "warm", nil)
			}
			if room != "" {
				s.run(0, room, nil)
			}
		}
		for _, l := range lines(text) {
			again := true
			for again {
				again = false
				word, _, _ := strings.Cut(l.text, " ")
				warmed = warmed || word == "warm"
				switch word {
				case "headroom":
					room = l.text // limiters go on reporting
				case "after", "at":
					room = ""
				}
				s.run(l.n, l.text, l.block)
				if s.store == nil {
					break // no policy yet
				}
				if err := s.store.Sync(); err != nil {
					t.Fatal(err)
				}
				if disk.dead() {
					die()
					// Who set the policy, flipped the switch, released a guard or acknowledged
					// something had no answer yet, and comes again. Whatever else a line does is in
					// the log.
					again = slices.Contains([]string{"policy", "kill", "free", "ack"}, word)
				}
			}
		}
		syncs = disk.syncs.Load()
	})
	return syncs
}

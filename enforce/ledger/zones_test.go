package ledger

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestWindowsTileInEveryZone: in every time zone, around every change of its clock, the window
// that holds an instant holds it, is the same for every instant in it, and ends where the
// next begins. Two windows that overlapped would count one call by who looked last.
func TestWindowsTileInEveryZone(t *testing.T) {
	const root = "/usr/share/zoneinfo"
	var zones []*time.Location
	_ = filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		name := strings.TrimPrefix(path, root+"/")
		if err != nil || d.IsDir() || strings.HasPrefix(name, "right/") || strings.HasPrefix(name, "posix/") {
			return nil
		}
		if z, err := time.LoadLocation(name); err == nil {
			zones = append(zones, z)
		}
		return nil
	})
	for _, name := range []string{"Australia/Lord_Howe", "America/Havana", "Africa/Cairo", "Asia/Beirut", "America/Asuncion", "Pacific/Apia", "Asia/Kathmandu"} {
		z, err := time.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}
		zones = append(zones, z)
	}
	windows := []Window{{Unit: Hour}, {Unit: Day}, {Unit: Week, Anchor: 7}, {Unit: Month}, {Unit: Month, Anchor: 31}}
	for _, z := range zones {
		for at := time.Date(2014, 1, 1, 0, 0, 0, 0, time.UTC); at.Year() < 2027; {
			_, change := at.In(z).ZoneBounds()
			if change.IsZero() || change.Year() >= 2027 {
				break
			}
			at = change.Add(time.Hour)
			for off := -26 * time.Hour; off <= 26*time.Hour; off += step(off) {
				for _, w := range windows {
					i := change.Add(off)
					start, end := w.Bounds(i, z)
					s2, e2 := w.Bounds(start, z)
					s3, e3 := w.Bounds(end.Add(-1), z)
					next, _ := w.Bounds(end, z)
					if i.Before(start) || !i.Before(end) || !s2.Equal(start) || !e2.Equal(end) || !s3.Equal(start) || !e3.Equal(end) || !next.Equal(end) {
						t.Errorf("%s, %s at %s: from %s to %s; its first instant has %s to %s, its last %s to %s; the next begins at %s", z, w, i.In(z), start, end, s2, e2, s3, e3, next)
						return
					}
				}
			}
		}
	}
}

// step looks closely where the clock changes.
func step(off time.Duration) time.Duration {
	if off >= -4*time.Hour && off < 4*time.Hour {
		return 15 * time.Minute
	}
	return 2 * time.Hour
}

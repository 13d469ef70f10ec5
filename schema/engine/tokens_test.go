package engine

import (
	"os"
	"path/filepath"
	"testing"
)

// TestLostTokens: what a kill leaves between the note of a token and its part. The block
// is taken when it comes again; those whose parts are there, also in merged ones, or were replaced, are not.
func TestLostTokens(t *testing.T) {
	dir := t.TempDir()
	e := openEngine(t, Options{Dir: dir})
	run(t, e.Conn(), "CREATE TABLE base (k UInt64) ENGINE=MergeTree PARTITION BY k % 2 ORDER BY k"+window)
	send := func(from, to uint64) {
		t.Helper()
		for i := from; i < to; i++ {
			if err := insertNumbers(t.Context(), e.Conn(), "base", string(rune('a'+i)), 10*i, 10*i+10); err != nil {
				t.Fatal(err)
			}
		}
	}
	count := func(want uint64) {
		t.Helper()
		if n, u := one[uint64](t, e.Reader(), "SELECT count() FROM base"), one[uint64](t, e.Reader(), "SELECT uniqExact(k) FROM base"); n != want || u != want {
			t.Errorf("%d rows, %d distinct, want %d", n, u, want)
		}
	}
	send(0, 4)
	run(t, e.Conn(), "OPTIMIZE TABLE base FINAL")
	run(t, e.Conn(), "CREATE TABLE other AS base")
	run(t, e.Conn(), "INSERT INTO other SELECT k FROM base")
	run(t, e.Conn(), "ALTER TABLE base REPLACE PARTITION 0 FROM other")
	run(t, e.Conn(), "ALTER TABLE base REPLACE PARTITION 1 FROM other")
	run(t, e.Conn(), "DROP TABLE other SYNC")
	send(4, 6)
	count(60)
	last := one[string](t, e.Reader(), "SELECT path FROM system.parts WHERE table='base' AND active ORDER BY max_block_number DESC LIMIT 1")
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(last); err != nil {
		t.Fatal(err)
	}
	logs, err := filepath.Glob(filepath.Join(dir, "store", "*", "*", "deduplication_logs", "*.txt"))
	if err != nil || len(logs) != 1 {
		t.Fatal(logs, err)
	}
	f, err := os.OpenFile(logs[0], os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteString("1\t0_99_99_0\t0_12")
	}
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}

	e = openEngine(t, Options{Dir: dir})
	count(55)
	send(0, 6)
	count(60)
}

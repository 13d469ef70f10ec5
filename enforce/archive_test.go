package enforce

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// Rows are sent until ClickHouse says that it has them: with the same identity each
// time, also by the process that comes after a crash.
func TestArchiveRepeatsUntilStored(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		s := &script{t: t, dir: dir, log: &memoryLog{}, policy: []byte(`guards:
  - {name: calls, scope: [run], measure: model_calls, window: run, limit: "2", ladder: [{at: 100%, do: terminate}], outcome: checkpoint}
`)}
		s.start()
		defer func() { _ = s.store.Close() }()
		var sent [][]uint64
		works := false
		sink := func(_ context.Context, token string, rows []Event) error {
			var seqs []uint64
			for _, r := range rows {
				if r.Node == "" || token == "" {
					t.Errorf("row without an identity: %+v under %q", r, token)
				}
				seqs = append(seqs, r.Seq)
			}
			sent = append(sent, seqs)
			if !works {
				return errors.New("it may be stored, and nobody knows")
			}
			return nil
		}
		ship := func(d time.Duration) {
			s.loop.o.Archive = sink
			ctx, cancel := context.WithTimeout(t.Context(), d)
			defer cancel()
			s.loop.ship(ctx)
		}
		s.run(1, "kill on reason=test", nil)
		s.run(2, "kill off reason=over", nil)
		ship(4 * time.Second)
		if len(sent) < 2 || len(sent[0]) != 2 {
			t.Fatalf("sent %v, want the two flips more than once", sent)
		}
		if lag := s.loop.archive.lag(); lag < 3*time.Second || s.loop.archive.queued.Load() != 2 {
			t.Errorf("%d rows wait since %s", s.loop.archive.queued.Load(), lag)
		}
		s.run(3, "crash", nil)
		if n := s.loop.archive.queued.Load(); n != 2 {
			t.Errorf("after a crash %d rows wait, want 2", n)
		}
		works = true
		ship(time.Second)
		for _, again := range sent[1:] {
			if !slices.Equal(again, sent[0]) {
				t.Errorf("sent %v, want the same rows each time", sent)
			}
		}
		if rows, err := s.loop.Unstored(time.Unix(0, 0), time.Now().Add(time.Hour), false); err != nil || len(rows) != 0 || s.loop.archive.lag() != 0 {
			t.Errorf("%v %v are left", rows, err)
		}
		if rows, err := s.loop.Unstored(time.Unix(0, 0), time.Now().Add(time.Hour), true); err != nil || len(rows) != 2 {
			t.Errorf("the local store lists %v, %v; want both flips", rows, err)
		}
	})
}

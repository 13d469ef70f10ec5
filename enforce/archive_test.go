package enforce

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/flyball/flyball/schema"
)

// Rows are sent until ClickHouse says that it has them: with the same identity each
// time, also by the process that comes after a crash.
func TestArchiveRepeatsUntilStored(t *testing.T) {
	dir := t.TempDir()
	bubble(t, func(t *testing.T) {
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

// Leaks are put down to the limiter they came through where only one is possible, and
// each acknowledgement of what was issued after a limiter came is a row.
func TestHistoryOfLimiters(t *testing.T) {
	bubble(t, func(t *testing.T) {
		time.Sleep(time.Until(time.Date(2026, 11, 2, 0, 0, 0, 0, time.UTC)))
		s := newScript(t, t.TempDir())
		defer func() { _ = s.store.Close() }()
		for _, l := range lines(`policy <<
guards:
  - {name: task, scope: [tenant, user], measure: cost, window: day, limit: "1", ladder: [{at: 100%, do: soft_block}], outcome: pause}
.
at 2026-11-02T10:00:00Z
entry tenant=t-1 user=u-1 cost=2
# A limiter that connects measures nothing; from then on it does.
ack gw-1
expect rows kind=applied count=0
entry tenant=t-2 user=u-2 cost=2
after 1s
ack gw-1
expect rows kind=applied guard=task tenant=t-2 limiter=gw-1 count=1
expect metric name=flyball_time_to_enforce_seconds limiter=gw-1 is=1
after 5s
entry tenant=t-2 user=u-2 cost=0.1
after 300ms
expect rows kind=leak class=leak guard=task tenant=t-2 limiter=gw-1 calls=1 usd=0.1
# Two could have let it pass.
ack gw-2
after 5s
entry tenant=t-2 user=u-2 cost=0.1
after 300ms
expect rows kind=leak class=leak tenant=t-2 limiter=gw-1 calls=1
expect rows kind=leak class=leak tenant=t-2 limiter="" calls=1
# One has not followed yet.
entry tenant=t-3 user=u-3 cost=2
ack gw-1
after 5s
entry tenant=t-3 user=u-3 cost=0.1
after 300ms
expect rows kind=leak class=propagation tenant=t-3 limiter=gw-2 calls=1
`) {
			s.run(l.n, l.text, l.block)
		}
	})
}

// TestLimiterOutlivesItsKey: keys are replaced under new names. A limiter's id is nobody
// else's while the key exists that it came with, over a restart too, and then goes to the
// next that shows one.
func TestLimiterOutlivesItsKey(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newScript(t, t.TempDir())
		defer func() { _ = s.store.Close() }()
		key := func(name string, expires time.Time) schema.Key {
			return schema.Key{Name: name, SHA256: schema.HashSecret(name), Role: schema.KeyLimiter, Tenant: "t-1", Expires: expires}
		}
		first, second := key("first", time.Now().Add(time.Hour)), key("second", time.Time{})
		ring := func(list ...schema.Key) {
			t.Helper()
			r, err := schema.NewKeyring(list)
			if err != nil {
				t.Fatal(err)
			}
			s.loop.o.Keys = func() *schema.Keyring { return r }
		}
		f := func(k schema.Key, taken bool) {
			t.Helper()
			v := s.loop.current
			if err := s.loop.Acknowledge("gw-1", k, Ack{Version: v, Token: s.loop.sign(v)}); (err == nil) != taken {
				t.Errorf("key %s: %v, want it taken: %v", k.Name, err, taken)
			}
		}
		s.start()
		ring(first, second)
		f(first, true)
		f(second, false)
		s.run(0, "restart", nil)
		ring(first, second)
		f(second, false)
		time.Sleep(time.Hour) // the first expires
		f(second, true)
		f(first, false)
		ring(first)
		f(first, true)
		ring() // without keys this machine is served alone
		f(schema.LocalKey, true)
	})
}

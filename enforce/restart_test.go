package enforce

import (
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/flyball/flyball/enforce/directive"
)

const capPolicy = `guards:
  - {name: cap, scope: [tenant], measure: cost, window: {calendar: month, tz: UTC}, limit: "1000", ladder: [{at: 100%, do: soft_block}], outcome: pause, mode: enforce}
`

// TestPauseAfterEpochOutlastsRestart: leases of before a restore may still be in use for a
// minute, whether or not the server restarts meanwhile.
func TestPauseAfterEpochOutlastsRestart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newScript(t, t.TempDir())
		s.policy = []byte(capPolicy)
		s.start()
		defer func() { _ = s.store.Close() }()
		reserve := func() error {
			_, _, err := s.loop.Reserve(t.Context(), []directive.Call{{Tenant: "t-1", Model: "m-5"}}, "k")
			return err
		}
		paused := func(what string, left time.Duration) {
			t.Helper()
			var in InputError
			if err := reserve(); !errors.As(err, &in) || in.Status != http.StatusServiceUnavailable || in.RetryAfter != left {
				t.Errorf("%s: %v, want 503 and to come back after %s", what, err, left)
			}
		}
		if err := reserve(); err != nil {
			t.Fatal(err)
		}
		ahead := directive.Version{Epoch: s.loop.current.Epoch + 3, Revision: 7}
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		r.Header.Set("Flyball-Version", ahead.String())
		r.Header.Set("Flyball-Token", s.loop.sign(ahead))
		if err := s.loop.presented(r); err != nil {
			t.Fatal(err)
		}
		paused("at once", leaseTTL)
		time.Sleep(20 * time.Second)
		s.start()
		if !ahead.Less(s.loop.current) {
			t.Errorf("version %s after the restart, want one above %s", s.loop.current, ahead)
		}
		paused("after a restart", leaseTTL-20*time.Second)
		time.Sleep(leaseTTL - 21*time.Second)
		s.start()
		paused("after another restart", time.Second)
		time.Sleep(time.Second)
		s.start()
		if err := reserve(); err != nil {
			t.Errorf("after the pause: %v", err)
		}
	})
}

// TestPauseAfterLostEntries: what was leased between the local store and the log is not known
// either, so nothing is given out until it has run out.
func TestPauseAfterLostEntries(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := newScript(t, t.TempDir())
		s.policy = []byte(capPolicy)
		s.start()
		defer func() { _ = s.store.Close() }()
		s.run(0, "entry tenant=t-1 cost=1", nil)
		s.run(0, "checkpoint", nil)
		s.run(0, "reserve a key=k tenant=t-1 model=m-5 -> allow", nil)
		s.run(0, "lose", nil)
		for _, restart := range []bool{false, true} {
			if restart {
				s.start()
			}
			var in InputError
			if _, _, err := s.loop.Reserve(t.Context(), []directive.Call{{Tenant: "t-1", Model: "m-5"}}, "k"); !errors.As(err, &in) || in.Status != http.StatusServiceUnavailable {
				t.Errorf("restarted %v: %v, want 503", restart, err)
			}
		}
		time.Sleep(leaseTTL)
		s.run(0, "reserve b key=k tenant=t-1 model=m-5 -> allow", nil)
	})
}

// TestKillWarnsOnceAnHour: what the kill switch would have done in warn mode is said once in
// an hour and its page is resolved, whether or not the server restarts or crashes meanwhile.
func TestKillWarnsOnceAnHour(t *testing.T) {
	bubble(t, func(t *testing.T) {
		time.Sleep(time.Until(time.Date(2026, 11, 2, 10, 30, 0, 0, time.UTC)))
		s := newScript(t, t.TempDir())
		s.policy = []byte("guards: []\nkill: {multiple: 3, floor: \"10\", mode: warn, page: [oncall]}\n")
		s.start()
		defer func() { _ = s.store.Close() }()
		for _, line := range []string{
			"entry tenant=t-1 cost=40", "expect events kind=kill count=1", "expect pages new=1 firing=1",
			"crash", "after 1s", "entry tenant=t-1 cost=1", "expect events kind=kill count=1",
			"restart", "after 10m", "entry tenant=t-1 cost=1", "expect events kind=kill count=1", "expect pages new=0",
			"at 2026-11-02T11:00:01Z", "expect events kind=kill count=2", "expect pages new=2 firing=1 resolved=1",
			"restart", "entry tenant=t-1 cost=1", "expect events kind=kill count=2",
			"at 2026-11-02T12:05:00Z", "expect events kind=kill count=2", "expect pages new=1 resolved=1",
		} {
			s.run(0, line, nil)
		}
		// Calls of a batch are recorded before the end of an hour and decided about after it.
		s.run(0, "entry tenant=t-1 cost=40", nil)
		s.run(0, "expect events kind=kill count=3", nil)
		s.loop.mu.Lock()
		err := s.loop.judgeKill(time.Date(2026, 11, 2, 11, 59, 59, 0, time.UTC))
		if err == nil {
			err = s.loop.flush()
		}
		s.loop.mu.Unlock()
		if err != nil {
			t.Fatal(err)
		}
		s.run(0, "expect events kind=kill count=3", nil)
	})
}

// TestLeaseThatCameBackIsSettledOnce: a server that was restored from a copy of before a lease
// learns of it by its heartbeat. What it is settled with then counts, and counts once, also
// when the server dies before its next checkpoint.
func TestLeaseThatCameBackIsSettledOnce(t *testing.T) {
	dir, old := t.TempDir(), t.TempDir()
	bubble(t, func(t *testing.T) {
		s := newScript(t, dir)
		s.policy = []byte(capPolicy)
		s.start()
		s.run(0, "entry tenant=t-1 cost=1", nil)
		s.run(0, "checkpoint", nil)
		again := func(dir string) {
			t.Helper()
			if err := s.store.Close(); err != nil {
				t.Fatal(err)
			}
			s.store, s.dir = nil, dir
			s.start()
		}
		if err := s.store.Close(); err != nil {
			t.Fatal(err)
		}
		if err := os.CopyFS(old, os.DirFS(dir)); err != nil {
			t.Fatal(err)
		}
		log := len(s.log.records)
		s.store = nil
		s.start()
		defer func() { _ = s.store.Close() }()
		s.run(0, "reserve a key=k tenant=t-1 model=m-dear tokens=50000 output=75000 -> allow", nil)
		s.log.records = s.log.records[:log]
		again(old)
		s.run(0, "expect spend guard=cap tenant=t-1 leases=$0 holds=$0", nil)
		s.run(0, "heartbeat a key=k", nil)
		s.run(0, "expect spend guard=cap tenant=t-1 leases=$8 holds=$0", nil)
		for range 2 {
			s.run(0, "settle a key=k input=100000 output=40000", nil)
			s.run(0, "expect spend guard=cap tenant=t-1 leases=$0 holds=$5", nil)
			s.run(0, "crash", nil)
			s.run(0, "expect spend guard=cap tenant=t-1 leases=$0 holds=$5", nil)
		}
		s.run(0, "after 11m", nil)
		s.run(0, "restart", nil)
		s.run(0, "settle a key=k input=100000 output=40000", nil)
		s.run(0, "expect spend guard=cap tenant=t-1 leases=$0 holds=$0", nil)
	})
}

// TestAcksStored: what limiters acknowledged is read as it was stored, also from a list, which
// is how it was stored before.
func TestAcksStored(t *testing.T) {
	at := time.Date(2026, 11, 2, 10, 0, 0, 0, time.UTC).UnixNano()
	for _, want := range []acks{nil, {{directive.Version{Epoch: 1793577600, Revision: 20_001}, at}}, {{directive.Version{Epoch: 7, Revision: 1 << 63}, -1}, {directive.Version{Epoch: 8}, at}, {directive.Version{Epoch: 8, Revision: 5}, at - 1}}} {
		list, err := json.Marshal([]acked(want))
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range [][]byte{text, list} {
			got := acks{{}}
			if err := json.Unmarshal(text, &got); err != nil || !slices.Equal(got, want) {
				t.Errorf("%s is read as %v, %v, want %v", text, got, err, want)
			}
		}
	}
	var a acks
	if err := json.Unmarshal([]byte(`"AAA="`), &a); err == nil {
		t.Error("what is cut off is read")
	}
}

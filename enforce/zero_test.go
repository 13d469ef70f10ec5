package enforce

import (
	"testing"
	"time"
)

// A limit of zero holds over restarts, and the history says once that it came.
func TestZeroLimitOverRestarts(t *testing.T) {
	dir := t.TempDir()
	bubble(t, func(t *testing.T) {
		s := newScript(t, dir)
		defer func() { _ = s.store.Close() }()
		s.run(1, "policy", []byte("guards:\n  - {name: none, scope: [tenant, user], match: {mode: batch}, measure: cost, window: day, limit: \"0\", ladder: [{at: 100%, do: soft_block}], outcome: schedule}\n"))
		issued := s.loop.live["none/all"].Issued
		for _, how := range []string{"restart", "crash", "restart"} {
			time.Sleep(time.Minute)
			s.run(2, how, nil)
			s.run(3, "decide tenant=t-1 user=u-1 mode=batch -> deny guard=none", nil)
		}
		s.run(4, "expect events kind=directive count=1", nil)
		s.run(5, "expect events kind=release count=0", nil)
		if got := s.loop.live["none/all"].Issued; !got.Equal(issued) {
			t.Errorf("it holds since %s, want %s", got, issued)
		}
		s.run(6, "policy", []byte("guards:\n  - {name: none, scope: [tenant, user], match: {mode: batch}, measure: cost, window: day, limit: \"1\", ladder: [{at: 100%, do: soft_block}], outcome: schedule}\n"))
		s.run(7, "decide tenant=t-1 user=u-1 mode=batch -> allow", nil)
		s.run(8, "restart", nil)
		s.run(9, "decide tenant=t-1 user=u-1 mode=batch -> allow", nil)
		s.run(10, "expect events kind=release count=1", nil)
	})
}

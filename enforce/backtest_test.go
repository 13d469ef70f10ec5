package enforce

import (
	"testing"
	"time"
)

// What leaves a rolling window between two calls is gone for the second, as it is for the loop.
func TestBacktestOfRollingWindows(t *testing.T) {
	dir := t.TempDir()
	bubble(t, func(t *testing.T) {
		time.Sleep(time.Until(time.Date(2026, 11, 2, 10, 0, 0, 0, time.UTC)))
		s := newScript(t, dir)
		defer func() { _ = s.store.Close() }()
		start := time.Now()
		s.run(1, "policy", []byte("guards:\n  - {name: roll, scope: [tenant], measure: cost, window: {rolling: 1h}, limit: \"5\", ladder: [{at: 100%, do: soft_block}], outcome: pause}\n"))
		for _, line := range []string{
			"entry tenant=t-1 cost=6",
			"after 30m", "check tenant=t-1 -> deny", "entry tenant=t-1 cost=1", // which was let pass
			"after 3h", "check tenant=t-1 -> allow", "entry tenant=t-1 cost=2",
			"after 1s", "check tenant=t-1 -> allow", "entry tenant=t-1 cost=4", "check tenant=t-1 -> deny",
			"expect events kind=directive guard=roll count=2",
		} {
			s.run(2, line, nil)
		}
		report, err := Backtest(t.Context(), s.loop.policy, Options{Pricer: scriptPrices}, s.log.journal, start.Add(-time.Hour), time.Now())
		if err != nil {
			t.Fatal(err)
		}
		if g := report.Guards[0]; g.Refused != 1 || g.Saved.String() != "1" || g.Fired["soft_block"] != 2 {
			t.Errorf("%d calls refused, $%s saved, fired %v; the loop refused one of $1 and fired twice", g.Refused, g.Saved.String(), g.Fired)
		}
	})
}

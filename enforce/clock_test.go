package enforce

import (
	"testing"
	"time"

	"github.com/flyball/flyball/enforce/directive"
	"github.com/flyball/flyball/schema"
)

// TestClockSetBack: a clock that was ahead is set right. Instants of recording never step
// back, so for as long as it was ahead they are all the same one in the future, from which
// every rolling window is long over and the next day has begun. Guards and the kill switch
// act all the same.
func TestClockSetBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		time.Sleep(time.Until(time.Date(2026, 11, 2, 10, 0, 0, 0, time.UTC)))
		s := newScript(t, t.TempDir())
		s.policy = []byte(`guards:
  - {name: rolling, scope: [tenant, user], measure: cost, window: {rolling: 5m}, limit: "1", ladder: [{at: 100%, do: soft_block}], outcome: pause, mode: enforce}
  - {name: day, scope: [tenant], measure: cost, window: {calendar: day, tz: UTC}, limit: "10", ladder: [{at: 100%, do: soft_block}], outcome: pause, mode: enforce}
kill: {multiple: 3, floor: "20", exempt: [critical], mode: enforce}
`)
		s.start()
		defer func() { _ = s.store.Close() }()
		ahead := func(by time.Duration, f map[string]string) {
			t.Helper()
			e := s.entry(0, f)
			var b schema.Batch
			b.Reset(time.Now().Add(by).UnixMicro())
			b.Add(e.Sign, e.Version, time.Now().UnixMilli(), schema.AppendCall(nil, &e.Call), schema.AppendPosting(nil, &e.Posting, &e.Call))
			s.log.add(RecordEntries, b.Bytes())
			s.log.add(RecordBoundary, nil)
			s.follow()
		}
		refused := func(what string, c directive.Call, guard string) {
			t.Helper()
			if d := s.loop.set.Decide(&c, time.Now()); d.Verdict != directive.Deny || d.Guard != guard {
				t.Errorf("%s: %+v, want it refused by %s", what, d, guard)
			}
		}
		const until = 26 * time.Hour
		ahead(until, map[string]string{"tenant": "t-1", "user": "ann", "cost": "0.5"})
		time.Sleep(time.Minute)
		ahead(until-time.Minute, map[string]string{"tenant": "t-1", "user": "ann", "cost": "0.6"})
		refused("a rolling window", directive.Call{Tenant: "t-1", User: "ann", Model: "m-5"}, "rolling")
		ahead(until-time.Minute, map[string]string{"tenant": "t-1", "user": "bob", "cost": "9"})
		refused("today", directive.Call{Tenant: "t-1", User: "eve", Model: "m-5"}, "day")
		ahead(until-time.Minute, map[string]string{"tenant": "t-2", "user": "bob", "cost": "55"})
		if k := s.loop.KillStatus(); !k.On {
			t.Errorf("the kill switch is off: the last hour cost $%s of $%s", k.Hour, k.HourLimit)
		}
		// What was decided while the clock was ahead does not outlast its being set right either.
		s.loop.clock = time.Now().Add(until).UnixMicro()
		ahead(0, map[string]string{"tenant": "t-3", "user": "dan", "cost": "2"})
		if n := len(s.loop.Live(func(tenant string) bool { return tenant == "t-3" }, "rolling", 10)); n != 1 {
			t.Errorf("%d rungs hold on who overspent after the clock was set right", n)
		}
	})
}

// TestLightAfterClockSetBack: what a light counted in a future that never came is gone.
func TestLightAfterClockSetBack(t *testing.T) {
	x := &light{rooms: map[string]Headroom{}}
	now := time.Date(2026, 11, 2, 10, 0, 0, 0, time.UTC)
	x.turn(now.Add(time.Hour).Unix())
	x.calls[0], x.limit[0] = 100, 100
	if color, why := x.judge(&LightPolicy{Green: 50_000, Red: 15_000}, now); color != "green" {
		t.Errorf("%s: %s", color, why)
	}
}

// TestHeadroomBeyondItsLimit: a provider that says more is left than its limit has all of
// it left, whatever the two numbers are.
func TestHeadroomBeyondItsLimit(t *testing.T) {
	now := time.Date(2026, 11, 2, 10, 0, 0, 0, time.UTC)
	x := &light{rooms: map[string]Headroom{"r": {Provider: "p", Dimension: "requests", Limit: 1e-300, Remaining: 1e15, seen: now}}}
	if color, why := x.judge(&LightPolicy{Green: 50_000, Red: 15_000}, now); color != "green" {
		t.Errorf("%s: %s", color, why)
	}
}

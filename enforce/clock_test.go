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

// TestClockAheadAndBack: a clock runs hours ahead and is set right. Guards and the kill switch
// then count the last real hour as it was, with the calls of meanwhile, and what guards had in
// force is in force again; all that over restarts too.
func TestClockAheadAndBack(t *testing.T) {
	const ahead = 15 * time.Hour // the next day has begun there
	f := func(restart bool) {
		t.Helper()
		bubble(t, func(t *testing.T) {
			time.Sleep(time.Until(time.Date(2026, 11, 2, 10, 0, 0, 0, time.UTC)))
			s := newScript(t, t.TempDir())
			s.policy = []byte(`guards:
  - {name: rolling, scope: [tenant], measure: cost, window: {rolling: 1h}, limit: "50", ladder: [{at: 100%, do: soft_block}], outcome: pause, mode: enforce}
  - {name: day, scope: [tenant, user], measure: cost, window: {calendar: day, tz: UTC}, limit: "30", ladder: [{at: 100%, do: soft_block}], outcome: pause, mode: enforce}
kill: {multiple: 3, floor: "1000", exempt: [critical], mode: enforce}
`)
			s.start()
			defer func() { _ = s.store.Close() }()
			pass := func(now time.Time) {
				t.Helper()
				s.loop.mu.Lock()
				defer s.loop.mu.Unlock()
				if err := s.loop.pass(now); err != nil {
					t.Fatal(err)
				}
			}
			again := func() {
				t.Helper()
				if restart {
					s.run(0, "restart", nil)
				}
			}
			want := func(what, hour string, rolling, day int) {
				t.Helper()
				if got := s.loop.kill.history.hour.String(); got != hour {
					t.Errorf("%s: the last hour cost $%s, want $%s", what, got, hour)
				}
				for guard, n := range map[string]int{"rolling": rolling, "day": day} {
					if got := len(s.loop.Live(func(string) bool { return true }, guard, 10)); got != n {
						t.Errorf("%s: %d directives of %s hold, want %d", what, got, guard, n)
					}
				}
			}
			for range 50 {
				s.run(0, "entry tenant=t-1 user=ann cost=1", nil)
				time.Sleep(time.Minute)
			}
			pass(time.Now())
			want("before", "50", 1, 1)
			again()
			pass(time.Now().Add(ahead))
			want("ahead", "0", 0, 0)
			again()
			for range 5 { // calls that started by a clock that is right
				e := s.entry(0, map[string]string{"tenant": "t-1", "user": "ann", "cost": "1"})
				l := s.loop
				l.mu.Lock()
				l.ledger.Begin()
				now := time.Now().Add(ahead).UnixMicro()
				e.RecordedAt = now
				if err := l.apply(e, 0, now); err != nil {
					t.Fatal(err)
				}
				l.mu.Unlock()
				time.Sleep(time.Minute)
				pass(time.Now().Add(ahead))
			}
			want("ahead with calls", "0", 0, 0)
			again()
			pass(time.Now())
			if restart { // what is not in memory is looked at with its next call
				s.run(0, "entry tenant=t-1 user=ann cost=0", nil)
			}
			want("back", "55", 1, 1)
			pass(time.Now().Add(time.Second))
			want("after it", "55", 1, 1)
			time.Sleep(2 * time.Hour)
			pass(time.Now())
			want("two hours later", "0", 0, 1)
			if n := len(s.loop.kill.history.minutes); n > 0 {
				t.Errorf("%d minutes are kept", n)
			}
		})
	}
	f(false)
	f(true)
}

// TestHistoryIsBounded: calls of long ago neither fill the kill switch's memory nor drive out
// what a clock that is set right needs.
func TestHistoryIsBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var h history
		h.init(time.Hour)
		now := time.Date(2026, 11, 2, 10, 0, 0, 0, time.UTC)
		call := func(start time.Time) {
			e := &schema.Entry{Sign: 1, RecordedAt: now.UnixMicro()}
			e.Start, e.Posting.Exposure = start.UnixNano(), 1
			h.add(e)
		}
		h.advance(now.UnixNano())
		for i := range 10_000 {
			call(now.Add(-time.Duration(i) * time.Minute))
		}
		for i := range 50 { // an hour that comes as one that is over
			call(now.Add(-3*time.Hour - time.Duration(i)*time.Minute))
		}
		if n := len(h.minutes); n > keepMinutes {
			t.Errorf("%d minutes are kept", n)
		}
		if got := h.hour; got != schema.SumOf(60) {
			t.Errorf("the last hour is %s, want 60 calls", got)
		}
		h.advance(now.Add(-3 * time.Hour).UnixNano())
		if got := h.hour; got != schema.SumOf(60+3*60+50) { // what is after it counts, too
			t.Errorf("set back the last hour is %s, want %d calls", got, 60+3*60+50)
		}
		h.advance(now.UnixNano())
		time.Sleep(time.Hour)
		h.advance(now.Add(time.Hour).UnixNano())
		if n := len(h.minutes); n != 0 || h.hour != (schema.Sum{}) {
			t.Errorf("%d minutes are left after an hour, and %s", n, h.hour)
		}
	})
}

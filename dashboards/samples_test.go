package dashboards

import (
	"fmt"
	"testing"
	"time"

	"github.com/flyball/flyball/schema"
)

// seen is what the limiters of the generated store counted themselves.
type seen struct{ attempts, limited, retries, waits, waited float64 }

// reported makes three days of signals, a point every ten minutes: a limiter that counts
// cumulatively, started again once with a new start and once without saying so; one that
// sends deltas; and some points of both a second time.
func reported(t *testing.T, s *made) {
	t.Helper()
	const every = 10 * time.Minute
	var rows, again []schema.Sample
	end := firstDay.AddDate(0, 0, 3)
	add := func(x schema.Sample) {
		x.RecordedAt = x.At / 1000
		rows = append(rows, x)
		if len(rows)%3 == 0 {
			x.RecordedAt += 5_000_000
			again = append(again, x)
		}
	}
	for n, l := range []struct {
		tenant, name string
		temporality  schema.Temporality
	}{{"t-1", "l-1", schema.Cumulative}, {"t-2", "l-2", schema.Delta}} {
		start := firstDay
		total := map[string]*schema.Sample{}
		step := 0
		for at := firstDay.Add(every); at.Before(end); at = at.Add(every) {
			step++
			anew := step == 150 || step == 300
			if step == 150 {
				start = at.Add(-every)
			}
			point := func(metric string, value float64, count uint64, x schema.Sample) {
				x.Tenant, x.Limiter, x.Metric, x.At, x.Value, x.Count = l.tenant, l.name, "flyball.limiter."+metric, at.UnixNano(), value, count
				if x.Provider == "" && x.Tool == "" {
					x.Provider, x.Model = "openai", []string{"m-5", "c'x"}[n]
				}
				key := metric + fmt.Sprint(x.HTTPStatus, x.Error, x.State, x.Dimension)
				for _, b := range []byte(l.name + key) {
					x.Series = x.Series*31 + uint64(b)
				}
				if x.Temporality == schema.Gauge {
					add(x)
					return
				}
				if x.Temporality = l.temporality; x.Temporality == schema.Delta {
					x.Start = at.Add(-every).UnixNano()
					add(x)
					return
				}
				x.Start = start.UnixNano()
				if old := total[key]; old != nil && !anew {
					x.Value, x.Count = x.Value+old.Value, x.Count+old.Count
					for i := range old.Buckets {
						x.Buckets[i] += old.Buckets[i]
					}
				}
				kept := x
				kept.Buckets = append([]uint64(nil), x.Buckets...)
				total[key] = &kept
				add(x)
			}
			// Less after the second restart than before it, which is all that tells of it.
			ok, limited, retries := float64(step%7+1), float64(step%3+1), float64(step%2+1)
			counter := schema.Sample{Temporality: schema.Delta}
			with := func(change func(*schema.Sample)) schema.Sample {
				x := counter
				change(&x)
				return x
			}
			s.seen.attempts += ok + 2*limited
			s.seen.limited += 2 * limited
			s.seen.retries += retries
			point("attempts", ok, 0, with(func(x *schema.Sample) { x.HTTPStatus = 200 }))
			point("attempts", limited, 0, with(func(x *schema.Sample) { x.HTTPStatus = 429 }))
			point("attempts", limited, 0, with(func(x *schema.Sample) { x.HTTPStatus, x.Error = 403, "rate_limited" }))
			point("retries", retries, 0, counter)
			s.seen.waits += 3
			s.seen.waited += 1.5 + float64(step%2)
			point("queue.wait_time", 1.5+float64(step%2), 3, with(func(x *schema.Sample) { x.Bounds, x.Buckets = []float64{0.1, 1}, []uint64{2, 0, 1} }))
			point("breaker.transitions", 1, 0, with(func(x *schema.Sample) { x.Tool, x.State = "crm", "half_open" }))
			point("queue.depth", float64(step%5), 0, schema.Sample{})
		}
		for _, at := range []time.Time{firstDay.Add(time.Hour), end.Add(-time.Minute)} {
			for metric, value := range map[string]float64{"bucket.fill": 0.25 + float64(n)/10, "bucket.limit": 1000, "bucket.remaining": 250, "breaker.open": float64(n)} {
				x := schema.Sample{Tenant: l.tenant, Limiter: l.name, Metric: "flyball.limiter." + metric, Series: uint64(n + 1), At: at.UnixNano(), Value: value, Provider: "openai"}
				if metric == "breaker.open" {
					x.Tool = "crm"
				} else {
					x.Model, x.Dimension = "m-5", "tokens"
				}
				add(x)
			}
		}
	}
	if err := schema.SendSamples(t.Context(), s.Conn(), "samples", rows); err != nil {
		t.Fatal(err)
	}
	if err := schema.SendSamples(t.Context(), s.Conn(), "again", again); err != nil {
		t.Fatal(err)
	}
}

package trace

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

type metrics struct {
	entries  prometheus.Counter
	reloaded prometheus.Counter
}

func newMetrics(reg prometheus.Registerer, a *Assembler) *metrics {
	f := promauto.With(reg)
	f.NewGaugeFunc(prometheus.GaugeOpts{Name: "flyball_trace_open", Help: "Traces held in memory."}, func() float64 {
		a.mu.Lock()
		defer a.mu.Unlock()
		return float64(len(a.traces))
	})
	f.NewGaugeFunc(prometheus.GaugeOpts{Name: "flyball_trace_bytes", Help: "Memory held by open traces, in bytes."}, func() float64 {
		a.mu.Lock()
		defer a.mu.Unlock()
		return float64(a.bytes)
	})
	f.NewGaugeFunc(prometheus.GaugeOpts{Name: "flyball_trace_timers", Help: "Lines that wait to be settled."}, func() float64 {
		a.mu.Lock()
		defer a.mu.Unlock()
		return float64(len(a.timers) - a.head)
	})
	return &metrics{
		entries:  f.NewCounter(prometheus.CounterOpts{Name: "flyball_entries_posted_total", Help: "Signed entries appended to the log."}),
		reloaded: f.NewCounter(prometheus.CounterOpts{Name: "flyball_trace_reloaded_total", Help: "Traces brought back from the local store for a late span."}),
	}
}

package page

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

type metrics struct {
	pages   *prometheus.CounterVec
	seconds prometheus.Histogram
}

func newMetrics(reg prometheus.Registerer, p *Pager) *metrics {
	f := promauto.With(reg)
	f.NewGaugeFunc(prometheus.GaugeOpts{Name: "flyball_pages_pending", Help: "Pages that a receiver has not got yet, counted once a receiver."}, func() float64 {
		p.mu.Lock()
		defer p.mu.Unlock()
		n := 0
		for _, m := range p.queue {
			n += len(m.Pages)
		}
		return float64(n)
	})
	return &metrics{
		pages:   f.NewCounterVec(prometheus.CounterOpts{Name: "flyball_pages_total", Help: "Pages by receiver and what became of them: delivered; retried, once a try; refused (the receiver wants no repeat) and expired (no try succeeded), both lost; unrouted (there is no such receiver)."}, []string{"receiver", "outcome"}),
		seconds: f.NewHistogram(prometheus.HistogramOpts{Name: "flyball_page_seconds", Help: "Time from a decision to the delivery of its page.", Buckets: prometheus.ExponentialBuckets(0.1, 3, 13)}),
	}
}

package ingest

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

type metrics struct {
	spans       *prometheus.CounterVec
	rejected    *prometheus.CounterVec
	refused     *prometheus.CounterVec
	ignored     *prometheus.CounterVec
	samples     *prometheus.CounterVec
	usage       *prometheus.CounterVec
	stage       *prometheus.HistogramVec
	stored      prometheus.Counter
	netted      prometheus.Counter
	quarantined prometheus.Counter
	retries     prometheus.Counter
	healed      prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
	f := promauto.With(reg)
	vec := func(name, help string, labels ...string) *prometheus.CounterVec {
		return f.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	one := func(name, help string) prometheus.Counter {
		return f.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	return &metrics{
		spans:       vec("flyball_spans_total", "Spans taken in, by what they were: new, duplicate or merged.", "result"),
		rejected:    vec("flyball_spans_refused_total", "Spans that the pipeline did not take, by reason.", "reason"),
		refused:     vec("flyball_requests_refused_total", "Requests answered with a retryable code, by cause.", "cause"),
		ignored:     vec("flyball_records_ignored_total", "Log records that are no call, and metric points that are no signal of a limiter.", "signal"),
		samples:     vec("flyball_limiter_samples_total", "Metric points by which limiters say how they fare: taken, stored in ClickHouse, or quarantined.", "result"),
		usage:       vec("flyball_model_calls_total", "Model spans received, by whether their usage is known.", "usage"),
		stage:       f.NewHistogramVec(prometheus.HistogramOpts{Name: "flyball_stage_seconds", Help: "Time a request, or a chunk, spends in a stage.", Buckets: prometheus.ExponentialBuckets(0.0001, 2.5, 12)}, []string{"stage"}),
		stored:      one("flyball_entries_stored_total", "Entries inserted into the journal."),
		netted:      one("flyball_entries_netted_total", "Entries that cancelled each other inside one chunk."),
		quarantined: one("flyball_entries_quarantined_total", "Entries that no insert accepted."),
		retries:     one("flyball_insert_retries_total", "Inserts that will be repeated."),
		healed:      one("flyball_conservation_healed_total", "Lines of the journal that a correction brought back to one entry."),
	}
}

// watch adds gauges over the pipeline's state.
func (m *metrics) watch(reg prometheus.Registerer, p *Pipeline) {
	f := promauto.With(reg)
	f.NewGaugeFunc(prometheus.GaugeOpts{Name: "flyball_entries_queued", Help: "Entries not yet in the journal."}, func() float64 { return float64(p.queued.Load()) })
	f.NewGaugeFunc(prometheus.GaugeOpts{Name: "flyball_journal_lag_seconds", Help: "Age of the oldest entry that is not in the journal."}, func() float64 { return p.Status().LagSeconds })
}

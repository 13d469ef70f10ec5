package otlp

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the receiver's own. All labels are bounded: transports, signals, status codes, the reasons of this
// package, and tenants that a configured key names.
type metrics struct {
	requests      *prometheus.CounterVec
	spansReceived prometheus.Counter
	spansRejected *prometheus.CounterVec
	otherReceived *prometheus.CounterVec
	otherRejected *prometheus.CounterVec
	repaired      prometheus.Counter
	tooLarge      *prometheus.CounterVec
	slowPath      *prometheus.CounterVec
	decodeSeconds [signalCount]prometheus.Observer
}

func newMetrics(reg prometheus.Registerer, b *budget) (*metrics, error) {
	seconds := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "flyball_otlp_decode_seconds", Help: "Time to decode a request.",
		Buckets: []float64{.0001, .0003, .001, .003, .01, .03, .1, .3, 1, 3},
	}, []string{"signal"})
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "flyball_otlp_requests_total", Help: "OTLP requests by answer (an HTTP status or a gRPC code).",
		}, []string{"transport", "signal", "code"}),
		spansReceived: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "flyball_spans_received_total", Help: "Spans in acknowledged requests, rejected ones included.",
		}),
		spansRejected: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "flyball_spans_rejected_total", Help: "Spans reported to the sender as rejected, by reason.",
		}, []string{"reason"}),
		otherReceived: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "flyball_otlp_records_received_total", Help: "Log records and metrics in acknowledged requests, rejected ones included.",
		}, []string{"signal"}),
		otherRejected: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "flyball_otlp_records_rejected_total", Help: "Log records and metrics reported to the sender as rejected, by reason.",
		}, []string{"signal", "reason"}),
		repaired: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "flyball_otlp_repaired_strings_total", Help: "Strings whose invalid UTF-8 was replaced by U+FFFD.",
		}),
		tooLarge: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "flyball_otlp_too_large_total", Help: "Requests refused for good because of their size, by the tenant of the key. Each is lost data.",
		}, []string{"tenant"}),
		slowPath: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "flyball_otlp_split_requests_total", Help: "Requests that had to be decoded item by item.",
		}, []string{"signal"}),
	}
	inflight := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "flyball_otlp_inflight_bytes", Help: "Decompressed bytes of requests being worked on.",
	}, func() float64 { return float64(b.inUse()) })
	for s := range signalCount {
		m.decodeSeconds[s] = seconds.WithLabelValues(s.String())
	}
	for _, c := range []prometheus.Collector{m.requests, m.spansReceived, m.spansRejected, m.otherReceived, m.otherRejected,
		m.repaired, m.tooLarge, m.slowPath, inflight, seconds} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("register metric: %w", err)
		}
	}
	return m, nil
}

// count adds an acknowledged request.
func (m *metrics) count(p *payload, res Result) {
	if p.repaired > 0 {
		m.repaired.Add(float64(p.repaired))
	}
	if p.split {
		m.slowPath.WithLabelValues(p.sig.String()).Inc()
	}
	rejected := func(reason string, n int64) {
		switch {
		case n <= 0:
		case p.sig == traces:
			m.spansRejected.WithLabelValues(reason).Add(float64(n))
		default:
			m.otherRejected.WithLabelValues(p.sig.String(), reason).Add(float64(n))
		}
	}
	if p.sig == traces {
		m.spansReceived.Add(float64(p.items))
	} else {
		m.otherReceived.WithLabelValues(p.sig.String()).Add(float64(p.items))
	}
	for why, n := range p.rejects.n {
		rejected(reason(why).String(), n)
	}
	rejected("consumer", res.Rejected)
}

package enforce

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/flyball/flyball/schema"
)

// Exemplars carry the id of a trace and nothing else: it names nobody, and leads to
// the call for who may see traces. They are served in the OpenMetrics format only.

func traceLabel(trace string) prometheus.Labels { return prometheus.Labels{"trace_id": trace} }

// observe adds a value to a histogram, with the trace behind it; "" is none.
func observe(h prometheus.Observer, v float64, trace string) {
	if e, ok := h.(prometheus.ExemplarObserver); ok && trace != "" {
		e.ObserveWithExemplar(v, traceLabel(trace))
		return
	}
	h.Observe(v)
}

// example adds to a counter, with the trace behind it.
func example(c prometheus.Counter, v float64, trace schema.TraceID) {
	if e, ok := c.(prometheus.ExemplarAdder); ok && trace != (schema.TraceID{}) {
		e.AddWithExemplar(v, traceLabel(trace.String()))
		return
	}
	c.Add(v)
}

package enforce

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/flyball/flyball/schema"
)

// metrics of the loop. No label has a user, a run or a tenant.
type metrics struct {
	applied   prometheus.Counter
	apply     prometheus.Histogram
	revisions prometheus.Counter
	events    *prometheus.CounterVec
	// of guards whose budgets are shared and of money, by guard and window
	budgetSpend *prometheus.CounterVec
	enforce     *prometheus.HistogramVec
	spanToAck   *prometheus.HistogramVec
	leaks       *prometheus.CounterVec
	leakedUSD   *prometheus.CounterVec
	checks      *prometheus.CounterVec
	leases      *prometheus.CounterVec
	acks        *prometheus.CounterVec
	refused     prometheus.Counter
	drift       prometheus.Gauge
	spend       *prometheus.GaugeVec
	booked      []prometheus.Gauge // by schema.CostStatus
	failures    []prometheus.Gauge // by schema.Failure
	retries     []prometheus.Gauge // by schema.Layer
	providers   map[string]prometheus.Gauge
}

func newMetrics(r prometheus.Registerer) *metrics {
	f := promauto.With(r)
	each := func(name, help, label string, values []string) (out []prometheus.Gauge) {
		vec := f.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, []string{label})
		for _, v := range values {
			if v == "" {
				out = append(out, prometheus.NewGauge(prometheus.GaugeOpts{Name: name})) // nobody's, not exported
				continue
			}
			out = append(out, vec.WithLabelValues(v))
		}
		return out
	}
	return &metrics{
		applied:     f.NewCounter(prometheus.CounterOpts{Name: "flyball_ledger_entries_total", Help: "Entries applied to the ledger."}),
		apply:       f.NewHistogram(prometheus.HistogramOpts{Name: "flyball_ledger_apply_seconds", Help: "Time to apply one record of the log and to decide on it.", Buckets: prometheus.ExponentialBuckets(50e-6, 2, 14)}),
		revisions:   f.NewCounter(prometheus.CounterOpts{Name: "flyball_directive_revisions_total", Help: "Revisions of the set of directives that were published."}),
		budgetSpend: f.NewCounterVec(prometheus.CounterOpts{Name: "flyball_budget_spend_usd_total", Help: "What was spent of the guard's budgets in their present windows, as the guard counts it. Of budgets over calendar windows that are nobody's own."}, []string{"guard", "window"}),
		events:      f.NewCounterVec(prometheus.CounterOpts{Name: "flyball_enforcement_events_total", Help: "What enforcement did, by kind."}, []string{"kind"}),
		enforce:     f.NewHistogramVec(prometheus.HistogramOpts{Name: "flyball_time_to_enforce_seconds", Help: "From the receipt of the span that crossed a limit to the acknowledgement of a limiter, by the service's clock.", Buckets: prometheus.ExponentialBuckets(1e-3, 2, 14)}, []string{"limiter"}),
		spanToAck:   f.NewHistogramVec(prometheus.HistogramOpts{Name: "flyball_span_end_to_applied_seconds", Help: "From the end of the span that crossed a limit to the acknowledgement of a limiter; two clocks, and the exporter's delay in between.", Buckets: prometheus.ExponentialBuckets(1e-3, 2, 18)}, []string{"limiter"}),
		leaks:       f.NewCounterVec(prometheus.CounterOpts{Name: "flyball_leaked_calls_total", Help: "Calls that started although a directive refused them: propagation before a limiter had acknowledged it, leak after, unguarded where no limiter ever did."}, []string{"kind"}),
		leakedUSD:   f.NewCounterVec(prometheus.CounterOpts{Name: "flyball_leaked_usd_total", Help: "What those calls cost."}, []string{"kind"}),
		checks:      f.NewCounterVec(prometheus.CounterOpts{Name: "flyball_checks_total", Help: "Questions of limiters, by answer."}, []string{"verdict"}),
		leases:      f.NewCounterVec(prometheus.CounterOpts{Name: "flyball_leases_total", Help: "What became of budget leases."}, []string{"outcome"}),
		acks:        f.NewCounterVec(prometheus.CounterOpts{Name: "flyball_limiter_acks_total", Help: "Acknowledgements of limiters, by outcome."}, []string{"outcome"}),
		refused:     f.NewCounter(prometheus.CounterOpts{Name: "flyball_refused_calls_total", Help: "Calls that limiters say they did not let through."}),
		spend:       f.NewGaugeVec(prometheus.GaugeOpts{Name: "flyball_spend_usd", Help: "Known cost of what was booked since the start, by provider (other beyond fifty). A signed sum: use delta(), not rate()."}, []string{"provider"}),
		booked:      each("flyball_booked_attempts", "Attempts of model and tool calls booked since the start, by cost_status. A signed sum.", "cost_status", schema.CostStatusNames),
		failures:    each("flyball_booked_failures", "Those of them that failed, hidden ones too, by failure. A signed sum.", "failure", schema.FailureNames),
		retries:     each("flyball_booked_retries", "Retries booked since the start, by the layer that retried. A signed sum.", "layer", schema.LayerNames),
		providers:   map[string]prometheus.Gauge{},
		drift:       f.NewGauge(prometheus.GaugeOpts{Name: "flyball_ledger_drift_accounts", Help: "Accounts that differ from the journal, at the last verification."}),
	}
}

// requests are the counters of a policy that has an objective for amplification.
func (m *metrics) requests(r prometheus.Registerer) (all, over prometheus.Counter) {
	f := promauto.With(r)
	return f.NewCounter(prometheus.CounterOpts{Name: "flyball_amplification_requests_total", Help: "Requests: runs that have a model call, counted with the first one. Only where the policy has an objective for amplification."}),
		f.NewCounter(prometheus.CounterOpts{Name: "flyball_amplification_over_total", Help: "Requests that made more attempts of model and tool calls than the objective, counted when they do."})
}

func (m *metrics) watch(r prometheus.Registerer, l *Loop) {
	f := promauto.With(r)
	if r != nil {
		r.MustRegister(budgets{l})
	}
	gauge := func(name, help string, v func() float64) {
		f.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 {
			l.mu.Lock()
			defer l.mu.Unlock()
			return v()
		})
	}
	gauge("flyball_directives", "Directives in force.", func() float64 { return float64(l.set.Len()) })
	gauge("flyball_kill_switch", "1 while the org's kill switch is on.", func() float64 {
		if l.kill.On {
			return 1
		}
		return 0
	})
	gauge("flyball_ledger_accounts", "Accounts of the ledger in memory.", func() float64 { n, _, _ := l.ledger.Stats(); return float64(n) })
	gauge("flyball_leases_open", "Leases that are neither settled nor released.", func() float64 { return float64(len(l.book.leases)) })
	gauge("flyball_holds_open", "Reported spend whose span has not arrived.", func() float64 { return float64(l.book.holds()) })
	gauge("flyball_limiters", "Limiters that acknowledged something within five minutes.", func() float64 { return float64(l.limiters.active()) })
	gauge("flyball_feed_lag_revisions", "Revisions that the slowest active limiter has not acknowledged.", func() float64 { return float64(l.limiters.lag(l.current)) })
	f.NewCounterFunc(prometheus.CounterOpts{Name: "flyball_ledger_new_accounts_total", Help: "Accounts that were opened; a sudden rise is a sender that makes up ids."}, func() float64 {
		l.mu.Lock()
		defer l.mu.Unlock()
		return float64(l.ledger.Opened())
	})
	f.NewGaugeFunc(prometheus.GaugeOpts{Name: "flyball_enforcement_queued", Help: "Rows of the history of enforcement that ClickHouse has not got yet."}, func() float64 { return float64(l.archive.queued.Load()) })
	f.NewGaugeFunc(prometheus.GaugeOpts{Name: "flyball_enforcement_lag_seconds", Help: "How long the oldest of them has waited, 0 where there is none."}, func() float64 { return l.archive.lag().Seconds() })
	f.NewGaugeFunc(prometheus.GaugeOpts{Name: "flyball_feed_connections", Help: "Limiters that follow by server-sent events."}, func() float64 { return float64(l.feed.Connections()) })
}

// book adds what an entry counts to the signed sums.
func (m *metrics) book(e *schema.Entry) {
	p, sign := &e.Posting, float64(e.Sign)
	if p.Billed() && p.Cost != 0 {
		g := m.providers[e.Provider]
		if g == nil {
			name := strings.Clone(e.Provider)
			if len(m.providers) >= 50 {
				name = "other"
			}
			g = m.spend.WithLabelValues(name)
			if name != "other" {
				m.providers[name] = g
			}
		}
		g.Add(sign * float64(p.Cost) / schema.PicoPerUSD)
	}
	attempts := p.ModelCalls + p.ToolCalls + p.Retries + p.Fallbacks + p.Hedges
	if attempts > 0 {
		m.booked[p.Status].Add(sign * float64(attempts))
		if e.Failure != schema.NoFailure {
			m.failures[e.Failure].Add(sign * float64(attempts))
		}
	}
	if p.Retries > 0 {
		m.retries[p.Layer].Add(sign * float64(p.Retries))
	}
	if p.Hidden > 0 {
		m.retries[schema.LayerSDK].Add(sign * float64(p.Hidden))
		m.failures[p.HiddenCause].Add(sign * float64(p.Hidden))
	}
}

package envoy

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// answer is what became of a request.
type answer uint8

const (
	answerAllow answer = iota
	answerDowngrade
	answerWait
	answerDeny
	answerKill
	answerRefused // a foreign tenant or a senseless value
	answerCharged
	answerUnauthenticated
	answerError
	numAnswers
)

var answerNames = [numAnswers]string{"allow", "downgrade", "wait", "deny", "kill", "refused", "charged", "unauthenticated", "error"}

// charge is what became of a charge.
type charge uint8

const (
	chargeBooked charge = iota
	chargeFailed        // Options.Charge did not take it: this spend is known to no budget until its span comes
	chargeForeign
	chargeRefund
	chargeCapped // booked as less than it said
	numCharges
)

var chargeNames = [numCharges]string{"booked", "failed", "refused", "refund_ignored", "capped"}

// service is one of the two.
type service uint8

const (
	serviceAuth service = iota
	serviceLimit
	numServices
)

var serviceNames = [numServices]string{"ext_authz", "rls"}

// metrics have no label of a tenant, a user or a run. They are resolved once: the
// path of a check looks nothing up.
type metrics struct {
	requests [numServices][numAnswers]prometheus.Counter
	seconds  [numServices]prometheus.Observer
	charges  [numCharges]prometheus.Counter
}

func newMetrics(r prometheus.Registerer) *metrics {
	f := promauto.With(r)
	requests := f.NewCounterVec(prometheus.CounterOpts{Name: "flyball_envoy_requests_total", Help: "Requests of Envoy-family gateways, by service and answer."}, []string{"service", "answer"})
	seconds := f.NewHistogramVec(prometheus.HistogramOpts{Name: "flyball_envoy_seconds", Help: "Time to answer a gateway, without the way there and back. Envoy gives up on the rate limit service after 20 ms.", Buckets: prometheus.ExponentialBuckets(5e-6, 2, 15)}, []string{"service"})
	charges := f.NewCounterVec(prometheus.CounterOpts{Name: "flyball_envoy_charges_total", Help: "Charges of gateways: booked, capped (booked as less than it said), failed, refused (a foreign tenant) and refund_ignored."}, []string{"outcome"})
	m := &metrics{}
	for s := range m.requests {
		for a := range m.requests[s] {
			m.requests[s][a] = requests.WithLabelValues(serviceNames[s], answerNames[a])
		}
		m.seconds[s] = seconds.WithLabelValues(serviceNames[s])
	}
	for c := range m.charges {
		m.charges[c] = charges.WithLabelValues(chargeNames[c])
	}
	return m
}

func (m *metrics) answered(s service, a answer, start time.Time) {
	m.requests[s][a].Inc()
	m.seconds[s].Observe(time.Since(start).Seconds())
}

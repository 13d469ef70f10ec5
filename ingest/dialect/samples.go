package dialect

import (
	"hash/fnv"
	"math"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/flyball/flyball/schema"
)

// instrument is what a metric measures, and so which points it may have.
type instrument uint8

const (
	level     instrument = iota // gauge, or sum that goes up and down
	total                       // monotonic sum
	durations                   // histogram in seconds, summary
	share                       // level from 0 to 1
)

// limiterMetrics are the metrics that become samples. deploy/docs/limiter-signals.md
// says what each is and which attributes it has.
var limiterMetrics = map[string]instrument{
	"flyball.limiter.bucket.fill":         share,
	"flyball.limiter.bucket.limit":        level,
	"flyball.limiter.bucket.remaining":    level,
	"flyball.limiter.attempts":            total,
	"flyball.limiter.retries":             total,
	"flyball.limiter.queue.depth":         level,
	"flyball.limiter.queue.wait_time":     durations,
	"flyball.limiter.breaker.transitions": total,
	"flyball.limiter.breaker.open":        share,
}

// LimiterMetrics are their names.
func LimiterMetrics() []string {
	var out []string
	for name := range limiterMetrics {
		out = append(out, name)
	}
	return out
}

// maxBounds is how many buckets of a histogram are kept; of one with more only sum and
// count are.
const maxBounds = 64

// AppendSamples appends the points of documented metrics of limiters to dst and returns
// how many points belong to other metrics or say nothing, and how many were not taken
// and why. Only documented attributes are kept. received is unix nanoseconds.
func (r *Reader) AppendSamples(dst []schema.Sample, md pmetric.Metrics, from Origin, received int64) (samples []schema.Sample, ignored int64, rejected Rejected) {
	rec := r.scratch.Get().(*record)
	defer r.scratch.Put(rec)
	rec.reader = r
	p := sampler{rec: rec, from: from, received: received, dst: dst, rejected: Rejected{}}
	for i := range md.ResourceMetrics().Len() {
		rm := md.ResourceMetrics().At(i)
		p.resource = rm.Resource().Attributes()
		r.load(&rec.res, p.resource, nil)
		for j := range rm.ScopeMetrics().Len() {
			sm := rm.ScopeMetrics().At(j)
			p.scope = sm.Scope().Name()
			for k := range sm.Metrics().Len() {
				p.metric(sm.Metrics().At(k))
			}
		}
	}
	if len(p.rejected) == 0 {
		p.rejected = nil
	}
	return p.dst, p.ignored, p.rejected
}

// sampler reads the points of a request.
type sampler struct {
	rec      *record
	from     Origin
	received int64
	resource pcommon.Map
	scope    string

	name  string // of the metric, and what it measures
	kind  instrument
	scale float64 // its unit in ours

	dst      []schema.Sample
	ignored  int64
	rejected Rejected
}

// metric reads one metric.
func (p *sampler) metric(m pmetric.Metric) {
	points := pointsOf(m)
	kind, ok := limiterMetrics[m.Name()]
	if !ok || points == 0 {
		p.ignored += int64(points)
		return
	}
	p.name, p.kind = m.Name(), kind
	if p.scale, ok = scaleOf(kind, m.Unit()); !ok {
		p.rejected[p.name+" has another unit than "+[...]string{"a count such as {request}", "a count such as {request}", "s", "1"}[kind]] += int64(points)
		return
	}
	var temporality schema.Temporality
	switch m.Type() {
	case pmetric.MetricTypeGauge:
		ok = kind == level || kind == share
	case pmetric.MetricTypeSum:
		s := m.Sum()
		ok = s.IsMonotonic() == (kind == total) && kind != durations
		if temporality = temporalityOf(s.AggregationTemporality()); kind != total {
			ok = ok && temporality == schema.Cumulative // which is the level itself
			temporality = schema.Gauge
		} else {
			ok = ok && temporality != schema.Gauge
		}
	case pmetric.MetricTypeHistogram:
		temporality = temporalityOf(m.Histogram().AggregationTemporality())
		ok = kind == durations && temporality != schema.Gauge
	case pmetric.MetricTypeExponentialHistogram:
		temporality = temporalityOf(m.ExponentialHistogram().AggregationTemporality())
		ok = kind == durations && temporality != schema.Gauge
	case pmetric.MetricTypeSummary:
		temporality = schema.Cumulative
		ok = kind == durations
	default:
		ok = false
	}
	if !ok {
		p.rejected[p.name+" is no "+[...]string{"gauge, nor a cumulative sum that is not monotonic", "monotonic sum, delta or cumulative", "histogram, delta or cumulative", "gauge, nor a cumulative sum that is not monotonic"}[kind]] += int64(points)
		return
	}
	numbers := func(list pmetric.NumberDataPointSlice) {
		for i := range list.Len() {
			dp := list.At(i)
			s := schema.Sample{Value: dp.DoubleValue()}
			if dp.ValueType() == pmetric.NumberDataPointValueTypeInt {
				s.Value = float64(dp.IntValue())
			}
			p.point(&s, temporality, dp.Attributes(), dp.StartTimestamp(), dp.Timestamp(), dp.Flags().NoRecordedValue() || dp.ValueType() == pmetric.NumberDataPointValueTypeEmpty)
		}
	}
	switch m.Type() {
	case pmetric.MetricTypeGauge:
		numbers(m.Gauge().DataPoints())
	case pmetric.MetricTypeSum:
		numbers(m.Sum().DataPoints())
	case pmetric.MetricTypeHistogram:
		for i := range points {
			dp := m.Histogram().DataPoints().At(i)
			s := schema.Sample{Value: dp.Sum(), Count: dp.Count()}
			bounds, counts := dp.ExplicitBounds(), dp.BucketCounts()
			if n := bounds.Len(); n > 0 && n <= maxBounds && counts.Len() == n+1 {
				s.Bounds, s.Buckets = bounds.AsRaw(), counts.AsRaw()
				for i := range s.Bounds {
					s.Bounds[i] *= p.scale
				}
			}
			p.point(&s, temporality, dp.Attributes(), dp.StartTimestamp(), dp.Timestamp(), dp.Flags().NoRecordedValue() || !dp.HasSum())
		}
	case pmetric.MetricTypeExponentialHistogram:
		for i := range points {
			dp := m.ExponentialHistogram().DataPoints().At(i)
			p.point(&schema.Sample{Value: dp.Sum(), Count: dp.Count()}, temporality, dp.Attributes(), dp.StartTimestamp(), dp.Timestamp(), dp.Flags().NoRecordedValue() || !dp.HasSum())
		}
	case pmetric.MetricTypeSummary:
		for i := range points {
			dp := m.Summary().DataPoints().At(i)
			p.point(&schema.Sample{Value: dp.Sum(), Count: dp.Count()}, temporality, dp.Attributes(), dp.StartTimestamp(), dp.Timestamp(), dp.Flags().NoRecordedValue())
		}
	}
}

// point completes a sample, whose value is in the sender's unit, and appends it. empty
// says that the point has no value.
func (p *sampler) point(s *schema.Sample, temporality schema.Temporality, attrs pcommon.Map, start, at pcommon.Timestamp, empty bool) {
	if empty {
		p.ignored++
		return
	}
	p.rec.reader.load(&p.rec.fields, attrs, nil)
	tenant, ok := p.rec.tenant(p.from)
	if !ok {
		p.rejected["tenant not allowed by the key"]++
		return
	}
	s.Tenant, s.Metric, s.Temporality, s.Value = tenant, p.name, temporality, s.Value*p.scale
	text := func(names ...string) string {
		for _, m := range [...]pcommon.Map{attrs, p.resource} {
			for _, name := range names {
				if v, ok := m.Get(name); ok {
					if t := strings.TrimSpace(v.AsString()); t != "" {
						return cut(t, 128)
					}
				}
			}
		}
		return ""
	}
	s.Limiter = text("flyball.limiter.id")
	for _, name := range [...]string{"service.instance.id", "service.name"} {
		if s.Limiter == "" {
			s.Limiter = text(name)
		}
	}
	s.Provider, s.Model, s.Tool = schema.Provider(text("gen_ai.provider.name", "gen_ai.system")), text("gen_ai.request.model"), text("gen_ai.tool.name")
	s.Dimension, s.Error = text("flyball.limiter.dimension"), text("error.type")
	s.State = strings.ReplaceAll(strings.ToLower(text("flyball.limiter.breaker.state")), "-", "_")
	if n, err := strconv.ParseUint(text("http.response.status_code"), 10, 16); err == nil && n >= 100 && n < 600 {
		s.HTTPStatus = uint16(n)
	}
	if why := lacks(s, p.kind); why != "" {
		p.rejected[p.name+why]++
		return
	}
	// The one clock, as for spans. A series whose beginning cannot be has an unknown one.
	s.At, _, _ = times(int64(at), int64(at), p.received)
	if start := int64(start); temporality != schema.Gauge && start >= earliest && start <= s.At {
		s.Start = start
	}
	s.RecordedAt = p.received / int64(time.Microsecond)
	s.Series = p.series(attrs)
	p.dst = append(p.dst, *s)
}

// lacks says what is wrong with a sample, "" if nothing is.
func lacks(s *schema.Sample, kind instrument) string {
	bad := func(f float64) bool { return math.IsNaN(f) || math.IsInf(f, 0) }
	for _, b := range s.Bounds {
		if bad(b) {
			return ": a bound is no number"
		}
	}
	guarded := s.Tool != "" || s.Provider != ""
	switch {
	case bad(s.Value) || s.Value < 0:
		return ": the value is negative or no number"
	case kind == share && s.Value > 1:
		return ": the value is over 1"
	case strings.HasPrefix(s.Metric, "flyball.limiter.bucket.") && (s.Provider == "" || s.Dimension == ""):
		return " lacks gen_ai.provider.name or flyball.limiter.dimension"
	case strings.HasPrefix(s.Metric, "flyball.limiter.breaker.") && !guarded:
		return " lacks gen_ai.tool.name or gen_ai.provider.name"
	case s.Metric == "flyball.limiter.breaker.transitions" && s.State != "open" && s.State != "half_open" && s.State != "closed":
		return ": flyball.limiter.breaker.state is not open, half_open or closed"
	}
	return ""
}

// series tells the series of one sender apart: by every attribute, kept or not.
func (p *sampler) series(attrs pcommon.Map) uint64 {
	var sum uint64 // of the pairs' hashes: their order says nothing
	for i, m := range [...]pcommon.Map{p.resource, attrs} {
		for name, v := range m.All() {
			h := fnv.New64a()
			_, _ = h.Write([]byte{byte(i)})
			_, _ = h.Write([]byte(name + "\x00" + v.AsString()))
			sum += h.Sum64()
		}
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(p.name + "\x00" + p.scope + "\x00" + strconv.FormatUint(sum, 16)))
	return h.Sum64()
}

// scaleOf is how many of our units a metric's unit is; false if it is none for it.
func scaleOf(kind instrument, unit string) (float64, bool) {
	switch {
	case kind == durations && unit == "ms":
		return 1e-3, true
	case kind == durations:
		return 1, unit == "s" || unit == ""
	case kind == share && unit == "%":
		return 1e-2, true
	}
	return 1, unit == "" || unit == "1" || strings.HasPrefix(unit, "{") && kind != share
}

// temporalityOf is Gauge where a sum says neither.
func temporalityOf(t pmetric.AggregationTemporality) schema.Temporality {
	switch t {
	case pmetric.AggregationTemporalityDelta:
		return schema.Delta
	case pmetric.AggregationTemporalityCumulative:
		return schema.Cumulative
	}
	return schema.Gauge
}

// pointsOf is how many points a metric has.
func pointsOf(m pmetric.Metric) int {
	switch m.Type() {
	case pmetric.MetricTypeGauge:
		return m.Gauge().DataPoints().Len()
	case pmetric.MetricTypeSum:
		return m.Sum().DataPoints().Len()
	case pmetric.MetricTypeHistogram:
		return m.Histogram().DataPoints().Len()
	case pmetric.MetricTypeExponentialHistogram:
		return m.ExponentialHistogram().DataPoints().Len()
	case pmetric.MetricTypeSummary:
		return m.Summary().DataPoints().Len()
	}
	return 0
}

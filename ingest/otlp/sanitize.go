package otlp

import (
	"math"
	"strings"
	"unicode/utf8"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// maxNesting bounds how deep a value may nest, counted in protobuf messages as pdata counts them: an array costs two, a
// map three. That is 50 arrays or 33 maps inside each other, in protobuf and JSON alike, so that a span meets the same
// verdict in both.
const maxNesting = 100

// maxJSONDepth is the bracket depth of a JSON document above which it is looked at item by item before pdata's
// recursive decoder sees it: 12 for the request itself and up to 4 for each level that maxNesting allows.
const maxJSONDepth = 200

// sanitize walks what pdata decoded once: it removes spans without ids and items nested too deeply, repairs strings,
// turns NaN attributes into missing values and unknown enum numbers into unspecified, and counts the items.
func (p *payload) sanitize() {
	s := sanitizer{p: p}
	before := p.rejects.total()
	switch p.sig {
	case traces:
		s.traces(p.traces)
	case logs:
		s.logs(p.logs)
	case metricData:
		s.metrics(p.metrics)
	}
	if p.split {
		p.items = before + s.seen
		return
	}
	p.items = s.seen
}

type sanitizer struct {
	p    *payload
	seen int64
}

// reject notes that the item seen last is no good.
func (s *sanitizer) reject(why reason, detail string) {
	position := s.seen
	if s.p.split {
		position = s.p.kept[s.seen-1]
	}
	s.p.rejects.add(why, position, detail)
}

// str returns the string as valid UTF-8 and whether it had to be changed.
func (s *sanitizer) str(v string) (string, bool) {
	if utf8.ValidString(v) {
		return v, false
	}
	s.p.repaired++
	return strings.ToValidUTF8(v, "\uFFFD"), true
}

// attrs cleans a map whose key-value messages sit at the given depth; false means that it nests too deeply.
func (s *sanitizer) attrs(m pcommon.Map, depth int) bool {
	ok, badKey := true, false
	m.Range(func(k string, v pcommon.Value) bool {
		if !utf8.ValidString(k) {
			badKey = true
		}
		ok = s.value(v, depth+1)
		return ok
	})
	if badKey {
		clean := pcommon.NewMap()
		clean.EnsureCapacity(m.Len())
		m.Range(func(k string, v pcommon.Value) bool {
			k, _ = s.str(k)
			v.MoveTo(clean.PutEmpty(k))
			return true
		})
		clean.MoveTo(m)
	}
	return ok
}

// value cleans a value whose message sits at the given depth; false means that it nests too deeply.
func (s *sanitizer) value(v pcommon.Value, depth int) bool {
	switch v.Type() {
	case pcommon.ValueTypeStr:
		if fixed, changed := s.str(v.Str()); changed {
			v.SetStr(fixed)
		}
	case pcommon.ValueTypeDouble:
		if math.IsNaN(v.Double()) {
			pcommon.NewValueEmpty().CopyTo(v)
		}
	case pcommon.ValueTypeSlice:
		if depth+1 >= maxNesting {
			return false
		}
		list := v.Slice()
		for i := range list.Len() {
			if depth+2 >= maxNesting || !s.value(list.At(i), depth+2) {
				return false
			}
		}
	case pcommon.ValueTypeMap:
		if depth+1 >= maxNesting {
			return false
		}
		m := v.Map()
		return m.Len() == 0 || depth+3 < maxNesting && s.attrs(m, depth+2)
	}
	return true
}

func (s *sanitizer) scope(sc pcommon.InstrumentationScope) bool {
	if v, changed := s.str(sc.Name()); changed {
		sc.SetName(v)
	}
	if v, changed := s.str(sc.Version()); changed {
		sc.SetVersion(v)
	}
	return s.attrs(sc.Attributes(), 0)
}

func (s *sanitizer) traces(td ptrace.Traces) {
	rss := td.ResourceSpans()
	for i := range rss.Len() {
		rs := rss.At(i)
		resourceOK := s.attrs(rs.Resource().Attributes(), 0)
		if v, changed := s.str(rs.SchemaUrl()); changed {
			rs.SetSchemaUrl(v)
		}
		sss := rs.ScopeSpans()
		for j := range sss.Len() {
			ss := sss.At(j)
			ok := s.scope(ss.Scope()) && resourceOK
			if v, changed := s.str(ss.SchemaUrl()); changed {
				ss.SetSchemaUrl(v)
			}
			ss.Spans().RemoveIf(func(sp ptrace.Span) bool {
				s.seen++
				switch {
				case !ok:
					s.reject(reasonContainer, errNested.Error())
				case sp.TraceID().IsEmpty():
					s.reject(reasonTraceIDZero, "")
				case sp.SpanID().IsEmpty():
					s.reject(reasonSpanIDZero, "")
				case !s.span(sp):
					s.reject(reasonNested, "")
				default:
					return false
				}
				return true
			})
		}
	}
}

// span cleans one span; false means that it nests too deeply.
func (s *sanitizer) span(sp ptrace.Span) bool {
	if sp.Kind() < ptrace.SpanKindUnspecified || sp.Kind() > ptrace.SpanKindConsumer {
		sp.SetKind(ptrace.SpanKindUnspecified)
	}
	if c := sp.Status().Code(); c < ptrace.StatusCodeUnset || c > ptrace.StatusCodeError {
		sp.Status().SetCode(ptrace.StatusCodeUnset)
	}
	if v, changed := s.str(sp.Name()); changed {
		sp.SetName(v)
	}
	if v, changed := s.str(sp.Status().Message()); changed {
		sp.Status().SetMessage(v)
	}
	if v, changed := s.str(sp.TraceState().AsRaw()); changed {
		sp.TraceState().FromRaw(v)
	}
	ok := s.attrs(sp.Attributes(), 0)
	events := sp.Events()
	for i := range events.Len() {
		ev := events.At(i)
		if v, changed := s.str(ev.Name()); changed {
			ev.SetName(v)
		}
		ok = s.attrs(ev.Attributes(), 0) && ok
	}
	links := sp.Links()
	for i := range links.Len() {
		ln := links.At(i)
		if v, changed := s.str(ln.TraceState().AsRaw()); changed {
			ln.TraceState().FromRaw(v)
		}
		ok = s.attrs(ln.Attributes(), 0) && ok
	}
	return ok
}

func (s *sanitizer) logs(ld plog.Logs) {
	rls := ld.ResourceLogs()
	for i := range rls.Len() {
		rl := rls.At(i)
		resourceOK := s.attrs(rl.Resource().Attributes(), 0)
		if v, changed := s.str(rl.SchemaUrl()); changed {
			rl.SetSchemaUrl(v)
		}
		sls := rl.ScopeLogs()
		for j := range sls.Len() {
			sl := sls.At(j)
			ok := s.scope(sl.Scope()) && resourceOK
			if v, changed := s.str(sl.SchemaUrl()); changed {
				sl.SetSchemaUrl(v)
			}
			sl.LogRecords().RemoveIf(func(lr plog.LogRecord) bool {
				s.seen++
				if !ok {
					s.reject(reasonContainer, errNested.Error())
					return true
				}
				if v, changed := s.str(lr.SeverityText()); changed {
					lr.SetSeverityText(v)
				}
				if v, changed := s.str(lr.EventName()); changed {
					lr.SetEventName(v)
				}
				if fine := s.value(lr.Body(), 0); !s.attrs(lr.Attributes(), 0) || !fine {
					s.reject(reasonNested, "")
					return true
				}
				return false
			})
		}
	}
}

func (s *sanitizer) metrics(md pmetric.Metrics) {
	rms := md.ResourceMetrics()
	for i := range rms.Len() {
		rm := rms.At(i)
		resourceOK := s.attrs(rm.Resource().Attributes(), 0)
		if v, changed := s.str(rm.SchemaUrl()); changed {
			rm.SetSchemaUrl(v)
		}
		sms := rm.ScopeMetrics()
		for j := range sms.Len() {
			sm := sms.At(j)
			ok := s.scope(sm.Scope()) && resourceOK
			if v, changed := s.str(sm.SchemaUrl()); changed {
				sm.SetSchemaUrl(v)
			}
			sm.Metrics().RemoveIf(func(m pmetric.Metric) bool {
				s.seen++
				switch {
				case !ok:
					s.reject(reasonContainer, errNested.Error())
				case !s.metric(m):
					s.reject(reasonNested, "")
				default:
					return false
				}
				return true
			})
		}
	}
}

// metric cleans one metric; false means that it nests too deeply.
func (s *sanitizer) metric(m pmetric.Metric) bool {
	if v, changed := s.str(m.Name()); changed {
		m.SetName(v)
	}
	if v, changed := s.str(m.Description()); changed {
		m.SetDescription(v)
	}
	if v, changed := s.str(m.Unit()); changed {
		m.SetUnit(v)
	}
	ok := s.attrs(m.Metadata(), 0)
	points := func(n int, at func(int) pcommon.Map) {
		for i := range n {
			ok = s.attrs(at(i), 0) && ok
		}
	}
	switch m.Type() {
	case pmetric.MetricTypeGauge:
		dp := m.Gauge().DataPoints()
		points(dp.Len(), func(i int) pcommon.Map { return dp.At(i).Attributes() })
	case pmetric.MetricTypeSum:
		dp := m.Sum().DataPoints()
		points(dp.Len(), func(i int) pcommon.Map { return dp.At(i).Attributes() })
	case pmetric.MetricTypeHistogram:
		dp := m.Histogram().DataPoints()
		points(dp.Len(), func(i int) pcommon.Map { return dp.At(i).Attributes() })
	case pmetric.MetricTypeExponentialHistogram:
		dp := m.ExponentialHistogram().DataPoints()
		points(dp.Len(), func(i int) pcommon.Map { return dp.At(i).Attributes() })
	case pmetric.MetricTypeSummary:
		dp := m.Summary().DataPoints()
		points(dp.Len(), func(i int) pcommon.Map { return dp.At(i).Attributes() })
	}
	return ok
}

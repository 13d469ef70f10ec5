package main

import (
	"encoding/binary"
	"math"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// Field numbers of opentelemetry/proto/{common,resource,trace}/v1.
const (
	fieldResourceSpans  = 1 // ExportTraceServiceRequest.resource_spans
	fieldResource       = 1 // ResourceSpans.resource
	fieldScopeSpans     = 2 // ResourceSpans.scope_spans
	fieldResourceAttrs  = 1 // Resource.attributes
	fieldScope          = 1 // ScopeSpans.scope
	fieldSpans          = 2 // ScopeSpans.spans
	fieldTraceID        = 1
	fieldSpanID         = 2
	fieldParentSpanID   = 4
	fieldName           = 5
	fieldKind           = 6
	fieldStart          = 7
	fieldEnd            = 8
	fieldSpanAttrs      = 9
	fieldStatus         = 15
	fieldFlags          = 16
	statusCodeError     = 2
	flagSampled         = 1
	spanKindInternal    = 1
	spanKindClient      = 3
	attrString          = 1 // AnyValue.string_value
	attrInt             = 3
	attrDouble          = 4
	attrArray           = 5
	attrKey, attrValue  = 1, 2 // KeyValue
	scopeName, scopeVer = 1, 2 // InstrumentationScope
)

const (
	traceIDLen    = 16
	spanIDLen     = 8
	maxSpansOfRun = 16 // spans of one run get consecutive numbers out of 16
	hexDigits     = "0123456789abcdef"
)

// markKind says what a place in a template is overwritten with.
type markKind uint8

const (
	markTrace    markKind = iota // 16 bytes: the run's trace id
	markSpan                     // 8 bytes: the id of span number n of the run
	markTraceHex                 // 32 digits: the trace id in text, for conversation ids
	markSpanHex                  // 16 digits: the span id in text, for response and tool call ids
	markTime                     // fixed64: start of the run plus ns
	markUser                     // decimal digits of the run's user
	markTenant                   // decimal digits of the run's tenant
)

// mark is a place of fixed width that differs between two uses of a template.
type mark struct {
	at   int32
	run  int32 // index of the run within the request
	kind markKind
	n    uint8 // span number within the run
	ns   int64 // of markTime: nanoseconds after the start of the run
}

// piece is an encoded message in the making, with its marks.
type piece struct {
	b     []byte
	marks []mark
}

// embed appends a sub-message and moves its marks to where it lies now.
func (p *piece) embed(field protowire.Number, sub *piece) {
	p.b = protowire.AppendTag(p.b, field, protowire.BytesType)
	p.b = protowire.AppendVarint(p.b, uint64(len(sub.b)))
	for _, m := range sub.marks {
		m.at += int32(len(p.b))
		p.marks = append(p.marks, m)
	}
	p.b = append(p.b, sub.b...)
}

func (p *piece) varint(field protowire.Number, v uint64) {
	p.b = protowire.AppendVarint(protowire.AppendTag(p.b, field, protowire.VarintType), v)
}

func (p *piece) text(field protowire.Number, s string) {
	p.b = protowire.AppendString(protowire.AppendTag(p.b, field, protowire.BytesType), s)
}

// hole appends prefix and width placeholder bytes as one field, marked by m.
func (p *piece) hole(field protowire.Number, prefix string, width int, m mark) {
	p.b = protowire.AppendTag(p.b, field, protowire.BytesType)
	p.b = protowire.AppendVarint(p.b, uint64(len(prefix)+width))
	p.b = append(p.b, prefix...)
	m.at = int32(len(p.b))
	p.marks = append(p.marks, m)
	for range width {
		p.b = append(p.b, '0')
	}
}

func (p *piece) instant(field protowire.Number, run int32, ns int64) {
	p.b = protowire.AppendTag(p.b, field, protowire.Fixed64Type)
	p.marks = append(p.marks, mark{at: int32(len(p.b)), run: run, kind: markTime, ns: ns})
	p.b = append(p.b, 0, 0, 0, 0, 0, 0, 0, 0)
}

// attr is one attribute: value is a string, int, float64, []string or hole.
type attr struct {
	key   string
	value any
}

// hole is an attribute's text that ends in digits of its own in every run.
type hole struct {
	prefix string
	kind   markKind
}

// width of a hole's digits.
func (l *layout) width(k markKind) int {
	switch k {
	case markTraceHex:
		return 2 * traceIDLen
	case markSpanHex:
		return 2 * spanIDLen
	case markUser:
		return l.userDigits
	case markTenant:
		return l.tenantDigits
	}
	panic("BUG: this mark has no text")
}

// layout has the widths that every template of one load shares.
type layout struct {
	userDigits, tenantDigits int
}

func (l *layout) attribute(p *piece, field protowire.Number, a attr, run int32, n uint8) {
	var value piece
	switch v := a.value.(type) {
	case string:
		value.text(attrString, v)
	case int:
		value.varint(attrInt, uint64(v))
	case float64:
		value.b = protowire.AppendFixed64(protowire.AppendTag(nil, attrDouble, protowire.Fixed64Type), math.Float64bits(v))
	case []string:
		var list piece
		for _, s := range v {
			var e piece
			e.text(attrString, s)
			list.embed(1, &e)
		}
		value.embed(attrArray, &list)
	case hole:
		value.hole(attrString, v.prefix, l.width(v.kind), mark{run: run, kind: v.kind, n: n})
	default:
		panic("BUG: attribute " + a.key + " has a value of an unknown type")
	}
	var kv piece
	kv.text(attrKey, a.key)
	kv.embed(attrValue, &value)
	p.embed(field, &kv)
}

// spanTemplate is one span of a run's shape.
type spanTemplate struct {
	name       string
	parent     int // number of the parent span, -1 for the root
	kind       int
	start, end time.Duration // after the start of the run
	scope      string
	attrs      []attr
	failed     bool
	calls      int // what it adds to the calls that the service counts
	phase      int // which of the scenario's exports carries it
}

func (l *layout) span(s *spanTemplate, run int32, n uint8) piece {
	var p piece
	p.hole(fieldTraceID, "", traceIDLen, mark{run: run, kind: markTrace})
	p.hole(fieldSpanID, "", spanIDLen, mark{run: run, kind: markSpan, n: n})
	if s.parent >= 0 {
		p.hole(fieldParentSpanID, "", spanIDLen, mark{run: run, kind: markSpan, n: uint8(s.parent)})
	}
	p.text(fieldName, s.name)
	p.varint(fieldKind, uint64(s.kind))
	p.instant(fieldStart, run, int64(s.start))
	p.instant(fieldEnd, run, int64(s.end))
	for _, a := range s.attrs {
		l.attribute(&p, fieldSpanAttrs, a, run, n)
	}
	if s.failed {
		var st piece
		st.varint(3, statusCodeError)
		p.embed(fieldStatus, &st)
	}
	p.b = protowire.AppendFixed32(protowire.AppendTag(p.b, fieldFlags, protowire.Fixed32Type), flagSampled)
	return p
}

// request is an encoded ExportTraceServiceRequest with what it holds. The bytes
// are valid whatever the marks were last filled with.
type request struct {
	bytes []byte
	marks []mark
	spans int
	calls int // model and tool calls among the spans
}

// clone copies the bytes, for a worker of its own or after a send that may
// still be reading them.
func (r *request) clone() *request {
	c := *r
	c.bytes = append([]byte(nil), r.bytes...)
	return &c
}

// source makes the ids of runs. Two sources with different seeds do not meet in
// practice; within one, ids are distinct because mix is a bijection.
type source struct {
	traces, spans, users     uint64 // seeds
	userCount, tenants       uint64
	userDigits, tenantDigits int32
}

func newSource(seed uint64, users, tenants int) *source {
	return &source{
		traces: mix(seed), spans: mix(seed + 1), users: mix(seed + 2),
		userCount: uint64(users), tenants: uint64(tenants),
		userDigits: digitsOf(uint64(users)), tenantDigits: digitsOf(uint64(tenants)),
	}
}

// mix is the finalizer of splitmix64, a bijection on 64 bits.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

func (s *source) trace(run uint64) (hi, lo uint64) {
	lo = mix(s.traces + run)
	return mix(lo ^ s.spans), lo
}

func (s *source) span(run uint64, n uint8) uint64 {
	return mix(s.spans + run*maxSpansOfRun + uint64(n))
}

// tenant is the same for the runsOfResource runs that share a resource.
func (s *source) tenant(run uint64) uint64 {
	return mix(s.users^(run/runsOfResource)) % s.tenants
}

// user belongs to one tenant, as people do: user u is of tenant u modulo the
// number of tenants.
func (s *source) user(run uint64) uint64 {
	t := s.tenant(run)
	if t >= s.userCount {
		return t % s.userCount
	}
	per := (s.userCount - t + s.tenants - 1) / s.tenants
	return t + s.tenants*(mix(s.users+run)%per)
}

// fill overwrites the marks for runs numbered from first, which must be a
// multiple of runsOfResource, that began at start (Unix nanoseconds).
func (r *request) fill(s *source, first uint64, start int64) {
	b := r.bytes
	run, hi, lo := int32(-1), uint64(0), uint64(0)
	for i := range r.marks {
		m := &r.marks[i]
		n := first + uint64(m.run)
		if m.run != run {
			run = m.run
			hi, lo = s.trace(n)
		}
		switch m.kind {
		case markTrace:
			binary.BigEndian.PutUint64(b[m.at:], hi)
			binary.BigEndian.PutUint64(b[m.at+8:], lo)
		case markSpan:
			binary.BigEndian.PutUint64(b[m.at:], s.span(n, m.n))
		case markTime:
			binary.LittleEndian.PutUint64(b[m.at:], uint64(start+m.ns))
		case markTraceHex:
			putHex(b[m.at:], hi)
			putHex(b[m.at+16:], lo)
		case markSpanHex:
			putHex(b[m.at:], s.span(n, m.n))
		case markUser:
			putDecimal(b[m.at:m.at+s.userDigits], s.user(n))
		case markTenant:
			putDecimal(b[m.at:m.at+s.tenantDigits], s.tenant(n))
		}
	}
}

func putHex(b []byte, v uint64) {
	_ = b[15]
	for i := 15; i >= 0; i-- {
		b[i] = hexDigits[v&15]
		v >>= 4
	}
}

func putDecimal(b []byte, v uint64) {
	for i := len(b) - 1; i >= 0; i-- {
		b[i] = byte('0' + v%10)
		v /= 10
	}
}

// digitsOf is the width of the largest of n numbers that begin at 0.
func digitsOf(n uint64) int32 {
	d := int32(1)
	for n > 10 {
		d++
		n = (n + 9) / 10
	}
	return d
}

package dialect

import (
	"encoding/binary"
	"math"
	"strings"
	"unicode/utf8"
	"unsafe"

	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/flyball/flyball/schema"
)

// AppendWire is AppendSpans for an ExportTraceServiceRequest in protobuf that is
// not decoded: it looks at the attributes a dialect knows and passes over the
// rest, which saves the fifty allocations a span that decoding all of it takes.
// The Calls' strings point into body, which must not change while they live.
//
// It takes regular requests only. With ok false nothing may be used: something in
// body needs the care of a real decoder (an id of a wrong length, invalid UTF-8,
// a structured value where a dialect looks), and AppendSpans must read it.
func (r *Reader) AppendWire(dst []schema.Call, body []byte, from Origin, received int64) (calls []schema.Call, spans int, rejected Rejected, ok bool) {
	rec := r.scratch.Get().(*record)
	defer r.scratch.Put(rec)
	rec.reader, rec.isLog = r, false
	w := wireReader{rec: rec, dst: dst, from: from, received: received}
	base := len(dst)
	m := message{b: body}
	for m.next() {
		if m.field == 1 && m.wire == 2 {
			w.resourceSpans(m.bytes)
		}
	}
	if m.bad || w.odd {
		return dst, 0, nil, false
	}
	r.refinements(w.dst[base:], from)
	return w.dst, w.spans, w.rejected, true
}

// message iterates over the fields of a protobuf message.
type message struct {
	b     []byte
	bad   bool
	field uint32
	wire  uint8
	n     uint64 // varint, fixed32 or fixed64
	bytes []byte
}

func (m *message) next() bool {
	if len(m.b) == 0 || m.bad {
		return false
	}
	tag, n := uvarint(m.b)
	if n <= 0 || tag>>3 == 0 || tag>>3 > 1<<29-1 {
		m.bad = true
		return false
	}
	m.b = m.b[n:]
	m.field, m.wire = uint32(tag>>3), uint8(tag&7)
	switch m.wire {
	case 0:
		if m.n, n = uvarint(m.b); n <= 0 {
			m.bad = true
			return false
		}
		m.b = m.b[n:]
	case 1:
		if len(m.b) < 8 {
			m.bad = true
			return false
		}
		m.n = binary.LittleEndian.Uint64(m.b)
		m.b = m.b[8:]
	case 2:
		size, n := uvarint(m.b)
		if n <= 0 || size > uint64(len(m.b)-n) {
			m.bad = true
			return false
		}
		m.bytes = m.b[n : n+int(size) : n+int(size)]
		m.b = m.b[n+int(size):]
	case 5:
		if len(m.b) < 4 {
			m.bad = true
			return false
		}
		m.n = uint64(binary.LittleEndian.Uint32(m.b))
		m.b = m.b[4:]
	default: // groups, which no OTLP sender writes
		m.bad = true
		return false
	}
	return true
}

func uvarint(b []byte) (uint64, int) {
	if len(b) > 0 && b[0] < 0x80 {
		return uint64(b[0]), 1
	}
	return binary.Uvarint(b)
}

// wireReader reads one request.
type wireReader struct {
	rec      *record
	dst      []schema.Call
	from     Origin
	received int64
	spans    int
	rejected Rejected
	odd      bool // something a real decoder must see
	depth    int
}

// text is b as a string that shares its memory.
func (w *wireReader) text(b []byte) string {
	if len(b) == 0 {
		return ""
	}
	if !utf8.Valid(b) {
		w.odd = true
		return ""
	}
	return unsafe.String(&b[0], len(b))
}

// each calls f for every field and notes a broken message.
func (w *wireReader) each(b []byte, f func(m *message)) {
	m := message{b: b}
	for m.next() {
		f(&m)
	}
	w.odd = w.odd || m.bad
}

func (w *wireReader) resourceSpans(b []byte) {
	w.rec.res.reset()
	// The resource may stand behind its spans.
	w.each(b, func(m *message) {
		if m.field == 1 && m.wire == 2 {
			w.each(m.bytes, func(m *message) {
				if m.field == 1 && m.wire == 2 {
					w.attribute(&w.rec.res, m.bytes, false)
				}
			})
		}
	})
	w.each(b, func(m *message) {
		switch {
		case m.field == 2 && m.wire == 2:
			w.scopeSpans(m.bytes)
		case m.field == 1000: // where OTLP before 0.15 has the spans
			w.odd = true
		}
	})
}

func (w *wireReader) scopeSpans(b []byte) {
	name, version := "", ""
	w.each(b, func(m *message) {
		if m.field == 1 && m.wire == 2 {
			w.each(m.bytes, func(m *message) {
				switch {
				case m.field == 1 && m.wire == 2:
					name = w.text(m.bytes)
				case m.field == 2 && m.wire == 2:
					version = w.text(m.bytes)
				}
			})
		}
	})
	w.rec.setScope(name, version)
	m := message{b: b}
	for m.next() && !w.odd {
		if m.field == 2 && m.wire == 2 {
			w.span(m.bytes)
		}
	}
	w.odd = w.odd || m.bad
}

func (w *wireReader) span(b []byte) {
	rec := w.rec
	rec.fields.reset()
	rec.rawUsage, rec.rawProvider, rec.rawModel, rec.rawID, rec.rawTier = "", "", "", "", ""
	rec.name, rec.message, rec.truncated = "", "", false
	rec.kind, rec.status = ptrace.SpanKindUnspecified, ptrace.StatusCodeUnset
	clear(rec.headers)
	rec.events = rec.events[:0]
	w.spans++
	var h head
	traceLen, spanLen := 0, 0
	var seen uint32 // bit n: field n, of those that a span has once
	m := message{b: b}
	for m.next() && !w.odd {
		if m.field <= 8 || m.field == 15 {
			w.odd = w.odd || seen&(1<<m.field) != 0 // a decoder merges the two
			seen |= 1 << m.field
		}
		switch m.field<<3 | uint32(m.wire) {
		case 1<<3 | 2:
			traceLen = copy(h.trace[:], m.bytes)
			w.odd = w.odd || len(m.bytes) != len(h.trace)
		case 2<<3 | 2:
			spanLen = copy(h.span[:], m.bytes)
			w.odd = w.odd || len(m.bytes) != len(h.span)
		case 3<<3 | 2:
			h.state = w.text(m.bytes)
		case 4<<3 | 2:
			copy(h.parent[:], m.bytes)
			w.odd = w.odd || len(m.bytes) != 0 && len(m.bytes) != len(h.parent)
		case 5<<3 | 2:
			rec.name = w.text(m.bytes)
		case 6<<3 | 0:
			rec.kind = spanKind(ptrace.SpanKind(int32(m.n)))
		case 7<<3 | 1:
			h.start = int64(m.n)
		case 8<<3 | 1:
			h.end = int64(m.n)
		case 9<<3 | 2:
			w.attribute(&rec.fields, m.bytes, true)
		case 11<<3 | 2:
			w.event(m.bytes)
		case 13<<3 | 2:
			var t schema.TraceID
			w.each(m.bytes, func(m *message) {
				if m.field == 1 && m.wire == 2 {
					w.odd = w.odd || len(m.bytes) != 0 && len(m.bytes) != len(t) || t != (schema.TraceID{})
					copy(t[:], m.bytes)
				} else if m.field == 2 && m.wire == 2 {
					w.odd = w.odd || len(m.bytes) != 0 && len(m.bytes) != len(schema.SpanID{})
				}
			})
			h.link(t)
		case 15<<3 | 2:
			w.each(m.bytes, func(m *message) {
				switch {
				case m.field == 2 && m.wire == 2:
					rec.message = w.text(m.bytes)
				case m.field == 3 && m.wire == 0:
					rec.status = statusCode(ptrace.StatusCode(int32(m.n)))
				}
			})
		}
	}
	if w.odd = w.odd || m.bad || traceLen == 0 || spanLen == 0 || h.trace == (schema.TraceID{}) || h.span == (schema.SpanID{}); w.odd {
		return
	}
	tenant, ok := rec.tenant(w.from)
	if !ok {
		if w.rejected == nil {
			w.rejected = Rejected{}
		}
		w.rejected["tenant not allowed by the key"]++
		return
	}
	w.dst = rec.span(w.dst, tenant, &h, w.from, w.received)
}

// attribute reads a KeyValue if a dialect knows its key.
func (w *wireReader) attribute(f *fields, b []byte, ofSpan bool) {
	name, val, ok := keyValue(b)
	if !ok {
		w.odd = true
		return
	}
	if len(name) == 0 {
		return
	}
	key := unsafe.String(&name[0], len(name))
	if k, ok := w.rec.reader.keys[key]; ok {
		f.put(k, w.value(val))
	} else if !ofSpan {
		return
	} else if k := word(key); k != kNone {
		f.putWord(k, w.value(val))
	} else if strings.HasPrefix(key, "llm.") {
		if v := w.value(val); v.t == valueText {
			w.rec.answer(key[len("llm."):], v.s)
		}
	} else if w.rec.reader.limits != nil && strings.HasPrefix(key, headerPrefix) {
		w.rec.header(key, w.value(val))
	}
}

// keyValue takes a KeyValue apart. It is not ok where it is broken or has a part twice, which
// a decoder merges.
func keyValue(b []byte) (name, val []byte, ok bool) {
	m := message{b: b}
	names, vals := 0, 0
	for m.next() {
		switch {
		case m.field == 1 && m.wire == 2:
			name = m.bytes
			names++
		case m.field == 2 && m.wire == 2:
			val = m.bytes
			vals++
		}
	}
	return name, val, !m.bad && names <= 1 && vals <= 1
}

// value reads an AnyValue that is a scalar or a list of scalars.
func (w *wireReader) value(b []byte) value {
	var v value
	m := message{b: b}
	for m.next() {
		w.odd = w.odd || v.t != valueEmpty // several at once, which a decoder merges
		switch m.field<<3 | uint32(m.wire) {
		case 1<<3 | 2:
			v = value{t: valueText, s: w.text(m.bytes)}
		case 2<<3 | 0:
			v = value{t: valueBool}
			if m.n != 0 {
				v.n = 1
			}
		case 3<<3 | 0:
			v = value{t: valueInt, n: m.n}
		case 4<<3 | 1:
			v = value{t: valueDouble, n: m.n}
			if math.IsNaN(math.Float64frombits(m.n)) {
				w.odd = true // some senders mean "missing": the decoder knows
			}
		case 5<<3 | 2:
			v = w.list(m.bytes)
		default:
			w.odd = true
		}
	}
	w.odd = w.odd || m.bad
	return v
}

func (w *wireReader) list(b []byte) value {
	if w.depth > 0 {
		w.odd = true
		return value{}
	}
	w.depth++
	defer func() { w.depth-- }()
	out := value{t: valueList}
	m := message{b: b}
	for m.next() {
		if m.field != 1 || m.wire != 2 {
			w.odd = true
			break
		}
		e := w.value(m.bytes)
		if out.len++; out.len == 1 {
			out.elem, out.n, out.s = e.t, e.n, e.s
		}
	}
	w.odd = w.odd || m.bad
	return out
}

func (w *wireReader) event(b []byte) {
	var e event
	w.each(b, func(m *message) {
		switch {
		case m.field == 2 && m.wire == 2:
			e.name = w.text(m.bytes)
		case m.field == 3 && m.wire == 2:
			name, val, ok := keyValue(m.bytes)
			w.odd = w.odd || !ok
			switch string(name) {
			case "exception.type", "exception.message", "retry.attempt", "attempt":
				e.set(string(name), w.value(val))
			}
		}
	})
	w.rec.events = append(w.rec.events, e)
}

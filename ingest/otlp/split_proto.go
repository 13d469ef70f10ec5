package otlp

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// Field numbers of OTLP requests; they are the same for all three signals.
const (
	fieldResources  protowire.Number = 1    // ExportXServiceRequest: ResourceX
	fieldScopes     protowire.Number = 2    // ResourceX: ScopeX
	fieldDeprecated protowire.Number = 1000 // ResourceX: InstrumentationLibraryX of OTLP before 0.15
	fieldItems      protowire.Number = 2    // ScopeX: Span, LogRecord, Metric
)

// splitProto writes the request again without the items that do not decode by themselves, which it counts in p. The
// error means that the upper levels are broken on the wire, so that nobody can say how many items the request holds.
func splitProto(p *payload, body []byte) ([]byte, error) {
	w := protoSplit{p: p}
	var out []byte
	err := eachField(body, func(num protowire.Number, typ protowire.Type, _, value []byte) error {
		if num != fieldResources {
			return nil
		}
		if typ != protowire.BytesType {
			return fmt.Errorf("read resource: wrong wire type %d", typ)
		}
		resource, err := w.resource(value)
		if err != nil {
			return err
		}
		out = appendMessage(out, fieldResources, resource)
		return nil
	})
	return out, err
}

type protoSplit struct {
	p        *payload
	one      []byte // scratch: a request of one item
	position int64
}

// resource rewrites one ResourceX.
func (w *protoSplit) resource(b []byte) ([]byte, error) {
	var own []byte
	var scopes, deprecated [][]byte
	err := eachField(b, func(num protowire.Number, typ protowire.Type, raw, value []byte) error {
		switch num {
		case fieldScopes, fieldDeprecated:
			if typ != protowire.BytesType {
				return fmt.Errorf("read scope: wrong wire type %d", typ)
			}
			if num == fieldScopes {
				scopes = append(scopes, value)
			} else {
				deprecated = append(deprecated, value)
			}
		default:
			own = append(own, raw...)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(scopes) == 0 { // as pdata does
		scopes = deprecated
	}
	fault := try(w.p.sig, protobuf, appendMessage(nil, fieldResources, own))
	if fault != nil {
		own = nil
	}
	for _, s := range scopes {
		scope, err := w.scope(s, fault)
		if err != nil {
			return nil, err
		}
		own = appendMessage(own, fieldScopes, scope)
	}
	return own, nil
}

// scope rewrites one ScopeX of a resource that had the given fault.
func (w *protoSplit) scope(b []byte, fault error) ([]byte, error) {
	var own []byte
	var items [][]byte
	err := eachField(b, func(num protowire.Number, typ protowire.Type, raw, value []byte) error {
		if num != fieldItems {
			own = append(own, raw...)
			return nil
		}
		if typ != protowire.BytesType {
			return fmt.Errorf("read item: wrong wire type %d", typ)
		}
		items = append(items, value)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if fault == nil {
		fault = try(w.p.sig, protobuf, appendMessage(nil, fieldResources, appendMessage(nil, fieldScopes, own)))
	}
	if fault != nil {
		own = nil
	}
	for _, item := range items {
		w.position++
		if fault != nil {
			w.p.rejects.add(reasonContainer, w.position, fault.Error())
			continue
		}
		w.one = w.one[:0]
		inner := protowire.SizeTag(fieldItems) + protowire.SizeBytes(len(item))
		middle := protowire.SizeTag(fieldScopes) + protowire.SizeBytes(inner)
		w.one = protowire.AppendTag(w.one, fieldResources, protowire.BytesType)
		w.one = protowire.AppendVarint(w.one, uint64(middle))
		w.one = protowire.AppendTag(w.one, fieldScopes, protowire.BytesType)
		w.one = protowire.AppendVarint(w.one, uint64(inner))
		w.one = appendMessage(w.one, fieldItems, item)
		if err := try(w.p.sig, protobuf, w.one); err != nil {
			why, detail := protoBlame(w.p.sig, item, err)
			w.p.rejects.add(why, w.position, detail)
			continue
		}
		own = appendMessage(own, fieldItems, item)
		w.p.kept = append(w.p.kept, w.position)
	}
	return own, nil
}

// protoBlame says what is wrong with an item that pdata refused.
func protoBlame(sig signal, item []byte, err error) (reason, string) {
	why := reasonUndecodable
	if strings.Contains(err.Error(), "recursion depth") {
		return reasonNested, ""
	}
	if sig != traces {
		return why, err.Error()
	}
	_ = eachField(item, func(num protowire.Number, typ protowire.Type, _, value []byte) error {
		if typ != protowire.BytesType || why != reasonUndecodable || len(value) == 0 {
			return nil
		}
		switch {
		case num == 1 && len(value) != 16:
			why = reasonTraceID
		case num == 2 && len(value) != 8:
			why = reasonSpanID
		case num == 4 && len(value) != 8:
			why = reasonParentID
		}
		return nil
	})
	if why != reasonUndecodable {
		return why, ""
	}
	return why, err.Error()
}

// eachField calls f for every field of a message: raw is the whole field, value the content of a length-delimited one.
func eachField(b []byte, f func(num protowire.Number, typ protowire.Type, raw, value []byte) error) error {
	for off := 0; off < len(b); {
		num, typ, tag := protowire.ConsumeTag(b[off:])
		if tag < 0 {
			return fmt.Errorf("read tag: %w", protowire.ParseError(tag))
		}
		n := protowire.ConsumeFieldValue(num, typ, b[off+tag:])
		if n < 0 {
			return fmt.Errorf("read field %d: %w", num, protowire.ParseError(n))
		}
		raw := b[off : off+tag+n]
		var value []byte
		if typ == protowire.BytesType {
			value, _ = protowire.ConsumeBytes(raw[tag:])
		}
		if err := f(num, typ, raw, value); err != nil {
			return err
		}
		off += tag + n
	}
	return nil
}

func appendMessage(dst []byte, num protowire.Number, msg []byte) []byte {
	dst = protowire.AppendTag(dst, num, protowire.BytesType)
	return protowire.AppendBytes(dst, msg)
}

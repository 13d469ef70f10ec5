package otlp

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
)

// splitJSON writes the request again without the items that do not decode by themselves, which it counts in p. The body
// has passed checkJSON. The error means that the request's upper levels are not what they should be, so that nobody can
// say how many items it holds.
func splitJSON(p *payload, body []byte) ([]byte, error) {
	w := jsonSplit{p: p, names: signalNames[p.sig]}
	w.out = append(w.out, `{"`+w.names.resource+`":[`...)
	err := eachMember(body, skipSpace(body, 0), func(key string, _, value []byte) error {
		if key != w.names.resource && key != w.names.resourceSnake {
			return nil
		}
		return w.list(key, value, w.resource)
	})
	if err != nil {
		return nil, err
	}
	return append(w.out, "]}"...), nil
}

// What a scope was called before OTLP 0.15.
const (
	library      = "instrumentationLibrary"
	librarySnake = "instrumentation_library"
)

// hasLibraries reports whether a request may have names from before OTLP 0.15, at which pdata's JSON
// decoder passes over the items.
func hasLibraries(body []byte) bool {
	return bytes.Contains(body, []byte(`"`+library)) || bytes.Contains(body, []byte(`"`+librarySnake))
}

type jsonSplit struct {
	p        *payload
	names    names
	out      []byte
	one      []byte // scratch: a request of one item
	position int64
	resOK    bool // the resource at hand decodes
	scopeOK  bool
}

// list calls f for every object of an array; null stands for nothing.
func (w *jsonSplit) list(key string, value []byte, f func([]byte) error) error {
	if string(value) == "null" {
		return nil
	}
	if value[0] != '[' {
		return fmt.Errorf("%s is not an array", key)
	}
	return eachElement(value, 0, func(el []byte) error {
		if string(el) == "null" {
			return nil
		}
		if el[0] != '{' {
			return fmt.Errorf("%s holds something that is not an object", key)
		}
		return f(el)
	})
}

// comma separates array elements of the output.
func (w *jsonSplit) comma() {
	if w.out[len(w.out)-1] != '[' {
		w.out = append(w.out, ',')
	}
}

// level writes an object of one of the two upper levels: first the members of its own, if they decode, then the array
// of the level below.
func (w *jsonSplit) level(el []byte, camel, snake, before, after string, below func([]byte) error) error {
	own := []byte("{")
	var lists, libraries [][]byte
	deep := false
	err := eachMember(el, 0, func(key string, raw, value []byte) error {
		switch {
		case key == camel || key == snake:
			lists = append(lists, value)
		case camel == w.names.scope && (key == w.names.library || key == w.names.librarySnake):
			libraries = append(libraries, value)
		case key == "" || string(value) == "null" || string(value) == "NaN":
		default:
			if _, f, err := scanJSON(value, 0); err != nil || f.depth > maxJSONDepth {
				deep = true
				return nil
			}
			if camel == w.names.item && (key == library || key == librarySnake) {
				raw = []byte(`"scope"`)
			}
			if len(own) > 1 {
				own = append(own, ',')
			}
			own = append(append(scrub(own, raw), ':'), scrub(nil, value)...)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if len(lists) == 0 { // as of protobuf
		lists = libraries
	}
	w.one = append(append(append(append(w.one[:0], before...), own...), '}'), after...)
	ok := !deep && try(w.p.sig, jsonText, w.one) == nil
	w.comma()
	if !ok {
		own = own[:1]
	}
	w.out = append(w.out, own...)
	if len(own) > 1 {
		w.out = append(w.out, ',')
	}
	w.out = append(w.out, `"`+camel+`":[`...)
	switch camel {
	case w.names.scope:
		w.resOK = ok
	case w.names.item:
		w.scopeOK = ok
	}
	for _, l := range lists {
		if camel == w.names.item {
			err = w.items(l)
		} else {
			err = w.list(camel, l, below)
		}
		if err != nil {
			return err
		}
	}
	w.out = append(w.out, "]}"...)
	return nil
}

func (w *jsonSplit) resource(el []byte) error {
	return w.level(el, w.names.scope, w.names.scopeSnake, `{"`+w.names.resource+`":[`, `]}`, w.scope)
}

func (w *jsonSplit) scope(el []byte) error {
	return w.level(el, w.names.item, w.names.itemSnake,
		`{"`+w.names.resource+`":[{"`+w.names.scope+`":[`, `]}]}`, nil)
}

// items writes the items of one array that decode, and counts the others.
func (w *jsonSplit) items(value []byte) error {
	if string(value) == "null" {
		return nil
	}
	if value[0] != '[' {
		return fmt.Errorf("%s is not an array", w.names.item)
	}
	before := `{"` + w.names.resource + `":[{"` + w.names.scope + `":[{"` + w.names.item + `":[`
	return eachElement(value, 0, func(el []byte) error {
		w.position++
		_, facts, err := scanJSON(el, 0)
		if err != nil {
			return err
		}
		switch {
		case !w.resOK || !w.scopeOK:
			w.p.rejects.add(reasonContainer, w.position, "")
			return nil
		case facts.depth > maxJSONDepth:
			w.p.rejects.add(reasonNested, w.position, "")
			return nil
		case string(el) != "null" && el[0] != '{':
			w.p.rejects.add(reasonUndecodable, w.position, "not an object")
			return nil
		}
		w.one = append(w.one[:0], before...)
		start := len(w.one)
		w.one = scrub(w.one, el)
		end := len(w.one)
		w.one = append(w.one, `]}]}]}`...)
		if err := try(w.p.sig, jsonText, w.one); err != nil {
			why, detail := jsonBlame(w.p.sig, el, err)
			if w.p.rejects.n[why] > 0 {
				detail = "" // only the first is told
			} else if detail != "" {
				detail = w.culprit(before, el) + detail
			}
			w.p.rejects.add(why, w.position, detail)
			return nil
		}
		w.comma()
		w.out = append(w.out, w.one[start:end]...)
		w.p.kept = append(w.p.kept, w.position)
		return nil
	})
}

// culprit names the first member of an item that does not decode by itself, or its attribute.
func (w *jsonSplit) culprit(before string, el []byte) (name string) {
	if el[0] != '{' {
		return ""
	}
	found := errors.New("found")
	decodes := func(item string) bool {
		w.one = append(scrub(append(w.one[:0], before...), []byte(item)), `]}]}]}`...)
		return try(w.p.sig, jsonText, w.one) == nil
	}
	_ = eachMember(el, 0, func(key string, raw, value []byte) error {
		if decodes(`{` + string(raw) + `:` + string(value) + `}`) {
			return nil
		}
		name = truncate(key, 64) + ": "
		if key == "attributes" && value[0] == '[' {
			_ = eachElement(value, 0, func(attr []byte) error {
				if attr[0] != '{' || decodes(`{"attributes":[`+string(attr)+`]}`) {
					return nil
				}
				return eachMember(attr, 0, func(key string, _, value []byte) error {
					var s string
					if key != "key" || json.Unmarshal(value, &s) != nil {
						return nil
					}
					name = "attribute " + truncate(s, 64) + ": "
					return found
				})
			})
		}
		return found
	})
	return name
}

// jsonBlame says what is wrong with an item that pdata refused.
func jsonBlame(sig signal, el []byte, err error) (reason, string) {
	why := reasonUndecodable
	if sig == traces && el[0] == '{' {
		_ = eachMember(el, 0, func(key string, _, value []byte) error {
			switch key {
			case "traceId", "trace_id":
				if !isHexID(value, 16) {
					why = reasonTraceID
				}
			case "spanId", "span_id":
				if why == reasonUndecodable && !isHexID(value, 8) {
					why = reasonSpanID
				}
			case "parentSpanId", "parent_span_id":
				if why == reasonUndecodable && !isHexID(value, 8) {
					why = reasonParentID
				}
			}
			return nil
		})
	}
	if why != reasonUndecodable {
		return why, ""
	}
	return why, err.Error()
}

// isHexID reports whether a JSON value is an id of n bytes in hex, or absent.
func isHexID(value []byte, n int) bool {
	if string(value) == `""` || string(value) == "null" {
		return true
	}
	if len(value) != 2*n+2 || value[0] != '"' {
		return false
	}
	var id [16]byte
	_, err := hex.Decode(id[:n], value[1:len(value)-1])
	return err == nil
}

package openapi

import (
	"encoding"
	"encoding/json"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"
)

// Schema is a JSON schema of the dialect 2020-12.
type Schema = map[string]any

// Fields are those of an object by name. The name of one that may be missing ends
// with "?". A value is a Schema, Named, Fields or of the Go type.
type Fields map[string]any

// Named is a schema that the document has once, under its name.
type Named struct {
	Name   string
	Schema Schema
}

// Ref refers to a Named schema, or a Go type's.
func Ref(name string) Schema { return Schema{"$ref": "#/components/schemas/" + name} }

// Object has these fields and no others: the document is that of this very version.
func Object(f Fields) Schema {
	fields, required := Schema{}, []string{}
	for name, v := range f {
		bare := strings.TrimSuffix(name, "?")
		fields[bare] = v
		if bare == name {
			required = append(required, bare)
		}
	}
	return object(fields, required)
}

func object(fields Schema, required []string) Schema {
	s := Schema{"type": "object", "properties": fields, "additionalProperties": false}
	if len(required) > 0 {
		slices.Sort(required)
		s["required"] = required
	}
	return s
}

// String is a text. about may be "".
func String(about string) Schema { return Text(Schema{}, about) }

// Text is a string that s narrows further.
func Text(s Schema, about string) Schema {
	out := Schema{"type": "string"}
	for k, v := range s {
		out[k] = v
	}
	if about != "" {
		out["description"] = about
	}
	return out
}

// Enum is one of some words.
func Enum(words ...string) Schema { return Schema{"type": "string", "enum": words} }

// Integer is a whole number, both bounds included.
func Integer(least, most int64) Schema {
	return Schema{"type": "integer", "minimum": least, "maximum": most}
}

// Number is a float.
func Number() Schema { return Schema{"type": "number"} }

// Bool is true or false.
func Bool() Schema { return Schema{"type": "boolean"} }

// Array has items of a schema or Go type.
func Array(of any) Schema { return Schema{"type": "array", "items": of} }

// Map is an object with any names.
func Map(of any) Schema { return Schema{"type": "object", "additionalProperties": of} }

// AnyOf is one or more of these.
func AnyOf(of ...any) Schema { return Schema{"anyOf": of} }

// Nullable allows null as well; s has one type.
func Nullable(s Schema) Schema {
	out := Schema{}
	for k, v := range s {
		out[k] = v
	}
	out["type"] = []string{s["type"].(string), "null"}
	if words, ok := s["enum"].([]string); ok {
		list := []any{nil}
		for _, w := range words {
			list = append(list, w)
		}
		out["enum"] = list
	}
	return out
}

// Time is RFC 3339.
func Time() Schema { return Schema{"type": "string", "format": "date-time"} }

// USD is an exact amount of money, down to 1e-12 USD.
func USD() Schema {
	return Schema{"type": "string", "format": "decimal", "pattern": `^-?[0-9]+(\.[0-9]{1,12})?$`, "description": "USD, an exact decimal."}
}

// Input is the body that decodes into v: every field may be missing or null, which is
// the same, but the required ones. narrow replaces the schemas of fields, by name.
func Input(v any, narrow Fields, required ...string) *Body {
	s := input(reflect.TypeOf(v))
	fields := s["properties"].(Schema)
	for name, f := range narrow {
		must(fields[name] != nil, "%T has no field %q", v, name)
		n := f.(Schema)
		if !slices.Contains(required, name) {
			n = Nullable(n)
		}
		fields[name] = n
	}
	if len(required) > 0 {
		for _, name := range required {
			must(fields[name] != nil, "%T has no field %q", v, name)
			if types, ok := fields[name].(Schema)["type"].([]string); ok {
				fields[name].(Schema)["type"] = types[0]
			}
		}
		s["required"] = required
	}
	return &Body{Required: len(required) > 0, Schema: s}
}

func input(t reflect.Type) Schema {
	switch {
	case t.Kind() == reflect.Struct && t != timeType:
		fields := Schema{}
		for _, f := range fieldsOf(t) {
			fields[f.name] = Nullable(input(f.typ))
		}
		return object(fields, nil)
	case t.Kind() == reflect.Slice:
		return Array(input(t.Elem()))
	case t.Kind() == reflect.Map:
		return Map(input(t.Elem()))
	}
	return plain(t)
}

var (
	timeType      = reflect.TypeFor[time.Time]()
	durationType  = reflect.TypeFor[time.Duration]()
	jsonMarshaler = reflect.TypeFor[json.Marshaler]()
	textMarshaler = reflect.TypeFor[encoding.TextMarshaler]()
)

// plain is the schema of a type that has no parts.
func plain(t reflect.Type) Schema {
	if t.Kind() == reflect.Pointer { // what is left out is not the same as empty
		t = t.Elem()
	}
	switch {
	case t == timeType:
		return Time()
	case t == durationType:
		return Schema{"type": "integer", "description": "Nanoseconds."}
	case t.Implements(jsonMarshaler), t.Implements(textMarshaler):
		panic("BUG: openapi: " + t.String() + " writes its own JSON; tell its schema")
	}
	switch t.Kind() {
	case reflect.String:
		return Schema{"type": "string"}
	case reflect.Bool:
		return Bool()
	case reflect.Int, reflect.Int64:
		return Integer(math.MinInt64, math.MaxInt64)
	case reflect.Uint, reflect.Uint64:
		return Schema{"type": "integer", "minimum": 0, "maximum": uint64(math.MaxUint64)}
	case reflect.Float64:
		return Number()
	}
	panic("BUG: openapi: what JSON has " + t.String() + "?")
}

// field is a field of a struct as encoding/json sees it.
type field struct {
	name     string
	typ      reflect.Type
	optional bool
}

func fieldsOf(t reflect.Type) (out []field) {
	for _, f := range reflect.VisibleFields(t) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "-" || !f.IsExported() || f.Anonymous && name == "" {
			continue
		}
		if name == "" {
			name = f.Name
		}
		out = append(out, field{name, f.Type, strings.Contains(options, "omitempty") || strings.Contains(options, "omitzero")})
	}
	return out
}

// Package openapi makes the OpenAPI 3.1 document of the HTTP API from the tables that
// the routes are mounted from.
//
// It guarantees that the document names a route, a parameter or a field of a Go type
// exactly as the program has it, since it is made from the same values. It refuses,
// with a panic at the start, what would make a wrong document: an operation that is
// there twice, a path parameter that nobody describes, a type whose JSON it does not
// know. It knows nothing of what is served: each package describes its own routes.
package openapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Route is one operation as a router has it and as the document tells it.
type Route struct {
	Method string
	Path   string // the router's: /api/v1/leases/:lease/settle, /api/v1/runs/*id
	Tag    string
	About  string // a sentence, then perhaps more
	// Roles of keys that are served, beside admin. Open routes need no key.
	Roles []string
	Open  bool
	Basic bool // the key may also come as the password of Basic authentication

	Params []Param
	Body   *Body
	// Answers by status; with none of them below 300, 200 is the JSON of OK.
	OK      any
	Answers map[int]Answer
	Fails   []int // statuses answered as problem+json
}

// Names are those of the query parameters.
func (r *Route) Names() []string {
	var out []string
	for _, p := range r.Params {
		if p.In == "" {
			out = append(out, p.Name)
		}
	}
	return out
}

// Param is a parameter of a request.
type Param struct {
	Name     string
	In       string // path or header; "" is the query
	About    string
	Required bool
	Many     bool // it may be given several times; else an array is separated by commas
	Schema   Schema
}

// Body is what a request carries.
type Body struct {
	Type     string // "" is application/json
	Required bool
	Schema   Schema
}

// Answer is one answer of an operation that is no failure.
type Answer struct {
	About   string
	Content map[string]any // by content type; a Schema or a value of the Go type
	Headers map[string]Header
}

// Header is a header of an answer.
type Header struct {
	About  string
	Schema Schema
}

// Info is what the document says of the whole.
type Info struct {
	Title, About, Version string
	Keys                  string // how a key is sent and what it may do
	Tags                  [][2]string
}

// Document is the document in JSON. types are the schemas of Go types that write their
// own JSON.
func Document(info Info, types map[reflect.Type]Schema, routes []Route) []byte {
	d := &document{types: types, names: map[string]reflect.Type{}, schemas: map[string]any{"Problem": problem}}
	paths := map[string]map[string]any{}
	for i := range routes {
		r := &routes[i]
		path := pathOf(r.Path)
		if paths[path] == nil {
			paths[path] = map[string]any{}
		}
		method := strings.ToLower(r.Method)
		if paths[path][method] != nil {
			panic("BUG: openapi: " + r.Method + " " + r.Path + " is there twice")
		}
		paths[path][method] = d.operation(r)
	}
	tags := []any{}
	for _, t := range info.Tags {
		tags = append(tags, Schema{"name": t[0], "description": t[1]})
	}
	out, err := json.Marshal(Schema{
		"openapi": "3.1.0", "jsonSchemaDialect": "https://json-schema.org/draft/2020-12/schema",
		"info": Schema{"title": info.Title, "description": info.About, "version": info.Version, "license": Schema{"name": "Apache-2.0", "identifier": "Apache-2.0"}},
		"tags": tags, "paths": paths,
		"components": Schema{"schemas": d.schemas, "securitySchemes": Schema{
			"bearer": Schema{"type": "http", "scheme": "bearer", "description": info.Keys},
			"basic":  Schema{"type": "http", "scheme": "basic", "description": "A key as the password, with any user."},
		}},
	})
	if err != nil {
		panic("BUG: openapi: " + err.Error())
	}
	return out
}

// problem is RFC 9457's, as every failure is answered.
var problem = Schema{"type": "object", "description": "Why a request failed and what to do, RFC 9457.", "required": []string{"status", "title", "detail"}, "properties": Schema{
	"status": Schema{"type": "integer", "minimum": 400, "maximum": 599}, "title": String("The status in words."), "detail": String("What is wrong, and what to do about it."),
}}

// pathOf is a router's path with its parameters in braces.
func pathOf(path string) string {
	parts := strings.Split(path, "/")
	for i, p := range parts {
		if p != "" && (p[0] == ':' || p[0] == '*') {
			parts[i] = "{" + p[1:] + "}"
		}
	}
	return strings.Join(parts, "/")
}

// operationID is a name for generated clients: getGuardsLive, postLeasesSettle.
func operationID(r *Route) string {
	id := strings.ToLower(r.Method)
	for _, p := range strings.FieldsFunc(strings.TrimPrefix(r.Path, "/api/v1"), func(c rune) bool { return c == '/' || c == '.' || c == '_' }) {
		switch p[0] {
		case '*': // one of what the path lists
			id += "One"
		case ':':
		default:
			id += strings.ToUpper(p[:1]) + p[1:]
		}
	}
	return id
}

type document struct {
	types   map[reflect.Type]Schema
	names   map[string]reflect.Type
	schemas map[string]any
}

func (d *document) operation(r *Route) Schema {
	summary, _, _ := strings.Cut(r.About, ". ")
	about := r.About
	op := Schema{"operationId": operationID(r), "tags": []string{r.Tag}, "summary": strings.TrimSuffix(summary, ".")}
	if r.Open {
		op["security"] = []any{}
	} else {
		roles := append(slices.Clone(r.Roles), "admin")
		slices.Sort(roles)
		about += " Needs a key with role " + strings.Join(roles, " or ") + "."
		security := []any{Schema{"bearer": roles}}
		if r.Basic {
			security = append(security, Schema{"basic": roles})
		}
		op["security"] = security
	}
	op["description"] = about
	params, named := []any{}, map[string]bool{}
	for _, p := range r.Params {
		in := p.In
		if in == "" {
			in = "query"
		}
		m := Schema{"name": p.Name, "in": in, "description": p.About, "schema": d.of(p.Schema)}
		if p.Required || in == "path" {
			m["required"] = true
		}
		if in == "query" && p.Schema["type"] == "array" {
			m["style"], m["explode"] = "form", p.Many
		}
		named[in+" "+p.Name] = true
		params = append(params, m)
	}
	for _, part := range strings.Split(r.Path, "/") {
		if part != "" && (part[0] == ':' || part[0] == '*') && !named["path "+part[1:]] {
			panic("BUG: openapi: nobody describes " + part + " of " + r.Path)
		}
	}
	op["parameters"] = params
	if b := r.Body; b != nil {
		typ := b.Type
		if typ == "" {
			typ = "application/json"
		}
		op["requestBody"] = Schema{"required": b.Required, "content": Schema{typ: Schema{"schema": d.of(b.Schema)}}}
	}
	answers := Schema{}
	if r.OK != nil {
		answers["200"] = d.answer(Answer{About: "The answer.", Content: map[string]any{"application/json": r.OK}})
	}
	for status, a := range r.Answers {
		answers[strconv.Itoa(status)] = d.answer(a)
	}
	fails := slices.Clone(r.Fails)
	if !r.Open {
		fails = append(fails, http.StatusUnauthorized, http.StatusForbidden)
	}
	for _, status := range fails {
		if answers[strconv.Itoa(status)] == nil {
			answers[strconv.Itoa(status)] = d.failure(status)
		}
	}
	op["responses"] = answers
	return op
}

func (d *document) answer(a Answer) Schema {
	out := Schema{"description": a.About}
	if len(a.Content) > 0 {
		content := Schema{}
		for typ, v := range a.Content {
			content[typ] = Schema{"schema": d.of(v)}
		}
		out["content"] = content
	}
	if len(a.Headers) > 0 {
		headers := Schema{}
		for name, h := range a.Headers {
			headers[name] = Schema{"description": h.About, "schema": h.Schema}
		}
		out["headers"] = headers
	}
	return out
}

func (d *document) failure(status int) Schema {
	a := Answer{About: http.StatusText(status) + ".", Content: map[string]any{"application/problem+json": Ref("Problem")}}
	switch status {
	case http.StatusUnauthorized:
		a.Headers = map[string]Header{"WWW-Authenticate": {"How a key is sent.", Schema{"type": "string"}}}
	case http.StatusServiceUnavailable:
		a.Headers = map[string]Header{"Retry-After": {"Seconds after which to ask again.", Schema{"type": "integer", "minimum": 1}}}
	}
	return d.answer(a)
}

// of is the schema of a Schema, Fields, Named or Go value.
func (d *document) of(v any) any {
	switch v := v.(type) {
	case nil:
		return Schema{}
	case Named:
		if _, done := d.schemas[v.Name]; !done {
			d.schemas[v.Name] = nil // it may refer to itself
			d.schemas[v.Name] = d.of(v.Schema)
		}
		return Ref(v.Name)
	case Fields:
		return d.of(Object(v))
	case Schema:
		out := Schema{}
		for k, x := range v {
			switch k {
			case "properties":
				m := Schema{}
				for name, f := range x.(Schema) {
					m[name] = d.of(f)
				}
				out[k] = m
			case "items", "additionalProperties":
				if b, ok := x.(bool); ok {
					out[k] = b
				} else {
					out[k] = d.of(x)
				}
			case "anyOf":
				list := []any{}
				for _, a := range x.([]any) {
					list = append(list, d.of(a))
				}
				out[k] = list
			default:
				out[k] = x
			}
		}
		return out
	}
	return d.typeOf(reflect.TypeOf(v))
}

// typeOf is the schema of a Go type as encoding/json writes it. Structs are named.
func (d *document) typeOf(t reflect.Type) any {
	if s, ok := d.types[t]; ok {
		return s
	}
	switch t.Kind() {
	case reflect.Pointer:
		return d.typeOf(t.Elem())
	case reflect.Slice, reflect.Array:
		return Schema{"type": "array", "items": d.typeOf(t.Elem())}
	case reflect.Map:
		return Schema{"type": "object", "additionalProperties": d.typeOf(t.Elem())}
	case reflect.Struct:
		if t == timeType || t.Name() == "" {
			break
		}
		name := strings.ToUpper(t.Name()[:1]) + t.Name()[1:]
		if other := d.names[name]; other != nil && other != t {
			pkg := t.PkgPath()[strings.LastIndexByte(t.PkgPath(), '/')+1:]
			name = strings.ToUpper(pkg[:1]) + pkg[1:] + name
		}
		if d.names[name] == nil {
			d.names[name] = t
			fields := Schema{}
			var required []string
			for _, f := range fieldsOf(t) {
				fields[f.name] = d.typeOf(f.typ)
				if !f.optional {
					required = append(required, f.name)
				}
			}
			d.schemas[name] = object(fields, required)
		}
		return Ref(name)
	}
	return plain(t)
}

func must(ok bool, format string, args ...any) {
	if !ok {
		panic("BUG: openapi: " + fmt.Sprintf(format, args...))
	}
}

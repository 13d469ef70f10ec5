package openapi

import (
	"encoding/json"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"
)

type amount int

func (amount) MarshalJSON() ([]byte, error) { return []byte(`"1"`), nil }

type inner struct {
	A string   `json:"a"`
	B []string `json:"b,omitempty"`
}

type outer struct {
	inner
	Cost  amount           `json:"cost"`
	At    time.Time        `json:"at,omitzero"`
	Took  time.Duration    `json:"took_ns"`
	Parts map[string]inner `json:"parts"`
	Next  *outer           `json:"next,omitempty"`
	none  int
	Skip  int `json:"-"`
}

// made is a document of one route, and the part of it that a path of names leads to.
func made(t *testing.T, r Route, path ...string) any {
	t.Helper()
	r.Method = http.MethodPost
	var v any
	if err := json.Unmarshal(Document(Info{}, map[reflect.Type]Schema{reflect.TypeFor[amount](): USD()}, []Route{r}), &v); err != nil {
		t.Fatal(err)
	}
	for _, name := range path {
		m, ok := v.(map[string]any)
		if !ok || m[name] == nil {
			t.Fatalf("no %s of %v", name, path)
		}
		v = m[name]
	}
	return v
}

func same(t *testing.T, got any, want string) {
	t.Helper()
	b, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	var a, w any
	if json.Unmarshal(b, &a) != nil || json.Unmarshal([]byte(want), &w) != nil || !reflect.DeepEqual(a, w) {
		t.Errorf("got  %s\nwant %s", b, want)
	}
}

// TestTypes compares schemas with what encoding/json writes.
func TestTypes(t *testing.T) {
	r := Route{Path: "/x", About: "Does. More.", OK: Fields{"one": outer{}, "list?": []inner{}}}
	same(t, made(t, r, "components", "schemas", "Outer", "required"), `["a","cost","parts","took_ns"]`)
	same(t, made(t, r, "components", "schemas", "Outer", "properties", "parts"), `{"type":"object","additionalProperties":{"$ref":"#/components/schemas/Inner"}}`)
	same(t, made(t, r, "components", "schemas", "Outer", "properties", "next"), `{"$ref":"#/components/schemas/Outer"}`)
	same(t, made(t, r, "components", "schemas", "Outer", "properties", "at"), `{"type":"string","format":"date-time"}`)
	same(t, made(t, r, "components", "schemas", "Outer", "properties", "cost", "format"), `"decimal"`)
	same(t, made(t, r, "paths", "/x", "post", "responses", "200", "content", "application/json", "schema"),
		`{"type":"object","additionalProperties":false,"required":["one"],"properties":{"one":{"$ref":"#/components/schemas/Outer"},"list":{"type":"array","items":{"$ref":"#/components/schemas/Inner"}}}}`)
	same(t, made(t, r, "paths", "/x", "post", "summary"), `"Does"`)
	if m := made(t, r, "components", "schemas", "Outer", "properties").(map[string]any); len(m) != 7 {
		t.Errorf("%d fields: %v", len(m), m)
	}
}

func TestInput(t *testing.T) {
	b := Input(inner{}, Fields{"a": Enum("x", "y")}, "a")
	same(t, b.Schema, `{"type":"object","additionalProperties":false,"required":["a"],"properties":{"a":{"type":"string","enum":["x","y"]},"b":{"type":["array","null"],"items":{"type":"string"}}}}`)
	same(t, Input(inner{}, Fields{"a": Enum("x")}).Schema["properties"].(Schema)["a"], `{"type":["string","null"],"enum":[null,"x"]}`)
	if !b.Required || Input(inner{}, nil).Required {
		t.Error("a body is required where a field is")
	}
}

// TestRefused: what would be a wrong document is none.
func TestRefused(t *testing.T) {
	f := func(want string, make func()) {
		t.Helper()
		defer func() {
			if p, _ := recover().(string); !strings.Contains(p, want) {
				t.Errorf("panic %q, want %q", p, want)
			}
		}()
		make()
	}
	r := Route{Method: "GET", Path: "/x/:id", Params: []Param{{Name: "id", In: "path", Schema: String("")}}}
	Document(Info{}, nil, []Route{r})
	f("is there twice", func() { Document(Info{}, nil, []Route{r, r}) })
	f("nobody describes :id", func() { Document(Info{}, nil, []Route{{Method: "GET", Path: "/x/:id"}}) })
	f("writes its own JSON", func() { Document(Info{}, nil, []Route{{Method: "GET", Path: "/x", OK: outer{}}}) })
	f(`no field "c"`, func() { Input(inner{}, Fields{"c": Bool()}) })
	f(`no field "c"`, func() { Input(inner{}, nil, "c") })
}

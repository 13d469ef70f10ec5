package schema

import (
	"net/http/httptest"
	"strings"
	"testing"
)

func TestReadBody(t *testing.T) {
	type in struct {
		Name string
		List []struct{ N int }
		Any  map[string]any
	}
	ok := func(text, name string) {
		t.Helper()
		var v in
		if err := ReadBody(httptest.NewRecorder(), httptest.NewRequest("POST", "/", strings.NewReader(text)), &v); err != nil || v.Name != name {
			t.Errorf("%q: %q, %v", text, v.Name, err)
		}
	}
	ok("", "")
	ok(" \n", "")
	ok(`{}`, "")
	ok(` {"name":"x","list":[{"n":1},{}],"any":{"a":null}} `, "x")
	ok(`{"name":null,"list":null}`, "")
	bad := func(text, want string) {
		t.Helper()
		var v in
		err := ReadBody(httptest.NewRecorder(), httptest.NewRequest("POST", "/", strings.NewReader(text)), &v)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v, want %q", text, err, want)
		}
	}
	bad(`null`, "JSON object")
	bad(`[]`, "JSON object")
	bad(`"x"`, "JSON object")
	bad(`{"nmae":"x"}`, `unknown field "nmae"`)
	bad(`{"name":1}`, "number")
	bad(`{"name":"x"`, "EOF")
	bad(`{"name":"x"}{}`, "goes on")
	bad(`{"name":"x"} x`, "goes on")
	bad(`{"list":[{"n":1},null]}`, "null in a list")
	bad(`{"any":{"a":[{"b":[null]}]}}`, "null in a list")
	bad(`{"name":"`+strings.Repeat("x", bodyLimit)+`"}`, "too large")
}

package schema

import (
	"net/url"
	"testing"
)

func TestCheckParams(t *testing.T) {
	f := func(query, want string, names ...string) {
		t.Helper()
		q, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if err := CheckParams(q, names, "tenant"); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%q: %q, want %q", query, got, want)
		}
	}
	f("", "")
	f("a=1", `unknown parameter "a"; this takes none`)
	f("a=1", `unknown parameter "a"; known are b, c`, "c", "b", "b")
	f("b=1&b=2", `parameter "b" stands twice`, "b")
	f("tenant=1&tenant=2&user=&cursor=", "", "tenant", "user", "cursor")
	f("limit=", `parameter "limit" is empty; give it a value or leave it out`, "limit")
}

package schema

import (
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
)

func TestNewSecret(t *testing.T) {
	a, ah := NewSecret()
	b, _ := NewSecret()
	if a == b || !strings.HasPrefix(a, "fb_") || len(a) != 3+64 {
		t.Errorf("secrets %q and %q", a, b)
	}
	if ah != HashSecret(a) || len(ah) != 64 {
		t.Errorf("hash %q", ah)
	}
}

func TestKeyAllows(t *testing.T) {
	f := func(k Key, tenant string, want bool) {
		t.Helper()
		if got := k.Allows(tenant); got != want {
			t.Errorf("%+v allows %q: %v, want %v", k, tenant, got, want)
		}
	}
	f(Key{Tenant: "t-1"}, "t-1", true)
	f(Key{Tenant: "t-1"}, "t-2", false)
	f(Key{Tenant: "t-1"}, "", false)
	f(Key{Tenant: "t-1", Tenants: []string{"t-2"}}, "t-1", true)
	f(Key{Tenant: "t-1", Tenants: []string{"t-2"}}, "t-2", true)
	f(Key{Tenants: []string{"t-2", "t-3"}}, "t-4", false)
	f(Key{Tenants: []string{"*"}}, "any", true)
	f(Key{Tenants: []string{"*"}}, "", true)
	f(Key{Role: KeyIngest, Trusted: "gateway", Tenant: "t-1"}, "t-9", true)
	f(Key{Role: KeyIngest, Trusted: "gateway", Tenants: []string{"t-1"}}, "t-9", false)
	f(Key{Role: KeyAdmin, Trusted: "gateway", Tenant: "t-1"}, "t-9", false)
	f(Key{}, "", false)
}

func TestKeyringRefuses(t *testing.T) {
	hash := HashSecret("x")
	f := func(want string, keys ...Key) {
		t.Helper()
		_, err := NewKeyring(keys)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want it to contain %q", err, want)
		}
	}
	f(`entry 1 of keys`, Key{SHA256: hash, Role: KeyIngest, Tenant: "t"})
	f(`"a": sha256`, Key{Name: "a", SHA256: "fb_secret", Role: KeyIngest, Tenant: "t"})
	f(`"a": unknown role "reed"`, Key{Name: "a", SHA256: hash, Role: "reed", Tenant: "t"})
	f(`"a": unknown trusted`, Key{Name: "a", SHA256: hash, Role: KeyIngest, Tenant: "t", Trusted: "yes"})
	f(`"a": no tenant`, Key{Name: "a", SHA256: hash, Role: KeyRead})
	f(`"a": an ingest key`, Key{Name: "a", SHA256: hash, Role: KeyIngest, Tenants: []string{"t"}})
	f(`"a": tenant "*"`, Key{Name: "a", SHA256: hash, Role: KeyIngest, Tenant: "*"})
	f(`"b": the same secret as key "a"`, Key{Name: "a", SHA256: hash, Role: KeyRead, Tenant: "t"}, Key{Name: "b", SHA256: strings.ToUpper(hash), Role: KeyRead, Tenant: "t"})
	f(`"a": the name is used twice`, Key{Name: "a", SHA256: hash, Role: KeyRead, Tenant: "t"}, Key{Name: "a", SHA256: HashSecret("y"), Role: KeyRead, Tenant: "t"})
}

func TestKeyringLookup(t *testing.T) {
	now := time.Date(2026, 11, 29, 10, 0, 0, 0, time.UTC)
	ring, err := NewKeyring([]Key{
		{Name: "a", SHA256: strings.ToUpper(HashSecret("one")), Role: KeyIngest, Tenant: "t-1"},
		{Name: "b", SHA256: HashSecret("two"), Role: KeyAdmin, Tenants: []string{"*"}, Expires: now},
	})
	if err != nil {
		t.Fatal(err)
	}
	f := func(secret string, at time.Time, want string) {
		t.Helper()
		k, ok := ring.Lookup(secret, at)
		if ok != (want != "") || k.Name != want {
			t.Errorf("%q at %v: found %q %v, want %q", secret, at, k.Name, ok, want)
		}
	}
	f("one", now, "a")
	f("two", now.Add(-time.Nanosecond), "b")
	f("two", now, "")
	f("three", now, "")
	f("", now, "")
	f(HashSecret("one"), now, "")
	if _, ok := (*Keyring)(nil).Lookup("one", now); ok || (*Keyring)(nil).Len() != 0 {
		t.Error("the nil ring is not empty")
	}
}

func TestBearerToken(t *testing.T) {
	f := func(header, want string) {
		t.Helper()
		got, ok := BearerToken(header)
		if got != want || ok != (want != "") {
			t.Errorf("%q: %q %v, want %q", header, got, ok, want)
		}
	}
	f("Bearer abc", "abc")
	f("bearer  abc ", "abc")
	f("Bearer ", "")
	f("Bearer", "")
	f("Basic abc", "")
	f("", "")
}

func TestKeyYAML(t *testing.T) {
	var keys []Key
	const text = `
- {name: collector, sha256: "00", role: ingest, tenant: t-1, expires: 2027-01-01T00:00:00Z}
- {name: admin, sha256: "01", role: admin, tenants: "*"}
- {name: gw, sha256: "02", role: ingest, tenants: [a, b], trusted: gateway}
`
	if err := yaml.UnmarshalWithOptions([]byte(text), &keys, yaml.Strict()); err != nil {
		t.Fatal(err)
	}
	if k := keys[0]; k.Name != "collector" || k.Role != KeyIngest || k.Tenant != "t-1" || k.Expires.Year() != 2027 {
		t.Errorf("first key %+v", k)
	}
	if k := keys[1]; !k.AllowsAll() {
		t.Errorf("second key %+v", k)
	}
	if k := keys[2]; len(k.Tenants) != 2 || !k.IsTrusted() || !k.Allows("b") || k.Allows("c") {
		t.Errorf("third key %+v", k)
	}
}

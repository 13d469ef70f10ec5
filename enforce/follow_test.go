package enforce

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/flyball/flyball/schema"
)

// TestStillFollows: who follows has to have the same rights at each heartbeat: a key that
// was taken out, expired, or is for other tenants now, follows no longer.
func TestStillFollows(t *testing.T) {
	secret, hash := schema.NewSecret()
	key := schema.Key{Name: "gw", SHA256: hash, Role: schema.KeyLimiter, Tenant: "t-1"}
	f := func(what string, change func(k *schema.Key), want bool) {
		t.Helper()
		now := key
		change(&now)
		ring, err := schema.NewKeyring([]schema.Key{now, {Name: "other", SHA256: schema.HashSecret("x"), Role: schema.KeyRead, Tenant: "t-1"}})
		if err != nil {
			t.Fatal(err)
		}
		a := &api{keys: func() *schema.Keyring { return ring }}
		r := httptest.NewRequest(http.MethodGet, "/api/v1/directives/stream", nil)
		r.Header.Set("Authorization", "Bearer "+secret)
		if got := a.still(r, key); got != want {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	f("unchanged", func(*schema.Key) {}, true)
	f("another secret", func(k *schema.Key) { k.SHA256 = schema.HashSecret("y") }, false)
	f("expired", func(k *schema.Key) { k.Expires = time.Now().Add(-time.Second) }, false)
	f("another tenant", func(k *schema.Key) { k.Tenant = "t-2" }, false)
	f("another role", func(k *schema.Key) { k.Role = schema.KeyIngest }, false)
}

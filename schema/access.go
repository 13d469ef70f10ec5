package schema

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// AccessError says why a request was not served, and the HTTP status for it.
type AccessError struct {
	Status int
	Detail string
}

func (e AccessError) Error() string { return e.Detail }

// LocalKey is who asks where no keys are configured: this machine, which may do all.
var LocalKey = Key{Name: "local", Role: KeyAdmin, Tenants: TenantList{AllTenants}}

// Authenticate finds out who sends an HTTP request. Without keys only this machine
// is served, under a name of its own. The error is an AccessError.
func (r *Keyring) Authenticate(req *http.Request) (Key, error) {
	if r.Len() == 0 {
		// A page of another site that has its name resolved to this machine comes from
		// loopback too, but its Host is that name.
		if !Loopback(req.RemoteAddr) || !Loopback(req.Host) {
			return Key{}, AccessError{http.StatusUnauthorized, "no keys are configured, so only this machine is served, under localhost or its address"}
		}
		return LocalKey, nil
	}
	secret, ok := BearerToken(req.Header.Get("Authorization"))
	if !ok {
		return Key{}, AccessError{http.StatusUnauthorized, "send a key as Authorization: Bearer …"}
	}
	key, ok := r.Lookup(secret, time.Now())
	if !ok {
		return Key{}, AccessError{http.StatusUnauthorized, "unknown or expired key"}
	}
	return key, nil
}

// Require is Authenticate with one of the roles; admin has all. Without keys a request
// that changes something must be JSON or CSV and must not come from a page of another site.
func (r *Keyring) Require(req *http.Request, roles ...KeyRole) (Key, error) {
	key, err := r.Authenticate(req)
	if err == nil && r.Len() == 0 {
		err = ownPage(req)
	}
	if err != nil {
		return key, err
	}
	if key.Role != KeyAdmin && !slices.Contains(roles, key.Role) {
		want := "admin"
		for _, role := range roles {
			want = string(role) + " or " + want
		}
		return key, AccessError{http.StatusForbidden, fmt.Sprintf("key %s has role %s; this needs role %s", key.Name, key.Role, want)}
	}
	return key, nil
}

// ownPage refuses changes that a page of another site has a browser send.
func ownPage(req *http.Request) error {
	if req.Method == http.MethodGet || req.Method == http.MethodHead {
		return nil
	}
	if o := req.Header.Get("Origin"); o != "" {
		if u, err := url.Parse(o); err != nil || u.Host != req.Host {
			return AccessError{http.StatusForbidden, "changes are not taken from the origin " + o}
		}
	}
	// Neither is what a form of another site can send without asking first.
	if typ := req.Header.Get("Content-Type"); !strings.HasPrefix(typ, "application/json") && !strings.HasPrefix(typ, "text/csv") {
		return AccessError{http.StatusUnsupportedMediaType, "send Content-Type: application/json, or text/csv for a CSV file"}
	}
	return nil
}

// Loopback reports whether an address, or the host of a URL, is this machine's own.
func Loopback(addr string) bool {
	host := addr
	if h, _, err := net.SplitHostPort(addr); err == nil {
		host = h
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback() || strings.EqualFold(host, "localhost")
}

package schema

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// SecretPrefix starts every secret that NewSecret makes, so that secret scanners can tell one.
const SecretPrefix = "fb_"

// TrustedGateway is the value of Key.Trusted for a gateway that may name tenant, user and cost of others' spans. The list
// Key.Tenants bounds which tenants; without one it is any.
const TrustedGateway = "gateway"

// AllTenants is the entry of Key.Tenants that stands for every tenant.
const AllTenants = "*"

// KeyRole says what the holder of a key may do.
type KeyRole string

// The roles. An admin key may do everything that the others may, for its tenants.
const (
	KeyIngest  KeyRole = "ingest"  // send telemetry
	KeyRead    KeyRole = "read"    // read spend, runs, guards
	KeyLimiter KeyRole = "limiter" // follow directives, check, reserve, settle, acknowledge
	KeyAdmin   KeyRole = "admin"   // all of the above, and change state
)

// TenantList is a list of tenant ids. In YAML and JSON it may also be one string, so that `tenants: "*"` reads well.
type TenantList []string

// UnmarshalYAML accepts a string or a list of strings.
func (l *TenantList) UnmarshalYAML(unmarshal func(any) error) error {
	var list []string
	if err := unmarshal(&list); err == nil {
		*l = list
		return nil
	}
	var one string
	if err := unmarshal(&one); err != nil {
		return fmt.Errorf("read tenants: want a list or %q: %w", AllTenants, err)
	}
	*l = nil
	if one != "" {
		*l = TenantList{one}
	}
	return nil
}

// Key is one credential of the configuration. It holds the hash of the secret, never the secret.
type Key struct {
	// Name says whose key it is; it appears in logs, audit entries and errors.
	Name string `yaml:"name" json:"name"`
	// SHA256 is the hash of the whole secret, prefix included, as 64 hex digits of any case.
	SHA256 string  `yaml:"sha256" json:"-"`
	Role   KeyRole `yaml:"role" json:"role"`
	// Tenant is what the key's spans belong to. Where the key leaves the tenant to its sender (NamesTenants) it is that of
	// spans which name none; readers see it too.
	Tenant string `yaml:"tenant,omitempty" json:"tenant,omitempty"`
	// Tenants are further tenants the key may act for; "*" is all.
	Tenants TenantList `yaml:"tenants,omitempty" json:"tenants,omitempty"`
	// Trusted is "" or "gateway".
	Trusted string `yaml:"trusted,omitempty" json:"trusted,omitempty"`
	// Bind fixes identity dimensions of everything the key sends or asks about, whatever
	// the sender says: user, feature, workflow, workflow_version, agent, mode, environment.
	Bind map[string]string `yaml:"bind,omitempty" json:"bind,omitempty"`
	// Expires is the first instant at which the key no longer works; zero means never.
	Expires time.Time `yaml:"expires,omitempty" json:"expires,omitzero"`
}

// NamesTenants reports whether each span that the key sends may name its tenant, by an attribute: the key has a list of
// tenants, or is a trusted gateway's ingest key, which may name any. All that another key sends is its own tenant's.
func (k Key) NamesTenants() bool {
	return len(k.Tenants) > 0 || k.Trusted == TrustedGateway && k.Role == KeyIngest
}

// Allows reports whether the key may act for the tenant: its own, a listed one, or any if the list has "*".
// A trusted gateway's ingest key without a list may send for any tenant: naming tenants is what it is trusted with.
// The empty tenant is no tenant and is refused to all but "*".
func (k Key) Allows(tenant string) bool {
	if slices.Contains(k.Tenants, AllTenants) {
		return true
	}
	if tenant == "" {
		return false
	}
	if k.Tenant == tenant || slices.Contains(k.Tenants, tenant) {
		return true
	}
	return len(k.Tenants) == 0 && k.NamesTenants()
}

// AllowsAll reports whether the key may act for every tenant, which org-wide actions (the kill switch) require.
func (k Key) AllowsAll() bool { return slices.Contains(k.Tenants, AllTenants) }

// Bound puts what the key fixes into an identity.
func (k Key) Bound(id *Identity) {
	for name, value := range k.Bind {
		if i := slices.Index(Dims[:], name); i >= 0 {
			id[i] = value
		}
	}
}

// MaySend reports whether the key's role may send telemetry.
func (k Key) MaySend() bool { return k.Role == KeyIngest || k.Role == KeyAdmin }

// Expired reports whether the key no longer works at the instant now.
func (k Key) Expired(now time.Time) bool { return !k.Expires.IsZero() && !now.Before(k.Expires) }

// IsTrusted reports whether identity and cost claims in the key's spans are believed.
func (k Key) IsTrusted() bool { return k.Trusted == TrustedGateway }

// Validate checks one key; the error names it. An expired key is valid: it is refused when it is used.
func (k Key) Validate() error {
	if k.Name == "" {
		return errors.New("check key: name is empty: give every key a name of its own")
	}
	if digest, err := hex.DecodeString(k.SHA256); err != nil || len(digest) != sha256.Size {
		return fmt.Errorf("check key %q: sha256 is not 64 hex digits: make one with `flyball key new`", k.Name)
	}
	switch k.Role {
	case KeyIngest, KeyRead, KeyLimiter, KeyAdmin:
	default:
		return fmt.Errorf("check key %q: unknown role %q: want ingest, read, limiter or admin", k.Name, k.Role)
	}
	if k.Trusted != "" && k.Trusted != TrustedGateway {
		return fmt.Errorf("check key %q: unknown trusted %q: want %q or nothing", k.Name, k.Trusted, TrustedGateway)
	}
	for name, value := range k.Bind {
		if i := slices.Index(Dims[:], name); i < 0 || Dim(i) == Run || Dim(i) == Session || Dim(i) == Criticality {
			return fmt.Errorf("check key %q: bind %q: want user, feature, workflow, workflow_version, agent, mode or environment", k.Name, name)
		}
		if value == "" || len(value) > 256 {
			return fmt.Errorf("check key %q: bind %s: want 1 to 256 bytes", k.Name, name)
		}
	}
	if k.Tenant == AllTenants {
		return fmt.Errorf("check key %q: tenant %q names no tenant: write tenants: %q", k.Name, AllTenants, AllTenants)
	}
	if slices.Contains(k.Tenants, "") {
		return fmt.Errorf("check key %q: tenants has an empty entry", k.Name)
	}
	if k.Tenant == "" && !k.NamesTenants() {
		return fmt.Errorf("check key %q: no tenant: set tenant, or tenants to a list or %q", k.Name, AllTenants)
	}
	if k.Tenant == "" && k.Trusted == "" && k.Role == KeyIngest {
		return fmt.Errorf("check key %q: an ingest key that is not trusted needs tenant: its spans have no other", k.Name)
	}
	return nil
}

// Keyring is an immutable set of keys. The nil Keyring is empty. A reload makes a new one.
type Keyring struct {
	keys    []Key
	digests [][sha256.Size]byte
}

// NewKeyring checks the keys and copies them. The error joins all faults, each naming its key.
func NewKeyring(keys []Key) (*Keyring, error) {
	r := &Keyring{}
	var errs []error
	names := make(map[string]bool, len(keys))
	owner := make(map[[sha256.Size]byte]string, len(keys))
	for i, k := range keys {
		if err := k.Validate(); err != nil {
			if k.Name == "" {
				err = fmt.Errorf("entry %d of keys: %w", i+1, err)
			}
			errs = append(errs, err)
			continue
		}
		var digest [sha256.Size]byte
		if _, err := hex.Decode(digest[:], []byte(k.SHA256)); err != nil {
			errs = append(errs, fmt.Errorf("check key %q: read sha256: %w", k.Name, err))
			continue
		}
		if names[k.Name] {
			errs = append(errs, fmt.Errorf("check key %q: the name is used twice", k.Name))
		}
		if other, ok := owner[digest]; ok {
			errs = append(errs, fmt.Errorf("check key %q: the same secret as key %q", k.Name, other))
		}
		names[k.Name] = true
		owner[digest] = k.Name
		k.SHA256 = strings.ToLower(k.SHA256)
		k.Tenants = slices.Clone(k.Tenants)
		r.keys = append(r.keys, k)
		r.digests = append(r.digests, digest)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return r, nil
}

// Len is the number of keys, expired ones included.
func (r *Keyring) Len() int {
	if r == nil {
		return 0
	}
	return len(r.keys)
}

// Named finds a key by its name, without a secret: for who authenticated it before.
func (r *Keyring) Named(name string) (Key, bool) {
	if r != nil {
		for i := range r.keys {
			if r.keys[i].Name == name {
				return r.keys[i], true
			}
		}
	}
	return Key{}, false
}

// Keys returns a copy of the keys in the order of the configuration.
func (r *Keyring) Keys() []Key {
	if r == nil {
		return nil
	}
	return slices.Clone(r.keys)
}

// Lookup finds the key whose secret was presented and which has not expired at now. It compares the hash with every
// key in constant time and never stops early, so that its duration tells nothing about which key, if any, matched.
func (r *Keyring) Lookup(secret string, now time.Time) (Key, bool) {
	if r == nil {
		return Key{}, false
	}
	digest := sha256.Sum256([]byte(secret))
	found := -1
	for i := range r.digests {
		found = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(digest[:], r.digests[i][:]), i, found)
	}
	if found < 0 || secret == "" || r.keys[found].Expired(now) {
		return Key{}, false
	}
	return r.keys[found], true
}

// BearerToken reads the secret out of an Authorization header's value. The scheme is matched without case (RFC 9110).
func BearerToken(header string) (secret string, ok bool) {
	const scheme = "bearer "
	if len(header) <= len(scheme) || !strings.EqualFold(header[:len(scheme)], scheme) {
		return "", false
	}
	secret = strings.TrimSpace(header[len(scheme):])
	return secret, secret != ""
}

// NewSecret makes a secret of 32 random bytes in hex behind the prefix fb_, and the hash that goes into a Key.
// The secret cannot be had again from the hash: print it once.
func NewSecret() (secret, sha256hex string) {
	var raw [32]byte
	if _, err := rand.Read(raw[:]); err != nil {
		panic("BUG: the system has no randomness: " + err.Error())
	}
	secret = SecretPrefix + hex.EncodeToString(raw[:])
	return secret, HashSecret(secret)
}

// HashSecret is the lower-case hex SHA-256 of a secret, as Key.SHA256 holds it.
func HashSecret(secret string) string {
	digest := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(digest[:])
}

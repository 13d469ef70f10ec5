// Package directive is what guards tell limiters: the versioned set of
// directives, the question a limiter asks about a call, and the one rule that
// answers it.
//
// It guarantees that whoever holds the same set gives the same answer, since the
// service and every limiter use Set.Decide. It depends on the standard library
// alone, so that an agent that embeds a limiter gets nothing else with it. Money
// is a decimal string here: a limiter compares nothing, it obeys.
package directive

import (
	"encoding/json"
	"slices"
	"strconv"
	"time"
)

// Action is what a directive asks of limiters.
type Action string

// The actions, from the mildest to the most severe. Warn is advice; Throttle
// spaces calls; Downgrade changes the model; the others deny. Terminate and Halt
// never lapse by age, only by a later revision.
const (
	Warn      Action = "warn"
	Throttle  Action = "throttle"
	Downgrade Action = "downgrade"
	SoftBlock Action = "soft_block"
	Terminate Action = "terminate"
	Halt      Action = "halt"
)

// Actions are all actions, the mildest first.
var Actions = []Action{Warn, Throttle, Downgrade, SoftBlock, Terminate, Halt}

// Denies reports whether calls in scope are refused.
func (a Action) Denies() bool { return a == SoftBlock || a == Terminate || a == Halt }

// Lasting reports whether the action holds until a later revision lifts it,
// however old it is.
func (a Action) Lasting() bool { return a == Terminate || a == Halt }

// Severity orders actions: higher is more severe. Unknown actions are 0.
func (a Action) Severity() int { return slices.Index(Actions, a) + 1 }

// Dim is a dimension of a directive's scope.
type Dim uint8

// The dimensions. A scope without Tenant is the whole deployment's.
const (
	Tenant Dim = iota
	User
	Feature
	Workflow
	Agent
	Model
	Run
	NumDims
)

// DimNames are the names in policies, scopes and answers.
var DimNames = [NumDims]string{"tenant", "user", "feature", "workflow", "agent", "model", "run"}

// Criticalities, the most important first.
const (
	Critical   = "critical"
	Standard   = "standard"
	Background = "background"
)

// Scope is what a directive applies to: calls that have all these values. A value
// may be "", which is a call that does not say. Runs are the ids of one run, of
// which a call has to have any.
type Scope struct {
	Values map[string]string `json:"values,omitempty"` // by dimension, run excepted
	Runs   []string          `json:"runs,omitempty"`
}

// Window is the time over which the guard counts.
type Window struct {
	Kind  string    `json:"kind"`           // run, rolling, hour, day, week, month
	Start time.Time `json:"start,omitzero"` // of calendar windows
	End   time.Time `json:"end,omitzero"`   // exclusive
	Over  string    `json:"over,omitempty"` // of rolling windows: how long
	Zone  string    `json:"zone,omitempty"` // IANA
}

// Directive is one order to limiters.
type Directive struct {
	ID     string `json:"id"` // of guard, scope and window: a later version replaces it
	Guard  string `json:"guard"`
	Action Action `json:"action"`
	Scope  Scope  `json:"scope"`
	// Match are further conditions on the call, each with the values that meet it. What a
	// limiter does not know about a call counts as met.
	Match map[string][]string `json:"match,omitempty"`
	// Models maps what is asked for to what is to be used; for Downgrade. "*" stands for any other.
	Models map[string]string `json:"models,omitempty"`
	// Tier names the capability tier of a downgrade, for gateways that route by tier.
	Tier string `json:"tier,omitempty"`
	// IntervalMS is the time between two calls of a Throttle, 0 is none; Park lists
	// criticalities that wait until it is lifted.
	IntervalMS int64    `json:"interval_ms,omitempty"`
	Park       []string `json:"park,omitempty"`
	// Exempt lists criticalities that the directive does not apply to.
	Exempt  []string  `json:"exempt,omitempty"`
	Outcome string    `json:"outcome,omitempty"` // what the product should show
	Reason  string    `json:"reason"`
	Measure string    `json:"measure,omitempty"`
	Limit   string    `json:"limit,omitempty"`
	Spent   string    `json:"spent,omitempty"` // when it was issued
	Window  Window    `json:"window"`
	Issued  time.Time `json:"issued_at"`
	Expires time.Time `json:"expires_at,omitzero"` // zero: only a later revision ends it
}

// Kill is the state of the org's kill switch.
type Kill struct {
	On      bool      `json:"on"`
	Stage   int       `json:"stage"` // percent of runs that are admitted although it is on, 0 to 100
	Exempt  []string  `json:"exempt,omitempty"`
	Reason  string    `json:"reason,omitempty"`
	Actor   string    `json:"actor,omitempty"`
	Since   time.Time `json:"since,omitzero"`
	Outcome string    `json:"outcome,omitempty"`
	Drill   string    `json:"drill,omitempty"` // id of a drill that is under way; changes nothing for calls
}

// CriticalList says which calls are critical. Only the operator's lists can make
// a call critical; what a call claims can lower it, never raise it.
type CriticalList struct {
	Features  []string `json:"features,omitempty" yaml:"features"`
	Workflows []string `json:"workflows,omitempty" yaml:"workflows"`
	Keys      []string `json:"keys,omitempty" yaml:"keys"`
}

// WhenUnknown says per criticality what a limiter does that has no set or only a
// stale one: "open" admits, "closed" denies.
type WhenUnknown struct {
	Critical   string `json:"critical,omitempty" yaml:"critical"`
	Standard   string `json:"standard,omitempty" yaml:"standard"`
	Background string `json:"background,omitempty" yaml:"background"`
}

// Open reports whether calls of the criticality are admitted.
func (w WhenUnknown) Open(criticality string) bool {
	switch criticality {
	case Critical:
		return w.Critical != "closed"
	case Background:
		return w.Background == "open"
	}
	return w.Standard == "open"
}

// Version orders sets: epoch first, then revision.
type Version struct {
	Epoch    uint64 `json:"epoch"`
	Revision uint64 `json:"revision"`
}

// Less reports whether v is older than w.
func (v Version) Less(w Version) bool {
	return v.Epoch < w.Epoch || v.Epoch == w.Epoch && v.Revision < w.Revision
}

// String is epoch.revision.
func (v Version) String() string {
	return strconv.FormatUint(v.Epoch, 10) + "." + strconv.FormatUint(v.Revision, 10)
}

// ParseVersion reads what String writes.
func ParseVersion(s string) (Version, bool) {
	for i := range s {
		if s[i] == '.' {
			e, err := strconv.ParseUint(s[:i], 10, 64)
			r, err2 := strconv.ParseUint(s[i+1:], 10, 64)
			return Version{e, r}, err == nil && err2 == nil
		}
	}
	return Version{}, false
}

// State is a whole set as it travels: what holds at one version.
type State struct {
	Version
	// Token is the server's signature of the version. A limiter presents the last one
	// it saw when it connects, so that a server that was restored from an old copy
	// publishes above it.
	Token       string       `json:"token,omitempty"`
	GeneratedAt time.Time    `json:"generated_at"`
	ValidUntil  time.Time    `json:"valid_until"` // without news until then a limiter counts its set as stale
	Kill        Kill         `json:"kill"`
	Critical    CriticalList `json:"critical"`
	WhenUnknown WhenUnknown  `json:"when_unknown"`
	Digest      string       `json:"digest"` // of the directives, see Digest
	Directives  []Directive  `json:"directives"`
}

// Change is what turns one version into a later one.
type Change struct {
	Version
	Token       string        `json:"token,omitempty"`
	From        Version       `json:"from"`
	GeneratedAt time.Time     `json:"generated_at"`
	ValidUntil  time.Time     `json:"valid_until"`
	Kill        *Kill         `json:"kill,omitempty"`
	Critical    *CriticalList `json:"critical,omitempty"`
	WhenUnknown *WhenUnknown  `json:"when_unknown,omitempty"`
	Upsert      []Directive   `json:"upsert,omitempty"`
	Remove      []string      `json:"remove,omitempty"`
	Digest      string        `json:"digest"` // after the change
}

// Fingerprint is a hash of one directive, FNV-1a of its JSON. The digest of a set
// is the XOR of its directives' fingerprints, so that it can be kept up to date
// change by change.
func Fingerprint(d *Directive) uint64 {
	b, err := json.Marshal(d)
	if err != nil {
		panic("BUG: directive has no JSON: " + err.Error())
	}
	h := uint64(fnvOffset)
	for _, c := range b {
		h = (h ^ uint64(c)) * fnvPrime
	}
	return h
}

// FormatDigest is the digest as it stands in State and Change.
func FormatDigest(d uint64) string { return strconv.FormatUint(d, 16) }

const (
	fnvOffset = 14695981039346656037
	fnvPrime  = 1099511628211
)

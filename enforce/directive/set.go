package directive

import (
	"errors"
	"fmt"
	"hash/maphash"
	"math/bits"
	"slices"
	"strings"
	"sync"
	"time"
)

// Call is what a limiter knows about a call before it is made.
type Call struct {
	Tenant      string `json:"tenant"`
	User        string `json:"user"`
	Feature     string `json:"feature"`
	Workflow    string `json:"workflow"`
	Agent       string `json:"agent"`
	Model       string `json:"model"`
	RunID       string `json:"run_id"`
	TraceID     string `json:"trace_id"`
	SpanID      string `json:"span_id,omitempty"`
	Provider    string `json:"provider,omitempty"`
	Tool        string `json:"tool,omitempty"` // set for tool calls, which have no model
	Mode        string `json:"mode,omitempty"`
	Criticality string `json:"criticality,omitempty"` // a claim: it can lower, never raise
	Key         string `json:"key,omitempty"`         // name of the credential the call came with, where the limiter checked it
	// Most tokens the call may use; 0 is not known.
	InputTokens     uint64 `json:"input_tokens,omitempty"`
	MaxOutputTokens uint64 `json:"max_output_tokens,omitempty"`
}

// Bind puts what a credential fixes in place of what the call says; names that a call
// does not have are passed over.
func (c *Call) Bind(fixed map[string]string) {
	for name, value := range fixed {
		switch name {
		case "user":
			c.User = value
		case "feature":
			c.Feature = value
		case "workflow":
			c.Workflow = value
		case "agent":
			c.Agent = value
		case "mode":
			c.Mode = value
		}
	}
}

// value is the call's value of a dimension that is not Run.
func (c *Call) value(d Dim) string {
	switch d {
	case Tenant:
		return c.Tenant
	case User:
		return NormalUser(c.User)
	case Feature:
		return c.Feature
	case Workflow:
		return c.Workflow
	case Agent:
		return c.Agent
	case Model:
		return c.Model
	}
	return ""
}

// NormalUser is a user's id as accounts have it: without white space around it and
// in lower case, so that a changed spelling is no second allowance.
func NormalUser(id string) string {
	for i := range len(id) {
		if c := id[i]; c >= 'A' && c <= 'Z' || c >= 0x80 || c <= ' ' {
			return strings.ToLower(strings.TrimSpace(id))
		}
	}
	return id
}

// Verdict is the kind of a decision.
type Verdict uint8

// The verdicts.
const (
	Allow Verdict = iota
	Downgraded
	Wait
	Deny
)

var verdictNames = [...]string{"allow", "downgrade", "wait", "deny"}

func (v Verdict) String() string { return verdictNames[v] }

// MarshalText writes the name.
func (v Verdict) MarshalText() ([]byte, error) { return []byte(verdictNames[v]), nil }

// UnmarshalText reads a name.
func (v *Verdict) UnmarshalText(b []byte) error {
	i := slices.Index(verdictNames[:], string(b))
	if i < 0 {
		return fmt.Errorf("unknown verdict %q", b)
	}
	*v = Verdict(i)
	return nil
}

// Decision is the answer for one call. Directive is nil where none had a say.
type Decision struct {
	Verdict     Verdict
	Model       string // to use instead, if Downgraded
	Guard       string // "kill" for the kill switch
	Reason      string
	Outcome     string
	Directive   *Directive // shared: do not change
	Wait        time.Duration
	RetryAfter  time.Duration // of a denial that waiting cures, else 0
	Criticality string        // that was applied
	Version     Version
	Unknown     bool // decided without a set, or with a stale one: WhenUnknown has a say
}

// Status is the HTTP status of a denial: 429 only where waiting at most a minute
// cures it, 403 otherwise, so that no client library retries what stays denied.
func (d *Decision) Status() int {
	switch {
	case d.Verdict != Deny && d.Verdict != Wait:
		return 200
	case d.RetryAfter > 0 && d.RetryAfter <= time.Minute:
		return 429
	}
	return 403
}

// held is a directive with what matching needs of it.
type held struct {
	Directive
	print uint64
	mask  uint8
	vals  [NumDims]string
	conds []cond // Match, for walking
}

type cond struct {
	field  string
	values []string
}

// Set is a versioned set of directives and the rule that decides by it. It is
// safe for concurrent use: Decide runs beside Apply.
type Set struct {
	mu       sync.RWMutex // guards everything below
	version  Version
	token    string
	valid    time.Time
	kill     Kill
	critical CriticalList
	unknown  WhenUnknown
	digest   uint64
	known    bool
	byID     map[string]*held
	masks    []uint8 // that directives have, each once
	uses     [1 << NumDims]int
	index    map[uint64][]*held // by hash of mask and values; a run's directive once an id
	filter   filter             // of the index's keys: most calls are in no directive's scope
	gone     int                // keys that left the index and are in the filter still
}

// filter says of most keys that nobody has them, within one cache line.
type filter []uint64

const filterBits = 20

func (f filter) add(k uint64) { f[k>>6&(1<<(filterBits-6)-1)] |= 1 << (k & 63) }

func (f filter) has(k uint64) bool { return f[k>>6&(1<<(filterBits-6)-1)]&(1<<(k&63)) != 0 }

// NewSet is the empty set, which knows nothing.
func NewSet() *Set {
	return &Set{byID: map[string]*held{}, index: map[uint64][]*held{}, filter: make(filter, 1<<(filterBits-6))}
}

func hashString(h uint64, s string) uint64 {
	for i := 0; i < len(s); i++ {
		h = (h ^ uint64(s[i])) * fnvPrime
	}
	return (h ^ 0xff) * fnvPrime // no byte of UTF-8: "a","b" and "ab","" differ
}

const runBit = 1 << Run

// Replace makes the set what s says, all of it or nothing.
func (x *Set) Replace(s *State) error {
	fresh := NewSet()
	for i := range s.Directives {
		if err := fresh.put(&s.Directives[i]); err != nil {
			return err
		}
	}
	if s.Digest != "" && FormatDigest(fresh.digest) != s.Digest {
		return ErrDigest
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.byID, x.index, x.masks, x.uses, x.digest, x.filter, x.gone = fresh.byID, fresh.index, fresh.masks, fresh.uses, fresh.digest, fresh.filter, 0
	x.version, x.token, x.valid, x.kill, x.critical, x.unknown, x.known = s.Version, s.Token, s.ValidUntil, s.Kill, s.Critical, s.WhenUnknown, true
	return nil
}

// ErrDigest says that a set is not what its sender has: ask for all of it.
var ErrDigest = errors.New("the set differs from the server's; it has to be read whole again")

// Apply makes a change. A change that does not follow the set's version, or whose
// digest differs, is ErrDigest.
func (x *Set) Apply(c *Change) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.known || c.From != x.version {
		return ErrDigest
	}
	for _, id := range c.Remove {
		x.drop(id)
	}
	for i := range c.Upsert {
		if err := x.put(&c.Upsert[i]); err != nil {
			return err
		}
	}
	if c.Kill != nil {
		x.kill = *c.Kill
	}
	if c.Critical != nil {
		x.critical = *c.Critical
	}
	if c.WhenUnknown != nil {
		x.unknown = *c.WhenUnknown
	}
	x.version, x.token, x.valid = c.Version, c.Token, c.ValidUntil
	if c.Digest != "" && FormatDigest(x.digest) != c.Digest {
		x.known = false
		return ErrDigest
	}
	return nil
}

// Forget makes the set ask for all of it: what it holds stays in force meanwhile.
func (x *Set) Forget() {
	x.mu.Lock()
	x.known = false
	x.mu.Unlock()
}

// Extend moves the instant at which the set counts as stale.
func (x *Set) Extend(validUntil time.Time) {
	x.mu.Lock()
	x.valid = validUntil
	x.mu.Unlock()
}

func (x *Set) put(d *Directive) error {
	h := &held{Directive: *d, print: Fingerprint(d)}
	for name, v := range d.Scope.Values {
		i := slices.Index(DimNames[:], name)
		if i < 0 || Dim(i) == Run {
			return fmt.Errorf("directive %s: unknown scope %q", d.ID, name)
		}
		h.mask |= 1 << i
		h.vals[i] = v
	}
	for field, values := range d.Match {
		h.conds = append(h.conds, cond{field, values})
	}
	if len(d.Scope.Runs) > 0 {
		h.mask |= runBit
	}
	x.drop(d.ID)
	x.byID[d.ID] = h
	x.digest ^= h.print
	if x.uses[h.mask]++; x.uses[h.mask] == 1 {
		x.masks = append(x.masks, h.mask)
	}
	h.each(func(k uint64) {
		x.index[k] = append(x.index[k], h)
		x.filter.add(k)
	})
	return nil
}

// hashes are those of a call's values, one a dimension, and of its two run ids.
type hashes struct {
	dims  [NumDims]uint64 // Run is that of the run id
	trace uint64
}

// seed is this process's: keys never leave it.
var seed = maphash.MakeSeed()

func (c *Call) hashes() (h hashes) {
	for d := range Run {
		h.dims[d] = maphash.String(seed, c.value(d))
	}
	h.dims[Run] = maphash.String(seed, c.RunID)
	h.trace = h.dims[Run]
	if c.TraceID != c.RunID {
		h.trace = maphash.String(seed, c.TraceID)
	}
	return h
}

// key joins the hashes of the dimensions of a mask, the run's excepted.
func (h *hashes) key(mask uint8) uint64 {
	k := uint64(mask) + 1
	for m := mask &^ runBit; m != 0; m &= m - 1 {
		k = (k ^ h.dims[bits.TrailingZeros8(m)]) * fnvPrime
		k ^= k >> 29
	}
	return k
}

// withRun adds a run's hash to a key.
func withRun(k, run uint64) uint64 {
	k = (k ^ run) * fnvPrime
	return k ^ k>>29
}

// each calls f for every key that the directive is found by.
func (h *held) each(f func(uint64)) {
	var v hashes
	for d := range Run {
		v.dims[d] = maphash.String(seed, h.vals[d])
	}
	k := v.key(h.mask)
	if h.mask&runBit == 0 {
		f(k)
		return
	}
	for i, run := range h.Scope.Runs {
		if !slices.Contains(h.Scope.Runs[:i], run) {
			f(withRun(k, maphash.String(seed, run)))
		}
	}
}

func (x *Set) drop(id string) {
	h := x.byID[id]
	if h == nil {
		return
	}
	delete(x.byID, id)
	x.digest ^= h.print
	if x.uses[h.mask]--; x.uses[h.mask] == 0 {
		x.masks = slices.DeleteFunc(x.masks, func(m uint8) bool { return m == h.mask })
	}
	h.each(func(k uint64) {
		list := slices.DeleteFunc(x.index[k], func(o *held) bool { return o == h })
		if len(list) == 0 {
			delete(x.index, k)
			x.gone++
		} else {
			x.index[k] = list
		}
	})
	if x.gone > len(x.index)+1024 {
		clear(x.filter)
		for k := range x.index {
			x.filter.add(k)
		}
		x.gone = 0
	}
}

// State is the whole set as it stands. Directives are ordered by id.
func (x *Set) State() State {
	x.mu.RLock()
	defer x.mu.RUnlock()
	s := State{Version: x.version, Token: x.token, ValidUntil: x.valid, Kill: x.kill, Critical: x.critical, WhenUnknown: x.unknown, Digest: FormatDigest(x.digest), Directives: make([]Directive, 0, len(x.byID))}
	for _, h := range x.byID {
		s.Directives = append(s.Directives, h.Directive)
	}
	slices.SortFunc(s.Directives, func(a, b Directive) int {
		if a.ID < b.ID {
			return -1
		}
		return 1
	})
	return s
}

// Version, Token and whether there is a set at all.
func (x *Set) Version() (v Version, token string, known bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.version, x.token, x.known
}

// Len is the number of directives.
func (x *Set) Len() int {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return len(x.byID)
}

// Digest is that of the directives.
func (x *Set) Digest() string {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return FormatDigest(x.digest)
}

// Criticality is what applies to a call: critical where the operator's list says
// so, else standard, or background where the call claims it.
func (l *CriticalList) Criticality(c *Call) string {
	switch c.Criticality {
	case Background, "SHEDDABLE", "SHEDDABLE_PLUS", "sheddable", "sheddable_plus":
		return Background
	case Standard:
		return Standard
	}
	if c.Feature != "" && slices.Contains(l.Features, c.Feature) || c.Workflow != "" && slices.Contains(l.Workflows, c.Workflow) || c.Key != "" && slices.Contains(l.Keys, c.Key) {
		return Critical
	}
	return Standard
}

// precedence orders the reasons of denials: kill before run before user before
// feature before the rest, by the narrowest dimension of the scope.
func precedence(mask uint8) int {
	switch {
	case mask&runBit != 0:
		return 5
	case mask&(1<<User) != 0:
		return 4
	case mask&(1<<Feature|1<<Workflow|1<<Agent|1<<Model) != 0:
		return 3
	case mask&(1<<Tenant) != 0:
		return 2
	}
	return 1
}

// Admitted reports whether the kill switch lets a call pass: it is off, the
// criticality is exempt, or the stage admits the run.
func (k *Kill) Admitted(c *Call, criticality string) bool {
	if !k.On || slices.Contains(k.Exempt, criticality) {
		return true
	}
	return k.Stage > 0 && int(stageOf(c)) < k.Stage
}

// stageOf places a run in one of a hundred parts, always the same one.
func stageOf(c *Call) uint64 {
	id := c.RunID
	if id == "" {
		id = c.TraceID
	}
	h := hashString(fnvOffset, id)
	return (h ^ h>>32) % 100
}

// Decide answers for one call. It allocates nothing. All directives that apply
// are looked at: a denial wins over a wait, that over a downgrade, and of several
// denials the narrowest scope gives the reason.
func (x *Set) Decide(c *Call, now time.Time) Decision {
	x.mu.RLock()
	defer x.mu.RUnlock()
	d := Decision{Criticality: x.critical.Criticality(c), Version: x.version, Unknown: x.stale(now)}
	if !x.kill.Admitted(c, d.Criticality) {
		d.Verdict, d.Guard, d.Reason, d.Outcome = Deny, "kill", x.kill.Reason, x.kill.Outcome
		return d
	}
	deny, wait, down := x.find(c, d.Criticality, now)
	switch {
	case deny != nil:
		d.say(Deny, deny)
		if !deny.Expires.IsZero() && !deny.Action.Lasting() {
			d.RetryAfter = max(0, deny.Expires.Sub(now))
		}
	case wait != nil:
		d.say(Wait, wait)
		d.Wait = time.Duration(wait.IntervalMS) * time.Millisecond
		if slices.Contains(wait.Park, d.Criticality) {
			d.say(Deny, wait) // parked: comes back when the light changes
			d.RetryAfter = time.Minute
		}
	case down != nil && c.Model != "":
		m, ok := down.Models[c.Model]
		if !ok {
			m = down.Models["*"]
		}
		if m == "" || m == c.Model {
			break
		}
		d.say(Downgraded, down)
		d.Model = m
		cheaper := *c
		cheaper.Model = m
		if deny, _, _ := x.find(&cheaper, d.Criticality, now); deny != nil { // the way out is closed as well
			d.say(Deny, deny)
			d.Model = ""
		}
	}
	return d
}

// find returns the directives that have a say about a call, the first of each kind.
func (x *Set) find(c *Call, criticality string, now time.Time) (deny, wait, down *held) {
	if len(x.masks) == 0 {
		return nil, nil, nil
	}
	hs := c.hashes()
	for _, mask := range x.masks {
		keys, n := [2]uint64{hs.key(mask)}, 1
		if mask&runBit != 0 {
			keys[0], keys[1] = withRun(keys[0], hs.dims[Run]), withRun(keys[0], hs.trace)
			if hs.trace != hs.dims[Run] {
				n = 2
			}
		}
		for _, k := range keys[:n] {
			if !x.filter.has(k) {
				continue
			}
			for _, h := range x.index[k] {
				if !h.applies(c, mask, criticality, now) {
					continue
				}
				switch {
				case h.Action.Denies():
					if deny == nil || precedence(h.mask) > precedence(deny.mask) || precedence(h.mask) == precedence(deny.mask) && h.ID < deny.ID {
						deny = h
					}
				case h.Action == Throttle:
					if wait == nil || h.IntervalMS > wait.IntervalMS || len(h.Park) > len(wait.Park) {
						wait = h
					}
				case h.Action == Downgrade:
					if down == nil || precedence(h.mask) > precedence(down.mask) || precedence(h.mask) == precedence(down.mask) && h.ID < down.ID {
						down = h
					}
				}
			}
		}
	}
	return deny, wait, down
}

func (d *Decision) say(v Verdict, h *held) {
	d.Verdict, d.Guard, d.Reason, d.Outcome, d.Directive = v, h.Guard, h.Reason, h.Outcome, &h.Directive
}

// applies checks what the hash only suggested, exemption and age.
func (h *held) applies(c *Call, mask uint8, criticality string, now time.Time) bool {
	if h.mask != mask {
		return false
	}
	for dim := range Run {
		if mask&(1<<dim) != 0 && h.vals[dim] != c.value(dim) {
			return false
		}
	}
	if mask&runBit != 0 && !slices.Contains(h.Scope.Runs, c.RunID) && !slices.Contains(h.Scope.Runs, c.TraceID) {
		return false
	}
	if !h.Expires.IsZero() && !h.Action.Lasting() && !now.Before(h.Expires) {
		return false
	}
	for i := range h.conds {
		if v, known := c.Field(h.conds[i].field, criticality); known && !slices.Contains(h.conds[i].values, v) {
			return false
		}
	}
	return !slices.Contains(h.Exempt, criticality)
}

// Field is the call's value of a field by which policies match, with the value that
// an empty one stands for, and whether a limiter can know it before the call.
func (c *Call) Field(name, criticality string) (string, bool) {
	switch name {
	case "mode":
		if c.Mode == "" {
			return "interactive", true
		}
		return c.Mode, true
	case "criticality":
		return criticality, true
	case "provider":
		return c.Provider, c.Provider != ""
	}
	for d, n := range DimNames[:Run] {
		if n == name {
			return c.value(Dim(d)), true
		}
	}
	return "", false
}

// Value is the call's value of a dimension; of Run the run's id, else the trace's.
func (c *Call) Value(d Dim) string {
	if d == Run {
		if c.RunID == "" {
			return c.TraceID
		}
		return c.RunID
	}
	return c.value(d)
}

// Stale reports whether the set is missing, or had no news since its ceiling, and
// what then applies to a criticality. Decide says the first in Unknown.
func (x *Set) Stale(now time.Time) (stale bool, policy WhenUnknown) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.stale(now), x.unknown
}

// stale: a set without a ceiling is its owner's own.
func (x *Set) stale(now time.Time) bool {
	return x.version == (Version{}) || !x.valid.IsZero() && now.After(x.valid)
}

// KillState is the kill switch as the set has it.
func (x *Set) KillState() Kill {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.kill
}

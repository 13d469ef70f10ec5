package enforce

import (
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/flyball/flyball/enforce/directive"
	"github.com/flyball/flyball/schema"
	"github.com/flyball/flyball/schema/state"
)

// limiters is who enforces, and what each has acknowledged.
type limiters struct {
	byID      map[string]*limiter
	of        map[string]int  // how many of them each key has
	most      int             // of them
	changed   map[string]bool // limiters that differ from what the store has
	published map[string]bool // directives that limiters were told of
	recent    []issue         // what was published lately, the oldest first
	seq       uint64          // of the last event
}

// limiter is one that acknowledged something.
type limiter struct {
	ID      string            `json:"id"`
	Key     string            `json:"key"`     // that it acknowledged with first
	Tenants schema.TenantList `json:"tenants"` // of that key
	Acked   directive.Version `json:"acked"`
	At      time.Time         `json:"at"` // of the last acknowledgement
	First   time.Time         `json:"first"`
	Took    time.Duration     `json:"took,omitempty"` // time to enforce of the last issue that it acknowledged
	Acks    acks              `json:"acks"`           // the latest, the oldest first

	saved time.Time // At, as the store has it
}

// sees reports whether the limiter is one of calls of a tenant.
func (x *limiter) sees(tenant string) bool { return schema.Key{Tenants: x.Tenants}.Allows(tenant) }

type acked struct {
	directive.Version
	At int64 `json:"at"` // unix nanoseconds
}

// acks are stored as differences, in few bytes: each acknowledgement stores all of them.
type acks []acked

// MarshalJSON and UnmarshalJSON are that form. The one before was a list.
func (a acks) MarshalJSON() ([]byte, error) {
	b := make([]byte, 0, 8*len(a))
	var last acked
	for _, x := range a {
		b = binary.AppendVarint(b, int64(x.Epoch-last.Epoch))
		b = binary.AppendVarint(b, int64(x.Revision-last.Revision))
		b = binary.AppendVarint(b, x.At-last.At)
		last = x
	}
	return json.Marshal(b)
}

func (a *acks) UnmarshalJSON(text []byte) error {
	if text[0] == '[' {
		return json.Unmarshal(text, (*[]acked)(a))
	}
	var b []byte
	if err := json.Unmarshal(text, &b); err != nil {
		return err
	}
	*a = nil
	var last acked
	for len(b) > 0 {
		var d [3]int64
		for i := range d {
			n := 0
			if d[i], n = binary.Varint(b); n <= 0 {
				return errors.New("acknowledgements are cut off")
			}
			b = b[n:]
		}
		last.Epoch, last.Revision, last.At = last.Epoch+uint64(d[0]), last.Revision+uint64(d[1]), last.At+d[2]
		*a = append(*a, last)
	}
	return nil
}

// ackTime is when the limiter acknowledged a version or one after it, in unix
// nanoseconds.
func (x *limiter) ackTime(v directive.Version) int64 {
	for _, a := range x.Acks {
		if !a.Less(v) {
			return a.At
		}
	}
	return x.At.UnixNano()
}

// issue is a directive or a flip that was published.
type issue struct {
	id       string
	version  directive.Version
	received int64 // of the span that led to it, unix ms; 0 where time or a person did
	ended    int64 // of that span, unix ns
	of       Event // whom it is about; empty for the kill switch and what is issued again
	at       time.Time
}

func (m *limiters) init() {
	m.most, m.of = maxLimiters, map[string]int{}
	m.byID, m.changed, m.published = map[string]*limiter{}, map[string]bool{}, map[string]bool{}
}

const (
	keepIssues    = 4096
	measured      = time.Hour // who acknowledges later than that was away
	limiterActive = 5 * time.Minute
	maxLimiters   = 10_000 // of all keys
	keepAcks      = 64
	saveSeen      = time.Minute // how old the store's word may be on when a limiter was heard of
)

const keyLimiter = "enforce/limiter/"

// save adds what limiters acknowledged since the last checkpoint to this one.
func (m *limiters) save(b *state.Batch) error {
	for id := range m.changed {
		x := m.byID[id]
		if x == nil {
			if err := b.Delete(keyLimiter + id); err != nil {
				return err
			}
			continue
		}
		v, err := json.Marshal(x)
		if err != nil {
			return err
		}
		if err := b.Put(keyLimiter+id, v); err != nil {
			return err
		}
		x.saved = x.At
	}
	clear(m.changed)
	return nil
}

func (m *limiters) restore(store *state.Store) error {
	return store.Each(keyLimiter, func(name string, v []byte) error {
		x := &limiter{}
		if err := json.Unmarshal(v, x); err != nil {
			return fmt.Errorf("read limiter %s: %w", name, err)
		}
		x.saved = x.At
		m.put(x)
		return nil
	})
}

// put adds a limiter, in place of the one of the same id.
func (m *limiters) put(x *limiter) {
	m.take(x.ID)
	m.byID[x.ID] = x
	m.of[x.Key]++
}

func (m *limiters) take(id string) {
	x := m.byID[id]
	if x == nil {
		return
	}
	delete(m.byID, id)
	if m.of[x.Key]--; m.of[x.Key] == 0 {
		delete(m.of, x.Key)
	}
}

func (m *limiters) issued(id string, v directive.Version, received, ended int64, at time.Time) {
	if len(m.recent) >= keepIssues {
		m.recent = slices.Delete(m.recent, 0, keepIssues/4)
	}
	m.recent = append(m.recent, issue{id: id, version: v, received: received, ended: ended, at: at})
}

// reissue remembers what was issued within the last hour and holds, since who has not
// acknowledged it yet is still measured by it.
func (l *Loop) reissue(now time.Time) {
	m := &l.limiters
	add := func(i issue) {
		if i.at = time.UnixMilli(i.received); i.version != (directive.Version{}) && now.Sub(i.at) <= measured {
			m.recent = append(m.recent, i)
		}
	}
	for _, h := range l.live {
		if h.published() {
			add(issue{id: h.ID, version: h.Raised, received: h.Received, ended: h.Ended, of: h.event(schema.EnforcementApplied, time.Time{})})
		}
	}
	add(issue{id: "kill", version: l.kill.Raised, received: l.kill.Received})
	slices.SortFunc(m.recent, func(a, b issue) int {
		return cmp.Or(cmp.Compare(a.version.Epoch, b.version.Epoch), cmp.Compare(a.version.Revision, b.version.Revision))
	})
	m.recent = m.recent[max(0, len(m.recent)-keepIssues):]
}

// about says what the last issue is of.
func (m *limiters) about(h *live) {
	m.recent[len(m.recent)-1].of = h.event(schema.EnforcementApplied, time.Time{})
}

// pass forgets limiters that were not heard of for a day.
func (m *limiters) pass(now time.Time) {
	for id, x := range m.byID {
		if now.Sub(x.At) > 24*time.Hour {
			m.take(id)
			m.changed[id] = true
		}
	}
}

func (m *limiters) active() (n int) {
	now := time.Now()
	for _, x := range m.byID {
		if now.Sub(x.At) < limiterActive {
			n++
		}
	}
	return n
}

func (m *limiters) lag(current directive.Version) (most uint64) {
	now := time.Now()
	for _, x := range m.byID {
		if now.Sub(x.At) >= limiterActive {
			continue
		}
		behind := uint64(0)
		if x.Acked.Epoch != current.Epoch {
			behind = current.Revision
		} else if x.Acked.Revision < current.Revision {
			for _, i := range m.recent {
				if x.Acked.Less(i.version) {
					behind++
				}
			}
		}
		most = max(most, behind)
	}
	return most
}

// ackedSince says which active limiters acknowledged a version, and how long after
// the instant.
func (m *limiters) ackedSince(v directive.Version, since time.Time) (did []DrillLimiter, missing []string) {
	did = []DrillLimiter{}
	for id, x := range m.byID {
		switch {
		case !x.Acked.Less(v):
			did = append(did, DrillLimiter{id, time.Duration(x.ackTime(v) - since.UnixNano())})
		case since.Sub(x.At) < limiterActive:
			missing = append(missing, id)
		}
	}
	slices.SortFunc(did, func(a, b DrillLimiter) int { return strings.Compare(a.ID, b.ID) })
	slices.Sort(missing)
	return did, missing
}

// sign is the server's signature of a version.
func (l *Loop) sign(v directive.Version) string { return l.mac("version " + v.String()) }

func (l *Loop) mac(text string) string {
	h := hmac.New(sha256.New, l.secret)
	_, _ = h.Write([]byte(text))
	return hex.EncodeToString(h.Sum(nil)[:16])
}

func (l *Loop) signed(text, mac string) bool { return hmac.Equal([]byte(l.mac(text)), []byte(mac)) }

// Ack is what a limiter says it applied.
type Ack struct {
	directive.Version
	Token  string `json:"token"` // of that version, as the set or change had it
	Digest string `json:"digest,omitempty"`
}

// Acknowledge notes that a limiter applied a version. An id belongs to the key that used
// it first, for as long as there is such a key. It is a badInput error for a version that
// was never published, which only a forged acknowledgement has.
func (l *Loop) Acknowledge(id string, key schema.Key, a Ack) error {
	now := time.Now()
	if !l.signed("version "+a.Version.String(), a.Token) {
		l.metrics.acks.WithLabelValues("forged").Inc()
		return badInput("token is not the one that came with version %s", a.Version)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	x := l.limiters.byID[id]
	switch {
	case l.current.Less(a.Version):
		l.metrics.acks.WithLabelValues("ahead").Inc()
		return badInput("version %s was not published; this service is at %s", a.Version, l.current)
	case x == nil && !fair(l.limiters.of[key.Name], 1, len(l.limiters.byID), l.limiters.most):
		l.metrics.acks.WithLabelValues("too_many").Inc()
		return conflict("key %s has %d limiters, and may have no more than are left for all keys, %d of %d: a limiter keeps its id when it starts again, and one that is not heard of for a day leaves its place", key.Name, l.limiters.of[key.Name], l.limiters.most-len(l.limiters.byID), l.limiters.most)
	case x != nil && x.Key != key.Name && l.exists(x.Key, now):
		l.metrics.acks.WithLabelValues("foreign").Inc()
		return forbidden("limiter %s belongs to the key %s", id, x.Key)
	case x == nil || x.Key != key.Name:
		x = &limiter{ID: id, Key: key.Name, First: now}
		l.limiters.put(x)
		l.event(Event{At: now.UTC(), Kind: "limiter", Action: "follows", Actor: id, Reason: "first acknowledgement, with key " + key.Name})
	}
	before := x.Acked
	x.At, x.Tenants = now, append(slices.Clone(key.Tenants), key.Tenant)
	if now.Sub(x.saved) >= saveSeen {
		l.limiters.changed[id] = true
	}
	l.metrics.acks.WithLabelValues("taken").Inc()
	if !before.Less(a.Version) {
		return nil
	}
	x.Acked = a.Version
	if len(x.Acks) >= keepAcks {
		x.Acks = slices.Delete(x.Acks, 0, keepAcks/4)
	}
	x.Acks = append(x.Acks, acked{a.Version, now.UnixNano()})
	l.limiters.changed[id], l.effects.acks = true, true
	if before == (directive.Version{}) {
		return l.flush() // it connected: what was issued before it came is no measure of it
	}
	for i := len(l.limiters.recent) - 1; i >= 0; i-- {
		s := &l.limiters.recent[i]
		if !before.Less(s.version) {
			break
		}
		if a.Version.Less(s.version) || s.received == 0 || now.Sub(s.at) > measured {
			continue
		}
		took := now.Sub(time.UnixMilli(s.received))
		x.Took = took
		l.followed(s, id, took, now)
	}
	return l.flush()
}

// exists reports whether a key of this name may still be used.
func (l *Loop) exists(name string, now time.Time) bool {
	if l.o.Keys == nil {
		return true
	}
	ring := l.o.Keys()
	if ring.Len() == 0 {
		return name == schema.LocalKey.Name
	}
	key, ok := ring.Named(name)
	return ok && !key.Expired(now)
}

// limiterLabel bounds the label: a hundred limiters have series of their own.
func (l *Loop) limiterLabel(id string) string {
	if len(l.limiters.byID) > 100 {
		return "other"
	}
	return id
}

// LimiterStatus is what is known about a limiter.
type LimiterStatus struct {
	ID            string        `json:"id"`
	Key           string        `json:"key,omitempty"`
	Acknowledged  string        `json:"acknowledged"` // version
	Behind        bool          `json:"behind"`
	SeenAt        time.Time     `json:"seen_at"`
	Since         time.Time     `json:"since"`
	Active        bool          `json:"active"`
	TimeToEnforce time.Duration `json:"time_to_enforce_ns,omitempty"` // of the last directive that it acknowledged
}

func (l *Loop) limiterStatus(now time.Time) []LimiterStatus {
	out := []LimiterStatus{}
	for _, x := range l.limiters.byID {
		out = append(out, LimiterStatus{ID: x.ID, Key: x.Key, Acknowledged: x.Acked.String(), Behind: x.Acked.Less(l.current), SeenAt: x.At.UTC(), Since: x.First.UTC(), Active: now.Sub(x.At) < limiterActive, TimeToEnforce: x.Took})
	}
	slices.SortFunc(out, func(a, b LimiterStatus) int { return strings.Compare(a.ID, b.ID) })
	return out
}

// leakage is what passed although a directive refused it.
type leakage struct {
	Propagation, Leak, Unguarded LeakCount
}

// LeakCount are calls and what they cost.
type LeakCount struct {
	Calls int64      `json:"calls"`
	USD   schema.Sum `json:"usd"`
}

// observe looks whether an entry is of a call that a directive refused when it
// started.
func (l *Loop) observe(e *schema.Entry) {
	p := &e.Posting
	if l.pos < l.decided || e.Version > 1 || e.Failure == schema.Budget || p.ModelCalls+p.ToolCalls+p.Retries+p.Fallbacks+p.Hedges == 0 {
		return
	}
	if p.Status == schema.CostUnpriced {
		for _, g := range l.noPrice {
			l.blockUnpriced(g, e)
		}
	}
	if l.set.Len() == 0 && !l.kill.On {
		return
	}
	c := callOf(e)
	d := l.set.Decide(&c, time.Unix(0, e.Start))
	if d.Verdict != directive.Deny && d.Verdict != directive.Downgraded {
		return
	}
	if d.Verdict == directive.Downgraded && (e.Model == d.Model || strings.HasPrefix(e.Model, d.Model+"-")) {
		return // the cheaper model answered, maybe under its dated name: it was obeyed
	}
	issued, version := l.kill.Since, l.kill.Revised
	var h *live
	if d.Directive != nil {
		if h = l.live[d.Directive.ID]; h == nil {
			return
		}
		issued, version = h.Issued, h.Revised
	}
	if e.Start <= issued.UnixNano() {
		return // under way before
	}
	var has, waiting []*limiter
	for _, x := range l.limiters.byID {
		switch {
		case !x.sees(e.Tenant):
		case !x.Acked.Less(version):
			has = append(has, x)
		case time.Since(x.At) < limiterActive:
			waiting = append(waiting, x)
		}
	}
	kind, count, through := "unguarded", (*LeakCount)(nil), ""
	switch {
	case len(has) > 0 && len(waiting) == 0 && e.Start > l.ackedAt(version):
		kind, through = "leak", throughWhich(has)
	case len(has)+len(waiting) > 0:
		kind, through = "propagation", throughWhich(late(has, waiting, version, e.Start))
	}
	if h != nil {
		switch kind {
		case "leak":
			count = &h.leaked.Leak
		case "propagation":
			count = &h.leaked.Propagation
		default:
			count = &h.leaked.Unguarded
		}
		count.Calls++
		count.USD.Add(p.Exposure, 1)
	}
	l.leaked(e, h, kind, through)
	example(l.metrics.leaks.WithLabelValues(kind), 1, e.Trace)
	example(l.metrics.leakedUSD.WithLabelValues(kind), float64(p.Exposure)/schema.PicoPerUSD, e.Trace)
}

// ackedAt is when the slowest limiter acknowledged a version, in unix nanoseconds.
func (l *Loop) ackedAt(v directive.Version) (last int64) {
	for _, x := range l.limiters.byID {
		if !x.Acked.Less(v) {
			last = max(last, x.ackTime(v))
		}
	}
	return last
}

// callOf is what a limiter was asked about a call, as far as its entry tells.
func callOf(e *schema.Entry) directive.Call {
	id := &e.Posting.Identity
	c := directive.Call{Tenant: e.Tenant, User: id[schema.User], Feature: id[schema.Feature], Workflow: id[schema.Workflow], Agent: id[schema.Agent], RunID: id[schema.Run], TraceID: e.Trace.String(), Provider: e.Provider, Tool: e.Tool, Mode: id[schema.Mode]}
	if id[schema.Criticality] == directive.Background {
		c.Criticality = directive.Background
	}
	if e.Posting.Kind.ModelLike() {
		c.Model = e.RequestedModel
		if c.Model == "" {
			c.Model = e.Model
		}
	}
	return c
}

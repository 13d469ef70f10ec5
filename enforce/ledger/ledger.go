// Package ledger keeps the counters that guards look at: signed sums of journal
// entries by scope and window, fed in the order of the write-ahead log.
//
// It guarantees that an account equals the signed sum of the entries applied to
// it, digit for digit, also after a restart from a checkpoint and the rest of the
// log; that a new window is empty by construction, since its start is part of the
// key; and that an account that left memory comes back from the local store before
// it changes. Spend, holds and leases are kept apart. It refuses nothing and
// decides nothing. One goroutine at a time may use it.
package ledger

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	"github.com/flyball/flyball/enforce/directive"
	"github.com/flyball/flyball/schema"
	"github.com/flyball/flyball/schema/state"
)

// Options of New.
type Options struct {
	Store *state.Store // nil keeps everything in memory
	// Zone is a tenant's time zone; nil is UTC for all.
	Zone func(tenant string) *time.Location
	// MaxAccounts is how many accounts stay in memory, default 200,000, at about
	// half a kilobyte each.
	MaxAccounts int
	// Keep is how long the account of a run that rests is kept, default 32 days.
	Keep time.Duration
}

// Match is a condition on a call: the field has one of the values.
type Match struct {
	Field  string
	Values []string
}

// Fields are what Match and scopes know about a call.
var Fields = []string{"tenant", "user", "feature", "workflow", "workflow_version", "agent", "session", "criticality", "mode", "environment", "model", "provider", "kind"}

// Family is a set of accounts: one for each value of the scope and each window.
type Family struct {
	Scope  []directive.Dim // the tenant is part of it unless Org
	Org    bool            // over all tenants
	Match  []Match
	Window Window
	// PerRun makes the accounts count requests, runs that have a model call, and the
	// attempts of those runs. Runs themselves need it not.
	PerRun bool
}

// Name is the same for equal families, and is what their accounts are stored under.
func (f *Family) Name() string {
	var b strings.Builder
	if f.Org {
		b.WriteString("org ")
	}
	for d := range directive.NumDims {
		if slices.Contains(f.Scope, d) {
			b.WriteString(directive.DimNames[d] + " ")
		}
	}
	b.WriteString("/ " + f.Window.String())
	match := slices.Clone(f.Match)
	slices.SortFunc(match, func(a, b Match) int { return strings.Compare(a.Field, b.Field) })
	for _, m := range match {
		v := slices.Clone(m.Values)
		slices.Sort(v)
		fmt.Fprintf(&b, " %s=%q", m.Field, v)
	}
	if f.PerRun {
		b.WriteString(" per run")
	}
	return b.String()
}

// family is a Family in use.
type family struct {
	Family
	name  string
	id    [8]byte
	since uint64 // chunk from which on it counts everything; what is before has to be filled in
	warm  bool   // it has been
	// incarnation tells the accounts of a family that was away from those of before.
	incarnation uint64
	changed     bool // since or warm, since the last Save
	// bounds of the window looked at last, by zone
	zone       *time.Location
	start, end int64
	last       *Account // that an entry changed last; of this record if its gen says so
}

// Pending is what is promised but not spent: of leases or of holds.
type Pending struct {
	Exposure                      schema.Sum
	Tokens, ModelCalls, ToolCalls int64
}

func (p *Pending) plus(o Pending, sign int64) {
	if sign < 0 {
		p.Exposure = p.Exposure.Minus(o.Exposure)
	} else {
		p.Exposure = p.Exposure.Plus(o.Exposure)
	}
	p.Tokens += sign * o.Tokens
	p.ModelCalls += sign * o.ModelCalls
	p.ToolCalls += sign * o.ToolCalls
}

// Account is one counter. Its fields are read only.
type Account struct {
	Counts
	Holds, Leases Pending
	Family        int            // index in the order of Use; -1 for one that no guard uses any more
	Start, End    int64          // of a calendar window, unix nanoseconds, half open
	First         int64          // start of the earliest call, unix nanoseconds
	Received      int64          // when the span that changed it last was received, unix milliseconds
	Ended         int64          // when that span ended, unix nanoseconds
	Trace         schema.TraceID // of that span
	Latest        int64          // latest end of any call, unix nanoseconds
	Touched       int64          // when it changed last, unix nanoseconds
	Pinned        int            // reasons to stay in memory
	Runs          []string

	key        string
	buckets    []bucket // of a rolling window, by time
	left       int64    // those up to here have left it and are in no sum; unix nanoseconds
	gen        uint64   // of the record that touched it last
	dirty      bool
	stored     bool
	prev, next *Account // in order of use
}

type bucket struct {
	at      int64         // unix nanoseconds
	changed time.Duration // last, by Ledger.ran
	Counts
}

// keepLeft bounds how many sums that left a rolling window are kept: as many as were in it.
const keepLeft = 64

// Touch is an account that a record changed, and what it was before.
type Touch struct {
	*Account
	Before Counts
}

// Ledger is the accounts. It is for one goroutine at a time.
type Ledger struct {
	o        Options
	families []*family
	byID     map[[8]byte]int
	accounts map[string]*Account
	lru      Account // ring
	dirty    []*Account
	gone     []string // keys that the next Save takes out of the store
	touched  []Touch
	gen      uint64
	chunk    uint64 // that was applied to its end
	key, sub []byte
	known    *known   // nil: the store is asked for every account
	saved    []string // accounts that were saved for the first time while a scan runs; nil: none does
	loads    uint64
	opened   uint64
	began    time.Time
	record   time.Duration // ran, when the record began
}

// ran is how long the ledger has been in use, whatever the clock is set to.
func (l *Ledger) ran() time.Duration { return time.Since(l.began) }

// KeepRuns is how long the account of a run that rests is kept: longer than any rolling window.
const KeepRuns = 32 * 24 * time.Hour

// New makes an empty ledger.
func New(o Options) *Ledger {
	if o.MaxAccounts == 0 {
		o.MaxAccounts = 200_000
	}
	if o.Keep == 0 {
		o.Keep = KeepRuns
	}
	if o.Zone == nil {
		o.Zone = func(string) *time.Location { return time.UTC }
	}
	l := &Ledger{o: o, began: time.Now(), saved: []string{}, accounts: map[string]*Account{}, byID: map[[8]byte]int{}}
	l.lru.prev, l.lru.next = &l.lru, &l.lru
	return l
}

const (
	prefixAccount = "ledger/a/"
	prefixFamily  = "ledger/f/"
)

// Use puts families in force, in the order in which Account.Family counts them.
// Accounts of families that stay are kept. chunk is the last one that was applied to
// its end. A family that is new counts from the next chunk on, so that what it lacks
// is exactly what the journal has up to a chunk's end.
func (l *Ledger) Use(families []Family, chunk uint64) error {
	l.chunk = chunk
	old := map[string]*family{}
	for _, f := range l.families {
		old[f.name] = f
	}
	l.families = l.families[:0:0]
	clear(l.byID)
	for _, def := range families {
		name := def.Name()
		f := old[name]
		if f == nil {
			f = &family{Family: def, name: name}
			if chunk > 0 {
				f.since = chunk + 1
			}
			if l.o.Store != nil {
				v, err := l.o.Store.Get(prefixFamily + name)
				if err != nil {
					return fmt.Errorf("read ledger: %w", err)
				}
				if v != nil {
					r := reader{b: v}
					since, state := r.uvarint(), r.uvarint()
					if f.incarnation = r.uvarint(); state == familyGone {
						f.incarnation++ // its old accounts have a hole
					} else {
						f.since, f.warm = since, state == familyWarm
					}
				}
				if v == nil || f.incarnation > 0 {
					if err := l.saveFamily(f); err != nil {
						return err
					}
				}
			}
			f.identify()
		}
		l.byID[f.id] = len(l.families)
		l.families = append(l.families, f)
	}
	for _, a := range l.accounts {
		a.Family = l.familyOf(a.key)
	}
	return l.retire()
}

// identify makes the id that its accounts are kept under.
func (f *family) identify() {
	h := fnv.New64a()
	_, _ = h.Write([]byte(f.name))
	binary.BigEndian.PutUint64(f.id[:], h.Sum64()+f.incarnation*0x9e3779b97f4a7c15)
}

// Restart begins anew, since entries were lost on the way here: every family is as one
// that is new, and warming until the journal has filled it. It returns what the key of
// an account is from now on; the caller's batch makes both durable together. Nothing
// may be pending on an account, and none pinned.
func (l *Ledger) Restart(b *state.Batch) (rekey func(key string) string, err error) {
	ids := map[[8]byte][8]byte{}
	l.chunk = 0
	clear(l.accounts)
	l.lru.prev, l.lru.next = &l.lru, &l.lru
	clear(l.byID)
	clear(l.dirty)
	l.dirty = l.dirty[:0]
	l.Begin()
	for i, f := range l.families {
		old := f.id
		f.incarnation++
		f.since, f.warm, f.last = 0, false, nil
		f.identify()
		ids[old], l.byID[f.id] = f.id, i
		if err := b.Put(prefixFamily+f.name, f.encode()); err != nil {
			return nil, err
		}
	}
	return func(key string) string {
		id, ok := ids[[8]byte([]byte(key[1:9]))]
		if !ok {
			return key
		}
		return key[:1] + string(id[:]) + key[9:]
	}, nil
}

// What is stored of a family: whether it has its history, or is in no policy any more.
const (
	familyCold = iota
	familyWarm
	familyGone
)

func (f *family) encode() []byte {
	state := uint64(familyCold)
	if f.warm {
		state = familyWarm
	}
	return binary.AppendUvarint(binary.AppendUvarint(binary.AppendUvarint(nil, f.since), state), f.incarnation)
}

func (l *Ledger) saveFamily(f *family) error {
	b := l.o.Store.NewBatch()
	if err := b.Put(prefixFamily+f.name, f.encode()); err != nil {
		return err
	}
	return b.Commit(true)
}

// retire marks what is in no policy: should it come back, it counts anew, since it
// missed what came meanwhile.
func (l *Ledger) retire() error {
	if l.o.Store == nil {
		return nil
	}
	used := map[string]bool{}
	for _, f := range l.families {
		used[f.name] = true
	}
	b := l.o.Store.NewBatch()
	if err := l.o.Store.Each(prefixFamily, func(name string, v []byte) error {
		r := reader{b: v}
		since, state, incarnation := r.uvarint(), r.uvarint(), r.uvarint()
		if used[name[len(prefixFamily):]] || state == familyGone {
			return nil
		}
		return b.Put(name, binary.AppendUvarint(binary.AppendUvarint(binary.AppendUvarint(nil, since), familyGone), incarnation))
	}); err != nil {
		return fmt.Errorf("read ledger: %w", err)
	}
	return b.Commit(true)
}

// Scratch is an empty ledger in memory with some of the families, whose accounts have
// the same keys as here.
func (l *Ledger) Scratch(members []int) *Ledger {
	s := New(Options{Zone: l.o.Zone, MaxAccounts: 1 << 30})
	for i, m := range members {
		f := l.families[m]
		s.families = append(s.families, &family{Family: f.Family, name: f.name, id: f.id, incarnation: f.incarnation})
		s.byID[f.id] = i
	}
	return s
}

// Warming reports whether a family lacks what was before it, and the chunk from
// whose end on it has everything; 0 while that is not known yet.
func (l *Ledger) Warming(i int) (since uint64, warming bool) {
	return l.families[i].since, !l.families[i].warm
}

// Warm says that what a family lacked has been filled in. It is stored by the next
// Save, together with the sums.
func (l *Ledger) Warm(i int) {
	l.families[i].warm, l.families[i].changed = true, true
}

func (l *Ledger) familyOf(key string) int {
	if i, ok := l.byID[[8]byte([]byte(key[1:9]))]; ok {
		return i
	}
	return -1
}

// Boundary says that a chunk was applied to its end. The first one tells whether
// anything was before this ledger.
func (l *Ledger) Boundary(chunk uint64) {
	first := l.chunk == 0
	l.chunk = chunk
	if !first {
		return
	}
	for i, f := range l.families {
		if f.warm || f.since != 0 {
			continue
		}
		if chunk == 1 {
			l.Warm(i)
			continue
		}
		// What was counted so far is in the journal too, and comes from there.
		f.since, f.changed = chunk, true
		for _, a := range l.accounts {
			if a.Family == i {
				a.Counts, a.buckets = Counts{}, nil
				if !a.dirty {
					a.dirty = true
					l.dirty = append(l.dirty, a)
				}
			}
		}
	}
}

// Value is what an entry has for a field of Fields, with the defaults that an
// empty value stands for.
func Value(e *schema.Entry, field string) string {
	id := &e.Posting.Identity
	switch field {
	case "tenant":
		return e.Tenant
	case "user":
		return directive.NormalUser(id[schema.User])
	case "feature":
		return id[schema.Feature]
	case "workflow":
		return id[schema.Workflow]
	case "workflow_version":
		return id[schema.WorkflowVersion]
	case "agent":
		return id[schema.Agent]
	case "session":
		return id[schema.Session]
	case "criticality":
		if id[schema.Criticality] == "" {
			return "standard"
		}
		return id[schema.Criticality]
	case "mode":
		if id[schema.Mode] == "" {
			return "interactive"
		}
		return id[schema.Mode]
	case "environment":
		return id[schema.Environment]
	case "model":
		return scopeModel(e)
	case "provider":
		return e.Provider
	case "kind":
		return e.Posting.Kind.String()
	}
	return ""
}

// scopeModel is the model that was asked for, since that is what a limiter knows.
func scopeModel(e *schema.Entry) string {
	if e.RequestedModel != "" {
		return e.RequestedModel
	}
	return e.Model
}

func dimOf(e *schema.Entry, d directive.Dim) string {
	switch d {
	case directive.Tenant:
		return e.Tenant
	case directive.User:
		return directive.NormalUser(e.Posting.Identity[schema.User])
	case directive.Feature:
		return e.Posting.Identity[schema.Feature]
	case directive.Workflow:
		return e.Posting.Identity[schema.Workflow]
	case directive.Agent:
		return e.Posting.Identity[schema.Agent]
	case directive.Model:
		return scopeModel(e)
	}
	return e.Posting.Identity[schema.Run]
}

// Matches reports whether an entry meets all conditions.
func Matches(e *schema.Entry, match []Match) bool {
	for i := range match {
		if !slices.Contains(match[i].Values, Value(e, match[i].Field)) {
			return false
		}
	}
	return true
}

// appendKey appends the key of an account: a letter, the family, the window's start
// and the scope's values.
func appendKey(b []byte, letter byte, f *family, start int64, value func(directive.Dim) string, tenant string) []byte {
	b = append(b, letter)
	b = append(b, f.id[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(start))
	if !f.Org {
		b = binary.AppendUvarint(b, uint64(len(tenant)))
		b = append(b, tenant...)
	}
	for _, d := range f.Scope {
		if d == directive.Tenant {
			continue
		}
		v := value(d)
		b = binary.AppendUvarint(b, uint64(len(v)))
		b = append(b, v...)
	}
	return b
}

// Scope reads an account's scope out of its key: the values by dimension, the run
// excepted, which is the second result.
func (l *Ledger) Scope(a *Account) (values map[string]string, run string) {
	values = map[string]string{}
	if a.Family < 0 {
		return values, ""
	}
	f := l.families[a.Family]
	r := reader{b: []byte(a.key[17:])}
	if !f.Org {
		values["tenant"] = r.string()
	}
	for _, d := range f.Scope {
		switch d {
		case directive.Tenant:
		case directive.Run:
			run = r.string()
		default:
			values[directive.DimNames[d]] = r.string()
		}
	}
	return values, run
}

// Tenant reads whose an account is out of its key; false where it is of all tenants, or of
// a guard that is gone.
func (l *Ledger) Tenant(a *Account) (tenant string, bound bool) {
	if a.Family < 0 || l.families[a.Family].Org {
		return "", false
	}
	n, size := binary.Uvarint([]byte(a.key[17:min(len(a.key), 17+binary.MaxVarintLen64)]))
	return a.key[17+size:][:n], true
}

// Key names the account; it is the same as long as scope and window are.
func (a *Account) Key() string { return a.key }

// bounds of the family's window at an instant.
func (l *Ledger) bounds(f *family, tenant string, at int64) (start, end int64) {
	if f.Window.Unit < Hour {
		return 0, 0
	}
	zone := f.Window.Zone
	if zone == nil {
		zone = time.UTC
		if !f.Org {
			if z := l.o.Zone(tenant); z != nil {
				zone = z
			}
		}
	}
	if f.zone == zone && at >= f.start && at < f.end {
		return f.start, f.end
	}
	s, e := f.Window.Bounds(time.Unix(0, at), zone)
	f.zone, f.start, f.end = zone, s.UnixNano(), e.UnixNano()
	return f.start, f.end
}

// Begin starts a record: Touched is empty after it.
func (l *Ledger) Begin() {
	l.gen++
	l.record = l.ran()
	clear(l.touched)
	l.touched = l.touched[:0]
}

// Touched are the accounts that changed since Begin.
func (l *Ledger) Touched() []Touch { return l.touched }

// Apply adds an entry to every account it belongs to. now is the instant at which
// the entry was recorded, received that of the span's receipt in milliseconds. The
// entry's strings may be shared: nothing of it is kept.
func (l *Ledger) Apply(e *schema.Entry, received int64) error {
	now := e.RecordedAt * 1000
	var counts Counts
	counts.add(e, e.Sign)
	for i, f := range l.families {
		if l.chunk < f.since || len(f.Match) > 0 && !Matches(e, f.Match) {
			continue
		}
		// What a person booked belongs to no run, and is no part of a ratio.
		if e.Source == schema.SourceAdjustment && (f.PerRun || slices.Contains(f.Scope, directive.Run)) {
			continue
		}
		start, end := l.bounds(f, e.Tenant, e.Start)
		l.key = appendKey(l.key[:0], 'a', f, start, func(d directive.Dim) string { return dimOf(e, d) }, e.Tenant)
		// The entries of a record are mostly of few runs, one after the other.
		a := f.last
		if a == nil || a.gen != l.gen || a.key != string(l.key) {
			var err error
			if a, err = l.account(l.key, i, start, end, true); err != nil {
				return err
			}
			f.last = a
		}
		l.touch(a, now, received, e.Start+e.Duration)
		a.Trace = e.Trace
		if a.First == 0 || e.Start < a.First {
			a.First = e.Start
		}
		c := &counts
		if f.PerRun {
			own := counts
			c = &own
			if err := l.perRun(e, f, i, c); err != nil {
				return err
			}
		}
		l.add(a, c, f, e.Start)
		if len(f.Scope) > 0 && slices.Contains(f.Scope, directive.Run) {
			a.knows(e)
		}
	}
	return nil
}

// touch marks the account as changed by this record.
func (l *Ledger) touch(a *Account, now, received, ended int64) {
	if a.gen != l.gen {
		a.gen = l.gen
		l.advance(a, now)
		l.touched = append(l.touched, Touch{a, a.Counts})
	}
	a.Touched, a.Received, a.Ended = now, received, ended
	a.Latest = max(a.Latest, ended)
	if !a.dirty {
		a.dirty = true
		l.dirty = append(l.dirty, a)
	}
}

// add adds to the sums, and in a rolling window to the bucket of the instant.
func (l *Ledger) add(a *Account, c *Counts, f *family, at int64) {
	if f.Window.Unit != Rolling {
		a.plus(c)
		return
	}
	at -= at % f.Window.step()
	if l.bucket(a, at, c) && at > a.left {
		a.plus(c)
	}
}

// bucket adds to one of the sums that a rolling window is made of. It is false where nobody
// will need it.
func (l *Ledger) bucket(a *Account, at int64, c *Counts) bool {
	i, found := slices.BinarySearchFunc(a.buckets, at, func(b bucket, at int64) int { return cmp.Compare(b.at, at) })
	if !found {
		if at <= a.left && (l.o.Store == nil || i == 0 && a.gone() >= keepLeft) {
			return false
		}
		a.buckets = slices.Insert(a.buckets, i, bucket{at: at})
	}
	a.buckets[i].plus(c)
	a.buckets[i].changed = l.record
	return true
}

// gone is how many buckets have left the window.
func (a *Account) gone() (n int) {
	for n < len(a.buckets) && a.buckets[n].at <= a.left {
		n++
	}
	return n
}

// advance lets what left a rolling window go out of the sums, and what is in it again, since
// the clock was set back, come in. What changed within the time of a window, by a clock that
// nobody sets, may come in again and is kept, also where it came after it had left: the clock
// may be ahead. A ledger without a store counts what was, and nothing comes back.
func (l *Ledger) advance(a *Account, now int64) {
	if a.Family < 0 || l.families[a.Family].Window.Unit != Rolling {
		return
	}
	over := l.families[a.Family].Window.Over
	left := now - int64(over)
	if len(a.buckets) == 0 || a.buckets[0].at > max(left, a.left) {
		a.left = left
		return
	}
	n := 0
	for ; n < len(a.buckets) && a.buckets[n].at <= max(left, a.left); n++ {
		switch b := &a.buckets[n]; {
		case b.at > a.left:
			a.minus(&b.Counts)
		case b.at > left:
			a.plus(&b.Counts)
		}
	}
	a.left = left
	n = a.gone()
	ran, drop := l.ran(), n-keepLeft
	kept := slices.DeleteFunc(a.buckets[:n], func(b bucket) bool {
		drop--
		return drop >= 0 || l.o.Store == nil || ran-b.changed > over
	})
	if len(kept) < n {
		a.buckets = slices.Delete(a.buckets, len(kept), n)
	}
}

// Advance is the account at an instant: of a rolling window, what is left in it.
func (l *Ledger) Advance(a *Account, now time.Time) { l.advance(a, now.UnixNano()) }

// perRun keeps count of runs that have a model call, and of their attempts. A run's
// attempts move in or out as a whole when its first model call comes or its last
// one is taken back.
func (l *Ledger) perRun(e *schema.Entry, f *family, i int, c *Counts) error {
	l.sub = appendKey(l.sub[:0], 'r', f, 0, func(d directive.Dim) string { return dimOf(e, d) }, e.Tenant)
	run := e.Posting.Identity[schema.Run]
	if f.Org {
		l.sub = binary.AppendUvarint(l.sub, uint64(len(e.Tenant)))
		l.sub = append(l.sub, e.Tenant...)
	}
	l.sub = append(l.sub, run...)
	r, err := l.account(l.sub, i, 0, 0, true)
	if err != nil {
		return err
	}
	had, attempts := r.ModelCalls > 0, r.Calls()
	r.Touched = e.RecordedAt * 1000
	if !r.dirty {
		r.dirty = true
		l.dirty = append(l.dirty, r)
	}
	r.plus(c)
	has := r.ModelCalls > 0
	if had {
		c.Requests--
		c.Attempts -= attempts
	}
	if has {
		c.Requests++
		c.Attempts += r.Calls()
	}
	return nil
}

const maxRunIDs = 16

// knows keeps the trace ids of a run, by which a limiter may know it.
func (a *Account) knows(e *schema.Entry) {
	if len(a.Runs) >= maxRunIDs {
		return
	}
	run := e.Posting.Identity[schema.Run]
	var hex [32]byte
	const digits = "0123456789abcdef"
	for i, c := range e.Trace {
		hex[2*i], hex[2*i+1] = digits[c>>4], digits[c&15]
	}
	if string(hex[:]) == run {
		return
	}
	for _, r := range a.Runs {
		if r == string(hex[:]) {
			return
		}
	}
	a.Runs = append(a.Runs, string(hex[:]))
}

// account finds an account in memory or in the store. With create one that is in
// neither is made.
func (l *Ledger) account(key []byte, family int, start, end int64, create bool) (*Account, error) {
	if a := l.accounts[string(key)]; a != nil {
		if l.lru.next != a {
			a.unlink()
			l.front(a)
		}
		return a, nil
	}
	var stored []byte
	if l.o.Store != nil && (l.known == nil || l.known.has(key)) {
		var err error
		if stored, err = l.o.Store.Get(prefixAccount + string(key)); err != nil {
			return nil, fmt.Errorf("read ledger: %w", err)
		}
	}
	if stored == nil && !create {
		return nil, nil
	}
	a := &Account{key: string(key), Family: family, Start: start, End: end}
	if stored != nil {
		l.loads++
		a.stored = true
		if err := a.decode(stored); err != nil {
			return nil, err
		}
		for i := range a.buckets {
			a.buckets[i].changed = l.ran()
		}
	}
	if a.Touched == 0 {
		l.opened++
	}
	l.accounts[a.key] = a
	l.front(a)
	return a, nil
}

func (l *Ledger) front(a *Account) {
	a.prev, a.next = &l.lru, l.lru.next
	a.prev.next, a.next.prev = a, a
}

func (a *Account) unlink() { a.prev.next, a.next.prev = a.next, a.prev }

// encode is the account's binary form. Holds and leases are not part of it: their
// owner adds them again.
func (a *Account) encode(b []byte) []byte {
	b = append(b, form)
	b = binary.AppendVarint(b, a.Latest)
	b = binary.AppendVarint(b, a.Start)
	b = binary.AppendVarint(b, a.End)
	b = binary.AppendVarint(b, a.First)
	b = binary.AppendVarint(b, a.Touched)
	b = a.Counts.append(b)
	b = binary.AppendUvarint(b, uint64(len(a.Runs)))
	for _, r := range a.Runs {
		b = binary.AppendUvarint(b, uint64(len(r)))
		b = append(b, r...)
	}
	b = binary.AppendUvarint(b, uint64(len(a.buckets)))
	for i := range a.buckets {
		b = binary.AppendVarint(b, a.buckets[i].at)
		b = a.buckets[i].Counts.append(b)
	}
	return binary.AppendVarint(b, a.left)
}

// form is the binary form of accounts; the one before had no sums outside the window.
const form = 3

func (a *Account) decode(v []byte) error {
	if len(v) == 0 || v[0] != form && v[0] != form-1 {
		return errForm
	}
	r := reader{b: v[1:]}
	a.Latest = r.varint()
	a.Start, a.End, a.First, a.Touched = r.varint(), r.varint(), r.varint(), r.varint()
	a.Counts = r.counts()
	for range min(r.uvarint(), maxRunIDs) {
		a.Runs = append(a.Runs, r.string())
	}
	for n := r.uvarint(); n > 0 && !r.bad; n-- {
		at := r.varint()
		a.buckets = append(a.buckets, bucket{at: at, Counts: r.counts()})
	}
	if v[0] == form {
		a.left = r.varint()
	}
	if r.bad {
		return errForm
	}
	return nil
}

// Save adds every account that changed since the last Save to the batch, and lets
// go of accounts beyond what memory may hold.
func (l *Ledger) Save(b *state.Batch) error {
	var buf []byte
	for _, key := range l.gone {
		if err := b.Delete(prefixAccount + key); err != nil {
			return fmt.Errorf("save ledger: %w", err)
		}
	}
	l.gone = nil
	for _, a := range l.dirty {
		a.dirty = false
		if l.o.Store == nil {
			continue
		}
		buf = a.encode(buf[:0])
		if err := b.Put(prefixAccount+a.key, buf); err != nil {
			return fmt.Errorf("save ledger: %w", err)
		}
		if a.stored {
			continue
		}
		a.stored = true
		if l.known != nil {
			l.known.add([]byte(a.key))
		}
		if l.saved != nil {
			l.saved = append(l.saved, a.key)
		}
	}
	for _, f := range l.families {
		if f.changed && l.o.Store != nil {
			if err := b.Put(prefixFamily+f.name, f.encode()); err != nil {
				return fmt.Errorf("save ledger: %w", err)
			}
		}
		f.changed = false
	}
	clear(l.dirty)
	l.dirty = l.dirty[:0]
	if cap(l.dirty) > 1<<16 {
		l.dirty = nil
	}
	return nil
}

// Shrink drops the accounts that rest longest beyond MaxAccounts. It is to be
// called after what Save gathered is in the store.
func (l *Ledger) Shrink() {
	if l.o.Store == nil {
		return
	}
	for a := l.lru.prev; len(l.accounts) > l.o.MaxAccounts && a != &l.lru; {
		prev := a.prev
		if !a.dirty && a.gen != l.gen && a.Pinned == 0 && a.Holds == (Pending{}) && a.Leases == (Pending{}) {
			a.unlink()
			delete(l.accounts, a.key)
		}
		a = prev
	}
}

// Expired lists stored accounts whose window ended more than two days ago, and those
// of runs and of rolling windows that rested longer than they are kept. It reads the
// store alone and may run beside everything else.
func (l *Ledger) Expired(now time.Time) (keys []string, err error) {
	if l.o.Store == nil {
		return nil, nil
	}
	err = l.o.Store.Each(prefixAccount, func(name string, v []byte) error {
		var a Account
		if key := name[len(prefixAccount):]; len(key) < 17 || a.decode(v) != nil || l.over(&a, now) {
			keys = append(keys, key)
		}
		return nil
	})
	return keys, err
}

// Forget deletes those of the keys that nobody uses.
func (l *Ledger) Forget(keys []string, now time.Time) error {
	b := l.o.Store.NewBatch()
	for _, key := range keys {
		if a := l.accounts[key]; a != nil {
			if a.dirty || a.Pinned > 0 || a.gen == l.gen || a.Holds != (Pending{}) || a.Leases != (Pending{}) || !l.over(a, now) {
				continue
			}
			a.unlink()
			delete(l.accounts, key)
		}
		if err := b.Delete(prefixAccount + key); err != nil {
			return err
		}
	}
	return b.Commit(false)
}

func (l *Ledger) over(a *Account, now time.Time) bool {
	if a.End != 0 {
		return a.End < now.Add(-48*time.Hour).UnixNano()
	}
	return a.Touched < now.Add(-l.o.Keep).UnixNano()
}

// Find is the account of a scope at an instant; nil where nothing was counted yet
// and create is false. match says what the call has for the family's conditions.
func (l *Ledger) Find(family int, at time.Time, value func(directive.Dim) string, create bool) (*Account, error) {
	f := l.families[family]
	tenant := value(directive.Tenant)
	start, end := l.bounds(f, tenant, at.UnixNano())
	l.key = appendKey(l.key[:0], 'a', f, start, func(d directive.Dim) string {
		if d == directive.User {
			return directive.NormalUser(value(d))
		}
		return value(d)
	}, tenant)
	a, err := l.account(l.key, family, start, end, create)
	if a != nil {
		l.advance(a, at.UnixNano())
	}
	return a, err
}

// Blank stands for the account of a scope that nothing was counted on yet: it has its
// key and its window, and is in no map.
func (l *Ledger) Blank(family int, at time.Time, value func(directive.Dim) string) *Account {
	f := l.families[family]
	tenant := value(directive.Tenant)
	start, end := l.bounds(f, tenant, at.UnixNano())
	key := appendKey(nil, 'a', f, start, func(d directive.Dim) string {
		if d == directive.User {
			return directive.NormalUser(value(d))
		}
		return value(d)
	}, tenant)
	return &Account{key: string(key), Family: family, Start: start, End: end}
}

// ByKey is the account of a key, from memory or the store; created where it is in
// neither, since something is pending on it.
func (l *Ledger) ByKey(key string, start, end int64) (*Account, error) {
	return l.account([]byte(key), l.familyOf(key), start, end, true)
}

// Each calls f for the accounts in memory that guards use.
func (l *Ledger) Each(f func(*Account) bool) {
	for a := l.lru.next; a != &l.lru; a = a.next {
		if a.Family >= 0 && a.key[0] == 'a' && !f(a) {
			return
		}
	}
}

// All are the accounts in memory by their keys, those of runs inside families too.
func (l *Ledger) All() map[string]*Account { return l.accounts }

// Hold changes what is pending on an account.
func (a *Account) Hold(p Pending, sign int64) { a.Holds.plus(p, sign) }

// Lease changes what is leased of an account.
func (a *Account) Lease(p Pending, sign int64) { a.Leases.plus(p, sign) }

// Fill adds to an account of a family what another ledger's account of the same key
// has: what was before the family.
func (l *Ledger) Fill(key string, family int, from *Account) error {
	a, err := l.account([]byte(key), family, from.Start, from.End, true)
	if err != nil {
		return err
	}
	if key[0] == 'r' {
		if err := l.join(key, family, a, from); err != nil {
			return err
		}
	}
	l.record = l.ran()
	if rolling := key[0] == 'a' && l.families[family].Window.Unit == Rolling; !rolling {
		a.plus(&from.Counts)
	}
	for i := range from.buckets {
		l.add(a, &from.buckets[i].Counts, l.families[family], from.buckets[i].at)
	}
	for _, r := range from.Runs {
		if len(a.Runs) < maxRunIDs && !slices.Contains(a.Runs, r) {
			a.Runs = append(a.Runs, r)
		}
	}
	if a.First == 0 || from.First < a.First {
		a.First = from.First
	}
	a.Touched, a.Ended, a.Latest = max(a.Touched, from.Touched), max(a.Ended, from.Ended), max(a.Latest, from.Latest)
	if !a.dirty {
		a.dirty = true
		l.dirty = append(l.dirty, a)
	}
	return nil
}

// join corrects what a run counts that went on while its family began: both halves
// were taken for a run of their own. It counts where its second half was seen.
func (l *Ledger) join(key string, family int, late, early *Account) error {
	var c Counts
	whole := late.Counts
	whole.plus(&early.Counts)
	for _, part := range []struct {
		*Counts
		sign int64
	}{{&whole, 1}, {&late.Counts, -1}, {&early.Counts, -1}} {
		if part.ModelCalls > 0 {
			c.Requests += part.sign
			c.Attempts += part.sign * part.Calls()
		}
	}
	if c == (Counts{}) {
		return nil
	}
	f := l.families[family]
	r := reader{b: []byte(key[17:])}
	tenant := ""
	if !f.Org {
		tenant = r.string()
	}
	values := map[directive.Dim]string{}
	for _, d := range f.Scope {
		if d != directive.Tenant {
			values[d] = r.string()
		}
	}
	at := late.Touched
	start, end := l.bounds(f, tenant, at)
	l.key = appendKey(l.key[:0], 'a', f, start, func(d directive.Dim) string { return values[d] }, tenant)
	a, err := l.account(l.key, family, start, end, true)
	if err != nil {
		return err
	}
	l.add(a, &c, f, at)
	if !a.dirty {
		a.dirty = true
		l.dirty = append(l.dirty, a)
	}
	return nil
}

// Stats is the ledger's size.
func (l *Ledger) Stats() (accounts, families int, loads uint64) {
	return len(l.accounts), len(l.families), l.loads
}

// Opened is how many accounts were opened that nobody knew before.
func (l *Ledger) Opened() uint64 { return l.opened }

// Len is how many families are in use.
func (l *Ledger) Len() int { return len(l.families) }

// Window is the family's window.
func (l *Ledger) Window(family int) Window { return l.families[family].Window }

// Live reports whether an account's window holds the instant.
func (a *Account) Live(now time.Time) bool {
	if a.End == 0 {
		return true
	}
	n := now.UnixNano()
	return n >= a.Start && n < a.End
}

package enforce

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/flyball/flyball/enforce/directive"
	"github.com/flyball/flyball/enforce/ledger"
	"github.com/flyball/flyball/schema"
	"github.com/flyball/flyball/schema/state"
)

// How long promises stay.
const (
	leaseTTL      = time.Minute       // without a heartbeat
	leaseGrace    = 30 * time.Minute  // longest call and 10 minutes: then nobody will report it any more
	holdTTL       = 10 * time.Minute  // until a reported call without a span becomes an entry of its own
	giveUpPosting = time.Hour         // a reported call that nobody takes
	lateSettle    = 24 * time.Hour    // after a lease ran out, until it cannot be settled any more
	maxLeases     = 1_000_000         // of all keys
	maxValue      = 1024              // bytes of a name or an id of a call
	maxTokens     = 1_000_000_000_000 // of one count of a call: beyond, it is a mistake
)

// promise is a lease, or the hold that it became when it was settled.
type promise struct {
	ID       string         `json:"id"`
	Key      string         `json:"key"` // credential that may settle it
	Call     directive.Call `json:"call"`
	Ask      pendingJSON    `json:"ask"`
	Accounts []accountRef   `json:"accounts"`
	Made     int64          `json:"made"`    // unix ns
	Expires  int64          `json:"expires"` // unix ns; of a hold: when it stops
	Hold     bool           `json:"hold,omitempty"`
	Posted   bool           `json:"posted,omitempty"` // the span came before it was settled
	Response string         `json:"response_id,omitempty"`
	Usage    *Settlement    `json:"usage,omitempty"`

	posting bool // it is being booked
}

type accountRef struct {
	Key        []byte `json:"key"`
	Start, End int64
}

type pendingJSON struct {
	USD                           schema.Sum
	Tokens, ModelCalls, ToolCalls int64
}

// UnmarshalJSON and MarshalJSON keep the amount exact.
func (p *pendingJSON) UnmarshalJSON(b []byte) error {
	var v struct {
		USD                           schema.Money
		Tokens, ModelCalls, ToolCalls int64
	}
	if err := json.Unmarshal(b, &v); err != nil {
		return err
	}
	*p = pendingJSON{schema.SumOf(int64(v.USD)), v.Tokens, v.ModelCalls, v.ToolCalls}
	return nil
}

func (p pendingJSON) pending() ledger.Pending {
	return ledger.Pending{Exposure: p.USD, Tokens: p.Tokens, ModelCalls: p.ModelCalls, ToolCalls: p.ToolCalls}
}

func pendingOf(p ledger.Pending) pendingJSON {
	return pendingJSON{p.Exposure, p.Tokens, p.ModelCalls, p.ToolCalls}
}

// book is every promise.
type book struct {
	leases     map[string]*promise // by id, holds too
	of         map[string]int      // how many of them each key has
	most       int                 // of them
	bySpan     map[string]*promise
	byResponse map[string]*promise
	changed    map[string]bool
	closed     map[string]int64 // settled or released since the last checkpoint, at unix seconds
	saved      []string         // those of them that are on their way into the store
	seen       seen
	next       int64     // earliest expiry
	noNewUntil time.Time // leases of before a restore may be in use until then
}

func (b *book) init() {
	b.most, b.of = maxLeases, map[string]int{}
	b.leases, b.bySpan, b.byResponse, b.changed, b.closed = map[string]*promise{}, map[string]*promise{}, map[string]*promise{}, map[string]bool{}, map[string]int64{}
	b.seen.has = map[uint64]bool{}
}

// fair reports whether a key that has own of all may have n more: together no more than
// are left for everybody. So one key has half of what there is at the most, and who has
// none finds a place whatever others do.
func fair(own, n, all, most int) bool { return own+n <= most-all }

// leave checks that a key may have n more leases or holds.
func (b *book) leave(key string, n int) error {
	if own := b.of[key]; !fair(own, n, len(b.leases), b.most) {
		return tooMany(5*time.Second, "key %s has %d open leases and reported calls without a span, and may have no more than are left for all keys, %d of %d: settle or release leases whose calls are done, send their spans, and come back", key, own, max(0, b.most-len(b.leases)), b.most)
	}
	return nil
}

func (b *book) put(p *promise) {
	b.leases[p.ID] = p
	b.of[p.Key]++
	b.index(p)
}

func (b *book) take(p *promise) {
	delete(b.leases, p.ID)
	if b.of[p.Key]--; b.of[p.Key] == 0 {
		delete(b.of, p.Key)
	}
	b.unindex(p)
}

func (b *book) holds() (n int) {
	for _, p := range b.leases {
		if p.Hold {
			n++
		}
	}
	return n
}

// closed reports whether a lease that is not open was settled or released. The
// store knows it for as long as the lease's token may come again.
func (l *Loop) closed(id string) (bool, error) {
	if _, ok := l.book.closed[id]; ok {
		return true, nil
	}
	v, err := l.o.Store.Get(keyClosed + id)
	return v != nil, err
}

// expireClosed forgets leases that nobody can settle any more.
func (l *Loop) expireClosed(now time.Time) error {
	b := l.o.Store.NewBatch()
	if err := l.o.Store.Each(keyClosed, func(name string, v []byte) error {
		if at, _ := binary.Varint(v); now.Unix()-at < int64((lateSettle+leaseGrace+leaseTTL)/time.Second) {
			return nil
		}
		return b.Delete(name)
	}); err != nil {
		return err
	}
	return b.Commit(false)
}

func spanKey(tenant, trace, span string) string { return tenant + "\x00" + trace + "\x00" + span }
func responseKey(tenant, id string) string      { return tenant + "\x00" + id }

// hashOf is FNV-1a, of which only equality matters.
func hashOf[T string | []byte](s T) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return h
}

// index makes a promise findable by what its span will be known by.
func (b *book) index(p *promise) {
	if p.Call.TraceID != "" && p.Call.SpanID != "" {
		b.bySpan[spanKey(p.Call.Tenant, strings.ToLower(p.Call.TraceID), strings.ToLower(p.Call.SpanID))] = p
	}
	if p.Response != "" {
		b.byResponse[responseKey(p.Call.Tenant, p.Response)] = p
	}
}

func (b *book) unindex(p *promise) {
	if k := spanKey(p.Call.Tenant, strings.ToLower(p.Call.TraceID), strings.ToLower(p.Call.SpanID)); b.bySpan[k] == p {
		delete(b.bySpan, k)
	}
	if k := responseKey(p.Call.Tenant, p.Response); b.byResponse[k] == p {
		delete(b.byResponse, k)
	}
}

// move adds a promise to its accounts, or takes it away.
func (l *Loop) move(p *promise, sign int64) error {
	for _, r := range p.Accounts {
		a, err := l.ledger.ByKey(string(r.Key), r.Start, r.End)
		if err != nil {
			return err
		}
		if p.Hold {
			a.Hold(p.Ask.pending(), sign)
		} else {
			a.Lease(p.Ask.pending(), sign)
		}
	}
	return nil
}

func (l *Loop) addPromise(p *promise) error {
	if l.book.leases[p.ID] != nil {
		return nil
	}
	if !p.Posted {
		if err := l.move(p, 1); err != nil {
			return err
		}
	}
	l.book.put(p)
	l.book.changed[p.ID] = true
	if l.book.next == 0 || p.Expires < l.book.next {
		l.book.next = p.Expires
	}
	return nil
}

// recall makes a promise that was made before this process, or this policy, one of now.
func (l *Loop) recall(p *promise) {
	l.forgetPromise(p)
	l.teach(&p.Call)
}

// dropPromise takes a promise off its accounts.
func (l *Loop) dropPromise(p *promise) error {
	if l.book.leases[p.ID] != p {
		return nil
	}
	if !p.Posted {
		if err := l.move(p, -1); err != nil {
			return err
		}
	}
	l.book.take(p)
	l.book.changed[p.ID] = true
	return nil
}

// replaceHold lets an entry take the place of what was promised for its call.
func (l *Loop) replaceHold(e *schema.Entry) error {
	if e.Sign < 0 || e.Source == schema.SourceLimiter || e.Source == schema.SourceAdjustment || len(l.book.leases) == 0 && !e.Posting.Kind.ModelLike() {
		return nil
	}
	var buf [128]byte
	k := append(buf[:0], e.Tenant...)
	k = append(k, 0)
	k = hex.AppendEncode(k, e.Trace[:])
	k = append(k, 0)
	k = hex.AppendEncode(k, e.Span[:])
	l.book.seen.add(hashOf(k))
	p := l.book.bySpan[string(k)]
	if e.ResponseID != "" {
		k = append(k[:0], e.Tenant...)
		k = append(k, 0)
		k = append(k, e.ResponseID...)
		l.book.seen.add(hashOf(k))
		if p == nil {
			p = l.book.byResponse[string(k)]
		}
	}
	if p == nil || p.Posted {
		return nil
	}
	if p.Hold {
		return l.dropPromise(p)
	}
	if err := l.move(p, -1); err != nil {
		return err
	}
	p.Posted = true // when it is settled, there is nothing left to post
	l.book.changed[p.ID] = true
	return nil
}

// own is a record of enforcement in the log.
type own struct {
	Op      string      `json:"op"` // reserve settle release
	Promise []*promise  `json:"promise,omitempty"`
	ID      string      `json:"id,omitempty"`
	Usage   *Settlement `json:"usage,omitempty"`
	Actual  pendingJSON `json:"actual,omitzero"`
	At      int64       `json:"at"`
}

// replayOwn applies what the log has and memory lacks, after a restart.
func (l *Loop) replayOwn(data []byte) error {
	var o own
	if err := json.Unmarshal(data, &o); err != nil {
		return fmt.Errorf("read own record: %w", err)
	}
	return l.applyOwn(&o)
}

func (l *Loop) applyOwn(o *own) error {
	switch o.Op {
	case "reserve":
		for _, p := range o.Promise {
			l.recall(p)
			// An entry that stands before this record in the log may have been applied after it.
			if p.Posted = l.book.seen.call(&p.Call, p.Response); p.Posted && p.Hold {
				continue
			}
			if err := l.addPromise(p); err != nil {
				return err
			}
		}
		return nil
	case "release":
		l.book.closed[o.ID] = o.At / 1e9
		if p := l.book.leases[o.ID]; p != nil && !p.Hold {
			return l.dropPromise(p)
		}
		return nil
	case "settle":
		return l.applySettle(o)
	}
	return fmt.Errorf("own record of unknown kind %q", o.Op)
}

// applySettle turns a lease into a hold of what was really spent, or into nothing
// where the span was posted already.
func (l *Loop) applySettle(o *own) error {
	if l.book.leases[o.ID] == nil && len(o.Promise) > 0 {
		l.recall(o.Promise[0])
		if err := l.addPromise(o.Promise[0]); err != nil {
			return err
		}
	}
	p := l.book.leases[o.ID]
	if p == nil || p.Hold {
		return nil
	}
	l.book.closed[o.ID] = o.At / 1e9
	posted := p.Posted
	if err := l.dropPromise(p); err != nil {
		return err
	}
	u := o.Usage
	h := &promise{ID: p.ID, Key: p.Key, Call: p.Call, Accounts: p.Accounts, Ask: o.Actual, Hold: true, Made: p.Made, Expires: o.At + int64(holdTTL), Response: u.ResponseID, Usage: u}
	if u.SpanID != "" {
		h.Call.SpanID = u.SpanID
	}
	if u.TraceID != "" {
		h.Call.TraceID = u.TraceID
	}
	l.teach(&h.Call)
	if posted || l.book.seen.call(&h.Call, h.Response) {
		return nil
	}
	return l.addPromise(h)
}

// expireBook lets go of promises that ran out. A lease that nobody settled stays
// counted for as long as its call may still be running. A hold whose span never
// came becomes an entry, where it has the ids for one.
func (l *Loop) expireBook(now time.Time) error {
	n := now.UnixNano()
	if l.book.next == 0 || n < l.book.next {
		return nil
	}
	l.book.next = 0
	var late []*promise
	for _, p := range l.book.leases {
		end := p.Expires
		if !p.Hold {
			end += int64(leaseGrace)
		}
		if n < end {
			if l.book.next == 0 || end < l.book.next {
				l.book.next = end
			}
			continue
		}
		if p.Hold && p.Usage != nil && p.Call.TraceID != "" && p.Call.SpanID != "" && l.o.Post != nil && n < end+int64(giveUpPosting) {
			// It stays until it is booked: its entry takes its place then.
			l.book.next = n + int64(10*time.Second)
			if !p.posting {
				p.posting = true
				late = append(late, p)
			}
			continue
		}
		if !p.Hold {
			// Said before a crash that forgot that the lease is gone, it is not said again.
			said, err := l.o.Store.Get(keyExpired + p.ID)
			if err != nil {
				return err
			}
			if said == nil {
				l.metrics.leases.WithLabelValues("expired").Inc()
				l.event(Event{At: now.UTC(), Kind: "lease", Action: "expired", Tenant: p.Call.Tenant, Scope: p.ID, Actor: p.Key, Value: "$" + p.Ask.USD.String(), Reason: "neither settled nor released, and no span came"})
			}
		}
		if err := l.dropPromise(p); err != nil {
			return err
		}
	}
	if len(late) > 0 {
		l.done.Go(func() {
			for _, p := range late {
				err := l.o.Post(p.Call, *p.Usage, time.Unix(0, p.Made))
				l.mu.Lock()
				p.posting = false
				if err != nil {
					l.o.Logger.Error("a reported call is not booked yet", "lease", p.ID, "err", err)
				} else if derr := l.dropPromise(p); derr != nil {
					l.failed(derr)
				}
				l.mu.Unlock()
			}
		})
	}
	return nil
}

// saveBook adds changed promises to a checkpoint.
func (l *Loop) saveBook(b *state.Batch) error {
	for id := range l.book.changed {
		p := l.book.leases[id]
		if p == nil {
			if err := b.Delete(keyBook + id); err != nil {
				return err
			}
			continue
		}
		v, err := json.Marshal(p)
		if err != nil {
			return err
		}
		if err := b.Put(keyBook+id, v); err != nil {
			return err
		}
	}
	clear(l.book.changed)
	for id, at := range l.book.closed {
		if err := b.Put(keyClosed+id, binary.AppendVarint(nil, at)); err != nil {
			return err
		}
		l.book.saved = append(l.book.saved, id)
	}
	return l.book.seen.save(b)
}

// savedBook is to be called when what saveBook gathered is in the store.
func (l *Loop) savedBook() {
	for _, id := range l.book.saved {
		delete(l.book.closed, id)
	}
	l.book.saved = l.book.saved[:0]
}

func (l *Loop) restoreBook() error {
	if err := l.book.seen.restore(l.o.Store); err != nil {
		return err
	}
	return l.o.Store.Each(keyBook, func(name string, v []byte) error {
		p := &promise{}
		if err := json.Unmarshal(v, p); err != nil {
			return fmt.Errorf("read lease %s: %w", name, err)
		}
		l.teach(&p.Call)
		if !p.Posted {
			if err := l.move(p, 1); err != nil {
				return err
			}
		}
		l.book.put(p)
		if l.book.next == 0 || p.Expires < l.book.next {
			l.book.next = p.Expires
		}
		return nil
	})
}

// Lease is a slice of every budget that applies to a call.
type Lease struct {
	Lease     string    `json:"lease"` // its token, signed by the server
	ExpiresAt time.Time `json:"expires_at"`
	Model     string    `json:"model,omitempty"` // to use instead
	USD       string    `json:"reserved_usd"`
}

// Reserve leases a slice of every budget that applies to each of the calls, all or
// none. It returns when that is durable. A refusal comes as the answer of the first
// call that is refused, with no lease.
func (l *Loop) Reserve(ctx context.Context, calls []directive.Call, key string) ([]Lease, []Answer, error) {
	if len(calls) == 0 || len(calls) > 1000 {
		return nil, nil, badInput("a plan has 1 to 1,000 calls")
	}
	leases, answers, end, err := l.reserve(calls, key)
	if err != nil || leases == nil {
		if err == nil {
			l.metrics.leases.WithLabelValues("refused").Inc()
		}
		return nil, answers, err
	}
	l.metrics.leases.WithLabelValues("granted").Add(float64(len(leases)))
	return leases, answers, l.log.Sync(ctx, end)
}

func (l *Loop) reserve(calls []directive.Call, key string) (leases []Lease, answers []Answer, end uint64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if now.Before(l.book.noNewUntil) {
		return nil, nil, 0, unavailable(l.book.noNewUntil.Sub(now), "leases of before a restore may still be in use")
	}
	if err := l.book.leave(key, len(calls)); err != nil {
		return nil, nil, 0, err
	}
	var made []*promise
	granted := false
	defer func() {
		for _, p := range made {
			if granted {
				break
			}
			if derr := l.dropPromise(p); derr != nil {
				err = errors.Join(err, derr)
			}
			delete(l.book.changed, p.ID)
		}
	}()
	for i := range calls {
		c := calls[i]
		w, err := l.weigh(&c, now, true)
		if err != nil || w.Decision.Verdict == directive.Deny {
			return nil, []Answer{w.Answer}, 0, err
		}
		if w.Decision.Verdict == directive.Downgraded {
			c.Model = w.Decision.Model
		}
		accounts, err := l.refs(&c, now)
		if err != nil {
			return nil, nil, 0, err
		}
		var id [16]byte
		_, _ = rand.Read(id[:])
		p := &promise{ID: hex.EncodeToString(id[:]), Key: key, Call: c, Ask: pendingOf(w.ask), Accounts: accounts, Made: now.UnixNano(), Expires: now.Add(leaseTTL).UnixNano()}
		made = append(made, p)
		if err := l.addPromise(p); err != nil { // so that the next call of the plan sees it
			return nil, nil, 0, err
		}
		answers = append(answers, w.Answer)
	}
	if end, err = l.appendOwn(&own{Op: "reserve", Promise: made, At: now.UnixNano()}); err != nil {
		return nil, nil, 0, err
	}
	granted = true
	for i, p := range made {
		leases = append(leases, Lease{Lease: l.token(p), ExpiresAt: time.Unix(0, p.Expires).UTC(), Model: answers[i].Model, USD: p.Ask.USD.String()})
	}
	return leases, answers, end, nil
}

// appendOwn adds an own record to the log; what it says is applied already. mu is held.
func (l *Loop) appendOwn(o *own) (uint64, error) {
	data, err := json.Marshal(o)
	if err != nil {
		return 0, err
	}
	end, err := l.log.Append(data)
	if err != nil {
		return 0, fmt.Errorf("append lease: %w", err)
	}
	l.leasePos = end
	return end, nil
}

// token is a lease as its holder has it: enough to make it again, and a signature.
func (l *Loop) token(p *promise) string {
	b, err := json.Marshal(p)
	if err != nil {
		panic("BUG: lease has no JSON: " + err.Error())
	}
	text := base64.RawURLEncoding.EncodeToString(b)
	return text + "." + l.mac("lease "+text)
}

// openToken reads a token that this server signed for the key.
func (l *Loop) openToken(token, key string) (*promise, error) {
	text, mac, ok := strings.Cut(token, ".")
	if !ok || !l.signed("lease "+text, mac) {
		return nil, forbidden("the lease is not one that this server gave out")
	}
	b, err := base64.RawURLEncoding.DecodeString(text)
	p := &promise{}
	if err != nil || json.Unmarshal(b, p) != nil {
		return nil, forbidden("the lease is not one that this server gave out")
	}
	if p.Key != key {
		return nil, forbidden("the lease belongs to the key %s", p.Key)
	}
	return p, nil
}

// revive readies a lease that the book has no more, as its token has it. It is counted on
// the accounts of the policy that is in force now, not of the one that it was made under.
func (l *Loop) revive(p *promise) (err error) {
	l.recall(p)
	p.Posted = l.book.seen.call(&p.Call, p.Response)
	p.Accounts, err = l.refs(&p.Call, time.Unix(0, p.Made))
	return err
}

// Heartbeat keeps a lease open. A lease that the server has lost comes back.
func (l *Loop) Heartbeat(token, key string) (Lease, error) {
	p, err := l.openToken(token, key)
	if err != nil {
		return Lease{}, err
	}
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	held := l.book.leases[p.ID]
	closed := false
	if held == nil {
		if closed, err = l.closed(p.ID); err != nil {
			return Lease{}, err
		}
	}
	switch {
	case closed || held != nil && held.Hold:
		return Lease{}, gone("the lease was settled or released")
	case held == nil && now.UnixNano() > p.Expires+int64(leaseGrace):
		return Lease{}, gone("the lease ran out")
	case held == nil:
		if err := l.revive(p); err != nil {
			return Lease{}, err
		}
		if err := l.addPromise(p); err != nil {
			return Lease{}, err
		}
		// In the log it has to stand before it is settled.
		if _, err := l.appendOwn(&own{Op: "reserve", Promise: []*promise{p}, At: now.UnixNano()}); err != nil {
			return Lease{}, err
		}
		held = p
	}
	held.Expires = now.Add(leaseTTL).UnixNano()
	l.book.changed[p.ID] = true
	return Lease{Lease: l.token(held), ExpiresAt: time.Unix(0, held.Expires).UTC(), USD: held.Ask.USD.String()}, nil
}

// Settlement is what a call really used.
type Settlement struct {
	Tokens     map[string]uint64 `json:"tokens,omitempty"`   // by name, disjoint; none is not known
	Model      string            `json:"model,omitempty"`    // that answered
	Provider   string            `json:"provider,omitempty"` // that bills
	TraceID    string            `json:"trace_id,omitempty"`
	SpanID     string            `json:"span_id,omitempty"`
	ResponseID string            `json:"response_id,omitempty"`
	Failed     bool              `json:"failed,omitempty"` // the call was made and came to nothing
}

// Counts are the tokens of the settlement.
func (u *Settlement) Counts() (t schema.Tokens, err error) {
	for name, n := range u.Tokens {
		i := slices.Index(schema.TokenNames[:], name)
		if i < 0 {
			return t, badInput("unknown token count %q; known are %s", name, strings.Join(schema.TokenNames[:], ", "))
		}
		if n > maxTokens {
			return t, badInput("%s %d: a call of more than %d tokens is none", name, n, uint64(maxTokens))
		}
		*t.Fields()[i] = n
	}
	return t, nil
}

// Settle closes a lease with what was used. Until the call's span comes, that is
// held against the budgets. Settling twice, or after the lease ran out, is safe.
func (l *Loop) Settle(ctx context.Context, token, key string, u Settlement) error {
	p, err := l.openToken(token, key)
	if err != nil {
		return err
	}
	tokens, err := u.Counts()
	if err != nil {
		return err
	}
	for _, v := range []string{u.Model, u.Provider, u.TraceID, u.SpanID, u.ResponseID} {
		if len(v) > maxValue {
			return badInput("a value of the settlement is longer than 1,024 bytes")
		}
	}
	now := time.Now()
	l.mu.Lock()
	held := l.book.leases[p.ID]
	done := held != nil && held.Hold // settled before
	if held == nil {
		if done, err = l.closed(p.ID); err == nil && !done && now.UnixNano() > p.Expires+int64(lateSettle) {
			err = gone("the lease ran out more than a day ago; what its call cost counts by its span alone")
		}
	}
	if done || err != nil {
		l.mu.Unlock()
		return err
	}
	o := &own{Op: "settle", ID: p.ID, Usage: &u, At: now.UnixNano()}
	if held == nil { // it ran out, or is of before a restore: what was spent still counts
		if err := l.revive(p); err != nil {
			l.mu.Unlock()
			return err
		}
		o.Promise = []*promise{p}
	}
	model, provider := p.Call.Model, p.Call.Provider
	if u.Model != "" {
		model = u.Model
	}
	if u.Provider != "" {
		provider = u.Provider
	}
	actual := p.Ask.pending() // what is not known counts with what was asked for
	switch {
	case len(u.Tokens) > 0:
		actual.Tokens = int64(tokens.TotalInput() + tokens.TotalOutput())
		if model != "" && l.o.Pricer != nil {
			most, _ := l.o.Pricer.Cost(p.Call.Tenant, provider, model, &tokens, time.Unix(0, p.Made))
			actual.Exposure = schema.SumOf(int64(most))
		}
	case u.Failed:
		actual.Tokens, actual.Exposure = 0, schema.Sum{}
	}
	o.Actual = pendingOf(actual)
	if err = l.applyOwn(o); err != nil {
		l.mu.Unlock()
		return err
	}
	end, err := l.appendOwn(o)
	l.mu.Unlock()
	if err != nil {
		return err
	}
	l.metrics.leases.WithLabelValues("settled").Inc()
	return l.log.Sync(ctx, end)
}

// ReleaseLease gives a lease back for a call that was not made, or was cancelled before
// it cost anything. Twice is safe.
func (l *Loop) ReleaseLease(ctx context.Context, token, key string) error {
	p, err := l.openToken(token, key)
	if err != nil {
		return err
	}
	l.mu.Lock()
	if l.book.leases[p.ID] == nil {
		l.mu.Unlock()
		return nil
	}
	o := &own{Op: "release", ID: p.ID, At: time.Now().UnixNano()}
	if err = l.applyOwn(o); err != nil {
		l.mu.Unlock()
		return err
	}
	end, err := l.appendOwn(o)
	l.mu.Unlock()
	if err != nil {
		return err
	}
	l.metrics.leases.WithLabelValues("released").Inc()
	return l.log.Sync(ctx, end)
}

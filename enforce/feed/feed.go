// Package feed carries directive sets to limiters: as server-sent events, the full
// set on connect and changes after it, and by long polling.
//
// It guarantees that a limiter sees only what concerns the tenants of its key, that
// versions rise for each of them, that ten thousand directives cost a connection
// nothing when one of them changes, and that a limiter that does not read holds
// nobody up: it loses its connection. It refuses nothing and decides nothing.
package feed

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/flyball/flyball/enforce/directive"
)

// Options of New; zero values are the defaults.
type Options struct {
	Heartbeat time.Duration // between signs of life, default 10 s
	Valid     time.Duration // how long a set holds without one, default 60 s
	History   int           // changes kept for those who reconnect, default 1024
	Write     time.Duration // what one write to a limiter may take, default 10 s
	// Sign is the server's signature of a version.
	Sign func(directive.Version) string
}

// Feed is what limiters follow.
type Feed struct {
	o Options

	mu     sync.Mutex // guards everything below
	state  directive.State
	held   map[string]entry
	views  map[string]*view
	closed bool
	conns  int
}

// entry is a directive as who sees every tenant has it, and as others do: what the
// whole organisation spends is not for those who see one tenant.
type entry struct {
	d, public          directive.Directive
	print, publicPrint uint64
}

// OrgReason stands for a reason that tells what the whole organisation spends.
const OrgReason = "a limit of the whole organisation is reached"

func newEntry(d directive.Directive) entry {
	e := entry{d: d, public: d, print: directive.Fingerprint(&d)}
	if _, bound := d.Scope.Values["tenant"]; !bound {
		e.public.Reason, e.public.Spent, e.public.Limit = OrgReason, "", ""
	}
	e.publicPrint = directive.Fingerprint(&e.public)
	return e
}

// KillForTenants is the kill switch as those see it who do not see every tenant.
func KillForTenants(k directive.Kill) directive.Kill {
	if k.Actor == "automatic" {
		k.Reason = OrgReason
	}
	return k
}

// of is the directive and its fingerprint as a view has them.
func (v *view) of(e *entry) (*directive.Directive, uint64) {
	if v.org {
		return &e.d, e.print
	}
	return &e.public, e.publicPrint
}

// view is what the holders of equal rights see.
type view struct {
	allow   func(tenant string) bool
	org     bool // sees what the whole organisation spends
	version directive.Version
	digest  uint64
	ring    []event
	bytes   int           // of the ring's data
	news    chan struct{} // closed by the next change
	used    time.Time
	full    []byte // the whole set as it was sent last
	fullAt  time.Time
}

type event struct {
	from, version directive.Version
	data          []byte
}

// ringBytes bounds what a view keeps for those who reconnect: a policy may change ten
// thousand directives at once, many times. Who missed more is sent the whole set.
const ringBytes = 4 << 20

// keep adds a change to the view's ring, and lets the oldest go.
func (v *view) keep(e event, most int) {
	gone := 0
	for v.bytes += len(e.data); gone < len(v.ring) && (len(v.ring)-gone >= most || v.bytes > ringBytes); gone++ {
		v.bytes -= len(v.ring[gone].data)
	}
	v.ring = append(slices.Delete(v.ring, 0, gone), e)
}

// New starts with a set.
func New(o Options, s directive.State) *Feed {
	if o.Heartbeat == 0 {
		o.Heartbeat = 10 * time.Second
	}
	if o.Valid == 0 {
		o.Valid = time.Minute
	}
	if o.History == 0 {
		o.History = 1024
	}
	if o.Write == 0 {
		o.Write = 10 * time.Second
	}
	if o.Sign == nil {
		o.Sign = func(directive.Version) string { return "" }
	}
	f := &Feed{o: o, views: map[string]*view{}}
	f.Reset(s)
	return f
}

// Reset replaces the whole set; everybody is sent all of it.
func (f *Feed) Reset(s directive.State) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.state, f.held = s, make(map[string]entry, len(s.Directives))
	f.state.Directives = nil
	for _, d := range s.Directives {
		f.held[d.ID] = newEntry(d)
	}
	for _, v := range f.views {
		v.ring, v.bytes, v.full = nil, 0, nil
		f.measure(v)
		v.version = s.Version
		v.wake()
	}
}

func (v *view) wake() {
	close(v.news)
	v.news = make(chan struct{})
}

// sees reports whether a view shows a directive: one for all tenants, or for one of its own.
func (v *view) sees(d *directive.Directive) bool {
	if t, bound := d.Scope.Values["tenant"]; bound {
		return v.allow(t)
	}
	only := d.Match["tenant"]
	return len(only) == 0 || slices.ContainsFunc(only, v.allow)
}

func (f *Feed) measure(v *view) {
	v.digest = 0
	for _, e := range f.held {
		if v.sees(&e.d) {
			_, print := v.of(&e)
			v.digest ^= print
		}
	}
}

// Publish makes a change known. It costs work for each view, none for each limiter.
func (f *Feed) Publish(c directive.Change) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	f.state.Version = c.Version
	if c.Kill != nil {
		f.state.Kill = *c.Kill
	}
	if c.Critical != nil {
		f.state.Critical = *c.Critical
	}
	if c.WhenUnknown != nil {
		f.state.WhenUnknown = *c.WhenUnknown
	}
	type moved struct {
		id       string
		old, new *entry
	}
	var moves []moved
	for _, id := range c.Remove {
		if old, ok := f.held[id]; ok {
			moves = append(moves, moved{id: id, old: &old})
			delete(f.held, id)
		}
	}
	for i := range c.Upsert {
		e := newEntry(c.Upsert[i])
		m := moved{id: e.d.ID, new: &e}
		if old, ok := f.held[m.id]; ok {
			m.old = &old
		}
		f.held[m.id] = *m.new
		moves = append(moves, m)
	}
	token := f.o.Sign(c.Version)
	for key, v := range f.views {
		kill := c.Kill
		if now.Sub(v.used) > 10*time.Minute {
			delete(f.views, key)
			v.wake()
			continue
		}
		if c.Kill != nil && !v.org {
			k := KillForTenants(*c.Kill)
			kill = &k
		}
		out := directive.Change{Version: c.Version, Token: token, From: v.version, GeneratedAt: c.GeneratedAt, ValidUntil: now.Add(f.o.Valid), Kill: kill, Critical: c.Critical, WhenUnknown: c.WhenUnknown}
		for _, m := range moves {
			was, is := m.old != nil && v.sees(&m.old.d), m.new != nil && v.sees(&m.new.d)
			if was {
				_, print := v.of(m.old)
				v.digest ^= print
			}
			switch {
			case is:
				d, print := v.of(m.new)
				v.digest ^= print
				out.Upsert = append(out.Upsert, *d)
			case was:
				out.Remove = append(out.Remove, m.id)
			}
		}
		if len(out.Upsert)+len(out.Remove) == 0 && c.Kill == nil && c.Critical == nil && c.WhenUnknown == nil {
			continue // nothing of its own changed: it stays at its version
		}
		out.Digest = directive.FormatDigest(v.digest)
		data, err := json.Marshal(out)
		if err != nil {
			panic("BUG: change has no JSON: " + err.Error())
		}
		v.keep(event{out.From, c.Version, data}, f.o.History)
		v.version, v.full = c.Version, nil
		v.wake()
	}
}

// Viewer is who follows: Key names the rights, so that equal rights share a view.
type Viewer struct {
	Key   string
	Allow func(tenant string) bool
	Org   bool // may see what the whole organisation spends
	// Still reports whether he may go on following; nil is yes. It is asked at each
	// heartbeat, since keys are taken back while connections last.
	Still func() bool
}

func (f *Feed) view(w Viewer) *view {
	v := f.views[w.Key]
	if v == nil {
		v = &view{allow: w.Allow, org: w.Org, version: f.state.Version, news: make(chan struct{})}
		f.measure(v)
		f.views[w.Key] = v
	}
	v.used = time.Now()
	return v
}

func (f *Feed) stateOf(v *view) directive.State {
	s := f.state
	s.Version, s.Digest, s.Token = v.version, directive.FormatDigest(v.digest), f.o.Sign(v.version)
	s.GeneratedAt = time.Now().UTC()
	s.ValidUntil = s.GeneratedAt.Add(f.o.Valid)
	s.Directives = []directive.Directive{}
	for _, e := range f.held {
		if v.sees(&e.d) {
			d, _ := v.of(&e)
			s.Directives = append(s.Directives, *d)
		}
	}
	if !v.org {
		s.Kill = KillForTenants(s.Kill)
	}
	slices.SortFunc(s.Directives, func(a, b directive.Directive) int { return strings.Compare(a.ID, b.ID) })
	return s
}

// fullOf is the whole set in JSON, made once for all who connect at about the same time.
func (f *Feed) fullOf(v *view) []byte {
	if v.full == nil || time.Since(v.fullAt) > f.o.Valid/10 {
		b, err := json.Marshal(f.stateOf(v))
		if err != nil {
			panic("BUG: set has no JSON: " + err.Error())
		}
		v.full, v.fullAt = b, time.Now()
	}
	return v.full
}

// Connections is how many limiters follow by server-sent events.
func (f *Feed) Connections() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.conns
}

// Close ends all connections.
func (f *Feed) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	for _, v := range f.views {
		v.wake()
	}
}

// ServeSSE follows until the client leaves, does not read, or the feed is closed.
// Events: "set" is a directive.State, "change" a directive.Change, "alive" says how
// long the set holds on. The id of an event is the version after it.
func (f *Feed) ServeSSE(w http.ResponseWriter, r *http.Request, who Viewer) {
	rc := http.NewResponseController(w)
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
	last, resumed := directive.ParseVersion(r.Header.Get("Last-Event-ID"))
	send := func(name string, v directive.Version, data []byte) error {
		_ = rc.SetWriteDeadline(time.Now().Add(f.o.Write))
		if _, err := fmt.Fprintf(w, "id: %s\nevent: %s\ndata: %s\n\n", v, name, data); err != nil {
			return err
		}
		return rc.Flush()
	}
	f.mu.Lock()
	f.conns++
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		f.conns--
		f.mu.Unlock()
	}()
	_ = rc.SetWriteDeadline(time.Now().Add(f.o.Write))
	if _, err := fmt.Fprint(w, "retry: 1000\n\n"); err != nil || rc.Flush() != nil {
		return
	}
	beat := time.NewTicker(f.o.Heartbeat)
	defer beat.Stop()
	for {
		f.mu.Lock()
		if f.closed {
			f.mu.Unlock()
			return
		}
		v := f.view(who)
		news := v.news
		var events []event
		if resumed && last != v.version {
			i := slices.IndexFunc(v.ring, func(e event) bool { return e.from == last })
			if resumed = i >= 0; resumed {
				events = slices.Clone(v.ring[i:])
			}
		}
		var full []byte
		if !resumed {
			full, last, resumed = f.fullOf(v), v.version, true
		}
		f.mu.Unlock()
		if full != nil {
			if send("set", last, full) != nil {
				return
			}
		}
		for _, e := range events {
			if send("change", e.version, e.data) != nil {
				return
			}
			last = e.version
		}
		select {
		case <-r.Context().Done():
			return
		case <-news:
		case <-beat.C:
			if who.Still != nil && !who.Still() {
				return
			}
			data, _ := json.Marshal(map[string]any{"valid_until": time.Now().UTC().Add(f.o.Valid)})
			if send("alive", last, data) != nil {
				return
			}
		}
	}
}

// Poll waits up to wait for a set that is not at the version the caller has, and
// returns it as JSON with its version; false where nothing changed. Who asks at about the
// same time gets the same bytes, so that a thousand who poll cost one sorting of the set.
func (f *Feed) Poll(r *http.Request, who Viewer, have directive.Version, wait time.Duration) (set []byte, at directive.Version, changed bool) {
	end := time.NewTimer(wait)
	defer end.Stop()
	for {
		f.mu.Lock()
		v := f.view(who)
		if v.version != have {
			set, at = f.fullOf(v), v.version
			f.mu.Unlock()
			return set, at, true
		}
		news, closed := v.news, f.closed
		f.mu.Unlock()
		if closed || wait <= 0 {
			return nil, have, false
		}
		select {
		case <-news:
		case <-end.C:
			return nil, have, false
		case <-r.Context().Done():
			return nil, have, false
		}
	}
}

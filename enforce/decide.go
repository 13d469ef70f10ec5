package enforce

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/flyball/flyball/enforce/directive"
	"github.com/flyball/flyball/enforce/ledger"
	"github.com/flyball/flyball/enforce/page"
	"github.com/flyball/flyball/schema"
	"github.com/flyball/flyball/schema/state"
)

// live is a guard that holds on an account: what it told limiters, or would have.
type live struct {
	directive.Directive
	Shadow   bool   `json:"shadow,omitempty"` // warn mode: nobody is told
	Key      []byte `json:"account"`
	Start    int64  `json:"start"`
	End      int64  `json:"end"`
	Rung     string `json:"rung"` // "80%"
	Index    int    `json:"index"`
	Version  uint64 `json:"policy"`
	Scoped   string `json:"scoped"` // in words
	Tenant   string `json:"tenant,omitempty"`
	Touched  int64  `json:"touched"`  // unix ns
	Received int64  `json:"received"` // of the span that crossed, unix ms; 0 where none did
	Ended    int64  `json:"ended"`    // of that span, unix ns
	Trace    string `json:"trace,omitempty"`
	Paged    string `json:"paged,omitempty"` // the alert that on-call was told of, and by which message
	PagedBy  string `json:"paged_by,omitempty"`
	Pardoned int    `json:"pardoned,omitempty"` // released by hand up to this rung, counted from 1
	// Revised is the version in which it was published last, Raised that in which it was first
	// after what Received says.
	Revised directive.Version `json:"revised"`
	Raised  directive.Version `json:"raised,omitzero"`

	account *ledger.Account
	guard   *Guard
	fresh   bool // raised since then: publishing it again for another reason is no time to enforce
	leaked  leakage
}

// published reports whether limiters are told.
func (v *live) published() bool { return !v.Shadow }

// effects are what the decisions of one step lead to, until flush.
type effects struct {
	upsert   map[string]*live
	remove   map[string]*live
	kill     bool
	notes    bool // what the switch remembers has changed, of which limiters are told nothing
	acks     bool // a limiter acknowledged something new
	critical bool
	events   []Event
	pages    []page.Page
	delete   []string // names in the store
}

func (f *effects) empty() bool {
	return len(f.upsert)+len(f.remove)+len(f.events)+len(f.pages)+len(f.delete) == 0 && !f.kill && !f.notes && !f.acks && !f.critical
}

// judgeTouched looks at every account that the record changed.
func (l *Loop) judgeTouched() error {
	now := time.UnixMicro(l.clock)
	list := l.ledger.Touched()
	for i := range list {
		t := &list[i]
		if t.Family < 0 {
			continue // the policy changed while the record was applied
		}
		l.touched(t, now)
		for _, g := range l.byFamily[t.Family] {
			if err := l.judge(g, t.Account, now, true); err != nil {
				return err
			}
		}
	}
	return nil
}

// directiveID names what a guard says about an account.
func directiveID(g *Guard, a *ledger.Account) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(a.Key()))
	return g.Name + "/" + strconv.FormatUint(h.Sum64(), 16)
}

// judge puts in force what a guard says about an account at an instant: the level
// rule. entry says that an entry led here, and not time.
func (l *Loop) judge(g *Guard, a *ledger.Account, now time.Time, entry bool) error {
	if !a.Live(now) || len(g.rungs) == 0 {
		return nil
	}
	v := g.judge(a, &a.Counts)
	g.used.offer(a, v.value)
	var held *live
	if a.Pinned > 0 || v.rung >= 0 {
		for _, o := range l.byKey[a.Key()] {
			if o.guard == g {
				held = o
				break
			}
		}
	}
	switch {
	case held == nil && v.rung < 0:
		return nil
	case held == nil:
		return l.raise(g, a, v, nil, now, entry)
	case v.rung > held.Index:
		return l.raise(g, a, v, held, now, entry)
	case held.Index >= 0 && v.rung < held.Index && g.releases(v.value, held.Index):
		// What was done is taken back only when the sum was corrected well below, not at
		// every wave around the limit; and not by a sum that lacks its history.
		if _, warming := l.ledger.Warming(a.Family); warming {
			return nil
		}
		if v.rung >= 0 {
			return l.raise(g, a, v, held, now, entry)
		}
		l.release(held, "the sum is under "+g.ReleaseBelow.String()+" of what triggered it", "", now)
		return nil
	case v.rung == held.Index && entry:
		held.Touched = now.UnixNano()
		if n := len(a.Runs) + 1; slices.Contains(g.family.Scope, directive.Run) && len(held.Scope.Runs) < n {
			held.Scope.Runs = l.runIDs(a)
			l.put(held)
		}
	}
	return nil
}

func (l *Loop) runIDs(a *ledger.Account) []string {
	_, run := l.ledger.Scope(a)
	ids := []string{}
	for _, id := range append([]string{run}, a.Runs...) {
		if id != "" && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// raise puts a rung in force, in place of the one that held.
func (l *Loop) raise(g *Guard, a *ledger.Account, v verdict, held *live, now time.Time, entry bool) error {
	r := g.rungs[v.rung]
	up := held == nil || v.rung > held.Index
	h := held
	from := 0 // the lowest rung that is new
	switch {
	case held == nil:
	case held.Index >= 0:
		from = held.Index + 1
	case held.Limit == g.measure.show(g.most):
		from = v.rung // a policy that left the limit as it was
	}
	if h == nil {
		values, run := l.ledger.Scope(a)
		h = &live{account: a, guard: g, Key: []byte(a.Key()), Start: a.Start, End: a.End, Scoped: scopeText(values, run), Tenant: values["tenant"]}
		h.ID, h.Guard, h.Issued = directiveID(g, a), g.Name, now.UTC()
		h.Scope.Values = values
		if run != "" {
			h.Scope.Runs = l.runIDs(a)
		}
		h.Window = windowOf(g.family.Window, a)
		if g.family.Window.Unit >= ledger.Hour {
			h.Expires = time.Unix(0, a.End).UTC()
		}
		l.live[h.ID] = h
		l.byKey[a.Key()] = append(l.byKey[a.Key()], h)
		a.Pinned++
	}
	h.Action, h.Exempt, h.Outcome, h.Shadow = r.Do, g.Exempt, g.Outcome, g.Mode == "warn" || v.rung < h.Pardoned
	h.Match = matchOf(g)
	h.Measure, h.Limit, h.Spent = g.Measure, g.measure.show(g.most), g.measure.show(v.value)
	h.Rung, h.Index, h.Version, h.Touched = r.At.String(), v.rung, l.version, now.UnixNano()
	h.Models, h.Tier, h.IntervalMS = nil, "", 0
	switch r.Do {
	case directive.Downgrade:
		var err error
		if h.Models, err = l.downgradeMap(g, a, now); err != nil {
			return err
		}
		h.Tier = g.Downgrade.ToTier
	case directive.Throttle:
		h.IntervalMS = 1000
	}
	why := fmt.Sprintf("%s: %s spent %s of %s in %s", g.Name, h.Scoped, h.Spent, h.Limit, windowText(g.family.Window, a))
	h.Reason = fmt.Sprintf("%s (%s of the limit)", why, r.At)
	h.fresh = true
	if entry {
		h.Received, h.Ended, h.Trace = a.Received, a.Ended, a.Trace.String()
	} else {
		h.Received, h.Ended, h.Trace = 0, 0, ""
	}
	l.put(h)
	kind := "directive"
	if !up {
		kind = "release"
	}
	// One step may cross several rungs. Each is in the history, and on-call has one message
	// about all of them: what the highest does is what is in force.
	var passed []rung
	if from = max(from, h.Pardoned); up && from < v.rung {
		passed = g.rungs[from:v.rung]
	}
	for _, p := range passed {
		e := h.event(kind, now)
		e.Action, e.Rung, e.Reason = string(p.Do), p.At.String(), fmt.Sprintf("%s (%s of the limit, passed in one step on the way to %s)", why, p.At, r.At)
		l.event(e)
	}
	l.event(h.event(kind, now))
	if up && v.rung >= h.Pardoned {
		l.pageFor(h, g, passed, now)
	}
	return nil
}

func matchOf(g *Guard) map[string][]string {
	if len(g.family.Match) == 0 {
		return nil
	}
	m := map[string][]string{}
	for _, c := range g.family.Match {
		m[c.Field] = c.Values
	}
	return m
}

func windowOf(w ledger.Window, a *ledger.Account) directive.Window {
	out := directive.Window{Kind: ledger.UnitNames[w.Unit]}
	switch {
	case w.Unit == ledger.Rolling:
		out.Over = shortDuration(w.Over)
	case w.Unit >= ledger.Hour:
		out.Start, out.End = time.Unix(0, a.Start).UTC(), time.Unix(0, a.End).UTC()
		if w.Zone != nil {
			out.Zone = w.Zone.String()
		}
	}
	return out
}

// downgradeMap is which model replaces which: what the policy lists, then every
// model of the other tiers by the cheapest of the target tier, by the scope's own
// mix of tokens of the trailing 7 days. A target that is dearer than what it replaces
// is left out.
func (l *Loop) downgradeMap(g *Guard, a *ledger.Account, now time.Time) (map[string]string, error) {
	out := maps.Clone(g.Downgrade.Map)
	if out == nil {
		out = map[string]string{}
	}
	if g.Downgrade.ToTier == "" {
		return out, nil
	}
	values, run := l.ledger.Scope(a)
	tokens := schema.Tokens{Input: 8000, Output: 1000}
	mix, err := l.ledger.Find(g.mix, now, func(d directive.Dim) string {
		if d == directive.Run {
			return run
		}
		return values[directive.DimNames[d]]
	}, false)
	if err != nil {
		return nil, err
	}
	if mix != nil && mix.ModelCalls > 0 && mix.Tokens > 0 {
		each := func(n int64) uint64 { return uint64(max(0, n) / mix.ModelCalls) }
		tokens = schema.Tokens{Input: each(mix.Tokens - mix.Output - mix.CacheRead), CacheRead: each(mix.CacheRead), Output: each(mix.Output)}
	}
	cost := func(m string) (schema.Money, bool) {
		if l.o.Pricer == nil {
			return 0, false
		}
		return l.o.Pricer.Cost(values["tenant"], "", m, &tokens, now)
	}
	target, best, priced := "", schema.Money(0), false
	for _, m := range l.policy.Tiers[g.Downgrade.ToTier] {
		c, known := cost(m)
		if target == "" || known && (!priced || c < best) {
			target, best, priced = m, c, known
		}
	}
	for tier, models := range l.policy.Tiers {
		if tier == g.Downgrade.ToTier {
			models = slices.DeleteFunc(slices.Clone(models), func(m string) bool { return m == target })
		}
		for _, m := range models {
			if c, known := cost(m); out[m] == "" && m != target && (!known || !priced || c > best) {
				out[m] = target
			}
		}
	}
	return out, nil
}

// put marks a live directive as changed.
func (l *Loop) put(h *live) {
	if l.effects.upsert == nil {
		l.effects.upsert, l.effects.remove = map[string]*live{}, map[string]*live{}
	}
	delete(l.effects.remove, h.ID)
	l.effects.upsert[h.ID] = h
}

// release takes a directive back.
func (l *Loop) release(h *live, reason, actor string, now time.Time) {
	if l.live[h.ID] != h {
		return
	}
	if l.effects.upsert == nil {
		l.effects.upsert, l.effects.remove = map[string]*live{}, map[string]*live{}
	}
	delete(l.effects.upsert, h.ID)
	l.effects.remove[h.ID] = h
	delete(l.live, h.ID)
	key := string(h.Key)
	l.byKey[key] = slices.DeleteFunc(l.byKey[key], func(o *live) bool { return o == h })
	if len(l.byKey[key]) == 0 {
		delete(l.byKey, key)
	}
	if h.account != nil {
		h.account.Pinned--
	}
	e := h.event("release", now)
	e.Reason, e.Actor = reason, actor
	l.event(e)
	l.resolve(h, reason, now)
}

// resolve tells on-call that what it was paged for is over. The message belongs to the
// one that fired last, since an alert that was resolved may fire again on a higher rung.
func (l *Loop) resolve(h *live, reason string, now time.Time) {
	if h.Paged == "" {
		return
	}
	p := l.pageOf(h, now)
	p.ID, p.Alert, p.Resolved = h.PagedBy+"/resolved", h.Paged, true
	p.Title = fmt.Sprintf("Resolved: %s on %s: %s", h.Guard, h.Scoped, reason)
	l.effects.pages = append(l.effects.pages, p)
	h.Paged, h.PagedBy = "", ""
}

func (h *live) event(kind string, now time.Time) Event {
	e := Event{At: now.UTC(), Kind: kind, Guard: h.Guard, Tenant: h.Tenant, Scope: h.Scoped, Action: string(h.Action), Measure: h.Measure, Value: h.Spent, Limit: h.Limit, Rung: h.Rung, Shadow: h.Shadow, Directive: h.ID, Reason: h.Reason, User: h.Directive.Scope.Values["user"], Trace: h.Trace}
	if !h.Directive.Window.Start.IsZero() {
		e.Window = h.Directive.Window.Start.Format(time.RFC3339) + "/" + h.Directive.Window.End.Format(time.RFC3339)
	} else {
		e.Window = h.Directive.Window.Kind
	}
	return e
}

func (l *Loop) event(e Event) { l.effects.events = append(l.effects.events, e) }

// pageFor tells on-call about a rung and those that were passed with it, once for a scope,
// window, threshold and limit.
func (l *Loop) pageFor(h *live, g *Guard, passed []rung, now time.Time) {
	if len(g.Page) == 0 {
		return
	}
	p := l.pageOf(h, now)
	var lower []string
	for _, r := range passed {
		p.Covers = append(p.Covers, pageID(p.Alert, r.At.String()))
		lower = append(lower, r.At.String())
	}
	if len(lower) > 0 {
		p.Title += ", past " + strings.Join(lower, " and ") + " in the same step"
	}
	if h.Paged != "" && h.Paged != p.Alert {
		l.resolve(h, "the limit changed", now)
	}
	h.Paged, h.PagedBy = p.Alert, p.ID
	l.effects.pages = append(l.effects.pages, p)
}

func (l *Loop) pageOf(h *live, now time.Time) page.Page {
	severity := "critical"
	if h.Action == directive.Warn || h.Shadow {
		severity = "warning"
	}
	sum := sha256.Sum256([]byte(strings.Join([]string{h.ID, strconv.FormatInt(h.Start, 10), h.Limit}, "|")))
	alert := "guard/" + hex.EncodeToString(sum[:16]) // a higher rung is a message about the same alert
	p := page.Page{ID: pageID(alert, h.Rung), Alert: alert, Severity: severity, Kind: "guard", Guard: h.Guard, Tenant: h.Tenant, Scope: h.Scoped, Measure: h.Measure, Limit: h.Limit, Value: h.Spent, Threshold: h.Rung,
		Since: h.Issued, At: now.UTC(), Window: h.event("", now).Window, Undo: "flyball guard release '" + h.ID + "' --reason ...", Receivers: h.guard.pageTo()}
	p.Title = fmt.Sprintf("%s reached %s of its limit: %s used %s of %s", h.Guard, h.Rung, h.Scoped, h.Spent, h.Limit)
	p.Action = h.actionText()
	if l.o.Console != "" {
		p.URL = strings.TrimRight(l.o.Console, "/") + "/#/guards"
	}
	return p
}

// pageID names the message about a rung. It is made of the threshold, not of its place in
// the ladder, which another policy may give to another threshold.
func pageID(alert, rung string) string {
	return alert + "/" + strings.ReplaceAll(strings.TrimSuffix(rung, "%"), ".", "-")
}

func (g *Guard) pageTo() []string {
	if g == nil {
		return nil
	}
	return g.Page
}

// actionText is what was done, in words.
func (h *live) actionText() string {
	until := ""
	if !h.Expires.IsZero() {
		until = " until " + h.Expires.Format(time.RFC3339)
	}
	text := ""
	switch h.Action {
	case directive.Warn:
		text = "nothing was blocked; this is a warning"
	case directive.Throttle:
		text = "calls are slowed to one a second" + until
	case directive.Downgrade:
		var pairs []string
		for _, from := range slices.Sorted(maps.Keys(h.Models)) {
			pairs = append(pairs, from+" to "+h.Models[from])
		}
		text = "downgraded " + strings.Join(pairs, ", ") + until
	default:
		text = "calls are refused (" + string(h.Action) + ")" + until
	}
	if len(h.Exempt) > 0 && h.Action != directive.Warn {
		text += "; " + strings.Join(h.Exempt, ", ") + " calls still pass"
	}
	if h.Shadow {
		text = "nothing: the guard is in warn mode. Enforced it would be: " + text
	}
	return text
}

// flush publishes and stores what was decided. What limiters are told is told
// before it is durable: a block that a crash forgets is decided again from the log,
// under a revision that was never used. A page waits until its decision is durable.
func (l *Loop) flush() error {
	f := &l.effects
	if f.empty() {
		return nil
	}
	now := time.Now()
	l.drainLeaks(now)
	c := directive.Change{From: l.current, GeneratedAt: now.UTC()}
	for _, id := range slices.Sorted(maps.Keys(f.remove)) {
		if f.remove[id].published() {
			c.Remove = append(c.Remove, id)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(f.upsert)) {
		if h := f.upsert[id]; h.published() {
			c.Upsert = append(c.Upsert, h.Directive)
		} else {
			c.Remove = append(c.Remove, id) // where it went from enforce to warn
		}
	}
	c.Remove = slices.DeleteFunc(c.Remove, func(id string) bool { return !l.limiters.published[id] })
	if f.kill {
		k := l.kill.Kill
		c.Kill = &k
	}
	if f.critical {
		c.Critical, c.WhenUnknown = &l.policy.Critical, &l.policy.WhenUnknown
	}
	if len(c.Upsert)+len(c.Remove) > 0 || f.kill || f.critical {
		if l.current.Revision+1 >= l.ceiling {
			if err := l.reserveRevisions(); err != nil {
				return err
			}
		} else {
			l.current.Revision++
		}
		c.Version = l.current
		if err := l.set.Apply(&c); err != nil {
			// The own set is what changes are made for, so this is a bug; all of it again.
			l.o.Logger.Error("set of directives was rebuilt", "err", err)
			if err := l.resetSet(); err != nil {
				return err
			}
		} else {
			l.feed.Publish(c)
		}
		for _, id := range c.Remove {
			delete(l.limiters.published, id)
		}
		for i := range c.Upsert {
			h := l.live[c.Upsert[i].ID]
			h.Revised = l.current
			l.limiters.published[h.ID] = true
			if h.fresh {
				h.Raised = l.current
				l.limiters.issued(h.ID, l.current, h.Received, h.Ended, now)
				l.limiters.about(h)
			} else {
				l.limiters.issued(h.ID, l.current, 0, 0, now)
			}
		}
		if f.kill {
			l.kill.Revised = l.current
			if l.kill.received != 0 {
				l.kill.Raised, l.kill.Received = l.current, l.kill.received
			}
			l.limiters.issued("kill", l.current, l.kill.received, 0, now)
		}
		l.metrics.revisions.Inc()
	}
	b := l.o.Store.NewBatch()
	for _, h := range f.upsert {
		h.fresh = false
		if err := putLive(b, h); err != nil {
			return err
		}
	}
	for id := range f.remove {
		if err := b.Delete(keyLive + id); err != nil {
			return err
		}
	}
	for _, name := range f.delete {
		if err := b.Delete(name); err != nil {
			return err
		}
	}
	if f.kill || f.notes {
		if err := l.putKill(b); err != nil {
			return err
		}
	}
	told, err := l.pager.Put(b, f.pages...)
	if err != nil {
		return err
	}
	for i := range told {
		l.event(pageEvent(&told[i], now))
	}
	for i := range f.events {
		e := &f.events[i]
		e.Revision = l.current.String()
		if err := l.putEvent(b, e); err != nil {
			return err
		}
	}
	if err := errors.Join(l.limiters.save(b), l.putMeta(b, l.decided)); err != nil {
		return err
	}
	*f = effects{}
	if err := b.Commit(false); err != nil {
		return err
	}
	l.stored = l.decided
	l.poke()
	return nil
}

func putLive(b *state.Batch, h *live) error {
	v, err := json.Marshal(h)
	if err != nil {
		return err
	}
	return b.Put(keyLive+h.ID, v)
}

// resetSet publishes the whole set anew.
func (l *Loop) resetSet() error {
	s := directive.State{Version: l.current, Kill: l.kill.Kill, Critical: l.policy.Critical, WhenUnknown: l.policy.WhenUnknown}
	for _, v := range l.live {
		if v.published() {
			s.Directives = append(s.Directives, v.Directive)
		}
	}
	if err := l.set.Replace(&s); err != nil {
		return err
	}
	l.feed.Reset(s)
	return nil
}

// keepRunBlocks is how long the block of a run stays that does nothing. Its account
// stays longer: should the run come back, its own sum blocks it again.
const keepRunBlocks = 7 * 24 * time.Hour

// refreshLive lets directives go whose window ended, and looks again at those of
// rolling windows, from which spend leaves without an entry.
func (l *Loop) refreshLive(now time.Time) error {
	for _, h := range l.live {
		switch {
		case h.End != 0 && now.UnixNano() >= h.End:
			l.release(h, "the window ended", "", now)
		case h.Guard == "light" || h.all():
		case h.guard == nil || h.account == nil:
			l.release(h, "the guard is gone", "", now)
		case h.Index < 0 && h.Directive.Window.Kind == "rolling" && now.UnixNano()-h.Touched > int64(l.ledger.Window(h.account.Family).Over):
			l.release(h, "the window has passed", "", now)
		case h.Index < 0:
		case h.Directive.Window.Kind == "rolling":
			l.ledger.Advance(h.account, now)
			if err := l.judge(h.guard, h.account, now, false); err != nil {
				return err
			}
		case h.Directive.Window.Kind == "run" && now.UnixNano()-h.Touched > int64(keepRunBlocks):
			l.release(h, "the run has rested for a week", "", now)
		}
	}
	return nil
}

// blockUnpriced refuses a model without a price in the scope of a guard that wants it so.
func (l *Loop) blockUnpriced(g *Guard, e *schema.Entry) {
	if g.Mode == "warn" || !ledger.Matches(e, g.family.Match) {
		return
	}
	now := time.UnixMicro(l.clock)
	c := callOf(e)
	a, err := l.ledger.Find(g.index, time.Unix(0, e.Start), c.Value, false)
	if err != nil || a == nil || !a.Live(now) {
		return
	}
	c.Model = strings.Clone(c.Model) // it is part of a record
	id := directiveID(g, a) + "/unpriced/" + c.Model
	if h := l.live[id]; h != nil {
		h.Touched = now.UnixNano()
		return
	}
	if a.Pinned >= mostUnpriced {
		return // who makes model names up fills neither the memory nor the limiters' sets
	}
	values, run := l.ledger.Scope(a)
	values["model"] = c.Model
	h := &live{account: a, guard: g, Key: []byte(a.Key()), Start: a.Start, End: a.End, Scoped: scopeText(values, run), Tenant: values["tenant"], Index: -1, Version: l.version, Touched: now.UnixNano()}
	h.ID, h.Guard, h.Issued, h.Action, h.Exempt, h.Outcome = id, g.Name, now.UTC(), directive.SoftBlock, g.Exempt, g.Outcome
	h.Scope.Values, h.Match, h.Window, h.Measure = values, matchOf(g), windowOf(g.family.Window, a), g.Measure
	if run != "" {
		h.Scope.Runs = l.runIDs(a)
	}
	if a.End != 0 {
		h.Expires = time.Unix(0, a.End).UTC()
	}
	h.Reason = fmt.Sprintf("%s: model %s has no price, and this guard refuses what it cannot price; give it one, or see `flyball prices check`", g.Name, c.Model)
	l.live[id] = h
	if a.Pinned++; a.Pinned == mostUnpriced {
		h.Reason += "; there are so many by now that no further one is refused by its name"
	}
	l.put(h)
	l.event(h.event("directive", now))
}

// mostUnpriced is how many models without a price are refused in one scope, what else holds
// there among them.
const mostUnpriced = 200

// restoreLive reads the directives that held and ties them to guards and accounts.
func (l *Loop) restoreLive() error {
	return l.o.Store.Each(keyLive, func(name string, v []byte) error {
		h := &live{}
		if err := json.Unmarshal(v, h); err != nil {
			return fmt.Errorf("read directive %s: %w", name, err)
		}
		if len(h.Key) == 0 { // of a light, or of a limit of zero: they come again by themselves
			if l.live[h.ID] == nil {
				l.effects.delete = append(l.effects.delete, name)
			}
			return nil
		}
		a, err := l.ledger.ByKey(string(h.Key), h.Start, h.End)
		if err != nil {
			return err
		}
		for i := range l.policy.Guards {
			if l.policy.Guards[i].Name == h.Guard && l.policy.Guards[i].index == a.Family {
				h.guard = &l.policy.Guards[i]
			}
		}
		h.account = a
		a.Pinned++
		l.live[h.ID] = h
		if h.Index >= 0 {
			l.byKey[string(h.Key)] = append(l.byKey[string(h.Key)], h)
		}
		if h.published() {
			l.limiters.published[h.ID] = true
		}
		return nil
	})
}

// putEvent stores an event under the next number.
func (l *Loop) putEvent(b *state.Batch, e *Event) error {
	l.limiters.seq = max(l.limiters.seq+1, uint64(e.At.UnixMicro()))
	e.Seq, e.Node = l.limiters.seq, l.archive.node
	forgetEvent(l.forget, e)
	if l.o.Archive != nil {
		if err := l.archive.put(b, e); err != nil {
			return err
		}
	}
	if measurement(e.Kind) {
		return nil
	}
	if e.Kind == "lease" && e.Action == "expired" {
		if err := b.Put(keyExpired+e.Scope, binary.AppendVarint(nil, e.At.Unix())); err != nil {
			return err
		}
	}
	v, err := json.Marshal(e)
	if err != nil {
		return err
	}
	l.metrics.events.WithLabelValues(e.Kind).Inc()
	l.o.Logger.Info("enforcement", "kind", e.Kind, "guard", e.Guard, "scope", e.Scope, "action", e.Action, "value", e.Value, "limit", e.Limit, "shadow", e.Shadow, "actor", e.Actor, "reason", e.Reason)
	return b.Put(fmt.Sprintf("%s%016x", keyEvents, e.Seq), v)
}

// keepEvents is how long events are kept.
const keepEvents = 400 * 24 * time.Hour

func (l *Loop) expireEvents(now time.Time) {
	limit := fmt.Sprintf("%s%016x", keyEvents, now.Add(-keepEvents).UnixMicro())
	b := l.o.Store.NewBatch()
	stop := fmt.Errorf("enough")
	_ = l.o.Store.Each(keyEvents, func(name string, _ []byte) error {
		if name >= limit {
			return stop
		}
		return b.Delete(name)
	})
	if err := b.Commit(false); err != nil {
		l.o.Logger.Error("expire events", "err", err)
	}
}

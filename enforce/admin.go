package enforce

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/flyball/flyball/enforce/directive"
	"github.com/flyball/flyball/enforce/ledger"
	"github.com/flyball/flyball/enforce/page"
	"github.com/flyball/flyball/schema"
)

// PolicyVersion is one state of the policy: who set it, when and why.
type PolicyVersion struct {
	Version uint64    `json:"version"`
	At      time.Time `json:"at"`
	Actor   string    `json:"actor"`
	Reason  string    `json:"reason"`
	Text    string    `json:"text"`
	// FileSHA is the hash of the configured file when it was read last: a file that
	// stays the same does not undo what came over the API after it.
	FileSHA string `json:"file_sha256"`
}

func shaOf(text []byte) string {
	h := sha256.Sum256(text)
	return hex.EncodeToString(h[:])
}

func policyKey(v uint64) string { return fmt.Sprintf("%s%016d", keyPolicy, v) }

// restorePolicy puts the newest policy in force: the one that was stored, or the
// configured one where that is another than it was.
func (l *Loop) restorePolicy() error {
	var last PolicyVersion
	err := l.o.Store.Each(keyPolicy, func(_ string, v []byte) error { return json.Unmarshal(v, &last) })
	if err != nil {
		return fmt.Errorf("read policy: %w", err)
	}
	text, changed := []byte(last.Text), false
	o := l.o.PolicyCheck
	o.stored = true
	if sha := shaOf(l.o.Policy); sha != last.FileSHA {
		text, changed, o.stored = l.o.Policy, true, false
		last = PolicyVersion{Version: last.Version, Actor: "configuration", Reason: "read at start", FileSHA: sha}
	}
	p, doubts, err := ParsePolicy(text, o)
	if err != nil {
		from := "that was in force"
		if changed {
			from = l.o.PolicyFile
		}
		return fmt.Errorf("policy %s: %w", from, err)
	}
	for _, d := range doubts {
		l.o.Logger.Warn("policy", "doubt", d.Error())
	}
	l.version = last.Version
	if changed {
		if err := l.storePolicy(p, last.Actor, last.Reason, last.FileSHA); err != nil {
			return err
		}
	}
	return l.usePolicy(p)
}

func (l *Loop) storePolicy(p *Policy, actor, reason, fileSHA string) error {
	l.version++
	v, err := json.Marshal(PolicyVersion{Version: l.version, At: time.Now().UTC(), Actor: actor, Reason: reason, Text: string(p.source), FileSHA: fileSHA})
	if err != nil {
		return err
	}
	b := l.o.Store.NewBatch()
	if err := b.Put(policyKey(l.version), v); err != nil {
		return err
	}
	return b.Commit(true)
}

// usePolicy puts a policy in force: families, guards by family, and what held by
// an earlier one is looked at again.
func (l *Loop) usePolicy(p *Policy) error {
	families := p.families()
	if err := l.ledger.Use(families, l.chunk); err != nil {
		return err
	}
	l.useUsed(l.policy, p)
	l.policy = p
	l.byFamily = make([][]*Guard, len(families))
	l.noPrice = nil
	byName := map[string]*Guard{}
	for i := range p.Guards {
		g := &p.Guards[i]
		byName[g.Name] = g
		l.byFamily[g.index] = append(l.byFamily[g.index], g)
		if g.Unpriced == "block" {
			l.noPrice = append(l.noPrice, g)
		}
	}
	if err := l.rebook(); err != nil {
		return err
	}
	l.kill.computed = 0
	now := time.Now()
	for _, h := range l.live {
		if h.Guard == "light" {
			continue
		}
		g := byName[h.Guard]
		switch {
		case h.all() && h.Version == l.version: // a start looks at its policy twice
		case h.all():
			l.release(h, "the policy changed", "", now)
		case g == nil || h.account == nil || g.index != h.account.Family:
			l.release(h, "the guard is gone from the policy", "", now)
		case h.Index >= 0 && (h.Index >= len(g.rungs)):
			l.release(h, "the guard's ladder changed", "", now)
		default:
			h.guard = g
			if h.Index < 0 {
				if g.Unpriced != "block" || g.Mode == "warn" {
					l.release(h, "the guard takes what has no price now", "", now)
				}
				continue
			}
			if h.Version == l.version {
				continue
			}
			v := g.judge(h.account, &h.account.Counts)
			if v.rung < 0 || v.rung < h.Index {
				l.release(h, "the limit changed", "", now)
				if v.rung < 0 {
					continue
				}
				h = nil
			} else {
				h.Index = -2 // so that it is raised again, by the new rules
			}
			if h != nil {
				if err := l.raise(g, h.account, v, h, now, false); err != nil {
					return err
				}
			}
		}
	}
	// What is over a limit that is new or lower is over it now, not after its next call.
	if err := l.judgeAll(now); err != nil {
		return err
	}
	for i := range p.Guards {
		if err := l.denyAll(&p.Guards[i], now); err != nil {
			return err
		}
	}
	return nil
}

// judgeAll looks at every account in memory as it stands at an instant.
func (l *Loop) judgeAll(now time.Time) (err error) {
	l.ledger.Each(func(a *ledger.Account) bool {
		l.ledger.Advance(a, now)
		for _, g := range l.byFamily[a.Family] {
			if err = l.judge(g, a, now, false); err != nil {
				return false
			}
		}
		return true
	})
	return err
}

// all reports whether the directive is that of a limit of zero, which needs no account.
func (h *live) all() bool { return strings.HasSuffix(h.ID, "/all") && len(h.Key) == 0 }

// denyAll tells limiters of a guard whose limit is zero: everything it looks at is
// over its limit before anything was counted.
func (l *Loop) denyAll(g *Guard, now time.Time) error {
	if g.limit == nil || g.limit.Cmp(big.NewInt(0)) != 0 || g.Mode == "warn" {
		return nil
	}
	if h := l.live[g.Name+"/all"]; h != nil && h.Version == l.version {
		return nil
	}
	r := g.rungs[len(g.rungs)-1]
	h := &live{guard: g, Scoped: "everything that guard " + g.Name + " looks at", Index: len(g.rungs) - 1, Rung: r.At.String(), Version: l.version, Touched: now.UnixNano()}
	h.ID, h.Guard, h.Issued, h.Action, h.Exempt, h.Outcome = g.Name+"/all", g.Name, now.UTC(), r.Do, g.Exempt, g.Outcome
	h.Match, h.Window, h.Measure, h.Limit, h.Spent = matchOf(g), directive.Window{Kind: ledger.UnitNames[g.family.Window.Unit]}, g.Measure, g.measure.show(g.most), ""
	switch {
	case r.Do == directive.Throttle:
		h.IntervalMS = 1000
	case r.Do == directive.Downgrade:
		var err error
		if h.Models, err = l.downgradeMap(g, l.ledger.Blank(g.index, now, func(directive.Dim) string { return "" }), now); err != nil {
			return err
		}
		h.Tier = g.Downgrade.ToTier
	}
	if slices.Contains(g.family.Scope, directive.Model) {
		return nil // tool calls have no model; accounts of models speak for themselves
	}
	h.Reason = g.Name + ": its limit is 0, which denies all"
	held := false // since before a start
	if l.o.Store != nil {
		v, err := l.o.Store.Get(keyLive + h.ID)
		if err != nil {
			return err
		}
		was := live{}
		if held = json.Unmarshal(v, &was) == nil && was.Version == h.Version; held {
			h.Issued = was.Issued
		}
	}
	l.live[h.ID] = h
	l.put(h)
	if !held {
		l.event(h.event("directive", now))
	}
	return nil
}

// SetPolicy puts another policy in force, without a restart. reason is required of
// people; a file that changed gives "file".
func (l *Loop) SetPolicy(text []byte, actor, reason string) (uint64, []PolicyError, error) {
	return l.setPolicy(text, actor, reason, "")
}

// Reload puts who is paged in force, and the configured file's text, if it is another
// than last time; nil is the default policy; file is where it stands. Both are looked at first: where one is wrong, nothing changes.
func (l *Loop) Reload(receivers []page.Receiver, text []byte, file string) error {
	if text == nil {
		text = DefaultPolicy
	}
	if err := l.pager.CheckReceivers(receivers); err != nil {
		return err
	}
	o := l.check()
	if o.Receivers != nil {
		o.Receivers = []string{}
		for _, x := range receivers {
			o.Receivers = append(o.Receivers, x.Name)
		}
	}
	l.mu.Lock()
	same := shaOf(text) == shaOf(l.o.Policy)
	l.mu.Unlock()
	if !same {
		if _, _, err := ParsePolicy(text, o); err != nil {
			return badInput("policy %s: %v", file, err)
		}
	}
	if err := l.pager.UseReceivers(receivers); err != nil {
		return err
	}
	l.mu.Lock()
	l.o.PolicyCheck = o
	l.mu.Unlock()
	if same {
		return nil
	}
	_, _, err := l.setPolicy(text, "configuration", "the file changed", shaOf(text))
	if err == nil {
		l.mu.Lock()
		l.o.Policy = text
		l.mu.Unlock()
	}
	return err
}

func (l *Loop) setPolicy(text []byte, actor, reason, fileSHA string) (uint64, []PolicyError, error) {
	p, doubts, err := ParsePolicy(text, l.check())
	if err != nil {
		return 0, doubts, badInput("%v", err)
	}
	if reason = strings.TrimSpace(reason); reason == "" {
		return 0, doubts, badInput("a reason is required: it is what others read later")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if fileSHA == "" {
		fileSHA = shaOf(l.o.Policy)
	}
	if err := l.storePolicy(p, actor, reason, fileSHA); err != nil {
		return 0, doubts, err
	}
	l.event(Event{At: time.Now().UTC(), Kind: "policy", Action: fmt.Sprintf("version %d", l.version), Actor: actor, Reason: reason})
	if err := l.usePolicy(p); err != nil {
		return 0, doubts, err
	}
	l.effects.critical = true
	return l.version, doubts, l.flush()
}

// Policy is the text in force, with its version.
func (l *Loop) Policy() (PolicyVersion, error) {
	var last PolicyVersion
	err := l.o.Store.Each(keyPolicy, func(_ string, v []byte) error { return json.Unmarshal(v, &last) })
	return last, err
}

// Versions are all versions of the policy, without their texts.
func (l *Loop) Versions() ([]PolicyVersion, error) {
	out := []PolicyVersion{}
	err := l.o.Store.Each(keyPolicy, func(_ string, v []byte) error {
		var p PolicyVersion
		if err := json.Unmarshal(v, &p); err != nil {
			return err
		}
		p.Text = ""
		out = append(out, p)
		return nil
	})
	return out, err
}

// GuardStatus is one guard and what it does now.
type GuardStatus struct {
	Name     string         `json:"name"`
	Scope    []string       `json:"scope"`
	Measure  string         `json:"measure"`
	Window   string         `json:"window"`
	Limit    string         `json:"limit"`
	Ladder   []string       `json:"ladder"`
	Mode     string         `json:"mode"`
	Outcome  string         `json:"outcome"`
	Warming  bool           `json:"warming"` // history from before the guard is not counted yet
	Live     int            `json:"live"`    // scopes on which a rung holds
	Blocking int            `json:"blocking"`
	Actions  map[string]int `json:"actions"`
}

// Guards are all guards and what they do, as far as a reader may see.
func (l *Loop) Guards(allow func(tenant string) bool) []GuardStatus {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := []GuardStatus{}
	for i := range l.policy.Guards {
		g := &l.policy.Guards[i]
		_, warming := l.ledger.Warming(g.index)
		s := GuardStatus{Name: g.Name, Scope: append([]string{}, g.Scope...), Ladder: []string{}, Measure: g.Measure, Window: g.family.Window.String(), Limit: "none", Mode: g.Mode, Outcome: g.Outcome, Warming: warming, Actions: map[string]int{}}
		if g.limit != nil {
			s.Limit = g.measure.show(g.most)
		}
		for _, r := range g.Ladder {
			s.Ladder = append(s.Ladder, r.At.String()+" "+string(r.Do))
		}
		for _, h := range l.live {
			if h.Guard == g.Name && (h.Tenant == "" || allow(h.Tenant)) {
				s.Live++
				s.Actions[string(h.Action)]++
				if h.published() && h.Action.Denies() {
					s.Blocking++
				}
			}
		}
		out = append(out, s)
	}
	return out
}

// guardScope is the scope of a guard; there is none of that name where ok is false.
func (l *Loop) guardScope(name string) (scope []string, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.IndexFunc(l.policy.Guards, func(g Guard) bool { return g.Name == name })
	if i < 0 {
		return nil, false
	}
	return l.policy.Guards[i].Scope, true
}

// LiveStatus is a rung that holds on a scope.
type LiveStatus struct {
	directive.Directive
	Shadow      bool      `json:"shadow,omitempty"`
	Released    bool      `json:"released,omitempty"` // by hand, until its next rung or window
	Scoped      string    `json:"scope_text"`
	Rung        string    `json:"rung"`
	TriggeredBy time.Time `json:"span_received_at,omitzero"`
	Leaked      leakage   `json:"leaked"`

	org bool // over all tenants
}

// Live are the rungs that hold and that a reader may see, the newest first.
func (l *Loop) Live(allow func(tenant string) bool, guard string, most int) []LiveStatus {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := []LiveStatus{}
	for _, h := range l.live {
		if guard != "" && h.Guard != guard || h.Tenant != "" && !allow(h.Tenant) {
			continue
		}
		s := LiveStatus{Directive: h.Directive, Shadow: h.Shadow, Released: h.Index >= 0 && h.Index < h.Pardoned, Scoped: h.Scoped, Rung: h.Rung, Leaked: h.leaked}
		s.org = h.Tenant == ""
		if h.Received != 0 {
			s.TriggeredBy = time.UnixMilli(h.Received).UTC()
		}
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b LiveStatus) int {
		if c := b.Issued.Compare(a.Issued); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
	return out[:min(most, len(out))]
}

// Release takes a directive back by hand. The guard acts again when its next rung is
// reached, or in the next window.
func (l *Loop) Release(id, actor, reason string, allow func(string) bool) error {
	if reason = strings.TrimSpace(reason); reason == "" {
		return badInput("a reason is required: it is what others read later")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.live[id]
	if h == nil || h.Tenant != "" && !allow(h.Tenant) || h.Tenant == "" && !allow(schema.AllTenants) {
		return InputError{Status: 404, Detail: fmt.Sprintf("no directive %q holds; see `flyball guard live`", id)}
	}
	now := time.Now()
	l.release(h, reason, actor, now)
	if h.account != nil && h.Index >= 0 && h.guard != nil {
		// It stays known as released, or its next call would raise it again.
		l.pardon(h, now)
	}
	return l.flush()
}

// pardon keeps a released rung as a shadow, so that only a higher one acts.
func (l *Loop) pardon(h *live, now time.Time) {
	p := *h
	p.Shadow, p.Touched, p.Pardoned = true, now.UnixNano(), h.Index+1
	p.Reason = "released by hand"
	l.live[p.ID] = &p
	l.byKey[string(p.Key)] = append(l.byKey[string(p.Key)], &p)
	p.account.Pinned++
	l.put(&p)
}

// check is what a policy may refer to.
func (l *Loop) check() PolicyOptions {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.o.PolicyCheck
}

package enforce

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"math"
	"net/http"
	"slices"
	"time"

	"github.com/flyball/flyball/enforce/directive"
	"github.com/flyball/flyball/enforce/feed"
	"github.com/flyball/flyball/enforce/ledger"
	"github.com/flyball/flyball/schema"
)

// InputError is a mistake of the caller, with the HTTP status that says so.
type InputError struct {
	Status     int
	Detail     string
	RetryAfter time.Duration
}

func (e InputError) Error() string { return e.Detail }

func badInput(format string, args ...any) error {
	return InputError{Status: http.StatusBadRequest, Detail: fmt.Sprintf(format, args...)}
}

func forbidden(format string, args ...any) error {
	return InputError{Status: http.StatusForbidden, Detail: fmt.Sprintf(format, args...)}
}

func conflict(format string, args ...any) error {
	return InputError{Status: http.StatusConflict, Detail: fmt.Sprintf(format, args...)}
}

func gone(format string, args ...any) error {
	return InputError{Status: http.StatusGone, Detail: fmt.Sprintf(format, args...)}
}

func tooMany(after time.Duration, format string, args ...any) error {
	return InputError{Status: http.StatusTooManyRequests, Detail: fmt.Sprintf(format, args...), RetryAfter: after}
}

func unavailable(after time.Duration, format string, args ...any) error {
	return InputError{Status: http.StatusServiceUnavailable, Detail: fmt.Sprintf(format, args...), RetryAfter: after}
}

// Answer is what a limiter is told about one call.
type Answer struct {
	Decision    directive.Verdict `json:"decision"`
	Model       string            `json:"model,omitempty"` // to use instead
	Status      int               `json:"status"`          // for the denied call
	RetryAfterS int               `json:"retry_after_s,omitempty"`
	WaitMS      int64             `json:"wait_ms,omitempty"`
	Guard       string            `json:"guard,omitempty"`
	Reason      string            `json:"reason,omitempty"`
	Outcome     string            `json:"outcome,omitempty"`
	Criticality string            `json:"criticality"`
	Revision    string            `json:"revision"`

	org bool // of a guard over all tenants: its figures are not for everybody
}

// Budget is one guard on one scope, with the very numbers that decisions use.
type Budget struct {
	Guard string          `json:"guard"`
	Scope string          `json:"scope"` // in words
	Of    directive.Scope `json:"of"`    // the same by dimension
	// Match are further conditions on the calls that count, each with the values that meet it.
	Match       map[string][]string `json:"match,omitempty"`
	Measure     string              `json:"measure"`
	Limit       string              `json:"limit"`
	Spend       string              `json:"spend"`
	Holds       string              `json:"holds"`
	Leases      string              `json:"leases"`
	Left        string              `json:"left"`
	Window      directive.Window    `json:"window"`
	AsOf        time.Time           `json:"as_of,omitzero"` // of the last entry that changed it
	Mode        string              `json:"mode"`
	Warming     bool                `json:"warming,omitempty"`
	UnclearTool int64               `json:"unclear_tool_calls,omitempty"` // of unknown effect, not part of external_writes
	Overshoot   *Overshoot          `json:"overshoot_bound,omitempty"`
}

// weight is an answer with what a lease needs of it.
type weight struct {
	Answer
	Decision directive.Decision
	ask      ledger.Pending
	tightest *Tightest
}

// Tightest is the enforced cost budget that has the least left for a call until it
// refuses.
type Tightest struct {
	Guard       string
	Limit, Left schema.Money  // left may be negative; both are cut off at what Money holds
	ResetIn     time.Duration // until the window ends; 0: not by time
	Window      time.Duration // its length; 0: it has none
}

// tighter is the guard's budget if it has less left than t, else t.
func (g *Guard) tighter(t *Tightest, a *ledger.Account, now time.Time) *Tightest {
	i := slices.IndexFunc(g.rungs, func(r rung) bool { return r.Do.Denies() })
	if i < 0 {
		return t
	}
	total := g.measure.value(g, a, &a.Counts).Plus(a.Holds.Exposure).Plus(a.Leases.Exposure)
	left := clamp(g.rungs[i].threshold.Minus(total))
	if t != nil && t.Left <= left {
		return t
	}
	t = &Tightest{Guard: g.Name, Limit: clamp(g.rungs[i].threshold), Left: left, Window: g.family.Window.Over}
	if a.End != 0 {
		t.ResetIn, t.Window = time.Duration(a.End-now.UnixNano()), time.Duration(a.End-a.Start)
	}
	return t
}

func clamp(s schema.Sum) schema.Money {
	m, err := s.Money()
	switch {
	case err == nil:
		return m
	case s.Sign() < 0:
		return math.MinInt64
	}
	return math.MaxInt64
}

// askOf is the most a call may use.
func (l *Loop) askOf(c *directive.Call, model string, now time.Time) ledger.Pending {
	if c.Tool != "" && c.Model == "" {
		return ledger.Pending{ToolCalls: 1}
	}
	in, out := c.InputTokens, c.MaxOutputTokens
	if in == 0 {
		in = assumedInput
	}
	if out == 0 {
		out = assumedOutput
	}
	p := ledger.Pending{ModelCalls: 1, Tokens: int64(in + out)}
	if l.o.Pricer != nil {
		most, _ := l.o.Pricer.Ceiling(c.Tenant, c.Provider, model, in, out, now)
		p.Exposure = schema.SumOf(int64(most))
	}
	return p
}

// What a call is assumed to use that does not say.
const (
	assumedInput  = 8000
	assumedOutput = 1000
)

// meets reports whether a guard looks at a call.
func (g *Guard) meets(c *directive.Call, criticality string) bool {
	for i := range g.family.Match {
		m := &g.family.Match[i]
		if v, known := c.Field(m.Field, criticality); known && !slices.Contains(m.Values, v) {
			return false
		}
	}
	if c.Model == "" && slices.Contains(g.family.Scope, directive.Model) {
		return false
	}
	return true
}

// weigh answers for a call by directives and by every budget that applies to it, with
// what it asks for if it asks. mu is held. The one rule: a rung is tripped by spend +
// holds + leases + ask over its threshold, and by spend that has reached it. All
// scopes that apply are looked at; a scope can only make the answer stricter.
func (l *Loop) weigh(c *directive.Call, now time.Time, asks bool) (weight, error) {
	l.forget.Rename(c.Tenant, &c.User)
	l.teach(c)
	d := l.set.Decide(c, now)
	w := weight{Decision: d}
	var ask *ledger.Pending
	model := c.Model
	if d.Verdict == directive.Downgraded {
		model = d.Model
	}
	if asks {
		w.ask = l.askOf(c, model, now)
		ask = &w.ask
	}
	if d.Verdict != directive.Deny {
		type hit struct {
			g *Guard
			r rung
			a *ledger.Account
		}
		var worst *hit
		look := func(call *directive.Call) error {
			worst, w.tightest = nil, nil
			for i := range l.policy.Guards {
				g := &l.policy.Guards[i]
				if len(g.rungs) == 0 || !g.meets(call, d.Criticality) {
					continue
				}
				a, err := l.ledger.Find(g.index, now, call.Value, false)
				if err != nil {
					return err
				}
				if a == nil {
					a = l.ledger.Blank(g.index, now, call.Value)
				}
				i, _ := g.asked(a, ask)
				if g.Measure == "cost" && g.Mode == "enforce" && !slices.Contains(g.Exempt, d.Criticality) {
					w.tightest = g.tighter(w.tightest, a, now)
				}
				if g.Mode == "warn" || i < 0 || slices.Contains(g.Exempt, d.Criticality) || l.pardoned(g, a, i) {
					continue
				}
				h := &hit{g, g.rungs[i], a}
				if worst == nil || h.r.Do.Severity() > worst.r.Do.Severity() || h.r.Do.Severity() == worst.r.Do.Severity() && g.precedence() > worst.g.precedence() {
					worst = h
				}
			}
			return nil
		}
		cheaper := *c
		cheaper.Model = model
		if err := look(&cheaper); err != nil {
			return w, err
		}
		if worst != nil && worst.r.Do == directive.Downgrade && d.Verdict != directive.Downgraded {
			models, err := l.downgradeMap(worst.g, worst.a, now)
			if err != nil {
				return w, err
			}
			m := models[c.Model]
			if m == "" {
				m = models["*"]
			}
			if m != "" && m != c.Model {
				w.Decision.Verdict, w.Decision.Model, w.Decision.Guard, w.Decision.Outcome = directive.Downgraded, m, worst.g.Name, worst.g.Outcome
				w.Decision.Reason = l.reasonFor(worst.g, worst.a, ask)
				// The ask is that of the cheaper model, and every budget is asked again: it may
				// have one of its own.
				cheaper.Model = m
				if asks {
					w.ask = l.askOf(c, m, now)
				}
				if err := look(&cheaper); err != nil {
					return w, err
				}
				if dd := l.set.Decide(&cheaper, now); dd.Verdict == directive.Deny {
					w.Decision = dd
					worst = nil
				}
			}
		}
		if worst != nil {
			switch {
			case worst.r.Do.Denies():
				w.Decision = directive.Decision{Verdict: directive.Deny, Guard: worst.g.Name, Reason: l.reasonFor(worst.g, worst.a, ask), Outcome: worst.g.Outcome, Criticality: d.Criticality, Version: d.Version}
				if worst.a.End != 0 && worst.r.Do == directive.SoftBlock {
					w.Decision.RetryAfter = time.Duration(worst.a.End - now.UnixNano())
				}
			case worst.r.Do == directive.Throttle && w.Decision.Verdict == directive.Allow:
				w.Decision.Verdict, w.Decision.Guard, w.Decision.Wait = directive.Wait, worst.g.Name, time.Second
				w.Decision.Reason = l.reasonFor(worst.g, worst.a, ask)
			}
		}
	}
	w.Answer = answerOf(&w.Decision)
	if dd := w.Decision.Directive; dd != nil {
		_, bound := dd.Scope.Values["tenant"]
		w.org = !bound
	} else {
		w.org = slices.ContainsFunc(l.policy.Guards, func(g Guard) bool { return g.Name == w.Guard && g.family.Org }) || w.Guard == "kill" && l.kill.Auto
	}
	return w, nil
}

// pardoned reports whether a rung of a guard was released by hand for an account.
func (l *Loop) pardoned(g *Guard, a *ledger.Account, rung int) bool {
	h := l.live[directiveID(g, a)]
	return h != nil && h.Start == a.Start && rung < h.Pardoned
}

// teach tells who the trace of a call is for.
func (l *Loop) teach(c *directive.Call) {
	if l.o.Teach != nil && c.TraceID != "" {
		l.o.Teach(c)
	}
}

// ForTenants is the answer for who may not see what the whole organisation spends.
func (a Answer) ForTenants() Answer {
	if a.org && a.Reason != "" {
		a.Reason = feed.OrgReason
	}
	return a
}

// refs are the accounts that what a call promises is counted on.
func (l *Loop) refs(c *directive.Call, at time.Time) ([]accountRef, error) {
	var out []accountRef
	seen := map[string]bool{}
	criticality := l.policy.Critical.Criticality(c)
	for i := range l.policy.Guards {
		g := &l.policy.Guards[i]
		if g.measure.pending == nil || !g.meets(c, criticality) {
			continue
		}
		a, err := l.ledger.Find(g.index, at, c.Value, true)
		if err != nil {
			return nil, err
		}
		if !seen[a.Key()] {
			seen[a.Key()] = true
			out = append(out, accountRef{[]byte(a.Key()), a.Start, a.End})
		}
	}
	return out, nil
}

// rebook counts every promise on the accounts of the policy that is in force now.
func (l *Loop) rebook() error {
	for _, p := range l.book.leases {
		if p.Posted {
			continue
		}
		if err := l.move(p, -1); err != nil {
			return err
		}
		var err error
		if p.Accounts, err = l.refs(&p.Call, time.Unix(0, p.Made)); err != nil {
			return err
		}
		if err := l.move(p, 1); err != nil {
			return err
		}
		l.book.changed[p.ID] = true
	}
	return nil
}

func (l *Loop) reasonFor(g *Guard, a *ledger.Account, ask *ledger.Pending) string {
	s := fmt.Sprintf("%s: %s used of %s in %s", g.Name, g.measure.show(g.measure.value(g, a, &a.Counts)), g.measure.show(g.most), windowText(g.family.Window, a))
	if g.measure.pending != nil {
		if p := g.measure.pending(&a.Holds).Plus(g.measure.pending(&a.Leases)); p.Sign() > 0 {
			s += fmt.Sprintf(", %s more is reserved", g.measure.show(p))
		}
		if ask != nil {
			s += fmt.Sprintf(", the call may need %s", g.measure.show(g.measure.pending(ask)))
		}
	}
	return s
}

// precedence orders the reasons of denials as directive.Set does.
func (g *Guard) precedence() int {
	has := func(d directive.Dim) bool { return slices.Contains(g.family.Scope, d) }
	switch {
	case has(directive.Run):
		return 5
	case has(directive.User):
		return 4
	case has(directive.Feature), has(directive.Workflow), has(directive.Agent), has(directive.Model):
		return 3
	case !g.family.Org:
		return 2
	}
	return 1
}

func answerOf(d *directive.Decision) Answer {
	a := Answer{Decision: d.Verdict, Model: d.Model, Status: d.Status(), Guard: d.Guard, Reason: d.Reason, Outcome: d.Outcome, Criticality: d.Criticality, Revision: d.Version.String(), WaitMS: d.Wait.Milliseconds()}
	if d.RetryAfter > 0 {
		a.RetryAfterS = int((d.RetryAfter + time.Second - 1) / time.Second)
	}
	return a
}

// weighAlone is weigh for who does not hold mu.
func (l *Loop) weighAlone(c *directive.Call) (weight, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.weigh(c, time.Now(), false)
}

// Check answers for a call without reserving anything.
func (l *Loop) Check(c *directive.Call) (Answer, error) {
	w, err := l.weighAlone(c)
	if err != nil {
		return Answer{}, err
	}
	l.metrics.checks.WithLabelValues(w.Answer.Decision.String()).Inc()
	return w.Answer, nil
}

// Decide is Check for gateways: the decision itself, and the budget that has the
// least left. Without org the reason tells nothing of what the whole organisation spends.
func (l *Loop) Decide(c *directive.Call, org bool) (directive.Decision, *Tightest, error) {
	w, err := l.weighAlone(c)
	if err == nil {
		l.metrics.checks.WithLabelValues(w.Decision.Verdict.String()).Inc()
	}
	if !org {
		w.Decision.Reason = w.Answer.ForTenants().Reason
	}
	return w.Decision, w.tightest, err
}

// Charge books what a gateway reports of a call that was admitted, until its span
// comes: a hold without a lease before it. cost is what the gateway says it cost, 0
// where it says tokens.
func (l *Loop) Charge(c directive.Call, u Settlement, cost schema.Money, key string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forget.Rename(c.Tenant, &c.User)
	l.teach(&c)
	now := time.Now()
	if l.book.seen.call(&c, u.ResponseID) {
		return nil // the span came first
	}
	if err := l.book.leave(key, 1); err != nil {
		return err
	}
	var id [16]byte
	_, _ = rand.Read(id[:])
	tokens, err := u.Counts()
	if err != nil {
		return err
	}
	if cost == 0 && l.o.Pricer != nil && c.Model != "" {
		cost, _ = l.o.Pricer.Cost(c.Tenant, c.Provider, c.Model, &tokens, now)
	}
	ask := ledger.Pending{ModelCalls: 1, Tokens: int64(tokens.TotalInput() + tokens.TotalOutput()), Exposure: schema.SumOf(int64(cost))}
	if c.Tool != "" && c.Model == "" {
		ask.ModelCalls, ask.ToolCalls = 0, 1
	}
	accounts, err := l.refs(&c, now)
	if err != nil {
		return err
	}
	p := &promise{ID: "charge-" + hex.EncodeToString(id[:]), Key: key, Call: c, Ask: pendingOf(ask), Accounts: accounts, Hold: true, Made: now.UnixNano(), Expires: now.Add(holdTTL).UnixNano(), Response: u.ResponseID, Usage: &u}
	if err := l.addPromise(p); err != nil {
		return err
	}
	_, err = l.appendOwn(&own{Op: "reserve", Promise: []*promise{p}, At: now.UnixNano()})
	return err
}

// Budgets are the guards and the accounts they look at that a reader may see, the
// nearest to their limits first. Nothing is decided meanwhile, so every account is only
// weighed, and what is worked out for a reader is worked out for those that he gets.
func (l *Loop) Budgets(allow func(tenant string) bool, guard string, most int) []Budget {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	type row struct {
		g    *Guard
		a    *ledger.Account
		used float64
	}
	nearest := func(rows []row) []row {
		slices.SortFunc(rows, func(a, b row) int { return cmp.Compare(b.used, a.used) })
		return rows[:min(most, len(rows))]
	}
	limits := map[*Guard]float64{}
	for i := range l.policy.Guards {
		if g := &l.policy.Guards[i]; len(g.rungs) > 0 && (guard == "" || g.Name == guard) {
			limit, _ := g.limit.Float64()
			limits[g] = max(limit, 1)
		}
	}
	allowed := map[string]bool{}
	var rows []row
	least := math.Inf(-1) // of those that are kept
	l.ledger.Each(func(a *ledger.Account) bool {
		if !a.Live(now) {
			return true
		}
		tenant, bound := l.ledger.Tenant(a)
		if !bound {
			tenant = schema.AllTenants
		}
		may, known := allowed[tenant]
		if !known {
			may = allow(tenant)
			allowed[tenant] = may
		}
		if !may {
			return true
		}
		for _, g := range l.byFamily[a.Family] {
			limit, asked := limits[g]
			if !asked {
				continue
			}
			l.ledger.Advance(a, now)
			used := float(g.measure.value(g, a, &a.Counts)) / limit
			if used <= least {
				continue
			}
			if rows = append(rows, row{g, a, used}); len(rows) >= 2*most {
				rows = nearest(rows)
				least = rows[len(rows)-1].used
			}
		}
		return true
	})
	out := []Budget{}
	for _, r := range nearest(rows) {
		out = append(out, l.budget(r.g, r.a))
	}
	return out
}

func (l *Loop) budget(g *Guard, a *ledger.Account) Budget {
	values, run := l.ledger.Scope(a)
	_, warming := l.ledger.Warming(a.Family)
	b := Budget{Guard: g.Name, Scope: scopeText(values, run), Of: directive.Scope{Values: values, Runs: l.runIDs(a)}, Match: matchOf(g), Measure: g.Measure, Limit: g.measure.show(g.most), Spend: g.measure.show(g.measure.value(g, a, &a.Counts)), Holds: g.measure.show(schema.Sum{}), Leases: g.measure.show(schema.Sum{}),
		Window: windowOf(g.family.Window, a), Mode: g.Mode, Warming: warming, UnclearTool: a.Unclear}
	if a.Touched != 0 {
		b.AsOf = time.Unix(0, a.Touched).UTC()
	}
	if g.measure.pending != nil {
		b.Holds, b.Leases = g.measure.show(g.measure.pending(&a.Holds)), g.measure.show(g.measure.pending(&a.Leases))
	}
	_, left := g.asked(a, nil)
	b.Left = g.measure.show(left)
	b.Overshoot = l.overshoot(g, a)
	return b
}

// BudgetsFor are the budgets that apply to a call, whether or not anything was
// counted on them yet; with org also those over all tenants.
func (l *Loop) BudgetsFor(c *directive.Call, org bool) ([]Budget, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	out := []Budget{}
	for i := range l.policy.Guards {
		g := &l.policy.Guards[i]
		if len(g.rungs) == 0 || g.family.Org && !org || !g.meets(c, l.policy.Critical.Criticality(c)) {
			continue
		}
		a, err := l.ledger.Find(g.index, now, c.Value, false)
		if err != nil {
			return nil, err
		}
		if a == nil {
			a = l.ledger.Blank(g.index, now, c.Value)
		}
		out = append(out, l.budget(g, a))
	}
	return out, nil
}

// Overshoot says by how much a budget may be overspent before its limit holds, beside
// the calls that are under way.
type Overshoot struct {
	USD           string        `json:"usd"`
	ExportDelay   time.Duration `json:"export_delay_ns"`   // from the end of a span to its receipt, of the last one
	IdentityDelay time.Duration `json:"identity_delay_ns"` // until it was known whose the span was, of the last one
	Propagation   time.Duration `json:"propagation_ns"`    // from there to the slowest limiter's acknowledgement, the last measured
	PerSecond     string        `json:"usd_per_second"`    // spend of this budget, mean of its window so far
}

// overshoot is (export delay + identity delay + propagation) x the rate of spend; what
// is leased cannot overshoot. It is nil where nothing was measured yet.
func (l *Loop) overshoot(g *Guard, a *ledger.Account) *Overshoot {
	from := max(a.First, a.Start)
	if g.Measure != "cost" || a.First == 0 || a.Received == 0 || a.Touched-from < int64(time.Second) {
		return nil
	}
	o := &Overshoot{ExportDelay: time.Duration(max(0, a.Received*1e6-a.Ended)), IdentityDelay: time.Duration(max(0, a.Touched-a.Received*1e6))}
	for _, x := range l.limiters.byID {
		o.Propagation = max(o.Propagation, x.Took)
	}
	spend, _ := a.Exposure.Big().Float64()
	rate := spend / time.Duration(a.Touched-from).Seconds()
	o.USD = schema.Money(rate * (o.ExportDelay + o.IdentityDelay + o.Propagation).Seconds()).String()
	o.PerSecond = schema.Money(rate).String()
	return o
}

package enforce

import (
	"encoding/json"
	"math"
	"math/big"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/flyball/flyball/enforce/directive"
	"github.com/flyball/flyball/enforce/ledger"
	"github.com/flyball/flyball/schema"
	"github.com/flyball/flyball/schema/state"
)

// used is how far and how fast the budgets of a guard are used. Metrics have no label
// for a scope, so it keeps the few scopes that used most of their limit, and knows how
// much any other had used at the most: when all of the few fall below that, the
// ledger is looked through again. So the highest share is exact.
type used struct {
	per    float64 // one over the limit; 0 where the guard has none to use up
	top    []topScope
	floor  float64          // the most that a scope outside top had used
	scopes map[string]scope // of a budget that is shared, by account: those of the open windows
	spent  monotone         // of such a budget that is of money
	// What metrics say; a second old at the most.
	highest, allotted float64
	known             bool
}

type topScope struct {
	a     *ledger.Account
	share float64
}

// scope is a budget that was spent from in its present window.
type scope struct {
	end int64 // unix nanoseconds
	per float64
}

const (
	keepTop  = 8
	keyUsed  = "enforce/used/" // the accounts of top, by guard
	restRun  = time.Hour       // a run that rests so long is no user of its budget any more
	scanUsed = 30 * time.Second
	// maxScopes bounds what a guard remembers, should a sender make up names.
	maxScopes = 100_000
)

// monotone is a counter whose increments may be taken back: what is taken back is
// owed, and later increments pay for it.
type monotone struct {
	c     prometheus.Counter
	debt  float64
	shown time.Time // when it had an exemplar last; one a second is enough
}

func (m *monotone) add(v float64, trace schema.TraceID, now time.Time) {
	if v < 0 || m.debt > 0 {
		m.debt -= v
		if m.debt >= 0 {
			return
		}
		v, m.debt = -m.debt, 0
	}
	switch {
	case v <= 0:
	case now.Sub(m.shown) < time.Second:
		m.c.Add(v)
	default:
		m.shown = now
		example(m.c, v, trace)
	}
}

// shared reports whether the guard's budgets are of many: of the org, of tenants, of
// features and the like, over calendar windows. Those are what burns; a user's or a
// run's own budget is small, and its ladder says all about it.
func (g *Guard) shared() bool {
	return g.family.Window.Unit >= ledger.Hour && !slices.Contains(g.family.Scope, directive.User) && !slices.Contains(g.family.Scope, directive.Run)
}

func (g *Guard) windowName() string { return ledger.UnitNames[g.family.Window.Unit] }

func float(s schema.Sum) float64 {
	if s.Sign() < 0 {
		return -float(s.Neg())
	}
	hi, lo := s.Words()
	return math.Ldexp(float64(hi), 64) + float64(lo)
}

// useUsed begins to measure the guards of a policy that was put in force, and lets go
// of those of the one before. What the ledger has in memory is offered right after.
func (l *Loop) useUsed(old, p *Policy) {
	owed := map[string]float64{} // by counter: it goes on, and so does what it owes
	if old != nil {
		names := map[string]bool{}
		for i := range p.Guards {
			names[p.Guards[i].Name+"/"+p.Guards[i].windowName()] = true
		}
		for i := range old.Guards {
			g := &old.Guards[i]
			for _, t := range g.used.top {
				t.a.Pinned--
			}
			owed[g.Name+"/"+g.windowName()] = g.used.spent.debt
			g.used = used{}
			if !names[g.Name+"/"+g.windowName()] {
				l.metrics.budgetSpend.DeleteLabelValues(g.Name, g.windowName())
			}
		}
	}
	for i := range p.Guards {
		g := &p.Guards[i]
		if g.limit == nil || g.limit.Sign() <= 0 {
			continue
		}
		g.used.per = 1 / float(g.most)
		if g.shared() {
			g.used.scopes = map[string]scope{}
			if g.measure == measureCost {
				g.used.spent = monotone{c: l.metrics.budgetSpend.WithLabelValues(g.Name, g.windowName()), debt: owed[g.Name+"/"+g.windowName()]}
			}
		}
	}
	o := &l.objective
	*o = objective{requests: o.requests, over: o.over}
	if t := p.target; t != nil {
		if o.requests.c == nil {
			o.requests.c, o.over.c = l.metrics.requests(l.o.Registerer)
		}
		o.family, o.most, o.threshold = t.index, t.most, t.threshold
	}
}

// offer tells what an account of the guard has used.
func (u *used) offer(a *ledger.Account, value schema.Sum) {
	if u.per == 0 {
		return
	}
	share := 0.0
	if m, err := value.Money(); err == nil { // any measure's unit
		share = float64(m) * u.per
	} else {
		share = float(value) * u.per
	}
	if u.scopes != nil && a.End > a.Start {
		if _, ok := u.scopes[a.Key()]; !ok && len(u.scopes) < maxScopes {
			u.scopes[a.Key()] = scope{a.End, float64(time.Second) / float64(a.End-a.Start)}
		}
	}
	least := -1
	for i := range u.top {
		if u.top[i].a == a {
			u.top[i].share = share
			return
		}
		if least < 0 || u.top[i].share < u.top[least].share {
			least = i
		}
	}
	switch {
	case len(u.top) < keepTop:
		u.top = append(u.top, topScope{a, share})
	case share > u.top[least].share:
		u.floor = max(u.floor, u.top[least].share)
		u.top[least].a.Pinned--
		u.top[least] = topScope{a, share}
	default:
		u.floor = max(u.floor, share)
		return
	}
	a.Pinned++
}

// settle drops what is over and works out what metrics say. It reports whether the
// ledger has to be looked through.
func (l *Loop) settle(g *Guard, now time.Time) (again bool) {
	u := &g.used
	u.highest, u.allotted = 0, 0
	u.top = slices.DeleteFunc(u.top, func(t topScope) bool {
		gone := !t.a.Live(now) || t.a.Family != g.index || g.family.Window.Unit == ledger.Run && now.UnixNano()-t.a.Touched > int64(restRun)
		if gone {
			t.a.Pinned--
		}
		return gone
	})
	for i := range u.top {
		t := &u.top[i]
		l.ledger.Advance(t.a, now)
		t.share = float(g.measure.value(g, t.a, &t.a.Counts)) * u.per
		u.highest = max(u.highest, t.share)
	}
	limit := 1 / u.per / schema.PicoPerUSD
	for key, s := range u.scopes {
		if now.UnixNano() >= s.end {
			delete(u.scopes, key)
			continue
		}
		u.allotted += limit * s.per
	}
	if u.scopes != nil && len(g.family.Scope) == 0 && len(u.scopes) == 0 { // the org's is always open
		start, end := g.family.Window.Bounds(now, nil)
		u.allotted = limit / end.Sub(start).Seconds()
	}
	_, warming := l.ledger.Warming(g.index)
	u.known = !warming
	return u.highest < u.floor
}

// passUsed keeps the figures of all guards. mu is held.
func (l *Loop) passUsed(now time.Time) {
	if now.Sub(l.usedAt) < time.Second {
		return
	}
	l.usedAt = now
	scan := map[int][]*Guard{}
	for i := range l.policy.Guards {
		g := &l.policy.Guards[i]
		if g.used.per != 0 && l.settle(g, now) && now.Sub(l.usedScan) >= scanUsed {
			g.used.floor = 0
			scan[g.index] = append(scan[g.index], g)
		}
	}
	if len(scan) == 0 {
		return
	}
	l.usedScan = now
	l.ledger.Each(func(a *ledger.Account) bool {
		for _, g := range scan[a.Family] {
			if a.Live(now) && (g.family.Window.Unit != ledger.Run || now.UnixNano()-a.Touched <= int64(restRun)) {
				l.ledger.Advance(a, now)
				g.used.offer(a, g.measure.value(g, a, &a.Counts))
			}
		}
		return true
	})
	for _, guards := range scan {
		for _, g := range guards {
			l.settle(g, now)
		}
	}
}

// touched counts what a record did to an account: spend of shared budgets, and runs
// that became requests or went over the objective.
func (l *Loop) touched(t *ledger.Touch, now time.Time) {
	for _, g := range l.byFamily[t.Family] {
		if g.used.spent.c == nil || !t.Live(now) {
			continue
		}
		d := g.measure.value(g, t.Account, &t.Counts).Minus(g.measure.value(g, t.Account, &t.Before))
		if d != (schema.Sum{}) {
			m, _ := d.Money()
			g.used.spent.add(float64(m)/schema.PicoPerUSD, t.Trace, now)
		}
	}
	if o := &l.objective; o.threshold > 0 && t.Family == o.family {
		o.moved(&t.Before, &t.Counts, t.Trace, now)
	}
}

// objective says of requests, which are runs that have a model call, how many made
// more attempts than they should.
type objective struct {
	family         int
	most           int64 // thousandths of an attempt
	threshold      int64 // from which on a request is over it; 0 is none
	requests, over monotone
}

func (o *objective) moved(before, after *ledger.Counts, trace schema.TraceID, now time.Time) {
	count := func(c *ledger.Counts) (request, over float64) {
		if c.ModelCalls <= 0 {
			return 0, 0
		}
		if c.Calls()*1000 >= o.threshold {
			return 1, 1
		}
		return 1, 0
	}
	r0, o0 := count(before)
	r1, o1 := count(after)
	if r1 != r0 {
		o.requests.add(r1-r0, trace, now)
	}
	if o1 != o0 {
		o.over.add(o1-o0, trace, now)
	}
}

// Objectives are what operators promise beside budgets.
type Objectives struct {
	Amplification *string `yaml:"amplification"` // attempts a request at the most

	most *big.Int // thousandths
}

// target is the objective in force.
type target struct {
	family          ledger.Family
	index           int // of the family
	most, threshold int64
}

// objective is what the policy says about amplification: the objective, else the
// limit of the first guard over the amplification of runs, at which a request is over
// it. nil is none.
func (p *Policy) objective() *target {
	if o := p.Objectives; o != nil && o.most != nil {
		return &target{family: ledger.Family{Scope: []directive.Dim{directive.Run}}, most: o.most.Int64(), threshold: o.most.Int64() + 1}
	}
	for i := range p.Guards {
		g := &p.Guards[i]
		if g.measure == measureAmplification && g.family.Window.Unit == ledger.Run && g.limit != nil && g.limit.Sign() > 0 && g.limit.IsInt64() {
			return &target{family: g.family, most: g.limit.Int64(), threshold: g.limit.Int64()}
		}
	}
	return nil
}

// saveUsed keeps which accounts lead, so that a restart does not look like a fall and a
// rise of the highest share.
func (l *Loop) saveUsed(b *state.Batch) error {
	for i := range l.policy.Guards {
		g := &l.policy.Guards[i]
		keys := make([]ledgerKey, len(g.used.top))
		for j, t := range g.used.top {
			keys[j] = ledgerKey{[]byte(t.a.Key()), t.a.Start, t.a.End}
		}
		v, err := json.Marshal(keys)
		if err != nil {
			return err
		}
		if l.usedSaved[g.Name] == string(v) {
			continue
		}
		if err := b.Put(keyUsed+g.Name, v); err != nil {
			return err
		}
		l.usedSaved[g.Name] = string(v)
	}
	return nil
}

type ledgerKey struct {
	Key        []byte
	Start, End int64
}

// restoreUsed loads the accounts that led.
func (l *Loop) restoreUsed() error {
	l.usedSaved = map[string]string{}
	for i := range l.policy.Guards {
		g := &l.policy.Guards[i]
		v, err := l.o.Store.Get(keyUsed + g.Name)
		if err != nil || v == nil {
			if err != nil {
				return err
			}
			continue
		}
		var keys []ledgerKey
		if err := json.Unmarshal(v, &keys); err != nil {
			return err
		}
		for _, k := range keys {
			if k.End != 0 && k.End <= time.Now().UnixNano() {
				continue
			}
			a, err := l.ledger.ByKey(string(k.Key), k.Start, k.End)
			if err != nil {
				return err
			}
			if a.Family == g.index {
				g.used.offer(a, g.measure.value(g, a, &a.Counts))
			}
		}
	}
	return nil
}

// budgets are the metrics of guards with a limit.
type budgets struct{ l *Loop }

var (
	descUsed     = prometheus.NewDesc("flyball_budget_used_ratio", "Highest share of its limit that a scope of the guard has used in its present window; of runs, those of the last hour. Absent while the guard lacks history.", []string{"guard", "window"}, nil)
	descAllotted = prometheus.NewDesc("flyball_budget_allotted_usd_per_second", "What the guard's scopes may spend in a second if they spend evenly: limit over length of the window, summed over the scopes that have spent in it. Of budgets over calendar windows that are nobody's own.", []string{"guard", "window"}, nil)
	descGoal     = prometheus.NewDesc("flyball_amplification_objective", "Attempts that a request should make at the most, by the policy. Absent where it says nothing.", nil, nil)
)

// Describe implements prometheus.Collector.
func (b budgets) Describe(c chan<- *prometheus.Desc) { c <- descUsed; c <- descAllotted; c <- descGoal }

// Collect implements prometheus.Collector.
func (b budgets) Collect(c chan<- prometheus.Metric) {
	l := b.l
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.policy.Guards {
		g := &l.policy.Guards[i]
		if g.used.per == 0 || !g.used.known {
			continue
		}
		c <- prometheus.MustNewConstMetric(descUsed, prometheus.GaugeValue, g.used.highest, g.Name, g.windowName())
		if g.used.spent.c != nil {
			c <- prometheus.MustNewConstMetric(descAllotted, prometheus.GaugeValue, g.used.allotted, g.Name, g.windowName())
		}
	}
	if o := &l.objective; o.threshold > 0 {
		c <- prometheus.MustNewConstMetric(descGoal, prometheus.GaugeValue, float64(o.most)/1000)
	}
}

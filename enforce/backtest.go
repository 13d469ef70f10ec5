package enforce

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/flyball/flyball/enforce/directive"
	"github.com/flyball/flyball/enforce/ledger"
	"github.com/flyball/flyball/schema"
)

// Journal reads entries as they were posted, in the order of their recording: those
// of calls that started in [from, to), of chunks up to chunk, 0 being all.
type Journal func(ctx context.Context, from, to time.Time, chunk uint64, f func(*schema.Entry) error) error

// BacktestReport says what a policy would have done. How agents would have reacted is
// not modelled: a refused call is left out, whatever came after it stays as it was.
type BacktestReport struct {
	From    time.Time       `json:"from"`
	To      time.Time       `json:"to"`
	Entries int64           `json:"entries"`
	Calls   int64           `json:"calls"`
	Spend   schema.Sum      `json:"spend_usd"`
	Saved   schema.Sum      `json:"saved_usd"` // by refusals and downgrades together
	Guards  []GuardBacktest `json:"guards"`
	Note    string          `json:"note"`
}

// GuardBacktest is one guard's part of it. A refused call is credited to one guard
// alone, the narrowest of those that refuse it.
type GuardBacktest struct {
	Guard      string         `json:"guard"`
	Mode       string         `json:"mode"`
	Fired      map[string]int `json:"fired"` // by action
	First      time.Time      `json:"first,omitzero"`
	Last       time.Time      `json:"last,omitzero"`
	Scopes     []ScopeCount   `json:"scopes"` // on whom most often
	Refused    int64          `json:"refused_calls"`
	Critical   int64          `json:"refused_critical_calls"`
	Downgraded int64          `json:"downgraded_calls"`
	Saved      schema.Sum     `json:"saved_usd"`
}

// ScopeCount is how often a guard fired on a scope.
type ScopeCount struct {
	Scope string     `json:"scope"`
	Fired int        `json:"fired"`
	Saved schema.Sum `json:"saved_usd"`
}

// maxBacktest bounds the memory of a backtest, at half a kilobyte an account or line.
const maxBacktest = 2_000_000

var errTooManyAccounts = errors.New("the backtest needs more memory than it may have; ask for a shorter time, one tenant, or fewer guards of runs and users")

// stopsFor is how long a kill switch that trips in a backtest is taken to stay on.
const stopsFor = time.Hour

// backtest is a loop without a store, a log or limiters.
type backtest struct {
	*Loop
	report  *BacktestReport
	byGuard map[string]*GuardBacktest
	scopes  map[string]map[string]*ScopeCount
	left    map[string]schema.Money // exposure that a line counts with in the test, where another than it had
	looked  time.Time               // when it was looked at what time alone ends
	records int                     // since then
}

// Backtest replays the journal through the guards of a policy, the very code that
// enforces, every guard as if it were enforced.
func Backtest(ctx context.Context, p *Policy, o Options, journal Journal, from, to time.Time) (*BacktestReport, error) {
	b := &backtest{report: &BacktestReport{From: from.UTC(), To: to.UTC(), Guards: []GuardBacktest{}, Note: "how agents would have reacted to a refusal is not modelled"}, byGuard: map[string]*GuardBacktest{}, scopes: map[string]map[string]*ScopeCount{}, left: map[string]schema.Money{}}
	b.Loop = &Loop{o: o, metrics: newMetrics(nil), set: directive.NewSet(), live: map[string]*live{}, byKey: map[string][]*live{}}
	b.ledger = ledger.New(ledger.Options{Zone: o.Zone})
	b.book.init()
	b.limiters.init()
	b.light.init()
	b.kill.history.init(0)
	b.kill.received = 1
	test := *p
	test.Guards = slices.Clone(p.Guards)
	for i := range test.Guards {
		g := &test.Guards[i]
		b.byGuard[g.Name] = &GuardBacktest{Guard: g.Name, Mode: g.Mode, Fired: map[string]int{}, Scopes: []ScopeCount{}}
		g.Mode, g.Page = "enforce", nil
	}
	if p.Kill != nil {
		k := *p.Kill
		b.byGuard["kill"] = &GuardBacktest{Guard: "kill", Mode: k.Mode, Fired: map[string]int{}, Scopes: []ScopeCount{}}
		k.Mode, k.Page = "enforce", nil
		test.Kill = &k
	}
	if err := b.set.Replace(&directive.State{Critical: p.Critical}); err != nil {
		return nil, err
	}
	if err := b.usePolicy(&test); err != nil {
		return nil, err
	}
	for i := range b.byFamily { // there is nothing before it that they lack, and what fell is taken back
		b.ledger.Warm(i)
	}
	if err := b.settle(); err != nil {
		return nil, err
	}
	record := int64(-1)
	if err := journal(ctx, from, to, 0, func(e *schema.Entry) error {
		if e.RecordedAt != record {
			if err := b.end(); err != nil {
				return err
			}
			record = e.RecordedAt
			if err := b.lapse(time.Unix(0, min(e.Start, e.RecordedAt*1000))); err != nil {
				return err
			}
			b.ledger.Begin()
		}
		return b.entry(e)
	}); err != nil {
		return nil, err
	}
	if err := b.end(); err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(b.byGuard)) {
		g := b.byGuard[name]
		for _, s := range b.scopes[name] {
			g.Scopes = append(g.Scopes, *s)
		}
		slices.SortFunc(g.Scopes, func(x, y ScopeCount) int {
			return cmp.Or(y.Saved.Cmp(x.Saved), y.Fired-x.Fired, strings.Compare(x.Scope, y.Scope))
		})
		g.Scopes = g.Scopes[:min(len(g.Scopes), 10)]
		b.report.Guards = append(b.report.Guards, *g)
		b.report.Saved = b.report.Saved.Plus(g.Saved)
	}
	return b.report, nil
}

func lineName(e *schema.Entry) string {
	return e.Tenant + "\x00" + string(e.Trace[:]) + string(e.Span[:]) + string([]byte{byte(e.Part >> 8), byte(e.Part)})
}

// entry decides about a call that is new and counts what is left of it.
func (b *backtest) entry(e *schema.Entry) error {
	p := &e.Posting
	b.report.Entries++
	b.clock = max(b.clock, e.RecordedAt)
	b.report.Spend.Add(p.Exposure, e.Sign)
	line := lineName(e)
	left, known := b.left[line]
	if calls := p.ModelCalls + p.ToolCalls + p.Retries + p.Fallbacks + p.Hedges; !known && e.Sign > 0 && calls > 0 {
		b.report.Calls++
		left, known = b.decide(e)
		if known {
			b.left[line] = left
		}
	}
	if known {
		if left == 0 { // refused: nothing of it happened
			return nil
		}
		p.Exposure, p.Cost = left, left
	}
	if n, _, _ := b.ledger.Stats(); n+len(b.left)+len(b.live) > maxBacktest {
		return errTooManyAccounts
	}
	if err := b.ledger.Apply(e, 0); err != nil {
		return err
	}
	b.kill.history.add(e)
	return nil
}

// decide says what a call would have been told by what was in force when it started.
func (b *backtest) decide(e *schema.Entry) (left schema.Money, changed bool) {
	p := &e.Posting
	if e.Failure == schema.Budget || b.set.Len() == 0 && !b.kill.On {
		return 0, false
	}
	start := time.Unix(0, e.Start)
	c := callOf(e)
	d := b.set.Decide(&c, start)
	issued, guard := b.kill.Since, d.Guard
	var scope string
	if d.Directive != nil {
		h := b.live[d.Directive.ID]
		if h == nil {
			return 0, false
		}
		issued, scope = h.Issued, h.Scoped
	}
	g := b.byGuard[guard]
	if g == nil || !issued.Before(start) {
		return 0, false
	}
	switch d.Verdict {
	case directive.Deny:
		g.Refused++
		if e.Posting.Identity[schema.Criticality] == directive.Critical || d.Criticality == directive.Critical {
			g.Critical++
		}
	case directive.Downgraded:
		if b.o.Pricer == nil {
			return 0, false
		}
		cost, known := b.o.Pricer.Cost(e.Tenant, "", d.Model, &p.Tokens, start)
		if !known || cost >= p.Exposure {
			return 0, false
		}
		left = cost
		g.Downgraded++
	default:
		return 0, false
	}
	saved := schema.SumOf(int64(p.Exposure - left))
	g.Saved = g.Saved.Plus(saved)
	if s := b.scopes[guard][scope]; s != nil {
		s.Saved = s.Saved.Plus(saved)
	}
	return left, true
}

// end decides on what the record changed, as the loop does.
func (b *backtest) end() error {
	if err := b.judgeTouched(); err != nil {
		return err
	}
	now := time.UnixMicro(b.clock)
	b.kill.history.advance(now.UnixNano())
	if b.kill.On && now.Sub(b.kill.Since) >= stopsFor {
		b.flip(directive.Kill{Reason: "the backtest takes it to be lifted after " + shortDuration(stopsFor)}, now)
		b.kill.Suspended = now.Add(stopsFor)
	}
	if err := b.judgeKill(now); err != nil {
		return err
	}
	return b.settle()
}

// lapse lets go of what holds no more when a call starts, since spend left a rolling window or
// a window ended: the loop looks four times a second. Where much holds that is done less often,
// so that a record costs no more than a few looks.
func (b *backtest) lapse(start time.Time) error {
	b.records++
	if len(b.live) == 0 || start.Sub(b.looked) < time.Second || 64*b.records < len(b.live) {
		return nil
	}
	b.looked, b.records = start, 0
	if err := b.refreshLive(start); err != nil {
		return err
	}
	return b.settle()
}

// settle puts what was decided in force in the test's own set.
func (b *backtest) settle() error {
	f := &b.effects
	if f.empty() {
		return nil
	}
	for _, e := range f.events {
		g := b.byGuard[e.Guard]
		if g == nil || e.Kind != "directive" && e.Kind != "kill" || e.Kind == "kill" && e.Action == "off" {
			continue
		}
		g.Fired[e.Action]++
		if g.First.IsZero() {
			g.First = e.At
		}
		g.Last = e.At
		if b.scopes[e.Guard] == nil {
			b.scopes[e.Guard] = map[string]*ScopeCount{}
		}
		s := b.scopes[e.Guard][e.Scope]
		if s == nil {
			s = &ScopeCount{Scope: e.Scope}
			b.scopes[e.Guard][e.Scope] = s
		}
		s.Fired++
	}
	c := directive.Change{From: b.current}
	b.current.Revision++
	c.Version = b.current
	for id := range f.remove {
		c.Remove = append(c.Remove, id)
	}
	for _, h := range f.upsert {
		c.Upsert = append(c.Upsert, h.Directive)
	}
	if f.kill {
		k := b.kill.Kill
		c.Kill = &k
	}
	b.effects = effects{}
	return b.set.Apply(&c)
}

package enforce

import (
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/flyball/flyball/enforce/ledger"
	"github.com/flyball/flyball/schema"
)

// measure is what a guard looks at in an account. Each is a pure function of the
// guard, the account's sums and what is pending on it; guard_*.go has one a file.
type measure struct {
	name    string
	runOnly bool // makes sense for one run only
	perRun  bool // needs requests and attempts of runs
	ratio   bool // a quotient, which means little of few calls
	// value is the sum in the measure's unit: pico-dollars, pieces, thousandths of a
	// ratio, nanoseconds.
	value func(g *Guard, a *ledger.Account, c *ledger.Counts) schema.Sum
	// pending are holds and leases in the same unit; nil where nothing can be promised.
	pending func(p *ledger.Pending) schema.Sum
	parse   func(string) (*big.Int, error)
	show    func(schema.Sum) string
}

var measures = map[string]*measure{}

func init() {
	for _, m := range []*measure{measureCost, measureTokens, measureModelCalls, measureToolCalls, measureWrites, measureRetries, measureCalls, measureAmplification, measureRetryRate, measureRateLimited, measureDeadline} {
		measures[m.name] = m
	}
}

func measureNames() []string {
	var out []string
	for n := range measures {
		out = append(out, n)
	}
	slices.Sort(out)
	return out
}

// parseCount reads a whole number of pieces.
func parseCount(s string) (*big.Int, error) {
	n, err := strconv.ParseUint(s, 10, 63)
	if err != nil {
		return nil, errors.New("want a whole number, e.g. \"200000\"; \"0\" denies all, leave limit out for no limit")
	}
	return new(big.Int).SetUint64(n), nil
}

func showCount(s schema.Sum) string { return s.Big().String() }

// parseRatio reads a ratio with up to three decimals.
func parseRatio(s string) (*big.Int, error) {
	m, err := schema.ParseMoney(s)
	if err != nil || m < 0 || m%1e9 != 0 {
		return nil, errors.New("want a number with at most three decimals, e.g. \"25\" or \"0.2\"")
	}
	return big.NewInt(int64(m / 1e9)), nil
}

func showRatio(s schema.Sum) string {
	v, err := s.Money()
	if err != nil {
		return s.Big().String() + "/1000"
	}
	return schema.Money(int64(v) * 1e9).String()
}

// thousandths is a quotient in thousandths, 0 where there are too few to tell.
func thousandths(n, of, least int64) schema.Sum {
	if of <= 0 || of < least || n <= 0 {
		return schema.Sum{}
	}
	q := new(big.Int).Mul(big.NewInt(n), big.NewInt(1000))
	s, err := schema.SumFromBig(q.Quo(q, big.NewInt(of)))
	if err != nil {
		return schema.Sum{}
	}
	return s
}

// verdict is what a guard says about an account: which rung holds.
type verdict struct {
	value schema.Sum
	rung  int // index into the guard's rungs, -1 is none
}

// judge is the level rule: the highest rung that the value reaches. A limit of zero
// is reached by nothing at all.
func (g *Guard) judge(a *ledger.Account, c *ledger.Counts) verdict {
	v := verdict{value: g.measure.value(g, a, c), rung: -1}
	for i := range g.rungs {
		if v.value.Cmp(g.rungs[i].threshold) >= 0 {
			v.rung = i
		}
	}
	return v
}

// asked is the rung that a call would trip that asks for more: spend + holds +
// leases + ask > threshold, or spend >= threshold.
func (g *Guard) asked(a *ledger.Account, ask *ledger.Pending) (rung int, left schema.Sum) {
	spend := g.measure.value(g, a, &a.Counts)
	total := spend
	if g.measure.pending != nil {
		total = total.Plus(g.measure.pending(&a.Holds)).Plus(g.measure.pending(&a.Leases))
		if ask != nil {
			total = total.Plus(g.measure.pending(ask))
		}
	}
	rung = -1
	for i := range g.rungs {
		if t := g.rungs[i].threshold; spend.Cmp(t) >= 0 || total.Cmp(t) > 0 {
			rung = i
		}
	}
	if g.limit != nil {
		left = g.most.Minus(total)
	}
	return rung, left
}

// releases reports whether a value is so far under the limit that what was done
// about it is taken back early.
func (g *Guard) releases(value schema.Sum, r int) bool {
	if r < 0 || r >= len(g.rungs) {
		return true // of a ladder that is no more
	}
	t := new(big.Int).Mul(g.rungs[r].threshold.Big(), big.NewInt(int64(g.ReleaseBelow)))
	t.Quo(t, big.NewInt(100_000))
	s, err := schema.SumFromBig(t)
	return err == nil && value.Cmp(s) < 0
}

// scopeText is a scope in words: "user u-1 of tenant t-1".
func scopeText(values map[string]string, run string) string {
	var parts []string
	if run != "" {
		parts = append(parts, "run "+run)
	}
	for _, d := range []string{"user", "agent", "workflow", "feature", "model"} {
		if v, ok := values[d]; ok {
			if v == "" {
				v = "(none)"
			}
			parts = append(parts, d+" "+v)
		}
	}
	if t, ok := values["tenant"]; ok {
		if len(parts) == 0 {
			return "tenant " + t
		}
		return strings.Join(parts, ", ") + " of tenant " + t
	}
	if len(parts) == 0 {
		return "the whole org"
	}
	return strings.Join(parts, ", ") + " across all tenants"
}

// windowText is a window in words.
func windowText(w ledger.Window, a *ledger.Account) string {
	switch w.Unit {
	case ledger.Run:
		return "the run"
	case ledger.Rolling:
		return "the last " + shortDuration(w.Over)
	}
	zone := w.Zone
	if zone == nil {
		zone = time.UTC
	}
	return fmt.Sprintf("%s to %s", time.Unix(0, a.Start).In(zone).Format(time.RFC3339), time.Unix(0, a.End).In(zone).Format(time.RFC3339))
}

func shortDuration(d time.Duration) string {
	s := d.String()
	s = strings.TrimSuffix(s, "0s")
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	if s == "" {
		return d.String()
	}
	return s
}

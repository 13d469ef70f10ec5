package query

import (
	"context"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/flyball/flyball/schema"
)

// moverDimensions are those that changes may be told by, and moverLimit how many
// groups and models of two times an answer may be made of.
var moverDimensions = append(slices.Clone(runDimensions), "provider", "model")

const moverLimit = 200_000

// effects are the reasons of a change, in the order in which one factor after the
// other is moved from then to now. Their sum is the change. exchange is in other
// currencies than USD alone.
var (
	effects       = []string{"volume", "amplification", "retries", "mix", "tokens", "price", "other"}
	effectsInThem = append(slices.Clone(effects), "exchange")
)

// cell is what one model of a group did in one of the two times.
type cell struct {
	attempts, tokens int64
	cost             *big.Rat
	usd              *big.Rat // where cost is in another currency
}

// side is a group in one of the two times.
type side struct {
	requests, logical, attempts, tokens, uncosted int64
	cost, other                                   *big.Rat // of attempts, and of what is no attempt
	cells                                         map[[2]string]*cell
}

func newSide() *side {
	return &side{cost: new(big.Rat), other: new(big.Rat), cells: map[[2]string]*cell{}}
}

func (s *side) total() *big.Rat { return new(big.Rat).Add(s.cost, s.other) }

func (s *side) row(in *side) row {
	m := row{"requests": s.requests, "model_calls": s.logical, "attempts": s.attempts, "tokens": s.tokens, "uncosted_calls": s.uncosted, "cost_usd": pico(s.total()).String()}
	if in != nil {
		m["cost"] = pico(in.total()).String()
	}
	return m
}

// settle moves costs that no attempt stands for, such as those of further parts of
// an answer by a model that was not called itself, out of the factors.
func (s *side) settle() {
	for k, c := range s.cells {
		if c.attempts == 0 {
			s.other.Add(s.other, c.cost)
			delete(s.cells, k)
			continue
		}
		s.attempts += c.attempts
		s.cost.Add(s.cost, c.cost)
	}
}

// mover is a group with its change.
type mover struct {
	values [2]*side // then, now
	group  row
	by     map[string]schema.Sum
	change schema.Sum
	in     *mover // the same in another currency, or nil
}

func pico(r *big.Rat) schema.Sum {
	n := new(big.Int).Mul(r.Num(), big.NewInt(schema.PicoPerUSD))
	quo, rem := new(big.Int).QuoRem(n, r.Denom(), new(big.Int))
	rem.Abs(rem.Lsh(rem, 1))
	if c := rem.Cmp(r.Denom()); c > 0 || c == 0 && quo.Bit(0) == 1 {
		quo.Add(quo, big.NewInt(int64(n.Sign())))
	}
	s, err := schema.SumFromBig(quo)
	if err != nil {
		panic("BUG: a sum of Int128 is beyond 127 bits")
	}
	return s
}

// explain takes the change apart: the cost is requests x calls a request x attempts a
// call x each model's share x its tokens an attempt x its cost a token, and one factor
// after the other is set to what it is now. Each effect is rounded to 1e-12 but
// the price's, which is the rest. In another currency the rate is one more factor,
// the last one; bounds are the least and the most that a USD was worth then.
func (m *mover) explain(countRequests bool, bounds [2]*big.Rat) {
	then, now := m.values[0], m.values[1]
	then.settle()
	now.settle()
	change := new(big.Rat).Sub(now.total(), then.total())
	m.change = pico(change)
	m.by["other"] = pico(new(big.Rat).Sub(now.other, then.other))
	rest := m.change.Minus(m.by["other"])
	give := func(name string, from, to *big.Rat) {
		m.by[name] = pico(new(big.Rat).Sub(to, from))
		rest = rest.Minus(m.by[name])
	}
	// scaled is then's cost times the quotient of two counts.
	scaled := func(a, b int64) *big.Rat { return new(big.Rat).Mul(then.cost, big.NewRat(a, b)) }
	if then.attempts <= 0 || now.attempts <= 0 { // it is new, or gone
		m.by["volume"] = rest
		return
	}
	at := then.cost
	logical := then.logical > 0 && now.logical > 0
	if countRequests && logical && then.requests > 0 && now.requests > 0 {
		next := scaled(now.requests, then.requests)
		give("volume", at, next)
		at = next
		next = scaled(now.logical, then.logical)
		give("amplification", at, next)
		at = next
	} else if logical {
		next := scaled(now.logical, then.logical)
		give("volume", at, next)
		at = next
	}
	next := scaled(now.attempts, then.attempts)
	if logical {
		give("retries", at, next)
	} else {
		give("volume", at, next)
	}
	at = next
	mix, tokens, exchange := new(big.Rat), new(big.Rat), new(big.Rat)
	for k, c := range now.cells {
		old := then.cells[k]
		if old == nil || old.attempts <= 0 || c.attempts <= 0 { // its own cost: that it is used at all is mix
			mix.Add(mix, c.cost)
			tokens.Add(tokens, c.cost)
			continue
		}
		cost := new(big.Rat).Mul(old.cost, big.NewRat(c.attempts, old.attempts))
		mix.Add(mix, cost)
		if old.tokens > 0 && c.tokens > 0 {
			each := new(big.Rat).Quo(big.NewRat(c.tokens, c.attempts), big.NewRat(old.tokens, old.attempts))
			cost = new(big.Rat).Mul(cost, each)
		}
		tokens.Add(tokens, cost)
		if old.usd == nil || old.usd.Sign() == 0 {
			continue
		}
		// Rounded sums, and credits of other days among them, give no rate that there was.
		rate := new(big.Rat).Quo(old.cost, old.usd)
		if rate.Cmp(bounds[0]) < 0 {
			rate.Set(bounds[0])
		} else if rate.Cmp(bounds[1]) > 0 {
			rate.Set(bounds[1])
		}
		exchange.Add(exchange, c.cost).Sub(exchange, rate.Mul(rate, c.usd))
	}
	give("mix", at, mix)
	give("tokens", mix, tokens)
	give("exchange", new(big.Rat), exchange)
	m.by["price"] = rest
}

func (m *mover) row() row {
	out := row{"before_usd": pico(m.values[0].total()).String(), "after_usd": pico(m.values[1].total()).String(), "change_usd": m.change.String()}
	out["effects"], out["main"] = m.shares(effects)
	in := [2]*side{}
	if m.in != nil {
		in = m.in.values
		out["change"] = m.in.change.String()
		out["change_effects"], out["change_main"] = m.in.shares(effectsInThem)
	}
	out["before"], out["after"] = m.values[0].row(in[0]), m.values[1].row(in[1])
	for k, v := range m.group {
		out[k] = v
	}
	return out
}

// shares are the effects, and the name of the largest.
func (m *mover) shares(names []string) (by row, main string) {
	by = row{}
	most := schema.Sum{}
	for _, e := range names {
		v := m.by[e]
		by[e] = v.String()
		if v.Sign() < 0 {
			v = v.Neg()
		}
		if v.Cmp(most) > 0 {
			main, most = e, v
		}
	}
	return by, main
}

// sum is that of movers, their effects as well.
func sum(list []*mover) *mover {
	out := newMover(nil)
	for _, m := range list {
		for i, s := range m.values {
			t := out.values[i]
			t.requests, t.logical, t.attempts, t.tokens, t.uncosted = t.requests+s.requests, t.logical+s.logical, t.attempts+s.attempts, t.tokens+s.tokens, t.uncosted+s.uncosted
			t.cost.Add(t.cost, s.total())
		}
		out.change = out.change.Plus(m.change)
		for name, v := range m.by {
			out.by[name] = out.by[name].Plus(v)
		}
	}
	return out
}

func newMover(group row) *mover {
	return &mover{group: group, values: [2]*side{newSide(), newSide()}, by: map[string]schema.Sum{}}
}

// base is the time to compare with: base_from and base_to, else the one before that
// is as long, in months or days where from and to begin some.
func (r *request) base() (from, to time.Time, err error) {
	f, err := r.instant("base_from")
	if err != nil {
		return from, to, err
	}
	t, err := r.instant("base_to")
	if err != nil {
		return from, to, err
	}
	switch {
	case (f == nil) != (t == nil):
		return from, to, badRequest("give base_from and base_to, or neither for the time before from")
	case f != nil:
		from, to = *f, *t
	default:
		to = r.from
		from = before(r.from.In(r.zone), r.to.In(r.zone))
	}
	if !from.Before(to) {
		return from, to, badRequest("base_from %s is not before base_to %s", from.Format(time.RFC3339), to.Format(time.RFC3339))
	}
	return from, to, nil
}

// before is when a time began that is as long as the given one and ends where it begins.
func before(from, to time.Time) time.Time {
	day := func(t time.Time) bool { return schema.StartOfDay(t, t.Location()).Equal(t) }
	switch {
	case !day(from) || !day(to):
		return from.Add(from.Sub(to))
	case from.Day() == 1 && to.Day() == 1:
		months := 12*(to.Year()-from.Year()) + int(to.Month()) - int(from.Month())
		return monthStart(from, -months)
	}
	date := func(t time.Time) time.Time { return time.Date(t.Year(), t.Month(), t.Day(), 0, 0, 0, 0, time.UTC) }
	return schema.StartOfDay(date(from).Add(date(from).Sub(date(to))), from.Location())
}

// movers answers what changed most between two times, and why.
func (a *API) movers(ctx context.Context, r *request) (any, error) {
	groups, err := r.groups(moverDimensions, "tenant")
	if err != nil {
		return nil, err
	}
	r.quarters()
	baseFrom, baseTo, err := r.base()
	if err != nil {
		return nil, err
	}
	old := *r
	old.from, old.to = baseFrom, baseTo
	old.quarters()
	if old.from.Before(r.to) && r.from.Before(old.to) {
		return nil, badRequest("the times overlap: base_from %s to base_to %s, from %s to %s", old.from.Format(time.RFC3339), old.to.Format(time.RFC3339), r.from.Format(time.RFC3339), r.to.Format(time.RFC3339))
	}
	for _, part := range []*request{&old, r} {
		if err := a.rollup(ctx, part); err != nil {
			return nil, err
		}
	}
	q := r.thenOf(minTime(old.from, r.from), maxTime(old.to, r.to))
	q.vars["Groups"], q.vars["Filter"], q.vars["Base"] = groups, q.filter(r, dimensions), true
	q.rangeArgs(r)
	q.bind("base_from", "DateTime('UTC')", old.from.UTC().Format(clickhouseSeconds))
	q.bind("base_to", "DateTime('UTC')", old.to.UTC().Format(clickhouseSeconds))
	fx, err := a.currency(ctx, r, q)
	if err != nil {
		return nil, err
	}
	fx.apply(q)
	q.bind("limit", "UInt32", fmt.Sprint(moverLimit+1))
	index, list, rows := map[string]*mover{}, []*mover{}, 0
	find := func(get func(string) any) *mover {
		group, key := row{}, ""
		for _, g := range groups {
			group[g] = get(g)
			key += fmt.Sprintf("%q", get(g))
		}
		m := index[key]
		if m == nil {
			m = newMover(group)
			if fx.currency != "" {
				m.in = newMover(nil)
			}
			index[key] = m
			list = append(list, m)
		}
		return m
	}
	err = a.ask(ctx, r, "movers.sql", q, func(get func(string) any) {
		rows++
		m, later := find(get), get("later").(uint8)
		add := func(m *mover, cost, usd *big.Rat) {
			s, n := m.values[later], func(name string) int64 { return get(name).(int64) }
			s.uncosted += n("uncosted")
			if get("counted").(uint8) == 0 {
				s.other.Add(s.other, cost)
				return
			}
			s.logical += n("logical")
			s.tokens += n("tokens")
			s.cells[[2]string{get("of_provider").(string), get("of_model").(string)}] = &cell{n("attempts"), n("tokens"), cost, usd}
		}
		usd := new(big.Rat).SetFrac(get("cost").(*big.Int), big.NewInt(schema.PicoPerUSD))
		add(m, usd, nil)
		if m.in != nil {
			add(m.in, new(big.Rat).SetFrac(get("converted").(*big.Int), big.NewInt(schema.PicoPerUSD)), usd)
		}
	})
	if err != nil {
		return nil, err
	}
	if rows > moverLimit {
		return nil, badRequest("the answer would be made of more than %d rows; ask for fewer dimensions, one tenant or a shorter time", moverLimit)
	}
	// Requests have no model and no provider.
	counted := !slices.ContainsFunc(groups, func(g string) bool { return !slices.Contains(runDimensions, g) }) &&
		!slices.ContainsFunc(callDimensions, func(d string) bool { _, ok := r.GetQuery(d); return ok })
	if counted {
		for i, of := range []*request{&old, r} {
			q, err := a.agentRuns(ctx, of, groups)
			if err != nil {
				return nil, err
			}
			q.vars["Groups"] = groups
			if err := a.ask(ctx, of, "movers_requests.sql", q, func(get func(string) any) {
				m := find(get)
				m.values[i].requests += get("requests").(int64)
				if m.in != nil {
					m.in.values[i].requests = m.values[i].requests
				}
			}); err != nil {
				return nil, err
			}
		}
	}
	var converted []*mover
	bounds := fx.bounds(old.from.In(r.zone), old.to.In(r.zone))
	for _, m := range list {
		m.explain(counted, bounds)
		if m.in != nil {
			m.in.explain(counted, bounds)
			converted = append(converted, m.in)
		}
	}
	total := sum(list)
	if fx.currency != "" {
		total.in = sum(converted)
	}
	size := func(m *mover) schema.Sum {
		if m.change.Sign() < 0 {
			return m.change.Neg()
		}
		return m.change
	}
	slices.SortStableFunc(list, func(a, b *mover) int {
		if c := size(b).Cmp(size(a)); c != 0 {
			return c
		}
		for _, g := range groups {
			if c := strings.Compare(a.group[g].(string), b.group[g].(string)); c != 0 {
				return c
			}
		}
		return 0
	})
	end := min(r.offset+r.limit, len(list))
	out := []row{}
	for _, m := range list[min(r.offset, end):end] {
		out = append(out, m.row())
	}
	more := end < len(list)
	r.columns = append(slices.Clone(groups), "before_usd", "after_usd", "change_usd", "main")
	for _, e := range effects {
		r.columns = append(r.columns, "effects."+e)
	}
	for _, s := range []string{"before.", "after."} {
		for _, n := range []string{"requests", "model_calls", "attempts", "tokens", "uncosted_calls"} {
			r.columns = append(r.columns, s+n)
		}
	}
	if fx.currency != "" {
		r.columns = append(r.columns, "before.cost", "after.cost", "change", "change_main")
		for _, e := range effectsInThem {
			r.columns = append(r.columns, "change_effects."+e)
		}
		r.columns = append(r.columns, "currency")
		for _, m := range out {
			m["currency"] = fx.currency
		}
	}
	answer := r.answer(row{"rows": out, "total": total.row(), "requests_counted": counted, "truncated": more, "next": r.next(len(out), more),
		"base_from": old.from.In(r.zone).Format(time.RFC3339), "base_to": old.to.In(r.zone).Format(time.RFC3339)})
	fx.say(r, answer, fxRoundingMover)
	return answer, nil
}

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
// other is moved from then to now. Their sum is the change.
var effects = []string{"volume", "amplification", "retries", "mix", "tokens", "price", "other"}

// cell is what one model of a group did in one of the two times.
type cell struct {
	attempts, tokens int64
	cost             *big.Rat
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

func (s *side) row() row {
	return row{"requests": s.requests, "model_calls": s.logical, "attempts": s.attempts, "tokens": s.tokens, "uncosted_calls": s.uncosted, "cost_usd": pico(s.total()).String()}
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
// after the other is set to what it is now. Each effect is rounded to 1e-12 USD but
// the price's, which is the rest.
func (m *mover) explain(countRequests bool) {
	then, now := m.values[0], m.values[1]
	m.by = map[string]schema.Sum{}
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
	mix, tokens := new(big.Rat), new(big.Rat)
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
	}
	give("mix", at, mix)
	give("tokens", mix, tokens)
	m.by["price"] = rest
}

func (m *mover) row() row {
	out := row{"before": m.values[0].row(), "after": m.values[1].row(), "before_usd": pico(m.values[0].total()).String(), "after_usd": pico(m.values[1].total()).String(), "change_usd": m.change.String()}
	by, main, most := row{}, "", schema.Sum{}
	for _, e := range effects {
		v := m.by[e]
		by[e] = v.String()
		if v.Sign() < 0 {
			v = v.Neg()
		}
		if v.Cmp(most) > 0 {
			main, most = e, v
		}
	}
	out["effects"], out["main"] = by, main
	for k, v := range m.group {
		out[k] = v
	}
	return out
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
	day := func(t time.Time) bool { return startOfDay(t, t.Location()).Equal(t) }
	switch {
	case !day(from) || !day(to):
		return from.Add(from.Sub(to))
	case from.Day() == 1 && to.Day() == 1:
		months := 12*(to.Year()-from.Year()) + int(to.Month()) - int(from.Month())
		return monthStart(from, -months)
	}
	date := func(t time.Time) time.Time { return time.Date(t.Year(), t.Month(), t.Day(), 0, 0, 0, 0, time.UTC) }
	return startOfDay(date(from).Add(date(from).Sub(date(to))), from.Location())
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
	q := r.question()
	q.vars["Groups"], q.vars["Filter"] = groups, q.filter(r, dimensions)
	q.rangeArgs(r)
	q.bind("base_from", "DateTime('UTC')", old.from.UTC().Format(clickhouseSeconds))
	q.bind("base_to", "DateTime('UTC')", old.to.UTC().Format(clickhouseSeconds))
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
			m = &mover{group: group, values: [2]*side{newSide(), newSide()}}
			index[key] = m
			list = append(list, m)
		}
		return m
	}
	err = a.ask(ctx, r, "movers.sql", q, func(get func(string) any) {
		rows++
		s := find(get).values[get("later").(uint8)]
		n := func(name string) int64 { return get(name).(int64) }
		s.uncosted += n("uncosted")
		cost := new(big.Rat).SetFrac(get("cost").(*big.Int), big.NewInt(schema.PicoPerUSD))
		if get("counted").(uint8) == 0 {
			s.other.Add(s.other, cost)
			return
		}
		s.logical += n("logical")
		s.tokens += n("tokens")
		s.cells[[2]string{get("of_provider").(string), get("of_model").(string)}] = &cell{n("attempts"), n("tokens"), cost}
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
		for i, part := range []*request{&old, r} {
			q := part.question()
			q.runRange(part)
			q.vars["Groups"], q.vars["RunFilter"] = groups, q.filter(part, runDimensions)
			if err := a.wide(ctx, part, q); err != nil {
				return nil, err
			}
			if err := a.ask(ctx, part, "movers_requests.sql", q, func(get func(string) any) { find(get).values[i].requests += get("requests").(int64) }); err != nil {
				return nil, err
			}
		}
	}
	sum := mover{values: [2]*side{newSide(), newSide()}, by: map[string]schema.Sum{}}
	for _, m := range list {
		for i, s := range m.values {
			s.settle()
			t := sum.values[i]
			t.requests, t.logical, t.attempts, t.tokens, t.uncosted = t.requests+s.requests, t.logical+s.logical, t.attempts+s.attempts, t.tokens+s.tokens, t.uncosted+s.uncosted
			t.cost.Add(t.cost, s.total())
		}
		m.explain(counted)
		sum.change = sum.change.Plus(m.change)
		for name, v := range m.by {
			sum.by[name] = sum.by[name].Plus(v)
		}
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
	return r.answer(row{"rows": out, "total": sum.row(), "requests_counted": counted, "truncated": more, "next": r.next(len(out), more),
		"base_from": old.from.In(r.zone).Format(time.RFC3339), "base_to": old.to.In(r.zone).Format(time.RFC3339)}), nil
}

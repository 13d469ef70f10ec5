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

// savingGroups is how many sums one answer about savings may be made of.
const savingGroups = 200_000

// quantities are signed sums of calls that share their unit prices, in the order of meters.
type quantities []int64

// at is what they cost, in USD, and of how many components, which were rounded each.
func (n quantities) at(prices []UnitPrice) (sum *big.Rat, parts int64) {
	sum = new(big.Rat)
	for i := range meters {
		j := slices.IndexFunc(prices, func(p UnitPrice) bool { return p.Component == meters[i].component })
		if n[i] == 0 || j < 0 {
			continue
		}
		parts++
		consumed := new(big.Rat).Mul(new(big.Rat).SetInt64(n[i]), meters[i].perConsumed)
		sum.Add(sum, consumed.Mul(consumed, prices[j].Contracted))
	}
	return sum, parts
}

// moved are the quantities with some components' put to the first.
func (n quantities) moved(to string, from ...string) quantities {
	out := slices.Clone(n)
	index := func(component string) int {
		return slices.IndexFunc(meters, func(m meter) bool { return m.component == component })
	}
	for _, f := range from {
		out[index(to)] += n[index(f)]
		out[index(f)] = 0
	}
	return out
}

func (n quantities) of(components ...string) (sum int64) {
	for _, c := range components {
		sum += n[slices.IndexFunc(meters, func(m meter) bool { return m.component == c })]
	}
	return sum
}

// lot is a row of savings.sql.
type lot struct {
	PricedCall
	state                          string
	calls, cached, unsaid, entries int64
	cost                           *big.Rat // USD
	worth                          *big.Rat // of a USD that day, in the currency that is asked for, or nil
	quantities
}

// prices are the unit prices that a lot was priced with; false where they are not
// known, or do not give the stored cost.
func (l *lot) prices(from UnitPrices) ([]UnitPrice, bool) {
	if from == nil || l.Line == "" {
		return nil, false
	}
	list, ok := from.UnitPrices(l.PricedCall)
	if !ok {
		return nil, false
	}
	sum, parts := l.at(list)
	// Each component of each entry was rounded by half a unit at the most.
	most := new(big.Rat).SetFrac64(l.entries*max(parts, 1), 2*schema.PicoPerUSD)
	return list, sum.Sub(sum, l.cost).Abs(sum).Cmp(most) <= 0
}

// saver sums the lots of a group.
type saver interface {
	add(lot, UnitPrices)
	row(currency string) row
	size() *big.Rat // to order rows by, largest first
}

// savings asks savings.sql and answers a page of its groups, with the total of all.
func (a *API) savings(ctx context.Context, r *request, lines string, columns []string, newSaver func() saver) (any, error) {
	groups, err := r.groups(dimensions, "provider,model")
	if err != nil {
		return nil, err
	}
	q := r.then()
	if err := a.entries(ctx, r, q); err != nil {
		return nil, err
	}
	fx, err := a.savingsCurrency(ctx, r)
	if err != nil {
		return nil, err
	}
	q.vars["FX"], q.vars["FXDay"] = fx.currency != "", "toDate(j.started_at, '"+quoteZone(r.zone)+"')"
	var missing error
	q.vars["Lines"], q.vars["Filter"] = lines, q.filter(r, dimensions)
	q.vars["Columns"] = slices.DeleteFunc(slices.Clone(groups), func(g string) bool { return g == "tenant" })
	q.mask("unsaid", schema.FlagCacheUnknown)
	q.breaks(a.o.Prices, r.from, r.to)
	q.bind("limit", "UInt32", fmt.Sprint(savingGroups+1))
	total := newSaver()
	p := newPage(groups, newSaver)
	n := 0
	err = a.ask(ctx, r, "savings.sql", q, func(get func(string) any) {
		n++
		text := func(name string) string { return get(name).(string) }
		l := lot{PricedCall: PricedCall{Line: text("price_id"), Tenant: text("tenant"), Provider: text("seller"), Model: text("product"), ServiceTier: text("service_tier"),
			Start: get("started").(time.Time), InputTokens: get("input_of_one").(uint64), Currency: text("currency")},
			state: text("state"), calls: get("calls").(int64), cached: get("cached").(int64), unsaid: get("unsaid").(int64), entries: get("entries").(int64),
			cost: new(big.Rat).SetFrac(get("cost").(*big.Int), big.NewInt(schema.PicoPerUSD)), quantities: make(quantities, len(meters))}
		for i := range meters {
			l.quantities[i] = get("q_" + meters[i].component).(int64)
		}
		if fx.currency != "" {
			day := get("fx_day").(time.Time).UTC()
			rate, ok := fx.known.On(fx.currency, day)
			switch {
			case ok:
				l.worth = new(big.Rat).SetFrac(big.NewInt(schema.PicoPerUSD), rate.Pico())
			case missing == nil && (l.cost.Sign() != 0 || l.cached != 0): // else there is no money in it
				missing = fx.lacks(day)
			}
		}
		p.find(get).add(l, a.o.Prices)
		total.add(l, a.o.Prices)
	})
	if err != nil {
		return nil, err
	}
	if missing != nil {
		return nil, missing
	}
	if n > savingGroups {
		return nil, badRequest("the answer would be made of more than %d sums; ask for fewer dimensions, one tenant or a shorter time", savingGroups)
	}
	slices.SortStableFunc(p.list, func(a, b *grouped[saver]) int {
		if c := b.of.size().Cmp(a.of.size()); c != 0 {
			return c
		}
		return p.compare(a, b)
	})
	if fx.currency != "" {
		for _, c := range slices.Clone(columns) {
			if name, money := strings.CutSuffix(c, "_usd"); money {
				columns = append(columns, name)
			}
		}
		columns = append(columns, "currency")
	}
	answer := p.answer(r, columns, func(s saver) row { return s.row(fx.currency) })
	answer["total"] = total.row(fx.currency)
	fx.say(r, answer, fxRoundingOnce)
	return answer, nil
}

// savingsCurrency finds the rates of the days that cost something.
func (a *API) savingsCurrency(ctx context.Context, r *request) (conversion, error) {
	own := *r
	own.quarters()
	q := own.then()
	q.rangeArgs(&own)
	q.vars["Filter"] = q.filter(r, dimensions)
	return a.currency(ctx, &own, q)
}

// money is a sum of USD and what it comes to in another currency, both exact.
type money struct{ usd, in *big.Rat }

func newMoney() money { return money{new(big.Rat), new(big.Rat)} }

func (m money) add(usd, worth *big.Rat) {
	m.usd.Add(m.usd, usd)
	if worth != nil {
		m.in.Add(m.in, new(big.Rat).Mul(usd, worth))
	}
}

// amounts are the figures of a row by name, in USD and in the currency.
func amounts(m row, currency string, list map[string]money) row {
	for name, v := range list {
		m[name+"_usd"] = pico(v.usd).String()
		if currency != "" {
			m[name], m["currency"] = pico(v.in).String(), currency
		}
	}
	return m
}

// pages are rows that are summed here instead of by ClickHouse.
type pages[T any] struct {
	groups []string
	list   []*grouped[T]
	index  map[string]*grouped[T]
	make   func() T
}

type grouped[T any] struct {
	group row
	of    T
}

func newPage[T any](groups []string, f func() T) *pages[T] {
	return &pages[T]{groups: groups, index: map[string]*grouped[T]{}, make: f}
}

// find is where a row of a statement belongs.
func (p *pages[T]) find(get func(string) any) T {
	group, key := row{}, ""
	for _, g := range p.groups {
		group[g] = get(g)
		key += fmt.Sprintf("%q", get(g))
	}
	m := p.index[key]
	if m == nil {
		m = &grouped[T]{group, p.make()}
		p.index[key] = m
		p.list = append(p.list, m)
	}
	return m.of
}

func (p *pages[T]) compare(a, b *grouped[T]) int {
	for _, g := range p.groups {
		if c := strings.Compare(a.group[g].(string), b.group[g].(string)); c != 0 {
			return c
		}
	}
	return 0
}

// answer is the asked page of the list as it stands.
func (p *pages[T]) answer(r *request, columns []string, f func(T) row) row {
	end := min(r.offset+r.limit, len(p.list))
	out := []row{}
	for _, m := range p.list[min(r.offset, end):end] {
		one := f(m.of)
		for k, v := range m.group {
			one[k] = v
		}
		out = append(out, one)
	}
	r.columns = append(slices.Clone(p.groups), columns...)
	more := end < len(p.list)
	return r.answer(row{"rows": out, "truncated": more, "next": r.next(len(out), more)})
}

// cached sums what caching saved.
type cached struct {
	calls, unsaid, input, read, written, unknownCalls, unknownTokens int64
	saved, extra                                                     money
}

// cache answers what cache reads would have cost as plain input, less what they did
// and what writing the cache cost beyond it, and how much of the input was read.
func (a *API) cache(ctx context.Context, r *request) (any, error) {
	columns := []string{"calls", "input_tokens", "cache_read_tokens", "cache_write_tokens", "hit_rate", "read_saved_usd", "write_extra_usd", "saved_usd", "unknown_price_calls", "unknown_price_tokens", "cache_unknown_calls"}
	return a.savings(ctx, r, "j.cost_status != 'unknown'", columns, func() saver { return &cached{saved: newMoney(), extra: newMoney()} })
}

func (s *cached) add(l lot, from UnitPrices) {
	read, written := l.of("cache_read"), l.of("cache_write_5m", "cache_write_1h")
	s.calls += l.calls
	s.unsaid += l.unsaid
	s.read += read
	s.written += written
	s.input += l.of("input") + read + written
	if read == 0 && l.of("cache_write_5m") == 0 && l.of("cache_write_1h") == 0 {
		return
	}
	prices, ok := l.prices(from)
	if !ok {
		s.unknownCalls += l.cached
		s.unknownTokens += read + written
		return
	}
	did, _ := l.at(prices)
	plain, _ := l.moved("input", "cache_read").at(prices)
	s.saved.add(plain.Sub(plain, did), l.worth)
	plain, _ = l.moved("input", "cache_write_5m", "cache_write_1h").at(prices)
	s.extra.add(did.Sub(did, plain), l.worth)
}

func (s *cached) size() *big.Rat { return new(big.Rat).Sub(s.saved.usd, s.extra.usd) }

func (s *cached) row(currency string) row {
	m := row{"calls": s.calls, "input_tokens": s.input, "cache_read_tokens": s.read, "cache_write_tokens": s.written, "hit_rate": share(s.read, s.input),
		"unknown_price_calls": s.unknownCalls, "unknown_price_tokens": s.unknownTokens, "cache_unknown_calls": s.unsaid}
	amounts(m, currency, map[string]money{"read_saved": s.saved, "write_extra": s.extra})
	// The parts are rounded, and the difference is theirs, so that they add up.
	m["saved_usd"] = pico(s.saved.usd).Minus(pico(s.extra.usd)).String()
	if currency != "" {
		m["saved"] = pico(s.saved.in).Minus(pico(s.extra.in)).String()
	}
	return m
}

// batched sums what could have been cheaper as a batch.
type batched struct {
	calls, without, unknownPrice, unpriced, unknown int64
	spend, eligible, saving, unknownSpend           money
}

// standardTiers are the names of the service tier that a price line's base rates are of.
const standardTiers = "('', 'default', 'standard', 'auto', 'scale', 'on_demand', 'on-demand')"

// batch answers what calls that can wait cost at the standard price, and what they
// would have cost at the batch price of the same price line.
func (a *API) batch(ctx context.Context, r *request) (any, error) {
	columns := []string{"calls", "spend_usd", "eligible_usd", "saving_usd", "no_batch_price_calls", "unknown_price_calls", "unknown_price_usd", "unpriced_calls", "unknown_calls"}
	return a.savings(ctx, r, "(j.mode = 'batch' OR j.criticality = 'background') AND lower(j.service_tier) IN "+standardTiers, columns, func() saver {
		return &batched{spend: newMoney(), eligible: newMoney(), saving: newMoney(), unknownSpend: newMoney()}
	})
}

func (s *batched) add(l lot, from UnitPrices) {
	s.calls += l.calls
	switch l.state {
	case "unpriced":
		s.unpriced += l.calls
		return
	case "unknown":
		s.unknown += l.calls
		return
	}
	s.spend.add(l.cost, l.worth)
	prices, ok := l.prices(from)
	if !ok {
		s.unknownPrice += l.calls
		s.unknownSpend.add(l.cost, l.worth)
		return
	}
	call := l.PricedCall
	call.ServiceTier = "batch"
	cheaper, ok := from.UnitPrices(call)
	did, _ := l.at(prices)
	would, _ := l.at(cheaper)
	if !ok || would.Cmp(did) == 0 { // a line without the tier answers its standard prices
		s.without += l.calls
		return
	}
	s.eligible.add(l.cost, l.worth)
	s.saving.add(did.Sub(did, would), l.worth)
}

func (s *batched) size() *big.Rat { return s.saving.usd }

func (s *batched) row(currency string) row {
	return amounts(row{"calls": s.calls, "no_batch_price_calls": s.without, "unknown_price_calls": s.unknownPrice, "unpriced_calls": s.unpriced, "unknown_calls": s.unknown},
		currency, map[string]money{"spend": s.spend, "eligible": s.eligible, "saving": s.saving, "unknown_price": s.unknownSpend})
}

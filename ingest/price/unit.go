package price

import (
	"maps"
	"math/big"
	"slices"
	"strings"

	"github.com/flyball/flyball/schema"
)

// UnitPrice is what one component of a call costs by the piece, exactly.
type UnitPrice struct {
	Component        string   // a token count, or request, web_search, image, page, second
	List, Contracted *big.Rat // USD per token or piece, before and after the tenant's discount
}

// Breaks are where the unit prices of a line change from call to call: above how
// many input tokens, at which minutes of the UTC day, and which lines, by name, look
// at the clock at all. Between two of them, on one weekday of an era, they are the same.
func (c *Catalogue) Breaks() (inputTokens []uint64, minutes []int, byClock []string) {
	tokens, edges := map[uint64]bool{}, map[int]bool{}
	above := func(list []cliff) {
		for i := range list {
			tokens[list[i].over] = true
		}
	}
	for id, lines := range c.index() {
		clock := false
		for _, l := range lines {
			above(l.cliffs)
			for _, t := range l.tiers {
				above(t.cliffs)
			}
			for i := range l.bands {
				edges[l.bands[i].from], edges[l.bands[i].to], clock = true, true, true
			}
		}
		if clock {
			byClock = append(byClock, nameOf(id))
		}
	}
	slices.Sort(byClock)
	return slices.Sorted(maps.Keys(tokens)), slices.Sorted(maps.Keys(edges)), slices.Compact(byClock)
}

// Eras are, by the name of a line, the instants from which on its unit prices may be
// others, in unix nanoseconds: a service tier begins, or an exchange rate is a newer one.
// Lines that have none are left out.
func (c *Catalogue) Eras() map[string][]int64 {
	out := map[string][]int64{}
	for id, lines := range c.index() {
		name := nameOf(id)
		at := out[name]
		for _, l := range lines {
			for _, t := range l.tiers {
				if t.from != 0 {
					at = append(at, t.from)
				}
			}
			for _, x := range c.fx[l.currency] {
				at = append(at, x.asOf)
			}
		}
		if len(at) > 0 {
			slices.Sort(at)
			out[name] = slices.Compact(at)
		}
	}
	return out
}

// nameOf is the id of a line without its source, and so without the version of that.
func nameOf(id string) string {
	_, name, ok := strings.Cut(id, ":")
	if !ok {
		return id
	}
	return name
}

// UnitPrices are those that a line asks of a call like q, of which the tenant, the
// service tier, the start and the size of the input matter. A line that is no longer
// known, as after every change of the catalogue's version, is stood in for by the one
// of its name, else by the one that prices the call now. It reports false where there is
// none, or its currency has no rate. Whether the call was priced with the same is for the caller to check.
func (c *Catalogue) UnitPrices(id string, q *Query) ([]UnitPrice, bool) {
	l := c.byID(id, q)
	if l == nil {
		return nil, false
	}
	fx := big.NewRat(1, 1)
	if l.currency != "USD" {
		i := slices.IndexFunc(c.fx[l.currency], func(x fxRate) bool { return x.asOf <= q.Start })
		if i < 0 {
			return nil, false
		}
		fx = c.fx[l.currency][i].rate
	}
	var flags schema.Flags
	r := c.effective(l, q, &flags)
	var out []UnitPrice
	for i := range rateNames {
		if i == tokReasoning {
			continue
		}
		from := i
		if r.set&(1<<i) == 0 {
			if from = substitute(&r, i); from < 0 {
				continue
			}
		}
		scale := int64(schema.PicoPerUSD)
		if from < rateRequest {
			scale *= tokensPerPrice
		}
		list := new(big.Rat).SetFrac(new(big.Int).SetUint64(r.v[from]), big.NewInt(scale))
		list.Mul(list, fx)
		p := UnitPrice{Component: rateNames[i], List: list, Contracted: list}
		if d := c.discount[q.Tenant]; d != nil {
			p.Contracted = new(big.Rat).Mul(list, d)
		}
		out = append(out, p)
	}
	return out, true
}

// substitute is the component whose rate stands for a missing one, -1 for none; sum
// has the same rule.
func substitute(r *rates, i int) int {
	from := -1
	switch i {
	case tokWrite1h, tokWrite5m, tokCacheRead, tokInAudio, tokInImage:
		from = tokInput
		if i == tokWrite1h && r.set&(1<<tokWrite5m) != 0 && r.v[tokWrite5m] > r.v[tokInput] {
			from = tokWrite5m
		}
	case tokOutAudio, tokOutImage:
		from = tokOutput
	}
	if from < 0 || r.set&(1<<from) == 0 {
		return -1
	}
	return from
}

// byID is the line of that id: one that prices the call now, else the only one. An id
// that is not known any more has the line of its name that may price the call, whenever
// it holds, so that calls of one id have one line; else the one that prices the call now.
func (c *Catalogue) byID(id string, q *Query) *line {
	var now, named *line
	for _, l := range c.choose(q).lines {
		if named == nil && nameOf(l.id) == nameOf(id) {
			named = l
		}
		if !l.inForce(q.Start) {
			continue
		}
		if l.id == id {
			return l
		}
		if now == nil {
			now = l
		}
	}
	switch lines := c.index()[id]; {
	case len(lines) == 1:
		return lines[0]
	case len(lines) > 1:
		return nil
	case named != nil:
		return named
	}
	return now
}

// index lists every line by its id, those of tenants too.
func (c *Catalogue) index() map[string][]*line {
	c.indexed.Do(func() {
		c.lines = map[string][]*line{}
		seen := map[*line]bool{}
		add := func(lines []*line) {
			for _, l := range lines {
				if !seen[l] {
					seen[l] = true
					c.lines[l.id] = append(c.lines[l.id], l)
				}
			}
		}
		tables := slices.Clone(c.tables)
		for _, t := range c.tenants {
			tables = append(tables, t...)
		}
		for _, t := range tables {
			for _, lines := range t.exact {
				add(lines)
			}
			for _, globs := range t.globs {
				for _, g := range globs {
					add(g.lines)
				}
			}
		}
	})
	return c.lines
}

package price

import (
	"math/big"
	"math/bits"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/flyball/flyball/schema"
)

// Rate components: the token counts in schema.TokenNames order except reasoning
// (a part of output), then the units billed by the piece.
const (
	rateRequest = schema.NumTokens + iota
	rateWebSearch
	rateImage
	ratePage
	rateSecond
	numRates
)

var rateNames = func() (n [numRates]string) {
	copy(n[:], schema.TokenNames[:])
	n[rateRequest], n[rateWebSearch], n[rateImage], n[ratePage], n[rateSecond] = "request", "web_search", "image", "page", "second"
	return n
}()

const (
	tokInput       = 0
	tokCacheRead   = 1
	tokWrite5m     = 2
	tokWrite1h     = 3
	tokOutput      = 4
	tokReasoning   = 5
	tokInAudio     = 6
	tokInImage     = 7
	tokOutAudio    = 8
	tokOutImage    = 9
	tokensPerPrice = 1_000_000 // a price of tokens is for a million of them
	milliPerSecond = 1000
)

// rates holds prices in 1e-12 of the currency per million tokens or per piece; set
// says which a price line wrote down, zero included.
type rates struct {
	v   [numRates]uint64
	set uint32
}

func (r *rates) overlay(o *rates) {
	for i := range o.v {
		if o.set&(1<<i) != 0 {
			r.v[i] = o.v[i]
			r.set |= 1 << i
		}
	}
}

type cliff struct {
	over uint64
	r    rates
}

type band struct {
	days     uint8 // bit per weekday, 0 = all
	from, to int   // minutes of the day
	r        rates
}

type tier struct {
	from   int64
	r      rates
	cliffs []cliff
}

// line is one price line, ready to use.
type line struct {
	id       string
	row      *Row
	source   string
	level    level
	currency string
	from, to int64 // unix ns, half open; to 0 = open
	r        rates
	cliffs   []cliff
	bands    []band
	tiers    map[string]*tier
}

func (l *line) inForce(at int64) bool { return at >= l.from && (l.to == 0 || at < l.to) }

// Origin tells where prices came from.
type Origin struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	At      string `json:"at"`
	Rows    int    `json:"rows"`
}

// Catalogue is an immutable set of prices. It is safe for concurrent use.
type Catalogue struct {
	Origins  []Origin
	tables   []*table                // by precedence, dearest claim first: levels, later files first
	tenants  map[string][]*table     // tenant overrides
	discount map[string]*big.Rat     // what is left after a tenant's discount
	aliases  map[[3]string][2]string // tenant, provider, model
	fallback map[string][]string
	fx       map[string][]fxRate // currency, newest first
	dearest  map[string]*line    // by provider; "" is the catalogue's
	assumed  [2]uint64

	mu    sync.Mutex
	cache map[cacheKey]*choice

	once  sync.Once
	owner map[string]string // provider by model, for ProviderOf

	indexed sync.Once
	lines   map[string][]*line // by id, for UnitPrices
}

type fxRate struct {
	asOf int64
	rate *big.Rat
}

type cacheKey struct{ tenant, provider, model, requested string }

// choice lists the lines that may price a model, best first.
type choice struct {
	lines    []*line
	fallback int  // index from which lines are another provider's
	family   bool // priced by another name than that of the model that answered
}

// Query is one call to price. The pointers are only read.
type Query struct {
	Tenant, Provider, Model, Requested, Tier string
	Start                                    int64 // unix nanoseconds
	Kind                                     schema.Kind
	Usage                                    schema.Usage
	Part                                     bool // a further inference of an answer: no fee per request
	Tokens                                   *schema.Tokens
	Units                                    *schema.Units
}

// Result is the price of a call.
type Result struct {
	Status   schema.CostStatus
	Cost     schema.Money // USD; meaningless unless priced or free
	Exposure schema.Money // what a guard counts
	Amount   schema.Money // in Currency
	Currency string
	PriceID  string
	Flags    schema.Flags
}

// Step is one line of the arithmetic of a price.
type Step struct {
	Component string `json:"component"`
	Quantity  uint64 `json:"quantity"`
	Rate      string `json:"rate"`   // per million tokens, or per unit
	Per       string `json:"per"`    // "1M", the unit, or "1000 ms"
	Amount    string `json:"amount"` // exact decimal in the line's currency
	Note      string `json:"note,omitempty"`
}

// Price prices one call. It allocates nothing for a model it has seen before.
func (c *Catalogue) Price(q *Query) Result { return c.price(q, nil) }

// Explain prices one call and returns every step.
func (c *Catalogue) Explain(q *Query) (Result, []Step) {
	var steps []Step
	r := c.price(q, &steps)
	return r, steps
}

func (c *Catalogue) price(q *Query, steps *[]Step) Result {
	var res Result
	if q.Usage == schema.UsageNone {
		res.Status = schema.CostNone
		return res
	}
	ch := c.choose(q)
	if q.Usage == schema.UsageUnknown {
		res.Status = schema.CostUnknown
		res.Exposure = c.exposure(q, ch, c.assumed[0], c.assumed[1])
		return res
	}
	var l *line
	for i, cand := range ch.lines {
		if cand.inForce(q.Start) {
			l = withTier(cand, ch.lines[i+1:], q)
			if i >= ch.fallback {
				res.Flags |= schema.FlagProviderFallback
			}
			break
		}
	}
	if l == nil {
		res.Status = schema.CostUnpriced
		res.Exposure = c.exposure(q, ch, q.Tokens.TotalInput(), q.Tokens.TotalOutput())
		return res
	}
	if ch.family {
		res.Flags |= schema.FlagModelFamily
	}
	r := c.effective(l, q, &res.Flags)
	if ok := c.sum(l, &r, q, &res, steps); !ok {
		res.Status, res.Cost, res.Amount = schema.CostUnpriced, 0, 0
		res.Exposure = c.exposure(q, ch, q.Tokens.TotalInput(), q.Tokens.TotalOutput())
		return res
	}
	res.PriceID = l.id
	res.Exposure = res.Cost
	return res
}

// effective applies cliff, time of day and service tier to a line's base rates.
func (c *Catalogue) effective(l *line, q *Query, flags *schema.Flags) rates {
	r := l.r
	total := q.Tokens.TotalInput()
	for i := range l.cliffs {
		if total > l.cliffs[i].over {
			r.overlay(&l.cliffs[i].r)
		}
	}
	for i := range l.bands {
		if l.bands[i].holds(q.Start) {
			r.overlay(&l.bands[i].r)
		}
	}
	if standard(q.Tier) {
		return r
	}
	t := l.tier(q)
	if t == nil {
		*flags |= schema.FlagTierUnknown
		return r
	}
	r.overlay(&t.r)
	for i := range t.cliffs {
		if total > t.cliffs[i].over {
			r.overlay(&t.cliffs[i].r)
		}
	}
	return r
}

// standard reports whether a service tier is the one that base prices are for.
func standard(tier string) bool {
	switch tier {
	case "", "default", "standard", "auto", "scale", "on_demand", "on-demand":
		return true
	}
	return false
}

// tier is what the line says of the call's service tier, nil for nothing.
func (l *line) tier(q *Query) *tier {
	if t := l.tiers[q.Tier]; t != nil && q.Start >= t.from {
		return t
	}
	return nil
}

// withTier is the line of a public list that knows the call's tier, where the best one
// does not: a list without batch prices must not hide those of the list below it. Of each
// list only its best line is asked. What somebody wrote himself is never passed over.
func withTier(l *line, rest []*line, q *Query) *line {
	if l.level == levelOwn || standard(q.Tier) || l.tier(q) != nil {
		return l
	}
	asked := l.source
	for _, cand := range rest {
		if cand.source == asked || cand.row.Provider != l.row.Provider || !cand.inForce(q.Start) {
			continue
		}
		if asked = cand.source; cand.tier(q) != nil {
			return cand
		}
	}
	return l
}

// sum adds the components up; false where a component that has a quantity has no price.
func (c *Catalogue) sum(l *line, r *rates, q *Query, res *Result, steps *[]Step) bool {
	t, u := q.Tokens, q.Units
	qty := [numRates]uint64{t.Input, t.CacheRead, t.CacheWrite5m, t.CacheWrite1h, t.Output, 0, t.InputAudio, t.InputImage, t.OutputAudio, t.OutputImage, 1, u.WebSearches, u.Images, u.Pages, u.Milliseconds}
	hasTokens := t.TotalInput()+t.TotalOutput() > 0
	paid, zero, billed := false, false, false
	discount := c.discount[q.Tenant]
	exact := discount != nil || l.currency != "USD"
	for i, n := range qty {
		if n == 0 || i == tokReasoning || i == rateRequest && q.Part {
			continue
		}
		from, note := i, ""
		if r.set&(1<<i) == 0 {
			switch i {
			case rateRequest:
				continue
			case tokWrite1h, tokWrite5m, tokCacheRead:
				res.Flags |= schema.FlagCacheRateMissing
				from = tokInput
				if i == tokWrite1h && r.set&(1<<tokWrite5m) != 0 && r.v[tokWrite5m] > r.v[tokInput] {
					from = tokWrite5m
				}
			case tokInAudio, tokInImage:
				res.Flags |= schema.FlagCacheRateMissing
				from = tokInput
			case tokOutAudio, tokOutImage:
				res.Flags |= schema.FlagCacheRateMissing
				from = tokOutput
			case rateWebSearch, rateImage, ratePage, rateSecond:
				if !hasTokens && i != rateWebSearch {
					return false
				}
				res.Flags |= schema.FlagUnitsUnpriced
				continue
			}
			if r.set&(1<<from) == 0 {
				return false
			}
			note = "no price for " + rateNames[i] + ", priced as " + rateNames[from]
		}
		rate := r.v[from]
		var amount, cost schema.Money
		var ok bool
		if exact {
			amount, cost, ok = c.exactComponent(l, n, rate, priced(i), discount, q.Start)
		} else {
			amount, ok = component(n, rate, priced(i))
			cost = amount
		}
		if !ok {
			return false
		}
		billed = true
		if rate == 0 {
			zero = true
		} else {
			paid = true
		}
		if s := res.Amount + amount; (amount > 0) == (s > res.Amount) {
			res.Amount = s
		} else {
			return false
		}
		if s := res.Cost + cost; s >= res.Cost {
			res.Cost = s
		} else {
			return false
		}
		if steps != nil {
			per := "1M"
			if i >= rateRequest {
				per = rateNames[i]
			}
			if i == rateSecond {
				per = "1000 ms" // in which its quantity is counted
			}
			*steps = append(*steps, Step{Component: rateNames[i], Quantity: n, Rate: decimal(rate), Per: per, Amount: amount.String(), Note: note})
		}
	}
	if !billed && !q.Part {
		return false // what the call is billed by, such as searches of a reranker, has no price here
	}
	res.Currency = l.currency
	res.Status = schema.CostPriced
	if zero && !paid {
		res.Status = schema.CostFree
	}
	return true
}

// priced is how many of a component's quantity its price is for.
func priced(i int) uint64 {
	switch {
	case i < rateRequest:
		return tokensPerPrice
	case i == rateSecond:
		return milliPerSecond
	}
	return 1
}

// component is n × rate / div in 1e-12, rounded half even once.
func component(n, rate, div uint64) (schema.Money, bool) {
	hi, lo := bits.Mul64(n, rate)
	if hi >= div {
		return 0, false
	}
	quo, rem := bits.Div64(hi, lo, div)
	if rem > div-rem || rem == div-rem && quo&1 == 1 {
		quo++
	}
	if quo > 1<<63-1 {
		return 0, false
	}
	return schema.Money(quo), true
}

// exactComponent also applies a discount and an exchange rate, still with one
// rounding for each of the two figures. It is the slow path and allocates.
func (c *Catalogue) exactComponent(l *line, n, rate, div uint64, discount *big.Rat, at int64) (amount, cost schema.Money, ok bool) {
	v := new(big.Rat).SetFrac(new(big.Int).Mul(new(big.Int).SetUint64(n), new(big.Int).SetUint64(rate)), new(big.Int).SetUint64(div))
	if discount != nil {
		v.Mul(v, discount)
	}
	amount, ok = roundHalfEven(v)
	if !ok {
		return 0, 0, false
	}
	if l.currency == "USD" {
		return amount, amount, true
	}
	for _, fx := range c.fx[l.currency] {
		if fx.asOf <= at {
			cost, ok = roundHalfEven(v.Mul(v, fx.rate))
			return amount, cost, ok
		}
	}
	return 0, 0, false // no rate yet: unpriced, never a guess
}

func roundHalfEven(v *big.Rat) (schema.Money, bool) {
	n := schema.RoundHalfEven(v)
	if !n.IsInt64() {
		return 0, false
	}
	return schema.Money(n.Int64()), true
}

// exposure is what a guard counts for a call without a cost: its tokens at the
// dearest known price of its provider, else of the catalogue.
func (c *Catalogue) exposure(q *Query, ch *choice, in, out uint64) schema.Money {
	l := c.dearest[q.Provider]
	if l == nil {
		l = c.dearest[""]
	}
	// A known line of this very model bounds better than the dearest model.
	for _, cand := range ch.lines {
		if cand.inForce(q.Start) && cand.currency == "USD" && cand.r.set&(1<<tokInput|1<<tokOutput) == 1<<tokInput|1<<tokOutput {
			l = cand
			break
		}
	}
	if l == nil {
		return 0
	}
	if in+out == 0 {
		in, out = c.assumed[0], c.assumed[1]
	}
	a, ok1 := component(in, l.r.v[tokInput], tokensPerPrice)
	b, ok2 := component(out, l.r.v[tokOutput], tokensPerPrice)
	if !ok1 || !ok2 || a+b < 0 {
		return 1<<63 - 1
	}
	return a + b
}

func (b *band) holds(at int64) bool {
	t := time.Unix(0, at).UTC()
	m := t.Hour()*60 + t.Minute()
	day := t.Weekday()
	in := m >= b.from && m < b.to
	if b.to <= b.from { // spans midnight: the early part belongs to the day before
		in = m >= b.from || m < b.to
		if m < b.to {
			day = (day + 6) % 7
		}
	}
	return in && (b.days == 0 || b.days&(1<<day) != 0)
}

const maxCache = 100_000

func (c *Catalogue) choose(q *Query) *choice {
	key := cacheKey{q.Tenant, q.Provider, q.Model, q.Requested}
	if c.tenants[q.Tenant] == nil && !c.hasTenantAlias(q.Tenant) {
		key.tenant = ""
	}
	c.mu.Lock()
	ch := c.cache[key]
	c.mu.Unlock()
	if ch != nil {
		return ch
	}
	ch = c.lookup(q)
	// Senders choose model names, so the cache is emptied instead of growing; the
	// key's strings are copied, since they may be part of a whole request.
	key = cacheKey{strings.Clone(key.tenant), strings.Clone(key.provider), strings.Clone(key.model), strings.Clone(key.requested)}
	c.mu.Lock()
	if len(c.cache) >= maxCache {
		clear(c.cache)
	}
	c.cache[key] = ch
	c.mu.Unlock()
	return ch
}

func (c *Catalogue) hasTenantAlias(tenant string) bool {
	_, ok := c.aliases[[3]string{tenant, "", ""}]
	return ok
}

func (c *Catalogue) alias(tenant, provider, model string) (p, m string, ok bool) {
	m = strings.ToLower(model)
	for _, t := range [...]string{tenant, ""} {
		if to, ok := c.aliases[[3]string{t, provider, m}]; ok {
			return to[0], to[1], true
		}
	}
	return "", "", false
}

// lookup finds the lines for a query: the alias of the requested name, then the
// model that answered, then the requested one.
func (c *Catalogue) lookup(q *Query) *choice {
	ch := &choice{}
	for _, m := range [...]string{q.Requested, q.Model} {
		if m == "" {
			continue
		}
		if p, model, ok := c.alias(q.Tenant, q.Provider, m); ok {
			ch.lines = c.find(q.Tenant, p, model, nil)
			ch.fallback = len(ch.lines)
			return ch
		}
	}
	model := q.Model
	if model == "" {
		model = q.Requested
	}
	ch.lines = c.find(q.Tenant, q.Provider, model, nil)
	if len(ch.lines) == 0 && q.Requested != "" && q.Requested != model {
		ch.lines = c.find(q.Tenant, q.Provider, q.Requested, nil)
		ch.family = len(ch.lines) > 0 // another than the one that answered, whose price nobody knows
	}
	ch.fallback = len(ch.lines)
	for _, p := range c.fallback[q.Provider] {
		ch.lines = c.find(q.Tenant, p, model, ch.lines)
	}
	if q.Provider == "azure" && q.Requested != "" && q.Model != "" && len(ch.lines) > 0 {
		ch.family = Canonical("azure", q.Requested) != Canonical("azure", q.Model)
	}
	return ch
}

// find appends the lines that list a model, best first.
func (c *Catalogue) find(tenant, provider, model string, out []*line) []*line {
	names := Candidates(provider, model)
	for _, tables := range [...][]*table{c.tenants[tenant], c.tables} {
		for _, t := range tables {
			for _, p := range [...]string{provider, "*"} {
				globs := t.globs[p]
				for i, name := range names {
					lines := t.exact[[2]string{p, name}]
					if len(lines) > 0 {
						out = append(out, longest(globs, names[:i], name)...)
					}
					out = append(out, lines...)
				}
				out = append(out, longest(globs, names, "")...)
			}
		}
	}
	return out
}

// longest are the lines of the longest pattern that matches one of the names, and not
// the shorter one they led to, "" for none: what matches both says nothing of the part
// that was dropped, so the exact line is nearer; what does not is about that part.
func longest(globs []glob, names []string, shorter string) (best []*line) {
	n := -1
	for _, g := range globs {
		if len(g.pattern) <= n || shorter != "" && globMatch(g.pattern, shorter) {
			continue
		}
		if slices.ContainsFunc(names, func(name string) bool { return globMatch(g.pattern, name) }) {
			n, best = len(g.pattern), g.lines
		}
	}
	return best
}

// globMatch matches "*" only, over the whole name.
func globMatch(pattern, name string) bool {
	parts := strings.Split(pattern, "*")
	if !strings.HasPrefix(name, parts[0]) {
		return false
	}
	name = name[len(parts[0]):]
	for i, p := range parts[1:] {
		if i == len(parts)-2 {
			return strings.HasSuffix(name, p)
		}
		j := strings.Index(name, p)
		if j < 0 {
			return false
		}
		name = name[j+len(p):]
	}
	return name == ""
}

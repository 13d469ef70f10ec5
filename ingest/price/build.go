package price

import (
	"cmp"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/flyball/flyball/schema"
)

type level int

const (
	levelEmbedded level = iota
	levelOther
	levelOwn
)

// table is one source's lines by provider and name.
type table struct {
	level level
	exact map[[2]string][]*line
	globs map[string][]glob
}

type glob struct {
	pattern string
	lines   []*line
}

func newTable(lvl level) *table {
	return &table{level: lvl, exact: map[[2]string][]*line{}, globs: map[string][]glob{}}
}

// add lists a line under its names; within a table later rows win.
func (t *table) add(l *line) {
	l.level = t.level
	for _, m := range l.row.Models {
		m = strings.ToLower(m)
		if !strings.Contains(m, "*") {
			k := [2]string{l.row.Provider, m}
			t.exact[k] = append([]*line{l}, t.exact[k]...)
			continue
		}
		g := t.globs[l.row.Provider]
		if i := slices.IndexFunc(g, func(g glob) bool { return g.pattern == m }); i >= 0 {
			g[i].lines = append([]*line{l}, g[i].lines...)
		} else {
			t.globs[l.row.Provider] = append(g, glob{m, []*line{l}})
		}
	}
}

type builder struct {
	cat      *Catalogue
	rejected []Rejection
}

func newBuilder(o Options) *builder {
	c := &Catalogue{
		tenants: map[string][]*table{}, discount: map[string]*big.Rat{}, aliases: map[[3]string][2]string{},
		fallback: map[string][]string{}, fx: map[string][]fxRate{}, dearest: map[string]*line{}, cache: map[cacheKey]*choice{},
		assumed: [2]uint64{o.AssumedInput, o.AssumedOutput},
	}
	if c.assumed == [2]uint64{} {
		c.assumed = [2]uint64{8000, 1000}
	}
	return &builder{cat: c}
}

func (b *builder) reject(source, row, format string, args ...any) {
	b.rejected = append(b.rejected, Rejection{source, row, fmt.Sprintf(format, args...)})
}

// source is one price file that was read.
type source struct {
	file  *File
	name  string
	level level
}

// build takes the files in, later ones over earlier ones. Rates of exchange come first,
// since a line may be in a currency whose rate stands in another file.
func (b *builder) build(sources ...source) *Catalogue {
	for _, s := range sources {
		b.rates(s.file, s.name)
	}
	for _, s := range sources {
		b.add(s.file, s.name, s.level)
	}
	return b.finish()
}

// rates takes the rates of exchange of a file, the newest first.
func (b *builder) rates(f *File, source string) {
	for i, x := range f.FX {
		at, err := parseTime(x.AsOf)
		rate, ok := exactDecimal(x.Rate)
		if err != nil || !ok || rate.Sign() <= 0 || x.To != "USD" || len(x.From) != 3 {
			b.reject(source, fmt.Sprintf("fx %d", i+1), "want {from: CNY, to: USD, rate: \"0.14\", as_of: 2026-09-01}")
			continue
		}
		list := b.cat.fx[x.From]
		at0, same := slices.BinarySearchFunc(list, at, func(r fxRate, at int64) int { return cmp.Compare(at, r.asOf) })
		if same {
			list[at0].rate = rate
			continue
		}
		b.cat.fx[x.From] = slices.Insert(list, at0, fxRate{at, rate})
	}
}

// add takes a file in; everything it can use of it.
func (b *builder) add(f *File, source string, lvl level) {
	t := newTable(lvl)
	b.rows(t, f.Prices, source)
	b.cat.tables = append(b.cat.tables, t)
	for tenant, tf := range f.Tenants {
		if tf.Discount != "" {
			d, ok := exactDecimal(tf.Discount)
			if !ok || d.Sign() < 0 || d.Cmp(big.NewRat(1, 1)) > 0 {
				b.reject(source, "tenant "+tenant, "discount %q: want a decimal from 0 to 1, e.g. \"0.10\" for ten percent", tf.Discount)
			} else if delete(b.cat.discount, tenant); d.Sign() > 0 {
				b.cat.discount[tenant] = d.Sub(big.NewRat(1, 1), d)
			}
		}
		if len(tf.Prices) > 0 {
			tt := newTable(lvl)
			b.rows(tt, tf.Prices, source+" tenant "+tenant)
			b.cat.tenants[tenant] = append(b.cat.tenants[tenant], tt)
		}
	}
	for i, a := range f.Aliases {
		if a.Provider == "" || a.Model == "" || a.Is.Model == "" {
			b.reject(source, fmt.Sprintf("alias %d", i+1), "want provider, model and is: {provider, model}")
			continue
		}
		from, err := canonical(a.Provider)
		to := from
		if err == nil && a.Is.Provider != "" {
			to, err = canonical(a.Is.Provider)
		}
		if err != nil {
			b.reject(source, fmt.Sprintf("alias %d", i+1), "%v", err)
			continue
		}
		b.cat.aliases[[3]string{a.Tenant, from, strings.ToLower(a.Model)}] = [2]string{to, a.Is.Model}
		b.cat.aliases[[3]string{a.Tenant, "", ""}] = [2]string{} // marks tenants that have aliases
	}
	for p, to := range f.Fallback {
		names := make([]string, len(to))
		for i := range to {
			names[i] = schema.Provider(to[i])
		}
		b.cat.fallback[schema.Provider(p)] = names
	}
}

// exactDecimal reads a decimal without an exponent: one would be written out in all its digits.
func exactDecimal(s string) (*big.Rat, bool) {
	if len(s) > 64 || strings.ContainsAny(s, "eEpP/") {
		return nil, false
	}
	return new(big.Rat).SetString(s)
}

// canonical is the provider by the name that calls carry.
func canonical(provider string) (string, error) {
	if provider == "*" {
		return provider, nil
	}
	p := schema.Provider(provider)
	if p == "" {
		return "", fmt.Errorf("provider %q is a framework or a word for none, which no call is billed by; name the host that bills, e.g. openai", provider)
	}
	return p, nil
}

func (b *builder) rows(t *table, rows []Row, source string) {
	for i := range rows {
		r := &rows[i]
		name := "row " + strconv.Itoa(i+1)
		if len(r.Models) > 0 {
			name += " (" + r.Provider + " " + r.Models[0] + ")"
		}
		l, err := b.line(r, source)
		if err != nil {
			b.reject(source, name, "%v", err)
			continue
		}
		if l.currency != "USD" && len(b.cat.fx[l.currency]) == 0 {
			// The line stays: what it prices is unpriced, not priced by a list in another currency.
			b.reject(source, name, "currency %[1]s has no rate, so its calls stay unpriced; add fx: [{from: %[1]s, to: USD, rate: \"…\", as_of: YYYY-MM-DD}]", l.currency)
		}
		t.add(l)
	}
}

// dearest1M is the highest price per million tokens, in 1e-12 of the currency, that is
// believed: 1,000 USD at the newest rate.
func (b *builder) dearest1M(currency string) uint64 {
	if currency == "USD" {
		return dearestUSD
	}
	if len(b.cat.fx[currency]) == 0 {
		return math.MaxInt64
	}
	v := new(big.Rat).Quo(new(big.Rat).SetInt64(dearestUSD), b.cat.fx[currency][0].rate)
	if n := new(big.Int).Quo(v.Num(), v.Denom()); n.IsInt64() {
		return n.Uint64()
	}
	return math.MaxInt64
}

const dearestUSD = 1000 * 1e12

// tierNames are the service tiers that calls can have beside the standard one.
var tierNames = []string{"balanced", "batch", "decisions", "fast", "flex", "performance", "priority", "provisioned_throughput", "reserved", "ultrafast"}

func (b *builder) line(r *Row, source string) (*line, error) {
	if r.Provider == "" {
		return nil, fmt.Errorf("provider is missing; name one or write \"*\"")
	}
	var err error
	if r.Provider, err = canonical(r.Provider); err != nil {
		return nil, err
	}
	if len(r.Models) == 0 {
		return nil, fmt.Errorf("models is empty; list exact names or globs")
	}
	l := &line{row: r, source: source, currency: r.Currency, tiers: map[string]*tier{}}
	if l.currency == "" {
		l.currency = "USD"
	}
	if len(l.currency) != 3 || strings.ToUpper(l.currency) != l.currency {
		return nil, fmt.Errorf("currency %q: want an ISO 4217 code such as USD", r.Currency)
	}
	limit := b.dearest1M(l.currency)
	if l.from, err = parseTime(r.From); err != nil {
		return nil, fmt.Errorf("from: %w", err)
	}
	if l.to, err = parseTime(r.To); err != nil {
		return nil, fmt.Errorf("to: %w", err)
	}
	if l.to != 0 && l.to <= l.from {
		return nil, fmt.Errorf("to %s is not after from %s", r.To, r.From)
	}
	if l.r, err = parseRates(r.PerMillion, r.PerUnit, limit); err != nil {
		return nil, err
	}
	if l.r.set == 0 && len(r.ServiceTiers) == 0 {
		return nil, fmt.Errorf("no price: give per_million or per_unit")
	}
	if l.cliffs, err = parseCliffs(r.AboveInput, limit); err != nil {
		return nil, err
	}
	for name, tr := range r.ServiceTiers {
		name = strings.ToLower(name)
		if standard(name) {
			return nil, fmt.Errorf("service_tiers.%s: that is the standard tier, whose price is per_million of the row itself", name)
		}
		if !slices.Contains(tierNames, name) {
			return nil, fmt.Errorf("service_tiers.%s: no such tier; want one of %s", name, strings.Join(tierNames, ", "))
		}
		tt := &tier{}
		if tt.from, err = parseTime(tr.From); err != nil {
			return nil, fmt.Errorf("service_tiers.%s.from: %w", name, err)
		}
		if tt.r, err = parseRates(tr.PerMillion, tr.PerUnit, limit); err != nil {
			return nil, fmt.Errorf("service_tiers.%s: %w", name, err)
		}
		if tt.cliffs, err = parseCliffs(tr.AboveInput, limit); err != nil {
			return nil, fmt.Errorf("service_tiers.%s: %w", name, err)
		}
		l.tiers[name] = tt
	}
	for _, tb := range r.TimeBands {
		bd := band{}
		if bd.from, err = parseMinute(tb.From); err != nil {
			return nil, err
		}
		if bd.to, err = parseMinute(tb.To); err != nil {
			return nil, err
		}
		for _, d := range tb.Days {
			i := slices.Index([]string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}, d)
			if i < 0 {
				return nil, fmt.Errorf("time_bands.days %q: want mon, tue, wed, thu, fri, sat or sun", d)
			}
			bd.days |= 1 << i
		}
		if bd.r, err = parseRates(tb.PerMillion, nil, limit); err != nil {
			return nil, err
		}
		l.bands = append(l.bands, bd)
	}
	l.id = source + ":" + r.Provider + "/" + r.Models[0]
	if r.From != "" {
		l.id += "@" + r.From
	}
	return l, nil
}

func parseCliffs(above []Above, limit uint64) ([]cliff, error) {
	var out []cliff
	for _, a := range above {
		r, err := parseRates(a.PerMillion, nil, limit)
		if err != nil {
			return nil, fmt.Errorf("above_input_tokens: %w", err)
		}
		if a.Over == 0 {
			return nil, fmt.Errorf("above_input_tokens: over is missing")
		}
		out = append(out, cliff{a.Over, r})
	}
	slices.SortFunc(out, func(a, b cliff) int { return int(int64(a.over) - int64(b.over)) })
	return out, nil
}

// parseRates reads the prices of tokens, up to a limit, and of pieces.
func parseRates(perMillion, perUnit map[string]string, limit uint64) (rates, error) {
	var r rates
	for name, text := range perMillion {
		i := slices.Index(rateNames[:rateRequest], name)
		if i < 0 || i == tokReasoning {
			return r, fmt.Errorf("per_million.%s: no such component; want one of input, cache_read, cache_write_5m, cache_write_1h, output, input_audio, input_image, output_audio, output_image", name)
		}
		v, err := parseRate(text)
		if err != nil {
			return r, fmt.Errorf("per_million.%s: %w", name, err)
		}
		if v > limit {
			return r, fmt.Errorf("per_million.%s: %s is over %s per million tokens, which looks like another unit", name, text, decimal(limit))
		}
		r.v[i] = v
		r.set |= 1 << i
	}
	for name, text := range perUnit {
		i := slices.Index(rateNames[rateRequest:], name)
		if i < 0 {
			return r, fmt.Errorf("per_unit.%s: no such unit; want one of request, web_search, image, page, second", name)
		}
		v, err := parseRate(text)
		if err != nil {
			return r, fmt.Errorf("per_unit.%s: %w", name, err)
		}
		r.v[rateRequest+i] = v
		r.set |= 1 << (rateRequest + i)
	}
	return r, nil
}

// decimals are those of a price as it is written.
const decimals = 12

// parseRate reads a decimal as an integer of 1e-12. It refuses signs, exponents and
// words, so a sentinel such as -1 cannot become a price.
func parseRate(s string) (uint64, error) {
	whole, frac, _ := strings.Cut(s, ".")
	frac = strings.TrimRight(frac, "0")
	if whole == "" || len(frac) > decimals {
		return 0, fmt.Errorf("%q: want a decimal of at least 0 with at most %d decimals", s, decimals)
	}
	for _, c := range whole + frac {
		if c < '0' || c > '9' {
			return 0, fmt.Errorf("%q: want a decimal of at least 0, e.g. \"1.25\"", s)
		}
	}
	v, err := strconv.ParseUint(whole+frac+strings.Repeat("0", decimals-len(frac)), 10, 63)
	if err != nil {
		return 0, fmt.Errorf("%q: out of range", s)
	}
	return v, nil
}

func decimal(v uint64) string {
	s := strconv.FormatUint(v, 10)
	if len(s) <= decimals {
		s = strings.Repeat("0", decimals-len(s)+1) + s
	}
	return strings.TrimRight(strings.TrimRight(s[:len(s)-decimals]+"."+s[len(s)-decimals:], "0"), ".")
}

func parseTime(s string) (int64, error) {
	if s == "" {
		return 0, nil
	}
	for _, layout := range [...]string{time.RFC3339, "2006-01-02"} {
		if t, err := time.Parse(layout, s); err == nil {
			return t.UnixNano(), nil
		}
	}
	return 0, fmt.Errorf("%q: want RFC 3339 or a date, e.g. 2026-08-16T16:00:00Z", s)
}

func parseMinute(s string) (int, error) {
	t, err := time.Parse("15:04", s)
	if err != nil {
		return 0, fmt.Errorf("time_bands %q: want HH:MM in UTC", s)
	}
	return t.Hour()*60 + t.Minute(), nil
}

// finish orders the tables and finds the dearest lines.
func (b *builder) finish() *Catalogue {
	c := b.cat
	slices.Reverse(c.tables) // later files first
	slices.SortStableFunc(c.tables, func(x, y *table) int { return int(y.level - x.level) })
	for t := range c.tenants {
		slices.Reverse(c.tenants[t])
	}
	weight := func(l *line) *big.Int {
		w := new(big.Int).Mul(new(big.Int).SetUint64(l.r.v[tokInput]), new(big.Int).SetUint64(c.assumed[0]))
		return w.Add(w, new(big.Int).Mul(new(big.Int).SetUint64(l.r.v[tokOutput]), new(big.Int).SetUint64(c.assumed[1])))
	}
	consider := func(p string, l *line) {
		if l.currency != "USD" || l.to != 0 {
			return
		}
		if d := c.dearest[p]; d == nil || weight(l).Cmp(weight(d)) > 0 || weight(l).Cmp(weight(d)) == 0 && l.id < d.id {
			c.dearest[p] = l
		}
	}
	for _, t := range c.tables {
		for k, lines := range t.exact {
			for _, l := range lines {
				consider(k[0], l)
				consider("", l)
			}
		}
	}
	return c
}

// Known reports whether any line lists the model for that provider.
func (c *Catalogue) Known(tenant, provider, model string) bool {
	q := Query{Tenant: tenant, Provider: provider, Model: model}
	return len(c.choose(&q).lines) > 0
}

// NameOf is the name under which calls of a model are reported together: that of the
// alias, without router, geography, version and date. listed says whether an alias or
// a line knows it.
func (c *Catalogue) NameOf(tenant, provider, model string) (name string, listed bool) {
	if _, m, ok := c.alias(tenant, provider, model); ok {
		model, listed = m, true
	}
	name = Canonical(provider, model)
	for _, region := range [...]string{"regional.", "global."} {
		name = strings.TrimPrefix(name, region)
	}
	return name, listed || c.Known(tenant, provider, model)
}

// makers are the providers that make models, asked before those who resell them.
var makers = []string{"openai", "anthropic", "google", "mistral", "deepseek", "xai", "cohere", "meta"}

// ProviderOf is the provider whose price holds for a model that is named without
// one: its maker, else the first by name that lists it; "" where nobody does.
func (c *Catalogue) ProviderOf(model string) string {
	c.once.Do(func() {
		c.owner = map[string]string{}
		rank := func(p string) int {
			if i := slices.Index(makers, p); i >= 0 {
				return i
			}
			return len(makers)
		}
		for _, t := range c.tables {
			for k := range t.exact {
				old, ok := c.owner[k[1]]
				if a, b := rank(k[0]), rank(old); !ok || a < b || a == b && k[0] < old {
					c.owner[k[1]] = k[0]
				}
			}
		}
	})
	for _, name := range Candidates("", model) {
		if p, ok := c.owner[name]; ok {
			return p
		}
	}
	return ""
}

// Listing is one price line for people and scripts.
type Listing struct {
	ID     string `json:"id"`
	Source string `json:"source"`
	*Row
}

// List returns the lines of a provider ("" is all), sorted by id.
func (c *Catalogue) List(provider string) []Listing {
	seen := map[*line]bool{}
	var out []Listing
	for _, t := range c.tables {
		collect := func(p string, lines []*line) {
			for _, l := range lines {
				if !seen[l] && (provider == "" || p == provider) {
					seen[l] = true
					out = append(out, Listing{l.id, l.source, l.row})
				}
			}
		}
		for k, lines := range t.exact {
			collect(k[0], lines)
		}
		for p, globs := range t.globs {
			for _, g := range globs {
				collect(p, g.lines)
			}
		}
	}
	slices.SortFunc(out, func(a, b Listing) int { return strings.Compare(a.ID, b.ID) })
	return out
}

// Nearest returns up to n listed names of a provider that look most like model,
// for a person to choose from; nothing is ever priced by it.
func (c *Catalogue) Nearest(provider, model string, n int) []string {
	want := Canonical(provider, model)
	type scored struct {
		name string
		d    int
	}
	var all []scored
	for _, t := range c.tables {
		for k := range t.exact {
			if provider == "" || k[0] == provider {
				all = append(all, scored{k[1], schema.EditDistance(want, k[1])})
			}
		}
	}
	slices.SortFunc(all, func(a, b scored) int {
		if a.d != b.d {
			return a.d - b.d
		}
		return strings.Compare(a.name, b.name)
	})
	var out []string
	for _, s := range all {
		if len(out) == n || s.d > len(want)*2/3 {
			break
		}
		if !slices.Contains(out, s.name) {
			out = append(out, s.name)
		}
	}
	return out
}

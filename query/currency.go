package query

import (
	"context"
	"fmt"
	"math/big"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"

	"github.com/flyball/flyball/schema"
)

// conversion is the currency of an answer beside USD: the rate of each day that has
// a cost. The zero value is none.
type conversion struct {
	currency string
	days     []converted
	known    *schema.Rates
}

// converted is a day of the request's zone and the rate that is used for it.
type converted struct {
	day time.Time // midnight UTC stands for the date
	schema.Rate
}

// carried reports whether the rate is that of an earlier day.
func (c converted) carried() bool { return !c.Day.Equal(c.day) }

var currencyForm = regexp.MustCompile(`^[A-Z]{3}$`)

// currency reads currency=, and finds the rates of the days on which q's lines cost
// something. A day without a rate has the last earlier one; none at all is an error
// that names the day.
func (a *API) currency(ctx context.Context, r *request, q *question) (conversion, error) {
	v, ok := r.GetQuery("currency")
	if !ok || v == "USD" {
		return conversion{}, nil
	}
	if !currencyForm.MatchString(v) {
		return conversion{}, badRequest("currency %q: want a code such as EUR", v)
	}
	var rates *schema.Rates
	if a.o.Rates != nil {
		rates = a.o.Rates()
	}
	if list := rates.Currencies(); !slices.Contains(list, v) {
		have := "there are none"
		if len(list) > 0 {
			have = "there are those of " + strings.Join(list, ", ")
		}
		return conversion{}, badRequest("no rate of %s is known, %s; name files with date,currency,rate in fx.files, or ask in USD", v, have)
	}
	out := conversion{currency: v, known: rates}
	q.vars["FXDay"] = "toDate(s.at, '" + quoteZone(r.zone) + "')"
	var missing error
	err := a.ask(ctx, r, "fx_days.sql", q, func(get func(string) any) {
		day := get("day").(time.Time).UTC()
		rate, ok := rates.On(v, day)
		if !ok && missing == nil {
			missing = out.lacks(day)
		}
		out.days = append(out.days, converted{day, rate})
	})
	if err == nil {
		err = missing
	}
	return out, err
}

// apply makes a question one in that currency: each sum of a day is converted at the
// day's rate and rounded, what is shown are sums of those.
func (c conversion) apply(q *question) {
	q.vars["FX"] = c.currency != ""
	if c.currency == "" {
		return
	}
	days, rates := make([]string, len(c.days)), make([]string, len(c.days))
	for i, d := range c.days {
		days[i], rates[i] = d.day.Format(time.DateOnly), d.Pico().String()
	}
	q.args = append(q.args, clickhouse.Named("fx_days", days), clickhouse.Named("fx_rates", rates))
}

// bounds are the least and the most of the currency that a USD was worth in some time.
func (c conversion) bounds(from, to time.Time) (out [2]*big.Rat) {
	first, last := from.Format(time.DateOnly), to.Add(-1).Format(time.DateOnly)
	for _, d := range c.days {
		if day := d.day.Format(time.DateOnly); day < first || day > last {
			continue
		}
		worth := new(big.Rat).SetFrac(big.NewInt(schema.PicoPerUSD), d.Pico())
		if out[0] == nil || worth.Cmp(out[0]) < 0 {
			out[0] = worth
		}
		if out[1] == nil || worth.Cmp(out[1]) > 0 {
			out[1] = worth
		}
	}
	return out
}

// lacks says that a day has no rate.
func (c conversion) lacks(day time.Time) error {
	return badRequest("no rate of %s on %s or before; add one to the files of fx.files, or begin later", c.currency, day.Format(time.DateOnly))
}

const (
	fxRounding      = "half even to 1e-12 for each row and day; a total is the sum of its rows"
	fxRoundingMover = "half even to 1e-12 for each model of a row and day; a total is the sum of its rows"
	fxRoundingOnce  = "half even to 1e-12, once for each figure"
)

// say tells in an answer which rates it was made with.
func (c conversion) say(r *request, answer row, rounding string) {
	if c.currency == "" {
		return
	}
	list := make([]row, len(c.days))
	carried := 0
	for i, d := range c.days {
		list[i] = row{"day": d.day.Format(time.DateOnly), "usd": d.Text, "of": d.Day.Format(time.DateOnly), "source": d.Source, "carried": d.carried()}
		if d.carried() {
			carried++
		}
	}
	answer["currency"], answer["rates"], answer["rounding"] = c.currency, list, rounding
	c.header(r.Writer.Header(), carried)
}

// header says the same in short, for files.
func (c conversion) header(h http.Header, carried int) {
	var sources []string
	for _, d := range c.days {
		if !slices.Contains(sources, d.Source) {
			sources = append(sources, d.Source)
		}
	}
	h.Set("X-Flyball-Currency", fmt.Sprintf("%s; days=%d; carried=%d; sources=%q", c.currency, len(c.days), carried, strings.Join(sources, " ")))
}

// String is different for different rates.
func (c conversion) String() string {
	var b strings.Builder
	b.WriteString(c.currency)
	for _, d := range c.days {
		fmt.Fprintf(&b, " %s=%s", d.day.Format(time.DateOnly), d.Rate)
	}
	return b.String()
}

// convert puts the rows of a FOCUS file into another currency. Unit prices are rounded
// to 1e-12, and quantity times price stays the cost; what that leaves of the sum of a day,
// tenant, provider and model, converted as a whole, is a remainder. Where corrections or
// what a person booked stand apart, each part is rounded and the last one has the rest,
// so that what came later changes no earlier row.
func (s *sheet) convert(c conversion) error {
	if c.currency == "" {
		return nil
	}
	s.fx = c
	type sums struct{ billed, list *big.Rat }
	add := func(to *sums, billed, list *big.Rat) {
		to.billed.Add(to.billed, billed)
		to.list.Add(to.list, list)
	}
	zero := func() sums { return sums{new(big.Rat), new(big.Rat)} }
	type part struct {
		*focusCounts
		was, now sums
	}
	parts := map[*focusCounts]*part{}
	wholes := map[string][]*part{}
	var order []string
	for _, r := range s.rows {
		rate, ok := s.rate(r)
		if !ok {
			if r.billed.Sign() == 0 && r.listCost.Sign() == 0 {
				continue
			}
			return c.lacks(r.day.In(s.zone))
		}
		g := s.count(&r.focusGroup)
		p := parts[g]
		if p == nil {
			p = &part{g, zero(), zero()}
			parts[g] = p
			key := fmt.Sprintf("%q", []string{r.tenant, r.day.String(), r.seller, r.product})
			if wholes[key] == nil {
				order = append(order, key)
			}
			wholes[key] = append(wholes[key], p)
		}
		add(&p.was, r.billed, r.listCost)
		if r.basis == basisUnit {
			r.list, r.contracted = fromUSD(rate, r.list), fromUSD(rate, r.contracted)
			r.listCost, r.billed = new(big.Rat).Mul(r.list, r.pricing), new(big.Rat).Mul(r.contracted, r.pricing)
		} else {
			r.listCost, r.billed = fromUSD(rate, r.listCost), fromUSD(rate, r.billed)
		}
		add(&p.now, r.billed, r.listCost)
	}
	for _, c := range s.order {
		if rate, ok := s.rate(&focusRow{focusGroup: c.group}); ok {
			c.wasted = fromUSD(rate, c.wasted)
		}
	}
	for _, key := range order {
		whole := wholes[key]
		rate, _ := s.rate(&focusRow{focusGroup: whole[0].group})
		was, done := zero(), zero()
		for i, p := range whole {
			add(&was, p.was.billed, p.was.list)
			billed, list := fromUSD(rate, p.was.billed), fromUSD(rate, p.was.list)
			if i == len(whole)-1 {
				billed, list = fromUSD(rate, was.billed), fromUSD(rate, was.list)
				billed.Sub(billed, done.billed)
				list.Sub(list, done.list)
			}
			add(&done, billed, list)
			billed.Sub(billed, p.now.billed)
			list.Sub(list, p.now.list)
			if billed.Sign() != 0 || list.Sign() != 0 {
				of := p.group
				of.line, of.tier, of.currency, of.reason = "", "", "", ""
				s.add(focusRow{focusGroup: of, basis: basisRemainder, status: "priced", component: "remainder", meterName: "Rounding of the conversion", listCost: list, billed: billed})
			}
		}
	}
	return nil
}

// rate is that of a row's day.
func (s *sheet) rate(r *focusRow) (schema.Rate, bool) {
	y, m, d := r.day.In(s.zone).Date()
	return s.fx.known.On(s.fx.currency, time.Date(y, m, d, 0, 0, 0, 0, time.UTC))
}

// fromUSD converts an exact amount of USD and rounds it to 1e-12.
func fromUSD(rate schema.Rate, v *big.Rat) *big.Rat {
	pico := new(big.Rat).Mul(v, new(big.Rat).SetInt64(schema.PicoPerUSD))
	pico.Mul(pico, new(big.Rat).SetInt64(schema.PicoPerUSD))
	pico.Quo(pico, new(big.Rat).SetInt(rate.Pico()))
	return new(big.Rat).SetFrac(schema.RoundHalfEven(pico), big.NewInt(schema.PicoPerUSD))
}

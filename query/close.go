package query

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gin-gonic/gin"

	"github.com/flyball/flyball/schema"
)

// closed is a month of a tenant that was closed.
type closed struct {
	tenant, period, zone, by string
	from, to, at             time.Time
	booked                   time.Time // the last day whose entries are in the sums
	cost                     *big.Int
}

// after is the first instant whose entries correct the closed month.
func (c closed) after() time.Time { return c.booked.AddDate(0, 0, 1) }

func (c closed) row() row {
	return row{"tenant": c.tenant, "period": c.period, "from": c.from.Format(time.RFC3339), "to": c.to.Format(time.RFC3339), "timezone": c.zone,
		"as_of": c.after().Format(time.RFC3339), "closed_at": stamp(c.at), "closed_by": c.by, "cost_usd": usd(c.cost)}
}

// closes reads what is closed; "" is every period.
func (a *API) closes(ctx context.Context, r *request, period string) ([]closed, error) {
	q := r.then()
	if period != "" {
		q.vars["Filter"] = "period = " + q.bind("period", "String", period)
	}
	var out []closed
	err := a.ask(ctx, r, "closes.sql", q, func(get func(string) any) {
		at := func(name string) time.Time { return get(name).(time.Time).UTC() }
		out = append(out, closed{tenant: get("tenant").(string), period: get("period").(string), zone: get("timezone").(string), by: get("closed_by").(string),
			from: at("starts_at"), to: at("ends_at"), at: at("closed_at"), booked: at("booked_through"), cost: get("cost").(*big.Int)})
	})
	return out, err
}

// month reads a period such as 2026-11.
func month(v string) (time.Time, error) {
	t, err := time.Parse("2006-01", v)
	if err != nil || t.Year() < 2000 || t.Year() > 2100 {
		return t, badRequest("period %q: want a month, e.g. 2026-11", v)
	}
	return t, nil
}

// closeReport answers a closed month beside what is known now, or without period
// which months are closed.
func (a *API) closeReport(ctx context.Context, r *request) (any, error) {
	period, ok := r.GetQuery("period")
	if ok {
		if _, err := month(period); err != nil {
			return nil, err
		}
	} else if r.csv {
		return nil, badRequest("period is missing: want a month, e.g. period=2026-11")
	} else if r.Request.URL.Query().Has("currency") {
		return nil, badRequest("currency is of a month's figures: say period too, e.g. period=2026-11")
	}
	list, err := a.closes(ctx, r, period)
	if err != nil {
		return nil, err
	}
	closes := []row{}
	for _, c := range list {
		closes = append(closes, c.row())
	}
	if !ok {
		return row{"closes": closes}, nil
	}
	start, _ := month(period)
	// A zone is less than a day from UTC.
	r.from, r.to = start.AddDate(0, 0, -1), start.AddDate(0, 1, 1)
	if err := a.rollup(ctx, r); err != nil {
		return nil, err
	}
	q := r.then()
	q.rangeArgs(r)
	q.bind("period", "String", period)
	q.paging(r, r.limit)
	in := r.Query("currency")
	q.vars["FX"], q.vars["FXDay"] = in != "" && in != "USD", "toDate(s.at, '"+quoteZone(r.zone)+"')"
	out := []row{}
	total := row{"frozen_usd": "0", "current_usd": "0", "adjustment_usd": "0", "frozen_calls": int64(0), "current_calls": int64(0)}
	all := uint64(0)
	err = a.ask(ctx, r, "close.sql", q, func(get func(string) any) {
		m := row{"tenant": get("tenant"), "provider": get("provider"), "model": get("model"),
			"frozen_usd": usd(get("frozen_cost")), "current_usd": usd(get("current_cost")), "adjustment_usd": usd(get("adjustment_cost"))}
		for _, n := range []string{"frozen_calls", "current_calls", "adjustment_calls", "frozen_unpriced", "current_unpriced", "frozen_unknown", "current_unknown"} {
			m[n] = get(n)
		}
		out = append(out, m)
		all = get("all_rows").(uint64)
		frozen, current := get("all_frozen_cost").(*big.Int), get("all_current_cost").(*big.Int)
		total = row{"frozen_usd": usd(frozen), "current_usd": usd(current), "adjustment_usd": usd(new(big.Int).Sub(current, frozen)),
			"frozen_calls": get("all_frozen_calls"), "current_calls": get("all_current_calls")}
	})
	if err != nil {
		return nil, err
	}
	fx, err := a.closeIn(ctx, r, period, list, out, total)
	if err != nil {
		return nil, err
	}
	r.columns = []string{"tenant", "provider", "model", "frozen_usd", "current_usd", "adjustment_usd", "frozen_calls", "current_calls", "adjustment_calls", "frozen_unpriced", "current_unpriced", "frozen_unknown", "current_unknown"}
	if fx.currency != "" {
		r.columns = append(r.columns, "frozen", "current", "adjustment", "currency")
	}
	more := all > uint64(r.offset+len(out))
	answer := row{"period": period, "rows": out, "total": total, "closes": closes, "truncated": more, "next": r.next(len(out), more)}
	r.known(answer)
	fx.say(r, answer, fxRounding)
	return answer, nil
}

// closeIn adds the figures of another currency to the rows and the total of a closed
// month. What was frozen has no days in it, so that they are taken from the rollup.
func (a *API) closeIn(ctx context.Context, r *request, period string, list []closed, rows []row, total row) (conversion, error) {
	own := *r
	for i, c := range list { // not a day more: it would need a rate
		if i == 0 || c.from.Before(own.from) {
			own.from = c.from
		}
		if i == 0 || c.to.After(own.to) {
			own.to = c.to
		}
	}
	q := own.then()
	q.rangeArgs(&own)
	q.bind("period", "String", period)
	fx, err := a.currency(ctx, r, q)
	if err != nil || fx.currency == "" {
		return fx, err
	}
	fx.apply(q)
	type key struct{ tenant, provider, model string }
	figures := map[key][2]*big.Int{}
	frozen, adjustment, usdFrozen := new(big.Int), new(big.Int), new(big.Int)
	err = a.ask(ctx, r, "close_converted.sql", q, func(get func(string) any) {
		f, d := get("frozen").(*big.Int), get("adjustment").(*big.Int)
		figures[key{get("tenant").(string), get("provider").(string), get("model").(string)}] = [2]*big.Int{f, d}
		frozen.Add(frozen, f)
		adjustment.Add(adjustment, d)
		usdFrozen.Add(usdFrozen, get("frozen_cost").(*big.Int))
	})
	if err != nil {
		return fx, err
	}
	for _, c := range list {
		usdFrozen.Sub(usdFrozen, c.cost)
	}
	if usdFrozen.Sign() != 0 {
		return fx, problem{http.StatusConflict, fmt.Sprintf("the days of %s are no longer all there (retention.rollups), and without them what was frozen has no rates; ask for it in USD", period)}
	}
	put := func(m row, f, d *big.Int) {
		m["frozen"], m["adjustment"], m["current"] = usd(f), usd(d), usd(new(big.Int).Add(f, d))
	}
	for _, m := range rows {
		f, ok := figures[key{m["tenant"].(string), m["provider"].(string), m["model"].(string)}]
		if !ok {
			f = [2]*big.Int{new(big.Int), new(big.Int)}
		}
		put(m, f[0], f[1])
		m["currency"] = fx.currency
	}
	put(total, frozen, adjustment)
	return fx, nil
}

// closing is what POST /close takes.
type closing struct {
	Period string  `json:"period"`
	AsOf   *string `json:"as_of"` // a date, the last UTC day that counts; without it yesterday
	Reason string  `json:"reason"`
}

// reasonLength is how many characters a reason may have.
const reasonLength = 1000

// close freezes what was known of a month, for the tenants of the request or every
// one. What is closed already stays as it was.
func (a *API) close(c *gin.Context) {
	out, err := a.closeMonth(c)
	if err != nil {
		a.fail(c, err)
		return
	}
	c.Header("Cache-Control", "no-store")
	c.JSON(http.StatusOK, out)
}

func (a *API) closeMonth(c *gin.Context) (row, error) {
	var ring *schema.Keyring
	if a.o.Keys != nil {
		ring = a.o.Keys()
	}
	key, err := ring.Require(c.Request)
	if err != nil {
		var denied schema.AccessError
		if errors.As(err, &denied) {
			err = problem{denied.Status, denied.Detail}
		}
		return nil, err
	}
	r, err := a.open(c, limits{}, nil)
	if err != nil {
		return nil, err
	}
	var in closing
	if err := schema.ReadBody(c.Writer, c.Request, &in); err != nil {
		return nil, badRequest("%v; want {\"period\":\"2026-11\"} and perhaps \"as_of\":\"2026-12-03\", the last UTC day whose entries count (default: yesterday)", err)
	}
	start, err := month(in.Period)
	if err != nil {
		return nil, err
	}
	if in.Reason = strings.TrimSpace(in.Reason); utf8.RuneCountInString(in.Reason) > reasonLength {
		return nil, badRequest("the reason has more than %d characters; it is what others read later", reasonLength)
	}
	now := time.Now().UTC()
	booked := now.Truncate(24*time.Hour).AddDate(0, 0, -1)
	if in.AsOf != nil {
		day, err := time.Parse(time.DateOnly, *in.AsOf)
		if err != nil || day.After(booked) {
			return nil, badRequest("as_of %q: want a UTC day that has ended, e.g. %s", *in.AsOf, booked.Format(time.DateOnly))
		}
		booked = day
	}
	boundary := booked.AddDate(0, 0, 1)
	if a.o.Stored != nil && a.o.Stored().Before(boundary) {
		return nil, problem{http.StatusServiceUnavailable, "entries that were recorded by then are still on their way into the journal; see queued in /readyz and ask again"}
	}
	ctx, cancel := context.WithTimeout(c.Request.Context(), queryLimit)
	defer cancel()
	tenants := r.tenants
	if r.all {
		if err := a.ask(ctx, r, "close_tenants.sql", r.question(), func(get func(string) any) { tenants = append(tenants, get("tenant").(string)) }); err != nil {
			return nil, err
		}
	}
	before, err := a.closes(ctx, r, in.Period)
	if err != nil {
		return nil, err
	}
	already := []string{}
	for _, b := range before {
		already = append(already, b.tenant)
	}
	tenants = slices.DeleteFunc(slices.Clone(tenants), func(t string) bool { return slices.Contains(already, t) })
	if len(tenants) == 0 && len(before) > 0 {
		return nil, problem{http.StatusConflict, fmt.Sprintf("%s was closed on %s by %s; a close stays as it is, and what was booked since is the adjustment that GET /api/v1/close?period=%s lists", in.Period, before[0].at.Format(time.RFC3339), before[0].by, in.Period)}
	}
	list := make([]closed, len(tenants))
	for i, t := range tenants {
		zone := a.zone(&request{tenants: []string{t}})
		d := closed{tenant: t, period: in.Period, zone: zone.String(), by: key.Name, at: now.Truncate(time.Microsecond), booked: booked,
			from: schema.StartOfDay(start, zone).UTC(), to: schema.StartOfDay(start.AddDate(0, 1, 0), zone).UTC(), cost: new(big.Int)}
		if d.to.After(boundary) {
			first := d.to.Add(24*time.Hour - 1).Truncate(24 * time.Hour)
			return nil, problem{http.StatusConflict, fmt.Sprintf("%s of tenant %s ends at %s and is closed with whole UTC days: close it from %s on, or with as_of=%s or later", in.Period, t, d.to.Format(time.RFC3339), first.Format(time.RFC3339), first.AddDate(0, 0, -1).Format(time.DateOnly))}
		}
		list[i] = d
	}
	for i := range list {
		if err := a.freeze(ctx, r, &list[i]); err != nil {
			return nil, err
		}
	}
	// Of two at the same time one is stored. What is answered is what is stored.
	stored, err := a.closes(ctx, r, in.Period)
	if err != nil {
		return nil, err
	}
	out := []row{}
	for _, c := range stored {
		mine := slices.IndexFunc(list, func(l closed) bool { return l.tenant == c.tenant })
		switch {
		case mine < 0:
		case list[mine].at.Equal(c.at) && list[mine].by == c.by && list[mine].booked.Equal(c.booked):
			out = append(out, c.row())
		default:
			already = append(already, c.tenant)
		}
	}
	for _, e := range closeEvents(r, out, in, key.Name, now) {
		if a.o.Record == nil {
			break
		}
		if err := a.o.Record(e); err != nil {
			a.o.Logger.Error("record close", "period", in.Period, "err", err) // what is closed is closed
		}
	}
	a.o.Logger.Info("month closed", "period", in.Period, "tenants", strings.Join(tenants, ","), "by", key.Name, "as_of", boundary)
	return row{"period": in.Period, "closed": out, "already": already}, nil
}

// closeEvents are a close in the history: one of the whole org, or one of each tenant.
func closeEvents(r *request, closed []row, in closing, actor string, now time.Time) (out []schema.Enforcement) {
	e := schema.Enforcement{At: now, Kind: "close", Scope: "month " + in.Period, Action: "closed", Actor: actor, Reason: in.Reason}
	if r.all && len(closed) > 0 {
		e.Scope += fmt.Sprintf(" of every tenant (%d)", len(closed))
		return append(out, e)
	}
	for _, c := range closed {
		e.Tenant = c["tenant"].(string)
		out = append(out, e)
	}
	return out
}

// freeze stores the sums of one tenant's month in one insert, which a second one
// at the same time does not repeat.
func (a *API) freeze(ctx context.Context, r *request, c *closed) error {
	own := *r
	own.all, own.tenants, own.from, own.to = false, []string{c.tenant}, c.from, c.to
	q := own.question()
	q.rangeArgs(&own)
	q.bind("booked", "Date", c.booked.Format(time.DateOnly))
	batch, err := a.o.Write().PrepareBatch(schema.InsertContext(ctx, "close/"+c.period+"/"+c.tenant),
		"INSERT INTO closes (tenant, period, provider, model, starts_at, ends_at, timezone, booked_through, closed_at, closed_by, lines, calls, unpriced, unknown, cost, wasted)")
	if err != nil {
		return fmt.Errorf("prepare close: %w", err)
	}
	defer func() { _ = batch.Close() }()
	var failed error
	add := func(provider, model string, lines, calls, unpriced, unknown int64, cost, wasted *big.Int) {
		err := batch.Append(c.tenant, c.period, provider, model, c.from, c.to, c.zone, c.booked, c.at, c.by, lines, calls, unpriced, unknown, cost, wasted)
		if failed == nil {
			failed = err
		}
		c.cost.Add(c.cost, cost)
	}
	add("", "", 0, 0, 0, 0, new(big.Int), new(big.Int))
	err = a.ask(ctx, &own, "close_frozen.sql", q, func(get func(string) any) {
		n := func(name string) int64 { return get(name).(int64) }
		add(get("provider").(string), get("model").(string), n("lines"), n("calls"), n("unpriced"), n("unknown"), get("cost").(*big.Int), get("wasted").(*big.Int))
	})
	if err = errors.Join(err, failed); err != nil {
		return err
	}
	if err := batch.Send(); err != nil {
		return fmt.Errorf("insert close: %w", err)
	}
	return nil
}

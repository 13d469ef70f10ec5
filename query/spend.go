package query

import (
	"context"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"time"
)

// intervals are the buckets that begin where people expect: hours of the day,
// days, weeks from Monday and months of the zone. %s are an instant and the zone, quoted.
var intervals = []struct{ name, sql string }{
	{"15m", "toStartOfInterval(%s, INTERVAL 15 MINUTE, %s)"},
	{"30m", "toStartOfInterval(%s, INTERVAL 30 MINUTE, %s)"},
	{"1h", "toStartOfInterval(%s, INTERVAL 1 HOUR, %s)"},
	{"2h", "toStartOfInterval(%s, INTERVAL 2 HOUR, %s)"},
	{"3h", "toStartOfInterval(%s, INTERVAL 3 HOUR, %s)"},
	{"4h", "toStartOfInterval(%s, INTERVAL 4 HOUR, %s)"},
	{"6h", "toStartOfInterval(%s, INTERVAL 6 HOUR, %s)"},
	{"12h", "toStartOfInterval(%s, INTERVAL 12 HOUR, %s)"},
	{"1d", "toStartOfDay(%s, %s)"},
	{"1w", "toDateTime(toMonday(%s, %s), %[2]s)"},
	{"1mo", "toDateTime(toStartOfMonth(%s, %s), %[2]s)"},
}

// bucket reads interval and is the start of the one that an SQL expression lies in, 1970 without.
func (r *request) bucket(at string) (sql string, err error) {
	v, ok := r.GetQuery("interval")
	if !ok {
		return "toDateTime(0, 'UTC')", nil
	}
	names := make([]string, len(intervals))
	for i, in := range intervals {
		if in.name == v {
			zone := "'" + quoteZone(r.zone) + "'"
			return "toDateTime(" + fmt.Sprintf(in.sql, at, zone) + ", 'UTC')", nil
		}
		names[i] = in.name
	}
	return "", badRequest("interval %q: want one of %s", v, strings.Join(names, ", "))
}

// quoteZone is a zone's name inside of quotes.
func quoteZone(zone *time.Location) string {
	return strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(zone.String())
}

// spend answers what was spent, from the rollup.
func (a *API) spend(ctx context.Context, r *request) (any, error) {
	groups, err := r.groups(dimensions, "tenant")
	if err != nil {
		return nil, err
	}
	at, err := r.bucket("s.at")
	if err != nil {
		return nil, err
	}
	r.quarters()
	if err := a.rollup(ctx, r); err != nil {
		return nil, err
	}
	q := r.then()
	q.vars["Groups"], q.vars["At"], q.vars["Filter"] = groups, at, q.filter(r, dimensions)
	q.rangeArgs(r)
	fx, err := a.currency(ctx, r, q)
	if err != nil {
		return nil, err
	}
	r.tagged = r.closed(time.Now())
	fx.apply(q)
	q.paging(r, r.limit)
	_, timed := r.GetQuery("interval")
	out := []row{}
	total := row{"calls": int64(0), "cost_usd": "0", "unpriced_calls": int64(0), "unknown_calls": int64(0), "estimated_calls": int64(0), "sampled_calls": int64(0), "complete": true}
	if fx.currency != "" {
		total["cost"] = "0"
	}
	all := uint64(0)
	err = a.ask(ctx, r, "spend.sql", q, func(get func(string) any) {
		m := row{"calls": get("calls"), "cost_usd": usd(get("cost").(*big.Int)), "unpriced_calls": get("unpriced"), "unknown_calls": get("unknown"), "estimated_calls": get("estimated"), "sampled_calls": get("sampled"), "tokens": tokens(get)}
		for _, g := range groups {
			m[g] = get(g)
		}
		if timed {
			m["at"] = get("at").(time.Time).In(r.zone).Format(time.RFC3339)
		}
		if fx.currency != "" {
			m["cost"], m["currency"] = usd(get("converted")), fx.currency
		}
		out = append(out, m)
		all = get("all_rows").(uint64)
		unpriced, unknown, sampled := get("all_unpriced").(int64), get("all_unknown").(int64), get("all_sampled").(int64)
		total = row{"calls": get("all_calls"), "cost_usd": usd(get("all_cost")), "unpriced_calls": unpriced, "unknown_calls": unknown, "estimated_calls": get("all_estimated"), "sampled_calls": sampled,
			"complete": unpriced == 0 && unknown == 0 && sampled == 0}
		if fx.currency != "" {
			total["cost"] = usd(get("all_converted"))
		}
	})
	if err != nil {
		return nil, err
	}
	if r.csv {
		r.columns = slices.Clone(groups)
		if timed {
			r.columns = append(r.columns, "at")
		}
		if fx.currency != "" {
			r.columns = append(r.columns, "cost", "currency")
		}
		r.columns = append(append(r.columns, "calls", "cost_usd", "unpriced_calls", "unknown_calls", "estimated_calls", "sampled_calls"), tokenColumns()...)
	}
	more := all > uint64(r.offset+len(out))
	answer := r.answer(row{"rows": out, "total": total, "truncated": more, "next": r.next(len(out), more)})
	fx.say(r, answer, fxRounding)
	return answer, nil
}

// rangeArgs binds the time for the rollups.
func (q *question) rangeArgs(r *request) {
	q.bind("from", "DateTime('UTC')", r.from.UTC().Format(clickhouseSeconds))
	q.bind("to", "DateTime('UTC')", r.to.UTC().Format(clickhouseSeconds))
}

// known says in an answer when what it tells was known.
func (r *request) known(m row) {
	m["as_of"] = time.Now().UTC().Format(time.RFC3339)
	if r.asOf != (asOf{}) {
		m["as_of"] = r.asOf.String()
	}
}

// answer adds what an answer was made of: the time it covers, which may be a
// little more than was asked for, and the zone its days begin in.
func (r *request) answer(m row) row {
	m["from"], m["to"], m["timezone"] = r.from.In(r.zone).Format(time.RFC3339Nano), r.to.In(r.zone).Format(time.RFC3339Nano), r.zone.String()
	r.known(m)
	return m
}

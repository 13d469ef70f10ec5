package query

import (
	"context"
	"strconv"

	"github.com/flyball/flyball/schema"
)

// coverage answers what is not known: by model what has no price or no usage,
// and for all lines which flags they carry.
func (a *API) coverage(ctx context.Context, r *request) (any, error) {
	r.quarters()
	q := r.question()
	q.vars["Filter"] = q.filter(r, dimensions)
	q.rangeArgs(r)
	q.bind("limit", "UInt32", strconv.Itoa(r.limit))
	out, flags := []row{}, row{}
	all := uint64(0)
	total := row{"model_attempts": int64(0), "unpriced": int64(0), "unknown": int64(0), "estimated": int64(0), "assumed_basis": int64(0), "sampled": int64(0), "late": int64(0)}
	err := a.ask(ctx, r, "coverage.sql", q, func(get func(string) any) {
		out = append(out, row{"provider": get("provider"), "model": get("model"), "calls": get("calls"), "unpriced": get("unpriced"), "unknown": get("unknown"), "estimated": get("estimated"), "assumed_basis": get("assumed"), "sampled": get("sampled"), "cost_usd": usd(get("cost"))})
		all = get("all_rows").(uint64)
		for name, column := range map[string]string{"model_attempts": "all_calls", "unpriced": "all_unpriced", "unknown": "all_unknown", "estimated": "all_estimated", "assumed_basis": "all_assumed", "sampled": "all_sampled"} {
			total[name] = get(column)
		}
	})
	if err != nil {
		return nil, err
	}
	err = a.ask(ctx, r, "coverage_flags.sql", q, func(get func(string) any) {
		bit := get("bit").(uint64)
		if bit >= uint64(len(schema.FlagNames)) {
			return // of a newer binary
		}
		name := schema.FlagNames[bit]
		flags[name] = get("lines")
		if schema.Flags(1)<<bit == schema.FlagLate {
			total["late"] = get("lines")
		}
	})
	if err != nil {
		return nil, err
	}
	// What is quarantined has no tenant that could be trusted.
	if a.o.Quarantined != nil && r.all {
		total["quarantined"] = a.o.Quarantined()
	}
	return r.answer(row{"rows": out, "flags": flags, "total": total, "truncated": all > uint64(len(out))}), nil
}

package query

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/flyball/flyball/schema"
)

// coverage answers what is not known: by model what has no price or no usage,
// for all lines which flags they carry, and what is wrong in how spans come in.
func (a *API) coverage(ctx context.Context, r *request) (any, error) {
	r.quarters()
	if r.asOf != (asOf{}) { // flags and findings are of entries
		if err := a.journalHas(ctx, r, "this answer is made of entries; begin later, or ask without as_of"); err != nil {
			return nil, err
		}
	}
	q := r.then()
	q.vars["Filter"] = q.filter(r, dimensions)
	q.rangeArgs(r)
	q.paging(r, r.limit)
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
	// What is quarantined has no tenant that could be trusted, and no past.
	if a.o.Quarantined != nil && r.all && r.asOf == (asOf{}) {
		total["quarantined"] = a.o.Quarantined()
	}
	findings, err := a.splitTraces(ctx, r)
	if err != nil {
		return nil, err
	}
	r.columns = []string{"provider", "model", "calls", "unpriced", "unknown", "estimated", "assumed_basis", "sampled", "cost_usd"}
	more := all > uint64(r.offset+len(out))
	return r.answer(row{"rows": out, "flags": flags, "total": total, "findings": findings, "truncated": more, "next": r.next(len(out), more)}), nil
}

// splitWithin is how far back from the end of the time split traces are looked for: each of
// its lines is read.
const splitWithin = 31 * 24 * time.Hour

// splitTraces finds traces whose spans came under two tenants that an attribute
// decided about. Spans whose tenant the key decides are where they belong.
func (a *API) splitTraces(ctx context.Context, r *request) ([]row, error) {
	out := []row{}
	if !r.all && len(r.tenants) < 2 {
		return out, nil
	}
	lately := *r
	if earliest := r.to.Add(-splitWithin); earliest.After(r.from) {
		lately.from = earliest
	}
	q := lately.then()
	q.rangeArgs(&lately)
	err := a.ask(ctx, &lately, "coverage_split.sql", q, func(get func(string) any) {
		one, other, traces, example := get("one").(string), get("other").(string), get("traces").(uint64), get("example").(string)
		if !a.mayName(one, other) {
			return
		}
		out = append(out, row{"finding": "trace_split_over_tenants", "tenants": []string{one, other}, "traces": traces, "trace_id": example,
			"text": fmt.Sprintf("Spans of one trace came under tenant %q and under tenant %q, so that its spend and its run are split (traces: %d, for example %s). "+
				"Set an attribute that attributes.tenant maps (tenant.id unless configured) on the resource of every service of the trace, or have a span processor, such as the Collector's transform processor, copy it to every span.", one, other, traces, example)})
	})
	return out, err
}

// mayName reports whether one sender may send for both tenants, by an attribute:
// without keys everybody, else who has an ingest key that leaves the tenant to its sender.
func (a *API) mayName(one, other string) bool {
	var ring *schema.Keyring
	if a.o.Keys != nil {
		ring = a.o.Keys()
	}
	return ring.Len() == 0 || slices.ContainsFunc(ring.Keys(), func(k schema.Key) bool {
		return k.Role == schema.KeyIngest && k.NamesTenants() && k.Allows(one) && k.Allows(other)
	})
}

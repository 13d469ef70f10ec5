package trace

import (
	"bytes"

	"github.com/flyball/flyball/schema"
)

// priceFlags are the flags of a posting that pricing decides.
const priceFlags = schema.FlagProviderFallback | schema.FlagModelFamily | schema.FlagTierUnknown | schema.FlagCacheRateMissing | schema.FlagUnitsUnpriced

// Reprice prices a trace again, with the prices of now, calls f for each line
// that changes and posts the changes unless dry. What is remembered is evaluated
// as a whole, unless the caller says that it was. Of the other lines of net, the
// trace's net lines in the journal, only the money is worked out again: nothing
// else about them can change. The journal must have all that was posted for those.
func (a *Assembler) Reprice(tenant string, id schema.TraceID, net []schema.Entry, evaluated, dry bool, now int64, f func(c *schema.Call, old, now *schema.Posting)) (res Result, remembered bool, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.now = now
	t, err := a.open(tenant, id, now, false)
	if err != nil {
		return res, false, err
	}
	if t == nil {
		return a.repriceForgotten(net, nil, dry, now, f)
	}
	if !evaluated {
		if err := a.preview(t, f); err != nil {
			return res, true, err
		}
		if !dry {
			a.touched = a.touched[:0]
			for i := range t.lines {
				a.queue(t, int32(i))
			}
			if err := a.flush(now, &res); err != nil {
				return res, true, err
			}
		}
	}
	more, _, err := a.repriceForgotten(net, t, dry, now, f)
	more.Entries += res.Entries
	return more, true, err
}

// preview calls f for the lines of a trace that evaluating it again changes.
func (a *Assembler) preview(t *trace, f func(c *schema.Call, old, now *schema.Posting)) error {
	a.quiet = true // evaluating here queues nothing and joins nothing
	defer func() { a.quiet = false }()
	a.s.reset(t)
	for i := range t.lines {
		l := &t.lines[i]
		var c schema.Call
		var old, next schema.Posting
		if err := schema.DecodeCall(l.call, &c); err != nil {
			return err
		}
		if err := schema.DecodePosting(l.post, &old, &c); err != nil {
			return err
		}
		a.evaluate(t, int32(i), &c, &next)
		if !bytes.Equal(schema.AppendPosting(nil, &next, &c), l.post) {
			f(&c, &old, &next)
		}
	}
	return nil
}

// repriceForgotten works out the money of the lines that are not in t.
func (a *Assembler) repriceForgotten(net []schema.Entry, t *trace, dry bool, now int64, f func(c *schema.Call, old, now *schema.Posting)) (res Result, remembered bool, err error) {
	at := a.stamp(now)
	a.batch.Reset(at)
	for i := range net {
		e := &net[i]
		a.forget.Entry(e)
		if e.Posting.Status == schema.CostNone || e.Posting.Aggregate || e.Posting.DuplicateOf != "" || e.Source == schema.SourceAdjustment || t != nil && t.find(e.Span, e.Part) >= 0 {
			continue
		}
		c, old := e.Call, e.Posting
		flags := priceFlags
		if c.HasReported { // else the dialect set it
			flags |= schema.FlagReportedImplausible
		}
		old.Flags = c.Flags & flags
		c.Flags &^= flags
		next := old
		next.Flags, next.Estimate, next.HasEstimate, next.Wasted = 0, 0, false, 0
		usage := schema.UsageKnown
		if old.Status == schema.CostUnknown {
			usage = schema.UsageUnknown
		}
		if c.Flags&schema.FlagResidual != 0 {
			a.o.Price.Price(&c, &next.Tokens, usage, next.Kind, &next)
		} else {
			a.bill(answered(&c, net), usage, &next)
			if c.Part == 0 {
				waste(c.Failure, &next)
			}
		}
		if next == old {
			continue
		}
		f(&c, &old, &next)
		call := schema.AppendCall(nil, &c)
		a.batch.Add(-1, e.Version, 0, call, schema.AppendPosting(nil, &old, &c))
		a.batch.Add(1, e.Version+1, 0, call, schema.AppendPosting(nil, &next, &c))
	}
	if dry || a.batch.Len() == 0 {
		return res, false, nil
	}
	if err := a.appendForgotten(at); err != nil {
		return res, false, err
	}
	res.Entries, res.End = a.batch.Len(), a.end
	return res, false, nil
}

// answered gives a call the units and the tier of the raw answer recorded below
// it: a line with usage that stands for nothing itself.
func answered(c *schema.Call, net []schema.Entry) *schema.Call {
	for i := range net {
		o := &net[i]
		if o.Parent != c.Span || o.Part != 0 || c.Part != 0 || o.Usage != schema.UsageKnown || o.Posting.Status != schema.CostNone || o.Posting.Aggregate || o.Posting.DuplicateOf != "" {
			continue
		}
		r := *c
		if o.Units != (schema.Units{}) {
			r.Units = o.Units
		}
		if r.ServiceTier == "" {
			r.ServiceTier = o.ServiceTier
		}
		return &r
	}
	return c
}

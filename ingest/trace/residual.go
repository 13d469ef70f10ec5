package trace

import "github.com/flyball/flyball/schema"

// residual makes sure that an aggregate which sums up its subtree, and whose
// leaves have had time to come, has a line for what it knows beyond them.
func (a *Assembler) residual(t *trace, i int32, c *schema.Call, now int64) {
	l := &t.lines[i]
	if l.part != 0 || l.role&schema.RoleCoversSubtree == 0 || l.role&schema.RoleCumulative != 0 || l.usage != schema.UsageKnown {
		return
	}
	k := t.find(l.span, 1)
	if k < 0 {
		if !l.settled || l.all == 0 || !t.beyond(i) {
			return
		}
		r := new(schema.Call)
		*r = *c
		r.Part, r.Units = 1, schema.Units{}
		r.Flags |= schema.FlagResidual | schema.FlagCacheUnknown
		t.lines = append(t.lines, line{span: r.Span, parent: r.Parent, part: 1, up: i, first: -1, sib: -1, received: now / 1e6, settled: true})
		k = int32(len(t.lines) - 1)
		t.lines[k].cur = r
		t.parts++
		a.fresh = append(a.fresh, lineRef{t, k})
		a.describe(&t.lines[k], r)
		t.lines[k].part, t.lines[k].usage = 1, schema.UsageKnown
	}
	a.queue(t, k)
}

// beyond reports whether an aggregate's whole input and output exceed its leaves'.
func (t *trace) beyond(i int32) bool {
	in, out := t.leaves(t.lines[i].first)
	return uint64(t.lines[i].in) > in || uint64(t.lines[i].out) > out
}

// leaves sums the reported input and output of the calls that count in a subtree.
func (t *trace) leaves(k int32) (in, out uint64) {
	for ; k >= 0; k = t.lines[k].sib {
		l := &t.lines[k]
		if (l.state == stateLeaf || l.state == statePromoted || l.state == stateElsewhere) && l.usage == schema.UsageKnown {
			in, out = in+uint64(l.in), out+uint64(l.out)
			if l.state == statePromoted {
				continue
			}
		}
		a, b := t.leaves(l.first)
		in, out = in+a, out+b
	}
	return in, out
}

// evaluateResidual prices what the aggregate knows beyond its leaves, on whole
// input and output, since an aggregate's cache split is not theirs.
func (a *Assembler) evaluateResidual(t *trace, i int32, c *schema.Call, p *schema.Posting) lineState {
	up := t.find(t.lines[i].span, 0)
	if up < 0 || t.lines[up].state == statePromoted {
		p.Aggregate = true
		return stateAggregate
	}
	in, out := t.leaves(t.lines[up].first)
	rest := schema.Tokens{}
	if n := uint64(t.lines[up].in); n > in {
		rest.Input = n - in
	}
	if n := uint64(t.lines[up].out); n > out {
		rest.Output = n - out
	}
	if rest == (schema.Tokens{}) {
		p.Aggregate = true
		return stateAggregate
	}
	p.Tokens = rest
	p.Flags |= schema.FlagResidual
	a.o.Price.Price(c, &rest, schema.UsageKnown, p.Kind, p)
	return stateNone
}

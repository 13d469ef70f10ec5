package trace

import (
	"time"

	"github.com/flyball/flyball/schema"
)

// joinWithin is how far apart a client's and a gateway's record of one call may start.
const joinWithin = int64(10 * time.Minute)

// maxJoins bounds the index over response ids; the oldest are forgotten.
const maxJoins = 200_000

// joinIndex finds the same provider answer in two traces.
type joinIndex struct {
	byID  map[uint64][2]joinRef
	order []uint64
	head  int
}

type joinRef struct {
	key   traceKey
	span  schema.SpanID
	shape uint64
	start int64
	end   int64
	gate  bool
	hit   bool // the gateway answered from its cache
}

func (x *joinIndex) init() { x.byID = map[uint64][2]joinRef{} }

func (x *joinIndex) add(id uint64, r joinRef) {
	pair, known := x.byID[id]
	for i := range pair {
		if pair[i].key == r.key && pair[i].span == r.span || pair[i].start == 0 {
			pair[i] = r
			x.byID[id] = pair
			break
		}
	}
	if known {
		return
	}
	x.order = append(x.order, id)
	if len(x.order)-x.head > maxJoins {
		delete(x.byID, x.order[x.head])
		x.head++
		if x.head > maxJoins {
			x.order = append(x.order[:0], x.order[x.head:]...)
			x.head = 0
		}
	}
}

// joined looks for the client's line of a call that a gateway recorded in a trace
// of its own. The client's line stays, since it has the run and the user; the
// gateway's becomes a duplicate of it. Both must agree on response id, provider,
// model and usage and overlap in time.
func (a *Assembler) joined(t *trace, i int32, c *schema.Call) string {
	l := &t.lines[i]
	if c.ResponseID == "" || l.shape == 0 {
		return ""
	}
	id, me := a.joinRef(t, i, c)
	if !a.quiet {
		a.joins.add(id, me)
	}
	for _, o := range a.joins.byID[id] {
		if o.start == 0 || o.key == t.key || o.shape != me.shape || o.start > me.end || me.start > o.end || abs(o.start-me.start) > joinWithin {
			continue
		}
		if inner(&me, &o) {
			if me.hit && !a.quiet {
				a.queueJoined(&o) // it costs nothing either
			}
			return o.key.id.String() + "/" + o.span.String()
		}
		if a.quiet {
			continue
		}
		a.queueJoined(&o)
	}
	return ""
}

// queueJoined has the other record of a call evaluated again, if it counts.
func (a *Assembler) queueJoined(o *joinRef) {
	if other, err := a.open(o.key.tenant, o.key.id, a.now, false); err == nil && other != nil {
		if k := other.find(o.span, 0); k >= 0 && other.lines[k].state == stateLeaf {
			a.queue(other, k)
		}
	}
}

// fromCache reports whether a trusted gateway's record of a client's call, in a
// trace of its own, says that it answered from its cache. It has to lie within the
// client's: the call whose answer was kept has the same response id.
func (a *Assembler) fromCache(t *trace, i int32, c *schema.Call) bool {
	if c.ResponseID == "" || t.lines[i].shape == 0 {
		return false
	}
	id, me := a.joinRef(t, i, c)
	for _, o := range a.joins.byID[id] {
		if o.hit && o.key != t.key && o.shape == me.shape && inner(&o, &me) && me.start <= o.start && o.end <= me.end {
			return true
		}
	}
	return false
}

// joinRef is how the index knows a line. All counts and the tier must agree, so
// that a line cannot be replaced by a cheaper reading of it.
func (a *Assembler) joinRef(t *trace, i int32, c *schema.Call) (uint64, joinRef) {
	l := &t.lines[i]
	shape := mix(l.shape, hash2(c.ServiceTier, c.Model))
	for _, n := range c.Tokens.Fields() {
		shape = mix(shape, *n)
	}
	return mix(l.response, hash2(t.key.tenant, c.Provider)), joinRef{t.key, l.span, shape | 1, l.start, l.end, l.role&schema.RoleTrustedGateway != 0, c.Flags&schema.FlagCacheHit != 0}
}

// forgetJoin takes a line that does not count any more out of the index, so that
// no other line yields to it.
func (a *Assembler) forgetJoin(t *trace, i int32, c *schema.Call) {
	if a.quiet || c.ResponseID == "" {
		return
	}
	id, me := a.joinRef(t, i, c)
	pair, ok := a.joins.byID[id]
	for k := range pair {
		if ok && pair[k].key == me.key && pair[k].span == me.span {
			pair[k] = joinRef{}
			a.joins.byID[id] = pair
		}
	}
}

// inner reports whether x is the gateway's record and y the client's. It is a
// strict order, so that of two records exactly one stays.
func inner(x, y *joinRef) bool {
	switch {
	case x.gate != y.gate:
		return x.gate
	case x.start != y.start: // the client's span encloses the gateway's
		return x.start > y.start
	case x.end != y.end:
		return x.end < y.end
	case x.key.id != y.key.id:
		return string(x.key.id[:]) > string(y.key.id[:])
	}
	return string(x.span[:]) > string(y.span[:])
}

func abs(n int64) int64 {
	if n < 0 {
		return -n
	}
	return n
}

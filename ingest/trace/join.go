package trace

import (
	"encoding/hex"
	"strings"
	"time"

	"github.com/flyball/flyball/schema"
)

// joinWithin is how far apart a client's and a gateway's record of one call may start.
const joinWithin = int64(10 * time.Minute)

// maxJoins bounds the index over response ids; the oldest are forgotten.
const (
	joinBlock = 4096
	maxJoins  = 49 * joinBlock
)

// joinIndex finds the same provider answer in two traces. It is a ring without pointers,
// which the garbage collector need not read.
type joinIndex struct {
	byID  map[uint64]uint32 // number of the answer
	all   [][]answer        // blocks of joinBlock, so that it grows without a copy
	n     uint32            // how many there are
	next  uint32            // the oldest, once there are maxJoins
	never [2]joinRef
}

// answer is what is known of one response id: up to two lines that have it.
type answer struct {
	id   uint64
	refs [2]joinRef // unused ones have no start
}

// joinRef is a line of another trace, of the same tenant: its name is in the id and in
// the shape, 128 bits that nobody can choose.
type joinRef struct {
	trace schema.TraceID
	span  schema.SpanID
	shape uint64
	start int64
	end   int64
	gate  bool
	hit   bool // the gateway answered from its cache
}

func (x *joinIndex) init() { x.byID = map[uint64]uint32{} }

// of returns the lines that have an id. The caller may change them if there are any.
func (x *joinIndex) of(id uint64) *[2]joinRef {
	if n, ok := x.byID[id]; ok {
		return &x.at(n).refs
	}
	return &x.never
}

func (x *joinIndex) at(n uint32) *answer { return &x.all[n/joinBlock][n%joinBlock] }

// add notes that a line has an id. Of more lines than there is room for the innermost goes,
// which is returned if it was known before: what stays may be what it is another record of.
func (x *joinIndex) add(id uint64, r joinRef) (gone joinRef) {
	n, known := x.byID[id]
	if !known {
		if n = x.n; n < maxJoins {
			if n%joinBlock == 0 {
				x.all = append(x.all, make([]answer, joinBlock))
			}
			x.n++
		} else {
			n = x.next
			x.next = (x.next + 1) % maxJoins
			delete(x.byID, x.at(n).id)
		}
		*x.at(n) = answer{id: id}
		x.byID[id] = n
	}
	refs := &x.at(n).refs
	for i := range refs {
		if o := &refs[i]; o.trace == r.trace && o.span == r.span || o.start == 0 {
			*o = r
			return gone
		}
	}
	innermost := &refs[0]
	if inner(&refs[1], innermost) {
		innermost = &refs[1]
	}
	if inner(innermost, &r) {
		gone, *innermost = *innermost, r
	}
	return gone
}

// joinable reports whether a line of another trace may be a record of the same answer: one with an
// id, whose usage is known, or known by nobody.
func (l *line) joinable(c *schema.Call) bool {
	return c.ResponseID != "" && (l.shape != 0 || l.usage == schema.UsageUnknown)
}

// joined looks for the client's line of a call that a gateway recorded in a trace
// of its own. The client's line stays, since it has the run and the user; the
// gateway's becomes a duplicate of it. Both must agree on response id, provider,
// model and usage and overlap in time.
func (a *Assembler) joined(t *trace, i int32, c *schema.Call) string {
	l := &t.lines[i]
	if !l.joinable(c) {
		return ""
	}
	id, me := a.joinRef(t, i, c)
	if !a.quiet {
		if gone := a.joins.add(id, me); gone.start != 0 {
			a.queueJoined(t.key.tenant, &gone, stateLeaf)
		}
	}
	for _, o := range *a.joins.of(id) { // a copy: a trace that is opened adds its own
		if o.start == 0 || o.trace == t.key.id || o.shape != me.shape || o.start > me.end || me.start > o.end || abs(o.start-me.start) > joinWithin {
			continue
		}
		if inner(&me, &o) {
			if me.hit && !a.quiet {
				a.queueJoined(t.key.tenant, &o, stateLeaf) // it costs nothing either
			}
			return o.trace.String() + "/" + o.span.String()
		}
		if a.quiet {
			continue
		}
		a.queueJoined(t.key.tenant, &o, stateLeaf)
	}
	return ""
}

// serve notes what has become of a line that another trace's counts instead of, or did until
// now. All else in the trace then belongs to the run of that trace: it is a gateway's, which
// tried more than once for the client's call.
func (a *Assembler) serve(t *trace, i int32, l *line, p *schema.Posting) {
	before := t.client
	a.serves(t, i, l.client(), elsewhere(p))
	if t.client == before {
		return
	}
	for j := max(0, len(t.lines)-maxRekey); j < len(t.lines); j++ {
		a.queue(t, int32(j))
	}
	a.queueLinkers(t, true, 0)
}

// serves finds the one trace that t serves, where line i was a duplicate in one trace and is
// in another, or in none.
func (a *Assembler) serves(t *trace, i int32, was, is schema.TraceID) {
	if is == t.key.id {
		is = schema.TraceID{}
	}
	if was == is {
		return
	}
	if was != (schema.TraceID{}) { // what the others say
		t.client, t.clients = schema.TraceID{}, false
		for j := range t.lines {
			if int32(j) != i {
				t.serve(t.lines[j].client())
			}
		}
	}
	if is != (schema.TraceID{}) {
		t.serve(is)
		a.links.add(traceKey{t.key.tenant, is}, t.key.id)
	}
}

func (t *trace) serve(client schema.TraceID) {
	switch {
	case t.clients || client == t.client || client == (schema.TraceID{}):
	case t.client == (schema.TraceID{}):
		t.client = client
	default:
		t.client, t.clients = schema.TraceID{}, true
	}
}

// client is the trace whose line counts instead of this one; zero where there is none.
func (l *line) client() schema.TraceID {
	var c schema.Call
	var p schema.Posting
	if l.state != stateElsewhere || schema.DecodeCall(l.call, &c) != nil || schema.DecodePosting(l.post, &p, &c) != nil {
		return schema.TraceID{}
	}
	return elsewhere(&p)
}

// elsewhere is the trace of which a line is a duplicate; zero where it is none.
func elsewhere(p *schema.Posting) (id schema.TraceID) {
	name, _, ok := strings.Cut(p.DuplicateOf, "/")
	if !ok || len(name) != 2*len(id) {
		return id
	}
	if _, err := hex.Decode(id[:], []byte(name)); err != nil {
		return schema.TraceID{}
	}
	return id
}

// queueJoined has the other record of a call evaluated again, if it is in the state.
func (a *Assembler) queueJoined(tenant string, o *joinRef, state lineState) {
	if other, err := a.open(tenant, o.trace, a.now, false); err == nil && other != nil {
		if k := other.find(o.span, 0); k >= 0 && other.lines[k].state == state {
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
	for _, o := range a.joins.of(id) {
		if o.hit && o.trace != t.key.id && o.shape == me.shape && inner(&o, &me) && me.start <= o.start && o.end <= me.end {
			return true
		}
	}
	return false
}

// joinRef makes what the index knows of a line. All counts and the tier must agree, so
// that a line cannot be replaced by a cheaper reading of it.
func (a *Assembler) joinRef(t *trace, i int32, c *schema.Call) (uint64, joinRef) {
	l := &t.lines[i]
	owner := hash2(t.key.tenant, c.Provider)
	shape := mix(mix(l.shape, hash2(c.ServiceTier, c.Model)), owner)
	for _, n := range c.Tokens.Fields() {
		shape = mix(shape, *n)
	}
	return mix(l.response, owner), joinRef{t.key.id, l.span, shape | 1, l.start, l.end, l.role&schema.RoleTrustedGateway != 0, c.Flags&schema.FlagCacheHit != 0}
}

// rememberJoin puts a line that was posted before back into the index, or takes it out if
// it does not count any more.
func (a *Assembler) rememberJoin(t *trace, i int32, c *schema.Call) {
	switch l := &t.lines[i]; {
	case !l.joinable(c):
	case l.state == stateLeaf || l.state == stateElsewhere:
		id, me := a.joinRef(t, i, c)
		a.joins.add(id, me)
	default:
		a.unjoin(t, i, c)
	}
}

// forgetJoin takes a line that does not count any more out of the index, so that
// no other line yields to it.
func (a *Assembler) forgetJoin(t *trace, i int32, c *schema.Call) {
	if a.quiet || c.ResponseID == "" {
		return
	}
	if o := a.unjoin(t, i, c); o.start != 0 { // it may have yielded to this one
		a.queueJoined(t.key.tenant, &o, stateElsewhere)
	}
}

// unjoin takes a line out of the index and returns what else has its id.
func (a *Assembler) unjoin(t *trace, i int32, c *schema.Call) (other joinRef) {
	id, me := a.joinRef(t, i, c)
	refs := a.joins.of(id)
	for k := range refs {
		if refs[k].trace == me.trace && refs[k].span == me.span {
			refs[k] = joinRef{}
			return refs[1-k]
		}
	}
	return joinRef{}
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
	case x.trace != y.trace:
		return string(x.trace[:]) > string(y.trace[:])
	}
	return string(x.span[:]) > string(y.span[:])
}

func abs(n int64) int64 {
	if n < 0 {
		return -n
	}
	return n
}

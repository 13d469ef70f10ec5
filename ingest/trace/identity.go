package trace

import (
	"slices"

	"github.com/flyball/flyball/schema"
)

// identity works out for whom a line was made: its own attributes, the nearest
// ancestor's, then what the trace agrees on.
func (a *Assembler) identity(t *trace, i int32, c *schema.Call, id *schema.Identity) {
	*id = c.Identity
	weak := t.lines[i].role&schema.RoleWeakVersion != 0
	operator := t.lines[i].role&schema.RoleRunFromOperator != 0
	if weak {
		id[schema.WorkflowVersion] = ""
	}
	missing := uint16(0)
	for d := range id {
		if id[d] == "" || schema.Dim(d) == schema.Run && !operator {
			missing |= 1 << d
		}
	}
	dialectRun := id[schema.Run]
	for j := t.lines[i].up; j >= 0 && missing != 0; j = t.lines[j].up {
		o := &t.lines[j]
		if o.dims&missing == 0 {
			continue
		}
		up := a.ownIdentity(t, j)
		if up == nil {
			continue
		}
		for d := range schema.NumDims {
			bit := uint16(1) << d
			if missing&bit == 0 || up[d] == "" {
				continue
			}
			switch {
			case d == schema.Run && o.role&schema.RoleRunFromOperator == 0:
				if dialectRun == "" {
					dialectRun = up[d]
				}
				continue
			case d == schema.WorkflowVersion && o.role&schema.RoleWeakVersion != 0:
				continue
			}
			id[d] = up[d]
			missing &^= bit
		}
	}
	for d := range schema.NumDims {
		if missing&(1<<d) != 0 && t.level[d] != "" {
			id[d] = t.level[d]
			missing &^= 1 << d
		}
	}
	if missing != 0 && t.client != (schema.TraceID{}) {
		if client, err := a.open(t.key.tenant, t.client, a.now, false); err == nil && client != nil {
			for d := range schema.NumDims {
				if missing&(1<<d) != 0 && client.level[d] != "" {
					id[d] = client.level[d]
					missing &^= 1 << d
				}
			}
		}
	}
	if missing&(1<<schema.WorkflowVersion) != 0 && weak {
		id[schema.WorkflowVersion] = c.Identity[schema.WorkflowVersion]
	}
	if missing&(1<<schema.Run) != 0 {
		id[schema.Run] = dialectRun
		if dialectRun == "" {
			id[schema.Run] = a.runOfTrace(t)
		}
	}
	// Only a trusted sender makes a call critical, and not by what it says of others.
	if id[schema.Criticality] == "critical" && t.lines[i].role&schema.RoleTrustedGateway == 0 {
		id[schema.Criticality] = "standard"
	}
	if id[schema.Criticality] == "" {
		id[schema.Criticality] = "standard"
	}
	if id[schema.Mode] == "" {
		id[schema.Mode] = "interactive"
	}
}

// runOfTrace is the run of a trace without a run attribute: that of the trace which its
// root's link points to, or whose call it serves, whose own may be that of another, else the
// trace itself.
func (a *Assembler) runOfTrace(t *trace) string {
	at := t
	for range maxLinks {
		next := at.client
		if root := a.rootCall(at); root != nil {
			if at != t && root.Identity[schema.Run] != "" {
				return root.Identity[schema.Run]
			}
			if root.Link != (schema.TraceID{}) {
				next = root.Link
			}
		}
		if next == (schema.TraceID{}) {
			break
		}
		to, err := a.open(t.key.tenant, next, a.now, false)
		if err != nil || to == nil || to == t {
			return next.String()
		}
		if run := to.level[schema.Run]; run != "" {
			return run
		}
		at = to
	}
	return at.id()
}

// maxLinks is over how many traces a run is looked for, and given on.
const maxLinks = 16

// rootCall is the call of a trace's root, nil where there is none. It is valid until the
// next call is decoded.
func (a *Assembler) rootCall(t *trace) *schema.Call {
	if t.root < 0 {
		return nil
	}
	r := &t.lines[t.root]
	if r.cur != nil {
		return r.cur
	}
	if schema.DecodeCall(r.call, &a.s.other) != nil {
		return nil
	}
	return &a.s.other
}

// linkIndex knows which traces link to a trace, so that they follow its run when that comes
// or changes. The oldest are forgotten.
type linkIndex struct {
	of   map[traceKey][]schema.TraceID
	ring []traceKey
	at   int
}

// maxLinkers is how many links are remembered, linkersEach how many to one trace.
const (
	maxLinkers  = 50_000
	linkersEach = 1000
)

func (x *linkIndex) add(target traceKey, from schema.TraceID) {
	list := x.of[target]
	if len(list) == linkersEach || slices.Contains(list, from) {
		return
	}
	if x.of == nil {
		x.of = map[traceKey][]schema.TraceID{}
	}
	if len(x.ring) < maxLinkers {
		x.ring = append(x.ring, target)
	} else {
		old := x.ring[x.at]
		if x.of[old] = x.of[old][1:]; len(x.of[old]) == 0 {
			delete(x.of, old)
		}
		x.ring[x.at] = target
		x.at = (x.at + 1) % maxLinkers
	}
	x.of[target] = append(x.of[target], from)
}

// queueLinkers has the traces that link to t follow its run, or those alone that serve it
// follow whatever else is known of it.
func (a *Assembler) queueLinkers(t *trace, run bool, depth int) {
	if a.quiet || depth == maxLinks {
		return
	}
	for _, id := range a.links.of[t.key] {
		o, err := a.open(t.key.tenant, id, a.now, false)
		if err != nil || o == nil || o == t || !run && o.client != t.key.id {
			continue
		}
		for j := max(0, len(o.lines)-maxRekey); j < len(o.lines); j++ {
			if !run || o.lines[j].role&schema.RoleRunFromOperator == 0 {
				a.queue(o, int32(j))
			}
		}
		if run {
			a.queueLinkers(o, run, depth+1)
		}
	}
}

func (t *trace) id() string {
	if t.hex == "" {
		t.hex = t.key.id.String()
	}
	return t.hex
}

// ownIdentity is the identity that a line's own call has, decoded once a pass.
func (a *Assembler) ownIdentity(t *trace, j int32) *schema.Identity {
	l := &t.lines[j]
	if l.cur != nil {
		return &l.cur.Identity
	}
	if id := a.s.ids[j]; id != nil {
		return id
	}
	if schema.DecodeCall(l.call, &a.s.other) != nil {
		return nil
	}
	id := new(schema.Identity)
	*id = a.s.other.Identity
	a.s.ids[j] = id
	return id
}

package trace

import (
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

// runOfTrace is the run of a trace without a run attribute: the one its root's
// links point to, else the trace itself.
func (a *Assembler) runOfTrace(t *trace) string {
	if t.root >= 0 {
		r := &t.lines[t.root]
		c := r.cur
		if c == nil {
			if schema.DecodeCall(r.call, &a.s.other) != nil {
				return t.id()
			}
			c = &a.s.other
		}
		if c.Link != (schema.TraceID{}) {
			link := c.Link
			if linked, err := a.open(t.key.tenant, link, a.now, false); err == nil && linked != nil && linked.level[schema.Run] != "" {
				return linked.level[schema.Run]
			}
			return link.String()
		}
	}
	return t.id()
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

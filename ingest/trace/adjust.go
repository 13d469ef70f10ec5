package trace

import "github.com/flyball/flyball/schema"

// Adjust posts a line that a person decided about. No span has or will have its ids,
// so that nothing of it is remembered: the journal has it, as of a trace that was
// forgotten.
func (a *Assembler) Adjust(c *schema.Call, p *schema.Posting, now int64) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.forget.Call(c)
	a.forget.Rename(c.Tenant, &p.Identity[schema.User])
	at := a.stamp(now)
	a.batch.Reset(at)
	a.batch.Add(1, 1, now/1_000_000, schema.AppendCall(nil, c), schema.AppendPosting(nil, p, c))
	return a.appendForgotten(at)
}

package trace

import (
	"slices"
	"time"

	"github.com/flyball/flyball/schema"
)

// evaluate decides everything about one line and fills p, which is zero. It
// reads the trace and changes nothing but what only it writes (attempt, of).
func (a *Assembler) evaluate(t *trace, i int32, c *schema.Call, p *schema.Posting) lineState {
	l := &t.lines[i]
	a.identity(t, i, c, &p.Identity)
	if t.client != (schema.TraceID{}) && t.level[schema.Run] == "" && c.Identity[schema.Run] == "" && p.Identity[schema.Run] != t.id() {
		p.Flags |= schema.FlagGatewayTrace
	}
	p.Kind = c.Kind
	p.Attempt = 1
	l.attempt = 1
	if l.received*1e6-l.end > int64(a.o.Lateness) {
		p.Flags |= schema.FlagLate
	}
	if l.part > 0 {
		return a.evaluatePart(t, i, c, p)
	}
	switch {
	case l.role&schema.RoleNotCounted != 0, l.refused():
		return stateNone
	case l.role&schema.RoleRefinesParent != 0:
		return a.evaluateAnswer(t, i, c, p)
	case l.role&schema.RoleAggregate != 0:
		return a.evaluateAggregate(t, i, c, p)
	case l.kind.ModelLike():
		return a.evaluateModel(t, i, c, p)
	case l.kind == schema.KindTool:
		if dup := t.outerTool(i); dup >= 0 {
			return a.duplicate(t, i, dup, p)
		}
		return a.tool(t, i, c, p)
	case l.role&schema.RoleClient != 0:
		return a.evaluateClient(t, i, c, p)
	case c.Delivery > 1 && (l.role&schema.RoleServer != 0 || l.role&schema.RoleRoot != 0):
		// The queue brought the whole run again: one retry, its calls are ordinary.
		p.Attempt, p.Layer, p.Cause, p.Retries = c.Delivery, schema.LayerQueue, schema.UnknownFailure, 1
	}
	return stateNone
}

// refused reports whether a guard did not let the call through: nobody was asked, so that it
// is no call, neither in a figure nor for another guard.
func (l *line) refused() bool {
	return l.failure == schema.Budget && l.usage != schema.UsageKnown && l.callable()
}

// evaluatePart prices a further inference of an answer, which counts as no call.
func (a *Assembler) evaluatePart(t *trace, i int32, c *schema.Call, p *schema.Posting) lineState {
	if c.Flags&schema.FlagResidual != 0 {
		return a.evaluateResidual(t, i, c, p)
	}
	up := t.find(t.lines[i].span, 0)
	for up >= 0 && t.lines[up].role&schema.RoleRefinesParent != 0 && t.lines[up].state == stateNone {
		up = t.lines[up].up // the parts of a raw answer belong to the call it refines
	}
	if up < 0 || t.lines[up].state != stateLeaf && t.lines[up].state != statePromoted {
		p.Aggregate = true
		return stateAggregate
	}
	a.money(t, i, c, p, c.Usage)
	return stateNone
}

// evaluateModel decides about a span that may be a model call: the deepest of
// nested ones wins.
func (a *Assembler) evaluateModel(t *trace, i int32, c *schema.Call, p *schema.Posting) lineState {
	l := &t.lines[i]
	repeats := l.repeats() || t.answers(i) > 1
	if l.kind != schema.KindModel {
		repeats = l.modelAll > 0 && t.sameKindBelow(i, l.usage == schema.UsageKnown)
	}
	if repeats {
		a.forgetJoin(t, i, c)
		p.Aggregate = true
		return stateAggregate
	}
	if l.usage != schema.UsageKnown {
		// The call's counts are on an outer model span: this is one of its attempts.
		for j, crossed := l.up, false; j >= 0 && !crossed; j = t.lines[j].up {
			o := &t.lines[j]
			if o.kind.ModelLike() && o.role&schema.RoleAggregate == 0 && o.usage == schema.UsageKnown && o.near == 0 {
				return a.duplicate(t, i, j, p)
			}
			crossed = o.kind == schema.KindTool
		}
	}
	dup, twin, covered := t.sameAnswer(i)
	if covered { // by what is below the other record of it
		a.forgetJoin(t, i, c)
		p.Aggregate = true
		return stateAggregate
	}
	if dup >= 0 {
		a.forgetJoin(t, i, c)
		if twin {
			p.Flags |= schema.FlagTwin
		}
		return a.duplicate(t, i, dup, p)
	}
	if end := t.streamEnd(i); end >= 0 {
		return a.duplicate(t, i, end, p)
	}
	if dup := a.joined(t, i, c); dup != "" {
		p.DuplicateOf = dup
		return stateElsewhere
	}
	a.attempt(t, i, c, p)
	p.Hidden, p.HiddenCause = t.hidden(i, c)
	if t.hasTwins {
		t.hiddenElsewhere(i, p)
	}
	usage := l.usage
	if usage != schema.UsageKnown {
		for j := l.up; j >= 0; j = t.lines[j].up {
			if t.lines[j].state == statePromoted {
				usage = schema.UsageNone
				p.Flags |= schema.FlagCovered
				break
			}
		}
	}
	if a.fromCache(t, i, c) {
		usage = schema.UsageNone
		p.Flags |= schema.FlagCacheHit
	}
	a.money(t, i, c, p, usage)
	a.count(p, &p.ModelCalls, 1)
	waste(t.lines[t.outcome(i)].failure, p)
	return stateLeaf
}

// repeats reports whether what a model span tells is told by those below it.
func (l *line) repeats() bool {
	return l.near > 0 || l.usage != schema.UsageKnown && l.modelNear > 0
}

// hiddenElsewhere adds what another record of the answer tells of attempts.
func (t *trace) hiddenElsewhere(i int32, p *schema.Posting) {
	l := &t.lines[i]
	lo, hi := t.near(i)
	for j := lo; j < hi; j++ {
		if o := &t.lines[j]; j != i && uint32(o.hidden) > p.Hidden && o.callable() && l.sameRecord(o) {
			p.Hidden, p.HiddenCause = uint32(o.hidden), o.hiddenCause
			if p.HiddenCause == schema.NoFailure {
				p.HiddenCause = schema.UnknownFailure
			}
		}
	}
}

// sameKindBelow reports whether a call of the same kind, with usage or any, is nested in
// one that is no text model: an SDK's outer and inner embedding span.
func (t *trace) sameKindBelow(i int32, usage bool) bool {
	kind := t.lines[i].kind
	var look func(k int32) bool
	look = func(k int32) bool {
		for ; k >= 0; k = t.lines[k].sib {
			o := &t.lines[k]
			if o.kind == kind && o.role&schema.RoleAggregate == 0 && (o.usage == schema.UsageKnown || !usage) || o.kind != schema.KindTool && look(o.first) {
				return true
			}
		}
		return false
	}
	return look(t.lines[i].first)
}

// evaluateAnswer decides about a provider's raw answer recorded under a call. It
// is evidence for that call; where its parent is no model call, or holds the last
// of several answers only, the answer is the call.
func (a *Assembler) evaluateAnswer(t *trace, i int32, c *schema.Call, p *schema.Posting) lineState {
	l := &t.lines[i]
	if l.usage != schema.UsageKnown || c.Model == "" {
		return stateNone
	}
	if l.up < 0 && l.parent != (schema.SpanID{}) && !l.settled {
		p.Flags |= schema.FlagPending
		return statePending
	}
	if l.up >= 0 && t.lines[l.up].kind.ModelLike() && t.answers(l.up) == 1 {
		return stateNone
	}
	p.Kind = schema.KindModel
	a.money(t, i, c, p, schema.UsageKnown)
	a.count(p, &p.ModelCalls, 1)
	waste(l.failure, p)
	return stateLeaf
}

// answers is the number of raw answers directly below a line.
func (t *trace) answers(i int32) (n int) {
	for k := t.lines[i].first; k >= 0; k = t.lines[k].sib {
		if o := &t.lines[k]; o.role&schema.RoleRefinesParent != 0 && o.usage == schema.UsageKnown {
			n++
		}
	}
	return n
}

// evaluateAggregate decides about a span whose usage repeats what is below it.
func (a *Assembler) evaluateAggregate(t *trace, i int32, c *schema.Call, p *schema.Posting) lineState {
	l := &t.lines[i]
	if l.usage != schema.UsageKnown {
		return stateNone
	}
	if l.all == 0 && l.promoted == 0 && l.settled {
		p.Flags |= schema.FlagPromoted
		a.money(t, i, c, p, schema.UsageKnown)
		calls := uint32(1)
		if c.Turns > 0 {
			calls = c.Turns
		}
		calls -= min(calls, uint32(max(0, l.modelAll)))
		p.ModelCalls = calls
		waste(l.failure, p)
		return statePromoted
	}
	p.Aggregate = true
	return stateAggregate
}

// evaluateClient decides about a client span to a database, HTTP, RPC or queue.
func (a *Assembler) evaluateClient(t *trace, i int32, c *schema.Call, p *schema.Posting) lineState {
	l := &t.lines[i]
	complete := false
	for j := i; ; j = t.lines[j].up {
		o := &t.lines[j]
		if j != i && (o.kind == schema.KindTool || o.kind.ModelLike() && o.role&schema.RoleAggregate == 0 || o.role&schema.RoleClient != 0) {
			return stateNone // an attempt, or plumbing of a call that counts
		}
		if o.up < 0 {
			complete = o.parent == (schema.SpanID{})
			break
		}
	}
	if !complete && !l.settled {
		p.Flags |= schema.FlagPending
		return statePending
	}
	if !complete {
		p.Flags |= schema.FlagOrphan
	}
	if l.role&schema.RoleModelHost == 0 {
		p.Kind = schema.KindTool
		return a.tool(t, i, c, p)
	}
	// A bare HTTP call to a model host is a model call of unknown usage.
	p.Kind = schema.KindModel
	usage := schema.UsageUnknown
	switch c.Failure {
	case schema.RateLimited, schema.Overloaded, schema.ServerError, schema.ClientError, schema.Budget:
		usage = schema.UsageNone
	}
	a.attempt(t, i, c, p)
	p.Hidden, p.HiddenCause = t.hidden(i, c)
	a.money(t, i, c, p, usage)
	a.count(p, &p.ModelCalls, 1)
	return stateLeaf
}

// tool counts a tool call.
func (a *Assembler) tool(t *trace, i int32, c *schema.Call, p *schema.Posting) lineState {
	l := &t.lines[i]
	a.attempt(t, i, c, p)
	p.Hidden, p.HiddenCause = t.hidden(i, c)
	if l.args != 0 && p.Attempt == 1 {
		lo, hi := t.near(i)
		for j := lo; j < hi; j++ {
			o := &t.lines[j]
			if j != i && o.args == l.args && o.target == l.target && o.callable() && before(o, l) && !t.above(i, j) && !t.above(j, i) {
				p.Repeats = 1
				break
			}
		}
	}
	a.count(p, &p.ToolCalls, 1)
	return stateTool
}

// count books an attempt under exactly one measure.
func (a *Assembler) count(p *schema.Posting, logical *uint32, n uint32) {
	switch {
	case p.Hedge:
		p.Hedges = n
	case p.Fallback:
		p.Fallbacks = n
	case p.Attempt > 1:
		p.Retries = n
	default:
		*logical = n
	}
}

// waste marks the cost of an attempt that was not used.
func waste(f schema.Failure, p *schema.Posting) {
	if (f != schema.NoFailure && f != schema.Refused || p.Hedge) && p.Billed() {
		p.Wasted = p.Cost
	}
}

// money sets the billed tokens, by the best evidence of the whole trace, and
// prices them.
func (a *Assembler) money(t *trace, i int32, c *schema.Call, p *schema.Posting, usage schema.Usage) {
	l := &t.lines[i]
	if c.Flags&schema.FlagCacheHit != 0 {
		usage = schema.UsageNone // its counts are of the answer that was kept, and were billed then
	}
	if usage == schema.UsageKnown {
		p.Tokens = c.Tokens
		assumed := c.Flags&schema.FlagBasisAssumed != 0
		if refined := a.refined(t, i, c, p); refined != nil {
			c, assumed = refined, false
		}
		if assumed {
			cached := c.Tokens.CacheRead + c.Tokens.CacheWrite5m + c.Tokens.CacheWrite1h
			whole := p.Tokens
			whole.Input += cached
			for _, s := range t.proofs {
				if s == l.scope {
					p.Tokens = whole
					p.Flags |= schema.FlagBasisInferred
					assumed = false
				}
			}
			if assumed && c.HasReported {
				var one, other schema.Posting
				a.o.Price.Price(c, &p.Tokens, usage, p.Kind, &one)
				a.o.Price.Price(c, &whole, usage, p.Kind, &other)
				if one.Billed() && !within2(one.Cost, c.ReportedCost) && within2(other.Cost, c.ReportedCost) {
					p.Tokens = whole
					p.Flags |= schema.FlagBasisInferred
				}
			}
		}
	}
	a.bill(c, usage, p)
}

// bill prices the billed tokens and sets what the emitter says they cost beside it.
func (a *Assembler) bill(c *schema.Call, usage schema.Usage, p *schema.Posting) {
	a.o.Price.Price(c, &p.Tokens, usage, p.Kind, p)
	if c.HasReported {
		switch {
		case !p.Billed() && usage != schema.UsageNone:
			p.Estimate, p.HasEstimate = c.ReportedCost, true
		case p.Cost > 0 && (c.ReportedCost/100 > p.Cost || p.Cost/100 > c.ReportedCost):
			p.Flags |= schema.FlagReportedImplausible
		}
	}
}

// within2 reports whether two amounts differ by at most two percent.
func within2(a, b schema.Money) bool {
	d := a - b
	if d < 0 {
		d = -d
	}
	return d <= max(a, b)/50
}

// refined replaces the tokens by those of a raw child, a provider's own answer
// recorded under the call, and returns the call with the answer's units and tier.
func (a *Assembler) refined(t *trace, i int32, c *schema.Call, p *schema.Posting) *schema.Call {
	for k := t.lines[i].first; k >= 0; k = t.lines[k].sib {
		o := &t.lines[k]
		if o.role&schema.RoleRefinesParent == 0 || o.usage != schema.UsageKnown {
			continue
		}
		oc := o.cur
		if oc == nil {
			if schema.DecodeCall(o.call, &a.s.other) != nil {
				continue
			}
			oc = &a.s.other
		}
		p.Tokens = oc.Tokens
		a.s.refined = *c
		if oc.Units != (schema.Units{}) {
			a.s.refined.Units = oc.Units
		}
		if a.s.refined.ServiceTier == "" {
			a.s.refined.ServiceTier = oc.ServiceTier
		}
		return &a.s.refined
	}
	return nil
}

// duplicate marks line i as another form of line of.
func (a *Assembler) duplicate(t *trace, i, of int32, p *schema.Posting) lineState {
	p.DuplicateOf = t.key.id.String() + "/" + t.lines[of].span.String()
	t.lines[i].of = of
	return stateDuplicate
}

// outerTool finds the tool span above that is the same use of the same tool:
// execute_tool over an MCP client over an MCP server is one call.
func (t *trace) outerTool(i int32) int32 {
	l := &t.lines[i]
	for j := l.up; j >= 0; j = t.lines[j].up {
		o := &t.lines[j]
		other := l.response != 0 && o.response != 0 && o.response != l.response // another use of the tool, by an agent that has it too
		if o.kind == schema.KindTool && o.role&schema.RoleNotCounted == 0 && !other && (o.target == l.target || l.response != 0 && o.response == l.response) {
			return j
		}
		if o.kind.ModelLike() || o.kind == schema.KindAgent {
			break
		}
	}
	// The same call id, or arguments at one time, under two instrumentations.
	if l.response != 0 || l.args != 0 {
		lo, hi := t.near(i)
		for j := lo; j < hi; j++ {
			o := &t.lines[j]
			if o.kind != schema.KindTool || o.role&schema.RoleNotCounted != 0 || o.scope == l.scope || !before(o, l) {
				continue
			}
			byID := l.response != 0 && o.response == l.response
			byArgs := l.args != 0 && o.args == l.args && o.target == l.target && o.parent == l.parent && (l.response == 0 || o.response == 0) && l.within(o)
			if byID || byArgs {
				return j
			}
		}
	}
	return -1
}

// within reports whether one of two lines lies in the time of the other.
func (l *line) within(o *line) bool {
	return l.start <= o.start && o.end <= l.end || o.start <= l.start && l.end <= o.end
}

// sameAnswer finds the line that counts instead of l: another record with the same
// response id, or an overlapping twin of another instrumentation with the same
// model and counts below the same parent, or with none where both failed. Lines above or below l are not meant. It is
// covered if another record of it has calls below that count instead of both.
func (t *trace) sameAnswer(i int32) (dup int32, twin, covered bool) {
	l := &t.lines[i]
	if l.response == 0 && l.shape == 0 && !l.failed() { // nothing to know it by
		return -1, false, false
	}
	best, twins := i, false
	lo, hi := t.near(i)
	for j := lo; j < hi; j++ {
		o := &t.lines[j]
		if j == i || !o.kind.ModelLike() || !o.callable() {
			continue
		}
		if !l.sdk && o.sdk && t.cousins(i, j) {
			return j, true, false
		}
		same := l.sameRecord(o)
		shaped := !same && o.scope != l.scope && l.twin(o) && l.meets(o)
		if !same && !shaped || t.above(i, j) || t.above(j, i) {
			continue
		}
		if o.repeats() {
			if t.recordBelow(i, o.first) {
				continue // that and l are compared
			}
			return -1, false, true
		}
		if shaped {
			twins = true
		} else if t.better(j, best) {
			best = j
		}
	}
	if best == i && twins {
		best, twin = t.bestTwin(i), true
	}
	if best == i {
		return -1, false, false
	}
	return best, twin, false
}

// twin reports whether two lines may be records of one call, or of calls that look the same:
// equal counts of one model below one parent, or none and a failure.
func (l *line) twin(o *line) bool {
	if o.kind != l.kind || o.parent != l.parent || l.response != 0 && o.response != 0 && o.response != l.response {
		return false
	}
	if l.shape != 0 || o.shape != 0 {
		return l.shape == o.shape
	}
	return l.failed() && o.failed() && o.target == l.target
}

// cousins reports whether i is a framework's record, without a response id, of the call that the
// provider's SDK recorded as j: inside its time, but below what is above both, since the SDK does not
// know the framework's span. That the framework's is the one that yields keeps calls that look the same apart.
func (t *trace) cousins(i, j int32) bool {
	l, o := &t.lines[i], &t.lines[j]
	return l.response == 0 && l.looksLike(o) && o.up >= 0 && l.start <= o.start+cousinSlack && o.end <= l.end+cousinSlack && t.above(i, o.up)
}

// cousinSlack is how far the clocks of two records may be apart.
const cousinSlack = int64(5 * time.Millisecond)

// looksLike reports whether two lines, one of them of a provider's SDK, tell the same of a call: counts in
// sum, since one may tell fewer kinds of them apart, or a failure.
func (l *line) looksLike(o *line) bool {
	if l.sdk == o.sdk || l.kind != o.kind {
		return false
	}
	if l.usage == schema.UsageKnown || o.usage == schema.UsageKnown {
		return l.usage == o.usage && l.in == o.in && l.out == o.out && l.in+l.out > 0
	}
	return l.failed() && o.failed()
}

// akin reports whether of two lines what one is may decide what the other is.
func (l *line) akin(o *line) bool {
	return l.response != 0 && o.response == l.response || l.shape != 0 && o.shape == l.shape ||
		l.scope != o.scope && l.failed() && o.failed() && o.parent == l.parent && l.within(o) || l.looksLike(o)
}

// failed reports whether a line tells of a failure and of no usage.
func (l *line) failed() bool {
	return l.failure != schema.NoFailure && l.usage != schema.UsageKnown
}

// meets reports whether twins overlap; failures, which tell less, have to lie within each other.
func (l *line) meets(o *line) bool {
	if l.shape == 0 {
		return l.within(o)
	}
	return o.start < l.end && l.start < o.end
}

// bestTwin is the record that counts of those that two or more instrumentations made of the
// call of line i. Calls that look the same are told apart by their order: each is one record of
// each instrumentation, the first of one with the first of the other.
func (t *trace) bestTwin(i int32) int32 {
	order := t.twins(i)
	slices.SortFunc(order, func(x, y int32) int {
		if before(&t.lines[x], &t.lines[y]) {
			return -1
		}
		return 1
	})
	// Only those matter that meet others which, one after the other, meet this one.
	begin, end, ends := 0, len(order), int64(0)
	for k, j := range order {
		o := &t.lines[j]
		if o.start > ends {
			if t.lines[i].start < o.start {
				end = k
				break
			}
			begin = k
		}
		ends = max(ends, o.end)
	}
	var calls [][]int32 // records of each
	for _, j := range order[begin:end] {
		o := &t.lines[j]
		k := slices.IndexFunc(calls, func(records []int32) bool {
			return !slices.ContainsFunc(records, func(r int32) bool {
				x := &t.lines[r]
				return x.scope == o.scope || !x.twin(o)
			}) && t.lines[records[0]].meets(o)
		})
		if k < 0 {
			k = len(calls)
			calls = append(calls, nil)
		}
		calls[k] = append(calls[k], j)
	}
	best := i
	for _, records := range calls {
		if slices.Contains(records, i) {
			for _, j := range records {
				if t.better(j, best) {
					best = j
				}
			}
		}
	}
	return best
}

// twins are the lines that look like line i, itself among them.
func (t *trace) twins(i int32) (out []int32) {
	lo, hi := t.near(i)
	for j := lo; j < hi; j++ {
		if o := &t.lines[j]; j == i || o.kind.ModelLike() && o.callable() && t.lines[i].twin(o) {
			out = append(out, j)
		}
	}
	return out
}

// recordBelow reports whether a line with the response id of line i is below others, behind no tool.
func (t *trace) recordBelow(i, k int32) bool {
	for ; k >= 0; k = t.lines[k].sib {
		o := &t.lines[k]
		if k == i || o.kind == schema.KindTool {
			continue
		}
		if o.kind.ModelLike() && o.callable() && !o.repeats() && t.lines[i].sameRecord(o) || t.recordBelow(i, o.first) {
			return true
		}
	}
	return false
}

// eventSlack is how far from a call the event may lie that tells of it.
const eventSlack = int64(time.Second)

// sameRecord reports whether two lines with one response id tell of one answer. Servers that
// number their answers, or give all the same id, use an id again: then the two are apart in
// time, or one emitter says two different things of them.
func (l *line) sameRecord(o *line) bool {
	if l.response == 0 || o.response != l.response {
		return false
	}
	if (l.role|o.role)&schema.RoleStreamEnd != 0 { // which comes after it
		return true
	}
	slack := int64(0)
	if l.start == l.end || o.start == o.end {
		slack = eventSlack
	}
	if o.start >= l.end+slack || l.start >= o.end+slack {
		return false
	}
	return o.scope != l.scope || o.shape == l.shape || o.usage != schema.UsageKnown || l.usage != schema.UsageKnown
}

// streamEnd finds the record that tells what came of the stream that l opened, -1 for none.
// Nothing in the two says that they belong together, so of the streams of one emitter below one
// parent the first that was opened has the first end; one that was not heard of again keeps
// what it has, which is a call of unknown usage.
func (t *trace) streamEnd(i int32) int32 {
	l := &t.lines[i]
	if !t.streamEnds || l.usage != schema.UsageUnknown || l.failure != schema.NoFailure || l.response != 0 || l.role&schema.RoleStreamEnd != 0 {
		return -1
	}
	rank := 0
	ends := make([]int32, 0, 16)
	lo, hi := t.near(i)
	for j := lo; j < hi; j++ {
		o := &t.lines[j]
		if j == i || o.kind != l.kind || o.part != 0 || o.scope != l.scope || o.target != l.target || o.parent != l.parent {
			continue
		}
		switch {
		case o.role&schema.RoleStreamEnd != 0:
			if o.start >= l.end {
				ends = append(ends, j)
			}
		case o.usage == schema.UsageUnknown && o.failure == schema.NoFailure && o.response == 0 && before(o, l):
			rank++
		}
	}
	// Ends before this stream was opened are of streams before it.
	for j := lo; j < hi && rank > 0; j++ {
		o := &t.lines[j]
		if o.role&schema.RoleStreamEnd != 0 && o.kind == l.kind && o.scope == l.scope && o.target == l.target && o.parent == l.parent && o.start < l.end {
			rank--
		}
	}
	if rank >= len(ends) {
		return -1
	}
	slices.SortFunc(ends, func(x, y int32) int {
		if before(&t.lines[x], &t.lines[y]) {
			return -1
		}
		return 1
	})
	return ends[rank]
}

// above reports whether j is an ancestor of i.
func (t *trace) above(i, j int32) bool {
	for k := t.lines[i].up; k >= 0; k = t.lines[k].up {
		if k == j {
			return true
		}
	}
	return false
}

// better orders forms of one call: a trusted gateway's record, known usage, a known parent, more detail,
// then the earlier start and the smaller id, so that arrival does not matter.
func (t *trace) better(j, i int32) bool {
	x, y := &t.lines[j], &t.lines[i]
	if (x.role^y.role)&schema.RoleTrustedGateway != 0 {
		return x.role&schema.RoleTrustedGateway != 0
	}
	if (x.usage == schema.UsageKnown) != (y.usage == schema.UsageKnown) {
		return x.usage == schema.UsageKnown
	}
	if x.in+x.out != y.in+y.out {
		return x.in+x.out > y.in+y.out
	}
	if x.detail != y.detail {
		return x.detail > y.detail
	}
	if (x.response != 0) != (y.response != 0) { // by which a gateway's record of it is known
		return x.response != 0
	}
	if (x.up >= 0) != (y.up >= 0) {
		return x.up >= 0
	}
	if (x.failure == schema.UnknownFailure) != (y.failure == schema.UnknownFailure) {
		return y.failure == schema.UnknownFailure
	}
	return before(x, y)
}

// before is the order of calls: by start, then by id.
func before(x, y *line) bool {
	if x.start != y.start {
		return x.start < y.start
	}
	return string(x.span[:]) < string(y.span[:])
}

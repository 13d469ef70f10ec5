package trace

import (
	"hash/maphash"
	"slices"

	"github.com/flyball/flyball/schema"
)

// link places a new line in the tree: below its parent if that is known, above
// the lines that waited for it.
func (a *Assembler) link(t *trace, i int32, c *schema.Call, now int64) {
	l := &t.lines[i]
	if l.part == 0 {
		if t.index == nil && len(t.lines) > few {
			t.index = make(map[schema.SpanID]int32, 2*few)
			t.waiting = map[schema.SpanID][]int32{}
			for j := range t.lines {
				lj := &t.lines[j]
				if lj.part == 0 {
					t.index[lj.span] = int32(j)
				}
				if lj.up < 0 && lj.parent != (schema.SpanID{}) && int32(j) != i {
					t.waiting[lj.parent] = append(t.waiting[lj.parent], int32(j))
				}
			}
		} else if t.index != nil {
			t.index[l.span] = i
		}
	}
	if l.role&schema.RoleRoot != 0 && (t.root < 0 || before(l, &t.lines[t.root])) && l.part == 0 {
		first := t.root < 0
		t.root = i
		if !first { // the word of another is final no more
			a.agreeAgain(t, i)
		}
	}
	if l.failure != schema.NoFailure {
		t.failures++
	}
	t.streamEnds = t.streamEnds || l.role&schema.RoleStreamEnd != 0
	// Children that waited.
	if l.part == 0 {
		if t.index != nil {
			for _, k := range t.waiting[l.span] {
				a.attach(t, k, i)
				a.queueTwins(t, k)
			}
			delete(t.waiting, l.span)
		} else {
			for k := range t.lines {
				if lk := &t.lines[k]; lk.up < 0 && lk.parent == l.span && int32(k) != i {
					a.attach(t, int32(k), i)
					a.queueTwins(t, int32(k))
				}
			}
		}
	}
	switch {
	case l.part > 0:
		l.up = t.find(l.span, 0)
		t.parts++
	case l.parent != (schema.SpanID{}):
		a.place(t, i)
	}
	a.spread(t, i, c)
}

// place puts a line below its parent, or lets it wait for it.
func (a *Assembler) place(t *trace, i int32) {
	l := &t.lines[i]
	if up := t.find(l.parent, 0); up >= 0 && up != i {
		a.attach(t, i, up)
	} else if t.waiting != nil {
		t.waiting[l.parent] = append(t.waiting[l.parent], i)
	}
}

// detach takes a line with its subtree out of the tree, as if it had no parent.
func (a *Assembler) detach(t *trace, i int32) {
	l := &t.lines[i]
	if l.part > 0 {
		return
	}
	if l.up < 0 {
		if w := t.waiting[l.parent]; len(w) > 0 {
			t.waiting[l.parent] = slices.DeleteFunc(w, func(k int32) bool { return k == i })
		}
		return
	}
	a.addCounts(t, l.up, l, -1)
	for k := &t.lines[l.up].first; *k >= 0; k = &t.lines[*k].sib {
		if *k == i {
			*k = l.sib
			break
		}
	}
	l.up, l.sib = -1, -1
}

// maxDepth bounds the tree, so that a chain of a hundred thousand nested spans
// cannot make each step as long; what is deeper is treated as an orphan.
const maxDepth = 1000

// attach puts line k below line up and brings its whole subtree up to date. A
// cycle of parents, which only a broken sender makes, is cut.
func (a *Assembler) attach(t *trace, k, up int32) {
	depth := 0
	for j := up; j >= 0; j = t.lines[j].up {
		if depth++; j == k || depth > maxDepth {
			return
		}
	}
	lk := &t.lines[k]
	h := lk.height + 1
	if h > maxDepth {
		return
	}
	lk.up = up
	for j := up; j >= 0 && t.lines[j].height < h; j = t.lines[j].up {
		t.lines[j].height = h
		h++
	}
	lk.sib = t.lines[up].first
	t.lines[up].first = k
	a.addCounts(t, up, lk, 1)
	a.queueTree(t, k)
	for j := up; j >= 0 && t.failures > 0; j = t.lines[j].up { // of which attempts below it are hidden ones
		if o := &t.lines[j]; o.kind.ModelLike() || o.kind == schema.KindTool {
			a.queue(t, j)
			break
		}
	}
	if t.failures > 0 && (lk.modelAll > 0 || lk.kind.ModelLike()) && (t.lines[up].passed() || lk.passed()) { // what is tried again beyond it may be found now
		lo, hi := t.near(k)
		for j := lo; j < hi; j++ {
			if t.lines[j].kind.ModelLike() {
				a.queue(t, j)
			}
		}
	}
}

// self is what a line itself adds to the counters above it.
func (l *line) self() (leaf, model int32) {
	if l.part == 0 && l.kind.ModelLike() && l.role&schema.RoleAggregate == 0 {
		model = 1
		if l.usage == schema.UsageKnown {
			leaf = 1
		}
	}
	return leaf, model
}

// addCounts tells line up and its ancestors about the whole subtree of l, or with
// sign -1 takes it back. Only calls of a text model suppress a model span above
// them: an embedding below a chat is another call.
func (a *Assembler) addCounts(t *trace, up int32, l *line, sign int32) {
	leaf, model := l.self()
	near, modelNear := l.near, l.modelNear
	if l.kind == schema.KindModel {
		near, modelNear = near+leaf, modelNear+model
	}
	a.bump(t, up, sign*(leaf+l.all), sign*(model+l.modelAll), sign*near, sign*modelNear, l.kind == schema.KindTool)
	n := l.promoted
	if l.state == statePromoted {
		n++
	}
	for j := up; j >= 0 && n > 0; j = t.lines[j].up {
		t.lines[j].promoted += sign * n
		a.queue(t, j)
	}
}

// bump adds to the counters of line j and its ancestors and queues those whose
// decision may change. near stops at a tool: what a tool's own agent used is no
// repetition of the model call that asked for the tool.
func (a *Assembler) bump(t *trace, j, leaf, model, near, modelNear int32, crossed bool) {
	if leaf == 0 && model == 0 {
		return
	}
	if crossed {
		near, modelNear = 0, 0
	}
	for ; j >= 0; j = t.lines[j].up {
		l := &t.lines[j]
		l.all += leaf
		l.modelAll += model
		l.near += near
		l.modelNear += modelNear
		if l.kind.ModelLike() || l.role&schema.RoleAggregate != 0 && l.usage == schema.UsageKnown {
			a.queue(t, j)
		}
		if l.kind == schema.KindTool {
			near, modelNear = 0, 0
		}
	}
}

// promotionChanged tells ancestors that an aggregate now stands, or no longer
// stands, for calls of its own, and descendants that their usage is covered.
func (a *Assembler) promotionChanged(t *trace, i int32, on bool) {
	d := int32(-1)
	if on {
		d = 1
	}
	for j := t.lines[i].up; j >= 0; j = t.lines[j].up {
		t.lines[j].promoted += d
		if t.lines[j].role&schema.RoleAggregate != 0 {
			a.queue(t, j)
		}
	}
	for k := t.lines[i].first; k >= 0; k = t.lines[k].sib {
		a.queueTree(t, k)
	}
}

// stateChanged queues what a line's new state decides: its parts, the attempts
// beside it, and what its promotion covers.
func (a *Assembler) stateChanged(t *trace, i int32, before, now lineState) {
	if (before == statePromoted) != (now == statePromoted) {
		a.promotionChanged(t, i, now == statePromoted)
	}
	l := &t.lines[i]
	if l.part > 0 {
		return
	}
	spends := func(s lineState) bool { return s == stateLeaf || s == statePromoted || s == stateElsewhere }
	if spends(before) != spends(now) {
		for j := l.up; j >= 0; j = t.lines[j].up { // whose residual is what lies beyond it
			if o := &t.lines[j]; o.role&schema.RoleCoversSubtree != 0 && o.usage == schema.UsageKnown {
				a.queue(t, j)
			}
		}
	}
	yields := func(s lineState) bool { return s == stateAggregate || s == stateDuplicate }
	if l.kind.ModelLike() && before != stateNew && yields(before) != yields(now) {
		if before == stateAggregate || now == stateAggregate {
			for k := l.first; k >= 0; k = t.lines[k].sib {
				a.queueTree(t, k)
			}
		}
		lo, hi := t.near(i)
		for j := lo; j < hi; j++ {
			if o := &t.lines[j]; j != i && o.callable() && l.akin(o) {
				a.queue(t, j)
			}
		}
	}
	counts := func(s lineState) bool { return s != stateDuplicate && s != stateElsewhere && s != stateAggregate }
	attempts := t.failures > 0 && counts(before) != counts(now) && l.callable()
	if t.parts == 0 && !attempts {
		return
	}
	lo, hi := t.near(i)
	for j := lo; j < hi; j++ {
		o := &t.lines[j]
		if o.part > 0 && o.span == l.span || attempts && j != i && o.part == 0 && t.sameStep(l, o) {
			a.queue(t, j)
		}
	}
}

// queueTwins queues the other records of a line that has found its parent, which may
// decide which of them counts.
func (a *Assembler) queueTwins(t *trace, k int32) {
	l := &t.lines[k]
	if !t.hasTwins || !l.callable() {
		return
	}
	lo, hi := t.near(k)
	for j := lo; j < hi; j++ {
		if o := &t.lines[j]; j != k && o.callable() && l.akin(o) {
			a.queue(t, j)
		}
	}
}

func (a *Assembler) queueTree(t *trace, i int32) {
	a.queue(t, i)
	for k := t.lines[i].first; k >= 0; k = t.lines[k].sib {
		a.queueTree(t, k)
	}
}

// agree takes what a line says into what the trace agrees on, and reports whether that changed.
// Two different words are none; that of the root is final.
func (t *trace) agree(i int32, id *schema.Identity) (changed bool) {
	role := t.lines[i].role
	for d := range schema.NumDims {
		v := id[d]
		if v == "" || d == schema.Agent || d == schema.Run && role&schema.RoleRunFromOperator == 0 || d == schema.WorkflowVersion && role&schema.RoleWeakVersion != 0 {
			continue
		}
		bit := uint32(1) << d
		switch {
		case i == t.root:
			changed = changed || t.level[d] != v
			t.level[d] = cloneString(v)
			t.ambiguous &^= bit
			t.ambiguous |= bit << 16
		case t.ambiguous&(bit<<16) != 0:
		case t.level[d] == "" && t.ambiguous&bit == 0:
			t.level[d] = cloneString(v)
			changed = true
		case t.level[d] != "" && t.level[d] != v:
			t.level[d] = ""
			t.ambiguous |= bit
			changed = true
		}
	}
	return changed
}

// agreeAgain makes what the trace agrees on from all lines but one, which is about to say it
// or to say something else. In a long trace what was said stands: a sender that does this with
// every span would have all of them read for each.
func (a *Assembler) agreeAgain(t *trace, but int32) {
	if len(t.lines) > 2*window {
		return
	}
	level := t.level
	t.level, t.ambiguous = schema.Identity{}, 0
	for j := range t.lines {
		l := &t.lines[j]
		switch {
		case int32(j) == but:
		case l.cur != nil:
			t.agree(int32(j), &l.cur.Identity)
		case schema.DecodeCall(l.call, &a.s.other) == nil:
			t.agree(int32(j), &a.s.other.Identity)
		}
	}
	if t.level != level {
		a.queueNames(t)
		a.queueLinkers(t, true, 0)
	}
}

// queueNames has the lines evaluated again that take names from the trace. A name that comes after
// thousands of calls is given to the newest of them: posting all again would be as large as the run.
func (a *Assembler) queueNames(t *trace) {
	for j := max(0, len(t.lines)-maxRekey); j < len(t.lines); j++ {
		if t.lines[j].dims&inherited != inherited {
			a.queue(t, int32(j))
		}
	}
}

// spread queues the other lines that a new or changed line may decide.
func (a *Assembler) spread(t *trace, i int32, c *schema.Call) {
	l := &t.lines[i]
	// The trace's own identity, for lines whose ancestors never come.
	run := t.level[schema.Run]
	changed := t.agree(i, &c.Identity)
	if i == t.root && c.Link != (schema.TraceID{}) {
		changed = true
		a.links.add(traceKey{t.key.tenant, c.Link}, t.key.id)
	}
	if ran := run != t.level[schema.Run] || i == t.root; ran || changed {
		a.queueLinkers(t, ran, 0)
	}
	if changed {
		a.queueNames(t)
	}
	if l.role&schema.RoleBasisProof != 0 && !slices.Contains(t.proofs, l.scope) {
		t.proofs = append(t.proofs, l.scope)
		for j := range t.lines {
			if t.lines[j].scope == l.scope {
				a.queue(t, int32(j))
			}
		}
	}
	if l.up >= 0 && l.role&schema.RoleRefinesParent != 0 {
		for k := t.lines[l.up].first; k >= 0; k = t.lines[k].sib {
			a.queue(t, k)
		}
	}
	if l.up >= 0 && (l.role&(schema.RoleRefinesParent|schema.RoleHTTP) != 0 || l.kind.ModelLike()) {
		for j := l.up; j >= 0; j = t.lines[j].up {
			if o := &t.lines[j]; o.kind.ModelLike() || o.kind == schema.KindTool || o.role&schema.RoleModelHost != 0 {
				a.queue(t, j)
				if t.lines[j].modelNear > 0 { // what counts is a record below it
					lo, hi := t.near(i)
					for k := lo; k < hi; k++ {
						if t.lines[k].kind.ModelLike() && t.above(k, j) {
							a.queue(t, k)
						}
					}
				}
				break
			}
		}
	}
	// Siblings whose attempt number may change, and twins.
	if l.callable() && (t.failures > 0 || t.streamEnds || l.args != 0 || l.response != 0 || l.shape != 0) {
		lo, hi := t.near(i)
		for j := lo; j < hi; j++ {
			o := &t.lines[j]
			if j == i || !o.callable() {
				continue
			}
			twin := l.akin(o)
			t.hasTwins = t.hasTwins || twin
			repeat := l.args != 0 && o.args == l.args && o.target == l.target
			later := t.failures > 0 && (o.start >= l.start || o.failure != schema.NoFailure && (t.client != (schema.TraceID{}) || t.clients)) && (o.parent == l.parent || l.kind.ModelLike())
			opened := t.streamEnds && o.kind == l.kind && o.parent == l.parent && o.usage == schema.UsageUnknown
			if twin || repeat || later || opened {
				a.queue(t, j)
			}
		}
	}
}

// window is how many lines before and after one, in order of arrival, are
// looked at for its siblings, twins and repetitions. It bounds the work in runs
// of a hundred thousand calls; retries and twins arrive next to each other.
const window = 512

func (t *trace) near(i int32) (lo, hi int32) {
	return max(0, i-window), min(int32(len(t.lines)), i+window)
}

// maxRekey is how many lines of a trace late identity is given to at once.
const maxRekey = 20_000

// inherited are the dimensions a line may get from elsewhere.
const inherited = 1<<schema.NumDims - 1

// callable lines may be attempts of a logical call.
func (l *line) callable() bool {
	return l.part == 0 && (l.kind.ModelLike() || l.kind == schema.KindTool || l.role&schema.RoleClient != 0) && l.role&schema.RoleAggregate == 0
}

var seed = maphash.MakeSeed()

// hash2 is only compared within this process.
func hash2(a, b string) uint64 {
	if a == "" && b == "" {
		return 0
	}
	return maphash.String(seed, a)*31 + maphash.String(seed, b)
}

func mix(h, n uint64) uint64 { return (h ^ n) * 0x9e3779b97f4a7c15 }

func cloneString(s string) string { return string(append([]byte(nil), s...)) }

package trace

import (
	"encoding/hex"
	"slices"
	"strings"
	"time"

	"github.com/flyball/flyball/schema"
)

// retryWithin is how soon after a failure another try may start and be a retry.
const retryWithin = int64(120 * time.Second)

// attempt finds out which attempt of which logical call a line is. Order is by
// start, not by arrival.
func (a *Assembler) attempt(t *trace, i int32, c *schema.Call, p *schema.Posting) {
	l := &t.lines[i]
	if l.args != 0 {
		a.hedge(t, i, p)
		if p.Hedge {
			return
		}
	}
	if t.failures == 0 {
		return
	}
	// All lines that may be attempts of the same step, in order of their start.
	order := a.s.order[:0]
	standsIn := false
	lo, hi := t.near(i)
	for j := lo; j < hi; j++ {
		if o := &t.lines[j]; t.sameStep(l, o) {
			order = append(order, j)
			standsIn = standsIn || j != i && (o.state == stateElsewhere || o.state == stateDuplicate)
		}
	}
	a.s.order = order
	slices.SortFunc(order, func(x, y int32) int {
		if before(&t.lines[x], &t.lines[y]) {
			return -1
		}
		return 1
	})
	// Each failure is retried once: the next line that starts after it takes it.
	type open struct {
		line    int32
		attempt uint32
		first   int32 // the first attempt
	}
	var failures [16]open
	n := 0
	for _, j := range order {
		o := &t.lines[j]
		attempt, cause, fallback, from, first := uint32(1), schema.NoFailure, false, int32(-1), j
		best := -1
		for k := n - 1; k >= 0; k-- {
			f := &t.lines[failures[k].line]
			if end := t.lines[t.outcome(failures[k].line)].end; end > o.start || o.start-end > retryWithin {
				continue
			}
			if best < 0 || f.target == o.target && t.lines[failures[best].line].target != o.target {
				best = k
			}
		}
		if j != i && o.state == stateDuplicate {
			// What it is a record of takes a failure itself, unless that began before it.
			of := t.original(j)
			if best < 0 || of < 0 || t.lines[of].start >= t.lines[t.outcome(failures[best].line)].end {
				continue
			}
		}
		if best >= 0 {
			f := &t.lines[failures[best].line]
			attempt, from = failures[best].attempt+1, failures[best].line
			cause = t.lines[t.outcome(from)].failure
			fallback = f.target != o.target
			first = failures[best].first
			copy(failures[best:n], failures[best+1:n])
			n--
		}
		// An attempt that counts as the client's call, in another trace or beside these: the first
		// one stands for what was tried again.
		stands := first == i && j != i && (o.state == stateElsewhere || o.state == stateDuplicate)
		if from >= 0 && (j == i || stands) {
			p.Attempt, p.Cause, p.Fallback = attempt, cause, fallback
			p.Layer = t.layer(o, &t.lines[from])
		}
		if stands || j == i && (from >= 0 || !standsIn) {
			break
		}
		if (j == i || o.state != stateDuplicate) && t.retryable(&t.lines[t.outcome(j)]) {
			if n == len(failures) {
				copy(failures[:], failures[1:])
				n--
			}
			failures[n] = open{j, attempt, first}
			n++
		}
	}
	l.attempt = p.Attempt
}

// original is the line that a duplicate is another form of, -1 where that is not here.
func (t *trace) original(i int32) int32 {
	l := &t.lines[i]
	if l.of < 0 {
		var c schema.Call
		var p schema.Posting
		if schema.DecodeCall(l.call, &c) != nil || schema.DecodePosting(l.post, &p, &c) != nil {
			return -1
		}
		var span schema.SpanID
		if _, name, ok := strings.Cut(p.DuplicateOf, "/"); !ok || len(name) != 2*len(span) {
			return -1
		} else if _, err := hex.Decode(span[:], []byte(name)); err != nil {
			return -1
		}
		l.of = t.find(span, 0)
	}
	return l.of
}

// sameStep reports whether o may be an attempt at what l attempts.
func (t *trace) sameStep(l, o *line) bool {
	if !o.callable() {
		return false
	}
	if o == l {
		return true
	}
	if o.refused() || o.state == stateAggregate || o.state == stateDuplicate && !o.kind.ModelLike() || o.near > 0 && o.kind == schema.KindModel {
		return false
	}
	if l.kind.ModelLike() {
		// Another model or provider is a fallback; another kind of call is not.
		return o.kind == l.kind && (o.parent == l.parent || t.step(o) == t.step(l)) && (l.args == 0 || o.args == 0 || l.args == o.args)
	}
	if o.kind != l.kind || o.target != l.target || o.args != l.args {
		return false
	}
	return o.parent == l.parent || l.args != 0
}

// plumbing is what carries a call from one process to another.
func (l *line) plumbing() bool {
	return l.role&(schema.RoleHTTP|schema.RoleClient|schema.RoleServer) != 0 && l.role&schema.RoleAggregate == 0 && l.kind != schema.KindTool && !l.kind.ModelLike()
}

// passed reports whether a call is looked for beyond a line: it carries the call, or is another
// record of it.
func (l *line) passed() bool {
	return l.plumbing() || l.kind.ModelLike() && l.role&schema.RoleAggregate == 0
}

// step is the span that a call was made for: the nearest above it that is neither plumbing nor
// a record of the call, so that a gateway's records of a client's attempts are attempts of one
// step, and those of two instrumentations too.
func (t *trace) step(l *line) schema.SpanID {
	id := l.parent
	for j := l.up; j >= 0 && t.lines[j].passed() && t.lines[j].parent != (schema.SpanID{}); j = t.lines[j].up {
		id = t.lines[j].parent
	}
	return id
}

// outcome is the line that says how a call ended: its own, or where that knows of no failure
// the nearest other record above it that does. Its client gave up, or lost the answer.
func (t *trace) outcome(i int32) int32 {
	if t.failures == 0 || t.lines[i].failure != schema.NoFailure || !t.lines[i].kind.ModelLike() {
		return i
	}
	for j := t.lines[i].up; j >= 0 && t.lines[j].passed(); j = t.lines[j].up {
		if o := &t.lines[j]; o.kind.ModelLike() && o.failure != schema.NoFailure && o.usage != schema.UsageKnown {
			return j
		}
	}
	return i
}

// retryable also takes 409, which SDKs retry as a lock conflict.
func (t *trace) retryable(l *line) bool {
	return l.failure.Retryable() || l.status == 409 || l.status == 408
}

// layer says who tried again after f: the model, if it was asked in between and
// the thing is a tool; the SDK for bare HTTP; else the framework.
func (t *trace) layer(l, f *line) schema.Layer {
	if l.role&schema.RoleHTTP != 0 && l.kind == schema.KindHTTP && l.role&schema.RoleModelHost != 0 {
		return schema.LayerSDK
	}
	if l.parent != f.parent && l.kind.ModelLike() && t.oneCall(l, f) {
		return schema.LayerSDK
	}
	if !l.kind.ModelLike() {
		lo, hi := t.near(t.find(l.span, l.part))
		for j := lo; j < hi; j++ {
			m := &t.lines[j]
			if m.kind.ModelLike() && m.start >= f.end && m.start <= l.start {
				return schema.LayerAgent
			}
		}
	}
	return schema.LayerFramework
}

// oneCall reports whether another record of a call is above both l and f.
func (t *trace) oneCall(l, f *line) bool {
	for j := l.up; j >= 0 && t.lines[j].passed(); j = t.lines[j].up {
		if !t.lines[j].kind.ModelLike() {
			continue
		}
		for k := f.up; k >= 0 && t.lines[k].passed(); k = t.lines[k].up {
			if j == k {
				return true
			}
		}
	}
	return false
}

// hedge marks the later of two overlapping calls with equal arguments.
func (a *Assembler) hedge(t *trace, i int32, p *schema.Posting) {
	l := &t.lines[i]
	lo, hi := t.near(i)
	for j := lo; j < hi; j++ {
		o := &t.lines[j]
		if j != i && o.callable() && o.kind == l.kind && o.args == l.args && o.target == l.target && o.parent == l.parent && o.state != stateDuplicate &&
			before(o, l) && o.end > l.start {
			p.Hedge = true
			return
		}
	}
}

// overRecords are the other records above a call that have no other call below them: an SDK's
// requests are below the one whose span was the current one.
func (t *trace) overRecords(i int32) (out []int32) {
	if !t.lines[i].kind.ModelLike() {
		return nil
	}
	records := int32(1)
	for j := t.lines[i].up; j >= 0 && t.lines[j].passed(); j = t.lines[j].up {
		if !t.lines[j].kind.ModelLike() {
			continue
		}
		if t.lines[j].modelNear != records {
			break
		}
		out = append(out, j)
		records++
	}
	return out
}

// hidden is the number of attempts of a call that have no span that counts: the
// largest of what counters and children say, never their sum.
func (t *trace) hidden(i int32, c *schema.Call) (uint32, schema.Failure) {
	l := &t.lines[i]
	n, cause := c.Hidden, c.HiddenFailure
	over := t.overRecords(i)
	if l.role&schema.RoleNumbered != 0 && l.attempt > 1 { // those before it have spans of their own
		n -= min(n, l.attempt-1)
	}
	if l.first < 0 && len(over) == 0 {
		if n > 0 && cause == schema.NoFailure {
			cause = schema.UnknownFailure
		}
		return n, cause
	}
	// Attempts below: HTTP children, and model spans whose counts are up here.
	// Only one that failed in a retryable way and was followed by another is a
	// retry; redirects and authentication are not.
	var https, models []int32
	var walk func(k int32)
	walk = func(k int32) {
		for ; k >= 0 && len(https)+len(models) < window; k = t.lines[k].sib {
			o := &t.lines[k]
			switch {
			case o.kind == schema.KindTool:
			case o.kind.ModelLike():
				if l.kind.ModelLike() {
					models = append(models, k)
				}
			case o.role&schema.RoleHTTP != 0:
				https = append(https, k)
			default:
				walk(o.first)
			}
		}
	}
	walk(l.first)
	for _, j := range over {
		for k := t.lines[j].first; k >= 0; k = t.lines[k].sib {
			if o := &t.lines[k]; o.role&schema.RoleHTTP != 0 && !o.kind.ModelLike() && len(https)+len(models) < window {
				https = append(https, k)
			}
		}
	}
	for _, list := range [...][]int32{https, models} {
		slices.SortFunc(list, func(x, y int32) int {
			if before(&t.lines[x], &t.lines[y]) {
				return -1
			}
			return 1
		})
		retries := uint32(0)
		first := schema.NoFailure
		for j, k := range list {
			if j+1 < len(list) && t.retryable(&t.lines[k]) {
				retries++
				if first == schema.NoFailure {
					first = t.lines[k].failure
				}
			}
		}
		if first != schema.NoFailure && cause == schema.NoFailure {
			cause = first
		}
		n = max(n, retries)
	}
	if n > 0 && cause == schema.NoFailure {
		cause = schema.UnknownFailure
	}
	return n, cause
}

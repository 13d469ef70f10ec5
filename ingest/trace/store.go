package trace

import (
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"github.com/flyball/flyball/schema"
)

// pageLines is how many lines one stored page holds, so that a late span of a
// very long trace does not rewrite all of it.
const pageLines = 256

// Saved traces rest this long before they are written, so that a short trace is
// written once: less if nothing is missing in it, and one that never rests is
// written every minute.
const (
	completeNs = int64(1e9)
	restNs     = int64(6e9)
	forceNs    = int64(60e9)
)

// complete reports whether a small trace has its root, every parent and nothing
// that waits.
func (t *trace) complete() bool {
	if t.root < 0 || t.timers > 0 || len(t.lines) > 4*few {
		return false
	}
	for i := range t.lines {
		if l := &t.lines[i]; l.up < 0 && l.parent != (schema.SpanID{}) {
			return false
		}
	}
	return true
}

// storeKey is the key of a trace: length and tenant, so that no tenant is
// another's prefix, then the trace id.
func storeKey(b []byte, k traceKey) []byte {
	b = binary.AppendUvarint(b, uint64(len(k.tenant)))
	b = append(b, k.tenant...)
	return append(b, k.id[:]...)
}

// appendPage appends the lines of one page.
func (t *trace) appendPage(b []byte, page int) []byte {
	lines := t.lines[page*pageLines : min(len(t.lines), (page+1)*pageLines)]
	for i := range lines {
		l := &lines[i]
		b = appendLine(b, uint64(l.version)<<1|boolBit(l.settled), l.received, l.call, l.post)
	}
	return b
}

func appendLine(b []byte, head uint64, received int64, call, post []byte) []byte {
	b = binary.AppendUvarint(b, head)
	b = binary.AppendVarint(b, received)
	b = binary.AppendUvarint(b, uint64(len(call)))
	b = append(b, call...)
	b = binary.AppendUvarint(b, uint64(len(post)))
	return append(b, post...)
}

func boolBit(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

// eachLine calls f for the lines of pages, one after the other. head is the version and
// whether the line has settled. The bytes are those of data.
func eachLine(data []byte, f func(head uint64, received int64, call, post []byte) error) error {
	for len(data) > 0 {
		var received int64
		ok := true
		uvarint := func() uint64 {
			v, n := binary.Uvarint(data)
			if n <= 0 {
				ok = false
				return 0
			}
			data = data[n:]
			return v
		}
		take := func() []byte {
			n := uvarint()
			if !ok || n > uint64(len(data)) {
				ok = false
				return nil
			}
			v := data[:n:n]
			data = data[n:]
			return v
		}
		head := uvarint()
		if v, n := binary.Varint(data); n > 0 {
			received, data = v, data[n:]
		} else {
			ok = false
		}
		call, post := take(), take()
		if !ok {
			return schema.ErrForm
		}
		if err := f(head, received, call, post); err != nil {
			return err
		}
	}
	return nil
}

// load rebuilds a trace from its pages, one after the other.
func (a *Assembler) load(t *trace, data []byte, now int64) error {
	err := eachLine(data, func(head uint64, received int64, call, post []byte) error {
		return a.restore(t, uint32(head>>1), received, head&1 != 0, call, post, now)
	})
	if err != nil {
		return fmt.Errorf("load trace %s: %w", t.id(), err)
	}
	return nil
}

// restore puts a line back as it was posted, without deciding anything.
func (a *Assembler) restore(t *trace, version uint32, received int64, settled bool, call, post []byte, now int64) error {
	if newCall, newPost, err := a.forget.Forms(call, post); err != nil {
		return err
	} else if newCall != nil {
		call, post = newCall, newPost
	}
	c := new(schema.Call)
	if err := schema.DecodeCall(call, c); err != nil {
		return err
	}
	var p schema.Posting
	if err := schema.DecodePosting(post, &p, c); err != nil {
		return err
	}
	a.quiet = true
	defer func() { a.quiet = false }()
	i := t.find(c.Span, c.Part)
	known := i >= 0
	if known && t.lines[i].version > version {
		return nil
	}
	renamed := false
	if !known {
		t.lines = append(t.lines, line{span: c.Span, parent: c.Parent, part: c.Part, up: -1, first: -1, sib: -1, of: -1})
		i = int32(len(t.lines) - 1)
	} else {
		a.detach(t, i)
		var was schema.Call
		if schema.DecodeCall(t.lines[i].call, &was) == nil {
			renamed = was.Identity != c.Identity
			if t.lines[i].response != 0 {
				a.unjoin(t, i, &was)
			}
		}
		if t.lines[i].failure != schema.NoFailure {
			t.failures--
		}
	}
	l := &t.lines[i]
	wasPromoted := known && l.state == statePromoted
	was := l.client()
	l.version, l.received = version, received
	buf := make([]byte, len(call)+len(post))
	n := copy(buf, call)
	copy(buf[n:], post)
	a.bytes += int64(len(buf) - len(l.call) - len(l.post))
	l.call, l.post = buf[:n:n], buf[n:]
	l.settled = settled || !l.timed && received*1e6+int64(a.o.Settle) <= now
	a.describe(l, c)
	l.state = t.stateOf(&p)
	l.attempt, l.of = p.Attempt, -1
	a.serves(t, i, was, elsewhere(&p))
	if !known {
		a.bytes += lineBytes
		l.cur = c
		a.link(t, i, c, now)
	} else {
		if l.failure != schema.NoFailure {
			t.failures++
		}
		l.parent = c.Parent
		if l.part == 0 && l.parent != (schema.SpanID{}) {
			a.place(t, i)
		}
		if t.lines[i].up < 0 && wasPromoted != (l.state == statePromoted) {
			a.promotionChanged(t, i, !wasPromoted)
		}
		l = &t.lines[i]
		l.cur = c
		if renamed {
			a.agreeAgain(t, i)
		}
		a.spread(t, i, c)
	}
	l = &t.lines[i]
	l.cur = nil
	a.rememberJoin(t, i, c)
	// What waited is settled, and evaluated, when its time has come.
	if !settled && !l.timed && (l.state == statePending || l.role&schema.RoleAggregate != 0 && l.usage == schema.UsageKnown) {
		l.settled = false
		a.wait(t, i, max(now, received*1e6+int64(a.o.Settle)))
	}
	return nil
}

// stateOf reads a line's state back from what was posted.
func (t *trace) stateOf(p *schema.Posting) lineState {
	switch {
	case p.DuplicateOf != "" && !strings.HasPrefix(p.DuplicateOf, t.id()+"/"):
		return stateElsewhere
	case p.DuplicateOf != "":
		return stateDuplicate
	case p.Aggregate:
		return stateAggregate
	case p.Flags&schema.FlagPromoted != 0:
		return statePromoted
	case p.Flags&schema.FlagPending != 0:
		return statePending
	case p.ModelCalls+p.ToolCalls+p.Retries+p.Fallbacks+p.Hedges == 0:
		return stateNone
	case p.Kind.ModelLike():
		return stateLeaf
	}
	return stateTool
}

// Replay applies one log record: it restores what was posted and decides nothing.
// end is the position after the record; Resume told the one before the first.
func (a *Assembler) Replay(payload []byte, end uint64, now int64) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.before, a.end = a.end, end
	return schema.EachEntry(payload, func(r schema.RawEntry) error {
		a.recorded = max(a.recorded, r.RecordedAt)
		if r.Sign < 0 {
			return nil
		}
		var c schema.Call
		if err := schema.DecodeCall(r.Call, &c); err != nil {
			return err
		}
		t, err := a.open(c.Tenant, c.Trace, now, true)
		if err != nil {
			return err
		}
		if err := a.restore(t, r.Version, r.Received, false, r.Call, r.Posting, now); err != nil {
			return err
		}
		if i := t.find(c.Span, c.Part); i >= 0 {
			t.markPage(i)
		}
		a.markDirty(t, end)
		return nil
	})
}

// Remember takes from a log record whose traces are saved what memory knows beside traces:
// which answers were recorded, and which traces link to others.
func (a *Assembler) Remember(payload []byte) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	t := &trace{root: -1, lines: make([]line, 1)}
	return schema.EachEntry(payload, func(r schema.RawEntry) error {
		if r.Sign < 0 {
			return nil
		}
		c, p := &a.s.call, &a.s.posting
		if err := schema.DecodeCall(r.Call, c); err != nil {
			return err
		}
		t.key, t.hex = traceKey{a.ownTenant(c.Tenant), c.Trace}, ""
		l := &t.lines[0]
		*l = line{span: c.Span, parent: c.Parent, part: c.Part, up: -1, first: -1, sib: -1, of: -1}
		a.describe(l, c)
		if c.Link != (schema.TraceID{}) && l.role&schema.RoleRoot != 0 {
			a.links.add(traceKey{t.key.tenant, c.Link}, t.key.id)
		}
		if !l.joinable(c) {
			return nil
		}
		if err := schema.DecodePosting(r.Posting, p, c); err != nil {
			return err
		}
		if l.state = t.stateOf(p); l.state == stateElsewhere {
			a.links.add(traceKey{t.key.tenant, elsewhere(p)}, t.key.id)
		}
		a.rememberJoin(t, 0, c)
		return nil
	})
}

func (t *trace) markPage(i int32) {
	page := int(i) / pageLines
	for len(t.pages) <= page {
		t.pages = append(t.pages, false)
	}
	t.pages[page] = true
}

// markDirty notes that the store lacks what was logged up to end.
func (a *Assembler) markDirty(t *trace, end uint64) {
	if t.isDirty {
		return
	}
	t.isDirty = true
	t.unsaved = a.before
	t.dirtyAt = t.last
	a.dirty = append(a.dirty, dirtyRef{t, t.unsaved})
}

type dirtyRef struct {
	t       *trace
	unsaved uint64
}

// Page is one page of a trace to be written to the store. Its bytes are valid
// during the call only.
type Page struct {
	Day   uint32
	Key   []byte
	Page  int
	Value []byte
}

// Save hands the pages that should be written to f. Once they are durable, and
// the log is durable up to the returned end, everything before safe is in the
// store. With all it saves every trace, for a shutdown.
func (a *Assembler) Save(now int64, all bool, f func(Page) error) (safe, end uint64, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	over := len(a.traces) - a.o.MaxOpen
	if a.bytes > a.o.MaxBytes {
		over = max(over, len(a.traces)/4)
	}
	keep := a.dirty[:0]
	safe = a.end
	first := true
	for _, ref := range a.dirty {
		t := ref.t
		if !t.isDirty || t.unsaved != ref.unsaved || t.evicted {
			continue
		}
		rest := restNs
		if t.complete() {
			rest = completeNs
		}
		if !all && over <= 0 && now-t.last < rest && now-t.dirtyAt < forceNs {
			if first {
				safe, first = t.unsaved, false
			}
			keep = append(keep, ref)
			continue
		}
		over--
		// A day is forgotten as a whole, counted from its end, so a trace moves to
		// the day of its last change. Pages that were only read move with it.
		if today := uint32(now / dayNs); today > t.day {
			t.day = today
			for i := 0; i < len(t.lines); i += pageLines {
				t.markPage(int32(i))
			}
		}
		for page, dirty := range t.pages {
			if !dirty {
				continue
			}
			a.s.key = storeKey(a.s.key[:0], t.key)
			a.s.page = t.appendPage(a.s.page[:0], page)
			if err := f(Page{t.day, a.s.key, page, a.s.page}); err != nil {
				return 0, 0, err
			}
			t.pages[page] = false
		}
		if t.timers > 0 { // what waits is queued again by the replay that starts before it
			if first {
				safe, first = t.unsaved, false
			}
			keep = append(keep, ref)
			continue
		}
		t.isDirty = false
	}
	clear(a.dirty[len(keep):])
	a.dirty = keep
	return safe, a.end, nil
}

// Shrink drops saved traces from memory, the least recently used first, until no more
// are left than MaxOpen, in a quarter of MaxBytes, or up to all of it while traces come back
// that were dropped: spans of a run that come every few seconds would else bring it back for
// each of them. It is called after what Save returned is durable.
func (a *Assembler) Shrink() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.reloads > len(a.traces)/16 {
		a.room *= 2
	} else {
		a.room -= a.room / 64
	}
	a.room = min(max(a.room, a.o.MaxBytes/4), a.o.MaxBytes)
	a.reloads = 0
	for t := a.oldest; t != nil && (len(a.traces) > a.o.MaxOpen || a.bytes > a.room); {
		next := t.next
		if !t.isDirty && t.timers == 0 {
			a.drop(t)
		}
		t = next
	}
}

func (a *Assembler) drop(t *trace) {
	for i := range t.lines {
		a.bytes -= int64(len(t.lines[i].call)+len(t.lines[i].post)) + lineBytes
	}
	t.evicted = true
	a.spare.put(t.lines)
	t.lines = nil
	a.bytes -= traceBytes
	delete(a.traces, t.key)
	if t.prev != nil {
		t.prev.next = t.next
	} else {
		a.oldest = t.next
	}
	if t.next != nil {
		t.next.prev = t.prev
	} else {
		a.newest = t.prev
	}
	t.prev, t.next = nil, nil
}

// spareLines keeps the lines of short traces that left for those that come.
type spareLines struct {
	of   [few + 1][][]line // by capacity
	held int
}

// maxSpare is how many lines are kept.
const maxSpare = 50_000

func (s *spareLines) get(n int) []line {
	list := s.of[n]
	if len(list) == 0 {
		return make([]line, 0, n)
	}
	lines := list[len(list)-1]
	s.of[n] = list[:len(list)-1]
	s.held -= n
	return lines
}

func (s *spareLines) put(lines []line) {
	n := cap(lines)
	if n == 0 || n > few || s.held+n > maxSpare {
		return
	}
	clear(lines)
	s.held += n
	s.of[n] = append(s.of[n], lines[:0])
}

func (a *Assembler) pushLRU(t *trace) {
	t.prev = a.newest
	if a.newest != nil {
		a.newest.next = t
	} else {
		a.oldest = t
	}
	a.newest = t
}

func (a *Assembler) touchLRU(t *trace, now int64) {
	t.last = max(t.last, now)
	if a.newest == t {
		return
	}
	if t.prev != nil {
		t.prev.next = t.next
	} else {
		a.oldest = t.next
	}
	t.next.prev = t.prev
	t.prev, t.next = nil, nil
	a.pushLRU(t)
}

const dayNs = int64(24 * time.Hour)

// What a line costs besides its binary forms, and a trace besides its lines.
const (
	lineBytes  = 224
	traceBytes = 900
)

// Resume tells the assembler where the log goes on, before and after a replay,
// and a recorded_at in unix microseconds that the next must not be before.
func (a *Assembler) Resume(end uint64, recorded int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.end, a.recorded = end, max(a.recorded, recorded)
}

// Pass says that the log before end, as far as it is not the assembler's own, is
// nothing that it needs.
func (a *Assembler) Pass(end uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.end = max(a.end, end)
}

// stamp is the recorded_at of the next record: later than every one before, also while the
// clock is behind those, so that of two records one is the newer.
func (a *Assembler) stamp(now int64) int64 { return max(a.recorded+1, now/1000) }

// Recorded is the last recorded_at, in unix microseconds.
func (a *Assembler) Recorded() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.recorded
}

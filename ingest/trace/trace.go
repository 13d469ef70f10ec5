package trace

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/flyball/flyball/schema"
)

// Pricer fills the money of a posting: Status, Cost, Exposure, Amount, Currency,
// PriceID and the flags that belong to them. usage overrides the call's own.
type Pricer interface {
	Price(c *schema.Call, t *schema.Tokens, usage schema.Usage, kind schema.Kind, p *schema.Posting)
}

// Store keeps traces that left memory, by the day they were first saved.
// GetTrace returns nil for what it does not hold. now is unix nanoseconds.
type Store interface {
	GetTrace(key []byte, now int64) (pages []byte, day uint32, err error)
}

// Options of New. Price and Append are required.
type Options struct {
	Price Pricer
	// Append writes one log record under the assembler's lock and returns the
	// position after it.
	Append func(payload []byte, entries int) (end uint64, err error)
	// AppendForgotten does the same for a record that Replay must not see: it
	// corrects lines of a trace that is not remembered.
	AppendForgotten func(payload []byte, entries int) (end uint64, err error)
	Store           Store // nil keeps everything in memory
	// Settle is how long an aggregate waits for its leaves and a client span
	// for its parent. Default 5 s.
	Settle time.Duration
	// Lateness is how long a trace is remembered: a span that ended longer before
	// its receipt is flagged late. Default 24 h.
	Lateness time.Duration
	// MaxOpen is how many traces stay in memory, MaxBytes how much they may
	// hold; those that are saved take a quarter of it, or more while they are needed.
	// Defaults 100,000 and 256 MiB; the rest is in the store.
	MaxOpen    int
	MaxBytes   int64
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Assembler holds the open traces. It is safe for concurrent use; its one lock
// orders everything that is posted.
type Assembler struct {
	o       Options
	metrics *metrics

	mu       sync.Mutex // guards everything below
	traces   map[traceKey]*trace
	tenants  map[string]string
	recorded int64 // last recorded_at, unix microseconds
	batch    schema.Batch
	touched  []*trace
	fresh    []lineRef // lines whose cur is set
	timers   []timer   // by due time
	head     int       // first live timer
	oldest   *trace    // least recently used
	newest   *trace
	dirty    []dirtyRef // by first unsaved position
	bytes    int64      // held by traces
	room     int64      // bytes that may be held after saving
	reloads  int        // since the last Shrink
	end      uint64     // log position after the last record
	before   uint64     // log position before the record being appended
	quiet    bool       // restoring: nothing is queued
	joins    joinIndex
	links    linkIndex
	spare    spareLines
	now      int64              // of the call in progress
	forget   *schema.Forgetting // whose id is to come in nowhere; nil is nobody
	s        scratch
}

type traceKey struct {
	tenant string
	id     schema.TraceID
}

type timer struct {
	due int64 // unix ns
	t   *trace
	idx int32
}

// trace is the state of one trace. What a line needs when another span arrives
// stands in the line; everything else stays in binary form.
type trace struct {
	key        traceKey
	lines      []line
	index      map[schema.SpanID]int32 // part 0 lines, once there are many
	waiting    map[schema.SpanID][]int32
	root       int32
	failures   int
	streamEnds bool            // some line is the end of a stream
	hasTwins   bool            // two lines may be records of one call
	parts      int             // lines that are further parts of a span
	level      schema.Identity // trace-level identity, unique values only
	levelRun   string          // operator's run seen on any span
	ambiguous  uint32          // dimensions with several values
	proofs     []uint64        // emitters whose input was proved to exclude cache
	touched    bool
	queued     []int32 // lines to evaluate
	last       int64   // unix ns of the last change
	unsaved    uint64  // log position of the first change the store lacks; valid if dirty
	isDirty    bool
	day        uint32 // under which the store keeps it
	dirtyAt    int64
	pages      []bool         // dirty pages
	client     schema.TraceID // whose records count instead of some here, if it is one trace
	clients    bool           // they are of several
	evicted    bool
	hex        string
	timers     int    // lines that wait to be settled
	prev, next *trace // LRU
}

type lineRef struct {
	t   *trace
	idx int32
}

// line is what memory holds of one posted line.
type line struct {
	span, parent schema.SpanID
	part         uint16
	kind         schema.Kind
	usage        schema.Usage
	failure      schema.Failure
	detail       uint8 // how much its counts tell apart
	sdk          bool  // a provider's SDK recorded it
	hiddenCause  schema.Failure
	hidden       uint16 // attempts without a span that it tells of
	status       uint16 // HTTP
	role         schema.Role
	dims         uint16 // which identity dimensions the call itself has
	state        lineState
	queued       bool
	settled      bool
	timed        bool // a timer will settle it
	version      uint32
	up           int32 // parent line, -1 where it has not been seen
	height       int32 // of the tree below
	first, sib   int32 // children
	start, end   int64
	received     int64 // unix ms
	target       uint64
	args         uint64
	response     uint64 // hash of the response id
	shape        uint64 // hash of model and token counts, for twins
	scope        uint64
	in, out      uint32 // reported tokens, capped
	// usage leaves and model-like spans below; near does not cross a tool
	all, near           int32
	modelAll, modelNear int32
	promoted            int32 // promoted aggregates below
	of                  int32 // what a duplicate is one of, if known
	attempt             uint32
	call, post          []byte
	cur                 *schema.Call // only while its batch is added
}

// lineState is what the last evaluation made of a line.
type lineState uint8

const (
	stateNew       lineState = iota
	stateNone                // counts nowhere
	stateLeaf                // a model call
	stateTool                // a tool call
	statePending             // waits for its parent
	stateAggregate           // repeats what is below it
	statePromoted            // an aggregate that stands for unseen calls
	stateDuplicate
	stateElsewhere // a line of another trace counts instead
)

// Result says what Add did with a batch.
type Result struct {
	End       uint64 // log position that makes the batch durable
	New       int
	Duplicate int
	Merged    int
	Entries   int
}

// New makes an empty assembler.
func New(o Options) *Assembler {
	if o.Settle == 0 {
		o.Settle = 5 * time.Second
	}
	if o.Lateness == 0 {
		o.Lateness = 24 * time.Hour
	}
	if o.MaxOpen == 0 {
		o.MaxOpen = 100_000
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = 256 << 20
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	a := &Assembler{o: o, traces: map[traceKey]*trace{}, tenants: map[string]string{}}
	a.joins.init()
	a.metrics = newMetrics(o.Registerer, a)
	return a
}

// Add takes the calls of one request in. now is unix nanoseconds. When it
// returns, everything is appended to the log up to Result.End, not yet durable;
// that position also covers what an earlier request posted for a duplicate.
func (a *Assembler) Add(calls []schema.Call, now int64) (Result, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.now = now
	var res Result
	a.touched = a.touched[:0]
	for i := range calls {
		a.forget.Call(&calls[i])
		if err := a.insert(calls[i:], now, &res); err != nil {
			return res, err
		}
	}
	return res, a.flush(now, &res)
}

// Tick settles what has waited long enough and lets resting traces go.
func (a *Assembler) Tick(now int64) (Result, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.now = now
	var res Result
	a.touched = a.touched[:0]
	for a.head < len(a.timers) && a.timers[a.head].due <= now {
		tm := a.timers[a.head]
		a.timers[a.head] = timer{}
		a.head++
		tm.t.timers--
		if tm.t.evicted || int(tm.idx) >= len(tm.t.lines) {
			continue
		}
		l := &tm.t.lines[tm.idx]
		l.timed = false
		if !l.settled {
			l.settled = true
			a.queue(tm.t, tm.idx)
		}
	}
	if a.head > 4096 && a.head*2 > len(a.timers) {
		n := copy(a.timers, a.timers[a.head:])
		clear(a.timers[n:]) // or what is behind the end keeps its traces alive
		a.timers, a.head = a.timers[:n], 0
	}
	return res, a.flush(now, &res)
}

// open returns the trace, from memory or the store; nil where it is new and
// create is false.
func (a *Assembler) open(tenant string, id schema.TraceID, now int64, create bool) (*trace, error) {
	if t := a.newest; t != nil && t.key.id == id && t.key.tenant == tenant {
		t.last = max(t.last, now)
		return t, nil
	}
	key := traceKey{tenant, id}
	if t := a.traces[key]; t != nil {
		a.touchLRU(t, now)
		return t, nil
	}
	key.tenant = a.ownTenant(tenant)
	var data []byte
	day := uint32(now / dayNs)
	if a.o.Store != nil {
		a.s.key = storeKey(a.s.key[:0], key)
		got, d, err := a.o.Store.GetTrace(a.s.key, now)
		if data = got; data != nil {
			day = d
		}
		if err != nil {
			return nil, fmt.Errorf("load trace: %w", err)
		}
	}
	if data == nil && !create {
		return nil, nil
	}
	t := &trace{key: key, root: -1, last: now, day: day}
	if data != nil {
		a.metrics.reloaded.Inc()
		a.reloads++
		if err := a.load(t, data, now); err != nil {
			return nil, err
		}
	}
	a.traces[key] = t
	a.bytes += traceBytes
	a.pushLRU(t)
	return t, nil
}

// ownTenant is a tenant's name in memory that lasts.
func (a *Assembler) ownTenant(tenant string) string {
	if own, ok := a.tenants[tenant]; ok {
		return own
	}
	own := cloneString(tenant)
	if len(a.tenants) > 200_000 {
		clear(a.tenants)
	}
	a.tenants[own] = own
	return own
}

// insert takes the first of calls in; the rest says how many lines to make room for.
func (a *Assembler) insert(calls []schema.Call, now int64, res *Result) error {
	c := &calls[0]
	t, err := a.open(c.Tenant, c.Trace, now, true)
	if err != nil {
		return err
	}
	if i := t.find(c.Span, c.Part); i >= 0 {
		return a.merge(t, i, c, res)
	}
	res.New++
	if t.lines == nil {
		n := 1
		for n < len(calls) && n < few && calls[n].Trace == c.Trace {
			n++
		}
		t.lines = a.spare.get(n)
	}
	t.lines = append(t.lines, line{span: c.Span, parent: c.Parent, part: c.Part, version: 0, up: -1, first: -1, sib: -1, of: -1, received: now / 1e6})
	i := int32(len(t.lines) - 1)
	l := &t.lines[i]
	l.cur = c
	a.fresh = append(a.fresh, lineRef{t, i})
	a.describe(l, c)
	a.link(t, i, c, now)
	a.queue(t, i)
	return nil
}

// describe copies what later decisions need out of the call.
func (a *Assembler) describe(l *line, c *schema.Call) {
	l.kind, l.usage, l.failure, l.status, l.role = c.Kind, c.Usage, c.Failure, c.HTTPStatus, c.Role
	l.start, l.end = c.Start, c.Start+c.Duration
	l.args = c.ArgsHash
	l.dims = 0
	for d := range c.Identity {
		if c.Identity[d] != "" {
			l.dims |= 1 << d
		}
	}
	l.in, l.out = cap32(c.Tokens.TotalInput()), cap32(c.Tokens.TotalOutput())
	l.detail = 0
	l.sdk = strings.HasPrefix(c.Scope, "com.anthropic.sdk.")
	l.hidden, l.hiddenCause = uint16(min(c.Hidden, 1<<16-1)), c.HiddenFailure
	l.scope = hash2(c.Scope, c.Provider)
	l.target, l.response, l.shape = 0, 0, 0
	switch {
	case c.Kind.ModelLike(), c.Role&schema.RoleRefinesParent != 0:
		// What was asked for: the answer of a failed attempt names no model.
		l.target = hash2(c.Provider, c.RequestedModel)
		if c.RequestedModel == "" {
			l.target = hash2(c.Provider, c.Model)
		}
		if c.ResponseID != "" {
			l.response = hash2(c.ResponseID, "")
		} else if c.AltResponseID != "" {
			l.response = hash2(c.AltResponseID, "request")
		}
		for _, n := range c.Tokens.Fields() {
			if *n > 0 {
				l.detail += 2
			}
		}
		if c.Flags&schema.FlagTTLAssumed == 0 {
			l.detail++
		}
		if c.Usage == schema.UsageKnown {
			l.shape = mix(mix(hash2(c.Model, ""), c.Tokens.TotalInput()), c.Tokens.TotalOutput()) | 1
		}
	case c.Kind == schema.KindTool, c.Role&schema.RoleClient != 0:
		l.target = hash2(c.Tool, c.Operation)
		if c.Kind == schema.KindTool {
			l.target = hash2(c.Tool, "")
		}
		if c.ToolCallID != "" {
			l.response = hash2(c.ToolCallID, "tool")
		}
	}
}

// merge joins two versions of one span field by field, whatever their order.
func (a *Assembler) merge(t *trace, i int32, c *schema.Call, res *Result) error {
	l := &t.lines[i]
	form := schema.AppendCall(a.s.form[:0], c)
	a.s.form = form
	if l.call != nil && bytes.Equal(form, l.call) {
		res.Duplicate++
		return nil
	}
	var old schema.Call
	if l.cur != nil && l.call == nil {
		old = *l.cur
	} else if err := schema.DecodeCall(l.call, &old); err != nil {
		return fmt.Errorf("merge span: %w", err)
	}
	merged := mergeCalls(&old, c)
	if merged == old {
		res.Duplicate++
		return nil
	}
	res.Merged++
	failed := l.failure != schema.NoFailure
	if l.kind.ModelLike() && (l.shape != 0 || l.failed()) { // it may be one with others no more
		for _, j := range t.twins(i) {
			a.queue(t, j)
		}
	}
	a.detach(t, i)
	l = &t.lines[i]
	if l.response != 0 {
		a.forgetJoin(t, i, &old)
	}
	a.describe(l, &merged)
	l.cur = &merged
	a.fresh = append(a.fresh, lineRef{t, i})
	l.parent = merged.Parent
	if l.failure != schema.NoFailure {
		t.failures++
	}
	if l.part == 0 && l.parent != (schema.SpanID{}) {
		a.place(t, i)
	}
	if merged.Identity != old.Identity {
		a.queueTree(t, i)
		a.agreeAgain(t, i)
	}
	a.spread(t, i, &merged)
	if failed { // what it failed as decided about others until now
		t.failures--
	}
	a.queue(t, i)
	return nil
}

// flush evaluates what is queued and appends the entries as one log record.
func (a *Assembler) flush(now int64, res *Result) error {
	at := a.stamp(now)
	a.batch.Reset(at)
	for ti := 0; ti < len(a.touched); ti++ {
		t := a.touched[ti]
		a.s.reset(t)
		// Evaluating one line may queue others of the trace, once each.
		for qi := 0; qi < len(t.queued); qi++ {
			i := t.queued[qi]
			t.lines[i].queued = false
			if err := a.post(t, i, now); err != nil {
				return err
			}
		}
		t.queued = t.queued[:0]
		t.touched = false
		a.settleForms(t)
	}
	res.Entries = a.batch.Len()
	if a.batch.Len() == 0 {
		res.End = a.end
		a.clearCur()
		return nil
	}
	a.recorded = at
	a.before = a.end
	end, err := a.o.Append(a.batch.Bytes(), a.batch.Len())
	if err != nil {
		return fmt.Errorf("append entries: %w", err)
	}
	a.end = end
	res.End = end
	for _, t := range a.touched {
		a.markDirty(t, end)
	}
	a.clearCur()
	a.metrics.entries.Add(float64(a.batch.Len()))
	return nil
}

// keep copies a form to where it is good until the next trace is evaluated.
func (s *scratch) keep(form []byte) []byte {
	n := len(s.forms)
	s.forms = append(s.forms, form...)
	return s.forms[n:len(s.forms):len(s.forms)]
}

// settleForms gives the forms of the lines that were just posted one piece of memory,
// which goes with the trace.
func (a *Assembler) settleForms(t *trace) {
	size := 0
	for _, i := range a.s.posted {
		size += len(t.lines[i].call) + len(t.lines[i].post)
	}
	buf := make([]byte, 0, size)
	for _, i := range a.s.posted {
		l := &t.lines[i]
		for _, form := range [...]*[]byte{&l.call, &l.post} {
			n := len(buf)
			buf = append(buf, *form...)
			*form = buf[n:len(buf):len(buf)]
		}
	}
	a.s.posted = a.s.posted[:0]
	if a.s.forms = a.s.forms[:0]; cap(a.s.forms) > 1<<20 {
		a.s.forms = nil
	}
}

// clearCur forgets the callers' calls.
func (a *Assembler) clearCur() {
	for _, f := range a.fresh {
		f.t.lines[f.idx].cur = nil
	}
	clear(a.fresh)
	a.fresh = a.fresh[:0]
}

// post evaluates one line and adds the entries that bring the journal to it.
func (a *Assembler) post(t *trace, i int32, now int64) error {
	l := &t.lines[i]
	c := l.cur
	if c == nil {
		if err := schema.DecodeCall(l.call, &a.s.call); err != nil {
			return fmt.Errorf("evaluate span: %w", err)
		}
		c = &a.s.call
	}
	p := &a.s.posting
	*p = schema.Posting{}
	before := l.state
	state := a.evaluate(t, i, c, p)
	if state == stateElsewhere || before == stateElsewhere {
		a.serve(t, i, l, p)
	}
	if l.role&schema.RoleCoversSubtree != 0 {
		a.residual(t, i, c, now)
	}
	l = &t.lines[i]
	callForm := l.call
	if l.cur != nil {
		callForm = schema.AppendCall(a.s.form[:0], c)
		a.s.form = callForm
	}
	postForm := schema.AppendPosting(a.s.post[:0], p, c)
	a.s.post = postForm
	l.state = state
	if before != state {
		a.stateChanged(t, i, before, state)
		l = &t.lines[i]
	}
	if l.version > 0 && bytes.Equal(callForm, l.call) && bytes.Equal(postForm, l.post) {
		return nil
	}
	if l.version > 0 {
		a.batch.Add(-1, l.version, l.received, l.call, l.post)
	}
	l.version++
	a.batch.Add(1, l.version, l.received, callForm, postForm)
	if l.version == 1 {
		a.bytes += lineBytes
	}
	a.bytes += int64(len(callForm) + len(postForm) - len(l.call) - len(l.post))
	l.call, l.post = a.s.keep(callForm), a.s.keep(postForm)
	a.s.posted = append(a.s.posted, i)
	t.markPage(i)
	if state == statePending || !l.settled && l.role&schema.RoleAggregate != 0 && l.usage == schema.UsageKnown {
		if !l.timed {
			a.wait(t, i, now+int64(a.o.Settle))
		}
	}
	return nil
}

// wait has a line settled at the given time.
func (a *Assembler) wait(t *trace, i int32, due int64) {
	a.timers = append(a.timers, timer{due, t, i})
	t.lines[i].timed = true
	t.timers++
}

// queue marks a line for evaluation.
func (a *Assembler) queue(t *trace, i int32) {
	if i < 0 || a.quiet || t.lines[i].queued {
		return
	}
	t.lines[i].queued = true
	t.queued = append(t.queued, i)
	if !t.touched {
		t.touched = true
		a.touched = append(a.touched, t)
	}
}

func (t *trace) find(span schema.SpanID, part uint16) int32 {
	if part == 0 && t.index != nil {
		if i, ok := t.index[span]; ok {
			return i
		}
		return -1
	}
	for i := range t.lines {
		if t.lines[i].span == span && t.lines[i].part == part {
			return int32(i)
		}
	}
	return -1
}

// few is the number of lines up to which a scan beats a map.
const few = 24

// scratch is reused by every evaluation under the lock.
type scratch struct {
	call    schema.Call
	other   schema.Call
	refined schema.Call
	posting schema.Posting
	form    []byte
	post    []byte
	forms   []byte  // of the lines posted of the trace at hand
	posted  []int32 // those lines
	ids     map[int32]*schema.Identity
	pool    []schema.Identity
	order   []int32
	key     []byte
	page    []byte
}

func (s *scratch) reset(*trace) {
	if s.ids == nil {
		s.ids = map[int32]*schema.Identity{}
	}
	clear(s.ids)
}

func cap32(n uint64) uint32 { return uint32(min(n, 1<<32-1)) }

package app

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// batch is a request under construction.
type batch struct {
	td    ptrace.Traces
	spans ptrace.SpanSlice
	ids   []string
	cost  int64 // micro-dollars of its priced calls
}

func newBatch() *batch {
	td := ptrace.NewTraces()
	rs := td.ResourceSpans().AppendEmpty()
	rs.Resource().Attributes().PutStr("service.name", "agent")
	ss := rs.ScopeSpans().AppendEmpty()
	ss.Scope().SetName("fault")
	return &batch{td: td, spans: ss.Spans()}
}

// began is when every run of a test began.
var began = today(20 * time.Minute).Truncate(time.Minute)

// today is so long ago, or the beginning of the day where that was yesterday: what budgets of
// a day and a month are spent on is of that day.
func today(ago time.Duration) time.Time {
	now := time.Now().UTC()
	if t, day := now.Add(-ago), now.Truncate(24*time.Hour); t.After(day) {
		return t
	}
	return now.Truncate(24 * time.Hour)
}

// span adds a span: number n of the trace, below number up unless that is 0.
func (b *batch) span(trace uint64, n, up byte, name string) ptrace.Span {
	var id pcommon.TraceID
	binary.BigEndian.PutUint64(id[:], 0xf1)
	binary.BigEndian.PutUint64(id[8:], trace)
	spanID := func(n byte) (id pcommon.SpanID) {
		binary.BigEndian.PutUint64(id[:], trace<<8|uint64(n))
		return id
	}
	sp := b.spans.AppendEmpty()
	sp.SetTraceID(id)
	sp.SetSpanID(spanID(n))
	if up > 0 {
		sp.SetParentSpanID(spanID(up))
	}
	sp.SetName(name)
	start := began.Add(time.Duration(trace%1000) * time.Second).Add(time.Duration(n) * 100 * time.Millisecond)
	sp.SetStartTimestamp(pcommon.NewTimestampFromTime(start))
	sp.SetEndTimestamp(pcommon.NewTimestampFromTime(start.Add(80 * time.Millisecond)))
	sp.Attributes().PutStr("tenant.id", fmt.Sprintf("tenant-%d", trace%5))
	s := sp.SpanID()
	b.ids = append(b.ids, hex.EncodeToString(id[:])+hex.EncodeToString(s[:]))
	return sp
}

// chat adds a model call of that many input tokens.
func (b *batch) chat(trace uint64, n, up byte, input int64) ptrace.Span {
	sp := b.span(trace, n, up, "chat m-1")
	sp.SetKind(ptrace.SpanKindClient)
	m := sp.Attributes()
	m.PutStr("gen_ai.operation.name", "chat")
	m.PutStr("gen_ai.provider.name", "openai")
	m.PutStr("gen_ai.request.model", "m-1")
	m.PutInt("gen_ai.usage.input_tokens", input)
	m.PutInt("gen_ai.usage.output_tokens", 5)
	b.cost += input + 10
	return sp
}

// run adds all of a run but its root: two calls, one of which failed first, and
// a tool with a database query below it.
func (b *batch) run(trace uint64) {
	failed := b.span(trace, 2, 1, "chat m-1")
	failed.SetKind(ptrace.SpanKindClient)
	failed.Status().SetCode(ptrace.StatusCodeError)
	m := failed.Attributes()
	m.PutStr("gen_ai.operation.name", "chat")
	m.PutStr("gen_ai.provider.name", "openai")
	m.PutStr("gen_ai.request.model", "m-1")
	m.PutStr("error.type", "rate_limit_exceeded")
	m.PutInt("http.response.status_code", 429)
	b.chat(trace, 3, 1, 100+int64(trace%50))
	b.span(trace, 4, 1, "execute_tool lookup").Attributes().PutStr("gen_ai.operation.name", "execute_tool")
	q := b.span(trace, 5, 4, "SELECT customers")
	q.SetKind(ptrace.SpanKindClient)
	q.Attributes().PutStr("db.system.name", "postgresql")
	b.chat(trace, 6, 1, 40)
}

// root adds the root of a run. It says who the run was for, so that it corrects
// what was posted before it.
func (b *batch) root(trace uint64) {
	m := b.span(trace, 1, 0, "invoke_agent planner").Attributes()
	m.PutStr("gen_ai.operation.name", "invoke_agent")
	m.PutStr("gen_ai.agent.name", "planner")
	m.PutStr("user.id", fmt.Sprintf("user-%d", trace%7))
	m.PutStr("app.feature", "triage")
}

// load sends runs to a service that may be down at any instant, each request
// again until it is acknowledged or, now and then, given up.
type load struct {
	s    *service
	stop chan struct{}
	wg   sync.WaitGroup

	mu           sync.Mutex // guards below
	acknowledged map[string]bool
	maybe        map[string]bool // sent, and never acknowledged
	cost         int64           // of what was acknowledged
	requests     int             // acknowledged, redelivered ones among them
	unknown      int             // attempts without an answer
	refused      int             // attempts answered with a retryable code
	surrender    bool
}

// newLoad starts senders. With surrender they give a request up now and then.
func newLoad(s *service, senders int, surrender bool) *load {
	l := &load{s: s, stop: make(chan struct{}), acknowledged: map[string]bool{}, maybe: map[string]bool{}, surrender: surrender}
	for i := range senders {
		l.wg.Go(func() { l.send(uint64(i+1) << 32) })
	}
	return l
}

func (l *load) send(trace uint64) {
	r := rand.New(rand.NewPCG(trace, 1))
	var roots []uint64
	var past []*batch // acknowledged ones, to be delivered again
	for first := true; ; first = false {
		select {
		case <-l.stop:
			if !first {
				return
			}
		default:
		}
		b := newBatch()
		for _, t := range roots { // of the request before
			b.root(t)
		}
		roots = roots[:0]
		for range 1 + r.IntN(12) {
			trace++
			b.run(trace)
			roots = append(roots, trace)
		}
		if l.deliver(b, r) && r.IntN(8) == 0 {
			past = append(past, b)
		}
		if len(past) > 0 && r.IntN(8) == 0 {
			l.deliver(past[r.IntN(len(past))], r)
		}
	}
}

// deliver sends a request until it is acknowledged, or reports that it gave up.
func (l *load) deliver(b *batch, r *rand.Rand) bool {
	body := encode(l.s.t, b.td)
	giveUp := l.surrender && r.IntN(3) == 0
	for {
		res, answer, err := l.s.send(body)
		l.mu.Lock()
		switch {
		case err != nil:
			l.unknown++
		case res.StatusCode == http.StatusOK && len(answer) == 0:
			if !l.acknowledged[b.ids[0]] {
				l.cost += b.cost
			}
			for _, id := range b.ids {
				l.acknowledged[id] = true
			}
			l.requests++
			l.mu.Unlock()
			return true
		case res.StatusCode == http.StatusServiceUnavailable && res.Header.Get("Retry-After") != "":
			l.refused++
		default:
			l.s.t.Errorf("status %s, answer %q", res.Status, answer)
			l.mu.Unlock()
			return false
		}
		if giveUp {
			for _, id := range b.ids {
				l.maybe[id] = true
			}
		}
		l.mu.Unlock()
		if giveUp {
			return false
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// wait stops the senders once every request they began is acknowledged.
func (l *load) wait() {
	close(l.stop)
	l.wg.Wait()
}

// count is how many spans were acknowledged so far.
func (l *load) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.acknowledged)
}

// check compares the books with what the senders know.
func (l *load) check(t *testing.T) {
	t.Helper()
	l.s.drain()
	l.s.checkBooks()
	l.s.checkSpans(l.acknowledged, maps.Clone(l.maybe))
	l.s.checkLedger()
	if len(l.maybe) == 0 {
		if got, want := l.s.one("SELECT toString(sum(cost)) FROM spend_15m"), fmt.Sprint(l.cost*1_000_000); got != want {
			t.Errorf("cost %s, want %s", got, want)
		}
	}
	t.Logf("%d requests with %d spans acknowledged, %d attempts without an answer, %d refused, %d spans given up", l.requests, len(l.acknowledged), l.unknown, l.refused, len(l.maybe))
}

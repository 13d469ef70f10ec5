package ingest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/flyball/flyball/ingest/otlp"
	"github.com/flyball/flyball/ingest/price"
	"github.com/flyball/flyball/ingest/wal"
	"github.com/flyball/flyball/schema"
	"github.com/flyball/flyball/schema/engine"
	"github.com/flyball/flyball/schema/schematest"
)

func TestMain(m *testing.M) { schematest.Main(m) }

// rig is a pipeline over one data directory that a test closes and opens again,
// before a real ClickHouse.
type rig struct {
	t      *testing.T
	p      *Pipeline
	o      Options
	engine *engine.Engine
}

func newRig(t *testing.T, change func(*Options)) *rig {
	t.Helper()
	cat, _, err := price.Load(price.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, engine: schematest.Open(t)}
	sink := &ClickHouse{}
	sink.Use(r.engine)
	r.o = Options{Dir: t.TempDir(), Price: NewPricer(cat), Sink: sink, Settle: 200 * time.Millisecond}
	if change != nil {
		change(&r.o)
	}
	r.open()
	t.Cleanup(r.close)
	return r
}

func (r *rig) open() {
	r.t.Helper()
	r.o.Registerer = prometheus.NewRegistry()
	p, err := Open(r.o)
	if err != nil {
		r.t.Fatal(err)
	}
	r.p = p
}

func (r *rig) close() {
	r.t.Helper()
	if r.p == nil {
		return
	}
	if err := r.p.Close(); err != nil {
		r.t.Error(err)
	}
	select {
	case err := <-r.p.Failed():
		r.t.Errorf("the pipeline failed: %v", err)
	default:
	}
	r.p = nil
}

func (r *rig) restart() {
	r.t.Helper()
	r.close()
	r.open()
}

func (r *rig) send(td ptrace.Traces) {
	r.t.Helper()
	res, err := r.p.Traces(r.t.Context(), otlp.Sender{Local: true}, td)
	if err != nil || res.Rejected > 0 {
		r.t.Fatal(res, err)
	}
}

// drain waits until the journal has everything.
func (r *rig) drain() {
	r.t.Helper()
	r.until("the journal has everything", func() bool { return r.p.Status().Queued == 0 })
}

func (r *rig) until(what string, f func() bool) {
	r.t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if f() {
			return
		}
	}
	r.t.Fatalf("timed out: %s; %+v", what, r.p.Status())
}

// one is the single number of a statement.
func (r *rig) one(sql string, args ...any) int64 {
	r.t.Helper()
	var n int64
	if err := r.engine.Reader().QueryRow(context.Background(), "SELECT toInt64(("+sql+"))", args...).Scan(&n); err != nil {
		r.t.Fatalf("%s: %v", sql, err)
	}
	return n
}

// spans checks that the journal has so many lines, each entry once, and that the
// rollups are its signed sums.
func (r *rig) spans(want int64) {
	r.t.Helper()
	f := func(what, sql string, want int64) {
		r.t.Helper()
		if got := r.one(sql); got != want {
			r.t.Errorf("%s: %d, want %d", what, got, want)
		}
	}
	f("lines", "SELECT sum(sign) FROM journal", want)
	f("entries stored twice", "SELECT count() FROM (SELECT 1 FROM journal GROUP BY tenant, trace_id, span_id, part, version, sign HAVING count() > 1)", 0)
	f("lines with a wrong sum of signs", "SELECT count() FROM (SELECT 1 FROM journal GROUP BY tenant, trace_id, span_id, part HAVING sum(sign) NOT IN (0, 1))", 0)
	f("lines of spend_15m", "SELECT sum(lines) FROM spend_15m", want)
	f("lines of runs", "SELECT sum(lines) FROM runs", want)
	cost := r.one("SELECT sum(sign * ifNull(cost, 0)) FROM journal")
	f("cost of spend_15m", "SELECT sum(cost) FROM spend_15m", cost)
	f("cost of runs", "SELECT sum(cost) FROM runs", cost)
	calls := r.one("SELECT sum(sign * (toInt64(model_calls) + tool_calls + retries + fallbacks + hedges)) FROM journal")
	f("calls of spend_15m", "SELECT sum(calls) FROM spend_15m", calls)
	f("calls of runs", "SELECT sum(model_calls + tool_calls + retries + fallbacks + hedges) FROM runs", calls)
}

// each is what a chat of chats costs: 2,000 input and 500 output tokens.
const each = 10_000_000_000 // 1e-12 USD, 0.01 USD

// chats are the calls with numbers in [from, to), ten in a trace, 0.01 USD each.
func chats(from, to int, change func(i int, sp ptrace.Span)) ptrace.Traces {
	td := ptrace.NewTraces()
	ss := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty()
	ss.Scope().SetName("test")
	start := time.Now().Add(-time.Hour).Truncate(time.Hour)
	for i := from; i < to; i++ {
		sp := ss.Spans().AppendEmpty()
		var trace pcommon.TraceID
		var span pcommon.SpanID
		binary.BigEndian.PutUint64(trace[8:], uint64(i/10)+1)
		binary.BigEndian.PutUint64(span[:], uint64(i)+1)
		sp.SetTraceID(trace)
		sp.SetSpanID(span)
		sp.SetName("chat gpt-4o")
		sp.SetKind(ptrace.SpanKindClient)
		sp.SetStartTimestamp(pcommon.NewTimestampFromTime(start.Add(time.Duration(i) * time.Millisecond)))
		sp.SetEndTimestamp(pcommon.NewTimestampFromTime(start.Add(time.Duration(i)*time.Millisecond + time.Second)))
		m := sp.Attributes()
		m.PutStr("gen_ai.operation.name", "chat")
		m.PutStr("gen_ai.provider.name", "openai")
		m.PutStr("gen_ai.request.model", "gpt-4o")
		m.PutInt("gen_ai.usage.input_tokens", 2000)
		m.PutInt("gen_ai.usage.output_tokens", 500)
		if change != nil {
			change(i, sp)
		}
	}
	return td
}

// count is how many spans had a result since the pipeline was opened.
func (r *rig) count(result string) int {
	r.t.Helper()
	families, err := r.o.Registerer.(*prometheus.Registry).Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	n := 0.0
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "flyball_spans_total" && m.GetLabel()[0].GetValue() == result {
				n = m.GetCounter().GetValue()
			}
		}
	}
	return int(n)
}

// TestRedelivery: the same batch comes again at once, in other requests, after a
// restart and at the same time. It is 500 calls of 0.01 USD, and no retry.
func TestRedelivery(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	check := func() {
		t.Helper()
		r.drain()
		r.spans(500)
		if got := r.one("SELECT sum(cost) FROM spend_15m"); got != 500*each {
			t.Errorf("cost %d, want %d", got, 500*each)
		}
		if got := r.one("SELECT sum(retries) + sum(hidden_attempts) + sum(repeats) FROM spend_15m"); got != 0 {
			t.Errorf("%d retries", got)
		}
	}
	r.send(chats(0, 500, nil))
	r.send(chats(0, 500, nil))
	check()
	r.send(chats(0, 400, nil))
	r.send(chats(400, 500, nil))
	check()
	r.restart()
	r.send(chats(0, 500, nil))
	check()
	if got := r.count("duplicate"); got != 500 {
		t.Errorf("%d duplicates after the restart", got)
	}
	r.restart()
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() { r.send(chats(i*50, 500, nil)) })
	}
	wg.Wait()
	check()
}

// TestDuplicateWaits: a duplicate that comes while the original waits for its
// fsync is not acknowledged before it.
func TestDuplicateWaits(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	for i := range 50 {
		td := chats(i*10, i*10+10, nil)
		calls, _ := r.p.reader.Load().AppendSpans(nil, td, origin(otlp.Sender{Local: true}), time.Now().UnixNano())
		original, err := r.p.asm.Add(calls, time.Now().UnixNano())
		if err != nil {
			t.Fatal(err)
		}
		r.send(td)
		if got := r.p.log.Synced(); got < wal.Position(original.End) {
			t.Fatalf("acknowledged at %d, the original ends at %d", got, original.End)
		}
	}
	r.drain()
	r.spans(500)
}

// TestDistinctIDs: calls that differ in nothing but a byte of their ids stay apart.
func TestDistinctIDs(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	for range 2 {
		r.send(chats(0, 500, func(i int, sp ptrace.Span) { sp.SetTraceID(pcommon.TraceID{15: byte(1 + i%2)}) }))
	}
	r.drain()
	r.spans(500)
}

// TestClockSteppedBack: recorded_at does not follow a clock that steps back,
// neither at once nor over a restart with everything stored.
func TestClockSteppedBack(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	add := func(from int, now time.Time) {
		t.Helper()
		calls, _ := r.p.reader.Load().AppendSpans(nil, chats(from, from+10, nil), origin(otlp.Sender{Local: true}), now.UnixNano())
		res, err := r.p.asm.Add(calls, now.UnixNano())
		if err != nil {
			t.Fatal(err)
		}
		if err := r.p.log.Sync(t.Context(), wal.Position(res.End)); err != nil {
			t.Fatal(err)
		}
		r.drain()
	}
	ahead := time.Now().Add(30 * time.Minute)
	add(0, ahead)
	add(10, time.Now())
	r.restart()
	add(20, time.Now())
	if got := r.one("SELECT countIf(recorded_at < fromUnixTimestamp64Micro(?)) FROM journal", ahead.UnixMicro()); got != 0 {
		t.Errorf("%d entries are recorded before an earlier one", got)
	}
	r.spans(30)
}

// TestRememberedOvernight: a long trace that changed just before midnight is still
// known after it, whatever day it began, and so are its pages that did not change.
func TestRememberedOvernight(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(o *Options) { o.Sink, o.MaxBytes = nil, 1 })
	day := time.Now().Truncate(24 * time.Hour)
	tokens := int64(2000)
	oneTrace := func(_ int, sp ptrace.Span) {
		sp.SetTraceID(pcommon.TraceID{15: 1})
		sp.Attributes().PutInt("gen_ai.usage.input_tokens", tokens)
	}
	add := func(from, to int, now time.Time) int {
		t.Helper()
		calls, _ := r.p.reader.Load().AppendSpans(nil, chats(from, to, oneTrace), origin(otlp.Sender{Local: true}), now.UnixNano())
		res, err := r.p.asm.Add(calls, now.UnixNano())
		if err != nil {
			t.Fatal(err)
		}
		// Saved and, with so little memory, gone from it.
		if err := errors.Join(r.p.checkpoint(now.UnixNano(), true), r.p.store.Expire(now.UnixNano())); err != nil {
			t.Fatal(err)
		}
		return res.New
	}
	morning, night, after, next := day.Add(time.Minute), day.Add(48*time.Hour-time.Minute), day.Add(48*time.Hour+time.Minute), day.Add(72*time.Hour-2*time.Minute)
	if got := add(0, 600, morning); got != 600 {
		t.Fatal(got)
	}
	tokens = 3000
	if got := add(0, 1, night); got != 0 {
		t.Fatal(got)
	}
	if got := add(0, 600, after); got != 0 {
		t.Errorf("%d of 600 spans were taken as new after two minutes", got)
	}
	if got := add(0, 600, next); got != 0 {
		t.Errorf("%d of 600 spans were taken as new within a day", got)
	}
}

// TestRunsThatComeBackStay: runs that send something in every round are brought back from the store
// until memory has made room for them, and then no more, also after a restart, when all of them are.
func TestRunsThatComeBackStay(t *testing.T) {
	t.Parallel()
	const traces, rounds = 100, 10
	f := func(budget int64, restart int) (reloads []int) {
		t.Helper()
		r := newRig(t, func(o *Options) { o.Sink, o.MaxBytes = nil, budget })
		before := 0
		for round := range rounds {
			if round == restart {
				r.restart()
				before = 0
			}
			now := time.Now().Add(time.Duration(round) * time.Minute)
			td := chats(0, traces*10, func(i int, sp ptrace.Span) {
				sp.SetSpanID(pcommon.SpanID{byte(round + 1), byte(i >> 8), byte(i)})
			})
			calls, _ := r.p.reader.Load().AppendSpans(nil, td, origin(otlp.Sender{Local: true}), now.UnixNano())
			if _, err := r.p.asm.Add(calls, now.UnixNano()); err != nil {
				t.Fatal(err)
			}
			if err := r.p.checkpoint(now.UnixNano(), true); err != nil {
				t.Fatal(err)
			}
			all := r.counter("flyball_trace_reloaded_total")
			reloads = append(reloads, all-before)
			before = all
		}
		return reloads
	}
	if got := f(6<<20, 0); slices.Max(got) == 0 || got[rounds-1] != 0 {
		t.Errorf("%v of %d runs were brought back", got, traces)
	}
	if got := f(64<<20, 4); got[4] != traces || got[rounds-1] != 0 {
		t.Errorf("%v of %d runs were brought back, with a restart before the fifth round", got, traces)
	}
	if got := f(1, 0); got[rounds-1] != traces {
		t.Errorf("%v of %d runs were brought back where there is no memory for any", got, traces)
	}
}

// TestCheckpointAfterReplay: a restart does not send the checkpoint back to the
// beginning, which would keep the whole log and replay it again and again.
func TestCheckpointAfterReplay(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.send(chats(0, 100, nil))
	r.drain()
	r.restart() // saves everything
	r.send(chats(100, 200, nil))
	r.drain()
	if err := r.p.checkpoint(time.Now().UnixNano(), true); err != nil {
		t.Fatal(err)
	}
	before := position(r.stored(keyCheckpoint), 1)[0]
	if before == 0 {
		t.Fatal("no checkpoint")
	}
	r.crash()
	if err := r.p.checkpoint(time.Now().UnixNano(), false); err != nil {
		t.Fatal(err)
	}
	if after := position(r.stored(keyCheckpoint), 1)[0]; after < before {
		t.Errorf("the checkpoint went back from %d to %d", before, after)
	}
	r.drain()
	r.spans(200)
}

// TestRecordsOfOneAnswerOverAStop: the client's record is saved and out of memory when the
// gateway's comes after a stop, or after a crash.
func TestRecordsOfOneAnswerOverAStop(t *testing.T) {
	t.Parallel()
	f := func(again func(*rig)) {
		t.Helper()
		r := newRig(t, func(o *Options) { o.MaxOpen = 1 })
		start := time.Now().Add(-time.Minute)
		record := func(trace byte, from, to time.Duration) ptrace.Traces {
			td := chats(0, 1, func(_ int, sp ptrace.Span) {
				sp.SetTraceID(pcommon.TraceID{15: trace})
				sp.SetStartTimestamp(pcommon.NewTimestampFromTime(start.Add(from)))
				sp.SetEndTimestamp(pcommon.NewTimestampFromTime(start.Add(to)))
				sp.Attributes().PutStr("gen_ai.response.id", "resp-1")
			})
			return td
		}
		r.send(record(1, 0, 3*time.Second))
		r.drain()
		if err := r.p.checkpoint(time.Now().UnixNano(), true); err != nil {
			t.Fatal(err)
		}
		again(r)
		r.send(record(2, time.Second, 2*time.Second))
		r.drain()
		r.spans(2)
		if n := r.one("SELECT sum(sign * toInt64(model_calls)) FROM journal"); n != 1 {
			t.Errorf("one answer counts as %d calls", n)
		}
	}
	f((*rig).restart)
	f((*rig).crash)
}

// TestLogWithoutItsStore: what the log has may be stored, which only the lost store knows.
func TestLogWithoutItsStore(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.send(chats(0, 10, nil))
	r.drain()
	r.close()
	if err := os.RemoveAll(filepath.Join(r.o.Dir, "state")); err != nil {
		t.Fatal(err)
	}
	r.o.Registerer = prometheus.NewRegistry()
	if p, err := Open(r.o); err == nil {
		t.Error("it started")
		_ = p.Close()
	} else if !strings.Contains(err.Error(), "state directory") {
		t.Error(err)
	}
	if err := os.RemoveAll(filepath.Join(r.o.Dir, "wal")); err != nil {
		t.Fatal(err)
	}
	_ = os.RemoveAll(filepath.Join(r.o.Dir, "state"))
	r.open()
	r.spans(10)
}

func (r *rig) stored(name string) []byte {
	r.t.Helper()
	b, err := r.p.store.Get(name)
	if err != nil {
		r.t.Fatal(err)
	}
	return b
}

// crash opens the pipeline again without a last checkpoint.
func (r *rig) crash() {
	r.t.Helper()
	r.p.stop()
	r.p.done.Wait()
	if err := errors.Join(r.p.log.Close(), r.p.store.Close()); err != nil {
		r.t.Fatal(err)
	}
	r.open()
}

// TestPanicInAssembly: spans that were claimed when something broke are not
// acknowledged as duplicates afterwards.
func TestPanicInAssembly(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	cat := r.o.Price.Catalogue()
	r.o.Price.Use(nil)
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		_, _ = r.p.Traces(t.Context(), otlp.Sender{Local: true}, chats(0, 10, nil))
	}()
	r.o.Price.Use(cat)
	if _, err := r.p.Traces(t.Context(), otlp.Sender{Local: true}, chats(0, 10, nil)); err == nil {
		t.Error("spans that are not in the log were acknowledged")
	}
	select {
	case <-r.p.Failed():
	default:
		t.Error("the pipeline goes on")
	}
	r.restart()
	r.send(chats(0, 10, nil))
	r.drain()
	r.spans(10)
}

// TestLogFull: a full log refuses with a retryable error before anything is
// claimed, and takes data again soon after ClickHouse has caught up.
func TestLogFull(t *testing.T) {
	sink := &faultySink{}
	r := newRig(t, func(o *Options) {
		sink.Sink = o.Sink
		o.Sink, o.WALBytes = sink, 256<<10
	})
	sink.set(func(_ string, insert func() error) error { return errDown })
	// Their parent never comes, so that memory holds them, and the log with them.
	orphan := func(_ int, sp ptrace.Span) { sp.SetParentSpanID(pcommon.SpanID{0: 255}) }
	taken := 0
	var refused error
	for taken < 100_000 {
		_, refused = r.p.Traces(t.Context(), otlp.Sender{Local: true}, chats(taken, taken+100, orphan))
		if refused != nil {
			break
		}
		taken += 100
	}
	var o otlp.Overload
	if !errors.As(refused, &o) || o.RetryAfter <= 0 || o.Throttled {
		t.Fatalf("%d spans taken, then %v", taken, refused)
	}
	if got := r.count("new"); got != taken {
		t.Errorf("%d spans claimed, %d taken", got, taken)
	}
	sink.set(nil)
	began := time.Now()
	r.until("spans are taken again", func() bool {
		_, err := r.p.Traces(t.Context(), otlp.Sender{Local: true}, chats(taken, taken+100, orphan))
		return err == nil
	})
	if d := time.Since(began); d > 5*time.Second { // traces rest for longer
		t.Errorf("took spans again after %v", d)
	}
	r.drain()
	r.spans(int64(taken) + 100)
	t.Logf("%d spans in the log, taken again after %v", taken, time.Since(began))
}

// TestFewParts: hundreds of small requests make few parts, in the journal and in
// what its views write.
func TestFewParts(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	began := time.Now()
	const requests = 400
	for i := range requests {
		r.send(chats(i*3, i*3+3, nil))
		time.Sleep(5 * time.Millisecond)
	}
	r.drain()
	r.spans(3 * requests)
	seconds := int64(time.Since(began)/time.Second) + 2
	parts := r.one("SELECT max(n) FROM (SELECT count() AS n FROM system.parts WHERE active AND database = currentDatabase() AND table IN ('journal', 'spend_15m', 'runs', 'run_info') GROUP BY table)")
	inserts := r.one("SELECT uniqExact(chunk) FROM journal")
	if inserts > seconds || parts > inserts {
		t.Errorf("%d inserts of %d requests in %d seconds, and %d parts of a table", inserts, requests, seconds, parts)
	}
	t.Logf("%d requests: %d inserts, at most %d active parts of a table", requests, inserts, parts)
}

// TestManyTenants: a hundred thousand tenants in two requests, then again. Blocks
// stay bounded.
func TestManyTenants(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	const tenants = 100_000
	for range 2 {
		for from := 0; from < tenants; from += tenants / 2 {
			r.send(chats(from, from+tenants/2, func(i int, sp ptrace.Span) { sp.Attributes().PutStr("tenant.id", fmt.Sprintf("tenant-%d", i)) }))
		}
	}
	r.drain()
	r.spans(tenants)
	if got := r.one("SELECT max(n) FROM (SELECT count() AS n FROM journal GROUP BY chunk)"); got > chunkRows+sliceCalls {
		t.Errorf("a block of %d rows", got)
	}
	if got := r.one("SELECT uniqExact(tenant) FROM spend_15m WHERE cost = ?", int64(each)); got != tenants {
		t.Errorf("%d tenants with the right cost", got)
	}
}

// TestManyMonths: one request has calls of more months than ClickHouse takes
// partitions in one block.
func TestManyMonths(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	const months = 130
	r.send(chats(0, months*10, func(i int, sp ptrace.Span) {
		start := time.Date(2016, 1, 15, 0, 0, 0, 0, time.UTC).AddDate(0, i/10, 0)
		sp.SetStartTimestamp(pcommon.NewTimestampFromTime(start))
		sp.SetEndTimestamp(pcommon.NewTimestampFromTime(start.Add(time.Second)))
	}))
	r.drain()
	r.spans(months * 10)
	if got := r.one("SELECT uniqExact(toYYYYMM(started_at)) FROM run_info"); got != months {
		t.Errorf("runs of %d months are described, want %d", got, months)
	}
}

// TestFoldOpenRuns: the day that is not over has states once it has enough runs, and for a while
// no others; its end replaces them.
func TestFoldOpenRuns(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	fold := func(want schema.RunStates, calls int64) {
		t.Helper()
		if _, err := r.p.FoldRuns(t.Context(), r.engine.Conn()); err != nil {
			t.Fatal(err)
		}
		got, err := schema.ReadRunStates(t.Context(), r.engine.Conn())
		if err != nil || !got.Folded.Equal(want.Folded) || !got.Open.Equal(want.Open) {
			t.Errorf("states %v, %v, want %v", got, err, want)
		}
		if got := r.one("SELECT sum(sign * model_calls) FROM run_states"); got != calls {
			t.Errorf("the states have %d calls, want %d", got, calls)
		}
	}
	send := func(first int) time.Time {
		t.Helper()
		r.send(chats(first, first+50, func(int, ptrace.Span) {}))
		r.drain()
		return time.UnixMicro(r.one("SELECT toUnixTimestamp64Micro(max(recorded_at)) FROM journal")).UTC()
	}
	at := send(0)
	fold(schema.RunStates{}, 0)
	r.p.opened = openStates{least: 1}
	fold(schema.RunStates{Open: at}, 50)
	later := send(50)
	fold(schema.RunStates{Open: at}, 50) // not yet again
	r.p.opened.again = time.Time{}
	fold(schema.RunStates{Open: later}, 100)
	day := later.Truncate(24 * time.Hour)
	r.p.writer.mu.Lock() // an entry of the next day is confirmed
	r.p.writer.recorded = day.Add(24 * time.Hour).UnixMicro()
	r.p.writer.mu.Unlock()
	fold(schema.RunStates{Folded: day}, 100)
}

// TestFoldRuns: the states of runs are made of days that are over in the log, whatever the
// clock says, and of nothing else.
func TestFoldRuns(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.send(chats(0, 50, func(int, ptrace.Span) {}))
	r.drain()
	fold := func() time.Time {
		t.Helper()
		through, err := r.p.FoldRuns(t.Context(), r.engine.Conn())
		if err != nil {
			t.Fatal(err)
		}
		return through
	}
	last := r.one("SELECT toUnixTimestamp64Micro(max(recorded_at)) FROM journal")
	for range 2 {
		if got := r.p.writer.through().UnixMicro(); got != last {
			t.Errorf("everything is there up to %d, want %d", got, last)
		}
		if day := fold(); !day.IsZero() {
			t.Errorf("states of %s, on which more may be recorded", day)
		}
		r.restart()
	}
	day := time.UnixMicro(last).UTC().Truncate(24 * time.Hour)
	r.p.writer.mu.Lock() // an entry of the next day is confirmed
	r.p.writer.recorded = day.Add(24 * time.Hour).UnixMicro()
	r.p.writer.mu.Unlock()
	if got := fold(); !got.Equal(day) {
		t.Errorf("states up to %s, want %s", got, day)
	}
	if day := fold(); !day.IsZero() {
		t.Errorf("states of %s are made again", day)
	}
	if calls, cost := r.one("SELECT sum(sign * model_calls) FROM run_states"), r.one("SELECT sum(sign * cost) FROM run_states"); calls != 50 || cost != 50*each {
		t.Errorf("the states have %d calls and %d of cost, want 50 of %d", calls, cost, each)
	}
}

package ingest

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/flyball/flyball/schema"
)

// faultySink is ClickHouse with faults around its inserts.
type faultySink struct {
	Sink

	mu     sync.Mutex // guards below
	fault  func(token string, insert func() error) error
	tokens []string // of every attempt
}

var errDown = errors.New("connection lost")

func (f *faultySink) set(fault func(token string, insert func() error) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fault = fault
}

func (f *faultySink) Insert(ctx context.Context, token string, rows *schema.Columns, runs []schema.RunInfo) error {
	return f.attempt(token, func() error { return f.Sink.Insert(ctx, token, rows, runs) })
}

func (f *faultySink) InsertSamples(ctx context.Context, token string, rows []schema.Sample) error {
	return f.attempt(token, func() error { return f.Sink.InsertSamples(ctx, token, rows) })
}

func (f *faultySink) attempt(token string, insert func() error) error {
	f.mu.Lock()
	fault := f.fault
	f.tokens = append(f.tokens, token)
	f.mu.Unlock()
	if fault == nil {
		return insert()
	}
	return fault(token, insert)
}

func (f *faultySink) attempts() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.tokens...)
}

// newFaultyRig is a rig whose sink can be made to fail.
func newFaultyRig(t *testing.T) (*rig, *faultySink) {
	t.Helper()
	sink := &faultySink{}
	r := newRig(t, func(o *Options) {
		sink.Sink = o.Sink
		o.Sink = sink
	})
	return r, sink
}

// TestUnknownOutcome: an insert fails after, or before, the block was stored; it
// is repeated with its token and doubles nothing.
func TestUnknownOutcome(t *testing.T) {
	t.Parallel()
	f := func(fault func(insert func() error) error) {
		t.Helper()
		r, sink := newFaultyRig(t)
		failures := 0
		sink.set(func(token string, insert func() error) error {
			if failures++; failures%3 == 0 {
				return insert()
			}
			return fault(insert)
		})
		for i := range 2 {
			r.send(chats(i*500, i*500+500, nil))
			r.drain()
		}
		r.spans(1000)
		if got := r.one("SELECT sum(cost) FROM spend_15m"); got != 1000*each {
			t.Errorf("cost %d, want %d", got, 1000*each)
		}
		if n := len(sink.attempts()); n < 6 {
			t.Errorf("%d attempts", n)
		}
	}
	f(func(insert func() error) error { return errors.Join(insert(), errDown) })
	f(func(insert func() error) error { return errDown })
}

// TestUnknownOutcomeOfManyGroups: the same where a late root corrects so many
// calls that the engine aggregates a rollup's share of the block in several parts.
func TestUnknownOutcomeOfManyGroups(t *testing.T) {
	if os.Getenv("FLYBALL_FAULT") != "long" {
		t.Skip("takes half a minute; FLYBALL_FAULT=long asks for it")
	}
	t.Parallel()
	r, sink := newFaultyRig(t)
	const n = 60_000
	root := pcommon.SpanID{0: 255}
	r.send(chats(0, n, func(i int, sp ptrace.Span) {
		sp.SetTraceID(pcommon.TraceID{15: 1})
		sp.SetParentSpanID(root)
		sp.Attributes().PutStr("user.id", fmt.Sprintf("user-%d", i))
	}))
	r.drain()
	failures := 0
	sink.set(func(_ string, insert func() error) error {
		err := insert()
		if failures++; failures < 3 && err == nil {
			err = errDown
		}
		return err
	})
	r.send(chats(n, n+1, func(i int, sp ptrace.Span) {
		sp.SetTraceID(pcommon.TraceID{15: 1})
		sp.SetSpanID(root)
		sp.Attributes().PutStr("gen_ai.operation.name", "invoke_agent")
		sp.Attributes().PutStr("session.id", "s-1")
		sp.Attributes().PutStr("gen_ai.workflow.name", "w-1")
	}))
	r.drain()
	if got := r.one("SELECT max(n) FROM (SELECT count() AS n FROM journal GROUP BY chunk)"); got <= 2*n {
		t.Errorf("a block of %d rows", got)
	}
	r.spans(n + 1)
	if got := r.one("SELECT uniqExact(user) FROM (SELECT user FROM spend_15m GROUP BY user HAVING sum(lines) = 1)"); got < n {
		t.Errorf("%d users with one line, want %d", got, n)
	}
}

// TestCrashBeforeConfirm: the process ends between an insert and its
// confirmation. The next one sends the same block under the same token.
func TestCrashBeforeConfirm(t *testing.T) {
	t.Parallel()
	r, sink := newFaultyRig(t)
	stored := make(chan struct{}, 1)
	sink.set(func(_ string, insert func() error) error {
		if err := insert(); err != nil {
			return err
		}
		select {
		case stored <- struct{}{}:
		default:
		}
		return errDown // and again, until the pipeline is gone
	})
	r.send(chats(0, 500, nil))
	<-stored
	r.crash()
	sink.set(nil)
	r.drain()
	r.spans(500)
	tokens := sink.attempts()
	for _, token := range tokens {
		if token != tokens[0] {
			t.Errorf("the chunk was sent as %q", tokens)
			break
		}
	}
}

// poison makes the journal refuse every block that holds a span of that name.
func (r *rig) poison(name string) {
	r.t.Helper()
	if err := r.engine.Conn().Exec(context.Background(), "ALTER TABLE journal ADD CONSTRAINT poison CHECK name != '"+name+"'"); err != nil {
		r.t.Fatal(err)
	}
}

// quarantined are the span ids in the quarantine file.
func (r *rig) quarantined() []string {
	r.t.Helper()
	b, err := os.ReadFile(filepath.Join(r.o.Dir, "quarantine", "entries.jsonl"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		r.t.Fatal(err)
	}
	var out []string
	for line := range bytes.Lines(b) {
		var e struct {
			Span  string `json:"span_id"`
			Error string `json:"error"`
			Call  []byte `json:"call"`
		}
		if err := json.Unmarshal(line, &e); err != nil || len(e.Call) == 0 || e.Error == "" {
			r.t.Errorf("quarantined line %s: %v", line, err)
		}
		out = append(out, e.Span)
	}
	return out
}

// spanHex is the id of a chat.
func spanHex(i int) string { return fmt.Sprintf("%016x", i+1) }

// TestBadEntry: the engine refuses one entry of a chunk. It alone is put aside.
func TestBadEntry(t *testing.T) {
	t.Parallel()
	f := func(n, bad int) {
		t.Helper()
		r, sink := newFaultyRig(t)
		r.poison("poison")
		r.send(chats(0, n, func(i int, sp ptrace.Span) {
			if i == bad {
				sp.SetName("poison")
			}
		}))
		r.drain()
		r.spans(int64(n) - 1)
		if got := r.quarantined(); len(got) != 1 || got[0] != spanHex(bad) {
			t.Errorf("quarantined %v, want %s", got, spanHex(bad))
		}
		if got := r.p.Status(); got.Quarantined != 1 || got.Queued != 0 {
			t.Errorf("%+v", got)
		}
		if n := len(sink.attempts()); n > 30 {
			t.Errorf("%d inserts", n)
		}
	}
	f(500, 123)
	f(1, 0)
}

// TestBadEntryAndRestart: the process ends at each step of the halving in turn,
// after the insert of that step was stored or refused. Nothing is stored or put
// aside twice.
func TestBadEntryAndRestart(t *testing.T) {
	t.Parallel()
	r, sink := newFaultyRig(t)
	r.poison("poison")
	const n = 40
	step := make(chan struct{}, 1000)
	limit := 0 // inserts that are let through before the process ends
	arm := func() {
		left := limit
		sink.set(func(_ string, insert func() error) error {
			if left--; left < 0 {
				step <- struct{}{}
				return errors.Join(insert(), errDown) // stored or not, and nobody hears of it
			}
			return insert()
		})
	}
	arm()
	r.send(chats(0, n, func(i int, sp ptrace.Span) {
		if i == 17 {
			sp.SetName("poison")
		}
	}))
	crashes := 0
	for {
		done := false
		r.until("the next step", func() bool {
			select {
			case <-step:
				return true
			default:
				done = r.p.Status().Queued == 0
				return done
			}
		})
		if done {
			break
		}
		limit++
		r.p.stop()
		r.p.done.Wait()
		arm()
		r.crash()
		for len(step) > 0 {
			<-step
		}
		crashes++
	}
	sink.set(nil)
	r.spans(n - 1)
	if got := r.quarantined(); len(got) != 1 || got[0] != spanHex(17) {
		t.Errorf("quarantined %v, want %s", got, spanHex(17))
	}
	if got := r.p.Status().Quarantined; got != 1 {
		t.Errorf("%d in quarantine", got)
	}
	if crashes < 5 {
		t.Errorf("%d crashes", crashes)
	}
	r.restart()
	if got := r.p.Status().Quarantined; got != 1 {
		t.Errorf("%d in quarantine after a restart", got)
	}
}

// TestBadEntryCured: what refused the entry is gone after a restart amid the
// halving. The chunk, or a half, of which a part is stored is not sent whole again.
func TestBadEntryCured(t *testing.T) {
	t.Parallel()
	f := func(bad int) {
		t.Helper()
		r, sink := newFaultyRig(t)
		r.poison("poison")
		half := make(chan struct{}, 100)
		sink.set(func(token string, insert func() error) error {
			err := insert()
			if err == nil { // the first part that is stored
				half <- struct{}{}
				return errDown
			}
			return err
		})
		r.send(chats(0, 40, func(i int, sp ptrace.Span) {
			if i == bad {
				sp.SetName("poison")
			}
		}))
		<-half
		r.p.stop()
		r.p.done.Wait()
		if err := r.engine.Conn().Exec(t.Context(), "ALTER TABLE journal DROP CONSTRAINT poison"); err != nil {
			t.Fatal(err)
		}
		sink.set(nil)
		r.crash()
		r.drain()
		r.spans(40)
		if got := r.quarantined(); len(got) != 0 {
			t.Errorf("quarantined %v", got)
		}
		if got := r.stored("split-1"); got != nil {
			t.Errorf("the store still knows the split: %v", got)
		}
	}
	f(39) // a half is stored
	f(5)  // an eighth is
}

// TestBadEntryAmongCorrections: a half begins with a line whose former version the
// other half has cancelled. That one being stored does not make this one look so.
func TestBadEntryAmongCorrections(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	root := pcommon.SpanID{0: 255}
	r.send(chats(0, 40, func(i int, sp ptrace.Span) {
		sp.SetTraceID(pcommon.TraceID{15: 1})
		sp.SetParentSpanID(root)
		if i == 30 {
			sp.SetName("poison")
		}
	}))
	r.drain()
	if err := r.engine.Conn().Exec(t.Context(), "ALTER TABLE journal ADD CONSTRAINT poison CHECK name != 'poison' OR user = ''"); err != nil {
		t.Fatal(err)
	}
	r.send(chats(40, 41, func(_ int, sp ptrace.Span) {
		sp.SetTraceID(pcommon.TraceID{15: 1})
		sp.SetSpanID(root)
		sp.Attributes().PutStr("gen_ai.operation.name", "invoke_agent")
		sp.Attributes().PutStr("user.id", "u-1")
	}))
	r.drain()
	if n := r.one("SELECT count() FROM journal WHERE sign = -1"); n != 40 {
		t.Errorf("%d corrections", n)
	}
	r.spans(40) // 41 less the one put aside
	if got := r.quarantined(); len(got) != 1 || got[0] != spanHex(30) {
		t.Errorf("quarantined %v, want %s", got, spanHex(30))
	}
}

// TestViewRefusesAHalf: a chunk has an entry that the journal refuses, and one that
// a view of it does. The half with the latter waits for a cure and is not split.
func TestViewRefusesAHalf(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.poison("poison")
	alter := func(what string) {
		t.Helper()
		if err := r.engine.Conn().Exec(t.Context(), "ALTER TABLE spend_15m "+what); err != nil {
			t.Fatal(err)
		}
	}
	alter("ADD CONSTRAINT no_user CHECK user != 'u-7'")
	r.send(chats(0, 50, func(i int, sp ptrace.Span) {
		if i == 7 {
			sp.Attributes().PutStr("user.id", "u-7")
		}
		if i == 45 {
			sp.SetName("poison")
		}
	}))
	r.until("the status says why", func() bool { return strings.Contains(r.p.Status().Waiting, "no_user") })
	r.crash()
	r.until("it does after a restart", func() bool { return strings.Contains(r.p.Status().Waiting, "no_user") })
	alter("DROP CONSTRAINT no_user")
	r.drain()
	r.spans(49)
	if got := r.quarantined(); len(got) != 1 || got[0] != spanHex(45) {
		t.Errorf("quarantined %v, want %s", got, spanHex(45))
	}
}

// TestViewRefuses: the journal takes a block and a view of it does not. The chunk
// waits, and is complete once the view is cured.
func TestViewRefuses(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	alter := func(what string) {
		t.Helper()
		if err := r.engine.Conn().Exec(t.Context(), "ALTER TABLE spend_15m "+what); err != nil {
			t.Fatal(err)
		}
	}
	alter("ADD CONSTRAINT poison CHECK user != 'poison'")
	r.send(chats(0, 50, func(i int, sp ptrace.Span) {
		if i == 7 {
			sp.Attributes().PutStr("user.id", "poison")
		}
	}))
	r.until("the status says why", func() bool { return strings.Contains(r.p.Status().Waiting, "poison") })
	r.restart()
	r.until("it does after a restart", func() bool { return strings.Contains(r.p.Status().Waiting, "poison") })
	alter("DROP CONSTRAINT poison")
	r.drain()
	r.spans(50)
	if got := r.quarantined(); len(got) != 0 {
		t.Errorf("quarantined %v", got)
	}
}

// TestSinkDown: while ClickHouse is away spans are taken and the status says what
// is waited for. Then everything is stored, oldest first, beside live traffic.
func TestSinkDown(t *testing.T) {
	t.Parallel()
	r, sink := newFaultyRig(t)
	sink.set(func(string, func() error) error { return errDown })
	const down = 4
	for i := range down {
		r.send(chats(i*100, i*100+100, nil))
		time.Sleep(1100 * time.Millisecond) // a chunk each
	}
	if st := r.p.Status(); st.Queued != down*100 || !strings.Contains(st.Waiting, errDown.Error()) || st.LagSeconds < 3 {
		t.Errorf("%+v", st)
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	sent := down * 100
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				r.send(chats(sent, sent+10, nil))
				sent += 10
				time.Sleep(5 * time.Millisecond)
			}
		}
	})
	sink.set(nil)
	r.until("what waited is stored", func() bool { return r.p.Status().LastChunk >= down })
	close(stop)
	wg.Wait()
	r.drain()
	r.spans(int64(sent))
	var order []string
	for _, token := range sink.attempts() {
		if len(order) == 0 || order[len(order)-1] != token {
			order = append(order, token)
		}
	}
	for i, token := range order {
		if want := fmt.Sprintf("%s-%d-", hex.EncodeToString(r.p.node), i+1); !strings.HasPrefix(token, want) {
			t.Errorf("insert %d has token %s, want %s…", i, token, want)
		}
	}
	if st := r.p.Status(); st.Waiting != "" || st.LagSeconds != 0 {
		t.Errorf("%+v", st)
	}
}

package ingest

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/flyball/flyball/schema"
	"github.com/flyball/flyball/schema/schematest"
)

func TestCheckConservationFindsWhatIsBroken(t *testing.T) {
	e := schematest.Open(t)
	ctx := context.Background()
	now := time.Now().UTC()
	var flags schema.Flags
	start := now
	send := func(token string, chunk uint64, signs ...int8) {
		t.Helper()
		cols := schema.NewColumns()
		for i, sign := range signs {
			en := schema.Entry{Call: schema.Call{Tenant: "t", Trace: schema.TraceID{1}, Span: schema.SpanID{byte(chunk) % 10}, Start: start.UnixNano(), Flags: flags, Kind: schema.KindModel}, Sign: sign, Version: uint32(i/2 + 1), RecordedAt: now.UnixMicro()}
			en.Posting = schema.Posting{Kind: schema.KindModel, Status: schema.CostPriced, Cost: schema.PicoPerUSD, ModelCalls: 1}
			cols.Append(&en, chunk)
		}
		if err := cols.Send(ctx, e.Conn(), token); err != nil {
			t.Fatal(err)
		}
	}
	check := func(since, until uint64, wantLines, wantRollups int) {
		t.Helper()
		lines, err := brokenLines(ctx, e.Conn(), "chunk > ?", []any{since}, until)
		if err != nil || len(lines) != wantLines {
			t.Fatalf("%d broken lines, %v; want %d", len(lines), err, wantLines)
		}
		if n, err := rollupDrift(ctx, e.Conn(), checkedDays); err != nil || n != uint64(wantRollups) {
			t.Fatalf("%d broken rollups, %v; want %d", n, err, wantRollups)
		}
	}
	send("a", 1, 1, -1, 1)
	send("b", 2, 1)
	check(0, 2, 0, 0)
	send("c", 3, 1, 1)
	check(2, 3, 1, 0)
	check(0, 2, 0, 0)
	if err := e.Conn().Exec(ctx, "INSERT INTO spend_15m (tenant, at, booked_on, lines, cost) SELECT 't', now(), today(), 1, 5"); err != nil {
		t.Fatal(err)
	}
	check(0, 2, 0, 1)

	// A line of an earlier chunk comes again: with its start, or as late with any.
	again := func(chunk uint64, byHour, byLine int) {
		t.Helper()
		for where, want := range map[string]int{sameHour: byHour, sameLine: byLine} {
			lines, err := brokenLines(ctx, e.Conn(), where, []any{chunk - 1, chunk}, chunk)
			if err != nil || len(lines) != want {
				t.Errorf("chunk %d: %d broken lines, %v; want %d\n%s", chunk, len(lines), err, want, where)
			}
		}
	}
	send("d", 4, 1)
	again(4, 0, 0)
	send("e", 14, 1)
	again(14, 1, 0)
	send("f", 5, 1)
	flags, start = schema.FlagLate, now.Add(-5*time.Hour)
	send("g", 15, 1)
	again(15, 0, 1)
}

// What differs of a day long ago is told until it is cured, not only once a day.
func TestCheckerTellsOldDrift(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.send(chats(0, 20, nil))
	r.drain()
	c := NewChecker(r.p)
	check := func(want uint64) {
		t.Helper()
		if d, err := c.Check(t.Context(), r.engine.Conn()); err != nil || d != (Drift{Rollup: want}) {
			t.Errorf("%+v, %v; want %d rollups", d, err, want)
		}
	}
	for _, sign := range []string{"1", "-1"} {
		if err := r.engine.Conn().Exec(t.Context(), "INSERT INTO spend_15m (tenant, at, booked_on, lines, cost) SELECT 't', now() - 864000, today() - 10, "+sign+", 5 * "+sign); err != nil {
			t.Fatal(err)
		}
		if sign == "1" {
			check(1)
			check(1)
		}
	}
	check(0)
	check(0)
}

// counter is a counter without labels, since the pipeline was opened.
func (r *rig) counter(name string) int {
	r.t.Helper()
	families, err := r.o.Registerer.(*prometheus.Registry).Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return int(f.GetMetric()[0].GetCounter().GetValue())
		}
	}
	r.t.Fatalf("no counter %s", name)
	return 0
}

// A span that comes again after its trace was forgotten counts twice, until the
// checker finds that nobody remembers it any more.
func TestCheckerHealsWhatIsForgotten(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	user := func(i int, sp ptrace.Span) { sp.Attributes().PutStr("user.id", "u-"+spanHex(i)) }
	children := func(i int, sp ptrace.Span) { sp.SetParentSpanID(pcommon.SpanID{0: 255, 7: byte(i/10) + 1}) }
	r.send(chats(0, 20, children))
	r.drain()
	r.send(chats(20, 22, func(i int, sp ptrace.Span) { // their roots, which tell the user
		sp.SetTraceID(pcommon.TraceID{15: byte(i - 19)})
		sp.SetSpanID(pcommon.SpanID{0: 255, 7: byte(i - 19)})
		sp.Attributes().PutStr("gen_ai.operation.name", "invoke_agent")
		user(i, sp)
	}))
	r.drain()
	before, entries := r.money(), r.one("SELECT count() FROM journal")
	if entries != 62 {
		t.Fatalf("%d entries, want each of 20 calls corrected", entries)
	}
	forget := func() {
		t.Helper()
		r.restart()
		if err := r.p.store.Expire(time.Now().Add(96 * time.Hour).UnixNano()); err != nil {
			t.Fatal(err)
		}
	}
	check := func(what string, want Drift, healed int) {
		t.Helper()
		c := NewChecker(r.p)
		c.rows = 15   // less than all of it
		for range 2 { // the second looks at what the first left only
			got, err := c.Check(t.Context(), r.engine.Reader())
			if err != nil || got != want {
				t.Errorf("%s: got %+v, %v; want %+v", what, got, err, want)
			}
		}
		if n := r.counter("flyball_conservation_healed_total"); n != healed {
			t.Errorf("%s: healed %d lines, want %d", what, n, healed)
		}
	}
	holds := func(what string) {
		t.Helper()
		if got := r.money(); !maps.Equal(got, before) {
			t.Errorf("%s: the net lines are\n%v, want\n%v", what, got, before)
		}
		if n := r.one("SELECT sum(sign) FROM journal"); n != 22 {
			t.Errorf("%s: %d lines", what, n)
		}
		if n := r.one("SELECT sum(cost) FROM spend_15m WHERE user != ''"); n != 20*each {
			t.Errorf("%s: the rollup says %d", what, n)
		}
	}
	forget()
	r.send(chats(0, 20, children))
	r.drain()
	check("remembered", Drift{Lines: 20}, 0)
	forget()
	check("forgotten", Drift{}, 20)
	holds("healed")
	entries = r.one("SELECT count() FROM journal")
	check("again", Drift{}, 20)
	if n := r.one("SELECT count() FROM journal"); n != entries {
		t.Errorf("a check of what is healed posted %d entries", n-entries)
	}
	last := r.p.Status().LastChunk
	if r.restart(); r.p.checked != last {
		t.Errorf("after a restart the check goes on behind chunk %d, not %d", r.p.checked, last)
	}
	forget()
	r.send(chats(0, 20, children))
	r.drain()
	forget()
	check("resent again", Drift{}, 20)
	holds("healed again")

	// Whatever else broke a line: here entries were stored behind the writer's back.
	broken := func(span int, sign int8, times int) {
		t.Helper()
		for range times {
			if err := r.engine.Conn().Exec(t.Context(), "INSERT INTO journal SELECT * REPLACE(toInt8(?) AS sign, now64(6) AS recorded_at) FROM journal WHERE span = ? ORDER BY version DESC LIMIT 1", sign, spanHex(span)); err != nil {
				t.Fatal(err)
			}
		}
		r.p.checked = 0 // what was stored has the chunk of what it repeats
	}
	broken(1, 1, 1)
	broken(2, -1, 3)
	check("stored behind its back", Drift{}, 22)
	if n := r.one("SELECT sum(sign) FROM journal"); n != 21 { // what was cancelled stays so
		t.Errorf("%d lines", n)
	}
	broken(3, 1, 1)
	if err := os.MkdirAll(filepath.Dir(r.p.writer.quarantineFile()), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(r.p.writer.quarantineFile(), fmt.Appendf(nil, `{"tenant":"default","trace_id":"%032x","span_id":"%s"}`, 1, spanHex(3)), 0o600); err != nil {
		t.Fatal(err)
	}
	check("in quarantine", Drift{}, 22)
}

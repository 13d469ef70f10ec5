package ingest

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/flyball/flyball/ingest/otlp"
	"github.com/flyball/flyball/ingest/price"
)

// sendCaptures sends what real instrumentations recorded.
func (r *rig) sendCaptures() {
	r.t.Helper()
	files, err := filepath.Glob("dialect/testdata/captures/*.jsonl")
	if err != nil || len(files) == 0 {
		r.t.Fatal("no captures", err)
	}
	for _, file := range files {
		captured(r.t, file, r.send, r.sendLogs)
	}
	r.send(rawAnswer())
	time.Sleep(3 * r.o.Settle)
	r.drain()
}

func (r *rig) sendLogs(ld plog.Logs) {
	r.t.Helper()
	res, err := r.p.Logs(r.t.Context(), otlp.Sender{Local: true}, ld)
	if err != nil || res.Rejected > 0 {
		r.t.Fatal(res, err)
	}
}

// rawAnswer is a call whose searches and tier only the provider's own answer,
// recorded below it, tells.
func rawAnswer() ptrace.Traces {
	td := ptrace.NewTraces()
	spans := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans()
	f := func(id, parent byte, name string, attrs map[string]any) {
		sp := spans.AppendEmpty()
		sp.SetTraceID([16]byte{15: 99})
		sp.SetSpanID([8]byte{7: id})
		sp.SetParentSpanID([8]byte{7: parent})
		sp.SetName(name)
		sp.SetStartTimestamp(pcommon.NewTimestampFromTime(time.Now().Add(-time.Minute)))
		sp.SetEndTimestamp(pcommon.NewTimestampFromTime(time.Now()))
		_ = sp.Attributes().FromRaw(attrs)
	}
	f(1, 0, "litellm_request", map[string]any{"gen_ai.system": "anthropic", "llm.request.type": "completion", "gen_ai.request.model": "claude-sonnet-4-5", "gen_ai.usage.input_tokens": 500, "gen_ai.usage.output_tokens": 700})
	f(2, 1, "raw_gen_ai_request", map[string]any{"llm.anthropic.model": "claude-sonnet-4-5", "llm.anthropic.usage": "{'input_tokens': 500, 'output_tokens': 700, 'server_tool_use': {'web_search_requests': 3}, 'service_tier': 'batch'}"})
	return td
}

// money is what the net lines say about money.
func (r *rig) money() map[string]string {
	r.t.Helper()
	rows, err := r.engine.Reader().Query(r.t.Context(), `SELECT tenant || ' ' || trace || '/' || span || '/' || toString(part), toString(kind) || ' ' || model,
    toString((cost_status, cost, exposure, estimate, amount, currency, price_id, wasted, flags, tok_input, tok_output, web_searches))
FROM journal WHERE sign = 1 AND (tenant, trace_id, span_id, part, version) NOT IN (SELECT tenant, trace_id, span_id, part, version FROM journal WHERE sign = -1)`)
	if err != nil {
		r.t.Fatal(err)
	}
	defer rows.Close()
	out := map[string]string{}
	for rows.Next() {
		var line, what, money string
		if err := rows.Scan(&line, &what, &money); err != nil {
			r.t.Fatal(err)
		}
		out[line] = what + ": " + money
	}
	if err := rows.Err(); err != nil {
		r.t.Fatal(err)
	}
	return out
}

// Calls that had no price are priced later exactly as if the price had been
// there, whether their traces are still remembered or only in the journal, and
// once: a second time changes nothing, nor does a crash in between.
func TestReprice(t *testing.T) {
	none, _, err := price.Load(price.Options{NoEmbedded: true})
	if err != nil {
		t.Fatal(err)
	}
	all, _, err := price.Load(price.Options{})
	if err != nil {
		t.Fatal(err)
	}
	at := newRig(t, nil)
	at.sendCaptures()
	want, total := at.money(), at.one("SELECT sum(sign * ifNull(cost, 0)) FROM journal")
	if total == 0 {
		t.Fatal("the captures cost nothing")
	}

	f := func(name string, forget bool, lines int) {
		t.Run(name, func(t *testing.T) {
			pricer := NewPricer(none)
			r := newRig(t, func(o *Options) { o.Price = pricer })
			r.sendCaptures()
			if n := r.one("SELECT sum(sign * ifNull(cost, 0)) FROM journal"); n != 0 {
				t.Fatal("priced without a price", n)
			}
			before := r.money()
			if forget { // another node over the same journal
				r.close()
				r.o.Dir = t.TempDir()
				r.open()
			}
			pricer.Use(all)
			do := func(dry bool) Repriced {
				t.Helper()
				out, err := r.p.Reprice(t.Context(), r.engine.Reader(), Repricing{Since: time.Unix(0, 0), DryRun: dry, lines: lines})
				if err != nil {
					t.Fatal(err)
				}
				return out
			}
			dry := do(true)
			if dry.Entries != 0 || dry.Lines == 0 || fmt.Sprint(dry.Change) != fmt.Sprint(dry.After) {
				t.Fatalf("dry run: %+v", dry)
			}
			r.drain()
			if got := r.money(); fmt.Sprint(got) != fmt.Sprint(before) {
				t.Fatal("a dry run changed the journal")
			}
			done := do(false)
			if done.Change != dry.Change || done.Lines != dry.Lines || done.Entries < 2*done.Lines {
				t.Fatalf("%+v, the dry run said %+v", done, dry)
			}
			r.crash()
			r.drain()
			if again := do(false); again.Lines != 0 || again.Entries != 0 {
				t.Errorf("a second time: %+v", again)
			}
			r.drain()
			got := r.money()
			for line, w := range want {
				if got[line] != w {
					t.Errorf("%s\n got %s\nwant %s", line, got[line], w)
				}
			}
			if len(got) != len(want) {
				t.Errorf("%d lines, want %d", len(got), len(want))
			}
			r.spans(int64(len(want)))
		})
	}
	f("remembered", false, 0)
	f("forgotten", true, 0)
	f("an hour in many statements", true, 100)
}

package query

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/flyball/flyball/schema"
)

// asked makes a tool call with arguments, and answered what it was told.
func asked(name string, args uint64) func(*schema.Entry) {
	return func(e *schema.Entry) { e.Tool, e.Name, e.ArgsHash = name, name, args }
}

func answered(typ string, bytes uint64) func(*schema.Entry) {
	return func(e *schema.Entry) { e.PayloadType, e.PayloadBytes = typ, bytes }
}

func httpStatus(n uint16, f schema.Failure) func(*schema.Entry) {
	return func(e *schema.Entry) { e.HTTPStatus, e.Failure = n, f }
}

func again(e *schema.Entry) { e.Posting.Repeats = 1 }

func TestLoops(t *testing.T) {
	s := newStore(t)
	run := func(tenant, id string, n byte, dims map[schema.Dim]string, usd string, tools, repeats int) []schema.Entry {
		tr := newTrace(tenant, id, n, dims)
		out := []schema.Entry{tr.add(schema.KindRequest), tr.add(schema.KindModel, priced(usd))}
		for i := range tools {
			change := []func(*schema.Entry){asked("search", 1)}
			if i >= tools-repeats {
				change = append(change, again)
			}
			out = append(out, tr.add(schema.KindTool, change...))
		}
		return out
	}
	agent := map[schema.Dim]string{schema.Workflow: "quote", schema.Agent: "planner"}
	s.post(run("t-1", "calm", 1, agent, "1", 4, 0)...)
	s.post(run("t-1", "circles", 2, agent, "0.25", 4, 3)...)
	worst := run("t-1", "worst", 3, map[schema.Dim]string{schema.Workflow: "audit", schema.Agent: "scout"}, "0.5", 10, 9)
	s.post(worst...)
	s.post(run("t-2", "circles", 4, agent, "7", 2, 1)...)
	s.post(cancel(worst[2]), cancel(worst[11])) // a first call and a repeat
	fields := []string{"requests", "looping_requests", "tool_calls", "repeats", "repeat_ratio", "most_repeats", "cost_usd", "looping_cost_usd"}
	equal(t, "by workflow", s.one("loops?tenant=t-1", append([]string{"workflow", "agent"}, fields...)...), "audit scout 1 1 8 8 1 8 0.5 0.5\nquote planner 2 1 8 3 0.375 3 1.25 0.25")
	equal(t, "the worst runs", s.one("loops?tenant=t-1&group_by=run_id,workflow", "run_id", "workflow", "repeats", "looping_cost_usd"), "worst audit 8 0.5\ncircles quote 3 0.25\ncalm quote 0 0")
	equal(t, "of all tenants", s.one("loops?group_by=run_id,tenant&limit=2", "tenant", "run_id", "repeats"), "t-1 worst 8\nt-1 circles 3")
	equal(t, "of an agent", s.one("loops?agent=planner&group_by=tenant", "tenant", "repeats"), "t-1 3\nt-2 1")
	_, file := s.file("/api/v1/loops?tenant=t-1&format=csv&" + during)
	equal(t, "file", columns(t, file, "agent", "repeats", "repeat_ratio"), "scout 8 1\nplanner 3 0.375")
	s.refuse("/api/v1/loops?group_by=model&"+during, http.StatusBadRequest, "want any of tenant, user")
}

func TestPayloads(t *testing.T) {
	s := newStore(t)
	fields := []string{"tool", "payload_type", "calls", "unsized_calls", "bytes", "bytes_per_call", "measured_calls", "measured_bytes", "measured_tokens", "tokens_per_call"}
	think := func(tr *trace, in, out uint64, change ...func(*schema.Entry)) schema.Entry {
		return tr.add(schema.KindModel, append([]func(*schema.Entry){priced("0.1"), used("line", schema.Tokens{Input: in / 2, CacheRead: in - in/2, Output: out})}, change...)...)
	}
	fetch := func(tr *trace, typ string, bytes uint64, change ...func(*schema.Entry)) schema.Entry {
		return tr.add(schema.KindTool, append([]func(*schema.Entry){asked("fetch", uint64(tr.n)), answered(typ, bytes)}, change...)...)
	}
	// A page as HTML became 2500 tokens, the same as Markdown 500.
	tr := newTrace("t-1", "r", 1, quote)
	s.post(think(tr, 1000, 100), fetch(tr, "html", 10_000), think(tr, 3600, 50), fetch(tr, "markdown", 2000), think(tr, 4150, 10))
	// Not measured: two tools at once, another model, doubtful counts, thoughts that may have been dropped, a summary
	// that made the input smaller, no call after it, and none before.
	doubt := func(e *schema.Entry) { e.Call.Flags = schema.FlagBasisAssumed }
	thought := func(e *schema.Entry) { e.Posting.Tokens.Reasoning = 5 }
	for i, list := range [][]schema.Entry{
		func() []schema.Entry {
			tr := newTrace("t-1", "two", 2, nil)
			return []schema.Entry{think(tr, 10, 1), fetch(tr, "html", 100), fetch(tr, "html", 200), think(tr, 500, 1)}
		}(),
		func() []schema.Entry {
			tr := newTrace("t-1", "model", 3, nil)
			return []schema.Entry{think(tr, 10, 1), fetch(tr, "html", 300), think(tr, 500, 1, model("m-6"))}
		}(),
		func() []schema.Entry {
			tr := newTrace("t-1", "doubt", 4, nil)
			return []schema.Entry{think(tr, 10, 1), fetch(tr, "html", 400), think(tr, 500, 1, doubt)}
		}(),
		func() []schema.Entry {
			tr := newTrace("t-1", "thought", 5, nil)
			return []schema.Entry{think(tr, 10, 1, thought), fetch(tr, "html", 500), think(tr, 500, 1)}
		}(),
		func() []schema.Entry {
			tr := newTrace("t-1", "summary", 6, nil)
			return []schema.Entry{think(tr, 1000, 1), fetch(tr, "html", 600), think(tr, 500, 1), fetch(tr, "html", 700)}
		}(),
		func() []schema.Entry {
			tr := newTrace("t-1", "first", 7, nil)
			return []schema.Entry{fetch(tr, "html", 800), think(tr, 500, 1), fetch(tr, "", 0)}
		}(),
	} {
		if i == 0 { // a call that is cancelled is none
			gone := fetch(newTrace("t-1", "gone", 8, nil), "html", 5)
			s.post(gone)
			s.post(cancel(gone))
		}
		s.post(list...)
	}
	other := newTrace("t-2", "r", 9, nil)
	s.post(think(other, 10, 0), fetch(other, "html", 4), think(other, 11, 0))
	equal(t, "by type", s.one("payloads?tenant=t-1", fields...), `
fetch html 9 0 13600 1511.111111111111 1 10000 2500 2500
fetch markdown 1 0 2000 2000 1 2000 500 500
fetch  1 1 <nil> <nil> 0 0 <nil> <nil>`)
	equal(t, "of the other tenant", s.one("payloads?tenant=t-2&group_by=payload_type", "payload_type", "bytes", "measured_tokens"), "html 4 1")
	equal(t, "of a workflow", s.one("payloads?workflow=quote&group_by=tenant,workflow", "tenant", "workflow", "calls", "bytes", "measured_calls", "measured_tokens"), "t-1 quote 2 12000 2 3000")
	equal(t, "of a type", s.one("payloads?tenant=t-1&payload_type=markdown&group_by=", "calls", "measured_tokens"), "1 500")
	_, file := s.file("/api/v1/payloads?tenant=t-1&format=csv&" + during)
	equal(t, "file", columns(t, file, "payload_type", "bytes", "measured_tokens"), "html 13600 2500\nmarkdown 2000 500\n  ")
	s.refuse("/api/v1/payloads?group_by=model&"+during, http.StatusBadRequest, "want any of tenant, user")
}

func TestEmptyPolls(t *testing.T) {
	s := newStore(t)
	fields := []string{"tool", "calls", "polls", "empty_polls", "empty_share", "unknown_polls", "empty_turns", "empty_turns_usd", "empty_turns_uncosted"}
	tr := newTrace("t-1", "r", 1, quote)
	poll := func(change ...func(*schema.Entry)) schema.Entry {
		return tr.add(schema.KindTool, append([]func(*schema.Entry){asked("status", 7)}, change...)...)
	}
	think := func(usd string, change ...func(*schema.Entry)) schema.Entry {
		return tr.add(schema.KindModel, append([]func(*schema.Entry){priced(usd)}, change...)...)
	}
	gone := poll(answered("empty", 0)) // before every model call, and cancelled
	late := poll(answered("empty", 0)) // bought by no model call
	late.RecordedAt = noon.AddDate(0, 0, 3).UnixMicro()
	s.post(tr.add(schema.KindRequest), gone, late,
		think("0.5"), poll(answered("json", 2)), // [] or {}
		think("0.25"), poll(httpStatus(404, schema.ClientError)),
		think("0.125"), poll(httpStatus(304, 0)), tr.add(schema.KindTool, asked("search", 9), answered("text", 80)), // bought something too
		think("0", status(schema.CostUnknown)), poll(answered("empty", 1)),
		think("0.0625"), poll(failed(schema.Timeout)), // no answer is not an empty one
		think("0.03125"), poll(), // nobody says what it answered
		think("0.015625"), poll(answered("json", 60)), // done
		think("0.5"),
	)
	s.post(cancel(gone))
	once := newTrace("t-1", "once", 2, nil)
	s.post(once.add(schema.KindModel, priced("1")), once.add(schema.KindTool, asked("status", 7), answered("empty", 0)), // asked once: no poll
		once.add(schema.KindTool, asked("wait", 0), answered("empty", 0)), once.add(schema.KindTool, asked("wait", 0), answered("empty", 0))) // whether they are the same is not known
	other := newTrace("t-2", "r", 3, nil)
	s.post(other.add(schema.KindModel, priced("2")), other.add(schema.KindTool, asked("status", 7), answered("empty", 0)), other.add(schema.KindTool, asked("status", 7), answered("empty", 0)))
	equal(t, "by tool", s.one("empty-polls?tenant=t-1", fields...), fmt.Sprintf(`
status 9 8 5 %v 1 3 0.75 1
wait 2 0 0 <nil> 0 0 0 0
search 1 0 0 <nil> 0 0 0 0`, 5.0/7))
	equal(t, "of the other tenant", s.one("empty-polls?tenant=t-2&group_by=tenant", "tenant", "polls", "empty_polls", "empty_turns", "empty_turns_usd"), "t-2 2 2 1 2")
	equal(t, "of a workflow", s.one("empty-polls?workflow=quote&group_by=workflow", "workflow", "calls", "empty_polls", "empty_turns_usd"), "quote 9 5 0.75")
	equal(t, "as of", s.one("empty-polls?tenant=t-1&tool=status&as_of=2026-03-11", "calls", "polls", "empty_polls", "empty_turns_usd"), "8 7 4 0.75")
	equal(t, "as of an instant", s.one("empty-polls?tenant=t-1&tool=status&as_of="+noon.Add(7*time.Second).Format(time.RFC3339), "calls", "polls", "empty_polls"), "2 0 0")
	_, file := s.file("/api/v1/empty-polls?tenant=t-1&format=csv&" + during)
	equal(t, "file", columns(t, file, "tool", "empty_polls", "empty_turns_usd"), "status 5 0.75\nwait 0 0\nsearch 0 0")
}

// Where there are too many lines to put in order, some runs tell how many tokens
// payloads became; the bytes are of all.
func TestPayloadsOfManyLines(t *testing.T) {
	s := newStore(t)
	for i := range byte(20) {
		tr := newTrace("t-1", fmt.Sprint(i), i+1, nil)
		tokens := func(n uint64) func(*schema.Entry) { return used("line", schema.Tokens{Input: n}) }
		s.post(tr.add(schema.KindModel, tokens(10)), tr.add(schema.KindTool, asked("fetch", 1), answered("text", 8)), tr.add(schema.KindModel, tokens(12)))
	}
	f := func(lines string) (bytes, measured, tokens int64) {
		t.Helper()
		r := &request{all: true, conn: s.e.Reader(), from: noon.Add(-time.Hour), to: noon.Add(time.Hour)}
		q := r.question()
		q.runRange(r)
		q.vars["Groups"], q.vars["Columns"], q.vars["Own"] = []string{}, []string{}, []string{}
		q.mask("doubtful", doubtful)
		q.bind("lines", "UInt32", lines)
		q.paging(r, 10)
		if err := New(Options{}).ask(t.Context(), r, "payloads.sql", q, func(get func(string) any) {
			bytes, measured, tokens = get("bytes").(int64), get("measured").(int64), get("tokens").(int64)
		}); err != nil {
			t.Fatal(err)
		}
		return bytes, measured, tokens
	}
	if b, m, n := f("100"); b != 160 || m != 20 || n != 40 {
		t.Errorf("all runs: %d bytes, %d measured, %d tokens", b, m, n)
	}
	if b, m, n := f("20"); b != 160 || m == 0 || m >= 20 || n != 2*m {
		t.Errorf("some runs: %d bytes, %d measured, %d tokens", b, m, n)
	}
}

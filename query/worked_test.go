package query

import (
	"net/http"
	"testing"
	"time"

	"github.com/flyball/flyball/schema"
)

// third makes an attempt after a second one.
func third(e *schema.Entry) { e.Posting.Attempt = 3 }

func TestWorkedAfter(t *testing.T) {
	s := newStore(t)
	fields := []string{"layer", "retries", "calls", "cost_usd", "uncosted_calls", "incomplete_calls", "compared_calls", "compared_usd", "first_try_usd", "cost_ratio", "mean_ms", "extra_ms"}
	tr := newTrace("t-1", "r", 1, quote)
	think := func(usd string, change ...func(*schema.Entry)) schema.Entry {
		return tr.add(schema.KindModel, append([]func(*schema.Entry){priced(usd)}, change...)...)
	}
	gone := think("7")
	s.post(tr.add(schema.KindRequest), gone, think("0.1"), think("0.3"), // at once: 0.2 on average, for a second
		// Two chains beside each other: one that times out twice, and in between one that is limited once.
		think("0.1", failed(schema.Timeout)),
		think("0", failed(schema.RateLimited)),
		think("0.2", retry(schema.LayerFramework, schema.RateLimited)),
		think("0.1", failed(schema.Timeout), retry(schema.LayerFramework, schema.Timeout)),
		think("0.2", retry(schema.LayerFramework, schema.Timeout), third),
		// Inside of an SDK, three times.
		think("0.25", hidden(3, schema.Overloaded)),
		// Never worked, and is taken up by nothing.
		think("0.9", failed(schema.ServerError)),
		// A refusal is an answer.
		newTrace("t-1", "r-0", 9, quote).add(schema.KindModel, model("m-0"), priced("0.5"), failed(schema.Refused)),
		// A hedge that lost.
		think("0.4", func(e *schema.Entry) {
			e.Posting.ModelCalls, e.Posting.Hedges, e.Posting.Hedge, e.Posting.Wasted = 0, 1, true, e.Posting.Cost
		}),
	)
	s.post(cancel(gone))
	equal(t, "refused", s.one("worked-after?tenant=t-1&model=m-0", fields...), " 0 1 0.5 0 0 1 0.5 0.5 1 1000 0")
	equal(t, "model calls", s.one("worked-after?tenant=t-1&model=m-5", fields...), `
 0 2 0.4 0 0 2 0.4 0.4 1 1000 0
framework 1 1 0.2 0 0 1 0.2 0.2 1 2000 1000
framework 2 1 0.4 0 0 1 0.4 0.2 2 5000 4000
sdk 3+ 1 0.25 0 0 1 0.25 0.2 1.25 1000 0`)
	equal(t, "without layers", s.one("worked-after?tenant=t-1&model=m-5&group_by=workflow,model", "workflow", "model", "retries", "calls"), "quote m-5 0 2\nquote m-5 1 1\nquote m-5 2 1\nquote m-5 3+ 1")
	equal(t, "of one layer", s.one("worked-after?tenant=t-1&layer=sdk&group_by=", "retries", "calls"), "3+ 1")

	// A fallback to a model that was never the first choice, a retry whose first attempt lies before the time, one after an
	// attempt of unknown cost, and an agent's retry of a tool under another step.
	other := newTrace("t-1", "r-2", 2, quote)
	before := other.add(schema.KindModel, priced("0"), failed(schema.Timeout))
	before.Start = noon.AddDate(0, 0, -1).UnixNano()
	s.post(before,
		other.add(schema.KindModel, priced("0.5"), retry(schema.LayerFramework, schema.Timeout)),
		other.add(schema.KindModel, priced("0"), failed(schema.Overloaded)),
		other.add(schema.KindModel, priced("0.05"), model("m-5-mini"), retry(schema.LayerFramework, schema.Overloaded), func(e *schema.Entry) {
			e.Posting.Retries, e.Posting.Fallbacks, e.Posting.Fallback = 0, 1, true
		}),
		other.add(schema.KindModel, status(schema.CostUnknown), failed(schema.ServerError)),
		other.add(schema.KindModel, priced("0.125"), retry(schema.LayerFramework, schema.ServerError)),
		other.add(schema.KindTool, asked("crm", 5), failed(schema.ToolError), func(e *schema.Entry) { e.Parent = schema.SpanID{7: 99} }),
		other.add(schema.KindTool, asked("crm", 5), retry(schema.LayerAgent, schema.ToolError)),
		other.add(schema.KindTool, asked("crm", 6)),
	)
	equal(t, "what cannot be compared", s.one("worked-after?tenant=t-1&group_by=kind,layer,model", append([]string{"kind", "model"}, fields...)...), `
model m-0  0 1 0.5 0 0 1 0.5 0.5 1 1000 0
model m-5  0 2 0.4 0 0 2 0.4 0.4 1 1000 0
model m-5 framework 1 3 0.825 1 1 1 0.2 0.2 1 2000 1000
model m-5 framework 2 1 0.4 0 0 1 0.4 0.2 2 5000 4000
model m-5-mini framework 1 1 0.05 0 0 0 0 <nil> <nil> <nil> <nil>
model m-5 sdk 3+ 1 0.25 0 0 1 0.25 0.2 1.25 1000 0
tool   0 1 0 0 0 1 0 0 <nil> 1000 0
tool  agent 1 1 0 0 0 1 0 0 <nil> 2000 1000`)
	late := newTrace("t-1", "r-3", 3, quote).add(schema.KindModel, priced("0.8"))
	late.RecordedAt = noon.AddDate(0, 0, 3).UnixMicro()
	s.post(late)
	s.post(newTrace("t-2", "r", 4, quote).add(schema.KindModel, priced("3")))
	equal(t, "late", s.one("worked-after?model=m-5&group_by=tenant", "tenant", "retries", "calls", "cost_usd", "first_try_usd"), "t-1 0 3 1.2 1.2\nt-1 1 3 0.825 0.4\nt-1 2 1 0.4 0.4\nt-1 3+ 1 0.25 0.4\nt-2 0 1 3 3")
	equal(t, "as of", s.one("worked-after?tenant=t-1&model=m-5&group_by=&as_of=2026-03-11", "retries", "calls", "cost_usd", "first_try_usd"), "0 2 0.4 0.4\n1 3 0.825 0.2\n2 1 0.4 0.2\n3+ 1 0.25 0.2")
	_, file := s.file("/api/v1/worked-after?tenant=t-1&kind=tool&format=csv&" + during)
	equal(t, "file", columns(t, file, "layer", "retries", "calls", "cost_ratio"), " 0 1 \nagent 1 1 ")
	m := s.get("/api/v1/worked-after?tenant=t-1&kind=model&limit=2&" + during)
	m = s.get("/api/v1/worked-after?tenant=t-1&kind=model&limit=2&cursor=" + m["next"].(string) + "&" + during)
	equal(t, "second page", show(list(m["rows"]), "layer", "retries"), "framework 2\nsdk 3+")
}

func TestWorkedAfterOfRequests(t *testing.T) {
	s := newStore(t)
	run := func(tenant, id string, n byte, seconds int, usd string, retries uint32, change ...func(*schema.Entry)) {
		tr := newTrace(tenant, id, n, quote)
		root := tr.add(schema.KindRequest, change...)
		root.Duration = int64(time.Duration(seconds) * time.Second)
		s.post(root, tr.add(schema.KindModel, priced(usd), hidden(retries, schema.Timeout)))
	}
	run("t-1", "a", 1, 2, "1", 0)
	run("t-1", "b", 2, 4, "3", 0)
	run("t-1", "c", 3, 9, "5", 1)
	run("t-1", "d", 4, 30, "4", 5)
	run("t-1", "e", 5, 1, "9", 0, failed(schema.Timeout)) // did not work
	run("t-2", "a", 6, 1, "8", 0)
	tr := newTrace("t-1", "f", 7, quote)
	s.post(tr.add(schema.KindRequest), tr.add(schema.KindModel, priced("2"), hidden(1, schema.Timeout)), tr.add(schema.KindModel, status(schema.CostUnknown)))
	equal(t, "requests", s.one("worked-after?of=requests&tenant=t-1", "retries", "calls", "cost_usd", "uncosted_calls", "compared_calls", "first_try_usd", "cost_ratio", "mean_ms", "extra_ms"), `
0 2 4 0 2 4 1 3000 0
1 2 7 1 1 2 2.5 5000 2000
3+ 1 4 0 1 2 2 30000 27000`)
	equal(t, "by tenant", s.one("worked-after?of=requests&group_by=tenant,workflow", "tenant", "workflow", "retries", "calls"), "t-1 quote 0 2\nt-1 quote 1 2\nt-1 quote 3+ 1\nt-2 quote 0 1")
	bad := func(query, words string) {
		t.Helper()
		s.refuse("/api/v1/worked-after?"+query+"&"+during, http.StatusBadRequest, words)
	}
	bad("of=runs", "want calls or requests")
	bad("of=requests&model=m-5", "model is of calls")
	bad("of=requests&group_by=layer", "want any of tenant, user")
	bad("group_by=failure", "want any of tenant, layer")
}

package query

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/flyball/flyball/schema"
)

func TestWorkedTraceAmplifiesEighteenfold(t *testing.T) {
	s := newStore(t)
	s.post(worked("t-1", "run/1 a", 1)...)
	// Not an agent run: no model call.
	cron := newTrace("t-1", "cron", 2, map[schema.Dim]string{schema.Workflow: "quote"})
	s.post(cron.add(schema.KindRequest), cron.add(schema.KindTool), cron.add(schema.KindTool))

	m := s.get("/api/v1/amplification?group_by=workflow,workflow_version&" + during)
	equal(t, "amplification", show(list(m["rows"]), "workflow", "workflow_version", "requests", "model_calls", "tool_calls", "retries", "fallbacks", "hedges", "ratio", "retry_multiplier", "cost_amplification", "p50", "p90", "p99", "cost_usd"),
		"quote 7 1 4 12 2 0 0 18 1.125 1 18 18 18 1")
	if m["additive"] != true {
		t.Errorf("additive: got %v", m["additive"])
	}
	equal(t, "for all", show(list(s.get("/api/v1/amplification?group_by=&" + during)["rows"]), "requests", "ratio"), "1 18")

	// The calls with a value over the requests of the runs that have one.
	m = s.get("/api/v1/amplification?group_by=model&" + during)
	equal(t, "by model", show(list(m["rows"]), "model", "requests", "model_calls", "tool_calls", "retries", "ratio", "cost_usd"), " 1 0 12 1 13 0\nm-5 1 3 0 1 4 0.75\nm-5-mini 1 1 0 0 1 0.25")
	if m["additive"] != false {
		t.Errorf("additive by model: got %v", m["additive"])
	}
	m = s.get("/api/v1/amplification?group_by=workflow,failure&" + during)
	equal(t, "by failure", show(list(m["rows"]), "workflow", "failure", "requests", "ratio"), "quote  1 16\nquote rate_limited 1 1\nquote timeout 1 1")
	m = s.get("/api/v1/amplification?model=m-5&" + during)
	equal(t, "of a model", show(list(m["rows"]), "workflow", "ratio"), "quote 4")
	if m["additive"] != false {
		t.Errorf("additive of a model: got %v", m["additive"])
	}

	m = s.get("/api/v1/retries?" + during)
	equal(t, "retries", show(list(m["rows"]), "layer", "failure", "retries", "wasted_usd"), "agent timeout 1 0\nsdk rate_limited 1 0")

	m = s.get("/api/v1/runs?" + during)
	equal(t, "runs", show(list(m["rows"]), "tenant", "run_id", "status", "user", "workflow", "model_calls", "tool_calls", "retries", "amplification", "cost_usd"), "t-1 run/1 a succeeded u-1 quote 4 12 2 18 1")

	for _, path := range []string{"/api/v1/runs/run%2F1%20a", "/api/v1/runs/run/1%20a"} {
		m = s.get(path)
		equal(t, "report", show([]map[string]any{m}, "run_id", "tenant", "requests", "model_calls", "tool_calls", "retries", "retries_by_layer", "amplification", "retry_multiplier", "cost_usd", "status", "failures", "kinds", "user", "workflow", "started_at", "ended_at"),
			"run/1 a t-1 1 4 12 2 map[agent:1 sdk:1] 18 1.125 1 succeeded map[timeout:1] map[model:4 tool:13] u-1 quote 2026-03-10T12:00:01Z 2026-03-10T12:00:19Z")
	}
	roots := list(m["calls"])
	equal(t, "tree", show(roots, "kind", "span_id"), "request 0000000000000001")
	if n := len(list(roots[0]["children"])); n != 17 {
		t.Errorf("children of the root: got %d, want 17", n)
	}
}

func TestRatesAreSignedSums(t *testing.T) {
	s := newStore(t)
	entries := worked("t-1", "r-1", 1)
	s.post(entries...)
	// The agent's retry turns out to be wasted money, the first model call a fallback.
	s.post(replaced(entries[1], func(e *schema.Entry) {
		e.Posting.ModelCalls, e.Posting.Fallbacks, e.Posting.Wasted = 0, 1, e.Posting.Cost/2
	})...)
	m := s.get("/api/v1/amplification?" + during)
	equal(t, "amplification", show(list(m["rows"]), "requests", "model_calls", "retries", "fallbacks", "ratio", "cost_usd", "wasted_usd", "cost_amplification"), fmt.Sprintf("1 3 2 1 18 1 0.125 %v", 1/0.875))
	m = s.get("/api/v1/amplification?group_by=provider&" + during)
	equal(t, "by provider", show(list(m["rows"]), "provider", "model_calls", "retries", "fallbacks"), " 0 1 0\nopenai 3 1 1")
	r := s.get("/api/v1/runs/r-1")
	equal(t, "report", show([]map[string]any{r}, "model_calls", "retries", "fallbacks", "amplification", "wasted_usd"), "3 2 1 18 0.125")
}

func TestRetriesNameLayerCauseAndWaste(t *testing.T) {
	s := newStore(t)
	tr := newTrace("t-1", "r", 1, map[schema.Dim]string{schema.Feature: "sales"})
	s.post(
		tr.add(schema.KindRequest, func(e *schema.Entry) {
			e.Posting.Retries, e.Posting.Layer, e.Posting.Cause = 1, schema.LayerQueue, schema.UnknownFailure
		}),
		tr.add(schema.KindModel, priced("0.5"), failed(schema.Timeout), wasted),
		tr.add(schema.KindModel, priced("0.25"), retry(schema.LayerFramework, schema.Timeout), failed(schema.Overloaded), wasted),
		tr.add(schema.KindModel, priced("1"), retry(schema.LayerFramework, schema.Overloaded), model("m-5-mini"), func(e *schema.Entry) {
			e.Posting.Fallback, e.Posting.Fallbacks, e.Posting.Retries = true, 1, 0
		}),
		tr.add(schema.KindModel, priced("0.125"), wasted, hidden(2, schema.RateLimited), func(e *schema.Entry) {
			e.Posting.Hedge, e.Posting.Hedges, e.Posting.ModelCalls = true, 1, 0
		}),
	)
	m := s.get("/api/v1/retries?" + during)
	equal(t, "retries", show(list(m["rows"]), "layer", "failure", "retries", "fallbacks", "hedges", "wasted_usd"), `
sdk rate_limited 2 0 0 0
framework timeout 1 0 0 0
queue unknown 1 0 0 0
 timeout 0 0 0 0.5
framework overloaded 0 1 0 0.25
  0 0 1 0.125`)
	equal(t, "by layer", show(list(s.get("/api/v1/retries?group_by=layer&" + during)["rows"]), "layer", "retries", "wasted_usd"), "sdk 2 0\nframework 1 0.25\nqueue 1 0\n 0 0.625")
	equal(t, "by model", show(list(s.get("/api/v1/retries?group_by=model,layer&layer=framework&" + during)["rows"]), "model", "layer", "retries", "fallbacks"), "m-5 framework 1 0\nm-5-mini framework 0 1")
	equal(t, "by failure", show(list(s.get("/api/v1/retries?group_by=failure&failure=timeout&feature=sales&" + during)["rows"]), "failure", "retries"), "timeout 1")
	equal(t, "all", show(list(s.get("/api/v1/retries?group_by=&" + during)["rows"]), "retries", "fallbacks", "hedges", "wasted_usd"), "4 1 1 0.875")
	equal(t, "amplification agrees", show(list(s.get("/api/v1/amplification?group_by=feature&" + during)["rows"]), "feature", "retries", "fallbacks", "hedges", "wasted_usd"), "sales 4 1 1 0.875")
	equal(t, "report agrees", show([]map[string]any{s.get("/api/v1/runs/r")}, "retries", "retries_by_layer", "fallbacks", "hedges", "wasted_usd"), "4 map[framework:1 queue:1 sdk:2] 1 1 0.875")
}

func TestRunStatus(t *testing.T) {
	s := newStore(t)
	write := func(f schema.Failure) func(*schema.Entry) {
		return func(e *schema.Entry) { e.Effect, e.Failure = schema.EffectWrite, f }
	}
	var entries []schema.Entry
	var want []string
	f := func(status string, rootFailure schema.Failure, calls ...func(*schema.Entry)) {
		tr := newTrace("t-1", fmt.Sprintf("r-%02d", len(want)), byte(len(want)+1), nil)
		root := tr.add(schema.KindRequest, failed(rootFailure))
		if rootFailure != schema.UnknownFailure { // else no root came
			entries = append(entries, root)
		}
		entries = append(entries, tr.add(schema.KindModel))
		for _, c := range calls {
			entries = append(entries, tr.add(schema.KindTool, c))
		}
		want = append(want, status)
	}
	f("succeeded", schema.NoFailure)
	f("succeeded", schema.NoFailure, failed(schema.ToolError), write(schema.NoFailure))
	f("failed", schema.ServerError)
	f("stopped", schema.Budget)
	f("stopped", schema.Cancelled)
	f("partial", schema.NoFailure, failed(schema.Budget))
	f("failed", schema.ServerError, failed(schema.Budget))
	f("unknown", schema.UnknownFailure)                                                   // no root
	f("unknown", schema.NoFailure, write(schema.Timeout))                                 // nobody saw it end
	f("succeeded", schema.NoFailure, write(schema.Timeout), write(schema.NoFailure))      // tried again
	f("unknown", schema.NoFailure, write(schema.NoFailure), write(schema.UnknownFailure)) // the last one counts
	f("succeeded", schema.NoFailure, write(schema.ClientError))
	s.post(entries...)
	listed := map[string]any{}
	for _, m := range list(s.get("/api/v1/runs?" + during)["rows"]) {
		listed[m["run_id"].(string)] = m["status"]
	}
	for i, status := range want {
		run := fmt.Sprintf("r-%02d", i)
		if got := s.get("/api/v1/runs/" + run)["status"]; got != status || listed[run] != status {
			t.Errorf("%s: report says %v, list says %v, want %s", run, got, listed[run], status)
		}
	}
}

func TestReKeyedRunMovesPermanently(t *testing.T) {
	s := newStore(t)
	tr := newTrace("t-1", "", 1, nil)
	old := []schema.Entry{tr.add(schema.KindRequest), tr.add(schema.KindModel, priced("1"))}
	s.post(old...)
	trace := old[0].Trace.String()
	if got := s.get("/api/v1/runs/" + trace)["cost_usd"]; got != "1" {
		t.Fatalf("cost before: got %v", got)
	}
	for _, e := range old {
		s.post(replaced(e, func(e *schema.Entry) { e.Posting.Identity[schema.Run] = "order #7/a" })...)
	}
	for _, path := range []string{"runs/" + trace + "?tenant=t-1", "runs/" + strings.ToUpper(trace) + "?tenant=t-1", "run?run_id=" + trace + "&tenant=t-1"} {
		code, h, _ := s.do("/api/v1/"+path, "")
		if code != http.StatusMovedPermanently || h.Get("Location") != "/api/v1/runs/order%20%237%2Fa?tenant=t-1" {
			t.Errorf("old id, %s: got %d to %q", path, code, h.Get("Location"))
		}
	}
	m := s.get("/api/v1/runs/order%20%237%2Fa?tenant=t-1")
	equal(t, "moved", show([]map[string]any{m}, "run_id", "cost_usd", "model_calls", "status"), "order #7/a 1 1 succeeded")
	equal(t, "list", show(list(s.get("/api/v1/runs?" + during)["rows"]), "run_id"), "order #7/a")
	s.refuse("/api/v1/runs/"+trace+"?tenant=t-2", http.StatusNotFound, "no run")
	s.refuse("/api/v1/runs/nope", http.StatusNotFound, "no run nope")
	s.refuse("/api/v1/runs/", http.StatusBadRequest, "/api/v1/runs lists")
	s.refuse("/api/v1/runs/nope?limit=3", http.StatusBadRequest, "unknown parameter")
	s.refuse("/api/v1/runs/?run_id=nope", http.StatusBadRequest, "unknown parameter")
	s.refuse("/api/v1/run?run_id=nope", http.StatusNotFound, "no run nope")
	s.refuse("/api/v1/run", http.StatusBadRequest, "no run id")
}

// A run whose id a path cannot end with is asked by a parameter.
func TestRunByParameter(t *testing.T) {
	s := newStore(t)
	for i, id := range []string{".", "..", "a/../b?c"} {
		s.post(newTrace("t-1", id, byte(1+i), nil).add(schema.KindModel, priced("1")))
		if m := s.get("/api/v1/run?run_id=" + url.QueryEscape(id)); m["run_id"] != id || m["cost_usd"] != "1" {
			t.Errorf("%s: got %v of %v", id, m["cost_usd"], m["run_id"])
		}
	}
}

func TestSameRunIDInTwoTenants(t *testing.T) {
	s := newStore(t)
	s.post(worked("t-1", "r", 1)...)
	s.post(worked("t-2", "r", 1)...)
	s.refuse("/api/v1/runs/r", http.StatusBadRequest, "t-1, t-2")
	if m := s.get("/api/v1/runs/r?tenant=t-2"); m["amplification"] != 18.0 || m["tenant"] != "t-2" {
		t.Errorf("got %v of %v", m["amplification"], m["tenant"])
	}
	equal(t, "amplification", show(list(s.get("/api/v1/amplification?" + during)["rows"]), "requests", "ratio"), "2 18")
}

func TestRunIsWhereItsNewestRowSays(t *testing.T) {
	s := newStore(t)
	// A child came first and began in March, the root began in February.
	tr := newTrace("t-1", "r", 1, map[schema.Dim]string{schema.Workflow: "night"})
	tr.at = time.Date(2026, 2, 28, 23, 59, 58, 0, time.UTC)
	root, child := tr.add(schema.KindRequest), tr.add(schema.KindModel)
	s.post(child)
	s.post(root)
	equal(t, "february", show(list(s.get("/api/v1/runs?from=2026-02-28&to=2026-03-01")["rows"]), "run_id", "status"), "r succeeded")
	equal(t, "march", show(list(s.get("/api/v1/runs?from=2026-03-01&to=2026-03-02")["rows"]), "run_id"), "")
	equal(t, "to the second", show(list(s.get("/api/v1/runs?from=2026-02-28T23:59:59.5Z&to=2026-03-01")["rows"]), "run_id"), "")
	equal(t, "amplification", show(list(s.get("/api/v1/amplification?from=2026-02-28T23:59:59Z&to=2026-03-01")["rows"]), "workflow", "ratio"), "night 1")
}

func TestTreeOfHostileParents(t *testing.T) {
	f := func(want string, parents ...string) {
		t.Helper()
		var calls []row
		for i, p := range parents {
			calls = append(calls, row{"trace_id": "t", "span_id": string(rune('a' + i)), "parent_span_id": p, "part": uint16(0)})
		}
		roots := tree(calls)
		if _, err := json.Marshal(roots); err != nil {
			t.Fatal(err)
		}
		n := 0
		var walk func(c []row) string
		walk = func(c []row) string {
			out := ""
			for _, x := range c {
				n++
				kids, _ := x["children"].([]row)
				out += x["span_id"].(string)
				if len(kids) > 0 {
					out += "(" + walk(kids) + ")"
				}
			}
			return out
		}
		if got := walk(roots); got != want || n != len(parents) {
			t.Errorf("parents %q: got %s, want %s", parents, got, want)
		}
	}
	f("a(b(c))", "", "a", "b")
	f("ab", "", "gone")
	f("a", "a")
	f("b(a)", "b", "a")
	f("c(b(a))d(e)", "b", "c", "a", "", "d")
	f("c(b(a(d)))", "b", "c", "a", "a")
}

func TestFurtherPartsHangUnderTheirCall(t *testing.T) {
	s := newStore(t)
	tr := newTrace("t-1", "r", 1, nil)
	root, call := tr.add(schema.KindRequest), tr.add(schema.KindModel, priced("1"))
	part := call
	part.Part, part.Posting.ModelCalls, part.Model = 1, 0, "m-5-mini"
	s.post(root, call, part)
	m := s.get("/api/v1/runs/r")
	equal(t, "totals", show([]map[string]any{m}, "model_calls", "cost_usd", "amplification"), "1 2 1")
	kids := list(list(m["calls"])[0]["children"])
	equal(t, "call", show(kids, "part", "model"), "0 m-5")
	equal(t, "part", show(list(kids[0]["children"]), "part", "model"), "1 m-5-mini")
}

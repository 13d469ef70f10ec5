package query

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/flyball/flyball/schema"
)

func TestSpendByEveryDimension(t *testing.T) {
	s := newStore(t)
	dims := map[schema.Dim]string{schema.User: "u-1", schema.Feature: "sales", schema.Workflow: "quote", schema.WorkflowVersion: "7", schema.Agent: "planner", schema.Environment: "prod", schema.Mode: "batch", schema.Criticality: "background"}
	tr := newTrace("t-1", "r-1", 1, dims)
	s.post(tr.add(schema.KindRequest), tr.add(schema.KindEmbedding, priced("0.000000000001")), tr.add(schema.KindEmbedding, priced("0.25"), failed(schema.Timeout), retry(schema.LayerSDK, schema.Timeout)))
	other := newTrace("t-2", "r-2", 2, nil)
	s.post(other.add(schema.KindModel, priced("1")))
	values := map[string]string{"tenant": "t-1", "user": "u-1", "feature": "sales", "workflow": "quote", "workflow_version": "7", "agent": "planner", "model": "m-5", "provider": "openai", "environment": "prod", "mode": "batch", "criticality": "background", "kind": "embedding", "retry_layer": "", "failure": ""}
	for _, d := range dimensions {
		rows := list(s.get("/api/v1/spend?tenant=t-1&group_by=" + d + "&" + during)["rows"])
		v, known := values[d]
		if !known {
			t.Fatalf("no value for %s", d)
		}
		found := false
		for _, r := range rows {
			found = found || r[d] == v
		}
		if !found {
			t.Errorf("group by %s: no row of %q in %v", d, v, rows)
		}
		if d == "tenant" {
			continue
		}
		want := "2 0.250000000001"
		if v == "" {
			want = "1 0.000000000001"
		}
		m := s.get("/api/v1/spend?tenant=t-1&" + d + "=" + url.QueryEscape(v) + "&" + during)
		equal(t, "filter by "+d, show([]map[string]any{m["total"].(map[string]any)}, "calls", "cost_usd"), want)
		equal(t, "filter by "+d, show(list(s.get("/api/v1/spend?tenant=t-1&" + d + "=nobody&" + during)["rows"]), "calls"), "")
	}
	equal(t, "two dimensions", show(list(s.get("/api/v1/spend?group_by=tenant,kind,failure&" + during)["rows"]), "tenant", "kind", "failure", "calls", "cost_usd"),
		"t-2 model  1 1\nt-1 embedding timeout 1 0.25\nt-1 embedding  1 0.000000000001")
	equal(t, "default is the tenant", show(list(s.get("/api/v1/spend?" + during)["rows"]), "tenant", "cost_usd"), "t-2 1\nt-1 0.250000000001")
	equal(t, "no group", show(list(s.get("/api/v1/spend?group_by=&" + during)["rows"]), "cost_usd"), "1.250000000001")
	equal(t, "two tenants", show(list(s.get("/api/v1/spend?tenant=t-2&tenant=t-1&tenant=t-1&" + during)["rows"]), "tenant"), "t-2\nt-1")
}

// Spans are summed, never traces: neither a missing parent nor a root with a
// cost loses money. A call belongs to the day it started.
func TestSpendSumsSpansByTheirStart(t *testing.T) {
	s := newStore(t)
	f := func(start, recorded, cost string, parent byte) {
		tr := newTrace("t-1", "", byte(s.sent+1), nil)
		e := tr.add(schema.KindModel, priced(cost))
		at := func(v string) time.Time {
			x, err := time.Parse(time.RFC3339, v)
			if err != nil {
				t.Fatal(err)
			}
			return x
		}
		e.Start, e.RecordedAt, e.Parent = at(start).UnixNano(), at(recorded).UnixMicro(), schema.SpanID{7: parent}
		s.post(e)
	}
	f("2026-09-09T23:59:50Z", "2026-09-10T00:05:00Z", "4", 9)
	f("2026-09-10T00:05:30Z", "2026-09-10T00:06:00Z", "7", 0)
	f("2026-09-09T12:00:00Z", "2026-09-12T00:00:00Z", "1", 9)
	m := s.get("/api/v1/spend?interval=1d&from=2026-09-09&to=2026-09-11")
	equal(t, "days", show(list(m["rows"]), "at", "cost_usd"), "2026-09-09T00:00:00Z 5\n2026-09-10T00:00:00Z 7")
	equal(t, "total", show([]map[string]any{m["total"].(map[string]any)}, "calls", "cost_usd"), "3 12")
}

// A day is the tenant's, whatever the server's zone.
func TestDaysOfTheTenantsZone(t *testing.T) {
	zones := map[string]*time.Location{}
	for tenant, name := range map[string]string{"tokyo": "Asia/Tokyo", "osaka": "Asia/Tokyo", "kolkata": "Asia/Kolkata", "cairo": "Africa/Cairo", "broken": "Local"} {
		z, err := time.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}
		zones[tenant] = z
	}
	s := newStore(t, func(o *Options) { o.Zone = func(tenant string) *time.Location { return zones[tenant] } })
	post := func(tenant, start string) {
		at, err := time.Parse(time.RFC3339, start)
		if err != nil {
			t.Fatal(err)
		}
		tr := newTrace(tenant, "", byte(s.sent+1), nil)
		e := tr.add(schema.KindModel, priced("3"))
		e.Start, e.RecordedAt = at.UnixNano(), at.UnixMicro()
		s.post(e)
	}
	f := func(query, want string) {
		t.Helper()
		m := s.get("/api/v1/spend?group_by=&" + query)
		equal(t, query, show(list(m["rows"]), "at", "cost_usd"), want)
	}
	post("tokyo", "2026-03-10T14:59:59Z")
	post("tokyo", "2026-03-10T15:00:00Z")
	post("tokyo", "2026-03-10T23:30:00Z")
	f("tenant=tokyo&interval=1d&from=2026-03-10&to=2026-03-12", "2026-03-10T00:00:00+09:00 3\n2026-03-11T00:00:00+09:00 6")
	f("tenant=tokyo&interval=1d&from=2026-03-11&to=2026-03-12", "2026-03-11T00:00:00+09:00 6")
	f("tenant=tokyo&tenant=osaka&interval=1d&from=2026-03-11&to=2026-03-12", "2026-03-11T00:00:00+09:00 6")
	f("tenant=tokyo&tenant=kolkata&interval=1d&from=2026-03-10&to=2026-03-11", "2026-03-10T00:00:00Z 9")
	f("interval=1d&from=2026-03-10&to=2026-03-11", "2026-03-10T00:00:00Z 9")
	f("tenant=tokyo&interval=1w&from=2026-03-01&to=2026-03-31", "2026-03-09T00:00:00+09:00 9")
	f("tenant=tokyo&interval=1mo&from=2026-03-01&to=2026-04-01", "2026-03-01T00:00:00+09:00 9")
	f("tenant=tokyo&interval=6h&from=2026-03-10&to=2026-03-12", "2026-03-10T18:00:00+09:00 3\n2026-03-11T00:00:00+09:00 3\n2026-03-11T06:00:00+09:00 3")
	if z := s.get("/api/v1/spend?tenant=tokyo&from=2026-03-11&to=2026-03-12"); z["timezone"] != "Asia/Tokyo" || z["from"] != "2026-03-11T00:00:00+09:00" || z["to"] != "2026-03-12T00:00:00+09:00" {
		t.Errorf("range: got %v %v %v", z["timezone"], z["from"], z["to"])
	}
	post("kolkata", "2026-03-10T18:29:00Z")
	post("kolkata", "2026-03-10T18:31:00Z")
	f("tenant=kolkata&interval=1h&from=2026-03-10&to=2026-03-12", "2026-03-10T23:00:00+05:30 3\n2026-03-11T00:00:00+05:30 3")
	f("tenant=kolkata&interval=30m&from=2026-03-10&to=2026-03-12", "2026-03-10T23:30:00+05:30 3\n2026-03-11T00:00:00+05:30 3")
	// The clocks go forward at midnight: the day begins at one o'clock.
	post("cairo", "2026-04-23T22:05:00Z")
	f("tenant=cairo&interval=1d&from=2026-04-24&to=2026-04-25", "2026-04-24T01:00:00+03:00 3")
	f("tenant=cairo&interval=1h&from=2026-04-24&to=2026-04-25", "2026-04-24T01:00:00+03:00 3")
	post("broken", "2026-03-10T01:00:00Z")
	f("tenant=broken&interval=1d&from=2026-03-10&to=2026-03-11", "2026-03-10T00:00:00Z 3")
}

func TestWhatIsNotKnownStandsBesideTheTotal(t *testing.T) {
	s := newStore(t)
	tr := newTrace("t-1", "r", 1, nil)
	sampled := func(e *schema.Entry) { e.Call.Flags |= schema.FlagSampled }
	s.post(
		tr.add(schema.KindRequest),
		tr.add(schema.KindModel, priced("0.01"), sampled),
		tr.add(schema.KindModel, status(schema.CostUnpriced), model("m-new"), func(e *schema.Entry) { e.Posting.Cost, e.Posting.Flags = 99, schema.FlagLate }),
		tr.add(schema.KindModel, status(schema.CostUnknown), failed(schema.Timeout)),
		tr.add(schema.KindModel, status(schema.CostFree), func(e *schema.Entry) { e.Call.Flags |= schema.FlagBasisAssumed | schema.FlagEstimated }),
	)
	m := s.get("/api/v1/spend?group_by=model&" + during)
	equal(t, "rows", show(list(m["rows"]), "model", "calls", "cost_usd", "unpriced_calls", "unknown_calls", "sampled_calls", "estimated_calls"), "m-5 3 0.01 0 1 1 1\nm-new 1 0 1 0 0 0")
	equal(t, "total", show([]map[string]any{m["total"].(map[string]any)}, "calls", "cost_usd", "unpriced_calls", "unknown_calls", "sampled_calls", "estimated_calls", "complete"), "4 0.01 1 1 1 1 false")
	m = s.get("/api/v1/coverage?" + during)
	equal(t, "coverage", show(list(m["rows"]), "provider", "model", "calls", "unpriced", "unknown", "estimated", "assumed_basis", "sampled", "cost_usd"), "openai m-new 1 1 0 0 0 0 0\nopenai m-5 3 0 1 1 1 1 0.01")
	equal(t, "coverage total", show([]map[string]any{m["total"].(map[string]any)}, "model_attempts", "unpriced", "unknown", "estimated", "assumed_basis", "sampled", "late", "quarantined"), "4 1 1 1 1 1 1 <nil>")
	equal(t, "flags", fmt.Sprint(m["flags"]), "map[basis_assumed:1 estimated:1 late:1 sampled:1]")
	r := s.get("/api/v1/runs/r")
	equal(t, "report", show([]map[string]any{r}, "cost_usd", "unpriced_calls", "unknown_calls", "estimated_calls"), "0.01 1 1 1")
	equal(t, "runs", show(list(s.get("/api/v1/runs?" + during)["rows"]), "cost_usd", "unpriced_calls", "unknown_calls"), "0.01 1 1")
	for _, c := range list(s.get("/api/v1/calls?trace_id=" + schema.TraceID{15: 1}.String())["calls"]) {
		if st := c["cost_status"]; (st == "unpriced" || st == "unknown") != (c["cost_usd"] == nil) {
			t.Errorf("a call of status %v has the cost %v", st, c["cost_usd"])
		}
	}
}

// The sums of many entries leave 64 bits, and none of them is rounded.
func TestSpendIsExact(t *testing.T) {
	s := newStore(t)
	var entries []schema.Entry
	tr := newTrace("t-1", "r", 1, nil)
	for range 4 {
		entries = append(entries, tr.add(schema.KindModel, priced("9223372.036854775807")))
	}
	entries = append(entries, tr.add(schema.KindModel, priced("0.000000000001")), tr.add(schema.KindModel, priced("0.1")), tr.add(schema.KindModel, priced("0.2")))
	s.post(entries...)
	const want = "36893488.447419103229"
	m := s.get("/api/v1/spend?" + during)
	equal(t, "row", show(list(m["rows"]), "cost_usd"), want)
	equal(t, "total", fmt.Sprint(m["total"].(map[string]any)["cost_usd"]), want)
	equal(t, "report", fmt.Sprint(s.get("/api/v1/runs/r")["cost_usd"]), want)
	equal(t, "runs", show(list(s.get("/api/v1/runs?" + during)["rows"]), "cost_usd"), want)
	equal(t, "amplification", show(list(s.get("/api/v1/amplification?" + during)["rows"]), "cost_usd"), want)
	var out []schema.Entry
	for _, e := range entries[:4] {
		out = append(out, cancel(e))
	}
	s.post(out...)
	equal(t, "corrected", show(list(s.get("/api/v1/spend?" + during)["rows"]), "calls", "cost_usd"), "3 0.300000000001")
	for _, e := range entries[4:] {
		s.post(cancel(e))
	}
	equal(t, "all gone", show(list(s.get("/api/v1/spend?" + during)["rows"]), "calls", "cost_usd"), "")
}

func TestLimitCutsRowsAndNotTotals(t *testing.T) {
	s := newStore(t)
	for i := range 5 {
		tr := newTrace(fmt.Sprintf("t-%d", i), "r", byte(i+1), map[schema.Dim]string{schema.Workflow: fmt.Sprint(i)})
		s.post(tr.add(schema.KindRequest), tr.add(schema.KindModel, priced(fmt.Sprint(i+1)), retry(schema.LayerSDK, schema.Timeout), func(e *schema.Entry) { e.Model, e.Posting.ModelCalls = fmt.Sprint(i), 1 }))
	}
	m := s.get("/api/v1/spend?limit=2&" + during)
	equal(t, "rows", show(list(m["rows"]), "tenant", "cost_usd"), "t-4 5\nt-3 4")
	equal(t, "total", show([]map[string]any{m["total"].(map[string]any), m}, "cost_usd", "truncated"), "15 <nil>\n<nil> true")
	if m := s.get("/api/v1/spend?limit=5&" + during); m["truncated"] != false {
		t.Errorf("all of five: truncated is %v", m["truncated"])
	}
	for _, path := range []string{"runs", "amplification", "retries?group_by=model", "coverage"} {
		sep := "?"
		if strings.Contains(path, "?") {
			sep = "&"
		}
		for limit, cut := range map[int]bool{4: true, 5: false} {
			m := s.get(fmt.Sprintf("/api/v1/%s%slimit=%d&%s", path, sep, limit, during))
			if n := len(list(m["rows"])); n != limit || m["truncated"] != cut {
				t.Errorf("%s: limit %d gives %d rows, truncated %v", path, limit, n, m["truncated"])
			}
		}
	}
	equal(t, "coverage total", fmt.Sprint(s.get("/api/v1/coverage?limit=1&" + during)["total"].(map[string]any)["model_attempts"]), "10")
}

func TestTimes(t *testing.T) {
	s := newStore(t)
	tr := newTrace("t-1", "r", 1, nil)
	tr.at = time.Now()
	s.post(tr.add(schema.KindRequest), tr.add(schema.KindModel, priced("1")))
	for _, path := range []string{"/api/v1/spend", "/api/v1/amplification", "/api/v1/runs"} {
		equal(t, path, show(list(s.get(path)["rows"]), "cost_usd"), "1")
	}
	if n := len(list(s.get("/api/v1/calls")["calls"])); n != 2 {
		t.Errorf("calls of the last day: got %d, want 2", n)
	}
	m := s.get("/api/v1/spend?to=2026-03-10T12:00:00Z")
	equal(t, "only to", show([]map[string]any{m}, "from", "to"), "2026-03-09T12:00:00Z 2026-03-10T12:00:00Z")
	m = s.get("/api/v1/spend?from=2026-03-10T12:01:00%2B01:00&to=2026-03-10T12:01:00Z")
	equal(t, "whole quarters", show([]map[string]any{m}, "from", "to"), "2026-03-10T11:00:00Z 2026-03-10T12:15:00Z")
	s.refuse("/api/v1/spend?from=2026-03-11&to=2026-03-10", http.StatusBadRequest, "not before")
	s.refuse("/api/v1/spend?from=2026-03-10&to=2026-03-10", http.StatusBadRequest, "not before")
	s.refuse("/api/v1/spend?from=yesterday", http.StatusBadRequest, "RFC 3339")
	s.refuse("/api/v1/spend?from=0001-01-01", http.StatusBadRequest, "1971")
	s.refuse("/api/v1/calls?from=2026-03-10&to=9999-01-01", http.StatusBadRequest, "2105")
}

// Months begin where the tenant is.
func TestMonthsOfATenant(t *testing.T) {
	zone, err := time.LoadLocation("Pacific/Kiritimati") // 14 hours before UTC
	if err != nil {
		t.Fatal(err)
	}
	s := newStore(t, func(o *Options) { o.Zone = func(string) *time.Location { return zone } })
	for {
		before := time.Now().In(zone)
		last, this := s.get("/api/v1/spend?tenant=acme&from=last-month&to=month"), s.get("/api/v1/spend?tenant=acme&from=month")
		if before.Month() != time.Now().In(zone).Month() {
			continue
		}
		begins := func(ago int) string {
			return time.Date(before.Year(), before.Month()-time.Month(ago), 1, 0, 0, 0, 0, zone).Format(time.RFC3339)
		}
		equal(t, "last month", show([]map[string]any{last}, "from", "to"), begins(1)+" "+begins(0))
		equal(t, "this month", show([]map[string]any{this}, "from"), begins(0))
		break
	}
	s.refuse("/api/v1/spend?from=month&to=last-month", http.StatusBadRequest, "not before")
}

// A further part of an answer is no call. Where its model is free it has no cost either, and its tokens still count.
func TestSpendOfFreeParts(t *testing.T) {
	s := newStore(t)
	tr := newTrace("t-1", "r", 1, nil)
	part := tr.add(schema.KindModel, used("line/m-free", schema.Tokens{Input: 10, Output: 3}), status(schema.CostFree), model("m-free"), func(e *schema.Entry) { e.Part, e.Posting.ModelCalls = 1, 0 })
	s.post(tr.add(schema.KindModel, priced("1")), part)
	rows := list(s.get("/api/v1/spend?group_by=model&" + during)["rows"])
	equal(t, "rows", show(rows, "model", "calls", "cost_usd"), "m-5 1 1\nm-free 0 0")
	if got := rows[1]["tokens"].(map[string]any); fmt.Sprint(got["input"], got["output"]) != "10 3" {
		t.Errorf("tokens: %v", got)
	}
}

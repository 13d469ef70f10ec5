package query

import (
	"fmt"
	"math"
	"net/http"
	"testing"
	"time"

	"github.com/flyball/flyball/schema"
)

// one is the only row of an answer, as text.
func (s *store) one(path string, fields ...string) string {
	s.t.Helper()
	return show(list(s.get("/api/v1/" + path + "&" + during)["rows"]), fields...)
}

// later moves a trace.
func (tr *trace) later(d time.Duration) *trace {
	tr.at = tr.at.Add(d)
	return tr
}

var quote = map[schema.Dim]string{schema.Workflow: "quote", schema.WorkflowVersion: "7", schema.User: "u-1", schema.Feature: "sales"}

// Two requests of t-1: one with 4 model calls and an attempt inside an SDK at noon,
// one an hour later with a call, a retry and a fallback; beside them a call that is
// cancelled again, and another tenant.
func (s *store) twoRequests() {
	s.t.Helper()
	s.post(worked("t-1", "r-1", 1)...)
	tr := newTrace("t-1", "r-2", 2, quote).later(time.Hour)
	gone := tr.add(schema.KindModel, priced("5"))
	s.post(tr.add(schema.KindRequest), gone,
		tr.add(schema.KindModel, priced("0"), failed(schema.RateLimited)),
		tr.add(schema.KindModel, priced("0"), failed(schema.RateLimited), retry(schema.LayerFramework, schema.RateLimited)),
		tr.add(schema.KindModel, priced("0.5"), model("m-5-mini"), retry(schema.LayerFramework, schema.RateLimited), func(e *schema.Entry) {
			e.Posting.Fallback, e.Posting.Fallbacks, e.Posting.Retries, e.Posting.Attempt = true, 1, 0, 3
		}))
	s.post(cancel(gone))
	s.post(worked("t-2", "r-1", 3)...)
}

func TestLoadIsAnIdentity(t *testing.T) {
	s := newStore(t)
	s.twoRequests()
	fields := []string{"requests", "steps", "retries", "fallbacks", "provider_calls", "steps_per_request", "retry_multiplier", "cost_usd"}
	equal(t, "by hour", s.one("load?tenant=t-1&interval=1h", append([]string{"at", "workflow"}, fields...)...), `
2026-03-10T12:00:00Z quote 1 4 1 0 5 4 1.25 1
2026-03-10T13:00:00Z quote 1 1 1 1 3 1 3 0.5`)
	equal(t, "all", s.one("load?tenant=t-1&group_by=", append(fields, "calls_p50", "calls_p99")...), "2 5 2 1 8 2.5 1.6 1.5 5 5")
	equal(t, "tools", s.one("load?tenant=t-1&group_by=&kind=tool", fields...), "1 12 1 0 13 12 1.0833333333333333 0")
	m := s.get("/api/v1/load?tenant=t-1&group_by=model&" + during)
	equal(t, "by model", show(list(m["rows"]), "model", "requests", "steps", "retries", "fallbacks", "provider_calls"), "m-5 2 4 2 0 6\nm-5-mini 2 1 0 1 2")
	if m["additive"] != false || s.get("/api/v1/load?" + during)["additive"] != true {
		t.Error("rows by model are said to add up, or those by workflow are not")
	}
	for _, by := range []string{"tenant", "tenant,model", "kind,workflow", ""} {
		for _, r := range list(s.get("/api/v1/load?interval=15m&group_by=" + by + "&" + during)["rows"]) {
			n := func(f string) float64 { return r[f].(float64) }
			if n("steps") == 0 && r["retry_multiplier"] == nil && by == "tenant,model" && r["model"] == "m-5-mini" {
				continue // used as a fallback alone: it was never the first choice
			}
			if math.Round(n("requests")*n("steps_per_request")*n("retry_multiplier")) != n("provider_calls") || n("steps")+n("retries")+n("fallbacks")+n("hedges") != n("provider_calls") {
				t.Errorf("by %q: the product is not the number of calls: %v", by, r)
			}
		}
	}
	_, file := s.file("/api/v1/load?tenant=t-1&interval=1d&format=csv&" + during)
	equal(t, "file", columns(t, file, "workflow", "at", "requests", "provider_calls"), "quote 2026-03-10T00:00:00Z 2 8")
	s.refuse("/api/v1/load?group_by=failure&"+during, http.StatusBadRequest, "want any of tenant, user")
	s.refuse("/api/v1/load?interval=7m&"+during, http.StatusBadRequest, "want one of 15m")
}

// Requests stand in the day of the tenant's zone in which they began, with calls
// that came in the next.
func TestLoadInTheTenantsZone(t *testing.T) {
	kolkata, err := time.LoadLocation("Asia/Kolkata")
	if err != nil {
		t.Fatal(err)
	}
	s := newStore(t, func(o *Options) { o.Zone = func(string) *time.Location { return kolkata } })
	for i, at := range []time.Duration{6*time.Hour + 29*time.Minute + 58*time.Second, 6*time.Hour + 30*time.Minute} { // midnight there is 18:30 UTC
		tr := newTrace("t-1", fmt.Sprint(i), byte(i+1), nil).later(at)
		s.post(tr.add(schema.KindRequest), tr.add(schema.KindModel), tr.add(schema.KindModel))
	}
	f := func(path, want string, fields ...string) {
		t.Helper()
		equal(t, path, show(list(s.get("/api/v1/" + path + "&tenant=t-1&from=2026-03-10&to=2026-03-12")["rows"]), fields...), want)
	}
	f("load?interval=1d&group_by=", "2026-03-10T00:00:00+05:30 1 2\n2026-03-11T00:00:00+05:30 1 2", "at", "requests", "provider_calls")
	f("rate-limits?interval=1d&group_by=", "2026-03-11T00:00:00+05:30 4", "at", "attempts")
}

func TestRateLimits(t *testing.T) {
	s := newStore(t)
	s.twoRequests()
	equal(t, "by model", s.one("rate-limits?tenant=t-1", "provider", "model", "attempts", "rate_limited", "rate"), "openai m-5 6 3 0.5\nopenai m-5-mini 2 0 0")
	equal(t, "by hour", s.one("rate-limits?tenant=t-1&interval=1h&group_by=", "at", "attempts", "rate_limited", "rate"), "2026-03-10T12:00:00Z 5 1 0.2\n2026-03-10T13:00:00Z 3 2 0.6666666666666666")
	equal(t, "of one model", s.one("rate-limits?model=m-5-mini&group_by=tenant", "tenant", "attempts", "rate_limited"), "t-1 2 0\nt-2 1 0")
	_, file := s.file("/api/v1/rate-limits?tenant=t-1&format=csv&" + during)
	equal(t, "file", columns(t, file, "model", "attempts", "rate_limited", "rate"), "m-5 6 3 0.5\nm-5-mini 2 0 0")
	s.refuse("/api/v1/rate-limits?failure=timeout", http.StatusBadRequest, "unknown parameter")
}

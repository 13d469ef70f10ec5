package query

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/flyball/flyball/schema"
)

// moved sets when an entry was recorded.
func moved(e schema.Entry, at string) schema.Entry {
	t, err := time.Parse(time.RFC3339Nano, at)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	e.RecordedAt = t.UnixMicro()
	return e
}

// What was known is asked by day or by instant, whatever came later.
func TestSpendAsOf(t *testing.T) {
	s := newStore(t)
	tr := newTrace("t-1", "r", 1, nil)
	first := tr.add(schema.KindModel, priced("1"))
	late := tr.add(schema.KindModel, priced("10"), model("m-late"))
	s.post(moved(first, "2026-03-10T12:00:05.000001Z"))
	pair := replaced(first, func(e *schema.Entry) { e.Posting.Cost++; e.Posting.Status = schema.CostPriced })
	s.post(moved(pair[0], "2026-03-11T09:00:00Z"), moved(pair[1], "2026-03-11T09:00:00Z"))
	s.post(moved(late, "2026-03-12T00:00:00Z"))
	gone := cancel(late)
	s.post(moved(gone, "2026-03-14T23:59:59.999999Z"))
	f := func(asOf, want string) {
		t.Helper()
		m := s.get("/api/v1/spend?group_by=model&" + during + "&as_of=" + asOf)
		equal(t, asOf, show(list(m["rows"]), "model", "calls", "cost_usd"), want)
	}
	f("2026-03-09", "")
	f("2026-03-10", "m-5 1 1")
	f("2026-03-11T00:00:00Z", "m-5 1 1")
	f("2026-03-11T01:00:00%2B01:00", "m-5 1 1")
	f("2026-03-10T12:00:05Z", "")
	f("2026-03-10T12:00:05.000001Z", "") // exclusive
	f("2026-03-10T12:00:05.000001001Z", "m-5 1 1")
	f("2026-03-11T08:59:59Z", "m-5 1 1")
	f("2026-03-11T09:00:00.5Z", "m-5 1 1.000000000001")
	f("2026-03-11", "m-5 1 1.000000000001")
	f("2026-03-12", "m-late 1 10\nm-5 1 1.000000000001")
	f("2026-03-12T00:00:00.000001Z", "m-late 1 10\nm-5 1 1.000000000001")
	f("2026-03-14T23:59:59.999999Z", "m-late 1 10\nm-5 1 1.000000000001")
	f("2026-03-14", "m-5 1 1.000000000001")
	equal(t, "now", show(list(s.get("/api/v1/spend?" + during)["rows"]), "cost_usd"), "1.000000000001")
	if got := s.get("/api/v1/spend?as_of=2026-03-11&" + during)["as_of"]; got != "2026-03-12T00:00:00Z" {
		t.Errorf("as_of of the answer: got %v", got)
	}
	for v, words := range map[string]string{
		"yesterday": "want a date", "": "want a date", "1066-10-14T00:00:01Z": "1971", "0001-01-01": "1971", "1970-12-31": "1971",
		time.Now().UTC().Format(time.DateOnly): "has not ended", time.Now().Add(time.Hour).UTC().Format(time.RFC3339): "lies ahead",
	} {
		s.refuse("/api/v1/spend?as_of="+v, http.StatusBadRequest, words)
	}
	s.refuse("/api/v1/enforcement/leakage?as_of=2026-03-10", http.StatusBadRequest, "to= is what was known then")
}

// The journal's measures are the rollup's, all of them.
func TestSpendAsOfAnInstantIsTheRollup(t *testing.T) {
	s := newStore(t)
	entries := worked("t-1", "r", 1)
	for i := range entries {
		for j, v := range entries[i].Posting.Tokens.Fields() {
			*v = uint64(i*100 + j)
		}
	}
	entries[2].Call.Flags |= schema.FlagSampled
	entries[3].Call.Flags |= schema.FlagEstimated
	s.post(entries...)
	tr := newTrace("t-1", "r2", 2, nil)
	s.post(tr.add(schema.KindModel, status(schema.CostUnpriced)), tr.add(schema.KindModel, status(schema.CostUnknown)), cancel(entries[4]))
	s.post(worked("t-2", "other", 3)...)
	const q = "/api/v1/spend?tenant=t-1&interval=15m&group_by=kind,model,failure,retry_layer,workflow&" + during
	day, instant := s.get(q+"&as_of=2026-03-10"), s.get(q+"&as_of=2026-03-10T23:59:59Z")
	if fmt.Sprint(day["rows"], day["total"]) != fmt.Sprint(instant["rows"], instant["total"]) || len(list(day["rows"])) < 5 {
		t.Errorf("the two differ:\n%v\n%v", day, instant)
	}
}

// Where the journal has expired, an instant is refused instead of answered with less.
func TestSpendAsOfNeedsTheJournal(t *testing.T) {
	s := newStore(t)
	tr := newTrace("t-1", "r", 1, nil)
	s.post(moved(tr.add(schema.KindModel, priced("1")), "2026-03-10T13:00:00Z"))
	s.post(moved(tr.add(schema.KindModel, priced("2")), "2026-04-01T01:00:00Z"))
	if err := s.e.Conn().Exec(t.Context(), "ALTER TABLE journal DROP PARTITION 202603"); err != nil {
		t.Fatal(err)
	}
	s.refuse("/api/v1/spend?as_of=2026-04-02T10:00:00Z&"+during, http.StatusBadRequest, "e.g. as_of=2026-04-02")
	equal(t, "by day", show(list(s.get("/api/v1/spend?as_of=2026-03-31&" + during)["rows"]), "cost_usd"), "1")
	if m := s.get("/api/v1/spend?as_of=2026-04-02T10:00:00Z&from=2026-05-01&to=2026-05-02"); len(list(m["rows"])) != 0 {
		t.Errorf("another time: %v", m)
	}
}

func (s *store) conditional(path, tag string) (int, string) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.url+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	if tag != "" {
		req.Header.Set("If-None-Match", tag)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode, resp.Header.Get("ETag")
}

// A window that is over has a tag, which any correction changes and a merge does not.
func TestClosedWindowsHaveTags(t *testing.T) {
	s := newStore(t)
	tr := newTrace("t-1", "r", 1, nil)
	one, two := tr.add(schema.KindModel, priced("1")), tr.add(schema.KindModel, priced("1"), model("m-6"))
	s.post(one)
	s.post(two)
	path := "/api/v1/spend?group_by=model&" + during
	_, tag := s.conditional(path, "")
	same := func(what string, want bool) {
		t.Helper()
		code, now := s.conditional(path, `"x", `+tag)
		if (code == http.StatusNotModified) != want || (now == tag) != want || now == "" {
			t.Errorf("%s: got %d and %s, had %s", what, code, now, tag)
		}
		tag = now
	}
	same("at once", true)
	if err := s.e.Conn().Exec(t.Context(), "OPTIMIZE TABLE spend_15m FINAL"); err != nil {
		t.Fatal(err)
	}
	same("after a merge", true)
	// A swap of two models' costs leaves every total as it was.
	s.post(append(replaced(one, priced("1.5")), replaced(two, priced("0.5"))...)...)
	same("after a correction", false)
	same("again", true)
	other := newTrace("t-1", "r9", 9, nil)
	other.at = noon.Add(48 * time.Hour)
	s.post(other.add(schema.KindModel, priced("1")))
	same("after a call of another time", true)
	for _, variant := range []string{"&limit=1", "&format=csv", "&as_of=2026-03-10", "&tenant=t-1", "&model=m-5"} {
		if code, now := s.conditional(path+variant, tag); code != http.StatusOK || now == tag || now == "" {
			t.Errorf("%s: got %d and the tag %s", variant, code, now)
		}
	}
	if code, tag := s.conditional("/api/v1/retries?"+during, ""); code != http.StatusOK || tag == "" {
		t.Errorf("retries: %d %q", code, tag)
	} else if code, _ := s.conditional("/api/v1/retries?"+during, tag); code != http.StatusNotModified {
		t.Errorf("retries again: %d", code)
	}
	for _, open := range []string{"/api/v1/spend", "/api/v1/spend?from=2026-03-10", "/api/v1/spend?to=2026-03-10", "/api/v1/spend?from=2026-03-10&to=" + time.Now().Add(time.Hour).UTC().Format(time.RFC3339), "/api/v1/spend?as_of=2026-03-10T10:00:00Z&" + during} {
		if _, tag := s.conditional(open, "*"); tag != "" {
			t.Errorf("%s has the tag %s", open, tag)
		}
	}
}

// A tag of one reader's answer is not the other's.
func TestTagsAreOfTheReadersTenants(t *testing.T) {
	ring, secret := keys(t, schema.Key{Name: "one", Role: schema.KeyRead, Tenant: "t-1"}, schema.Key{Name: "two", Role: schema.KeyRead, Tenant: "t-2"})
	s := newStore(t, func(o *Options) { o.Keys = ring })
	_, h1, _ := s.do("/api/v1/spend?"+during, secret["one"])
	_, h2, _ := s.do("/api/v1/spend?"+during, secret["two"])
	if a, b := h1.Get("ETag"), h2.Get("ETag"); a == "" || a == b || !strings.HasPrefix(a, `W/"`) {
		t.Errorf("tags: %s and %s", a, b)
	}
}

// Every question that tells money tells what was known then: the answer of then is the
// one that was given then, whatever came later, by day and by instant.
func TestEveryAnswerOfThenIsTheOneGivenThen(t *testing.T) {
	s := newStore(t, withEuros(t), func(o *Options) { o.Prices = listed })
	first := worked("t-1", "r", 1)
	for i := range first {
		for j, v := range first[i].Posting.Tokens.Fields() {
			*v = uint64(i*100 + j)
		}
	}
	first[2].Call.Flags |= schema.FlagSampled
	first[3].Call.Flags |= schema.FlagEstimated | schema.FlagBasisAssumed
	first[1].Posting.Wasted = first[1].Posting.Cost
	first[4].Posting.PriceID, first[5].Posting.Repeats = "line/m-5", 2
	s.post(first...)
	before := newTrace("t-1", "earlier", 7, map[schema.Dim]string{schema.Workflow: "quote"})
	before.at = noon.AddDate(0, 0, -1)
	s.post(before.add(schema.KindRequest), before.add(schema.KindModel, priced("0.5")), before.add(schema.KindTool, tool("crm")))
	s.post(worked("t-2", "other", 3)...)
	questions := []string{
		"spend?group_by=kind,model,failure,retry_layer,workflow&interval=15m", "spend?currency=EUR", "amplification", "amplification?group_by=model", "amplification?group_by=kind,failure", "retries", "retries?currency=EUR&group_by=layer,failure,model", "coverage",
		"movers", "movers?group_by=model", "movers?currency=EUR", "load?interval=1h", "load?group_by=model,user", "rate-limits", "worked-after", "worked-after?of=requests", "loops", "loops?group_by=run_id", "empty-polls", "payloads",
		"cache", "cache?currency=EUR", "batch", "batch?currency=EUR", "runs", "runs/r?tenant=t-1", "calls", "calls?run_id=r", "calls?history=1", "close?period=2026-03", "export/focus",
	}
	ask := func(q, asOf string) string {
		u := "/api/v1/" + q + map[bool]string{true: "&", false: "?"}[strings.Contains(q, "?")]
		if !strings.HasPrefix(q, "close") && !strings.HasPrefix(q, "runs/") {
			u += during + "&"
		}
		if !strings.HasPrefix(q, "runs/") {
			u += "tenant=t-1&"
		}
		u = strings.TrimSuffix(u, "&") + asOf
		code, _, body := s.do(u, "")
		if code != http.StatusOK {
			t.Fatalf("%s: %d %s", u, code, body)
		}
		if strings.HasPrefix(q, "export") {
			return body
		}
		m := decode(t, body)
		if asOf != "" && !strings.HasPrefix(fmt.Sprint(m["as_of"]), "2026-03-1") {
			t.Errorf("%s: as_of of the answer is %v", u, m["as_of"])
		}
		delete(m, "as_of")
		text := fmt.Sprint(m)
		if len(text) < 200 && !strings.HasPrefix(q, "close") {
			t.Errorf("%s: there is nothing in %s", u, text)
		}
		return text
	}
	then := map[string]string{}
	for _, q := range questions {
		then[q] = ask(q, "")
	}
	// Later the run gets another workflow, model and cost, a second run is found in the
	// time, one moves out of it, the month is closed, and something is never seen again.
	later := func(e schema.Entry) schema.Entry { return moved(e, "2026-03-12T09:00:00Z") }
	for _, e := range first[:4] {
		pair := replaced(e, func(e *schema.Entry) {
			e.Posting.Identity[schema.Workflow], e.Posting.Identity[schema.User], e.Posting.Wasted = "renamed", "u-9", 0
			if e.Kind == schema.KindModel {
				e.Model, e.Posting.Cost = "m-6", e.Posting.Cost+1
			}
			if e.Kind == schema.KindRequest {
				e.Start -= int64(48 * time.Hour)
			}
		})
		s.post(later(pair[0]), later(pair[1]))
	}
	s.post(later(cancel(first[5])))
	fresh := worked("t-1", "fresh", 9)
	for i := range fresh {
		fresh[i] = later(fresh[i])
		fresh[i].Posting.Identity[schema.Mode] = "batch"
		fresh[i].Posting.Cost *= 3
	}
	s.post(fresh[:len(fresh)-2]...)
	if code, body := s.send("/api/v1/close", "", `{"period":"2026-03","as_of":"2026-04-02"}`); code != http.StatusOK {
		t.Fatal(code, body)
	}
	for _, q := range questions {
		now := ask(q, "")
		if now == then[q] && q != "payloads" {
			t.Errorf("%s does not see what came later", q)
		}
		for _, asOf := range []string{"&as_of=2026-03-11", "&as_of=2026-03-11T12:30:00Z"} {
			if got := ask(q, asOf); got != then[q] {
				t.Errorf("%s%s:\n got %s\nwant %s", q, asOf, got, then[q])
			}
		}
	}
}

// An entry that is posted and cancelled on one day is gone from the rollup of runs, and
// was there in between.
func TestRunsKnownWithinADay(t *testing.T) {
	s := newStore(t)
	tr := newTrace("t-1", "r", 1, map[schema.Dim]string{schema.Workflow: "quote"})
	root, call := tr.add(schema.KindRequest), tr.add(schema.KindModel, priced("1"))
	s.post(moved(root, "2026-03-10T12:00:01Z"), moved(call, "2026-03-10T12:00:02Z"))
	s.post(moved(cancel(root), "2026-03-10T18:00:00Z"), moved(cancel(call), "2026-03-10T18:00:00Z"))
	if err := s.e.Conn().Exec(t.Context(), "OPTIMIZE TABLE runs FINAL"); err != nil {
		t.Fatal(err)
	}
	f := func(asOf, want string) {
		t.Helper()
		equal(t, asOf, show(list(s.get("/api/v1/loops?group_by=workflow&" + during + "&as_of=" + asOf)["rows"]), "workflow", "requests", "cost_usd"), want)
		equal(t, asOf, show(list(s.get("/api/v1/load?group_by=workflow&" + during + "&as_of=" + asOf)["rows"]), "workflow", "requests", "cost_usd"), want)
	}
	f("2026-03-10T12:00:01Z", "")
	f("2026-03-10T13:00:00Z", "quote 1 1")
	f("2026-03-10T18:00:00.000001Z", "")
	f("2026-03-10", "")
	s.refuse("/api/v1/load?as_of=2026-03-10&colour=red", http.StatusBadRequest, "unknown parameter")
	s.refuse("/api/v1/enforcement/times?as_of=2026-03-10", http.StatusBadRequest, "never corrected")
}

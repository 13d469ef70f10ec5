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
		"yesterday": "want a date", "": "want a date", "1066-10-14T00:00:01Z": "1971",
		time.Now().UTC().Format(time.DateOnly): "has not ended", time.Now().Add(time.Hour).UTC().Format(time.RFC3339): "lies ahead",
	} {
		s.refuse("/api/v1/spend?as_of="+v, http.StatusBadRequest, words)
	}
	s.refuse("/api/v1/retries?as_of=2026-03-10", http.StatusBadRequest, "unknown parameter")
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

package query

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/flyball/flyball/schema"
)

// send posts JSON.
func (s *store) send(path, key, body string) (int, string) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// at sets when a call began and was recorded.
func at(e schema.Entry, started, recorded string) schema.Entry {
	t, err := time.Parse(time.RFC3339Nano, started)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	e.Start = t.UnixNano()
	return moved(e, recorded)
}

const closeFields = "tenant provider model frozen_usd current_usd adjustment_usd frozen_calls current_calls adjustment_calls"

func (s *store) closeRows(query string) (rows, total string) {
	s.t.Helper()
	m := s.get("/api/v1/close?" + query)
	return show(list(m["rows"]), strings.Fields(closeFields)...), show([]map[string]any{m["total"].(map[string]any)}, "frozen_usd", "current_usd", "adjustment_usd", "frozen_calls", "current_calls")
}

// What is booked after the close is an adjustment, and the sums hold exactly.
func TestCloseFreezesAMonth(t *testing.T) {
	s := newStore(t)
	tr := newTrace("t-1", "r", 1, nil)
	kept := at(tr.add(schema.KindModel, priced("1.000000000001")), "2026-03-01T00:00:00Z", "2026-03-01T00:00:01Z")
	repriced := at(tr.add(schema.KindModel, priced("10"), model("m-6")), "2026-03-31T23:59:59Z", "2026-03-31T23:59:59.5Z")
	cancelled := at(tr.add(schema.KindModel, priced("5"), model("m-gone")), "2026-03-15T00:00:00Z", "2026-03-15T00:00:00Z")
	late := at(tr.add(schema.KindModel, priced("0.25"), model("m-late")), "2026-03-20T00:00:00Z", "2026-04-02T00:00:00Z")
	outside := at(tr.add(schema.KindModel, priced("99")), "2026-04-01T00:00:00Z", "2026-04-01T00:00:00Z")
	other := newTrace("t-2", "r", 2, nil)
	s.post(kept, repriced, cancelled, outside, at(other.add(schema.KindModel, priced("7")), "2026-03-05T00:00:00Z", "2026-03-05T00:00:00Z"))
	if m := s.get("/api/v1/close?period=2026-03"); len(list(m["rows"])) != 0 || len(list(m["closes"])) != 0 {
		t.Errorf("before the close: %v", m)
	}
	code, body := s.send("/api/v1/close", "", `{"period":"2026-03","as_of":"2026-04-01"}`)
	if code != http.StatusOK {
		t.Fatal(code, body)
	}
	equal(t, "closed", show(list(decode(t, body)["closed"]), "tenant", "period", "from", "to", "as_of", "closed_by", "cost_usd"),
		"t-1 2026-03 2026-03-01T00:00:00Z 2026-04-01T00:00:00Z 2026-04-02T00:00:00Z local 16.000000000001\nt-2 2026-03 2026-03-01T00:00:00Z 2026-04-01T00:00:00Z 2026-04-02T00:00:00Z local 7")
	rows, total := s.closeRows("period=2026-03")
	equal(t, "at once", rows, "t-1 openai m-5 1.000000000001 1.000000000001 0 1 1 0\nt-1 openai m-6 10 10 0 1 1 0\nt-1 openai m-gone 5 5 0 1 1 0\nt-2 openai m-5 7 7 0 1 1 0")
	equal(t, "total at once", total, "23.000000000001 23.000000000001 0 4 4")

	s.post(late)
	pair := replaced(repriced, priced("12.5"))
	s.post(moved(pair[0], "2026-04-03T00:00:00Z"), moved(pair[1], "2026-04-03T00:00:00Z"))
	s.post(moved(cancel(cancelled), "2026-05-01T00:00:00Z"))
	rows, total = s.closeRows("period=2026-03&tenant=t-1")
	equal(t, "later", rows, "t-1 openai m-5 1.000000000001 1.000000000001 0 1 1 0\nt-1 openai m-6 10 12.5 2.5 1 1 0\nt-1 openai m-gone 5 0 -5 1 0 -1\nt-1 openai m-late 0 0.25 0.25 0 1 1")
	equal(t, "total later", total, "16.000000000001 13.750000000001 -2.25 3 3")
	spend := s.get("/api/v1/spend?tenant=t-1&from=2026-03-01&to=2026-04-01")["total"].(map[string]any)["cost_usd"]
	equal(t, "spend is what is current", fmt.Sprint(spend), "13.750000000001")
	spend = s.get("/api/v1/spend?tenant=t-1&from=2026-03-01&to=2026-04-01&as_of=2026-04-01")["total"].(map[string]any)["cost_usd"]
	equal(t, "spend as of the close is what was frozen", fmt.Sprint(spend), "16.000000000001")
	m := s.get("/api/v1/close?period=2026-03&limit=2")
	if next := m["next"].(string); next == "" || m["truncated"] != true {
		t.Errorf("a page: %v", m)
	} else if rows, _ := s.closeRows("period=2026-03&limit=2&cursor=" + next); !strings.HasPrefix(rows, "t-1 openai m-gone") {
		t.Errorf("the next page: %s", rows)
	}
	_, file := s.file("/api/v1/close?period=2026-03&tenant=t-1&format=csv")
	equal(t, "file", columns(t, file, "model", "adjustment_usd"), "m-5 0\nm-6 2.5\nm-gone -5\nm-late 0.25")

	// A close stays; one for everybody takes those that it lacks.
	if code, body := s.send("/api/v1/close", "", `{"period":"2026-03"}`); code != http.StatusConflict || !strings.Contains(body, "stays as it is") {
		t.Errorf("again: %d %s", code, body)
	}
	s.post(at(newTrace("t-3", "r", 3, nil).add(schema.KindModel, priced("3")), "2026-03-02T00:00:00Z", "2026-04-09T00:00:00Z"))
	if code, body := s.send("/api/v1/close", "", `{"period":"2026-03"}`); code != http.StatusOK || !strings.Contains(body, `"already":["t-1","t-2"]`) || show(list(decode(t, body)["closed"]), "tenant", "cost_usd") != "t-3 3" {
		t.Errorf("for a tenant that came later: %d %s", code, body)
	}
	equal(t, "list", show(list(s.get("/api/v1/close")["closes"]), "tenant", "period"), "t-1 2026-03\nt-2 2026-03\nt-3 2026-03")
}

// Who closed a month and why is in the history: once for everybody, else for each tenant.
func TestCloseIsRecorded(t *testing.T) {
	var kept []schema.Enforcement
	s := newStore(t, func(o *Options) { o.Record = func(e schema.Enforcement) error { kept = append(kept, e); return nil } })
	for i, tenant := range []string{"t-1", "t-2", "t-3"} {
		s.post(at(newTrace(tenant, "r", byte(i+1), nil).add(schema.KindModel, priced("1")), "2026-03-01T00:00:00Z", "2026-03-01T00:00:01Z"))
	}
	f := func(params, body string, status int, want ...string) {
		t.Helper()
		kept = nil
		if code, text := s.send("/api/v1/close"+params, "", body); code != status {
			t.Fatalf("%s %s: %d %s", params, body, code, text)
		}
		var got []string
		for _, e := range kept {
			got = append(got, strings.Join([]string{e.Kind, e.Tenant, e.Scope, e.Actor, e.Reason}, "|"))
		}
		equal(t, "recorded", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	f("?tenant=t-1&tenant=t-2", `{"period":"2026-03","reason":" books of March "}`, http.StatusOK, "close|t-1|month 2026-03|local|books of March", "close|t-2|month 2026-03|local|books of March")
	f("", `{"period":"2026-03"}`, http.StatusOK, "close||month 2026-03 of every tenant (1)|local|")
	f("", `{"period":"2026-03","reason":"again"}`, http.StatusConflict)
	f("", `{"period":"2026-02","reason":"`+strings.Repeat("ä", 1001)+`"}`, http.StatusBadRequest)
	f("", `{"period":"2026-02","reason":"`+strings.Repeat("ä", 1000)+`"}`, http.StatusOK, "close||month 2026-02 of every tenant (3)|local|"+strings.Repeat("ä", 1000))
}

// Months are those of the tenant's zone.
func TestCloseInTheTenantsZone(t *testing.T) {
	zones := map[string]*time.Location{}
	for tenant, name := range map[string]string{"tokyo": "Asia/Tokyo", "la": "America/Los_Angeles"} {
		z, err := time.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}
		zones[tenant] = z
	}
	s := newStore(t, func(o *Options) { o.Zone = func(tenant string) *time.Location { return zones[tenant] } })
	for i, tenant := range []string{"tokyo", "la"} {
		tr := newTrace(tenant, "r", byte(i+1), nil)
		for j, start := range []string{"2026-02-28T14:59:59Z", "2026-02-28T15:00:00Z", "2026-03-01T07:59:59Z", "2026-03-01T08:00:00Z", "2026-03-31T14:59:59Z", "2026-03-31T15:00:00Z", "2026-04-01T06:59:59Z", "2026-04-01T07:00:00Z"} {
			s.post(at(tr.add(schema.KindModel, priced(fmt.Sprint(1<<j))), start, start))
		}
	}
	if code, body := s.send("/api/v1/close", "", `{"period":"2026-03","as_of":"2026-03-31"}`); code != http.StatusConflict || !strings.Contains(body, "as_of=2026-04-01") || !strings.Contains(body, "tenant la") {
		t.Errorf("a month that was not over: %d %s", code, body)
	}
	if rows, _ := s.closeRows("period=2026-03"); rows != "" {
		t.Errorf("half of a close: %s", rows)
	}
	if code, body := s.send("/api/v1/close?tenant=tokyo", "", `{"period":"2026-03","as_of":"2026-03-31"}`); code != http.StatusOK {
		t.Errorf("tokyo: %d %s", code, body)
	}
	if code, body := s.send("/api/v1/close", "", `{"period":"2026-03","as_of":"2026-04-01"}`); code != http.StatusOK {
		t.Errorf("the rest: %d %s", code, body)
	}
	rows, _ := s.closeRows("period=2026-03")
	equal(t, "zones", rows, "la openai m-5 120 120 0 4 4 0\ntokyo openai m-5 30 30 0 4 4 0")
	equal(t, "bounds", show(list(s.get("/api/v1/close")["closes"]), "tenant", "from", "to", "timezone"), "la 2026-03-01T08:00:00Z 2026-04-01T07:00:00Z America/Los_Angeles\ntokyo 2026-02-28T15:00:00Z 2026-03-31T15:00:00Z Asia/Tokyo")
}

// Two at once store one close.
func TestCloseAtOnce(t *testing.T) {
	s := newStore(t)
	s.post(at(newTrace("t-1", "r", 1, nil).add(schema.KindModel, priced("1")), "2026-03-02T00:00:00Z", "2026-03-02T00:00:00Z"))
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if code, body := s.send("/api/v1/close", "", `{"period":"2026-03"}`); code != http.StatusOK && code != http.StatusConflict {
				t.Errorf("close: %d %s", code, body)
			}
		})
	}
	wg.Wait()
	rows, _ := s.closeRows("period=2026-03")
	equal(t, "rows", rows, "t-1 openai m-5 1 1 0 1 1 0")
	if n := s.count("SELECT count() FROM closes"); n != 2 {
		t.Errorf("stored: %d rows, want the month's and one model's", n)
	}
}

// Two at once, as of different days: who is told that it closed the month is told what is stored.
func TestWhoClosesAtOnceIsToldWhatIsStored(t *testing.T) {
	s := newStore(t)
	tr := newTrace("t-1", "r", 1, nil)
	for i := range 6 {
		s.post(at(tr.add(schema.KindModel, priced("1")), "2026-03-02T00:00:00Z", fmt.Sprintf("2026-04-%02dT00:00:00Z", 2+i)))
	}
	answers := make([]string, 6)
	var wg sync.WaitGroup
	for i := range answers {
		wg.Go(func() {
			code, body := s.send("/api/v1/close", "", fmt.Sprintf(`{"period":"2026-03","as_of":"2026-04-%02d"}`, 2+i))
			if code == http.StatusOK {
				answers[i] = body
			} else if code != http.StatusConflict {
				t.Errorf("close: %d %s", code, body)
			}
		})
	}
	wg.Wait()
	kept := list(s.get("/api/v1/close?period=2026-03")["closes"])
	closers := 0
	for _, body := range answers {
		if body == "" {
			continue
		}
		m := decode(t, body)
		for _, c := range list(m["closed"]) {
			closers++
			equal(t, "closed", show([]map[string]any{c}, "tenant", "as_of", "cost_usd", "closed_at"), show(kept, "tenant", "as_of", "cost_usd", "closed_at"))
		}
		if len(list(m["closed"])) == 0 && fmt.Sprint(m["already"]) != "[t-1]" {
			t.Errorf("neither closed nor already: %s", body)
		}
	}
	if closers != 1 {
		t.Errorf("%d closed the month", closers)
	}
}

func TestCloseRefuses(t *testing.T) {
	ring, secret := keys(t,
		schema.Key{Name: "reader", Role: schema.KeyRead, Tenant: "t-1"},
		schema.Key{Name: "chief", Role: schema.KeyAdmin, Tenant: "t-1"},
		schema.Key{Name: "all", Role: schema.KeyAdmin, Tenants: schema.TenantList{"*"}})
	stored := time.Now()
	s := newStore(t, func(o *Options) { o.Keys, o.Stored = ring, func() time.Time { return stored } })
	for _, tenant := range []string{"t-1", "t-2"} {
		s.post(at(newTrace(tenant, "r", 1, nil).add(schema.KindModel, priced("1")), "2026-03-02T00:00:00Z", "2026-03-02T00:00:00Z"))
	}
	now := time.Now().UTC()
	f := func(key, path, body string, want int, words string) {
		t.Helper()
		if code, got := s.send("/api/v1/close"+path, secret[key], body); code != want || !strings.Contains(got, words) {
			t.Errorf("%s %s: got %d %s, want %d with %q", key, body, code, got, want, words)
		}
	}
	const march = `{"period":"2026-03"}`
	f("", "", march, 401, "send a key")
	f("reader", "", march, 403, "role admin")
	f("chief", "?tenant=t-2", march, 403, "may not see tenant t-2")
	f("all", "", `{"period":"March"}`, 400, "want a month")
	f("all", "", `{`, 400, "want {")
	f("all", "", `{"period":"2026-03","as_of":"soon"}`, 400, "has ended")
	f("all", "", `{"period":"2026-03","as_of":""}`, 400, "has ended")
	f("all", "", fmt.Sprintf(`{"period":"2026-03","as_of":%q}`, now.Format(time.DateOnly)), 400, "has ended")
	f("all", "", fmt.Sprintf(`{"period":%q}`, now.AddDate(0, 0, 1).Format("2006-01")), 409, "close it from")
	f("all", "?x=1", march, 400, "unknown parameter")
	stored = now.AddDate(0, 0, -3)
	f("all", "", march, 503, "on their way")
	stored = now
	f("chief", "", march, 200, `"tenant":"t-1"`)
	if n := s.count("SELECT uniqExact(tenant) FROM closes"); n != 1 {
		t.Errorf("closed for %d tenants", n)
	}
	f("all", "", march, 200, `"already":["t-1"]`)
	_, _, body := s.do("/api/v1/close?period=2026-03", secret["reader"])
	if strings.Contains(body, "t-2") {
		t.Errorf("a reader of one tenant sees %s", body)
	}
	for path, words := range map[string]string{"?period=2026-13": "want a month", "?period=": "want a month", "?format=csv": "period is missing", "?from=2026-03-01": "unknown parameter"} {
		if code, _, body := s.do("/api/v1/close"+path, secret["all"]); code != 400 || !strings.Contains(body, words) {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
}

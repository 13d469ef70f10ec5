package query

import (
	"encoding/csv"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/flyball/flyball/schema"
)

// file asks for CSV and returns the headers and the rows, the header row first.
func (s *store) file(path string) (http.Header, [][]string) {
	s.t.Helper()
	status, h, body := s.do(path, "")
	if status != http.StatusOK || !strings.HasPrefix(h.Get("Content-Type"), "text/csv") {
		s.t.Fatalf("get %s: %d %s %s", path, status, h.Get("Content-Type"), body)
	}
	rows, err := csv.NewReader(strings.NewReader(body)).ReadAll()
	if err != nil {
		s.t.Fatalf("read %s: %v\n%s", path, err, body)
	}
	return h, rows
}

// columns picks columns of a file by name, as text.
func columns(t *testing.T, rows [][]string, names ...string) string {
	t.Helper()
	var out []string
	for _, r := range rows[1:] {
		var cells []string
		for _, n := range names {
			i := slices.Index(rows[0], n)
			if i < 0 {
				t.Fatalf("no column %s in %v", n, rows[0])
			}
			cells = append(cells, r[i])
		}
		out = append(out, strings.Join(cells, " "))
	}
	return strings.Join(out, "\n")
}

func TestCSVOfEveryQuestion(t *testing.T) {
	s := newStore(t)
	s.post(worked("t-1", "r-1", 1)...)
	f := func(path, want string, names ...string) {
		t.Helper()
		h, rows := s.file("/api/v1/" + path + "&format=csv&" + during)
		equal(t, path, columns(t, rows, names...), want)
		if h.Get("X-Flyball-Truncated") != "false" || !strings.Contains(h.Get("Content-Disposition"), "flyball-"+path[:strings.IndexAny(path, "?/")]) {
			t.Errorf("%s: headers %v", path, h)
		}
	}
	f("spend?group_by=tenant,model", "t-1 m-5 3 0.75 0\nt-1 m-5-mini 1 0.25 0\nt-1  13 0 0", "tenant", "model", "calls", "cost_usd", "tokens_output")
	f("spend?interval=1d&group_by=tenant", "t-1 2026-03-10T00:00:00Z 1", "tenant", "at", "cost_usd")
	f("amplification?", "quote 1 4 12 2 18 1.125 1", "workflow", "requests", "model_calls", "tool_calls", "retries", "ratio", "retry_multiplier", "cost_usd")
	f("retries?", "agent timeout 1 0\nsdk rate_limited 1 0", "layer", "failure", "retries", "wasted_usd")
	f("coverage?", "openai m-5 3 0\nopenai m-5-mini 1 0", "provider", "model", "calls", "unpriced")
	f("runs?", "t-1 r-1 quote 18 1", "tenant", "run_id", "workflow", "amplification", "cost_usd")
	f("calls?kind=model&model=m-5-mini", "openai m-5-mini 0.25 priced 0", "provider", "model", "cost_usd", "cost_status", "hidden_attempts")
}

// What a sender calls itself may neither break a file nor run in a spreadsheet.
func TestCSVIsSafe(t *testing.T) {
	s := newStore(t)
	names := []string{"=1+1", "+x", "-x", "@SUM(A1)", "\tx", "a,b", "say \"hi\"", "two\nlines", "-5", "plain", "＝1+1"}
	for i, n := range names {
		tr := newTrace("t-1", "r", byte(i+1), map[schema.Dim]string{schema.User: n})
		s.post(tr.add(schema.KindModel, priced(fmt.Sprint(100-i))))
	}
	_, rows := s.file("/api/v1/spend?format=csv&group_by=user&" + during)
	var got []string
	for _, r := range rows[1:] {
		got = append(got, r[0])
	}
	if want := []string{"'=1+1", "'+x", "'-x", "'@SUM(A1)", "'\tx", "a,b", "say \"hi\"", "two\nlines", "-5", "plain", "'＝1+1"}; !slices.Equal(got, want) {
		t.Errorf("names: got %q, want %q", got, want)
	}
	// Money is no name: a correction below zero stays a number, null an empty cell.
	tr := newTrace("t-2", "r", 99, nil)
	e := tr.add(schema.KindModel, priced("0.000000000001"))
	e.Sign = -1
	s.post(e, newTrace("t-3", "r", 98, nil).add(schema.KindModel, status(schema.CostUnknown)))
	_, rows = s.file("/api/v1/spend?tenant=t-2&format=csv&" + during)
	equal(t, "below zero", columns(t, rows, "cost_usd"), "-0.000000000001")
	_, rows = s.file("/api/v1/calls?tenant=t-3&format=csv&" + during)
	equal(t, "unknown", columns(t, rows, "cost_usd", "cost_status"), " unknown")
}

func TestCSVByAcceptAndOnlyThen(t *testing.T) {
	s := newStore(t)
	s.post(worked("t-1", "r-1", 1)...)
	f := func(accept, want string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"/api/v1/spend?"+during, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Accept", accept)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if got := resp.Header.Get("Content-Type"); !strings.HasPrefix(got, want) || !strings.Contains(resp.Header.Get("Vary"), "Accept") {
			t.Errorf("accept %q: got %s, vary %q", accept, got, resp.Header.Get("Vary"))
		}
	}
	f("text/csv", "text/csv")
	f("*/*", "application/json")
	f("text/html,*/*;q=0.8", "application/json")
	f("application/json", "application/json")
	s.refuse("/api/v1/spend?format=xml", http.StatusBadRequest, "want json or csv")
	s.refuse("/api/v1/runs/r-1?format=csv", http.StatusBadRequest, "unknown parameter")
}

// The pages of a question hold every row once.
func TestCursorsWalkEveryRow(t *testing.T) {
	s := newStore(t)
	for i := range 5 {
		tr := newTrace(fmt.Sprintf("t-%d", i%3), fmt.Sprintf("r-%d", i), byte(i+1), map[schema.Dim]string{schema.Workflow: fmt.Sprint(i)})
		s.post(tr.add(schema.KindRequest), tr.add(schema.KindModel, priced("1"), retry(schema.LayerSDK, schema.Timeout), func(e *schema.Entry) { e.Model, e.Posting.ModelCalls = fmt.Sprint(i), 1 }))
	}
	for _, path := range []string{"spend?group_by=tenant,model&interval=1h", "amplification?group_by=workflow", "amplification?group_by=model", "retries?group_by=model", "coverage?", "runs?", "calls?kind=model",
		"load?group_by=model&interval=1h", "rate-limits?group_by=model", "loops?group_by=run_id", "worked-after?group_by=model", "cache?group_by=model"} {
		for _, form := range []string{"json", "csv"} {
			var got []string
			pages := 0
			u := "/api/v1/" + path + "&limit=2&format=" + form + "&" + during
			for u != "" {
				pages++
				if pages > 4 {
					t.Fatalf("%s: no end", path)
				}
				if form == "csv" {
					h, rows := s.file(u)
					for _, r := range rows[1:] {
						got = append(got, fmt.Sprint(r))
					}
					u, _, _ = strings.Cut(strings.TrimPrefix(h.Get("Link"), "<"), ">")
					continue
				}
				m := s.get(u)
				name := "rows"
				if strings.HasPrefix(path, "calls") {
					name = "calls"
				}
				for _, r := range list(m[name]) {
					got = append(got, fmt.Sprint(r))
				}
				next := m["next"].(string)
				if u = ""; next != "" {
					u = "/api/v1/" + path + "&limit=2&cursor=" + next + "&" + during
				}
			}
			seen := map[string]bool{}
			for _, r := range got {
				seen[r] = true
			}
			if len(got) != 5 || len(seen) != 5 || pages != 3 {
				t.Errorf("%s as %s: %d rows, %d different, on %d pages", path, form, len(got), len(seen), pages)
			}
		}
	}
	next := s.get("/api/v1/spend?group_by=model&limit=1&" + during)["next"].(string)
	for _, path := range []string{"spend?group_by=user", "spend?group_by=model&tenant=t-1", "spend?group_by=model&model=1", "retries?group_by=model"} {
		s.refuse("/api/v1/"+path+"&cursor="+next+"&"+during, http.StatusBadRequest, "another question")
	}
	for _, path := range []string{"spend?x", "runs?x", "calls?x", "coverage?x", "amplification?x", "retries?x"} {
		path, _, _ = strings.Cut(path, "?")
		for _, v := range []string{"nonsense", "MS4yLjMuNA", "LTEuMC4wLng", url.QueryEscape("é")} {
			if status, _, body := s.do("/api/v1/"+path+"?cursor="+v, ""); status != http.StatusBadRequest {
				t.Errorf("%s of the cursor %s: %d %s", path, v, status, body)
			}
		}
	}
}

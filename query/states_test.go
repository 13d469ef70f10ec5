package query

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/flyball/flyball/schema"
)

// pastRun is a run of the test below, as its answers have to tell it.
type pastRun struct {
	tenant, workflow, user string
	day, calls             int
}

// past posts runs of twelve days: most are booked on the day on which they began, some have
// calls that were booked days before their root began or after it, some have no root, and some
// calls are taken out later. Another trace of the run names another workflow, which the root's
// word beats whenever it comes.
func (s *store) past(runs int) []pastRun {
	rnd := rand.New(rand.NewPCG(7, 11))
	var out []pastRun
	chunks := map[int][]schema.Entry{} // by the day of booking
	for i := range runs {
		p := pastRun{tenant: fmt.Sprintf("t-%d", rnd.IntN(3)), workflow: fmt.Sprintf("w-%d", rnd.IntN(4)), user: fmt.Sprintf("u-%d", rnd.IntN(5)), day: rnd.IntN(12)}
		at := func(day int, workflow string, rooted bool) *trace {
			tr := newTrace(p.tenant, fmt.Sprintf("run-%d", i), byte(i), map[schema.Dim]string{schema.Workflow: workflow, schema.User: p.user})
			tr.at = noon.AddDate(0, 0, day)
			if !rooted {
				tr.n = 1
			}
			return tr
		}
		kind := rnd.IntN(5)
		tr := at(p.day, p.workflow, kind != 0)
		if kind != 0 {
			chunks[p.day] = append(chunks[p.day], tr.add(schema.KindRequest))
		}
		for range 1 + rnd.IntN(6) {
			e := tr.add(schema.KindModel, priced("0.000000000001"))
			chunks[p.day] = append(chunks[p.day], e)
			if later := p.day + rnd.IntN(4); p.calls > 0 && later > p.day && rnd.IntN(3) == 0 {
				gone := cancel(e)
				gone.RecordedAt = noon.AddDate(0, 0, later).UnixMicro()
				chunks[later] = append(chunks[later], gone)
				continue
			}
			p.calls++
		}
		for _, off := range []int{-1 - rnd.IntN(6), 1 + rnd.IntN(3)} {
			if kind != 1 && kind != 2 || rnd.IntN(2) == 0 {
				continue
			}
			other := at(p.day+off, "of another trace", false)
			other.id += 100
			e := other.add(schema.KindModel, priced("0.000000000001"))
			e.Trace[0] = byte(100 + off)
			chunks[p.day+off] = append(chunks[p.day+off], e)
			p.calls++
		}
		out = append(out, p)
	}
	for day := -8; day < 16; day++ {
		if len(chunks[day]) > 0 {
			s.post(chunks[day]...)
		}
	}
	return out
}

// wanted is the answer, added up from the runs alone.
func wanted(runs []pastRun, from, to int, group func(pastRun) string) string {
	works := map[string][]int{}
	for _, p := range runs {
		if p.day >= from && p.day < to {
			if g := group(p); g != "" {
				works[g] = append(works[g], p.calls)
			}
		}
	}
	var out []string
	for g, w := range works {
		slices.Sort(w)
		sum := 0
		for _, n := range w {
			sum += n
		}
		q := func(level float64) int { return w[int(level*float64(len(w)))] }
		out = append(out, fmt.Sprintf("%s %d %d %s %d %d %d", g, len(w), sum, schema.Money(sum), q(0.5), q(0.9), q(0.99)))
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

// fold brings the table of states up to the day before noon's and so many days.
func (s *store) fold(days int) {
	s.t.Helper()
	for {
		_, more, err := schema.FoldRuns(s.t.Context(), s.e.Conn(), noon.AddDate(0, 0, days))
		if err != nil {
			s.t.Fatal(err)
		}
		if !more {
			return
		}
	}
}

// open makes the states of the day behind those that are whole, of what was recorded before so
// many days and hours after noon, and reports whether that is of the day or behind it.
func (s *store) open(days, hours int) bool {
	s.t.Helper()
	made, err := schema.FoldOpenRuns(s.t.Context(), s.e.Conn(), noon.AddDate(0, 0, days).Add(time.Duration(hours)*time.Hour), 1)
	if err != nil {
		s.t.Fatal(err)
	}
	return made
}

// What is asked about runs is made of their states at the end of days and of what was booked
// since: wherever that end is, and whatever states the day behind it has, the answer is the same,
// and that of the runs themselves.
func TestRunStates(t *testing.T) {
	s := newStore(t)
	runs := s.past(100)
	fields := []string{"requests", "model_calls", "cost_usd", "p50", "p90", "p99"}
	f := func(folded, from, to int) {
		t.Helper()
		during := fmt.Sprintf("from=%s&to=%s", noon.AddDate(0, 0, from).Format("2006-01-02"), noon.AddDate(0, 0, to).Format("2006-01-02"))
		by := func(query string, group func(pastRun) string, columns ...string) {
			t.Helper()
			rows := list(s.get("/api/v1/amplification?" + query + "&" + during)["rows"])
			for i := 1; i < len(rows); i++ {
				if rows[i-1]["requests"].(float64) < rows[i]["requests"].(float64) {
					t.Errorf("%s of days %d to %d: row %d has more requests than the one before", query, from, to, i)
				}
			}
			got := strings.Split(show(rows, append(columns, fields...)...), "\n")
			slices.Sort(got)
			equal(t, fmt.Sprintf("%s of days %d to %d with states up to %d", query, from, to, folded), strings.Join(got, "\n"), wanted(runs, from, to, group))
		}
		by("group_by=workflow", func(p pastRun) string { return p.workflow }, "workflow")
		by("group_by=tenant,user", func(p pastRun) string { return p.tenant + " " + p.user }, "tenant", "user")
		by("group_by=tenant&workflow=w-1", func(p pastRun) string {
			if p.workflow != "w-1" {
				return ""
			}
			return p.tenant
		}, "tenant")
		by("group_by=workflow&tenant=t-1", func(p pastRun) string {
			if p.tenant != "t-1" {
				return ""
			}
			return p.workflow
		}, "workflow")
		requests := func(path string) (n int) {
			for _, r := range list(s.get(path)["rows"]) {
				n += int(r["after"].(map[string]any)["requests"].(float64))
			}
			return n
		}
		want := 0
		for _, p := range runs {
			if p.day >= from && p.day < to {
				want++
			}
		}
		if got := requests("/api/v1/movers?group_by=workflow&" + during); got != want {
			t.Errorf("movers of days %d to %d with states up to %d: got %d requests, want %d", from, to, folded, got, want)
		}
	}
	// Everything is recorded at noon: what states of a part of the day have is asked for again, or not.
	for i, to := range []struct{ folded, hours int }{{-8, -20}, {-8, 120}, {1, -20}, {1, 1}, {1, 0}, {5, 0}, {5, 1}, {40, 1}} {
		s.fold(to.folded)
		if made := s.open(to.folded, to.hours); made != (to.hours >= -12 && to.folded < 16) {
			t.Errorf("states of what was recorded %d hours after noon of day %d: %t", to.hours, to.folded, made)
		}
		s.api.behind = []time.Duration{0, math.MaxInt64}[i/2%2] // some runs are wanted of many, or not
		for _, days := range [][2]int{{0, 1}, {3, 4}, {2, 8}, {-8, 16}} {
			f(to.folded, days[0], days[1])
		}
	}
	if day, more, err := schema.FoldRuns(t.Context(), s.e.Conn(), noon.AddDate(1, 0, 0)); more || err != nil {
		t.Errorf("folded %s again: %v", day, err)
	}
}

// A day that was cut off is made anew.
func TestFoldAgain(t *testing.T) {
	s := newStore(t)
	runs := s.past(50)
	for _, sql := range []string{"CREATE TABLE fold_run_states AS run_states", "INSERT INTO fold_run_states (tenant, booked_on, sign, model_calls) VALUES ('t-1', '2026-03-10', 1, 7)"} {
		if err := s.e.Conn().Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	if s.open(20, 0) {
		t.Error("states of a day that is over were made as of one that is not")
	}
	s.fold(20)
	rows := list(s.get("/api/v1/amplification?group_by=workflow&from=2026-03-10&to=2026-03-22")["rows"])
	got := strings.Split(show(rows, "workflow", "requests", "model_calls", "cost_usd", "p50", "p90", "p99"), "\n")
	slices.Sort(got)
	equal(t, "runs", strings.Join(got, "\n"), wanted(runs, 0, 12, func(p pastRun) string { return p.workflow }))
}

// A page of groups goes on where the one before ended.
func TestPagesOfGroups(t *testing.T) {
	s := newStore(t)
	s.past(60)
	s.fold(8)
	const path = "/api/v1/amplification?group_by=tenant,workflow,user&from=2026-03-10&to=2026-03-22&limit="
	whole := s.get(path + "1000")
	var got []map[string]any
	for next, pages := "", 0; ; pages++ {
		m := s.get(path + "7" + next)
		got = append(got, list(m["rows"])...)
		if m["truncated"] != true {
			break
		}
		if next = "&cursor=" + m["next"].(string); pages > 20 {
			t.Fatal("the pages do not end")
		}
	}
	equal(t, "pages", show(got, "tenant", "workflow", "user", "requests", "p90"), show(list(whole["rows"]), "tenant", "workflow", "user", "requests", "p90"))
}

package query

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

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

// A question about runs may be asked part by part, and each by the rows of its days or by all
// there are: the answer is the same, and that of the runs themselves.
func TestRunsOfALongTime(t *testing.T) {
	s := newStore(t)
	runs := s.past(100)
	whole := s.api.partRuns
	fields := []string{"requests", "model_calls", "cost_usd", "p50", "p90", "p99"}
	f := func(from, to int, part int64) {
		t.Helper()
		s.api.partRuns = part
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
			equal(t, fmt.Sprintf("%s of days %d to %d in parts of %d", query, from, to, part), strings.Join(got, "\n"), wanted(runs, from, to, group))
		}
		by("group_by=workflow", func(p pastRun) string { return p.workflow }, "workflow")
		by("group_by=tenant,user", func(p pastRun) string { return p.tenant + " " + p.user }, "tenant", "user")
		by("group_by=tenant&workflow=w-1", func(p pastRun) string {
			if p.workflow != "w-1" {
				return ""
			}
			return p.tenant
		}, "tenant")
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
			t.Errorf("movers of days %d to %d in parts of %d: got %d requests, want %d", from, to, part, got, want)
		}
	}
	f(0, 1, whole)
	f(3, 4, whole)
	f(0, 12, whole) // every row is read
	f(9, 12, whole)
	f(2, 8, 20)
	f(0, 12, 30)
	f(0, 12, 1)
	f(-8, 16, 25)
	f(20, 40, 1)
}

// A page of an answer that was added up goes on where the one before ended.
func TestPagesOfALongTime(t *testing.T) {
	s := newStore(t)
	s.past(60)
	const path = "/api/v1/amplification?group_by=tenant,workflow,user&from=2026-03-10&to=2026-03-22&limit="
	s.api.partRuns = 10
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
	s.api.partGroups = 3 // more groups than can be added up: it is asked in one
	equal(t, "too many groups", show(list(s.get(path + "1000")["rows"]), "tenant", "workflow", "user", "requests", "p90"), show(list(whole["rows"]), "tenant", "workflow", "user", "requests", "p90"))
	s.api.partRuns = 1_500_000
	equal(t, "in one", show(list(s.get(path + "1000")["rows"]), "tenant", "workflow", "user", "requests", "p90"), show(list(whole["rows"]), "tenant", "workflow", "user", "requests", "p90"))
}

package limiter

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/flyball/flyball/enforce/directive"
)

// manyDirectives is a set as a large service has it, and calls of which most meet one
// directive or several.
func manyDirectives(tb testing.TB, n int) (*Limiter, []Call) {
	l, err := New(Options{URL: "http://127.0.0.1:1"})
	if err != nil {
		tb.Fatal(err)
	}
	r := rand.New(rand.NewPCG(3, 4))
	scopes := [][]string{nil, {"tenant"}, {"tenant", "user"}, {"tenant", "feature"}, {"tenant", "workflow"}, {"feature", "model"}, {"tenant", "agent"}, {"model"}}
	actions := []directive.Action{directive.Warn, directive.Downgrade, directive.SoftBlock, directive.Warn}
	s := state(1)
	for i := range n {
		d := directive.Directive{ID: fmt.Sprintf("guard-%d/%x", i%7, i), Guard: fmt.Sprintf("guard-%d", i%7), Action: actions[r.IntN(len(actions))], Reason: "the limit is used up", Models: map[string]string{"m-5": "m-5-mini"}, Exempt: []string{"critical"}, Expires: time.Now().Add(time.Hour)}
		switch {
		case i < 3: // of the whole deployment, with a condition
			d.Action, d.Match = directive.Warn, map[string][]string{"mode": {"batch"}}
		case i%2 == 0:
			d.Action, d.Scope.Runs = directive.Terminate, []string{fmt.Sprintf("run-%d", i), fmt.Sprintf("%032x", i)}
		default:
			d.Scope.Values = map[string]string{}
			for _, dim := range scopes[1+i/2%(len(scopes)-1)] {
				d.Scope.Values[dim] = fmt.Sprintf("%s-%d", dim, r.IntN(n))
			}
		}
		s.Directives = append(s.Directives, d)
	}
	s.Digest = ""
	if err := l.set.Replace(&s); err != nil {
		tb.Fatal(err)
	}
	if l.set.Len() != n {
		tb.Fatalf("%d directives, want %d", l.set.Len(), n)
	}
	calls := make([]Call, 4096)
	for i := range calls {
		calls[i] = Call{Tenant: fmt.Sprintf("tenant-%d", r.IntN(n)), User: fmt.Sprintf("user-%d", r.IntN(n)), Feature: fmt.Sprintf("feature-%d", r.IntN(n)), Workflow: fmt.Sprintf("workflow-%d", r.IntN(n)), Agent: "agent-1", Model: "m-5", RunID: fmt.Sprintf("run-%d", r.IntN(2*n)), TraceID: fmt.Sprintf("%032x", r.IntN(2*n)), Provider: "openai"}
	}
	return l, calls
}

// TestCheckAllocates keeps Check off the heap, waits and denials included.
func TestCheckAllocates(t *testing.T) {
	l, calls := manyDirectives(t, 1000)
	i := 0
	if n := testing.AllocsPerRun(5000, func() { l.Check(&calls[i%len(calls)]); i++ }); n != 0 {
		t.Errorf("%v allocations per check", n)
	}
	seen := map[directive.Verdict]int{}
	for i := range calls {
		seen[l.Check(&calls[i]).Verdict]++
	}
	if seen[directive.Allow] < 100 || seen[directive.Deny] < 100 {
		t.Errorf("the calls test little: %v", seen)
	}
}

// BenchmarkCheck asks about calls under 10,000 live directives. p99-ns has the price
// of reading the clock twice in it.
func BenchmarkCheck(b *testing.B) {
	l, calls := manyDirectives(b, 10_000)
	took := make([]int64, 0, 1<<20)
	b.ReportAllocs()
	b.ResetTimer()
	for i := 0; b.Loop(); i++ {
		c := &calls[i&4095]
		if i%8 != 0 { // most are not timed, so that the mean is that of Check
			l.Check(c)
			continue
		}
		from := time.Now()
		l.Check(c)
		if len(took) < cap(took) {
			took = append(took, int64(time.Since(from)))
		}
	}
	b.StopTimer()
	slices.Sort(took)
	if len(took) > 0 {
		b.ReportMetric(float64(took[len(took)*99/100]), "p99-ns")
	}
}

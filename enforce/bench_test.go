package enforce

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/flyball/flyball/enforce/directive"
	"github.com/flyball/flyball/schema"
	"github.com/flyball/flyball/schema/state"
)

// twentyGuards are what a strict operator might write.
func twentyGuards() []byte {
	var b strings.Builder
	b.WriteString("guards:\n")
	add := func(name, scope, measure, window, limit string) {
		fmt.Fprintf(&b, "  - {name: %s, scope: [%s], measure: %s, window: %s, limit: %q, ladder: [{at: 80%%, do: warn}, {at: 100%%, do: soft_block}], outcome: pause}\n", name, scope, measure, window, limit)
	}
	for _, m := range []string{"cost", "tokens", "model_calls", "tool_calls", "external_writes", "retries", "amplification"} {
		add("run-"+m, "run", m, "run", "1000000")
	}
	add("run-deadline", "run", "deadline", "run", "48h")
	for _, s := range []string{"user", "feature", "workflow", "agent", "model"} {
		add("day-"+s, "tenant, "+s, "cost", "{calendar: day, tz: tenant}", "1000000")
	}
	for _, s := range []string{"feature", "model"} {
		add("month-"+s, "tenant, "+s, "cost", "{calendar: month, tz: tenant}", "1000000")
	}
	add("tenant-day", "tenant", "cost", "{calendar: day, tz: tenant}", "1000000")
	add("tenant-month", "tenant", "cost", "{calendar: month, tz: tenant}", "1000000")
	add("storm", "tenant", "retry_rate", "{rolling: 10m}", "1000000")
	add("limited", "org, model", "rate_limited_rate", "{rolling: 10m}", "1000000")
	add("fan", "tenant, workflow", "amplification", "{rolling: 1h}", "1000000")
	return []byte(b.String())
}

// BenchmarkEvaluate is what guards add to an entry, decoding included, without a
// guard and with twenty: records of 512 entries of 10-span runs.
func BenchmarkEvaluate(b *testing.B) {
	for name, policy := range map[string][]byte{"guards=0": []byte("guards: []\n"), "guards=20": twentyGuards()} {
		b.Run(name, func(b *testing.B) {
			store, err := state.Open(state.Options{Dir: b.TempDir()})
			if err != nil {
				b.Fatal(err)
			}
			defer store.Close()
			l, _, err := New(Options{Store: store, Policy: policy, Pricer: scriptPrices})
			if err != nil {
				b.Fatal(err)
			}
			log := &memoryLog{}
			l.log = log
			a := &applier{l: l}
			r := rand.New(rand.NewPCG(1, 2))
			const size, records = 512, 64
			data := make([][]byte, records)
			now := time.Now()
			for i := range data {
				var w schema.Batch
				w.Reset(now.UnixMicro())
				for j := range size {
					e := schema.Entry{}
					run := i*size + j/10
					e.Tenant, e.Start, e.Duration, e.Model, e.Provider = fmt.Sprintf("tenant-%d", run%50), now.UnixNano(), 1e9, "m-5", "openai"
					copy(e.Trace[:], fmt.Sprintf("%016x", run))
					id := &e.Posting.Identity
					id[schema.Run], id[schema.User], id[schema.Feature], id[schema.Workflow], id[schema.Agent] = e.Trace.String(), fmt.Sprintf("user-%d", run%5000), fmt.Sprintf("feature-%d", run%20), fmt.Sprintf("workflow-%d", run%20), "planner"
					e.Posting.Kind, e.Posting.ModelCalls, e.Posting.Status = schema.KindModel, 1, schema.CostPriced
					e.Posting.Cost = schema.Money(r.Int64N(1e9))
					e.Posting.Exposure = e.Posting.Cost
					e.Posting.Tokens.Input, e.Posting.Tokens.Output = 1000, 100
					w.Add(1, 1, now.UnixMilli(), schema.AppendCall(nil, &e.Call), schema.AppendPosting(nil, &e.Posting, &e.Call))
				}
				data[i] = append([]byte(nil), w.Bytes()...)
			}
			pos := uint64(0)
			n := 0
			b.ReportAllocs()
			for b.Loop() {
				if n%size == 0 {
					if err := a.record(Record{Data: data[n/size%records], Start: pos, End: pos + 1}); err != nil {
						b.Fatal(err)
					}
					pos++
				}
				n++
			}
		})
	}
}

// BenchmarkCheck is the service's own answer, which looks at every budget.
func BenchmarkCheck(b *testing.B) {
	store, err := state.Open(state.Options{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	defer store.Close()
	l, _, err := New(Options{Store: store, Policy: twentyGuards(), Pricer: scriptPrices})
	if err != nil {
		b.Fatal(err)
	}
	l.log = &memoryLog{}
	c := directive.Call{Tenant: "tenant-1", User: "user-1", Feature: "feature-1", Workflow: "workflow-1", Agent: "planner", Model: "m-5", RunID: "r-1"}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := l.Check(&c); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkBudgets is what a reader's list costs beside 200,000 accounts, during which
// nothing else is decided.
func BenchmarkBudgets(b *testing.B) {
	store, err := state.Open(state.Options{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	defer store.Close()
	l, _, err := New(Options{Store: store, Pricer: scriptPrices})
	if err != nil {
		b.Fatal(err)
	}
	l.log = &memoryLog{}
	now := time.Now()
	for i := range 65_000 {
		e := schema.Entry{Sign: 1, Version: 1}
		e.Tenant, e.Start, e.RecordedAt, e.Model, e.Provider = fmt.Sprintf("tenant-%d", i%50), now.UnixNano(), now.UnixMicro(), "m-5", "openai"
		e.Posting.Identity[schema.Run], e.Posting.Identity[schema.User] = fmt.Sprintf("run-%d", i), fmt.Sprintf("user-%d", i%5000)
		e.Posting.Kind, e.Posting.ModelCalls, e.Posting.Status = schema.KindModel, 1, schema.CostPriced
		e.Posting.Cost = schema.Money(i) * 1000
		e.Posting.Exposure = e.Posting.Cost
		e.Posting.Tokens.Input = uint64(i)
		if err := l.ledger.Apply(&e, now.UnixMilli()); err != nil {
			b.Fatal(err)
		}
	}
	accounts, _, _ := l.ledger.Stats()
	b.ReportAllocs()
	for b.Loop() {
		if got := l.Budgets(func(string) bool { return true }, "", 100); len(got) != 100 {
			b.Fatal(len(got))
		}
	}
	b.ReportMetric(float64(accounts), "accounts")
}

// BenchmarkAcknowledge is a limiter that says that it has applied a new version, until that is
// in the local store; making it durable is for many at a time.
func BenchmarkAcknowledge(b *testing.B) {
	store, err := state.Open(state.Options{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	defer store.Close()
	l, _, err := New(Options{Store: store})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		l.current.Revision++
		if err := l.Acknowledge("l-1", anyTenant, Ack{Version: l.current, Token: l.sign(l.current)}); err != nil {
			b.Fatal(err)
		}
	}
}

package ingest

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sort"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/flyball/flyball/ingest/dialect"
	"github.com/flyball/flyball/ingest/trace"
	"github.com/flyball/flyball/schema"
)

// keptTraces are pages that survive a crash.
type keptTraces map[string]map[int][]byte

func (k keptTraces) GetTrace(key []byte, _ int64) ([]byte, uint32, error) {
	pages := k[string(key)]
	if pages == nil {
		return nil, 0, nil
	}
	var out []byte
	for i := range len(pages) {
		out = append(out, pages[i]...)
	}
	return out, 0, nil
}

// stopping is an assembler that is stopped, or killed, and that has little room.
type stopping struct {
	*bench
	kept    keptTraces
	ends    []uint64
	safe    uint64
	end     uint64
	maxOpen int
}

func (s *stopping) start() {
	s.asm = trace.New(trace.Options{Price: s.pricer, Store: s.kept, MaxOpen: s.maxOpen, MaxBytes: 1, Append: func(p []byte, _ int) (uint64, error) {
		s.payloads = append(s.payloads, slices.Clone(p))
		s.end += uint64(len(p))
		s.ends = append(s.ends, s.end)
		return s.end, schema.EachEntry(p, func(r schema.RawEntry) error {
			var e schema.Entry
			err := r.Decode(&e)
			s.entries = append(s.entries, e)
			return err
		})
	}})
	s.asm.Resume(s.safe, 0)
	for i, p := range s.payloads {
		err := error(nil)
		if s.ends[i] > s.safe {
			err = s.asm.Replay(p, s.ends[i], s.now)
		} else {
			err = s.asm.Remember(p)
		}
		if err != nil {
			s.t.Fatal(err)
		}
	}
	s.asm.Resume(s.end, 0)
}

func (s *stopping) save(all bool) {
	safe, _, err := s.asm.Save(s.now, all, func(p trace.Page) error {
		pages := s.kept[string(p.Key)]
		if pages == nil {
			pages = map[int][]byte{}
			s.kept[string(p.Key)] = pages
		}
		pages[p.Page] = slices.Clone(p.Value)
		return nil
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.safe = safe
	s.asm.Shrink()
}

type rspan struct {
	trace string
	link  string
	spec  spec
	trust bool
}

type gen struct {
	r    *rand.Rand
	n    int
	out  []rspan
	told bool           // every record has the answer's id, and none is sent again
	same map[string]int // spans by the call that they tell of
	call int
}

// one is true once in n times.
func (g *gen) one(n int) bool { return g.r.IntN(n) == 0 }

func (g *gen) id() string { g.n++; return fmt.Sprintf("%03d", g.n) }
func (g *gen) add(trace string, s spec, trust bool) {
	g.out = append(g.out, rspan{trace: trace, spec: s, trust: trust})
	if g.one(5) && !g.told {
		o := s
		o.attrs = maps.Clone(s.attrs)
		if g.one(2) {
			o.end = s.end + 0.01
		}
		switch g.r.IntN(6) {
		case 0:
			if s.attrs["gen_ai.usage.input_tokens"] != nil {
				o.attrs["gen_ai.usage.output_tokens"] = 7
			}
		case 1:
			delete(o.attrs, "gen_ai.usage.input_tokens")
			delete(o.attrs, "gen_ai.usage.output_tokens")
		case 2:
			o.attrs["user.id"] = fmt.Sprint("u", g.r.IntN(2))
		case 4:
			o.err = ""
		case 3:
			if o.attrs["gen_ai.response.id"] == nil {
				o.attrs["gen_ai.response.id"] = "resp" + s.id
			}
		}
		g.out = append(g.out, rspan{trace: trace, spec: o, trust: trust})
	}
}

func (g *gen) tokens() map[string]any {
	return use([]int{1000, 2000}[g.r.IntN(2)], []int{100, 200}[g.r.IntN(2)])
}

func (g *gen) model(tr, parent string, start float64) float64 {
	r := g.r
	end := start + 1
	models := []string{"two-ten", "two", "half"}
	model := models[r.IntN(len(models))]
	scope := []string{"one", "other"}[r.IntN(2)]
	tries := 1
	if g.one(3) {
		tries += 1 + r.IntN(2)
	}
	for k := range tries {
		id := g.id()
		last := k == tries-1
		if !last || g.one(8) {
			at := chat("openai", model, nil)
			delete(at, "gen_ai.response.model")
			if g.one(3) {
				at = with(chat("openai", model, g.tokens()))
			}
			g.add(tr, spec{id: id, parent: parent, scope: scope, start: start, end: start + 0.5, err: []string{"429", "503", "timeout", "refused", "400"}[r.IntN(5)], attrs: at}, false)
			if g.one(3) {
				g.add(tr, spec{id: g.id(), parent: id, name: "POST", kind: ptrace.SpanKindClient, start: start + 0.1, end: start + 0.4, err: "x", attrs: map[string]any{"http.request.method": "POST", "http.response.status_code": 429, "url.full": "https://api.openai.com/v1/chat/completions"}}, false)
			}
			start += 0.6
			if g.one(3) {
				model = models[r.IntN(len(models))]
			}
			continue
		}
		end = start + 1
		at := chat("openai", model, g.tokens())
		if g.one(6) {
			at = chat("openai", model, nil)
		}
		if g.one(2) || g.told {
			at["gen_ai.response.id"] = "resp" + id
		}
		if g.one(5) {
			at["gen_ai.usage.cache_read.input_tokens"] = 500
		}
		if g.one(4) {
			at["gen_ai.input.messages"] = "x"
		}
		s := spec{id: id, parent: parent, scope: scope, start: start, end: end, attrs: at}
		g.call++
		mine := func(id string) {
			if g.told {
				g.same[id] = g.call
			}
		}
		mine(id)
		g.add(tr, s, g.one(6))
		if g.one(4) { // another instrumentation beside it
			o := s
			o.id, o.scope, o.start, o.end, o.attrs = g.id(), "sib", start+0.1, end-0.1, maps.Clone(at)
			mine(o.id)
			if g.one(2) && !g.told {
				delete(o.attrs, "gen_ai.response.id")
			}
			g.add(tr, o, false)
			if g.one(2) {
				p := o
				p.id, p.parent, p.scope, p.start, p.end, p.attrs = g.id(), o.id, "sibinner", start+0.15, end-0.15, maps.Clone(at)
				mine(p.id)
				g.add(tr, p, false)
			}
		}
		if g.one(4) {
			o := s
			o.id, o.parent, o.scope, o.start, o.end, o.attrs = g.id(), id, "inner", start+0.1, end-0.1, maps.Clone(at)
			mine(o.id)
			g.add(tr, o, false)
			if g.one(3) {
				p := o
				p.id, p.parent, p.scope, p.start, p.end = g.id(), o.id, "innermost", start+0.2, end-0.2
				mine(p.id)
				g.add(tr, p, false)
			}
		}
		if at["gen_ai.response.id"] != nil && g.one(4) {
			o := s
			o.id, o.scope, o.start, o.end, o.attrs = g.id(), "gw", start+0.25, end-0.25, maps.Clone(at)
			o.parent = ""
			if g.one(3) {
				o.attrs["gen_ai.response.id"] = s.attrs["gen_ai.response.id"]
			}
			mine(o.id)
			g.out = append(g.out, rspan{trace: "gw" + o.id, spec: o, trust: g.one(2)})
		}
		if g.one(6) {
			g.add(tr, spec{id: g.id(), parent: id, name: "raw_gen_ai_request", start: start, end: end, attrs: map[string]any{"llm.openai.model": model, "llm.openai.usage": `{"prompt_tokens":1100,"completion_tokens":120}`}}, false)
		}
		if g.one(6) {
			p := spec{id: g.id(), parent: parent, name: "Chat Completion with {request_data[model]!r}", scope: "logfire.openai", version: "5", start: start, end: start + 0.1, attrs: chat("openai", "three", nil)}
			g.add(tr, p, false)
			if g.one(2) {
				q := p
				q.id, q.name, q.start, q.end = g.id(), "streaming response from {request_data[model]!r} took {duration:.2f}s", start+0.8, start+0.8+1e-9
				q.attrs = with(chat("openai", "three", use(1000, 100)), "gen_ai.response.id", "stream-"+q.id)
				g.add(tr, q, false)
			}
		}
	}
	return end
}

func (g *gen) agent(tr, parent string, start float64, depth int) float64 {
	id := g.id()
	at := map[string]any{"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": fmt.Sprint("a", g.r.IntN(2))}
	if g.one(4) {
		at["user.id"] = fmt.Sprint("u", g.r.IntN(2))
	}
	if g.one(6) {
		at["task.id"] = fmt.Sprint("run", g.r.IntN(2))
	}
	scope := ""
	if g.one(3) {
		at["gen_ai.usage.input_tokens"], at["gen_ai.usage.output_tokens"] = 5000, 500
		at["gen_ai.request.model"], at["gen_ai.provider.name"] = "two-ten", "openai"
		if g.one(2) {
			scope = "sum"
		}
	}
	t := start + 0.1
	for range g.r.IntN(4) {
		t = g.step(tr, id, t, depth)
	}
	g.add(tr, spec{id: id, parent: parent, name: "agent", scope: scope, start: start, end: t + 0.1, attrs: at}, false)
	return t + 0.2
}

func (g *gen) step(tr, parent string, t float64, depth int) float64 {
	switch {
	case g.one(3):
		id := g.id()
		at := map[string]any{"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": fmt.Sprint("t", g.r.IntN(2))}
		if g.one(2) {
			at["gen_ai.tool.call.arguments"] = `{"n":1}`
		}
		if g.one(2) {
			at["gen_ai.tool.call.id"] = fmt.Sprint("call", g.r.IntN(2))
		}
		err := ""
		if g.one(3) {
			err = "boom"
		}
		end := t + 0.3
		if depth > 0 && g.one(2) {
			end = g.agent(tr, id, t+0.1, depth-1)
		}
		s := spec{id: id, parent: parent, scope: "one", start: t, end: end, err: err, attrs: at}
		g.add(tr, s, false)
		if g.one(3) {
			o := s
			o.id, o.scope = g.id(), "mcp"
			if g.one(2) {
				o.parent = id
			}
			g.add(tr, o, false)
		}
		if g.one(4) {
			g.add(tr, spec{id: g.id(), parent: id, name: "POST", kind: ptrace.SpanKindClient, start: t + 0.1, end: t + 0.2, attrs: map[string]any{"http.request.method": "POST", "http.response.status_code": 200, "url.full": "https://api.openai.com/v1/chat/completions"}}, false)
		}
		return end + 0.1
	case depth > 0 && g.one(3):
		return g.agent(tr, parent, t, depth-1)
	case g.one(8):
		g.add(tr, spec{id: g.id(), parent: parent, name: "POST", kind: ptrace.SpanKindClient, start: t, end: t + 0.2, attrs: map[string]any{"http.request.method": "POST", "http.response.status_code": []int{200, 429}[g.r.IntN(2)], "url.full": "https://api.openai.com/v1/chat/completions"}}, false)
		return t + 0.3
	default:
		return g.model(tr, parent, t) + 0.1
	}
}

func (g *gen) run() []rspan {
	for k := range 1 + g.r.IntN(2) {
		tr := fmt.Sprint("t", k)
		at := len(g.out)
		if g.one(2) {
			root := g.id()
			end := g.agent(tr, root, 0.1, 1)
			attrs := map[string]any{"http.request.method": "POST", "http.route": "/ask"}
			if g.one(2) {
				attrs["user.id"] = fmt.Sprint("u", g.r.IntN(2))
			}
			g.add(tr, spec{id: root, name: "POST /ask", kind: ptrace.SpanKindServer, start: 0, end: end, attrs: attrs}, false)
		} else {
			g.agent(tr, "", 0, 1)
		}
		if k > 0 && g.one(2) {
			for i := at; i < len(g.out); i++ {
				if g.out[i].spec.parent == "" {
					g.out[i].link = "t0"
				}
			}
		}
		if g.one(4) { // a span that never comes
			i := at + g.r.IntN(len(g.out)-at)
			id := g.out[i].spec.id
			g.out = slices.DeleteFunc(g.out, func(s rspan) bool { return s.spec.id == id })
		}
	}
	return g.out
}

func randomBench(t testing.TB) *bench {
	return newBench(t, withPrices(fieldPrices), ofTasks, func(_ testing.TB, o *benchOptions) {
		o.dialect.Emitters = []dialect.Emitter{{Scope: "sum", Covers: "subtree"}}
	})
}

func readSpans(b *bench, spans []rspan) (groups [][]schema.Call) {
	for _, s := range spans {
		td := b.traces(s.trace, s.spec)
		if s.link != "" {
			td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0).Links().AppendEmpty().SetTraceID(traceID(s.link))
		}
		calls, rejected := b.reader.AppendSpans(nil, td, dialect.Origin{Trusted: s.trust}, b.now)
		if len(rejected) > 0 {
			b.t.Fatal(rejected)
		}
		groups = append(groups, calls)
	}
	return groups
}

type schedule struct {
	order   []int
	restart bool
	ticks   bool
	maxOpen int
}

func play(b *bench, groups [][]schema.Call, sc schedule, seed uint64) string {
	s := &stopping{bench: b, kept: keptTraces{}, maxOpen: sc.maxOpen}
	s.start()
	r := rand.New(rand.NewPCG(seed, 1))
	base := b.now
	for at := 0; at < len(sc.order); {
		n := min(1+r.IntN(3), len(sc.order)-at)
		var batch []schema.Call
		for _, k := range sc.order[at : at+n] {
			batch = append(batch, groups[k]...)
		}
		s.calls(slices.Clone(batch))
		if r.IntN(4) == 0 {
			s.calls(slices.Clone(batch))
		}
		if r.IntN(2) == 0 {
			s.now += int64(100 * time.Millisecond)
		}
		if sc.ticks && r.IntN(4) == 0 {
			s.settle()
		}
		if sc.restart {
			if r.IntN(2) == 0 {
				s.save(r.IntN(2) == 0)
			}
			if r.IntN(4) == 0 {
				s.start()
			}
		}
		at += n
	}
	s.settle()
	b.now = base
	return compared(b)
}

// compared is the net journal without lines that say nothing.
func compared(b *bench) string {
	var out []string
	for _, e := range b.net() {
		if e.Part == 1 && e.Posting.Aggregate {
			continue
		}
		e.Version, e.RecordedAt = 0, 0
		if e.Part > 0 {
			e.Call = schema.Call{Trace: e.Trace, Span: e.Span, Part: e.Part}
		}
		if e.Posting.DuplicateOf != "" {
			e.Posting.DuplicateOf = "x"
		}
		p := fmt.Sprintf("%+v", e.Posting)
		e.Posting = schema.Posting{}
		out = append(out, fmt.Sprintf("%s/%d %s CALL %+v", string(e.Span[:3]), e.Part, p, e.Call))
	}
	sort.Strings(out)
	return strings.Join(out, "\n")
}

// fresh is a bench with the prices and the dialect of another.
func (b *bench) fresh(t testing.TB) *bench {
	n := *b
	n.t, n.entries, n.payloads = t, nil, nil
	n.asm = n.assembler()
	return &n
}

// differs compares what orders, groups and stops make of spans with what all of them at once are.
func differs(t testing.TB, shared *bench, spans []rspan, seed uint64, rounds int) (string, string) {
	b := shared.fresh(t)
	groups := readSpans(b, spans)
	b.calls(slices.Concat(groups...))
	b.settle()
	want := compared(b)
	r := rand.New(rand.NewPCG(seed, 99))
	for round := range rounds {
		sc := schedule{order: r.Perm(len(groups)), ticks: round%4 >= 2, restart: round%2 == 1, maxOpen: 1 + r.IntN(3)}
		if !sc.restart {
			sc.maxOpen = 100
		}
		if got := play(shared.fresh(t), groups, sc, r.Uint64()); got != want {
			return lineDiff(want, got), fmt.Sprintf("order %v restart %v ticks %v", sc.order, sc.restart, sc.ticks)
		}
	}
	return "", ""
}

// TestRunsAtRandom: whatever a run has of retries, records, agents, links and gateways, and however its
// spans come, between stops and with little memory, the books are the same in the end.
func TestRunsAtRandom(t *testing.T) {
	shared := randomBench(t)
	for seed := range uint64(500) {
		g := &gen{r: rand.New(rand.NewPCG(seed, 5))}
		spans := g.run()
		if diff, how := differs(t, shared, spans, seed, 8); diff != "" {
			t.Fatalf("seed %d, %s:\n%s\n%s", seed, how, listed(spans), diff)
		}
	}
}

// TestRecordsAtRandom: of the records of one answer, in whatever places, exactly one counts.
func TestRecordsAtRandom(t *testing.T) {
	shared := randomBench(t)
	for seed := range uint64(1000) {
		g := &gen{r: rand.New(rand.NewPCG(seed, 7)), told: true, same: map[string]int{}}
		spans := g.run()
		b := shared.fresh(t)
		b.calls(slices.Concat(readSpans(b, spans)...))
		b.settle()
		counted := map[int]int{}
		for _, s := range spans {
			if call := g.same[s.spec.id]; call != 0 {
				counted[call] += 0
			}
		}
		for _, e := range b.net() {
			if call := g.same[string(e.Span[:3])]; call != 0 && e.Part == 0 && e.Posting.DuplicateOf == "" && !e.Posting.Aggregate {
				counted[call]++
			}
		}
		for call, n := range counted {
			if n != 1 {
				t.Fatalf("seed %d: call %d counts %d times\n%s\n%s", seed, call, n, listed(spans), compared(b))
			}
		}
	}
}

func listed(spans []rspan) string {
	var out strings.Builder
	for _, s := range spans {
		fmt.Fprintf(&out, "%s %s<-%s scope %q [%g %g] %q trusted %v %v\n", s.trace, s.spec.id, s.spec.parent, s.spec.scope, s.spec.start, s.spec.end, s.spec.err, s.trust, s.spec.attrs)
	}
	return out.String()
}

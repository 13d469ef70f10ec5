package ingest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/flyball/flyball/ingest/dialect"
	"github.com/flyball/flyball/ingest/price"
	"github.com/flyball/flyball/ingest/trace"
	"github.com/flyball/flyball/schema"
)

// bench is trace assembly with a journal in memory: signed entries by line.
type bench struct {
	t        testing.TB
	reader   *dialect.Reader
	asm      *trace.Assembler
	now      int64
	entries  []schema.Entry
	payloads [][]byte
	from     dialect.Origin
	pricer   *Pricer
	quiet    bool
}

type benchOption func(testing.TB, *benchOptions)

type benchOptions struct {
	dialect dialect.Options
	price   price.Options
}

func withPrices(yaml string) benchOption {
	return func(t testing.TB, o *benchOptions) {
		name := filepath.Join(t.TempDir(), "prices.yaml")
		if err := os.WriteFile(name, []byte(yaml), 0o600); err != nil {
			t.Fatal(err)
		}
		o.price = price.Options{NoEmbedded: true, Files: []string{name}}
	}
}

func newBench(t testing.TB, opts ...benchOption) *bench {
	t.Helper()
	o := benchOptions{dialect: dialect.Options{HashKey: []byte("test")}}
	for _, f := range opts {
		f(t, &o)
	}
	var cat *price.Catalogue
	var rejected []price.Rejection
	var err error
	if len(o.price.Files) == 0 {
		cat, rejected, err = embeddedPrices()
	} else {
		cat, rejected, err = price.Load(o.price)
	}
	if err != nil || len(rejected) > 0 {
		t.Fatal(err, rejected)
	}
	b := &bench{t: t, now: time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC).UnixNano(), from: dialect.Origin{Trusted: true}}
	if b.reader, err = dialect.New(o.dialect); err != nil {
		t.Fatal(err)
	}
	b.pricer = NewPricer(cat)
	b.asm = b.assembler()
	return b
}

// assembler makes one that knows nothing and keeps what it posts in b.
func (b *bench) assembler() *trace.Assembler {
	var end uint64
	return trace.New(trace.Options{Price: b.pricer, Append: func(p []byte, _ int) (uint64, error) {
		if b.quiet {
			return 0, nil
		}
		b.payloads = append(b.payloads, append([]byte(nil), p...))
		end += uint64(len(p))
		return end, schema.EachEntry(p, func(r schema.RawEntry) error {
			var e schema.Entry
			if err := r.Decode(&e); err != nil {
				return err
			}
			b.entries = append(b.entries, e)
			return nil
		})
	}})
}

func (b *bench) add(td ptrace.Traces) trace.Result {
	b.t.Helper()
	calls, rejected := b.reader.AppendSpans(nil, td, b.from, b.now)
	if len(rejected) > 0 {
		b.t.Fatal(rejected)
	}
	return b.calls(calls)
}

func (b *bench) calls(calls []schema.Call) trace.Result {
	b.t.Helper()
	res, err := b.asm.Add(calls, b.now)
	if err != nil {
		b.t.Fatal(err)
	}
	return res
}

// settle lets everything wait that waits.
func (b *bench) settle() {
	b.t.Helper()
	for range 3 {
		b.now += int64(6 * time.Second)
		if _, err := b.asm.Tick(b.now); err != nil {
			b.t.Fatal(err)
		}
	}
}

// net is the journal's net lines; it checks that every line nets to one.
func (b *bench) net() []schema.Entry {
	b.t.Helper()
	type key struct {
		tenant string
		trace  schema.TraceID
		span   schema.SpanID
		part   uint16
	}
	sum := map[key]int{}
	last := map[key]schema.Entry{}
	for _, e := range b.entries {
		k := key{e.Tenant, e.Trace, e.Span, e.Part}
		sum[k] += int(e.Sign)
		if e.Sign > 0 {
			if prev, ok := last[k]; ok && e.Version != prev.Version+1 {
				b.t.Fatalf("line %v: version %d follows %d", k, e.Version, prev.Version)
			}
			last[k] = e
		}
		if sum[k] != 0 && sum[k] != 1 {
			b.t.Fatalf("line %v nets to %d", k, sum[k])
		}
	}
	var out []schema.Entry
	for k, e := range last {
		if sum[k] == 1 {
			out = append(out, e)
		}
	}
	sort.Slice(out, func(i, j int) bool {
		if out[i].Start != out[j].Start {
			return out[i].Start < out[j].Start
		}
		return out[i].Span.String()+fmt.Sprint(out[i].Part) < out[j].Span.String()+fmt.Sprint(out[j].Part)
	})
	return out
}

// totals sum the measures of the net lines.
type totals struct {
	model, tool, retries, hidden, fallbacks, hedges, unpriced, unknown uint32
	cost, wasted                                                       schema.Sum
	tokens                                                             schema.Tokens
}

func (b *bench) totals() totals {
	b.t.Helper()
	var s totals
	for _, e := range b.net() {
		p := &e.Posting
		s.model += p.ModelCalls
		s.tool += p.ToolCalls
		s.retries += p.Retries
		s.hidden += p.Hidden
		s.fallbacks += p.Fallbacks
		s.hedges += p.Hedges
		if p.Status == schema.CostUnpriced {
			s.unpriced++
		}
		if p.Status == schema.CostUnknown {
			s.unknown++
		}
		if p.Billed() && !p.Aggregate && p.DuplicateOf == "" {
			s.cost.Add(p.Cost, 1)
		}
		s.wasted.Add(p.Wasted, 1)
		dst, src := s.tokens.Fields(), p.Tokens.Fields()
		for i := range dst {
			*dst[i] += *src[i]
		}
	}
	return s
}

// spec is one span of a test, in few words.
type spec struct {
	id, parent, name, scope, version string
	start, end                       float64 // seconds
	err                              string
	kind                             ptrace.SpanKind
	attrs                            map[string]any
}

func spanID(id string) pcommon.SpanID {
	var s pcommon.SpanID
	copy(s[:], id)
	if id != "" {
		s[7] = 1
	}
	return s
}

func traceID(id string) pcommon.TraceID {
	var t pcommon.TraceID
	copy(t[:], id)
	t[15] = 1
	return t
}

func (b *bench) traces(trace string, specs ...spec) ptrace.Traces {
	td := ptrace.NewTraces()
	for _, s := range specs {
		ss := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty()
		ss.Scope().SetName(s.scope)
		ss.Scope().SetVersion(s.version)
		sp := ss.Spans().AppendEmpty()
		sp.SetTraceID(traceID(trace))
		sp.SetSpanID(spanID(s.id))
		sp.SetParentSpanID(spanID(s.parent))
		sp.SetName(s.name)
		sp.SetKind(s.kind)
		base := b.now - int64(time.Minute)
		end := s.end
		if end == 0 {
			end = s.start + 0.5
		}
		sp.SetStartTimestamp(pcommon.Timestamp(base + int64(s.start*1e9)))
		sp.SetEndTimestamp(pcommon.Timestamp(base + int64(end*1e9)))
		if s.err != "" {
			sp.Status().SetCode(ptrace.StatusCodeError)
			sp.Status().SetMessage(s.err)
		}
		putAttrs(sp.Attributes(), s.attrs)
	}
	return td
}

func putAttrs(m pcommon.Map, attrs map[string]any) {
	for k, v := range attrs {
		switch v := v.(type) {
		case json.Number:
			if n, err := v.Int64(); err == nil {
				m.PutInt(k, n)
			} else {
				f, _ := v.Float64()
				m.PutDouble(k, f)
			}
		case int:
			m.PutInt(k, int64(v))
		default:
			if err := m.PutEmpty(k).FromRaw(v); err != nil {
				panic(err)
			}
		}
	}
}

// TestDialectCases reads the 32 worked examples of how dialects map.
func TestDialectCases(t *testing.T) {
	f, err := os.Open("testdata/dialects.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	kinds := map[string]schema.Kind{"model_call": schema.KindModel, "tool_call": schema.KindTool, "agent": schema.KindAgent, "embedding": schema.KindEmbedding, "other": schema.KindOther, "http": schema.KindHTTP}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	n := 0
	for lines.Scan() {
		n++
		var c struct {
			N     int
			Title string
			Spans []struct {
				ID, Name, Scope string
				Parent, Error   *string
				Start           float64
				Attrs           map[string]any
			}
			Expect map[string]struct {
				Kind            string
				Provider, Model *string
				InU, CR, W5, W1 *uint64
				Out, RS         *uint64
				Aggregate       *bool `json:"is_aggregate"`
				Priced          *bool
				Retry           *uint32
				Counted         *bool `json:"counted_tool"`
			}
		}
		dec := json.NewDecoder(bytes.NewReader(lines.Bytes()))
		dec.UseNumber()
		if err := dec.Decode(&c); err != nil {
			t.Fatal(err)
		}
		t.Run(fmt.Sprintf("%02d", c.N), func(t *testing.T) {
			b := newBench(t)
			ids := map[schema.SpanID]string{}
			if _, isEvent := c.Spans[0].Attrs["event.name"]; isEvent {
				ld := plog.NewLogs()
				for _, s := range c.Spans {
					lr := ld.ResourceLogs().AppendEmpty().ScopeLogs().AppendEmpty().LogRecords().AppendEmpty()
					lr.SetTimestamp(pcommon.Timestamp(b.now))
					putAttrs(lr.Attributes(), s.Attrs)
				}
				calls, ignored, _ := b.reader.AppendLogs(nil, ld, b.from, b.now)
				if ignored > 0 {
					t.Fatal("the event was ignored")
				}
				ids[calls[0].Span] = c.Spans[0].ID
				b.calls(calls)
			} else {
				var specs []spec
				for _, s := range c.Spans {
					sp := spec{id: s.ID, name: s.Name, scope: s.Scope, start: s.Start, attrs: s.Attrs}
					if s.Parent != nil {
						sp.parent = *s.Parent
					}
					if s.Error != nil {
						sp.err = *s.Error
					}
					if _, ok := s.Attrs["http.request.method"]; ok {
						sp.kind = ptrace.SpanKindClient
					}
					specs = append(specs, sp)
					ids[schema.SpanID(spanID(s.ID))] = s.ID
				}
				b.add(b.traces("t", specs...))
			}
			b.settle()
			got := map[string]schema.Entry{}
			sums := map[string]schema.Tokens{}
			for _, e := range b.net() {
				id := ids[e.Span]
				if e.Part == 0 {
					got[id] = e
				}
				s := sums[id]
				dst, src := s.Fields(), e.Posting.Tokens.Fields()
				for i := range dst {
					*dst[i] += *src[i]
				}
				sums[id] = s
			}
			for id, want := range c.Expect {
				e, ok := got[id]
				if !ok {
					t.Fatalf("%s: span %s has no line", c.Title, id)
				}
				p := e.Posting
				check := func(what string, got, want any) {
					t.Helper()
					if got != want {
						t.Errorf("%s: span %s: %s is %v, want %v (basis %s, flags %v, status %s)", c.Title, id, what, got, want, e.TokenBasis, e.AllFlags().Names(), p.Status)
					}
				}
				if want.Kind != "" && !(want.Kind == "agent" && e.Kind == schema.KindWorkflow) {
					check("kind", e.Kind, kinds[want.Kind])
				}
				billed := p.Tokens != (schema.Tokens{}) && !p.Aggregate && p.DuplicateOf == ""
				if want.Priced != nil && want.Kind != "tool_call" {
					check("priced", billed, *want.Priced)
				}
				if want.Provider != nil {
					check("provider", e.Provider, *want.Provider)
				}
				if want.Model != nil {
					check("model", e.Model, *want.Model)
				}
				if want.Aggregate != nil && want.Priced != nil && !*want.Priced {
					check("aggregate", p.Aggregate || e.Role&schema.RoleAggregate != 0, *want.Aggregate)
				}
				s := sums[id]
				for what, pair := range map[string][2]*uint64{"uncached": {&s.Input, want.InU}, "cache read": {&s.CacheRead, want.CR}, "cache write 5m": {&s.CacheWrite5m, want.W5}, "cache write 1h": {&s.CacheWrite1h, want.W1}, "output": {&s.Output, want.Out}, "reasoning": {&s.Reasoning, want.RS}} {
					if pair[1] != nil {
						check(what, *pair[0], *pair[1])
					}
				}
				if want.Retry != nil {
					check("retries", p.Attempt-1+p.Hidden, *want.Retry)
				}
				if want.Counted != nil {
					check("counted", p.ToolCalls == 1, *want.Counted)
				}
			}
		})
	}
	if n != 32 {
		t.Fatalf("read %d cases, want 32", n)
	}
}

// embeddedPrices loads the embedded catalogue once.
func embeddedPrices() (*price.Catalogue, []price.Rejection, error) {
	loadOnce.Do(func() { loaded.cat, loaded.rejected, loaded.err = price.Load(price.Options{}) })
	return loaded.cat, loaded.rejected, loaded.err
}

var (
	loadOnce sync.Once
	loaded   struct {
		cat      *price.Catalogue
		rejected []price.Rejection
		err      error
	}
)

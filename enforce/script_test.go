package enforce

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/vfs"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/flyball/flyball/enforce/directive"
	"github.com/flyball/flyball/enforce/page"
	"github.com/flyball/flyball/schema"
	"github.com/flyball/flyball/schema/state"
)

// fixedPrices are the prices of scripts: USD per million tokens of input and output.
type fixedPrices map[string][2]int64

func (f fixedPrices) Ceiling(_, _, model string, in, out uint64, _ time.Time) (schema.Money, bool) {
	p, ok := f[model]
	if !ok {
		p = [2]int64{15, 75}
	}
	return schema.Money(int64(in)*p[0]*1e6 + int64(out)*p[1]*1e6), ok
}

func (f fixedPrices) Cost(tenant, provider, model string, t *schema.Tokens, at time.Time) (schema.Money, bool) {
	return f.Ceiling(tenant, provider, model, t.TotalInput(), t.TotalOutput(), at)
}

var scriptPrices = fixedPrices{"m-5": {1, 10}, "m-5-mini": {0, 1}, "m-dear": {10, 100}, "m-in": {5, 5}, "m-out": {1, 50}}

// memoryLog is the log of a script: what was appended, in order. Records survive a
// crash of the loop as those of the real log do.
type memoryLog struct {
	records []Record
	pruned  []Record // what the journal has and the log has not any more
	read    int
	chunk   uint64
}

func (m *memoryLog) Next(context.Context, bool) (Record, bool, error) {
	if m.read == len(m.records) {
		return Record{}, false, nil
	}
	m.read++
	return m.records[m.read-1], true, nil
}

func (m *memoryLog) add(k RecordKind, data []byte) uint64 {
	start := uint64(0)
	if n := len(m.records); n > 0 {
		start = m.records[n-1].End
	}
	r := Record{Kind: k, Data: slices.Clone(data), Start: start, End: start + 100}
	if k == RecordBoundary {
		m.chunk++
		r.Chunk = m.chunk
	}
	m.records = append(m.records, r)
	return r.End
}

// journal is what ClickHouse would have: every entry up to a chunk's end.
func (m *memoryLog) journal(_ context.Context, from, to time.Time, chunk uint64, f func(*schema.Entry) error) error {
	done := uint64(0)
	for _, r := range slices.Concat(m.pruned, m.records) {
		if r.Kind == RecordBoundary {
			done = r.Chunk
		}
		if r.Kind != RecordEntries || chunk > 0 && done >= chunk {
			continue
		}
		if err := schema.EachEntry(r.Data, func(raw schema.RawEntry) error {
			var e schema.Entry
			if err := raw.Decode(&e); err != nil {
				return err
			}
			if at := time.Unix(0, e.Start); at.Before(from) || !at.Before(to) {
				return nil
			}
			return f(&e)
		}); err != nil {
			return err
		}
	}
	return nil
}

func (m *memoryLog) Append(data []byte) (uint64, error) { return m.add(RecordOwn, data), nil }

func (m *memoryLog) Sync(context.Context, uint64) error { return nil }

func (m *memoryLog) Release(uint64) {}

// anyTenant is the key of limiters in scripts.
var anyTenant = schema.Key{Name: "k", Role: schema.KeyLimiter, Tenants: schema.TenantList{schema.AllTenants}}

// script is a running script.
type script struct {
	t      *testing.T
	dir    string
	zones  map[string]*time.Location
	policy []byte
	log    *memoryLog
	fs     vfs.FS // nil is the disk
	store  *state.Store
	loop   *Loop
	apply  *applier
	leases map[string]string
	spans  int
	posted map[string]*schema.Entry // by name, to correct them
	seen   map[string]bool          // pages that were asked for already
	late   []string                 // reported calls without a span
	reg    *prometheus.Registry
}

func (s *script) fatal(line int, format string, args ...any) {
	s.t.Helper()
	s.t.Fatalf("line %d: %s", line, fmt.Sprintf(format, args...))
}

// start opens the loop on what the store and the log hold.
func (s *script) start() {
	s.t.Helper()
	var err error
	if s.store == nil {
		if s.store, err = state.Open(state.Options{Dir: s.dir, FS: s.fs}); err != nil {
			s.t.Fatal(err)
		}
	}
	s.reg = prometheus.NewRegistry()
	l, from, err := New(Options{Store: s.store, Registerer: s.reg, Archive: func(context.Context, string, []Event) error { return nil }, Pricer: scriptPrices, Policy: s.policy, Zone: func(t string) *time.Location { return s.zones[t] },
		Pages: []page.Receiver{{Name: "oncall", Webhook: &page.Webhook{URL: "https://example.com/hook", Secrets: []string{"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}}}},
		Post: func(c directive.Call, u Settlement, _ time.Time) error {
			if call := c.SpanID + " " + u.ResponseID; !slices.Contains(s.late, call) { // the same call again is the same line
				s.late = append(s.late, call)
			}
			return nil
		}})
	if err != nil {
		s.t.Fatal(err)
	}
	l.log = s.log
	s.loop, s.apply = l, &applier{l: l}
	if len(s.log.records) > 0 && from > 0 && from < s.log.records[0].Start {
		if err := l.Lost(); err != nil {
			s.t.Fatal(err)
		}
	}
	s.log.read = slices.IndexFunc(s.log.records, func(r Record) bool { return r.Start >= from })
	if s.log.read < 0 {
		s.log.read = len(s.log.records)
	}
	s.follow()
	if err := l.caughtUp(); err != nil {
		s.t.Fatal(err)
	}
}

func (s *script) follow() {
	s.t.Helper()
	for s.log.read < len(s.log.records) {
		r, _, _ := s.log.Next(s.t.Context(), false)
		if err := s.apply.record(r); err != nil {
			s.t.Fatal(err)
		}
	}
}

// words splits a line; quotes keep words together.
func words(line string) (out []string) {
	var b strings.Builder
	quoted, any := false, false
	for _, r := range line {
		switch {
		case r == '"':
			quoted, any = !quoted, true
		case r == ' ' && !quoted:
			if b.Len() > 0 || any {
				out = append(out, b.String())
				b.Reset()
				any = false
			}
		default:
			b.WriteRune(r)
		}
	}
	if b.Len() > 0 || any {
		out = append(out, b.String())
	}
	return out
}

func fields(list []string) map[string]string {
	m := map[string]string{}
	for _, w := range list {
		k, v, _ := strings.Cut(w, "=")
		m[k] = v
	}
	return m
}

// entry makes an entry of key=value words.
func (s *script) entry(line int, f map[string]string) *schema.Entry {
	s.t.Helper()
	e := &schema.Entry{Sign: 1, Version: 1}
	s.spans++
	now := time.Now()
	e.Start, e.RecordedAt = now.Add(-time.Second).UnixNano(), now.UnixMicro()
	e.Duration = int64(time.Second)
	e.Kind, e.Posting.Kind = schema.KindModel, schema.KindModel
	e.Posting.Status = schema.CostPriced
	e.Posting.ModelCalls = 1
	copy(e.Trace[:], fmt.Sprintf("%016x", s.spans))
	copy(e.Span[:], fmt.Sprintf("%08x", s.spans))
	num := func(v string) uint64 {
		n, err := strconv.ParseUint(v, 10, 64)
		if err != nil {
			s.fatal(line, "%v", err)
		}
		return n
	}
	for k, v := range f {
		switch k {
		case "name":
		case "tenant":
			e.Tenant = v
		case "model":
			e.Model = v
		case "requested":
			e.RequestedModel = v
		case "provider":
			e.Provider = v
		case "cost":
			m, err := schema.ParseMoney(v)
			if err != nil {
				s.fatal(line, "%v", err)
			}
			e.Posting.Cost, e.Posting.Exposure = m, m
		case "exposure":
			m, err := schema.ParseMoney(v)
			if err != nil {
				s.fatal(line, "%v", err)
			}
			e.Posting.Exposure, e.Posting.Status = m, schema.CostUnpriced
		case "tokens":
			e.Posting.Tokens.Input = num(v)
		case "output":
			e.Posting.Tokens.Output = num(v)
		case "retries":
			e.Posting.Retries, e.Posting.ModelCalls = uint32(num(v)), 0
		case "hidden":
			e.Posting.Hidden = uint32(num(v))
		case "tool":
			e.Tool, e.Kind, e.Posting.Kind = v, schema.KindTool, schema.KindTool
			e.Posting.ModelCalls, e.Posting.ToolCalls = 0, 1
		case "effect":
			e.Effect = schema.Effect(slices.Index(schema.EffectNames, v))
		case "failure":
			e.Failure = schema.Failure(slices.Index(schema.FailureNames, v))
		case "trace":
			id, err := schema.ParseTraceID(v)
			if err != nil {
				s.fatal(line, "%v", err)
			}
			e.Trace = id
		case "span":
			id, err := schema.ParseSpanID(v)
			if err != nil {
				s.fatal(line, "%v", err)
			}
			e.Span = id
		case "response":
			e.ResponseID = v
		case "start":
			at, err := time.Parse(time.RFC3339, v)
			if err != nil {
				s.fatal(line, "%v", err)
			}
			e.Start = at.UnixNano()
		case "lasts":
			d, err := time.ParseDuration(v)
			if err != nil {
				s.fatal(line, "%v", err)
			}
			e.Duration = int64(d)
		default:
			i := slices.Index(schema.Dims[:], k)
			if i < 0 {
				s.fatal(line, "unknown field %q", k)
			}
			e.Posting.Identity[i] = v
		}
	}
	if e.Posting.Identity[schema.Run] == "" {
		e.Posting.Identity[schema.Run] = e.Trace.String()
	}
	return e
}

// post appends entries as one record of the log, and applies it.
func (s *script) post(list ...*schema.Entry) {
	s.t.Helper()
	var b schema.Batch
	b.Reset(time.Now().UnixMicro())
	for _, e := range list {
		b.Add(e.Sign, e.Version, time.Now().UnixMilli(), schema.AppendCall(nil, &e.Call), schema.AppendPosting(nil, &e.Posting, &e.Call))
	}
	s.log.add(RecordEntries, b.Bytes())
	s.log.add(RecordBoundary, nil)
	s.follow()
}

func callFrom(f map[string]string) directive.Call {
	out, _ := strconv.ParseUint(f["output"], 10, 64)
	in, _ := strconv.ParseUint(f["tokens"], 10, 64)
	return directive.Call{Tenant: f["tenant"], User: f["user"], Feature: f["feature"], Workflow: f["workflow"], Agent: f["agent"], Model: f["model"], RunID: f["run_id"], TraceID: f["trace"], SpanID: f["span"], Provider: f["provider"], Tool: f["tool"], Mode: f["mode"], Criticality: f["criticality"], Key: f["key"], InputTokens: in, MaxOutputTokens: out}
}

// wantAnswer compares an answer with key=value words.
func wantAnswer(a Answer, want map[string]string) string {
	got := map[string]string{"decision": a.Decision.String(), "guard": a.Guard, "model": a.Model, "status": strconv.Itoa(a.Status), "retry_after": strconv.Itoa(a.RetryAfterS), "outcome": a.Outcome, "criticality": a.Criticality}
	for k, v := range want {
		if got[k] != v {
			return fmt.Sprintf("%s is %q, want %q (%+v)", k, got[k], v, a)
		}
	}
	return ""
}

// run executes one line.
func (s *script) run(n int, line string, text []byte) {
	s.t.Helper()
	w := words(line)
	args, want, _ := slicesCut(w[1:], "->")
	f, wf := fields(args), fields(want)
	if len(want) > 0 && !strings.Contains(want[0], "=") {
		wf["decision"] = want[0]
		delete(wf, want[0])
	}
	now := time.Now()
	switch w[0] {
	case "policy":
		if s.loop == nil {
			s.policy = text
			s.start()
			return
		}
		if _, _, err := s.loop.SetPolicy(text, "tester", "script"); err != nil {
			s.fatal(n, "%v", err)
		}
		// Guards that are new count from the next chunk on; scripts have no journal that
		// holds what was before.
		s.log.add(RecordBoundary, nil)
		s.follow()
		if f["history"] == "later" {
			return
		}
		for i := range s.loop.byFamily {
			s.loop.ledger.Warm(i)
		}
	case "warm": // the journal fills in what new guards lack
		if err := s.loop.Warm(s.t.Context(), s.log.journal, func() uint64 { return s.log.chunk }); err != nil {
			s.fatal(n, "%v", err)
		}
	case "verify": // compares the counters with the journal
		s.log.add(RecordBoundary, nil)
		s.follow()
		v, err := s.loop.Verify(s.t.Context(), s.log.journal, func() uint64 { return s.log.chunk }, now.Add(-24*time.Hour))
		if err != nil || v.Drift != 0 || v.Accounts == 0 {
			s.fatal(n, "%+v, %v", v, err)
		}
	case "lose": // the log is pruned while the local store is an older copy
		s.log.pruned = append(s.log.pruned, s.log.records...)
		last := s.log.records[len(s.log.records)-1]
		s.log.records = nil
		s.log.records = append(s.log.records, Record{Kind: RecordBoundary, Chunk: last.Chunk, Start: last.End, End: last.End + 100})
		s.restart(n)
	case "zone":
		z, err := time.LoadLocation(w[2])
		if err != nil {
			s.fatal(n, "%v", err)
		}
		s.zones[w[1]] = z
	case "at":
		at, err := time.Parse(time.RFC3339, w[1])
		if err != nil || at.Before(now) {
			s.fatal(n, "%s is no time, or in the past", w[1])
		}
		time.Sleep(time.Until(at))
		s.pass(n)
	case "after":
		d, err := time.ParseDuration(w[1])
		if err != nil {
			s.fatal(n, "%v", err)
		}
		time.Sleep(d)
		s.pass(n)
	case "entry":
		times := 1
		if v := f["times"]; v != "" {
			times, _ = strconv.Atoi(v)
			delete(f, "times")
		}
		for range times {
			e := s.entry(n, f)
			if f["name"] != "" {
				s.posted[f["name"]] = e
			}
			s.post(e)
		}
	case "replace": // name field=value...: the line is posted anew
		old := s.posted[w[1]]
		minus, plus := *old, *old
		minus.Sign = -1
		plus.Version++
		delete(f, w[1])
		next := s.entry(n, f)
		plus.Posting.Cost, plus.Posting.Exposure = next.Posting.Cost, next.Posting.Exposure
		for i, v := range next.Posting.Identity {
			if _, given := f[schema.Dims[i]]; given {
				plus.Posting.Identity[i] = v
			}
		}
		s.posted[w[1]] = &plus
		s.post(&minus, &plus)
	case "crash": // nothing is saved that was not
		s.restart(n)
	case "restart":
		if _, err := s.loop.checkpoint(true); err != nil {
			s.fatal(n, "%v", err)
		}
		s.restart(n)
	case "checkpoint":
		_, err := s.loop.checkpoint(true)
		if err != nil {
			s.fatal(n, "%v", err)
		}
	case "check":
		c := callFrom(f)
		a, err := s.loop.Check(&c)
		if err != nil {
			s.fatal(n, "%v", err)
		}
		if diff := wantAnswer(a, wf); diff != "" {
			s.fatal(n, "%s", diff)
		}
		// A limiter that has the set says the same about what the set can know.
		if d := s.loop.set.Decide(&c, now); d.Verdict == directive.Deny && a.Decision != directive.Deny {
			s.fatal(n, "the set denies and the check does not: %+v", d)
		}
	case "decide": // what a limiter says that has nothing but the set
		c := callFrom(f)
		d := s.loop.set.Decide(&c, now)
		if diff := wantAnswer(answerOf(&d), wf); diff != "" {
			s.fatal(n, "%s", diff)
		}
	case "reserve":
		name := w[1]
		delete(f, name)
		leases, answers, err := s.loop.Reserve(s.t.Context(), []directive.Call{callFrom(f)}, f["key"])
		if err != nil {
			s.fatal(n, "%v", err)
		}
		if len(leases) > 0 {
			s.leases[name] = leases[0].Lease
		}
		if diff := wantAnswer(answers[0], wf); diff != "" {
			s.fatal(n, "%s", diff)
		}
		s.follow()
	case "settle":
		u := Settlement{ResponseID: f["response"], TraceID: f["trace"], SpanID: f["span"], Failed: f["failed"] == "true"}
		for _, k := range []string{"input", "output"} {
			if v, err := strconv.ParseUint(f[k], 10, 64); err == nil {
				if u.Tokens == nil {
					u.Tokens = map[string]uint64{}
				}
				u.Tokens[k] = v
			}
		}
		if err := s.loop.Settle(s.t.Context(), s.leases[w[1]], f["key"], u); err != nil && wf["decision"] != "error" {
			s.fatal(n, "%v", err)
		} else if err == nil && wf["decision"] == "error" {
			s.fatal(n, "no error")
		}
		s.follow()
	case "release":
		if err := s.loop.ReleaseLease(s.t.Context(), s.leases[w[1]], f["key"]); err != nil {
			s.fatal(n, "%v", err)
		}
		s.follow()
	case "heartbeat":
		l, err := s.loop.Heartbeat(s.leases[w[1]], f["key"])
		if (err != nil) != (wf["decision"] == "error") {
			s.fatal(n, "%v", err)
		}
		if err == nil {
			s.leases[w[1]] = l.Lease
		}
	case "kill":
		stage, _ := strconv.Atoi(f["stage"])
		if _, err := s.loop.SetKill(Kill{State: w[1], Stage: stage, Reason: f["reason"]}, "tester"); (err != nil) != (wf["decision"] == "error") {
			s.fatal(n, "%v", err)
		}
	case "free": // release a guard by hand
		for _, v := range s.loop.Live(func(string) bool { return true }, w[1], 100) {
			if err := s.loop.Release(v.ID, "tester", "script", func(string) bool { return true }); err != nil {
				s.fatal(n, "%v", err)
			}
		}
	case "ack":
		s.loop.mu.Lock()
		v := s.loop.current
		s.loop.mu.Unlock()
		if err := s.loop.Acknowledge(w[1], anyTenant, Ack{Version: v, Token: s.loop.sign(v)}); err != nil {
			s.fatal(n, "%v", err)
		}
	case "headroom":
		limit, _ := strconv.ParseFloat(f["limit"], 64)
		left, _ := strconv.ParseFloat(f["remaining"], 64)
		if err := s.loop.Report("l-1", []Headroom{{Provider: f["provider"], Dimension: "requests", Limit: limit, Remaining: left}}, true); err != nil {
			s.fatal(n, "%v", err)
		}
	case "expect":
		s.expect(n, w[1], fields(w[2:]))
	default:
		s.fatal(n, "unknown word %q", w[0])
	}
}

func slicesCut(list []string, sep string) (before, after []string, found bool) {
	if i := slices.Index(list, sep); i >= 0 {
		return list[:i], list[i+1:], true
	}
	return list, nil, false
}

func (s *script) pass(n int) {
	s.t.Helper()
	s.loop.mu.Lock()
	err := s.loop.pass(time.Now())
	s.loop.mu.Unlock()
	s.loop.done.Wait()
	if err != nil {
		s.fatal(n, "%v", err)
	}
}

// restart throws the loop away and opens it again on the store and the log.
func (s *script) restart(n int) {
	s.t.Helper()
	before := s.loop.set.State()
	s.start()
	after := s.loop.set.State()
	if after.Version.Less(before.Version) || after.Version == before.Version {
		s.fatal(n, "version %s after the restart is not above %s", after.Version, before.Version)
	}
}

// expect compares what is with key=value words.
func (s *script) expect(n int, what string, f map[string]string) {
	s.t.Helper()
	all := func(string) bool { return true }
	switch what {
	case "live":
		var got []string
		for _, v := range s.loop.Live(all, f["guard"], 1000) {
			if f["action"] == "" || string(v.Action) == f["action"] {
				got = append(got, fmt.Sprintf("%s %s %s %s shadow=%v", v.Guard, v.Action, v.Scoped, v.Rung, v.Shadow))
			}
		}
		if want, _ := strconv.Atoi(f["count"]); len(got) != want {
			s.fatal(n, "%d rungs hold, want %d: %q", len(got), want, got)
		}
	case "directives":
		st := s.loop.set.State()
		got := 0
		for _, d := range st.Directives {
			if (f["guard"] == "" || d.Guard == f["guard"]) && (f["action"] == "" || string(d.Action) == f["action"]) {
				got++
			}
		}
		if want, _ := strconv.Atoi(f["count"]); got != want {
			s.fatal(n, "%d directives, want %d: %+v", got, want, st.Directives)
		}
	case "pages":
		var fresh []string
		if err := s.store.Each("page/out/", func(name string, v []byte) error {
			if !s.seen[name] {
				s.seen[name] = true
				fresh = append(fresh, string(v))
			}
			return nil
		}); err != nil {
			s.fatal(n, "%v", err)
		}
		if want, _ := strconv.Atoi(f["new"]); len(fresh) != want {
			s.fatal(n, "%d new pages, want %d: %q", len(fresh), want, fresh)
		}
		if says := f["says"]; !strings.Contains(strings.Join(fresh, "\n"), says) {
			s.fatal(n, "no new page says %q: %q", says, fresh)
		}
		for kind, text := range map[string]string{"firing": `"resolved":false`, "resolved": `"resolved":true`} {
			got := 0
			for _, v := range fresh {
				got += strings.Count(v, text)
			}
			if want, asked := f[kind]; asked && want != strconv.Itoa(got) {
				s.fatal(n, "%d of the new pages are %s, want %s: %q", got, kind, want, fresh)
			}
		}
	case "spend":
		c := callFrom(f)
		list, err := s.loop.BudgetsFor(&c, true)
		if err != nil {
			s.fatal(n, "%v", err)
		}
		i := slices.IndexFunc(list, func(b Budget) bool { return b.Guard == f["guard"] })
		if i < 0 {
			s.fatal(n, "no guard %s applies to %+v", f["guard"], c)
		}
		b := list[i]
		got := map[string]string{"spend": b.Spend, "holds": b.Holds, "leases": b.Leases, "left": b.Left, "window": b.Window.Start.Format(time.RFC3339) + "/" + b.Window.End.Format(time.RFC3339)}
		for k, v := range got {
			if w, asked := f[k]; asked && w != v {
				s.fatal(n, "%s is %q, want %q", k, v, w)
			}
		}
	case "leaks":
		got := 0
		for _, kind := range []string{"propagation", "leak", "unguarded"} {
			var m dto.Metric
			if err := s.loop.metrics.leaks.WithLabelValues(kind).Write(&m); err != nil {
				s.fatal(n, "%v", err)
			}
			got += int(m.GetCounter().GetValue())
		}
		if want, _ := strconv.Atoi(f["count"]); got != want {
			s.fatal(n, "%d calls leaked, want %d", got, want)
		}
	case "kill":
		k := s.loop.KillStatus()
		if got := strconv.FormatBool(k.On); got != f["on"] {
			s.fatal(n, "kill switch on=%s, want %s: last hour %s of %s", got, f["on"], k.Hour, k.HourLimit)
		}
	case "events":
		list, err := s.loop.Unstored(time.Unix(0, 0), time.Now().Add(time.Hour), true)
		if err != nil {
			s.fatal(n, "%v", err)
		}
		got := 0
		for _, e := range list {
			if (f["kind"] == "" || e.Kind == f["kind"]) && (f["guard"] == "" || e.Guard == f["guard"]) && (f["action"] == "" || e.Action == f["action"]) && (f["rung"] == "" || e.Rung == f["rung"]) {
				got++
			}
		}
		if want, _ := strconv.Atoi(f["count"]); got != want {
			b, _ := json.Marshal(list)
			s.fatal(n, "%d events, want %d: %s", got, want, b)
		}
	case "metric": // name label=value... is=value; "absent" is none
		name := strings.Fields(f["name"])[0]
		want := f["is"]
		delete(f, "name")
		delete(f, "is")
		if got := s.metric(n, name, f); got != want {
			s.fatal(n, "%s %v is %s, want %s", name, f, got, want)
		}
	case "rows": // of the history, until ClickHouse has them
		rows, err := s.loop.Unstored(time.Unix(0, 0), time.Now().Add(time.Hour), false)
		if err != nil {
			s.fatal(n, "%v", err)
		}
		got, calls, usd := 0, int64(0), schema.Sum{}
		for _, e := range rows {
			m := map[string]string{"kind": e.Kind, "guard": e.Guard, "action": e.Action, "tenant": e.Tenant, "class": e.Class, "limiter": e.Limiter, "user": e.User}
			same := true
			for k, v := range f {
				if has, ok := m[k]; ok && has != v {
					same = false
				}
			}
			if same {
				got++
				calls += e.Calls
				if e.USD != nil {
					usd = usd.Plus(*e.USD)
				}
				if (e.Kind == schema.EnforcementApplied && e.Guard != "kill" || e.Kind == schema.EnforcementLeak) && len(e.Trace) != 32 || e.Kind == schema.EnforcementApplied && e.Took == nil {
					s.fatal(n, "row without a trace or a time: %+v", e)
				}
			}
		}
		for k, v := range map[string]string{"count": strconv.Itoa(got), "calls": strconv.FormatInt(calls, 10), "usd": usd.String()} {
			if want, ok := f[k]; ok && want != v {
				b, _ := json.Marshal(rows)
				s.fatal(n, "%s is %s, want %s: %s", k, v, want, b)
			}
		}
	case "time": // to enforce, of the last directive that a limiter acknowledged
		if took := s.loop.limiters.byID[f["limiter"]].Took.Round(time.Second).String(); took != f["took"] {
			s.fatal(n, "limiter %s took %s, want %s", f["limiter"], took, f["took"])
		}
	case "reported":
		if want, _ := strconv.Atoi(f["count"]); len(s.late) != want {
			s.fatal(n, "%d calls were booked as reported, want %d: %q", len(s.late), want, s.late)
		}
	default:
		s.fatal(n, "unknown expectation %q", what)
	}
}

// metric is the value of a series, with four digits; "absent" where there is none.
func (s *script) metric(line int, name string, labels map[string]string) string {
	s.t.Helper()
	list, err := s.reg.Gather()
	if err != nil {
		s.fatal(line, "%v", err)
	}
	for _, family := range list {
		for _, m := range family.Metric {
			same := family.GetName() == name
			for _, l := range m.Label {
				if v, ok := labels[l.GetName()]; ok && v != l.GetValue() {
					same = false
				}
			}
			if same {
				return strconv.FormatFloat(m.GetGauge().GetValue()+m.GetCounter().GetValue()+float64(m.GetHistogram().GetSampleCount()), 'g', 4, 64)
			}
		}
	}
	return "absent"
}

// TestScripts runs every script of testdata on a real store, with the clock of the
// script. After each, the loop is thrown away and made again from the store and the
// log, and from the log alone: all three have to agree digit for digit.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.script")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".script"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			bubble(t, func(t *testing.T) {
				time.Sleep(time.Until(time.Date(2026, 11, 2, 0, 0, 0, 0, time.UTC)))
				s := newScript(t, dir)
				defer func() { _ = s.store.Close() }()
				for _, l := range lines(string(text)) {
					s.run(l.n, l.text, l.block)
				}
				s.same(t)
			})
		})
	}
}

// bubble is synctest.Test for what opens a local store. The store pools objects with
// channels, which must not go from one bubble into the next; a pool is empty after two
// collections.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	runtime.GC()
	runtime.GC()
	synctest.Test(t, f)
}

func newScript(t *testing.T, dir string) *script {
	return &script{t: t, dir: dir, zones: map[string]*time.Location{}, log: &memoryLog{}, leases: map[string]string{}, posted: map[string]*schema.Entry{}, seen: map[string]bool{}}
}

// scriptLine is a line of a script with the text that it ends in.
type scriptLine struct {
	n     int
	text  string
	block []byte
}

func lines(text string) (out []scriptLine) {
	in := bufio.NewScanner(strings.NewReader(text))
	for n := 1; in.Scan(); n++ {
		line := strings.TrimSpace(in.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		l := scriptLine{n: n, text: line}
		if rest, ok := strings.CutSuffix(line, "<<"); ok {
			l.text = strings.TrimSpace(rest)
			for in.Scan() {
				n++
				if in.Text() == "." {
					break
				}
				l.block = append(append(l.block, in.Text()...), '\n')
			}
		}
		out = append(out, l)
	}
	return out
}

// accounts lists every account's sums as text.
func (s *script) accounts() map[string]string {
	out := map[string]string{}
	now := time.Now().UnixNano()
	for k, a := range s.loop.ledger.All() {
		if a.Family < 0 {
			continue
		}
		if since, _ := s.loop.ledger.Warming(a.Family); since != 0 {
			continue // the log alone has more than it counted
		}
		s.loop.ledger.Advance(a, time.Unix(0, now))
		if a.Counts.String() != "" {
			out[k] = a.Counts.String()
		}
	}
	return out
}

func (s *script) same(t *testing.T) {
	t.Helper()
	lived := s.accounts()
	compare := func(how string) {
		t.Helper()
		got := s.accounts()
		for k, v := range lived {
			if a, err := s.loop.ledger.ByKey(k, 0, 0); err == nil {
				s.loop.ledger.Advance(a, time.Now())
				got[k] = a.Counts.String()
			}
			if got[k] != v {
				t.Errorf("%s: account %q is %s, was %s", how, k, got[k], v)
			}
		}
	}
	s.restart(0)
	compare("from the checkpoint and the log")
	if err := s.store.Close(); err != nil {
		t.Fatal(err)
	}
	s.store, s.dir = nil, t.TempDir()
	s.start()
	compare("from the log alone")
}

// TestTimeToEnforce: it is counted from the span that crossed a limit, once. What is
// published without one an hour later must not be taken for an hour of it: a drill, or
// a further trace of a run that is stopped already.
func TestTimeToEnforce(t *testing.T) {
	dir := t.TempDir()
	bubble(t, func(t *testing.T) {
		s := &script{t: t, dir: dir, log: &memoryLog{}, policy: []byte(`guards:
  - {name: calls, scope: [run], measure: model_calls, window: run, limit: "2", ladder: [{at: 100%, do: terminate}], outcome: checkpoint}
`)}
		s.start()
		defer func() { _ = s.store.Close() }()
		f := func(what string, want uint64) {
			t.Helper()
			s.loop.mu.Lock()
			v := s.loop.current
			s.loop.mu.Unlock()
			if err := s.loop.Acknowledge("l-1", anyTenant, Ack{Version: v, Token: s.loop.sign(v)}); err != nil {
				t.Fatal(err)
			}
			var m dto.Metric
			if err := s.loop.metrics.enforce.WithLabelValues("l-1").(prometheus.Metric).Write(&m); err != nil {
				t.Fatal(err)
			}
			if h := m.GetHistogram(); h.GetSampleCount() != want || h.GetSampleSum() > 1 {
				t.Errorf("after %s: %d measurements of %g s together, want %d of moments", what, h.GetSampleCount(), h.GetSampleSum(), want)
			}
		}
		call := func() { s.post(s.entry(0, map[string]string{"tenant": "t-1", "run_id": "r-1"})) }
		f("the connection", 0)
		call()
		call()
		f("the limit", 1)
		time.Sleep(time.Hour)
		call()
		f("a further trace of the run", 1)
		done := make(chan error)
		go func() {
			_, err := s.loop.Drill("tester", time.Second, nil)
			done <- err
		}()
		synctest.Wait()
		f("a drill", 1)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		f("its end", 1)
		if _, err := s.loop.SetKill(Kill{State: "on", Reason: "test"}, "tester"); err != nil {
			t.Fatal(err)
		}
		f("a flip by hand", 2)
	})
}

// TestCheckpointInsideRecord: a record is applied in slices, and what a checkpoint
// between two of them saved would be counted twice after a crash.
func TestCheckpointInsideRecord(t *testing.T) {
	s := &script{t: t, dir: t.TempDir(), zones: map[string]*time.Location{}, log: &memoryLog{}, leases: map[string]string{}, posted: map[string]*schema.Entry{}, seen: map[string]bool{}}
	s.policy = []byte("guards:\n  - {name: cap, scope: [tenant], measure: model_calls, window: {calendar: day, tz: UTC}, limit: \"1000000\", ladder: [{at: 100%, do: soft_block}], outcome: pause}\n")
	s.start()
	defer func() { _ = s.store.Close() }()
	var list []*schema.Entry
	for range 60_000 {
		list = append(list, s.entry(0, map[string]string{"tenant": "t-1"}))
	}
	stop := make(chan struct{})
	done := make(chan struct{})
	saved := 0
	go func() { // as fast as it gets the lock
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
			}
			if _, err := s.loop.checkpoint(false); err != nil {
				t.Error(err)
				return
			}
			saved++
		}
	}()
	s.post(list...)
	close(stop)
	<-done
	if saved < 10 {
		t.Fatalf("%d checkpoints: the test tests nothing", saved)
	}
	s.loop.mu.Lock()
	s.loop.broken = true // as if it had crashed: nothing more is saved
	s.loop.mu.Unlock()
	s.start()
	c := directive.Call{Tenant: "t-1", Model: "m"}
	b, err := s.loop.BudgetsFor(&c, true)
	if err != nil {
		t.Fatal(err)
	}
	if len(b) != 1 || b[0].Spend != "60000 model calls" {
		t.Errorf("after the crash: %+v", b)
	}
}

// TestPolicyFileChangedMeanwhile: what held is judged by the policy that is in force
// after a restart, not by the one of before.
func TestPolicyFileChangedMeanwhile(t *testing.T) {
	f := func(after string, want directive.Verdict) {
		t.Helper()
		s := &script{t: t, dir: t.TempDir(), zones: map[string]*time.Location{}, log: &memoryLog{}, leases: map[string]string{}, posted: map[string]*schema.Entry{}, seen: map[string]bool{}}
		guard := "guards:\n  - {name: cap, scope: [tenant], measure: cost, window: {calendar: month, tz: UTC}, limit: \"2\", ladder: [{at: 80%, do: warn}, {at: 100%, do: soft_block}], outcome: pause}\n"
		s.policy = []byte(guard)
		s.start()
		defer func() { _ = s.store.Close() }()
		s.post(s.entry(0, map[string]string{"tenant": "t-1", "cost": "3"}))
		c := directive.Call{Tenant: "t-1", Model: "m"}
		if d := s.loop.set.Decide(&c, time.Now()); d.Verdict != directive.Deny {
			t.Fatalf("before: %+v", d)
		}
		s.policy = []byte(strings.NewReplacer(strings.SplitN(after, " => ", 2)[0], strings.SplitN(after, " => ", 2)[1]).Replace(guard))
		s.start()
		if d := s.loop.set.Decide(&c, time.Now()); d.Verdict != want {
			t.Errorf("%s: %+v", after, d)
		}
		s.post(s.entry(0, map[string]string{"tenant": "t-1", "cost": "0.1"}))
		if d := s.loop.set.Decide(&c, time.Now()); d.Verdict != want {
			t.Errorf("%s, after a call: %+v", after, d)
		}
	}
	f(`"2" => "100"`, directive.Allow)
	f(`outcome: pause => outcome: pause, mode: warn`, directive.Allow)
	f(`[{at: 80%, do: warn}, {at: 100%, do: soft_block}] => [{at: 200%, do: soft_block}]`, directive.Allow)
	f(`[{at: 80%, do: warn}, {at: 100%, do: soft_block}] => [{at: 100%, do: terminate}]`, directive.Deny)
	f(`"2" => "1"`, directive.Deny)
}

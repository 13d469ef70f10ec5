package main

import (
	"container/heap"
	"encoding/hex"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/flyball/flyball/ingest"
	"github.com/flyball/flyball/schema"
)

// customer is a tenant of the past: its users and what it does.
type customer struct {
	name    string
	user    int // the first of its users
	who     *rand.Zipf
	flows   []flow
	what    *rand.Zipf
	ownRuns bool // it sets run ids of its own
	session string
}

// flow is a workflow: how its runs look and which models it uses.
type flow struct {
	shape                      func(*maker)
	name, feature, agent, env  string
	mode, criticality          string
	usual, other               *vendor // other takes over where usual fails
	changes                    int64   // nanoseconds between two versions
	release, scope, agentScope string
}

// vendor is a model as the journal names it.
type vendor struct {
	provider, model, requested, prefix, basis string
	id                                        int // bytes of its response ids
	reasoning                                 bool
	size                                      float64 // factor on tokens
}

var vendors = []*vendor{
	{"openai", "gpt-5-2025-08-07", "gpt-5", "resp_0", "provider_inclusive", 24, true, 1},
	{"anthropic", "claude-sonnet-4-5", "claude-sonnet-4-5", "msg_01", "exclusive", 11, false, 1.5},
	{"openai", "gpt-4o-2024-08-06", "gpt-4o", "chatcmpl-", "provider_inclusive", 15, false, 0.6},
	{"google", "gemini-2.5-pro", "gemini-2.5-pro", "", "provider_inclusive", 11, true, 1.2},
	{"openai", "gpt-4.1-mini-2025-04-14", "gpt-4.1-mini", "chatcmpl-", "provider_inclusive", 15, false, 0.5},
	{"anthropic", "claude-haiku-4-5", "claude-haiku-4-5", "msg_01", "exclusive", 11, false, 0.7},
	{"openai", "gpt-4o-mini-2024-07-18", "gpt-4o-mini", "chatcmpl-", "provider_inclusive", 15, false, 0.4},
	{"anthropic", "claude-opus-4-6", "claude-opus-4-6", "msg_01", "exclusive", 11, false, 2},
	{"anthropic", "claude-sonnet-4-6", "claude-sonnet-4-6", "msg_01", "exclusive", 11, false, 1.5},
	{"google", "gemini-2.5-flash", "gemini-2.5-flash", "", "provider_inclusive", 11, false, 0.8},
	{"openai", "gpt-4.1-2025-04-14", "gpt-4.1", "chatcmpl-", "provider_inclusive", 15, false, 0.9},
	{"acme", "acme-house-7b", "acme-house-7b", "acme-", "declared_inclusive", 8, false, 0.5}, // in no price list
}

var embedder = &vendor{"openai", "text-embedding-3-small", "text-embedding-3-small", "", "no_cache", 0, false, 1}

var (
	jobs  = []string{"support", "quote", "triage", "invoice", "research", "onboarding", "review", "report", "translate", "schedule", "forecast", "compliance", "search", "refund", "enrich", "draft"}
	doing = []string{"answer", "check", "plan", "summarise", "route"}
	does  = []string{"lookup_customer", "search_documents", "create_ticket", "get_weather", "read_file", "run_query", "send_mail", "update_record", "list_orders", "fetch_page"}
)

// delivery is what the service books at one instant.
type delivery struct {
	at      int64 // unix microseconds
	number  int64 // of those at the same instant the first made comes first
	entries []schema.Entry
	info    *schema.RunInfo
}

type deliveries []*delivery

func (d deliveries) Len() int { return len(d) }
func (d deliveries) Less(i, j int) bool {
	return d[i].at < d[j].at || d[i].at == d[j].at && d[i].number < d[j].number
}
func (d deliveries) Swap(i, j int) { d[i], d[j] = d[j], d[i] }
func (d *deliveries) Push(x any)   { *d = append(*d, x.(*delivery)) }
func (d *deliveries) Pop() any {
	last := len(*d) - 1
	x := (*d)[last]
	*d = (*d)[:last]
	return x
}

// maker makes runs.
type maker struct {
	rnd       *rand.Rand
	pricer    *ingest.Pricer
	until     int64 // unix nanoseconds
	customers []*customer
	pick      *rand.Zipf
	pending   deliveries
	number    int64
	lines     int64 // entries made
	free      [][]schema.Entry

	// Of the run that is being made:
	c        *customer
	f        *flow
	id       schema.Identity
	trace    schema.TraceID
	clock    int64 // unix nanoseconds at which the next span starts
	list     []schema.Entry
	reprices bool // a model of this run gets its price days later
}

func newMaker(p *past, seed uint64, pricer *ingest.Pricer) *maker {
	m := &maker{rnd: rand.New(rand.NewPCG(seed, 0x666c7962616c6c)), pricer: pricer, until: p.Until.UnixNano()}
	const skew, flat = 1.1, 3
	weight, sum := make([]float64, p.Tenants), 0.0
	for i := range weight {
		weight[i] = math.Pow(flat+float64(i), -skew)
		sum += weight[i]
	}
	user := 0
	for i, w := range weight {
		users := min(max(1, int(w/sum*float64(p.Users))), p.Users-user-(p.Tenants-i-1))
		if i == p.Tenants-1 {
			users = p.Users - user
		}
		c := &customer{name: fmt.Sprintf("tenant-%03d", i), user: user, ownRuns: i%5 == 1}
		c.who = rand.NewZipf(m.rnd, 1.2, 10, uint64(users-1))
		for j := range 4 + m.rnd.IntN(12) {
			c.flows = append(c.flows, m.flow(i, j))
		}
		c.what = rand.NewZipf(m.rnd, 1.3, 2, uint64(len(c.flows)-1))
		m.customers = append(m.customers, c)
		user += users
	}
	m.pick = rand.NewZipf(m.rnd, skew, flat, uint64(p.Tenants-1))
	return m
}

func (m *maker) flow(tenant, n int) flow {
	job := jobs[m.rnd.IntN(len(jobs))]
	f := flow{name: job + "-" + doing[m.rnd.IntN(len(doing))], feature: job, agent: job + "-agent", env: "production", mode: "interactive", criticality: "standard",
		usual: vendors[min(m.rnd.IntN(len(vendors)), m.rnd.IntN(len(vendors)+2))], other: vendors[m.rnd.IntN(7)],
		changes: int64(24*time.Hour) * int64(3+m.rnd.IntN(40)), release: fmt.Sprintf("%d.", 1+m.rnd.IntN(4)),
		scope: "opentelemetry.instrumentation.genai@2.1b0", agentScope: "opentelemetry.instrumentation.agents@0.4.1"}
	if m.rnd.IntN(8) == 0 {
		f.env = "staging"
	}
	switch k := m.rnd.IntN(100); {
	case k < 30:
		f.shape = (*maker).chat
	case k < 76:
		f.shape = (*maker).agent
	case k < 92:
		f.shape = (*maker).search
	case k < 96:
		f.shape = (*maker).research
	default:
		f.shape, f.mode, f.criticality = (*maker).batch, "batch", "background"
	}
	return f
}

// make gives entries in the order in which they are booked, with what each delivery
// says about its run.
func (p *past) make(pricer *ingest.Pricer, give func([]schema.Entry, *schema.RunInfo) error) error {
	// How many runs make so many rows is found by making some.
	const trial = 5000
	m := newMaker(p, p.Seed+1, pricer)
	for range trial {
		m.run(m.until)
	}
	runs := float64(p.Rows) * trial / float64(m.lines)
	m = newMaker(p, p.Seed, pricer)
	quarters := p.Days * 24 * 4
	begin := p.Until.AddDate(0, 0, -p.Days)
	weight, sum := make([]float64, quarters), 0.0
	for i := range weight {
		at := begin.Add(time.Duration(i) * 15 * time.Minute)
		w := 1 - 0.6*math.Cos(2*math.Pi*(float64(at.Hour())+float64(at.Minute())/60-2)/24)
		if d := at.Weekday(); d == time.Saturday || d == time.Sunday {
			w *= 0.4
		}
		weight[i] = w * (1 + float64(i)/float64(quarters))
		sum += weight[i]
	}
	var starts []int64
	debt := 0.0
	for i, w := range weight {
		at := begin.Add(time.Duration(i) * 15 * time.Minute).UnixNano()
		debt += runs * w / sum
		starts = starts[:0]
		for ; debt >= 1; debt-- {
			starts = append(starts, at+m.rnd.Int64N(int64(15*time.Minute)))
		}
		slices.Sort(starts)
		for _, s := range starts {
			m.run(s)
			if err := m.deliver(s/1000, give); err != nil {
				return err
			}
		}
	}
	// What would be booked after the end has not been yet.
	return m.deliver(m.until/1000-1, give)
}

// deliver gives what is booked until an instant, in unix microseconds.
func (m *maker) deliver(until int64, give func([]schema.Entry, *schema.RunInfo) error) error {
	for len(m.pending) > 0 && m.pending[0].at <= until {
		d := heap.Pop(&m.pending).(*delivery)
		if err := give(d.entries, d.info); err != nil {
			return err
		}
		m.free = append(m.free, d.entries[:0])
	}
	return nil
}

func (m *maker) share(percent float64) bool { return m.rnd.Float64()*100 < percent }

func (m *maker) entries() []schema.Entry {
	if n := len(m.free); n > 0 {
		e := m.free[n-1]
		m.free = m.free[:n-1]
		return e
	}
	return make([]schema.Entry, 0, 16)
}

// book puts entries among what is pending. A delivery carries the run's row where it has one.
func (m *maker) book(at int64, list []schema.Entry, info *schema.RunInfo) {
	for i := range list {
		list[i].RecordedAt = at
	}
	m.lines += int64(len(list))
	m.number++
	heap.Push(&m.pending, &delivery{at, m.number, list, info})
}

// run makes one run and everything that is booked of it, then and later.
func (m *maker) run(start int64) {
	m.c = m.customers[m.pick.Uint64()]
	m.f = &m.c.flows[m.c.what.Uint64()]
	m.list, m.clock, m.reprices = m.entries(), start, m.share(0.5)
	for i := range 2 {
		w := m.rnd.Uint64()
		for j := range 8 {
			m.trace[8*i+j] = byte(w >> (8 * j))
		}
	}
	if m.c.session == "" || m.share(40) {
		m.c.session = "conv_" + hex.EncodeToString(m.bytes(16))
	}
	m.id = schema.Identity{}
	switch {
	case m.c.ownRuns:
		b := m.bytes(16)
		m.id[schema.Run] = fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
	default:
		m.id[schema.Run] = m.trace.String()
	}
	m.id[schema.User] = fmt.Sprintf("user-%06d", m.c.user+int(m.c.who.Uint64()))
	m.id[schema.Feature], m.id[schema.Workflow], m.id[schema.Agent] = m.f.feature, m.f.name, m.f.agent
	m.id[schema.WorkflowVersion] = fmt.Sprint(m.f.release, start/m.f.changes%30)
	m.id[schema.Session], m.id[schema.Environment] = m.c.session, m.f.env
	m.id[schema.Mode], m.id[schema.Criticality] = m.f.mode, m.f.criticality
	m.f.shape(m)
	root := &m.list[0]
	if end := m.clock - root.Start; root.Duration < end {
		root.Duration = end
	}
	switch {
	case m.share(2):
		root.Failure, root.HTTPStatus = schema.ServerError, 500
	case m.share(0.3):
		root.Failure = schema.Cancelled
	}
	m.send(start)
}

// send books the run as its spans arrive: mostly whole, some in two exports, few
// hours late, and some with corrections.
func (m *maker) send(start int64) {
	const second = 1_000_000
	end := m.clock/1000 + second + m.rnd.Int64N(4*second)
	if m.share(0.2) {
		end += m.rnd.Int64N(6 * 3600 * second)
	}
	info := func(e *schema.Entry, at int64, root bool) *schema.RunInfo {
		r := &schema.RunInfo{Tenant: e.Tenant, RunID: m.id[schema.Run], Version: uint64(at), Start: e.Start, End: e.Start + e.Duration, Identity: e.Posting.Identity}
		if root {
			r.Version, r.Name, r.Status = r.Version|schema.RootVersion, e.Name, 1
			switch e.Failure {
			case schema.NoFailure:
			case schema.Budget, schema.Cancelled:
				r.Status = 3
			default:
				r.Status = 2
			}
		}
		return r
	}
	list := m.list
	if len(list) > 3 && m.share(25) {
		// The first spans end, and leave, before the root does.
		k := 1 + (len(list)-1)/2
		early := append(m.entries(), list[1:k]...)
		at := list[k-1].Start/1000 + list[k-1].Duration/1000 + second
		if m.share(10) {
			// Only the root says for whom: what came before it is corrected.
			after := m.entries()
			for i := range early {
				e := &early[i]
				full := e.Posting.Identity
				e.Posting.Identity[schema.User], e.Posting.Identity[schema.Feature] = "", ""
				minus, plus := *e, *e
				minus.Sign = -1
				plus.Version, plus.Posting.Identity = 2, full
				after = append(after, minus, plus)
			}
			m.book(max(end, at+1), after, nil)
		}
		m.book(at, early, info(&early[0], at, false))
		list = append(list[:1], list[k:]...)
		m.list = list
		end = max(end, at+1)
	}
	m.book(end, list, info(&list[0], end, true))
	if m.reprices {
		m.reprice(end)
	}
	if m.share(0.05) {
		// It is forgotten: the lines are cancelled and nothing takes their place.
		e := list[len(list)-1]
		if e.Sign > 0 && e.Posting.Status != schema.CostUnpriced {
			e.Sign = -1
			m.book(end+m.rnd.Int64N(3*24*3600*second), append(m.entries(), e), nil)
		}
	}
}

// reprice books, days later, the price of calls that had none when they came.
func (m *maker) reprice(at int64) {
	after := m.entries()
	for i := range m.list {
		e := &m.list[i]
		if e.Sign < 0 || e.Version > 1 || e.Posting.Status != schema.CostUnpriced {
			continue
		}
		minus, plus := *e, *e
		minus.Sign = -1
		plus.Version = 2
		m.price(&plus)
		if plus.Posting.Status == schema.CostPriced {
			after = append(after, minus, plus)
		}
	}
	if len(after) == 0 {
		m.free = append(m.free, after)
		return
	}
	m.book(at+3600e6+m.rnd.Int64N(20*24*3600*1e6), after, nil)
}

func (m *maker) price(e *schema.Entry) {
	e.Posting.Flags = 0
	m.pricer.Price(&e.Call, &e.Posting.Tokens, e.Usage, e.Kind, &e.Posting)
}

func (m *maker) bytes(n int) []byte {
	b := make([]byte, n)
	for i := 0; i < n; i += 8 {
		w := m.rnd.Uint64()
		for j := i; j < min(i+8, n); j++ {
			b[j] = byte(w)
			w >>= 8
		}
	}
	return b
}

// line starts a span below another one; 0 is the root, -1 is nothing. It takes the
// time of its own before the next one starts.
func (m *maker) line(kind schema.Kind, parent int, took time.Duration) *schema.Entry {
	m.list = append(m.list, schema.Entry{Sign: 1, Version: 1})
	e := &m.list[len(m.list)-1]
	e.Tenant, e.Trace = m.c.name, m.trace
	w := m.rnd.Uint64()
	for j := range e.Span {
		e.Span[j] = byte(w >> (8 * j))
	}
	if parent >= 0 {
		e.Parent = m.list[parent].Span
	} else {
		e.Role = schema.RoleRoot
	}
	d := int64(float64(took) * math.Exp(m.rnd.NormFloat64()*0.6))
	e.Start, e.Duration, e.Kind, e.Scope = m.clock, d, kind, m.f.agentScope
	m.clock += d + m.rnd.Int64N(int64(30*time.Millisecond))
	e.Posting.Kind, e.Posting.Identity, e.Posting.Attempt = kind, m.id, 1
	return e
}

// top is the root: an agent, whose usage repeats what is below it, or a request.
func (m *maker) top(kind schema.Kind) {
	e := m.line(kind, -1, 0)
	m.clock = e.Start + 2e6
	switch kind {
	case schema.KindAgent:
		e.Name, e.Operation = "invoke_agent "+m.f.agent, "invoke_agent"
		e.Provider, e.Model, e.RequestedModel = m.f.usual.provider, m.f.usual.model, m.f.usual.requested
		e.Usage, e.TokenBasis, e.Posting.Aggregate = schema.UsageKnown, m.f.usual.basis, true
	default:
		e.Name, e.Operation, e.Scope = "POST /"+m.f.feature, "POST", "opentelemetry.instrumentation.fastapi@0.61b0"
	}
}

// call is a model call and what happens around it: retries inside and outside of the
// SDK, another provider, a hedge, usage that does not come.
func (m *maker) call(parent int) {
	v := m.f.usual
	switch {
	case m.share(3):
		cause := [...]schema.Failure{schema.RateLimited, schema.RateLimited, schema.Overloaded, schema.Timeout, schema.ServerError}[m.rnd.IntN(5)]
		e := m.model(v, parent, 900*time.Millisecond)
		e.Failure, e.HTTPStatus, e.ResponseID = cause, [...]uint16{schema.RateLimited: 429, schema.Overloaded: 529, schema.Timeout: 0, schema.ServerError: 500}[cause], ""
		if cause == schema.Timeout {
			e.Usage, e.Tokens, e.Posting.Tokens = schema.UsageUnknown, schema.Tokens{}, schema.Tokens{}
		} else if cause != schema.ServerError {
			e.Usage, e.Tokens, e.Posting.Tokens = schema.UsageNone, schema.Tokens{}, schema.Tokens{}
		}
		m.price(e)
		if e.Posting.Status == schema.CostPriced {
			e.Posting.Wasted = e.Posting.Cost
		}
		m.clock += int64(time.Second)
		if m.share(12) {
			v = m.f.other
		}
		e = m.model(v, parent, 1800*time.Millisecond)
		p := &e.Posting
		p.ModelCalls, p.Attempt, p.Cause = 0, 2, cause
		if v != m.f.usual {
			p.Fallback, p.Fallbacks = true, 1
		} else {
			p.Retries, p.Layer = 1, schema.LayerFramework
		}
		m.price(e)
	case m.share(0.2):
		m.model(v, parent, 2*time.Second)
		e := m.model(v, parent, 2*time.Second)
		e.Start = m.list[len(m.list)-2].Start + 3e8
		p := &e.Posting
		p.ModelCalls, p.Hedge, p.Hedges = 0, true, 1
		m.price(e)
		p.Wasted = p.Cost
	default:
		e := m.model(v, parent, 1500*time.Millisecond)
		switch {
		case m.share(1):
			e.Posting.Hidden, e.Posting.HiddenCause = 1+uint32(m.rnd.IntN(2)), schema.RateLimited
		case m.share(0.5): // a stream without usage
			e.Usage, e.Tokens, e.Posting.Tokens = schema.UsageUnknown, schema.Tokens{}, schema.Tokens{}
			m.price(e)
		case m.share(0.03):
			e.Failure, e.HTTPStatus, e.Usage, e.ResponseID, e.Tokens, e.Posting.Tokens = schema.Budget, 429, schema.UsageNone, "", schema.Tokens{}, schema.Tokens{}
			m.price(e)
		}
	}
}

// model is one attempt, priced.
func (m *maker) model(v *vendor, parent int, took time.Duration) *schema.Entry {
	kind, op := schema.KindModel, "chat"
	if v == embedder {
		kind, op = schema.KindEmbedding, "embeddings"
	}
	e := m.line(kind, parent, took)
	e.Name, e.Operation, e.Scope = op+" "+v.requested, op, m.f.scope
	e.Provider, e.Model, e.RequestedModel, e.TokenBasis, e.Usage = v.provider, v.model, v.requested, v.basis, schema.UsageKnown
	if v.id > 0 {
		e.ResponseID = v.prefix + hex.EncodeToString(m.bytes(v.id))
	}
	input := uint64(v.size * 900 * math.Exp(m.rnd.NormFloat64()*1.1))
	t := &e.Tokens
	t.Input = input + 20
	if v != embedder {
		if m.share(60) { // most of a prompt was seen before
			t.CacheRead = input * uint64(m.rnd.IntN(6))
		}
		if v.provider == "anthropic" && m.share(25) {
			t.CacheWrite5m = input
		}
		t.Output = 1 + uint64(v.size*250*math.Exp(m.rnd.NormFloat64()))
		if v.reasoning {
			t.Reasoning = t.Output * uint64(m.rnd.IntN(70)) / 100
		}
	}
	e.Posting.Tokens, e.Posting.ModelCalls = *t, 1
	if m.share(4) {
		e.Flags |= schema.FlagBasisInferred
	}
	m.price(e)
	if m.reprices {
		// A list that does not know the model yet.
		unlisted := *e
		unlisted.Model, unlisted.RequestedModel = "unlisted", "unlisted"
		m.price(&unlisted)
		e.Posting = unlisted.Posting
	}
	return e
}

// use is a tool call; some fail and are asked for again by the model.
func (m *maker) use(parent int) {
	name := does[min(m.rnd.IntN(len(does)), m.rnd.IntN(len(does)))]
	hash, again := m.rnd.Uint64(), m.share(2)
	e := m.tool(name, parent, hash)
	if again {
		e.Failure = [...]schema.Failure{schema.ToolError, schema.Timeout}[m.rnd.IntN(2)]
		cause := e.Failure
		m.call(parent)
		e = m.tool(name, parent, hash)
		p := &e.Posting
		p.ToolCalls, p.Retries, p.Repeats, p.Layer, p.Cause, p.Attempt = 0, 1, 1, schema.LayerAgent, cause, 2
	} else if m.share(30) {
		d := m.line(schema.KindTool, len(m.list)-1, 20*time.Millisecond)
		d.Name, d.Operation, d.Tool, d.Effect, d.Scope = "SELECT customers", "SELECT", "postgresql customers", schema.EffectRead, "opentelemetry.instrumentation.psycopg@0.61b0"
	}
}

func (m *maker) tool(name string, parent int, hash uint64) *schema.Entry {
	e := m.line(schema.KindTool, parent, 300*time.Millisecond)
	e.Name, e.Operation, e.Tool, e.ArgsHash, e.Effect = "execute_tool "+name, "execute_tool", name, hash, schema.EffectRead
	if name == "update_record" || name == "create_ticket" || name == "send_mail" {
		e.Effect = schema.EffectWrite
	}
	e.PayloadBytes = uint64(200 * math.Exp(m.rnd.NormFloat64()*1.5))
	e.Posting.ToolCalls = 1
	return e
}

func (m *maker) chat() {
	m.top(schema.KindRequest)
	for range 1 + m.rnd.IntN(3) {
		m.call(0)
	}
}

func (m *maker) agent() {
	m.top(schema.KindAgent)
	for range 2 + min(m.rnd.IntN(7), m.rnd.IntN(7)) {
		m.call(0)
		m.use(0)
	}
	m.call(0)
}

func (m *maker) search() {
	m.top(schema.KindRequest)
	m.model(embedder, 0, 80*time.Millisecond)
	e := m.line(schema.KindRetrieval, 0, 60*time.Millisecond)
	e.Name, e.Operation, e.Tool, e.Effect = "retrieve documents", "retrieve", "documents", schema.EffectRead
	m.call(0)
	if m.share(20) {
		m.call(0)
	}
}

// research is an agent that has others work for it.
func (m *maker) research() {
	m.top(schema.KindAgent)
	for range 2 + m.rnd.IntN(5) {
		m.call(0)
		e := m.line(schema.KindAgent, 0, 0)
		e.Name, e.Operation = "invoke_agent reader", "invoke_agent"
		at := len(m.list) - 1
		for range 2 + m.rnd.IntN(5) {
			m.call(at)
			m.use(at)
		}
		m.list[at].Duration = m.clock - m.list[at].Start
	}
	m.call(0)
}

func (m *maker) batch() {
	m.top(schema.KindWorkflow)
	for range 6 + m.rnd.IntN(12) {
		m.call(0)
	}
}

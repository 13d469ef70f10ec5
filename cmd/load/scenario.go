package main

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// runsOfResource is how many runs of a request share a resource, and so a
// service and a tenant.
const runsOfResource = 10

// Runs of root-last take runLength and are exported every exportEvery.
const (
	runLength   = 30 * time.Second
	exportEvery = 5 * time.Second
)

// scenario is a way agents behave: how runs look, and in which exports their
// spans arrive.
type scenario struct {
	name   string
	phases int // exports of one run, exportEvery apart
	// shape makes the spans of a run; r varies models and counts of tokens.
	shape func(r *rand.Rand, i int) []spanTemplate
	// age is how long ago a run began when its first export leaves.
	age time.Duration
}

var scenarios = []scenario{
	{name: "attributed", phases: 1, shape: attributed, age: 14 * time.Second},
	{name: "root-last", phases: int(runLength / exportEvery), shape: rootLast, age: exportEvery},
	{name: "mixed", phases: 1, shape: mixed, age: 20 * time.Second},
}

func findScenario(name string) (scenario, error) {
	for _, s := range scenarios {
		if s.name == name {
			return s, nil
		}
	}
	return scenario{}, fmt.Errorf("find scenario %q: want attributed, root-last or mixed", name)
}

// model is what a chat span may name.
type model struct {
	provider, requested, answered, host, idPrefix string
	reasoning                                     bool
}

var models = []model{
	{"openai", "gpt-5", "gpt-5-2025-08-07", "api.openai.com", "resp_0", true},
	{"openai", "gpt-4o", "gpt-4o-2024-08-06", "api.openai.com", "chatcmpl-", false},
	{"anthropic", "claude-sonnet-4-5", "claude-sonnet-4-5", "api.anthropic.com", "msg_01", false},
	{"gcp.gemini", "gemini-2.5-pro", "gemini-2.5-pro", "generativelanguage.googleapis.com", "gm-", true},
}

// unpriced is in no price list.
var unpriced = model{"acme", "acme-house-7b", "acme-house-7b", "llm.acme.example", "acme-", false}

var (
	features = []string{"quote", "triage", "summarise", "refund-assistant", "search", "onboarding", "code-review", "report", "translate", "schedule"}
	agents   = []string{"planner", "support-agent", "research-agent", "billing-agent"}
	tools    = []string{"lookup_customer", "search_documents", "create_ticket", "get_weather"}
)

// Names of instrumentation scopes.
const (
	scopeAgent = "opentelemetry.instrumentation.agents"
	scopeModel = "opentelemetry.instrumentation.genai"
	scopeDB    = "opentelemetry.instrumentation.psycopg"
	scopeHTTP  = "opentelemetry.instrumentation.httpx"
)

// about are the attributes that every span of a run has.
type about struct {
	agent   string
	feature string
	model   model
	owned   bool // user and feature on every span, not on the root only
}

func newAbout(r *rand.Rand, i int, owned bool) about {
	return about{agent: agents[r.IntN(len(agents))], feature: features[r.IntN(len(features))], model: models[i%len(models)], owned: owned}
}

func (a *about) identity(always bool) []attr {
	if !a.owned && !always {
		return nil
	}
	return []attr{{"user.id", hole{"user-", markUser}}, {"app.feature", a.feature}}
}

func (a *about) root(end time.Duration, r *rand.Rand) spanTemplate {
	return spanTemplate{
		name: "invoke_agent " + a.agent, parent: -1, kind: spanKindInternal, end: end, scope: scopeAgent,
		attrs: append([]attr{
			{"gen_ai.operation.name", "invoke_agent"},
			{"gen_ai.provider.name", a.model.provider},
			{"gen_ai.agent.name", a.agent},
			{"gen_ai.agent.id", "asst_" + a.agent},
			{"gen_ai.agent.version", "1.4.2"},
			{"gen_ai.conversation.id", hole{"conv_", markTraceHex}},
			{"gen_ai.request.model", a.model.requested},
			{"gen_ai.response.finish_reasons", []string{"stop"}},
			{"gen_ai.output.type", "text"},
			{"gen_ai.usage.input_tokens", 4000 + r.IntN(40000)},
			{"gen_ai.usage.output_tokens", 400 + r.IntN(4000)},
			{"server.address", a.model.host},
			{"thread.id", 1 + r.IntN(64)},
		}, a.identity(true)...),
	}
}

func (a *about) chat(start, end time.Duration, finish string, r *rand.Rand) spanTemplate {
	m := a.model
	input := 600 + r.IntN(12000)
	attrs := append([]attr{
		{"gen_ai.operation.name", "chat"},
		{"gen_ai.provider.name", m.provider},
		{"gen_ai.request.model", m.requested},
		{"gen_ai.response.model", m.answered},
		{"gen_ai.response.id", hole{m.idPrefix, markSpanHex}},
		{"gen_ai.response.finish_reasons", []string{finish}},
		{"gen_ai.conversation.id", hole{"conv_", markTraceHex}},
		{"gen_ai.request.max_tokens", 4096},
		{"gen_ai.request.temperature", 0.2},
		{"gen_ai.usage.input_tokens", input},
		{"gen_ai.usage.output_tokens", 40 + r.IntN(1500)},
		{"gen_ai.usage.cache_read.input_tokens", input * r.IntN(9) / 10},
		{"server.address", m.host},
		{"server.port", 443},
	}, a.identity(false)...)
	if m.reasoning {
		attrs = append(attrs, attr{"gen_ai.usage.reasoning.output_tokens", r.IntN(40)})
	}
	return spanTemplate{name: "chat " + m.requested, kind: spanKindClient, start: start, end: end, scope: scopeModel, attrs: attrs, calls: 1}
}

// failedChat is an attempt that the provider refused to serve.
func (a *about) failedChat(start, end time.Duration, status int, kind string) spanTemplate {
	m := a.model
	return spanTemplate{
		name: "chat " + m.requested, kind: spanKindClient, start: start, end: end, scope: scopeModel, failed: true, calls: 1,
		attrs: append([]attr{
			{"gen_ai.operation.name", "chat"},
			{"gen_ai.provider.name", m.provider},
			{"gen_ai.request.model", m.requested},
			{"gen_ai.conversation.id", hole{"conv_", markTraceHex}},
			{"gen_ai.request.max_tokens", 4096},
			{"gen_ai.request.temperature", 0.2},
			{"error.type", kind},
			{"http.response.status_code", status},
			{"server.address", m.host},
			{"server.port", 443},
		}, a.identity(false)...),
	}
}

func (a *about) tool(start, end time.Duration, name string, r *rand.Rand) spanTemplate {
	return spanTemplate{
		name: "execute_tool " + name, kind: spanKindInternal, start: start, end: end, scope: scopeAgent, calls: 1,
		attrs: append([]attr{
			{"gen_ai.operation.name", "execute_tool"},
			{"gen_ai.tool.name", name},
			{"gen_ai.tool.call.id", hole{"call_", markSpanHex}},
			{"gen_ai.tool.type", "function"},
			{"gen_ai.tool.description", "Reads one record of the system of record"},
			{"gen_ai.agent.name", a.agent},
			{"gen_ai.agent.id", "asst_" + a.agent},
			{"gen_ai.conversation.id", hole{"conv_", markTraceHex}},
			{"code.function.name", "app.tools." + name},
			{"code.line.number", 10 + r.IntN(400)},
			{"code.file.path", "app/tools.py"},
			{"thread.id", 1 + r.IntN(64)},
			{"thread.name", "worker"},
		}, a.identity(false)...),
	}
}

// database is a client span. It is a call of its own only where no tool is
// above it.
func (a *about) database(start, end time.Duration, parent, calls int, r *rand.Rand) spanTemplate {
	return spanTemplate{
		name: "SELECT customers", parent: parent, kind: spanKindClient, start: start, end: end, scope: scopeDB, calls: calls,
		attrs: append([]attr{
			{"db.system.name", "postgresql"},
			{"db.namespace", "crm"},
			{"db.operation.name", "SELECT"},
			{"db.collection.name", "customers"},
			{"db.query.summary", "SELECT customers"},
			{"db.query.text", "SELECT id, name, plan FROM customers WHERE id = $1"},
			{"db.response.returned_rows", 1 + r.IntN(20)},
			{"server.address", "crm-db.internal"},
			{"server.port", 5432},
			{"network.peer.address", "10.0.3.17"},
			{"network.peer.port", 5432},
			{"thread.id", 1 + r.IntN(64)},
			{"thread.name", "worker"},
		}, a.identity(false)...),
	}
}

func (a *about) http(start, end time.Duration, parent, calls int, method, host, path string, status int) spanTemplate {
	return spanTemplate{
		name: method, parent: parent, kind: spanKindClient, start: start, end: end, scope: scopeHTTP, calls: calls, failed: status >= 400,
		attrs: append([]attr{
			{"http.request.method", method},
			{"url.full", "https://" + host + path},
			{"http.response.status_code", status},
			{"server.address", host},
			{"server.port", 443},
			{"network.protocol.version", "1.1"},
			{"user_agent.original", "python-httpx/0.28.1"},
		}, a.identity(false)...),
	}
}

const (
	ms = time.Millisecond
	s1 = time.Second
)

// tenSpans is the run of the first two scenarios: the root, four model calls,
// three tools, a query below a tool (which is no call of its own) and one made
// by the agent itself (which is). stretch scales its ten seconds.
func tenSpans(r *rand.Rand, a about, stretch float64) []spanTemplate {
	at := func(d time.Duration) time.Duration { return time.Duration(float64(d) * stretch) }
	i := r.IntN(len(tools))
	next := func() string { i++; return tools[i%len(tools)] }
	return []spanTemplate{
		a.root(at(9900*ms), r),
		a.chat(at(50*ms), at(1400*ms), "tool_calls", r),
		a.tool(at(1450*ms), at(2300*ms), next(), r),
		a.database(at(1500*ms), at(2250*ms), 2, 0, r),
		a.chat(at(2350*ms), at(3900*ms), "tool_calls", r),
		a.tool(at(3950*ms), at(5200*ms), next(), r),
		a.chat(at(5250*ms), at(6400*ms), "tool_calls", r),
		a.tool(at(6450*ms), at(7000*ms), next(), r),
		a.database(at(7050*ms), at(7100*ms), 0, 1, r),
		a.chat(at(7150*ms), at(9850*ms), "stop", r),
	}
}

// attributed is what an instrumented service sends that sets user and feature
// on every span and exports whole runs.
func attributed(r *rand.Rand, i int) []spanTemplate {
	return tenSpans(r, newAbout(r, i, true), 1)
}

// rootLast is a run of 30 s whose spans leave as they end, the root last; only
// the root says for whom.
func rootLast(r *rand.Rand, i int) []spanTemplate {
	spans := tenSpans(r, newAbout(r, i, false), 3)
	for j := range spans {
		spans[j].phase = min(int(spans[j].end/exportEvery), int(runLength/exportEvery)-1)
	}
	return spans
}

// mixed has what goes wrong: refused and repeated model calls, failing tools,
// plain HTTP tools, transport spans below a call, a model without a price.
func mixed(r *rand.Rand, i int) []spanTemplate {
	a := newAbout(r, i, i%3 != 0)
	tool := tools[r.IntN(len(tools))]
	switch i % 5 {
	case 0: // the SDK's retry, as two siblings
		return []spanTemplate{
			a.root(9*s1, r),
			a.failedChat(50*ms, 300*ms, 429, "rate_limit_exceeded"),
			a.chat(1300*ms, 2900*ms, "tool_calls", r),
			a.tool(3*s1, 4*s1, tool, r),
			a.chat(4100*ms, 8900*ms, "stop", r),
		}
	case 1: // attempts below one call, and an API the agent calls without a tool
		return []spanTemplate{
			a.root(12*s1, r),
			a.chat(50*ms, 5*s1, "tool_calls", r),
			a.http(100*ms, 900*ms, 1, 0, "POST", a.model.host, "/v1/responses", 503),
			a.http(1900*ms, 4900*ms, 1, 0, "POST", a.model.host, "/v1/responses", 200),
			a.http(5100*ms, 5600*ms, 0, 1, "GET", "crm.internal", "/customers/17", 200),
			a.database(5700*ms, 5800*ms, 0, 1, r),
			a.chat(6*s1, 11900*ms, "stop", r),
		}
	case 2: // a model without a price
		a.model = unpriced
		return []spanTemplate{
			a.root(5*s1, r),
			a.chat(50*ms, 2*s1, "tool_calls", r),
			a.tool(2100*ms, 2900*ms, tool, r),
			a.database(2200*ms, 2800*ms, 2, 0, r),
			a.chat(3*s1, 4900*ms, "stop", r),
		}
	case 3: // a tool that fails and is asked for again by the model
		failing := a.tool(2100*ms, 3*s1, tool, r)
		failing.failed = true
		failing.attrs = append(failing.attrs, attr{"error.type", "timeout"})
		return []spanTemplate{
			a.root(11*s1, r),
			a.chat(50*ms, 2*s1, "tool_calls", r),
			failing,
			a.chat(3100*ms, 5*s1, "tool_calls", r),
			a.tool(5100*ms, 6*s1, tool, r),
			a.chat(6100*ms, 10900*ms, "stop", r),
		}
	}
	return tenSpans(r, a, 1)
}

// group is the templates of one scenario: the exports of a group of runs that
// were begun together.
type group struct {
	scenario
	requests []*request // one a phase
	runs     int
	spans    int // of all phases
	calls    int
}

// newGroup encodes runs until the exports hold about batch spans each.
func newGroup(sc scenario, batch, users, tenants int) *group {
	l := layout{userDigits: int(digitsOf(uint64(users))), tenantDigits: int(digitsOf(uint64(tenants)))}
	r := rand.New(rand.NewPCG(1, 2))
	g := &group{scenario: sc}
	var runs [][]spanTemplate
	for n := 0; n == 0 || n < batch*sc.phases; {
		spans := sc.shape(r, g.runs)
		if len(spans) > maxSpansOfRun {
			panic("BUG: a run has too many spans")
		}
		runs = append(runs, spans)
		g.runs++
		n += len(spans)
	}
	for phase := range sc.phases {
		req := l.request(runs, phase)
		g.requests = append(g.requests, req)
		g.spans += req.spans
		g.calls += req.calls
	}
	return g
}

// request encodes one export of runs.
func (l *layout) request(runs [][]spanTemplate, phase int) *request {
	req := &request{}
	var whole piece
	for first := 0; first < len(runs); first += runsOfResource {
		var rs, resource piece
		for _, a := range []attr{
			{"service.name", "agents"},
			{"service.version", "2026.11.3"},
			{"service.instance.id", fmt.Sprintf("agents-%d", first/runsOfResource)},
			{"service.namespace", "assistants"},
			{"deployment.environment.name", "production"},
			{"telemetry.sdk.name", "opentelemetry"},
			{"telemetry.sdk.language", "python"},
			{"telemetry.sdk.version", "1.39.0"},
			{"host.name", fmt.Sprintf("node-%d", first/runsOfResource%8)},
			{"process.pid", 4000 + first},
			{"tenant.id", hole{"tenant-", markTenant}},
		} {
			l.attribute(&resource, fieldResourceAttrs, a, int32(first), 0)
		}
		rs.embed(fieldResource, &resource)
		sent := 0
		for _, scope := range []string{scopeModel, scopeHTTP, scopeDB, scopeAgent} {
			var ss, sc piece
			sc.text(scopeName, scope)
			sc.text(scopeVer, "2.1b0")
			ss.embed(fieldScope, &sc)
			n := 0
			for run := first; run < min(first+runsOfResource, len(runs)); run++ {
				spans := runs[run]
				for i := range spans {
					// In the order they end: the root, number 0, is the last.
					number := (i + 1) % len(spans)
					s := &spans[number]
					if s.scope != scope || s.phase != phase {
						continue
					}
					p := l.span(s, int32(run), uint8(number))
					ss.embed(fieldSpans, &p)
					req.calls += s.calls
					n++
				}
			}
			if n > 0 {
				rs.embed(fieldScopeSpans, &ss)
				sent += n
			}
		}
		if sent > 0 {
			whole.embed(fieldResourceSpans, &rs)
			req.spans += sent
		}
	}
	req.bytes, req.marks = whole.b, whole.marks
	return req
}

package enforce

import (
	"net/http"
	"reflect"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/flyball/flyball/enforce/directive"
	"github.com/flyball/flyball/enforce/page"
	"github.com/flyball/flyball/schema"
	"github.com/flyball/flyball/schema/openapi"
)

// route is an operation and what answers it.
type route struct {
	openapi.Route
	serve func(*gin.Context, schema.Key) error
	roles []schema.KeyRole // beside admin
}

// Routes describe the API of enforcement.
func (l *Loop) Routes() (out []openapi.Route) {
	for _, r := range (&api{l: l}).routes() {
		out = append(out, r.Route)
	}
	return out
}

// Types are the schemas of the types that write their own JSON.
func Types() map[reflect.Type]openapi.Schema {
	return map[reflect.Type]openapi.Schema{
		reflect.TypeFor[directive.Verdict](): openapi.Enum(directive.Allow.String(), directive.Downgraded.String(), directive.Wait.String(), directive.Deny.String()),
	}
}

// Mount adds the routes of enforcement to a router. journal, which may be nil while
// ClickHouse is not up, is what backtests and verifications read.
func (l *Loop) Mount(r gin.IRouter, keys func() *schema.Keyring, journal func(tenant string) (Journal, func() uint64)) {
	a := &api{l: l, keys: keys, journal: journal}
	for _, x := range a.routes() {
		r.Handle(x.Method, x.Path, a.as(x.serve, x.Names(), x.roles...))
	}
}

// routes are all routes of enforcement. A parameter that a route does not list is refused.
func (a *api) routes() []route {
	const read, limiter = schema.KeyRead, schema.KeyLimiter
	add := func(method, path, tag, about string, params []openapi.Param, in *openapi.Body, ok any, serve func(*gin.Context, schema.Key) error, roles ...schema.KeyRole) route {
		r := openapi.Route{Method: method, Path: "/api/v1" + path, Tag: tag, About: about, Params: params, Body: in, OK: ok, Fails: []int{400}}
		if method == http.MethodPost {
			r.Fails = append(r.Fails, 415)
		}
		for _, role := range roles {
			r.Roles = append(r.Roles, string(role))
		}
		if strings.Contains(path, ":") {
			r.Fails = append(r.Fails, 404) // an id with a slash is another path
		}
		if ok == nil {
			r.Answers = map[int]openapi.Answer{http.StatusNoContent: {About: "It was taken."}}
		}
		return route{r, serve, roles}
	}
	get := func(path, tag, about string, params []openapi.Param, ok any, serve func(*gin.Context, schema.Key) error, roles ...schema.KeyRole) route {
		return add(http.MethodGet, path, tag, about, params, nil, ok, serve, roles...)
	}
	post := func(path, tag, about string, params []openapi.Param, in *openapi.Body, ok any, serve func(*gin.Context, schema.Key) error, roles ...schema.KeyRole) route {
		return add(http.MethodPost, path, tag, about, params, in, ok, serve, roles...)
	}
	fails := func(r route, more ...int) route {
		r.Fails = append(r.Fails, more...)
		return r
	}
	answers := func(r route, status int, x openapi.Answer) route {
		if r.Answers == nil {
			r.Answers = map[int]openapi.Answer{}
		}
		r.Answers[status] = x
		return r
	}

	tenant := openapi.Param{Name: "tenant", About: "A tenant that the key may see; without it all of them.", Schema: text}
	guard := openapi.Param{Name: "guard", About: "Only this guard.", Schema: text}
	limit := openapi.Param{Name: "limit", About: "How many at the most.", Schema: openapi.Schema{"type": "integer", "minimum": 1, "maximum": 10_000, "default": 100}}
	id := openapi.Param{Name: "id", In: "path", About: "The limiter, by the name that it gives itself.", Schema: openapi.Text(openapi.Schema{"minLength": 1, "maxLength": 200, "pattern": "^[^/]+$"}, "")}
	lease := openapi.Param{Name: "lease", In: "path", About: "The token of a lease, as it was given out.", Schema: openapi.Text(openapi.Schema{"pattern": `^[A-Za-z0-9_-]+\.[0-9a-f]+$`}, "")}
	header := func(name, about string) openapi.Param {
		return openapi.Param{Name: name, In: "header", About: about, Schema: text}
	}
	presented := []openapi.Param{header("Flyball-Version", "The version that the limiter saw last."), header("Flyball-Token", "The token that came with it.")}
	filter := func(name string) openapi.Param {
		return openapi.Param{Name: name, About: "Budgets that apply to a call with this " + strings.TrimSuffix(name, "_id") + "; needs tenant.", Schema: text}
	}

	usage := openapi.Input(Settlement{}, openapi.Fields{"tokens": openapi.Schema{"type": "object", "properties": tokenCounts(), "additionalProperties": false, "description": "By name, disjoint; none is not known."}})
	backtests := openapi.Input(backtesting{}, openapi.Fields{"text": openapi.String("A policy, YAML."), "since": since, "until": openapi.Time(), "tenant": openapi.String("One tenant; needed where the key is for several but not for all.")}, "text", "since")
	return []route{
		get("/guards", "Guards", "Lists guards and on how many scopes each acts, and the lights of providers.", []openapi.Param{tenant}, openapi.Fields{"guards": []GuardStatus{}, "lights": []Light{}}, a.guards, read, limiter),
		get("/guards/live", "Guards", "Lists on whom guards act, the newest first.", []openapi.Param{tenant, guard, limit}, openapi.Fields{"live": []LiveStatus{}}, a.live, read, limiter),
		fails(post("/guards/release", "Guards", "Takes a directive back by hand. The guard acts again at its next rung, or in the next window.", nil,
			openapi.Input(releasing{}, openapi.Fields{"id": openapi.String("The directive's."), "reason": reason}, "id", "reason"), openapi.Fields{"released": text}, a.releaseGuard), 404),
		fails(post("/guards/backtest", "Guards", "Replays the journal through a policy and tells what it would have done. One at a time.", nil, backtests, BacktestReport{}, a.backtest, read), 503),
		fails(post("/guards/verify", "Guards", "Compares the counters of guards with the journal. Needs a key for every tenant.", nil, openapi.Input(verifying{}, openapi.Fields{"since": since}, "since"), Verification{}, a.verify), 503),
		get("/budgets", "Guards", "Lists budgets with the numbers that decisions use, the nearest to their limits first; with a property of a call, those that apply to it.",
			append([]openapi.Param{tenant, guard, limit}, filter("user"), filter("feature"), filter("workflow"), filter("agent"), filter("model"), filter("run_id"), filter("mode")), openapi.Fields{"budgets": []Budget{}}, a.budgets, read, limiter),
		get("/policy", "Policy", "Tells the policy in force, and who set it. Needs a key for every tenant.", nil, PolicyVersion{}, a.policy, read),
		get("/policy/versions", "Policy", "Lists all versions of the policy, without their texts. Needs a key for every tenant.", nil, openapi.Fields{"versions": []PolicyVersion{}}, a.versions, read),
		post("/policy", "Policy", "Puts another policy in force, or with dry_run checks it. Needs a key for every tenant.", nil,
			openapi.Input(policySetting{}, openapi.Fields{"text": openapi.String("The policy, YAML."), "reason": openapi.String("Required unless dry_run.")}, "text"),
			openapi.AnyOf(openapi.Fields{"version": openapi.Schema{"type": "integer", "minimum": 1}, "doubts": []string{}}, openapi.Fields{"valid": openapi.Schema{"const": true}, "doubts": []string{}}), a.setPolicy),
		answers(get("/directives", "Limiters", "Tells the whole set of directives that concern the tenants of the key. Prefer: wait=30 waits for one that is not at the version of If-None-Match.",
			append(presented, header("If-None-Match", "The ETag of the last answer."), header("Prefer", "wait=N: how many seconds to wait for news, 0 to 300. Other preferences are ignored.")),
			nil, a.directives, limiter, read), http.StatusOK, openapi.Answer{About: "The set.", Content: map[string]any{"application/json": directive.State{}}, Headers: map[string]openapi.Header{"ETag": {About: "Its version.", Schema: text}}}),
		answers(get("/directives/stream", "Limiters", "Follows the set as server-sent events: set (all of it), change (what turns it into a later one), alive (how long it holds). It does not end by itself.",
			append(presented, header("Last-Event-ID", "The version that the last event had.")), nil, a.stream, limiter, read), http.StatusOK, openapi.Answer{About: "The events.", Content: map[string]any{"text/event-stream": text}}),
		get("/limiters", "Limiters", "Lists who enforces and what each has acknowledged. Needs a key for every tenant.", nil, openapi.Fields{"version": text, "limiters": []LimiterStatus{}, "connections": 0}, a.limiters, read),
		fails(post("/limiters/:id/ack", "Limiters", "Acknowledges a version. An id belongs to the first key that used it. A key may have as many limiters as are left for all keys, else 409.", []openapi.Param{id}, openapi.Input(Ack{}, nil, "token"), nil, a.ack, limiter), 409),
		post("/limiters/:id/headroom", "Limiters", "Reports what providers said of their rate limits.", []openapi.Param{id}, openapi.Input(headrooms{}, nil), nil, a.headroom, limiter),
		fails(post("/limiters/:id/refusals", "Limiters", "Reports calls that were not let through, so that the journal has them.", []openapi.Param{id},
			openapi.Input(refusing{}, openapi.Fields{"more": openapi.Integer(0, maxMore)}), nil, a.refusals, limiter), 503),
		get("/lights", "Guards", "Tells the traffic light of each provider.", nil, openapi.Fields{"lights": []Light{}}, a.lights, read, limiter),
		get("/kill", "Kill switch", "Tells how the kill switch stands; for a key for every tenant also how near it is to tripping.", nil, openapi.AnyOf(KillStatus{}, directive.Kill{}), a.killStatus, read, limiter),
		post("/kill", "Kill switch", "Flips the kill switch. Needs a key for every tenant.", nil,
			openapi.Input(Kill{}, openapi.Fields{"state": openapi.Enum("on", "off"), "stage": stage, "reason": openapi.Text(openapi.Schema{"minLength": 1, "maxLength": 1000}, "What others read later; at most 1,000 bytes.")}, "state", "reason"), KillStatus{}, a.kill),
		answers(post("/kill/drill", "Kill switch", "Walks the way of the kill switch without stopping anything; every limiter has to acknowledge. Needs a key for every tenant.", nil,
			openapi.Input(drilling{}, openapi.Fields{"wait_ms": openapi.Schema{"type": "integer", "minimum": 0, "maximum": 60_000, "description": "How long to wait for limiters; 0 is 5000."}}), DrillResult{}, a.drill),
			http.StatusConflict, openapi.Answer{About: "The drill failed.", Content: map[string]any{"application/problem+json": openapi.Fields{"status": openapi.Schema{"const": 409}, "title": text, "detail": text, "drill": DrillResult{}}}}),
		post("/check", "Calls", "Decides about a call without reserving anything.", nil, openapi.Input(directive.Call{}, callLimits()), Answer{}, a.check, limiter),
		fails(post("/reserve", "Calls", "Decides about a call, or every call of a plan, and leases a slice of every budget that applies. All or none: a refusal has no lease. A key may have as many open leases as are left for all keys, else 429.", nil,
			openapi.Input(reserving{}, callLimits()), openapi.AnyOf(Answer{}, Reserved{}, openapi.Fields{"decision": openapi.Schema{"const": "allow"}, "leases": []Lease{}, "answers": []Answer{}}), a.reserve, limiter), 429, 503),
		fails(post("/leases/:lease/heartbeat", "Calls", "Keeps a lease open for another minute.", []openapi.Param{lease}, nil, Lease{}, a.heartbeat, limiter), 410),
		post("/leases/:lease/settle", "Calls", "Closes a lease with what was used. Twice is safe.", []openapi.Param{lease}, usage, openapi.Fields{"settled": openapi.Schema{"const": true}}, a.settle, limiter),
		post("/leases/:lease/release", "Calls", "Gives a lease back for a call that was not made. Twice is safe.", []openapi.Param{lease}, nil, openapi.Fields{"released": openapi.Schema{"const": true}}, a.release, limiter),
		post("/pages/test", "Pages", "Sends a test page to a receiver, or to all. Needs a key for every tenant.", nil, openapi.Input(paging{}, nil), openapi.Fields{"results": []page.Result{}}, a.testPage),
		get("/pages", "Pages", "Lists pages that are not delivered yet. Needs a key for every tenant.", nil, openapi.Fields{"pending": []page.Status{}}, a.pages, read),
	}
}

var (
	text    = openapi.Schema{"type": "string"}
	reason  = openapi.Text(openapi.Schema{"minLength": 1}, "What others read later.")
	stage   = openapi.Schema{"type": "integer", "minimum": 0, "maximum": 100, "description": "Percent of runs to admit while it is on."}
	instant = openapi.Text(openapi.Schema{"format": "date-time", "examples": []string{"2026-11-29T10:00:00Z"}}, "RFC 3339.")
	since   = openapi.Text(openapi.Schema{"format": "date-time"}, "Begin of the time, from 2015 on.")
	tokens  = openapi.Schema{"type": "integer", "minimum": 0, "maximum": uint64(maxTokens)}
)

func tokenCounts() openapi.Schema {
	out := openapi.Schema{}
	for _, n := range schema.TokenNames {
		out[n] = tokens
	}
	return out
}

// callLimits are what ownCall checks.
func callLimits() openapi.Fields {
	f := openapi.Fields{"input_tokens": tokens, "max_output_tokens": tokens}
	for _, n := range []string{"tenant", "user", "feature", "workflow", "agent", "model", "run_id", "trace_id", "span_id", "provider", "tool"} {
		f[n] = openapi.Schema{"type": "string", "maxLength": 1024}
	}
	return f
}

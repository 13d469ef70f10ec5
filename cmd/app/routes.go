package app

import (
	"net/http"
	"reflect"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/flyball/flyball/enforce"
	"github.com/flyball/flyball/ingest"
	"github.com/flyball/flyball/ingest/price"
	"github.com/flyball/flyball/schema"
	"github.com/flyball/flyball/schema/openapi"
)

// described is where the API is described.
const described = "/api/v1/openapi.json"

// route is an operation and what answers it.
type route struct {
	openapi.Route
	serve  gin.HandlerFunc
	itself bool // serve looks at the key; else it has to be an admin's for every tenant
}

// routes are those of the service itself: its health, and what needs the pricer or the
// whole.
func (a *App) routes() []route {
	text := openapi.String("")
	json := func(about string, of any) openapi.Answer {
		return openapi.Answer{About: about, Content: map[string]any{"application/json": of}}
	}
	ready := openapi.Fields{"status": openapi.Enum("ready", "full"), "ingest": ingest.Status{}, "prices": []price.Origin{}, "listen": openapi.Map(text),
		"clickhouse": openapi.Fields{"ready": openapi.Bool(), "waits_for?": text, "version?": text, "embedded?": openapi.Bool(), "restarts?": openapi.Schema{"type": "integer", "minimum": 0}}}
	return []route{
		{openapi.Route{Method: http.MethodGet, Path: "/livez", Tag: "Service", Open: true, About: "Says that the process runs.", OK: openapi.Fields{"status": openapi.Schema{"const": "ok"}}},
			func(c *gin.Context) { c.JSON(http.StatusOK, gin.H{"status": "ok"}) }, false},
		{openapi.Route{Method: http.MethodGet, Path: "/readyz", Tag: "Service", Open: true, About: "Says what is accepted, and what each part waits for.", OK: ready,
			Answers: map[int]openapi.Answer{http.StatusServiceUnavailable: json("No data is taken; ingest.refusing says why.", ready)}}, a.readyz, false},
		{openapi.Route{Method: http.MethodGet, Path: "/metrics", Tag: "Service", Roles: []string{string(schema.KeyRead)}, Basic: true, About: "Tells the metrics of the service, for Prometheus. Needs a key for every tenant.",
			Answers: map[int]openapi.Answer{http.StatusOK: {About: "The metrics.", Content: map[string]any{"text/plain": text, "application/openmetrics-text": text}}}}, a.metrics, false},
		{openapi.Route{Method: http.MethodGet, Path: "/api/v1/prices", Tag: "Prices", About: "Lists the prices in force. Needs a key for every tenant.",
			Params: []openapi.Param{{Name: "provider", About: "Only this provider's.", Schema: text}},
			OK:     openapi.Fields{"origins": []price.Origin{}, "rejected": []price.Rejection{}, "prices": []price.Listing{}}, Fails: []int{400}}, a.prices, false},
		{openapi.Route{Method: http.MethodGet, Path: "/api/v1/prices/check", Tag: "Prices", About: "Lists models that were seen and have no price, with names that look like them. Needs a key for every tenant.",
			OK: openapi.Fields{"unpriced": []unpriced{}}, Fails: []int{400, 503}}, a.pricesCheck, false},
		{openapi.Route{Method: http.MethodPost, Path: "/api/v1/reprice", Tag: "Prices", About: "Prices calls again with the prices of now and posts corrections, or with dry_run tells what they would change. Needs a key for every tenant.",
			Body: openapi.Input(ingest.Repricing{}, openapi.Fields{"since": openapi.Text(openapi.Schema{"format": "date-time"}, "Calls that started at or after this, from 1971 on.")}, "since"),
			OK:   ingest.Repriced{}, Fails: []int{400, 409, 415, 503}}, a.reprice, false},
		{openapi.Route{Method: http.MethodPost, Path: "/api/v1/adjust", Tag: "Prices", About: "Posts an amount that a person decided about, once for an id.",
			Body: openapi.Input(adjustment{}, openapi.Fields{}, "tenant", "id", "amount", "at", "reason"), OK: adjusted{}, Fails: []int{400, 409, 415, 503}}, a.adjust, true},
		{openapi.Route{Method: http.MethodPost, Path: "/api/v1/forget", Tag: "Service", About: "Begins to replace a user's id by a pseudonym everywhere. No amount changes. The tenant may be left out by a key for one.",
			Body:    openapi.Input(forgetting{}, openapi.Fields{"user": openapi.String("The id as calls have it, in any case."), "release": openapi.Text(openapi.Bool(), "Also where a guard refuses the user's calls, which ends.")}, "user", "reason"),
			Answers: map[int]openapi.Answer{http.StatusAccepted: json("It is under way, and goes on after a restart.", forgetStatus{})}, Fails: []int{400, 409, 415, 501, 503}}, a.forgetUser, true},
		{openapi.Route{Method: http.MethodGet, Path: "/api/v1/forget", Tag: "Service", About: "Tells whether a user is being forgotten, and how far that is.",
			OK: openapi.Fields{"running": []forgetStatus{}}, Fails: []int{}}, a.forgetProgress, true},
		{openapi.Route{Method: http.MethodPost, Path: "/api/v1/reload", Tag: "Service", About: "Reads configuration, keys, policy and prices again. After a failure everything is as it was. Needs a key for every tenant.",
			OK: openapi.Fields{"status": openapi.Schema{"const": "reloaded"}}, Fails: []int{400, 415}}, a.reload, false},
	}
}

// mount adds the service's own routes, and the description of the whole API. others are
// the routes that are mounted already. What operators ask and change needs an admin's
// key; the other routes here look themselves.
func (a *App) mount(r gin.IRouter, others []openapi.Route) {
	own := a.routes()
	for _, x := range own {
		serve := x.serve
		switch {
		case x.itself:
			serve = only(x.Names(), serve)
		case strings.HasPrefix(x.Path, "/api/"):
			serve = a.operator(x.Names(), serve)
		}
		r.Handle(x.Method, x.Path, serve)
		others = append(others, x.Route)
	}
	self := openapi.Route{Method: http.MethodGet, Path: described, Tag: "Service", Open: true, About: "Tells this document. It holds no data, so that it needs no key.", OK: openapi.Schema{"type": "object"}}
	text := document(append(others, self))
	r.GET(described, func(c *gin.Context) {
		c.Header("Cache-Control", "no-cache")
		c.Data(http.StatusOK, "application/json", text)
	})
}

// operator serves a request of an admin for every tenant, with these parameters.
func (a *App) operator(names []string, serve gin.HandlerFunc) gin.HandlerFunc {
	return func(c *gin.Context) {
		if !a.authorizeAdmin(c) {
			return
		}
		only(names, serve)(c)
	}
}

// only serves a request with no other parameters than these.
func only(names []string, serve gin.HandlerFunc) gin.HandlerFunc {
	return func(c *gin.Context) {
		if err := schema.CheckParams(c.Request.URL.Query(), names); err != nil {
			problem(c, http.StatusBadRequest, "%v", err)
			return
		}
		serve(c)
	}
}

// document describes the whole API.
func document(routes []openapi.Route) []byte {
	types := enforce.Types()
	types[reflect.TypeFor[schema.Money]()], types[reflect.TypeFor[schema.Sum]()] = openapi.USD(), openapi.USD()
	return openapi.Document(openapi.Info{
		Title: "Flyball", Version: "v1",
		About: "The HTTP API of Flyball, which governs what AI agents spend. Money is an exact decimal string in USD. Failures are problem+json whose detail says what to do. " +
			"Parameters and fields that are not listed are refused. Telemetry comes over OTLP on ports of its own, and gateways of the Envoy family ask over gRPC.",
		Keys: "A key, fb_ and 64 hex digits. Its role says what it may do, its tenants of whom. Without configured keys only this machine is served, and may do all; then changes are taken as application/json only.",
		Tags: [][2]string{{"Questions", "What was spent, for whom and on what."}, {"SQL", "Read-only SQL over the journal and the rollups."}, {"Guards", "Budgets, and what they do now."}, {"Policy", "The rules of the guards."},
			{"Calls", "Decisions about single calls, and leases."}, {"Limiters", "What enforces the decisions."}, {"Kill switch", "Stops everything."}, {"Pages", "What on-call is told."}, {"Prices", "What calls are priced with."}, {"Service", "The service itself."}},
	}, types, routes)
}

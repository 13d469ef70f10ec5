package query

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/flyball/flyball/schema"
	"github.com/flyball/flyball/schema/openapi"
)

// route is an operation and what answers it: ask, whose request handle has checked
// against the parameters, or serve.
type route struct {
	openapi.Route
	limits limits
	ask    func(context.Context, *request) (any, error)
	serve  gin.HandlerFunc
}

// Routes describe the API.
func (a *API) Routes() (out []openapi.Route) {
	for _, r := range a.routes() {
		out = append(out, r.Route)
	}
	return out
}

// Mount adds the API's routes to a router.
func (a *API) Mount(r gin.IRouter) {
	for _, x := range a.routes() {
		serve := x.serve
		if serve == nil {
			serve = a.handle(x.limits, x.Names(), x.ask)
		}
		r.Handle(x.Method, x.Path, serve)
	}
}

// routes are all of the API's. A parameter that a route does not list is refused.
func (a *API) routes() []route {
	get := func(path, about string, l limits, params []openapi.Param, ok any, ask func(context.Context, *request) (any, error)) route {
		out := route{Route: openapi.Route{Method: http.MethodGet, Path: "/api/v1" + path, Tag: "Questions", About: about, Roles: []string{string(schema.KeyRead)},
			Params: append(params, tenantParam), OK: ok, Fails: []int{400, 503, 504}}, limits: l, ask: ask}
		if strings.Contains(path, "*") || path == "/run" {
			out.Fails = append(out.Fails, 404)
		}
		if names := out.Names(); slices.Contains(names, "format") && slices.Contains(names, "limit") {
			out.OK, out.Answers = nil, map[int]openapi.Answer{http.StatusOK: pageOf(ok)}
		}
		return out
	}
	// A list may be answered as CSV, a page at a time.
	paged := func(l limits, names []string, more ...openapi.Param) []openapi.Param {
		return slices.Concat([]openapi.Param{fromParam, toParam, limitParam(l), cursorParam, formatParam("json", "csv")}, filters(names), more)
	}
	out := []route{
		get("/calls", "Lists calls, oldest first. Of a trace or a run all, else those of the last day.", listLimits,
			paged(listLimits, callFilters[1:], openapi.Param{Name: "trace_id", About: "Calls of one trace.", Schema: openapi.Text(openapi.Schema{"pattern": "^[0-9A-Fa-f]{32}$"}, "")},
				openapi.Param{Name: "run_id", About: "Calls of one run.", Schema: openapi.String("")},
				openapi.Param{Name: "history", About: "1 lists every entry with its sign, not what they come to.", Schema: openapi.Enum("0", "1")}, asOfParam),
			openapi.Fields{"calls": openapi.Array(callSchema), "next": nextSchema, "as_of?": openapi.Time()}, a.calls),
		get("/runs", "Lists the latest runs, the latest first.", listLimits, paged(listLimits, runDimensions[1:], asOfParam), answerOf(openapi.Fields{"rows": openapi.Array(runRow)}), a.runs),
		// A run id is whatever the operator's attribute says, slashes included.
		get("/runs/*id", "Tells one run: its totals, and its calls as a tree. The id that a run had before it was given another answers 301.", limits{},
			[]openapi.Param{{Name: "id", In: "path", About: "The run, percent-encoded; slashes may stand as they are.", Schema: openapi.Text(openapi.Schema{"minLength": 1}, "")}, asOfParam}, runSchema, a.run),
		get("/run", "Tells one run as /runs/{id} does, whatever its id: clients take . and .. at the end of a path for folders.", limits{},
			[]openapi.Param{{Name: "run_id", About: "The run.", Required: true, Schema: openapi.Text(openapi.Schema{"minLength": 1}, "")}, asOfParam}, runSchema, a.run),
		get("/spend", "Tells what was spent. Totals are of everything, even where limit cuts the rows. Times are widened to whole quarters of an hour.", sumLimits,
			paged(sumLimits, dimensions[1:], groupParam(dimensions, "tenant"), intervalParam, asOfParam, currencyParam, ifNoneMatch),
			spendSchema, a.spend),
		get("/amplification", "Tells how much work a request became. By properties of calls the rows do not add up, and additive is false.", sumLimits,
			paged(sumLimits, slices.Concat(runDimensions[1:], callDimensions), groupParam(slices.Concat(runDimensions, callDimensions), "workflow"), asOfParam), answerOf(openapi.Fields{"rows": openapi.Array(amplificationRow), "additive": openapi.Bool()}), a.amplification),
		get("/retries", "Tells who retried what, why, and what was wasted. Times are widened to whole quarters of an hour.", sumLimits,
			paged(sumLimits, retryDimensions[1:], groupParam(retryDimensions, "layer,failure"), asOfParam, currencyParam, ifNoneMatch), retriesSchema, a.retries),
		get("/coverage", "Tells what is not known: what has no price or no usage, and what is wrong in how spans come in.", sumLimits,
			paged(sumLimits, dimensions[1:], asOfParam), coverageSchema, a.coverage),
		get("/movers", "Tells what changed most between two times, and why: effects that sum to the change. Without base_from and base_to it compares with the time before that is as long.", sumLimits,
			paged(sumLimits, dimensions[1:], groupParam(moverDimensions, "tenant"), openapi.Param{Name: "base_from", About: "Begin of the time to compare with.", Schema: instantSchema}, openapi.Param{Name: "base_to", About: "End of the time to compare with, exclusive.", Schema: instantSchema}, asOfParam, currencyParam),
			moversSchema, a.movers),
		get("/load", "Tells how many provider calls so many requests become: requests, steps of each, retries of each step.", sumLimits,
			paged(sumLimits, loadDimensions[1:], groupParam(loadDimensions, "workflow"), intervalParam, asOfParam), loadSchema, a.load),
		get("/rate-limits", "Tells how many attempts providers refused for their rate limits.", sumLimits,
			paged(sumLimits, limitDimensions[1:], groupParam(limitDimensions, "provider,model"), intervalParam, asOfParam), rateLimitsSchema, a.rateLimits),
		get("/worked-after", "Tells what worked after how many retries, and at what cost beside what worked at once.", sumLimits,
			paged(sumLimits, workedDimensions[1:], groupParam(workedDimensions, "layer"), asOfParam, openapi.Param{Name: "of", About: "What is counted.", Schema: ofSchema}), workedSchema, a.workedAfter),
		get("/loops", "Tells which runs repeat tool calls with arguments they had already.", sumLimits,
			paged(sumLimits, runDimensions[1:], groupParam(loopDimensions, "workflow,agent"), asOfParam), loopsSchema, a.loops),
		get("/empty-polls", "Tells which tool calls polled for nothing, and what that cost.", sumLimits,
			paged(sumLimits, toolDimensions[1:], groupParam(toolDimensions, "tool"), asOfParam), emptyPollsSchema, a.emptyPolls),
		get("/payloads", "Tells what tools put into the context, by tool and type.", sumLimits,
			paged(sumLimits, payloadDimensions[1:], groupParam(payloadDimensions, "tool,payload_type"), asOfParam), payloadsSchema, a.payloads),
		get("/cache", "Tells what prompt caches saved.", sumLimits, paged(sumLimits, dimensions[1:], groupParam(dimensions, "provider,model"), asOfParam, currencyParam), cacheSchema, a.cache),
		get("/batch", "Tells what calls that could have waited would have cost as a batch.", sumLimits, paged(sumLimits, dimensions[1:], groupParam(dimensions, "provider,model"), asOfParam, currencyParam), batchSchema, a.batch),
		get("/enforcement", "Lists what enforcement did, the newest first.", eventLimits, paged(eventLimits, eventDimensions[1:]), eventsSchema, a.enforcement),
		get("/enforcement/leakage", "Tells what passed although a directive refused it.", sumLimits, paged(sumLimits, leakDimensions[1:], groupParam(leakDimensions, "guard,limiter"), intervalParam), leakageSchema, a.leakage),
		get("/enforcement/times", "Tells how long limiters took to enforce directives.", sumLimits, paged(sumLimits, timeDimensions[1:], groupParam(timeDimensions, "limiter"), intervalParam), timesSchema, a.enforcementTimes),
		get("/export/focus", "Exports whole days as a FOCUS 1.2 file.", limits{}, []openapi.Param{fromParam, toParam, formatParam("csv", "parquet"), currencyParam, asOfParam}, nil, a.focus),
		get("/close", "Tells a closed month beside what is known now, or without period which months are closed.", sumLimits,
			[]openapi.Param{{Name: "period", About: "A month; required for CSV.", Schema: monthSchema}, limitParam(sumLimits), cursorParam, formatParam("json", "csv"), currencyParam, asOfParam}, closeSchema, a.closeReport),
		get("/reconcile", "Tells a provider's bill beside what was booked, or without id which bills were compared. Needs a key for every tenant.", sumLimits,
			[]openapi.Param{{Name: "id", About: "A comparison; required for CSV.", Schema: openapi.String("")}, limitParam(sumLimits), cursorParam, formatParam("json", "csv")}, reconcileSchema, a.reconciliations),
	}
	for i := range out {
		r := &out[i].Route
		if r.Answers == nil {
			r.Answers = map[int]openapi.Answer{}
		}
		switch {
		case r.Path == "/api/v1/export/focus":
			r.Answers[http.StatusOK] = openapi.Answer{About: "The file.", Content: map[string]any{"text/csv": openapi.String(""), "application/vnd.apache.parquet": openapi.Schema{"type": "string", "format": "binary"}}}
		case r.Path == "/api/v1/runs/*id" || r.Path == "/api/v1/run":
			r.Answers[http.StatusMovedPermanently] = openapi.Answer{About: "The run has another id now.", Headers: map[string]openapi.Header{"Location": {About: "The run.", Schema: openapi.Schema{"type": "string", "format": "uri-reference"}}}}
		case r.Path == "/api/v1/reconcile":
			r.Fails = append(r.Fails, 404)
		case slices.ContainsFunc(r.Params, func(p openapi.Param) bool { return p.Name == ifNoneMatch.Name }):
			r.Answers[http.StatusNotModified] = openapi.Answer{About: "The answer is the one that the caller has."}
		}
	}
	if a.o.Write != nil {
		out = append(out, route{serve: a.close, Route: openapi.Route{Method: http.MethodPost, Path: "/api/v1/close", Tag: "Questions",
			About:  "Freezes what was known of a month, for the tenants of the request or every one. What is closed already stays as it was.",
			Params: []openapi.Param{tenantParam}, Body: openapi.Input(closing{}, openapi.Fields{"period": monthSchema, "as_of": openapi.Text(openapi.Schema{"format": "date"}, "The last UTC day whose entries count; without it yesterday."), "reason": openapi.Text(openapi.Schema{"maxLength": reasonLength}, "What others read later, in the history of enforcement.")}, "period"),
			OK: openapi.Fields{"period": monthSchema, "closed": openapi.Array(closedSchema), "already": openapi.Array(openapi.String(""))}, Fails: []int{400, 409, 415, 503, 504}}})
		out = append(out, route{serve: a.reconcile, Route: openapi.Route{Method: http.MethodPost, Path: "/api/v1/reconcile", Tag: "Questions",
			About: "Compares a provider's bill, which is the body, with what was booked, and keeps the comparison. Needs a key for every tenant.",
			Params: []openapi.Param{tenantParam, {Name: "source", About: "Whose bill it is.", Required: true, Schema: openapi.Enum(billSources...)}, {Name: "again", About: "Whether a bill that was compared before is compared anew.", Schema: openapi.Enum("true", "false")}, asOfParam,
				{Name: "from", About: "First UTC day; without it the bill's.", Schema: openapi.Text(openapi.Schema{"format": "date"}, "")}, {Name: "to", About: "UTC day after the last.", Schema: openapi.Text(openapi.Schema{"format": "date"}, "")}},
			Body: &openapi.Body{Type: "application/json", Schema: openapi.Schema{}}, OK: reconciled, Fails: []int{400, 413, 415, 503, 504}}})
	}
	if a.o.SQL != nil {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			r := openapi.Route{Method: method, Path: "/api/v1/sql", Tag: "SQL", Roles: []string{string(schema.KeyRead)},
				About: "Runs one read-only statement on ClickHouse, over every tenant. Parameters, formats and failures are those of ClickHouse's HTTP interface.",
				Params: []openapi.Param{{Name: "query", About: "The statement, or its beginning where the body goes on.", Required: method == http.MethodGet, Schema: openapi.String("")},
					{Name: "default_format", About: "The format where the statement says none, e.g. JSONEachRow.", Schema: openapi.String("")}},
				Answers: map[int]openapi.Answer{}, Fails: []int{400, 401, 403}}
			for status, about := range map[int]string{200: "The rows in the format that was asked for.", 404: "A name is unknown.", 408: "It took too long.", 500: "ClickHouse failed.", 501: "clickhouse.dsn is set: ask that server itself.", 503: "ClickHouse cannot answer now."} {
				r.Answers[status] = openapi.Answer{About: about, Content: map[string]any{"*/*": openapi.Schema{}}}
			}
			if method == http.MethodPost {
				r.Body = &openapi.Body{Type: "text/plain", Schema: openapi.String("The statement.")}
			}
			out = append(out, route{serve: a.sql, Route: r})
		}
	}
	return out
}

const instantPattern = `^(197[1-9]|19[89][0-9]|20[0-9]{2}|210[0-5])-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])(T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9]))?$`

// instantSchema is what request.instant reads, knownSchema what as_of is.
var (
	instantSchema = openapi.Text(openapi.Schema{"pattern": instantPattern + "|^(last-)?month$", "examples": []string{"2026-11-29T10:00:00Z", "2026-11-29", "month"}}, "RFC 3339, a date of the tenant's zone, or month or last-month, where that begins.")
	knownSchema   = openapi.Text(openapi.Schema{"pattern": instantPattern, "examples": []string{"2026-11-29T10:00:00Z", "2026-11-29"}}, "RFC 3339, or a UTC date.")
)

var (
	tenantParam = openapi.Param{Name: "tenant", About: "A tenant that the key may see, several times for several; without it all that the key may see.", Many: true, Schema: openapi.Array(openapi.Text(openapi.Schema{"minLength": 1}, ""))}
	fromParam   = openapi.Param{Name: "from", About: "Begin of the time; without it a day before its end.", Schema: instantSchema}
	toParam     = openapi.Param{Name: "to", About: "End of the time, exclusive; without it now, and 15 minutes for clocks that are ahead.", Schema: instantSchema}
	cursorParam = openapi.Param{Name: "cursor", About: "next of the last answer, for the page after it; empty is the first page. All else has to be as it was.", Schema: openapi.Text(openapi.Schema{"pattern": "^[A-Za-z0-9_-]*$"}, "")}
	asOfParam   = openapi.Param{Name: "as_of", About: "As it was known at the end of a UTC day that is over, or before an instant.", Schema: knownSchema}
	ifNoneMatch = openapi.Param{Name: "If-None-Match", In: "header", About: "The ETag of an answer that the caller has.", Schema: openapi.String("")}
)

var currencyParam = openapi.Param{Name: "currency", About: "Also in this currency, by the configured rates of each day.", Schema: openapi.Text(openapi.Schema{"pattern": "^[A-Z]{3}$", "examples": []string{"EUR"}}, "")}

var intervalParam = openapi.Param{Name: "interval", About: "Sums by time: buckets that begin in the tenant's zone.", Schema: openapi.Enum(intervalNames()...)}

func limitParam(l limits) openapi.Param {
	s := openapi.Integer(1, int64(l.most))
	s["default"] = l.usual
	return openapi.Param{Name: "limit", About: "Rows of the answer at the most. As CSV, the most is the default.", Schema: s}
}

func formatParam(words ...string) openapi.Param {
	return openapi.Param{Name: "format", About: "The form of the answer; goes before the Accept header. The first is the default.", Schema: openapi.Enum(words...)}
}

func groupParam(names []string, byDefault string) openapi.Param {
	return openapi.Param{Name: "group_by", About: "What the sums are by, separated by commas; empty is one sum of all. The default is " + byDefault + ".", Schema: openapi.Array(openapi.Enum(names...))}
}

// filters are the parameters that choose rows by the value of a dimension.
func filters(names []string) (out []openapi.Param) {
	for _, n := range names {
		out = append(out, openapi.Param{Name: n, About: "Only what has this " + strings.ReplaceAll(n, "_", " ") + "; empty is what has none.", Schema: openapi.String("")})
	}
	return out
}

func intervalNames() (out []string) {
	for _, i := range intervals {
		out = append(out, i.name)
	}
	return out
}

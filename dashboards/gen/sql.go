package main

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"text/template"
)

// quarters is the time that is shown, widened to the whole quarters of an hour that
// the rollup is made of, as the API does with from and to.
const quarters = "at >= toStartOfFifteenMinutes($__fromTime) AND at < $__toTime"

// named is a dimension's value as boards show it. An empty value is no choice that
// Grafana can offer, so it has a name.
func named(dim string) string {
	if dim == "tenant" { // never empty, and the first column of every key
		return dim
	}
	return "if(" + dim + " = '', '(none)', " + dim + ")"
}

// chosen is the condition of a variable, absent where All is chosen.
func chosen(dim string) string {
	return "$__conditionalAll(" + named(dim) + " IN (${" + dim + ":singlequote}), $" + dim + ")"
}

func label(dim string) string {
	return strings.ToUpper(dim[:1]) + strings.ReplaceAll(dim[1:], "_", " ")
}

// agentRuns has the runs that began in the time, as the API asks for them: what each is and
// its sums, to be added up with sign, since a run that changed has a row for what it was.
// The times of Grafana stand for the API's, and what run_states has is asked for in the same
// statement. A run without a model call is no agent run.
var agentRuns = func() string {
	t := template.Must(template.ParseFiles("../../schema/run_states.sql", "../../query/sql/run_info.sql"))
	render := func(name string, vars any) string {
		var b strings.Builder
		if err := t.ExecuteTemplate(&b, name, vars); err != nil {
			panic("BUG: " + err.Error())
		}
		text := regexp.MustCompile(`--.*`).ReplaceAllString(b.String(), "")
		return strings.Join(strings.Fields(text), " ")
	}
	text := render("agent_runs", map[string]any{
		"Tenants": "{tenants}", "RunFilter": "{runs}", "Info": []string{"user", "feature", "workflow", "workflow_version", "environment"},
		"Folded": "folded", "Open": "opened", "Until": "", "Part": "", "Within": "",
	})
	text = strings.NewReplacer("{from:String}", "$__fromTime", "{to:String}", "$__toTime", " UNION ALL ", "\n        UNION ALL ").Replace(text)
	return `WITH ` + render("folded", nil) + ` AS folded, ` + render("of_last_day", nil) + ` AS of_last_day, if(of_last_day > toDateTime64(0, 6, 'UTC'), of_last_day, toDateTime64(folded + 1, 6, 'UTC')) AS opened
    SELECT tenant, run_hash, run_check, started_at, user, feature, workflow, workflow_version, environment, sign, model_calls + tool_calls AS logical, retries AS again, fallbacks AS other, hedges AS hedged,
        repeats AS repeated, unpriced AS no_price, unknown AS no_usage, cost AS pico, wasted AS pico_wasted, logical + again + other + hedged AS work
    FROM (
        ` + text + `
    )`
}()

// The sums of runs. How many runs did how much is what quantiles over runs are made of:
// quantile takes the first whose place, in the order of work, is behind that part of all.
const (
	requests = "sum(sign)"
	works    = "sum(sign * work)"
	logicals = "sum(sign * logical)"
	spends   = "toFloat64(sum(sign * pico)) / 1e12"
	wastes   = "toFloat64(sum(sign * pico_wasted)) / 1e12"
	spread   = "sumMap([work], [toInt64(sign)])"
)

func quantile(level string) string {
	return "toFloat64(spread.1[arrayFirstIndex(n -> n > floor(" + level + " * requests), arrayCumSum(spread.2))])"
}

// began is that a row was booked on a day on which one of a run that began in the time may be.
const began = "booked_on >= toDate($__fromTime - INTERVAL 10 MINUTE, 'UTC')"

// bookedSince is before every entry of runs that began in the time.
const bookedSince = `(SELECT toDateTime(min(booked_on), 'UTC') FROM runs WHERE {tenants} AND run_hash IN (SELECT run_hash FROM ({agent_runs})))`

// fragments stand in for what many statements share, in the order in which they are
// expanded.
var fragments = []struct{ name, sql string }{
	{"{booked_since}", bookedSince},
	{"{agent_runs}", agentRuns},
	{"{requests}", requests},
	{"{works}", works},
	{"{logicals}", logicals},
	{"{spends}", spends},
	{"{wastes}", wastes},
	{"{spread}", spread},
	{"{p50}", quantile("0.5")},
	{"{p90}", quantile("0.9")},
	{"{p99}", quantile("0.99")},
	{"{began}", began},
	{"{time}", quarters},
	{"{calls}", chosen("tenant") + " AND " + chosen("feature") + " AND " + chosen("model") + " AND " + chosen("environment")},
	{"{runs}", chosen("feature") + " AND " + chosen("environment")},
	{"{tenants}", chosen("tenant")},
	{"{whose}", "(tenant = '' OR " + chosen("tenant") + ")"}, // what concerns the whole org concerns each
	{"{model}", chosen("model")},
	// What bills, and agents, whose spans may stand for calls that nobody sent.
	{"{billed}", "kind IN ('model', 'embedding', 'rerank', 'image', 'speech', 'transcription', 'agent')"},
}

// sql expands fragments and {name} pairs.
func sql(text string, pairs ...string) string {
	text = strings.TrimSpace(text)
	text = strings.NewReplacer(pairs...).Replace(text)
	for _, f := range fragments {
		text = strings.ReplaceAll(text, f.name, f.sql)
	}
	return text
}

// rows is a statement for a table or a number, series one for a graph.
func rows(text string, pairs ...string) query { return query{sql: sql(text, pairs...)} }

func series(text string, pairs ...string) query {
	return query{sql: sql(text, pairs...), series: true}
}

// prom is PromQL for a graph, now for a number.
func prom(expr, legend string) query { return query{expr: expr, legend: legend} }

func now(expr, legend string) query { return query{expr: expr, legend: legend, now: true} }

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// Places that values lead to. The console's pages take what the API takes.
const (
	shownTime = "from=${__from:date:iso}&to=${__to:date:iso}"
	console   = "${console:raw}/#/runs?"
	api       = "${console:raw}/api/v1/"
)

// field is a column's value of the row that was clicked, labelled a series' label.
func field(name string) string { return "${__data.fields." + name + ":percentencode}" }

func labelled(name string) string { return "${__field.labels." + name + ":percentencode}" }

// runsOf leads to the runs that have the values of a row's columns.
func runsOf(columns ...string) []link {
	u := console + shownTime
	for _, c := range columns {
		u += "&" + c + "=" + field(c)
	}
	return []link{{"Runs", u}}
}

// allRuns leads to the runs of the time.
var allRuns = []link{{"Runs", console + shownTime}}

// oneRun leads from a run to its report and to its trace.
var oneRun = []link{
	{"Run", "${console:raw}/#/runs/" + field("run_id") + "?tenant=" + field("tenant")},
	{"Run as JSON", api + "runs/" + field("run_id") + "?tenant=" + field("tenant")},
	{"Trace", "${trace_url:raw}" + field("trace_id")},
}

// runList is a table of the single runs that have the most by a sum, with the trace in which each began.
// A run has a few rows, of which those of what it was take themselves out: the ten thousand rows with the most
// hold more runs than a list shows. They are worked out once, as a constant, whose hashes find the few
// rows of the other tables.
func runList(by string) query {
	return rows(`
WITH (
    SELECT groupArray((run_hash, run_check, tenant, started_at, workflow, feature, user, work, again, repeated, pico, pico_wasted, missing))
    FROM (
        SELECT run_hash, run_check, tenant, started_at, workflow, feature, user, work, again, repeated, pico, pico_wasted, missing
        FROM (SELECT *, no_price + no_usage AS missing FROM ({agent_runs}) WHERE {by} > 0 ORDER BY {by} DESC LIMIT 10000)
        GROUP BY ALL HAVING sum(sign) > 0
        ORDER BY {by} DESC, tenant, run_hash LIMIT ${top}
    )
) AS top
SELECT r.run_id AS run_id, t.x.3 AS tenant, t.x.4 AS started, r.stood AS status, t.x.5 AS workflow, t.x.6 AS feature, t.x.7 AS user,
    t.x.8 AS work, t.x.9 AS again, t.x.10 AS repeated, toFloat64(t.x.11) / 1e12 AS spend, toFloat64(t.x.12) / 1e12 AS waste, t.x.13 AS no_cost, j.trace_id AS trace_id
FROM (SELECT arrayJoin(top) AS x) AS t
LEFT JOIN (
    SELECT tenant, run_id, any(run_hash) AS hash, sipHash64(tenant, run_id) AS code, toString(argMax(status, version)) AS stood
    FROM run_info
    WHERE {named_runs}
    GROUP BY tenant, run_id
) AS r ON r.hash = t.x.1 AND r.code = t.x.2
LEFT JOIN (
    SELECT tenant, run_id, lower(hex(argMin(trace_id, started_at))) AS trace_id
    FROM journal
    WHERE sign = 1 AND started_at >= $__fromTime AND started_at < $__toTime AND recorded_at >= $__fromTime - INTERVAL 10 MINUTE
        AND run_id IN (SELECT run_id FROM run_info WHERE {named_runs}) AND (tenant, run_id) IN (SELECT tenant, run_id FROM run_info WHERE {named_runs})
    GROUP BY tenant, run_id
) AS j ON j.tenant = r.tenant AND j.run_id = r.run_id
ORDER BY {shown} DESC, tenant, run_id
SETTINGS max_bytes_before_external_group_by = 300000000, max_execution_time = 20`, "{by}", by, "{named_runs}", "{tenants} AND {began} AND run_hash IN (SELECT arrayJoin(top).1)", "{shown}", strings.Replace(by, "pico", "spend", 1))
}

var runColumns = []column{
	{name: "run_id", title: "Run", unit: words, width: 260, links: oneRun},
	{name: "tenant", title: "Tenant", unit: words, links: runsOf("tenant")},
	{name: "started", title: "Started", unit: instant, width: 170},
	{name: "status", title: "Status", unit: words},
	{name: "workflow", title: "Workflow", unit: words, empty: "(none)"},
	{name: "feature", title: "Feature", unit: words, empty: "(none)"},
	{name: "user", title: "User", unit: words, empty: "(none)"},
	{name: "work", title: "Work", unit: count},
	{name: "again", title: "Retries", unit: count},
	{name: "repeated", title: "Repeats", unit: count},
	{name: "spend", title: "Spend", unit: usd},
	{name: "waste", title: "Wasted", unit: usd},
	{name: "no_cost", title: "Calls without a cost", unit: count, steps: warnAny},
	{name: "trace_id", title: "Trace", unit: words, width: 260, links: oneRun[2:]},
}

package main

import (
	"maps"
	"slices"
	"strings"
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

// runIDs are at least the runs that began in the time: a run's newest row decides,
// and if that is one of them, then a row that lies in the time is too. Nothing is
// recorded more than ten minutes before it started.
const runIDs = `SELECT tenant, run_id FROM run_info WHERE {tenants} AND booked_on >= toDate($__fromTime - INTERVAL 10 MINUTE, 'UTC') AND started_at >= $__fromTime AND started_at < $__toTime AND {runs}`

// agentRuns has a row for each run that began in the time: what it is, by its newest
// row, and its signed sums. A run without a model call is no agent run.
const agentRuns = `SELECT i.tenant AS tenant, i.run_id AS run_id, i.started_at AS started_at, i.status AS status, i.user AS user, i.feature AS feature, i.workflow AS workflow, i.workflow_version AS workflow_version,
        r.logical AS logical, r.again AS again, r.other AS other, r.hedged AS hedged, r.repeated AS repeated, r.no_price AS no_price, r.no_usage AS no_usage, r.spend AS spend, r.waste AS waste,
        logical + again + other + hedged AS work
    FROM (
        SELECT tenant, run_id, sum(s.model_calls) AS models, models + sum(s.tool_calls) AS logical, sum(s.retries) + sum(s.hidden_attempts) AS again, sum(s.fallbacks) AS other, sum(s.hedges) AS hedged,
            sum(s.repeats) AS repeated, sum(s.unpriced) AS no_price, sum(s.unknown) AS no_usage, toFloat64(sum(s.cost)) / 1e12 AS spend, toFloat64(sum(s.wasted)) / 1e12 AS waste
        FROM runs AS s
        WHERE {tenants} AND (tenant, run_id) IN ({run_ids})
        GROUP BY tenant, run_id
        HAVING models > 0
    ) AS r
    INNER JOIN (
        SELECT tenant, run_id, newest_started_at AS started_at, newest_status AS status, newest_user AS user, newest_feature AS feature, newest_workflow AS workflow, newest_workflow_version AS workflow_version, newest_environment AS environment
        FROM (
            SELECT tenant, run_id, argMax(started_at, version) AS newest_started_at, toString(argMax(status, version)) AS newest_status, argMax(user, version) AS newest_user, argMax(feature, version) AS newest_feature,
                argMax(workflow, version) AS newest_workflow, argMax(workflow_version, version) AS newest_workflow_version, argMax(environment, version) AS newest_environment
            FROM run_info
            WHERE {tenants} AND (tenant, run_id) IN ({run_ids})
            GROUP BY tenant, run_id
        )
        WHERE started_at >= $__fromTime AND started_at < $__toTime AND {runs}
    ) AS i ON i.tenant = r.tenant AND i.run_id = r.run_id`

// fragments stand in for what many statements share, in the order in which they are
// expanded.
var fragments = []struct{ name, sql string }{
	{"{agent_runs}", agentRuns},
	{"{run_ids}", runIDs},
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

// runList is a table of single runs with the trace in which each began.
func runList(order, having string) query {
	return rows(`
WITH top AS (
    SELECT * FROM ({agent_runs})
    WHERE {having}
    ORDER BY {order}, tenant, run_id
    LIMIT ${top}
)
SELECT t.run_id AS run_id, t.tenant AS tenant, t.started_at AS started, t.status AS status, t.workflow AS workflow, t.feature AS feature, t.user AS user,
    t.work AS work, t.again AS again, t.repeated AS repeated, t.spend AS spend, t.waste AS waste, t.no_price + t.no_usage AS no_cost, j.trace_id AS trace_id
FROM top AS t
LEFT JOIN (
    SELECT tenant, run_id, lower(hex(argMin(trace_id, started_at))) AS trace_id
    FROM journal
    WHERE sign = 1 AND started_at >= $__fromTime AND started_at < $__toTime AND recorded_at >= $__fromTime - INTERVAL 10 MINUTE AND (tenant, run_id) IN (SELECT tenant, run_id FROM top)
    GROUP BY tenant, run_id
) AS j ON j.tenant = t.tenant AND j.run_id = t.run_id
ORDER BY {order}, tenant, run_id`, "{order}", order, "{having}", having)
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

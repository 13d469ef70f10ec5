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

// runKey is a number for each run, by which rows are grouped faster than by two names; of
// 128 bits, so that no two runs share one.
const runKey = "reinterpretAsUInt128(sipHash128(tenant, run_id))"

// runDay is the first day on which a row may be booked of a run that began in the time:
// nothing is recorded more than ten minutes before it started.
const runDay = "toDate($__fromTime - INTERVAL 10 MINUTE, 'UTC')"

// began is that a run began in the time, told as started_at is, which compares faster.
const began = "started_at >= toDateTime64($__fromTime, 9, 'UTC') AND started_at < toDateTime64($__toTime, 9, 'UTC')"

// runCandidates finds the newest row of a run, if that is of the time, and more: rows that
// are not the newest, or are of another run with the same hash.
const runCandidates = `{tenants} AND booked_on >= {run_day} AND {began} AND {runs}`

// runRows are at least the newest row of each run that began in the time, and whatever
// else could be the newest. A row that a root gave beats every row that was booked before it,
// so that those are looked for only of the other runs.
const runRows = `SELECT * FROM run_info WHERE {tenants} AND booked_on >= {run_day} AND run_hash IN (SELECT run_hash FROM run_info WHERE {run_candidates})
            UNION ALL
            SELECT * FROM run_info WHERE {tenants} AND booked_on < {run_day} AND run_hash IN (SELECT run_hash FROM run_info WHERE {run_candidates} AND version < bitShiftLeft(toUInt64(1), 62))`

// agentRuns has a row for each run that began in the time: what it is, by its newest
// row, and its signed sums. A run without a model call is no agent run. The rows of both
// tables are grouped once, as in the API: a join would hold both sides in memory.
const agentRuns = `SELECT run_key, newest_tenant AS tenant, newest_run_id AS run_id, newest_started_at AS started_at, newest_status AS status, newest_user AS user, newest_feature AS feature, newest_workflow AS workflow, newest_workflow_version AS workflow_version,
        newest_environment AS environment, logical, again, other, hedged, repeated, no_price, no_usage, spend, waste, logical + again + other + hedged AS work
    FROM (
        SELECT run_key, any(s.tenant) AS newest_tenant, any(s.run_id) AS newest_run_id,
            argMax(s.started_at, s.version) AS newest_started_at, argMax(s.status, s.version) AS newest_status, argMax(s.user, s.version) AS newest_user, argMax(s.feature, s.version) AS newest_feature,
            argMax(s.workflow, s.version) AS newest_workflow, argMax(s.workflow_version, s.version) AS newest_workflow_version, argMax(s.environment, s.version) AS newest_environment,
            sum(s.model_calls) AS models, models + sum(s.tool_calls) AS logical, sum(s.retries) + sum(s.hidden_attempts) AS again, sum(s.fallbacks) AS other, sum(s.hedges) AS hedged,
            sum(s.repeats) AS repeated, sum(s.unpriced) AS no_price, sum(s.unknown) AS no_usage, toFloat64(sum(s.cost)) / 1e12 AS spend, toFloat64(sum(s.wasted)) / 1e12 AS waste
        FROM (
            SELECT {run_key} AS run_key, tenant, run_id, toUInt64(0) AS version, toDateTime64(0, 9, 'UTC') AS started_at, '' AS status, '' AS user, '' AS feature, '' AS workflow, '' AS workflow_version, '' AS environment,
                model_calls, tool_calls, retries, hidden_attempts, fallbacks, hedges, repeats, unpriced, unknown, cost, wasted
            FROM runs
            WHERE {tenants} AND run_hash IN (SELECT run_hash FROM run_info WHERE {run_candidates})
            UNION ALL
            SELECT {run_key} AS run_key, tenant, run_id, version, started_at, toString(i.status), user, feature, workflow, workflow_version, environment,
                toInt64(0), toInt64(0), toInt64(0), toInt64(0), toInt64(0), toInt64(0), toInt64(0), toInt64(0), toInt64(0), toInt128(0), toInt128(0)
            FROM ({run_rows}) AS i
        ) AS s
        GROUP BY run_key
        HAVING models > 0
    )
    WHERE {began} AND {runs}`

// bookedSince is before every entry of runs that began in the time.
const bookedSince = `(SELECT toDateTime(min(booked_on), 'UTC') FROM runs WHERE {tenants} AND run_hash IN (SELECT run_hash FROM run_info WHERE {run_candidates}) AND {run_key} IN (SELECT {run_key} FROM run_info WHERE {run_candidates}))`

// fragments stand in for what many statements share, in the order in which they are
// expanded.
var fragments = []struct{ name, sql string }{
	{"{agent_runs}", agentRuns},
	{"{booked_since}", bookedSince},
	{"{run_rows}", runRows},
	{"{run_candidates}", runCandidates},
	{"{run_day}", runDay},
	{"{began}", began},
	{"{run_key}", runKey},
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

// runList is a table of single runs with the trace in which each began. What the runs
// are is worked out once, as a constant, whose ids find the few granules of the journal.
// A million runs, with all that is shown of them, are more than one question may hold in memory.
func runList(order, having string) query {
	return rows(`
WITH (
    SELECT groupArray((run_id, tenant, started_at, status, workflow, feature, user, work, again, repeated, spend, waste, no_price + no_usage))
    FROM (SELECT * FROM ({agent_runs}) WHERE {having} ORDER BY {order}, tenant, run_id LIMIT ${top})
) AS top
SELECT t.x.1 AS run_id, t.x.2 AS tenant, t.x.3 AS started, t.x.4 AS status, t.x.5 AS workflow, t.x.6 AS feature, t.x.7 AS user,
    t.x.8 AS work, t.x.9 AS again, t.x.10 AS repeated, t.x.11 AS spend, t.x.12 AS waste, t.x.13 AS no_cost, j.trace_id AS trace_id
FROM (SELECT arrayJoin(top) AS x) AS t
LEFT JOIN (
    SELECT tenant, run_id, lower(hex(argMin(trace_id, started_at))) AS trace_id
    FROM journal
    WHERE sign = 1 AND started_at >= $__fromTime AND started_at < $__toTime AND recorded_at >= $__fromTime - INTERVAL 10 MINUTE
        AND run_id IN (SELECT arrayJoin(top).1) AND (tenant, run_id) IN (SELECT y.2, y.1 FROM (SELECT arrayJoin(top) AS y))
    GROUP BY tenant, run_id
) AS j ON j.tenant = t.x.2 AND j.run_id = t.x.1
ORDER BY {order}, tenant, run_id
SETTINGS max_bytes_before_external_group_by = 300000000, max_execution_time = 20`, "{order}", order, "{having}", having)
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

package main

// amplification is what an SRE reads: how much work a request fans out into, and
// what is tried again.
func amplification() *board {
	d := newBoard("flyball-amplification", "Flyball: Amplification and retries", "Into how much work a user request fans out, who tries again, why, and what that costs.", "browser", "now-24h", "now")
	d.dimensions()
	d.acted()
	d.console()
	d.traces()

	const ofRuns = " Of runs that began in the time and have a model call; the variable Model does not apply."
	d.row("Ratios")
	d.number(panel{title: "Amplification", width: 4, height: 4, unit: ratio, decimals: two, links: allRuns, none: "no requests",
		about:   "Attempts of model and tool calls (logical calls, retries, hidden attempts inside an SDK, fallbacks, hedges) over requests: a quotient of signed sums." + ofRuns,
		queries: []query{rows(`SELECT {works} / nullIf({requests}, 0) AS ratio FROM ({agent_runs})`)}})
	d.number(panel{title: "Amplification of a run", width: 8, height: 4, unit: ratio, links: allRuns, names: map[string]string{"p50": "p50", "p90": "p90", "p99": "p99"}, none: "no requests",
		about: "Exact quantiles, over runs, of the attempts of model and tool calls in a run." + ofRuns,
		queries: []query{rows(`
SELECT if(requests = 0, NULL, {p50}) AS p50, if(requests = 0, NULL, {p90}) AS p90, if(requests = 0, NULL, {p99}) AS p99
FROM (SELECT {requests} AS requests, {spread} AS spread FROM ({agent_runs}))`)}})
	d.number(panel{title: "Retry multiplier", width: 4, height: 4, unit: ratio, decimals: two, steps: []step{{1.1, "orange"}, {1.5, "red"}}, none: "no calls",
		about:   "Attempts over logical calls; 1 is no retry at all." + ofRuns,
		queries: []query{rows(`SELECT {works} / nullIf({logicals}, 0) AS multiplier FROM ({agent_runs})`)}})
	d.number(panel{title: "Cost amplification", width: 4, height: 4, unit: ratio, decimals: two, steps: []step{{1.1, "orange"}, {1.5, "red"}}, none: "no spend",
		about:   "Spend over the spend of attempts that were used; 1 is no waste." + ofRuns,
		queries: []query{rows(`SELECT {spends} / nullIf(greatest({spends} - {wastes}, 0), 0) AS amplified FROM ({agent_runs})`)}})
	d.number(panel{title: "Wasted", width: 4, height: 4, unit: usd, links: []link{{"Retries as JSON", api + "retries?" + shownTime}},
		about:   "Signed sum of the cost of attempts that were not used, from spend_15m.",
		queries: []query{rows(`SELECT toFloat64(sum(wasted)) / 1e12 AS waste FROM spend_15m WHERE {time} AND {calls}`)}})
	d.number(panel{title: "Requests", width: 4, height: 4, unit: count, links: allRuns,
		about:   "Runs that began in the time and have a model call.",
		queries: []query{rows(`SELECT {requests} AS requests FROM ({agent_runs})`)}})
	d.number(panel{title: "Retries", width: 4, height: 4, unit: count,
		about:   "Attempts after the first, with a span of their own or hidden inside an SDK; from spend_15m.",
		queries: []query{rows(`SELECT sum(retries) + sum(hidden_attempts) AS again FROM spend_15m WHERE {time} AND {calls}`)}})
	d.number(panel{title: "Fallbacks", width: 4, height: 4, unit: count,
		about:   "Attempts after a failure with another provider or model; from spend_15m.",
		queries: []query{rows(`SELECT sum(fallbacks) AS other FROM spend_15m WHERE {time} AND {calls}`)}})
	d.number(panel{title: "Hedges", width: 4, height: 4, unit: count,
		about:   "Attempts with equal arguments that overlap another one; from spend_15m.",
		queries: []query{rows(`SELECT sum(hedges) AS hedged FROM spend_15m WHERE {time} AND {calls}`)}})
	d.number(panel{title: "Repeated tool calls", width: 4, height: 4, unit: count, steps: warnAny,
		about:   "Tool calls with arguments that the same run had used before: what a loop looks like. From spend_15m; the variable Model takes tool calls out, which have none.",
		queries: []query{rows(`SELECT sum(repeats) AS repeated FROM spend_15m WHERE {time} AND {calls}`)}})
	d.number(panel{title: "Rate limited", width: 4, height: 4, unit: share, steps: []step{{0.02, "orange"}, {0.1, "red"}}, none: "no calls",
		about:   "Attempts of model calls that the provider refused for rate or quota (429 and its equivalents), hidden ones included, over all attempts of model calls; from spend_15m.",
		queries: []query{rows(`SELECT (sumIf(calls, failure = 'rate_limited') + sumIf(hidden_attempts, hidden_cause = 'rate_limited')) / nullIf(sum(calls) + sum(hidden_attempts), 0) AS part FROM spend_15m WHERE {time} AND {calls} AND {billed}`)}})

	d.row("Over time")
	d.graph(panel{title: "Amplification of a run", width: 12, height: 8, unit: ratio, links: allRuns, names: map[string]string{"mean": "all work / requests"},
		about: "By the interval in which runs began: attempts of model and tool calls over requests, and exact quantiles over runs. The variable Model does not apply.",
		queries: []query{series(`
SELECT time, attempts / requests AS mean, {p50} AS p50, {p90} AS p90, {p99} AS p99
FROM (SELECT $__timeInterval(started_at) AS time, {requests} AS requests, {works} AS attempts, {spread} AS spread FROM ({agent_runs}) GROUP BY time HAVING requests > 0)
ORDER BY time`)}})
	d.graph(panel{title: "Retry multiplier and cost amplification", width: 12, height: 8, unit: ratio, names: map[string]string{"multiplier": "attempts / logical calls", "amplified": "spend / used spend"},
		about: "By the interval in which runs began: attempts over logical calls, and spend over the spend of attempts that were used. The variable Model does not apply.",
		queries: []query{series(`
SELECT $__timeInterval(started_at) AS time, {works} / nullIf({logicals}, 0) AS multiplier, {spends} / nullIf(greatest({spends} - {wastes}, 0), 0) AS amplified
FROM ({agent_runs})
GROUP BY time
HAVING {requests} > 0
ORDER BY time`)}})
	d.graph(panel{title: "Retries by layer and failure", width: 12, height: 8, unit: count, bars: true, stacked: true, each: "${__field.labels.by_cause}",
		about: "Retries in each interval, by who tried again and the failure that caused it. Attempts hidden inside an SDK stand under sdk. From spend_15m.",
		queries: []query{series(`
SELECT $__timeInterval(at) AS time, concat(x.1, ': ', if(x.2 = '', 'no failure seen', x.2)) AS by_cause, sum(x.3) AS again
FROM spend_15m
ARRAY JOIN [(toString(retry_layer), toString(retry_cause), retries), ('sdk', toString(hidden_cause), hidden_attempts)] AS x
WHERE {time} AND {calls}
GROUP BY time, by_cause
HAVING again != 0
ORDER BY time, by_cause`)}})
	d.graph(panel{title: "Wasted by failure", width: 12, height: 8, unit: usd, bars: true, stacked: true, each: "${__field.labels.by_failure}",
		about: "Cost in each interval of attempts that were not used, by their own failure; a hedge has none. From spend_15m.",
		queries: []query{series(`
SELECT $__timeInterval(at) AS time, if(failure = '', 'no failure', toString(failure)) AS by_failure, toFloat64(sum(wasted)) / 1e12 AS waste
FROM spend_15m
WHERE {time} AND {calls}
GROUP BY time, by_failure
HAVING waste != 0
ORDER BY time, by_failure`)}})
	d.graph(panel{title: "Rate limited by model", width: 12, height: 8, unit: share, each: "${__field.labels.by_model}", links: []link{{"Calls as JSON", api + "calls?" + shownTime + "&failure=rate_limited&model=" + labelled("by_model")}},
		about: "Attempts that were refused for rate or quota, hidden ones included, over all attempts, in each interval. Models with at least one such attempt, most of them first, as many as Top says. From spend_15m.",
		queries: []query{series(`
SELECT $__timeInterval(at) AS time, {named} AS by_model, (sumIf(calls, failure = 'rate_limited') + sumIf(hidden_attempts, hidden_cause = 'rate_limited')) / nullIf(sum(calls) + sum(hidden_attempts), 0) AS part
FROM spend_15m
WHERE {time} AND {calls} AND {billed} AND model IN (
    SELECT model FROM spend_15m
    WHERE {time} AND {calls} AND {billed} AND (failure = 'rate_limited' OR hidden_cause = 'rate_limited')
    GROUP BY model ORDER BY sum(calls) + sum(hidden_attempts) DESC, model LIMIT ${top})
GROUP BY time, by_model
ORDER BY time, by_model`, "{named}", named("model"))}})
	d.graph(panel{title: "Repeats, fallbacks and hedges", width: 12, height: 8, unit: count, bars: true, names: map[string]string{"repeated": "repeated tool calls", "other": "fallbacks", "hedged": "hedges"},
		about: "Signed counts in each interval, from spend_15m: tool calls with arguments the run had used before, attempts with another provider or model, attempts that overlap an equal one.",
		queries: []query{series(`
SELECT $__timeInterval(at) AS time, sum(repeats) AS repeated, sum(fallbacks) AS other, sum(hedges) AS hedged
FROM spend_15m
WHERE {time} AND {calls}
GROUP BY time
ORDER BY time`)}})

	d.row("Who and why")
	d.list(panel{title: "Retries by layer and failure", width: 12, height: 9, unit: count,
		about: "Retries, fallbacks and hedges under the layer that made them and the failure that caused them; attempts hidden inside an SDK under sdk. Waste stands under the layer that made the wasted attempt and that attempt's own failure. From spend_15m.",
		queries: []query{rows(`
SELECT x.1 AS layer, x.2 AS cause, sum(x.3) AS again, sum(x.4) AS other, sum(x.5) AS hedged, toFloat64(sum(x.6)) / 1e12 AS waste
FROM spend_15m
ARRAY JOIN [
    (toString(retry_layer), toString(retry_cause), retries, fallbacks, hedges, toInt128(0)),
    ('sdk', toString(hidden_cause), hidden_attempts, 0, 0, toInt128(0)),
    (toString(retry_layer), toString(failure), 0, 0, 0, wasted)] AS x
WHERE {time} AND {calls}
GROUP BY layer, cause
HAVING again != 0 OR other != 0 OR hedged != 0 OR waste != 0
ORDER BY waste DESC, again DESC, layer, cause`)},
		columns: []column{
			{name: "layer", title: "Layer", unit: words, empty: "first attempt"},
			{name: "cause", title: "Failure", unit: words, empty: "(none)"},
			{name: "again", title: "Retries", unit: count},
			{name: "other", title: "Fallbacks", unit: count},
			{name: "hedged", title: "Hedges", unit: count},
			{name: "waste", title: "Wasted", unit: usd},
		}})
	limited := []link{{"Calls as JSON", api + "calls?" + shownTime + "&failure=rate_limited&provider=" + field("provider") + "&model=" + field("model")}}
	d.list(panel{title: "Failures by model", width: 12, height: 9, unit: count,
		about: "Attempts of model calls by how they failed, hidden attempts under what caused them, and what the failed ones cost. From spend_15m.",
		queries: []query{rows(`
SELECT provider, model, sum(calls) + sum(hidden_attempts) AS attempts,
    sumIf(calls, failure = 'rate_limited') + sumIf(hidden_attempts, hidden_cause = 'rate_limited') AS limited,
    sumIf(calls, failure = 'overloaded') + sumIf(hidden_attempts, hidden_cause = 'overloaded') AS overload,
    sumIf(calls, failure = 'timeout') + sumIf(hidden_attempts, hidden_cause = 'timeout') AS timeouts,
    sumIf(calls, failure = 'server_error') + sumIf(hidden_attempts, hidden_cause = 'server_error') AS errors,
    limited / nullIf(attempts, 0) AS part, toFloat64(sum(wasted)) / 1e12 AS waste
FROM spend_15m
WHERE {time} AND {calls} AND {billed}
GROUP BY provider, model
HAVING attempts != 0
ORDER BY limited DESC, attempts DESC, provider, model
LIMIT ${top}`)},
		columns: []column{
			{name: "provider", title: "Provider", unit: words, empty: "(none)"},
			{name: "model", title: "Model", unit: words, empty: "(none)", links: limited},
			{name: "attempts", title: "Attempts", unit: count},
			{name: "limited", title: "Rate limited", unit: count, steps: warnAny, links: limited},
			{name: "part", title: "Rate limited", unit: share},
			{name: "overload", title: "Overloaded", unit: count},
			{name: "timeouts", title: "Timeouts", unit: count},
			{name: "errors", title: "Server errors", unit: count},
			{name: "waste", title: "Wasted", unit: usd},
		}})
	byFlow := runsOf("tenant", "workflow", "workflow_version")
	d.list(panel{title: "Amplification by workflow", width: 24, height: 9, unit: count,
		about: "Runs that began in the time, by workflow and its version: requests, work over requests, exact quantiles over runs, attempts over logical calls, spend over used spend. The variable Model does not apply.",
		queries: []query{rows(`
SELECT tenant, workflow, workflow_version, requests, attempts / requests AS mean, {p50} AS p50, {p90} AS p90, {p99} AS p99, multiplier, amplified, total, lost, no_cost
FROM (
    SELECT tenant, workflow, workflow_version, {requests} AS requests, {works} AS attempts, {spread} AS spread, attempts / nullIf({logicals}, 0) AS multiplier, {spends} AS total, {wastes} AS lost,
        total / nullIf(greatest(total - lost, 0), 0) AS amplified, sum(sign * (no_price + no_usage)) AS no_cost
    FROM ({agent_runs})
    GROUP BY tenant, workflow, workflow_version
    HAVING requests > 0
)
ORDER BY total DESC, requests DESC, tenant, workflow, workflow_version
LIMIT ${top}`)},
		columns: []column{
			{name: "tenant", title: "Tenant", unit: words, links: runsOf("tenant")},
			{name: "workflow", title: "Workflow", unit: words, empty: "(none)", links: byFlow},
			{name: "workflow_version", title: "Version", unit: words, empty: "(none)", links: byFlow},
			{name: "requests", title: "Requests", unit: count, links: byFlow},
			{name: "mean", title: "Amplification", unit: ratio, links: byFlow},
			{name: "p50", title: "p50", unit: ratio}, {name: "p90", title: "p90", unit: ratio}, {name: "p99", title: "p99", unit: ratio},
			{name: "multiplier", title: "Retry multiplier", unit: ratio, steps: []step{{1.1, "orange"}, {1.5, "red"}}},
			{name: "amplified", title: "Cost amplification", unit: ratio, steps: []step{{1.1, "orange"}, {1.5, "red"}}},
			{name: "total", title: "Spend", unit: usd}, {name: "lost", title: "Wasted", unit: usd},
			{name: "no_cost", title: "Calls without a cost", unit: count, steps: warnAny},
		}})
	d.list(panel{title: "Amplification by model", width: 24, height: 9, unit: count,
		about: "Attempts with a model, over the requests of the runs that have one with it. Rows do not add up: a run with two models is in two of them. From the journal, of runs that began in the time.",
		queries: []query{rows(`
SELECT provider, model, count() AS requests, sum(made) AS attempts, attempts / requests AS mean, quantileExact(0.5)(toFloat64(made)) AS p50, quantileExact(0.9)(toFloat64(made)) AS p90, quantileExact(0.99)(toFloat64(made)) AS p99, toFloat64(sum(pico)) / 1e12 AS spend
FROM (
    SELECT cityHash64(run_id) AS run_hash, sipHash64(tenant, run_id) AS run_check, provider, model, sum(sign * toInt64(model_calls + retries + hidden_attempts + fallbacks + hedges)) AS made, sum(sign * toInt128(ifNull(cost, 0))) AS pico
    FROM journal
    WHERE {tenants} AND {model} AND {billed} AND recorded_at >= {booked_since}
        AND (run_hash, run_check) IN (SELECT run_hash, run_check FROM ({agent_runs}) GROUP BY run_hash, run_check HAVING sum(sign) > 0)
    GROUP BY run_hash, run_check, provider, model
    HAVING made > 0
)
GROUP BY provider, model
ORDER BY attempts DESC, provider, model
LIMIT ${top}
SETTINGS ignore_data_skipping_indices = 'by_run_id'`)},
		columns: []column{
			{name: "provider", title: "Provider", unit: words, empty: "(none)"},
			{name: "model", title: "Model", unit: words, empty: "(none)", links: []link{{"Calls as JSON", api + "calls?" + shownTime + "&provider=" + field("provider") + "&model=" + field("model")}}},
			{name: "requests", title: "Requests with it", unit: count},
			{name: "attempts", title: "Attempts", unit: count},
			{name: "mean", title: "Amplification", unit: ratio},
			{name: "p50", title: "p50", unit: ratio}, {name: "p90", title: "p90", unit: ratio}, {name: "p99", title: "p99", unit: ratio},
			{name: "spend", title: "Spend", unit: usd},
		}})
	d.list(panel{title: "Worst runs", width: 24, height: 10, unit: count,
		about:   "Runs that began in the time, by their attempts of model and tool calls. The trace is the one in which the run began. The variable Model does not apply.",
		queries: []query{runList("work")}, columns: runColumns})
	d.list(panel{title: "Runs that repeat themselves", width: 24, height: 10, unit: count,
		about:   "Runs that began in the time, by their tool calls with arguments that they had used before: an agent in a loop. The variable Model does not apply.",
		queries: []query{runList("repeated")}, columns: runColumns})
	return d
}

var two = func() *float64 { v := 2.0; return &v }()

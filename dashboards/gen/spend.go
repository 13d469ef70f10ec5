package main

import "github.com/grafana/grafana-foundation-sdk/go/cog"

// dimensions adds what boards over the journal are filtered by.
func (d *board) dimensions() {
	d.source("clickhouse", "ClickHouse", clickhouseType)
	d.pick("tenant")
	d.pick("feature", "tenant")
	d.pick("model", "tenant")
	d.pick("environment", "tenant")
	d.choice("top", "Top", "How many values a list or a graph names.", "10", "25", "50", "100")
}

// spend is what finance reads every day.
func spend() *board {
	d := newBoard("flyball-spend", "Flyball: Spend", "What AI calls cost, by who made them and what for. Each call belongs to the instant it started.", "utc", "now-7d", "now")
	d.dimensions()
	d.acted()
	d.console()
	d.traces()

	const times = " A call belongs to the quarter of an hour in which it started, however late it arrived."
	d.row("Totals")
	d.number(panel{title: "Spend", width: 6, height: 4, unit: usd, links: allRuns, none: "nothing yet",
		about:   "Signed sum of the cost of all calls that have one, in USD, from spend_15m. Corrections are in it. Calls without a price or without usage are not: see the next two." + times,
		queries: []query{rows(`SELECT toFloat64(sum(cost)) / 1e12 AS spend FROM spend_15m WHERE {time} AND {calls}`)}})
	d.number(panel{title: "Calls without a price", width: 3, height: 4, unit: count, steps: warnAny, links: []link{{"Coverage as JSON", api + "coverage?" + shownTime}},
		about:   "Signed count of lines whose usage is known and for whose model there is no price (cost status unpriced). They are in no total. `flyball prices check` names the models.",
		queries: []query{rows(`SELECT sum(unpriced) AS no_price FROM spend_15m WHERE {time} AND {calls}`)}})
	d.number(panel{title: "Calls of unknown usage", width: 3, height: 4, unit: count, steps: warnAny, links: []link{{"Coverage as JSON", api + "coverage?" + shownTime}},
		about:   "Signed count of lines for which usage was due and did not come, such as a stream without usage or a timeout (cost status unknown). They are in no total.",
		queries: []query{rows(`SELECT sum(unknown) AS no_usage FROM spend_15m WHERE {time} AND {calls}`)}})
	d.number(panel{title: "Share of calls without a cost", width: 4, height: 4, unit: share, steps: []step{{0.01, "orange"}, {0.05, "red"}}, none: "no calls",
		about:   "Lines without a price or of unknown usage, over all lines that should have a cost (priced, free, unpriced, unknown). How much of the bill the total may miss, in calls, not in money.",
		queries: []query{rows(`SELECT sumIf(lines, cost_status IN ('unpriced', 'unknown')) / nullIf(sumIf(lines, cost_status != 'none'), 0) AS missing FROM spend_15m WHERE {time} AND {calls}`)}})
	d.number(panel{title: "Wasted on retries", width: 4, height: 4, unit: usd, links: []link{{"Retries as JSON", api + "retries?" + shownTime}},
		about:   "Signed sum of the cost of attempts that were not used: failed ones and hedges. It is part of the spend.",
		queries: []query{rows(`SELECT toFloat64(sum(wasted)) / 1e12 AS waste FROM spend_15m WHERE {time} AND {calls}`)}})
	d.number(panel{title: "Wasted share", width: 4, height: 4, unit: share, steps: []step{{0.05, "orange"}, {0.2, "red"}}, none: "no spend",
		about:   "Cost of attempts that were not used, over the spend.",
		queries: []query{rows(`SELECT toFloat64(sum(wasted)) / nullIf(toFloat64(sum(cost)), 0) AS part FROM spend_15m WHERE {time} AND {calls}`)}})
	d.number(panel{title: "Spend per request", width: 6, height: 4, unit: usd, links: allRuns, none: "no requests",
		about:   "Spend of the runs that began in the time and have a model call, over their number. A run is one user request. The variable Model does not apply: a run has no model.",
		queries: []query{rows(`SELECT {spends} / nullIf({requests}, 0) AS each FROM ({agent_runs})`)}})
	d.number(panel{title: "Requests", width: 6, height: 4, unit: count, links: allRuns,
		about:   "Runs that began in the time and have a model call. The variable Model does not apply.",
		queries: []query{rows(`SELECT {requests} AS requests FROM ({agent_runs})`)}})
	d.number(panel{title: "Input read from a cache", width: 6, height: 4, unit: share, none: "no input",
		about:   "Input tokens that the provider read from its cache, over all input tokens (uncached, cache read, cache written, audio, image). What that saved in money is not stored, since an entry keeps its cost and not the prices behind it.",
		queries: []query{rows(`SELECT sum(tok_cache_read) / nullIf(sum(tok_input + tok_cache_read + tok_cache_write_5m + tok_cache_write_1h + tok_input_audio + tok_input_image), 0) AS part FROM spend_15m WHERE {time} AND {calls}`)}})
	d.number(panel{title: "Tokens", width: 6, height: 4, unit: count,
		about:   "Signed sum of input tokens of every kind and of output tokens; reasoning is part of output.",
		queries: []query{rows(`SELECT sum(tok_input + tok_cache_read + tok_cache_write_5m + tok_cache_write_1h + tok_output + tok_input_audio + tok_input_image + tok_output_audio + tok_output_image) AS tokens FROM spend_15m WHERE {time} AND {calls}`)}})

	d.row("Over time")
	over := func(dim, plural string, links []link) {
		d.graph(panel{title: "Spend by " + dim, width: 12, height: 8, unit: usd, bars: true, stacked: true, each: "${__field.labels.by_" + dim + "}", links: links,
			about: "Signed sum of cost in each interval, from spend_15m. The dearest " + plural + " of the time by name, all others as one. Calls without a cost are not in it: see the graph of these below.",
			queries: []query{series(`
SELECT $__timeInterval(at) AS time, if({dim} IN (
        SELECT {dim} FROM spend_15m WHERE {time} AND {calls} GROUP BY {dim} ORDER BY sum(cost) DESC, {dim} LIMIT ${top}), {named}, '(others)') AS by_{dim},
    toFloat64(sum(cost)) / 1e12 AS spend
FROM spend_15m
WHERE {time} AND {calls}
GROUP BY time, by_{dim}
HAVING spend != 0
ORDER BY time, by_{dim}`, "{dim}", dim, "{named}", named(dim))}})
	}
	over("tenant", "tenants", []link{{"Runs", console + shownTime + "&tenant=" + labelled("by_tenant")}})
	over("model", "models", []link{{"Calls as JSON", api + "calls?" + shownTime + "&model=" + labelled("by_model")}})
	d.graph(panel{title: "Spend by day", width: 12, height: 8, unit: usd, bars: true, links: allRuns, names: map[string]string{"spend": "Spend", "waste": "Wasted"},
		about: "Signed sums by the UTC day in which a call started: spend, and the part of it that was wasted on attempts that were not used. The first and the last day are only as long as the time that is shown.",
		queries: []query{series(`
SELECT toStartOfDay(at, 'UTC') AS time, toFloat64(sum(cost)) / 1e12 AS spend, toFloat64(sum(wasted)) / 1e12 AS waste
FROM spend_15m
WHERE {time} AND {calls}
GROUP BY time
ORDER BY time`)}})
	d.graph(panel{title: "Calls without a cost by day", width: 12, height: 8, unit: count, bars: true, stacked: true, names: map[string]string{"no_price": "Without a price", "no_usage": "Of unknown usage"}, links: []link{{"Coverage as JSON", api + "coverage?" + shownTime}},
		about: "Signed counts of lines without a price and of lines of unknown usage, by the UTC day in which they started. What the spend of that day does not contain.",
		queries: []query{series(`
SELECT toStartOfDay(at, 'UTC') AS time, sum(unpriced) AS no_price, sum(unknown) AS no_usage
FROM spend_15m
WHERE {time} AND {calls}
GROUP BY time
ORDER BY time`)}})

	d.row("Who and what")
	top := func(title, by string, dims []column) {
		d.list(panel{title: title, width: 24, height: 9, unit: count,
			about: "Signed sums from spend_15m, dearest first, as many as Top says. Share is of the whole spend of the time, also of rows that are not shown. Model attempts count first tries, retries with a span, fallbacks and hedges. Calls without a price and of unknown usage are in no spend.",
			queries: []query{rows(`
SELECT *, spend / nullIf(sum(spend) OVER (), 0) AS part
FROM (
    SELECT {by}, toFloat64(sum(cost)) / 1e12 AS spend, sumIf(calls, {billed}) AS attempts, spend / nullIf(attempts, 0) AS each, sum(unpriced) AS no_price, sum(unknown) AS no_usage, toFloat64(sum(wasted)) / 1e12 AS waste
    FROM spend_15m
    WHERE {time} AND {calls}
    GROUP BY {by}
    HAVING spend != 0 OR attempts != 0 OR no_price != 0 OR no_usage != 0
)
ORDER BY spend DESC, {by}
LIMIT ${top}`, "{by}", by)},
			columns: append(dims,
				column{name: "spend", title: "Spend", unit: usd, links: dims[len(dims)-1].links},
				column{name: "part", title: "Share", unit: share},
				column{name: "attempts", title: "Model attempts", unit: count},
				column{name: "each", title: "Spend an attempt", unit: usd},
				column{name: "no_price", title: "Without a price", unit: count, steps: warnAny},
				column{name: "no_usage", title: "Unknown usage", unit: count, steps: warnAny},
				column{name: "waste", title: "Wasted", unit: usd},
			)})
	}
	tenant := column{name: "tenant", title: "Tenant", unit: words, links: runsOf("tenant")}
	top("Spend by tenant", "tenant", []column{tenant})
	top("Spend by feature", "tenant, feature", []column{tenant, {name: "feature", title: "Feature", unit: words, empty: "(none)", links: runsOf("tenant", "feature")}})
	calls := []link{{"Calls as JSON", api + "calls?" + shownTime + "&provider=" + field("provider") + "&model=" + field("model")}}
	top("Spend by model", "provider, model", []column{{name: "provider", title: "Provider", unit: words, empty: "(none)"}, {name: "model", title: "Model", unit: words, empty: "(none)", links: calls}})
	top("Spend by user", "tenant, user", []column{tenant, {name: "user", title: "User", unit: words, empty: "(none)", links: runsOf("tenant", "user")}})
	d.list(panel{title: "Dearest runs", width: 24, height: 10, unit: count, decimals: cog.ToPtr(4.0),
		about:   "Runs that began in the time, by the signed sum of their cost. Work is attempts of model and tool calls. The trace is the one in which the run began. The variable Model does not apply.",
		queries: []query{runList("pico")}, columns: runColumns})
	return d
}

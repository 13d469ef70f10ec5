package main

// closing is the figures of whole days as they were when the day was closed, and
// what was booked for them afterwards.
func closing() *board {
	d := newBoard("flyball-close", "Flyball: Finance close", "What was booked for each day when it was closed, and what was corrected later. Nothing is updated in place: a total changes only by what is booked, on a day that is known.", "utc", "now-1M/M", "now-1M/M")
	d.source("clickhouse", "ClickHouse", clickhouseType)
	d.pick("tenant")
	d.pick("feature", "tenant")
	d.pick("provider", "tenant")
	d.pick("model", "tenant")
	d.pick("environment", "tenant")
	d.choice("grace", "Days to close", "A day is closed at the end of this many days after it, UTC. What is booked later is a correction.", "1", "0", "2", "3", "5")
	d.input("as_of", "As of", "A day such as 2026-11-30: totals as of its end, UTC. Empty is now.", "")
	d.console()

	pairs := []string{
		"{days}", "at >= toStartOfDay($__fromTime, 'UTC') AND at < $__toTime",
		"{mine}", chosen("tenant") + " AND " + chosen("feature") + " AND " + chosen("provider") + " AND " + chosen("model") + " AND " + chosen("environment"),
		"{in_time}", "booked_on <= toDate(at) + ${grace}",
		"{known}", "booked_on <= ifNull(toDateOrNull('${as_of:raw}'), toDate('2149-06-06'))",
		"{exact}", "toString(toDecimal128(toString(sum(cost)), 12) / toDecimal128(1000000000000, 0))",
	}
	ask := func(text string) query { return rows(text, pairs...) }
	over := func(text string) query { return series(text, pairs...) }

	d.row("The time that is shown, in whole UTC days")
	d.number(panel{title: "Spend", width: 5, height: 4, unit: usd, links: allRuns,
		about:   "Signed sum of the cost of calls that started on these days, with everything that was booked until the day As of, or until now.",
		queries: []query{ask(`SELECT toFloat64(sum(cost)) / 1e12 AS spend FROM spend_15m WHERE {days} AND {mine} AND {known}`)}})
	d.number(panel{title: "Booked in time", width: 5, height: 4, unit: usd,
		about:   "The part of it that was booked before its day was closed: on the day of the call, or at most Days to close after it.",
		queries: []query{ask(`SELECT toFloat64(sum(cost)) / 1e12 AS spend FROM spend_15m WHERE {days} AND {mine} AND {known} AND {in_time}`)}})
	d.number(panel{title: "Booked later", width: 5, height: 4, unit: usd,
		about:   "Net of what was booked for these days after they were closed: spans that came late, versions that were replaced, prices that were corrected. May be negative.",
		queries: []query{ask(`SELECT toFloat64(sum(cost)) / 1e12 AS spend FROM spend_15m WHERE {days} AND {mine} AND {known} AND NOT ({in_time})`)}})
	d.number(panel{title: "Changed since As of", width: 5, height: 4, unit: usd,
		about:   "Net of what was booked for these days after the end of the day As of; 0 where As of is empty.",
		queries: []query{ask(`SELECT toFloat64(sum(cost)) / 1e12 AS spend FROM spend_15m WHERE {days} AND {mine} AND NOT ({known})`)}})
	d.number(panel{title: "Calls without a cost", width: 4, height: 4, unit: count, steps: warnAny, names: map[string]string{"no_price": "Without a price", "no_usage": "Unknown usage"},
		about:   "Signed counts of lines without a price and of unknown usage that started on these days. They are in none of the sums.",
		queries: []query{ask(`SELECT sum(unpriced) AS no_price, sum(unknown) AS no_usage FROM spend_15m WHERE {days} AND {mine} AND {known}`)}})

	d.row("Day by day")
	d.graph(panel{title: "By the day of the call", width: 12, height: 8, unit: usd, bars: true, stacked: true, names: map[string]string{"in_time": "booked in time", "later": "booked later"},
		about: "Signed sums of cost by the UTC day in which calls started: what was booked before the day was closed, and the net of what came after.",
		queries: []query{over(`
SELECT toStartOfDay(at, 'UTC') AS time, toFloat64(sumIf(cost, {in_time})) / 1e12 AS in_time, toFloat64(sumIf(cost, NOT ({in_time}))) / 1e12 AS later
FROM spend_15m
WHERE {days} AND {mine} AND {known}
GROUP BY time
ORDER BY time`)}})
	d.graph(panel{title: "By the day of booking", width: 12, height: 8, unit: usd, bars: true, stacked: true, names: map[string]string{"in_time": "for days still open", "later": "for days already closed"},
		about: "Signed sums of cost by the UTC day on which entries were booked, whatever day they are for: for days that were still open, and corrections of days that were closed.",
		queries: []query{over(`
SELECT toDateTime(booked_on, 'UTC') AS time, toFloat64(sumIf(cost, {in_time})) / 1e12 AS in_time, toFloat64(sumIf(cost, NOT ({in_time}))) / 1e12 AS later
FROM spend_15m
WHERE booked_on >= toDate($__fromTime, 'UTC') AND booked_on <= toDate($__toTime, 'UTC') AND {mine} AND {known}
GROUP BY time
ORDER BY time`)}})
	d.list(panel{title: "Days", width: 24, height: 10, unit: count,
		about: "For each UTC day: the figure it was closed with, the net of what was booked later, the figure now (or as of the day As of), the last day on which something was booked for it, and what has no cost.",
		queries: []query{ask(`
SELECT toDate(at) AS day, toFloat64(sumIf(cost, {in_time})) / 1e12 AS in_time, toFloat64(sumIf(cost, NOT ({in_time}))) / 1e12 AS later, toFloat64(sum(cost)) / 1e12 AS spend, {exact} AS exact,
    max(booked_on) AS last_booked, sum(unpriced) AS no_price, sum(unknown) AS no_usage
FROM spend_15m
WHERE {days} AND {mine} AND {known}
GROUP BY day
ORDER BY day`)},
		columns: []column{
			{name: "day", title: "Day", unit: date},
			{name: "in_time", title: "At its close", unit: usd},
			{name: "later", title: "Booked later", unit: usd},
			{name: "spend", title: "Spend", unit: usd},
			{name: "exact", title: "Spend in USD, exact", unit: words},
			{name: "last_booked", title: "Last booking", unit: date},
			{name: "no_price", title: "Without a price", unit: count, steps: warnAny},
			{name: "no_usage", title: "Unknown usage", unit: count, steps: warnAny},
		}})

	d.row("Who and what")
	mine := runsOf("tenant")
	d.list(panel{title: "By tenant, provider and model", width: 24, height: 12, unit: count,
		about: "Signed sums over these days for each tenant, provider and model: booked in time, booked later, and together, as a number and exactly. Calls without a cost stand beside.",
		queries: []query{ask(`
SELECT tenant, provider, model, toFloat64(sumIf(cost, {in_time})) / 1e12 AS in_time, toFloat64(sumIf(cost, NOT ({in_time}))) / 1e12 AS later, toFloat64(sum(cost)) / 1e12 AS spend, {exact} AS exact,
    sumIf(calls, {billed}) AS attempts, sum(unpriced) AS no_price, sum(unknown) AS no_usage
FROM spend_15m
WHERE {days} AND {mine} AND {known}
GROUP BY tenant, provider, model
HAVING spend != 0 OR later != 0 OR attempts != 0 OR no_price != 0 OR no_usage != 0
ORDER BY tenant, spend DESC, provider, model
LIMIT 1000`)},
		columns: []column{
			{name: "tenant", title: "Tenant", unit: words, links: mine},
			{name: "provider", title: "Provider", unit: words, empty: "(none)"},
			{name: "model", title: "Model", unit: words, empty: "(none)"},
			{name: "in_time", title: "Booked in time", unit: usd},
			{name: "later", title: "Booked later", unit: usd},
			{name: "spend", title: "Spend", unit: usd, links: append([]link{{"Calls as JSON", api + "calls?" + shownTime + "&tenant=" + field("tenant") + "&provider=" + field("provider") + "&model=" + field("model")}}, mine...)},
			{name: "exact", title: "Spend in USD, exact", unit: words},
			{name: "attempts", title: "Model attempts", unit: count},
			{name: "no_price", title: "Without a price", unit: count, steps: warnAny},
			{name: "no_usage", title: "Unknown usage", unit: count, steps: warnAny},
		}})
	d.list(panel{title: "Corrections of closed days", width: 24, height: 12, unit: count,
		about: "What was booked for these days after they were closed, net, by the day of booking, the day of the call, tenant, provider and model; the largest first. Every entry behind a row is in the journal (history=1).",
		queries: []query{ask(`
SELECT booked_on, toDate(at) AS day, tenant, provider, model, toFloat64(sum(cost)) / 1e12 AS change, {exact} AS exact, sum(lines) AS more, sum(unpriced) AS no_price, sum(unknown) AS no_usage
FROM spend_15m
WHERE {days} AND {mine} AND {known} AND NOT ({in_time})
GROUP BY booked_on, day, tenant, provider, model
HAVING change != 0 OR no_price != 0 OR no_usage != 0
ORDER BY abs(change) DESC, booked_on, day, tenant, provider, model
LIMIT 500`)},
		columns: []column{
			{name: "booked_on", title: "Booked on", unit: date},
			{name: "day", title: "For", unit: date},
			{name: "tenant", title: "Tenant", unit: words, links: mine},
			{name: "provider", title: "Provider", unit: words, empty: "(none)"},
			{name: "model", title: "Model", unit: words, empty: "(none)"},
			{name: "change", title: "Change", unit: usd, links: []link{{"Entries as JSON", api + "calls?history=1&" + shownTime + "&tenant=" + field("tenant") + "&provider=" + field("provider") + "&model=" + field("model")}}},
			{name: "exact", title: "Change in USD, exact", unit: words},
			{name: "more", title: "Lines, net", unit: count},
			{name: "no_price", title: "Without a price, net", unit: count},
			{name: "no_usage", title: "Unknown usage, net", unit: count},
		}})

	d.row("Beside the providers' bills")
	d.list(panel{title: "Comparisons with bills", width: 24, height: 10, unit: count,
		about: "The newest comparison of each provider's bill over these days (flyball reconcile), by UTC day and model or item of the bill, the largest difference first. The parts sum to the bill less our figure; price or volume is what a bill without tokens leaves open. Calls without a cost and sampled traces are why ours may be too low.",
		queries: []query{ask(`
SELECT day, provider, if(model = '', item, model) AS what, toFloat64(ours) / 1e12 AS our_usd, toFloat64(theirs) / 1e12 AS their_usd, toFloat64(theirs - ours) / 1e12 AS difference,
    toFloat64(priced) / 1e12 AS by_price, toFloat64(only_ours) / 1e12 AS by_ours, toFloat64(only_theirs) / 1e12 AS by_theirs, toFloat64(rounding) / 1e12 AS by_rounding, toFloat64(unsplit) / 1e12 AS open_usd,
    unpriced AS no_price, unknown AS no_usage, sampled AS in_samples, made_at AS compared_at, made_by AS compared_by
FROM reconciliations
WHERE line > 0 AND day >= toDate($__fromTime, 'UTC') AND day < $__toTime AND (provider, day, made_at) IN (
    SELECT provider, day, max(made_at) FROM reconciliations WHERE line > 0 AND day >= toDate($__fromTime, 'UTC') AND day < $__toTime GROUP BY provider, day)
ORDER BY abs(difference) DESC, day, provider, what
LIMIT 500`)},
		columns: []column{
			{name: "day", title: "Day", unit: date},
			{name: "provider", title: "Provider", unit: words},
			{name: "what", title: "Model, or item of the bill", unit: words},
			{name: "our_usd", title: "Ours", unit: usd},
			{name: "their_usd", title: "Theirs", unit: usd},
			{name: "difference", title: "Difference", unit: usd},
			{name: "by_price", title: "Priced differently", unit: usd},
			{name: "by_ours", title: "Only ours", unit: usd},
			{name: "by_theirs", title: "Only theirs", unit: usd},
			{name: "by_rounding", title: "Rounding", unit: usd},
			{name: "open_usd", title: "Price or volume", unit: usd},
			{name: "no_price", title: "Without a price", unit: count, steps: warnAny},
			{name: "no_usage", title: "Unknown usage", unit: count, steps: warnAny},
			{name: "in_samples", title: "Of sampled traces", unit: count, steps: warnAny},
			{name: "compared_at", title: "Compared", unit: date},
			{name: "compared_by", title: "By", unit: words},
		}})
	return d
}

package main

import "strings"

// unreported stands where no limiter sends a signal.
const unreported = "no limiter reports this"

// signal is the condition for metrics of limiters.
func signal(metrics ...string) string {
	return `metric IN ('flyball.limiter.` + strings.Join(metrics, `', 'flyball.limiter.`) + `')`
}

// points are those of metrics in the time, each once. Nothing is recorded more than ten
// minutes before it happened.
func points(metrics ...string) string {
	return `limiter_samples FINAL WHERE {tenants} AND ` + signal(metrics...) + ` AND at >= $__fromTime AND at < $__toTime AND recorded_at >= $__fromTime - INTERVAL 10 MINUTE`
}

// latest has the newest point of each series that is not older than five minutes at the
// end of the time.
func latest(metrics ...string) string {
	return `(
    SELECT tenant, limiter, provider, model, tool, dimension, metric, value, at
    FROM ` + points(metrics...) + ` AND at >= $__toTime - INTERVAL 5 MINUTE
    ORDER BY at DESC
    LIMIT 1 BY tenant, metric, series
)`
}

// rises has the points of counters and histograms in the time with what each adds to its
// series: all of a delta; of a cumulative one the difference to the point before, or all
// where the series began anew. A series whose beginning is not seen within the hour before
// says nothing until its second point.
func rises(metrics ...string) string {
	return `(
    SELECT tenant, limiter, provider, model, tool, state, error, http_status, metric, at, bounds,
        multiIf(unseen, 0, anew, value, value - before_value) AS rise,
        multiIf(unseen, 0, anew, toInt64(count), toInt64(count) - toInt64(before_count)) AS rise_count,
        arrayMap((n, o) -> toInt64(n) - toInt64(o), buckets, arrayResize(multiIf(unseen, buckets, anew, [], before_buckets), length(buckets))) AS rise_buckets
    FROM (
        SELECT *, at = before_at AS first, temporality = 'cumulative' AND first AND (started_at < $__fromTime - INTERVAL 1 HOUR OR started_at >= at) AS unseen,
            temporality = 'delta' OR first OR value < before_value OR count < before_count AS anew
        FROM (
            SELECT *, lagInFrame(value) OVER w AS before_value, lagInFrame(count) OVER w AS before_count, lagInFrame(buckets) OVER w AS before_buckets, lagInFrame(at, 1, at) OVER w AS before_at
            FROM limiter_samples FINAL
            WHERE {tenants} AND ` + signal(metrics...) + ` AND at >= $__fromTime - INTERVAL 1 HOUR AND at < $__toTime AND recorded_at >= $__fromTime - INTERVAL 70 MINUTE
            WINDOW w AS (PARTITION BY tenant, metric, series, started_at ORDER BY at ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)
        )
    )
    WHERE at >= $__fromTime
)`
}

// reported adds what limiters say of themselves.
func (d *board) reported() {
	of := func(q func(string, ...string) query, text string, pairs ...string) []query {
		return []query{q(text, pairs...)}
	}
	low := []step{{0.1, "orange"}, {0.4, "green"}}
	limited := []step{{0.02, "orange"}, {0.1, "red"}}
	slow := []step{{1, "orange"}, {10, "red"}}
	again := []step{{0.1, "orange"}, {0.5, "red"}}
	const refused = "(http_status = 429 OR error = 'rate_limited')"

	d.row("What limiters report (ClickHouse)")
	d.number(panel{title: "Limiters that report", width: 4, height: 4, unit: count, none: unreported, grain: "1m",
		about:   "Limiters with a point in the time. From limiter_samples.",
		queries: of(rows, `SELECT if(count() = 0, NULL, toFloat64(uniqExact(tenant, limiter))) AS limiters FROM limiter_samples WHERE {tenants} AND at >= $__fromTime AND at < $__toTime AND recorded_at >= $__fromTime - INTERVAL 10 MINUTE`)})
	d.number(panel{title: "Emptiest bucket", width: 4, height: 4, unit: share, none: unreported, grain: "1m", base: "red", steps: low,
		about:   "The smallest share that is left of a provider's limit, of what was reported in the last five minutes of the time (flyball.limiter.bucket.fill). From limiter_samples.",
		queries: of(rows, `SELECT if(count() = 0, NULL, min(value)) AS part FROM {latest}`, "{latest}", latest("bucket.fill"))})
	d.number(panel{title: "Rate limited", width: 4, height: 4, unit: share, none: unreported, grain: "1m", steps: limited,
		about:   "Attempts that a provider refused for rate or quota over all attempts (flyball.limiter.attempts with status 429 or error rate_limited). From limiter_samples.",
		queries: of(rows, `SELECT sumIf(rise, {refused}) / nullIf(sum(rise), 0) AS part FROM {rises}`, "{refused}", refused, "{rises}", rises("attempts"))})
	d.number(panel{title: "Time in queue", width: 4, height: 4, unit: seconds, none: unreported, grain: "1m", steps: slow,
		about:   "Mean time that calls waited for a limiter (flyball.limiter.queue.wait_time): the sum over the count. From limiter_samples.",
		queries: of(rows, `SELECT sum(rise) / nullIf(sum(rise_count), 0) AS mean FROM {rises}`, "{rises}", rises("queue.wait_time"))})
	d.number(panel{title: "Open breakers", width: 4, height: 4, unit: count, none: unreported, grain: "1m", steps: warnAny,
		about:   "Breakers that refuse calls, of what was reported in the last five minutes of the time (flyball.limiter.breaker.open is 1). From limiter_samples.",
		queries: of(rows, `SELECT if(count() = 0, NULL, toFloat64(countIf(value = 1))) AS open FROM {latest}`, "{latest}", latest("breaker.open"))})
	d.number(panel{title: "Retries for each request", width: 4, height: 4, unit: ratio, decimals: two, none: unreported, grain: "1m", steps: again,
		about:   "Retries over attempts that are none (flyball.limiter.retries, flyball.limiter.attempts). From limiter_samples.",
		queries: of(rows, `SELECT sumIf(rise, metric = 'flyball.limiter.retries') AS repeated, if(sumIf(rise, metric = 'flyball.limiter.attempts') > 0, repeated / nullIf(sumIf(rise, metric = 'flyball.limiter.attempts') - repeated, 0), NULL) AS each FROM {rises}`, "{rises}", rises("attempts", "retries"))})

	d.graph(panel{title: "Left in buckets", width: 12, height: 8, unit: share, each: "${__field.labels.by_bucket}", none: unreported, grain: "1m", base: "red", steps: low,
		about: "Share that is left of each provider's limits by dimension, the smallest over models and limiters in each interval (flyball.limiter.bucket.fill). The emptiest ones, as many as Top says. From limiter_samples.",
		queries: of(series, `
SELECT $__timeInterval(at) AS time, concat(provider, ' ', dimension) AS by_bucket, min(value) AS part
FROM {points}
GROUP BY time, by_bucket
ORDER BY time, part, by_bucket
LIMIT ${top} BY time`, "{points}", points("bucket.fill"))})
	d.graph(panel{title: "Rate limited by model, as limiters see it", width: 12, height: 8, unit: share, each: "${__field.labels.by_model}", none: unreported, grain: "1m", steps: limited,
		about: "Attempts that a provider refused for rate or quota over all attempts, in each interval (flyball.limiter.attempts with status 429 or error rate_limited). The highest ones, as many as Top says. From limiter_samples.",
		queries: of(series, `
SELECT $__timeInterval(at) AS time, {named} AS by_model, sumIf(rise, {refused}) / sum(rise) AS part
FROM {rises}
GROUP BY time, by_model
HAVING sum(rise) > 0
ORDER BY time, part DESC, by_model
LIMIT ${top} BY time`, "{named}", named("model"), "{refused}", refused, "{rises}", rises("attempts"))})
	d.graph(panel{title: "Queue depth by model", width: 12, height: 8, unit: count, each: "${__field.labels.by_model}", none: unreported, grain: "1m",
		about: "Calls that wait: the largest number of each series in each interval, summed over limiters (flyball.limiter.queue.depth). The longest queues, as many as Top says. From limiter_samples.",
		queries: of(series, `
SELECT time, by_model, sum(depth) AS waiting
FROM (
    SELECT $__timeInterval(at) AS time, {named} AS by_model, max(value) AS depth
    FROM {points}
    GROUP BY time, by_model, tenant, series
)
GROUP BY time, by_model
ORDER BY time, waiting DESC, by_model
LIMIT ${top} BY time`, "{named}", named("model"), "{points}", points("queue.depth"))})
	d.graph(panel{title: "Time in queue", width: 12, height: 8, unit: seconds, none: unreported, grain: "1m", steps: slow,
		about: "How long calls waited, in each interval (flyball.limiter.queue.wait_time): the mean, and by buckets p50 and p99, which are upper ends of buckets. What is over the last bound counts as that. From limiter_samples.",
		queries: of(series, `
SELECT $__timeInterval(at) AS time, sum(rise) / sum(rise_count) AS mean,
    if(sum(arraySum(rise_buckets)) > 0, quantileExactWeightedArray(0.5)(le, weights), NULL) AS p50, if(sum(arraySum(rise_buckets)) > 0, quantileExactWeightedArray(0.99)(le, weights), NULL) AS p99
FROM (
    SELECT at, rise, rise_count, rise_buckets, if(empty(bounds), [], arrayPushBack(bounds, bounds[-1])) AS le, arrayMap(n -> toUInt64(greatest(n, 0)), rise_buckets) AS weights
    FROM {rises}
)
GROUP BY time
HAVING sum(rise_count) > 0
ORDER BY time`, "{rises}", rises("queue.wait_time"))})
	d.graph(panel{title: "Breaker transitions by tool", width: 12, height: 8, unit: count, bars: true, stacked: true, each: "${__field.labels.by_tool}", none: unreported, grain: "1m",
		about: "How often breakers entered a state, in each interval, by the tool, or the provider, that they guard (flyball.limiter.breaker.transitions). The busiest ones, as many as Top says. From limiter_samples.",
		queries: of(series, `
SELECT $__timeInterval(at) AS time, concat(if(tool = '', provider, tool), ' ', replaceOne(state, '_', ' ')) AS by_tool, sum(rise) AS entered
FROM {rises}
GROUP BY time, by_tool
HAVING entered > 0
ORDER BY time, entered DESC, by_tool
LIMIT ${top} BY time`, "{rises}", rises("breaker.transitions"))})
	d.graph(panel{title: "Retries for each request by model", width: 12, height: 8, unit: ratio, each: "${__field.labels.by_model}", none: unreported, grain: "1m", steps: again,
		about: "Retries over attempts that are none, in each interval (flyball.limiter.retries, flyball.limiter.attempts). The highest ones, as many as Top says. From limiter_samples.",
		queries: of(series, `
SELECT $__timeInterval(at) AS time, {named} AS by_model, sumIf(rise, metric = 'flyball.limiter.retries') / (sumIf(rise, metric = 'flyball.limiter.attempts') - sumIf(rise, metric = 'flyball.limiter.retries')) AS each
FROM {rises}
GROUP BY time, by_model
HAVING sumIf(rise, metric = 'flyball.limiter.attempts') > sumIf(rise, metric = 'flyball.limiter.retries')
ORDER BY time, each DESC, by_model
LIMIT ${top} BY time`, "{named}", named("model"), "{rises}", rises("attempts", "retries"))})
	d.list(panel{title: "Buckets", width: 12, height: 8, unit: count, none: unreported, grain: "1m",
		about: "What is left of providers' limits, of what was reported in the last five minutes of the time, the emptiest first (flyball.limiter.bucket.fill, .remaining, .limit). From limiter_samples.",
		queries: of(rows, `
SELECT provider, model, dimension, limiter, argMaxIf(value, at, metric = 'flyball.limiter.bucket.fill') AS part,
    if(countIf(metric = 'flyball.limiter.bucket.remaining') = 0, NULL, argMaxIf(value, at, metric = 'flyball.limiter.bucket.remaining')) AS remaining,
    if(countIf(metric = 'flyball.limiter.bucket.limit') = 0, NULL, argMaxIf(value, at, metric = 'flyball.limiter.bucket.limit')) AS size, max(at) AS seen
FROM {latest}
GROUP BY tenant, provider, model, dimension, limiter
HAVING countIf(metric = 'flyball.limiter.bucket.fill') > 0
ORDER BY part, provider, model, dimension, limiter
LIMIT ${top}`, "{latest}", latest("bucket.fill", "bucket.remaining", "bucket.limit")),
		columns: []column{
			{name: "provider", title: "Provider", unit: words},
			{name: "model", title: "Model", unit: words, empty: "(none)"},
			{name: "dimension", title: "Dimension", unit: words},
			{name: "limiter", title: "Limiter", unit: words, empty: "(none)"},
			{name: "part", title: "Left", unit: share, base: "red", steps: low},
			{name: "remaining", title: "Remaining", unit: count},
			{name: "size", title: "Limit", unit: count},
			{name: "seen", title: "Reported", unit: instant, width: 170},
		}})
	d.list(panel{title: "Breakers", width: 12, height: 8, unit: count, none: unreported, grain: "1m",
		about: "Breakers, of what was reported in the last five minutes of the time, open ones first (flyball.limiter.breaker.open). From limiter_samples.",
		queries: of(rows, `
SELECT if(tool = '', provider, tool) AS guarded, model, limiter, multiIf(value = 1, 'open', value = 0, 'closed', 'half open') AS state, at AS seen
FROM {latest}
ORDER BY value DESC, guarded, model, limiter
LIMIT ${top}`, "{latest}", latest("breaker.open")),
		columns: []column{
			{name: "guarded", title: "Tool or provider", unit: words},
			{name: "model", title: "Model", unit: words, empty: "(none)"},
			{name: "limiter", title: "Limiter", unit: words, empty: "(none)"},
			{name: "state", title: "State", unit: words},
			{name: "seen", title: "Reported", unit: instant, width: 170},
		}})
}

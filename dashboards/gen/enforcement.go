package main

// enforcement is what the closed loop does: guards, directives, kill switch, leases,
// pages, and how fast all of it is.
func enforcement() *board {
	d := newBoard("flyball-enforcement", "Flyball: Budgets and enforcement", "What budget guards do, how fast limiters follow, and what passed all the same.", "browser", "now-6h", "now")
	d.source("prometheus", "Prometheus", prometheusType)
	d.instances()
	d.dimensions()
	d.console()
	d.killed()
	d.acted()

	guards := []link{{"Guards", "${console:raw}/#/guards"}}
	kill := []link{{"Kill switch", "${console:raw}/#/kill"}}
	d.row("Now")
	d.note("Where budgets are", "Metrics carry no tenant, user or run, so the state of single budgets is in the console and the API.",
		"Single budgets, what is left of them and what is in force are not metrics: they would need a series for each user and run.\n\n"+
			"- [Guards and budgets in the console](${console:raw}/#/guards), or `GET /api/v1/budgets`, `GET /api/v1/guards/live`\n"+
			"- [Kill switch](${console:raw}/#/kill), or `GET /api/v1/kill`\n"+
			"- What happened: `GET /api/v1/enforcement`; limiters: `GET /api/v1/limiters`; pages: `GET /api/v1/pages`", 24, 5)
	d.number(panel{title: "Kill switch", width: 4, height: 4, unit: ratio, links: kill, steps: alarmAny, states: map[string]outcome{"0": {"off", "green"}, "1": {"ON", "red"}},
		about:   "1 while the org's kill switch is on (flyball_kill_switch). The largest of the instances.",
		queries: []query{now(`max(flyball_kill_switch{instance=~"$instance"})`, "kill switch")}})
	d.number(panel{title: "Directives in force", width: 4, height: 4, unit: count, links: guards,
		about:   "What guards tell limiters at this moment (flyball_directives). Guards in warn mode tell them nothing and are not counted.",
		queries: []query{now(`sum(flyball_directives{instance=~"$instance"})`, "directives")}})
	d.number(panel{title: "Active limiters", width: 4, height: 4, unit: count,
		about:   "Limiters that acknowledged something within five minutes (flyball_limiters). Without any, directives bind nobody.",
		queries: []query{now(`sum(flyball_limiters{instance=~"$instance"})`, "limiters")}})
	d.number(panel{title: "Open leases", width: 4, height: 4, unit: count,
		about:   "Slices of budgets that limiters hold: neither settled nor released (flyball_leases_open).",
		queries: []query{now(`sum(flyball_leases_open{instance=~"$instance"})`, "leases")}})
	d.number(panel{title: "Open holds", width: 4, height: 4, unit: count,
		about:   "Spend that limiters reported for calls whose span has not arrived (flyball_holds_open).",
		queries: []query{now(`sum(flyball_holds_open{instance=~"$instance"})`, "holds")}})
	d.number(panel{title: "Pages waiting", width: 4, height: 4, unit: count, steps: alarmAny,
		about:   "Pages that a receiver has not got yet, counted once a receiver (flyball_pages_pending).",
		queries: []query{now(`sum(flyball_pages_pending{instance=~"$instance"})`, "pages")}})
	d.number(panel{title: "Time to enforce, p99", width: 8, height: 4, unit: seconds, steps: []step{{2, "orange"}, {5, "red"}}, none: "nothing to enforce",
		about:   "From the receipt of the span that crossed a limit to a limiter's acknowledgement, by the service's clock, over the time that is shown: a quantile of the histogram flyball_time_to_enforce_seconds, whose buckets double.",
		queries: []query{now(`histogram_quantile(0.99, sum by (le) (increase(flyball_time_to_enforce_seconds_bucket{instance=~"$instance"}[$__range])))`, "p99")}})
	d.number(panel{title: "Leaked after acknowledgement", width: 8, height: 4, unit: usd, steps: []step{{0.000001, "red"}}, none: "nothing",
		about:   "Cost of calls that started, although a directive refused them, after every limiter they could have gone through had acknowledged it (flyball_leaked_usd_total, kind leak), over the time that is shown. Prometheus estimates the rise between its samples.",
		queries: []query{now(`sum(increase(flyball_leaked_usd_total{instance=~"$instance",kind="leak"}[$__range]))`, "leaked")}})
	d.number(panel{title: "Ledger drift", width: 8, height: 4, unit: count, steps: alarmAny,
		about:   "Accounts of the ledger that differ from the journal, at the last verification (flyball_ledger_drift_accounts).",
		queries: []query{now(`sum(flyball_ledger_drift_accounts{instance=~"$instance"})`, "accounts")}})

	d.row("How fast budgets are used")
	d.graph(panel{title: "Budget used by the fullest scope", width: 8, height: 8, unit: share, links: guards, steps: []step{{0.8, "orange"}, {1, "red"}},
		about:   "Highest share of its limit that a scope of the guard has used in its present window (flyball_budget_used_ratio). The largest of the instances.",
		queries: []query{prom(`max by (guard) (flyball_budget_used_ratio{instance=~"$instance"})`, "{{guard}}")}})
	d.graph(panel{title: "Pace of shared budgets", width: 8, height: 8, unit: ratio, links: guards, steps: []step{{1, "orange"}, {6, "red"}},
		about:   "What was spent in an hour over what all scopes of the guard may spend in an hour at an even pace (flyball_budget_spend_usd_total, flyball_budget_allotted_usd_per_second): at 1 a budget lasts exactly until its window ends.",
		queries: []query{prom(`sum by (guard) (rate(flyball_budget_spend_usd_total{instance=~"$instance"}[1h])) / sum by (guard) (max_over_time(flyball_budget_allotted_usd_per_second{instance=~"$instance"}[1h]) > 0)`, "{{guard}}")}})
	d.graph(panel{title: "Requests over the objective", width: 8, height: 8, unit: share, steps: []step{{0.01, "orange"}, {0.06, "red"}},
		about:   "Requests of an hour that made more attempts of model and tool calls than the policy's objective (flyball_amplification_over_total over flyball_amplification_requests_total). Empty without an objective.",
		queries: []query{prom(`sum(rate(flyball_amplification_over_total{instance=~"$instance"}[1h])) / sum(rate(flyball_amplification_requests_total{instance=~"$instance"}[1h]))`, "over")}})

	d.row("Speed")
	quantiles := func(metric string) []query {
		q := func(p string) query {
			return prom(`histogram_quantile(`+p+`, sum by (limiter, le) (rate(`+metric+`_bucket{instance=~"$instance"}[$__rate_interval])))`, "{{limiter}} p"+p[2:])
		}
		return []query{q("0.50"), q("0.99")}
	}
	d.graph(panel{title: "Time to enforce", width: 12, height: 8, unit: seconds, links: guards,
		about:   "From the receipt of the span that crossed a limit to the acknowledgement of a limiter, by the service's clock alone: p50 and p99 for each limiter, from the histogram flyball_time_to_enforce_seconds. Empty while nothing is enforced.",
		queries: quantiles("flyball_time_to_enforce_seconds")})
	d.graph(panel{title: "Span end to applied", width: 12, height: 8, unit: seconds, links: guards,
		about:   "From the end of the span that crossed a limit to the acknowledgement of a limiter: two clocks, and the exporter's delay in between. p50 and p99 for each limiter, from the histogram flyball_span_end_to_applied_seconds.",
		queries: quantiles("flyball_span_end_to_applied_seconds")})
	d.graph(panel{title: "Time to apply a record", width: 12, height: 8, unit: seconds,
		about: "Time the ledger takes for one record of the log, with the decisions it causes, from the histogram flyball_ledger_apply_seconds.",
		queries: []query{
			prom(`histogram_quantile(0.50, sum by (le) (rate(flyball_ledger_apply_seconds_bucket{instance=~"$instance"}[$__rate_interval])))`, "p50"),
			prom(`histogram_quantile(0.99, sum by (le) (rate(flyball_ledger_apply_seconds_bucket{instance=~"$instance"}[$__rate_interval])))`, "p99"),
		}})
	d.graph(panel{title: "Directives and revisions", width: 12, height: 8, unit: count, right: map[string]string{"revisions/s": perSec},
		about: "Directives in force (flyball_directives), and how often a changed set of them was published (flyball_directive_revisions_total).",
		queries: []query{
			prom(`sum(flyball_directives{instance=~"$instance"})`, "in force"),
			prom(`sum(rate(flyball_directive_revisions_total{instance=~"$instance"}[$__rate_interval]))`, "revisions/s"),
		}})

	d.row("What passed all the same")
	d.graph(panel{title: "Leaked calls", width: 12, height: 8, unit: count, bars: true, stacked: true, links: guards,
		about:   "Calls that started although a directive refused them, in each interval: propagation, before a limiter had acknowledged it; leak, after; unguarded, where no limiter ever acknowledged anything (flyball_leaked_calls_total).",
		queries: []query{prom(`sum by (kind) (increase(flyball_leaked_calls_total{instance=~"$instance"}[$__rate_interval]))`, "{{kind}}")}})
	d.graph(panel{title: "Leaked money", width: 12, height: 8, unit: usd, bars: true, stacked: true, links: guards,
		about:   "What those calls cost, by the same kinds (flyball_leaked_usd_total): a call without a cost counts with what a guard counts for it.",
		queries: []query{prom(`sum by (kind) (increase(flyball_leaked_usd_total{instance=~"$instance"}[$__rate_interval]))`, "{{kind}}")}})

	d.row("What enforcement did")
	d.graph(panel{title: "Events by kind", width: 12, height: 8, unit: count, bars: true, stacked: true, links: guards,
		about:   "Events in each interval: directives issued and released, kill switch, drills, leases that expired, limiters, policies (flyball_enforcement_events_total).",
		queries: []query{prom(`sum by (kind) (increase(flyball_enforcement_events_total{instance=~"$instance"}[$__rate_interval]))`, "{{kind}}")}})
	d.graph(panel{title: "Checks by answer", width: 12, height: 8, unit: perSec, stacked: true,
		about:   "Questions of limiters in a second, by what they were answered (flyball_checks_total): allow, downgrade, wait, deny.",
		queries: []query{prom(`sum by (verdict) (rate(flyball_checks_total{instance=~"$instance"}[$__rate_interval]))`, "{{verdict}}")}})
	d.graph(panel{title: "Leases by outcome", width: 12, height: 8, unit: count, bars: true, stacked: true,
		about:   "Leases in each interval: granted, refused, settled, released, expired (flyball_leases_total). Expired ones are limiters that died or forgot to settle.",
		queries: []query{prom(`sum by (outcome) (increase(flyball_leases_total{instance=~"$instance"}[$__rate_interval]))`, "{{outcome}}")}})
	d.graph(panel{title: "Open leases and holds", width: 12, height: 8, unit: count,
		about: "Leases that are neither settled nor released (flyball_leases_open), and reported spend whose span has not arrived (flyball_holds_open).",
		queries: []query{
			prom(`sum(flyball_leases_open{instance=~"$instance"})`, "leases"),
			prom(`sum(flyball_holds_open{instance=~"$instance"})`, "holds"),
		}})
	d.graph(panel{title: "Pages by outcome", width: 12, height: 8, unit: count, bars: true, stacked: true,
		about:   "Pages in each interval, by receiver and outcome (flyball_pages_total): delivered; retried, once a try; refused and expired, both lost; unrouted, for a receiver that does not exist.",
		queries: []query{prom(`sum by (receiver, outcome) (increase(flyball_pages_total{instance=~"$instance"}[$__rate_interval]))`, "{{receiver}} {{outcome}}")}})
	d.graph(panel{title: "Decision to delivered page", width: 12, height: 8, unit: seconds,
		about: "From a decision to the delivery of its page, from the histogram flyball_page_seconds.",
		queries: []query{
			prom(`histogram_quantile(0.50, sum by (le) (rate(flyball_page_seconds_bucket{instance=~"$instance"}[$__rate_interval])))`, "p50"),
			prom(`histogram_quantile(0.99, sum by (le) (rate(flyball_page_seconds_bucket{instance=~"$instance"}[$__rate_interval])))`, "p99"),
		}})
	d.graph(panel{title: "Ledger", width: 12, height: 8, unit: count, right: map[string]string{"new/s": perSec, "entries/s": perSec},
		about: "Accounts of the ledger in memory, accounts opened in a second (a sudden rise is a sender that makes up ids), and entries applied in a second (flyball_ledger_accounts, flyball_ledger_new_accounts_total, flyball_ledger_entries_total).",
		queries: []query{
			prom(`sum(flyball_ledger_accounts{instance=~"$instance"})`, "accounts"),
			prom(`sum(rate(flyball_ledger_new_accounts_total{instance=~"$instance"}[$__rate_interval]))`, "new/s"),
			prom(`sum(rate(flyball_ledger_entries_total{instance=~"$instance"}[$__rate_interval]))`, "entries/s"),
		}})

	d.row("Whom it met (ClickHouse)")
	d.graph(panel{title: "Calls that a budget refused", width: 12, height: 8, unit: count, bars: true, stacked: true, each: "${__field.labels.by_tenant}", links: []link{{"Runs", console + shownTime + "&tenant=" + labelled("by_tenant")}},
		about: "Attempts whose span says that a budget refused them (failure budget), in each interval. Calls that a limiter refused without a span are not here but among the checks. From spend_15m.",
		queries: []query{series(`
SELECT $__timeInterval(at) AS time, tenant AS by_tenant, sum(calls) AS refused
FROM spend_15m
WHERE {time} AND {calls} AND failure = 'budget'
GROUP BY time, by_tenant
HAVING refused != 0
ORDER BY time, by_tenant`)}})
	refused := []link{{"Runs", console + shownTime + "&tenant=" + field("tenant") + "&feature=" + field("feature")}, {"Calls as JSON", api + "calls?failure=budget&" + shownTime + "&tenant=" + field("tenant") + "&feature=" + field("feature")}}
	d.list(panel{title: "Refused by a budget, by tenant, feature and user", width: 12, height: 8, unit: count,
		about: "Attempts whose span says that a budget refused them, over the time that is shown. From spend_15m.",
		queries: []query{rows(`
SELECT tenant, feature, user, model, sum(calls) AS refused
FROM spend_15m
WHERE {time} AND {calls} AND failure = 'budget'
GROUP BY tenant, feature, user, model
HAVING refused != 0
ORDER BY refused DESC, tenant, feature, user, model
LIMIT ${top}`)},
		columns: []column{
			{name: "tenant", title: "Tenant", unit: words, links: runsOf("tenant")},
			{name: "feature", title: "Feature", unit: words, empty: "(none)"},
			{name: "user", title: "User", unit: words, empty: "(none)"},
			{name: "model", title: "Model", unit: words, empty: "(none)"},
			{name: "refused", title: "Refused", unit: count, links: refused},
		}})

	d.row("History (ClickHouse)")
	d.graph(panel{title: "Leaked calls by class", width: 12, height: 8, unit: count, bars: true, stacked: true, links: guards, each: "${__field.labels.by_class}",
		about: "Calls that started although a directive refused them, from the table enforcement, so that it reaches as far back as the rollups: propagation, leak, unguarded.",
		queries: []query{series(`
SELECT $__timeInterval(at) AS time, class AS by_class, sum(calls) AS leaked
FROM enforcement FINAL
WHERE at >= $__fromTime AND at < $__toTime AND kind = 'leak' AND {whose}
GROUP BY time, by_class
ORDER BY time, by_class`)}})
	d.list(panel{title: "Leakage by guard and limiter", width: 12, height: 8, unit: count,
		about: "What passed although a directive refused it, over the time that is shown, by guard and the limiter it came through; without a limiter where several could have let it pass. USD is what a guard counts. From the table enforcement.",
		queries: []query{rows(`
SELECT guard, limiter, class, sum(e.calls) AS leaked, toFloat64(sum(ifNull(e.cost, 0))) / 1e12 AS spend
FROM enforcement AS e FINAL
WHERE at >= $__fromTime AND at < $__toTime AND kind = 'leak' AND {whose}
GROUP BY guard, limiter, class
ORDER BY spend DESC, guard, limiter, class
LIMIT ${top}`)},
		columns: []column{
			{name: "guard", title: "Guard", unit: words, links: guards},
			{name: "limiter", title: "Limiter", unit: words, empty: "(several or none)"},
			{name: "class", title: "Class", unit: words},
			{name: "leaked", title: "Calls", unit: count},
			{name: "spend", title: "USD", unit: usd, links: []link{{"As JSON", api + "enforcement/leakage?" + shownTime + "&guard=" + field("guard")}}},
		}})
	d.list(panel{title: "Time to enforce by limiter, exact", width: 12, height: 8, unit: seconds,
		about: "From the receipt of the span that crossed a limit to the acknowledgement of a limiter, over the time that is shown: quantiles of every single one, not of buckets. From the table enforcement.",
		queries: []query{rows(`
SELECT limiter, count() AS followed, toFloat64(quantileExact(0.5)(assumeNotNull(took_ns))) / 1e9 AS p50, toFloat64(quantileExact(0.9)(assumeNotNull(took_ns))) / 1e9 AS p90,
    toFloat64(quantileExact(0.99)(assumeNotNull(took_ns))) / 1e9 AS p99, toFloat64(max(assumeNotNull(took_ns))) / 1e9 AS slowest
FROM enforcement FINAL
WHERE at >= $__fromTime AND at < $__toTime AND kind = 'applied' AND isNotNull(took_ns) AND {whose}
GROUP BY limiter
ORDER BY p99 DESC, limiter
LIMIT ${top}`)},
		columns: []column{
			{name: "limiter", title: "Limiter", unit: words},
			{name: "followed", title: "Directives", unit: count},
			{name: "p50", title: "p50", unit: seconds}, {name: "p90", title: "p90", unit: seconds},
			{name: "p99", title: "p99", unit: seconds, steps: []step{{2, "orange"}, {5, "red"}}}, {name: "slowest", title: "Slowest", unit: seconds},
		}})
	d.list(panel{title: "What enforcement did, newest first", width: 12, height: 8, unit: words,
		about: "Directives, releases, pages, flips of the kill switch, drills and changes of the policy in the time that is shown; what concerns the whole org is always among them. From the table enforcement.",
		queries: []query{rows(`
SELECT at, kind, guard, action, tenant, scope, value, limit, actor, reason
FROM enforcement FINAL
WHERE at >= $__fromTime AND at < $__toTime AND kind NOT IN ('leak', 'applied') AND {whose}
ORDER BY at DESC, seq DESC
LIMIT ${top}`)},
		columns: []column{
			{name: "at", title: "At", unit: instant, width: 170},
			{name: "kind", title: "Kind", unit: words}, {name: "guard", title: "Guard", unit: words, links: guards}, {name: "action", title: "Action", unit: words},
			{name: "tenant", title: "Tenant", unit: words, empty: "(the org)"}, {name: "scope", title: "Scope", unit: words},
			{name: "value", title: "Value", unit: words}, {name: "limit", title: "Limit", unit: words}, {name: "actor", title: "Actor", unit: words}, {name: "reason", title: "Reason", unit: words},
		}})
	return d
}

// limiters is the health of those that carry directives out.
func limiters() *board {
	d := newBoard("flyball-limiters", "Flyball: Limiter health", "Whether limiters follow the feed, how far they are behind, what they ask, and what they report of themselves.", "browser", "now-6h", "now")
	d.source("prometheus", "Prometheus", prometheusType)
	d.instances()
	d.source("clickhouse", "ClickHouse", clickhouseType)
	d.pick("tenant")
	d.choice("top", "Top", "How many values a list or a graph names.", "10", "25", "50", "100")
	d.console()
	d.killed()

	d.row("Now")
	d.number(panel{title: "Active limiters", width: 4, height: 4, unit: count,
		about:   "Limiters that acknowledged something within five minutes (flyball_limiters).",
		queries: []query{now(`sum(flyball_limiters{instance=~"$instance"})`, "limiters")}})
	d.number(panel{title: "Connections", width: 4, height: 4, unit: count,
		about:   "Limiters that follow by server-sent events (flyball_feed_connections). Those that poll are not among them.",
		queries: []query{now(`sum(flyball_feed_connections{instance=~"$instance"})`, "connections")}})
	d.number(panel{title: "Feed lag", width: 4, height: 4, unit: count, steps: []step{{1, "orange"}, {10, "red"}},
		about:   "Revisions that the slowest active limiter has not acknowledged (flyball_feed_lag_revisions). The largest of the instances.",
		queries: []query{now(`max(flyball_feed_lag_revisions{instance=~"$instance"})`, "revisions")}})
	d.number(panel{title: "Denied", width: 4, height: 4, unit: share, none: "no checks",
		about:   "Checks that were answered with deny, over all checks, over the time that is shown (flyball_checks_total).",
		queries: []query{now(`sum(increase(flyball_checks_total{instance=~"$instance",verdict="deny"}[$__range])) / sum(increase(flyball_checks_total{instance=~"$instance"}[$__range]))`, "denied")}})
	d.number(panel{title: "Refused acknowledgements", width: 4, height: 4, unit: count, steps: alarmAny, none: "none",
		about:   "Acknowledgements that were not taken, over the time that is shown (flyball_limiter_acks_total): forged, ahead of what was published, for a limiter of another key, or of more limiters than a key may have.",
		queries: []query{now(`sum(increase(flyball_limiter_acks_total{instance=~"$instance",outcome!="taken"}[$__range]))`, "refused")}})
	d.number(panel{title: "Leaked after acknowledgement", width: 4, height: 4, unit: count, steps: alarmAny, none: "none",
		about:   "Calls that started after every limiter they could have gone through had acknowledged the directive that refuses them, over the time that is shown (flyball_leaked_calls_total, kind leak): a limiter says that it applied what it did not.",
		queries: []query{now(`sum(increase(flyball_leaked_calls_total{instance=~"$instance",kind="leak"}[$__range]))`, "calls")}})

	d.row("Following the feed")
	d.graph(panel{title: "Feed connections and active limiters", width: 12, height: 8, unit: count,
		about: "Limiters that follow by server-sent events, and limiters that acknowledged something within five minutes (flyball_feed_connections, flyball_limiters).",
		queries: []query{
			prom(`sum by (instance) (flyball_feed_connections{instance=~"$instance"})`, "{{instance}} connections"),
			prom(`sum by (instance) (flyball_limiters{instance=~"$instance"})`, "{{instance}} active"),
		}})
	d.graph(panel{title: "Feed lag", width: 12, height: 8, unit: count,
		about:   "Revisions that the slowest active limiter has not acknowledged (flyball_feed_lag_revisions).",
		queries: []query{prom(`max by (instance) (flyball_feed_lag_revisions{instance=~"$instance"})`, "{{instance}}")}})
	d.graph(panel{title: "Acknowledgements by outcome", width: 12, height: 8, unit: perSec, stacked: true,
		about:   "Acknowledgements in a second (flyball_limiter_acks_total): taken; forged, with a token that the service did not give out; ahead, of a version it never published; foreign, for the limiter of another key; too_many, of more limiters than the key may have.",
		queries: []query{prom(`sum by (outcome) (rate(flyball_limiter_acks_total{instance=~"$instance"}[$__rate_interval]))`, "{{outcome}}")}})
	d.graph(panel{title: "Time to enforce by limiter, p99", width: 12, height: 8, unit: seconds, steps: []step{{2, "orange"}, {5, "red"}},
		about:   "From the receipt of the span that crossed a limit to this limiter's acknowledgement, by the service's clock; beyond a hundred limiters the rest is other. From the histogram flyball_time_to_enforce_seconds.",
		queries: []query{prom(`histogram_quantile(0.99, sum by (limiter, le) (rate(flyball_time_to_enforce_seconds_bucket{instance=~"$instance"}[$__rate_interval])))`, "{{limiter}}")}})

	d.row("Asking")
	d.graph(panel{title: "Checks by answer", width: 12, height: 8, unit: perSec, stacked: true,
		about:   "Questions of limiters in a second, by what they were answered (flyball_checks_total).",
		queries: []query{prom(`sum by (verdict) (rate(flyball_checks_total{instance=~"$instance"}[$__rate_interval]))`, "{{verdict}}")}})
	d.graph(panel{title: "Leases by outcome", width: 12, height: 8, unit: perSec, stacked: true,
		about:   "Leases in a second: granted, refused, settled, released, expired (flyball_leases_total).",
		queries: []query{prom(`sum by (outcome) (rate(flyball_leases_total{instance=~"$instance"}[$__rate_interval]))`, "{{outcome}}")}})
	d.reported()
	d.row("Envoy")
	d.graph(panel{title: "Answers to gateways", width: 12, height: 8, unit: perSec, stacked: true,
		about:   "Questions of Envoy-family gateways in a second, by service and what they were answered (flyball_envoy_requests_total). Empty unless listen.envoy is on.",
		queries: []query{prom(`sum by (service, answer) (rate(flyball_envoy_requests_total{instance=~"$instance"}[$__rate_interval])) > 0`, "{{service}} {{answer}}")}})
	d.graph(panel{title: "Time to answer a gateway, p99", width: 12, height: 8, unit: seconds, steps: []step{{0.01, "orange"}, {0.02, "red"}},
		about:   "Without the way there and back, from the histogram flyball_envoy_seconds. Envoy gives up on the rate limit service (rls) after 20 ms unless configured otherwise.",
		queries: []query{prom(`histogram_quantile(0.99, sum by (service, le) (rate(flyball_envoy_seconds_bucket{instance=~"$instance"}[$__rate_interval])))`, "{{service}}")}})
	d.graph(panel{title: "Charges of gateways", width: 24, height: 7, unit: count, bars: true, stacked: true,
		about:   "What gateways reported of calls they had admitted, in each interval: booked; capped, booked as less than they said; failed, known to no budget until the span comes; refused, of a tenant that the key lacks; refund_ignored (flyball_envoy_charges_total).",
		queries: []query{prom(`sum by (outcome) (increase(flyball_envoy_charges_total{instance=~"$instance"}[$__rate_interval])) > 0`, "{{outcome}}")}})

	d.row("Elsewhere")
	d.note("What is not here", "Where to look for single limiters, and what this board cannot know.",
		"Each limiter with the version it has and when it was last seen: `GET /api/v1/limiters`, or [the console](${console:raw}/#/limiters).\n\n"+
			"What limiters report of themselves is there only where they send it, as OTLP metrics under the names that `deploy/docs/limiter-signals.md` lists. All other figures are the service's own; the age of a limiter's copy is not among them.", 24, 4)
	return d
}

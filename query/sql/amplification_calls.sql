-- Of many runs the index of their ids would find every granule, at some cost.
-- By a property of calls: the calls with a value over the requests of the runs that have one.
-- Attempts inside an SDK stand under the failure that caused them.
SELECT *, throwIf(max(foreign) OVER () != 0, 'a row of another tenant') AS guard FROM (
    SELECT {{range .RunGroups}}i.{{.}} AS {{.}}, {{end}}{{range .CallGroups}}c.{{.}} AS {{.}}, {{end}}{{.At}} AS at,
        toInt64(count()) AS requests, sum(c.model_calls) AS model_calls, sum(c.tool_calls) AS tool_calls, sum(c.retries) AS retries, sum(c.fallbacks) AS fallbacks, sum(c.hedges) AS hedges,
        sum(c.repeats) AS repeats, sum(c.unpriced) AS unpriced, sum(c.unknown) AS unknown, sum(c.cost) AS cost, sum(c.wasted) AS wasted,
        quantilesExact(0.5, 0.9, 0.99)(toFloat64(c.model_calls + c.tool_calls + c.retries + c.fallbacks + c.hedges)) AS q,
        max(c.foreign) AS foreign
    FROM (
        SELECT run_hash, run_check, {{range .CallGroups}}{{.}}, {{end}}
            sum(l.model_calls) AS model_calls, sum(l.tool_calls) AS tool_calls, sum(l.retries) AS retries, sum(l.fallbacks) AS fallbacks, sum(l.hedges) AS hedges,
            sum(l.repeats) AS repeats, sum(l.unpriced) AS unpriced, sum(l.unknown) AS unknown, sum(l.cost) AS cost, sum(l.wasted) AS wasted, max(l.foreign) AS foreign
        FROM (
            SELECT cityHash64(run_id) AS run_hash, sipHash64(tenant, run_id) AS run_check, NOT ({{.Allowed}}) AS foreign, toString(j.kind) AS kind, provider, model, if(inside, 'sdk', toString(j.retry_layer)) AS retry_layer, toString(if(inside, j.hidden_cause, j.failure)) AS failure,
                j.sign * (1 - inside) AS once, once * toInt64(j.model_calls) AS model_calls, once * toInt64(j.tool_calls) AS tool_calls, j.sign * toInt64(if(inside, j.hidden_attempts, j.retries)) AS retries,
                once * toInt64(j.fallbacks) AS fallbacks, once * toInt64(j.hedges) AS hedges, once * toInt64(j.repeats) AS repeats, once * toInt64(j.cost_status = 'unpriced') AS unpriced,
                once * toInt64(j.cost_status = 'unknown') AS unknown, once * toInt128(ifNull(j.cost, 0)) AS cost, once * toInt128(j.wasted) AS wasted
            FROM journal AS j
            ARRAY JOIN if(j.hidden_attempts > 0, [0, 1], [0]) AS inside
            WHERE {{.Tenants}} AND recorded_at >= {{template "booked_since" .}} AND (run_hash, run_check) IN (SELECT run_hash, run_check FROM ({{template "agent_runs" .}}) GROUP BY run_hash, run_check HAVING sum(sign) > 0)
        ) AS l
        WHERE {{.Filter}}
        GROUP BY run_hash, run_check{{range .CallGroups}}, {{.}}{{end}}
        HAVING model_calls + tool_calls + retries + fallbacks + hedges > 0
    ) AS c
    {{if .OfRuns}}INNER JOIN (
        SELECT run_hash, run_check, tenant, started_at{{range .Info}}, {{.}}{{end}} FROM ({{template "agent_runs" .}}) GROUP BY ALL HAVING sum(sign) > 0
    ) AS i ON i.run_hash = c.run_hash AND i.run_check = c.run_check{{end}}
    GROUP BY {{range .Groups}}{{.}}, {{end}}at
    HAVING requests > 0
)
ORDER BY at, requests DESC{{range .Groups}}, {{.}}{{end}}
LIMIT {limit:UInt32} OFFSET {offset:UInt32}
SETTINGS ignore_data_skipping_indices = 'by_run_id'

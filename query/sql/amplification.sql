-- A run without a model call is no agent run and is left out of every ratio.
SELECT {{range .Groups}}{{.}}, {{end}}
    count() AS requests, sum(r.model_calls) AS model_calls, sum(r.tool_calls) AS tool_calls, sum(r.retries) AS retries, sum(r.fallbacks) AS fallbacks, sum(r.hedges) AS hedges,
    sum(r.unpriced) AS unpriced, sum(r.unknown) AS unknown, sum(r.repeats) AS repeats, sum(r.cost) AS cost, sum(r.wasted) AS wasted,
    quantilesExact(0.5, 0.9, 0.99)(toFloat64(r.model_calls + r.tool_calls + r.retries + r.fallbacks + r.hedges)) AS q
FROM (
    SELECT tenant, run_id, sum(model_calls) AS model_calls, sum(tool_calls) AS tool_calls, sum(retries + hidden_attempts) AS retries, sum(fallbacks) AS fallbacks, sum(hedges) AS hedges,
        sum(unpriced) AS unpriced, sum(unknown) AS unknown, sum(repeats) AS repeats, sum(cost) AS cost, sum(wasted) AS wasted
    FROM runs WHERE {{.Tenants}} GROUP BY tenant, run_id HAVING model_calls > 0
) AS r
INNER JOIN (
    SELECT tenant, run_id, user, feature, workflow, workflow_version, agent, environment, mode, criticality
    FROM run_info FINAL WHERE {{.Tenants}} AND started_at >= {from:DateTime('UTC')} AND started_at < {to:DateTime('UTC')} AND {{.Filter}}
) AS i USING (tenant, run_id)
{{if .Groups}}GROUP BY {{range $i, $g := .Groups}}{{if $i}}, {{end}}{{$g}}{{end}}
{{end}}ORDER BY requests DESC{{range .Groups}}, {{.}}{{end}}
LIMIT {limit:UInt32}

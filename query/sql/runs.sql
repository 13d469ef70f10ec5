SELECT tenant, run_id, started_at, ended_at, status, name, user, feature, workflow, agent, model_calls, tool_calls, retries, cost, unpriced, unknown
FROM (
    SELECT tenant, run_id, sum(model_calls) AS model_calls, sum(tool_calls) AS tool_calls, sum(runs.retries + runs.hidden_attempts + runs.fallbacks + runs.hedges) AS retries, sum(cost) AS cost, sum(unpriced) AS unpriced, sum(unknown) AS unknown, sum(lines) AS n
    FROM runs WHERE {{.Tenants}} GROUP BY tenant, run_id HAVING n > 0 AND model_calls > 0
) AS r
INNER JOIN (
    SELECT tenant, run_id, started_at, ended_at, toString(status) AS status, name, user, feature, workflow, agent
    FROM run_info FINAL WHERE {{.Tenants}} AND started_at >= {from:DateTime('UTC')} AND started_at < {to:DateTime('UTC')} AND {{.Filter}}
) AS i USING (tenant, run_id)
ORDER BY started_at DESC, run_id
LIMIT {limit:UInt32}

-- The runs that began last. What a run was before it changed is taken out by its row with sign -1, which is equal else.
SELECT *, throwIf(NOT ({{.Allowed}}), 'a row of another tenant') AS guard FROM (
    SELECT r.tenant AS tenant, r.run_hash AS run_hash, r.run_check AS run_check, r.started_at AS started_at, user, feature, workflow, workflow_version, agent,
        model_calls, tool_calls, retries, fallbacks, hedges, cost, unpriced, unknown
    FROM ({{template "agent_runs" .}}) AS r
    {{if .After}}WHERE r.started_at < toDateTime64({after_at:String}, 9, 'UTC') OR (r.tenant, r.run_hash, r.run_check) > ({after_tenant:String}, cityHash64({after_run:String}), sipHash64({after_tenant:String}, {after_run:String})){{end}}
    GROUP BY ALL
    HAVING sum(r.sign) > 0
    ORDER BY started_at DESC, tenant, run_hash, run_check
    LIMIT {limit:UInt32}
)
ORDER BY started_at DESC, tenant, run_hash, run_check

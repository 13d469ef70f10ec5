SELECT *, throwIf(NOT ({{.Allowed}}), 'a row of another tenant') AS guard FROM (
    SELECT i.tenant AS tenant, i.run_id AS run_id, i.started_at AS started_at, i.ended_at AS ended_at, toString(i.status) AS status, i.name AS name, i.user AS user, i.feature AS feature,
        i.workflow AS workflow, i.workflow_version AS workflow_version, i.agent AS agent, r.model_calls AS model_calls, r.tool_calls AS tool_calls, r.retries AS retries,
        r.fallbacks AS fallbacks, r.hedges AS hedges, r.cost AS cost, r.unpriced AS unpriced, r.unknown AS unknown
    FROM ({{template "run_info" .}}) AS i
    INNER JOIN ({{template "run_sums" .}}) AS r ON i.run_key = r.run_key
    {{if .After}}WHERE i.started_at < toDateTime64({after_at:String}, 9, 'UTC') OR (i.tenant, i.run_id) > ({after_tenant:String}, {after_run:String}){{end}}
    ORDER BY started_at DESC, tenant, run_id
    LIMIT {limit:UInt32}
)
ORDER BY started_at DESC, tenant, run_id

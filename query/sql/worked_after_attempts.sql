-- Every attempt that failed, that came after one that did, or that has attempts without a span inside.
SELECT *, throwIf(NOT ({{.Allowed}}), 'a row of another tenant') AS guard FROM (
    SELECT {{range .Columns}}j.{{.}} AS {{.}}, {{end}}j.tenant AS tenant, lower(hex(j.trace_id)) AS trace, span_id, lower(hex(parent_span_id)) AS parent, toString(j.kind) AS of_kind, j.provider AS of_provider, j.model AS of_model, j.tool AS of_tool, j.workflow AS of_workflow,
        if(j.requested_model = '', j.model, j.requested_model) AS target, args_hash, toUnixTimestamp64Nano(j.started_at) AS start, start + j.duration_ns AS end, attempt, hidden_attempts, fallback,
        toString(j.retry_layer) AS by, toString(j.retry_cause) AS cause, toString(j.failure) AS failed, if(j.cost_status IN ('unpriced', 'unknown'), NULL, ifNull(j.cost, 0)) AS known_cost, {{.Filter}} AS wanted
    FROM ({{template "net_lines" .}}) AS j
    WHERE (j.attempt > 1 OR j.failure NOT IN ('', 'refused') OR j.hidden_attempts > 0) AND hedges = 0 AND bitAnd(flags, {promoted:UInt64}) = 0
    LIMIT {limit:UInt32}
)
ORDER BY tenant, trace, of_kind, start, span_id

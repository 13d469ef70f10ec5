-- Calls that worked at once: their first and only attempt.
SELECT *, throwIf(max(foreign) OVER () != 0, 'a row of another tenant') AS guard FROM (
    SELECT {{range .Columns}}j.{{.}} AS {{.}}, {{end}}j.tenant AS tenant, toString(j.kind) AS of_kind, j.provider AS of_provider, j.model AS of_model, j.tool AS of_tool, j.workflow AS of_workflow,
        sum(toInt64(j.sign)) AS calls, sum(j.sign * toInt64(j.cost_status NOT IN ('unpriced', 'unknown'))) AS costed,
        sum(j.sign * toInt128(ifNull(j.cost, 0))) AS cost, sum(j.sign * toInt128(j.duration_ns)) AS elapsed, max(NOT ({{.Allowed}})) AS foreign
    FROM journal AS j
    WHERE {{template "entries_time" .}} AND model_calls + tool_calls = 1 AND failure IN ('', 'refused') AND attempt = 1 AND hidden_attempts = 0 AND bitAnd(flags, {promoted:UInt64}) = 0 AND {{.Filter}}
    GROUP BY {{range .Columns}}{{.}}, {{end}}tenant, of_kind, of_provider, of_model, of_tool, of_workflow
    HAVING calls != 0
    LIMIT {limit:UInt32}
)

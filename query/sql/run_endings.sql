-- What decides a run's status beside its root: the last attempt at a write, and refusals by a budget.
SELECT *, throwIf(NOT ({{.Allowed}}), 'a row of another tenant') AS guard FROM (
    SELECT tenant, run_id,
        argMaxIf(toString(failure), (started_at, trace_id, span_id), tool_effect = 'write') AS last_write,
        countIf(failure = 'budget') AS denied
    FROM journal
    WHERE {{.Tenants}} AND {{.Filter}} AND sign = 1 AND (tenant, trace_id, span_id, part, version) IN (
        SELECT tenant, trace_id, span_id, part, version FROM journal
        WHERE {{.Tenants}} AND {{.Filter}}
        GROUP BY tenant, trace_id, span_id, part, version HAVING sum(sign) > 0)
    GROUP BY tenant, run_id
)

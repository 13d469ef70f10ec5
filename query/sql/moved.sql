-- The run that a trace belongs to now: its root's, else that of its first call.
SELECT *, throwIf(NOT ({{.Allowed}}), 'a row of another tenant') AS guard FROM (
    SELECT tenant, argMin(run_id, (parent_span_id != toFixedString('', 8), started_at, span_id)) AS run
    FROM journal
    WHERE {{.Tenants}} AND {{.Filter}} AND sign = 1 AND (tenant, trace_id, span_id, part, version) IN (
        SELECT tenant, trace_id, span_id, part, version FROM journal
        WHERE {{.Tenants}} AND {{.Filter}}
        GROUP BY tenant, trace_id, span_id, part, version HAVING sum(sign) > 0)
    GROUP BY tenant
)
ORDER BY tenant DESC

-- Everything a run report adds up, of all its lines, however many the tree shows.
SELECT *, throwIf(NOT ({{.Allowed}}), 'a row of another tenant') AS guard FROM (
    SELECT tenant, toString(j.kind) AS kind, toString(j.failure) AS failure, toString(j.retry_layer) AS retry_layer, j.flags AS flags,
        j.parent_span_id = toFixedString('', 8) AND j.source = 'span' AND j.part = 0 AS root, j.tool_effect = 'write' AS write,
        sum(toInt64(j.model_calls)) AS model_calls, sum(toInt64(j.tool_calls)) AS tool_calls, sum(toInt64(j.retries)) AS retries,
        sum(toInt64(j.hidden_attempts)) AS hidden_attempts, sum(toInt64(j.fallbacks)) AS fallbacks, sum(toInt64(j.hedges)) AS hedges, sum(toInt64(j.repeats)) AS repeats,
        toInt64(countIf(j.model_calls + j.tool_calls + j.retries + j.fallbacks + j.hedges > 0)) AS counted,
        toInt64(countIf(j.cost_status = 'unpriced')) AS unpriced, toInt64(countIf(j.cost_status = 'unknown')) AS unknown,
        sum(toInt128(ifNull(j.cost, 0))) AS cost, sum(toInt128(j.wasted)) AS wasted,
        min(j.started_at) AS first, max(j.started_at) AS last, max(toUnixTimestamp64Nano(j.started_at) + j.duration_ns) AS ended
    FROM journal AS j
    WHERE {{.Tenants}} AND {{.Filter}} AND j.sign = 1 AND (tenant, trace_id, span_id, part, version) IN (
        SELECT tenant, trace_id, span_id, part, version FROM journal
        WHERE {{.Tenants}} AND {{.Filter}}
        GROUP BY tenant, trace_id, span_id, part, version HAVING sum(sign) > 0)
    GROUP BY tenant, kind, failure, retry_layer, flags, root, write
)
ORDER BY tenant, last

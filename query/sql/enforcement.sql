-- The newest first. FINAL, since a row may have been sent twice.
SELECT *, throwIf(NOT ({{.Allowed}}), 'a row of another tenant') AS second_line FROM (
    SELECT tenant, at, node, seq, kind, guard, scope, user, action, measure, value, limit, rung, window, shadow, actor, reason, directive, revision, limiter, class,
        calls, ifNull(e.cost, toInt128(0)) AS usd, isNull(e.cost) AS no_usd, took_ns, after_span_ns, trace_id
    FROM enforcement AS e FINAL
    WHERE {{.Tenants}} AND {{.Filter}} AND at >= toDateTime64({from:String}, 6, 'UTC') AND at < toDateTime64({to:String}, 6, 'UTC')
        {{if .After}}AND (at, node, seq) < (toDateTime64({after_at:String}, 6, 'UTC'), {after_node:String}, {after_seq:UInt64}){{end}}
    ORDER BY at DESC, node DESC, seq DESC
    LIMIT {limit:UInt32}
)
ORDER BY at DESC, node DESC, seq DESC

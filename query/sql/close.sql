-- A closed month beside what is known of it now. What was booked since is the adjustment.
SELECT *, current_cost - frozen_cost AS adjustment_cost, current_calls - frozen_calls AS adjustment_calls,
    count() OVER () AS all_rows, sum(frozen_cost) OVER () AS all_frozen_cost, sum(current_cost) OVER () AS all_current_cost,
    sum(frozen_calls) OVER () AS all_frozen_calls, sum(current_calls) OVER () AS all_current_calls,
    throwIf(max(foreign) OVER () != 0, 'a row of another tenant') AS guard
FROM (
    SELECT tenant, provider, model, sum(l.frozen_cost) AS frozen_cost, sum(l.current_cost) AS current_cost, sum(l.frozen_calls) AS frozen_calls, sum(l.current_calls) AS current_calls,
        sum(l.frozen_unpriced) AS frozen_unpriced, sum(l.current_unpriced) AS current_unpriced, sum(l.frozen_unknown) AS frozen_unknown, sum(l.current_unknown) AS current_unknown,
        max(NOT ({{.Allowed}})) AS foreign
    FROM (
        SELECT tenant, provider, model, cost AS frozen_cost, calls AS frozen_calls, unpriced AS frozen_unpriced, unknown AS frozen_unknown,
            toInt128(0) AS current_cost, toInt64(0) AS current_calls, toInt64(0) AS current_unpriced, toInt64(0) AS current_unknown
        FROM closes WHERE {{.Tenants}} AND period = {period:String}
        UNION ALL
        SELECT tenant, provider, model, toInt128(0), toInt64(0), toInt64(0), toInt64(0), s.cost, s.calls, s.unpriced, s.unknown
        FROM (SELECT * FROM spend_15m WHERE {{.Tenants}} AND at >= {from:DateTime('UTC')} AND at < {to:DateTime('UTC')}) AS s
        INNER JOIN (SELECT tenant, min(starts_at) AS starts_at, min(ends_at) AS ends_at FROM closes WHERE {{.Tenants}} AND period = {period:String} GROUP BY tenant) AS p ON s.tenant = p.tenant
        WHERE s.at >= p.starts_at AND s.at < p.ends_at
    ) AS l
    GROUP BY tenant, provider, model
    HAVING frozen_cost != 0 OR current_cost != 0 OR frozen_calls != 0 OR current_calls != 0 OR frozen_unpriced != 0 OR current_unpriced != 0 OR frozen_unknown != 0 OR current_unknown != 0
    {{- if .FX}}
        -- Days that come to nothing in USD may still come to something there.
        OR (tenant, provider, model) IN (SELECT tenant, provider, model FROM spend_15m AS s WHERE {{.Tenants}} AND s.at >= {from:DateTime('UTC')} AND s.at < {to:DateTime('UTC')}
            GROUP BY tenant, provider, model, {{.FXDay}}, booked_on HAVING sum(s.cost) != 0)
    {{- end}}
)
ORDER BY tenant, provider, model
LIMIT {limit:UInt32} OFFSET {offset:UInt32}

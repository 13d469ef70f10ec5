-- Traces with spans of several tenants, by the first and the last of these in the order of their names. A reader sees
-- those alone of which it sees both. Beyond half a million traces some
-- are looked at, so that the memory stays bounded.
SELECT one, other, count() AS traces, min(trace) AS example, throwIf(max(foreign) != 0, 'a row of another tenant') AS guard FROM (
    SELECT lower(hex(trace_id)) AS trace, min(tenant) AS one, max(tenant) AS other, max(NOT ({{.Allowed}})) AS foreign
    FROM journal
    WHERE {{.Tenants}} AND started_at >= {from:DateTime('UTC')} AND started_at < {to:DateTime('UTC')} AND recorded_at >= {from:DateTime('UTC')} - INTERVAL 10 MINUTE AND sign = 1
    GROUP BY trace_id HAVING one != other
)
GROUP BY one, other
ORDER BY traces DESC, one, other
LIMIT 1000
SETTINGS max_rows_to_group_by = 500000, group_by_overflow_mode = 'any'

-- How many requests began on each day.
SELECT *, throwIf(foreign != 0, 'a row of another tenant') AS guard FROM (
    SELECT r.tenant AS tenant, {{.RunDay}} AS day, sum(r.sign) AS requests, max(NOT ({{.Allowed}})) AS foreign
    FROM ({{template "agent_runs" .}}) AS r
    GROUP BY tenant, day
)
ORDER BY tenant, day
SETTINGS max_bytes_before_external_group_by = 300000000

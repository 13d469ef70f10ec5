-- How many requests began on each day.
SELECT *, throwIf(foreign != 0, 'a row of another tenant') AS guard FROM (
    SELECT i.tenant AS tenant, {{.RunDay}} AS day, toInt64(count()) AS requests, max(i.foreign) AS foreign
    FROM ({{template "run_sums" .}}) AS r
    INNER JOIN (SELECT *, NOT ({{.Allowed}}) AS foreign FROM ({{template "run_info" .}})) AS i ON i.tenant = r.tenant AND i.run_id = r.run_id
    GROUP BY tenant, day
)
ORDER BY tenant, day

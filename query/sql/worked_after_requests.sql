-- Runs whose root says that they worked, by the retries in them.
SELECT *, throwIf(max(foreign) OVER () != 0, 'a row of another tenant') AS guard FROM (
    SELECT {{range .Columns}}i.{{.}} AS {{.}}, {{end}}i.tenant AS tenant, i.workflow AS of_workflow, least(r.retries, 3) AS n, r.unpriced + r.unknown > 0 AS uncosted,
        toInt64(count()) AS calls, sum(r.cost) AS cost, sum(toInt128(toUnixTimestamp64Nano(i.ended_at)) - toUnixTimestamp64Nano(i.started_at)) AS elapsed, max(i.foreign) AS foreign
    FROM ({{template "run_sums" .}}) AS r
    INNER JOIN (SELECT *, NOT ({{.Allowed}}) AS foreign FROM ({{template "run_info" .}})) AS i ON i.run_key = r.run_key
    WHERE i.status = 'succeeded'
    GROUP BY {{range .Columns}}{{.}}, {{end}}tenant, of_workflow, n, uncosted
    LIMIT {limit:UInt32}
)

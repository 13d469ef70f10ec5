-- Runs in which tools were called again with arguments that the run had used before.
SELECT *, throwIf(max(foreign) OVER () != 0, 'a row of another tenant') AS guard FROM (
    SELECT {{range .Groups}}i.{{.}} AS {{.}}, {{end}}
        toInt64(count()) AS requests, toInt64(countIf(r.repeats > 0)) AS looping, sum(r.tool_calls) AS tools, sum(r.repeats) AS again, max(r.repeats) AS most,
        sum(r.cost) AS cost, sumIf(r.cost, r.repeats > 0) AS looping_cost, sumIf(r.unpriced + r.unknown, r.repeats > 0) AS uncosted, max(i.foreign) AS foreign
    FROM ({{template "run_sums" .}}) AS r
    INNER JOIN (SELECT *, NOT ({{.Allowed}}) AS foreign FROM ({{template "run_info" .}})) AS i ON i.run_key = r.run_key
    {{if .Groups}}GROUP BY {{range $i, $g := .Groups}}{{if $i}}, {{end}}{{$g}}{{end}}{{end}}
    HAVING requests > 0
)
ORDER BY again DESC, looping_cost DESC{{range .Groups}}, {{.}}{{end}}
LIMIT {limit:UInt32} OFFSET {offset:UInt32}

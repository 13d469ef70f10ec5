SELECT *, throwIf(max(foreign) OVER () != 0, 'a row of another tenant') AS guard FROM (
    SELECT {{range .Groups}}i.{{.}} AS {{.}}, {{end}}toInt64(count()) AS requests, max(i.foreign) AS foreign
    FROM ({{template "run_sums" .}}) AS r
    INNER JOIN (SELECT *, NOT ({{.Allowed}}) AS foreign FROM ({{template "run_info" .}})) AS i ON i.tenant = r.tenant AND i.run_id = r.run_id
    {{if .Groups}}GROUP BY {{range $i, $g := .Groups}}{{if $i}}, {{end}}{{$g}}{{end}}{{end}}
    HAVING requests > 0
)

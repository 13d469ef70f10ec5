SELECT *, throwIf(max(foreign) OVER () != 0, 'a row of another tenant') AS guard FROM (
    SELECT {{range .Groups}}r.{{.}} AS {{.}}, {{end}}sum(r.sign) AS requests, max(NOT ({{.Allowed}})) AS foreign
    FROM ({{template "agent_runs" .}}) AS r
    {{if .Groups}}GROUP BY {{range $i, $g := .Groups}}{{if $i}}, {{end}}{{$g}}{{end}}{{end}}
    HAVING requests != 0
)
SETTINGS max_bytes_before_external_group_by = 300000000

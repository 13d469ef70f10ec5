SELECT {{if .Part}}* EXCEPT histogram, histogram.1 AS works, histogram.2 AS times{{else}}*{{end}}, throwIf(max(foreign) OVER () != 0, 'a row of another tenant') AS guard FROM (
    SELECT {{range .Groups}}r.{{.}} AS {{.}}, {{end}}
        toInt64(count()) AS requests, sum(r.model_calls) AS model_calls, sum(r.tool_calls) AS tool_calls, sum(r.retries) AS retries, sum(r.fallbacks) AS fallbacks, sum(r.hedges) AS hedges,
        sum(r.repeats) AS repeats, sum(r.unpriced) AS unpriced, sum(r.unknown) AS unknown, sum(r.cost) AS cost, sum(r.wasted) AS wasted,
        {{if .Part -}}
        -- How many runs did how much, of which the quantiles of all parts together are made.
        sumMap([r.model_calls + r.tool_calls + r.retries + r.fallbacks + r.hedges], [toInt64(1)]) AS histogram,
        {{- else -}}
        quantilesExact(0.5, 0.9, 0.99)(toFloat64(r.model_calls + r.tool_calls + r.retries + r.fallbacks + r.hedges)) AS q,
        {{- end}}
        max(NOT ({{.Allowed}})) AS foreign
    FROM ({{template "agent_runs" .}}) AS r
    {{if .Groups}}GROUP BY {{range $i, $g := .Groups}}{{if $i}}, {{end}}{{$g}}{{end}}{{end}}
    HAVING requests > 0
)
{{if not .Part}}ORDER BY requests DESC{{range .Groups}}, {{.}}{{end}}{{end}}
LIMIT {limit:UInt32} OFFSET {offset:UInt32}
SETTINGS max_bytes_before_external_group_by = 300000000

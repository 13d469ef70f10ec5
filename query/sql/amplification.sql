SELECT * EXCEPT histogram, histogram.1 AS works, histogram.2 AS times, throwIf(max(foreign) OVER () != 0, 'a row of another tenant') AS guard FROM (
    SELECT {{range .Groups}}r.{{.}} AS {{.}}, {{end}}
        sum(r.sign) AS requests, sum(r.sign * r.model_calls) AS model_calls, sum(r.sign * r.tool_calls) AS tool_calls, sum(r.sign * r.retries) AS retries, sum(r.sign * r.fallbacks) AS fallbacks, sum(r.sign * r.hedges) AS hedges,
        sum(r.sign * r.repeats) AS repeats, sum(r.sign * r.unpriced) AS unpriced, sum(r.sign * r.unknown) AS unknown, sum(r.sign * r.cost) AS cost, sum(r.sign * r.wasted) AS wasted,
        -- How many runs did how much, of which quantiles are made.
        sumMap([r.model_calls + r.tool_calls + r.retries + r.fallbacks + r.hedges], [r.sign]) AS histogram,
        max(NOT ({{.Allowed}})) AS foreign
    FROM ({{template "agent_runs" .}}) AS r
    {{if .Groups}}GROUP BY {{range $i, $g := .Groups}}{{if $i}}, {{end}}{{$g}}{{end}}{{end}}
    HAVING requests > 0
)
ORDER BY requests DESC{{range .Groups}}, {{.}}{{end}}
LIMIT {limit:UInt32} OFFSET {offset:UInt32}
SETTINGS max_bytes_before_external_group_by = 300000000

-- How long limiters took: quantiles are values that were measured.
SELECT *, count() OVER () AS all_rows, throwIf(max(foreign) OVER () != 0, 'a row of another tenant') AS second_line
FROM (
    SELECT {{range .Groups}}s.{{.}} AS {{.}}, {{end}}{{.At}} AS at,
        count() AS n, arrayMap(x -> toFloat64(x), quantilesExact(0.5, 0.9, 0.99, 1)(assumeNotNull(s.took_ns))) AS took,
        countIf(isNotNull(s.after_span_ns)) AS spans, arrayMap(x -> toFloat64(x), quantilesExactIf(0.5, 0.9, 0.99, 1)(assumeNotNull(s.after_span_ns), isNotNull(s.after_span_ns))) AS after_span,
        max(NOT ({{.Allowed}})) AS foreign
    FROM (SELECT * FROM enforcement FINAL WHERE {{.Tenants}} AND kind = 'applied' AND isNotNull(took_ns) AND at >= toDateTime64({from:String}, 6, 'UTC') AND at < toDateTime64({to:String}, 6, 'UTC')) AS s
    WHERE {{.Filter}}
    GROUP BY {{range .Groups}}{{.}}, {{end}}at
)
ORDER BY at, n DESC{{range .Groups}}, {{.}}{{end}}
LIMIT {limit:UInt32} OFFSET {offset:UInt32}

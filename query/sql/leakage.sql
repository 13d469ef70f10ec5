-- What passed although a directive refused it: before its limiter had acknowledged it, after it, and where none ever did.
SELECT *, count() OVER () AS all_rows, throwIf(max(foreign) OVER () != 0, 'a row of another tenant') AS second_line
FROM (
    SELECT {{range .Groups}}s.{{.}} AS {{.}}, {{end}}{{.At}} AS at,
        sumIf(s.calls, s.class = 'propagation') AS propagation_calls, sumIf(ifNull(s.cost, 0), s.class = 'propagation') AS propagation_usd,
        sumIf(s.calls, s.class = 'leak') AS leak_calls, sumIf(ifNull(s.cost, 0), s.class = 'leak') AS leak_usd,
        sumIf(s.calls, s.class = 'unguarded') AS unguarded_calls, sumIf(ifNull(s.cost, 0), s.class = 'unguarded') AS unguarded_usd,
        max(NOT ({{.Allowed}})) AS foreign
    FROM (SELECT * FROM enforcement FINAL WHERE {{.Tenants}} AND kind = 'leak' AND at >= toDateTime64({from:String}, 6, 'UTC') AND at < toDateTime64({to:String}, 6, 'UTC')) AS s
    WHERE {{.Filter}}
    GROUP BY {{range .Groups}}{{.}}, {{end}}at
)
ORDER BY at, leak_usd DESC, propagation_usd DESC, unguarded_usd DESC{{range .Groups}}, {{.}}{{end}}
LIMIT {limit:UInt32} OFFSET {offset:UInt32}

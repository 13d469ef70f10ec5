-- Attempts with a span of their own under the layer that made them and the failure that caused them, attempts inside an SDK
-- under the layer sdk. Waste stands under the layer that made the wasted attempt ('' is a first one) and its own failure.
SELECT *, throwIf(max(foreign) OVER () != 0, 'a row of another tenant') AS guard FROM (
    {{if .FX}}SELECT {{range .Groups}}d.{{.}} AS {{.}}, {{end}}
        sum(d.retries) AS retries, sum(d.fallbacks) AS fallbacks, sum(d.hedges) AS hedges, sum(d.cost) AS wasted, sum(d.converted) AS converted, max(d.foreign) AS foreign
    FROM (SELECT *, wasted AS cost, {{template "fx" .}} FROM ({{end}}
    SELECT {{range .Groups}}l.{{.}} AS {{.}}, {{end}}{{if .FX}}l.fx_day AS fx_day, {{end}}
        sum(l.retries) AS retries, sum(l.fallbacks) AS fallbacks, sum(l.hedges) AS hedges, sum(l.wasted) AS wasted, max(l.foreign) AS foreign
    FROM (
        SELECT {{range .Columns}}{{.}}, {{end}}toString(s.retry_layer) AS layer, toString(s.retry_cause) AS failure, NOT ({{.Allowed}}) AS foreign,
            s.retries AS retries, s.fallbacks AS fallbacks, s.hedges AS hedges, toInt128(0) AS wasted{{if .FX}}, {{.FXDay}} AS fx_day{{end}}
        FROM spend_15m AS s WHERE {{.Tenants}} AND s.at >= {from:DateTime('UTC')} AND s.at < {to:DateTime('UTC')}
        UNION ALL
        SELECT {{range .Columns}}{{.}}, {{end}}'sdk', toString(s.hidden_cause), NOT ({{.Allowed}}), s.hidden_attempts, 0, 0, toInt128(0){{if .FX}}, {{.FXDay}}{{end}}
        FROM spend_15m AS s WHERE {{.Tenants}} AND s.at >= {from:DateTime('UTC')} AND s.at < {to:DateTime('UTC')}
        UNION ALL
        SELECT {{range .Columns}}{{.}}, {{end}}toString(s.retry_layer), toString(s.failure), NOT ({{.Allowed}}), 0, 0, 0, s.wasted{{if .FX}}, {{.FXDay}}{{end}}
        FROM spend_15m AS s WHERE {{.Tenants}} AND s.at >= {from:DateTime('UTC')} AND s.at < {to:DateTime('UTC')}
    ) AS l
    WHERE {{.Filter}}
    {{if .FX}}GROUP BY {{range .Groups}}{{.}}, {{end}}fx_day)) AS d
    {{end}}{{if .Groups}}GROUP BY {{range $i, $g := .Groups}}{{if $i}}, {{end}}{{$g}}{{end}}{{end}}
    HAVING retries != 0 OR fallbacks != 0 OR hedges != 0 OR wasted != 0{{if .FX}} OR converted != 0{{end}}
)
ORDER BY retries DESC, wasted DESC{{range .Groups}}, {{.}}{{end}}
LIMIT {limit:UInt32} OFFSET {offset:UInt32}

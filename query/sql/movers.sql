-- Two times beside each other, by model within each group. later is 1 for the second. In another currency each day is converted by itself.
SELECT *, throwIf(max(foreign) OVER () != 0, 'a row of another tenant') AS guard FROM (
    {{if .FX}}SELECT {{range .Groups}}d.{{.}} AS {{.}}, {{end}}d.of_provider AS of_provider, d.of_model AS of_model, d.later AS later, d.counted AS counted,
        sum(d.logical) AS logical, sum(d.attempts) AS attempts, sum(d.uncosted) AS uncosted, sum(d.cost) AS cost, sum(d.converted) AS converted, sum(d.tokens) AS tokens, max(d.foreign) AS foreign
    FROM (SELECT *, {{template "fx" .}} FROM ({{end}}
    SELECT {{range .Groups}}s.{{.}} AS {{.}}, {{end}}s.provider AS of_provider, s.model AS of_model, toUInt8(s.at >= {from:DateTime('UTC')} AND s.at < {to:DateTime('UTC')}) AS later,
        s.kind IN ('model', 'embedding', 'rerank', 'image', 'speech', 'transcription') AS counted,{{if .FX}} {{.FXDay}} AS fx_day,{{end}}
        sum(s.model_calls) AS logical, sum(s.model_calls + s.retries + s.fallbacks + s.hedges) AS attempts, sum(s.unpriced + s.unknown) AS uncosted, sum(s.cost) AS cost,
        sum(s.tok_input + s.tok_cache_read + s.tok_cache_write_5m + s.tok_cache_write_1h + s.tok_output + s.tok_input_audio + s.tok_input_image + s.tok_output_audio + s.tok_output_image) AS tokens,
        max(NOT ({{.Allowed}})) AS foreign
    FROM spend_15m AS s
    WHERE {{.Tenants}} AND (s.at >= {from:DateTime('UTC')} AND s.at < {to:DateTime('UTC')} OR s.at >= {base_from:DateTime('UTC')} AND s.at < {base_to:DateTime('UTC')}) AND {{.Filter}}
    GROUP BY {{range .Groups}}{{.}}, {{end}}of_provider, of_model, later, counted{{if .FX}}, fx_day)) AS d
    GROUP BY {{range .Groups}}{{.}}, {{end}}of_provider, of_model, later, counted{{end}}
    HAVING logical != 0 OR attempts != 0 OR uncosted != 0 OR cost != 0{{if .FX}} OR converted != 0{{end}}
    LIMIT {limit:UInt32}
)
ORDER BY {{range .Groups}}{{.}}, {{end}}of_provider, of_model, later, counted

-- Two times beside each other, by model within each group. later is 1 for the second.
SELECT *, throwIf(max(foreign) OVER () != 0, 'a row of another tenant') AS guard FROM (
    SELECT {{range .Groups}}s.{{.}} AS {{.}}, {{end}}s.provider AS of_provider, s.model AS of_model, toUInt8(s.at >= {from:DateTime('UTC')} AND s.at < {to:DateTime('UTC')}) AS later,
        s.kind IN ('model', 'embedding', 'rerank', 'image', 'speech', 'transcription') AS counted,
        sum(s.model_calls) AS logical, sum(s.model_calls + s.retries + s.fallbacks + s.hedges) AS attempts, sum(s.unpriced + s.unknown) AS uncosted, sum(s.cost) AS cost,
        sum(s.tok_input + s.tok_cache_read + s.tok_cache_write_5m + s.tok_cache_write_1h + s.tok_output + s.tok_input_audio + s.tok_input_image + s.tok_output_audio + s.tok_output_image) AS tokens,
        max(NOT ({{.Allowed}})) AS foreign
    FROM spend_15m AS s
    WHERE {{.Tenants}} AND (s.at >= {from:DateTime('UTC')} AND s.at < {to:DateTime('UTC')} OR s.at >= {base_from:DateTime('UTC')} AND s.at < {base_to:DateTime('UTC')}) AND {{.Filter}}
    GROUP BY {{range .Groups}}{{.}}, {{end}}of_provider, of_model, later, counted
    HAVING logical != 0 OR attempts != 0 OR uncosted != 0 OR cost != 0
    LIMIT {limit:UInt32}
)
ORDER BY {{range .Groups}}{{.}}, {{end}}of_provider, of_model, later, counted

SELECT {{range .Groups}}{{.}}, {{end}}{{.At}} AS at,
    sum(calls) AS calls, sum(cost) AS cost, sum(unpriced) AS unpriced, sum(unknown) AS unknown, sum(estimated) AS estimated, sum(sampled) AS sampled,
    sum(tok_input) AS tok_input, sum(tok_cache_read) AS tok_cache_read, sum(tok_cache_write_5m) AS tok_cache_write_5m, sum(tok_cache_write_1h) AS tok_cache_write_1h,
    sum(tok_output) AS tok_output, sum(tok_reasoning) AS tok_reasoning, sum(tok_input_audio) AS tok_input_audio, sum(tok_input_image) AS tok_input_image,
    sum(tok_output_audio) AS tok_output_audio, sum(tok_output_image) AS tok_output_image
FROM spend_15m
WHERE {{.Tenants}} AND spend_15m.at >= {from:DateTime('UTC')} AND spend_15m.at < {to:DateTime('UTC')} AND {{.Filter}}
GROUP BY {{range .Groups}}{{.}}, {{end}}at
HAVING sum(lines) > 0 AND (calls != 0 OR cost != 0 OR unpriced != 0 OR unknown != 0)
ORDER BY at, cost DESC{{range .Groups}}, {{.}}{{end}}
LIMIT {limit:UInt32}

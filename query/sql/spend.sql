-- The totals are of every row, also of those that LIMIT cuts off. In another currency each day of a row is converted by itself, so that
-- what comes to nothing in USD may still be something there. A further part of a call that is free has tokens alone.
SELECT *,
    count() OVER () AS all_rows, sum(calls) OVER () AS all_calls, sum(cost) OVER () AS all_cost, sum(unpriced) OVER () AS all_unpriced,
    sum(unknown) OVER () AS all_unknown, sum(estimated) OVER () AS all_estimated, sum(sampled) OVER () AS all_sampled,{{if .FX}} sum(converted) OVER () AS all_converted,{{end}}
    throwIf(max(foreign) OVER () != 0, 'a row of another tenant') AS guard
FROM (
    {{if .FX}}SELECT {{range .Groups}}d.{{.}} AS {{.}}, {{end}}d.at AS at, sum(d.converted) AS converted,
        sum(d.calls) AS calls, sum(d.cost) AS cost, sum(d.unpriced) AS unpriced, sum(d.unknown) AS unknown, sum(d.estimated) AS estimated, sum(d.sampled) AS sampled,
        sum(d.tok_input) AS tok_input, sum(d.tok_cache_read) AS tok_cache_read, sum(d.tok_cache_write_5m) AS tok_cache_write_5m, sum(d.tok_cache_write_1h) AS tok_cache_write_1h,
        sum(d.tok_output) AS tok_output, sum(d.tok_reasoning) AS tok_reasoning, sum(d.tok_input_audio) AS tok_input_audio, sum(d.tok_input_image) AS tok_input_image,
        sum(d.tok_output_audio) AS tok_output_audio, sum(d.tok_output_image) AS tok_output_image, max(d.foreign) AS foreign
    FROM (SELECT *, {{template "fx" .}} FROM ({{end}}
    SELECT {{range .Groups}}s.{{.}} AS {{.}}, {{end}}{{.At}} AS at,{{if .FX}} {{.FXDay}} AS fx_day,{{end}}
        sum(s.calls) AS calls, sum(s.cost) AS cost, sum(s.unpriced) AS unpriced, sum(s.unknown) AS unknown, sum(s.estimated) AS estimated, sum(s.sampled) AS sampled,
        sum(s.tok_input) AS tok_input, sum(s.tok_cache_read) AS tok_cache_read, sum(s.tok_cache_write_5m) AS tok_cache_write_5m, sum(s.tok_cache_write_1h) AS tok_cache_write_1h,
        sum(s.tok_output) AS tok_output, sum(s.tok_reasoning) AS tok_reasoning, sum(s.tok_input_audio) AS tok_input_audio, sum(s.tok_input_image) AS tok_input_image,
        sum(s.tok_output_audio) AS tok_output_audio, sum(s.tok_output_image) AS tok_output_image,
        max(NOT ({{.Allowed}})) AS foreign
    FROM spend_15m AS s
    WHERE {{.Tenants}} AND s.at >= {from:DateTime('UTC')} AND s.at < {to:DateTime('UTC')} AND {{.Filter}}
    GROUP BY {{range .Groups}}{{.}}, {{end}}at{{if .FX}}, fx_day)) AS d
    GROUP BY {{range .Groups}}{{.}}, {{end}}at{{end}}
    HAVING calls != 0 OR cost != 0 OR unpriced != 0 OR unknown != 0{{if .FX}} OR converted != 0{{end}}
        OR tok_input != 0 OR tok_cache_read != 0 OR tok_cache_write_5m != 0 OR tok_cache_write_1h != 0 OR tok_output != 0 OR tok_input_audio != 0 OR tok_input_image != 0 OR tok_output_audio != 0 OR tok_output_image != 0
)
ORDER BY at, cost DESC{{range .Groups}}, {{.}}{{end}}
LIMIT {limit:UInt32} OFFSET {offset:UInt32}

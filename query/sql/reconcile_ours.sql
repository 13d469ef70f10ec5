-- What was booked, by UTC day.
SELECT *, throwIf(foreign != 0, 'a row of another tenant') AS guard FROM (
    SELECT tenant, toDateTime(toStartOfDay(s.at, 'UTC'), 'UTC') AS day, provider, model, sum(s.calls) AS calls, sum(s.unpriced) AS unpriced, sum(s.unknown) AS unknown,
        sum(s.estimated) AS estimated, sum(s.sampled) AS sampled, sum(s.cost) AS cost,
        sum(s.tok_input) AS tok_input, sum(s.tok_cache_read) AS tok_cache_read, sum(s.tok_cache_write_5m) AS tok_cache_write_5m, sum(s.tok_cache_write_1h) AS tok_cache_write_1h, sum(s.tok_output) AS tok_output,
        sum(s.tok_input_audio) AS tok_input_audio, sum(s.tok_input_image) AS tok_input_image, sum(s.tok_output_audio) AS tok_output_audio, sum(s.tok_output_image) AS tok_output_image,
        max(NOT ({{.Allowed}})) AS foreign
    FROM spend_15m AS s
    WHERE {{.Tenants}} AND s.at >= {from:DateTime('UTC')} AND s.at < {to:DateTime('UTC')}
    GROUP BY tenant, day, provider, model
    HAVING calls != 0 OR cost != 0 OR unpriced != 0 OR unknown != 0 OR tok_input != 0 OR tok_cache_read != 0 OR tok_cache_write_5m != 0 OR tok_cache_write_1h != 0 OR tok_output != 0
        OR tok_input_audio != 0 OR tok_input_image != 0 OR tok_output_audio != 0 OR tok_output_image != 0
    LIMIT {limit:UInt32}
)

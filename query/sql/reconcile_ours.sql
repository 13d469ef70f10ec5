-- What was booked, by UTC day.
SELECT *, throwIf(foreign != 0, 'a row of another tenant') AS guard FROM (
    SELECT tenant, toDateTime(toStartOfDay(s.at, 'UTC'), 'UTC') AS day, provider, model, sum(s.calls) AS calls, sum(s.unpriced) AS unpriced, sum(s.unknown) AS unknown,
        sum(s.estimated) AS estimated, sum(s.sampled) AS sampled, sum(s.cost) AS cost,
        sum(s.tok_input + s.tok_cache_read + s.tok_cache_write_5m + s.tok_cache_write_1h + s.tok_output + s.tok_input_audio + s.tok_input_image + s.tok_output_audio + s.tok_output_image) AS tokens,
        max(NOT ({{.Allowed}})) AS foreign
    FROM spend_15m AS s
    WHERE {{.Tenants}} AND s.at >= {from:DateTime('UTC')} AND s.at < {to:DateTime('UTC')}
    GROUP BY tenant, day, provider, model
    HAVING calls != 0 OR cost != 0 OR unpriced != 0 OR unknown != 0 OR tokens != 0
    LIMIT {limit:UInt32}
)

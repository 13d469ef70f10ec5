CREATE MATERIALIZED VIEW IF NOT EXISTS runs_mv {{.OnCluster}} TO runs AS
SELECT
    tenant,
    run_id,
    toDate(recorded_at) AS booked_on,
    sum(toInt64(sign)) AS lines,
    sum(sign * toInt64(model_calls)) AS model_calls,
    sum(sign * toInt64(tool_calls)) AS tool_calls,
    sum(sign * toInt64(retries)) AS retries,
    sum(sign * toInt64(hidden_attempts)) AS hidden_attempts,
    sum(sign * toInt64(fallbacks)) AS fallbacks,
    sum(sign * toInt64(hedges)) AS hedges,
    sum(sign * toInt64(repeats)) AS repeats,
    sum(sign * toInt64(cost_status = 'unpriced')) AS unpriced,
    sum(sign * toInt64(cost_status = 'unknown')) AS unknown,
    sum(sign * toInt64(failure != '' AND model_calls + tool_calls + retries + fallbacks + hedges > 0)) AS failures,
    sum(sign * toInt64(tok_input + tok_cache_read + tok_cache_write_5m + tok_cache_write_1h + tok_output + tok_input_audio + tok_input_image + tok_output_audio + tok_output_image)) AS tokens,
    sum(sign * toInt128(ifNull(cost, 0))) AS cost,
    sum(sign * toInt128(wasted)) AS wasted
FROM journal
GROUP BY tenant, run_id, booked_on

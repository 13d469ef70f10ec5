CREATE MATERIALIZED VIEW IF NOT EXISTS runs_mv {{.OnCluster}} TO runs AS
SELECT
    tenant,
    run_id,
    toDate(j.recorded_at) AS booked_on,
    sum(toInt64(j.sign)) AS lines,
    sum(j.sign * toInt64(j.model_calls)) AS model_calls,
    sum(j.sign * toInt64(j.tool_calls)) AS tool_calls,
    sum(j.sign * toInt64(j.retries)) AS retries,
    sum(j.sign * toInt64(j.hidden_attempts)) AS hidden_attempts,
    sum(j.sign * toInt64(j.fallbacks)) AS fallbacks,
    sum(j.sign * toInt64(j.hedges)) AS hedges,
    sum(j.sign * toInt64(j.repeats)) AS repeats,
    sum(j.sign * toInt64(j.cost_status = 'unpriced')) AS unpriced,
    sum(j.sign * toInt64(j.cost_status = 'unknown')) AS unknown,
    sum(j.sign * toInt64(j.failure != '' AND j.model_calls + j.tool_calls + j.retries + j.fallbacks + j.hedges > 0)) AS failures,
    sum(j.sign * toInt64(j.tok_input + j.tok_cache_read + j.tok_cache_write_5m + j.tok_cache_write_1h + j.tok_output + j.tok_input_audio + j.tok_input_image + j.tok_output_audio + j.tok_output_image)) AS tokens,
    sum(j.sign * toInt128(ifNull(j.cost, 0))) AS cost,
    sum(j.sign * toInt128(j.wasted)) AS wasted
FROM journal AS j
GROUP BY tenant, run_id, booked_on

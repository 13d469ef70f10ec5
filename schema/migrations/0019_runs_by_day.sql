-- Questions are of a time, and a run is mostly booked on the day on which it began: sorted by that day, what is read of the
-- table is little more than the time that was asked about. Granules are small, because most tenants have few runs of a day.
-- run_hash finds the few rows that were booked before, eight bytes each; two runs of one hash are told apart by their names.
-- All in one statement, which may be repeated: the table that is there takes part as a whole, or not at all. Days that may have
-- entries of chunks that are sent again are made from the journal, without these.
CREATE OR REPLACE TABLE runs {{.OnCluster}}
(
    tenant          String CODEC(ZSTD(1)),
    run_id          String CODEC(ZSTD(1)),
    booked_on       Date CODEC(ZSTD(1)),
    lines           Int64 CODEC(T64, ZSTD(1)),
    model_calls     Int64 CODEC(T64, ZSTD(1)),
    tool_calls      Int64 CODEC(T64, ZSTD(1)),
    retries         Int64 CODEC(ZSTD(1)),
    hidden_attempts Int64 CODEC(ZSTD(1)),
    fallbacks       Int64 CODEC(ZSTD(1)),
    hedges          Int64 CODEC(ZSTD(1)),
    repeats         Int64 CODEC(ZSTD(1)),
    unpriced        Int64 CODEC(ZSTD(1)),
    unknown         Int64 CODEC(ZSTD(1)),
    failures        Int64 CODEC(ZSTD(1)),
    tokens          Int64 CODEC(T64, ZSTD(1)),
    cost            Int128 CODEC(ZSTD(1)),
    wasted          Int128 CODEC(ZSTD(1)),
    run_hash        UInt64 MATERIALIZED cityHash64(run_id) CODEC(NONE)
)
ENGINE = {{.Engine "SummingMergeTree" "(lines, model_calls, tool_calls, retries, hidden_attempts, fallbacks, hedges, repeats, unpriced, unknown, failures, tokens, cost, wasted)"}}
PARTITION BY toYYYYMM(booked_on)
ORDER BY (booked_on, tenant, run_id)
SETTINGS {{.Dedup}} = 10000, index_granularity = 1024
AS SELECT tenant, run_id, booked_on, lines, model_calls, tool_calls, retries, hidden_attempts, fallbacks, hedges, repeats, unpriced, unknown, failures, tokens, cost, wasted
FROM runs
{{- if .Unsure}}
WHERE booked_on < {{.Day}}
UNION ALL
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
WHERE j.recorded_at >= toDateTime({{.Day}}, 'UTC') AND j.chunk <= {{.Chunk}}
GROUP BY tenant, run_id, booked_on
{{- end}}

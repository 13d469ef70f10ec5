-- closes
CREATE TABLE closes
(
    `tenant` String,
    `period` String COMMENT 'the month, e.g. 2026-11',
    `provider` String,
    `model` String,
    `starts_at` DateTime('UTC') COMMENT 'of the month, in the zone',
    `ends_at` DateTime('UTC'),
    `timezone` String,
    `booked_through` Date COMMENT 'the last UTC day whose entries are in the sums',
    `closed_at` DateTime64(6, 'UTC'),
    `closed_by` String COMMENT 'the name of the key',
    `lines` Int64,
    `calls` Int64,
    `unpriced` Int64,
    `unknown` Int64,
    `cost` Int128 COMMENT '1e-12 USD',
    `wasted` Int128 COMMENT '1e-12 USD'
)
ENGINE = MergeTree
ORDER BY (tenant, period, provider, model)
SETTINGS non_replicated_deduplication_window = 10000, index_granularity = 8192;

-- enforcement
CREATE TABLE enforcement
(
    `tenant` String COMMENT 'empty for what concerns the whole org',
    `at` DateTime64(6, 'UTC') CODEC(Delta(8), ZSTD(1)),
    `node` String,
    `seq` UInt64 CODEC(Delta(8), ZSTD(1)),
    `kind` String,
    `guard` String CODEC(ZSTD(1)),
    `scope` String COMMENT 'in words' CODEC(ZSTD(1)),
    `user` String CODEC(ZSTD(1)),
    `action` String CODEC(ZSTD(1)),
    `measure` String CODEC(ZSTD(1)),
    `value` String COMMENT 'with its unit' CODEC(ZSTD(1)),
    `limit` String COMMENT 'with its unit' CODEC(ZSTD(1)),
    `rung` String CODEC(ZSTD(1)),
    `window` String CODEC(ZSTD(1)),
    `shadow` UInt8,
    `actor` String CODEC(ZSTD(1)),
    `reason` String CODEC(ZSTD(1)),
    `directive` String CODEC(ZSTD(1)),
    `revision` String CODEC(ZSTD(1)),
    `limiter` String COMMENT 'empty where it is not known which of several' CODEC(ZSTD(1)),
    `class` String COMMENT 'of a leak: propagation, leak or unguarded' CODEC(ZSTD(1)),
    `calls` Int64 COMMENT 'that leaked' CODEC(ZSTD(1)),
    `cost` Nullable(Int128) COMMENT '1e-12 USD that a guard counts for them' CODEC(ZSTD(1)),
    `took_ns` Nullable(Int64) COMMENT 'receipt of the span that crossed the limit to the acknowledgement, by one clock' CODEC(ZSTD(1)),
    `after_span_ns` Nullable(Int64) COMMENT 'end of that span to the acknowledgement, by two clocks' CODEC(ZSTD(1)),
    `trace_id` String COMMENT 'of the call behind it' CODEC(ZSTD(1))
)
ENGINE = ReplacingMergeTree
PARTITION BY toYYYYMM(at)
ORDER BY (tenant, at, node, seq)
SETTINGS non_replicated_deduplication_window = 10000, index_granularity = 8192;

-- journal
CREATE TABLE journal
(
    `tenant` String,
    `trace_id` FixedString(16),
    `span_id` FixedString(8),
    `part` UInt16,
    `sign` Int8,
    `version` UInt32,
    `recorded_at` DateTime64(6, 'UTC') CODEC(Delta(8), ZSTD(1)),
    `chunk` UInt64 CODEC(Delta(8), ZSTD(1)),
    `started_at` DateTime64(9, 'UTC') CODEC(Delta(8), ZSTD(1)),
    `duration_ns` Int64 CODEC(ZSTD(1)),
    `parent_span_id` FixedString(8),
    `run_id` String CODEC(ZSTD(1)),
    `kind` Enum8('other' = 0, 'request' = 1, 'agent' = 2, 'workflow' = 3, 'model' = 4, 'embedding' = 5, 'rerank' = 6, 'image' = 7, 'speech' = 8, 'transcription' = 9, 'tool' = 10, 'retrieval' = 11, 'guardrail' = 12, 'http' = 13, 'adjustment' = 14),
    `name` String CODEC(ZSTD(1)),
    `operation` String CODEC(ZSTD(1)),
    `provider` String CODEC(ZSTD(1)),
    `model` String CODEC(ZSTD(1)),
    `requested_model` String CODEC(ZSTD(1)),
    `service_tier` String CODEC(ZSTD(1)),
    `response_id` String CODEC(ZSTD(1)),
    `scope` String CODEC(ZSTD(1)),
    `user` String CODEC(ZSTD(1)),
    `feature` String CODEC(ZSTD(1)),
    `workflow` String CODEC(ZSTD(1)),
    `workflow_version` String CODEC(ZSTD(1)),
    `agent` String CODEC(ZSTD(1)),
    `session` String CODEC(ZSTD(1)),
    `criticality` String CODEC(ZSTD(1)),
    `mode` String CODEC(ZSTD(1)),
    `environment` String CODEC(ZSTD(1)),
    `tok_input` UInt64 CODEC(ZSTD(1)),
    `tok_cache_read` UInt64 CODEC(ZSTD(1)),
    `tok_cache_write_5m` UInt64 CODEC(ZSTD(1)),
    `tok_cache_write_1h` UInt64 CODEC(ZSTD(1)),
    `tok_output` UInt64 CODEC(ZSTD(1)),
    `tok_reasoning` UInt64 CODEC(ZSTD(1)),
    `tok_input_audio` UInt64 CODEC(ZSTD(1)),
    `tok_input_image` UInt64 CODEC(ZSTD(1)),
    `tok_output_audio` UInt64 CODEC(ZSTD(1)),
    `tok_output_image` UInt64 CODEC(ZSTD(1)),
    `web_searches` UInt64 CODEC(ZSTD(1)),
    `images` UInt64 CODEC(ZSTD(1)),
    `pages` UInt64 CODEC(ZSTD(1)),
    `media_ms` UInt64 CODEC(ZSTD(1)),
    `token_basis` String CODEC(ZSTD(1)),
    `usage` Enum8('none' = 0, 'known' = 1, 'unknown' = 2),
    `cost_status` Enum8('none' = 0, 'priced' = 1, 'free' = 2, 'unpriced' = 3, 'unknown' = 4),
    `cost` Nullable(Int64) COMMENT '1e-12 USD; NULL is unknown, which is not zero' CODEC(ZSTD(1)),
    `exposure` Int64 COMMENT '1e-12 USD that a guard counts' CODEC(ZSTD(1)),
    `estimate` Nullable(Int64) COMMENT '1e-12 USD, outside every total' CODEC(ZSTD(1)),
    `reported_cost` Nullable(Int64) COMMENT '1e-12 USD as the emitter says' CODEC(ZSTD(1)),
    `amount` Int64 COMMENT '1e-12 of currency' CODEC(ZSTD(1)),
    `currency` String CODEC(ZSTD(1)),
    `price_id` String CODEC(ZSTD(1)),
    `aggregate` UInt8,
    `duplicate_of` String CODEC(ZSTD(1)),
    `tool` String CODEC(ZSTD(1)),
    `tool_effect` Enum8('unknown' = 0, 'read' = 1, 'write' = 2),
    `args_hash` UInt64 CODEC(ZSTD(1)),
    `payload_bytes` UInt64 CODEC(ZSTD(1)),
    `payload_type` String CODEC(ZSTD(1)),
    `attempt` UInt32 CODEC(ZSTD(1)),
    `retry_layer` Enum8('' = 0, 'sdk' = 1, 'framework' = 2, 'agent' = 3, 'queue' = 4),
    `retry_cause` Enum8('' = 0, 'rate_limited' = 1, 'overloaded' = 2, 'timeout' = 3, 'server_error' = 4, 'client_error' = 5, 'refused' = 6, 'cancelled' = 7, 'tool_error' = 8, 'budget' = 9, 'unknown' = 10),
    `fallback` UInt8,
    `hedge` UInt8,
    `hidden_attempts` UInt32 CODEC(ZSTD(1)),
    `hidden_cause` Enum8('' = 0, 'rate_limited' = 1, 'overloaded' = 2, 'timeout' = 3, 'server_error' = 4, 'client_error' = 5, 'refused' = 6, 'cancelled' = 7, 'tool_error' = 8, 'budget' = 9, 'unknown' = 10),
    `failure` Enum8('' = 0, 'rate_limited' = 1, 'overloaded' = 2, 'timeout' = 3, 'server_error' = 4, 'client_error' = 5, 'refused' = 6, 'cancelled' = 7, 'tool_error' = 8, 'budget' = 9, 'unknown' = 10),
    `http_status` UInt16 CODEC(ZSTD(1)),
    `source` Enum8('span' = 0, 'log' = 1, 'limiter' = 2, 'adjustment' = 3),
    `model_calls` UInt32 COMMENT 'logical calls, retries not among them' CODEC(ZSTD(1)),
    `tool_calls` UInt32 COMMENT 'logical calls, retries not among them' CODEC(ZSTD(1)),
    `retries` UInt32 COMMENT 'retries with a span of their own' CODEC(ZSTD(1)),
    `fallbacks` UInt32 CODEC(ZSTD(1)),
    `hedges` UInt32 CODEC(ZSTD(1)),
    `repeats` UInt32 COMMENT 'tool calls with arguments already seen in the run' CODEC(ZSTD(1)),
    `wasted` Int64 COMMENT '1e-12 USD of attempts that were not used' CODEC(ZSTD(1)),
    `flags` UInt64 CODEC(ZSTD(1)),
    `cost_usd` Nullable(Decimal(38, 12)) ALIAS CAST(cost, 'Nullable(Decimal(38, 12))') / toDecimal128(1000000000000, 0),
    `trace` String ALIAS lower(hex(trace_id)),
    `span` String ALIAS lower(hex(span_id)),
    INDEX by_recorded_at recorded_at TYPE minmax GRANULARITY 1,
    INDEX by_run_id run_id TYPE bloom_filter(0.01) GRANULARITY 1
)
ENGINE = MergeTree
PARTITION BY toYYYYMM(recorded_at)
ORDER BY (tenant, toStartOfHour(started_at), trace_id, span_id)
SETTINGS non_replicated_deduplication_window = 10000, index_granularity = 8192, min_bytes_for_wide_part = 100000000;

-- limiter_samples
CREATE TABLE limiter_samples
(
    `tenant` String,
    `metric` String CODEC(ZSTD(1)),
    `series` UInt64 COMMENT 'hash of the metric, its scope and every attribute: what tells series apart',
    `at` DateTime64(9, 'UTC') CODEC(Delta(8), ZSTD(1)),
    `started_at` DateTime64(9, 'UTC') COMMENT 'since when a delta or cumulative point counts; 1970 is unknown' CODEC(Delta(8), ZSTD(1)),
    `recorded_at` DateTime64(6, 'UTC') CODEC(Delta(8), ZSTD(1)),
    `temporality` Enum8('gauge' = 0, 'delta' = 1, 'cumulative' = 2),
    `value` Float64 COMMENT 'of a histogram the sum; seconds, shares of 1, or counts' CODEC(ZSTD(1)),
    `count` UInt64 COMMENT 'of a histogram, else 0' CODEC(ZSTD(1)),
    `bounds` Array(Float64) COMMENT 'upper ends of all buckets but the last' CODEC(ZSTD(1)),
    `buckets` Array(UInt64) COMMENT 'one more than bounds, or none' CODEC(ZSTD(1)),
    `limiter` String CODEC(ZSTD(1)),
    `provider` String CODEC(ZSTD(1)),
    `model` String CODEC(ZSTD(1)),
    `tool` String CODEC(ZSTD(1)),
    `dimension` String COMMENT 'of a bucket: requests, tokens, …' CODEC(ZSTD(1)),
    `state` String COMMENT 'of a breaker: open, half_open, closed' CODEC(ZSTD(1)),
    `error` String COMMENT 'error.type' CODEC(ZSTD(1)),
    `http_status` UInt16 COMMENT '0 is unknown' CODEC(ZSTD(1))
)
ENGINE = ReplacingMergeTree(recorded_at)
PARTITION BY toYYYYMM(recorded_at)
ORDER BY (tenant, metric, toStartOfHour(at), series, at, started_at)
SETTINGS non_replicated_deduplication_window = 10000, index_granularity = 8192;

-- reconciliations
CREATE TABLE reconciliations
(
    `id` String,
    `line` UInt32 COMMENT '0 is the run itself',
    `source` String COMMENT 'openai, anthropic or focus',
    `sha256` String COMMENT 'of the file, in hex',
    `tenants` String COMMENT 'whose calls were compared, a JSON list; [] is everybody',
    `starts_on` Date COMMENT 'first UTC day',
    `ends_on` Date COMMENT 'the day after the last',
    `made_at` DateTime64(6, 'UTC'),
    `made_by` String COMMENT 'the name of the key',
    `skipped_rows` Int64 COMMENT 'of the file that are about something else',
    `skipped` Int128 COMMENT '1e-12 USD',
    `day` Date,
    `provider` String,
    `model` String,
    `item` String COMMENT 'of the bill that names no known model',
    `ours` Int128 COMMENT '1e-12 USD',
    `theirs` Int128 COMMENT '1e-12 USD',
    `priced` Int128 COMMENT 'both saw it, at another price',
    `only_ours` Int128 COMMENT 'we saw it, the bill does not have it: never above 0 for money spent',
    `only_theirs` Int128 COMMENT 'the bill has it, we did not see it',
    `rounding` Int128,
    `unsplit` Int128 COMMENT 'price or volume: the bill has no tokens that would tell',
    `our_tokens` Int64,
    `their_tokens` Nullable(Int64) COMMENT 'NULL where the bill does not say',
    `bill_rows` Int64,
    `calls` Int64,
    `unpriced` Int64,
    `unknown` Int64,
    `estimated` Int64,
    `sampled` Int64,
    `as_of` String COMMENT 'what was known then was compared; empty is when it was made',
    `currency` String DEFAULT 'USD' COMMENT 'of the bill',
    `billed` Int128 DEFAULT theirs COMMENT '1e-12 of currency',
    `rate` String COMMENT 'USD for one of the currency, as its file has it; empty for USD',
    `rate_of` Date COMMENT 'the day of the rate, which may be an earlier one than the row',
    `rate_source` String COMMENT 'name of its file',
    `split_by` String COMMENT 'kinds or totals: the tokens that told price from volume'
)
ENGINE = MergeTree
ORDER BY (made_at, id, line)
SETTINGS non_replicated_deduplication_window = 10000, index_granularity = 8192;

-- run_info
CREATE TABLE run_info
(
    `tenant` String CODEC(ZSTD(1)),
    `run_id` String CODEC(ZSTD(1)),
    `version` UInt64 COMMENT 'unix microseconds, and 1 << 62 where the root of a trace says it' CODEC(T64, ZSTD(1)),
    `booked_on` Date COMMENT 'UTC day on which this row was recorded' CODEC(ZSTD(1)),
    `started_at` DateTime64(9, 'UTC') CODEC(T64, ZSTD(1)),
    `ended_at` DateTime64(9, 'UTC') CODEC(T64, ZSTD(1)),
    `status` Enum8('unknown' = 0, 'succeeded' = 1, 'failed' = 2, 'stopped' = 3, 'partial' = 4) CODEC(ZSTD(1)),
    `name` String CODEC(ZSTD(1)),
    `user` String CODEC(ZSTD(1)),
    `feature` String CODEC(ZSTD(1)),
    `workflow` String CODEC(ZSTD(1)),
    `workflow_version` String CODEC(ZSTD(1)),
    `agent` String CODEC(ZSTD(1)),
    `session` String CODEC(ZSTD(1)),
    `criticality` String CODEC(ZSTD(1)),
    `mode` String CODEC(ZSTD(1)),
    `environment` String CODEC(ZSTD(1)),
    `moved_to` String CODEC(ZSTD(1)),
    `run_hash` UInt64 MATERIALIZED cityHash64(run_id) CODEC(NONE)
)
ENGINE = ReplacingMergeTree(version)
PARTITION BY toYYYYMM(booked_on)
ORDER BY (booked_on, tenant, run_id)
SETTINGS non_replicated_deduplication_window = 10000, index_granularity = 1024;

-- run_states
CREATE TABLE run_states
(
    `tenant` String CODEC(ZSTD(1)),
    `booked_on` Date CODEC(ZSTD(1)),
    `run_hash` UInt64 COMMENT 'as in runs' CODEC(NONE),
    `run_check` UInt64 COMMENT 'sipHash64(tenant, run_id): with run_hash it stands for the run' CODEC(NONE),
    `sign` Int8 CODEC(ZSTD(1)),
    `rooted` Bool COMMENT 'the root of a trace said what the run is, which only another root changes' CODEC(ZSTD(1)),
    `started_at` DateTime64(9, 'UTC') COMMENT '1970 where no row of run_info is known' CODEC(DoubleDelta, ZSTD(1)),
    `user` String CODEC(ZSTD(1)),
    `feature` String CODEC(ZSTD(1)),
    `workflow` String CODEC(ZSTD(1)),
    `workflow_version` String CODEC(ZSTD(1)),
    `agent` String CODEC(ZSTD(1)),
    `environment` String CODEC(ZSTD(1)),
    `mode` String CODEC(ZSTD(1)),
    `criticality` String CODEC(ZSTD(1)),
    `model_calls` Int64 CODEC(T64, ZSTD(1)),
    `tool_calls` Int64 CODEC(T64, ZSTD(1)),
    `retries` Int64 COMMENT 'with those inside of an SDK' CODEC(T64, ZSTD(1)),
    `fallbacks` Int64 CODEC(ZSTD(1)),
    `hedges` Int64 CODEC(ZSTD(1)),
    `repeats` Int64 CODEC(ZSTD(1)),
    `unpriced` Int64 CODEC(ZSTD(1)),
    `unknown` Int64 CODEC(ZSTD(1)),
    `cost` Int128 CODEC(ZSTD(1)),
    `wasted` Int128 CODEC(ZSTD(1)),
    `through` DateTime64(6, 'UTC') COMMENT 'of a day that is not over: states have all that was recorded before, and maybe more; else 1970' CODEC(ZSTD(1))
)
ENGINE = MergeTree
PARTITION BY booked_on
ORDER BY (tenant, started_at)
SETTINGS non_replicated_deduplication_window = 0, index_granularity = 1024, min_bytes_for_wide_part = 1000000;

-- runs
CREATE TABLE runs
(
    `tenant` String CODEC(ZSTD(1)),
    `run_id` String CODEC(ZSTD(1)),
    `booked_on` Date CODEC(ZSTD(1)),
    `lines` Int64 CODEC(T64, ZSTD(1)),
    `model_calls` Int64 CODEC(T64, ZSTD(1)),
    `tool_calls` Int64 CODEC(T64, ZSTD(1)),
    `retries` Int64 CODEC(ZSTD(1)),
    `hidden_attempts` Int64 CODEC(ZSTD(1)),
    `fallbacks` Int64 CODEC(ZSTD(1)),
    `hedges` Int64 CODEC(ZSTD(1)),
    `repeats` Int64 CODEC(ZSTD(1)),
    `unpriced` Int64 CODEC(ZSTD(1)),
    `unknown` Int64 CODEC(ZSTD(1)),
    `failures` Int64 CODEC(ZSTD(1)),
    `tokens` Int64 CODEC(T64, ZSTD(1)),
    `cost` Int128 CODEC(ZSTD(1)),
    `wasted` Int128 CODEC(ZSTD(1)),
    `run_hash` UInt64 MATERIALIZED cityHash64(run_id) CODEC(NONE)
)
ENGINE = SummingMergeTree((lines, model_calls, tool_calls, retries, hidden_attempts, fallbacks, hedges, repeats, unpriced, unknown, failures, tokens, cost, wasted))
PARTITION BY toYYYYMM(booked_on)
ORDER BY (booked_on, tenant, run_id)
SETTINGS non_replicated_deduplication_window = 10000, index_granularity = 1024;

-- runs_mv
CREATE MATERIALIZED VIEW runs_mv TO runs
(
    `tenant` String,
    `run_id` String,
    `booked_on` Date,
    `lines` Int64,
    `model_calls` Int64,
    `tool_calls` Int64,
    `retries` Int64,
    `hidden_attempts` Int64,
    `fallbacks` Int64,
    `hedges` Int64,
    `repeats` Int64,
    `unpriced` Int64,
    `unknown` Int64,
    `failures` Int64,
    `tokens` Int64,
    `cost` Int128,
    `wasted` Int128
)
AS SELECT
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
    sum(j.sign * toInt64((j.failure != '') AND (((((j.model_calls + j.tool_calls) + j.retries) + j.fallbacks) + j.hedges) > 0))) AS failures,
    sum(j.sign * toInt64((((((((j.tok_input + j.tok_cache_read) + j.tok_cache_write_5m) + j.tok_cache_write_1h) + j.tok_output) + j.tok_input_audio) + j.tok_input_image) + j.tok_output_audio) + j.tok_output_image)) AS tokens,
    sum(j.sign * toInt128(ifNull(j.cost, 0))) AS cost,
    sum(j.sign * toInt128(j.wasted)) AS wasted
FROM journal AS j
GROUP BY
    tenant,
    run_id,
    booked_on;

-- schema_migrations
CREATE TABLE schema_migrations
(
    `name` String,
    `checksum` String,
    `applied_at` DateTime64(3, 'UTC') DEFAULT now64(3)
)
ENGINE = MergeTree
ORDER BY name
SETTINGS index_granularity = 8192;

-- spend_15m
CREATE TABLE spend_15m
(
    `tenant` String CODEC(ZSTD(1)),
    `at` DateTime('UTC') CODEC(Delta(4), ZSTD(1)),
    `booked_on` Date CODEC(ZSTD(1)),
    `kind` Enum8('other' = 0, 'request' = 1, 'agent' = 2, 'workflow' = 3, 'model' = 4, 'embedding' = 5, 'rerank' = 6, 'image' = 7, 'speech' = 8, 'transcription' = 9, 'tool' = 10, 'retrieval' = 11, 'guardrail' = 12, 'http' = 13, 'adjustment' = 14) CODEC(ZSTD(1)),
    `provider` String CODEC(ZSTD(1)),
    `model` String CODEC(ZSTD(1)),
    `user` String CODEC(ZSTD(1)),
    `feature` String CODEC(ZSTD(1)),
    `workflow` String CODEC(ZSTD(1)),
    `workflow_version` String CODEC(ZSTD(1)),
    `agent` String CODEC(ZSTD(1)),
    `environment` String CODEC(ZSTD(1)),
    `mode` String CODEC(ZSTD(1)),
    `criticality` String CODEC(ZSTD(1)),
    `retry_layer` Enum8('' = 0, 'sdk' = 1, 'framework' = 2, 'agent' = 3, 'queue' = 4) CODEC(ZSTD(1)),
    `retry_cause` Enum8('' = 0, 'rate_limited' = 1, 'overloaded' = 2, 'timeout' = 3, 'server_error' = 4, 'client_error' = 5, 'refused' = 6, 'cancelled' = 7, 'tool_error' = 8, 'budget' = 9, 'unknown' = 10) CODEC(ZSTD(1)),
    `hidden_cause` Enum8('' = 0, 'rate_limited' = 1, 'overloaded' = 2, 'timeout' = 3, 'server_error' = 4, 'client_error' = 5, 'refused' = 6, 'cancelled' = 7, 'tool_error' = 8, 'budget' = 9, 'unknown' = 10) CODEC(ZSTD(1)),
    `failure` Enum8('' = 0, 'rate_limited' = 1, 'overloaded' = 2, 'timeout' = 3, 'server_error' = 4, 'client_error' = 5, 'refused' = 6, 'cancelled' = 7, 'tool_error' = 8, 'budget' = 9, 'unknown' = 10) CODEC(ZSTD(1)),
    `cost_status` Enum8('none' = 0, 'priced' = 1, 'free' = 2, 'unpriced' = 3, 'unknown' = 4) CODEC(ZSTD(1)),
    `lines` Int64 CODEC(ZSTD(1)),
    `calls` Int64 CODEC(ZSTD(1)),
    `model_calls` Int64 CODEC(ZSTD(1)),
    `tool_calls` Int64 CODEC(ZSTD(1)),
    `retries` Int64 CODEC(ZSTD(1)),
    `hidden_attempts` Int64 CODEC(ZSTD(1)),
    `fallbacks` Int64 CODEC(ZSTD(1)),
    `hedges` Int64 CODEC(ZSTD(1)),
    `repeats` Int64 CODEC(ZSTD(1)),
    `unpriced` Int64 CODEC(ZSTD(1)),
    `unknown` Int64 CODEC(ZSTD(1)),
    `estimated` Int64 CODEC(ZSTD(1)),
    `sampled` Int64 CODEC(ZSTD(1)),
    `assumed` Int64 CODEC(ZSTD(1)),
    `cost` Int128 CODEC(ZSTD(1)),
    `wasted` Int128 CODEC(ZSTD(1)),
    `tok_input` Int64 CODEC(ZSTD(1)),
    `tok_cache_read` Int64 CODEC(ZSTD(1)),
    `tok_cache_write_5m` Int64 CODEC(ZSTD(1)),
    `tok_cache_write_1h` Int64 CODEC(ZSTD(1)),
    `tok_output` Int64 CODEC(ZSTD(1)),
    `tok_reasoning` Int64 CODEC(ZSTD(1)),
    `tok_input_audio` Int64 CODEC(ZSTD(1)),
    `tok_input_image` Int64 CODEC(ZSTD(1)),
    `tok_output_audio` Int64 CODEC(ZSTD(1)),
    `tok_output_image` Int64 CODEC(ZSTD(1))
)
ENGINE = SummingMergeTree
PARTITION BY toYYYYMM(booked_on)
ORDER BY (tenant, at, kind, provider, model, feature, user, workflow, workflow_version, agent, environment, mode, criticality, retry_layer, retry_cause, hidden_cause, failure, cost_status, booked_on)
SETTINGS non_replicated_deduplication_window = 10000, index_granularity = 8192;

-- spend_15m_mv
CREATE MATERIALIZED VIEW spend_15m_mv TO spend_15m
(
    `tenant` String,
    `at` DateTime('UTC'),
    `booked_on` Date,
    `kind` Enum8('other' = 0, 'request' = 1, 'agent' = 2, 'workflow' = 3, 'model' = 4, 'embedding' = 5, 'rerank' = 6, 'image' = 7, 'speech' = 8, 'transcription' = 9, 'tool' = 10, 'retrieval' = 11, 'guardrail' = 12, 'http' = 13, 'adjustment' = 14),
    `provider` String,
    `model` String,
    `user` String,
    `feature` String,
    `workflow` String,
    `workflow_version` String,
    `agent` String,
    `environment` String,
    `mode` String,
    `criticality` String,
    `retry_layer` Enum8('' = 0, 'sdk' = 1, 'framework' = 2, 'agent' = 3, 'queue' = 4),
    `retry_cause` Enum8('' = 0, 'rate_limited' = 1, 'overloaded' = 2, 'timeout' = 3, 'server_error' = 4, 'client_error' = 5, 'refused' = 6, 'cancelled' = 7, 'tool_error' = 8, 'budget' = 9, 'unknown' = 10),
    `hidden_cause` Enum8('' = 0, 'rate_limited' = 1, 'overloaded' = 2, 'timeout' = 3, 'server_error' = 4, 'client_error' = 5, 'refused' = 6, 'cancelled' = 7, 'tool_error' = 8, 'budget' = 9, 'unknown' = 10),
    `failure` Enum8('' = 0, 'rate_limited' = 1, 'overloaded' = 2, 'timeout' = 3, 'server_error' = 4, 'client_error' = 5, 'refused' = 6, 'cancelled' = 7, 'tool_error' = 8, 'budget' = 9, 'unknown' = 10),
    `cost_status` Enum8('none' = 0, 'priced' = 1, 'free' = 2, 'unpriced' = 3, 'unknown' = 4),
    `lines` Int64,
    `calls` Int64,
    `model_calls` Int64,
    `tool_calls` Int64,
    `retries` Int64,
    `hidden_attempts` Int64,
    `fallbacks` Int64,
    `hedges` Int64,
    `repeats` Int64,
    `unpriced` Int64,
    `unknown` Int64,
    `estimated` Int64,
    `sampled` Int64,
    `assumed` Int64,
    `cost` Int128,
    `wasted` Int128,
    `tok_input` Int64,
    `tok_cache_read` Int64,
    `tok_cache_write_5m` Int64,
    `tok_cache_write_1h` Int64,
    `tok_output` Int64,
    `tok_reasoning` Int64,
    `tok_input_audio` Int64,
    `tok_input_image` Int64,
    `tok_output_audio` Int64,
    `tok_output_image` Int64
)
AS SELECT
    tenant,
    toDateTime(toStartOfInterval(j.started_at, toIntervalMinute(15), 'UTC'), 'UTC') AS at,
    toDate(j.recorded_at) AS booked_on,
    kind,
    provider,
    model,
    user,
    feature,
    workflow,
    workflow_version,
    agent,
    environment,
    mode,
    criticality,
    retry_layer,
    retry_cause,
    hidden_cause,
    failure,
    cost_status,
    sum(toInt64(j.sign)) AS lines,
    sum(j.sign * ((((toInt64(j.model_calls) + j.tool_calls) + j.retries) + j.fallbacks) + j.hedges)) AS calls,
    sum(j.sign * toInt64(j.model_calls)) AS model_calls,
    sum(j.sign * toInt64(j.tool_calls)) AS tool_calls,
    sum(j.sign * toInt64(j.retries)) AS retries,
    sum(j.sign * toInt64(j.hidden_attempts)) AS hidden_attempts,
    sum(j.sign * toInt64(j.fallbacks)) AS fallbacks,
    sum(j.sign * toInt64(j.hedges)) AS hedges,
    sum(j.sign * toInt64(j.repeats)) AS repeats,
    sum(j.sign * toInt64(j.cost_status = 'unpriced')) AS unpriced,
    sum(j.sign * toInt64(j.cost_status = 'unknown')) AS unknown,
    sum(j.sign * toInt64(bitTest(j.flags, 9))) AS estimated,
    sum(j.sign * toInt64(bitTest(j.flags, 17))) AS sampled,
    sum(j.sign * toInt64(bitTest(j.flags, 7))) AS assumed,
    sum(j.sign * toInt128(ifNull(j.cost, 0))) AS cost,
    sum(j.sign * toInt128(j.wasted)) AS wasted,
    sum(j.sign * toInt64(j.tok_input)) AS tok_input,
    sum(j.sign * toInt64(j.tok_cache_read)) AS tok_cache_read,
    sum(j.sign * toInt64(j.tok_cache_write_5m)) AS tok_cache_write_5m,
    sum(j.sign * toInt64(j.tok_cache_write_1h)) AS tok_cache_write_1h,
    sum(j.sign * toInt64(j.tok_output)) AS tok_output,
    sum(j.sign * toInt64(j.tok_reasoning)) AS tok_reasoning,
    sum(j.sign * toInt64(j.tok_input_audio)) AS tok_input_audio,
    sum(j.sign * toInt64(j.tok_input_image)) AS tok_input_image,
    sum(j.sign * toInt64(j.tok_output_audio)) AS tok_output_audio,
    sum(j.sign * toInt64(j.tok_output_image)) AS tok_output_image
FROM journal AS j
GROUP BY
    tenant,
    at,
    booked_on,
    kind,
    provider,
    model,
    user,
    feature,
    workflow,
    workflow_version,
    agent,
    environment,
    mode,
    criticality,
    retry_layer,
    retry_cause,
    hidden_cause,
    failure,
    cost_status;


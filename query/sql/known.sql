{{define "known" -}}
{{/* What was known before as_of stands in the place of the tables: a statement behind this reads it under their names. Inside of its
     own definition a name is the table's. since and till are the time that the question is about; of what began outside of it the sums
     are not whole. A day's end is in the rollup of spend. What a run is has no past there, where the newest row replaces the others, so
     that runs are made of entries; run_hash is the one by which runs are looked up. */ -}}
WITH
journal AS (SELECT *, trace, span FROM journal WHERE {{.Tenants}} AND recorded_at < toDateTime64({as_of:String}, 6, 'UTC')),
closes AS (SELECT * FROM closes WHERE {{.Tenants}} AND closed_at < toDateTime64({as_of:String}, 6, 'UTC')),
spend_15m AS (
{{- if .KnownDay}}
    SELECT * FROM spend_15m WHERE {{.Tenants}} AND booked_on <= toDate({as_of_day:String}) AND at >= toDateTime64({since:String}, 9, 'UTC') - INTERVAL 15 MINUTE AND at < toDateTime64({till:String}, 9, 'UTC')
{{- else}}
    SELECT tenant, toDateTime(toStartOfInterval(j.started_at, INTERVAL 15 MINUTE, 'UTC'), 'UTC') AS at, toDate(j.recorded_at) AS booked_on,
        kind, provider, model, user, feature, workflow, workflow_version, agent, environment, mode, criticality, retry_layer, retry_cause, hidden_cause, failure, cost_status,
        toInt64(j.sign) AS lines, j.sign * (toInt64(j.model_calls) + j.tool_calls + j.retries + j.fallbacks + j.hedges) AS calls,
        j.sign * toInt64(j.model_calls) AS model_calls, j.sign * toInt64(j.tool_calls) AS tool_calls, j.sign * toInt64(j.retries) AS retries, j.sign * toInt64(j.hidden_attempts) AS hidden_attempts,
        j.sign * toInt64(j.fallbacks) AS fallbacks, j.sign * toInt64(j.hedges) AS hedges, j.sign * toInt64(j.repeats) AS repeats,
        j.sign * toInt64(j.cost_status = 'unpriced') AS unpriced, j.sign * toInt64(j.cost_status = 'unknown') AS unknown,
        j.sign * toInt64(bitTest(j.flags, {{.Bits.estimated}})) AS estimated, j.sign * toInt64(bitTest(j.flags, {{.Bits.sampled}})) AS sampled, j.sign * toInt64(bitTest(j.flags, {{.Bits.basis_assumed}})) AS assumed,
        j.sign * toInt128(ifNull(j.cost, 0)) AS cost, j.sign * toInt128(j.wasted) AS wasted,
        j.sign * toInt64(j.tok_input) AS tok_input, j.sign * toInt64(j.tok_cache_read) AS tok_cache_read, j.sign * toInt64(j.tok_cache_write_5m) AS tok_cache_write_5m,
        j.sign * toInt64(j.tok_cache_write_1h) AS tok_cache_write_1h, j.sign * toInt64(j.tok_output) AS tok_output, j.sign * toInt64(j.tok_reasoning) AS tok_reasoning,
        j.sign * toInt64(j.tok_input_audio) AS tok_input_audio, j.sign * toInt64(j.tok_input_image) AS tok_input_image,
        j.sign * toInt64(j.tok_output_audio) AS tok_output_audio, j.sign * toInt64(j.tok_output_image) AS tok_output_image
    FROM journal AS j
    WHERE {{template "known_time" .}}
{{- end}}
){{if .KnownRuns}},
runs AS (
    SELECT tenant, run_id, cityHash64(j.run_id) AS run_hash, toDate(j.recorded_at) AS booked_on, toInt64(j.sign) AS lines,
        j.sign * toInt64(j.model_calls) AS model_calls, j.sign * toInt64(j.tool_calls) AS tool_calls, j.sign * toInt64(j.retries) AS retries, j.sign * toInt64(j.hidden_attempts) AS hidden_attempts,
        j.sign * toInt64(j.fallbacks) AS fallbacks, j.sign * toInt64(j.hedges) AS hedges, j.sign * toInt64(j.repeats) AS repeats,
        j.sign * toInt64(j.cost_status = 'unpriced') AS unpriced, j.sign * toInt64(j.cost_status = 'unknown') AS unknown,
        j.sign * toInt64(j.failure != '' AND j.model_calls + j.tool_calls + j.retries + j.fallbacks + j.hedges > 0) AS failures,
        j.sign * toInt64(j.tok_input + j.tok_cache_read + j.tok_cache_write_5m + j.tok_cache_write_1h + j.tok_output + j.tok_input_audio + j.tok_input_image + j.tok_output_audio + j.tok_output_image) AS tokens,
        j.sign * toInt128(ifNull(j.cost, 0)) AS cost, j.sign * toInt128(j.wasted) AS wasted
    FROM journal AS j
    WHERE {{.Tenants}} AND recorded_at >= toDateTime({runs_since:String}, 'UTC')
),
run_info AS (
    -- The newest entry of a root, else the newest one; of several at once any, but always the same.
    SELECT tenant, run_id, cityHash64(j.run_id) AS run_hash, toUInt64(toUnixTimestamp64Micro(j.recorded_at)) * 1024 + cityHash64(j.trace_id, j.span_id) % 1024 + if(root, bitShiftLeft(toUInt64(1), 62), 0) AS version,
        parent_span_id = toFixedString('', 8) AND j.source = 'span' AS root, toDate(j.recorded_at) AS booked_on, started_at, toDateTime64(addNanoseconds(j.started_at, j.duration_ns), 9, 'UTC') AS ended_at,
        multiIf(NOT root, 'unknown', j.failure = '', 'succeeded', j.failure IN ('budget', 'cancelled'), 'stopped', 'failed') AS status, if(root, j.name, '') AS name,
        user, feature, workflow, workflow_version, agent, session, criticality, mode, environment, '' AS moved_to
    FROM journal AS j
    WHERE {{.Tenants}} AND recorded_at >= toDateTime({runs_since:String}, 'UTC') AND j.sign = 1 AND j.part = 0 AND j.source != 'adjustment'
){{end}}
{{end}}

{{define "known_time" -}}
    {{/* Nothing is recorded more than ten minutes before it started, see clock_skew. Sums are of whole quarters. */ -}}
    {{.Tenants}} AND started_at >= toDateTime64({since:String}, 9, 'UTC') - INTERVAL 15 MINUTE AND started_at < toDateTime64({till:String}, 9, 'UTC') AND recorded_at >= toDateTime64({since:String}, 9, 'UTC') - INTERVAL 25 MINUTE
{{- end}}

{{define "spend_lines" -}}
{{/* The rollup's rows; of an earlier day's end those that were booked until then; of any instant the same measures from the journal. */ -}}
{{- if .Instant -}}
    (SELECT tenant, toDateTime(toStartOfInterval(j.started_at, INTERVAL 15 MINUTE, 'UTC'), 'UTC') AS at,
        kind, provider, model, user, feature, workflow, workflow_version, agent, environment, mode, criticality, retry_layer, failure,
        j.sign * (toInt64(j.model_calls) + j.tool_calls + j.retries + j.fallbacks + j.hedges) AS calls, j.sign * toInt128(ifNull(j.cost, 0)) AS cost,
        j.sign * toInt64(j.cost_status = 'unpriced') AS unpriced, j.sign * toInt64(j.cost_status = 'unknown') AS unknown,
        j.sign * toInt64(bitTest(j.flags, {{.Estimated}})) AS estimated, j.sign * toInt64(bitTest(j.flags, {{.Sampled}})) AS sampled,
        j.sign * toInt64(j.tok_input) AS tok_input, j.sign * toInt64(j.tok_cache_read) AS tok_cache_read,
        j.sign * toInt64(j.tok_cache_write_5m) AS tok_cache_write_5m, j.sign * toInt64(j.tok_cache_write_1h) AS tok_cache_write_1h,
        j.sign * toInt64(j.tok_output) AS tok_output, j.sign * toInt64(j.tok_reasoning) AS tok_reasoning,
        j.sign * toInt64(j.tok_input_audio) AS tok_input_audio, j.sign * toInt64(j.tok_input_image) AS tok_input_image,
        j.sign * toInt64(j.tok_output_audio) AS tok_output_audio, j.sign * toInt64(j.tok_output_image) AS tok_output_image
    FROM journal AS j
    WHERE {{.Tenants}} AND j.started_at >= {from:DateTime('UTC')} AND j.started_at < {to:DateTime('UTC')}
        AND j.recorded_at >= {from:DateTime('UTC')} - INTERVAL 10 MINUTE AND j.recorded_at < toDateTime64({as_of:String}, 6, 'UTC'))
{{- else if .BookedUntil -}}
    (SELECT * FROM spend_15m WHERE {{.Tenants}} AND booked_on <= {booked:Date} AND at >= {from:DateTime('UTC')} AND at < {to:DateTime('UTC')})
{{- else -}}
    spend_15m
{{- end -}}
{{- end}}

-- Net lines: the version of each line that no entry has cancelled.
SELECT tenant, trace, span, if(parent_span_id = toFixedString('', 8), '', lower(hex(parent_span_id))) AS parent, part, run_id, started_at, duration_ns,
    toString(kind) AS kind, name, operation, provider, model, requested_model, service_tier, response_id, scope,
    user, feature, workflow, workflow_version, agent, session, criticality, mode, environment,
    tok_input, tok_cache_read, tok_cache_write_5m, tok_cache_write_1h, tok_output, tok_reasoning, tok_input_audio, tok_input_image, tok_output_audio, tok_output_image,
    web_searches, images, pages, media_ms, token_basis, toString(usage) AS usage,
    cost, toString(cost_status) AS cost_status, price_id, exposure, estimate, reported_cost, amount, currency,
    aggregate, duplicate_of, tool, toString(tool_effect) AS tool_effect, args_hash, payload_bytes, payload_type,
    attempt, toString(retry_layer) AS retry_layer, toString(retry_cause) AS retry_cause, fallback, hedge, hidden_attempts, toString(hidden_cause) AS hidden_cause,
    toString(failure) AS failure, http_status, toString(source) AS source, version, flags, recorded_at, sign,
    model_calls, tool_calls, retries, fallbacks, hedges, repeats, wasted
FROM journal
WHERE {{.Tenants}} AND {{.Filter}} AND (started_at, trace, span, part) > (toDateTime64({after_at:String}, 9, 'UTC'), {after_trace:String}, {after_span:String}, {after_part:UInt16})
{{if not .History}}    AND sign = 1 AND (tenant, trace_id, span_id, part, version) IN (
        SELECT tenant, trace_id, span_id, part, version FROM journal
        WHERE {{.Tenants}} AND {{.Filter}}
        GROUP BY tenant, trace_id, span_id, part, version HAVING sum(sign) > 0)
{{end}}ORDER BY started_at, trace, span, part, version, sign DESC
LIMIT {limit:UInt32}

-- The keys of a page are found on narrow columns, the rest is read for them alone. Without history only net lines
-- count: the version of each line that no entry has cancelled. A version is posted once and cancelled at most once.
SELECT *, throwIf(NOT ({{.Allowed}}), 'a row of another tenant') AS guard FROM (
    SELECT tenant, trace, span, if(parent_span_id = toFixedString('', 8), '', lower(hex(parent_span_id))) AS parent, part, run_id, started_at, duration_ns,
        toString(j.kind) AS kind, name, operation, provider, model, requested_model, service_tier, response_id, scope,
        user, feature, workflow, workflow_version, agent, session, criticality, mode, environment,
        tok_input, tok_cache_read, tok_cache_write_5m, tok_cache_write_1h, tok_output, tok_reasoning, tok_input_audio, tok_input_image, tok_output_audio, tok_output_image,
        web_searches, images, pages, media_ms, token_basis, toString(j.usage) AS usage,
        cost, toString(j.cost_status) AS cost_status, price_id, exposure, estimate, reported_cost, amount, currency,
        aggregate, duplicate_of, tool, toString(j.tool_effect) AS tool_effect, args_hash, payload_bytes, payload_type,
        attempt, toString(j.retry_layer) AS retry_layer, toString(j.retry_cause) AS retry_cause, fallback, hedge, hidden_attempts, toString(j.hidden_cause) AS hidden_cause,
        toString(j.failure) AS failure, http_status, toString(j.source) AS source, version, flags, recorded_at, sign,
        model_calls, tool_calls, retries, fallbacks, hedges, repeats, wasted
    FROM journal AS j
    WHERE {{.Tenants}} AND {{.Filter}} AND {{.Window}} AND (j.started_at, tenant, j.trace_id, j.span_id, j.part, j.version, j.sign) IN (
        SELECT started_at, tenant, trace_id, span_id, part, version, sign
        FROM journal
        WHERE {{.Tenants}} AND {{.Filter}} AND {{.Window}} AND started_at >= toDateTime64({after_at:String}, 9, 'UTC')
            AND (started_at, tenant, trace_id, span_id, part, version, -sign) > (toDateTime64({after_at:String}, 9, 'UTC'), {after_tenant:String}, toFixedString(unhex({after_trace:String}), 16), toFixedString(unhex({after_span:String}), 8), {after_part:UInt16}, {after_version:UInt32}, {after_minus:Int16})
            {{if not .History}}AND sign = 1 AND (tenant, trace_id, span_id, part, version) NOT IN (
                SELECT tenant, trace_id, span_id, part, version FROM journal WHERE {{.Tenants}} AND {{.Filter}} AND {{.Window}} AND sign = -1){{end}}
        ORDER BY started_at, tenant, trace_id, span_id, part, version, sign DESC
        LIMIT {limit:UInt32})
    LIMIT 1 BY started_at, tenant, trace_id, span_id, part, version, sign
)
ORDER BY started_at, tenant, trace, span, part, version, sign DESC

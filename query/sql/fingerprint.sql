-- A number that changes with any figure of the time, and not when parts are merged: sums of each row's measures, weighted by what
-- the row is about, without regard to overflow.
SELECT *, throwIf(foreign != 0, 'a row of another tenant') AS guard FROM (
    SELECT sum(cityHash64(tenant, s.at, s.kind, s.provider, s.model, s.user, s.feature, s.workflow, s.workflow_version, s.agent, s.environment, s.mode, s.criticality,
            s.retry_layer, s.retry_cause, s.hidden_cause, s.failure, s.cost_status)
        * (reinterpretAsUInt64(s.calls) * 0x9E3779B97F4A7C15 + reinterpretAsUInt64(toInt64(s.cost)) * 0xC2B2AE3D27D4EB4F + reinterpretAsUInt64(s.retries) * 0x165667B19E3779F9
        + reinterpretAsUInt64(s.hidden_attempts) * 0x27D4EB2F165667C5 + reinterpretAsUInt64(s.fallbacks) * 0x94D049BB133111EB + reinterpretAsUInt64(s.hedges) * 0xBF58476D1CE4E5B9
        + reinterpretAsUInt64(toInt64(s.wasted)) * 0xD6E8FEB86659FD93 + reinterpretAsUInt64(s.unpriced) * 0xA0761D6478BD642F + reinterpretAsUInt64(s.unknown) * 0xE7037ED1A0B428DB
        + reinterpretAsUInt64(s.estimated) * 0x8EBC6AF09C88C6E3 + reinterpretAsUInt64(s.sampled) * 0x589965CC75374CC3 + reinterpretAsUInt64(s.tok_input) * 0x1D8E4E27C47D124F
        + reinterpretAsUInt64(s.tok_cache_read) * 0xEB44ACCAB455D165 + reinterpretAsUInt64(s.tok_cache_write_5m) * 0x9FB21C651E98DF25 + reinterpretAsUInt64(s.tok_cache_write_1h) * 0x2545F4914F6CDD1D
        + reinterpretAsUInt64(s.tok_output) * 0xD1342543DE82EF95 + reinterpretAsUInt64(s.tok_reasoning) * 0xFF51AFD7ED558CCD + reinterpretAsUInt64(s.tok_input_audio) * 0xC4CEB9FE1A85EC53
        + reinterpretAsUInt64(s.tok_input_image) * 0x87C37B91114253D5 + reinterpretAsUInt64(s.tok_output_audio) * 0x4CF5AD432745937F + reinterpretAsUInt64(s.tok_output_image) * 0x52DCE729DA3E39CB)) AS print,
        max(NOT ({{.Allowed}})) AS foreign
    FROM spend_15m AS s
    WHERE {{.Tenants}} AND s.at >= {from:DateTime('UTC')} AND s.at < {to:DateTime('UTC')} AND s.booked_on <= {booked:Date} AND {{.Filter}}
)

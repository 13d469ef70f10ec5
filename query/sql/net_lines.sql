{{define "entries_time" -}}
    {{/* Entries of calls that started in the time. Nothing is recorded more than ten minutes before it started, see clock_skew. */ -}}
    {{.Tenants}} AND started_at >= toDateTime64({from:String}, 9, 'UTC') AND started_at < toDateTime64({to:String}, 9, 'UTC')
        AND recorded_at >= toDateTime64({from:String}, 9, 'UTC') - INTERVAL 10 MINUTE
{{- end}}

{{define "net_lines" -}}
    -- The version of each line that no entry has cancelled, of lines that count as an attempt.
    SELECT * FROM journal
    WHERE {{template "entries_time" .}} AND sign = 1 AND model_calls + tool_calls + retries + fallbacks + hedges > 0 AND (tenant, trace_id, span_id, part, version) NOT IN (
        SELECT tenant, trace_id, span_id, part, version FROM journal WHERE {{template "entries_time" .}} AND sign = -1)
{{- end}}

{{define "model_like"}}('model', 'embedding', 'rerank', 'image', 'speech', 'transcription'){{end}}

{{define "run_info" -}}
    -- What each run of the time is. Its newest row wins, which may lie in another partition than the row that put it into the time.
    SELECT tenant, run_id, newest_started_at AS started_at{{range .Info}}, newest_{{.}} AS {{.}}{{end}}
    FROM (
        SELECT tenant, run_id, argMax(started_at, version) AS newest_started_at{{range .Info}}, argMax({{.}}, version) AS newest_{{.}}{{end}}
        FROM run_info WHERE {{.Tenants}} AND (tenant, run_id) IN ({{template "run_ids" .}})
        GROUP BY tenant, run_id
    )
    WHERE started_at >= toDateTime64({from:String}, 9, 'UTC') AND started_at < toDateTime64({to:String}, 9, 'UTC') AND {{.RunFilter}}
{{- end}}

{{define "run_ids" -}}
    -- At least the runs of the time: if a run's newest row is one of them, it has a row that is. With .Newest only those that began last.
    -- Nothing is recorded more than ten minutes before it started, see clock_skew.
    SELECT tenant, run_id FROM run_info WHERE {{.Tenants}} AND booked_on >= toDate(toDateTime64({from:String}, 9, 'UTC') - INTERVAL 10 MINUTE) AND started_at >= toDateTime64({from:String}, 9, 'UTC') AND started_at < toDateTime64({to:String}, 9, 'UTC') AND {{.RunFilter}}
    {{if .Newest}}ORDER BY started_at DESC LIMIT {newest:UInt32}{{end}}
{{- end}}

{{define "run_sums" -}}
    -- A run without a model call is no agent run and is left out.
    SELECT tenant, run_id, sum(s.model_calls) AS model_calls, sum(s.tool_calls) AS tool_calls, sum(s.retries + s.hidden_attempts) AS retries,
        sum(s.fallbacks) AS fallbacks, sum(s.hedges) AS hedges, sum(s.repeats) AS repeats, sum(s.unpriced) AS unpriced, sum(s.unknown) AS unknown,
        sum(s.cost) AS cost, sum(s.wasted) AS wasted
    FROM runs AS s WHERE {{.Tenants}} AND (tenant, run_id) IN ({{template "run_ids" .}})
    GROUP BY tenant, run_id HAVING model_calls > 0
{{- end}}

{{define "booked_since" -}}
    -- No entry of these runs was recorded before. A day whose sums are all zero may be gone from runs: then its entries cancel each other.
    (SELECT toDateTime(min(booked_on), 'UTC') FROM runs WHERE {{.Tenants}} AND (tenant, run_id) IN ({{template "run_ids" .}}))
{{- end}}

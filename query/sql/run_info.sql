{{define "run_key" -}}
    -- A number for each run, by which rows are grouped and joined faster than by two names; of 128 bits, so that no two runs share one.
    reinterpretAsUInt128(sipHash128(tenant, run_id))
{{- end}}

{{define "run_day" -}}
    -- The first day on which a row may be booked of a run that began in the time: nothing is recorded more than ten minutes before it started, see clock_skew.
    toDate(toDateTime64({from:String}, 9, 'UTC') - INTERVAL 10 MINUTE)
{{- end}}

{{define "run_candidates" -}}
    -- If a run's newest row is of the time, this finds it, and more: rows that are not the newest, or are of another run with the same hash.
    {{.Tenants}} AND booked_on >= {{template "run_day"}} AND started_at >= toDateTime64({from:String}, 9, 'UTC') AND started_at < toDateTime64({to:String}, 9, 'UTC') AND {{.RunFilter}}
{{- end}}

{{define "run_ids" -}}
    -- At least the runs of the time.
    SELECT run_hash FROM run_info WHERE {{template "run_candidates" .}}
{{- end}}

{{define "rootless_ids" -}}
    SELECT run_hash FROM run_info WHERE {{template "run_candidates" .}} AND version < {{template "root"}}
{{- end}}

{{define "run_rows" -}}
    -- At least the newest row of each run of the time, and whatever else could be the newest. A row that a root gave beats every row
    -- that was booked before it, so that those are looked for only of the other runs.
    SELECT * FROM run_info WHERE {{.Tenants}} AND booked_on >= {{template "run_day"}} AND run_hash IN ({{template "run_ids" .}})
    UNION ALL
    SELECT * FROM run_info WHERE {{.Tenants}} AND booked_on < {{template "run_day"}} AND (SELECT count() FROM ({{template "rootless_ids" .}})) > 0 AND run_hash IN ({{template "rootless_ids" .}})
{{- end}}

{{define "run_info" -}}
    -- What each run of the time is: its newest row wins.
    SELECT run_key, newest_tenant AS tenant, newest_run_id AS run_id, newest_started_at AS started_at{{range .Info}}, newest_{{.}} AS {{.}}{{end}}
    FROM (
        SELECT {{template "run_key"}} AS run_key, any(tenant) AS newest_tenant, any(run_id) AS newest_run_id, argMax(started_at, version) AS newest_started_at{{range .Info}}, argMax({{.}}, version) AS newest_{{.}}{{end}}
        FROM ({{template "run_rows" .}})
        GROUP BY run_key
    )
    WHERE started_at >= toDateTime64({from:String}, 9, 'UTC') AND started_at < toDateTime64({to:String}, 9, 'UTC') AND {{.RunFilter}}
{{- end}}

{{define "run_sums" -}}
    -- A run without a model call is no agent run and is left out.
    SELECT {{template "run_key"}} AS run_key, sum(s.model_calls) AS model_calls, sum(s.tool_calls) AS tool_calls, sum(s.retries + s.hidden_attempts) AS retries,
        sum(s.fallbacks) AS fallbacks, sum(s.hedges) AS hedges, sum(s.repeats) AS repeats, sum(s.unpriced) AS unpriced, sum(s.unknown) AS unknown,
        sum(s.cost) AS cost, sum(s.wasted) AS wasted
    FROM runs AS s WHERE {{.Tenants}} AND run_hash IN ({{template "run_ids" .}})
    GROUP BY run_key HAVING model_calls > 0
{{- end}}

{{define "booked_since" -}}
    -- No entry of these runs was recorded before. A day whose sums are all zero may be gone from runs: then its entries cancel each other.
    (SELECT toDateTime(min(booked_on), 'UTC') FROM runs WHERE {{.Tenants}} AND run_hash IN (SELECT run_hash FROM ({{template "agent_runs" .}})))
{{- end}}

{{define "agent_runs" -}}
    -- Each run of the time, what it is beside its sums. A run that changed has a row for what it was, with sign -1, so that all is
    -- to be added up with its sign. Up to the day .Folded the table of states has them, and of the day behind it those of the runs
    -- that were not booked since .Open; of what was booked since they are made here.
    {{if .Folded -}}
    {{template "run_states" .}} AND booked_on <= {{.Folded}}
    UNION ALL
    {{- end}}
    {{if .Open -}}
    {{template "run_states" .}}{{if .Folded}} AND booked_on > {{.Folded}}{{end}} AND run_hash NOT IN ({{template "changed" .}})
    UNION ALL
    {{- end}}
    SELECT tenant, run_hash, run_check, started_at{{range .Info}}, {{.}}{{end}}, sign, model_calls, tool_calls, retries, fallbacks, hedges, repeats, unpriced, unknown, cost, wasted
    FROM (
        SELECT newest_tenant AS tenant, newest_run_hash AS run_hash, newest_run_check AS run_check, newest_started_at AS started_at{{range .Info}}, newest_{{.}} AS {{.}}{{end}}, toInt64(sign) AS sign, model_calls, tool_calls, retries, fallbacks, hedges, repeats, unpriced, unknown, cost, wasted
        FROM ({{template "changed_runs" .}})
    )
    WHERE {{template "run_of_time" .}}
{{- end}}

{{define "run_states" -}}
    SELECT tenant, run_hash, run_check, started_at{{range .Info}}, {{.}}{{end}}, toInt64(sign) AS sign, model_calls, tool_calls, retries, fallbacks, hedges, repeats, unpriced, unknown, cost, wasted
    FROM run_states
    WHERE {{.Tenants}} AND booked_on >= {{template "run_day"}} AND {{template "run_of_time" .}}
{{- end}}

{{define "run_of_time"}}started_at >= toDateTime64({from:String}, 9, 'UTC') AND started_at < toDateTime64({to:String}, 9, 'UTC') AND {{.RunFilter}} AND model_calls > 0{{end}}

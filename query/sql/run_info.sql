{{define "run_info" -}}
    -- What each run of the time is. Its newest row wins, which may lie in another partition than the row that put it into the time.
    SELECT tenant, run_id, v.1 AS started_at, v.2 AS ended_at, v.3 AS status, v.4 AS name, v.5 AS user, v.6 AS feature, v.7 AS workflow,
        v.8 AS workflow_version, v.9 AS agent, v.10 AS environment, v.11 AS mode, v.12 AS criticality
    FROM (
        SELECT tenant, run_id,
            argMax(tuple(started_at, ended_at, toString(status), name, user, feature, workflow, workflow_version, agent, environment, mode, criticality), version) AS v
        FROM run_info WHERE {{.Tenants}} AND (tenant, run_id) IN ({{template "run_ids" .}})
        GROUP BY tenant, run_id
    )
    WHERE started_at >= toDateTime64({from:String}, 9, 'UTC') AND started_at < toDateTime64({to:String}, 9, 'UTC') AND {{.RunFilter}}
{{- end}}

{{define "run_ids" -}}
SELECT tenant, run_id FROM run_info WHERE {{.Tenants}} AND started_at >= toDateTime64({from:String}, 9, 'UTC') AND started_at < toDateTime64({to:String}, 9, 'UTC')
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

{{define "run_info" -}}
    -- What each run of the time is. Its newest row wins, which may lie in another partition than the row that put it into the time.
    SELECT tenant, run_id, newest_started_at AS started_at{{range .Info}}, newest_{{.}} AS {{.}}{{end}}
    FROM (
        SELECT tenant, run_id, argMax(started_at, version) AS newest_started_at{{range .Info}}, argMax({{.}}, version) AS newest_{{.}}{{end}}
        FROM run_info WHERE {{.Tenants}} AND cityHash64(tenant, run_id) IN ({{template "run_ids" .}})
        GROUP BY tenant, run_id
    )
    WHERE started_at >= toDateTime64({from:String}, 9, 'UTC') AND started_at < toDateTime64({to:String}, 9, 'UTC') AND {{.RunFilter}}
{{- end}}

{{define "run_ids" -}}
    -- At least the runs of the time: if a run's newest row is one of them, it has a row that is. With .Newest only those that began last.
    -- Nothing is recorded more than ten minutes before it started, see clock_skew. Numbers are looked up four times as fast as
    -- names; a run that has the number of another is one more that may be of the time, with all of its rows.
    SELECT cityHash64(tenant, run_id) FROM run_info WHERE {{.Tenants}} AND booked_on >= toDate(toDateTime64({from:String}, 9, 'UTC') - INTERVAL 10 MINUTE) AND started_at >= toDateTime64({from:String}, 9, 'UTC') AND started_at < toDateTime64({to:String}, 9, 'UTC') AND {{.RunFilter}}
    {{if .Newest}}ORDER BY started_at DESC LIMIT {newest:UInt32}{{end}}
{{- end}}

{{define "run_sums" -}}
    -- A run without a model call is no agent run and is left out.
    SELECT tenant, run_id, sum(s.model_calls) AS model_calls, sum(s.tool_calls) AS tool_calls, sum(s.retries + s.hidden_attempts) AS retries,
        sum(s.fallbacks) AS fallbacks, sum(s.hedges) AS hedges, sum(s.repeats) AS repeats, sum(s.unpriced) AS unpriced, sum(s.unknown) AS unknown,
        sum(s.cost) AS cost, sum(s.wasted) AS wasted
    FROM runs AS s WHERE {{.Tenants}} AND cityHash64(tenant, run_id) IN ({{template "run_ids" .}})
    GROUP BY tenant, run_id HAVING model_calls > 0
{{- end}}

{{define "booked_since" -}}
    -- No entry of these runs was recorded before. A day whose sums are all zero may be gone from runs: then its entries cancel each other.
    (SELECT toDateTime(min(booked_on), 'UTC') FROM runs WHERE {{.Tenants}} AND cityHash64(tenant, run_id) IN ({{template "run_ids" .}}))
{{- end}}

{{define "agent_runs" -}}
    -- Each run of the time, what it is beside its sums. The rows of both tables are grouped once: a join would hold both sides
    -- in memory. Without .Wide only the runs are read that may be of the time; where that is much of them, all are read faster.
    SELECT tenant, run_id, newest_started_at AS started_at{{range .Info}}, newest_{{.}} AS {{.}}{{end}},
        model_calls, tool_calls, retries, fallbacks, hedges, repeats, unpriced, unknown, cost, wasted
    FROM (
        SELECT tenant, run_id, argMax(s.started_at, s.version) AS newest_started_at{{range .Info}}, argMax(s.{{.}}, s.version) AS newest_{{.}}{{end}},
            sum(s.model_calls) AS model_calls, sum(s.tool_calls) AS tool_calls, sum(s.retries) AS retries, sum(s.fallbacks) AS fallbacks, sum(s.hedges) AS hedges,
            sum(s.repeats) AS repeats, sum(s.unpriced) AS unpriced, sum(s.unknown) AS unknown, sum(s.cost) AS cost, sum(s.wasted) AS wasted
        FROM (
            SELECT tenant, run_id, toUInt64(0) AS version, toDateTime64(0, 9, 'UTC') AS started_at{{range .Info}}, '' AS {{.}}{{end}},
                model_calls, tool_calls, r.retries + r.hidden_attempts AS retries, fallbacks, hedges, repeats, unpriced, unknown, cost, wasted
            FROM runs AS r WHERE {{.Tenants}}{{if not .Wide}} AND cityHash64(tenant, run_id) IN ({{template "run_ids" .}}){{end}}
            UNION ALL
            SELECT tenant, run_id, version, started_at{{range .Info}}, {{.}}{{end}},
                toInt64(0), toInt64(0), toInt64(0), toInt64(0), toInt64(0), toInt64(0), toInt64(0), toInt64(0), toInt128(0), toInt128(0)
            FROM run_info WHERE {{.Tenants}}{{if not .Wide}} AND cityHash64(tenant, run_id) IN ({{template "run_ids" .}}){{end}}
        ) AS s
        GROUP BY tenant, run_id HAVING model_calls > 0
    )
    WHERE started_at >= toDateTime64({from:String}, 9, 'UTC') AND started_at < toDateTime64({to:String}, 9, 'UTC') AND {{.RunFilter}}
{{- end}}

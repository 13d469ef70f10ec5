{{define "changed_runs" -}}
{{- /* Takes Tenants, a condition; Info, the columns of run_info that are wanted; Folded, the day up to which run_states stands for
     runs and run_info, or "" where it does not; Open, the time of recording since which the states of the day behind it may lack
     something, or "" where it has none; Until, a condition on the last day that counts, or ""; Part, one on run_hash, or "";
     Within, one on started_at where much may have been booked behind the day and only runs of that time are wanted, or "". */ -}}
    -- Each run that was booked behind the day, or since the open day's states, as it is now, and with sign -1 as it was on the day. All rows
    -- are grouped once: a join would hold both sides in memory.
    SELECT any(s.tenant) AS newest_tenant, s.run_hash AS newest_run_hash, s.run_check AS newest_run_check, s.sign AS sign, max(s.version) >= {{template "root"}} AS newest_rooted,
        argMax(s.started_at, s.version) AS newest_started_at{{range .Info}}, argMax(s.{{.}}, s.version) AS newest_{{.}}{{end}},
        sum(s.model_calls) AS model_calls, sum(s.tool_calls) AS tool_calls, sum(s.retries) AS retries, sum(s.fallbacks) AS fallbacks, sum(s.hedges) AS hedges,
        sum(s.repeats) AS repeats, sum(s.unpriced) AS unpriced, sum(s.unknown) AS unknown, sum(s.cost) AS cost, sum(s.wasted) AS wasted
    FROM (
        SELECT run_hash, {{template "check"}} AS run_check, tenant, 1 AS sign, toUInt64(0) AS version, toDateTime64(0, 9, 'UTC') AS started_at{{range .Info}}, '' AS {{.}}{{end}},
            model_calls, tool_calls, r.retries + r.hidden_attempts AS retries, fallbacks, hedges, repeats, unpriced, unknown, cost, wasted
        FROM runs AS r WHERE {{template "since" .}}{{template "within" .}}
        UNION ALL
        SELECT run_hash, {{template "check"}} AS run_check, tenant, 1 AS sign, version, started_at{{range .Info}}, {{.}}{{end}},
            toInt64(0), toInt64(0), toInt64(0), toInt64(0), toInt64(0), toInt64(0), toInt64(0), toInt64(0), toInt128(0), toInt128(0)
        FROM run_info WHERE {{template "since" .}}{{template "within" .}}
        {{- if .Folded}}
        UNION ALL
        -- What a root said has a version above every other; the rest is older than what was booked behind the day.
        SELECT run_hash, run_check, tenant, arrayJoin([1, -1]) AS sign, if(rooted, {{template "root"}}, 1) AS version, started_at{{range .Info}}, {{.}}{{end}},
            model_calls, tool_calls, retries, fallbacks, hedges, repeats, unpriced, unknown, cost, wasted
        FROM (
            SELECT * FROM run_states
            PREWHERE run_hash IN ({{template "changed" .}})
            WHERE {{.Tenants}} AND booked_on <= {{.Folded}} AND sign = 1{{template "within" .}}
            ORDER BY booked_on DESC
            LIMIT 1 BY run_hash, run_check
        )
        {{- end}}
    ) AS s
    GROUP BY s.run_hash, s.run_check, s.sign
{{- end}}

{{define "booked"}}{{.Tenants}}{{if .Folded}} AND booked_on > {{.Folded}}{{end}}{{.Until}}{{.Part}}{{end}}

{{define "since"}}{{template "booked" .}}{{if .Open}} AND run_hash IN ({{template "changed" .}}){{end}}{{end}}

{{define "changed" -}}
    {{- /* The journal has what was booked before the other tables have it. */ -}}
    {{- if .Open}}SELECT cityHash64(run_id) FROM journal WHERE {{.Tenants}} AND recorded_at >= {{.Open}}
    {{- else}}SELECT run_hash FROM runs WHERE {{template "booked" .}} UNION ALL SELECT run_hash FROM run_info WHERE {{template "booked" .}}{{end}}
{{- end}}

{{define "folded" -}}
    {{- /* The last day whose states are whole. */ -}}
    (SELECT max(booked_on) FROM run_states WHERE booked_on <= (SELECT max(booked_on) FROM run_states) - ({{template "of_last_day"}} > toDateTime64(0, 6, 'UTC')))
{{- end}}

{{define "of_last_day"}}(SELECT any(through) FROM run_states WHERE booked_on = (SELECT max(booked_on) FROM run_states)){{end}}

{{define "within" -}}
    {{- /* A run that neither began then by a row behind the day nor by its state on that day is of another time, now as before. */ -}}
    {{- if .Within}} AND run_hash IN (SELECT run_hash FROM run_info WHERE {{template "since" .}} AND {{.Within}}
        {{- if .Folded}} UNION ALL SELECT run_hash FROM run_states WHERE {{.Tenants}} AND booked_on <= {{.Folded}} AND sign = 1 AND {{.Within}}{{end}})
    {{- end}}
{{- end}}

{{define "check"}}sipHash64(tenant, run_id){{end}}

{{define "root"}}bitShiftLeft(toUInt64(1), 62){{end}}

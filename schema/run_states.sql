{{define "run_key" -}}
    -- A number for each run, by which rows are grouped and joined faster than by two names; of 128 bits, so that no two runs share one.
    reinterpretAsUInt128(sipHash128(tenant, run_id))
{{- end}}

{{define "changed_runs" -}}
{{- /* Takes Tenants, a condition; Info, the columns of run_info that are wanted; Folded, the day up to which run_states stands for
     runs and run_info, or "" where it does not; Until, the last day that counts, or ""; Part, a condition on run_hash, or "". */ -}}
    -- Each run that was booked behind the day, as it is now, and with sign -1 as it was on that day. The rows of both tables are
    -- grouped once: a join would hold both sides in memory.
    SELECT any(s.tenant) AS newest_tenant, any(s.run_hash) AS newest_run_hash, argMax(s.started_at, s.version) AS newest_started_at{{range .Info}}, argMax(s.{{.}}, s.version) AS newest_{{.}}{{end}}, s.sign AS sign,
        sum(s.model_calls) AS model_calls, sum(s.tool_calls) AS tool_calls, sum(s.retries) AS retries, sum(s.fallbacks) AS fallbacks, sum(s.hedges) AS hedges,
        sum(s.repeats) AS repeats, sum(s.unpriced) AS unpriced, sum(s.unknown) AS unknown, sum(s.cost) AS cost, sum(s.wasted) AS wasted
    FROM (
        SELECT {{template "run_key"}} AS run_key, tenant, run_hash, {{template "signs" .}} AS sign, toUInt64(0) AS version, toDateTime64(0, 9, 'UTC') AS started_at{{range .Info}}, '' AS {{.}}{{end}},
            model_calls, tool_calls, r.retries + r.hidden_attempts AS retries, fallbacks, hedges, repeats, unpriced, unknown, cost, wasted
        FROM runs AS r WHERE {{template "changed" .}}
        UNION ALL
        SELECT {{template "run_key"}} AS run_key, tenant, run_hash, {{template "signs" .}} AS sign, version, started_at{{range .Info}}, {{.}}{{end}},
            toInt64(0), toInt64(0), toInt64(0), toInt64(0), toInt64(0), toInt64(0), toInt64(0), toInt64(0), toInt128(0), toInt128(0)
        FROM run_info WHERE {{template "changed" .}}
    ) AS s
    GROUP BY s.run_key, s.sign
{{- end}}

{{define "signs"}}{{if .Folded}}arrayJoin(if(booked_on > {{.Folded}}, [1], [1, -1])){{else}}1{{end}}{{end}}

{{define "changed" -}}
    {{.Tenants}}{{.Part}}{{.Until}}
    {{- if .Folded}} AND (booked_on > {{.Folded}} OR (booked_on, run_hash) IN (
            -- The days before on which one of these runs was booked.
            SELECT booked_on, run_hash FROM run_states WHERE {{.Tenants}} AND booked_on <= {{.Folded}} AND run_hash IN (
                SELECT run_hash FROM runs WHERE {{.Tenants}} AND booked_on > {{.Folded}}{{.Until}}{{.Part}}
                UNION ALL
                SELECT run_hash FROM run_info WHERE {{.Tenants}} AND booked_on > {{.Folded}}{{.Until}}{{.Part}})))
    {{- end}}
{{- end}}

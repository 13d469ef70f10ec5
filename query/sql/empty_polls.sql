-- A poll is a tool call that its run and agent made more than once, same tool and arguments. A turn is a model call and the tool calls of its
-- run and agent until the next; one whose tool calls were empty polls, all of them, bought nothing. Its cost stands on its first poll.
SELECT *, throwIf(max(foreign) OVER () != 0, 'a row of another tenant') AS guard FROM (
    SELECT {{range .Groups}}l.{{.}} AS {{.}}, {{end}}
        sum(l.calls) AS calls, sum(l.polls) AS polls, sum(l.empty) AS empty, sum(l.unsaid) AS unsaid, sum(l.turns) AS turns, sum(l.cost) AS cost, sum(l.uncosted) AS uncosted, max(l.foreign) AS foreign
    FROM (
        SELECT {{range .Columns}}{{.}}, {{end}}NOT ({{.Allowed}}) AS foreign, sign * (toInt64(tool_calls) + retries + fallbacks + hedges) AS calls,
            toInt64(0) AS polls, toInt64(0) AS empty, toInt64(0) AS unsaid, toInt64(0) AS turns, toInt128(0) AS cost, toInt64(0) AS uncosted
        FROM journal
        WHERE {{template "entries_time" .}} AND kind = 'tool'
        UNION ALL
        SELECT {{range .Columns}}{{.}}, {{end}}NOT ({{.Allowed}}), toInt64(0), p.made, p.told_nothing, p.silent, toInt64(0), toInt128(0), toInt64(0)
        FROM ({{template "polls" .}}) AS p
        UNION ALL
        SELECT {{range .Columns}}{{.}}, {{end}}NOT ({{.Allowed}}), toInt64(0), toInt64(0), toInt64(0), toInt64(0), toInt64(1), toInt128(t.turn_cost), toInt64(t.turn_uncosted)
        FROM (
            SELECT *, min(c.nothing OR c.thinks) OVER same AS bought_nothing, row_number() OVER (PARTITION BY tenant, run_id, agent, turn, thinks ORDER BY started_at, trace_id, span_id) AS nth,
                sum(if(c.thinks, ifNull(c.cost, 0), 0)) OVER same AS turn_cost, max(c.thinks AND c.uncosted) OVER same AS turn_uncosted
            FROM (
                SELECT tenant, run_id, {{range .Own}}j.{{.}} AS {{.}}, {{end}}agent, started_at, trace_id, span_id, cost, j.cost_status IN ('unpriced', 'unknown') AS uncosted, j.kind != 'tool' AS thinks,
                    NOT thinks AND {{template "told_nothing"}} AND j.args_hash != 0 AND count() OVER (PARTITION BY tenant, run_id, agent, kind, tool, args_hash) > 1 AS nothing,
                    sum(thinks) OVER (PARTITION BY tenant, run_id, agent ORDER BY started_at, trace_id, span_id ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS turn
                FROM ({{template "net_lines" .}}) AS j
                WHERE (j.kind = 'tool' OR j.kind IN {{template "model_like"}}) AND (tenant, run_id) IN (SELECT tenant, run_id FROM ({{template "polls" .}}) WHERE told_nothing > 0)
            ) AS c
            WINDOW same AS (PARTITION BY tenant, run_id, agent, turn)
        ) AS t
        WHERE NOT t.thinks AND t.turn > 0 AND t.bought_nothing AND t.nth = 1
    ) AS l
    WHERE {{.Filter}}
    {{if .Groups}}GROUP BY {{range $i, $g := .Groups}}{{if $i}}, {{end}}{{$g}}{{end}}{{end}}
    HAVING calls != 0 OR polls != 0
)
ORDER BY empty DESC, polls DESC, calls DESC{{range .Groups}}, {{.}}{{end}}
LIMIT {limit:UInt32} OFFSET {offset:UInt32}

{{define "told_nothing"}}(j.payload_type = 'empty' OR j.payload_type = 'json' AND j.payload_bytes <= 2 OR j.http_status IN (204, 304, 404)){{end}}

{{define "polls" -}}
    SELECT tenant, run_id, agent, {{range .Own}}max(j.{{.}}) AS {{.}}, {{end}}toInt64(count()) AS made, toInt64(countIf({{template "told_nothing"}})) AS told_nothing,
        toInt64(countIf(NOT {{template "told_nothing"}} AND j.failure = '' AND j.payload_type = '')) AS silent
    FROM ({{template "net_lines" .}}) AS j
    WHERE j.kind = 'tool' AND j.args_hash != 0
    GROUP BY tenant, run_id, agent, j.tool, j.args_hash HAVING made > 1
{{- end}}

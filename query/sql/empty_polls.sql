-- A poll is a tool call that its run made more than once, same tool and arguments. A turn is a model call and the tool calls of its
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
        SELECT {{range .Columns}}{{.}}, {{end}}NOT ({{.Allowed}}), toInt64(0), toInt64(t.poll), toInt64(t.nothing), toInt64(t.silent), toInt64(t.bought), toInt128(t.bought * t.turn_cost), toInt64(t.bought * t.turn_uncosted)
        FROM (
            SELECT *, min(c.nothing OR NOT c.is_tool) OVER same AND c.turn > 0 AND row_number() OVER (PARTITION BY tenant, run_id, agent, turn, is_tool ORDER BY started_at, trace_id, span_id) = 1 AS bought,
                sum(if(c.is_tool, 0, ifNull(c.cost, 0))) OVER same AS turn_cost, max(NOT c.is_tool AND c.cost_status IN ('unpriced', 'unknown')) OVER same AS turn_uncosted
            FROM (
                SELECT *, j.kind = 'tool' AS is_tool,
                    is_tool AND j.args_hash != 0 AND count() OVER (PARTITION BY tenant, run_id, kind, tool, args_hash) > 1 AS poll,
                    poll AND (j.payload_type = 'empty' OR j.payload_type = 'json' AND j.payload_bytes <= 2 OR j.http_status IN (204, 304, 404)) AS nothing,
                    poll AND NOT nothing AND j.failure = '' AND j.payload_type = '' AS silent,
                    sum(NOT is_tool) OVER (PARTITION BY tenant, run_id, agent ORDER BY started_at, trace_id, span_id ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS turn
                FROM ({{template "net_lines" .}}) AS j
                WHERE (j.kind = 'tool' OR j.kind IN {{template "model_like"}}) AND (tenant, run_id) IN (
                    SELECT tenant, run_id FROM journal WHERE {{template "entries_time" .}} AND kind = 'tool' AND args_hash != 0
                    GROUP BY tenant, run_id, tool, args_hash HAVING count() > 1)
            ) AS c
            WINDOW same AS (PARTITION BY tenant, run_id, agent, turn)
        ) AS t
        WHERE t.poll
    ) AS l
    WHERE {{.Filter}}
    {{if .Groups}}GROUP BY {{range $i, $g := .Groups}}{{if $i}}, {{end}}{{$g}}{{end}}{{end}}
    HAVING calls != 0 OR polls != 0
)
ORDER BY empty DESC, polls DESC, calls DESC{{range .Groups}}, {{.}}{{end}}
LIMIT {limit:UInt32} OFFSET {offset:UInt32}

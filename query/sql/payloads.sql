-- What tools answered with, in bytes. How many tokens that became is known where a model call and the next of its run and agent, of the
-- same model, have one tool call between them: the second's input is the first's input and output, and what the tool answered.
SELECT *, throwIf(max(foreign) OVER () != 0, 'a row of another tenant') AS guard FROM (
    SELECT {{range .Groups}}l.{{.}} AS {{.}}, {{end}}
        sum(l.calls) AS calls, sum(l.sized) AS sized, sum(l.bytes) AS bytes, sum(l.measured) AS measured, sum(l.measured_bytes) AS measured_bytes, sum(l.tokens) AS tokens, max(l.foreign) AS foreign
    FROM (
        SELECT {{range .Columns}}{{.}}, {{end}}NOT ({{.Allowed}}) AS foreign, sign * (toInt64(tool_calls) + retries + fallbacks + hedges) AS calls,
            sign * toInt64(payload_type != '' AND tool_calls + retries + fallbacks + hedges > 0) AS sized, sized * toInt64(payload_bytes) AS bytes, toInt64(0) AS measured, toInt64(0) AS measured_bytes, toInt64(0) AS tokens
        FROM journal
        WHERE {{template "entries_time" .}} AND kind = 'tool'
        UNION ALL
        SELECT {{range .Columns}}{{.}}, {{end}}NOT ({{.Allowed}}), toInt64(0), toInt64(0), toInt64(0), toInt64(1), toInt64(t.bytes), t.next_input - t.input - t.output
        FROM (
            SELECT *, leadInFrame(c.input) OVER next AS next_input, leadInFrame(c.target) OVER next AS next_target, leadInFrame(c.sure) OVER next AS next_sure, leadInFrame(c.started) OVER next AS next_started
            FROM (
                SELECT tenant, run_id, agent, turn, {{range .Own}}anyIf(b.{{.}}, b.is_tool) AS {{.}}, {{end}}
                    countIf(b.is_tool) AS tools, anyIf(b.payload_bytes, b.is_tool) AS bytes, anyIf(b.payload_type, b.is_tool) AS of_type, maxIf(b.start + b.duration_ns, b.is_tool) AS answered,
                    anyIf(b.start, NOT b.is_tool) AS started, anyIf(cityHash64(b.provider, b.model), NOT b.is_tool) AS target, maxIf(b.usage = 'known' AND bitAnd(b.flags, {doubtful:UInt64}) = 0, NOT b.is_tool) AS sure, sumIf(b.tok_reasoning, NOT b.is_tool) AS reasoning,
                    toInt64(sumIf(b.tok_input + b.tok_cache_read + b.tok_cache_write_5m + b.tok_cache_write_1h + b.tok_input_audio + b.tok_input_image, NOT b.is_tool)) AS input,
                    toInt64(sumIf(b.tok_output + b.tok_output_audio + b.tok_output_image, NOT b.is_tool)) AS output
                FROM (
                    SELECT *, j.kind = 'tool' AS is_tool, toUnixTimestamp64Nano(j.started_at) AS start,
                        sum(NOT is_tool) OVER (PARTITION BY tenant, run_id, agent ORDER BY started_at, trace_id, span_id ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS turn
                    FROM ({{template "net_lines" .}}) AS j
                    WHERE j.kind IN ('tool', 'model')
                ) AS b
                GROUP BY tenant, run_id, agent, turn
            ) AS c
            WINDOW next AS (PARTITION BY tenant, run_id, agent ORDER BY turn ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)
        ) AS t
        WHERE t.tools = 1 AND t.turn > 0 AND t.of_type != '' AND t.sure AND t.next_sure AND t.reasoning = 0 AND t.target = t.next_target AND t.answered <= t.next_started AND t.next_input >= t.input + t.output
    ) AS l
    WHERE {{.Filter}}
    {{if .Groups}}GROUP BY {{range $i, $g := .Groups}}{{if $i}}, {{end}}{{$g}}{{end}}{{end}}
    HAVING calls != 0
)
ORDER BY bytes DESC, calls DESC{{range .Groups}}, {{.}}{{end}}
LIMIT {limit:UInt32} OFFSET {offset:UInt32}

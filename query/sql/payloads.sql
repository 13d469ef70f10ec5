-- What tools answered with, in bytes. How many tokens that became is known where the calls of a run and agent before and after it are of
-- one model: the second's input is the first's input and output, and what the tool answered. Where there are more lines than can be put
-- in order, that is looked at in some runs, the same ones each time.
SELECT *, throwIf(max(foreign) OVER () != 0, 'a row of another tenant') AS guard FROM (
    SELECT {{range .Groups}}l.{{.}} AS {{.}}, {{end}}
        sum(l.calls) AS calls, sum(l.sized) AS sized, sum(l.bytes) AS bytes, sum(l.measured) AS measured, sum(l.measured_bytes) AS measured_bytes, sum(l.tokens) AS tokens, max(l.foreign) AS foreign
    FROM (
        SELECT {{range .Columns}}{{.}}, {{end}}NOT ({{.Allowed}}) AS foreign, sign * (toInt64(tool_calls) + retries + fallbacks + hedges) AS calls,
            sign * toInt64(payload_type != '' AND tool_calls + retries + fallbacks + hedges > 0) AS sized, sized * toInt64(payload_bytes) AS bytes, toInt64(0) AS measured, toInt64(0) AS measured_bytes, toInt64(0) AS tokens
        FROM journal
        WHERE {{template "entries_time" .}} AND kind = 'tool'
        UNION ALL
        SELECT {{range .Columns}}{{.}}, {{end}}NOT ({{.Allowed}}), toInt64(0), toInt64(0), toInt64(0), toInt64(1), toInt64(t.bytes), t.next_before - t.last_after
        FROM (
            SELECT *, lagInFrame(c.model) OVER beside AS last_model, lagInFrame(c.after) OVER beside AS last_after,
                leadInFrame(c.model) OVER beside AS next_model, leadInFrame(c.before) OVER beside AS next_before, leadInFrame(c.start) OVER beside AS next_start
            FROM (
                SELECT tenant, {{range .Own}}j.{{.}} AS {{.}}, {{end}}agent, sipHash128(tenant, j.run_id, agent) AS lane, toUnixTimestamp64Nano(j.started_at) AS start, cityHash64(j.trace_id, j.span_id) AS tie,
                    start + j.duration_ns AS end, j.payload_bytes AS bytes, j.kind = 'tool' AND j.payload_type != '' AS told, cityHash64(j.provider, j.model) AS model,
                    if(j.kind = 'model' AND j.usage = 'known' AND bitAnd(j.flags, {doubtful:UInt64}) = 0, toInt64(j.tok_input + j.tok_cache_read + j.tok_cache_write_5m + j.tok_cache_write_1h + j.tok_input_audio + j.tok_input_image), -1) AS before,
                    if(before < 0 OR j.tok_reasoning > 0, -1, before + toInt64(j.tok_output + j.tok_output_audio + j.tok_output_image)) AS after
                FROM ({{template "net_lines" .}}) AS j
                WHERE j.kind IN ('tool', 'model') AND cityHash64(tenant, j.run_id) % (SELECT intDiv(count(), {lines:UInt32}) + 1 FROM journal WHERE {{template "entries_time" .}} AND kind IN ('tool', 'model')) = 0
            ) AS c
            WINDOW beside AS (PARTITION BY lane ORDER BY start, tie ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING)
        ) AS t
        WHERE t.told AND t.last_after >= 0 AND t.next_before >= t.last_after AND t.last_model = t.next_model AND t.end <= t.next_start
    ) AS l
    WHERE {{.Filter}}
    {{if .Groups}}GROUP BY {{range $i, $g := .Groups}}{{if $i}}, {{end}}{{$g}}{{end}}{{end}}
    HAVING calls != 0
)
ORDER BY bytes DESC, calls DESC{{range .Groups}}, {{.}}{{end}}
LIMIT {limit:UInt32} OFFSET {offset:UInt32}

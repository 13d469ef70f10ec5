-- Attempts of model calls, and those that the provider refused for rate or quota. Attempts inside an SDK stand under the cause of the first.
SELECT *, throwIf(max(foreign) OVER () != 0, 'a row of another tenant') AS guard FROM (
    SELECT {{range .Groups}}s.{{.}} AS {{.}}, {{end}}{{.At}} AS at,
        sum(s.calls + s.hidden_attempts) AS attempts,
        sumIf(s.calls, s.failure = 'rate_limited') + sumIf(s.hidden_attempts, s.hidden_cause = 'rate_limited') AS limited,
        max(NOT ({{.Allowed}})) AS foreign
    FROM spend_15m AS s
    WHERE {{.Tenants}} AND s.at >= {from:DateTime('UTC')} AND s.at < {to:DateTime('UTC')} AND s.kind IN {{template "model_like"}} AND {{.Filter}}
    GROUP BY {{range .Groups}}{{.}}, {{end}}at
    HAVING attempts != 0 OR limited != 0
)
ORDER BY at, limited DESC, attempts DESC{{range .Groups}}, {{.}}{{end}}
LIMIT {limit:UInt32} OFFSET {offset:UInt32}

SELECT *,
    count() OVER () AS all_rows, sum(calls) OVER () AS all_calls, sum(unpriced) OVER () AS all_unpriced, sum(unknown) OVER () AS all_unknown,
    sum(estimated) OVER () AS all_estimated, sum(assumed) OVER () AS all_assumed, sum(sampled) OVER () AS all_sampled,
    throwIf(max(foreign) OVER () != 0, 'a row of another tenant') AS guard
FROM (
    SELECT s.provider AS provider, s.model AS model, sum(s.calls) AS calls, sum(s.unpriced) AS unpriced, sum(s.unknown) AS unknown, sum(s.estimated) AS estimated,
        sum(s.assumed) AS assumed, sum(s.sampled) AS sampled, sum(s.cost) AS cost, max(NOT ({{.Allowed}})) AS foreign
    FROM spend_15m AS s
    WHERE {{.Tenants}} AND s.at >= {from:DateTime('UTC')} AND s.at < {to:DateTime('UTC')} AND {{.Filter}}
        AND s.kind IN ('model', 'embedding', 'rerank', 'image', 'speech', 'transcription', 'agent')
    GROUP BY provider, model
    HAVING calls != 0 OR unpriced != 0 OR unknown != 0
)
ORDER BY unpriced DESC, unknown DESC, calls DESC, provider, model
LIMIT {limit:UInt32} OFFSET {offset:UInt32}

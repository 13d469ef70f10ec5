SELECT provider, model, sum(calls) AS calls, sum(unpriced) AS unpriced, sum(unknown) AS unknown, sum(estimated) AS estimated, sum(assumed) AS assumed, sum(sampled) AS sampled, sum(cost) AS cost
FROM spend_15m
WHERE {{.Tenants}} AND at >= {from:DateTime('UTC')} AND at < {to:DateTime('UTC')} AND kind IN ('model', 'embedding', 'rerank', 'image', 'speech', 'transcription', 'agent') AND {{.Filter}}
GROUP BY provider, model HAVING calls != 0
ORDER BY unpriced DESC, unknown DESC, calls DESC
LIMIT {limit:UInt32}

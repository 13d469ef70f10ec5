-- The newest comparison of each provider.
SELECT provider, argMax(r.ours, r.made) AS ours, argMax(r.theirs, r.made) AS theirs, max(r.made) AS made
FROM (SELECT id, provider, max(made_at) AS made, sum(ours) AS ours, sum(theirs) AS theirs FROM reconciliations WHERE line > 0 GROUP BY id, provider) AS r
GROUP BY provider
ORDER BY provider

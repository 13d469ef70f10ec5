-- How many lines carry each flag. The rollups keep only some of them.
SELECT *, throwIf(foreign != 0, 'a row of another tenant') AS guard FROM (
    SELECT arrayJoin(bitPositionsToArray(flags)) AS bit, sum(toInt64(sign)) AS lines, max(NOT ({{.Allowed}})) AS foreign
    FROM journal
    WHERE {{.Tenants}} AND started_at >= {from:DateTime('UTC')} AND started_at < {to:DateTime('UTC')} AND recorded_at >= {from:DateTime('UTC')} - INTERVAL 10 MINUTE AND flags != 0 AND {{.Filter}}
    GROUP BY bit HAVING lines != 0
)
ORDER BY bit

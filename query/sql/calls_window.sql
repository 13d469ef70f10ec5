-- The start of the last of the next so many lines, cancelled ones among them: a page is looked for up to there first.
SELECT max(started_at) AS last, count() AS lines, throwIf(max(foreign) != 0, 'a row of another tenant') AS guard FROM (
    SELECT started_at, NOT ({{.Allowed}}) AS foreign
    FROM journal
    WHERE {{.Tenants}} AND {{.Filter}} AND sign = 1 AND started_at >= toDateTime64({after_at:String}, 9, 'UTC')
    ORDER BY started_at
    LIMIT {window:UInt32}
)

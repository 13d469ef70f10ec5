-- The start of the last of so many rows of run_info that began last.
SELECT count() AS rows, min(started_at) AS since, throwIf(max(foreign) != 0, 'a row of another tenant') AS guard FROM (
    SELECT started_at, NOT ({{.Allowed}}) AS foreign
    FROM run_info WHERE {{template "run_candidates" .}}
    ORDER BY started_at DESC
    LIMIT {newest:UInt32}
)

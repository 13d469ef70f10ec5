-- How many runs were recorded on each day, about: a run of which more than one row is left is counted more than once.
SELECT *, throwIf(foreign != 0, 'a row of another tenant') AS guard FROM (
    SELECT toDateTime(booked_on, 'UTC') AS day, toInt64(count()) AS runs, max(NOT ({{.Allowed}})) AS foreign FROM run_info WHERE {{.Tenants}} GROUP BY day
)
ORDER BY day

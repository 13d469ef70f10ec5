-- The first day on which a run was recorded.
SELECT *, throwIf(foreign != 0, 'a row of another tenant') AS guard FROM (
    SELECT toDateTime(min(booked_on), 'UTC') AS first, max(NOT ({{.Allowed}})) AS foreign FROM run_info WHERE {{.Tenants}} HAVING count() > 0
)

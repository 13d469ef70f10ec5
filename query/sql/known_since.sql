-- No entry of a run of the time was recorded before. A day of a run whose sums are all zero may be gone from runs, but as_of may
-- lie within it: then it has an entry of the time.
SELECT least(of_entries, if(of_runs = toDateTime(0, 'UTC'), of_entries, of_runs)) AS since, throwIf(foreign != 0, 'a row of another tenant') AS guard FROM (
    SELECT toStartOfDay(min(j.recorded_at), 'UTC') AS of_entries, max(NOT ({{.Allowed}})) AS foreign,
        assumeNotNull((SELECT toDateTime(min(booked_on), 'UTC') FROM runs WHERE {{.Tenants}} AND cityHash64(tenant, run_id) IN (
            SELECT cityHash64(tenant, run_id) FROM journal WHERE {{template "known_time" .}} AND recorded_at < toDateTime64({as_of:String}, 6, 'UTC')))) AS of_runs
    FROM journal AS j
    WHERE {{template "known_time" .}} AND recorded_at < toDateTime64({as_of:String}, 6, 'UTC')
    HAVING count() > 0
)

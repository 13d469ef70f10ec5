-- What run_info alone knows of the runs of a page.
SELECT *, throwIf(NOT ({{.Allowed}}), 'a row of another tenant') AS guard FROM (
    SELECT tenant, run_id, any(i.run_hash) AS run_hash, sipHash64(tenant, run_id) AS run_check, argMax(i.ended_at, i.version) AS ended_at, toString(argMax(i.status, i.version)) AS status, argMax(i.name, i.version) AS name
    FROM run_info AS i
    WHERE {{.Tenants}} AND booked_on >= {{template "run_day"}} AND i.run_hash IN {hashes:Array(UInt64)}
    GROUP BY tenant, run_id
)

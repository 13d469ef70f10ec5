SELECT any(run_id) FROM (
    SELECT run_id, version, span_id, part FROM journal WHERE {{.Tenants}} AND trace_id = unhex({trace:String})
    GROUP BY run_id, version, span_id, part HAVING sum(sign) > 0)

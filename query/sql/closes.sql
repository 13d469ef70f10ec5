-- What is closed, and by whom. A close is one insert, so that its rows agree.
SELECT *, throwIf(foreign != 0, 'a row of another tenant') AS guard FROM (
    SELECT tenant, period, min(starts_at) AS starts_at, min(ends_at) AS ends_at, min(timezone) AS timezone, min(booked_through) AS booked_through,
        min(closed_at) AS closed_at, min(closed_by) AS closed_by, sum(c.cost) AS cost, max(NOT ({{.Allowed}})) AS foreign
    FROM closes AS c
    WHERE {{.Tenants}} AND {{.Filter}}
    GROUP BY tenant, period
)
ORDER BY period, tenant

-- A closed month by days, each converted at its rate, from the rollup: what was booked until the close, and what is known now.
SELECT *, throwIf(max(foreign) OVER () != 0, 'a row of another tenant') AS guard FROM (
    SELECT tenant, provider, model, sumIf(d.converted, d.frozen = 1) AS frozen, sum(d.converted) - frozen AS adjustment, sumIf(d.cost, d.frozen = 1) AS frozen_cost, max(d.foreign) AS foreign
    FROM (SELECT *, {{template "fx" .}} FROM (
        SELECT tenant, provider, model, {{.FXDay}} AS fx_day, s.booked_on <= p.booked_through AS frozen, sum(s.cost) AS cost, max(NOT ({{.Allowed}})) AS foreign
        FROM (SELECT * FROM spend_15m WHERE {{.Tenants}} AND at >= {from:DateTime('UTC')} AND at < {to:DateTime('UTC')}) AS s
        INNER JOIN (SELECT tenant, min(starts_at) AS starts_at, min(ends_at) AS ends_at, min(booked_through) AS booked_through FROM closes WHERE {{.Tenants}} AND period = {period:String} GROUP BY tenant) AS p ON s.tenant = p.tenant
        WHERE s.at >= p.starts_at AND s.at < p.ends_at
        GROUP BY tenant, provider, model, fx_day, frozen)) AS d
    GROUP BY tenant, provider, model
)

-- What was booked of each tenant's month until a day.
SELECT *, throwIf(foreign != 0, 'a row of another tenant') AS guard FROM (
    SELECT tenant, provider, model, sum(s.lines) AS lines, sum(s.calls) AS calls, sum(s.unpriced) AS unpriced, sum(s.unknown) AS unknown,
        sum(s.cost) AS cost, sum(s.wasted) AS wasted, max(NOT ({{.Allowed}})) AS foreign
    FROM spend_15m AS s
    WHERE {{.Tenants}} AND s.at >= {from:DateTime('UTC')} AND s.at < {to:DateTime('UTC')} AND s.booked_on <= {booked:Date}
    GROUP BY tenant, provider, model
    HAVING lines != 0 OR calls != 0 OR unpriced != 0 OR unknown != 0 OR cost != 0 OR wasted != 0
)
ORDER BY tenant, provider, model

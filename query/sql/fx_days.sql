-- The days that need a rate.
SELECT *, throwIf(foreign != 0, 'a row of another tenant') AS guard FROM (
    SELECT {{.FXDay}} AS day, max(NOT ({{.Allowed}})) AS foreign
    FROM {{template "spend_lines" .}} AS s
    WHERE {{.Tenants}} AND s.at >= {from:DateTime('UTC')} AND s.at < {to:DateTime('UTC')} AND {{.Filter}} AND s.cost != 0
    GROUP BY day
)
ORDER BY day

-- The days that need a rate.
SELECT *, throwIf(foreign != 0, 'a row of another tenant') AS guard FROM (
    SELECT {{.FXDay}} AS day, max(NOT ({{.Allowed}})) AS foreign
    FROM spend_15m AS s
    WHERE {{.Tenants}} AND (s.at >= {from:DateTime('UTC')} AND s.at < {to:DateTime('UTC')}{{if .Base}} OR s.at >= {base_from:DateTime('UTC')} AND s.at < {base_to:DateTime('UTC')}{{end}}) AND {{.Filter}} AND {{.FXCost}} != 0
    GROUP BY day
)
ORDER BY day

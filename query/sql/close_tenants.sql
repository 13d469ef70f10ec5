SELECT *, throwIf(foreign != 0, 'a row of another tenant') AS guard FROM (
    SELECT tenant, max(NOT ({{.Allowed}})) AS foreign FROM spend_15m WHERE {{.Tenants}} GROUP BY tenant
)
ORDER BY tenant

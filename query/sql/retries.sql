-- Retries with a span of their own by their layer, attempts inside an SDK as layer sdk.
SELECT layer, cause, sum(n) AS retries, sum(w) AS wasted FROM (
    SELECT toString(retry_layer) AS layer, toString(retry_cause) AS cause, sum(retries + fallbacks) AS n, sum(if(retry_layer != '', wasted, 0)) AS w
    FROM spend_15m WHERE {{.Tenants}} AND at >= {from:DateTime('UTC')} AND at < {to:DateTime('UTC')} AND {{.Filter}} GROUP BY layer, cause
    UNION ALL
    SELECT 'sdk' AS layer, toString(hidden_cause) AS cause, sum(hidden_attempts) AS n, toInt128(0) AS w
    FROM spend_15m WHERE {{.Tenants}} AND at >= {from:DateTime('UTC')} AND at < {to:DateTime('UTC')} AND {{.Filter}} GROUP BY cause
    UNION ALL
    SELECT '' AS layer, toString(failure) AS cause, toInt64(0) AS n, sum(wasted) AS w
    FROM spend_15m WHERE {{.Tenants}} AND at >= {from:DateTime('UTC')} AND at < {to:DateTime('UTC')} AND {{.Filter}} AND retry_layer = '' GROUP BY cause
) GROUP BY layer, cause HAVING retries != 0 OR wasted != 0
ORDER BY retries DESC, layer, cause

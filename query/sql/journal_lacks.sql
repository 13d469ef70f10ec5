-- Whether anything of the time was booked before the oldest day that the journal still has whole.
SELECT *, throwIf(max(foreign) OVER () != 0, 'a row of another tenant') AS guard FROM (
    SELECT min(s.booked_on) AS first, if((SELECT count() FROM journal) = 0, toDate('2149-06-06'), assumeNotNull((SELECT toDate(min(recorded_at)) FROM journal))) AS oldest, max(NOT ({{.Allowed}})) AS foreign
    FROM spend_15m AS s
    WHERE {{.Tenants}} AND s.at >= {from:DateTime('UTC')} AND s.at < {to:DateTime('UTC')} AND {{.Filter}}
    HAVING count() > 0
)

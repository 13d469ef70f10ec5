-- Which comparisons there are, the newest first.
SELECT *, count() OVER () AS all_rows FROM (
    SELECT id, any(r.source) AS source, any(r.sha256) AS sha256, any(r.tenants) AS tenants, any(r.starts_on) AS starts_on, any(r.ends_on) AS ends_on, min(r.made_at) AS made_at, any(r.made_by) AS made_by,
        sum(r.skipped_rows) AS skipped_rows, sum(r.skipped) AS skipped, sum(r.ours) AS ours, sum(r.theirs) AS theirs, sum(r.priced) AS priced, sum(r.only_ours) AS only_ours,
        sum(r.only_theirs) AS only_theirs, sum(r.rounding) AS rounding, sum(r.unsplit) AS unsplit,
        any(r.as_of) AS as_of, any(r.currency) AS currency, sum(r.billed) AS billed
    FROM reconciliations AS r
    WHERE {{.Filter}}
    GROUP BY id
)
ORDER BY made_at DESC, id
LIMIT {limit:UInt32} OFFSET {offset:UInt32}

SELECT *, count() OVER () AS all_rows FROM (
    SELECT line, day, provider, model, item, ours, theirs, priced, only_ours, only_theirs, rounding, unsplit, our_tokens, their_tokens, bill_rows, calls, unpriced, unknown, estimated, sampled, currency, billed, rate, rate_of, rate_source, split_by
    FROM reconciliations
    WHERE line > 0 AND {{.Filter}}
    LIMIT 1 BY line
)
ORDER BY line
LIMIT {limit:UInt32} OFFSET {offset:UInt32}

-- Comparisons with providers' bills. Each run has a row with line 0, which is the run itself, and one for each day and model
-- or item of the bill; the parts of a row sum to theirs - ours. Nothing is ever changed, and rows stay for good.
CREATE TABLE IF NOT EXISTS reconciliations {{.OnCluster}}
(
    id            String,
    line          UInt32 COMMENT '0 is the run itself',
    source        String COMMENT 'openai, anthropic or focus',
    sha256        String COMMENT 'of the file, in hex',
    tenants       String COMMENT 'whose calls were compared, a JSON list; [] is everybody',
    starts_on     Date COMMENT 'first UTC day',
    ends_on       Date COMMENT 'the day after the last',
    made_at       DateTime64(6, 'UTC'),
    made_by       String COMMENT 'the name of the key',
    skipped_rows  Int64 COMMENT 'of the file that are about something else',
    skipped       Int128 COMMENT '1e-12 USD',
    day           Date,
    provider      String,
    model         String,
    item          String COMMENT 'of the bill that names no known model',
    ours          Int128 COMMENT '1e-12 USD',
    theirs        Int128 COMMENT '1e-12 USD',
    priced        Int128 COMMENT 'both saw it, at another price',
    only_ours     Int128 COMMENT 'we saw it, the bill does not have it: never above 0 for money spent',
    only_theirs   Int128 COMMENT 'the bill has it, we did not see it',
    rounding      Int128,
    unsplit       Int128 COMMENT 'price or volume: the bill has no tokens that would tell',
    our_tokens    Int64,
    their_tokens  Nullable(Int64) COMMENT 'NULL where the bill does not say',
    bill_rows     Int64,
    calls         Int64,
    unpriced      Int64,
    unknown       Int64,
    estimated     Int64,
    sampled       Int64
)
ENGINE = {{.Engine "MergeTree"}}
ORDER BY (made_at, id, line)
SETTINGS {{.Dedup}} = 10000

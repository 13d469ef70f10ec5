-- What was known of a month when it was closed: the sums of the entries that were booked until the end of a day.
-- Each close has a row without a provider and a model, so that a month of nothing is closed too. Rows stay for good.
CREATE TABLE IF NOT EXISTS closes {{.OnCluster}}
(
    tenant         String,
    period         String COMMENT 'the month, e.g. 2026-11',
    provider       String,
    model          String,
    starts_at      DateTime('UTC') COMMENT 'of the month, in the zone',
    ends_at        DateTime('UTC'),
    timezone       String,
    booked_through Date COMMENT 'the last UTC day whose entries are in the sums',
    closed_at      DateTime64(6, 'UTC'),
    closed_by      String COMMENT 'the name of the key',
    lines          Int64,
    calls          Int64,
    unpriced       Int64,
    unknown        Int64,
    cost           Int128 COMMENT '1e-12 USD',
    wasted         Int128 COMMENT '1e-12 USD'
)
ENGINE = {{.Engine "MergeTree"}}
ORDER BY (tenant, period, provider, model)
SETTINGS {{.Dedup}} = 10000

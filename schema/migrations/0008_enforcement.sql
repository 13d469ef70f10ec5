-- What enforcement did, what passed all the same (kind leak) and how fast limiters followed (kind applied). A row is
-- told apart by its node and number: one that is sent again after a crash replaces itself, so read it with FINAL.
CREATE TABLE IF NOT EXISTS enforcement {{.OnCluster}}
(
    tenant        String COMMENT 'empty for what concerns the whole org',
    at            DateTime64(6, 'UTC') CODEC(Delta, ZSTD(1)),
    node          String,
    seq           UInt64 CODEC(Delta, ZSTD(1)),
    kind          String,
    guard         String CODEC(ZSTD(1)),
    scope         String COMMENT 'in words' CODEC(ZSTD(1)),
    user          String CODEC(ZSTD(1)),
    action        String CODEC(ZSTD(1)),
    measure       String CODEC(ZSTD(1)),
    value         String COMMENT 'with its unit' CODEC(ZSTD(1)),
    limit         String COMMENT 'with its unit' CODEC(ZSTD(1)),
    rung          String CODEC(ZSTD(1)),
    window        String CODEC(ZSTD(1)),
    shadow        UInt8,
    actor         String CODEC(ZSTD(1)),
    reason        String CODEC(ZSTD(1)),
    directive     String CODEC(ZSTD(1)),
    revision      String CODEC(ZSTD(1)),
    limiter       String COMMENT 'empty where it is not known which of several' CODEC(ZSTD(1)),
    class         String COMMENT 'of a leak: propagation, leak or unguarded' CODEC(ZSTD(1)),
    calls         Int64 COMMENT 'that leaked' CODEC(ZSTD(1)),
    cost          Nullable(Int128) COMMENT '1e-12 USD that a guard counts for them' CODEC(ZSTD(1)),
    took_ns       Nullable(Int64) COMMENT 'receipt of the span that crossed the limit to the acknowledgement, by one clock' CODEC(ZSTD(1)),
    after_span_ns Nullable(Int64) COMMENT 'end of that span to the acknowledgement, by two clocks' CODEC(ZSTD(1)),
    trace_id      String COMMENT 'of the call behind it' CODEC(ZSTD(1))
)
ENGINE = {{.Engine "ReplacingMergeTree"}}
PARTITION BY toYYYYMM(at)
ORDER BY (tenant, at, node, seq)
SETTINGS {{.Dedup}} = 10000

-- Points of metrics by which limiters say how they fare, as they were reported. A point that came twice is one row after
-- a merge, so readers use FINAL.
CREATE TABLE IF NOT EXISTS limiter_samples {{.OnCluster}}
(
    tenant        String,
    metric        String CODEC(ZSTD(1)),
    series        UInt64 COMMENT 'hash of the metric, its scope and every attribute: what tells series apart',
    at            DateTime64(9, 'UTC') CODEC(Delta, ZSTD(1)),
    started_at    DateTime64(9, 'UTC') COMMENT 'since when a delta or cumulative point counts; 1970 is unknown' CODEC(Delta, ZSTD(1)),
    recorded_at   DateTime64(6, 'UTC') CODEC(Delta, ZSTD(1)),
    temporality   Enum8({{.Temporalities}}),
    value         Float64 COMMENT 'of a histogram the sum; seconds, shares of 1, or counts' CODEC(ZSTD(1)),
    count         UInt64 COMMENT 'of a histogram, else 0' CODEC(ZSTD(1)),
    bounds        Array(Float64) COMMENT 'upper ends of all buckets but the last' CODEC(ZSTD(1)),
    buckets       Array(UInt64) COMMENT 'one more than bounds, or none' CODEC(ZSTD(1)),
    limiter       String CODEC(ZSTD(1)),
    provider      String CODEC(ZSTD(1)),
    model         String CODEC(ZSTD(1)),
    tool          String CODEC(ZSTD(1)),
    dimension     String COMMENT 'of a bucket: requests, tokens, …' CODEC(ZSTD(1)),
    state         String COMMENT 'of a breaker: open, half_open, closed' CODEC(ZSTD(1)),
    error         String COMMENT 'error.type' CODEC(ZSTD(1)),
    http_status   UInt16 COMMENT '0 is unknown' CODEC(ZSTD(1))
)
ENGINE = {{.Engine "ReplacingMergeTree" "recorded_at"}}
PARTITION BY toYYYYMM(recorded_at)
ORDER BY (tenant, metric, toStartOfHour(at), series, at, started_at)
SETTINGS {{.Dedup}} = 10000

-- What became of each run on each day: how it stood at the end of the day, and with sign -1 how it had stood before. The rows that
-- were booked up to some day sum to the runs as they were at its end, so that a question about months adds up rows and groups no run.
-- To find a run one column is read of every day, so that each has a file of its own but where a day is small.
-- A day is made of runs and run_info once nothing can be booked on it any more, by one replacement of its partition.
CREATE TABLE IF NOT EXISTS run_states {{.OnCluster}}
(
    tenant           String CODEC(ZSTD(1)),
    booked_on        Date CODEC(ZSTD(1)),
    run_hash         UInt64 COMMENT 'as in runs' CODEC(NONE),
    run_check        UInt64 COMMENT 'sipHash64(tenant, run_id): with run_hash it stands for the run' CODEC(NONE),
    sign             Int8 CODEC(ZSTD(1)),
    rooted           Bool COMMENT 'the root of a trace said what the run is, which only another root changes' CODEC(ZSTD(1)),
    started_at       DateTime64(9, 'UTC') COMMENT '1970 where no row of run_info is known' CODEC(DoubleDelta, ZSTD(1)),
    user             String CODEC(ZSTD(1)),
    feature          String CODEC(ZSTD(1)),
    workflow         String CODEC(ZSTD(1)),
    workflow_version String CODEC(ZSTD(1)),
    agent            String CODEC(ZSTD(1)),
    environment      String CODEC(ZSTD(1)),
    mode             String CODEC(ZSTD(1)),
    criticality      String CODEC(ZSTD(1)),
    model_calls      Int64 CODEC(T64, ZSTD(1)),
    tool_calls       Int64 CODEC(T64, ZSTD(1)),
    retries          Int64 COMMENT 'with those inside of an SDK' CODEC(T64, ZSTD(1)),
    fallbacks        Int64 CODEC(ZSTD(1)),
    hedges           Int64 CODEC(ZSTD(1)),
    repeats          Int64 CODEC(ZSTD(1)),
    unpriced         Int64 CODEC(ZSTD(1)),
    unknown          Int64 CODEC(ZSTD(1)),
    cost             Int128 CODEC(ZSTD(1)),
    wasted           Int128 CODEC(ZSTD(1))
)
ENGINE = {{.Engine "MergeTree"}}
PARTITION BY booked_on
ORDER BY (tenant, started_at)
SETTINGS {{.Dedup}} = 0, index_granularity = 1024, min_bytes_for_wide_part = 1000000

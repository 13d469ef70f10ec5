-- As runs are. Of a run's rows that were booked on one day the newest stays, so that the newest of all is the newest of its days.
CREATE OR REPLACE TABLE run_info {{.OnCluster}}
(
    tenant           String CODEC(ZSTD(1)),
    run_id           String CODEC(ZSTD(1)),
    version          UInt64 COMMENT 'unix microseconds, and 1 << 62 where the root of a trace says it' CODEC(T64, ZSTD(1)),
    booked_on        Date COMMENT 'UTC day on which this row was recorded' CODEC(ZSTD(1)),
    started_at       DateTime64(9, 'UTC') CODEC(T64, ZSTD(1)),
    ended_at         DateTime64(9, 'UTC') CODEC(T64, ZSTD(1)),
    status           Enum8({{.RunStatuses}}) CODEC(ZSTD(1)),
    name             String CODEC(ZSTD(1)),
    user             String CODEC(ZSTD(1)),
    feature          String CODEC(ZSTD(1)),
    workflow         String CODEC(ZSTD(1)),
    workflow_version String CODEC(ZSTD(1)),
    agent            String CODEC(ZSTD(1)),
    session          String CODEC(ZSTD(1)),
    criticality      String CODEC(ZSTD(1)),
    mode             String CODEC(ZSTD(1)),
    environment      String CODEC(ZSTD(1)),
    moved_to         String CODEC(ZSTD(1)),
    run_hash         UInt64 MATERIALIZED cityHash64(run_id) CODEC(NONE)
)
ENGINE = {{.Engine "ReplacingMergeTree" "version"}}
PARTITION BY toYYYYMM(booked_on)
ORDER BY (booked_on, tenant, run_id)
SETTINGS {{.Dedup}} = 10000, index_granularity = 1024
AS SELECT tenant, run_id, version, booked_on, started_at, ended_at, status, name, user, feature, workflow, workflow_version, agent, session, criticality, mode, environment, moved_to
FROM run_info

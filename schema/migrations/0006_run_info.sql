-- What a run is: versioned rows, the newest wins.
CREATE TABLE IF NOT EXISTS run_info {{.OnCluster}}
(
    tenant           String,
    run_id           String CODEC(ZSTD(1)),
    version          UInt64 COMMENT 'unix microseconds',
    booked_on        Date COMMENT 'UTC day on which this row was recorded',
    started_at       DateTime64(9, 'UTC'),
    ended_at         DateTime64(9, 'UTC'),
    status           Enum8({{.RunStatuses}}),
    name             String,
    user             String,
    feature          String,
    workflow         String,
    workflow_version String,
    agent            String,
    session          String,
    criticality      String,
    mode             String,
    environment      String,
    moved_to         String
)
ENGINE = {{.Engine "ReplacingMergeTree" "version"}}
PARTITION BY toYYYYMM(booked_on)
ORDER BY (tenant, run_id)
SETTINGS {{.Dedup}} = 10000

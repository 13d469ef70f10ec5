-- Signed sums per run. What a run is stands in run_info.
CREATE TABLE IF NOT EXISTS runs {{.OnCluster}}
(
    tenant          String,
    run_id          String CODEC(ZSTD(1)),
    booked_on       Date,
    lines           Int64,
    model_calls     Int64,
    tool_calls      Int64,
    retries         Int64,
    hidden_attempts Int64,
    fallbacks       Int64,
    hedges          Int64,
    repeats         Int64,
    unpriced        Int64,
    unknown         Int64,
    failures        Int64,
    tokens          Int64,
    cost            Int128,
    wasted          Int128
)
ENGINE = {{.Engine "SummingMergeTree"}}
PARTITION BY toYYYYMM(booked_on)
ORDER BY (tenant, run_id, booked_on)
SETTINGS {{.Dedup}} = 10000

-- Entries of a tenant lie in the order of their start, so that their times of booking are close to each other within a
-- granule; and a granule has the ids of some hundred runs.
ALTER TABLE journal {{.OnCluster}}
    ADD INDEX IF NOT EXISTS by_recorded_at recorded_at TYPE minmax GRANULARITY 1,
    ADD INDEX IF NOT EXISTS by_run_id run_id TYPE bloom_filter(0.01) GRANULARITY 1

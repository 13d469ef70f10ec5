-- The day that is not over has states too, so that only the runs that were booked since have to be grouped.
ALTER TABLE run_states {{.OnCluster}}
    ADD COLUMN IF NOT EXISTS through DateTime64(6, 'UTC') COMMENT 'of a day that is not over: states have all that was recorded before, and maybe more; else 1970' CODEC(ZSTD(1))

-- The day that is not over yet has states too, so that only what was booked since they were made has to be grouped. Of the few
-- runs that were booked on days before, states are read row by row: blocks are small.
ALTER TABLE run_states {{.OnCluster}}
    ADD COLUMN IF NOT EXISTS through DateTime64(6, 'UTC') COMMENT 'of a day that is not over: states have all that was recorded before, and maybe more; else 1970' CODEC(ZSTD(1)),
    MODIFY SETTING min_compress_block_size = 8192, max_compress_block_size = 65536

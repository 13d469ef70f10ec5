-- What is inserted, up to some 100,000 entries, is one file to write and to sync instead of two for each column. Merges make
-- the parts wide.
ALTER TABLE journal {{.OnCluster}} MODIFY SETTING min_bytes_for_wide_part = 100000000

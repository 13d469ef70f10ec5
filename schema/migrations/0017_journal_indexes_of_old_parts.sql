-- Done in the background: until then parts that were there before are read as a whole.
ALTER TABLE journal {{.OnCluster}} MATERIALIZE INDEX by_recorded_at, MATERIALIZE INDEX by_run_id

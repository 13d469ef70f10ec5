-- The rollup's kinds are those of the journal.
ALTER TABLE spend_15m {{.OnCluster}} MODIFY COLUMN kind Enum8({{.Kinds}})

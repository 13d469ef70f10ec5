-- A journal of before lacks the kind and the source of entries that a person posted; names are only ever added at the end.
ALTER TABLE journal {{.OnCluster}} MODIFY COLUMN kind Enum8({{.Kinds}}), MODIFY COLUMN source Enum8({{.Sources}})

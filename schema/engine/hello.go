package engine

import (
	"encoding/binary"
)

// helloQuery is what clickhouse-go asks on every new HTTP connection, decoded
// at the revision of its own constant. libchdb always writes Native at
// revision 0, so the handler answers this one text itself and says there that
// revision() is 0: the driver then reads everything else at revision 0. This
// is the only place that depends on the inside of the driver (v2.51.0); a test
// keeps the text.
const helloQuery = "SELECT displayName(), version(), revision(), timezone()"

// helloBlock encodes the answer. With protocol set, the request named a
// client_protocol_version, and the block has what such revisions add: the
// block info in front and a custom-serialization byte for each column.
func helloBlock(protocol bool, version, timezone string) []byte {
	var b []byte
	if protocol {
		// is_overflows = 0, bucket_num = -1, end of the fields.
		b = append(b, 1, 0, 2, 0xff, 0xff, 0xff, 0xff, 0)
	}
	b = binary.AppendUvarint(b, 4) // columns
	b = binary.AppendUvarint(b, 1) // rows
	column := func(name, typ string) {
		b = appendString(b, name)
		b = appendString(b, typ)
		if protocol {
			b = append(b, 0)
		}
	}
	column("displayName()", "String")
	b = appendString(b, "flyball")
	column("version()", "String")
	b = appendString(b, version)
	column("revision()", "UInt32")
	b = append(b, 0, 0, 0, 0)
	column("timezone()", "String")
	b = appendString(b, timezone)
	return b
}

// headerBlock encodes a block of revision 0 with columns and no rows: what a
// server sends for an empty answer and libchdb does not.
func headerBlock(columns []column) []byte {
	b := binary.AppendUvarint(nil, uint64(len(columns)))
	b = binary.AppendUvarint(b, 0)
	for _, c := range columns {
		b = appendString(b, c.name)
		b = appendString(b, c.typ)
	}
	return b
}

type column struct{ name, typ string }

func appendString(b []byte, s string) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

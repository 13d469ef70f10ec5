package engine

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
)

// BenchmarkInsertNative sends blocks of 50,000 rows and 41 columns, appended
// column by column, with a token each, as the writer does.
func BenchmarkInsertNative(b *testing.B) {
	for _, fsync := range []bool{false, true} {
		b.Run(fmt.Sprintf("fsync=%v", fsync), func(b *testing.B) { benchmarkInsert(b, fsync) })
	}
}

func benchmarkInsert(b *testing.B, fsync bool) {
	const rows = 50_000
	e := openEngine(b, Options{Fsync: fsync})
	names := []clickhouse.ColumnNameAndType{{Name: "ts", Type: "DateTime64(9)"}}
	ts := make([]time.Time, rows)
	low, text := make([]string, rows), make([]string, rows)
	ints, uints := make([]int64, rows), make([]uint64, rows)
	null := make([]*int64, rows)
	start := time.Date(2026, 11, 29, 10, 0, 0, 0, time.UTC)
	for i := range rows {
		ts[i] = start.Add(time.Duration(i) * time.Millisecond)
		low[i] = fmt.Sprint("value-", i%50)
		text[i] = fmt.Sprintf("%016x", uint64(i)*0x9e3779b97f4a7c15)
		ints[i], uints[i] = int64(i%5000), uint64(i)*0x9e3779b97f4a7c15
		if i%3 != 0 {
			null[i] = &ints[i]
		}
	}
	data := []any{ts}
	add := func(n int, typ string, values any) {
		for range n {
			names = append(names, clickhouse.ColumnNameAndType{Name: fmt.Sprint("c", len(names)), Type: typ})
			data = append(data, values)
		}
	}
	add(14, "LowCardinality(String)", low)
	add(6, "String", text)
	add(12, "Int64", ints)
	add(4, "UInt64", uints)
	add(4, "Nullable(Int64)", null)
	var columns, list []string
	for _, c := range names {
		columns = append(columns, c.Name+" "+c.Type)
		list = append(list, c.Name)
	}
	run(b, e.Conn(), "CREATE TABLE bench ("+strings.Join(columns, ", ")+") ENGINE=MergeTree ORDER BY (c1, ts)"+window)
	insert := "INSERT INTO bench (" + strings.Join(list, ", ") + ")"

	b.ReportAllocs()
	n := 0
	for b.Loop() {
		ctx := clickhouse.Context(b.Context(), clickhouse.WithColumnNamesAndTypes(names),
			clickhouse.WithSettings(clickhouse.Settings{
				"insert_deduplication_token":                         fmt.Sprint("token-", n),
				"deduplicate_blocks_in_dependent_materialized_views": 1,
			}))
		n++
		batch, err := e.Conn().PrepareBatch(ctx, insert)
		if err != nil {
			b.Fatal(err)
		}
		for i, d := range data {
			if err := batch.Column(i).Append(d); err != nil {
				b.Fatal(err)
			}
		}
		if err := batch.Send(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(rows*n)/b.Elapsed().Seconds(), "rows/s")
	b.ReportMetric(residentBytes(e.super.pid.Load())/(1<<20), "child-MiB")
}

// BenchmarkSelectOne is the round trip of the smallest read.
func BenchmarkSelectOne(b *testing.B) {
	e := sharedEngine(b)
	b.ReportAllocs()
	for b.Loop() {
		if got := one[uint8](b, e.Reader(), "SELECT 1"); got != 1 {
			b.Fatal(got)
		}
	}
}

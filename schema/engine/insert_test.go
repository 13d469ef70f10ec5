package engine

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
	"github.com/shopspring/decimal"
)

// code is the ClickHouse code of an error, 0 if it has none.
func code(err error) int32 {
	if x := new(clickhouse.Exception); errors.As(err, &x) {
		return x.Code
	}
	return 0
}

// TestTypes writes and reads the column types the schema uses.
func TestTypes(t *testing.T) {
	e := sharedEngine(t)
	db := database(t, e)
	f := func(typ string, values ...any) {
		t.Helper()
		table := fmt.Sprintf("%s.t%d", db, time.Now().UnixNano())
		run(t, e.Conn(), "CREATE TABLE "+table+" (i UInt32, v "+typ+") ENGINE=MergeTree ORDER BY i")
		b, err := e.Conn().PrepareBatch(t.Context(), "INSERT INTO "+table+" (i, v)")
		if err != nil {
			t.Fatalf("%s: prepare: %v", typ, err)
		}
		for i, v := range values {
			if err := b.Append(uint32(i), v); err != nil {
				t.Fatalf("%s: append %v: %v", typ, v, err)
			}
		}
		if err := b.Send(); err != nil {
			t.Fatalf("%s: send: %v", typ, err)
		}
		rows, err := e.Reader().Query(t.Context(), "SELECT v FROM "+table+" ORDER BY i")
		if err != nil {
			t.Fatalf("%s: query: %v", typ, err)
		}
		defer rows.Close()
		n := 0
		for ; rows.Next(); n++ {
			got := reflect.New(rows.ColumnTypes()[0].ScanType())
			if err := rows.Scan(got.Interface()); err != nil {
				t.Fatalf("%s: scan: %v", typ, err)
			}
			if g, w := fmt.Sprint(indirect(got)), fmt.Sprint(indirect(reflect.ValueOf(values[n]))); g != w {
				t.Errorf("%s: got %s, want %s", typ, g, w)
			}
		}
		if err := rows.Err(); err != nil || n != len(values) {
			t.Fatalf("%s: %d rows of %d, %v", typ, n, len(values), err)
		}
	}
	minus := int64(-5)
	f("String", "", "a\x00b'\"\\\n", strings.Repeat("x", 1<<20))
	f("LowCardinality(String)", "", "openai", "openai", "x")
	f("FixedString(16)", strings.Repeat("a", 16), "0123456789\x00\x01\x02\x03\x04\x05")
	f("Int64", int64(-1<<63), int64(0), int64(1<<63-1))
	f("UInt64", uint64(0), uint64(1<<64-1))
	f("UInt8", uint8(255))
	f("Nullable(Int64)", &minus, (*int64)(nil), &minus)
	f("DateTime64(9)", time.Date(2026, 11, 29, 10, 0, 0, 123456789, time.UTC))
	f("Enum8('a' = 1, 'b' = -2)", "a", "b", "a")
	f("Array(String)", []string{}, []string{"a", "", "ü"})
	f("Array(LowCardinality(String))", []string{"a", "b"})
	f("Decimal(38, 12)", decimal.RequireFromString("-12345678901234567890.123456789012"))
	f("Decimal(18, 12)", decimal.RequireFromString("0.000000000001"))
	f("Int128", decimal.RequireFromString("170141183460469231731687303715884105727").BigInt())
	f("Map(LowCardinality(String), String)", map[string]string{"a": "b"})
	f("Date", time.Date(2026, 11, 29, 0, 0, 0, 0, time.UTC))
}

// indirect follows pointers, so that two pointers to equal values print alike.
func indirect(v reflect.Value) any {
	for v.Kind() == reflect.Pointer {
		if s, ok := v.Interface().(fmt.Stringer); ok && !v.IsNil() {
			return s.String()
		}
		if v.IsNil() {
			return nil
		}
		v = v.Elem()
	}
	return v.Interface()
}

// insertNumbers sends a batch of rows k = from..to-1 with a token.
func insertNumbers(ctx context.Context, c driver.Conn, table, token string, from, to uint64) error {
	ctx = clickhouse.Context(ctx,
		clickhouse.WithSettings(clickhouse.Settings{
			"insert_deduplication_token":                         token,
			"deduplicate_blocks_in_dependent_materialized_views": 1,
		}),
		clickhouse.WithColumnNamesAndTypes([]clickhouse.ColumnNameAndType{{Name: "k", Type: "UInt64"}}))
	b, err := c.PrepareBatch(ctx, "INSERT INTO "+table+" (k)")
	if err != nil {
		return err
	}
	for k := from; k < to; k++ {
		if err := b.Append(k); err != nil {
			return err
		}
	}
	return b.Send()
}

const window = " SETTINGS non_replicated_deduplication_window=1000"

// TestDeduplication: a repeated token changes neither the table nor what its
// view wrote; another token does.
func TestDeduplication(t *testing.T) {
	e := sharedEngine(t)
	db := database(t, e)
	run(t, e.Conn(), "CREATE TABLE "+db+".base (k UInt64) ENGINE=MergeTree ORDER BY k"+window)
	run(t, e.Conn(), "CREATE TABLE "+db+".sums (b UInt64, n Int64) ENGINE=SummingMergeTree ORDER BY b"+window)
	run(t, e.Conn(), "CREATE MATERIALIZED VIEW "+db+".mv TO "+db+".sums AS SELECT k % 10 AS b, toInt64(count()) AS n FROM "+db+".base GROUP BY b")
	f := func(token string, want uint64) {
		t.Helper()
		if err := insertNumbers(t.Context(), e.Conn(), db+".base", token, 0, 300); err != nil {
			t.Fatal(err)
		}
		if got := one[uint64](t, e.Reader(), "SELECT count() FROM "+db+".base"); got != want {
			t.Errorf("token %s: %d rows, want %d", token, got, want)
		}
		if got := one[int64](t, e.Reader(), "SELECT sum(n) FROM "+db+".sums"); got != int64(want) {
			t.Errorf("token %s: sum %d, want %d", token, got, want)
		}
	}
	f("a", 300)
	f("a", 300)
	f("b", 600)
	f("a", 600)
	f("b", 600)
}

// TestSettingsDoNotLeak: what one statement sets is gone in the next, and goes
// back to what the session was opened with, not to the engine's default.
func TestSettingsDoNotLeak(t *testing.T) {
	e := sharedEngine(t)
	f := func(c driver.Conn, name, value, base string) {
		t.Helper()
		q := "SELECT toString(getSetting('" + name + "'))"
		ctx := clickhouse.Context(t.Context(), clickhouse.WithSettings(clickhouse.Settings{name: value}))
		var got string
		if err := c.QueryRow(ctx, q).Scan(&got); err != nil || got != value {
			t.Errorf("%s: got %q, %v", name, got, err)
		}
		for range 8 { // every session of the pool
			if got := one[string](t, c, q); got != base {
				t.Errorf("%s after: got %q, want %q", name, got, base)
			}
		}
	}
	for range 4 {
		f(e.Conn(), "async_insert", "true", "false")
		f(e.Conn(), "max_insert_threads", "3", "0")
		f(e.Reader(), "max_execution_time", "7", "120")
		f(e.Reader(), "max_block_size", "77", one[string](t, e.Reader(), "SELECT toString(getSetting('max_block_size'))"))
	}
	if err := e.Conn().Exec(t.Context(), "SET max_insert_threads=5"); err != nil {
		t.Fatal(err)
	}
	for range 4 {
		if got := one[string](t, e.Conn(), "SELECT toString(getSetting('max_insert_threads'))"); got != "0" {
			t.Fatal("SET outlived its statement: ", got)
		}
	}
}

// TestEmptyBody: clickhouse-go sends an empty body when it cannot encode a
// block; it must not look like success.
func TestEmptyBody(t *testing.T) {
	e := sharedEngine(t)
	db := database(t, e)
	run(t, e.Conn(), "CREATE TABLE "+db+".x (k UInt64) ENGINE=MergeTree ORDER BY k")
	r, err := post(e, "/?query="+queryEscape("INSERT INTO "+db+".x (k) FORMAT Native"), "")
	if err != nil {
		t.Fatal(err)
	}
	if r.status == http.StatusOK || !strings.Contains(r.body, "Code: 108.") {
		t.Fatal(r)
	}
}

// TestTruncatedBody: half a block is never written.
func TestTruncatedBody(t *testing.T) {
	e := sharedEngine(t)
	db := database(t, e)
	run(t, e.Conn(), "CREATE TABLE "+db+".x (k UInt64) ENGINE=MergeTree ORDER BY k")
	block := "\x01\x02\x01k\x06UInt64" + strings.Repeat("\x01\x00\x00\x00\x00\x00\x00\x00", 2)
	f := func(body string, want uint64) {
		t.Helper()
		r, err := post(e, "/?query="+queryEscape("INSERT INTO "+db+".x (k) FORMAT Native"), body)
		if err != nil {
			t.Fatal(err)
		}
		if ok := r.status == http.StatusOK; ok != (want > 0) {
			t.Errorf("%d bytes of %d: %v", len(body), len(block), r)
		}
		if got := one[uint64](t, e.Reader(), "SELECT count() FROM "+db+".x"); got != want {
			t.Errorf("%d bytes of %d: %d rows, want %d", len(body), len(block), got, want)
		}
	}
	for _, n := range []int{1, 5, len(block) - 9, len(block) - 8, len(block) - 1} {
		f(block[:n], 0)
	}
	f(block, 2)
	run(t, e.Conn(), "TRUNCATE TABLE "+db+".x")
	// Two blocks, the second one cut.
	f(block+block[:len(block)-3], 0)
}

// TestCompression writes and reads with every encoding clickhouse-go has.
func TestCompression(t *testing.T) {
	e := sharedEngine(t)
	db := database(t, e)
	run(t, e.Conn(), "CREATE TABLE "+db+".x (k UInt64) ENGINE=MergeTree ORDER BY k")
	want := uint64(0)
	for _, m := range []clickhouse.CompressionMethod{
		clickhouse.CompressionNone, clickhouse.CompressionLZ4, clickhouse.CompressionZSTD,
		clickhouse.CompressionGZIP, clickhouse.CompressionDeflate,
	} {
		o := e.embeddedOptions(pathFull, 1)
		o.Compression = &clickhouse.Compression{Method: m, Level: 1}
		o.Settings = clickhouse.Settings{"enable_http_compression": 1}
		c, err := clickhouse.Open(o)
		if err != nil {
			t.Fatal(err)
		}
		if err := insertNumbers(t.Context(), c, db+".x", m.String(), want, want+100_000); err != nil {
			t.Fatalf("%s: %v", m, err)
		}
		want += 100_000
		rows, err := c.Query(t.Context(), "SELECT k FROM "+db+".x")
		if err != nil {
			t.Fatalf("%s: %v", m, err)
		}
		n := uint64(0)
		for rows.Next() {
			n++
		}
		if err := rows.Err(); err != nil || n != want {
			t.Errorf("%s: read %d rows of %d, %v", m, n, want, err)
		}
		if err := c.Exec(t.Context(), "SELECT nosuch"); code(err) != 47 {
			t.Errorf("%s: error %v", m, err)
		}
		c.Close()
	}
}

func TestParameters(t *testing.T) {
	e := sharedEngine(t)
	tricky := "a\tb\nc'd\\e\"f{g}?"
	var s string
	var n int32
	if err := e.Reader().QueryRow(t.Context(), "SELECT {s:String}, {n:Int32}",
		clickhouse.Named("s", tricky), clickhouse.Named("n", 7)).Scan(&s, &n); err != nil || s != tricky || n != 7 {
		t.Fatalf("%q %d %v", s, n, err)
	}
	if got := one[string](t, e.Reader(), "SELECT ?", tricky); got != tricky {
		t.Fatalf("%q", got)
	}
}

// TestErrors: a failure is an *Exception with its code, before and within the
// answer, and the connection works on.
func TestErrors(t *testing.T) {
	e := sharedEngine(t)
	f := func(c driver.Conn, sql string, want int32) {
		t.Helper()
		rows, err := c.Query(t.Context(), sql)
		n := 0
		if err == nil {
			for rows.Next() {
				n++
			}
			err = rows.Err()
			rows.Close()
		}
		if code(err) != want {
			t.Errorf("%s: %d rows, then %v, want code %d", sql, n, err, want)
		}
		if err := c.Exec(t.Context(), sql); code(err) != want {
			t.Errorf("exec %s: %v, want code %d", sql, err, want)
		}
		if got := one[uint8](t, c, "SELECT 1"); got != 1 {
			t.Error(got)
		}
	}
	for _, c := range []driver.Conn{e.Conn(), e.Reader()} {
		f(c, "SELEC 1", 62)
		f(c, "SELECT * FROM nosuch", 60)
		f(c, "SELECT * FROM nosuch.x", 81)
		f(c, "SELECT nosuch", 47)
		f(c, "SELECT throwIf(number = 3) FROM numbers(10)", 395)
	}
	// In the middle: rows come first.
	rows, err := e.Reader().Query(t.Context(), "SELECT throwIf(number = 2900000), number FROM numbers(3000000) SETTINGS max_threads=1")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for rows.Next() {
		n++
	}
	if err := rows.Err(); code(err) != 395 || n == 0 {
		t.Errorf("%d rows, then %v", n, err)
	}
}

// TestEmptyAnswer: an answer without rows still names its columns.
func TestEmptyAnswer(t *testing.T) {
	e := sharedEngine(t)
	f := func(sql string) {
		t.Helper()
		rows, err := e.Reader().Query(t.Context(), sql)
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		if got := fmt.Sprint(rows.Columns()); got != "[n s]" || rows.Next() || rows.Err() != nil {
			t.Errorf("%s: columns %s, %v", sql, got, rows.Err())
		}
	}
	f("SELECT number AS n, toString(n) AS s FROM numbers(10) WHERE n > 20")
	f("WITH 1 AS x SELECT number AS n, toString(n) AS s FROM numbers(10) WHERE n > 20 -- the end;")
	f("(SELECT number AS n, toString(n) AS s FROM numbers(10) WHERE n > 20);")
}

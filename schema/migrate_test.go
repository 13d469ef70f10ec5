package schema_test

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/flyball/flyball/schema"
	"github.com/flyball/flyball/schema/schematest"
)

//go:generate go test . -run TestSchemaMatchesGolden -count=1 -update

var update = flag.Bool("update", false, "write testdata instead of comparing with it")

func TestMain(m *testing.M) { schematest.Main(m) }

// created is what the engine says the objects are, in the order of their names.
func created(t *testing.T, conn driver.Conn) string {
	t.Helper()
	var out strings.Builder
	// Where a table stands is the engine's affair.
	uuid := regexp.MustCompile(` UUID '[^']*'`)
	each(t, conn, "SELECT database, name, create_table_query FROM system.tables WHERE database = currentDatabase() ORDER BY name", func(rows driver.Rows) error {
		var database, name, sql string
		if err := rows.Scan(&database, &name, &sql); err != nil {
			return err
		}
		if err := conn.QueryRow(t.Context(), "SELECT formatQuery({sql:String})", clickhouse.Named("sql", sql)).Scan(&sql); err != nil {
			return err
		}
		out.WriteString("-- " + name + "\n" + strings.ReplaceAll(uuid.ReplaceAllString(sql, ""), database+".", "") + ";\n\n")
		return nil
	})
	return out.String()
}

func each(t testing.TB, conn driver.Conn, sql string, f func(driver.Rows) error, args ...any) {
	t.Helper()
	rows, err := conn.Query(t.Context(), sql, args...)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := f(rows); err != nil {
			t.Fatal(err)
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
}

func exec(t testing.TB, conn driver.Conn, sql string) {
	t.Helper()
	if err := conn.Exec(t.Context(), sql); err != nil {
		t.Fatal(err)
	}
}

func TestSchemaMatchesGolden(t *testing.T) {
	const golden = "testdata/schema.golden.sql"
	got := created(t, schematest.Open(t).Conn())
	if *update {
		if err := os.MkdirAll("testdata", 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(golden, []byte(got), 0o666); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got == string(want) {
		return
	}
	is, was := strings.Split(got, "\n"), strings.Split(string(want), "\n")
	i := 0
	for i < min(len(is), len(was))-1 && is[i] == was[i] {
		i++
	}
	t.Errorf("the schema is not that of schema/%s from line %d on; if it is meant, run `go generate ./schema` and read the diff\n got %s\nwant %s", golden, i+1, is[i], was[i])
}

func TestMigrateOnlyGoesForward(t *testing.T) {
	conn := schematest.Open(t).Conn()
	records := func() (out string) {
		each(t, conn, "SELECT concat(name, ' ', checksum, ' ', toString(applied_at)) FROM schema_migrations ORDER BY name", func(rows driver.Rows) error {
			var s string
			err := rows.Scan(&s)
			out += s + "\n"
			return err
		})
		return out
	}
	before, objects := records(), created(t, conn)
	all, err := schema.Migrations("", schema.Confirmed{})
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(before, "\n"); n != len(all) {
		t.Fatalf("recorded: got %d migrations, want %d", n, len(all))
	}
	again := func() error { return schema.Migrate(t.Context(), conn, "", schema.Confirmed{}) }
	if err := again(); err != nil {
		t.Fatal(err)
	}
	if records() != before || created(t, conn) != objects {
		t.Error("a second migration changed something")
	}

	// A crash between an object and its record.
	last := all[len(all)-1]
	exec(t, conn, "ALTER TABLE schema_migrations DELETE WHERE name = '"+last.Name+"' SETTINGS mutations_sync = 1")
	if err := again(); err != nil {
		t.Errorf("migrate after a crash: %v", err)
	}
	if strings.Count(records(), "\n") != len(all) || created(t, conn) != objects {
		t.Errorf("after a crash: got %s", records())
	}

	refused := func(sql, undo string, words ...string) {
		t.Helper()
		exec(t, conn, sql)
		err := again()
		for _, w := range words {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("after %s: got %v, want an error with %q", sql, err, w)
			}
		}
		exec(t, conn, undo)
		if err := again(); err != nil {
			t.Errorf("after %s: %v", undo, err)
		}
	}
	const sync = " SETTINGS mutations_sync = 1"
	refused("ALTER TABLE schema_migrations UPDATE checksum = 'edited' WHERE name = '"+last.Name+"'"+sync, "ALTER TABLE schema_migrations UPDATE checksum = '"+last.Checksum+"' WHERE name = '"+last.Name+"'"+sync, last.Name, "never edited", "add a new one")
	refused("INSERT INTO schema_migrations (name, checksum) VALUES ('9999_future.sql', 'x')", "ALTER TABLE schema_migrations DELETE WHERE name = '9999_future.sql'"+sync, "9999_future.sql", "newer binary")
}

// openBefore is a database from before the first migration of a name and all that follow.
func openBefore(t *testing.T, name string, sql func(schema.Migration) string) driver.Conn {
	t.Helper()
	conn := schematest.Open(t).Conn()
	all, err := schema.Migrations("", schema.Confirmed{})
	if err != nil {
		t.Fatal(err)
	}
	var tables []string
	each(t, conn, "SELECT name FROM system.tables WHERE database = currentDatabase() ORDER BY engine != 'MaterializedView'", func(rows driver.Rows) error {
		var name string
		err := rows.Scan(&name)
		tables = append(tables, name)
		return err
	})
	for _, name := range tables {
		if name != "schema_migrations" {
			exec(t, conn, "DROP TABLE "+name+" SYNC")
		}
	}
	exec(t, conn, "TRUNCATE TABLE schema_migrations")
	for _, m := range all {
		if m.Name < name {
			exec(t, conn, sql(m))
			exec(t, conn, "INSERT INTO schema_migrations (name, checksum) VALUES ('"+m.Name+"', '"+m.Checksum+"')")
		}
	}
	return conn
}

// A migration makes runs anew between an insert of which nobody knows whether it
// succeeded, and its repetition: each entry counts once, whatever the database had of it.
func TestMigrateBetweenInserts(t *testing.T) {
	const day = int64(20_000 * 86400e6)
	f := func(name string, stored ...uint64) {
		t.Run(name, func(t *testing.T) {
			conn := openBefore(t, "0019", func(m schema.Migration) string { return m.SQL })
			send := func(chunk uint64) {
				t.Helper()
				c := schema.NewColumns()
				for i := range 3 {
					e := schema.Entry{Sign: 1, Version: 1, RecordedAt: day + int64(chunk)*43_200e6}
					e.Tenant, e.Span[7], e.Trace[15], e.Start = "t", byte(i+1), byte(chunk), e.RecordedAt*1000
					e.Posting.Identity[schema.Run], e.Posting.ModelCalls, e.Posting.Cost, e.Posting.Status = "run", 1, 7, schema.CostPriced
					c.Append(&e, chunk)
				}
				if err := c.Send(t.Context(), conn, fmt.Sprint("token-", chunk)); err != nil {
					t.Fatal(err)
				}
			}
			for _, chunk := range stored {
				send(chunk)
			}
			// Chunk 4 begins at noon of the day that chunk 3 ended on.
			if err := schema.Migrate(t.Context(), conn, "", schema.Confirmed{Chunk: 3, Since: time.UnixMicro(day + 4*43_200e6 - 3_600e6)}); err != nil {
				t.Fatal(err)
			}
			for chunk := range uint64(2) {
				send(4 + chunk)
			}
			var calls, lines int64
			var cost string
			if err := conn.QueryRow(t.Context(), "SELECT sum(model_calls), sum(lines), toString(sum(cost)) FROM runs").Scan(&calls, &lines, &cost); err != nil {
				t.Fatal(err)
			}
			if calls != 15 || lines != 15 || cost != "105" {
				t.Errorf("runs have %d calls, %d lines, %s; want 15 each, 105", calls, lines, cost)
			}
		})
	}
	f("it came", 1, 2, 3, 4)
	f("it did not come", 1, 2, 3)
	f("two came", 1, 2, 3, 4, 5)
}

// A database from before adjustments takes them, and sums them up.
func TestMigrateBringsAdjustments(t *testing.T) {
	conn := openBefore(t, "0012", func(m schema.Migration) string {
		old := regexp.MustCompile(`, 'adjustment' = \d+`).ReplaceAllString(m.SQL, "")
		if m.Name == "0001_journal.sql" && old == m.SQL {
			t.Fatal("the journal has no adjustments")
		}
		return old
	})
	if err := schema.Migrate(t.Context(), conn, "", schema.Confirmed{}); err != nil {
		t.Fatal(err)
	}
	e := schema.Entry{Sign: 1, Version: 1, RecordedAt: 1}
	e.Tenant, e.Source, e.Posting.Kind, e.Posting.Status, e.Posting.Cost = "t", schema.SourceAdjustment, schema.KindAdjustment, schema.CostPriced, -5
	c := schema.NewColumns()
	c.Append(&e, 1)
	if err := c.Send(t.Context(), conn, "one"); err != nil {
		t.Fatal(err)
	}
	var kind, source, cost string
	if err := conn.QueryRow(t.Context(), "SELECT toString(s.kind), toString(j.source), toString(s.cost) FROM spend_15m AS s, journal AS j").Scan(&kind, &source, &cost); err != nil {
		t.Fatal(err)
	}
	if kind != "adjustment" || source != "adjustment" || cost != "-5" {
		t.Errorf("got %s %s %s", kind, source, cost)
	}
}

// The cluster form is parsed by the real engine, not run.
func TestClusterFormParses(t *testing.T) {
	conn := schematest.Open(t).Conn()
	single, err := schema.Migrations("", schema.Confirmed{})
	if err != nil {
		t.Fatal(err)
	}
	clustered, err := schema.Migrations(`prod's \main`, schema.Confirmed{})
	if err != nil {
		t.Fatal(err)
	}
	for i, m := range clustered {
		if m.Checksum != single[i].Checksum || m.Name != single[i].Name {
			t.Errorf("%s: the forms do not share their name and checksum", m.Name)
		}
		each(t, conn, "EXPLAIN AST "+m.SQL, func(driver.Rows) error { return nil })
		var text string
		if err := conn.QueryRow(t.Context(), "SELECT formatQuery({sql:String})", clickhouse.Named("sql", m.SQL)).Scan(&text); err != nil {
			t.Fatalf("%s: %v", m.Name, err)
		}
		if !strings.Contains(text, `ON CLUSTER `) || !strings.Contains(text, `prod`) {
			t.Errorf("%s runs on one server only:\n%s", m.Name, text)
		}
		if strings.Contains(text, "ENGINE") {
			if !regexp.MustCompile(`ENGINE = Replicated\w*MergeTree\('/clickhouse/tables/\{uuid\}/\{shard\}', '\{replica\}'`).MatchString(text) || !strings.Contains(text, "\nSETTINGS replicated_deduplication_window = ") || strings.Contains(text, "non_replicated") {
				t.Errorf("%s is not replicated:\n%s", m.Name, text)
			}
		}
		if strings.Contains(single[i].SQL, "CLUSTER") || strings.Contains(single[i].SQL, "Replicated") {
			t.Errorf("%s: the form for one server:\n%s", m.Name, single[i].SQL)
		}
	}
}

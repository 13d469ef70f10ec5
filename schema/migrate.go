package schema

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
	"text/template"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

// Migration is one object of the schema, rendered for a single server or a cluster.
type Migration struct {
	Name     string // file name
	SQL      string
	Checksum string // of the template, so that both forms share it
}

// RunStatusNames are the states of a run in run_info.
var RunStatusNames = []string{"unknown", "succeeded", "failed", "stopped", "partial"}

// Confirmed is what is certain of the rows that a database has. Of chunks behind Chunk an
// insert may have been cut off between the journal and its rollups; it is repeated under its
// token, by which each table knows whether it has it. A table that a migration makes anew
// knows no token, so it is made without those chunks.
type Confirmed struct {
	Chunk uint64
	Since time.Time // no entry of a later chunk was recorded before it; zero where there is no later chunk
}

// Migrations renders every migration in order. With a cluster name the engines
// are the replicated ones and every statement runs ON CLUSTER.
func Migrations(cluster string, confirmed Confirmed) ([]Migration, error) {
	names, err := fs.Glob(migrationFiles, "migrations/*.sql")
	if err != nil {
		return nil, fmt.Errorf("list migrations: %w", err)
	}
	vars := templateVars{cluster, confirmed}
	var out []Migration
	for _, name := range names {
		text, err := migrationFiles.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("read migration: %w", err)
		}
		t, err := template.New(name).Option("missingkey=error").Parse(string(text))
		if err != nil {
			return nil, fmt.Errorf("parse migration: %w", err)
		}
		var sql bytes.Buffer
		if err := t.Execute(&sql, vars); err != nil {
			return nil, fmt.Errorf("render migration: %w", err)
		}
		sum := sha256.Sum256(text)
		out = append(out, Migration{Name: strings.TrimPrefix(name, "migrations/"), SQL: sql.String(), Checksum: hex.EncodeToString(sum[:])})
	}
	return out, nil
}

// Migrate brings the database of conn to the newest schema. It only goes
// forward: a file that was applied and has changed since is an error, and so is
// a database that knows a migration this binary does not. Nothing may be inserted
// meanwhile.
func Migrate(ctx context.Context, conn driver.Conn, cluster string, confirmed Confirmed) error {
	vars := templateVars{cluster, confirmed}
	create := "CREATE TABLE IF NOT EXISTS schema_migrations " + vars.OnCluster() + " (name String, checksum String, applied_at DateTime64(3, 'UTC') DEFAULT now64(3)) ENGINE = " + vars.Engine("MergeTree") + " ORDER BY name"
	if err := conn.Exec(ctx, create); err != nil {
		return fmt.Errorf("create schema_migrations: %w", err)
	}
	rows, err := conn.Query(ctx, "SELECT name, any(checksum) FROM schema_migrations GROUP BY name")
	if err != nil {
		return fmt.Errorf("read schema_migrations: %w", err)
	}
	defer rows.Close()
	applied := map[string]string{}
	for rows.Next() {
		var name, sum string
		if err := rows.Scan(&name, &sum); err != nil {
			return fmt.Errorf("read schema_migrations: %w", err)
		}
		applied[name] = sum
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("read schema_migrations: %w", err)
	}
	all, err := Migrations(cluster, confirmed)
	if err != nil {
		return err
	}
	for _, m := range all {
		sum, done := applied[m.Name]
		delete(applied, m.Name)
		if done && sum == m.Checksum {
			continue
		}
		if done {
			return fmt.Errorf("migrate %s: the applied file was another one (checksum %.8s, now %.8s); migrations are never edited, add a new one", m.Name, sum, m.Checksum)
		}
		if err := conn.Exec(ctx, m.SQL); err != nil {
			return fmt.Errorf("migrate %s: %w", m.Name, err)
		}
		if err := conn.Exec(ctx, "INSERT INTO schema_migrations (name, checksum) SELECT "+quote(m.Name)+", "+quote(m.Checksum)); err != nil {
			return fmt.Errorf("record migration %s: %w", m.Name, err)
		}
	}
	for name := range applied {
		return fmt.Errorf("migrate: the database knows %s, this binary does not; run the newer binary that made it", name)
	}
	return nil
}

// Retain sets for how many months rows are kept, counted from when they were
// recorded: the journal and samples by row, the rollups by the day of booking, and as
// long as them what enforcement did. Whole parts
// expire, so nothing is rewritten. A repetition changes nothing.
func Retain(ctx context.Context, conn driver.Conn, cluster string, journal, rollups int) error {
	vars := templateVars{cluster: cluster}
	for _, t := range []struct {
		table, column string
		months        int
	}{{"journal", "toDateTime(recorded_at)", journal}, {"spend_15m", "booked_on", rollups}, {"runs", "booked_on", rollups}, {"run_info", "booked_on", rollups}, {"run_states", "booked_on", rollups}, {"limiter_samples", "toDateTime(recorded_at)", journal}, {"enforcement", "toDateTime(at)", rollups}} {
		ttl := fmt.Sprintf("%s + toIntervalMonth(%d)", t.column, t.months)
		var create string
		if err := conn.QueryRow(ctx, "SELECT create_table_query FROM system.tables WHERE database = currentDatabase() AND name = ?", t.table).Scan(&create); err != nil {
			return fmt.Errorf("read retention of %s: %w", t.table, err)
		}
		if strings.Contains(create, "TTL "+ttl) {
			continue
		}
		for _, alter := range []string{"MODIFY SETTING ttl_only_drop_parts = 1", "MODIFY TTL " + ttl + " SETTINGS materialize_ttl_after_modify = 0"} {
			if err := conn.Exec(ctx, "ALTER TABLE "+t.table+" "+vars.OnCluster()+" "+alter); err != nil {
				return fmt.Errorf("set retention of %s: %w", t.table, err)
			}
		}
	}
	return nil
}

type templateVars struct {
	cluster   string
	confirmed Confirmed
}

// Unsure is whether there are chunks that the database may have in part.
func (v templateVars) Unsure() bool { return !v.confirmed.Since.IsZero() }

// Day is the first UTC day that may have entries of such a chunk, Chunk the last one before those.
func (v templateVars) Day() string {
	return "toDate(" + quote(v.confirmed.Since.UTC().Format(time.DateOnly)) + ")"
}

func (v templateVars) Chunk() uint64 { return v.confirmed.Chunk }

// OnCluster is the clause for DDL statements, or nothing.
func (v templateVars) OnCluster() string {
	if v.cluster == "" {
		return ""
	}
	return "ON CLUSTER " + quote(v.cluster)
}

// Engine is the engine of that family with its parameters.
func (v templateVars) Engine(family string, params ...string) string {
	if v.cluster != "" {
		params = append([]string{"'/clickhouse/tables/{uuid}/{shard}'", "'{replica}'"}, params...)
		family = "Replicated" + family
	}
	return family + "(" + strings.Join(params, ", ") + ")"
}

// Dedup is the setting that makes an insert with a known token a no-op.
func (v templateVars) Dedup() string {
	if v.cluster != "" {
		return "replicated_deduplication_window"
	}
	return "non_replicated_deduplication_window"
}

func (templateVars) Kinds() string         { return enum(KindNames) }
func (templateVars) Usages() string        { return enum(UsageNames) }
func (templateVars) CostStatuses() string  { return enum(CostStatusNames) }
func (templateVars) Failures() string      { return enum(FailureNames) }
func (templateVars) Layers() string        { return enum(LayerNames) }
func (templateVars) Effects() string       { return enum(EffectNames) }
func (templateVars) Sources() string       { return enum(SourceNames) }
func (templateVars) RunStatuses() string   { return enum(RunStatusNames) }
func (templateVars) Temporalities() string { return enum(TemporalityNames) }

// Bit is the position of a flag.
func (templateVars) Bit(flag string) (int, error) {
	for i, n := range FlagNames {
		if n == flag {
			return i, nil
		}
	}
	return 0, fmt.Errorf("no flag is named %q", flag)
}

func enum(names []string) string {
	var b strings.Builder
	for i, n := range names {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(quote(n) + " = " + strconv.Itoa(i))
	}
	return b.String()
}

func quote(s string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(s) + "'"
}

package schema

import (
	"context"
	_ "embed"
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"text/template"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
)

// ChangedRunsSQL are templates of SQL: changed_runs, which says of itself what it takes, and
// root, the least version of what a root said. What is asked about the runs that run_states
// does not have yet is what makes it.
//
//go:embed run_states.sql
var ChangedRunsSQL string

var changedRuns = template.Must(template.New("").Option("missingkey=error").Parse(ChangedRunsSQL))

const (
	foldScratch = "fold_run_states"
	foldRuns    = 200_000 // of about how many runs one statement keeps sums in memory
)

// FoldRuns adds one day to run_states: the first one behind those that it has on which
// anything was booked, if that is before until. It reports whether there was one. Nothing
// may be booked before until any more, and no user may be forgotten meanwhile. After an
// error, or a crash, the same call makes the day anew.
func FoldRuns(ctx context.Context, conn driver.Conn, until time.Time) (day time.Time, folded bool, err error) {
	ctx = clickhouse.Context(ctx, clickhouse.WithSettings(clickhouse.Settings{"max_threads": 1, "max_execution_time": 600, "max_bytes_before_external_group_by": 300_000_000}))
	var booked, runs uint64
	const next = `SELECT toUInt64(count()), toUnixTimestamp(toDateTime(min(booked_on), 'UTC')) FROM (
	SELECT booked_on FROM run_info WHERE booked_on > (SELECT max(booked_on) FROM run_states) AND booked_on < {until:Date} ORDER BY booked_on LIMIT 1
	UNION ALL SELECT booked_on FROM runs WHERE booked_on > (SELECT max(booked_on) FROM run_states) AND booked_on < {until:Date} ORDER BY booked_on LIMIT 1)`
	var at uint32
	if err := conn.QueryRow(ctx, next, clickhouse.Named("until", until.UTC().Format(time.DateOnly))).Scan(&booked, &at); err != nil {
		return day, false, fmt.Errorf("find the next day of runs: %w", err)
	}
	if booked == 0 {
		return day, false, nil
	}
	day = time.Unix(int64(at), 0).UTC()
	date := "toDate(" + quote(day.Format(time.DateOnly)) + ")"
	fail := func(err error) (time.Time, bool, error) {
		return day, false, fmt.Errorf("fold the runs of %s: %w", day.Format(time.DateOnly), err)
	}
	if err := conn.QueryRow(ctx, "SELECT toUInt64(count()) FROM run_info WHERE booked_on = "+date).Scan(&runs); err != nil {
		return fail(err)
	}
	for _, sql := range []string{"DROP TABLE IF EXISTS " + foldScratch + " SYNC", "CREATE TABLE " + foldScratch + " AS run_states"} {
		if err := conn.Exec(ctx, sql); err != nil {
			return fail(err)
		}
	}
	parts := runs/foldRuns + 1
	dims := strings.Fields("user feature workflow workflow_version agent environment mode criticality")
	const sums = "model_calls, tool_calls, retries, fallbacks, hedges, repeats, unpriced, unknown, cost, wasted"
	for part := range parts {
		vars := map[string]any{"Tenants": "1", "Info": dims, "Folded": "(" + date + " - 1)", "Until": " AND booked_on <= " + date, "Part": "", "Within": ""}
		if parts > 1 {
			vars["Part"] = " AND run_hash % " + strconv.FormatUint(parts, 10) + " = " + strconv.FormatUint(part, 10)
		}
		var sql strings.Builder
		sql.WriteString("INSERT INTO " + foldScratch + " (tenant, booked_on, run_hash, run_check, sign, rooted, started_at, " + strings.Join(dims, ", ") + ", " + sums + ") SELECT newest_tenant, " + date + ", newest_run_hash, newest_run_check, sign, newest_rooted, newest_started_at, newest_" + strings.Join(dims, ", newest_") + ", " + sums + " FROM (")
		if err := changedRuns.ExecuteTemplate(&sql, "changed_runs", vars); err != nil {
			return fail(err)
		}
		if err := conn.Exec(ctx, sql.String()+")"); err != nil {
			return fail(err)
		}
	}
	// What was and what is differ by what was booked.
	var states, rows [4]*big.Int
	total := func(table, where, sign, retries string, into *[4]*big.Int) error {
		for i := range into {
			into[i] = new(big.Int)
		}
		one := func(column string) string { return "sum(toInt128(" + column + ")" + sign + ")" }
		return conn.QueryRow(ctx, "SELECT "+one("model_calls + tool_calls + fallbacks + hedges + repeats + unpriced + unknown")+", "+one(retries)+", "+one("cost")+", "+one("wasted")+" FROM "+table+where).Scan(into[0], into[1], into[2], into[3])
	}
	if err := total(foldScratch, "", " * sign", "retries", &states); err != nil {
		return fail(err)
	}
	if err := total("runs", " WHERE booked_on = "+date, "", "retries + hidden_attempts", &rows); err != nil {
		return fail(err)
	}
	for i := range rows {
		if states[i].Cmp(rows[i]) != 0 {
			return fail(fmt.Errorf("its states sum to %v and its rows to %v", states, rows))
		}
	}
	for _, sql := range []string{"ALTER TABLE run_states REPLACE PARTITION " + quote(day.Format(time.DateOnly)) + " FROM " + foldScratch, "DROP TABLE " + foldScratch + " SYNC"} {
		if err := conn.Exec(ctx, sql); err != nil {
			return fail(err)
		}
	}
	return day, true, nil
}

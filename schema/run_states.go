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

// ChangedRunsSQL are templates of SQL: changed_runs, which says of itself what it takes, changed,
// the hashes of its runs, and root, the least version of what a root said. What is asked about the
// runs that run_states does not have yet is what makes it.
//
//go:embed run_states.sql
var ChangedRunsSQL string

var changedRuns = template.Must(template.New("").Option("missingkey=error").Parse(ChangedRunsSQL))

const (
	foldScratch = "fold_run_states"
	foldAtOnce  = 200_000 // of about how many runs one statement keeps sums in memory
)

// RunStates says what run_states has: all of the days up to Folded, zero where it has none, and
// of the day behind it what was recorded before Open, zero where it has nothing of that.
type RunStates struct{ Folded, Open time.Time }

// ReadRunStates reads what run_states has.
func ReadRunStates(ctx context.Context, conn driver.Conn) (s RunStates, err error) {
	var sql strings.Builder
	sql.WriteString("SELECT ")
	for i, name := range []string{"folded", "of_last_day"} {
		if i > 0 {
			sql.WriteString(", ")
		}
		if err := changedRuns.ExecuteTemplate(&sql, name, nil); err != nil {
			return s, fmt.Errorf("ask for the days of run_states: %w", err)
		}
	}
	if err := conn.QueryRow(ctx, sql.String()).Scan(&s.Folded, &s.Open); err != nil {
		return s, fmt.Errorf("ask for the days of run_states: %w", err)
	}
	for _, t := range []*time.Time{&s.Folded, &s.Open} {
		if t.Unix() <= 0 {
			*t = time.Time{}
		}
	}
	return s, nil
}

// FoldRuns adds one day to run_states: the first one behind those that it has as a whole on which
// anything was booked, if that is before until. It reports whether there was one. Nothing
// may be booked before until any more, and no user may be forgotten meanwhile. After an
// error, or a crash, the same call makes the day anew.
func FoldRuns(ctx context.Context, conn driver.Conn, until time.Time) (day time.Time, folded bool, err error) {
	day, runs, err := nextRuns(ctx, conn)
	if err != nil || runs == 0 || !day.Before(until.UTC().Truncate(24*time.Hour)) {
		return day, false, err
	}
	return day, true, foldRuns(ctx, conn, day, runs, time.Time{})
}

// FoldOpenRuns makes the states of the day that FoldRuns would add next but may not yet, if about as many
// runs as least were booked on it, and reports whether there were. Everything that was recorded
// before through, an instant of that day, has to be in the journal, and nothing may be recorded before it any more.
func FoldOpenRuns(ctx context.Context, conn driver.Conn, through time.Time, least uint64) (folded bool, err error) {
	day, runs, err := nextRuns(ctx, conn)
	if err != nil || runs < max(least, 1) || through.Before(day) || !through.Before(day.AddDate(0, 0, 1)) {
		return false, err
	}
	return true, foldRuns(ctx, conn, day, runs, through)
}

// nextRuns finds the first day behind those that run_states has as a whole on which anything was
// booked, and of about how many runs; 0 where there is none.
func nextRuns(ctx context.Context, conn driver.Conn) (day time.Time, runs uint64, err error) {
	s, err := ReadRunStates(ctx, conn)
	if err != nil {
		return day, 0, err
	}
	const next = `SELECT count(), min(booked_on) FROM (
	SELECT booked_on FROM run_info WHERE booked_on > {folded:Date} ORDER BY booked_on LIMIT 1
	UNION ALL SELECT booked_on FROM runs WHERE booked_on > {folded:Date} ORDER BY booked_on LIMIT 1)`
	folded := time.Unix(0, 0)
	if !s.Folded.IsZero() {
		folded = s.Folded
	}
	if err := conn.QueryRow(ctx, next, clickhouse.Named("folded", folded.UTC().Format(time.DateOnly))).Scan(&runs, &day); err != nil {
		return day, 0, fmt.Errorf("find the next day of runs: %w", err)
	}
	if runs == 0 {
		return day, 0, nil
	}
	if err := conn.QueryRow(ctx, "SELECT count() FROM run_info WHERE booked_on = {day:Date}", clickhouse.Named("day", day.Format(time.DateOnly))).Scan(&runs); err != nil {
		return day, 0, fmt.Errorf("count the runs of %s: %w", day.Format(time.DateOnly), err)
	}
	return day, max(runs, 1), nil
}

// foldRuns makes the states of a day by one replacement of its partition. through is zero where the day is over.
func foldRuns(ctx context.Context, conn driver.Conn, day time.Time, runs uint64, through time.Time) error {
	ctx = clickhouse.Context(ctx, clickhouse.WithSettings(clickhouse.Settings{"max_threads": 1, "max_execution_time": 600, "max_bytes_before_external_group_by": 300_000_000}))
	date := "toDate(" + quote(day.Format(time.DateOnly)) + ")"
	fail := func(err error) error {
		return fmt.Errorf("fold the runs of %s: %w", day.Format(time.DateOnly), err)
	}
	for _, sql := range []string{"DROP TABLE IF EXISTS " + foldScratch + " SYNC", "CREATE TABLE " + foldScratch + " AS run_states"} {
		if err := conn.Exec(ctx, sql); err != nil {
			return fail(err)
		}
	}
	at := "toDateTime64(0, 6, 'UTC')"
	if !through.IsZero() {
		at = "fromUnixTimestamp64Micro(toInt64(" + strconv.FormatInt(through.UnixMicro(), 10) + "), 'UTC')"
	}
	parts := runs/foldAtOnce + 1
	dims := strings.Fields("user feature workflow workflow_version agent environment mode criticality")
	const sums = "model_calls, tool_calls, retries, fallbacks, hedges, repeats, unpriced, unknown, cost, wasted"
	for part := range parts {
		vars := map[string]any{"Tenants": "1", "Info": dims, "Folded": "(" + date + " - 1)", "Open": "", "Until": " AND booked_on <= " + date, "Part": "", "Within": ""}
		if parts > 1 {
			vars["Part"] = " AND run_hash % " + strconv.FormatUint(parts, 10) + " = " + strconv.FormatUint(part, 10)
		}
		var sql strings.Builder
		sql.WriteString("INSERT INTO " + foldScratch + " (tenant, booked_on, through, run_hash, run_check, sign, rooted, started_at, " + strings.Join(dims, ", ") + ", " + sums + ") SELECT newest_tenant, " + date + ", " + at + ", newest_run_hash, newest_run_check, sign, newest_rooted, newest_started_at, newest_" + strings.Join(dims, ", newest_") + ", " + sums + " FROM (")
		if err := changedRuns.ExecuteTemplate(&sql, "changed_runs", vars); err != nil {
			return fail(err)
		}
		if err := conn.Exec(ctx, sql.String()+")"); err != nil {
			return fail(err)
		}
	}
	// What was and what is differ by what was booked, once nothing is booked any more.
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
		if through.IsZero() && states[i].Cmp(rows[i]) != 0 {
			return fail(fmt.Errorf("its states sum to %v and its rows to %v", states, rows))
		}
	}
	for _, sql := range []string{"ALTER TABLE run_states REPLACE PARTITION " + quote(day.Format(time.DateOnly)) + " FROM " + foldScratch, "DROP TABLE " + foldScratch + " SYNC"} {
		if err := conn.Exec(ctx, sql); err != nil {
			return fail(err)
		}
	}
	return nil
}

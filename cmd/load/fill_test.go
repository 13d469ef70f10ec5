package main

import (
	"bytes"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/flyball/flyball/schema/engine"
	"github.com/flyball/flyball/schema/schematest"
)

func TestMain(m *testing.M) { schematest.Main(m) }

// A fill keeps the books: every line is there once or not at all, the rollups are the
// journal's sums, each run has a row. A second one adds nothing, and one of other
// numbers is refused.
func TestFillKeepsTheBooks(t *testing.T) {
	dir := t.TempDir()
	args := []string{"--data", dir, "--rows", "20000", "--block", "5000", "--days", "40", "--users", "500", "--tenants", "20", "--until", "2026-11-20T00:00:00Z"}
	var out bytes.Buffer
	for range 2 {
		if code := fill(t.Context(), args, &out); code != exitOK {
			t.Fatalf("fill: exit %d\n%s", code, &out)
		}
	}
	if code := fill(t.Context(), append(args, "--seed", "2"), &out); code != exitFailed || !strings.Contains(out.String(), "other numbers") {
		t.Errorf("another seed: exit %d\n%s", code, &out)
	}
	e, err := engine.Open(t.Context(), engine.Options{Dir: filepath.Join(dir, "clickhouse"), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	f := func(what, sql string, low, high uint64) {
		t.Helper()
		var got uint64
		if err := e.Reader().QueryRow(t.Context(), sql).Scan(&got); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if got < low || got > high {
			t.Errorf("%s: got %d, want %d to %d", what, got, low, high)
		}
	}
	const none = 0
	f("rows", "SELECT count() FROM journal", 18_000, 22_000)
	f("lines that are neither there nor gone", "SELECT countIf(s < 0 OR s > 1) FROM (SELECT sum(sign) AS s FROM journal GROUP BY tenant, trace_id, span_id, part)", none, none)
	f("corrections", "SELECT countIf(sign < 0) FROM journal", 10, 2_000)
	f("prices that came later", "SELECT countIf(version = 2 AND cost_status = 'priced' AND sign = 1 AND recorded_at > started_at + INTERVAL 1 HOUR) FROM journal", 1, 2_000)
	f("rollup beside journal", "SELECT toUInt64(abs((SELECT sum(cost) FROM spend_15m) - (SELECT sum(sign * toInt128(ifNull(cost, 0))) FROM journal)))", none, none)
	f("runs without a row", "SELECT count() FROM (SELECT DISTINCT tenant, run_id FROM runs WHERE (tenant, run_id) NOT IN (SELECT tenant, run_id FROM run_info))", none, none)
	f("entries after the end", "SELECT countIf(recorded_at >= '2026-11-20 00:00:00') FROM journal", none, none)
	f("booked before they start", "SELECT countIf(recorded_at < started_at) FROM journal", none, none)
	f("retries", "SELECT toUInt64(sum(sign * toInt64(retries))) FROM journal", 50, 2_000)
}

package ingest

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/flyball/flyball/schema"
	"github.com/flyball/flyball/schema/engine"
)

// ClickHouse is the sink of a running service. It may be made before the engine
// is up: until Use is called every insert is to be repeated.
type ClickHouse struct{ engine atomic.Pointer[engine.Engine] }

var errStarting = errors.New("clickhouse is starting")

// Use gives the sink a migrated engine.
func (c *ClickHouse) Use(e *engine.Engine) { c.engine.Store(e) }

// Insert stores one block and what it says about runs.
func (c *ClickHouse) Insert(ctx context.Context, token string, rows *schema.Columns, runs []schema.RunInfo) error {
	e := c.engine.Load()
	if e == nil {
		return errStarting
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for part := 0; len(runs) > 0; part++ {
		n := fewMonths(runs)
		if err := schema.SendRunInfo(ctx, e.Conn(), fmt.Sprintf("%s-runs-%d", token, part), runs[:n]); err != nil {
			return err
		}
		runs = runs[n:]
	}
	return rows.Send(ctx, e.Conn(), token)
}

// fewMonths is how many of the first runs started in so few months that one block
// may hold them: ClickHouse refuses more than 100 partitions in one, and run_info
// is partitioned by the start, which a sender says.
func fewMonths(runs []schema.RunInfo) int {
	months := map[int]bool{}
	for i := range runs {
		year, month, _ := time.Unix(0, runs[i].Start).UTC().Date()
		if months[year*12+int(month)] = true; len(months) > 100 {
			return i
		}
	}
	return len(runs)
}

// Transient reports whether an insert may simply be repeated: everything but an
// error that blames the rows.
func (c *ClickHouse) Transient(err error) bool {
	return !engine.BadData(err)
}

// Has reports whether the journal holds that entry of a chunk.
func (c *ClickHouse) Has(ctx context.Context, chunk uint64, entry *schema.Entry) (bool, error) {
	e := c.engine.Load()
	if e == nil {
		return false, errStarting
	}
	var n uint64
	if err := e.Reader().QueryRow(ctx, "SELECT count() FROM journal WHERE chunk = ? AND recorded_at >= ? AND tenant = ? AND trace_id = unhex(?) AND span_id = unhex(?)",
		chunk, time.UnixMicro(entry.RecordedAt).UTC().Add(-time.Minute), entry.Tenant, entry.Trace.String(), entry.Span.String()).Scan(&n); err != nil {
		return false, fmt.Errorf("look for chunk %d: %w", chunk, err)
	}
	return n > 0, nil
}

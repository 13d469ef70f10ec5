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
	if err := schema.SendRunInfo(ctx, e.Conn(), token+"-runs", runs); err != nil {
		return err
	}
	return rows.Send(ctx, e.Conn(), token)
}

// InsertSamples stores one block of samples.
func (c *ClickHouse) InsertSamples(ctx context.Context, token string, rows []schema.Sample) error {
	e := c.engine.Load()
	if e == nil {
		return errStarting
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return schema.SendSamples(ctx, e.Conn(), token, rows)
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
	if err := e.Reader().QueryRow(ctx, "SELECT count() FROM journal WHERE chunk = ? AND recorded_at >= ? AND tenant = ? AND trace_id = unhex(?) AND span_id = unhex(?) AND part = ? AND version = ? AND sign = ?",
		chunk, time.UnixMicro(entry.RecordedAt).UTC().Add(-time.Minute), entry.Tenant, entry.Trace.String(), entry.Span.String(), entry.Part, entry.Version, entry.Sign).Scan(&n); err != nil {
		return false, fmt.Errorf("look for chunk %d: %w", chunk, err)
	}
	return n > 0, nil
}

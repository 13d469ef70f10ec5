package schema

import (
	"context"
	"fmt"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
)

// Temporality says what a Sample's value counts.
type Temporality uint8

const (
	Gauge      Temporality = iota // the level at the instant
	Delta                         // what was added since Start
	Cumulative                    // all that was added since Start
)

// TemporalityNames are the names in the database.
var TemporalityNames = []string{"gauge", "delta", "cumulative"}

// Sample is a point of a metric by which a limiter says how it fares, as it was
// reported. Its JSON is the form in the log.
type Sample struct {
	Tenant      string      `json:"tenant"`
	Metric      string      `json:"metric"`
	Series      uint64      `json:"series"`          // hash of the metric, its scope and every attribute
	At          int64       `json:"at"`              // unix nanoseconds
	Start       int64       `json:"start,omitempty"` // unix nanoseconds; 0 is unknown, and that of a gauge
	RecordedAt  int64       `json:"recorded_at"`     // unix microseconds
	Temporality Temporality `json:"temporality,omitempty"`
	Value       float64     `json:"value"`             // finite, not negative; of a histogram the sum
	Count       uint64      `json:"count,omitempty"`   // of a histogram
	Bounds      []float64   `json:"bounds,omitempty"`  // upper ends of all buckets but the last
	Buckets     []uint64    `json:"buckets,omitempty"` // one more than Bounds, or none
	Limiter     string      `json:"limiter,omitempty"`
	Provider    string      `json:"provider,omitempty"`
	Model       string      `json:"model,omitempty"`
	Tool        string      `json:"tool,omitempty"`
	Dimension   string      `json:"dimension,omitempty"`
	State       string      `json:"state,omitempty"`
	Error       string      `json:"error,omitempty"`
	HTTPStatus  uint16      `json:"http_status,omitempty"` // 0 is unknown
}

// SendSamples inserts samples as one block; a repetition under its token is a no-op.
func SendSamples(ctx context.Context, conn driver.Conn, token string, rows []Sample) error {
	if len(rows) == 0 {
		return nil
	}
	batch, err := conn.PrepareBatch(InsertContext(ctx, token), "INSERT INTO limiter_samples (tenant, metric, series, at, started_at, recorded_at, temporality, value, count, bounds, buckets, limiter, provider, model, tool, dimension, state, error, http_status)")
	if err != nil {
		return fmt.Errorf("prepare limiter_samples insert: %w", err)
	}
	defer func() { _ = batch.Close() }()
	for i := range rows {
		s := &rows[i]
		if err := batch.Append(s.Tenant, s.Metric, s.Series, time.Unix(0, s.At).UTC(), time.Unix(0, s.Start).UTC(), time.UnixMicro(s.RecordedAt).UTC(), TemporalityNames[s.Temporality], s.Value, s.Count, s.Bounds, s.Buckets, s.Limiter, s.Provider, s.Model, s.Tool, s.Dimension, s.State, s.Error, s.HTTPStatus); err != nil {
			return fmt.Errorf("append limiter_samples row: %w", err)
		}
	}
	if err := batch.Send(); err != nil {
		return fmt.Errorf("insert %d limiter_samples rows: %w", len(rows), err)
	}
	return nil
}

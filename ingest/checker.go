package ingest

import (
	"context"
	"fmt"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
)

// Drift is what a check of the journal found. All zero is right.
type Drift struct {
	Lines  uint64 // lines whose entries sum to neither 0 nor 1
	Rollup uint64 // tenants whose rollup differs from the signed sums of the journal
}

// CheckConservation looks at the lines whose entries were inserted by chunks after
// since and up to until: each must net to 0 or 1 over the whole journal, and the
// rollups must equal the journal's signed sums over the last 31 days. It reads only.
func CheckConservation(ctx context.Context, conn driver.Conn, since, until uint64) (Drift, error) {
	var d Drift
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	if err := conn.QueryRow(ctx, `SELECT count() FROM (
    SELECT tenant, trace_id, span_id, part, sum(sign) AS n FROM journal
    WHERE (tenant, trace_id, span_id, part) IN (SELECT tenant, trace_id, span_id, part FROM journal WHERE chunk > ? AND chunk <= ?) AND chunk <= ?
    GROUP BY tenant, trace_id, span_id, part HAVING n NOT IN (0, 1))`, since, until, until).Scan(&d.Lines); err != nil {
		return d, fmt.Errorf("check lines: %w", err)
	}
	if err := conn.QueryRow(ctx, `SELECT count() FROM (
    SELECT tenant, sum(sign * toInt128(ifNull(cost, 0))) AS cost, sum(toInt64(sign)) AS lines FROM journal WHERE recorded_at >= toDateTime(today() - 31, 'UTC') GROUP BY tenant
) AS j FULL OUTER JOIN (
    SELECT tenant, sum(cost) AS cost, sum(lines) AS lines FROM spend_15m WHERE booked_on >= today() - 31 GROUP BY tenant
) AS r USING (tenant)
WHERE j.cost != r.cost OR j.lines != r.lines`).Scan(&d.Rollup); err != nil {
		return d, fmt.Errorf("check rollups: %w", err)
	}
	return d, nil
}

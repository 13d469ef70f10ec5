package ingest

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/flyball/flyball/schema"
)

// Drift is what a check of the journal found. All zero is right.
type Drift struct {
	Lines  uint64 // lines whose entries sum to neither 0 nor 1, after healing
	Rollup uint64 // tenants whose rollup differs from the signed sums of the journal
}

// Checker watches the conservation of entries in the journal: each line nets to 0 or 1 and
// the rollups equal the journal's signed sums. It heals lines that trace assembly has
// forgotten. It is for one caller at a time.
type Checker struct {
	p      *Pipeline
	since  uint64    // chunks up to it were looked at
	rows   int       // entries to look at at once
	broken []lineOf  // found earlier, and not healed yet
	summed time.Time // when the rollups of all days were compared
	last   Drift
}

// NewChecker makes a Checker that goes on where the last one found nothing broken,
// also before a restart.
func NewChecker(p *Pipeline) *Checker { return &Checker{p: p, since: p.checked, rows: checkedRows} }

const (
	maxBroken   = 10_000    // lines that a check finds, and heals, at once
	checkedRows = 1_000_000 // entries whose lines are summed up at once, which bounds the memory of it
	checkedLag  = 60        // seconds behind which the journal has something better to do
	checkedDays = 31        // whose rollups are compared once a day; at other times those of two
)

// lineOf is a line of the journal; trace and span are in hex.
type lineOf struct {
	tenant, trace, span string
	part                uint16
}

// Check looks at the lines of the chunks that were confirmed since the last check,
// and again at those that were broken then, posts corrections for broken ones that
// nobody else will correct, and waits until the journal has these. Lines with
// entries in quarantine are passed over. Rollups are compared, of today and yesterday and once
// a day of the last 31 days, or until these agree, if nothing is queued meanwhile; else the
// figure is the last one.
// While the journal is more than a minute behind nothing is looked at.
func (c *Checker) Check(ctx context.Context, conn driver.Conn) (Drift, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	ctx = clickhouse.Context(ctx, clickhouse.WithSettings(clickhouse.Settings{"max_threads": 1}))
	at := c.p.Status()
	if at.LagSeconds > checkedLag {
		return c.last, nil
	}
	until := at.LastChunk
	for until > c.since && len(c.broken) < maxBroken {
		end, err := sliceEnd(ctx, conn, c.since, until, c.rows)
		if err != nil {
			return c.last, err
		}
		full := false // there are more
		var late uint64
		if err := conn.QueryRow(ctx, "SELECT count() FROM journal WHERE "+lateOnes, c.since, end).Scan(&late); err != nil {
			return c.last, fmt.Errorf("check lines: %w", err)
		}
		for _, where := range []string{sameHour, sameLine} {
			if late == 0 && where == sameLine {
				continue
			}
			found, err := brokenLines(ctx, conn, where, []any{c.since, end}, until)
			if err != nil {
				return c.last, err
			}
			for _, l := range found {
				if !slices.Contains(c.broken, l) {
					c.broken = append(c.broken, l)
				}
			}
			full = full || len(found) == maxBroken
		}
		if full {
			break
		}
		c.since = end
	}
	if len(c.broken) > 0 {
		rest, err := c.heal(ctx, conn)
		if err != nil {
			return c.last, err
		}
		c.broken = rest
	}
	if err := c.keep(); err != nil {
		return c.last, err
	}
	c.last.Lines = uint64(len(c.broken))
	if at := c.p.Status(); at.Queued == 0 {
		days := 1
		if time.Since(c.summed) > 24*time.Hour {
			days = checkedDays
		}
		n, err := rollupDrift(ctx, conn, days)
		if err != nil {
			return c.last, err
		}
		if now := c.p.Status(); now.LastChunk == at.LastChunk {
			c.last.Rollup = n
			if days == checkedDays && n == 0 { // what differs is told until it is cured
				c.summed = time.Now()
			}
		}
	}
	return c.last, nil
}

// keep lets the next Checker go on here, if nothing is left to be healed.
func (c *Checker) keep() error {
	if len(c.broken) > 0 || c.since == c.p.checked {
		return nil
	}
	b := c.p.store.NewBatch()
	if err := b.Put(keyChecked, binary.AppendUvarint(nil, c.since)); err != nil {
		return err
	}
	c.p.checked = c.since
	return b.Commit(false)
}

// heal posts corrections for broken lines and returns those that are broken still.
func (c *Checker) heal(ctx context.Context, conn driver.Conn) (rest []lineOf, err error) {
	p := c.p
	held, err := p.writer.held()
	if err != nil {
		return nil, err
	}
	lines := slices.DeleteFunc(slices.Clone(c.broken), func(l lineOf) bool { return held[l.tenant+"/"+l.trace+"/"+l.span] })
	if len(lines) == 0 {
		return nil, nil
	}
	if !p.repricing.TryLock() { // two at once would cancel the same entry
		return lines, nil
	}
	defer p.repricing.Unlock()
	// Nothing of a forgotten line may be on its way when its entries are read.
	if err := p.confirmed(ctx); err != nil {
		return nil, err
	}
	healed := 0
	for part := range slices.Chunk(lines, 500) {
		if err := p.log.Admit(max(1<<20, 8192*len(part))); err != nil {
			return nil, fmt.Errorf("post corrections: %w", err)
		}
		n, err := p.heal(ctx, conn, part)
		healed += n
		if err != nil {
			return nil, err
		}
	}
	if healed > 0 {
		p.o.Logger.Warn("lines were counted more than once, or less, and are corrected", "lines", healed, "tenant", lines[0].tenant, "trace", lines[0].trace)
		if err := errors.Join(p.log.Sync(ctx, p.log.End()), p.confirmed(ctx)); err != nil {
			return nil, err
		}
	}
	until := p.Status().LastChunk
	for part := range slices.Chunk(lines, 500) {
		where, args := ofLines(part)
		still, err := brokenLines(ctx, conn, where, args, until)
		if err != nil {
			return nil, err
		}
		rest = append(rest, still...)
	}
	return rest, nil
}

// heal posts a correction for each of lines that assembly has forgotten.
func (p *Pipeline) heal(ctx context.Context, conn driver.Conn, lines []lineOf) (healed int, err error) {
	var rows []schema.Entry // of one line
	post := func() error {
		ok, err := p.asm.Heal(rows, time.Now().UnixNano())
		if ok {
			healed++
			p.metrics.healed.Inc()
		}
		return err
	}
	where, args := ofLines(lines)
	err = schema.EachEntryOf(ctx, conn, where, args, func(e schema.Entry) error {
		if len(rows) > 0 && (rows[0].Tenant != e.Tenant || rows[0].Trace != e.Trace || rows[0].Span != e.Span || rows[0].Part != e.Part) {
			if err := post(); err != nil {
				return err
			}
			rows = rows[:0]
		}
		rows = append(rows, e)
		return nil
	})
	if err == nil && len(rows) > 0 {
		err = post()
	}
	return healed, err
}

// ofLines selects lines of the journal.
func ofLines(lines []lineOf) (where string, args []any) {
	for _, l := range lines {
		args = append(args, l.tenant, l.trace, l.span, l.part)
	}
	return "(tenant, trace_id, span_id, part) IN (" + strings.TrimSuffix(strings.Repeat("(?, unhex(?), unhex(?), ?), ", len(lines)), ", ") + ")", args
}

// sliceEnd is the last of the chunks behind since that have about so many rows.
func sliceEnd(ctx context.Context, conn driver.Conn, since, until uint64, rows int) (end uint64, err error) {
	if err := conn.QueryRow(ctx, "SELECT max(chunk) FROM (SELECT chunk FROM journal WHERE chunk > ? AND chunk <= ? ORDER BY chunk LIMIT ?)", since, until, rows).Scan(&end); err != nil {
		return 0, fmt.Errorf("check lines: %w", err)
	}
	if end == 0 { // everything in them was netted, or has expired
		end = until
	}
	return end, nil
}

// What selects the lines of some chunks. An entry and the one that cancels it say the same start,
// so that the sum of a line is that of its entries in the hours that its entries in the chunks
// name, and the key of the journal finds these. A span that came again after its trace was
// forgotten may say another start, or none: those are looked for everywhere.
var (
	sameHour = "(tenant, toStartOfHour(started_at), trace_id, span_id, part) IN (SELECT tenant, toStartOfHour(started_at), trace_id, span_id, part FROM journal WHERE chunk > ? AND chunk <= ?)"
	sameLine = "(tenant, trace_id, span_id, part) IN (SELECT tenant, trace_id, span_id, part FROM journal WHERE " + lateOnes + ")"
	lateOnes = fmt.Sprintf("chunk > ? AND chunk <= ? AND bitAnd(flags, %d) != 0", schema.FlagLate)
)

// brokenLines are up to maxBroken of the lines that where selects whose entries in chunks up to
// until sum to neither 0 nor 1. A step of a correction never straddles chunks.
func brokenLines(ctx context.Context, conn driver.Conn, where string, args []any, until uint64) ([]lineOf, error) {
	rows, err := conn.Query(ctx, "SELECT tenant, lower(hex(trace_id)), lower(hex(span_id)), part FROM journal WHERE "+where+" AND chunk <= ? GROUP BY tenant, trace_id, span_id, part HAVING sum(sign) NOT IN (0, 1) LIMIT ?",
		append(args, until, maxBroken)...)
	if err != nil {
		return nil, fmt.Errorf("check lines: %w", err)
	}
	defer rows.Close()
	var lines []lineOf
	for rows.Next() {
		var l lineOf
		if err := rows.Scan(&l.tenant, &l.trace, &l.span, &l.part); err != nil {
			return nil, fmt.Errorf("check lines: %w", err)
		}
		lines = append(lines, l)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("check lines: %w", err)
	}
	return lines, nil
}

// rollupDrift counts tenants whose rollup differs from the signed sums of the
// journal of so many days before today, where that has nothing else to come.
func rollupDrift(ctx context.Context, conn driver.Conn, days int) (n uint64, err error) {
	if err := conn.QueryRow(ctx, `SELECT count() FROM (
    SELECT tenant, sum(sign * toInt128(ifNull(cost, 0))) AS cost, sum(toInt64(sign)) AS lines FROM journal WHERE recorded_at >= toDateTime(today() - ?, 'UTC') GROUP BY tenant
) AS j FULL OUTER JOIN (
    SELECT tenant, sum(cost) AS cost, sum(lines) AS lines FROM spend_15m WHERE booked_on >= today() - ? GROUP BY tenant
) AS r USING (tenant)
WHERE j.cost != r.cost OR j.lines != r.lines`, days, days).Scan(&n); err != nil {
		return 0, fmt.Errorf("check rollups: %w", err)
	}
	return n, nil
}

// held are the spans, as tenant/trace/span, that have entries in quarantine.
func (w *writer) held() (map[string]bool, error) {
	file, err := os.ReadFile(w.quarantineFile())
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("read quarantine: %w", err)
	}
	spans := map[string]bool{}
	for line := range bytes.Lines(file) {
		var e struct {
			Tenant string `json:"tenant"`
			Trace  string `json:"trace_id"`
			Span   string `json:"span_id"`
		}
		if json.Unmarshal(line, &e) == nil { // else a crash cut it off
			spans[e.Tenant+"/"+e.Trace+"/"+e.Span] = true
		}
	}
	return spans, nil
}

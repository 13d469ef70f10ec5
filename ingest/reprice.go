package ingest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/flyball/flyball/schema"
)

// answerWithin is how long after its call a raw answer recorded below it may start.
const answerWithin = 10 * time.Minute

// ErrRepricing says that Reprice runs already.
var ErrRepricing = errors.New("calls are being priced again already; wait for the end of that")

// Repricing selects what Reprice prices again.
type Repricing struct {
	Since  time.Time `json:"since"`   // calls that started at or after this
	Tenant string    `json:"tenant"`  // "" is all
	Model  string    `json:"model"`   // traces that used it; "" is all
	DryRun bool      `json:"dry_run"` // post nothing

	lines int // read by one statement; 0 is linesAtOnce
}

// linesAtOnce bounds what the engine has to sort for one statement, however much
// there is of an hour.
const linesAtOnce = 200_000

// Repriced is what Reprice changed, or would.
type Repriced struct {
	DryRun  bool       `json:"dry_run"`
	Lines   int        `json:"lines"`   // whose posting changes
	Entries int        `json:"entries"` // that were posted, two a line
	Before  schema.Sum `json:"before_usd"`
	After   schema.Sum `json:"after_usd"`
	Change  schema.Sum `json:"change_usd"`
}

// Reprice prices calls again with the prices of now and posts corrections. A
// trace that assembly remembers is evaluated as a whole, other lines are taken
// from the journal, once it has all that is in the log. Spans are taken
// meanwhile. After an error what was posted holds; calling again goes on.
func (p *Pipeline) Reprice(ctx context.Context, conn driver.Conn, in Repricing) (Repriced, error) {
	out := Repriced{DryRun: in.DryRun}
	if !p.repricing.TryLock() { // two at once would cancel the same entry
		return out, ErrRepricing
	}
	defer p.repricing.Unlock()
	if err := p.confirmed(ctx); err != nil {
		return out, err
	}
	hours, err := billedHours(ctx, conn, in)
	if err != nil {
		return out, err
	}
	r := repricer{p: p, in: in, out: &out, evaluated: map[traceOf]bool{}}
	for _, hour := range hours {
		err := r.hour(ctx, conn, hour)
		if serr := p.log.Sync(ctx, p.log.End()); err == nil {
			err = serr
		}
		if err != nil {
			return out, err
		}
	}
	out.Change = out.After.Plus(out.Before.Neg())
	return out, nil
}

// confirmed waits until the journal has everything that is in the log now.
func (p *Pipeline) confirmed(ctx context.Context) error {
	end := p.log.End()
	for p.queued.Load() > 0 && p.writer.safe() < end {
		select {
		case <-ctx.Done():
			return fmt.Errorf("the journal is behind %s: %w", p.Status().Waiting, ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
	return nil
}

// billedHour is an hour in which calls of the request started.
type billedHour struct {
	at    time.Time
	lines uint64 // entries, of all of its calls
}

// billedHours are the hours to read. The journal is sorted by them.
func billedHours(ctx context.Context, conn driver.Conn, in Repricing) ([]billedHour, error) {
	rows, err := conn.Query(ctx, "SELECT toStartOfHour(started_at) AS hour, count() FROM journal WHERE started_at >= ? AND (? = '' OR tenant = ?) GROUP BY hour HAVING countIf((? = '' OR model = ?) AND cost_status != 'none') > 0 ORDER BY hour",
		in.Since.UTC(), in.Tenant, in.Tenant, in.Model, in.Model)
	if err != nil {
		return nil, fmt.Errorf("read hours: %w", err)
	}
	defer rows.Close()
	var hours []billedHour
	for rows.Next() {
		var h billedHour
		if err := rows.Scan(&h.at, &h.lines); err != nil {
			return nil, fmt.Errorf("read hours: %w", err)
		}
		h.at = h.at.UTC()
		hours = append(hours, h)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read hours: %w", err)
	}
	return hours, nil
}

type traceOf struct {
	tenant string
	id     schema.TraceID
}

type repricer struct {
	p         *Pipeline
	in        Repricing
	out       *Repriced
	net       []schema.Entry   // of one trace
	evaluated map[traceOf]bool // traces that assembly remembered, with all their hours
}

// hour prices the calls of an hour again, in as many statements as it needs. A trace
// is in one of them.
func (r *repricer) hour(ctx context.Context, conn driver.Conn, hour billedHour) error {
	most := uint64(linesAtOnce)
	if r.in.lines > 0 {
		most = uint64(r.in.lines)
	}
	end := hour.at.Add(time.Hour)
	parts := hour.lines/most + 1
	for part := range parts {
		r.net = r.net[:0]
		err := schema.EachNet(ctx, conn, "started_at >= ? AND (cost_status != 'none' AND started_at < ? OR cost_status = 'none' AND usage = 'known' AND started_at < ?) AND (? = '' OR tenant = ?) AND sipHash64(tenant, trace_id) % ? = ?",
			[]any{hour.at, end, end.Add(answerWithin), r.in.Tenant, r.in.Tenant, parts, part}, r.entry)
		if err != nil {
			return err
		}
		if err := r.trace(); err != nil {
			return err
		}
	}
	return nil
}

// entry takes the next net line, of which those of a trace come one after the other.
func (r *repricer) entry(e schema.Entry) error {
	if len(r.net) > 0 && (r.net[0].Tenant != e.Tenant || r.net[0].Trace != e.Trace) {
		if err := r.trace(); err != nil {
			return err
		}
		r.net = r.net[:0]
	}
	if e.Start >= r.in.Since.UnixNano() {
		r.net = append(r.net, e)
	}
	return nil
}

// trace prices again what was read of one trace.
func (r *repricer) trace() error {
	if !slices.ContainsFunc(r.net, func(e schema.Entry) bool {
		return e.Posting.Status != schema.CostNone && (r.in.Model == "" || e.Model == r.in.Model)
	}) {
		return nil
	}
	if !r.in.DryRun {
		if err := r.p.log.Admit(max(1<<20, 4096*len(r.net))); err != nil {
			return fmt.Errorf("post corrections: %w", err)
		}
	}
	k := traceOf{r.net[0].Tenant, r.net[0].Trace}
	res, remembered, err := r.p.asm.Reprice(k.tenant, k.id, r.net, r.evaluated[k], r.in.DryRun, time.Now().UnixNano(), func(_ *schema.Call, old, now *schema.Posting) {
		r.out.Lines++
		if old.Billed() {
			r.out.Before.Add(old.Cost, 1)
		}
		if now.Billed() {
			r.out.After.Add(now.Cost, 1)
		}
	})
	if remembered {
		r.evaluated[k] = true
	}
	r.out.Entries += res.Entries
	return err
}

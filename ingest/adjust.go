package ingest

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/flyball/flyball/schema"
)

// ErrAdjusted says that an adjustment of that id was posted, and is another one.
var ErrAdjusted = errors.New("the id is that of another adjustment")

// Adjustment is money that a person books: what no call costs, such as a credit, or a
// correction that prices do not explain.
type Adjustment struct {
	Tenant   string
	ID       string // of the tenant; a second one of the same id posts nothing
	At       time.Time
	Cost     schema.Money // may be negative
	Amount   schema.Money // Cost in Currency
	Currency string
	Reason   string
	Actor    string // who is responsible
	Provider string
	Model    string
	Identity schema.Identity // a run is not part of it: no run did it
}

// Adjusted is what Adjust posted, now or before.
type Adjusted struct {
	Trace   schema.TraceID
	Span    schema.SpanID
	Already bool // by an earlier call
	Cost    schema.Money
}

// line are the ids of an adjustment's line, which no span has.
func (a *Adjustment) line() (t schema.TraceID, s schema.SpanID) {
	h := sha256.Sum256([]byte("flyball adjustment\x00" + a.Tenant + "\x00" + a.ID))
	copy(t[:], h[:16])
	copy(s[:], h[16:])
	return t, s
}

// Adjust posts an entry of its own through the log, and returns after the fsync that
// covers it. The id is looked up in the journal, once that has all that is in the log:
// asking again after an error, or a crash, posts at most once.
func (p *Pipeline) Adjust(ctx context.Context, conn driver.Conn, in Adjustment) (Adjusted, error) {
	var out Adjusted
	out.Trace, out.Span = in.line()
	out.Cost = in.Cost
	p.adjusting.Lock()
	defer p.adjusting.Unlock()
	if err := p.confirmed(ctx); err != nil {
		return out, err
	}
	c := schema.Call{Tenant: in.Tenant, Trace: out.Trace, Span: out.Span, Start: in.At.UnixNano(), Kind: schema.KindAdjustment, Source: schema.SourceAdjustment,
		Name: in.Reason, Scope: in.Actor, ResponseID: in.ID, Operation: "adjustment", Provider: in.Provider, Model: in.Model, Identity: in.Identity}
	post := schema.Posting{Kind: c.Kind, Identity: c.Identity, Status: schema.CostPriced, Cost: in.Cost, Exposure: in.Cost, Amount: in.Amount, Currency: in.Currency, Attempt: 1}
	err := schema.EachEntryOf(ctx, conn, "kind = 'adjustment' AND tenant = ? AND trace_id = unhex(?)", []any{in.Tenant, out.Trace.String()}, func(e schema.Entry) error {
		out.Already, out.Cost = true, e.Posting.Cost
		if e.Start != c.Start || e.Name != c.Name || e.Provider != c.Provider || e.Model != c.Model || e.Posting.Identity != c.Identity || e.Posting.Amount != in.Amount || e.Posting.Currency != in.Currency {
			return ErrAdjusted
		}
		return nil
	})
	if err != nil || out.Already {
		return out, err
	}
	if err := p.log.Admit(1 << 20); err != nil {
		return out, fmt.Errorf("post adjustment: %w", err)
	}
	if err := p.asm.Adjust(&c, &post, time.Now().UnixNano()); err != nil {
		return out, err
	}
	return out, p.log.Sync(ctx, p.log.End())
}

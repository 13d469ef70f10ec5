package schema

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
)

// netColumns reads one row of the journal; the inverse of Columns.Append.
type netColumns struct {
	e                                   *Entry
	trace, span, parent                 string
	recordedAt, startedAt               time.Time
	cost, estimate, reported            *int64
	exposure, amount, wasted            int64
	flags                               uint64
	aggregate, fallback, hedge          uint8
	kind, usage, status, effect, layer  string
	cause, hiddenCause, failure, source string
	names                               []string
	dest                                []any
}

func newNetColumns(e *Entry) *netColumns {
	n := &netColumns{e: e}
	p := &e.Posting
	add := func(name string, dest any) { n.names, n.dest = append(n.names, name), append(n.dest, dest) }
	add("tenant", &e.Tenant)
	add("trace_id", &n.trace)
	add("span_id", &n.span)
	add("parent_span_id", &n.parent)
	add("part", &e.Part)
	add("sign", &e.Sign)
	add("version", &e.Version)
	add("recorded_at", &n.recordedAt)
	add("started_at", &n.startedAt)
	add("duration_ns", &e.Duration)
	add("kind", &n.kind)
	add("name", &e.Name)
	add("operation", &e.Operation)
	add("provider", &e.Provider)
	add("model", &e.Model)
	add("requested_model", &e.RequestedModel)
	add("service_tier", &e.ServiceTier)
	add("response_id", &e.ResponseID)
	add("scope", &e.Scope)
	add("token_basis", &e.TokenBasis)
	add("usage", &n.usage)
	add("cost_status", &n.status)
	add("cost", &n.cost)
	add("exposure", &n.exposure)
	add("estimate", &n.estimate)
	add("reported_cost", &n.reported)
	add("amount", &n.amount)
	add("currency", &p.Currency)
	add("price_id", &p.PriceID)
	add("aggregate", &n.aggregate)
	add("duplicate_of", &p.DuplicateOf)
	add("tool", &e.Tool)
	add("tool_effect", &n.effect)
	add("args_hash", &e.ArgsHash)
	add("payload_bytes", &e.PayloadBytes)
	add("payload_type", &e.PayloadType)
	add("attempt", &p.Attempt)
	add("retry_layer", &n.layer)
	add("retry_cause", &n.cause)
	add("fallback", &n.fallback)
	add("hedge", &n.hedge)
	add("hidden_attempts", &p.Hidden)
	add("hidden_cause", &n.hiddenCause)
	add("failure", &n.failure)
	add("http_status", &e.HTTPStatus)
	add("source", &n.source)
	add("model_calls", &p.ModelCalls)
	add("tool_calls", &p.ToolCalls)
	add("retries", &p.Retries)
	add("fallbacks", &p.Fallbacks)
	add("hedges", &p.Hedges)
	add("repeats", &p.Repeats)
	add("wasted", &n.wasted)
	add("flags", &n.flags)
	for i := range p.Identity {
		add(Dims[i], &p.Identity[i])
	}
	for i, v := range p.Tokens.Fields() {
		add("tok_"+TokenNames[i], v)
	}
	for i, v := range e.Units.Fields() {
		add(unitNames[i], v)
	}
	return n
}

// finish turns what was scanned into the entry's own types.
func (n *netColumns) finish() {
	e, p := n.e, &n.e.Posting
	copy(e.Trace[:], n.trace)
	copy(e.Span[:], n.span)
	copy(e.Parent[:], n.parent)
	e.RecordedAt, e.Start = n.recordedAt.UnixMicro(), n.startedAt.UnixNano()
	at := func(names []string, s string) int { return max(0, slices.Index(names, s)) }
	p.Kind = Kind(at(KindNames, n.kind))
	e.Kind = p.Kind
	e.Usage = Usage(at(UsageNames, n.usage))
	e.Effect = Effect(at(EffectNames, n.effect))
	e.Failure = Failure(at(FailureNames, n.failure))
	e.Source = Source(at(SourceNames, n.source))
	e.Flags = Flags(n.flags)
	e.Identity, e.Tokens = p.Identity, p.Tokens
	e.ReportedCost, e.HasReported = optional(n.reported)
	p.Status = CostStatus(at(CostStatusNames, n.status))
	p.Cost, _ = optional(n.cost)
	p.Estimate, p.HasEstimate = optional(n.estimate)
	p.Exposure, p.Amount, p.Wasted = Money(n.exposure), Money(n.amount), Money(n.wasted)
	p.Aggregate, p.Fallback, p.Hedge = n.aggregate != 0, n.fallback != 0, n.hedge != 0
	p.Layer = Layer(at(LayerNames, n.layer))
	p.Cause = Failure(at(FailureNames, n.cause))
	p.HiddenCause = Failure(at(FailureNames, n.hiddenCause))
}

func optional(v *int64) (Money, bool) {
	if v == nil {
		return 0, false
	}
	return Money(*v), true
}

// EachNet calls f for the net lines that where selects, a trace's one after the
// other: of each line the entry that nothing cancelled. where is SQL over columns
// that an entry has in common with the one that cancels it, so not recorded_at and
// not chunk; it is used twice, and args with it. The entry is f's to keep, its strings
// too. What the journal does not keep is zero (roles, the tool call's id); the
// kind, the tokens and the flags that were posted are the call's as well.
func EachNet(ctx context.Context, conn driver.Conn, where string, args []any, f func(Entry) error) error {
	return eachRow(ctx, conn, "("+where+`) AND sign = 1 AND (tenant, trace_id, span_id, part, version) NOT IN (
    SELECT tenant, trace_id, span_id, part, version FROM journal WHERE (`+where+`) AND sign = -1)
ORDER BY tenant, trace_id, span_id, part, version
LIMIT 1 BY tenant, trace_id, span_id, part, version`, append(slices.Clone(args), args...), f)
}

// EachEntryOf calls f for every entry of the lines that where selects, a line's one
// after the other as they were recorded. The entry is f's to keep, and lacks what
// EachNet's lacks.
func EachEntryOf(ctx context.Context, conn driver.Conn, where string, args []any, f func(Entry) error) error {
	return eachRow(ctx, conn, where+" ORDER BY tenant, trace_id, span_id, part, recorded_at, version, sign", args, f)
}

// EachPosted calls f for every entry that where selects in the order of their
// recording: what cancels an entry comes right before what takes its place. The
// entry is f's to keep, and lacks what EachNet's lacks.
func EachPosted(ctx context.Context, conn driver.Conn, where string, args []any, f func(Entry) error) error {
	return eachRow(ctx, conn, where+" ORDER BY recorded_at, tenant, trace_id, span_id, part, version, sign", args, f)
}

func eachRow(ctx context.Context, conn driver.Conn, where string, args []any, f func(Entry) error) error {
	var e Entry
	n := newNetColumns(&e)
	rows, err := conn.Query(ctx, "SELECT "+strings.Join(n.names, ", ")+" FROM journal WHERE "+where, args...)
	if err != nil {
		return fmt.Errorf("read entries: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		n.cost, n.estimate, n.reported = nil, nil, nil
		if err := rows.Scan(n.dest...); err != nil {
			return fmt.Errorf("read entries: %w", err)
		}
		n.finish()
		if err := f(e); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("read entries: %w", err)
	}
	return nil
}

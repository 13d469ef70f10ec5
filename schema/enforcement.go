package schema

import (
	"context"
	"fmt"
	"math/big"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
)

// The kinds of Enforcement that are measurements. The others are events: directive,
// release, page, kill, policy, drill, lease, limiter, ledger, forget.
const (
	// EnforcementLeak is calls that started although a directive refused them.
	EnforcementLeak = "leak"
	// EnforcementApplied is a limiter's acknowledgement of a directive.
	EnforcementApplied = "applied"
)

// Enforcement is one thing that enforcement did or measured: a row of the table
// enforcement, and what the local store keeps until that has it. Node and Seq tell
// rows apart.
type Enforcement struct {
	Seq       uint64    `json:"seq"` // grows on one node
	Node      string    `json:"node,omitempty"`
	At        time.Time `json:"at"` // exact to the microsecond
	Kind      string    `json:"kind"`
	Guard     string    `json:"guard,omitempty"`
	Tenant    string    `json:"tenant,omitempty"` // "" is the whole org
	Scope     string    `json:"scope,omitempty"`  // in words
	User      string    `json:"user,omitempty"`
	Action    string    `json:"action,omitempty"`
	Measure   string    `json:"measure,omitempty"`
	Value     string    `json:"value,omitempty"` // with its unit
	Limit     string    `json:"limit,omitempty"` // with its unit
	Rung      string    `json:"rung,omitempty"`
	Window    string    `json:"window,omitempty"`
	Shadow    bool      `json:"shadow,omitempty"`
	Actor     string    `json:"actor,omitempty"`
	Reason    string    `json:"reason,omitempty"`
	Directive string    `json:"directive,omitempty"`
	Revision  string    `json:"revision,omitempty"`
	Limiter   string    `json:"limiter,omitempty"` // "" where it is not known which of several
	Class     string    `json:"class,omitempty"`   // of a leak: propagation, leak or unguarded
	Calls     int64     `json:"calls,omitempty"`   // that leaked
	USD       *Sum      `json:"usd,omitempty"`     // that a guard counts for them
	Took      *int64    `json:"took_ns,omitempty"`
	AfterSpan *int64    `json:"after_span_ns,omitempty"`
	Trace     string    `json:"trace_id,omitempty"`
}

// SendEnforcement inserts rows as one block under a deduplication token.
func SendEnforcement(ctx context.Context, conn driver.Conn, token string, rows []Enforcement) error {
	if len(rows) == 0 {
		return nil
	}
	batch, err := conn.PrepareBatch(InsertContext(ctx, token), "INSERT INTO enforcement (tenant, at, node, seq, kind, guard, scope, user, action, measure, value, limit, rung, window, shadow, actor, reason, directive, revision, limiter, class, calls, cost, took_ns, after_span_ns, trace_id)")
	if err != nil {
		return fmt.Errorf("prepare enforcement insert: %w", err)
	}
	defer func() { _ = batch.Close() }()
	for i := range rows {
		r := &rows[i]
		var cost *big.Int
		if r.USD != nil {
			cost = r.USD.Big()
		}
		if err := batch.Append(r.Tenant, r.At.UTC(), r.Node, r.Seq, r.Kind, r.Guard, r.Scope, r.User, r.Action, r.Measure, r.Value, r.Limit, r.Rung, r.Window, r.Shadow, r.Actor, r.Reason, r.Directive, r.Revision, r.Limiter, r.Class, r.Calls, cost, r.Took, r.AfterSpan, r.Trace); err != nil {
			return fmt.Errorf("append enforcement row: %w", err)
		}
	}
	if err := batch.Send(); err != nil {
		return fmt.Errorf("insert %d enforcement rows: %w", len(rows), err)
	}
	return nil
}

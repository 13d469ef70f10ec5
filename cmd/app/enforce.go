package app

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/flyball/flyball/enforce"
	"github.com/flyball/flyball/enforce/directive"
	"github.com/flyball/flyball/enforce/envoy"
	"github.com/flyball/flyball/ingest"
	"github.com/flyball/flyball/ingest/price"
	"github.com/flyball/flyball/schema"
)

// journalLog is the write-ahead log as enforcement uses it.
type journalLog struct{ *ingest.Follower }

func (j journalLog) Next(ctx context.Context, wait bool) (enforce.Record, bool, error) {
	e, ok, err := j.Follower.Next(ctx, wait)
	r := enforce.Record{Start: e.Start, End: e.End}
	switch {
	case e.Entries != nil:
		r.Data = e.Entries
	case e.Own != nil:
		r.Kind, r.Data = enforce.RecordOwn, e.Own
	default:
		r.Kind, r.Chunk = enforce.RecordBoundary, e.Chunk
	}
	return r, ok, err
}

// ceilings prices what a call may cost.
type ceilings struct{ p *ingest.Pricer }

func (c ceilings) query(tenant, provider, model string, t *schema.Tokens, at time.Time) price.Result {
	return c.p.Catalogue().Price(&price.Query{Tenant: tenant, Provider: provider, Model: model, Start: at.UnixNano(), Kind: schema.KindModel, Usage: schema.UsageKnown, Tokens: t, Units: &schema.Units{}})
}

// Ceiling is the cost of the tokens at the plain rates, since nobody knows before a
// call what a cache will hold; without a price it is the exposure.
func (c ceilings) Ceiling(tenant, provider, model string, input, output uint64, at time.Time) (schema.Money, bool) {
	return c.Cost(tenant, provider, model, &schema.Tokens{Input: input, Output: output}, at)
}

func (c ceilings) Cost(tenant, provider, model string, t *schema.Tokens, at time.Time) (schema.Money, bool) {
	if provider == "" {
		provider = c.providerOf(model)
	}
	r := c.query(tenant, provider, model, t, at)
	return r.Exposure, r.Status == schema.CostPriced || r.Status == schema.CostFree
}

// providerOf is the provider whose list a bare model name is looked up in: the first
// by name that has it.
func (c ceilings) providerOf(model string) string {
	return c.p.Catalogue().ProviderOf(model)
}

// policyText is the configured policy; empty is the default one.
func policyText(cfg Config) ([]byte, error) {
	if cfg.Policy == "" {
		return nil, nil
	}
	text, err := os.ReadFile(cfg.Policy)
	if err != nil {
		return nil, fmt.Errorf("read policy: %w", err)
	}
	return text, nil
}

// PolicyOptions say what a policy may refer to under this configuration and these prices.
func PolicyOptions(cfg Config, p *ingest.Pricer) enforce.PolicyOptions {
	c := ceilings{p}
	now := time.Now()
	o := enforce.PolicyOptions{
		Receivers: []string{},
		Known:     func(model string) bool { _, known := c.Ceiling("", "", model, 1000, 1000, now); return known },
		Cheaper: func(model, than string) (bool, bool) {
			a, okA := c.Ceiling("", "", model, 8000, 1000, now)
			b, okB := c.Ceiling("", "", than, 8000, 1000, now)
			return a < b, okA && okB
		},
	}
	for _, r := range cfg.Pages.Receivers {
		o.Receivers = append(o.Receivers, r.Name)
	}
	return o
}

// startEnforcement opens the closed loop behind the log.
func (a *App) startEnforcement(cfg Config) error {
	text, err := policyText(cfg)
	if err != nil {
		return err
	}
	loop, from, err := enforce.New(enforce.Options{
		Store: a.pipeline.Store(), Pricer: ceilings{a.pricer}, Post: a.report, Archive: a.archive, Refused: a.refused, Teach: a.teach, Forget: a.pipeline.Forgetting().Renaming(), Keys: a.keys.Load, Zone: a.zone, Policy: text, PolicyFile: cfg.Policy, PolicyCheck: PolicyOptions(cfg, a.pricer),
		Pages: cfg.Pages.Receivers, Console: cfg.Pages.URL, Logger: a.log, Registerer: a.reg,
	})
	if err != nil {
		return err
	}
	f, gap, err := a.pipeline.Follow(from)
	if err != nil {
		return err
	}
	a.loop = loop
	if gap {
		if err := a.loop.Lost(); err != nil {
			return errors.Join(err, f.Close())
		}
	}
	if err := a.loop.Start(journalLog{f}); err != nil {
		return errors.Join(err, f.Close())
	}
	a.onStop("enforcement", func(context.Context) error {
		err := a.loop.Close()
		_ = f.Close()
		return err
	})
	return nil
}

// archive stores what enforcement did.
func (a *App) archive(ctx context.Context, token string, rows []enforce.Event) error {
	e := a.engine.Load()
	if e == nil {
		return errors.New("clickhouse is not up yet")
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return schema.SendEnforcement(ctx, e.Conn(), token, rows)
}

// teach tells trace assembly whose a trace is, which its spans may say only at the end.
func (a *App) teach(c *directive.Call) {
	trace, err := schema.ParseTraceID(c.TraceID)
	if err != nil {
		return
	}
	var id schema.Identity
	id[schema.User], id[schema.Feature], id[schema.Workflow], id[schema.Agent], id[schema.Mode] = c.User, c.Feature, c.Workflow, c.Agent, c.Mode
	if c.RunID != c.TraceID {
		id[schema.Run] = c.RunID
	}
	if id != (schema.Identity{}) {
		a.pipeline.Teach(c.Tenant, trace, id)
	}
}

// callOf is a call as a limiter knows it.
func (a *App) callOf(c *directive.Call, at time.Time) (schema.Call, error) {
	trace, err := schema.ParseTraceID(c.TraceID)
	if err != nil {
		return schema.Call{}, err
	}
	call := schema.Call{Tenant: c.Tenant, Trace: trace, Start: at.UnixNano(), Kind: schema.KindModel, Operation: "chat", Provider: c.Provider, Model: c.Model, RequestedModel: c.Model, Scope: "flyball.limiter"}
	call.Identity[schema.Run], call.Identity[schema.User], call.Identity[schema.Feature] = c.RunID, c.User, c.Feature
	call.Identity[schema.Workflow], call.Identity[schema.Agent], call.Identity[schema.Mode] = c.Workflow, c.Agent, c.Mode
	if c.Tool != "" && c.Model == "" {
		call.Kind, call.Tool, call.Operation = schema.KindTool, c.Tool, "execute_tool"
	}
	if call.Provider == "" {
		call.Provider = ceilings{a.pricer}.providerOf(call.Model)
	}
	return call, nil
}

// report books a call that a limiter reported and whose span never came.
func (a *App) report(c directive.Call, u enforce.Settlement, at time.Time) error {
	call, err := a.callOf(&c, at)
	if err != nil {
		return err
	}
	if call.Span, err = schema.ParseSpanID(c.SpanID); err != nil {
		return err
	}
	call.ResponseID, call.TokenBasis = u.ResponseID, "disjoint"
	if call.Kind == schema.KindModel {
		call.Usage = schema.UsageUnknown
	}
	if u.Model != "" {
		call.Model = u.Model
	}
	if u.Provider != "" {
		call.Provider = u.Provider
	}
	if len(u.Tokens) > 0 {
		if call.Tokens, err = u.Counts(); err != nil {
			return err
		}
		call.Usage = schema.UsageKnown
	}
	ctx, cancel := context.WithTimeout(a.ctx, 10*time.Second)
	defer cancel()
	return a.pipeline.Report(ctx, []schema.Call{call})
}

// refused books calls that were not let through: each a call of its own below the
// span that wanted to make it, with the failure budget, and nothing to pay.
func (a *App) refused(list []enforce.Refusal) error {
	var calls []schema.Call
	for i := range list {
		c, err := a.callOf(&list[i].Call, list[i].At)
		if err != nil {
			continue // without a trace there is no place for it
		}
		if c.Parent, err = schema.ParseSpanID(list[i].Call.SpanID); err != nil {
			c.Parent = schema.SpanID{}
		}
		_, _ = rand.Read(c.Span[:])
		c.Name, c.Failure, c.HTTPStatus = "refused by "+list[i].Guard, schema.Budget, http.StatusForbidden
		calls = append(calls, c)
	}
	if len(calls) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(a.ctx, 10*time.Second)
	defer cancel()
	return a.pipeline.Report(ctx, calls)
}

// envoyServer answers gateways of the Envoy family.
func (a *App) envoyServer(tlsConfig *tls.Config) (*envoy.Server, error) {
	return envoy.New(envoy.Options{
		Decide: func(c *directive.Call) (directive.Decision, *envoy.Budget, error) {
			ring := a.keys.Load()
			key, _ := ring.Named(c.Key)
			d, t, err := a.loop.Decide(c, ring.Len() == 0 || key.AllowsAll())
			if err != nil || t == nil {
				return d, nil, err
			}
			const cent = schema.PicoPerUSD / 100
			return d, &envoy.Budget{Name: t.Guard, LimitCents: uint64(t.Limit / cent), LeftCents: uint64((max(1, t.Left)-1)/cent) + min(1, uint64(max(0, t.Left))), ResetIn: t.ResetIn, Window: t.Window}, nil
		},
		Charge: func(c directive.Call, u envoy.Usage, key string) error {
			return a.loop.Charge(c, enforce.Settlement{Tokens: u.Tokens, ResponseID: u.ResponseID}, schema.Money(u.CostPicoUSD), key)
		},
		Keys: a.keys.Load, TLS: tlsConfig, Logger: a.log, Registerer: a.reg,
	})
}

// journal reads the journal for backtests and verifications, hour by hour of the
// recording so that no statement holds more than that; nil while ClickHouse is not up.
func (a *App) journal(tenant string) (enforce.Journal, func() uint64) {
	conn := a.conn()
	if conn == nil {
		return nil, nil
	}
	read := func(ctx context.Context, from, to time.Time, chunk uint64, f func(*schema.Entry) error) error {
		const step = time.Hour
		forget := a.pipeline.Forgetting().Renaming() // counters have the pseudonym already
		end := earlier(to.Add(24*time.Hour), time.Now().Add(time.Minute))
		// Years before the first entry would be as many statements that find nothing.
		var oldest time.Time
		if err := conn.QueryRow(ctx, "SELECT min(recorded_at) FROM journal").Scan(&oldest); err != nil {
			return fmt.Errorf("read oldest entry: %w", err)
		}
		if oldest.Unix() == 0 {
			return nil // the journal is empty
		}
		at := from.Add(-10 * time.Minute)
		if at.Before(oldest) {
			at = oldest
		}
		for ; at.Before(end); at = at.Add(step) {
			where, args := "recorded_at >= ? AND recorded_at < ? AND started_at >= ? AND started_at < ?", []any{at.UTC(), earlier(at.Add(step), end).UTC(), from.UTC(), to.UTC()}
			if tenant != "" {
				where, args = where+" AND tenant = ?", append(args, tenant)
			}
			if chunk > 0 {
				where, args = where+" AND chunk <= ?", append(args, chunk)
			}
			if err := schema.EachPosted(ctx, conn, where, args, func(e schema.Entry) error {
				forget.Entry(&e)
				return f(&e)
			}); err != nil {
				return err
			}
		}
		return nil
	}
	return read, func() uint64 { return a.pipeline.Status().LastChunk }
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// watchLedger fills in the history of new guards and compares ledger and journal.
func (a *App) watchLedger() {
	warm, verify := time.NewTicker(2*time.Second), time.NewTicker(10*time.Minute)
	defer warm.Stop()
	defer verify.Stop()
	for {
		select {
		case <-a.ctx.Done():
			return
		case <-warm.C:
			if journal, confirmed := a.journal(""); journal != nil {
				if err := a.loop.Warm(a.ctx, journal, confirmed); err != nil && a.ctx.Err() == nil {
					a.log.Warn("guards stay warming for now", "err", err)
				}
			}
		case <-verify.C:
			if journal, confirmed := a.journal(""); journal != nil && a.pipeline.Status().Queued > 0 { // something is coming in
				ctx, cancel := context.WithTimeout(a.ctx, 5*time.Minute)
				if _, err := a.loop.Verify(ctx, journal, confirmed, time.Now().Add(-time.Hour)); err != nil && a.ctx.Err() == nil {
					a.log.Warn("ledger was not verified", "err", err)
				}
				cancel()
			}
		}
	}
}

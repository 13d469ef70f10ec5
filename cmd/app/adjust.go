package app

import (
	"context"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"regexp"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/gin-gonic/gin"

	"github.com/flyball/flyball/ingest"
	"github.com/flyball/flyball/schema"
)

// adjustment is what POST /adjust takes.
type adjustment struct {
	Tenant   string `json:"tenant"`
	ID       string `json:"id"`
	Amount   string `json:"amount"`
	Currency string `json:"currency"`
	At       string `json:"at"`
	Reason   string `json:"reason"`
	Provider string `json:"provider"`
	Model    string `json:"model"`

	User            string `json:"user"`
	Feature         string `json:"feature"`
	Workflow        string `json:"workflow"`
	WorkflowVersion string `json:"workflow_version"`
	Agent           string `json:"agent"`
	Environment     string `json:"environment"`
}

// adjusted is what it answers.
type adjusted struct {
	Tenant   string       `json:"tenant"`
	ID       string       `json:"id"`
	Already  bool         `json:"already"` // it was posted before
	TraceID  string       `json:"trace_id"`
	SpanID   string       `json:"span_id"`
	CostUSD  schema.Money `json:"cost_usd"`
	Amount   schema.Money `json:"amount"` // in Currency
	Currency string       `json:"currency"`
	At       time.Time    `json:"at"`
	Reason   string       `json:"reason"`
	By       string       `json:"by"`
}

// adjustWithin is how long an adjustment waits for the journal, in which it looks for its id.
const adjustWithin = 30 * time.Second

// adjust posts money that a person decided about.
func (a *App) adjust(c *gin.Context) {
	key, err := a.keys.Load().Require(c.Request)
	var denied schema.AccessError
	if errors.As(err, &denied) {
		problem(c, denied.Status, "%s", denied.Detail)
		return
	}
	var in adjustment
	if err := schema.ReadBody(c.Writer, c.Request, &in); err != nil {
		problem(c, http.StatusBadRequest, "%v; want {\"tenant\":\"t-1\",\"id\":\"credit-7\",\"amount\":\"-12.34\",\"at\":\"2026-11-30T12:00:00Z\",\"reason\":\"…\"}, optionally currency, provider, model, user, feature, workflow, workflow_version, agent, environment", err)
		return
	}
	adj, err := a.readAdjustment(&in, time.Now())
	if err != nil {
		problem(c, http.StatusBadRequest, "%v", err)
		return
	}
	if !key.Allows(adj.Tenant) {
		problem(c, http.StatusForbidden, "key %s may not act for tenant %s", key.Name, adj.Tenant)
		return
	}
	adj.Actor = key.Name
	key.Bound(&adj.Identity)
	conn := a.conn()
	if conn == nil {
		problem(c, http.StatusServiceUnavailable, "ClickHouse is not up yet, and the id is looked up there; see /readyz and send it again")
		return
	}
	ctx, cancel := context.WithTimeout(c.Request.Context(), adjustWithin)
	defer cancel()
	out, err := a.pipeline.Adjust(ctx, conn, adj)
	switch {
	case errors.Is(err, ingest.ErrAdjusted):
		problem(c, http.StatusConflict, "%s of tenant %s was posted with another amount, time, reason or dimension; see GET /api/v1/calls?trace_id=%s, and choose another id for another adjustment", adj.ID, adj.Tenant, out.Trace)
	case err != nil:
		a.log.Error("adjustment not posted", "id", adj.ID, "tenant", adj.Tenant, "err", err)
		problem(c, http.StatusServiceUnavailable, "not posted, or not known to be: %v; send it again with the id %s, which posts it once", err, adj.ID)
	default:
		if !out.Already {
			a.log.Info("adjustment posted", "id", adj.ID, "tenant", adj.Tenant, "by", key.Name, "usd", adj.Cost, "at", adj.At)
		}
		c.Header("Cache-Control", "no-store")
		c.JSON(http.StatusOK, adjusted{adj.Tenant, adj.ID, out.Already, out.Trace.String(), out.Span.String(), out.Cost, adj.Amount, adj.Currency, adj.At.UTC(), adj.Reason, adj.Actor})
	}
}

var currencyCode = regexp.MustCompile(`^[A-Z]{3}$`)

var adjustmentID = regexp.MustCompile(`^[A-Za-z0-9._:/-]{1,128}$`)

// readAdjustment checks what was sent; the error says what to send instead.
func (a *App) readAdjustment(in *adjustment, now time.Time) (ingest.Adjustment, error) {
	out := ingest.Adjustment{Tenant: in.Tenant, ID: in.ID, Currency: in.Currency, Reason: strings.TrimSpace(in.Reason), Provider: strings.ToLower(in.Provider), Model: in.Model}
	out.Identity[schema.User], out.Identity[schema.Feature], out.Identity[schema.Workflow] = in.User, in.Feature, in.Workflow
	out.Identity[schema.WorkflowVersion], out.Identity[schema.Agent], out.Identity[schema.Environment] = in.WorkflowVersion, in.Agent, in.Environment
	for name, v := range map[string]string{"tenant": in.Tenant, "provider": in.Provider, "model": in.Model, "user": in.User, "feature": in.Feature, "workflow": in.Workflow, "workflow_version": in.WorkflowVersion, "agent": in.Agent, "environment": in.Environment} {
		if !printable(v, 128) {
			return out, fmt.Errorf("%s %q: want at most 128 bytes of UTF-8 text without line breaks and other control characters", name, v)
		}
	}
	switch {
	case in.Tenant == "":
		return out, errors.New("tenant is missing: an adjustment belongs to one")
	case !adjustmentID.MatchString(in.ID):
		return out, fmt.Errorf("id %q: want 1 to 128 letters, digits and ._:/-, the same when it is sent again", in.ID)
	case out.Reason == "" || !printable(out.Reason, 512):
		return out, fmt.Errorf("reason %q: want why, in at most 512 bytes of text on one line; it is kept with the entry", in.Reason)
	case in.At == "":
		return out, errors.New("at is missing: want the instant that it counts at, e.g. 2026-11-30T12:00:00Z")
	}
	at, err := time.Parse(time.RFC3339Nano, in.At)
	if err != nil {
		day, derr := time.Parse(time.DateOnly, in.At)
		if derr != nil {
			return out, fmt.Errorf("at %q: want RFC 3339 or a date of the tenant's zone, e.g. 2026-11-30T12:00:00Z or 2026-11-30", in.At)
		}
		at = schema.StartOfDay(day, a.zone(in.Tenant))
	}
	if at.Year() < 2015 || at.After(now) {
		return out, fmt.Errorf("at %s: want an instant from 2015 on that has passed", in.At)
	}
	out.At = at
	if out.Currency == "" {
		out.Currency = "USD"
	}
	if !currencyCode.MatchString(out.Currency) {
		return out, fmt.Errorf("currency %q: want a code such as EUR, or none for USD", in.Currency)
	}
	if out.Amount, err = schema.ParseMoney(in.Amount); errors.Is(err, schema.ErrMoneyRange) {
		return out, fmt.Errorf("amount %s %s: one entry holds at most 9223372.036854775807 of a currency; book it in parts, each with an id of its own", in.Amount, out.Currency)
	} else if err != nil {
		return out, fmt.Errorf("amount: %w", err)
	}
	if out.Amount == 0 {
		return out, errors.New("amount is 0, which adjusts nothing")
	}
	if out.Cost = out.Amount; out.Currency != "USD" {
		y, m, d := at.In(a.zone(in.Tenant)).Date()
		day := time.Date(y, m, d, 0, 0, 0, 0, time.UTC)
		rate, ok := a.rates.Load().On(out.Currency, day)
		if !ok {
			return out, fmt.Errorf("no rate of %s on %s or before; add one to the files of fx.files, or give the amount in USD", out.Currency, day.Format(time.DateOnly))
		}
		cost := rate.ToUSD(big.NewInt(int64(out.Amount)))
		if !cost.IsInt64() || cost.Sign() == 0 {
			return out, fmt.Errorf("amount %s %s is %s USD at the rate %s; want one within ±9223372 USD that is not 0", in.Amount, out.Currency, new(big.Rat).SetFrac(cost, big.NewInt(schema.PicoPerUSD)).FloatString(12), rate)
		}
		out.Cost = schema.Money(cost.Int64())
	}
	if out.Model != "" && out.Provider == "" {
		if out.Provider = a.pricer.Catalogue().ProviderOf(out.Model); out.Provider == "" {
			return out, fmt.Errorf("no price names a provider of model %q; give provider too", out.Model)
		}
	}
	return out, nil
}

// printable reports whether a text is at most so long and has no control characters.
func printable(s string, most int) bool {
	return len(s) <= most && utf8.ValidString(s) && strings.IndexFunc(s, unicode.IsControl) < 0
}

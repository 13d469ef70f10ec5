package ingest

import (
	"sync/atomic"

	"github.com/flyball/flyball/ingest/price"
	"github.com/flyball/flyball/schema"
)

// Pricer lets trace assembly ask for prices. The catalogue may be replaced at
// any time; a call is priced by the one in force when it is evaluated.
type Pricer struct {
	cat atomic.Pointer[price.Catalogue]
}

// NewPricer starts with a catalogue.
func NewPricer(c *price.Catalogue) *Pricer {
	p := new(Pricer)
	p.cat.Store(c)
	return p
}

// Use replaces the catalogue.
func (p *Pricer) Use(c *price.Catalogue) { p.cat.Store(c) }

// Catalogue is the one in force.
func (p *Pricer) Catalogue() *price.Catalogue { return p.cat.Load() }

// Price fills the money of a posting.
func (p *Pricer) Price(c *schema.Call, t *schema.Tokens, usage schema.Usage, kind schema.Kind, out *schema.Posting) {
	q := price.Query{Tenant: c.Tenant, Provider: c.Provider, Model: c.Model, Requested: c.RequestedModel, Tier: c.ServiceTier, Start: c.Start, Kind: kind, Usage: usage, Part: c.Part > 0, Tokens: t, Units: &c.Units}
	r := p.cat.Load().Price(&q)
	out.Status, out.Cost, out.Exposure, out.Amount, out.Currency, out.PriceID = r.Status, r.Cost, r.Exposure, r.Amount, r.Currency, r.PriceID
	out.Flags |= r.Flags
}

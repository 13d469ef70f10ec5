package app

import (
	"github.com/flyball/flyball/ingest"
	"github.com/flyball/flyball/ingest/price"
	"github.com/flyball/flyball/query"
	"github.com/flyball/flyball/schema"
)

// unitPrices are those of the catalogue in force, for files that split a cost.
type unitPrices struct{ pricer *ingest.Pricer }

func (u unitPrices) Breaks() (inputTokens []uint64, minutes []int, byClock []string) {
	return u.pricer.Catalogue().Breaks()
}

func (u unitPrices) Eras() map[string][]int64 { return u.pricer.Catalogue().Eras() }

func (u unitPrices) UnitPrices(c query.PricedCall) ([]query.UnitPrice, bool) {
	q := price.Query{Tenant: c.Tenant, Provider: c.Provider, Model: c.Model, Tier: c.ServiceTier, Start: c.Start.UnixNano(), Kind: schema.KindModel, Usage: schema.UsageKnown,
		Tokens: &schema.Tokens{Input: c.InputTokens}, Units: &schema.Units{}}
	list, ok := u.pricer.Catalogue().UnitPrices(c.Line, &q)
	out := make([]query.UnitPrice, len(list))
	for i, p := range list {
		out[i] = query.UnitPrice{Component: p.Component, List: p.List, Contracted: p.Contracted}
	}
	return out, ok
}

// modelName is a model's name by the aliases and the prices in force.
func (a *App) modelName(tenant, provider, model string) (string, bool) {
	return a.pricer.Catalogue().NameOf(tenant, provider, model)
}

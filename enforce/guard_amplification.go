package enforce

import (
	"github.com/flyball/flyball/enforce/ledger"
	"github.com/flyball/flyball/schema"
)

// measureAmplification is attempts of model and tool calls a request. A run is one
// request, once it has a model call; wider scopes count the runs that have one.
var measureAmplification = &measure{
	name:   "amplification",
	perRun: true,
	ratio:  true,
	value: func(g *Guard, _ *ledger.Account, c *ledger.Counts) schema.Sum {
		if !g.family.PerRun {
			if c.ModelCalls <= 0 {
				return schema.Sum{}
			}
			return schema.SumOf(c.Calls() * 1000)
		}
		if c.Attempts < g.MinCalls {
			return schema.Sum{}
		}
		return thousandths(c.Attempts, c.Requests, 1)
	},
	parse: parseRatio,
	show:  func(s schema.Sum) string { return showRatio(s) + " calls a request" },
}

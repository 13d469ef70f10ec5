package enforce

import (
	"github.com/flyball/flyball/enforce/ledger"
	"github.com/flyball/flyball/schema"
)

// measureRetryRate is retries of every layer over logical calls.
var measureRetryRate = &measure{
	name:  "retry_rate",
	ratio: true,
	value: func(g *Guard, _ *ledger.Account, c *ledger.Counts) schema.Sum {
		return thousandths(c.Retries+c.Hidden, c.Logical(), g.MinCalls)
	},
	parse: parseRatio,
	show:  func(s schema.Sum) string { return showRatio(s) + " retries a call" },
}

// measureRateLimited is the part of attempts that providers refused for their rate
// limits.
var measureRateLimited = &measure{
	name:  "rate_limited_rate",
	ratio: true,
	value: func(g *Guard, _ *ledger.Account, c *ledger.Counts) schema.Sum {
		return thousandths(c.RateLimited, c.Calls()+c.Hidden, g.MinCalls)
	},
	parse: parseRatio,
	show:  func(s schema.Sum) string { return showRatio(s) + " of attempts rate limited" },
}

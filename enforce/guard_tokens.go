package enforce

import (
	"github.com/flyball/flyball/enforce/ledger"
	"github.com/flyball/flyball/schema"
)

// measureTokens is the whole input and output, cached input included.
var measureTokens = &measure{
	name:    "tokens",
	value:   func(_ *Guard, _ *ledger.Account, c *ledger.Counts) schema.Sum { return schema.SumOf(c.Tokens) },
	pending: func(p *ledger.Pending) schema.Sum { return schema.SumOf(p.Tokens) },
	parse:   parseCount,
	show:    func(s schema.Sum) string { return showCount(s) + " tokens" },
}

package enforce

import (
	"errors"
	"math/big"

	"github.com/flyball/flyball/enforce/ledger"
	"github.com/flyball/flyball/schema"
)

// measureCost is spend in USD. A call without a price counts with its own
// exposure, fixed when it was posted, unless the guard ignores those.
var measureCost = &measure{
	name: "cost",
	value: func(g *Guard, _ *ledger.Account, c *ledger.Counts) schema.Sum {
		if g.Unpriced == "ignore" {
			return c.Cost
		}
		return c.Exposure
	},
	pending: func(p *ledger.Pending) schema.Sum { return p.Exposure },
	parse: func(s string) (*big.Int, error) {
		m, err := schema.ParseMoney(s)
		if err != nil || m < 0 {
			return nil, errors.New("want USD such as \"2.50\"; \"0\" denies all, leave limit out for no limit")
		}
		return big.NewInt(int64(m)), nil
	},
	show: func(s schema.Sum) string { return "$" + s.String() },
}

package enforce

import (
	"errors"
	"math/big"
	"time"

	"github.com/flyball/flyball/enforce/ledger"
	"github.com/flyball/flyball/schema"
)

// measureDeadline is the time from a run's first call to the end of its latest.
var measureDeadline = &measure{
	name:    "deadline",
	runOnly: true,
	value: func(_ *Guard, a *ledger.Account, _ *ledger.Counts) schema.Sum {
		if a.First == 0 {
			return schema.Sum{}
		}
		return schema.SumOf(max(0, a.Latest-a.First))
	},
	parse: func(s string) (*big.Int, error) {
		d, err := time.ParseDuration(s)
		if err != nil || d < 0 {
			return nil, errors.New("want a duration such as \"10m\"")
		}
		return big.NewInt(int64(d)), nil
	},
	show: func(s schema.Sum) string {
		v, _ := s.Money()
		return shortDuration(time.Duration(v).Round(time.Millisecond))
	},
}

package enforce

import (
	"github.com/flyball/flyball/enforce/ledger"
	"github.com/flyball/flyball/schema"
)

// The measures that count: logical model and tool calls, tool attempts that change
// the outside world, retries of every layer, and attempts of all kinds.
var (
	measureModelCalls = &measure{
		name:    "model_calls",
		value:   func(_ *Guard, _ *ledger.Account, c *ledger.Counts) schema.Sum { return schema.SumOf(c.ModelCalls) },
		pending: func(p *ledger.Pending) schema.Sum { return schema.SumOf(p.ModelCalls) },
		parse:   parseCount,
		show:    func(s schema.Sum) string { return showCount(s) + " model calls" },
	}
	measureToolCalls = &measure{
		name:    "tool_calls",
		value:   func(_ *Guard, _ *ledger.Account, c *ledger.Counts) schema.Sum { return schema.SumOf(c.ToolCalls) },
		pending: func(p *ledger.Pending) schema.Sum { return schema.SumOf(p.ToolCalls) },
		parse:   parseCount,
		show:    func(s schema.Sum) string { return showCount(s) + " tool calls" },
	}
	// measureWrites counts tools of unknown effect not at all; the account shows them apart.
	measureWrites = &measure{
		name:  "external_writes",
		value: func(_ *Guard, _ *ledger.Account, c *ledger.Counts) schema.Sum { return schema.SumOf(c.Writes) },
		parse: parseCount,
		show:  func(s schema.Sum) string { return showCount(s) + " external writes" },
	}
	measureRetries = &measure{
		name: "retries",
		value: func(_ *Guard, _ *ledger.Account, c *ledger.Counts) schema.Sum {
			return schema.SumOf(c.Retries + c.Hidden)
		},
		parse: parseCount,
		show:  func(s schema.Sum) string { return showCount(s) + " retries" },
	}
	measureCalls = &measure{
		name:    "calls",
		value:   func(_ *Guard, _ *ledger.Account, c *ledger.Counts) schema.Sum { return schema.SumOf(c.Calls()) },
		pending: func(p *ledger.Pending) schema.Sum { return schema.SumOf(p.ModelCalls + p.ToolCalls) },
		parse:   parseCount,
		show:    func(s schema.Sum) string { return showCount(s) + " calls" },
	}
)

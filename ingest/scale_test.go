package ingest

import (
	"testing"
	"time"

	"github.com/flyball/flyball/schema"
)

// A run of a hundred thousand spans, in whatever shape, must not make each span
// cost more than the one before.
func TestHugeTracesStayLinear(t *testing.T) {
	const n = 50_000
	call := func(i, parent int, kind schema.Kind) schema.Call {
		c := schema.Call{Tenant: "t", Trace: schema.TraceID{1}, Start: int64(i+1) * 1e9, Duration: 5e8, Kind: kind, Name: "x", Provider: "openai", Model: "gpt-5", RequestedModel: "gpt-5", Usage: schema.UsageKnown, Tokens: schema.Tokens{Input: uint64(i), Output: 1}}
		id := func(n int) (s schema.SpanID) {
			if n >= 0 {
				s = schema.SpanID{byte(n >> 16), byte(n >> 8), byte(n), 1}
			}
			return s
		}
		c.Span, c.Parent = id(i), id(parent)
		if kind == schema.KindTool {
			c.Usage, c.Tokens, c.Tool, c.ArgsHash = schema.UsageNone, schema.Tokens{}, "t", 7
			if i%10 == 0 {
				c.Failure = schema.ToolError
			}
		}
		return c
	}
	shapes := map[string]func(i int) schema.Call{
		"flat":           func(i int) schema.Call { return call(i, n, schema.KindModel) },
		"same tool":      func(i int) schema.Call { return call(i, n, schema.KindTool) },
		"chain outwards": func(i int) schema.Call { return call(n-i, n-i-1, schema.KindAgent) },
		"chain inwards":  func(i int) schema.Call { return call(i, i-1, schema.KindAgent) },
		"chain of tools": func(i int) schema.Call { return call(n-i, n-i-1, schema.KindTool) },
	}
	for name, shape := range shapes {
		b := newBench(t)
		b.quiet = true
		var first, last time.Duration
		for at := 0; at < n; at += 500 {
			batch := make([]schema.Call, 500)
			for k := range batch {
				batch[k] = shape(at + k)
			}
			start := time.Now()
			b.calls(batch)
			d := time.Since(start)
			if at < n/5 {
				first += d
			}
			if at >= n*4/5 {
				last += d
			}
		}
		t.Logf("%-15s first fifth %v, last fifth %v", name, first, last)
		if last > 20*first+2*time.Second {
			t.Fatalf("%s: the first fifth took %v, the last %v", name, first, last)
		}
	}
}

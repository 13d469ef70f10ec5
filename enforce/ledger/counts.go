package ledger

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/flyball/flyball/schema"
)

// Counts are signed sums over the entries of an account.
type Counts struct {
	Exposure schema.Sum // what a guard counts: the cost, or the ceiling of what has none
	Cost     schema.Sum // known costs alone

	Tokens      int64 // whole input and output
	ModelCalls  int64 // logical
	ToolCalls   int64 // logical
	Writes      int64 // tool attempts that change the outside world
	Unclear     int64 // tool attempts of unknown effect
	Retries     int64 // with a span of their own
	Hidden      int64 // attempts without one
	Fallbacks   int64
	Hedges      int64
	RateLimited int64 // attempts that a provider refused for its rate limit
	Unpriced    int64 // calls without a price or of unknown usage
	Requests    int64 // runs that have a model call; of families that count them
	Attempts    int64 // of those runs
	Output      int64 // tokens of the output, part of Tokens
	CacheRead   int64 // tokens read from a cache, part of Tokens
}

// fields are the integers in the order of the binary form: append only.
func (c *Counts) fields() [15]*int64 {
	return [15]*int64{&c.Tokens, &c.ModelCalls, &c.ToolCalls, &c.Writes, &c.Unclear, &c.Retries, &c.Hidden, &c.Fallbacks, &c.Hedges, &c.RateLimited, &c.Unpriced, &c.Requests, &c.Attempts, &c.Output, &c.CacheRead}
}

// Calls are attempts at model and tool calls that have a span.
func (c *Counts) Calls() int64 {
	return c.ModelCalls + c.ToolCalls + c.Retries + c.Fallbacks + c.Hedges
}

// Logical are the intended calls.
func (c *Counts) Logical() int64 { return c.ModelCalls + c.ToolCalls }

// add adds what an entry counts, sign times.
func (c *Counts) add(e *schema.Entry, sign int8) {
	p := &e.Posting
	c.Exposure.Add(p.Exposure, sign)
	if p.Billed() {
		c.Cost.Add(p.Cost, sign)
	}
	s := int64(sign)
	c.Tokens += s * int64(p.Tokens.TotalInput()+p.Tokens.TotalOutput())
	c.Output += s * int64(p.Tokens.TotalOutput())
	c.CacheRead += s * int64(p.Tokens.CacheRead)
	c.ModelCalls += s * int64(p.ModelCalls)
	c.ToolCalls += s * int64(p.ToolCalls)
	c.Retries += s * int64(p.Retries)
	c.Hidden += s * int64(p.Hidden)
	c.Fallbacks += s * int64(p.Fallbacks)
	c.Hedges += s * int64(p.Hedges)
	attempts := int64(p.ModelCalls) + int64(p.ToolCalls) + int64(p.Retries) + int64(p.Fallbacks) + int64(p.Hedges)
	if attempts > 0 {
		if p.Kind == schema.KindTool {
			switch e.Effect {
			case schema.EffectWrite:
				c.Writes += s * attempts
			case schema.EffectUnknown:
				c.Unclear += s * attempts
			}
		}
		if e.Failure == schema.RateLimited {
			c.RateLimited += s * attempts
		}
	}
	if p.HiddenCause == schema.RateLimited {
		c.RateLimited += s * int64(p.Hidden)
	}
	if p.Status == schema.CostUnpriced || p.Status == schema.CostUnknown {
		c.Unpriced += s
	}
}

// plus adds another set of counts.
func (c *Counts) plus(o *Counts) {
	c.Exposure, c.Cost = c.Exposure.Plus(o.Exposure), c.Cost.Plus(o.Cost)
	c.Tokens += o.Tokens
	c.ModelCalls += o.ModelCalls
	c.ToolCalls += o.ToolCalls
	c.Writes += o.Writes
	c.Unclear += o.Unclear
	c.Retries += o.Retries
	c.Hidden += o.Hidden
	c.Fallbacks += o.Fallbacks
	c.Hedges += o.Hedges
	c.RateLimited += o.RateLimited
	c.Unpriced += o.Unpriced
	c.Requests += o.Requests
	c.Attempts += o.Attempts
	c.Output += o.Output
	c.CacheRead += o.CacheRead
}

// minus takes another set of counts away.
func (c *Counts) minus(o *Counts) {
	n := *o
	n.Exposure, n.Cost = o.Exposure.Neg(), o.Cost.Neg()
	for _, f := range n.fields() {
		*f = -*f
	}
	c.plus(&n)
}

// String lists what is not zero, for messages; "" is nothing at all.
func (c Counts) String() string {
	var b strings.Builder
	if c.Exposure != (schema.Sum{}) || c.Cost != (schema.Sum{}) {
		fmt.Fprintf(&b, "exposure %s cost %s", c.Exposure, c.Cost)
	}
	for i, f := range c.fields() {
		if *f != 0 {
			fmt.Fprintf(&b, " %d:%d", i, *f)
		}
	}
	return b.String()
}

func appendSum(b []byte, s schema.Sum) []byte {
	hi, lo := s.Words()
	b = binary.AppendVarint(b, int64(hi))
	return binary.AppendUvarint(b, lo)
}

func (c *Counts) append(b []byte) []byte {
	b = appendSum(appendSum(b, c.Exposure), c.Cost)
	for _, f := range c.fields() {
		b = binary.AppendVarint(b, *f)
	}
	return b
}

// reader decodes what the appenders wrote; bad sticks.
type reader struct {
	b   []byte
	bad bool
}

var errForm = errors.New("the local store holds an account that cannot be read")

func (r *reader) varint() int64 {
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) sum() schema.Sum {
	hi := r.varint()
	return schema.SumFromWords(uint64(hi), r.uvarint())
}

func (r *reader) string() string {
	n := r.uvarint()
	if n > uint64(len(r.b)) {
		r.bad, r.b = true, nil
		return ""
	}
	s := string(r.b[:n])
	r.b = r.b[n:]
	return s
}

func (r *reader) counts() (c Counts) {
	c.Exposure, c.Cost = r.sum(), r.sum()
	for _, f := range c.fields() {
		*f = r.varint()
	}
	return c
}

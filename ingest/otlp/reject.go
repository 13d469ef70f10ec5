package otlp

import (
	"fmt"
	"strings"
)

// reason is why an item was rejected; its name is a metric label.
type reason int

const (
	reasonTraceIDZero reason = iota
	reasonSpanIDZero
	reasonTraceID
	reasonSpanID
	reasonParentID
	reasonNested
	reasonContainer
	reasonUndecodable
	reasonCount
)

// String is the reason's metric label.
func (w reason) String() string {
	return [...]string{"trace_id_zero", "span_id_zero", "trace_id_malformed", "span_id_malformed", "parent_span_id_malformed",
		"nested_too_deep", "resource_or_scope_undecodable", "undecodable"}[w]
}

// words is the reason in the sender's log.
func (w reason) words() string {
	return [...]string{
		"trace id is all zero or missing",
		"span id is all zero or missing",
		"trace id is not 16 bytes (JSON: 32 hex digits)",
		"span id is not 8 bytes (JSON: 16 hex digits)",
		"parent span id is not 8 bytes (JSON: 16 hex digits)",
		"attribute is nested too deeply",
		"resource or scope cannot be decoded",
		"cannot be decoded"}[w]
}

// rejects counts rejected items by reason and remembers the first of each.
type rejects struct {
	n      [reasonCount]int64
	first  [reasonCount]int64 // position in the request, from 1
	detail [reasonCount]string
}

// add counts one item; position is its place in the request, from 1, and detail the decoder's words, if any.
func (r *rejects) add(why reason, position int64, detail string) {
	if r.n[why] == 0 {
		r.first[why] = position
		r.detail[why] = detail
	}
	r.n[why]++
}

func (r *rejects) total() int64 {
	var sum int64
	for _, n := range r.n {
		sum += n
	}
	return sum
}

// text spells the rejections for the sender's log. It is bounded: one clause a reason.
func (r *rejects) text(sig signal) string {
	noun := [...]string{"span", "log record", "metric"}[sig]
	var b strings.Builder
	for i, n := range r.n {
		if n == 0 {
			continue
		}
		if b.Len() > 0 {
			b.WriteString("; ")
		}
		plural := ""
		if n > 1 {
			plural = "s"
		}
		fmt.Fprintf(&b, "%d %s%s rejected: %s (first: number %d of the request", n, noun, plural, reason(i).words(), r.first[i])
		if d := r.detail[i]; d != "" {
			b.WriteString(": " + strings.ToValidUTF8(truncate(d, 200), ""))
		}
		b.WriteByte(')')
	}
	return b.String()
}

// truncate cuts s to at most n bytes; it may cut a rune, which ToValidUTF8 removes.
func truncate(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return s[:n]
}

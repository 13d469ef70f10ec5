package dialect

import (
	"crypto/sha256"
	"encoding/binary"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/flyball/flyball/schema"
)

// AppendLogs appends the Calls that log events of agent command lines stand for
// (Claude Code, Codex, Gemini CLI) and returns how many records were no such
// event. Events have no span id of their own, so one is derived from what the
// event says; the n-th of several identical events in one request gets its own.
func (r *Reader) AppendLogs(dst []schema.Call, ld plog.Logs, from Origin, received int64) (calls []schema.Call, ignored int64, rejected Rejected) {
	rec := r.scratch.Get().(*record)
	defer r.scratch.Put(rec)
	rec.reader, rec.isLog, rec.rawUsage = r, true, ""
	rec.kind, rec.status, rec.message, rec.events = ptrace.SpanKindUnspecified, ptrace.StatusCodeUnset, "", rec.events[:0]
	seen := map[[16]byte]uint32{}
	for i := range ld.ResourceLogs().Len() {
		rl := ld.ResourceLogs().At(i)
		r.load(&rec.res, rl.Resource().Attributes(), nil)
		for j := range rl.ScopeLogs().Len() {
			sl := rl.ScopeLogs().At(j)
			rec.setScope(sl.Scope().Name(), sl.Scope().Version())
			for k := range sl.LogRecords().Len() {
				lr := sl.LogRecords().At(k)
				r.load(&rec.fields, lr.Attributes(), nil)
				rec.truncated = false
				var c schema.Call
				if !rec.event(&c, lr) {
					ignored++
					continue
				}
				tenant, ok := rec.tenant(from)
				if !ok {
					if rejected == nil {
						rejected = Rejected{}
					}
					rejected["tenant not allowed by the key"]++
					continue
				}
				c.Tenant = tenant
				if from.Trusted {
					c.Role |= schema.RoleTrustedGateway
				}
				at := int64(lr.Timestamp())
				if at == 0 {
					at = int64(lr.ObservedTimestamp())
				}
				dur := int64(0)
				if n, st := countOf(rec, kDurationMS); st == countOK {
					dur = int64(n) * 1_000_000
				}
				var odd schema.Flags
				c.Start, c.Duration, odd = times(at-dur, at, received)
				c.Flags |= odd
				rec.eventIDs(&c, lr, seen)
				own := len(dst)
				dst = rec.readEvent(append(dst, c))
				from.bind(dst[own:])
			}
		}
	}
	return dst, ignored, rejected
}

// event decides whether a log record stands for a call.
func (rec *record) event(c *schema.Call, lr plog.LogRecord) bool {
	// The attribute may leave out whose event it is; the record's own name and body do not.
	name := rec.str(kEventName)
	if own := lr.EventName(); name == "" || !strings.Contains(name, ".") && strings.HasSuffix(own, "."+name) {
		name = own
	}
	if body := lr.Body(); body.Type() == pcommon.ValueTypeStr && (name == "" || !strings.Contains(name, ".") && strings.HasPrefix(body.Str(), "claude_code.")) {
		name = body.Str()
	}
	if !strings.Contains(name, ".") && strings.HasPrefix(rec.scope, "com.anthropic.claude_code") {
		name = "claude_code." + name
	}
	c.Source = schema.SourceLog
	c.Operation = "chat"
	switch name {
	case "claude_code.api_request":
		c.Kind, c.Provider, c.Flags = schema.KindModel, "anthropic", schema.FlagNotional
	case "claude_code.api_error":
		c.Kind, c.Provider, c.Failure = schema.KindModel, "anthropic", schema.UnknownFailure
	case "codex.sse_event":
		// The end of the stream and its counts are two events of the same name.
		if rec.str(kEventKind) != "response.completed" || !rec.hasAny(kCodexInput, kCodexOutput) {
			return false
		}
		c.Kind, c.Provider = schema.KindModel, "openai"
	case "codex.api_request":
		// An attempt. Of one that succeeded the event of its response tells; one without an answer has no status.
		if n, st := countOf(rec, kHTTPStatus); st == countOK && n < 400 {
			return false
		}
		c.Kind, c.Provider, c.Failure = schema.KindModel, "openai", schema.UnknownFailure
	case "gemini_cli.api_response":
		c.Kind, c.Provider = schema.KindModel, "google"
	case "gemini_cli.api_error":
		c.Kind, c.Provider, c.Failure = schema.KindModel, "google", schema.UnknownFailure
	case "claude_code.tool_result", "codex.tool_result", "gemini_cli.tool_call":
		c.Kind, c.Operation = schema.KindTool, "execute_tool"
	default:
		return false
	}
	rec.name = name
	return true
}

func (rec *record) eventIDs(c *schema.Call, lr plog.LogRecord, seen map[[16]byte]uint32) {
	session := rec.first(runKeys)
	if session == "" {
		session = rec.first(dimKeys[schema.Session])
	}
	c.Trace, c.Parent = schema.TraceID(lr.TraceID()), schema.SpanID(lr.SpanID())
	if strings.HasPrefix(rec.name, "gemini_cli.") {
		// It has a trace for each call, in which errors lie and answers do not.
		c.Trace, c.Parent = schema.TraceID{}, schema.SpanID{}
	}
	if c.Trace == (schema.TraceID{}) {
		h := sha256.Sum256([]byte("trace\x00" + c.Tenant + "\x00" + rec.scope + "\x00" + session))
		copy(c.Trace[:], h[:])
	}
	h := sha256.New()
	h.Write([]byte(rec.name + "\x00" + session + "\x00"))
	at := lr.Timestamp()
	if at == 0 { // some SDKs set only when they saw the event
		at = lr.ObservedTimestamp()
	}
	var t [8]byte
	binary.BigEndian.PutUint64(t[:], uint64(at))
	h.Write(t[:])
	h.Write(c.Parent[:])
	for name, v := range lr.Attributes().All() {
		h.Write([]byte(name + "\x00" + v.AsString() + "\x00"))
	}
	var sum [16]byte
	copy(sum[:], h.Sum(nil))
	n := seen[sum]
	seen[sum] = n + 1
	binary.BigEndian.PutUint32(t[:4], n)
	h.Write(t[:4])
	copy(c.Span[:], h.Sum(nil))
}

// readEvent fills the last Call of dst, whose kind and failure are known.
func (rec *record) readEvent(dst []schema.Call) []schema.Call {
	own := len(dst) - 1
	c := &dst[own]
	c.Name = cut(rec.name, 128)
	c.Scope = rec.scopeID
	rec.identity(c)
	kept := c.Failure
	rec.failure(c)
	if c.Failure == schema.NoFailure {
		c.Failure = kept
	}
	rec.attempts(c)
	if c.Kind == schema.KindTool {
		rec.tool(c)
		rec.markTruncated(dst[own:])
		return dst
	}
	p := c.Provider
	if rec.model(c); c.Provider != "bedrock" {
		c.Provider = p
	}
	dst = rec.usage(dst)
	rec.markTruncated(dst[own:])
	return dst
}

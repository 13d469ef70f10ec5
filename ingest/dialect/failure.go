package dialect

import (
	"strings"

	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/flyball/flyball/schema"
)

// failure classifies why a record failed. Texts are looked at and dropped.
func (rec *record) failure(c *schema.Call) {
	for _, k := range [...]key{kHTTPStatus, kHTTPStatusOld, kStatusCode} {
		if n, st := countOf(rec, k); st == countOK && n >= 100 && n < 600 {
			c.HTTPStatus = uint16(n)
			break
		}
	}
	errType := rec.first(errorKeys)
	if !named(errType) || strings.EqualFold(errType, "none") { // some set it on every span
		errType = ""
	}
	rpc := rec.rpcFailure()
	failed := rec.status == ptrace.StatusCodeError || errType != "" || c.HTTPStatus >= 400 || rec.str(kLangfuseLevel) == "ERROR" || rpc != schema.NoFailure || rec.toolFailed(c)
	exception := ""
	for i := range rec.events {
		if e := &rec.events[i]; e.name == "exception" || e.name == "gen_ai.client.operation.exception" {
			exception = e.exType
			if e.exMessage != "" {
				exception += " " + e.exMessage
			}
		}
	}
	if !failed {
		// content_filter and error are outcomes, not errors, to most emitters.
		switch finish := strings.Trim(strings.ToLower(rec.first([]key{kFinishReasons, kFinishReason, kAIFinish})), `[]"`); {
		case strings.Contains(finish, "content_filter"), strings.Contains(finish, "content-filter"), strings.Contains(finish, "refusal"), strings.HasPrefix(finish, "blocked_"), finish == "safety":
			c.Failure = schema.Refused
		case finish == "error":
			c.Failure = schema.UnknownFailure
		}
		return
	}
	// An aggregate's successful attempt can be marked failed by exporters that
	// copy a trace's error to every span; usage beats the mark for model calls.
	texts := [...]string{errType, rec.message, exception}
	for _, text := range texts {
		if ownRefusal(text) { // an SDK's name for a 403 says less, and stands before it
			c.Failure = schema.Budget
			return
		}
	}
	for _, text := range texts {
		f := classifyText(text, c.HTTPStatus)
		if f == schema.NoFailure || f == schema.UnknownFailure && c.Failure != schema.NoFailure {
			continue
		}
		if c.Failure = f; f != schema.UnknownFailure { // a text that names no cause does not hide one that does
			break
		}
	}
	if c.Failure == schema.NoFailure || c.Failure == schema.UnknownFailure || c.Failure == schema.ClientError {
		if f := classifyStatus(c.HTTPStatus); f != schema.NoFailure && c.Failure != schema.ClientError {
			c.Failure = f
		}
	}
	if c.Failure == schema.NoFailure || c.Failure == schema.UnknownFailure {
		if c.Failure = rpc; rpc == schema.NoFailure {
			c.Failure = schema.UnknownFailure
		}
	}
	if c.Failure == schema.UnknownFailure && c.Kind == schema.KindTool {
		c.Failure = schema.ToolError
	}
}

// rpcFailure reads the status of gRPC, a number or its name. JSON-RPC's codes, which MCP puts
// into the same attribute, are negative and say nothing that is looked at.
func (rec *record) rpcFailure() schema.Failure {
	s := rec.str(kGRPCStatus)
	if s == "" {
		if s = rec.str(kRPCStatus); s == "" {
			return schema.NoFailure
		}
	}
	switch strings.ToUpper(s) {
	case "0", "OK":
		return schema.NoFailure
	case "1", "CANCELLED":
		return schema.Cancelled
	case "4", "DEADLINE_EXCEEDED":
		return schema.Timeout
	case "8", "RESOURCE_EXHAUSTED":
		return schema.RateLimited
	case "14", "UNAVAILABLE":
		return schema.Overloaded
	case "13", "INTERNAL", "15", "DATA_LOSS":
		return schema.ServerError
	case "3", "INVALID_ARGUMENT", "5", "NOT_FOUND", "6", "ALREADY_EXISTS", "7", "PERMISSION_DENIED", "9", "FAILED_PRECONDITION", "11", "OUT_OF_RANGE", "12", "UNIMPLEMENTED", "16", "UNAUTHENTICATED":
		return schema.ClientError
	case "2", "UNKNOWN", "10", "ABORTED":
		return schema.UnknownFailure
	}
	return schema.NoFailure
}

// toolFailed reports whether a tool said that it failed where the span did not: an MCP result
// with isError, which is an answer like any other to the protocol, or success=false.
func (rec *record) toolFailed(c *schema.Call) bool {
	if c.Kind != schema.KindTool {
		return false
	}
	if strings.EqualFold(rec.str(kSuccess), "false") {
		return true
	}
	for _, k := range resultKeys {
		if !rec.has(k) {
			continue
		}
		v := &rec.val[k]
		if (v.t == valueText || v.t == valueOther) && (strings.Contains(v.s, `"isError"`) || strings.Contains(v.s, `"is_error"`)) {
			b := parseBlob(v.s)
			return b.Get("isError").Bool() || b.Get("is_error").Bool()
		}
		break
	}
	return false
}

// ownRefusals are the types of the answers by which limiters and gateways refuse a
// call for a guard, the kill switch or a set that they do not have.
var ownRefusals = [...]string{"urn:flyball:problem:budget", "urn:flyball:problem:stopped", "urn:flyball:problem:kill", "urn:flyball:problem:governor", "flyball_budget", "flyball_kill", "flyball_governor"}

// ownRefusal reports whether a text quotes one of them.
func ownRefusal(s string) bool {
	for _, t := range ownRefusals {
		if strings.Contains(s, t) {
			return true
		}
	}
	return false
}

func classifyStatus(code uint16) schema.Failure {
	switch {
	case code == 429:
		return schema.RateLimited
	case code == 503, code == 529:
		return schema.Overloaded
	case code == 408, code == 504:
		return schema.Timeout
	case code == 499:
		return schema.Cancelled
	case code >= 500:
		return schema.ServerError
	case code >= 400:
		return schema.ClientError
	}
	return schema.NoFailure
}

// classifyText knows error types, exception classes, provider codes and the
// phrases of client libraries.
func classifyText(s string, status uint16) schema.Failure {
	if s == "" {
		return schema.NoFailure
	}
	t := strings.ToLower(s)
	if len(t) > 2000 {
		t = t[:2000]
	}
	has := func(words ...string) bool { return containsAny(t, words...) }
	switch t {
	case "_other", "error", "exception":
		return schema.NoFailure
	case "400", "401", "403", "404", "409", "410", "413", "415", "422":
		return schema.ClientError
	case "408", "504":
		return schema.Timeout
	case "500", "502":
		return schema.ServerError
	}
	switch {
	case has("budget_exceeded", "budget exceeded"):
		return schema.Budget
	// Quota codes of business APIs arrive as 403 or 400.
	case has("429", "rate limit", "rate_limit", "ratelimit", "resource_exhausted", "throttl", "too many requests", "toomanyrequests", "request_limit_exceeded", "tenant_limits", "policy_violation_rate", "quota exceeded", "quotaexceeded", "quota_exceeded", "insufficient_quota", "resourceexhausted", "resource exhausted"):
		return schema.RateLimited
	case has("529", "overloaded", "503", "unavailable", "modelnotready"):
		return schema.Overloaded
	case has("timeout", "timed out", "timedout", "deadline", "etimedout"):
		return schema.Timeout
	case has("contextwindow", "context_window", "context window", "context_length", "contextlength", "maximum context"):
		return schema.ClientError
	case has("econnaborted", "connectionaborted", "connection aborted"): // the network's word, not the caller's
		return schema.UnknownFailure
	case has("cancel", "abort"):
		return schema.Cancelled
	case has("content_filter", "content filter", "contentfilter", "content_policy", "contentpolicy", "safety", "refus"):
		return schema.Refused
	case has("internalservererror", "internal server error", "server_error", "internal_error", "apierror_500", "bad gateway", " 500", " 502", "modelstreamerror", "status code 5", "statuscode: 5", "internal_server"):
		return schema.ServerError
	case has("enotfound", "getaddrinfo"): // a name without an address: nobody was asked
		return schema.UnknownFailure
	case has("badrequest", "bad_request", "invalid_request", "authentication", "permission", "notfound", "not_found", "unauthorized", "forbidden", "unprocessable", "invalid_api_key"):
		return schema.ClientError
	}
	return schema.UnknownFailure
}

// attempts reads attempt counters that stand for attempts without a span.
func (rec *record) attempts(c *schema.Call) {
	put := func(n uint64) {
		if n < 10_000 {
			c.Hidden = max(c.Hidden, uint32(n))
		}
	}
	// These number the attempt, wherever the others are.
	if n, st := countOf(rec, kRetryAttempt); st == countOK {
		put(n)
	}
	if n, st := countOf(rec, kAttempt); st == countOK && n > 0 {
		put(n - 1) // 1-based
	}
	if n, st := countOf(rec, kFallbackBifrost); st == countOK {
		put(n) // the models that a gateway asked before this one
	}
	numbered := c.Hidden
	c.Hidden = 0
	// These count attempts that were made within it.
	for _, k := range [...]key{kResendCount, kStainlessRetry, kStainlessRetryPy, kRetriesBifrost} {
		if n, st := countOf(rec, k); st == countOK {
			put(n)
		}
	}
	var retries uint64
	for i := range rec.events {
		switch e := &rec.events[i]; e.name {
		case "retry", "gen_ai.retry":
			retries++
			if n, st := count(e.retry); st == countOK {
				put(n)
			}
		case "gen_ai.request.attempt":
			if n, st := count(e.attempt); st == countOK && n > 0 {
				put(n - 1)
			}
		}
	}
	put(retries)
	if numbered > c.Hidden {
		c.Hidden = numbered
		c.Role |= schema.RoleNumbered
	}
	if n, st := countOf(rec, kTurns); st == countOK && n < 100_000 {
		c.Turns = uint32(n)
	}
	for _, k := range [...]key{kDeliveryPubSub, kDeliveryAttempt, kDeliveryServiceBus} {
		if n, st := countOf(rec, k); st == countOK && n < 1000 {
			c.Delivery = uint32(n)
		}
	}
	if n, st := countOf(rec, kCeleryRetries); st == countOK && n < 1000 {
		c.Delivery = uint32(n) + 1
	}
	if rec.has(kDeliveryRabbit) && rec.val[kDeliveryRabbit].t == valueBool && rec.val[kDeliveryRabbit].n != 0 {
		c.Delivery = max(c.Delivery, 2)
	}
}

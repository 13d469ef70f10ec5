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
	failed := rec.status == ptrace.StatusCodeError || errType != "" || c.HTTPStatus >= 400 || rec.str(kLangfuseLevel) == "ERROR"
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
		switch finish := strings.ToLower(rec.first([]key{kFinishReasons, kFinishReason, kAIFinish})); {
		case strings.Contains(finish, "content_filter"), strings.Contains(finish, "content-filter"), strings.HasPrefix(finish, "blocked_"), finish == "safety":
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
		if f := classifyText(text, c.HTTPStatus); f != schema.NoFailure {
			c.Failure = f
			break
		}
	}
	if c.Failure == schema.NoFailure || c.Failure == schema.UnknownFailure || c.Failure == schema.ClientError {
		if f := classifyStatus(c.HTTPStatus); f != schema.NoFailure && c.Failure != schema.ClientError {
			c.Failure = f
		}
	}
	if c.Failure == schema.NoFailure {
		c.Failure = schema.UnknownFailure
	}
	if c.Failure == schema.UnknownFailure && c.Kind == schema.KindTool {
		c.Failure = schema.ToolError
	}
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
	has := func(words ...string) bool {
		for _, w := range words {
			if strings.Contains(t, w) {
				return true
			}
		}
		return false
	}
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
	case has("429", "rate limit", "rate_limit", "ratelimit", "resource_exhausted", "throttl", "too many requests", "toomanyrequests", "request_limit_exceeded", "tenant_limits", "policy_violation_rate", "quota exceeded", "quotaexceeded"):
		return schema.RateLimited
	case has("529", "overloaded", "503", "unavailable"):
		return schema.Overloaded
	case has("timeout", "timed out", "timedout", "deadline", "etimedout"):
		return schema.Timeout
	case has("cancel", "abort"):
		return schema.Cancelled
	case has("content_filter", "content filter", "contentfilter", "content_policy", "safety", "refus"):
		return schema.Refused
	case has("internalservererror", "internal server error", "server_error", "internal_error", "apierror_500", "bad gateway", " 500", " 502", "status code 5", "statuscode: 5", "internal_server"):
		return schema.ServerError
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
	for _, k := range [...]key{kResendCount, kStainlessRetry, kStainlessRetryPy, kRetryAttempt, kRetriesBifrost} {
		if n, st := countOf(rec, k); st == countOK {
			put(n)
		}
	}
	if n, st := countOf(rec, kAttempt); st == countOK && n > 0 {
		put(n - 1) // 1-based
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
	if n, st := countOf(rec, kTurns); st == countOK && n < 100_000 {
		c.Turns = uint32(n)
	}
	for _, k := range [...]key{kDeliveryPubSub, kDeliveryAttempt} {
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

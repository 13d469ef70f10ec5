package limiter

import (
	"context"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Headroom is what is left of a provider's rate limit.
type Headroom struct {
	Provider  string    `json:"provider"`
	Model     string    `json:"model,omitempty"`
	Dimension string    `json:"dimension"`
	Limit     float64   `json:"limit"`
	Remaining float64   `json:"remaining"`
	ResetAt   time.Time `json:"reset_at,omitzero"`
}

// limitHeaders is where a provider says what is left of one of its limits. reset is a
// duration ("6m0s", "1s", "200ms", seconds), an instant (RFC 3339), or unix seconds or
// milliseconds.
type limitHeaders struct{ dimension, limit, remaining, reset string }

// headerTable is by provider what its documentation names; "" is tried for all.
var headerTable = map[string][]limitHeaders{
	"openai": {
		{"requests", "x-ratelimit-limit-requests", "x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"},
		{"tokens", "x-ratelimit-limit-tokens", "x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"},
	},
	"anthropic": {
		{"requests", "anthropic-ratelimit-requests-limit", "anthropic-ratelimit-requests-remaining", "anthropic-ratelimit-requests-reset"},
		{"tokens", "anthropic-ratelimit-tokens-limit", "anthropic-ratelimit-tokens-remaining", "anthropic-ratelimit-tokens-reset"},
		{"input_tokens", "anthropic-ratelimit-input-tokens-limit", "anthropic-ratelimit-input-tokens-remaining", "anthropic-ratelimit-input-tokens-reset"},
		{"output_tokens", "anthropic-ratelimit-output-tokens-limit", "anthropic-ratelimit-output-tokens-remaining", "anthropic-ratelimit-output-tokens-reset"},
	},
	"hubspot": {
		{"requests", "x-hubspot-ratelimit-max", "x-hubspot-ratelimit-remaining", ""},
		{"requests_day", "x-hubspot-ratelimit-daily", "x-hubspot-ratelimit-daily-remaining", ""},
	},
	"": {
		{"requests", "x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"}, // Jira, GitHub and many others
		{"requests", "ratelimit-limit", "ratelimit-remaining", "ratelimit-reset"},
	},
}

func init() {
	for _, like := range []string{"azure", "groq", "together", "fireworks", "mistral", "openrouter"} {
		headerTable[like] = headerTable["openai"]
	}
}

// exhausted are bodies by which providers say with another status than 429 that a
// limit is used up.
var exhausted = map[string][]struct {
	status int
	code   string
}{
	"salesforce": {{http.StatusForbidden, "REQUEST_LIMIT_EXCEEDED"}},
	"google":     {{http.StatusForbidden, "rateLimitExceeded"}, {http.StatusForbidden, "userRateLimitExceeded"}, {http.StatusForbidden, "RESOURCE_EXHAUSTED"}},
	"github":     {{http.StatusForbidden, "rate limit exceeded"}},
	"":           {},
}

// RateLimited reports whether a provider refused a call for its rate limit: by 429,
// or by its own code. body is the beginning of the answer.
func RateLimited(provider string, status int, body []byte) bool {
	if status == http.StatusTooManyRequests {
		return true
	}
	for _, x := range exhausted[provider] {
		if status == x.status && strings.Contains(string(body), x.code) {
			return true
		}
	}
	return false
}

// ReadHeadroom reads what a provider's answer says about its limits.
func ReadHeadroom(provider, model string, h http.Header, now time.Time) []Headroom {
	var out []Headroom
	seen := map[string]bool{}
	for _, name := range []string{provider, "openai", ""} { // many name them as OpenAI does
		for _, t := range headerTable[name] {
			limit, err := strconv.ParseFloat(firstNumber(h.Get(t.limit)), 64)
			left, err2 := strconv.ParseFloat(firstNumber(h.Get(t.remaining)), 64)
			if err != nil || err2 != nil || limit <= 0 || left < 0 || seen[t.dimension] {
				continue
			}
			seen[t.dimension] = true
			out = append(out, Headroom{provider, model, t.dimension, limit, left, resetAt(h.Get(t.reset), now)})
		}
		if len(out) > 0 {
			break
		}
	}
	out = append(out, draft(provider, model, h, now)...)
	// Salesforce: "api-usage=10018/15000".
	if v := h.Get("Sforce-Limit-Info"); v != "" {
		for part := range strings.SplitSeq(v, ";") {
			name, usage, _ := strings.Cut(strings.TrimSpace(part), "=")
			used, of, ok := strings.Cut(usage, "/")
			u, err := strconv.ParseFloat(firstNumber(used), 64)
			limit, err2 := strconv.ParseFloat(firstNumber(of), 64)
			if ok && err == nil && err2 == nil && limit > 0 && name == "api-usage" {
				out = append(out, Headroom{provider, "", "requests_day", limit, max(0, limit-u), time.Time{}})
			}
		}
	}
	return out
}

// draft reads the fields of draft-ietf-httpapi-ratelimit-headers: RateLimit has per policy
// what remains, r, and seconds, t; RateLimit-Policy its quota, q. A policy without a
// quota says nothing.
func draft(provider, model string, h http.Header, now time.Time) (out []Headroom) {
	items := func(name string) (names []string, params map[string]map[string]string) {
		params = map[string]map[string]string{}
		for item := range strings.SplitSeq(strings.Join(h.Values(name), ","), ",") {
			parts := strings.Split(item, ";")
			key := strings.Trim(strings.TrimSpace(parts[0]), `"`)
			if key == "" || len(key) > 64 || len(parts) == 1 {
				continue
			}
			names, params[key] = append(names, key), map[string]string{}
			for _, p := range parts[1:] {
				k, v, _ := strings.Cut(strings.TrimSpace(p), "=")
				params[key][k] = v
			}
		}
		return names, params
	}
	names, left := items("RateLimit")
	_, policies := items("RateLimit-Policy")
	for _, name := range names {
		limit, err := strconv.ParseFloat(policies[name]["q"], 64)
		r, err2 := strconv.ParseFloat(left[name]["r"], 64)
		if err == nil && err2 == nil && limit > 0 && r >= 0 && !math.IsInf(limit, 0) && !math.IsInf(r, 0) {
			out = append(out, Headroom{provider, model, name, limit, r, resetAt(left[name]["t"], now)})
		}
	}
	return out
}

// firstNumber cuts what follows a number: "100, 100;w=60" is 100.
func firstNumber(s string) string {
	s = strings.TrimSpace(s)
	if i := strings.IndexFunc(s, func(r rune) bool { return (r < '0' || r > '9') && r != '.' }); i >= 0 {
		s = s[:i]
	}
	return s
}

// resetAt reads when a limit is whole again; zero where that cannot be read, or is so
// far off that it is no time.
func resetAt(s string, now time.Time) (at time.Time) {
	n, err := strconv.ParseFloat(s, 64)
	switch {
	case err != nil:
		for _, layout := range []string{time.RFC3339, "2006-01-02T15:04Z07:00"} {
			if t, err := time.Parse(layout, s); err == nil {
				at = t
			}
		}
		if d, err := time.ParseDuration(s); err == nil && d >= 0 {
			at = now.Add(d)
		}
	case n >= 0 && n < 1e9: // from now
		at = now.Add(time.Duration(n * float64(time.Second)))
	case n >= 1e9 && n < 1e11: // unix seconds
		at = time.Unix(int64(n), 0)
	case n >= 1e12 && n < 1e14: // unix milliseconds
		at = time.UnixMilli(int64(n))
	}
	if at.Sub(now) > 366*24*time.Hour {
		return time.Time{}
	}
	return at
}

// Report takes head-room in, to be sent with the next report.
func (l *Limiter) Report(rooms ...Headroom) {
	if len(rooms) == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.rooms) > 1000 {
		clear(l.rooms)
		clear(l.roomsRead)
	}
	now := time.Now()
	for _, r := range rooms {
		key := r.Provider + "|" + r.Model + "|" + r.Dimension
		l.rooms[key], l.roomsRead[key] = r, now
	}
	l.roomsNew = true
}

// Refusal is a call that was not made because a directive denied it. In the journal
// it is a call of its own, with the failure budget.
type Refusal struct {
	Call  Call      `json:"call"`
	Guard string    `json:"guard"`
	At    time.Time `json:"at"`
}

// refusalsAtOnce is how many refusals a report names one by one.
const refusalsAtOnce = 500

// refusalSize is how many bytes of names a refusal may have to be named: one call that
// the service would not read must not cost the report of all others.
const refusalSize = 1024

// Refused notes a call that was not made for a decision. Transport does so by itself;
// who uses Check calls it for calls that would have been made. Calls without a trace id
// are only counted.
func (l *Limiter) Refused(c *Call, d *Decision) {
	l.mu.Lock()
	defer l.mu.Unlock()
	size := len(c.Tenant) + len(c.User) + len(c.Feature) + len(c.Workflow) + len(c.Agent) + len(c.Model) + len(c.RunID) + len(c.TraceID) + len(c.SpanID) + len(c.Provider) + len(c.Tool) + len(c.Mode) + len(c.Criticality) + len(c.Key)
	if len(l.refused) >= refusalsAtOnce || size > refusalSize {
		l.unsaid++
		return
	}
	l.refused = append(l.refused, Refusal{*c, d.Guard, time.Now()})
}

// report sends head-room and refusals at most once a second.
func (l *Limiter) report(ctx context.Context) {
	t := time.NewTicker(time.Second)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		l.mu.Lock()
		var rooms []Headroom
		if l.roomsNew {
			for _, r := range l.rooms {
				rooms = append(rooms, r)
			}
			l.roomsNew = false
		}
		refused, unsaid := l.refused, l.unsaid
		l.refused, l.unsaid = nil, 0
		l.mu.Unlock()
		if len(refused)+unsaid > 0 {
			if err := l.post(ctx, "/api/v1/limiters/"+url.PathEscape(l.o.ID)+"/refusals", map[string]any{"refusals": refused, "more": unsaid}, nil); err != nil && ctx.Err() == nil {
				l.o.Logger.Warn("refusals were not taken", "refusals", len(refused)+unsaid, "err", err)
			}
		}
		if len(rooms) == 0 {
			continue
		}
		if err := l.post(ctx, "/api/v1/limiters/"+url.PathEscape(l.o.ID)+"/headroom", map[string]any{"headroom": rooms}, nil); err != nil && ctx.Err() == nil {
			l.o.Logger.Warn("head-room was not taken", "err", err)
		}
	}
}

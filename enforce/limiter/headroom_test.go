package limiter

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestReadHeadroom has each provider's headers as they come.
func TestReadHeadroom(t *testing.T) {
	now := time.Date(2026, 11, 2, 10, 0, 0, 0, time.UTC)
	f := func(provider, headers string, want ...Headroom) {
		t.Helper()
		h := http.Header{}
		for line := range strings.SplitSeq(headers, "\n") {
			if k, v, ok := strings.Cut(strings.TrimSpace(line), ": "); ok {
				h.Add(k, v)
			}
		}
		got := ReadHeadroom(provider, "m", h, now)
		if !slices.EqualFunc(got, want, func(a, b Headroom) bool {
			same := a.ResetAt.Equal(b.ResetAt)
			a.ResetAt, b.ResetAt = time.Time{}, time.Time{}
			return same && a == b
		}) {
			t.Errorf("%s: %+v\nwant %+v", provider, got, want)
		}
		if _, err := json.Marshal(got); err != nil {
			t.Errorf("%s: cannot be reported: %v", provider, err)
		}
	}
	room := func(provider, dimension string, limit, left float64, reset time.Duration) Headroom {
		r := Headroom{provider, "m", dimension, limit, left, time.Time{}}
		if reset != 0 {
			r.ResetAt = now.Add(reset)
		}
		return r
	}
	openai := `x-ratelimit-limit-requests: 60
		x-ratelimit-remaining-requests: 59
		x-ratelimit-reset-requests: 1s
		x-ratelimit-limit-tokens: 150000
		x-ratelimit-remaining-tokens: 149984
		x-ratelimit-reset-tokens: 6m0s`
	f("openai", openai, room("openai", "requests", 60, 59, time.Second), room("openai", "tokens", 150000, 149984, 6*time.Minute))
	f("azure", openai, room("azure", "requests", 60, 59, time.Second), room("azure", "tokens", 150000, 149984, 6*time.Minute))
	f("azure", "x-ratelimit-limit-tokens: 1000\nx-ratelimit-remaining-tokens: 0\nx-ratelimit-reset-tokens: 12", room("azure", "tokens", 1000, 0, 12*time.Second))
	f("someone", openai, room("someone", "requests", 60, 59, time.Second), room("someone", "tokens", 150000, 149984, 6*time.Minute))
	f("groq", "x-ratelimit-limit-requests: 14400\nx-ratelimit-remaining-requests: 14370\nx-ratelimit-reset-requests: 2m59.56s", room("groq", "requests", 14400, 14370, 2*time.Minute+59560*time.Millisecond))
	f("openai", "x-ratelimit-limit-requests: 60\nx-ratelimit-remaining-requests: 59\nx-ratelimit-reset-requests: 200ms", room("openai", "requests", 60, 59, 200*time.Millisecond))
	f("anthropic", `anthropic-ratelimit-requests-limit: 50
		anthropic-ratelimit-requests-remaining: 49
		anthropic-ratelimit-requests-reset: 2026-11-02T10:00:02Z
		anthropic-ratelimit-input-tokens-limit: 40000
		anthropic-ratelimit-input-tokens-remaining: 39000
		anthropic-ratelimit-input-tokens-reset: 2026-11-02T10:00:30Z
		anthropic-ratelimit-output-tokens-limit: 8000
		anthropic-ratelimit-output-tokens-remaining: 8000`, room("anthropic", "requests", 50, 49, 2*time.Second), room("anthropic", "input_tokens", 40000, 39000, 30*time.Second), room("anthropic", "output_tokens", 8000, 8000, 0))
	f("hubspot", `X-HubSpot-RateLimit-Daily: 250000
		X-HubSpot-RateLimit-Daily-Remaining: 249000
		X-HubSpot-RateLimit-Interval-Milliseconds: 10000
		X-HubSpot-RateLimit-Max: 100
		X-HubSpot-RateLimit-Remaining: 98`, room("hubspot", "requests", 100, 98, 0), room("hubspot", "requests_day", 250000, 249000, 0))
	f("jira", "X-RateLimit-Limit: 350\nX-RateLimit-Remaining: 10\nX-RateLimit-Reset: 2026-11-02T10:01:00Z", room("jira", "requests", 350, 10, time.Minute))
	f("jira", "X-RateLimit-Limit: 350\nX-RateLimit-Remaining: 10\nX-RateLimit-Reset: 2026-11-02T10:01Z", room("jira", "requests", 350, 10, time.Minute))
	f("github", "x-ratelimit-limit: 5000\nx-ratelimit-remaining: 4987\nx-ratelimit-reset: 1793613900", room("github", "requests", 5000, 4987, 5*time.Minute))
	f("openrouter", "X-RateLimit-Limit: 20\nX-RateLimit-Remaining: 0\nX-RateLimit-Reset: 1793613900000", room("openrouter", "requests", 20, 0, 5*time.Minute))
	day := Headroom{Provider: "salesforce", Dimension: "requests_day", Limit: 15000, Remaining: 4982}
	f("salesforce", "Sforce-Limit-Info: api-usage=10018/15000", day)
	f("salesforce", "Sforce-Limit-Info: per-app-api-usage=17/250(appName=x); api-usage=10018/15000", day)
	f("salesforce", "Sforce-Limit-Info: api-usage=16000/15000", Headroom{Provider: "salesforce", Dimension: "requests_day", Limit: 15000})
	// The drafts: three fields, with or without the policy in the limit, and then two.
	f("x", "RateLimit-Limit: 100, 100;w=60\nRateLimit-Remaining: 50\nRateLimit-Reset: 30", room("x", "requests", 100, 50, 30*time.Second))
	f("x", "RateLimit-Policy: \"default\";q=100;w=60\nRateLimit: \"default\";r=50;t=30", room("x", "default", 100, 50, 30*time.Second))
	f("x", "RateLimit-Policy: \"burst\";q=10;w=1, \"day\";q=1000;w=86400\nRateLimit: \"day\";r=5;t=400, \"burst\"; r=9", room("x", "day", 1000, 5, 400*time.Second), room("x", "burst", 10, 9, 0))
	f("x", "RateLimit: \"default\";r=50;t=30") // of how many is not said
	f("x", "RateLimit-Policy: \"default\";q=0;w=60\nRateLimit: \"default\";r=NaN;t=30\nRateLimit: ;r=1, ,x")
	// What says nothing.
	f("openai", "")
	f("openai", "x-ratelimit-limit-requests: 60")
	f("openai", "x-ratelimit-limit-requests: 0\nx-ratelimit-remaining-requests: 0")
	f("openai", "x-ratelimit-limit-requests: many\nx-ratelimit-remaining-requests: -1")
	f("openai", "x-ratelimit-limit: 60\nx-ratelimit-remaining: 5\nx-ratelimit-reset: 99999999999999999999", room("openai", "requests", 60, 5, 0))
	f("openai", "x-ratelimit-limit: 60\nx-ratelimit-remaining: 5\nx-ratelimit-reset: Inf", room("openai", "requests", 60, 5, 0))
	f("openai", "x-ratelimit-limit: 60\nx-ratelimit-remaining: 5\nx-ratelimit-reset: 9999-12-31T23:59:59-23:59", room("openai", "requests", 60, 5, 0))
	f("openai", "x-ratelimit-limit: 60\nx-ratelimit-remaining: 5\nx-ratelimit-reset: soon", room("openai", "requests", 60, 5, 0))
}

func TestRateLimited(t *testing.T) {
	f := func(provider string, status int, body string, want bool) {
		t.Helper()
		if got := RateLimited(provider, status, []byte(body)); got != want {
			t.Errorf("%s %d %s: %v", provider, status, body, got)
		}
	}
	f("openai", 429, "", true)
	f("", 429, "", true)
	f("salesforce", 403, `[{"message":"TotalRequests Limit exceeded.","errorCode":"REQUEST_LIMIT_EXCEEDED"}]`, true)
	f("google", 403, `{"error":{"errors":[{"reason":"userRateLimitExceeded"}]}}`, true)
	f("google", 403, `{"error":{"errors":[{"reason":"rateLimitExceeded"}]}}`, true)
	f("github", 403, `{"message":"API rate limit exceeded for 1.2.3.4"}`, true)

	f("salesforce", 403, `[{"errorCode":"INSUFFICIENT_ACCESS"}]`, false)
	f("salesforce", 500, `REQUEST_LIMIT_EXCEEDED`, false)
	f("openai", 403, `REQUEST_LIMIT_EXCEEDED`, false)
	f("google", 403, `{"error":{"errors":[{"reason":"forbidden"}]}}`, false)
	f("openai", 200, "", false)
}

// TestHeadroomIsReported sends the latest of each, once.
func TestHeadroomIsReported(t *testing.T) {
	srv := newFeed(t, says(event("set", state(1))))
	got := make(chan string, 10)
	srv.reply["/api/v1/limiters/l-1/headroom"] = func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		got <- string(b)
		w.WriteHeader(http.StatusNoContent)
	}
	l := srv.follow(Options{})
	l.Report()
	l.Report(Headroom{Provider: "p", Dimension: "requests", Limit: 10, Remaining: 9})
	l.Report(Headroom{Provider: "p", Dimension: "requests", Limit: 10, Remaining: 8})
	select {
	case b := <-got:
		if b != `{"headroom":[{"provider":"p","dimension":"requests","limit":10,"remaining":8}]}` {
			t.Errorf("reported %s", b)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("nothing was reported")
	}
	select {
	case b := <-got:
		t.Errorf("reported again: %s", b)
	case <-time.After(1200 * time.Millisecond):
	}
}

// TestRefusalsAreReported names the calls that were not made, as many as one report
// takes and as long as the service reads, and counts the others.
func TestRefusalsAreReported(t *testing.T) {
	srv := newFeed(t, says(event("set", state(1, block("a", "t")))))
	type report struct {
		Refusals []Refusal
		More     int
	}
	got := make(chan report, 10)
	srv.reply["/api/v1/limiters/l-1/refusals"] = func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		if len(b) > 1<<20 {
			t.Errorf("a report of %d bytes", len(b))
		}
		var in report
		if err := json.Unmarshal(b, &in); err != nil {
			t.Error(err)
		}
		got <- in
		w.WriteHeader(http.StatusNoContent)
	}
	l := srv.follow(Options{})
	eventually(t, "the limiter has a set", func() bool { _, ok := l.Version(); return ok })
	rt := l.Transport(TransportOptions{Base: roundTrip(func(*http.Request) (*http.Response, error) { t.Error("sent"); return nil, io.EOF })})
	send := func(r *http.Request, user string) {
		t.Helper()
		r.Header.Set("X-Flyball-Tenant", "t")
		r.Header.Set("X-Flyball-User", user)
		if resp, err := rt.RoundTrip(r); err != nil || resp.StatusCode != http.StatusForbidden {
			t.Fatalf("%v %v", resp, err)
		}
	}
	get, _ := http.NewRequest(http.MethodGet, "http://provider.test/v1/models", nil)
	send(get, "u") // no call
	send(post(chatPath, `{"model":"m"}`), strings.Repeat("u", 2000))
	for range refusalsAtOnce + 2 {
		send(post(chatPath, `{"model":"m"}`), strings.Repeat("u", 1000))
	}
	named, more := 0, 0
	for end := time.After(10 * time.Second); named+more < refusalsAtOnce+3; {
		select {
		case in := <-got:
			named, more = named+len(in.Refusals), more+in.More
			for _, r := range in.Refusals {
				if r.Guard != "g" || r.Call.Model != "m" || r.Call.Tenant != "t" || time.Since(r.At) > time.Minute {
					t.Fatalf("refusal %+v", r)
				}
			}
		case <-end:
			t.Fatalf("%d refusals are named and %d counted", named, more)
		}
	}
	if more < 1 || named < refusalsAtOnce || named+more != refusalsAtOnce+3 {
		t.Errorf("%d refusals are named and %d counted", named, more)
	}
}

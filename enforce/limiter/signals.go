package limiter

import (
	"context"
	"errors"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"
)

// target is what a call goes to.
type target struct{ provider, model string }

// outcome is what became of an attempt: a status, or an error.type without one.
type outcome struct {
	target
	status int
	failed string
}

// signals are what a limiter sees of its own work.
type signals struct {
	mu       sync.Mutex // guards the rest
	attempts map[outcome]uint64
	retries  map[target]uint64
	waiting  map[target]int
	onWait   []func(provider, model string, wait time.Duration)
}

// maxTargets bounds each kind of signal: a caller may make model names up. What is
// beyond has the model that OpenTelemetry gives to values it does not list.
const maxTargets = 1000

const otherModel = "_OTHER"

// freshHeadroom is how long the last answer of a provider says what is left.
const freshHeadroom = time.Minute

// Signals says how this limiter fares: what is left of providers' limits by answers of the
// last minute, attempts of Transport by outcome, those among them that an SDK marked as a
// retry, and calls that a throttle makes wait. Metrics, units and attributes, which
// are names and values in turn, are those of deploy/docs/limiter-signals.md. Counts only
// grow while the limiter lives. say must not call the limiter.
func (l *Limiter) Signals(say func(metric string, value float64, attributes ...string)) {
	now := time.Now()
	var rooms []Headroom
	l.mu.Lock()
	for key, r := range l.rooms {
		if now.Sub(l.roomsRead[key]) <= freshHeadroom {
			rooms = append(rooms, r)
		}
	}
	l.mu.Unlock()
	for _, r := range rooms {
		at := []string{"gen_ai.provider.name", r.Provider, "gen_ai.request.model", r.Model, "flyball.limiter.dimension", r.Dimension}
		say("flyball.limiter.bucket.limit", r.Limit, at...)
		say("flyball.limiter.bucket.remaining", r.Remaining, at...)
		if r.Limit > 0 {
			say("flyball.limiter.bucket.fill", min(1, r.Remaining/r.Limit), at...)
		}
	}
	s := &l.signals
	s.mu.Lock()
	defer s.mu.Unlock()
	for o, n := range s.attempts {
		at := []string{"gen_ai.provider.name", o.provider, "gen_ai.request.model", o.model}
		if o.status != 0 {
			at = append(at, "http.response.status_code", strconv.Itoa(o.status))
		} else {
			at = append(at, "error.type", o.failed)
		}
		say("flyball.limiter.attempts", float64(n), at...)
	}
	for t, n := range s.retries {
		say("flyball.limiter.retries", float64(n), "gen_ai.provider.name", t.provider, "gen_ai.request.model", t.model)
	}
	for t, n := range s.waiting {
		say("flyball.limiter.queue.depth", float64(n), "gen_ai.provider.name", t.provider, "gen_ai.request.model", t.model)
	}
}

// OnWait has f told of every call that a throttle made wait, when its wait is over or
// given up. f must not block.
func (l *Limiter) OnWait(f func(provider, model string, wait time.Duration)) {
	l.signals.mu.Lock()
	defer l.signals.mu.Unlock()
	l.signals.onWait = append(l.signals.onWait, f)
}

// pause makes a call wait for a throttle.
func (l *Limiter) pause(ctx context.Context, c *Call, wait time.Duration) error {
	s, began := &l.signals, time.Now()
	t := s.queue(c)
	defer func() {
		s.mu.Lock()
		s.waiting[t]--
		told := s.onWait
		s.mu.Unlock()
		for _, f := range told {
			f(t.provider, t.model, time.Since(began))
		}
	}()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return ctx.Err() // both may have come meanwhile, and a caller that left is not sent for
	}
}

// queue counts a call as waiting and returns as what.
func (s *signals) queue(c *Call) target {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := target{c.Provider, c.Model}
	if _, known := s.waiting[t]; !known && len(s.waiting) >= maxTargets {
		t.model = otherModel
	}
	s.waiting[t]++
	return t
}

// attempted counts a request that was sent.
func (s *signals) attempted(c *Call, r *http.Request, resp *http.Response, err error) {
	o := outcome{target: target{c.Provider, c.Model}}
	switch {
	case err == nil:
		o.status = resp.StatusCode
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		o.failed = "timeout"
	case errors.Is(err, context.Canceled):
		o.failed = "cancelled"
	default:
		o.failed = "connection"
	}
	// The SDKs that Stainless generates, among them OpenAI's and Anthropic's, say so.
	n, _ := strconv.Atoi(r.Header.Get("X-Stainless-Retry-Count"))
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.attempts[o]; !known && len(s.attempts) >= maxTargets {
		o.model = otherModel
	}
	s.attempts[o]++
	if n > 0 {
		if _, known := s.retries[o.target]; !known && len(s.retries) >= maxTargets {
			o.model = otherModel
		}
		s.retries[o.target]++
	}
}

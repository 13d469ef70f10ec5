package limiter

import (
	"context"
	"errors"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
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
	breakers map[Breaker]*breaker
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
// retry, calls that a throttle makes wait, and what BreakerChanged was told. Metrics, units and attributes, which
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
	for of, b := range s.breakers {
		var at []string
		for _, a := range [...][2]string{{"gen_ai.tool.name", of.Tool}, {"gen_ai.provider.name", of.Provider}, {"gen_ai.request.model", of.Model}} {
			if a[1] != "" {
				at = append(at, a[0], a[1])
			}
		}
		for i, state := range breakerStates {
			if n := b.entered[i]; n > 0 {
				say("flyball.limiter.breaker.transitions", float64(n), append(slices.Clip(at), "flyball.limiter.breaker.state", state)...)
			}
		}
		if of != otherBreaker {
			say("flyball.limiter.breaker.open", float64(b.now)/2, at...)
		}
	}
}

// Breaker is what a circuit breaker guards: a tool, or a provider, maybe one model of it.
type Breaker struct{ Tool, Provider, Model string }

// otherBreaker stands for all that are more than are told apart.
var otherBreaker = Breaker{Tool: otherModel}

// breakerStates are in the order of how much a breaker refuses.
var breakerStates = [...]string{"closed", "half_open", "open"}

// breaker is where one is, and how often it came to each state.
type breaker struct {
	now     int
	entered [len(breakerStates)]uint64
}

// BreakerChanged notes that a circuit breaker entered a state: "open", "half_open" (also
// "half-open") or "closed". The limiter has no breaker; whichever you use calls this from
// its own hook, so that its transitions are on the board. It does not block. A state of
// another name, and a breaker that guards nothing, are logged and not counted.
func (l *Limiter) BreakerChanged(of Breaker, state string) {
	i := slices.Index(breakerStates[:], strings.ReplaceAll(strings.ToLower(state), "-", "_"))
	if i < 0 || of.Tool == "" && of.Provider == "" {
		l.o.Logger.Warn("a breaker changed to what is no state of one, or guards nothing", "breaker", of, "state", state)
		return
	}
	s := &l.signals
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.breakers[of]
	if b == nil && len(s.breakers) >= maxTargets {
		of = otherBreaker
		b = s.breakers[of]
	}
	if b == nil {
		b = &breaker{}
		s.breakers[of] = b
	}
	b.now = i
	b.entered[i]++
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

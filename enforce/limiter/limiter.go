// Package limiter enforces directives inside a Go gateway or agent: it follows the
// service's feed, answers for each call from memory, acknowledges what it applied,
// and leases budget where a limit has to hold exactly.
//
// It guarantees that Check neither blocks nor allocates, that the last set stays in
// force while the service is away, that what a kill, a terminate or a halt stopped
// stays stopped however long that takes, and that an answer names the version it
// was made by. It depends on the standard library and package directive alone.
package limiter

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	mrand "math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/flyball/flyball/enforce/directive"
)

// Call, Decision and the verdicts are those of package directive.
type (
	Call     = directive.Call
	Decision = directive.Decision
)

// The verdicts of a Decision.
const (
	Allow      = directive.Allow
	Downgraded = directive.Downgraded
	Wait       = directive.Wait
	Deny       = directive.Deny
)

// Options of New.
type Options struct {
	// URL is the service, e.g. http://127.0.0.1:8080.
	URL string
	// Key has role limiter; "" where the service has no keys.
	Key string
	// ID names this limiter in acknowledgements; the default is made of the host's name
	// and of chance. Two limiters must not share one.
	ID string
	// WhenUnknown says what applies before the first set, by criticality; the default
	// admits critical calls alone. A set brings its own, which applies when it is stale.
	WhenUnknown directive.WhenUnknown
	// Critical says which calls are critical before the first set.
	Critical directive.CriticalList
	// Client sends requests; the default has no timeout, which the feed needs.
	Client *http.Client
	Logger *slog.Logger
}

// Limiter is one follower of the feed. It is safe for concurrent use.
type Limiter struct {
	o    Options
	base string
	set  *directive.Set

	signals signals

	mu        sync.Mutex           // guards the rest
	next      map[string]time.Time // when a throttle admits its next call, by directive
	ackWait   chan struct{}
	rooms     map[string]Headroom
	roomsRead map[string]time.Time // when each of rooms came
	roomsNew  bool
	refused   []Refusal
	unsaid    int // refusals beyond what is reported one by one
}

// New makes a limiter; Follow makes it current.
func New(o Options) (*Limiter, error) {
	u, err := url.Parse(o.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, fmt.Errorf("limiter: URL %q: want http://host:port of the service", o.URL)
	}
	if o.ID == "" {
		var b [4]byte
		_, _ = rand.Read(b[:])
		host, _ := os.Hostname()
		o.ID = host + "-" + hex.EncodeToString(b[:])
	}
	if o.Client == nil {
		o.Client = &http.Client{}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Limiter{o: o, base: strings.TrimRight(o.URL, "/"), set: directive.NewSet(), next: map[string]time.Time{}, ackWait: make(chan struct{}, 1), rooms: map[string]Headroom{}, roomsRead: map[string]time.Time{},
		signals: signals{attempts: map[outcome]uint64{}, retries: map[target]uint64{}, waiting: map[target]int{}, breakers: map[Breaker]*breaker{}}}, nil
}

// ID is the name under which the limiter acknowledges.
func (l *Limiter) ID() string { return l.o.ID }

// Version is that of the set in force; false while there is none.
func (l *Limiter) Version() (directive.Version, bool) {
	v, _, known := l.set.Version()
	return v, known
}

// Ready waits for the first set, until ctx ends. Before it, all but critical calls are
// denied.
func (l *Limiter) Ready(ctx context.Context) error {
	for {
		if _, ok := l.Version(); ok {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the first set: %w", ctx.Err())
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// Set is the set in force, for reading.
func (l *Limiter) Set() *directive.Set { return l.set }

// Check answers for a call by the set in force. It neither blocks nor allocates. A
// Wait says after which time the call may be made; that slot is then taken.
func (l *Limiter) Check(c *Call) Decision {
	now := time.Now()
	d := l.set.Decide(c, now)
	if d.Unknown && l.blind(c, &d, now) {
		return d
	}
	if d.Verdict == directive.Wait {
		d.Wait = l.slot(d.Directive, now)
	}
	return d
}

// blind answers without a set, or with a stale one whose policy denies, and reports
// whether that is the answer. What a stale set denies stays denied.
func (l *Limiter) blind(c *Call, d *Decision, now time.Time) bool {
	if d.Version == (directive.Version{}) {
		d.Criticality = l.o.Critical.Criticality(c)
		unknown := l.o.WhenUnknown
		if unknown == (directive.WhenUnknown{}) {
			unknown = directive.WhenUnknown{Standard: "closed", Background: "closed"}
		}
		if !unknown.Open(d.Criticality) {
			d.Verdict, d.Guard, d.Reason, d.RetryAfter = directive.Deny, "unknown", "no set of directives was received yet", 5*time.Second
		}
		return true
	}
	if _, unknown := l.set.Stale(now); d.Verdict == directive.Deny || unknown.Open(d.Criticality) {
		return d.Verdict == directive.Deny
	}
	d.Verdict, d.Guard, d.Reason, d.RetryAfter = directive.Deny, "unknown", "the set of directives is stale", 5*time.Second
	return true
}

// slot takes the next slot of a throttle and says how far off it is.
func (l *Limiter) slot(t *directive.Directive, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := l.next[t.ID]
	if at.Before(now) {
		at = now
	}
	if len(l.next) > 10_000 {
		clear(l.next)
	}
	l.next[t.ID] = at.Add(time.Duration(t.IntervalMS) * time.Millisecond)
	return at.Sub(now)
}

// Admit is Check with the wait: it returns when the call may be made, or is denied,
// or ctx has ended.
func (l *Limiter) Admit(ctx context.Context, c *Call) (Decision, error) {
	d := l.Check(c)
	if d.Verdict != directive.Wait || d.Wait <= 0 {
		return d, nil
	}
	return d, l.pause(ctx, c, d.Wait)
}

// Follow follows the feed until ctx ends, and comes back whenever it is cut off.
func (l *Limiter) Follow(ctx context.Context) error {
	var side sync.WaitGroup
	side.Go(func() { l.acknowledge(ctx) })
	side.Go(func() { l.report(ctx) })
	defer side.Wait()
	pause := 100 * time.Millisecond
	for ctx.Err() == nil {
		began := time.Now()
		err := l.stream(ctx)
		if ctx.Err() != nil {
			break
		}
		if time.Since(began) > 10*time.Second {
			pause = 100 * time.Millisecond
		}
		l.o.Logger.Warn("feed of directives was cut off; the last set stays in force", "err", err, "again_in", pause)
		t := time.NewTimer(pause/2 + mrand.N(pause)) // apart from the others that were cut off
		select {
		case <-ctx.Done():
		case <-t.C:
		}
		t.Stop()
		pause = min(2*pause, 5*time.Second)
	}
	return nil
}

func (l *Limiter) request(ctx context.Context, method, path string, body any) (*http.Request, error) {
	var rd io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		rd = bytes.NewReader(b)
	}
	r, err := http.NewRequestWithContext(ctx, method, l.base+path, rd)
	if err != nil {
		return nil, err
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if l.o.Key != "" {
		r.Header.Set("Authorization", "Bearer "+l.o.Key)
	}
	return r, nil
}

// quiet is how long a feed may say nothing before it counts as dead.
const quiet = 45 * time.Second

// repeatAck is how soon after it has connected a limiter says again what it has in force.
const repeatAck = 500 * time.Millisecond

// stream reads one connection of the feed.
func (l *Limiter) stream(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r, err := l.request(ctx, http.MethodGet, "/api/v1/directives/stream", nil)
	if err != nil {
		return err
	}
	had, token, known := l.set.Version()
	if known {
		r.Header.Set("Last-Event-ID", had.String())
		r.Header.Set("Flyball-Version", had.String())
		r.Header.Set("Flyball-Token", token)
	}
	resp, err := l.o.Client.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(io.LimitReader(resp.Body, 1024))
		return fmt.Errorf("%s: %s", resp.Status, b)
	}
	watchdog := time.AfterFunc(quiet, cancel)
	defer watchdog.Stop()
	// The acknowledgement of what it has may have been lost with the connection before. Where
	// the service has news they are here by then, and are acknowledged instead.
	repeat := time.AfterFunc(repeatAck, func() {
		if v, _, _ := l.set.Version(); known && v == had {
			_ = l.poke()
		}
	})
	defer repeat.Stop()
	in := bufio.NewReaderSize(resp.Body, 64<<10)
	var name string
	var data []byte
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return err
		}
		watchdog.Reset(quiet)
		line = bytes.TrimRight(line, "\r\n")
		switch {
		case len(line) == 0:
			if len(data) > 0 {
				if err := l.take(name, data); err != nil {
					return err
				}
			}
			name, data = "", data[:0]
		case bytes.HasPrefix(line, []byte("event:")):
			name = string(bytes.TrimSpace(line[len("event:"):]))
		case bytes.HasPrefix(line, []byte("data:")):
			data = append(data, bytes.TrimPrefix(line[len("data:"):], []byte(" "))...)
		}
	}
}

// take applies one event of the feed.
func (l *Limiter) take(name string, data []byte) error {
	switch name {
	case "set":
		var s directive.State
		if err := json.Unmarshal(data, &s); err != nil {
			return fmt.Errorf("read set: %w", err)
		}
		if v, _, _ := l.set.Version(); s.Version.Less(v) {
			return fmt.Errorf("the service is at %s and this limiter at %s: an older set is not taken", s.Version, v)
		}
		if err := l.set.Replace(&s); err != nil {
			l.set.Forget()
			return err
		}
	case "change":
		var c directive.Change
		if err := json.Unmarshal(data, &c); err != nil {
			return fmt.Errorf("read change: %w", err)
		}
		if err := l.set.Apply(&c); err != nil {
			l.set.Forget() // so that the next connection asks for all of it
			return err
		}
	case "alive":
		var a struct {
			ValidUntil time.Time `json:"valid_until"`
		}
		if err := json.Unmarshal(data, &a); err != nil {
			return fmt.Errorf("read sign of life: %w", err)
		}
		l.set.Extend(a.ValidUntil)
		return l.poke()
	default:
		return nil // of a later version of the service
	}
	return l.poke()
}

func (l *Limiter) poke() error {
	select {
	case l.ackWait <- struct{}{}:
	default:
	}
	return nil
}

// acknowledge tells the service which version is in force, the latest one where
// several came while it did so.
func (l *Limiter) acknowledge(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.ackWait:
		}
		v, token, known := l.set.Version()
		if !known {
			continue
		}
		if err := l.post(ctx, "/api/v1/limiters/"+url.PathEscape(l.o.ID)+"/ack", map[string]any{"epoch": v.Epoch, "revision": v.Revision, "token": token, "digest": l.set.Digest()}, nil); err != nil && ctx.Err() == nil {
			l.o.Logger.Warn("acknowledgement was not taken", "version", v.String(), "err", err)
		}
	}
}

// callTimeout bounds a request that is not the feed.
const callTimeout = 10 * time.Second

// ServiceError is an answer of the service that is no success.
type ServiceError struct {
	Status     int
	Detail     string
	RetryAfter time.Duration // 0 where it did not say
}

func (e *ServiceError) Error() string {
	return fmt.Sprintf("the service answered %d: %s", e.Status, e.Detail)
}

func (l *Limiter) post(ctx context.Context, path string, body, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	r, err := l.request(ctx, http.MethodPost, path, body)
	if err != nil {
		return err
	}
	resp, err := l.o.Client.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, 4<<20))
	if err != nil {
		return err
	}
	if resp.StatusCode >= 300 {
		var p struct{ Detail string }
		_ = json.Unmarshal(b, &p)
		after, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
		return &ServiceError{resp.StatusCode, p.Detail, time.Duration(max(0, min(after, 3600))) * time.Second}
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(b, answer)
}

// Lease is a slice of every budget that applies to one call. Close it by Settle or
// Release; until then it is kept alive.
type Lease struct {
	Model    string // to use instead of the one that was asked for; "" is that one
	Reserved string // USD

	l     *Limiter
	mu    sync.Mutex // guards the token and done
	token string
	done  bool
	stop  context.CancelFunc
}

// Usage is what a call really used: tokens by name (input, cache_read,
// cache_write_5m, cache_write_1h, output, …), disjoint. No tokens at all means that
// nobody knows; then what was reserved counts.
type Usage struct {
	Tokens     map[string]uint64 `json:"tokens,omitempty"`
	Model      string            `json:"model,omitempty"`
	Provider   string            `json:"provider,omitempty"`
	TraceID    string            `json:"trace_id,omitempty"`
	SpanID     string            `json:"span_id,omitempty"`
	ResponseID string            `json:"response_id,omitempty"`
	Failed     bool              `json:"failed,omitempty"` // made, and came to nothing that costs
}

// answer is what check and reserve return.
type answer struct {
	Decision    directive.Verdict `json:"decision"`
	Model       string            `json:"model"`
	RetryAfterS int               `json:"retry_after_s"`
	WaitMS      int64             `json:"wait_ms"`
	Guard       string            `json:"guard"`
	Reason      string            `json:"reason"`
	Outcome     string            `json:"outcome"`
	Criticality string            `json:"criticality"`
	Revision    string            `json:"revision"`
	Lease       string            `json:"lease"`
	USD         string            `json:"reserved_usd"`
	Leases      []struct {
		Lease string `json:"lease"`
		Model string `json:"model"`
		USD   string `json:"reserved_usd"`
	} `json:"leases"`
}

func (a *answer) decision() Decision {
	d := Decision{Verdict: a.Decision, Model: a.Model, Guard: a.Guard, Reason: a.Reason, Outcome: a.Outcome, Criticality: a.Criticality, Wait: time.Duration(a.WaitMS) * time.Millisecond, RetryAfter: time.Duration(a.RetryAfterS) * time.Second}
	d.Version, _ = directive.ParseVersion(a.Revision)
	return d
}

// Ask asks the service for its own answer, which knows every budget as it stands.
func (l *Limiter) Ask(ctx context.Context, c *Call) (Decision, error) {
	var a answer
	if err := l.post(ctx, "/api/v1/check", c, &a); err != nil {
		return Decision{}, fmt.Errorf("check call: %w", err)
	}
	return a.decision(), nil
}

// Reserve leases budget for one call. A denial is no error: the lease is nil then.
func (l *Limiter) Reserve(ctx context.Context, c *Call) (*Lease, Decision, error) {
	var a answer
	if err := l.post(ctx, "/api/v1/reserve", c, &a); err != nil {
		return nil, Decision{}, fmt.Errorf("reserve budget: %w", err)
	}
	if a.Lease == "" {
		return nil, a.decision(), nil
	}
	return l.hold(a.Lease, a.Model, a.USD), a.decision(), nil
}

// ReservePlan leases budget for all of the calls, or for none.
func (l *Limiter) ReservePlan(ctx context.Context, plan []Call) ([]*Lease, Decision, error) {
	var a answer
	if err := l.post(ctx, "/api/v1/reserve", map[string]any{"plan": plan}, &a); err != nil {
		return nil, Decision{}, fmt.Errorf("reserve budget: %w", err)
	}
	var out []*Lease
	for _, x := range a.Leases {
		out = append(out, l.hold(x.Lease, x.Model, x.USD))
	}
	return out, a.decision(), nil
}

// heartbeat is how often a lease says that its call still runs.
const heartbeat = 20 * time.Second

func (l *Limiter) hold(token, model, usd string) *Lease {
	ctx, cancel := context.WithCancel(context.Background())
	x := &Lease{Model: model, Reserved: usd, l: l, token: token, stop: cancel}
	go func() {
		t := time.NewTicker(heartbeat)
		defer t.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-t.C:
				var a answer
				err := l.post(ctx, "/api/v1/leases/"+x.current()+"/heartbeat", struct{}{}, &a)
				var gone *ServiceError
				if errors.As(err, &gone) && gone.Status == http.StatusGone {
					return
				}
				if err == nil && a.Lease != "" {
					x.mu.Lock()
					x.token = a.Lease
					x.mu.Unlock()
				}
			}
		}
	}()
	return x
}

func (x *Lease) current() string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.token
}

// finish closes the lease once; ok is false where it was closed before.
func (x *Lease) finish() (token string, ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	ok, x.done = !x.done, true
	x.stop()
	return x.token, ok
}

// Settle closes the lease with what was used. Twice is safe. Where the service does
// not answer it is tried again for a minute, in the background of nobody: the caller
// waits, or ends ctx.
func (x *Lease) Settle(ctx context.Context, u Usage) error {
	return x.end(ctx, "settle", u)
}

// Release gives back a lease whose call was not made. Twice is safe.
func (x *Lease) Release(ctx context.Context) error { return x.end(ctx, "release", struct{}{}) }

func (x *Lease) end(ctx context.Context, what string, body any) error {
	token, ok := x.finish()
	if !ok {
		return nil
	}
	var err error
	for pause := 100 * time.Millisecond; pause < time.Minute; pause *= 2 {
		err = x.l.post(ctx, "/api/v1/leases/"+token+"/"+what, body, nil)
		var s *ServiceError
		if err == nil || ctx.Err() != nil || errors.As(err, &s) && s.Status < 500 {
			break
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
	if err != nil {
		return fmt.Errorf("%s lease: %w", what, err)
	}
	return nil
}

package enforce

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/flyball/flyball/enforce/directive"
	"github.com/flyball/flyball/schema"
)

// lights are the traffic lights of providers.
type lights struct {
	byProvider map[string]*light
}

// light is one provider's: how much of its limits is left, and how often it refuses.
type light struct {
	rooms map[string]Headroom // by limiter, model and dimension
	calls [60]int64           // attempts by second
	limit [60]int64           // refused ones
	at    int64               // the second of the newest slot
	color string
	since time.Time
}

func (m *lights) init() { m.byProvider = map[string]*light{} }

// Headroom is what a limiter read off a provider's rate-limit headers.
type Headroom struct {
	Provider  string    `json:"provider"`
	Model     string    `json:"model,omitempty"`
	Dimension string    `json:"dimension"` // requests, tokens, input_tokens, output_tokens, concurrency …
	Limit     float64   `json:"limit"`
	Remaining float64   `json:"remaining"`
	ResetAt   time.Time `json:"reset_at,omitzero"`

	seen time.Time
}

const (
	roomFresh    = time.Minute
	maxProviders = 200
	maxRooms     = 1000
	leastCalls   = 20 // before the rate of refusals says anything
)

func (m *lights) of(provider string) *light {
	x := m.byProvider[provider]
	if x == nil && len(m.byProvider) < maxProviders {
		x = &light{rooms: map[string]Headroom{}, color: "green"}
		m.byProvider[strings.Clone(provider)] = x // it may be part of a record
	}
	return x
}

// turn moves the window of seconds on.
func (x *light) turn(sec int64) {
	if sec-x.at >= 60 || x.at-sec >= 60 { // or the clock was set back
		x.calls, x.limit, x.at = [60]int64{}, [60]int64{}, sec
		return
	}
	for ; x.at < sec; x.at++ {
		x.calls[(x.at+1)%60], x.limit[(x.at+1)%60] = 0, 0
	}
}

// saw counts a provider's answer.
func (m *lights) saw(e *schema.Entry) {
	p := &e.Posting
	n := int64(p.ModelCalls) + int64(p.Retries) + int64(p.Fallbacks) + int64(p.Hedges)
	if e.Sign < 0 || e.Version > 1 || n == 0 || e.Provider == "" || !p.Kind.ModelLike() {
		return
	}
	x := m.of(e.Provider)
	if x == nil {
		return
	}
	sec := e.RecordedAt / 1e6
	x.turn(sec)
	x.calls[sec%60] += n + int64(p.Hidden)
	if e.Failure == schema.RateLimited {
		x.limit[sec%60] += n
	}
	if p.HiddenCause == schema.RateLimited {
		x.limit[sec%60] += int64(p.Hidden)
	}
}

// Report takes what a limiter read off a provider's headers. What is not believed is
// checked and changes nothing.
func (l *Loop) Report(limiter string, rooms []Headroom, believed bool) error {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range rooms {
		if r.Provider == "" || len(r.Provider) > 100 || !(r.Limit > 0) || !(r.Remaining >= 0) || r.Remaining > 1e15 {
			return badInput("head-room needs provider, a limit above 0 and remaining of 0 or more")
		}
		if !believed {
			continue
		}
		r.seen = now
		x := l.light.of(r.Provider)
		room := limiter + "|" + r.Model + "|" + r.Dimension
		if x == nil || len(x.rooms) >= maxRooms && x.rooms[room].seen.IsZero() {
			return badInput("too many providers or dimensions are reported")
		}
		x.rooms[room] = r
	}
	l.passLight(now)
	return l.flush()
}

// judge says what colour the light has, and why.
func (x *light) judge(p *LightPolicy, now time.Time) (color, why string) {
	color = "green"
	least := Percent(100_000)
	for k, r := range x.rooms {
		if now.Sub(r.seen) > roomFresh || !r.ResetAt.IsZero() && now.After(r.ResetAt) {
			delete(x.rooms, k)
			continue
		}
		if left := Percent(min(1, r.Remaining/r.Limit) * 100_000); left < least {
			least, why = left, fmt.Sprintf("%s of the %s limit is left", left, r.Dimension)
		}
	}
	switch {
	case least < p.Red:
		color = "red"
	case least <= p.Green:
		color = "amber"
	}
	x.turn(now.Unix())
	var calls, limit int64
	for i := range x.calls {
		calls, limit = calls+x.calls[i], limit+x.limit[i]
	}
	if calls >= leastCalls {
		switch {
		case limit*5 >= calls: // a fifth
			color, why = "red", fmt.Sprintf("%d of %d calls of the last minute were rate limited", limit, calls)
		case limit*20 >= calls && color == "green":
			color, why = "amber", fmt.Sprintf("%d of %d calls of the last minute were rate limited", limit, calls)
		}
	}
	return color, why
}

// passLight turns the lights. mu is held.
func (l *Loop) passLight(now time.Time) {
	p := l.policy.Light
	for _, provider := range slices.Sorted(maps.Keys(l.light.byProvider)) {
		x := l.light.byProvider[provider]
		color, why := "green", "the policy has no light"
		if p != nil {
			color, why = x.judge(p, now)
		}
		if color == "green" && x.color == "green" && len(x.rooms) == 0 && now.Unix()-x.at > 3600 {
			delete(l.light.byProvider, provider)
			continue
		}
		if color == x.color || color == "green" && x.color != "green" && now.Sub(x.since) < 10*time.Second {
			continue // a light stays for some seconds, or it flickers with every answer
		}
		was := x.color
		x.color, x.since = color, now
		id := "light/" + provider
		if h := l.live[id]; h != nil && color == "green" {
			l.release(h, "the light is green again", "", now)
			continue
		}
		if color == "green" {
			continue
		}
		h := l.live[id]
		if h == nil {
			h = &live{Index: -1, Scoped: "provider " + provider}
			h.ID, h.Guard, h.Window = id, "light", directive.Window{Kind: "rolling", Over: "1m"}
			h.Match = map[string][]string{"provider": {provider}}
			l.live[id] = h
		}
		h.Issued, h.Action, h.IntervalMS, h.Shadow, h.Touched = now.UTC(), directive.Throttle, 1000, p.Mode == "warn", now.UnixNano()
		h.Reason = "traffic light of " + provider + " went from " + was + " to " + color + ": " + why
		h.Outcome = "schedule"
		if h.Park, h.Exempt = nil, []string{directive.Critical, directive.Standard}; color == "red" {
			h.Park, h.Exempt = []string{directive.Background}, []string{directive.Critical}
		}
		l.put(h)
		l.event(h.event("directive", now))
	}
}

// Light is one provider's light.
type Light struct {
	Provider string     `json:"provider"`
	Color    string     `json:"color"`
	Since    time.Time  `json:"since,omitzero"`
	Rooms    []Headroom `json:"headroom"`
}

// Lights are the lights as they stand.
func (l *Loop) Lights() []Light {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := []Light{}
	for _, p := range slices.Sorted(maps.Keys(l.light.byProvider)) {
		x := l.light.byProvider[p]
		v := Light{Provider: p, Color: x.color, Since: x.since, Rooms: []Headroom{}}
		for _, r := range x.rooms {
			v.Rooms = append(v.Rooms, r)
		}
		slices.SortFunc(v.Rooms, func(a, b Headroom) int { return strings.Compare(a.Model+a.Dimension, b.Model+b.Dimension) })
		out = append(out, v)
	}
	return out
}

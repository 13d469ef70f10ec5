package enforce

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/flyball/flyball/enforce/directive"
	"github.com/flyball/flyball/enforce/page"
	"github.com/flyball/flyball/schema"
	"github.com/flyball/flyball/schema/state"
)

// killState is the org's kill switch and what may trip it.
type killState struct {
	directive.Kill
	Position  uint64    `json:"position"`            // of the log when it was flipped: replay up to it trips nothing
	Auto      bool      `json:"auto"`                // it tripped by itself
	Suspended time.Time `json:"suspended,omitempty"` // somebody turned it off: no trip until then, or until spend was under the limit once
	Paged     string    `json:"paged,omitempty"`
	Shadowed  int64     `json:"shadowed,omitempty"` // hour since 1970 in which warn mode said so last
	// Revised is the version in which it was published last, Raised that in which it was last
	// for a span or a request, which came at Received, unix ms.
	Revised  directive.Version `json:"revised"`
	Raised   directive.Version `json:"raised,omitzero"`
	Received int64             `json:"received,omitempty"`

	received int64 // of the span, or the request, that is being decided about, unix ms; 0 where there is none
	history  history
	hourMax  schema.Sum // what the trailing hour may cost
	dayMax   schema.Sum // what today may cost
	computed int64      // quarter for which they hold
}

// history is what the org spent: by minute for the trailing hour, by quarter of an
// hour for the weeks that say what is usual.
type history struct {
	minutes  map[int64]spent
	quarters map[int64]schema.Sum
	hour     schema.Sum // of minutes that began after left
	left     int64      // unix nanoseconds
	keep     time.Duration
	began    time.Time
	day      schema.Sum // since midnight UTC
	today    int64
	dirty    map[slot]bool
}

// slot is one sum of the history: a minute 'm' or a quarter of an hour 'q'.
type slot struct {
	letter byte
	at     int64
}

// spent is a minute's sum, and when it changed last: how long after began, by a clock that
// nobody sets.
type spent struct {
	schema.Sum
	changed time.Duration
}

// init begins a history. keep is how long after its last change a minute that left the
// trailing hour may be part of it again, since the clock was ahead and is set right.
func (h *history) init(keep time.Duration) {
	h.minutes, h.quarters, h.dirty = map[int64]spent{}, map[int64]schema.Sum{}, map[slot]bool{}
	h.keep, h.began = keep, time.Now()
}

// keepMinutes bounds the minutes: those of an hour by either of two clocks, twice.
const keepMinutes = 256

const (
	minute  = int64(time.Minute)
	quarter = int64(15 * time.Minute)
	hours24 = int64(24 * time.Hour)
	weeks   = 4
)

// add books an entry. What is older than the history is no part of it, nor is what a
// person booked: it says nothing about how fast agents spend.
func (h *history) add(e *schema.Entry) {
	if e.Posting.Exposure == 0 || e.Source == schema.SourceAdjustment {
		return
	}
	now := e.RecordedAt * 1000
	if e.Start < now-int64(weeks*7+1)*hours24 {
		return
	}
	var d schema.Sum
	d.Add(e.Posting.Exposure, e.Sign)
	q := e.Start / quarter
	h.quarters[q] = h.quarters[q].Plus(d)
	h.dirty[slot{'q', q}] = true
	if e.Start/hours24 == h.today {
		h.day = h.day.Plus(d)
	}
	h.spend(e.Start/minute, d)
}

// spend adds to a minute.
func (h *history) spend(m int64, d schema.Sum) {
	s, known := h.minutes[m]
	in := m*minute > h.left
	if !in && !known {
		if h.keep == 0 {
			return
		}
		if len(h.minutes) >= keepMinutes {
			oldest := slices.Min(slices.Collect(maps.Keys(h.minutes)))
			if m < oldest || oldest*minute > h.left {
				return
			}
			h.drop(oldest)
		}
	}
	h.minutes[m] = spent{s.Plus(d), time.Since(h.began)}
	h.dirty[slot{'m', m}] = true
	if in {
		h.hour = h.hour.Plus(d)
	}
}

// drop lets go of a minute that is no part of the hour.
func (h *history) drop(m int64) {
	delete(h.minutes, m)
	h.dirty[slot{'m', m}] = true
}

// advance lets go of what is over, and takes in again what is not, since the clock was set
// back.
func (h *history) advance(now int64) {
	left, ran := now-int64(time.Hour), time.Since(h.began)
	for m, s := range h.minutes {
		at := m * minute
		switch {
		case at > h.left && at <= left:
			h.hour = h.hour.Minus(s.Sum)
		case at <= h.left && at > left:
			h.hour = h.hour.Plus(s.Sum)
		}
		if at <= left && ran-s.changed >= h.keep {
			h.drop(m)
		}
	}
	h.left = left
	if day := now / hours24; day != h.today {
		h.today, h.day = day, h.between(day*hours24, now+int64(time.Hour))
		for q := range h.quarters {
			if q*quarter < now-int64(weeks*7+2)*hours24 {
				delete(h.quarters, q)
				h.dirty[slot{'q', q}] = true
			}
		}
	}
}

// between is what was spent in quarters that begin in the time.
func (h *history) between(from, to int64) (s schema.Sum) {
	for q := from / quarter; q*quarter < to; q++ {
		s = s.Plus(h.quarters[q])
	}
	return s
}

// since is how long ago the first spend of the history was.
func (h *history) since(now int64) time.Duration {
	first := now
	for q := range h.quarters {
		first = min(first, q*quarter)
	}
	return time.Duration(now - first)
}

// usual is the median of the same time in the trailing weeks that have a history.
func (h *history) usual(from, to, now int64) (schema.Sum, bool) {
	old := h.since(now)
	var sums []schema.Sum
	for w := int64(1); w <= weeks; w++ {
		back := w * 7 * hours24
		if int64(old) >= back {
			sums = append(sums, h.between(from-back, to-back))
		}
	}
	if len(sums) < 2 { // under two weeks nobody knows what is usual
		return schema.Sum{}, false
	}
	slices.SortFunc(sums, schema.Sum.Cmp)
	n := len(sums)
	if n%2 == 1 {
		return sums[n/2], true
	}
	m := sums[n/2-1].Plus(sums[n/2]).Big()
	half, _ := schema.SumFromBig(m.Quo(m, big.NewInt(2)))
	return half, true
}

// expect works out what may be spent at the most before the switch trips.
func (l *Loop) expect(now time.Time) {
	k, p := &l.kill, l.policy.Kill
	q := now.UnixNano() / quarter
	if p == nil || k.computed == q {
		return
	}
	k.computed = q
	at := (q + 1) * quarter
	limit := func(from, to int64, floorHours int64) schema.Sum {
		floor := schema.SumOf(int64(p.floor)).Big()
		floor.Mul(floor, big.NewInt(floorHours))
		if u, known := k.history.usual(from, to, now.UnixNano()); known && u.Big().Cmp(floor) > 0 {
			floor = u.Big()
		}
		r := new(big.Rat).Mul(p.multiple, new(big.Rat).SetInt(floor))
		s, err := schema.SumFromBig(new(big.Int).Quo(r.Num(), r.Denom()))
		if err != nil {
			return schema.SumOf(1<<63 - 1)
		}
		return s
	}
	midnight := now.UnixNano() / hours24 * hours24
	k.hourMax = limit(at-int64(time.Hour), at, 1)
	k.dayMax = limit(midnight, midnight+hours24, 24)
}

// tripped says why the switch has to trip; "" where it need not.
func (l *Loop) tripped() string {
	h := &l.kill.history
	switch {
	case h.hour.Cmp(l.kill.hourMax) > 0:
		return fmt.Sprintf("the last 60 minutes cost $%s, more than %s times what they usually cost ($%s is the limit)", h.hour, l.policy.Kill.Multiple, l.kill.hourMax)
	case h.day.Cmp(l.kill.dayMax) > 0:
		return fmt.Sprintf("today cost $%s so far, more than %s times what such a day usually costs ($%s is the limit)", h.day, l.policy.Kill.Multiple, l.kill.dayMax)
	}
	return ""
}

// passKill trips the switch where spend has run away. mu is held.
func (l *Loop) passKill(now time.Time) error {
	l.kill.history.advance(now.UnixNano())
	return l.judgeKill(now)
}

func (l *Loop) judgeKill(now time.Time) error {
	p := l.policy.Kill
	if p == nil {
		return nil
	}
	l.expect(now)
	why := l.tripped()
	switch {
	case why == "":
		if !l.kill.Suspended.IsZero() {
			l.kill.Suspended = time.Time{}
			l.effects.notes = true
		}
		if !l.kill.On && l.kill.Paged != "" { // warn mode said so
			l.resolveKill("spend is under the limit again", "nothing", now)
		}
	case l.kill.On || now.Before(l.kill.Suspended):
	case p.Mode == "warn":
		// What is decided about an entry may lag behind the clock over the end of an hour.
		if hour := now.Unix() / 3600; hour != l.kill.Shadowed && hour != l.kill.Shadowed-1 {
			l.kill.Shadowed, l.effects.notes = hour, true
			l.event(Event{At: now.UTC(), Kind: "kill", Guard: "kill", Scope: "the whole org", Action: string(directive.Halt), Shadow: true, Reason: why})
			l.pageKill("warn/"+fmt.Sprint(hour), "Kill switch would trip: "+why, "nothing: the kill switch is in warn mode", now)
		}
	default:
		l.flip(directive.Kill{On: true, Exempt: p.Exempt, Reason: why, Actor: "automatic", Since: now.UTC(), Outcome: p.Outcome}, now)
		l.kill.Auto = true
		text := "all calls are halted"
		if len(p.Exempt) > 0 {
			text += " but " + strings.Join(p.Exempt, ", ") + " ones"
		}
		l.pageKill("on/"+fmt.Sprint(now.UnixMilli()), "Kill switch tripped: "+why, text, now)
	}
	return nil
}

// pageKill tells on-call about the switch; what an earlier page said is over then.
func (l *Loop) pageKill(id, title, action string, now time.Time) {
	if l.kill.Paged != "" {
		l.resolveKill("a later page says more", action, now)
	}
	if p, ok := l.killPage("kill/"+id, title, action, now); ok {
		l.kill.Paged, l.effects.notes = p.ID, true
		l.effects.pages = append(l.effects.pages, p)
	}
}

func (l *Loop) resolveKill(why, action string, now time.Time) {
	if p, ok := l.killPage(l.kill.Paged, "Resolved: "+why, action, now); ok {
		p.ID, p.Resolved = l.kill.Paged+"/resolved", true
		l.effects.pages = append(l.effects.pages, p)
	}
	l.kill.Paged = ""
	l.effects.notes = true
}

func (l *Loop) killPage(alert, title, action string, now time.Time) (page.Page, bool) {
	p := l.policy.Kill
	if p == nil || len(p.Page) == 0 {
		return page.Page{}, false
	}
	pg := page.Page{ID: alert, Alert: alert, Severity: "critical", Kind: "kill", Guard: "kill", Scope: "the whole org", Title: title, Measure: "cost", Value: "$" + l.kill.history.hour.String(), Limit: "$" + l.kill.hourMax.String(), Window: "the last hour",
		Since: now.UTC(), At: now.UTC(), Action: action, Undo: "flyball kill off --reason ... (or in stages: flyball kill on --stage 25 --reason ...)", Receivers: p.Page}
	if p.Mode == "warn" {
		pg.Severity = "warning"
	}
	if l.o.Console != "" {
		pg.URL = strings.TrimRight(l.o.Console, "/") + "/#/kill"
	}
	return pg, true
}

// flip changes the switch and records who did.
func (l *Loop) flip(k directive.Kill, now time.Time) {
	k.Drill = l.kill.Drill
	wasOn := l.kill.On
	l.kill.Kill = k
	l.kill.Position, l.kill.Auto = l.pos, false
	l.effects.kill = true
	action := "on"
	switch {
	case !k.On:
		action = "off"
	case k.Stage > 0:
		action = fmt.Sprintf("on, %d%% of runs admitted", k.Stage)
	}
	l.event(Event{At: now.UTC(), Kind: "kill", Guard: "kill", Scope: "the whole org", Action: action, Actor: k.Actor, Reason: k.Reason, Value: "$" + l.kill.history.hour.String(), Limit: "$" + l.kill.hourMax.String()})
	if wasOn && !k.On && l.kill.Paged != "" {
		l.resolveKill("the kill switch is off: "+k.Reason, "calls pass again", now)
	}
}

// Kill is a manual flip of the switch.
type Kill struct {
	State  string `json:"state"` // on or off
	Stage  int    `json:"stage"` // percent of runs to admit while it is on
	Reason string `json:"reason"`
}

// KillStatus is the switch, and how near it is to tripping.
type KillStatus struct {
	directive.Kill
	Auto           bool              `json:"auto"`
	Mode           string            `json:"mode"` // of the automatic trip: enforce, warn, off
	SuspendedUntil time.Time         `json:"suspended_until,omitzero"`
	Hour           schema.Sum        `json:"last_hour_usd"`
	HourLimit      schema.Sum        `json:"last_hour_limit_usd"`
	Day            schema.Sum        `json:"today_usd"`
	DayLimit       schema.Sum        `json:"today_limit_usd"`
	HistoryDays    int               `json:"history_days"`
	Version        directive.Version `json:"version"`
	Limiters       []LimiterStatus   `json:"limiters"`
}

// SetKill flips the switch by hand. It returns when the flip is durable; limiters
// are told before.
func (l *Loop) SetKill(in Kill, actor string) (KillStatus, error) {
	in.Reason = strings.TrimSpace(in.Reason)
	switch {
	case in.State != "on" && in.State != "off":
		return KillStatus{}, badInput("state %q: want on or off", in.State)
	case in.Reason == "":
		return KillStatus{}, badInput("a reason is required: it is what others read later")
	case len(in.Reason) > 1000:
		return KillStatus{}, badInput("the reason is longer than 1,000 bytes")
	case in.Stage < 0 || in.Stage > 100:
		return KillStatus{}, badInput("stage %d: want the percentage of runs to admit, 0 to 100", in.Stage)
	case in.State == "off" && in.Stage != 0 && in.Stage != 100:
		return KillStatus{}, badInput("a stage goes with state on; off admits everything")
	}
	now := time.Now()
	l.mu.Lock()
	k := directive.Kill{On: in.State == "on", Reason: in.Reason, Actor: actor, Since: now.UTC(), Outcome: "pause", Exempt: []string{directive.Critical}}
	if p := l.policy.Kill; p != nil {
		k.Exempt, k.Outcome = p.Exempt, p.Outcome
	}
	if k.On {
		k.Stage = in.Stage
		if l.kill.On { // a further stage of the same stop
			k.Since = l.kill.Since
		}
	} else {
		l.kill.Suspended = now.Add(time.Hour)
	}
	l.kill.received = now.UnixMilli()
	l.flip(k, now)
	err := l.flush()
	l.kill.received = 0
	s := l.killStatus(now)
	l.mu.Unlock()
	if err == nil {
		err = l.o.Store.Sync()
	}
	return s, err
}

func (l *Loop) killStatus(now time.Time) KillStatus {
	l.kill.history.advance(now.UnixNano())
	l.expect(now)
	s := KillStatus{Kill: l.kill.Kill, Auto: l.kill.Auto, Mode: "off", SuspendedUntil: l.kill.Suspended, Hour: l.kill.history.hour, HourLimit: l.kill.hourMax, Day: l.kill.history.day, DayLimit: l.kill.dayMax,
		HistoryDays: int(l.kill.history.since(now.UnixNano()) / (24 * time.Hour)), Version: l.current, Limiters: l.limiterStatus(now)}
	if p := l.policy.Kill; p != nil {
		s.Mode = p.Mode
	}
	return s
}

// KillStatus is the switch as it stands.
func (l *Loop) KillStatus() KillStatus {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.killStatus(time.Now())
}

// DrillResult is how a drill went.
type DrillResult struct {
	ID       string          `json:"id"`
	Version  string          `json:"version"`
	Took     time.Duration   `json:"took_ns"` // until the slowest limiter acknowledged
	Slowest  string          `json:"slowest,omitempty"`
	Acked    []DrillLimiter  `json:"acknowledged"`
	Missing  []string        `json:"missing,omitempty"` // active limiters that did not within the wait
	Limiters []LimiterStatus `json:"limiters"`
}

// DrillLimiter is one limiter's answer to a drill.
type DrillLimiter struct {
	ID   string        `json:"id"`
	Took time.Duration `json:"took_ns"`
}

// ErrDrill says that a drill failed: the switch would not have worked.
var ErrDrill = errors.New("drill failed")

// Drill walks the whole way of the kill switch without stopping anything: a marked
// revision is published, and every limiter has to acknowledge it.
func (l *Loop) Drill(actor string, wait time.Duration, done <-chan struct{}) (DrillResult, error) {
	now := time.Now()
	l.mu.Lock()
	id := fmt.Sprintf("drill-%d", now.UnixMilli())
	l.kill.Drill = id
	l.effects.kill = true
	l.event(Event{At: now.UTC(), Kind: "drill", Guard: "kill", Action: "begin", Actor: actor, Reason: id})
	err := l.flush()
	version := l.current
	l.mu.Unlock()
	out := DrillResult{ID: id, Version: version.String(), Acked: []DrillLimiter{}, Limiters: []LimiterStatus{}}
	if err != nil {
		return out, err
	}
	deadline := time.NewTimer(wait)
	defer deadline.Stop()
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	for waiting := true; waiting; {
		select {
		case <-poll.C:
		case <-deadline.C:
			waiting = false
		case <-done:
			waiting = false
		}
		l.mu.Lock()
		out.Acked, out.Missing = l.limiters.ackedSince(version, now)
		l.mu.Unlock()
		if len(out.Missing) == 0 && len(out.Acked) > 0 {
			waiting = false
		}
	}
	for _, a := range out.Acked {
		if a.Took >= out.Took {
			out.Took, out.Slowest = a.Took, a.ID
		}
	}
	l.mu.Lock()
	l.kill.Drill = ""
	l.effects.kill = true
	result := "passed"
	if len(out.Acked) == 0 || len(out.Missing) > 0 {
		result = "failed"
	}
	l.event(Event{At: time.Now().UTC(), Kind: "drill", Guard: "kill", Action: result, Actor: actor, Reason: fmt.Sprintf("%s: %d limiters acknowledged, %d did not; the slowest took %s", id, len(out.Acked), len(out.Missing), out.Took)})
	err = l.flush()
	out.Limiters = l.limiterStatus(time.Now())
	l.mu.Unlock()
	switch {
	case err != nil:
		return out, err
	case len(out.Acked) == 0:
		return out, fmt.Errorf("%w: no limiter acknowledged within %s; the kill switch would have stopped nobody", ErrDrill, wait)
	case len(out.Missing) > 0:
		return out, fmt.Errorf("%w: %d of %d limiters did not acknowledge within %s: %s", ErrDrill, len(out.Missing), len(out.Missing)+len(out.Acked), wait, strings.Join(out.Missing, ", "))
	}
	return out, nil
}

func (l *Loop) putKill(b *state.Batch) error {
	v, err := json.Marshal(&l.kill)
	if err != nil {
		return err
	}
	return b.Put(keyKill, v)
}

func (l *Loop) restoreKill() error {
	v, err := l.o.Store.Get(keyKill)
	if err != nil || v == nil {
		return err
	}
	if err := json.Unmarshal(v, &l.kill); err != nil {
		return fmt.Errorf("read kill switch: %w", err)
	}
	l.kill.Drill = ""
	return nil
}

// saveHistory adds what changed in the history to a checkpoint.
func (l *Loop) saveHistory(b *state.Batch) error {
	h := &l.kill.history
	for name := range h.dirty {
		s, ok := h.quarters[name.at]
		if name.letter == 'm' {
			var x spent
			x, ok = h.minutes[name.at]
			s = x.Sum
		}
		key := fmt.Sprintf("%s%c%016x", keySpend, name.letter, name.at)
		if !ok {
			if err := b.Delete(key); err != nil {
				return err
			}
			continue
		}
		hi, lo := s.Words()
		if err := b.Put(key, binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, hi), lo)); err != nil {
			return err
		}
	}
	clear(h.dirty)
	return nil
}

func (l *Loop) restoreHistory() error {
	h := &l.kill.history
	h.init(time.Hour)
	err := l.o.Store.Each(keySpend, func(name string, v []byte) error {
		key := name[len(keySpend):]
		at, err := strconv.ParseInt(key[1:], 16, 64)
		if err != nil || len(v) != 16 {
			return fmt.Errorf("read spend history: %q is not one of its keys", name)
		}
		s := schema.SumFromWords(binary.BigEndian.Uint64(v), binary.BigEndian.Uint64(v[8:]))
		if key[0] == 'm' {
			h.minutes[at] = spent{Sum: s}
			h.hour = h.hour.Plus(s)
		} else {
			h.quarters[at] = s
		}
		return nil
	})
	h.advance(time.Now().UnixNano())
	return err
}

package page

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// sent is how a send ended.
type sent struct {
	s     *sender
	msgs  []*message // none if it repeated what fires
	d     delivery
	retry bool
	after time.Duration
	err   error
}

// Run sends pages until ctx ends, which interrupts what is under way: it is sent
// again after the next start. An error of the local store ends it too.
func (p *Pager) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan sent)
	under := 0
	defer func() {
		cancel()
		for ; under > 0; under-- {
			// What got through before the end is recorded; a second error adds nothing.
			_ = p.settle(ctx, <-done)
		}
	}()
	p.renewed.Store(true)
	var pruned time.Time
	timer := time.NewTimer(0)
	defer timer.Stop()
	look := true
	for {
		now := time.Now()
		if look {
			if err := p.look(now, &pruned); err != nil {
				return fmt.Errorf("read pages: %w", err)
			}
		}
		n, next, err := p.start(ctx, now, done)
		under += n
		if err != nil {
			return fmt.Errorf("group pages: %w", err)
		}
		timer.Reset(time.Until(next))
		look = true
		select {
		case <-ctx.Done():
			return nil
		case <-p.wake:
		case r := <-p.rewrites:
			r.done <- p.rewrite(r.text)
		case <-timer.C:
		case s := <-done:
			under--
			look = false
			if err := p.settle(ctx, s); err != nil {
				return fmt.Errorf("record pages: %w", err)
			}
		}
	}
}

// look reads what is new and drops what is too old.
func (p *Pager) look(now time.Time, pruned *time.Time) error {
	if p.renewed.Swap(false) {
		if err := p.loadFiring(); err != nil {
			return err
		}
	}
	if now.Sub(*pruned) > 24*time.Hour {
		*pruned = now
		if err := p.forget(now); err != nil {
			return err
		}
	}
	if err := p.load(now); err != nil {
		return err
	}
	for _, m := range p.queue {
		if !m.busy && now.Sub(m.Created) > p.o.GiveUp {
			if err := p.lost([]*message{m}, "expired", cmp.Or(m.Err, "its receiver is not configured or disabled")); err != nil {
				return err
			}
		}
	}
	return nil
}

// start begins what is due, one send a receiver at a time so that a slow one holds
// up no other. It returns how many it began and when to look again.
func (p *Pager) start(ctx context.Context, now time.Time, done chan<- sent) (n int, next time.Time, err error) {
	next = now.Add(p.o.Resend)
	waiting := p.waiting()
	for _, s := range *p.senders.Load() {
		if s.busy || s.gone {
			continue
		}
		msgs, d, at, err := p.pick(s, waiting[s.Name], now)
		if err != nil {
			return n, next, err
		}
		if len(d.pages) == 0 {
			if at.Before(next) {
				next = at
			}
			continue
		}
		for _, m := range msgs {
			m.busy = true
		}
		s.busy = true
		n++
		go func() {
			r := sent{s: s, msgs: msgs, d: d}
			if !d.silent {
				r.retry, r.after, r.err = s.send(ctx, d)
			}
			done <- r
		}()
	}
	return n, next, nil
}

// waiting is the messages that may be sent to each receiver, in the order in which
// they were put. One that waits for an earlier one of the same alert is left out.
func (p *Pager) waiting() map[string][]*message {
	all := make([]*message, 0, len(p.queue))
	for _, m := range p.queue {
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b *message) int { return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID)) })
	out := map[string][]*message{}
	earlier := map[string]bool{}
	for _, m := range all {
		blocked := m.busy
		for _, pg := range m.Pages {
			alert := m.Receiver + " " + pg.Alert
			blocked = blocked || earlier[alert]
			earlier[alert] = true
		}
		if !blocked {
			out[m.Receiver] = append(out[m.Receiver], m)
		}
	}
	return out
}

// pick chooses what goes to a receiver now: a delivery without pages if nothing
// does, with the time at which something will.
func (p *Pager) pick(s *sender, waiting []*message, now time.Time) ([]*message, delivery, time.Time, error) {
	at := now.Add(p.o.Resend)
	var due *message
	for _, m := range waiting {
		ready := m.Next
		if ready.Before(s.notBefore) {
			ready = s.notBefore
		}
		if !ready.After(now) {
			due = m
			break
		}
		if ready.Before(at) {
			at = ready
		}
	}
	if due == nil {
		d, again := p.repeat(s, now)
		if again.Before(at) {
			at = again
		}
		return nil, d, at, nil
	}
	d := delivery{id: due.ID, pages: due.Pages, until: now.Add(4 * p.o.Resend)}
	switch {
	case s.Alertmanager != nil:
		// One request tells everything that is new, also what would wait a little longer.
		var msgs []*message
		d.pages = nil
		for _, m := range waiting {
			if m.Attempts > 0 && m.Next.After(now) {
				continue
			}
			msgs = append(msgs, m)
			for _, pg := range m.Pages {
				f := p.firing[firingName(s.Name, pg.Alert)]
				switch {
				case f != nil && pg.Resolved:
					pg = f.Page.resolvedBy(pg)
				case f != nil && f.Until.IsZero() && !maps.Equal(f.Page.labels(), pg.labels()):
					// A higher rung: under its labels it is another alert to Alertmanager.
					end := pg
					end.Resolved, end.Title = true, "Superseded: "+pg.Title
					d.pages = append(d.pages, f.Page.resolvedBy(end))
				}
				d.pages = append(d.pages, pg)
			}
		}
		return msgs, d, at, nil
	case s.PagerDuty != nil && due.Pages[0].Resolved:
	case due.Attempts == 0 && len(due.Pages) == 1:
		members := p.group(s, due, waiting)
		if len(members) > 1 {
			m, err := p.merge(members)
			if err != nil {
				return nil, d, at, err
			}
			due, d.id, d.pages = m, m.ID, m.Pages
		}
	}
	switch {
	case s.PagerDuty == nil:
	case len(due.Pages) > 1:
		d.key = groupKey(due.Pages[0])
	default:
		var shared bool
		d.key, shared = p.incident(s, due.Pages[0].Alert)
		d.silent = shared && due.Pages[0].Resolved
	}
	return []*message{due}, d, at, nil
}

// group is the messages that become one with due: what waits for its first try and
// is of the same guard and status. PagerDuty gets single events, which people
// acknowledge one by one, unless there are more than anybody would; an alert that
// has an incident already keeps it.
func (p *Pager) group(s *sender, due *message, waiting []*message) []*message {
	var members []*message
	for _, m := range waiting {
		a, b := m.Pages[0], due.Pages[0]
		if m.Attempts > 0 || len(m.Pages) > 1 || a.Kind != b.Kind || a.Guard != b.Guard || a.Resolved != b.Resolved {
			continue
		}
		if s.PagerDuty != nil && m != due && p.firing[firingName(s.Name, a.Alert)] != nil {
			continue
		}
		if members = append(members, m); len(members) == 1000 { // bounds the message; the rest makes another
			break
		}
	}
	if s.PagerDuty != nil && (len(members) <= listed || p.firing[firingName(s.Name, due.Pages[0].Alert)] != nil) {
		return nil
	}
	return members
}

// groupKey is the incident of a guard of which too many alerts fired at once.
func groupKey(pg Page) string { return "group_" + hash(pg.Kind+"\n"+pg.Guard) }

// incident is the PagerDuty incident that an alert belongs to, and whether others
// that still fire share it.
func (p *Pager) incident(s *sender, alert string) (key string, shared bool) {
	own := firingName(s.Name, alert)
	if p.firing[own] == nil || p.firing[own].Key == "" {
		return alert, false
	}
	key = p.firing[own].Key
	for name, f := range p.firing {
		shared = shared || name != own && f.Key == key && strings.HasPrefix(name, firingPrefix+s.Name+"/")
	}
	return key, shared
}

// repeat is what Alertmanager must be told again, lest it takes an alert for over,
// and when the next time is. An alert of which a message waits is left to that.
func (p *Pager) repeat(s *sender, now time.Time) (delivery, time.Time) {
	if !s.repeats() {
		return delivery{}, now.Add(p.o.Resend)
	}
	at := s.repeatAt
	if at.Before(s.notBefore) {
		at = s.notBefore
	}
	if at.After(now) {
		return delivery{}, at
	}
	pending := map[string]bool{}
	for _, m := range p.queue {
		for _, pg := range m.Pages {
			pending[pg.Alert] = pending[pg.Alert] || m.Receiver == s.Name
		}
	}
	d := delivery{until: now.Add(4 * p.o.Resend)}
	for name, f := range p.firing {
		if strings.HasPrefix(name, firingPrefix+s.Name+"/") && !pending[f.Page.Alert] {
			d.pages = append(d.pages, f.Page)
		}
	}
	s.repeatAt = now.Add(p.o.Resend)
	return d, s.repeatAt
}

// settle records how a send ended.
func (p *Pager) settle(ctx context.Context, r sent) error {
	r.s.busy = false
	for _, m := range r.msgs {
		m.busy = false
	}
	after := min(r.after, p.o.RetryMax)
	if after > 0 {
		r.s.notBefore = time.Now().Add(after)
	}
	if errors.Is(r.err, errGone) {
		r.s.gone = true
		p.o.Logger.Error("receiver is disabled until the configuration is loaded again", "receiver", r.s.Name, "err", r.err)
	}
	switch {
	case r.err != nil && ctx.Err() != nil:
		return nil // interrupted: no fault of the receiver
	case len(r.msgs) == 0:
		return p.repeated(r)
	case r.err == nil:
		return p.delivered(r.s, r.msgs, r.d.key)
	case r.retry:
		return p.failed(r.s, r.msgs, after, r.err)
	}
	return p.lost(r.msgs, "refused", r.err.Error())
}

// repeated forgets resolutions that were repeated long enough.
func (p *Pager) repeated(r sent) error {
	if r.err != nil {
		p.o.Logger.Warn("alerts are not repeated", "receiver", r.s.Name, "alerts", len(r.d.pages), "err", r.err)
	}
	b := p.o.Store.NewBatch()
	for _, pg := range r.d.pages {
		name := firingName(r.s.Name, pg.Alert)
		if f := p.firing[name]; f != nil && !f.Until.IsZero() && time.Now().After(f.Until) {
			delete(p.firing, name)
			if err := b.Delete(name); err != nil {
				return err
			}
		}
	}
	return b.Commit(false)
}

// backoff is the time before a further try, jittered so that many do not come at
// once. Alertmanager is told again at the pace at which it is told anyway.
func (p *Pager) backoff(s *sender, attempts int) time.Duration {
	limit := p.o.RetryMax
	if s.repeats() {
		limit = min(limit, p.o.Resend)
	}
	d := min(limit, p.o.RetryMin<<min(attempts-1, 30))
	if d <= 0 {
		d = limit
	}
	return d/2 + rand.N(d/2+1)
}

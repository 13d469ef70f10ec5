package page

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/flyball/flyball/schema/state"
)

// The local store has, under these prefixes:
//
//	page/out/RECEIVER/HASH     a message that is not delivered yet
//	page/firing/RECEIVER/HASH  an alert that the receiver was told of and must be told the end of
//	page/seen/HASH             when a page was put, for as long as it may be decided again
const (
	outPrefix    = "page/out/"
	firingPrefix = "page/firing/"
	seenPrefix   = "page/seen/"
)

// keepSeen is longer than any window after whose end a page may be decided again.
const keepSeen = 45 * 24 * time.Hour

// message is the unit of delivery: one page for one receiver, or several that were
// put together before the first try and stay together, under one id, at every try.
type message struct {
	ID       string    `json:"id"`
	Receiver string    `json:"receiver"`
	Pages    []Page    `json:"pages"`
	Created  time.Time `json:"created"`
	Attempts int       `json:"attempts,omitempty"`
	Next     time.Time `json:"next,omitzero"`
	Err      string    `json:"err,omitempty"`

	busy bool // a send is under way
}

func (m *message) name() string { return outPrefix + m.Receiver + "/" + hash(m.ID) }

// firing is an alert of which a receiver knows.
type firing struct {
	Page Page `json:"page"`
	// Key is the incident it belongs to, its own or one of its guard, for PagerDuty.
	Key string `json:"key,omitempty"`
	// Until is set when the alert is resolved, which is repeated until then.
	Until time.Time `json:"until,omitzero"`
}

func firingName(receiver, alert string) string { return firingPrefix + receiver + "/" + hash(alert) }

// Put adds pages to the caller's batch, so that a decision and its pages become
// durable together. A page whose ID was put before, or covered by one that was, within
// 45 days, is left out; calls with the same ID must not overlap. It returns those that
// were not. Nothing is sent before Wake.
func (p *Pager) Put(b *state.Batch, pages ...Page) (fresh []Page, err error) {
	now := time.Now()
	for i, pg := range pages {
		if pg.ID == "" || pg.Alert == "" {
			return nil, fmt.Errorf("put page %q: it needs an ID and an Alert", pg.Title)
		}
		pg = pg.clean(now)
		seen, err := p.o.Store.Get(seenPrefix + hash(pg.ID))
		if err != nil {
			return nil, fmt.Errorf("put page %s: %w", pg.ID, err)
		}
		if seen != nil {
			continue
		}
		for _, id := range append(slices.Clip(pg.Covers), pg.ID) {
			if err := b.Put(seenPrefix+hash(token(id)), strconv.AppendInt(nil, now.Unix(), 10)); err != nil {
				return nil, fmt.Errorf("put page %s: %w", pg.ID, err)
			}
		}
		fresh = append(fresh, pg)
		for _, name := range p.route(pg) {
			// The pages of one call keep their order, which the time alone may not tell.
			m := message{ID: pg.ID, Receiver: name, Pages: []Page{pg}, Created: now.Add(time.Duration(i))}
			if err := b.Put(m.name(), encode(m)); err != nil {
				return nil, fmt.Errorf("put page %s: %w", pg.ID, err)
			}
		}
	}
	return fresh, nil
}

// route is the receivers that a page goes to now.
func (p *Pager) route(pg Page) []string {
	var all, out []string
	for _, s := range *p.senders.Load() {
		all = append(all, s.Name)
	}
	names := pg.Receivers
	if len(names) == 0 {
		names = all
	}
	for _, name := range names {
		if slices.Contains(all, name) {
			out = append(out, name)
			continue
		}
		p.m.pages.WithLabelValues("", "unrouted").Inc()
		p.o.Logger.Error("page names a receiver that is not configured", "id", pg.ID, "receiver", name)
	}
	if len(names) == 0 {
		p.m.pages.WithLabelValues("", "unrouted").Inc()
		p.o.Logger.Error("page goes to nobody: no receiver is configured", "id", pg.ID)
	}
	return out
}

// load takes up messages that were committed since the last time.
func (p *Pager) load(now time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.o.Store.Each(outPrefix, func(name string, value []byte) error {
		if p.queue[name] != nil {
			return nil
		}
		m := new(message)
		if err := json.Unmarshal(value, m); err != nil || len(m.Pages) == 0 {
			// One that cannot be read must not keep the others from being sent.
			p.o.Logger.Error("page in the local store is damaged and left alone", "name", name)
			return nil
		}
		if m.Attempts == 0 && len(m.Pages) == 1 {
			m.Next = now.Add(p.o.GroupWait) // others of its guard may follow
		}
		p.queue[name] = m
		return nil
	})
}

// loadFiring takes up what receivers know, and forgets what is known to those that
// are no longer configured: nobody will tell them the end.
func (p *Pager) loadFiring() error {
	known := map[string]bool{}
	for _, s := range *p.senders.Load() {
		known[s.Name] = s.remembers()
	}
	clear(p.firing)
	b := p.o.Store.NewBatch()
	err := p.o.Store.Each(firingPrefix, func(name string, value []byte) error {
		receiver, _, _ := strings.Cut(strings.TrimPrefix(name, firingPrefix), "/")
		f := new(firing)
		if !known[receiver] || json.Unmarshal(value, f) != nil {
			return b.Delete(name)
		}
		p.firing[name] = f
		return nil
	})
	if err != nil {
		return err
	}
	return b.Commit(false)
}

// forget drops the ids that are too old to be decided again.
func (p *Pager) forget(now time.Time) error {
	b := p.o.Store.NewBatch()
	err := p.o.Store.Each(seenPrefix, func(name string, value []byte) error {
		if at, err := strconv.ParseInt(string(value), 10, 64); err == nil && now.Sub(time.Unix(at, 0)) < keepSeen {
			return nil
		}
		return b.Delete(name)
	})
	if err != nil {
		return err
	}
	return b.Commit(false)
}

// merge makes one message of several that were never tried. It is durable before
// the first try, so that a restart does not group them anew under another id.
func (p *Pager) merge(members []*message) (*message, error) {
	m := &message{Receiver: members[0].Receiver, Created: members[0].Created}
	var ids strings.Builder
	b := p.o.Store.NewBatch()
	for _, one := range members {
		ids.WriteString(one.ID + "\n")
		m.Pages = append(m.Pages, one.Pages...)
		if err := b.Delete(one.name()); err != nil {
			return nil, err
		}
	}
	m.ID = "group_" + hash(ids.String())
	// The worst come first: only so many are spelled out.
	slices.SortStableFunc(m.Pages, func(a, b Page) int {
		return slices.Index(severities, a.Severity) - slices.Index(severities, b.Severity)
	})
	if err := b.Put(m.name(), encode(m)); err != nil {
		return nil, err
	}
	if err := b.Commit(true); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, one := range members {
		delete(p.queue, one.name())
	}
	p.queue[m.name()] = m
	return m, nil
}

// delivered records that a receiver has the messages.
func (p *Pager) delivered(s *sender, msgs []*message, key string) error {
	now := time.Now()
	b := p.o.Store.NewBatch()
	for _, m := range msgs {
		for _, pg := range m.Pages {
			p.m.seconds.Observe(max(0, now.Sub(pg.At).Seconds()))
			if err := p.know(b, s, pg, key); err != nil {
				return err
			}
		}
		p.m.pages.WithLabelValues(m.Receiver, "delivered").Add(float64(len(m.Pages)))
	}
	return p.drop(b, msgs)
}

// know keeps what must be known of an alert until its end is told.
func (p *Pager) know(b *state.Batch, s *sender, pg Page, key string) error {
	if !s.remembers() {
		return nil
	}
	name := firingName(s.Name, pg.Alert)
	switch {
	case !pg.Resolved:
		p.firing[name] = &firing{Page: pg, Key: key}
	case s.repeats():
		if f := p.firing[name]; f != nil {
			pg = f.Page.resolvedBy(pg)
		}
		p.firing[name] = &firing{Page: pg, Until: time.Now().Add(4 * p.o.Resend)}
	default:
		delete(p.firing, name)
		return b.Delete(name)
	}
	return b.Put(name, encode(p.firing[name]))
}

// drop removes messages from the outbox.
func (p *Pager) drop(b *state.Batch, msgs []*message) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range msgs {
		delete(p.queue, m.name())
		if err := b.Delete(m.name()); err != nil {
			return err
		}
	}
	return b.Commit(true)
}

// failed keeps messages for another try, at the earliest after the given time.
func (p *Pager) failed(s *sender, msgs []*message, after time.Duration, cause error) error {
	b := p.o.Store.NewBatch()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range msgs {
		m.Attempts++
		m.Err = cause.Error()
		m.Next = time.Now().Add(max(after, p.backoff(s, m.Attempts)))
		p.m.pages.WithLabelValues(m.Receiver, "retried").Add(float64(len(m.Pages)))
		p.o.Logger.Warn("page is not delivered yet", "id", m.ID, "receiver", m.Receiver, "attempts", m.Attempts, "next", m.Next, "err", m.Err)
		if err := b.Put(m.name(), encode(m)); err != nil {
			return err
		}
	}
	return b.Commit(false) // a lost count of attempts costs one early try
}

// lost drops messages that no receiver will see, and says so.
func (p *Pager) lost(msgs []*message, outcome, cause string) error {
	for _, m := range msgs {
		p.m.pages.WithLabelValues(m.Receiver, outcome).Add(float64(len(m.Pages)))
		for _, pg := range m.Pages {
			p.o.Logger.Error("page is lost", "id", pg.ID, "alert", pg.Alert, "receiver", m.Receiver, "err", cause)
		}
	}
	return p.drop(p.o.Store.NewBatch(), msgs)
}

// rewrite changes the texts of what is kept. It is Run's alone.
func (p *Pager) rewrite(text func(string) string) error {
	if err := p.load(time.Now()); err != nil {
		return err
	}
	b := p.o.Store.NewBatch()
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, m := range p.queue {
		pages := slices.Clone(m.Pages) // what is being sent is not changed
		for i := range pages {
			pages[i].rewrite(text)
		}
		if slices.EqualFunc(pages, m.Pages, func(a, b Page) bool { return a.texts() == b.texts() }) {
			continue
		}
		m.Pages = pages
		if err := b.Put(name, encode(m)); err != nil {
			return err
		}
	}
	for name, f := range p.firing {
		before := f.Page.texts()
		f.Page.rewrite(text)
		if f.Page.texts() == before {
			continue
		}
		if err := b.Put(name, encode(f)); err != nil {
			return err
		}
	}
	return b.Commit(true)
}

// texts are those that may name somebody.
func (pg *Page) texts() [4]string { return [4]string{pg.Scope, pg.Title, pg.Action, pg.Undo} }

func (pg *Page) rewrite(text func(string) string) {
	for _, s := range []*string{&pg.Scope, &pg.Title, &pg.Action, &pg.Undo} {
		*s = text(*s)
	}
}

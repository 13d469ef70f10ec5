package page

import (
	"cmp"
	"context"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/flyball/flyball/schema/state"
)

// Options of New.
type Options struct {
	Store      *state.Store
	Receivers  []Receiver
	Logger     *slog.Logger
	Registerer prometheus.Registerer

	GroupWait      time.Duration // how long a page waits for others of its guard, default 1 s
	Resend         time.Duration // how often Alertmanager is told what fires, default 1 min
	RetryMin       time.Duration // before the second try, doubled for each further one, default 2 s
	RetryMax       time.Duration // the longest time between tries, also if a receiver asks for more, default 2 h
	GiveUp         time.Duration // age at which an undelivered page is lost, default 72 h
	ConnectTimeout time.Duration // of dialling, default 5 s
	Timeout        time.Duration // of a whole request, default 15 s

	resolver *net.Resolver  // tests answer DNS themselves
	roots    *x509.CertPool // and make their certificates
}

// Pager sends pages. Put, Wake, Test, Pending and UseReceivers are safe for
// concurrent use, also while Run runs.
type Pager struct {
	o       Options
	m       *metrics
	senders atomic.Pointer[[]*sender]
	wake    chan struct{}
	renewed atomic.Bool // receivers were replaced since the run loop looked

	mu    sync.Mutex          // guards queue, which only Run changes after New
	queue map[string]*message // what is in the outbox, by name in the store

	rewrites chan rewrite

	firing map[string]*firing // by name in the store; Run's alone after New
}

// New makes a pager and reads its outbox. It fails if a receiver is not valid.
func New(o Options) (*Pager, error) {
	o.GroupWait = cmp.Or(o.GroupWait, time.Second)
	o.Resend = cmp.Or(o.Resend, time.Minute)
	o.RetryMin = cmp.Or(o.RetryMin, 2*time.Second)
	o.RetryMax = cmp.Or(o.RetryMax, 2*time.Hour)
	o.GiveUp = cmp.Or(o.GiveUp, 72*time.Hour)
	o.ConnectTimeout = cmp.Or(o.ConnectTimeout, 5*time.Second)
	o.Timeout = cmp.Or(o.Timeout, 15*time.Second)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	p := &Pager{o: o, wake: make(chan struct{}, 1), rewrites: make(chan rewrite), queue: map[string]*message{}, firing: map[string]*firing{}}
	if err := p.UseReceivers(o.Receivers); err != nil {
		return nil, err
	}
	if err := p.load(time.Now()); err != nil {
		return nil, fmt.Errorf("load pages: %w", err)
	}
	p.m = newMetrics(o.Registerer, p)
	return p, nil
}

// UseReceivers replaces the receivers, or changes nothing and says which of them
// is wrong. What waits for one that is gone waits on in case it comes back. A
// receiver that had answered 410 is tried again.
func (p *Pager) UseReceivers(receivers []Receiver) error {
	senders, err := p.prepare(receivers)
	if err != nil {
		return err
	}
	p.senders.Store(&senders)
	p.renewed.Store(true)
	p.Wake()
	return nil
}

// CheckReceivers says what UseReceivers would, and changes nothing.
func (p *Pager) CheckReceivers(receivers []Receiver) error {
	_, err := p.prepare(receivers)
	return err
}

func (p *Pager) prepare(receivers []Receiver) (senders []*sender, err error) {
	for _, r := range receivers {
		if slices.ContainsFunc(senders, func(s *sender) bool { return s.Name == r.Name }) {
			return nil, fmt.Errorf("receiver %q: there are two of this name: rename one", r.Name)
		}
		s, err := newSender(r, &p.o)
		if err != nil {
			return nil, err
		}
		senders = append(senders, s)
	}
	return senders, nil
}

// rewrite is what Rewrite asks Run to do.
type rewrite struct {
	text func(string) string
	done chan error
}

// Rewrite changes the texts of all pages that are kept: those that wait to be sent and
// those whose end is to be told. One that is being sent goes out as it was.
func (p *Pager) Rewrite(ctx context.Context, text func(string) string) error {
	r := rewrite{text, make(chan error, 1)}
	select {
	case p.rewrites <- r:
		return <-r.done
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Wake makes Run look for pages that were committed.
func (p *Pager) Wake() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Status is a message that a receiver has not got yet.
type Status struct {
	ID        string    `json:"id"`
	Receiver  string    `json:"receiver"`
	Pages     int       `json:"pages"` // more than one if they were grouped
	Attempts  int       `json:"attempts"`
	LastError string    `json:"last_error,omitempty"`
	Next      time.Time `json:"next"`
}

// Pending lists what is not delivered, the longest waiting first.
func (p *Pager) Pending() []Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	var msgs []*message
	for _, m := range p.queue {
		msgs = append(msgs, m)
	}
	slices.SortFunc(msgs, func(a, b *message) int { return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.name(), b.name())) })
	out := []Status{}
	for _, m := range msgs {
		out = append(out, Status{m.ID, m.Receiver, len(m.Pages), m.Attempts, m.Err, m.Next})
	}
	return out
}

// Result is how a test page fared.
type Result struct {
	Receiver string        `json:"receiver"`
	OK       bool          `json:"ok"`
	Status   string        `json:"status,omitempty"` // such as "2xx"; empty if there was no answer
	Latency  time.Duration `json:"latency_ns"`
	Error    string        `json:"error,omitempty"`
}

// Test sends a test page to the named receiver, or to all if the name is empty,
// at once and without the outbox, and says how each fared.
func (p *Pager) Test(ctx context.Context, receiver string) []Result {
	var senders []*sender
	for _, s := range *p.senders.Load() {
		if receiver == "" || s.Name == receiver {
			senders = append(senders, s)
		}
	}
	if len(senders) == 0 {
		return []Result{{Receiver: receiver, Error: "no such receiver is configured: add it to pages.receivers"}}
	}
	now := time.Now()
	id := fmt.Sprintf("test_%d", now.UnixNano())
	pg := Page{ID: id, Alert: id, Severity: "info", Kind: "test", Title: "Test page of Flyball: nothing is wrong. Close it by hand where it opened something."}.clean(now)
	d := delivery{id: id, pages: []Page{pg}, key: id, until: now.Add(time.Minute)}
	out := make([]Result, len(senders))
	var wg sync.WaitGroup
	for i, s := range senders {
		wg.Go(func() {
			begin := time.Now()
			status, after, err := s.post(ctx, d)
			r := Result{Receiver: s.Name, Latency: time.Since(begin)}
			if err == nil {
				r.Status = class(status)
			}
			if _, _, err = judge(status, after, err); err != nil {
				r.Error = err.Error()
			}
			r.OK = err == nil
			out[i] = r
		})
	}
	wg.Wait()
	return out
}

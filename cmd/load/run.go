package main

import (
	"context"
	"sync"
	"time"
)

// load is one run of the generator.
type load struct {
	group    *group
	source   *source
	rate     float64 // spans a second, 0 = as fast as answers come
	duration time.Duration
	workers  int
	dial     func() (sender, error)
	failure  func(error) // hears of a request that was given up

	begun time.Time
	mu    sync.Mutex // guards what follows
	runs  uint64     // numbers handed out
	next  time.Time  // when the schedule allows the next request
	later []export   // exports of begun groups that are not due yet, oldest due first
}

// export is a request to be sent: one phase of one group of runs.
type export struct {
	first uint64 // number of the group's first run
	start int64  // when its runs began, Unix nanoseconds
	phase int
	due   time.Time
}

// tally is what one worker, or all of them, saw.
type tally struct {
	Requests  int64
	Spans     int64 // sent, each once however often it was retried
	Acked     int64
	Rejected  int64
	Retried   int64 // requests sent again
	Failed    int64 // spans of requests given up
	Bytes     int64
	InTime    int64 // acknowledged within the window
	callsSure int64 // model and tool calls of requests acknowledged in full
	callsMay  int64 // those of requests that were rejected in part or given up
	latencies []time.Duration
}

func (t *tally) add(o *tally) {
	t.Requests += o.Requests
	t.Spans += o.Spans
	t.Acked += o.Acked
	t.Rejected += o.Rejected
	t.Retried += o.Retried
	t.Failed += o.Failed
	t.Bytes += o.Bytes
	t.InTime += o.InTime
	t.callsSure += o.callsSure
	t.callsMay += o.callsMay
	t.latencies = append(t.latencies, o.latencies...)
}

// maxBehind bounds how much of a missed schedule is made up for in a burst.
const maxBehind = time.Second

// window is the end of the duration, over which the rate is measured: all of
// it, or what is left after runs of the first moment have ended.
func (l *load) window() time.Duration {
	ramp := time.Duration(l.group.phases-1) * exportEvery
	if ramp >= l.duration {
		return l.duration
	}
	return l.duration - ramp
}

// run sends until the duration is over and every group that was begun has been
// exported to its end. It returns what the workers saw and how long they took.
func (l *load) run(ctx context.Context) (*tally, time.Duration, error) {
	senders := make([]sender, l.workers)
	for i := range senders {
		s, err := l.dial()
		if err != nil {
			return nil, 0, err
		}
		defer s.close()
		senders[i] = s
	}
	l.begun = time.Now()
	l.next = l.begun
	tallies := make([]tally, l.workers)
	var wg sync.WaitGroup
	for i := range senders {
		wg.Go(func() { l.work(ctx, senders[i], &tallies[i]) })
	}
	wg.Wait()
	took := time.Since(l.begun)
	total := &tally{}
	for i := range tallies {
		total.add(&tallies[i])
	}
	return total, took, nil
}

// work is one worker: it owns a copy of each template.
func (l *load) work(ctx context.Context, s sender, t *tally) {
	requests := make([]*request, len(l.group.requests))
	for i, r := range l.group.requests {
		requests[i] = r.clone()
	}
	deadline := l.begun.Add(l.duration)
	from := deadline.Add(-l.window())
	for {
		e, ok := l.take(ctx, deadline)
		if !ok {
			return
		}
		r := requests[e.phase]
		if r.spans == 0 {
			continue
		}
		r.fill(l.source, e.first, e.start)
		sent := time.Now()
		rejected, retries, err := sendWithRetries(ctx, s, r.bytes)
		now := time.Now()
		t.Requests++
		t.Spans += int64(r.spans)
		t.Retried += int64(retries)
		t.Bytes += int64(len(r.bytes))
		if err != nil {
			t.Failed += int64(r.spans)
			t.callsMay += int64(r.calls)
			requests[e.phase] = l.group.requests[e.phase].clone() // gRPC may still be reading the old one
			if ctx.Err() == nil {
				l.failure(err)
			}
			continue
		}
		t.latencies = append(t.latencies, now.Sub(sent))
		t.Rejected += rejected
		t.Acked += int64(r.spans) - rejected
		if now.After(from) && now.Before(deadline) {
			t.InTime += int64(r.spans) - rejected
		}
		if rejected > 0 {
			t.callsMay += int64(r.calls)
		} else {
			t.callsSure += int64(r.calls)
		}
	}
}

// take waits for the next export. Those of groups that were begun go first when
// they are due; else a new group begins, if the time and the rate allow.
func (l *load) take(ctx context.Context, deadline time.Time) (export, bool) {
	for {
		now := time.Now()
		l.mu.Lock()
		var wait time.Duration
		switch due := len(l.later) > 0 && !l.later[0].due.After(now); {
		case ctx.Err() != nil:
			l.mu.Unlock()
			return export{}, false
		case due:
			e := l.later[0]
			l.later = l.later[1:]
			l.after(e)
			l.mu.Unlock()
			return e, true
		case now.Before(deadline) && (l.rate <= 0 || !l.next.After(now)):
			e := l.begin(now)
			l.after(e)
			l.mu.Unlock()
			return e, true
		case now.Before(deadline):
			wait = l.next.Sub(now)
			if len(l.later) > 0 {
				wait = min(wait, l.later[0].due.Sub(now))
			}
		case len(l.later) == 0:
			l.mu.Unlock()
			return export{}, false
		default:
			wait = l.later[0].due.Sub(now)
		}
		l.mu.Unlock()
		select {
		case <-time.After(min(wait, 100*time.Millisecond)):
		case <-ctx.Done():
		}
	}
}

// begin numbers a new group of runs and books its spans, those of later exports
// included, against the rate. The caller holds mu.
func (l *load) begin(now time.Time) export {
	block := uint64((l.group.runs + runsOfResource - 1) / runsOfResource * runsOfResource)
	first := l.runs
	l.runs += block
	if l.rate > 0 {
		if late := now.Add(-maxBehind); l.next.Before(late) {
			l.next = late
		}
		l.next = l.next.Add(time.Duration(float64(l.group.spans) / l.rate * float64(time.Second)))
	}
	return export{
		first: first,
		start: now.Add(-l.group.age).UnixNano(),
		due:   now,
	}
}

// after queues the export that follows e. All are equally long after the one
// before, but e may have been late, so the place is found from the end. The
// caller holds mu.
func (l *load) after(e export) {
	if e.phase+1 >= l.group.phases {
		return
	}
	e.phase++
	e.due = e.due.Add(exportEvery)
	i := len(l.later)
	for i > 0 && l.later[i-1].due.After(e.due) {
		i--
	}
	l.later = append(l.later, export{})
	copy(l.later[i+1:], l.later[i:])
	l.later[i] = e
}

package otlp

import (
	"context"
	"strconv"
	"sync"
	"time"
)

// budget is a counting semaphore over bytes that serves its waiters in order, so that a large request is not starved by
// small ones.
type budget struct {
	limit int64

	mu      sync.Mutex // guards used and waiters
	used    int64
	waiters []*waiter
}

type waiter struct {
	n     int64
	ready chan struct{} // closed, under mu, when n was granted
}

func newBudget(limit int64) *budget { return &budget{limit: limit} }

// acquire takes n bytes, waiting at most wait for them. The error is an Overload, or the context's.
func (b *budget) acquire(ctx context.Context, n int64, wait time.Duration) error {
	b.mu.Lock()
	if len(b.waiters) == 0 && b.used+n <= b.limit {
		b.used += n
		b.mu.Unlock()
		return nil
	}
	if wait <= 0 || n > b.limit {
		b.mu.Unlock()
		return b.overload()
	}
	w := &waiter{n: n, ready: make(chan struct{})}
	b.waiters = append(b.waiters, w)
	b.mu.Unlock()

	timer := time.NewTimer(wait)
	defer timer.Stop()
	var err error
	select {
	case <-w.ready:
		return nil
	case <-timer.C:
		err = b.overload()
	case <-ctx.Done():
		err = ctx.Err()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.waiters {
		if b.waiters[i] == w {
			b.waiters = append(b.waiters[:i], b.waiters[i+1:]...)
			b.grant() // whoever stood behind w may fit
			return err
		}
	}
	return nil // granted in the meantime
}

// release gives n bytes back.
func (b *budget) release(n int64) {
	if n == 0 {
		return
	}
	b.mu.Lock()
	b.used -= n
	if b.used < 0 {
		panic("BUG: more bytes released than acquired")
	}
	b.grant()
	b.mu.Unlock()
}

// grant serves waiters from the front while they fit. The caller holds mu.
func (b *budget) grant() {
	for len(b.waiters) > 0 && b.used+b.waiters[0].n <= b.limit {
		w := b.waiters[0]
		b.used += w.n
		b.waiters = b.waiters[1:]
		close(w.ready)
	}
}

// inUse is the number of bytes taken.
func (b *budget) inUse() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

func (b *budget) overload() error {
	return Overload{RetryAfter: defaultRetry, Reason: "receiver works on " + byteCount(b.limit) + " of requests already: send it again"}
}

// byteCount spells a number of bytes for people.
func byteCount(n int64) string {
	switch {
	case n >= 1<<20 && n%(1<<20) == 0:
		return strconv.FormatInt(n>>20, 10) + " MiB"
	case n >= 1<<10 && n%(1<<10) == 0:
		return strconv.FormatInt(n>>10, 10) + " KiB"
	}
	return strconv.FormatInt(n, 10) + " bytes"
}

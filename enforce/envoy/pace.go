package envoy

import (
	"sync"
	"time"
)

// pacer spaces calls where a directive says Wait: the first call of each interval
// passes. Directives say the interval and keep no count of calls, so whoever
// enforces them has to.
type pacer struct {
	mu   sync.Mutex           // guards next
	next map[string]time.Time // by directive: when a call passes again
}

// maxPaced bounds the memory for directives that throttle.
const maxPaced = 4096

// take lets a call pass and returns 0, or says how long it is until one passes.
func (p *pacer) take(id string, every time.Duration, now time.Time) time.Duration {
	if every <= 0 {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if at := p.next[id]; now.Before(at) {
		// An interval that was shortened since counts at once.
		return min(at.Sub(now), every)
	}
	if len(p.next) >= maxPaced {
		for k, at := range p.next {
			if !now.Before(at) {
				delete(p.next, k)
			}
		}
		if len(p.next) >= maxPaced {
			clear(p.next)
		}
	}
	if p.next == nil {
		p.next = map[string]time.Time{}
	}
	p.next[id] = now.Add(every)
	return 0
}

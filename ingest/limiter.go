package ingest

import (
	"strings"
	"sync"
	"time"
)

// tenantLimiter is a token bucket a tenant, refilled per second and one second deep.
type tenantLimiter struct {
	rate float64

	mu      sync.Mutex // guards buckets
	buckets map[string]*bucket
}

type bucket struct {
	tokens float64
	at     time.Time
}

func newTenantLimiter(perSecond int) *tenantLimiter {
	return &tenantLimiter{rate: float64(perSecond), buckets: map[string]*bucket{}}
}

// take spends n tokens or says how long to wait. A request larger than the bucket
// passes when it is full and leaves it in debt.
func (l *tenantLimiter) take(tenant string, n int, now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.buckets[tenant]
	if b == nil {
		if len(l.buckets) > 100_000 { // full buckets say nothing
			for t, b := range l.buckets {
				if now.Sub(b.at) > time.Second {
					delete(l.buckets, t)
				}
			}
		}
		b = &bucket{tokens: l.rate, at: now}
		l.buckets[strings.Clone(tenant)] = b
	}
	b.tokens = min(l.rate, b.tokens+now.Sub(b.at).Seconds()*l.rate)
	b.at = now
	if b.tokens < min(float64(n), l.rate) {
		return max(time.Second, time.Duration((min(float64(n), l.rate)-b.tokens)/l.rate*float64(time.Second)))
	}
	b.tokens -= float64(n)
	return 0
}

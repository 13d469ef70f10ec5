package ingest

import (
	"strings"
	"sync"
	"time"
)

// tenantLimiter is a token bucket a tenant, refilled per second and one second deep.
type tenantLimiter struct {
	rate float64

	mu        sync.Mutex // guards the rest
	buckets   map[string]*bucket
	forgotten time.Time // when full buckets were last dropped
}

// maxBuckets is how many tenants are kept apart before those that sent nothing lately are forgotten.
const maxBuckets = 100_000

type bucket struct {
	tokens float64
	at     time.Time
}

func newTenantLimiter(perSecond int) *tenantLimiter {
	return &tenantLimiter{rate: float64(perSecond), buckets: map[string]*bucket{}}
}

// take spends the spans of a request, n of each tenant, or none of them: then it says whose rate
// is the one to wait for, and how long. A request larger than a bucket passes when that is full
// and leaves it in debt.
func (l *tenantLimiter) take(spans map[string]int, now time.Time) (tenant string, wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for t, n := range spans {
		b := l.bucket(t, now)
		if need := min(float64(n), l.rate); b.tokens < need {
			if w := max(time.Second, time.Duration((need-b.tokens)/l.rate*float64(time.Second))); w > wait {
				tenant, wait = t, w
			}
		}
	}
	if wait > 0 {
		return tenant, wait
	}
	for t, n := range spans {
		l.buckets[t].tokens -= float64(n)
	}
	return "", 0
}

// bucket is a tenant's, filled up to now. mu is held.
func (l *tenantLimiter) bucket(tenant string, now time.Time) *bucket {
	b := l.buckets[tenant]
	if b == nil {
		b = &bucket{tokens: l.rate, at: now}
		l.buckets[strings.Clone(tenant)] = b
	}
	b.tokens = min(l.rate, b.tokens+now.Sub(b.at).Seconds()*l.rate)
	b.at = now
	return b
}

// forget drops the buckets that are full again, which say nothing, once there are many.
func (l *tenantLimiter) forget(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.buckets) <= maxBuckets || now.Sub(l.forgotten) < time.Second {
		return
	}
	l.forgotten = now
	for t, b := range l.buckets {
		if b.tokens+now.Sub(b.at).Seconds()*l.rate >= l.rate {
			delete(l.buckets, t)
		}
	}
}

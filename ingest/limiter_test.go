package ingest

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/flyball/flyball/ingest/otlp"
)

// A request that one tenant's rate refuses spends nothing of another's: else a tenant that sends
// too much through a shared gateway keeps out those that stand beside it in its requests.
func TestRefusedRequestSpendsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTenantLimiter(10)
		if _, wait := l.take(map[string]int{"loud": 40}, time.Now()); wait != 0 {
			t.Fatalf("a full bucket waits %v", wait)
		}
		for range 20 {
			tenant, wait := l.take(map[string]int{"loud": 10, "quiet": 10}, time.Now())
			if tenant != "loud" || wait != 4*time.Second {
				t.Fatalf("wait %v for %q, want 4s for loud", wait, tenant)
			}
		}
		if _, wait := l.take(map[string]int{"quiet": 10}, time.Now()); wait != 0 {
			t.Errorf("quiet waits %v for what was never taken of it", wait)
		}
		time.Sleep(4 * time.Second)
		if tenant, wait := l.take(map[string]int{"loud": 10, "quiet": 10}, time.Now()); wait != 0 {
			t.Errorf("after the wait that was asked for, %v more for %s", wait, tenant)
		}
	})
}

// The wait that is told is the longest, so that the request passes after it.
func TestWaitIsTheLongest(t *testing.T) {
	l := newTenantLimiter(10)
	now := time.Now()
	l.take(map[string]int{"a": 30, "b": 60, "c": 10}, now)
	for range 20 {
		if tenant, wait := l.take(map[string]int{"a": 1, "b": 10, "c": 1}, now); tenant != "b" || wait != 6*time.Second {
			t.Fatalf("wait %v for %q, want 6s for b", wait, tenant)
		}
	}
}

// A tenant in debt stays in debt when others are forgotten.
func TestDebtIsKept(t *testing.T) {
	l := newTenantLimiter(10)
	now := time.Now()
	for i := range maxBuckets {
		l.take(map[string]int{string(rune(i%0xd000)) + string(rune('a'+i/0xd000)): 1}, now)
	}
	l.take(map[string]int{"debtor": 1000}, now)
	now = now.Add(5 * time.Second)
	l.forget(now)
	if n := len(l.buckets); n != 1 {
		t.Errorf("%d tenants are kept, want the one in debt", n)
	}
	if _, wait := l.take(map[string]int{"debtor": 10}, now); wait == 0 {
		t.Error("the debt was forgotten")
	}
}

// A full log refuses events that are calls, and no other record.
func TestFullLogTakesOtherRecords(t *testing.T) {
	t.Parallel()
	r, sink := newFaultyRig(t)
	r.close()
	r.o.WALBytes = 256 << 10
	r.open()
	sink.set(func(string, func() error) error { return errDown })
	record := func(name string, n int) plog.Logs {
		ld := plog.NewLogs()
		for range n {
			ld.ResourceLogs().AppendEmpty().ScopeLogs().AppendEmpty().LogRecords().AppendEmpty().Attributes().PutStr("event.name", name)
		}
		return ld
	}
	var refused otlp.Overload
	for i := 0; ; i += 200 {
		if i > 1_000_000 {
			t.Fatal("the log takes everything")
		}
		if _, err := r.p.Traces(t.Context(), otlp.Sender{Local: true}, chats(i, i+200, nil)); errors.As(err, &refused) {
			break
		}
	}
	for _, n := range []int{1, 10_000} {
		if _, err := r.p.Logs(t.Context(), otlp.Sender{Local: true}, record("something.else", n)); err != nil {
			t.Errorf("%d records that are no call: %v", n, err)
		}
	}
	if _, err := r.p.Logs(t.Context(), otlp.Sender{Local: true}, record("claude_code.api_request", 500)); !errors.As(err, &refused) || refused.Throttled || refused.RetryAfter == 0 {
		t.Errorf("events that are calls: %v", err)
	}
	sink.set(nil)
}

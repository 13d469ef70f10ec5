package ingest

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/flyball/flyball/ingest/otlp"
)

// depths are points of a queue's depth with numbers in [from, to), one a millisecond.
func depths(from, to int) pmetric.Metrics {
	md := pmetric.NewMetrics()
	m := md.ResourceMetrics().AppendEmpty().ScopeMetrics().AppendEmpty().Metrics().AppendEmpty()
	m.SetName("flyball.limiter.queue.depth")
	start := time.Now().Add(-time.Hour).Truncate(time.Hour)
	m.SetEmptyGauge()
	for i := from; i < to; i++ {
		dp := m.Gauge().DataPoints().AppendEmpty()
		dp.SetIntValue(int64(i))
		dp.SetTimestamp(pcommon.NewTimestampFromTime(start.Add(time.Duration(i) * time.Millisecond)))
		dp.Attributes().PutStr("gen_ai.provider.name", "openai")
	}
	return md
}

func (r *rig) sample(md pmetric.Metrics) {
	r.t.Helper()
	res, err := r.p.Metrics(r.t.Context(), otlp.Sender{Local: true}, md)
	if err != nil || res.Rejected > 0 {
		r.t.Fatal(res, err)
	}
}

// sampled waits until ClickHouse has everything and compares the rows.
func (r *rig) sampled(want int) {
	r.t.Helper()
	r.until("clickhouse has every sample", func() bool { return r.p.Status().Samples == 0 })
	if got := r.one("SELECT count() FROM limiter_samples FINAL"); got != int64(want) {
		r.t.Errorf("%d samples, want %d", got, want)
	}
	if got := r.one("SELECT toInt64(sum(value)) FROM limiter_samples FINAL"); got != int64(want*(want-1)/2) {
		r.t.Errorf("the values sum to %d", got)
	}
}

// TestSamplesRedelivered: what comes again, at once, beside new points or after a
// restart, is the same rows. Other metrics are counted and need nothing.
func TestSamplesRedelivered(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.sample(depths(0, 500))
	r.sample(depths(0, 500))
	r.sampled(500)
	r.sample(depths(400, 600))
	r.restart()
	r.sample(depths(0, 600))
	r.sampled(600)
	other := depths(0, 10)
	other.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().At(0).SetName("http.server.active_requests")
	r.sample(other)
	r.sampled(600)
	if got := r.one("SELECT countIf(provider != 'openai' OR tenant != 'default' OR recorded_at < at) FROM limiter_samples"); got != 0 {
		t.Errorf("%d rows are wrong", got)
	}
}

// TestSamplesCrash: the process ends before, and after, the insert of samples that were
// acknowledged. None is lost, and no block is stored under another token.
func TestSamplesCrash(t *testing.T) {
	t.Parallel()
	f := func(stored bool) {
		t.Helper()
		r, sink := newFaultyRig(t)
		tried := make(chan struct{}, 1)
		sink.set(func(_ string, insert func() error) error {
			var err error
			if stored {
				err = insert()
			}
			select {
			case tried <- struct{}{}:
			default:
			}
			return errors.Join(err, errDown)
		})
		r.sample(depths(0, 300))
		<-tried
		r.crash()
		sink.set(nil)
		r.sampled(300)
		if got := r.one("SELECT count() FROM limiter_samples"); got != 300 {
			t.Errorf("%d rows before a merge", got)
		}
		for _, token := range sink.attempts() {
			if token != sink.attempts()[0] {
				t.Errorf("tokens %q", sink.attempts())
				break
			}
		}
	}
	f(false)
	f(true)
}

// TestSamplesAlone: while nothing but samples comes, the log is pruned all the same, and
// a full log refuses them, but no other metric.
func TestSamplesAlone(t *testing.T) {
	t.Parallel()
	r, sink := newFaultyRig(t)
	r.close()
	r.o.WALBytes = 256 << 10
	r.open()
	const each = 200
	n := 0
	for ; n < 15_000; n += each { // several logs full
		r.until("there is room", func() bool {
			_, err := r.p.Metrics(t.Context(), otlp.Sender{Local: true}, depths(n, n+each))
			return err == nil
		})
	}
	r.sampled(n)
	sink.set(func(string, func() error) error { return errDown })
	var refused otlp.Overload
	for i := n; ; i += each {
		if i > 1_000_000 {
			t.Fatal("the log takes everything")
		}
		_, err := r.p.Metrics(t.Context(), otlp.Sender{Local: true}, depths(i, i+each))
		if errors.As(err, &refused) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if refused.Throttled || refused.RetryAfter == 0 {
		t.Errorf("%+v", refused)
	}
	other := depths(0, 10)
	other.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().At(0).SetName("system.cpu.time")
	r.sample(other)
	sink.set(nil)
	r.until("they are taken again", func() bool {
		_, err := r.p.Metrics(t.Context(), otlp.Sender{Local: true}, depths(0, each))
		return err == nil
	})
}

// TestSamplesQuarantined: a block that the table refuses is put aside, and entries and
// later samples go on.
func TestSamplesQuarantined(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	if err := r.engine.Conn().Exec(t.Context(), "ALTER TABLE limiter_samples ADD CONSTRAINT poison CHECK value < 1000"); err != nil {
		t.Fatal(err)
	}
	r.sample(depths(1000, 1001))
	r.until("they are put aside", func() bool { return r.p.Status().Samples == 0 })
	r.sample(depths(0, 10))
	r.send(chats(0, 10, nil))
	r.drain()
	r.spans(10)
	r.sampled(10)
	b, err := os.ReadFile(filepath.Join(r.o.Dir, "quarantine", "samples.jsonl"))
	if err != nil || bytes.Count(b, []byte("\n")) != 1 || !strings.Contains(string(b), `"value":1000`) || !strings.Contains(string(b), "poison") {
		t.Errorf("quarantine: %s %v", b, err)
	}
}

// TestSamplesThrottled: a sample counts like a span of its tenant.
func TestSamplesThrottled(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(o *Options) { o.TenantSpansPerSecond = 100 })
	r.sample(depths(0, 100))
	var refused otlp.Overload
	if _, err := r.p.Metrics(t.Context(), otlp.Sender{Local: true}, depths(100, 200)); !errors.As(err, &refused) || !refused.Throttled {
		t.Errorf("got %v", err)
	}
}

package limiter

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/flyball/flyball/enforce/directive"
	"github.com/flyball/flyball/enforce/limiter/otelmetrics"
)

// said is what a limiter says of itself, by metric and attributes.
func said(l *Limiter) map[string]float64 {
	out := map[string]float64{}
	l.Signals(func(metric string, value float64, attributes ...string) {
		out[strings.TrimPrefix(metric, "flyball.limiter.")+" "+strings.Join(attributes, " ")] = value
	})
	return out
}

const ofModel = "gen_ai.provider.name openai gen_ai.request.model m-5"

// TestSignals: attempts by what became of them, retries that the SDK marks, and what
// answers of the last minute said of the provider's limits.
func TestSignals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := guarded(t)
		var answer func() (*http.Response, error)
		rt := l.Transport(TransportOptions{Base: roundTrip(func(r *http.Request) (*http.Response, error) { return answer() })})
		call := func(r *http.Request, want error) {
			t.Helper()
			if _, err := rt.RoundTrip(r); err != want {
				t.Fatalf("got %v, want %v", err, want)
			}
		}
		status := func(code int, header ...string) {
			h := http.Header{}
			for i := 0; i < len(header); i += 2 {
				h.Set(header[i], header[i+1])
			}
			answer = func() (*http.Response, error) {
				return &http.Response{StatusCode: code, Header: h, Body: io.NopCloser(strings.NewReader("{}"))}, nil
			}
		}
		chat := func() *http.Request { return post(chatPath, `{"model":"m-5"}`) }
		check := func(want map[string]float64) {
			t.Helper()
			if got := said(l); !maps.Equal(got, want) {
				t.Errorf("\n got %v\nwant %v", got, want)
			}
		}
		check(map[string]float64{})
		status(200)
		call(chat(), nil)
		get, _ := http.NewRequest(http.MethodGet, "http://provider.test/v1/models", nil)
		call(get, nil) // costs nothing, and is no attempt
		status(429, "x-ratelimit-limit-tokens", "1000", "x-ratelimit-remaining-tokens", "250")
		call(chat(), nil)
		again := chat()
		again.Header.Set("x-stainless-retry-count", "1")
		call(again, nil)
		answer = func() (*http.Response, error) { return nil, context.DeadlineExceeded }
		call(chat(), context.DeadlineExceeded)
		answer = func() (*http.Response, error) { return nil, io.ErrUnexpectedEOF }
		call(chat(), io.ErrUnexpectedEOF)
		want := map[string]float64{
			"attempts " + ofModel + " http.response.status_code 200": 1,
			"attempts " + ofModel + " http.response.status_code 429": 2,
			"attempts " + ofModel + " error.type timeout":            1,
			"attempts " + ofModel + " error.type connection":         1,
			"retries " + ofModel: 1,
		}
		quiet := maps.Clone(want)
		for name, v := range map[string]float64{"limit": 1000, "remaining": 250, "fill": 0.25} {
			want["bucket."+name+" "+ofModel+" flyball.limiter.dimension tokens"] = v
		}
		check(want)
		time.Sleep(freshHeadroom + time.Second)
		check(quiet) // nobody knows what is left by now
	})
}

// TestSignalsOfThrottle: calls that wait are a queue, whose waits are told when they
// are over or given up.
func TestSignalsOfThrottle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := guarded(t, directive.Directive{ID: "slow", Guard: "g", Action: directive.Throttle, IntervalMS: 1000})
		var waits []string
		l.OnWait(func(provider, model string, wait time.Duration) {
			waits = append(waits, fmt.Sprint(provider, " ", model, " ", wait))
		})
		c := Call{Provider: "openai", Model: "m-5"}
		reader := sdkmetric.NewManualReader()
		if err := otelmetrics.Register(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)).Meter("test"), l); err != nil {
			t.Fatal(err)
		}
		depth := func(want float64) {
			t.Helper()
			synctest.Wait()
			if got, known := said(l)["queue.depth "+ofModel]; got != want || !known {
				t.Errorf("the queue's depth is %v (%v), want %v", got, known, want)
			}
		}
		admit := func(ctx context.Context) { _, _ = l.Admit(ctx, &c) }
		admit(t.Context()) // at once
		if got := said(l); len(got) != 0 {
			t.Errorf("a call that did not wait: %v", got)
		}
		ctx, cancel := context.WithCancel(t.Context())
		go admit(t.Context())
		go admit(t.Context())
		depth(2)
		go admit(ctx)
		depth(3)
		time.Sleep(1500 * time.Millisecond)
		depth(2)
		cancel()
		depth(1)
		time.Sleep(time.Second)
		depth(0)
		if got := fmt.Sprint(waits); got != "[openai m-5 1s openai m-5 1.5s openai m-5 2s]" {
			t.Errorf("waits %s", got)
		}
		var exported metricdata.ResourceMetrics
		if err := reader.Collect(t.Context(), &exported); err != nil {
			t.Fatal(err)
		}
		for _, m := range exported.ScopeMetrics[0].Metrics {
			if h, ok := m.Data.(metricdata.Histogram[float64]); ok && m.Name == "flyball.limiter.queue.wait_time" && m.Unit == "s" && len(h.DataPoints) == 1 && h.DataPoints[0].Count == 3 && h.DataPoints[0].Sum == 4.5 && h.DataPoints[0].Attributes.Len() == 3 {
				return
			}
		}
		t.Errorf("exported %+v", exported.ScopeMetrics)
	})
}

// TestSignalsAreBounded: names that a caller makes up do not fill the memory.
func TestSignalsAreBounded(t *testing.T) {
	l := guarded(t)
	r := post(chatPath, "{}")
	r.Header.Set("X-Stainless-Retry-Count", "2")
	for i := range maxTargets + 50 {
		c := Call{Provider: "p", Model: fmt.Sprint("m-", i)}
		l.signals.attempted(&c, r, &http.Response{StatusCode: 200}, nil)
	}
	got := said(l)
	if len(got) > 2*maxTargets+2 || got["attempts gen_ai.provider.name p gen_ai.request.model _OTHER http.response.status_code 200"] != 50 || got["retries gen_ai.provider.name p gen_ai.request.model _OTHER"] != 50 {
		t.Errorf("%d signals", len(got))
	}
}

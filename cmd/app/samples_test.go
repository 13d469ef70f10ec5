package app

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"

	"github.com/flyball/flyball/enforce/limiter"
	"github.com/flyball/flyball/enforce/limiter/otelmetrics"
)

// metrics posts OTLP metrics as JSON.
func (s *service) metrics(body string) (int, string) {
	s.t.Helper()
	res, err := client.Post(s.url("otlp_http", "/v1/metrics"), "application/json", strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return res.StatusCode, string(b)
}

// sampled waits until ClickHouse has every sample that was acknowledged.
func (s *service) sampled() {
	s.t.Helper()
	eventually(s.t, "clickhouse has every sample", func() bool {
		r, err := s.readyz()
		return err == nil && r.ClickHouse.Ready && r.Ingest.Samples == 0
	})
}

// TestLimiterSignals: a real limiter in front of a real server exports what it sees of
// itself through OpenTelemetry's own SDK and exporters, with delta and with cumulative
// counters; each signal is in the table as it was seen.
func TestLimiterSignals(t *testing.T) {
	t.Parallel()
	s := newService(t, "")
	s.start()
	n := 0
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("x-ratelimit-limit-requests", "100")
		w.Header().Set("x-ratelimit-remaining-requests", fmt.Sprint(40-n))
		if n++; n%3 == 0 {
			w.WriteHeader(http.StatusTooManyRequests)
		}
	}))
	defer provider.Close()
	l, err := limiter.New(limiter.Options{URL: s.url("http", ""), ID: "l-1"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { _ = l.Follow(ctx) }()
	if err := l.Ready(ctx); err != nil {
		t.Fatal(err)
	}
	grpc, err := otlpmetricgrpc.New(ctx, otlpmetricgrpc.WithEndpoint(s.addrs["otlp_grpc"]), otlpmetricgrpc.WithInsecure())
	if err != nil {
		t.Fatal(err)
	}
	http1, err := otlpmetrichttp.New(ctx, otlpmetrichttp.WithEndpoint(s.addrs["otlp_http"]), otlpmetrichttp.WithInsecure(), otlpmetrichttp.WithCompression(otlpmetrichttp.GzipCompression),
		otlpmetrichttp.WithTemporalitySelector(sdkmetric.DeltaTemporalitySelector))
	if err != nil {
		t.Fatal(err)
	}
	var flush []func(context.Context) error
	for name, e := range map[string]sdkmetric.Exporter{"cumulative": grpc, "delta": http1} {
		p := sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewPeriodicReader(e, sdkmetric.WithInterval(time.Hour))), sdkmetric.WithResource(resource.NewSchemaless(attribute.String("service.instance.id", name))))
		defer func() { _ = p.Shutdown(context.WithoutCancel(ctx)) }()
		if err := otelmetrics.Register(p.Meter("test"), l); err != nil {
			t.Fatal(err)
		}
		flush = append(flush, p.ForceFlush)
	}
	rt := l.Transport(limiter.TransportOptions{})
	send := func(calls int) {
		t.Helper()
		for i := range calls {
			r, err := http.NewRequest(http.MethodPost, provider.URL+"/v1/chat/completions", strings.NewReader(`{"model":"m-1"}`))
			if err != nil {
				t.Fatal(err)
			}
			if i > 0 {
				r.Header.Set("X-Stainless-Retry-Count", fmt.Sprint(i))
			}
			res, err := rt.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			_ = res.Body.Close()
		}
		for _, f := range flush {
			if err := f(ctx); err != nil {
				t.Fatal(err)
			}
		}
	}
	l.BreakerChanged(limiter.Breaker{Tool: "crm"}, "open")
	send(3) // 200, 200, 429
	l.BreakerChanged(limiter.Breaker{Tool: "crm"}, "half-open")
	send(6) // and two of 429 among them
	s.sampled()
	f := func(sql, want string) {
		t.Helper()
		if got := s.one(sql); got != want {
			t.Errorf("%s: %s, want %s", sql, got, want)
		}
	}
	f("SELECT uniqExact(metric) FROM limiter_samples", "7")
	f("SELECT count() FROM limiter_samples WHERE limiter != 'l-1' OR tool = '' AND (provider != 'openai' OR model != 'm-1') OR tenant != 'default'", "0")
	f("SELECT arrayStringConcat(groupArray(concat(state, ' ', toString(n))), ', ') FROM (SELECT state, sum(value) AS n FROM limiter_samples WHERE metric = 'flyball.limiter.breaker.transitions' AND tool = 'crm' AND temporality = 'delta' GROUP BY state ORDER BY state)", "half_open 1, open 1")
	f("SELECT argMax(value, at) FROM limiter_samples WHERE metric = 'flyball.limiter.breaker.open' AND tool = 'crm'", "0.5")
	f("SELECT sum(value) FROM limiter_samples WHERE metric = 'flyball.limiter.attempts' AND temporality = 'delta'", "9")
	f("SELECT sum(value) FROM limiter_samples WHERE metric = 'flyball.limiter.attempts' AND temporality = 'delta' AND http_status = 429", "3")
	f("SELECT sum(last) FROM (SELECT max(value) AS last FROM limiter_samples WHERE metric = 'flyball.limiter.attempts' AND temporality = 'cumulative' GROUP BY series)", "9")
	f("SELECT sum(value) FROM limiter_samples WHERE metric = 'flyball.limiter.retries' AND temporality = 'delta'", "7")
	f("SELECT countIf(started_at < '2020-01-01' OR started_at > at) FROM limiter_samples WHERE temporality != 'gauge'", "0")
	f("SELECT argMax(value, at) FROM limiter_samples WHERE metric = 'flyball.limiter.bucket.remaining' AND dimension = 'requests'", "32")
	f("SELECT argMax(value, at) FROM limiter_samples WHERE metric = 'flyball.limiter.bucket.fill'", "0.32")
}

// TestLimiterSignalsOfOthers: signals of any sender, in JSON; what is no signal is ignored
// and what is wrong refused by name, in an answer that says what to do. Waits of a throttle
// come as a histogram.
func TestLimiterSignalsOfOthers(t *testing.T) {
	t.Parallel()
	s := newService(t, "")
	s.start()
	at := time.Now().UnixNano()
	times := fmt.Sprintf(`"startTimeUnixNano":"%d","timeUnixNano":"%d"`, at-int64(time.Minute), at)
	body := func(metrics ...string) string {
		return `{"resourceMetrics":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"gw"}}]},"scopeMetrics":[{"metrics":[` + strings.Join(metrics, ",") + `]}]}]}`
	}
	wait := `{"name":"flyball.limiter.queue.wait_time","unit":"s","histogram":{"aggregationTemporality":2,"dataPoints":[{"count":"3","sum":1.5,"explicitBounds":[0.1,1],"bucketCounts":["1","1","1"],` + times + `}]}}`
	opened := `{"name":"flyball.limiter.breaker.transitions","unit":"{transition}","sum":{"isMonotonic":true,"aggregationTemporality":1,"dataPoints":[{"asInt":"1",` + times + `,"attributes":[{"key":"gen_ai.tool.name","value":{"stringValue":"crm"}},{"key":"flyball.limiter.breaker.state","value":{"stringValue":"open"}}]}]}}`
	other := `{"name":"process.cpu.time","sum":{"dataPoints":[{"asInt":"1"},{"asInt":"2"}]}}`
	wrong := `{"name":"flyball.limiter.attempts","gauge":{"dataPoints":[{"asInt":"1",` + times + `}]}}`
	f := func(body string, code int, words ...string) {
		t.Helper()
		got, answer := s.metrics(body)
		if got != code {
			t.Errorf("%d: %s", got, answer)
		}
		for _, w := range words {
			if !strings.Contains(answer, w) {
				t.Errorf("the answer %s lacks %s", answer, w)
			}
		}
		if len(words) == 0 && answer != "{}" {
			t.Errorf("the answer is %s", answer)
		}
	}
	f(body(wait, opened, other), http.StatusOK)
	f(body(wait, opened, other), http.StatusOK) // again
	f(body(wrong, wait), http.StatusOK, `"rejectedDataPoints":"1"`, "flyball.limiter.attempts is no monotonic sum")
	f(`{"resourceMetrics":[{]}`, http.StatusBadRequest, "JSON")
	f(body(other), http.StatusOK)
	s.sampled()
	rows := s.query("SELECT metric, limiter, tool, state, value, count, bounds, buckets FROM limiter_samples FINAL ORDER BY metric")
	if got := fmt.Sprint(rows); got != "[[flyball.limiter.breaker.transitions gw crm open 1 0 [] []] [flyball.limiter.queue.wait_time gw   1.5 3 [0.1,1] [1,1,1]]]" {
		t.Errorf("rows %s", got)
	}
	c := s.counters()
	for name, want := range map[string]float64{`flyball_limiter_samples_total{result="taken"}`: 5, `flyball_limiter_samples_total{result="stored"}`: 5, `flyball_records_ignored_total{signal="metrics"}`: 6, `flyball_otlp_records_rejected_total{reason="consumer",signal="metrics"}`: 1} {
		if c[name] != want {
			t.Errorf("%s is %v, want %v", name, c[name], want)
		}
	}
}

// TestLimiterSignalsKilled: the service is killed between the acknowledgement and the
// insert, ClickHouse being away. Nothing that was acknowledged is lost, and what is sent
// again is no second row.
func TestLimiterSignalsKilled(t *testing.T) {
	t.Parallel()
	s, install := absentEngine(t)
	s.start()
	at := time.Now().Add(-time.Hour).UnixNano()
	body := func(n int) string {
		var b bytes.Buffer
		for i := range 50 {
			if i > 0 {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, `{"asInt":"1","timeUnixNano":"%d"}`, at+int64(n*50+i)*int64(time.Millisecond))
		}
		return `{"resourceMetrics":[{"scopeMetrics":[{"metrics":[{"name":"flyball.limiter.queue.depth","gauge":{"dataPoints":[` + b.String() + `]}}]}]}]}`
	}
	for i := range 10 {
		if code, answer := s.metrics(body(i)); code != http.StatusOK {
			t.Fatal(code, answer)
		}
	}
	s.kill()
	s.start()
	if r, err := s.readyz(); err != nil || r.Ingest.Samples != 500 {
		t.Errorf("after a restart: %+v %v", r, err)
	}
	for i := 5; i < 12; i++ {
		if code, answer := s.metrics(body(i)); code != http.StatusOK {
			t.Fatal(code, answer)
		}
	}
	install()
	s.sampled()
	if got := s.one("SELECT sum(value) FROM limiter_samples FINAL"); got != "600" {
		t.Errorf("%s samples, want 600", got)
	}
}

package otlp

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/flyball/flyball/schema"
)

// exporters are the stock clients, whose retry table is the contract.
func exporters(t *testing.T, g *rig, secret string) map[string]sdktrace.SpanExporter {
	t.Helper()
	headers := map[string]string{}
	if secret != "" {
		headers["Authorization"] = "Bearer " + secret
	}
	out := map[string]sdktrace.SpanExporter{}
	add := func(name string, e sdktrace.SpanExporter, err error) {
		if err != nil {
			t.Fatal(err)
		}
		out[name] = e
	}
	ctx := context.Background()
	gr := otlptracegrpc.RetryConfig{Enabled: true, InitialInterval: 10 * time.Millisecond, MaxInterval: 50 * time.Millisecond, MaxElapsedTime: 20 * time.Second}
	hr := otlptracehttp.RetryConfig(gr)
	e1, err := otlptracegrpc.New(ctx, otlptracegrpc.WithEndpoint(g.grpc), otlptracegrpc.WithInsecure(), otlptracegrpc.WithHeaders(headers), otlptracegrpc.WithRetry(gr))
	add("grpc", e1, err)
	e2, err := otlptracegrpc.New(ctx, otlptracegrpc.WithEndpoint(g.grpc), otlptracegrpc.WithInsecure(), otlptracegrpc.WithHeaders(headers), otlptracegrpc.WithRetry(gr), otlptracegrpc.WithCompressor("gzip"))
	add("grpc gzip", e2, err)
	e3, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(g.url+"/v1/traces"), otlptracehttp.WithHeaders(headers), otlptracehttp.WithRetry(hr))
	add("http", e3, err)
	e4, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(g.url+"/v1/traces"), otlptracehttp.WithHeaders(headers), otlptracehttp.WithRetry(hr), otlptracehttp.WithCompression(otlptracehttp.GzipCompression))
	add("http gzip", e4, err)
	return out
}

// send ends n spans through a provider and flushes.
func send(t *testing.T, e sdktrace.SpanExporter, n int) {
	t.Helper()
	ctx := context.Background()
	tp := sdktrace.NewTracerProvider(sdktrace.WithBatcher(e, sdktrace.WithMaxExportBatchSize(10), sdktrace.WithBatchTimeout(time.Hour)))
	tr := tp.Tracer("test")
	for range n {
		_, sp := tr.Start(ctx, "chat")
		sp.End()
	}
	if err := tp.ForceFlush(ctx); err != nil {
		t.Errorf("flush: %v", err)
	}
	if err := tp.Shutdown(ctx); err != nil {
		t.Errorf("shut down: %v", err)
	}
}

func TestStockExporters(t *testing.T) {
	secret, hash := schema.NewSecret()
	g := newRig(t, func(o *Options) {
		o.Keys = ringOf(t, schema.Key{Name: "collector", SHA256: hash, Role: schema.KeyIngest, Tenant: "t-1"})
	})
	want := 0
	for name, e := range exporters(t, g, secret) {
		send(t, e, 25)
		want += 25
		if got := g.sink.count(); got != want {
			t.Errorf("%s: have %d spans, want %d", name, got, want)
		}
	}
	if g.sink.from.Key.Name != "collector" || g.sink.from.Local {
		t.Errorf("sender is %+v, want the key named collector", g.sink.from)
	}
}

func TestBackPressureLosesNothing(t *testing.T) {
	for _, throttled := range []bool{false, true} {
		g := newRig(t, nil)
		for name, e := range exporters(t, g, "") {
			before := g.sink.count()
			var fails atomic.Int32
			g.sink.mu.Lock()
			g.sink.answer = func(int) (Result, error) {
				if fails.Add(1) == 1 {
					return Result{}, &Overload{RetryAfter: time.Millisecond, Throttled: throttled, Reason: "disk is slow"}
				}
				return Result{}, nil
			}
			g.sink.mu.Unlock()
			send(t, e, 25)
			if got := g.sink.count() - before; got != 25 {
				t.Errorf("throttled %v, %s: have %d spans, want 25", throttled, name, got)
			}
			if fails.Load() < 2 {
				t.Errorf("throttled %v, %s: the exporter did not retry", throttled, name)
			}
		}
	}
}

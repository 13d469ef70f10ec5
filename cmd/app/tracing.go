package app

import (
	"context"
	"fmt"
	"net"
	"net/url"

	"github.com/flyball/flyball/schema"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdk "go.opentelemetry.io/otel/sdk/trace"
)

// startTracing exports the service's own spans where the configuration names an
// endpoint, which must not be the service itself.
func startTracing(ctx context.Context, t Tracing, own *Listen) (func(context.Context) error, error) {
	if t.Endpoint == "" {
		return func(context.Context) error { return nil }, nil
	}
	u, err := url.Parse(t.Endpoint)
	if err != nil || u.Host == "" {
		return nil, fmt.Errorf("tracing.endpoint %q: want a URL such as http://127.0.0.1:4319/v1/traces", t.Endpoint)
	}
	for _, addr := range []string{own.OTLPHTTP, own.OTLPGRPC} {
		if _, port, _ := net.SplitHostPort(addr); port != "" && port == u.Port() && schema.Loopback(u.Hostname()) {
			return nil, fmt.Errorf("tracing.endpoint %s is this service's own receiver; its spans must go elsewhere", t.Endpoint)
		}
	}
	exp, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(t.Endpoint))
	if err != nil {
		return nil, fmt.Errorf("start tracing: %w", err)
	}
	tp := sdk.NewTracerProvider(sdk.WithBatcher(exp))
	otel.SetTracerProvider(tp)
	return tp.Shutdown, nil
}

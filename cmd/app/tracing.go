package app

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"

	"github.com/gin-gonic/gin"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/flyball/flyball/schema"
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
		if _, port, _ := net.SplitHostPort(addr); port != "" && port == u.Port() && thisMachine(ctx, u.Hostname()) {
			return nil, fmt.Errorf("tracing.endpoint %s is this service's own receiver; its spans must go elsewhere", t.Endpoint)
		}
	}
	exp, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(t.Endpoint))
	if err != nil {
		return nil, fmt.Errorf("start tracing: %w", err)
	}
	name, err := resource.Merge(resource.Default(), resource.NewSchemaless(attribute.String("service.name", "flyball")))
	if err != nil {
		return nil, fmt.Errorf("start tracing: %w", err)
	}
	tp := sdk.NewTracerProvider(sdk.WithBatcher(exp), sdk.WithResource(name))
	otel.SetTracerProvider(tp)
	return tp.Shutdown, nil
}

// thisMachine reports whether a host is this one, by any of its names and addresses.
func thisMachine(ctx context.Context, host string) bool {
	if schema.Loopback(host) {
		return true
	}
	own, err := net.InterfaceAddrs()
	if err != nil {
		return false
	}
	found, _ := net.DefaultResolver.LookupIPAddr(ctx, host) // who has no address is nowhere
	for _, f := range found {
		for _, o := range own {
			if n, ok := o.(*net.IPNet); ok && n.IP.Equal(f.IP) || f.IP.IsLoopback() || f.IP.IsUnspecified() {
				return true
			}
		}
	}
	return false
}

// traced makes a span of each request to the API.
func traced() gin.HandlerFunc {
	tracer := otel.Tracer("github.com/flyball/flyball/cmd/app")
	return func(c *gin.Context) {
		route := c.FullPath()
		ctx, span := tracer.Start(c.Request.Context(), c.Request.Method+" "+route, trace.WithSpanKind(trace.SpanKindServer),
			trace.WithAttributes(attribute.String("http.request.method", c.Request.Method), attribute.String("http.route", route)))
		defer span.End()
		c.Request = c.Request.WithContext(ctx)
		c.Next()
		status := c.Writer.Status()
		span.SetAttributes(attribute.Int("http.response.status_code", status))
		if status >= http.StatusInternalServerError {
			span.SetStatus(codes.Error, "")
		}
	}
}

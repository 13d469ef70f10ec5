package envoy

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/flyball/flyball/enforce/directive"
)

// benchFixture has a thousand directives, none of which meets the calls that are asked about.
func benchFixture(b *testing.B) (*fixture, context.Context) {
	f := newFixture(b, "gateway", "*")
	var list []directive.Directive
	for i := range 1000 {
		user := "u-" + string(rune('a'+i%26)) + string(rune('a'+i/26))
		list = append(list, directive.Directive{ID: user, Guard: "user-day", Action: directive.SoftBlock, Scope: scope("tenant", "t-1", "user", user), Reason: "spent"})
	}
	f.set(b, list...)
	f.budget(&Budget{LimitCents: 100_000, LeftCents: 42_000, ResetIn: time.Hour, Window: 24 * time.Hour, Name: "tenant-day"})
	return f, metadata.AppendToOutgoingContext(context.Background(), "authorization", "Bearer "+f.secret("gateway"))
}

var benchBody = `{"model":"m-5","max_tokens":900,"messages":[{"role":"user","content":"` + string(slices.Repeat([]byte("x"), 4000)) + `"}]}`

var benchHeaders = []string{":authority", "models.example", ":scheme", "http", "content-type", "application/json", "user-agent", "openai-python/2.1", "accept", "application/json", "x-request-id", "7f8b0c1e-6d0a-4f2e-9f2e-000000000000",
	"x-tenant-id", "t-1", "x-user-id", "u-1", "x-feature", "chat", "x-run-id", "r-1", "traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}

// BenchmarkExtAuthz is one check after another over one connection; both sides count.
func BenchmarkExtAuthz(b *testing.B) {
	f, ctx := benchFixture(b)
	r := request(benchBody, nil, benchHeaders...)
	b.ReportAllocs()
	for b.Loop() {
		if out, err := f.auth.Check(ctx, r); err != nil || out.GetOkResponse() == nil {
			b.Fatal(out, err)
		}
	}
}

// BenchmarkRLS is one question after another over one connection.
func BenchmarkRLS(b *testing.B) {
	f, ctx := benchFixture(b)
	r := limits(0, descriptor(n(0), "tenant", "t-1"), descriptor(n(0), "tenant", "t-1", "user", "u-1"))
	b.ReportAllocs()
	for b.Loop() {
		if out, err := f.rls.ShouldRateLimit(ctx, r); err != nil || out.GetOverallCode() != 1 {
			b.Fatal(out, err)
		}
	}
}

// BenchmarkCheckHandler and BenchmarkLimitHandler are the same without gRPC: what
// this package adds.
func BenchmarkCheckHandler(b *testing.B) {
	f, _ := benchFixture(b)
	ctx := metadata.NewIncomingContext(context.Background(), metadata.Pairs("authorization", "Bearer "+f.secret("gateway")))
	r := request(benchBody, nil, benchHeaders...)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := (authorization{f.server}).Check(ctx, r); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkLimitHandler(b *testing.B) {
	f, _ := benchFixture(b)
	ctx := metadata.NewIncomingContext(context.Background(), metadata.Pairs("authorization", "Bearer "+f.secret("gateway")))
	r := limits(0, descriptor(n(0), "tenant", "t-1"), descriptor(n(0), "tenant", "t-1", "user", "u-1"))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := (rateLimits{f.server}).ShouldRateLimit(ctx, r); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkRate asks at 5,000 requests a second, half of them of each service, over
// 4 connections, each request at its time whatever became of those before it, and
// reports the 99th percentile. Timers here wake about a millisecond late, so that
// some five requests start at once; they count from their start, and the asking
// side shares the processors. handler-p99-us is without it, as a bound.
func BenchmarkRate(b *testing.B) {
	const rate, lanes = 5000, 4
	f, ctx := benchFixture(b)
	check := request(benchBody, nil, benchHeaders...)
	question := limits(0, descriptor(n(0), "tenant", "t-1"), descriptor(n(0), "tenant", "t-1", "user", "u-1"))
	clients := make([]*fixture, lanes)
	for i := range clients {
		conn, err := grpc.NewClient(f.addr, insecureCreds())
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { conn.Close() })
		clients[i] = clientOf(conn)
		if _, err := clients[i].auth.Check(ctx, check); err != nil { // connects
			b.Fatal(err)
		}
	}
	took := make([]time.Duration, b.N)
	var wg sync.WaitGroup
	b.ResetTimer()
	start := time.Now()
	for i := range b.N {
		due := start.Add(time.Duration(i) * time.Second / rate)
		if d := time.Until(due); d > 0 {
			time.Sleep(d)
		}
		sent := time.Now()
		wg.Go(func() {
			c := clients[i%lanes]
			var err error
			if i%2 == 0 {
				_, err = c.auth.Check(ctx, check)
			} else {
				_, err = c.rls.ShouldRateLimit(ctx, question)
			}
			if err != nil {
				b.Error(err)
			}
			took[i] = time.Since(sent)
		})
	}
	wg.Wait()
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-us")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-us")
	b.ReportMetric(float64(b.N)/time.Since(start).Seconds(), "req/s")
	families, err := f.registry.Gather()
	if err != nil {
		b.Fatal(err)
	}
	var bound float64 // that 99 % of the handlers stayed under, in both services
	for _, fam := range families {
		if fam.GetName() != "flyball_envoy_seconds" {
			continue
		}
		for _, m := range fam.GetMetric() {
			h := m.GetHistogram()
			for _, bucket := range h.GetBucket() {
				if float64(bucket.GetCumulativeCount()) >= 0.99*float64(h.GetSampleCount()) {
					bound = max(bound, bucket.GetUpperBound())
					break
				}
			}
		}
	}
	b.ReportMetric(bound*1e6, "handler-p99-us")
}

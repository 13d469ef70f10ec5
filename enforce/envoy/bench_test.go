package envoy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
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

// rateClient is in the environment of the process that asks for BenchmarkRate.
const rateClient = "FLYBALL_ENVOY_RATE"

func TestMain(m *testing.M) {
	if v := os.Getenv(rateClient); v != "" {
		if err := askAtRate(v); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// rateOrder is what the asking process is to do, and rateReport what it saw.
type rateOrder struct {
	Addr, Secret string
	Requests     int
	Rate         int // a second
	Lanes        int // connections
}

type rateReport struct {
	P50, P99 time.Duration
	PerS     float64
}

// askAtRate asks half of the requests of each service, each at its time whatever
// became of those before it. It sleeps by system calls: timers of the runtime wake a
// millisecond late, in bursts that no gateway makes.
func askAtRate(order string) error {
	var o rateOrder
	if err := json.Unmarshal([]byte(order), &o); err != nil {
		return err
	}
	ctx := metadata.AppendToOutgoingContext(context.Background(), "authorization", "Bearer "+o.Secret)
	check := request(benchBody, nil, benchHeaders...)
	question := limits(0, descriptor(n(0), "tenant", "t-1"), descriptor(n(0), "tenant", "t-1", "user", "u-1"))
	clients := make([]*fixture, o.Lanes)
	for i := range clients {
		conn, err := grpc.NewClient(o.Addr, insecureCreds())
		if err != nil {
			return err
		}
		defer conn.Close()
		clients[i] = clientOf(conn)
		if _, err := clients[i].auth.Check(ctx, check); err != nil { // connects
			return err
		}
	}
	runtime.LockOSThread()
	took, failed := make([]time.Duration, o.Requests), make([]error, o.Requests)
	var wg sync.WaitGroup
	start := time.Now()
	for i := range o.Requests {
		due := start.Add(time.Duration(i) * time.Second / time.Duration(o.Rate))
		if d := time.Until(due); d > 0 {
			ts := syscall.NsecToTimespec(int64(d))
			_ = syscall.Nanosleep(&ts, nil)
		}
		wg.Go(func() {
			c := clients[i%o.Lanes]
			if i%2 == 0 {
				_, failed[i] = c.auth.Check(ctx, check)
			} else {
				_, failed[i] = c.rls.ShouldRateLimit(ctx, question)
			}
			took[i] = time.Since(due)
		})
	}
	wg.Wait()
	if err := errors.Join(failed...); err != nil {
		return err
	}
	slices.Sort(took)
	return json.NewEncoder(os.Stdout).Encode(rateReport{took[len(took)/2], took[len(took)*99/100], float64(len(took)) / time.Since(start).Seconds()})
}

// atRate has another process on the same processors ask a server, at 5,000 requests a
// second over 4 connections. Times count from the instant at which a request was due.
func atRate(b *testing.B, addr, secret string) {
	exe, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	order, err := json.Marshal(rateOrder{addr, secret, max(b.N, 100), 5000, 4})
	if err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env, cmd.Stderr = append(os.Environ(), rateClient+"="+string(order)), os.Stderr
	b.ResetTimer()
	out, err := cmd.Output()
	var got rateReport
	if err != nil || json.Unmarshal(out, &got) != nil {
		b.Fatal(err, string(out))
	}
	b.ReportMetric(float64(got.P50.Microseconds()), "p50-us")
	b.ReportMetric(float64(got.P99.Microseconds()), "p99-us")
	b.ReportMetric(got.PerS, "req/s")
}

// bare answers what Server would for a call that is let through, and does nothing for it.
type bare struct {
	authv3.UnimplementedAuthorizationServer
	rlsv3.UnimplementedRateLimitServiceServer
	ok    *authv3.CheckResponse
	limit *rlsv3.RateLimitResponse
}

func (s *bare) Check(context.Context, *authv3.CheckRequest) (*authv3.CheckResponse, error) {
	return s.ok, nil
}

func (s *bare) ShouldRateLimit(context.Context, *rlsv3.RateLimitRequest) (*rlsv3.RateLimitResponse, error) {
	return s.limit, nil
}

// BenchmarkRateBare is BenchmarkRate of a server that has its answers ready: what gRPC and
// the scheduling of two processes take on this machine by themselves. Run the two in turn.
func BenchmarkRateBare(b *testing.B) {
	f, ctx := benchFixture(b)
	s := &bare{}
	var err, err2 error
	s.ok, err = f.auth.Check(ctx, request(benchBody, nil, benchHeaders...))
	s.limit, err2 = f.rls.ShouldRateLimit(ctx, limits(0, descriptor(n(0), "tenant", "t-1"), descriptor(n(0), "tenant", "t-1", "user", "u-1")))
	l, err3 := net.Listen("tcp", "127.0.0.1:0")
	if err := errors.Join(err, err2, err3); err != nil {
		b.Fatal(err)
	}
	g := grpc.NewServer()
	authv3.RegisterAuthorizationServer(g, s)
	rlsv3.RegisterRateLimitServiceServer(g, s)
	done := make(chan error, 1)
	go func() { done <- g.Serve(l) }()
	atRate(b, l.Addr().String(), f.secret("gateway"))
	g.Stop()
	if err := <-done; err != nil {
		b.Fatal(err)
	}
}

// BenchmarkRate asks a Server; handler-p99-us is its own part, as a bound.
func BenchmarkRate(b *testing.B) {
	f, _ := benchFixture(b)
	atRate(b, f.addr, f.secret("gateway"))
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

// Command loop measures the closed loop of a running service: from a span that
// crosses a limit to the limiter that denies, from the kill switch to a thousand
// limiters, and the round trips of budget leases. enforce.sh runs it beside a load.
//
// It refuses anything but loopback, since it flips the kill switch.
package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/flyball/flyball/enforce/directive"
	"github.com/flyball/flyball/enforce/limiter"
	"github.com/flyball/flyball/schema"
)

func main() {
	base := flag.String("http", "http://127.0.0.1:8080", "URL of the service's API")
	otlp := flag.String("otlp", "127.0.0.1:4317", "OTLP gRPC address")
	crossings := flag.Int("crossings", 500, "runs that cross their limit")
	every := flag.Duration("every", 40*time.Millisecond, "time between two of them")
	limiters := flag.Int("limiters", 1000, "limiters that follow the kill switch")
	leases := flag.Duration("leases", 10*time.Second, "for how long leases are taken")
	workers := flag.Int("workers", 8, "callers that take leases")
	flag.Parse()
	if err := run(*base, *otlp, *crossings, *every, *limiters, *leases, *workers); err != nil {
		fmt.Fprintln(os.Stderr, "loop: "+err.Error())
		os.Exit(1)
	}
}

func run(base, otlp string, crossings int, every time.Duration, limiters int, leases time.Duration, workers int) error {
	if u, err := url.Parse(base); err != nil || !schema.Loopback(u.Host) || !schema.Loopback(otlp) {
		return errors.New("only loopback is measured")
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if crossings > 0 {
		if err := timeToEnforce(ctx, base, otlp, crossings, every); err != nil {
			return err
		}
	}
	if leases > 0 {
		if err := takeLeases(ctx, base, leases, workers); err != nil {
			return err
		}
	}
	if limiters > 0 {
		return killSwitch(ctx, base, limiters)
	}
	return nil
}

// show prints quantiles.
func show(what string, d []time.Duration) {
	slices.Sort(d)
	at := func(q float64) time.Duration {
		return d[min(len(d)-1, int(q*float64(len(d))))].Round(10 * time.Microsecond)
	}
	fmt.Printf("%-44s n %-6d p50 %-9s p90 %-9s p99 %-9s max %s\n", what, len(d), at(0.5), at(0.9), at(0.99), d[len(d)-1].Round(10*time.Microsecond))
}

func follow(ctx context.Context, base, id string, c *http.Client) (*limiter.Limiter, error) {
	l, err := limiter.New(limiter.Options{URL: base, ID: id, Client: c})
	if err != nil {
		return nil, err
	}
	go func() { _ = l.Follow(ctx) }()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if _, ok := l.Version(); ok {
			return l, nil
		}
	}
	return nil, errors.New("a limiter got no set within 20 s")
}

// timeToEnforce sends spans that cross the limit of their run and waits until the
// limiter denies it.
func timeToEnforce(ctx context.Context, base, otlp string, n int, every time.Duration) error {
	l, err := follow(ctx, base, "bench", nil)
	if err != nil {
		return err
	}
	conn, err := grpc.NewClient(otlp, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	client := ptraceotlp.NewGRPCClient(conn)
	var took, answered []time.Duration
	tick := time.NewTicker(every)
	defer tick.Stop()
	born := uint64(time.Now().UnixNano())
	for i := range n {
		<-tick.C
		td := ptrace.NewTraces()
		sp := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans().AppendEmpty()
		var id pcommon.TraceID
		binary.BigEndian.PutUint64(id[:], born)
		binary.BigEndian.PutUint64(id[8:], uint64(i+1))
		sp.SetTraceID(id)
		sp.SetSpanID(pcommon.SpanID{1, 2, 3, 4, 5, 6, byte(i >> 8), byte(i)})
		sp.SetName("chat")
		sp.SetKind(ptrace.SpanKindClient)
		now := time.Now()
		sp.SetStartTimestamp(pcommon.NewTimestampFromTime(now.Add(-time.Millisecond)))
		sp.SetEndTimestamp(pcommon.NewTimestampFromTime(now))
		m := sp.Attributes()
		m.PutStr("tenant.id", "bench-loop")
		m.PutStr("gen_ai.operation.name", "chat")
		m.PutStr("gen_ai.provider.name", "openai")
		m.PutStr("gen_ai.request.model", "gpt-4o")
		m.PutInt("gen_ai.usage.input_tokens", 400_000)
		m.PutInt("gen_ai.usage.output_tokens", 10)
		call := limiter.Call{Tenant: "bench-loop", TraceID: id.String(), Model: "gpt-4o"}
		sent := time.Now()
		done := make(chan error, 1)
		go func() {
			_, err := client.Export(ctx, ptraceotlp.NewExportRequestFromTraces(td))
			answered = append(answered, time.Since(sent))
			done <- err
		}()
		for l.Check(&call).Verdict != directive.Deny {
			if time.Since(sent) > 20*time.Second {
				return fmt.Errorf("run %s is not denied after 20 s", call.TraceID)
			}
			time.Sleep(100 * time.Microsecond)
		}
		took = append(took, time.Since(sent))
		if err := <-done; err != nil {
			return fmt.Errorf("send span: %w", err)
		}
	}
	show("span sent -> limiter denies", took)
	show("span sent -> OTLP answer (fsynced)", answered)
	return nil
}

// takeLeases reserves and settles as fast as answers come.
func takeLeases(ctx context.Context, base string, length time.Duration, workers int) error {
	var mu sync.Mutex
	var reserve, settle []time.Duration
	var failed error
	var wg sync.WaitGroup
	c := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: workers}}
	l, err := limiter.New(limiter.Options{URL: base, ID: "bench-leases", Client: c})
	if err != nil {
		return err
	}
	end := time.Now().Add(length)
	for w := range workers {
		wg.Go(func() {
			for i := 0; time.Now().Before(end); i++ {
				start := time.Now()
				x, d, err := l.Reserve(ctx, &limiter.Call{Tenant: "bench-leases", User: fmt.Sprintf("u-%d", w), Model: "gpt-4o", Provider: "openai", InputTokens: 1000, MaxOutputTokens: 100})
				mid := time.Now()
				if err == nil && x == nil {
					err = fmt.Errorf("refused: %s", d.Reason)
				}
				if err == nil {
					err = x.Settle(ctx, limiter.Usage{Tokens: map[string]uint64{"input": 900, "output": 50}, ResponseID: fmt.Sprintf("bench-%d-%d", w, i)})
				}
				mu.Lock()
				if err != nil {
					failed = err
				} else {
					reserve, settle = append(reserve, mid.Sub(start)), append(settle, time.Since(mid))
				}
				mu.Unlock()
				if err != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	if failed != nil {
		return failed
	}
	show(fmt.Sprintf("reserve (durable), %d callers", workers), reserve)
	show(fmt.Sprintf("settle (durable), %d callers", workers), settle)
	fmt.Printf("%-44s %.0f a second\n", "leases taken and settled", float64(len(reserve))/length.Seconds())
	return nil
}

func post(ctx context.Context, path string, body any, out any) error {
	b, err := json.Marshal(body)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, path, bytes.NewReader(b))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s: %s", path, resp.Status, text)
	}
	return json.Unmarshal(text, out)
}

// killSwitch connects limiters and drills, then flips the switch for real.
func killSwitch(ctx context.Context, base string, n int) error {
	c := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: n}}
	all := make([]*limiter.Limiter, n)
	var wg sync.WaitGroup
	var mu sync.Mutex
	var failed error
	for i := range n {
		wg.Go(func() {
			l, err := follow(ctx, base, fmt.Sprintf("bench-%d", i), c)
			mu.Lock()
			defer mu.Unlock()
			all[i] = l
			if err != nil {
				failed = err
			}
		})
		if i%50 == 49 {
			wg.Wait()
		}
	}
	wg.Wait()
	if failed != nil {
		return failed
	}
	time.Sleep(time.Second) // their first acknowledgements
	for range 5 {
		var r struct {
			TookNS int64 `json:"took_ns"`
			Acked  []struct {
				TookNS int64 `json:"took_ns"`
			} `json:"acknowledged"`
		}
		if err := post(ctx, base+"/api/v1/kill/drill", map[string]any{"wait_ms": 10_000}, &r); err != nil {
			return err
		}
		var took []time.Duration
		for _, a := range r.Acked {
			took = append(took, time.Duration(a.TookNS))
		}
		show("drill: published -> acknowledged", took)
	}
	start := time.Now()
	var status any
	if err := post(ctx, base+"/api/v1/kill", map[string]any{"state": "on", "reason": "benchmark"}, &status); err != nil {
		return err
	}
	var took []time.Duration
	left := slices.Clone(all)
	for len(left) > 0 {
		if time.Since(start) > 20*time.Second {
			return fmt.Errorf("%d limiters do not know of the kill after 20 s", len(left))
		}
		left = slices.DeleteFunc(left, func(l *limiter.Limiter) bool {
			if l.Set().KillState().On {
				took = append(took, time.Since(start))
				return true
			}
			return false
		})
		time.Sleep(200 * time.Microsecond)
	}
	show("kill on (request sent) -> limiter denies", took)
	return post(ctx, base+"/api/v1/kill", map[string]any{"state": "off", "reason": "benchmark over"}, &status)
}

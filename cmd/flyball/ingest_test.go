package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/flyball/flyball/ingest/otlp"
)

// counting is a server's consumer; the first requests find it busy.
type counting struct {
	mu                   sync.Mutex
	spans, logs, metrics int
	busy                 int
}

func (c *counting) take(to *int, n int) (otlp.Result, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.busy > 0 {
		c.busy--
		return otlp.Result{}, otlp.Overload{RetryAfter: 1, Reason: "receiver works on much already"}
	}
	*to += n
	return otlp.Result{}, nil
}

func (c *counting) Traces(_ context.Context, _ otlp.Sender, td ptrace.Traces) (otlp.Result, error) {
	return c.take(&c.spans, td.SpanCount())
}

func (c *counting) Logs(_ context.Context, _ otlp.Sender, ld plog.Logs) (otlp.Result, error) {
	return c.take(&c.logs, ld.LogRecordCount())
}

func (c *counting) Metrics(_ context.Context, _ otlp.Sender, md pmetric.Metrics) (otlp.Result, error) {
	return c.take(&c.metrics, md.DataPointCount())
}

// All that a file holds is sent, in requests that the server takes, and what the file's
// reader refuses is told like what the server refuses.
func TestIngest(t *testing.T) {
	c := &counting{}
	r, err := otlp.NewReceiver(otlp.Options{Consumer: c, RequestBytes: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := r.NewGRPCServer()
	done := make(chan error, 1)
	go func() { done <- srv.Serve(l) }()
	defer func() { srv.Stop(); <-done }()

	f := func(name string, wantCode, spans, logs, points int, words, content string) {
		t.Helper()
		file := filepath.Join(t.TempDir(), "in")
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := os.Create(filepath.Join(t.TempDir(), "out"))
		if err != nil {
			t.Fatal(err)
		}
		defer out.Close()
		busy := c.busy
		*c = counting{busy: busy}
		stdout, stderr := os.Stdout, os.Stderr
		os.Stdout, os.Stderr = out, out
		code := run([]string{"ingest", "--otlp", l.Addr().String(), file})
		os.Stdout, os.Stderr = stdout, stderr
		said, err := os.ReadFile(out.Name())
		if err != nil || code != wantCode || c.spans != spans || c.logs != logs || c.metrics != points || !strings.Contains(string(said), words) {
			t.Errorf("%s: exit code %d, %d spans, %d log records, %d points, said %q, %v; want %d, %d, %d, %d and %q", name, code, c.spans, c.logs, c.metrics, said, err, wantCode, spans, logs, points, words)
		}
	}
	span := func(i, pad int) string {
		return fmt.Sprintf(`{"traceId":"%032x","spanId":"%016x","name":"%s"}`, i+1, i+1, strings.Repeat("x", pad))
	}
	spans := func(list ...string) string {
		return `{"resourceSpans":[{"scopeSpans":[{"spans":[` + strings.Join(list, ",") + `]}]}]}`
	}
	metrics := func(n int) string {
		m := `{"name":"flyball.limiter.queue.depth","description":"` + strings.Repeat("d", 1000) + `","gauge":{"dataPoints":[{"asInt":"3"}]}}`
		return `{"resourceMetrics":[{"scopeMetrics":[{"metrics":[` + strings.Repeat(m+",", n-1) + m + `]}]}]}`
	}
	logs := func(n int) string {
		b, err := json.Marshal(strings.Repeat("l", 1000))
		if err != nil {
			t.Fatal(err)
		}
		m := `{"body":{"stringValue":` + string(b) + `}}`
		return `{"resourceLogs":[{"scopeLogs":[{"logRecords":[` + strings.Repeat(m+",", n-1) + m + `]}]}]}`
	}
	var many []string
	for i := range 301 {
		many = append(many, span(i, 1000))
	}
	f("three signals", 0, 2, 1, 1, "4 spans, log records and metrics sent, 0 rejected", spans(span(0, 5), span(1, 5))+"\n"+logs(1)+"\n"+metrics(1))
	f("refused by the reader", 1, 1, 0, 0, "3 spans, log records and metrics sent, 2 rejected", spans(span(0, 5), `{"traceId":"5b"}`, `{}`))
	f("more than a request may hold", 0, 301, 257, 258, "816 spans, log records and metrics sent, 0 rejected", spans(many...)+logs(257)+metrics(258))
	f("a span larger than a request may be", 1, 0, 0, 0, "limits.request_bytes", spans(span(0, 100<<10)))
	c.busy = 3
	f("a busy server", 0, 1, 0, 0, "1 spans", spans(span(0, 5)))
}

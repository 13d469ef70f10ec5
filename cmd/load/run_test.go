package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

// collector is a receiver that keeps what a test asks about.
type collector struct {
	ptraceotlp.UnimplementedGRPCServer
	t      *testing.T
	answer func(n int) (rejected int64, err error) // of request n, from 0

	mu   sync.Mutex // guards what follows
	n    int
	seen *seen
	last map[pcommon.TraceID]bool // whether the newest span of the trace is its root
	keys map[string]bool
}

func newCollector(t *testing.T) *collector {
	return &collector{t: t, seen: newSeen(), last: map[pcommon.TraceID]bool{}, keys: map[string]bool{}, answer: func(int) (int64, error) { return 0, nil }}
}

func (c *collector) take(td ptrace.Traces, key string) (int64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.n
	c.n++
	c.keys[key] = true
	rejected, err := c.answer(n)
	if err == nil {
		c.seen.add(c.t, td)
		each(td, func(_ pcommon.Map, _ string, s ptrace.Span) { c.last[s.TraceID()] = s.ParentSpanID().IsEmpty() })
	}
	return rejected, err
}

func (c *collector) Export(ctx context.Context, req ptraceotlp.ExportRequest) (ptraceotlp.ExportResponse, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	rejected, err := c.take(req.Traces(), strings.Join(md.Get("authorization"), ","))
	res := ptraceotlp.NewExportResponse()
	if rejected > 0 {
		res.PartialSuccess().SetErrorMessage("no")
		res.PartialSuccess().SetRejectedSpans(rejected)
	}
	return res, err
}

// serve listens on loopback until the test ends.
func (c *collector) serve() string {
	c.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		c.t.Fatal(err)
	}
	s := grpc.NewServer(grpc.MaxRecvMsgSize(64 << 20))
	ptraceotlp.RegisterGRPCServer(s, c)
	served := make(chan struct{})
	go func() { defer close(served); _ = s.Serve(l) }()
	c.t.Cleanup(func() { s.Stop(); <-served })
	return l.Addr().String()
}

// play runs the command and decodes its report.
func play(t *testing.T, want int, args ...string) report {
	t.Helper()
	var out, errs bytes.Buffer
	if code := run(context.Background(), append(args, "--json"), &out, &errs); code != want {
		t.Fatalf("exit code %d, want %d: %s%s", code, want, &errs, &out)
	}
	var r report
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		t.Fatalf("report: %v: %s", err, &out)
	}
	return r
}

func TestGRPC(t *testing.T) {
	c := newCollector(t)
	r := play(t, exitOK, "--endpoint", c.serve(), "--duration", "300ms", "--workers", "3", "--batch", "200", "--key", "secret", "--pid", fmt.Sprintf("self=%d", os.Getpid()))
	if int(r.Spans) != len(c.seen.spans) || r.Acked != r.Spans || r.Spans < 200 || r.Spans != 200*r.Requests || r.Calls != 160*r.Requests {
		t.Errorf("report %+v, %d spans arrived", r, len(c.seen.spans))
	}
	for id, n := range c.seen.traces {
		if n != 10 {
			t.Errorf("trace %s has %d spans", id, n)
		}
	}
	if len(c.keys) != 1 || !c.keys["Bearer secret"] {
		t.Errorf("keys %v", c.keys)
	}
	if r.Latency.P50 <= 0 || r.Latency.Max < r.Latency.P99 || r.OwnCPU <= 0 || r.SpansPerS <= 0 {
		t.Errorf("report %+v", r)
	}
	if len(r.Processes) != 1 || r.Processes[0].MaxRSS <= 0 || r.Processes[0].FinalRSS <= 0 {
		t.Errorf("processes %+v", r.Processes)
	}
}

func TestRate(t *testing.T) {
	c := newCollector(t)
	r := play(t, exitOK, "--endpoint", c.serve(), "--duration", "1s", "--rate", "2000", "--batch", "100")
	if r.Spans < 1500 || r.Spans > 2100 {
		t.Errorf("%d spans in a second at 2000 a second", r.Spans)
	}
}

func TestPartialSuccess(t *testing.T) {
	c := newCollector(t)
	c.answer = func(n int) (int64, error) {
		if n == 1 {
			return 7, nil
		}
		return 0, nil
	}
	r := play(t, exitOK, "--endpoint", c.serve(), "--duration", "300ms", "--batch", "100", "--rate", "2000", "--workers", "1")
	if r.Rejected != 7 || r.Acked != r.Spans-7 || r.Calls != 80*(r.Requests-1) {
		t.Errorf("report %+v", r)
	}
}

func TestRetry(t *testing.T) {
	c := newCollector(t)
	c.answer = func(n int) (int64, error) {
		if n > 1 {
			return 0, nil
		}
		st, err := status.New(codes.ResourceExhausted, "busy").WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(20 * time.Millisecond)})
		if err != nil {
			t.Error(err)
		}
		return 0, st.Err()
	}
	r := play(t, exitOK, "--endpoint", c.serve(), "--duration", "100ms", "--batch", "100", "--rate", "500", "--workers", "1")
	if r.Retried != 2 || r.Failed != 0 || r.Acked != r.Spans || int(r.Spans) != len(c.seen.spans) {
		t.Errorf("report %+v, %d spans arrived", r, len(c.seen.spans))
	}
}

func TestFailure(t *testing.T) {
	c := newCollector(t)
	c.answer = func(n int) (int64, error) {
		if n == 0 {
			return 0, status.Error(codes.InvalidArgument, "bad")
		}
		return 0, nil
	}
	r := play(t, exitFailed, "--endpoint", c.serve(), "--duration", "200ms", "--batch", "100", "--rate", "1000", "--workers", "1")
	if r.Failed != 100 || r.Acked != r.Spans-100 || r.Retried != 0 || !strings.Contains(r.LastError, "bad") {
		t.Errorf("report %+v", r)
	}
}

func TestClassify(t *testing.T) {
	f := func(c codes.Code, again bool) {
		t.Helper()
		var r *retryError
		if got := errors.As(classify(status.Error(c, "x")), &r); got != again {
			t.Errorf("%s: sent again %v, want %v", c, got, again)
		}
	}
	f(codes.Unavailable, true)
	f(codes.DeadlineExceeded, true)
	f(codes.ResourceExhausted, false) // without RetryInfo
	f(codes.Unauthenticated, false)
	f(codes.InvalidArgument, false)
}

// httpHandler takes requests as c does, and asks for a retry of the first.
func httpHandler(c *collector) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/traces" || r.Header.Get("Content-Type") != "application/x-protobuf" {
			http.Error(w, "no", http.StatusNotFound)
			return
		}
		var body bytes.Buffer
		_, _ = body.ReadFrom(r.Body)
		if rejected, err := c.take(decode(c.t, body.Bytes()), r.Header.Get("Authorization")); err != nil {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusServiceUnavailable)
		} else if rejected > 0 {
			res := ptraceotlp.NewExportResponse()
			res.PartialSuccess().SetRejectedSpans(rejected)
			b, _ := res.MarshalProto()
			_, _ = w.Write(b)
		}
	}
}

func TestHTTP(t *testing.T) {
	c := newCollector(t)
	c.answer = func(n int) (int64, error) {
		switch n {
		case 0:
			return 0, errors.New("busy")
		case 2:
			return 3, nil
		}
		return 0, nil
	}
	s := httptest.NewServer(httpHandler(c))
	defer s.Close()
	begun := time.Now()
	r := play(t, exitOK, "--http", s.URL, "--duration", "1200ms", "--batch", "100", "--rate", "1000", "--workers", "1", "--key", "k")
	if r.Retried != 1 || r.Rejected != 3 || r.Acked != r.Spans-3 || int(r.Spans) != len(c.seen.spans) || !c.keys["Bearer k"] {
		t.Errorf("report %+v, %d spans arrived", r, len(c.seen.spans))
	}
	if time.Since(begun) < time.Second {
		t.Error("Retry-After was not honoured")
	}
}

// The service as --verify sees it.
func TestVerify(t *testing.T) {
	f := func(lost int64, want int) {
		t.Helper()
		c := newCollector(t)
		asked := 0
		api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			c.mu.Lock()
			defer c.mu.Unlock()
			switch r.URL.Path {
			case "/readyz":
				asked++
				fmt.Fprintf(w, `{"ingest":{"queued":%d}}`, max(0, 3-asked))
			case "/api/v1/spend":
				calls := int64(1000) // of an earlier load
				if n := len(c.seen.spans); n > 0 {
					calls += int64(n/10*8) - lost
				}
				fmt.Fprintf(w, `{"rows":[],"total":{"calls":%d}}`, calls)
			default:
				http.NotFound(w, r)
			}
		}))
		defer api.Close()
		r := play(t, want, "--endpoint", c.serve(), "--duration", "100ms", "--batch", "100", "--rate", "1000", "--verify", api.URL)
		if r.Verify == nil || r.Verify.Match != (want == exitOK) || r.Verify.Calls != r.Calls-lost {
			t.Errorf("report %+v, verify %+v", r, r.Verify)
		}
	}
	f(0, exitOK)
	f(1, exitFailed)
	f(-1, exitFailed)
}

// The exports of a group are sent in order and when they are due; the schedule
// is followed without sending.
func TestRootLastSchedule(t *testing.T) {
	l := &load{group: newGroup(scenarios[1], 100, 10, 3), source: newSource(1, 10, 3)}
	now := time.Now()
	l.begun, l.next = now, now
	past := now.Add(-time.Hour)
	e := l.begin(past)
	l.after(e)
	other := l.begin(past.Add(time.Second))
	l.after(other)
	if e.first == other.first || other.first%runsOfResource != 0 {
		t.Fatalf("groups begin at %d and %d", e.first, other.first)
	}
	var phases []int
	for {
		e, ok := l.take(context.Background(), now.Add(-time.Minute)) // no new groups
		if !ok {
			break
		}
		if len(phases)%2 == 0 && e.first != 0 {
			t.Errorf("export %d is of the wrong group", len(phases))
		}
		phases = append(phases, e.phase)
	}
	if got := fmt.Sprint(phases); got != "[1 1 2 2 3 3 4 4 5 5]" {
		t.Errorf("phases %s", got)
	}
}

// The rate is that of whole runs: what begins in a second weighs all its exports.
func TestRootLastRate(t *testing.T) {
	l := &load{group: newGroup(scenarios[1], 100, 10, 3), rate: 600, duration: time.Minute}
	now := time.Now()
	l.next = now
	l.begin(now)
	if got, want := l.next.Sub(now), time.Duration(float64(l.group.spans)/600*float64(time.Second)); got != want {
		t.Errorf("the next group begins after %s, want %s", got, want)
	}
	if got := l.window(); got != 35*time.Second {
		t.Errorf("window of %s, want 35s", got)
	}
}

func TestQuantiles(t *testing.T) {
	var ds []time.Duration
	for i := range 1000 {
		ds = append(ds, time.Duration(1000-i)*time.Millisecond)
	}
	if got, want := quantiles(ds), (latency{500, 900, 990, 1000}); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
	if got, want := quantiles([]time.Duration{time.Second}), (latency{1000, 1000, 1000, 1000}); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := quantiles(nil); got != (latency{}) {
		t.Errorf("got %v of nothing", got)
	}
}

func TestUsageErrors(t *testing.T) {
	f := func(want string, args ...string) {
		t.Helper()
		var out, errs bytes.Buffer
		if code := run(context.Background(), args, &out, &errs); code != exitUsage || !strings.Contains(errs.String(), want) {
			t.Errorf("%v: exit code %d, %q", args, code, &errs)
		}
	}
	f("not a loopback address", "--endpoint", "192.0.2.1:4317")
	f("not a loopback address", "--http", "http://collector.example:4318")
	f("not a loopback address", "--verify", "http://192.0.2.1:8080")
	f("find scenario", "--scenario", "nonsense")
	f("want name=pid", "--pid", "12")
	f("at least", "--workers", "0")
	f("unexpected argument", "now")
	f("needs a --rate", "--scenario", "root-last")
}

func TestText(t *testing.T) {
	r := newReport("attributed", 0, &tally{Spans: 100, Acked: 100, InTime: 100, latencies: []time.Duration{time.Millisecond}}, time.Second, time.Second, time.Second)
	r.watched([]usage{{Name: "service", CPUSeconds: 2, MaxRSS: 1 << 20, FinalRSS: 1 << 20}, {Name: "engine", CPUSeconds: 3, MaxRSS: 2 << 20, FinalRSS: 1 << 20, Ended: true}})
	r.Verify = &verdict{Calls: 79, ExpectedFrom: 80, ExpectedTo: 80}
	var b bytes.Buffer
	if err := r.text(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"100 sent, 100 acknowledged", "100 spans/s", "together", "5.00 s cpu, 20 spans per cpu second", "MISMATCH: 79 calls counted, 80 acknowledged", "ended before"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, &b)
		}
	}
}

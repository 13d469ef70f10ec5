package otlp

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"google.golang.org/grpc"

	"github.com/flyball/flyball/schema"
)

// sink is a Consumer that keeps span names, and can be told to fail or to reject.
type sink struct {
	mu      sync.Mutex
	names   []string
	spans   int
	logs    int
	metrics int
	from    Sender
	last    ptrace.Traces
	calls   int

	answer func(call int) (Result, error)
}

func (s *sink) verdict() (Result, error) {
	s.calls++
	if s.answer != nil {
		return s.answer(s.calls)
	}
	return Result{}, nil
}

func (s *sink) Traces(_ context.Context, from Sender, td ptrace.Traces) (Result, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	res, err := s.verdict()
	if err != nil {
		return res, err
	}
	s.from, s.last = from, td
	eachSpan(td, func(sp ptrace.Span) {
		s.spans++
		s.names = append(s.names, sp.Name())
	})
	return res, nil
}

func (s *sink) Logs(_ context.Context, from Sender, ld plog.Logs) (Result, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	res, err := s.verdict()
	if err == nil {
		s.logs += ld.LogRecordCount()
	}
	return res, err
}

func (s *sink) Metrics(_ context.Context, from Sender, md pmetric.Metrics) (Result, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	res, err := s.verdict()
	if err == nil {
		s.metrics += md.MetricCount()
	}
	return res, err
}

func (s *sink) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.spans
}

func eachSpan(td ptrace.Traces, f func(ptrace.Span)) {
	for i := range td.ResourceSpans().Len() {
		sss := td.ResourceSpans().At(i).ScopeSpans()
		for j := range sss.Len() {
			for k := range sss.At(j).Spans().Len() {
				f(sss.At(j).Spans().At(k))
			}
		}
	}
}

// rig is a receiver behind real servers on the loopback interface.
type rig struct {
	*Receiver
	sink *sink
	reg  *prometheus.Registry
	url  string // http://127.0.0.1:port
	grpc string // 127.0.0.1:port
}

func newRig(t testing.TB, change func(*Options)) *rig {
	t.Helper()
	s := &sink{}
	reg := prometheus.NewRegistry()
	opts := Options{Consumer: s, Registerer: reg}
	if change != nil {
		change(&opts)
	}
	if opts.Consumer == nil {
		opts.Consumer = s
	}
	r, err := NewReceiver(opts)
	if err != nil {
		t.Fatal(err)
	}
	listen := func() net.Listener {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	hl, gl := listen(), listen()
	hs, gs := r.NewHTTPServer(), r.NewGRPCServer()
	var wg sync.WaitGroup
	wg.Add(2)
	go func() {
		defer wg.Done()
		if err := hs.Serve(hl); !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("serve HTTP: %v", err)
		}
	}()
	go func() {
		defer wg.Done()
		if err := gs.Serve(gl); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			t.Errorf("serve gRPC: %v", err)
		}
	}()
	t.Cleanup(func() {
		gs.Stop()
		_ = hs.Close()
		wg.Wait()
		deadline := time.Now().Add(2 * time.Second)
		for r.budget.inUse() != 0 && time.Now().Before(deadline) {
			time.Sleep(time.Millisecond)
		}
		if n := r.budget.inUse(); n != 0 {
			t.Errorf("%d bytes of the budget were never released", n)
		}
	})
	return &rig{Receiver: r, sink: s, reg: reg, url: "http://" + hl.Addr().String(), grpc: gl.Addr().String()}
}

// testTraces makes n valid spans with the given number of attributes each.
func testTraces(n, attrs int) ptrace.Traces {
	td := ptrace.NewTraces()
	rs := td.ResourceSpans().AppendEmpty()
	rs.Resource().Attributes().PutStr("service.name", "agent")
	ss := rs.ScopeSpans().AppendEmpty()
	ss.Scope().SetName("test")
	for i := range n {
		sp := ss.Spans().AppendEmpty()
		sp.SetTraceID(pcommon.TraceID{1, byte(i >> 16), byte(i >> 8), byte(i)})
		sp.SetSpanID(pcommon.SpanID{2, byte(i >> 16), byte(i >> 8), byte(i)})
		sp.SetName("chat m-5")
		sp.SetKind(ptrace.SpanKindClient)
		sp.SetStartTimestamp(pcommon.Timestamp(1_790_000_000_000_000_000 + int64(i)))
		sp.SetEndTimestamp(pcommon.Timestamp(1_790_000_001_000_000_000 + int64(i)))
		for j := range attrs {
			key := testKeys[j%len(testKeys)]
			if j%3 == 0 {
				sp.Attributes().PutInt(key, int64(1000+j))
			} else {
				sp.Attributes().PutStr(key, "some value of a usual length")
			}
		}
	}
	return td
}

var testKeys = []string{"gen_ai.usage.input_tokens", "gen_ai.system", "gen_ai.request.model", "gen_ai.usage.output_tokens",
	"gen_ai.response.id", "user.id", "gen_ai.usage.cache_read", "app.feature", "app.run.id", "http.response.status_code",
	"server.address", "gen_ai.operation.name", "retry.count", "gen_ai.response.model", "session.id"}

func protoOf(t testing.TB, td ptrace.Traces) []byte {
	t.Helper()
	b, err := ptraceotlp.NewExportRequestFromTraces(td).MarshalProto()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func jsonOf(t testing.TB, td ptrace.Traces) []byte {
	t.Helper()
	b, err := ptraceotlp.NewExportRequestFromTraces(td).MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// counterValue reads one counter.
func counterValue(t testing.TB, c prometheus.Metric) float64 {
	t.Helper()
	var m dto.Metric
	if err := c.Write(&m); err != nil {
		t.Fatal(err)
	}
	return m.GetCounter().GetValue()
}

func ringOf(t testing.TB, keys ...schema.Key) func() *schema.Keyring {
	t.Helper()
	ring, err := schema.NewKeyring(keys)
	if err != nil {
		t.Fatal(err)
	}
	return func() *schema.Keyring { return ring }
}

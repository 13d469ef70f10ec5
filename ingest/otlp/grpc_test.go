package otlp

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/plog/plogotlp"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/flyball/flyball/schema"
)

func (g *rig) dial(t testing.TB) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(g.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallSendMsgSize(1<<30)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// rawCodec sends and receives bytes.
type rawCodec struct{}

func (rawCodec) Name() string                  { return "proto" }
func (rawCodec) Marshal(v any) ([]byte, error) { return v.([]byte), nil }
func (rawCodec) Unmarshal(b []byte, v any) error {
	*v.(*[]byte) = bytes.Clone(b)
	return nil
}

// export sends raw bytes as an export request and returns the raw answer.
func export(conn *grpc.ClientConn, body []byte, opts ...grpc.CallOption) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var out []byte
	opts = append(opts, grpc.ForceCodec(rawCodec{}))
	err := conn.Invoke(ctx, "/opentelemetry.proto.collector.trace.v1.TraceService/Export", body, &out, opts...)
	return out, err
}

func retryInfo(err error) (time.Duration, bool) {
	for _, d := range status.Convert(err).Details() {
		if info, ok := d.(*errdetails.RetryInfo); ok {
			return info.RetryDelay.AsDuration(), true
		}
	}
	return 0, false
}

func TestGRPCSignals(t *testing.T) {
	g := newRig(t, nil)
	conn := g.dial(t)
	ctx := context.Background()
	if _, err := ptraceotlp.NewGRPCClient(conn).Export(ctx, ptraceotlp.NewExportRequestFromTraces(testTraces(3, 2))); err != nil {
		t.Error(err)
	}
	ld := plog.NewLogs()
	ld.ResourceLogs().AppendEmpty().ScopeLogs().AppendEmpty().LogRecords().AppendEmpty().Body().SetStr("hello")
	if _, err := plogotlp.NewGRPCClient(conn).Export(ctx, plogotlp.NewExportRequestFromLogs(ld)); err != nil {
		t.Error(err)
	}
	md := pmetric.NewMetrics()
	md.ResourceMetrics().AppendEmpty().ScopeMetrics().AppendEmpty().Metrics().AppendEmpty().SetName("up")
	if _, err := pmetricotlp.NewGRPCClient(conn).Export(ctx, pmetricotlp.NewExportRequestFromMetrics(md)); err != nil {
		t.Error(err)
	}
	if g.sink.spans != 3 || g.sink.logs != 1 || g.sink.metrics != 1 {
		t.Errorf("have %d spans, %d logs, %d metrics", g.sink.spans, g.sink.logs, g.sink.metrics)
	}
}

func TestGRPCCodes(t *testing.T) {
	g := newRig(t, nil)
	conn := g.dial(t)
	body := protoOf(t, testTraces(3, 2))
	f := func(name string, body []byte, code codes.Code, spans int, opts ...grpc.CallOption) {
		t.Helper()
		before := g.sink.count()
		out, err := export(conn, body, opts...)
		if status.Code(err) != code {
			t.Errorf("%s: %v, want %v", name, err, code)
		}
		if got := g.sink.count() - before; got != spans {
			t.Errorf("%s: stored %d spans, want %d", name, got, spans)
		}
		if len(out) != 0 {
			t.Errorf("%s: answer %q, want it empty", name, out)
		}
		if _, ok := retryInfo(err); ok {
			t.Errorf("%s: has RetryInfo", name)
		}
	}
	f("plain", body, codes.OK, 3)
	f("gzip", body, codes.OK, 3, grpc.UseCompressor(gzip.Name))
	f("zstd", body, codes.OK, 3, grpc.UseCompressor("zstd"))
	f("empty", nil, codes.OK, 0)
	f("not protobuf", []byte("not protobuf"), codes.InvalidArgument, 0)
	f("truncated", body[:len(body)-7], codes.InvalidArgument, 0)
	f("gzip in gzip", gz(t, gz(t, body)), codes.InvalidArgument, 0)
	f("gzip in a gzip message", gz(t, body), codes.InvalidArgument, 0, grpc.UseCompressor(gzip.Name))
}

func TestGRPCBackPressure(t *testing.T) {
	g := newRig(t, nil)
	conn := g.dial(t)
	f := func(err error, code codes.Code, delay time.Duration) {
		t.Helper()
		g.sink.answer = func(int) (Result, error) { return Result{}, err }
		_, got := export(conn, protoOf(t, testTraces(1, 0)))
		d, ok := retryInfo(got)
		if status.Code(got) != code || !ok || d != delay {
			t.Errorf("%v: %v with RetryInfo %v %v", err, got, d, ok)
		}
	}
	f(Overload{RetryAfter: 3 * time.Second}, codes.Unavailable, 3*time.Second)
	f(&Overload{Throttled: true}, codes.ResourceExhausted, time.Second)
	f(io.ErrUnexpectedEOF, codes.Unavailable, time.Second)
}

func TestGRPCPartialSuccess(t *testing.T) {
	g := newRig(t, nil)
	td := testTraces(5, 1)
	spans := td.ResourceSpans().At(0).ScopeSpans().At(0).Spans()
	spans.At(0).SetSpanID([8]byte{})
	good := protoOf(t, td)
	bad := appendMessage(nil, fieldItems, appendMessage(nil, 1, []byte("sevenid")))
	body := append(good, appendMessage(nil, fieldResources, appendMessage(nil, fieldScopes, bad))...)
	out, err := export(g.dial(t), body)
	if err != nil {
		t.Fatal(err)
	}
	res := ptraceotlp.NewExportResponse()
	if err := res.UnmarshalProto(out); err != nil {
		t.Fatal(err)
	}
	msg := res.PartialSuccess().ErrorMessage()
	if res.PartialSuccess().RejectedSpans() != 2 || !strings.Contains(msg, "number 1 of") || !strings.Contains(msg, "number 6 of") {
		t.Errorf("rejected %d: %s", res.PartialSuccess().RejectedSpans(), msg)
	}
	if g.sink.spans != 4 {
		t.Errorf("stored %d, want 4", g.sink.spans)
	}
}

func TestGRPCAuthentication(t *testing.T) {
	secret, hash := schema.NewSecret()
	reader, readerHash := schema.NewSecret()
	g := newRig(t, func(o *Options) {
		o.Keys = ringOf(t, schema.Key{Name: "c", SHA256: hash, Role: schema.KeyIngest, Tenant: "t-1"},
			schema.Key{Name: "r", SHA256: readerHash, Role: schema.KeyRead, Tenant: "t-1"})
	})
	conn := g.dial(t)
	f := func(authorization string, code codes.Code) {
		t.Helper()
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if authorization != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, "authorization", authorization)
		}
		_, err := ptraceotlp.NewGRPCClient(conn).Export(ctx, ptraceotlp.NewExportRequestFromTraces(testTraces(1, 0)), grpc.UseCompressor(gzip.Name))
		if status.Code(err) != code {
			t.Errorf("%q: %v, want %v", authorization, err, code)
		}
	}
	f("Bearer "+secret, codes.OK)
	f("", codes.Unauthenticated)
	f("Bearer fb_1", codes.Unauthenticated)
	f("Bearer "+reader, codes.PermissionDenied)
}

func TestGRPCLimitIsExact(t *testing.T) {
	const limit = 100_000
	g := newRig(t, func(o *Options) { o.RequestBytes = limit })
	conn := g.dial(t)
	f := func(n int, code codes.Code) {
		t.Helper()
		b := protoOf(t, testTraces(1, 0))
		b = appendMessage(b, 15, make([]byte, n-len(b)-4))
		for _, c := range []string{"identity", gzip.Name, "zstd"} {
			_, err := export(conn, b, grpc.UseCompressor(c))
			if status.Code(err) != code {
				t.Errorf("%d bytes, %s: %v, want %v", len(b), c, err, code)
			}
			if _, ok := retryInfo(err); ok {
				t.Errorf("%d bytes, %s: a permanent refusal has RetryInfo", len(b), c)
			}
		}
	}
	f(limit, codes.OK)
	f(limit+1, codes.ResourceExhausted)
	if n := counterValue(t, g.metrics.tooLarge.WithLabelValues("")); n != 3 {
		t.Errorf("counted %v oversized requests, want 3", n)
	}
}

// TestGRPCSilentSender opens a call, sends half a message and waits.
func TestGRPCSilentSender(t *testing.T) {
	g := newRig(t, func(o *Options) { o.BodyTimeout = 50 * time.Millisecond })
	conn, err := net.Dial("tcp", g.grpc)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	_, _ = io.WriteString(conn, http2.ClientPreface)
	fr := http2.NewFramer(conn, conn)
	_ = fr.WriteSettings()
	var head bytes.Buffer
	enc := hpack.NewEncoder(&head)
	for _, h := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":authority", "localhost"},
		{":path", "/opentelemetry.proto.collector.trace.v1.TraceService/Export"}, {"content-type", "application/grpc"}, {"te", "trailers"}} {
		_ = enc.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]})
	}
	_ = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: head.Bytes(), EndHeaders: true})
	_ = fr.WriteData(1, false, binary.BigEndian.AppendUint32([]byte{0}, 1000))
	fr.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	for {
		f, err := fr.ReadFrame()
		if err != nil {
			t.Fatalf("no answer: %v", err)
		}
		if h, ok := f.(*http2.MetaHeadersFrame); ok {
			for _, field := range h.Fields {
				if field.Name == "grpc-status" {
					if field.Value != "14" {
						t.Errorf("grpc-status %s, want 14", field.Value)
					}
					return
				}
			}
		}
	}
}

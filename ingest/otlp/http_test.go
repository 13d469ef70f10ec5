package otlp

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zlib"
	"github.com/klauspost/compress/zstd"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/flyball/flyball/schema"
)

type reply struct {
	code   int
	header http.Header
	body   []byte
}

// post sends a body with the given Content-Type; headers are "Name: value".
func (g *rig) post(t testing.TB, contentType string, body io.Reader, headers ...string) reply {
	t.Helper()
	req, err := http.NewRequest(http.MethodPost, g.url+"/v1/traces", body)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", contentType)
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if name == "Host" {
			req.Host = value
			continue
		}
		req.Header.Add(name, value)
	}
	return do(t, req)
}

func do(t testing.TB, req *http.Request) reply {
	t.Helper()
	tr := &http.Transport{DisableCompression: true}
	defer tr.CloseIdleConnections()
	res, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply{res.StatusCode, res.Header, b}
}

// statusOf reads an error body, which has to be a google.rpc.Status in the answer's own encoding.
func statusOf(t testing.TB, r reply) *spb.Status {
	t.Helper()
	st := &spb.Status{}
	var err error
	switch ct := r.header.Get("Content-Type"); ct {
	case typeJSON:
		err = protojson.Unmarshal(r.body, st)
	case typeProtobuf:
		err = proto.Unmarshal(r.body, st)
	default:
		t.Fatalf("error body has Content-Type %q", ct)
	}
	if err != nil {
		t.Fatalf("read error body %q: %v", r.body, err)
	}
	if st.Message == "" || st.Code == 0 {
		t.Errorf("error body %v has no code or message", st)
	}
	return st
}

func gz(t testing.TB, b []byte) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := gzip.NewWriter(&buf)
	if _, err := w.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func zs(t testing.TB, b []byte, opts ...zstd.EOption) []byte {
	t.Helper()
	w, err := zstd.NewWriter(nil, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return w.EncodeAll(b, nil)
}

func TestHTTPStatus(t *testing.T) {
	g := newRig(t, nil)
	pb, js := protoOf(t, testTraces(3, 2)), jsonOf(t, testTraces(3, 2))
	f := func(name, contentType string, body []byte, code, spans int, headers ...string) {
		t.Helper()
		before := g.sink.count()
		r := g.post(t, contentType, bytes.NewReader(body), headers...)
		if r.code != code {
			t.Errorf("%s: status %d, want %d: %q", name, r.code, code, r.body)
			return
		}
		if got := g.sink.count() - before; got != spans {
			t.Errorf("%s: stored %d spans, want %d", name, got, spans)
		}
		if code != http.StatusOK {
			statusOf(t, r)
			return
		}
		want := map[string]string{typeProtobuf: "", typeJSON: "{}"}[r.header.Get("Content-Type")]
		if string(r.body) != want {
			t.Errorf("%s: body %q, want %q", name, r.body, want)
		}
	}
	f("protobuf", typeProtobuf, pb, 200, 3)
	f("JSON", typeJSON, js, 200, 3)
	f("JSON with charset", "application/json; charset=utf-8", js, 200, 3)
	f("gzip", typeProtobuf, gz(t, pb), 200, 3, "Content-Encoding: gzip")
	f("gzip JSON", typeJSON, gz(t, js), 200, 3, "Content-Encoding: GZIP")
	f("zstd", typeProtobuf, zs(t, pb), 200, 3, "Content-Encoding: zstd")
	f("zstd best", typeProtobuf, zs(t, pb, zstd.WithEncoderLevel(zstd.SpeedBestCompression), zstd.WithWindowSize(32<<20), zstd.WithSingleSegment(false)), 200, 3, "Content-Encoding: zstd")
	f("identity", typeProtobuf, pb, 200, 3, "Content-Encoding: identity")
	var z bytes.Buffer
	zw := zlib.NewWriter(&z)
	_, _ = zw.Write(pb)
	_ = zw.Close()
	f("deflate", typeProtobuf, z.Bytes(), 200, 3, "Content-Encoding: deflate")
	f("empty protobuf", typeProtobuf, nil, 200, 0)
	f("empty JSON", typeJSON, []byte(" {} \n"), 200, 0)
	f("empty resourceSpans", typeJSON, []byte(`{"resourceSpans":[]}`), 200, 0)
	f("null resourceSpans", typeJSON, []byte(`{"resourceSpans":null,"newField":{"a":[1]}}`), 200, 0)

	f("not protobuf", typeProtobuf, []byte("not protobuf"), 400, 0)
	f("truncated protobuf", typeProtobuf, pb[:len(pb)-7], 400, 0)
	f("truncated JSON", typeJSON, js[:len(js)-2], 400, 0)
	f("no JSON", typeJSON, nil, 400, 0)
	f("JSON array", typeJSON, []byte("[]"), 400, 0)
	f("two documents", typeJSON, append(bytes.Clone(js), js...), 400, 0)
	f("wrong shape", typeJSON, []byte(`{"resourceSpans":{"a":1}}`), 400, 0)
	f("not gzip", typeProtobuf, pb, 400, 0, "Content-Encoding: gzip")
	f("truncated gzip", typeProtobuf, gz(t, pb)[:40], 400, 0, "Content-Encoding: gzip")
	f("not zstd", typeProtobuf, pb, 400, 0, "Content-Encoding: zstd")
	f("gzip in gzip", typeProtobuf, gz(t, gz(t, pb)), 400, 0, "Content-Encoding: gzip")
	f("gzip twice", typeProtobuf, gz(t, gz(t, pb)), 415, 0, "Content-Encoding: gzip, gzip")
	f("brotli", typeProtobuf, pb, 415, 0, "Content-Encoding: br")
	f("text", "text/plain", pb, 415, 0)
	f("no type", "", pb, 415, 0)

	for _, method := range []string{"GET", "PUT", "OPTIONS", "DELETE"} {
		req, _ := http.NewRequest(method, g.url+"/v1/traces", nil)
		if r := do(t, req); r.code != 405 || r.header.Get("Allow") != "POST" {
			t.Errorf("%s: status %d, Allow %q", method, r.code, r.header.Get("Allow"))
		}
	}
	req, _ := http.NewRequest("POST", g.url+"/v2/traces", nil)
	if r := do(t, req); r.code != 404 {
		t.Errorf("unknown path: status %d", r.code)
	}
}

func TestErrorBodyIsInTheRequestsEncoding(t *testing.T) {
	g := newRig(t, nil)
	for _, ct := range []string{typeProtobuf, typeJSON} {
		r := g.post(t, ct, strings.NewReader("nonsense"))
		if got := r.header.Get("Content-Type"); got != ct {
			t.Errorf("asked in %s, answered in %s", ct, got)
		}
		if st := statusOf(t, r); st.Code != 3 {
			t.Errorf("%s: code %d, want INVALID_ARGUMENT", ct, st.Code)
		}
	}
}

func TestPartialSuccessHTTP(t *testing.T) {
	td := testTraces(5, 1)
	spans := td.ResourceSpans().At(0).ScopeSpans().At(0).Spans()
	spans.At(1).SetTraceID([16]byte{})
	js := strings.Replace(string(jsonOf(t, td)), `"spanId":"0200000300000000"`, `"spanId":"02000003000000"`, 1)
	f := func(name string, answer Result, rejected int64, words ...string) {
		t.Helper()
		g := newRig(t, nil)
		g.sink.answer = func(int) (Result, error) { return answer, nil }
		r := g.post(t, typeJSON, strings.NewReader(js))
		if r.code != 200 {
			t.Fatalf("%s: status %d: %s", name, r.code, r.body)
		}
		var got struct {
			PartialSuccess struct {
				RejectedSpans int64  `json:"rejectedSpans,string"`
				ErrorMessage  string `json:"errorMessage"`
			} `json:"partialSuccess"`
		}
		if err := json.Unmarshal(r.body, &got); err != nil {
			t.Fatal(err)
		}
		std := ptraceotlp.NewExportResponse()
		if err := std.UnmarshalJSON(r.body); err != nil || std.PartialSuccess().RejectedSpans() != rejected {
			t.Errorf("%s: pdata reads %d, %v", name, std.PartialSuccess().RejectedSpans(), err)
		}
		if got.PartialSuccess.RejectedSpans != rejected {
			t.Errorf("%s: rejected %d, want %d", name, got.PartialSuccess.RejectedSpans, rejected)
		}
		for _, w := range words {
			if !strings.Contains(got.PartialSuccess.ErrorMessage, w) {
				t.Errorf("%s: message %q lacks %q", name, got.PartialSuccess.ErrorMessage, w)
			}
		}
		if g.sink.spans != 3 {
			t.Errorf("%s: stored %d, want 3", name, g.sink.spans)
		}
		if n := counterValue(t, g.metrics.spansReceived); n != 5 {
			t.Errorf("%s: %v spans received, want 5", name, n)
		}
		if n := counterValue(t, g.metrics.spansRejected.WithLabelValues("span_id_malformed")); n != 1 {
			t.Errorf("%s: %v spans with malformed ids, want 1", name, n)
		}
	}
	f("own", Result{}, 2, "trace id is all zero", "number 2 of", "span id is not 8 bytes", "number 4 of")
	f("own and consumer's", Result{Rejected: 1, Reasons: "tenant is unknown"}, 3, "all zero", "tenant is unknown")
}

func TestWarningWithoutRejection(t *testing.T) {
	g := newRig(t, nil)
	g.sink.answer = func(int) (Result, error) { return Result{Reasons: "clock is off"}, nil }
	r := g.post(t, typeProtobuf, bytes.NewReader(protoOf(t, testTraces(1, 0))))
	res := ptraceotlp.NewExportResponse()
	if err := res.UnmarshalProto(r.body); err != nil {
		t.Fatal(err)
	}
	if r.code != 200 || res.PartialSuccess().RejectedSpans() != 0 || res.PartialSuccess().ErrorMessage() != "clock is off" {
		t.Errorf("status %d, body %q", r.code, r.body)
	}
}

func TestBackPressureHTTP(t *testing.T) {
	g := newRig(t, nil)
	f := func(err error, code int, after string) {
		t.Helper()
		g.sink.answer = func(int) (Result, error) { return Result{}, err }
		for _, ct := range []string{typeProtobuf, typeJSON} {
			body := protoOf(t, testTraces(1, 0))
			if ct == typeJSON {
				body = jsonOf(t, testTraces(1, 0))
			}
			r := g.post(t, ct, bytes.NewReader(body))
			if r.code != code || r.header.Get("Retry-After") != after {
				t.Errorf("%v in %s: status %d, Retry-After %q; want %d, %q", err, ct, r.code, r.header.Get("Retry-After"), code, after)
			}
			statusOf(t, r)
		}
	}
	f(Overload{RetryAfter: 1500 * time.Millisecond, Reason: "queue is full"}, 503, "2")
	f(&Overload{Throttled: true}, 429, "1")
	f(fmt.Errorf("append: %w", Overload{RetryAfter: 5 * time.Second}), 503, "5")
	f(io.ErrUnexpectedEOF, 503, "1")
	f(context.DeadlineExceeded, 503, "1")
}

func TestAuthentication(t *testing.T) {
	secret, hash := schema.NewSecret()
	reader, readerHash := schema.NewSecret()
	old, oldHash := schema.NewSecret()
	admin, adminHash := schema.NewSecret()
	g := newRig(t, func(o *Options) {
		o.Keys = ringOf(t,
			schema.Key{Name: "collector", SHA256: hash, Role: schema.KeyIngest, Tenant: "t-1"},
			schema.Key{Name: "reader", SHA256: readerHash, Role: schema.KeyRead, Tenant: "t-1"},
			schema.Key{Name: "admin", SHA256: adminHash, Role: schema.KeyAdmin, Tenants: []string{"*"}},
			schema.Key{Name: "old", SHA256: oldHash, Role: schema.KeyIngest, Tenant: "t-1", Expires: time.Now().Add(-time.Second)})
	})
	bomb := gz(t, make([]byte, 1<<20))
	f := func(name, header string, code int) {
		t.Helper()
		r := g.post(t, typeProtobuf, bytes.NewReader(bomb), "Content-Encoding: gzip", "Authorization: "+header)
		if r.code != code {
			t.Errorf("%s: status %d, want %d", name, r.code, code)
		}
		if code == 401 && r.header.Get("WWW-Authenticate") == "" {
			t.Errorf("%s: no WWW-Authenticate", name)
		}
		if code != 400 {
			statusOf(t, r)
		}
	}
	f("key", "Bearer "+secret, 400) // the body of zeros is read and no protobuf
	f("lower case", "bearer "+secret, 400)
	f("admin", "Bearer "+admin, 400)
	f("nothing", "", 401)
	f("unknown", "Bearer fb_00", 401)
	f("hash instead of secret", "Bearer "+hash, 401)
	f("basic", "Basic "+secret, 401)
	f("expired", "Bearer "+old, 401)
	f("wrong role", "Bearer "+reader, 403)

	req, _ := http.NewRequest("POST", g.url+"/v1/traces?key="+secret+"&access_token="+secret, nil)
	req.Header.Set("Content-Type", typeProtobuf)
	if r := do(t, req); r.code != 401 {
		t.Errorf("key in the query: status %d, want 401", r.code)
	}
}

func TestKeylessIsLoopbackOnly(t *testing.T) {
	r, err := NewReceiver(Options{Consumer: &sink{}, Keys: func() *schema.Keyring { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	f := func(addr net.Addr, ok bool) {
		t.Helper()
		from, flt := r.authenticate("", addr)
		if (flt == nil) != ok || from.Local != ok {
			t.Errorf("%v: %+v, %v", addr, from, flt)
		}
	}
	f(tcpAddr("127.0.0.1:9"), true)
	f(tcpAddr("[::1]:9"), true)
	f(tcpAddr("[::ffff:127.0.0.1]:9"), true)
	f(tcpAddr("@"), true)
	f(tcpAddr("10.0.0.1:9"), false)
	f(tcpAddr("nonsense"), false)
	f(nil, false)

	g := newRig(t, nil)
	body := protoOf(t, testTraces(1, 0))
	h := func(code int, headers ...string) {
		t.Helper()
		if r := g.post(t, typeProtobuf, bytes.NewReader(body), headers...); r.code != code {
			t.Errorf("%v: status %d, want %d", headers, r.code, code)
		}
	}
	h(200, "Host: localhost:4318")
	h(403, "Host: rebound.example:4318")
	h(200, "Origin: http://localhost:3000")
	h(403, "Origin: https://page.example")
	h(403, "Origin: null")
}

func TestRequestLimitIsExact(t *testing.T) {
	const limit = 100_000
	g := newRig(t, func(o *Options) { o.RequestBytes = limit })
	exactly := func(n int) []byte { // filled up with an unknown field: one byte of tag, three of length
		b := protoOf(t, testTraces(1, 0))
		b = appendMessage(b, 15, make([]byte, n-len(b)-4))
		if len(b) != n {
			t.Fatalf("made %d bytes, want %d", len(b), n)
		}
		return b
	}
	f := func(n, code int) {
		t.Helper()
		b := exactly(n)
		for name, r := range map[string]reply{
			"identity": g.post(t, typeProtobuf, bytes.NewReader(b)),
			"chunked":  g.post(t, typeProtobuf, io.MultiReader(bytes.NewReader(b))),
			"gzip":     g.post(t, typeProtobuf, bytes.NewReader(gz(t, b)), "Content-Encoding: gzip"),
			"zstd":     g.post(t, typeProtobuf, bytes.NewReader(zs(t, b)), "Content-Encoding: zstd"),
		} {
			if r.code != code {
				t.Errorf("%d bytes, %s: status %d, want %d", n, name, r.code, code)
			}
			if r.header.Get("Retry-After") != "" {
				t.Errorf("%d bytes, %s: a permanent refusal has Retry-After", n, name)
			}
		}
	}
	f(limit, 200)
	f(limit+1, 413)
	if n := counterValue(t, g.metrics.tooLarge.WithLabelValues("")); n != 4 {
		t.Errorf("counted %v oversized requests, want 4", n)
	}
}

// TestDecompressionBombs sends 30 bombs at once, each of which inflates to 1 GiB or claims to.
func TestDecompressionBombs(t *testing.T) {
	const limit = 4 << 20
	g := newRig(t, func(o *Options) { o.RequestBytes, o.InflightBytes = limit, 4*limit })
	var zeros bytes.Buffer
	zw, _ := gzip.NewWriterLevel(&zeros, gzip.BestSpeed)
	for range 256 {
		_, _ = zw.Write(make([]byte, 1<<20))
	}
	_ = zw.Close()
	var emptyMembers bytes.Buffer
	one := gz(t, nil)
	for emptyMembers.Len() < limit+wireSlack+1000 {
		emptyMembers.Write(one)
	}
	hugeWindow := []byte{0x28, 0xb5, 0x2f, 0xfd, 0x00, 0xa8, 1, 0, 0} // window of 2^31
	bombs := []struct {
		name, coding string
		body         []byte
		codes        string
	}{
		{"gzip", "gzip", zeros.Bytes(), "413 503"},
		{"zstd", "zstd", zs(t, make([]byte, 200<<20)), "413 503"},
		{"window", "zstd", hugeWindow, "400 503"},
		{"empty members", "gzip", emptyMembers.Bytes(), "413 503"},
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var wg sync.WaitGroup
	for i := range 30 {
		wg.Go(func() {
			b := bombs[i%len(bombs)]
			r := g.post(t, typeProtobuf, io.MultiReader(bytes.NewReader(b.body)), "Content-Encoding: "+b.coding)
			if !strings.Contains(b.codes, fmt.Sprint(r.code)) {
				t.Errorf("%s: status %d, want %s: %q", b.name, r.code, b.codes, r.body)
			}
		})
	}
	wg.Wait()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapSys) - int64(before.HeapSys); grown > 256<<20 {
		t.Errorf("heap grew by %d MiB", grown>>20)
	}
}

func TestBudgetRefusesWithRetry(t *testing.T) {
	g := newRig(t, func(o *Options) { o.RequestBytes, o.InflightBytes = 1<<20, 1<<20 })
	if err := g.budget.acquire(context.Background(), 1<<20, 0); err != nil {
		t.Fatal(err)
	}
	r := g.post(t, typeProtobuf, bytes.NewReader(protoOf(t, testTraces(1, 0))))
	if r.code != 503 || r.header.Get("Retry-After") == "" {
		t.Errorf("status %d, Retry-After %q", r.code, r.header.Get("Retry-After"))
	}
	g.budget.release(1 << 20)
	if r := g.post(t, typeProtobuf, bytes.NewReader(protoOf(t, testTraces(1, 0)))); r.code != 200 {
		t.Errorf("after release: status %d", r.code)
	}
}

func TestSlowBodyIsCutOff(t *testing.T) {
	g := newRig(t, func(o *Options) { o.BodyTimeout = 100 * time.Millisecond })
	conn, err := net.Dial("tcp", strings.TrimPrefix(g.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST /v1/traces HTTP/1.1\r\nHost: localhost\r\nContent-Type: %s\r\nContent-Length: 1000\r\n\r\n", typeProtobuf)
	go func() {
		for range 50 {
			if _, err := conn.Write([]byte{0x0a}); err != nil {
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
	}()
	start := time.Now()
	_ = conn.SetReadDeadline(time.Now().Add(5 * time.Second))
	answer, err := io.ReadAll(conn)
	if err != nil && !strings.Contains(err.Error(), "reset") {
		t.Errorf("connection was not closed: %v", err)
	}
	if took := time.Since(start); took > 2*time.Second {
		t.Errorf("took %v", took)
	}
	if len(answer) > 0 && !bytes.Contains(answer, []byte("503")) {
		t.Errorf("answer %q is no 503", answer)
	}
}

// TestSlowConsumerKeepsItsContext makes sure that the body's deadline does not reach into the consumer's time.
func TestSlowConsumerKeepsItsContext(t *testing.T) {
	g := newRig(t, func(o *Options) { o.BodyTimeout = 50 * time.Millisecond; o.Consumer = slowSink{} })
	if r := g.post(t, typeProtobuf, bytes.NewReader(protoOf(t, testTraces(1, 0)))); r.code != 200 {
		t.Errorf("status %d: %s", r.code, r.body)
	}
}

type slowSink struct{ *sink }

func (slowSink) Traces(ctx context.Context, _ Sender, _ ptrace.Traces) (Result, error) {
	select {
	case <-time.After(200 * time.Millisecond):
		return Result{}, nil
	case <-ctx.Done():
		return Result{}, ctx.Err()
	}
}

package dialect

import (
	"bufio"
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

const wireReceived = 1_900_000_000_000_000_000

// sameAsPdata reads a protobuf request both ways.
func sameAsPdata(t *testing.T, r *Reader, body []byte) (taken bool) {
	t.Helper()
	calls, spans, rejected, ok := r.AppendWire(nil, body, Origin{}, wireReceived)
	if !ok {
		return false
	}
	td, err := (&ptrace.ProtoUnmarshaler{}).UnmarshalTraces(body)
	if err != nil {
		t.Fatalf("a request that pdata refuses was taken: %v", err)
	}
	want, wantRejected := r.AppendSpans(nil, td, Origin{}, wireReceived)
	if spans != td.SpanCount() || !reflect.DeepEqual(rejected, wantRejected) || len(calls) != len(want) {
		t.Fatalf("%d spans gave %d calls, want %d of %d", spans, len(calls), len(want), td.SpanCount())
	}
	for i := range want {
		if calls[i] != want[i] {
			t.Fatalf("call %d:\n got %+v\nwant %+v", i, calls[i], want[i])
		}
	}
	return true
}

func TestWireReadsLikePdata(t *testing.T) {
	r, err := New(Options{HashKey: []byte("k"), Attributes: map[string][]string{"user": {"user.id"}, "tenant": {"tenant.id"}}})
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("testdata/captures/*.jsonl")
	if err != nil || len(files) == 0 {
		t.Fatal("no captures", err)
	}
	requests, taken := 0, 0
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(bytes.NewReader(data))
		lines.Buffer(nil, 16<<20)
		for lines.Scan() {
			if bytes.HasPrefix(lines.Bytes(), []byte(`{"resourceLogs"`)) {
				continue // pdata decodes every request of logs
			}
			td, err := (&ptrace.JSONUnmarshaler{}).UnmarshalTraces(lines.Bytes())
			if err != nil {
				t.Fatal(err)
			}
			body, err := (&ptrace.ProtoMarshaler{}).MarshalTraces(td)
			if err != nil {
				t.Fatal(err)
			}
			requests++
			if sameAsPdata(t, r, body) {
				taken++
			}
		}
	}
	if taken < requests*9/10 {
		t.Fatalf("only %d of %d recorded requests are regular", taken, requests)
	}
}

// What needs care is left to the real decoder.
func TestWireLeavesOddRequestsAlone(t *testing.T) {
	r, err := New(Options{HashKey: []byte("k")})
	if err != nil {
		t.Fatal(err)
	}
	f := func(want bool, change func(sp ptrace.Span)) {
		t.Helper()
		td := ptrace.NewTraces()
		sp := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans().AppendEmpty()
		sp.SetTraceID(pcommon.TraceID{1})
		sp.SetSpanID(pcommon.SpanID{1})
		sp.SetName("chat")
		sp.Attributes().PutStr("gen_ai.operation.name", "chat")
		change(sp)
		body, err := (&ptrace.ProtoMarshaler{}).MarshalTraces(td)
		if err != nil {
			t.Fatal(err)
		}
		if sameAsPdata(t, r, body) != want {
			t.Fatalf("taken: %v, want %v", !want, want)
		}
	}
	f(true, func(ptrace.Span) {})
	f(true, func(sp ptrace.Span) { sp.SetKind(99) })
	f(true, func(sp ptrace.Span) { sp.Attributes().PutEmptyMap("nobody.reads.this").PutEmptySlice("deep") })
	f(true, func(sp ptrace.Span) { sp.Links().AppendEmpty().SetTraceID(pcommon.TraceID{2}) })
	f(true, func(sp ptrace.Span) {
		e := sp.Events().AppendEmpty()
		e.SetName("exception")
		e.Attributes().PutStr("exception.type", "Timeout")
		sp.Status().SetCode(ptrace.StatusCodeError)
	})
	f(false, func(sp ptrace.Span) { sp.SetSpanID(pcommon.SpanID{}) })
	f(false, func(sp ptrace.Span) { sp.SetName("a\xffb") })
	f(false, func(sp ptrace.Span) { sp.Attributes().PutStr("user.id", "\xff") })
	f(false, func(sp ptrace.Span) { sp.Attributes().PutEmptyMap("gen_ai.tool.call.arguments").PutStr("q", "x") })
	// A resource whose spans lie where OTLP before 0.15 has them, in field 1000.
	if sameAsPdata(t, r, []byte("\x0a\x05\xc2\x3e\x02\x12\x00")) {
		t.Fatal("a request of an old sender was taken without its spans")
	}
}

func FuzzWire(f *testing.F) {
	files, _ := filepath.Glob("testdata/captures/*.jsonl")
	for i, file := range files {
		if i%25 != 0 {
			continue
		}
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		line, _, _ := bytes.Cut(data, []byte("\n"))
		td, err := (&ptrace.JSONUnmarshaler{}).UnmarshalTraces(line)
		if err != nil {
			continue // a scenario in which the emitter sent nothing
		}
		body, err := (&ptrace.ProtoMarshaler{}).MarshalTraces(td)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(body)
	}
	r, err := New(Options{HashKey: []byte("k")})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		calls, _, _, ok := r.AppendWire(nil, body, Origin{}, wireReceived)
		if !ok {
			return
		}
		for i := range calls {
			checkCall(t, &calls[i])
		}
		td, err := (&ptrace.ProtoUnmarshaler{}).UnmarshalTraces(body)
		if err != nil {
			return // pdata also looks at what no dialect reads; such a request is taken
		}
		want, _ := r.AppendSpans(nil, td, Origin{}, wireReceived)
		if len(want) != len(calls) {
			t.Fatalf("%d calls, want %d", len(calls), len(want))
		}
		for i := range want {
			if calls[i] != want[i] {
				t.Fatalf("call %d:\n got %+v\nwant %+v", i, calls[i], want[i])
			}
		}
	})
}

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
	"google.golang.org/protobuf/encoding/protowire"
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

// What stands twice is merged by a decoder, field by field, and must not be read as its last form
// alone: a tenant or a count would be lost.
func TestWireLeavesRepeatedPartsAlone(t *testing.T) {
	r, err := New(Options{HashKey: []byte("k")})
	if err != nil {
		t.Fatal(err)
	}
	msg := func(num protowire.Number, parts ...[]byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(nil, num, protowire.BytesType), bytes.Join(parts, nil))
	}
	text := func(num protowire.Number, s string) []byte { return msg(num, []byte(s)) }
	number := func(num protowire.Number, n uint64) []byte {
		return protowire.AppendVarint(protowire.AppendTag(nil, num, protowire.VarintType), n)
	}
	attr := func(name string, value ...[]byte) []byte {
		return msg(9, append([][]byte{text(1, name)}, value...)...)
	}
	link := func(parts ...[]byte) []byte { return msg(13, parts...) }
	f := func(name string, want bool, parts ...[]byte) {
		t.Helper()
		span := append([][]byte{text(1, "0123456789abcdef"), text(2, "01234567"), attr("gen_ai.operation.name", msg(2, text(1, "chat"))), attr("gen_ai.request.model", msg(2, text(1, "gpt-4o")))}, parts...)
		if sameAsPdata(t, r, msg(1, msg(2, msg(2, span...)))) != want {
			t.Errorf("%s: taken: %v, want %v", name, !want, want)
		}
	}
	f("nothing twice", true, text(4, "parent12"), attr("gen_ai.usage.input_tokens", msg(2, number(3, 7))), link(text(1, "fedcba9876543210")))
	f("an attribute twice", true, attr("gen_ai.usage.input_tokens", msg(2, number(3, 7))), attr("gen_ai.usage.input_tokens", msg(2, number(3, 8))))
	f("status twice", false, msg(15, number(3, 2)), msg(15, text(2, "429")))
	f("a value and an empty one", false, attr("gen_ai.usage.input_tokens", msg(2, number(3, 7)), msg(2)))
	f("a name twice", false, attr("other", text(1, "gen_ai.usage.input_tokens"), msg(2, number(3, 7))))
	f("a value of two types", false, attr("gen_ai.usage.input_tokens", msg(2, number(3, 7), text(1, "8"))))
	f("a list in two parts", false, attr("user.id", msg(2, msg(5, msg(1, text(1, "a"))), msg(5, msg(1, text(1, "b"))))))
	f("a parent and an empty one", false, text(4, "parent12"), text(4, ""))
	f("a linked trace and an empty one", false, link(text(1, "fedcba9876543210"), text(1, "")))
	f("an event's value twice", false, msg(11, text(2, "retry"), msg(3, text(1, "attempt"), msg(2, number(3, 7)), msg(2))))
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

package otlp

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/plog/plogotlp"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
)

// prefixedBy puts the collector's length in front of each message.
func prefixedBy(messages ...[]byte) []byte {
	var out []byte
	for _, m := range messages {
		out = binary.BigEndian.AppendUint32(out, uint32(len(m)))
		out = append(out, m...)
	}
	return out
}

func TestReadFile(t *testing.T) {
	pb, js := protoOf(t, testTraces(3, 4)), jsonOf(t, testTraces(3, 4))
	var pretty bytes.Buffer
	if err := json.Indent(&pretty, js, "", "  "); err != nil {
		t.Fatal(err)
	}
	lines := bytes.Join([][]byte{js, js, js}, []byte("\n"))
	f := func(name string, content []byte, spans int) {
		t.Helper()
		s := &sink{}
		var progress int64
		res, err := ReadFile(context.Background(), bytes.NewReader(content), "spans", s, func(n int64) { progress = n })
		if err != nil {
			t.Errorf("%s: %v", name, err)
			return
		}
		if s.spans != spans || res.Spans != int64(spans) || res.Rejected != 0 {
			t.Errorf("%s: have %d spans, result %+v, want %d", name, s.spans, res, spans)
		}
		if progress != int64(len(content)) {
			t.Errorf("%s: progress %d of %d bytes", name, progress, len(content))
		}
		if spans > 0 && !s.from.Trusted() {
			t.Errorf("%s: the sender is not trusted", name)
		}
	}
	f("empty", nil, 0)
	f("empty object", []byte("{}\n"), 0)
	f("JSON", js, 3)
	f("JSON after a BOM", append([]byte("\xef\xbb\xbf"), js...), 3)
	f("pretty JSON", pretty.Bytes(), 3)
	f("lines", lines, 9)
	f("lines with blanks", append([]byte("\n \n"), append(lines, "\r\n\n"...)...), 9)
	f("documents in a row", append(append(pretty.Bytes(), js...), pretty.Bytes()...), 9)
	f("protobuf", pb, 3)
	f("length-prefixed", prefixedBy(pb, pb), 6)
	f("length-prefixed JSON", prefixedBy(js, js), 6)
	f("length-prefixed zstd", prefixedBy(zs(t, js), zs(t, pb)), 6)
	for name, content := range map[string][]byte{"JSON": js, "lines": lines, "protobuf": pb, "length-prefixed": prefixedBy(pb, pb, pb)} {
		want := map[string]int{"JSON": 3, "protobuf": 3}[name]
		if want == 0 {
			want = 9
		}
		f("gzip "+name, gz(t, content), want)
		f("zstd "+name, zs(t, content), want)
	}
	f("large lines", bytes.Repeat(append(jsonOf(t, testTraces(200, 15)), '\n'), 5), 1000)
}

// A request in protobuf whose first part is as long as a bracket's code begins like JSON behind
// an empty line.
func TestReadFileTellsProtobufFromJSON(t *testing.T) {
	found := false
	for pad := range 120 {
		td := testTraces(1, 0)
		td.ResourceSpans().At(0).Resource().Attributes().PutStr("p", strings.Repeat("p", pad))
		td.ResourceSpans().AppendEmpty()
		pb := protoOf(t, td)
		found = found || pb[0] == '\n' && pb[1] == '{'
		s := &sink{}
		if _, err := ReadFile(context.Background(), bytes.NewReader(pb), "x", s, nil); err != nil || s.spans != 1 {
			t.Errorf("%d bytes: %d spans, %v", pb[1], s.spans, err)
		}
	}
	if !found {
		t.Error("no part was of that length")
	}
	for _, white := range []string{"\n", "\n \n\t"} {
		for _, inner := range []string{"", "\n", "\n  ", "\n\t", "\n\n\n\n", " "} {
			js := white + "{" + inner + string(jsonOf(t, testTraces(1, 0))[1:])
			s := &sink{}
			if _, err := ReadFile(context.Background(), strings.NewReader(js), "x", s, nil); err != nil || s.spans != 1 {
				t.Errorf("%q: %d spans, %v", js[:12], s.spans, err)
			}
		}
	}
}

func TestReadFileSignals(t *testing.T) {
	ld := plog.NewLogs()
	rec := ld.ResourceLogs().AppendEmpty().ScopeLogs().AppendEmpty().LogRecords().AppendEmpty()
	rec.SetTimestamp(1)
	rec.SetTraceID([16]byte{1})
	rec.Attributes().PutStr("k", "v")
	md := pmetric.NewMetrics()
	m := md.ResourceMetrics().AppendEmpty().ScopeMetrics().AppendEmpty().Metrics().AppendEmpty()
	m.SetName("requests.of.16.b")
	m.SetEmptySum().DataPoints().AppendEmpty().SetIntValue(1)
	lp, _ := plogotlp.NewExportRequestFromLogs(ld).MarshalProto()
	lj, _ := plogotlp.NewExportRequestFromLogs(ld).MarshalJSON()
	mp, _ := pmetricotlp.NewExportRequestFromMetrics(md).MarshalProto()
	mj, _ := pmetricotlp.NewExportRequestFromMetrics(md).MarshalJSON()
	td := testTraces(1, 5)
	for _, content := range [][]byte{
		prefixedBy(lp, mp, protoOf(t, td)),
		bytes.Join([][]byte{lj, mj, jsonOf(t, td)}, []byte("\n")),
	} {
		s := &sink{}
		res, err := ReadFile(context.Background(), bytes.NewReader(content), "mixed", s, nil)
		if err != nil || s.logs != 1 || s.metrics != 1 || s.spans != 1 {
			t.Errorf("%v: %d logs, %d metrics, %d spans, %+v", err, s.logs, s.metrics, s.spans, res)
		}
	}
}

func TestReadFileErrorsNameThePlace(t *testing.T) {
	js := string(jsonOf(t, testTraces(2, 1)))
	pb := protoOf(t, testTraces(2, 1))
	f := func(name string, content []byte, taken int, words ...string) {
		t.Helper()
		s := &sink{}
		_, err := ReadFile(context.Background(), bytes.NewReader(content), "a.jsonl", s, nil)
		if err == nil {
			t.Errorf("%s: no error", name)
			return
		}
		for _, w := range append(words, "a.jsonl") {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %q lacks %q", name, err, w)
			}
		}
		if s.spans != taken {
			t.Errorf("%s: took %d spans, want %d", name, s.spans, taken)
		}
	}
	f("broken line", []byte(js+"\n"+js+"\n{\"resourceSpans\":[}]}\n"+js), 4, "line 3", "offset")
	f("cut line", []byte(js+"\n"+js[:50]), 2, "line 2", "cut short")
	f("junk", []byte(js+"\nhello"), 2, "line 2", "begins with {")
	f("other format", []byte(`{"data":[{"spans":[]}]}`), 0, "line 1", "is this OTLP?")
	f("text", []byte("hello"), 0, "want OTLP")
	f("cut protobuf", pb[:len(pb)-3], 0, "offset 0")
	f("cut prefix", prefixedBy(pb, pb)[:len(pb)+20], 2, "message 2", "cut short")
	f("cut gzip", gz(t, []byte(js))[:60], 0, "cut short")
	f("cut zstd", zs(t, []byte(js+js))[:40], 0, "cut short")
}

func TestReadFileReportsRejectedAndWaits(t *testing.T) {
	s := &sink{answer: func(call int) (Result, error) {
		if call == 1 {
			return Result{}, Overload{RetryAfter: time.Millisecond}
		}
		return Result{Rejected: 1, Reasons: "unknown tenant"}, nil
	}}
	content := append(jsonRequest(jsonSpan(""), `{"traceId":"5b"}`, jsonSpan("")), '\n')
	res, err := ReadFile(context.Background(), bytes.NewReader(content), "x", s, nil)
	if err != nil || s.calls != 2 || s.spans != 2 {
		t.Fatalf("%v, %d calls, %d spans", err, s.calls, s.spans)
	}
	if res.Spans != 3 || res.Rejected != 2 || !strings.Contains(res.Reasons, "line 1") {
		t.Errorf("result %+v", res)
	}
}

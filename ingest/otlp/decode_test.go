package otlp

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/plog/plogotlp"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"google.golang.org/protobuf/encoding/protowire"
)

const (
	goodTrace = "5b8efff798038103d269b633813fc60c"
	goodSpan  = "eee19b7ec3c1b174"
)

// jsonRequest wraps spans, given as JSON, into a request.
func jsonRequest(spans ...string) []byte {
	return []byte(`{"resourceSpans":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"agent"}}]},"scopeSpans":[{"scope":{"name":"s"},"spans":[` +
		strings.Join(spans, ",") + `]}]}]}`)
}

// jsonSpan is a valid span with more members in front.
func jsonSpan(more string) string {
	if more != "" {
		more += ","
	}
	return `{` + more + `"traceId":"` + goodTrace + `","spanId":"` + goodSpan + `","name":"chat"}`
}

// mustDecode decodes and checks that accepted and rejected spans are all that were sent.
func mustDecode(t testing.TB, enc format, body []byte, sent int) payload {
	t.Helper()
	p, err := decode(traces, enc, body)
	if err != nil {
		t.Fatalf("decode: %v", err)
	}
	if got := int64(p.traces.SpanCount()) + p.rejects.total(); got != int64(sent) || p.items != int64(sent) {
		t.Fatalf("accepted %d + rejected %d, counted %d, sent %d", p.traces.SpanCount(), p.rejects.total(), p.items, sent)
	}
	return p
}

func spansOf(td ptrace.Traces) (out []ptrace.Span) {
	eachSpan(td, func(s ptrace.Span) { out = append(out, s) })
	return out
}

func TestJSONIDs(t *testing.T) {
	f := func(name, traceID, spanID, parentID string, want reason, ok bool) {
		t.Helper()
		span := `{"name":"x"`
		for _, m := range [][2]string{{"traceId", traceID}, {"spanId", spanID}, {"parentSpanId", parentID}} {
			if m[1] != "-" {
				span += `,"` + m[0] + `":` + m[1]
			}
		}
		p := mustDecode(t, jsonText, jsonRequest(jsonSpan(""), span+"}", jsonSpan("")), 3)
		if ok {
			if p.rejects.total() != 0 {
				t.Errorf("%s: rejected: %s", name, p.rejects.text(traces))
			} else if id := spansOf(p.traces)[1].TraceID().String(); id != goodTrace {
				t.Errorf("%s: trace id %s", name, id)
			}
			return
		}
		if p.rejects.n[want] != 1 || p.rejects.total() != 1 || p.rejects.first[want] != 2 {
			t.Errorf("%s: want %v of number 2, have %s", name, want, p.rejects.text(traces))
		}
	}
	tid, sid := `"`+goodTrace+`"`, `"`+goodSpan+`"`
	f("hex", tid, sid, "-", 0, true)
	f("upper case", strings.ToUpper(tid), strings.ToUpper(sid), sid, 0, true)
	f("empty parent", tid, sid, `""`, 0, true)
	f("null parent", tid, sid, `null`, 0, true)
	f("base64", `"W47/95gDgQPSabYzgT/GDA=="`, sid, "-", reasonTraceID, false)
	f("base64 span", tid, `"7uGbfsPBsXQ="`, "-", reasonSpanID, false)
	f("array", `[91,142]`, sid, "-", reasonTraceID, false)
	f("number", `12`, sid, "-", reasonTraceID, false)
	f("short", `"5b8eff"`, sid, "-", reasonTraceID, false)
	f("no hex", `"zb8efff798038103d269b633813fc60c"`, sid, "-", reasonTraceID, false)
	f("short parent", tid, sid, `"5b8eff"`, reasonParentID, false)
	f("empty trace", `""`, sid, "-", reasonTraceIDZero, false)
	f("no trace", "-", sid, "-", reasonTraceIDZero, false)
	f("null trace", "null", sid, "-", reasonTraceIDZero, false)
	f("zero trace", `"00000000000000000000000000000000"`, sid, "-", reasonTraceIDZero, false)
	f("no span", tid, "-", "-", reasonSpanIDZero, false)
	f("zero span", tid, `"0000000000000000"`, "-", reasonSpanIDZero, false)
}

func TestJSONEnumsAndUnknownFields(t *testing.T) {
	f := func(more string, kind ptrace.SpanKind, status ptrace.StatusCode) {
		t.Helper()
		p := mustDecode(t, jsonText, jsonRequest(jsonSpan(more)), 1)
		if p.rejects.total() != 0 {
			t.Errorf("%s: %s", more, p.rejects.text(traces))
			return
		}
		if sp := spansOf(p.traces)[0]; sp.Kind() != kind || sp.Status().Code() != status || sp.Name() != "chat" {
			t.Errorf("%s: kind %v, status %v, name %q", more, sp.Kind(), sp.Status().Code(), sp.Name())
		}
	}
	f(`"kind":99`, 0, 0)
	f(`"kind":-1`, 0, 0)
	f(`"kind":"SPAN_KIND_CLIENT"`, ptrace.SpanKindClient, 0)
	f(``, 0, 0)
	f(`"kind":null`, 0, 0)
	f(`"kind":3,"newField":{"a":1,"b":[1,{"c":null}]}`, ptrace.SpanKindClient, 0)
	f(`"status":{"code":7}`, 0, 0)
	f(`"status":{"code":2}`, 0, ptrace.StatusCodeError)
	f(`"status":{"code":"STATUS_CODE_ERROR"}`, 0, ptrace.StatusCodeError)
	f(`"kind":"client","status":{"code":"Error"}`, ptrace.SpanKindClient, ptrace.StatusCodeError)
	f(`"kind":"span_kind_server","status":{"code":"OK"}`, ptrace.SpanKindServer, ptrace.StatusCodeOk)
	f(`"":1,"kind":3`, ptrace.SpanKindClient, 0)
	f(`"kind":"3","status":{"code":"2"}`, ptrace.SpanKindClient, ptrace.StatusCodeError)
	f(`"kind":3.0,"status":{"code":2e0}`, ptrace.SpanKindClient, ptrace.StatusCodeError)
	f(`"kind":3,"droppedAttributesCount":5.0,"droppedEventsCount":1e2,"dropped_links_count":"3.0"`, ptrace.SpanKindClient, 0)

	p := mustDecode(t, jsonText, jsonRequest(`{"trace_id":"`+goodTrace+`","span_id":"`+goodSpan+`"}`), 1)
	if p.rejects.total() != 0 {
		t.Errorf("snake case: %s", p.rejects.text(traces))
	}
	p = mustDecode(t, jsonText, jsonRequest(jsonSpan(`"kind":"SPAN_KIND_NEW"`), jsonSpan("")), 2)
	if p.rejects.n[reasonUndecodable] != 1 {
		t.Errorf("unknown enum name: %s", p.rejects.text(traces))
	}
}

// What a request says of a person must not get into the service's log by way of a decoder's
// complaint, which names the place instead.
func TestRejectionQuotesNoContent(t *testing.T) {
	f := func(more string, words ...string) {
		t.Helper()
		p := mustDecode(t, jsonText, jsonRequest(jsonSpan(more), jsonSpan("")), 2)
		text := p.rejects.text(traces)
		if p.rejects.n[reasonUndecodable] != 1 || strings.Contains(text, "secret") {
			t.Errorf("%s: %s", more, text)
		}
		for _, w := range words {
			if !strings.Contains(text, w) {
				t.Errorf("%s: %q lacks %q", more, text, w)
			}
		}
	}
	f(`"attributes":[{"key":"prompt","value":{"stringValue":"a secret"}},{"key":"n","value":{"intValue":"x"}}]`, "attribute n: ", "invalid syntax")
	f(`"attributes":[{"key":"n","value":{"intValue":"a \"secret\": 5"}}]`, "attribute n: ", "invalid syntax")
	f(`"attributes":[{"key":"n","value":{"doubleValue":"a secret"}}]`, "attribute n: ")
	f(`"attributes":[{"key":"prompt","value":{"stringValue":"a secret \x"}}]`, "attribute prompt: ", "escape")
	f(`"attributes":{"prompt":"a secret"}`, "attributes: ")
	f(`"startTimeUnixNano":"a secret"`, "startTimeUnixNano: ")
	f(`"kind":"a secret"`, "kind: ")
	if _, err := decode(traces, jsonText, []byte(`{"resourceSpans":[{"scopeSpans":"a secret"}]}`)); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("the whole request: %v", err)
	}
}

func TestOneBadValueCostsOnlyItself(t *testing.T) {
	f := func(name, value string, rejected int64, want string) {
		t.Helper()
		attr := `"attributes":[{"key":"a","value":{"stringValue":"kept"}},{"key":"b","value":` + value + `}]`
		p := mustDecode(t, jsonText, jsonRequest(jsonSpan(""), jsonSpan(attr), jsonSpan("")), 3)
		if p.rejects.total() != rejected {
			t.Errorf("%s: rejected %d, want %d: %s", name, p.rejects.total(), rejected, p.rejects.text(traces))
		}
		if rejected > 0 {
			return
		}
		m := spansOf(p.traces)[1].Attributes()
		a, _ := m.Get("a")
		b, ok := m.Get("b")
		if got := fmt.Sprint(b.Type(), " ", b.AsString()); !ok || a.Str() != "kept" || got != want {
			t.Errorf("%s: have %q, want %q", name, got, want)
		}
	}
	f("null", `{"doubleValue":null}`, 0, "Empty ")
	f("bare NaN", `{"doubleValue":NaN}`, 0, "Empty ")
	f("NaN", `{"doubleValue":"NaN"}`, 0, "Empty ")
	f("bare Infinity", `{"doubleValue":-Infinity}`, 0, "Double -Infinity")
	f("null value", `null`, 0, "Empty ")
	f("null int", `{"intValue":null}`, 0, "Empty ")
	f("int string", `{"intValue":"9007199254740993"}`, 0, "Int 9007199254740993")
	f("int number", `{"intValue":9007199254740993}`, 0, "Int 9007199254740993")
	f("max", `{"intValue":"9223372036854775807"}`, 0, "Int 9223372036854775807")
	f("max number", `{"intValue":9223372036854775807}`, 0, "Int 9223372036854775807")
	f("exponent", `{"intValue":1.2e3}`, 0, "Int 1200")
	f("exponent in a string", `{"intValue":"9.223372036854775807E18"}`, 0, "Int 9223372036854775807")
	f("zeros behind the point", `{"intValue":1000.0}`, 0, "Int 1000")
	f("fraction", `{"intValue":1000.5}`, 0, "Double 1000.5")
	f("exponent over max", `{"intValue":1e19}`, 0, "Double 10000000000000000000")
	f("endless exponent", `{"intValue":1e999999999}`, 0, "Empty ")
	f("endless small exponent", `{"intValue":1e-999999999}`, 0, "Double 0")
	f("zero with an exponent", `{"intValue":0.0e5}`, 0, "Int 0")
	f("double with an exponent", `{"doubleValue":1.5e3}`, 0, "Double 1500")
	f("over max", `{"intValue":"9223372036854775808"}`, 0, "Double 9223372036854776000")
	f("over max number", `{"intValue":9223372036854775808}`, 0, "Double 9223372036854776000")
	f("largest double", `{"intValue":1.7976931348623157e+308}`, 0, "Double 1.7976931348623157e+308")
	f("words", `{"intValue":"many"}`, 1, "")
	f("object in a string", `{"stringValue":{"a":1}}`, 1, "")
	f("bad base64", `{"bytesValue":"*"}`, 1, "")
	f("base64", `{"bytesValue":"/+8="}`, 0, "Bytes /+8=")
	f("base64 without padding", `{"bytesValue":"/+8"}`, 0, "Bytes /+8=")
	f("base64 for URLs", `{"bytes_value":"_-8"}`, 0, "Bytes /+8=")
	f("base64 with an escape, beside what is odd", `{"bytesValue":"\/+8"}`, 0, "Bytes /+8=")
	f("null bytes", `{"bytesValue":null}`, 0, "Empty ")
	f("double over max", `{"doubleValue":1e999}`, 0, "Empty ")
	f("negative double over max", `{"doubleValue":-1e999}`, 0, "Empty ")
	f("raw control character", "{\"stringValue\":\"a\nb\"}", 0, "Str a\nb")
	f("bad escape", `{"stringValue":"\q"}`, 1, "")

	td := testTraces(3, 0)
	spansOf(td)[1].Attributes().PutDouble("b", math.NaN())
	p := mustDecode(t, protobuf, protoOf(t, td), 3)
	if b, ok := spansOf(p.traces)[1].Attributes().Get("b"); !ok || b.Type() != pcommon.ValueTypeEmpty {
		t.Errorf("NaN in protobuf: %v %v", b.Type(), ok)
	}
}

func TestInvalidUTF8IsRepaired(t *testing.T) {
	bad := "a\xffb"
	td := testTraces(10, 1)
	rs := td.ResourceSpans().At(0)
	rs.Resource().Attributes().PutStr(bad, bad)
	rs.SetSchemaUrl(bad)
	rs.ScopeSpans().At(0).Scope().SetName(bad)
	rs.ScopeSpans().At(0).Scope().SetVersion(bad)
	sp := spansOf(td)[4]
	sp.SetName(bad)
	sp.Status().SetMessage(bad)
	sp.TraceState().FromRaw(bad)
	sp.Attributes().PutEmptyMap("m").PutEmptySlice(bad).AppendEmpty().SetStr(bad)
	ev := sp.Events().AppendEmpty()
	ev.SetName(bad)
	ev.Attributes().PutStr(bad, bad)
	sp.Links().AppendEmpty().Attributes().PutStr("x", bad)
	for enc, body := range map[format][]byte{protobuf: protoOf(t, td), jsonText: rawJSON(t, td)} {
		p := mustDecode(t, enc, body, 10)
		if p.rejects.total() != 0 {
			t.Errorf("%v: %s", enc, p.rejects.text(traces))
		}
		out := protoOf(t, p.traces)
		if bytes.Contains(out, []byte("a\xffb")) {
			t.Errorf("%v: invalid UTF-8 is left", enc)
		}
		if n := bytes.Count(out, []byte("a\ufffdb")); n != 14 || p.repaired != 14 {
			t.Errorf("%v: %d strings repaired, %d counted, want 14", enc, n, p.repaired)
		}
	}
}

// rawJSON marshals td and puts the invalid bytes back that the marshaller replaced.
func rawJSON(t *testing.T, td ptrace.Traces) []byte {
	b := jsonOf(t, td)
	b = bytes.ReplaceAll(b, []byte(`a\ufffdb`), []byte("a\xffb"))
	return bytes.ReplaceAll(b, []byte("a\ufffdb"), []byte("a\xffb"))
}

func TestFatSpanDoesNotLoseTheBatch(t *testing.T) {
	td := testTraces(4, 0)
	spansOf(td)[2].Attributes().PutStr("prompt", strings.Repeat("x", 5<<20))
	p := mustDecode(t, protobuf, protoOf(t, td), 4)
	if p.traces.SpanCount() != 4 {
		t.Errorf("have %d spans, want 4", p.traces.SpanCount())
	}
}

// nested makes a value of n arrays or maps inside each other.
func nested(v pcommon.Value, n int, maps bool) {
	for range n {
		if maps {
			v = v.SetEmptyMap().PutEmpty("k")
		} else {
			v = v.SetEmptySlice().AppendEmpty()
		}
	}
	v.SetInt(1)
}

func TestNestingHasOneVerdictInBothEncodings(t *testing.T) {
	for _, maps := range []bool{false, true} {
		limit := 49
		if maps {
			limit = 32
		}
		for _, n := range []int{1, limit - 1, limit, limit + 1, limit + 2, 65, 99} {
			td := testTraces(3, 0)
			nested(spansOf(td)[1].Attributes().PutEmpty("deep"), n, maps)
			a := mustDecode(t, protobuf, protoOf(t, td), 3)
			b := mustDecode(t, jsonText, jsonOf(t, td), 3)
			if x, y := a.rejects.n[reasonNested], b.rejects.n[reasonNested]; x != y {
				t.Errorf("maps %v, %d deep: protobuf rejects %d (%s), JSON %d (%s)", maps, n, x, a.rejects.text(traces), y, b.rejects.text(traces))
			}
			if want := n > limit; (a.rejects.total() == 1) != want {
				t.Errorf("maps %v, %d deep: rejected %v, want %v", maps, n, !want, want)
			}
		}
	}
}

func TestVeryDeepNestingNeitherPanicsNorSpreads(t *testing.T) {
	for _, n := range []int{300, 20_000, 200_000} {
		for _, level := range []string{`{"arrayValue":{"values":[`, `{"kvlistValue":{"values":[{"key":"k","value":`} {
			var deep strings.Builder
			closing := `]}}`
			if strings.Contains(level, "kvlist") {
				closing = `}]}}`
			}
			deep.WriteString(strings.Repeat(level, n) + `{"intValue":1}` + strings.Repeat(closing, n))
			attr := `"attributes":[{"key":"deep","value":` + deep.String() + `}]`
			p := mustDecode(t, jsonText, jsonRequest(jsonSpan(""), jsonSpan(attr), jsonSpan("")), 3)
			if p.rejects.n[reasonNested] != 1 || p.rejects.first[reasonNested] != 2 {
				t.Errorf("%d deep: %s", n, p.rejects.text(traces))
			}
			// In a resource, it takes the spans of that resource and no others.
			two := `{"resourceSpans":[{"resource":{` + attr + `},"scopeSpans":[{"spans":[` + jsonSpan("") + `]}]},{"scopeSpans":[{"spans":[` + jsonSpan("") + `]}]}]}`
			if p := mustDecode(t, jsonText, []byte(two), 2); p.rejects.n[reasonContainer] != 1 {
				t.Errorf("%d deep in a resource: %s", n, p.rejects.text(traces))
			}
		}
		// Unknown members are skipped however deep they are, unless they sit in a span.
		unknown := `{"x":` + strings.Repeat("[", n) + strings.Repeat("]", n) + `,` + string(jsonRequest(jsonSpan("")))[1:]
		if p := mustDecode(t, jsonText, []byte(unknown), 1); p.rejects.total() != 0 {
			t.Errorf("unknown member: %s", p.rejects.text(traces))
		}
		var wire []byte
		for range min(n, 3000) {
			wire = appendMessage(nil, 5, appendMessage(nil, 1, wire))
		}
		td := testTraces(2, 0)
		span := appendMessage(appendMessage(nil, 1, bytes.Repeat([]byte{1}, 16)), 2, bytes.Repeat([]byte{1}, 8))
		span = appendMessage(span, 9, appendMessage(nil, 2, wire))
		body := appendMessage(protoOf(t, td), fieldResources, appendMessage(nil, fieldScopes, appendMessage(nil, fieldItems, span)))
		if p := mustDecode(t, protobuf, body, 3); p.rejects.n[reasonNested] != 1 {
			t.Errorf("protobuf: %s", p.rejects.text(traces))
		}
	}
}

func TestProtoIDsOfWrongLength(t *testing.T) {
	f := func(field int, id []byte, want reason) {
		t.Helper()
		span := appendMessage(appendMessage(nil, 1, bytes.Repeat([]byte{1}, 16)), 2, bytes.Repeat([]byte{1}, 8))
		span = appendMessage(span, 1+0, bytes.Repeat([]byte{1}, 16))
		switch field {
		case 1:
			span = appendMessage(span, 1, id)
		case 2:
			span = appendMessage(span, 2, id)
		case 4:
			span = appendMessage(span, 4, id)
		}
		own := appendMessage(nil, 1, appendMessage(nil, 1, []byte("scope")))
		own = appendMessage(own, fieldItems, span)
		body := appendMessage(protoOf(t, testTraces(2, 1)), fieldResources, appendMessage(nil, fieldScopes, own))
		body = append(body, protoOf(t, testTraces(2, 1))...)
		p := mustDecode(t, protobuf, body, 5)
		if p.rejects.n[want] != 1 || p.rejects.first[want] != 3 {
			t.Errorf("field %d: %s", field, p.rejects.text(traces))
		}
	}
	f(1, []byte("short"), reasonTraceID)
	f(1, bytes.Repeat([]byte{1}, 24), reasonTraceID)
	f(2, []byte("sevenid"), reasonSpanID)
	f(4, []byte("5b8eff"), reasonParentID)
	f(1, nil, reasonTraceIDZero)
}

func TestSplitKeepsResourceAndScope(t *testing.T) {
	td := testTraces(2, 3)
	td.ResourceSpans().At(0).SetSchemaUrl("https://schema")
	td.ResourceSpans().At(0).ScopeSpans().At(0).Scope().Attributes().PutStr("k", "v")
	want := protoOf(t, td)
	p := payload{sig: traces}
	got, err := splitProto(&p, want)
	if err != nil {
		t.Fatal(err)
	}
	check := func(enc format, b []byte) {
		t.Helper()
		q := mustDecode(t, enc, b, 2)
		if again := protoOf(t, q.traces); !bytes.Equal(again, want) {
			t.Errorf("%v: the request changed:\n%q\n%q", enc, again, want)
		}
	}
	check(protobuf, got)
	p = payload{sig: traces}
	if got, err = splitJSON(&p, jsonOf(t, td)); err != nil {
		t.Fatal(err)
	}
	check(jsonText, got)
}

// TestLibrariesAreScopes: requests of senders from before OTLP 0.15, in both encodings and JSON spellings, of
// all signals; a library list beside scopes is passed over, as by pdata.
func TestLibrariesAreScopes(t *testing.T) {
	td := testTraces(2, 3)
	want := protoOf(t, td)
	var request []byte
	if err := eachField(want, func(_ protowire.Number, _ protowire.Type, _, resource []byte) error {
		var old []byte
		err := eachField(resource, func(num protowire.Number, _ protowire.Type, raw, value []byte) error {
			if num == fieldScopes {
				raw = appendMessage(nil, fieldDeprecated, value)
			}
			old = append(old, raw...)
			return nil
		})
		request = appendMessage(request, fieldResources, old)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	check := func(enc format, b []byte) {
		t.Helper()
		if again := protoOf(t, mustDecode(t, enc, b, 2).traces); !bytes.Equal(again, want) {
			t.Errorf("%v: the request changed:\n%q\n%q", enc, again, want)
		}
	}
	check(protobuf, request)
	old := func(list, scope string) []byte {
		js := bytes.ReplaceAll(jsonOf(t, td), []byte(`"scopeSpans"`), []byte(`"`+list+`"`))
		return bytes.ReplaceAll(js, []byte(`"scope"`), []byte(`"`+scope+`"`))
	}
	check(jsonText, old("instrumentationLibrarySpans", "instrumentationLibrary"))
	check(jsonText, old("instrumentation_library_spans", "instrumentation_library"))
	check(jsonText, bytes.Replace(jsonOf(t, td), []byte(`"scopeSpans"`), []byte(`"instrumentationLibrarySpans":[{"spans":[{}]}],"scopeSpans"`), 1))

	p, err := decode(logs, jsonText, []byte(`{"resourceLogs":[{"instrumentationLibraryLogs":[{"instrumentationLibrary":{"name":"l"},"logRecords":[{"body":{"stringValue":"a"}}]}]}]}`))
	if err != nil || p.logs.LogRecordCount() != 1 || p.logs.ResourceLogs().At(0).ScopeLogs().At(0).Scope().Name() != "l" {
		t.Errorf("logs: %d, %v", p.logs.LogRecordCount(), err)
	}
	p, err = decode(metricData, jsonText, []byte(`{"resourceMetrics":[{"instrumentationLibraryMetrics":[{"metrics":[{"name":"m","gauge":{"dataPoints":[{"asInt":"1"}]}}]}]}]}`))
	if err != nil || p.metrics.DataPointCount() != 1 {
		t.Errorf("metrics: %d, %v", p.metrics.DataPointCount(), err)
	}
}

func TestSameSpanInBothEncodings(t *testing.T) {
	td := testTraces(2, 15)
	a := mustDecode(t, protobuf, protoOf(t, td), 2)
	js := bytes.ReplaceAll(jsonOf(t, td), []byte("0100000100000000"), []byte("0100000100000000"))
	b := mustDecode(t, jsonText, js, 2)
	if !bytes.Equal(protoOf(t, a.traces), protoOf(t, b.traces)) {
		t.Error("protobuf and JSON differ")
	}
}

func TestLogsAndMetricsSplitToo(t *testing.T) {
	ld := plog.NewLogs()
	recs := ld.ResourceLogs().AppendEmpty().ScopeLogs().AppendEmpty().LogRecords()
	for range 3 {
		r := recs.AppendEmpty()
		r.SetTimestamp(1)
		r.Body().SetStr("a\xffb")
	}
	nested(recs.At(1).Body(), 60, false)
	b, err := plogotlp.NewExportRequestFromLogs(ld).MarshalProto()
	if err != nil {
		t.Fatal(err)
	}
	p, err := decode(logs, protobuf, b)
	if err != nil || p.items != 3 || p.rejects.n[reasonNested] != 1 || p.logs.LogRecordCount() != 2 || p.repaired != 2 {
		t.Errorf("logs: %v, %d items, %d repaired, %s", err, p.items, p.repaired, p.rejects.text(logs))
	}

	md := pmetric.NewMetrics()
	ms := md.ResourceMetrics().AppendEmpty().ScopeMetrics().AppendEmpty().Metrics()
	for range 3 {
		ms.AppendEmpty().SetEmptyGauge().DataPoints().AppendEmpty().Attributes().PutStr("k", "a\xffb")
	}
	nested(ms.At(2).Gauge().DataPoints().At(0).Attributes().PutEmpty("deep"), 60, true)
	if b, err = pmetricotlp.NewExportRequestFromMetrics(md).MarshalProto(); err != nil {
		t.Fatal(err)
	}
	p, err = decode(metricData, protobuf, b)
	if err != nil || p.items != 3 || p.rejects.n[reasonNested] != 1 || p.metrics.MetricCount() != 2 || p.repaired != 2 {
		t.Errorf("metrics: %v, %d items, %d repaired, %s", err, p.items, p.repaired, p.rejects.text(metricData))
	}
	p, err = decode(metricData, jsonText, []byte(`{"resourceMetrics":[{"scopeMetrics":[{"metrics":[{"name":"a"},{"name":"b","gauge":{"dataPoints":[{"asInt":"x"}]}}]}]}]}`))
	if err != nil || p.items != 2 || p.rejects.total() != 1 {
		t.Errorf("JSON metrics: %v, %d items, %s", err, p.items, p.rejects.text(metricData))
	}
}

func FuzzTracesJSON(f *testing.F) {
	f.Add(jsonOf(f, testTraces(2, 3)))
	f.Add(jsonRequest(jsonSpan(`"kind":99,"":{}`), jsonSpan(`"attributes":[{"key":"b","value":{"doubleValue":NaN}}]`), `{"traceId":[1]}`, `7`, `null`))
	f.Add([]byte(`{"resource_spans":[null,{"scope_spans":[null,{"spans":[{}]}],"scopeSpans":[]}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		p, err := decode(traces, jsonText, body)
		if err != nil {
			return
		}
		checkConserved(t, jsonText, body, p)
	})
}

func FuzzTracesProto(f *testing.F) {
	f.Add(protoOf(f, testTraces(2, 3)))
	f.Add(appendMessage(nil, 1, appendMessage(nil, 2, appendMessage(nil, 2, appendMessage(nil, 1, []byte("short"))))))
	f.Add(appendMessage(nil, 1, appendMessage(nil, 1000, appendMessage(nil, 2, nil))))
	f.Fuzz(func(t *testing.T, body []byte) {
		p, err := decode(traces, protobuf, body)
		if err != nil {
			return
		}
		checkConserved(t, protobuf, body, p)
	})
}

// checkConserved checks that accepted and rejected spans are all that were sent: by pdata's count where pdata reads the
// request, and by the other path's count in any case.
func checkConserved(t *testing.T, enc format, body []byte, p payload) {
	t.Helper()
	total := int64(p.traces.SpanCount()) + p.rejects.total()
	if p.items != total {
		t.Fatalf("counted %d, accepted %d + rejected %d", p.items, p.traces.SpanCount(), p.rejects.total())
	}
	if !p.split {
		whole := payload{sig: traces}
		if err := whole.unmarshal(enc, body); err == nil && int64(whole.traces.SpanCount()) != total {
			t.Fatalf("counted %d, pdata finds %d", total, whole.traces.SpanCount())
		}
		other := payload{sig: traces, split: true}
		split := splitProto
		if enc == jsonText {
			split = splitJSON
		}
		good, err := split(&other, bytes.TrimPrefix(body, []byte("\xef\xbb\xbf")))
		if err != nil {
			return // pdata is more lenient about upper levels
		}
		if err := other.unmarshal(enc, good); err != nil {
			t.Fatalf("split request does not decode: %v", err)
		}
		other.sanitize()
		if other.items != total {
			t.Fatalf("counted %d, item by item %d", total, other.items)
		}
	}
	eachSpan(p.traces, func(sp ptrace.Span) {
		if sp.TraceID().IsEmpty() || sp.SpanID().IsEmpty() {
			t.Fatal("a span without ids was accepted")
		}
	})
}

package ingest

import (
	"math"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

func TestProbeExtreme(t *testing.T) {
	r := newRig(t, nil)
	ends := []uint64{math.MaxUint64, math.MaxInt64, 1<<63 + 5, 0, 1}
	r.send(chats(0, 50, func(i int, sp ptrace.Span) {
		sp.SetTraceID(pcommon.TraceID{15: byte(i + 1)})
		if i < 5 {
			sp.SetEndTimestamp(pcommon.Timestamp(ends[i]))
		} else if i < 10 {
			sp.SetStartTimestamp(pcommon.Timestamp(ends[i-5]))
		} else if i < 15 {
			sp.SetStartTimestamp(pcommon.Timestamp(ends[i-10]))
			sp.SetEndTimestamp(pcommon.Timestamp(ends[i-10]))
		}
		m := sp.Attributes()
		switch i {
		case 20:
			m.PutInt("gen_ai.usage.input_tokens", math.MaxInt64)
		case 21:
			m.PutInt("gen_ai.usage.input_tokens", -5)
		case 22:
			m.PutDouble("gen_ai.usage.input_tokens", math.Inf(1))
		case 23:
			m.PutInt("gen_ai.usage.output_tokens", math.MaxInt64)
		case 24:
			m.PutStr("tenant.id", "a\x00b'\\\n\t")
		case 25:
			sp.SetName("\x00\x01'; DROP")
		case 26:
			m.PutInt("http.response.status_code", 1<<40)
		case 27:
			m.PutStr("flyball.cost_usd", "1e300")
			m.PutDouble("gen_ai.usage.cost", 1e300)
			m.PutDouble("llm.cost.total", 1e300)
		case 28:
			m.PutStr("user.id", strings.Repeat("é", 5000))
		case 29:
			m.PutStr("gen_ai.response.id", strings.Repeat("é", 50000))
		case 30:
			m.PutStr("gen_ai.request.model", strings.Repeat("m", 50000))
		}
	}))
	r.drain()
	r.spans(50)
	t.Logf("%v", r.quarantined())
	t.Log(r.one("SELECT max(length(response_id)+length(model)+length(requested_model)) FROM journal"))
}


func TestProbeGiant(t *testing.T) {
	r := newRig(t, nil)
	const n = 400_000
	one := func(i int, sp ptrace.Span) {
		sp.SetTraceID(pcommon.TraceID{15: 1})
		sp.SetParentSpanID(pcommon.SpanID{0: 255})
	}
	for i := 0; i < n; i += 50000 {
		r.send(chats(i, i+50000, one))
	}
	r.drain0(60)
	r.spans(n)
	start := time.Now()
	r.send(chats(n, n+1, func(i int, sp ptrace.Span) {
		sp.SetTraceID(pcommon.TraceID{15: 1})
		sp.SetSpanID(pcommon.SpanID{0: 255})
		sp.Attributes().PutStr("user.id", "u")
		sp.Attributes().PutStr("gen_ai.operation.name", "invoke_agent")
	}))
	t.Log("root", time.Since(start), r.p.Status())
	r.drain0(60)
	t.Log("stored", time.Since(start))
	r.spans(n+1)
	t.Log(r.one("SELECT max(c) FROM (SELECT count() c FROM journal GROUP BY chunk)"))
}

func (r *rig) drain0(s int) {
	for end := time.Now().Add(time.Duration(s) * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if r.p.Status().Queued == 0 { return }
	}
	r.t.Fatalf("%+v", r.p.Status())
}

package ingest

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/flyball/flyball/ingest/otlp"
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

func TestProbeScope(t *testing.T) {
	r := newRig(t, nil)
	td := chats(0, 300, nil)
	td.ResourceSpans().At(0).ScopeSpans().At(0).Scope().SetName(strings.Repeat("s", 1<<20))
	start := time.Now()
	_, err := r.p.Traces(t.Context(), otlp.Sender{Local: true}, td)
	t.Log(err, time.Since(start))
	select {
	case err := <-r.p.Failed():
		t.Log("failed", err)
	default:
	}
}

func TestProbeView(t *testing.T) {
	r := newRig(t, nil)
	if err := r.engine.Conn().Exec(context.Background(), "ALTER TABLE spend_15m ADD CONSTRAINT poison CHECK user != 'poison'"); err != nil {
		t.Fatal(err)
	}
	r.send(chats(0, 50, func(i int, sp ptrace.Span) {
		if i == 7 {
			sp.Attributes().PutStr("user.id", "poison")
		}
	}))
	r.drain()
	t.Log(r.one("SELECT count() FROM journal"), r.one("SELECT sum(lines) FROM spend_15m"), r.one("SELECT sum(lines) FROM runs"), r.quarantined())
	r.spans(49)
}

package ingest

import (
	"encoding/binary"
	"fmt"
	"testing"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/flyball/flyball/schema"
)

// agentRuns makes runs of ten spans with about fifteen attributes each: a root,
// four model calls, three tool calls, two database queries.
func agentRuns(n int) ptrace.Traces {
	td := ptrace.NewTraces()
	rs := td.ResourceSpans().AppendEmpty()
	rs.Resource().Attributes().PutStr("service.name", "agent")
	rs.Resource().Attributes().PutStr("deployment.environment.name", "prod")
	ss := rs.ScopeSpans().AppendEmpty()
	ss.Scope().SetName("opentelemetry.instrumentation.agents")
	ss.Scope().SetVersion("1.2.3")
	start := uint64(1_793_534_400_000_000_000)
	for run := range n {
		var trace pcommon.TraceID
		binary.BigEndian.PutUint64(trace[:], uint64(run)+1)
		span := func(i byte, parent byte, name string, kind ptrace.SpanKind) pcommon.Map {
			sp := ss.Spans().AppendEmpty()
			sp.SetTraceID(trace)
			sp.SetSpanID(pcommon.SpanID{0: i + 1, 7: byte(run), 6: byte(run >> 8)})
			if parent != i {
				sp.SetParentSpanID(pcommon.SpanID{0: parent + 1, 7: byte(run), 6: byte(run >> 8)})
			}
			sp.SetName(name)
			sp.SetKind(kind)
			sp.SetStartTimestamp(pcommon.Timestamp(start + uint64(i)*1e8))
			sp.SetEndTimestamp(pcommon.Timestamp(start + uint64(i)*1e8 + 5e7))
			m := sp.Attributes()
			m.PutStr("user.id", fmt.Sprintf("user-%d", run%5000))
			m.PutStr("app.feature", "checkout")
			m.PutStr("tenant.id", fmt.Sprintf("tenant-%d", run%50))
			m.PutStr("session.id", fmt.Sprintf("session-%d", run))
			return m
		}
		filler := func(m pcommon.Map, n int) {
			for i := range n {
				m.PutStr(fmt.Sprintf("app.custom.attribute.%d", i), "some value that nobody reads")
			}
		}
		for i := range byte(4) {
			m := span(1+i, 0, "chat gpt-5", ptrace.SpanKindClient)
			m.PutStr("gen_ai.operation.name", "chat")
			m.PutStr("gen_ai.provider.name", "openai")
			m.PutStr("gen_ai.request.model", "gpt-5")
			m.PutStr("gen_ai.response.model", "gpt-5-2025-08-07")
			m.PutStr("gen_ai.response.id", fmt.Sprintf("chatcmpl-%d-%d", run, i))
			m.PutInt("gen_ai.usage.input_tokens", 12000)
			m.PutInt("gen_ai.usage.cache_read.input_tokens", 10240)
			m.PutInt("gen_ai.usage.output_tokens", 900+int64(i))
			m.PutInt("gen_ai.usage.reasoning.output_tokens", 640)
			m.PutEmptySlice("gen_ai.response.finish_reasons").AppendEmpty().SetStr("stop")
			filler(m, 1)
		}
		for i := range byte(3) {
			m := span(5+i, 0, "execute_tool search", ptrace.SpanKindInternal)
			m.PutStr("gen_ai.operation.name", "execute_tool")
			m.PutStr("gen_ai.tool.name", "search")
			m.PutStr("gen_ai.tool.call.id", fmt.Sprintf("call_%d_%d", run, i))
			m.PutStr("gen_ai.tool.type", "function")
			filler(m, 7)
		}
		for i := range byte(2) {
			m := span(8+i, 0, "SELECT orders", ptrace.SpanKindClient)
			m.PutStr("db.system.name", "postgresql")
			m.PutStr("db.operation.name", "SELECT")
			m.PutStr("db.collection.name", "orders")
			m.PutStr("server.address", "db.internal")
			filler(m, 7)
		}
		m := span(0, 0, "invoke_agent support", ptrace.SpanKindInternal)
		m.PutStr("gen_ai.operation.name", "invoke_agent")
		m.PutStr("gen_ai.agent.name", "support")
		m.PutStr("gen_ai.workflow.name", "answer")
		filler(m, 8)
	}
	return td
}

// freshIDs gives every trace of an encoded request new ids.
func freshIDs(calls []schema.Call, round uint64) {
	for i := range calls {
		binary.BigEndian.PutUint64(calls[i].Trace[8:], round)
		if calls[i].ResponseID != "" {
			calls[i].ResponseID = responseIDs[(int(round)*1000+i)%len(responseIDs)]
		}
	}
}

var responseIDs = func() []string {
	ids := make([]string, 400_000)
	for i := range ids {
		ids[i] = fmt.Sprintf("chatcmpl-%010d", i)
	}
	return ids
}()

func BenchmarkDecodeToEntry(b *testing.B) {
	td := agentRuns(100)
	data, err := (&ptrace.ProtoMarshaler{}).MarshalTraces(td)
	if err != nil {
		b.Fatal(err)
	}
	bench := newBench(b)
	bench.quiet = true
	var calls []schema.Call
	run := func(b *testing.B, wire, decode, read, assemble bool) {
		b.ReportAllocs()
		in := td
		if !wire && !read { // what was read before
			calls, _ = bench.reader.AppendSpans(calls[:0], in, bench.from, bench.now)
		}
		n := 0
		for b.Loop() {
			if wire {
				var ok bool
				if calls, _, _, ok = bench.reader.AppendWire(calls[:0], data, bench.from, bench.now); !ok {
					b.Fatal("the request is not regular")
				}
			}
			if decode {
				if in, err = (&ptrace.ProtoUnmarshaler{}).UnmarshalTraces(data); err != nil {
					b.Fatal(err)
				}
			}
			if read {
				calls, _ = bench.reader.AppendSpans(calls[:0], in, bench.from, bench.now)
			}
			if assemble {
				round++
				freshIDs(calls, round)
				if _, err := bench.asm.Add(calls, bench.now); err != nil {
					b.Fatal(err)
				}
				if round%200 == 0 {
					bench.payloads = nil
					bench.resume() // an empty assembler: memory is bounded in the service too
				}
			}
			n += 1000
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/span")
	}
	// What the service does with protobuf is wire and trace; JSON, logs and irregular
	// requests go through pdata.
	b.Run("wire", func(b *testing.B) { run(b, true, false, false, false) })
	b.Run("pdata", func(b *testing.B) { run(b, false, true, false, false) })
	b.Run("dialect", func(b *testing.B) { run(b, false, false, true, false) })
	b.Run("trace", func(b *testing.B) { run(b, false, false, false, true) })
	b.Run("wire+trace", func(b *testing.B) { run(b, true, false, false, true) })
	b.Run("pdata+dialect+trace", func(b *testing.B) { run(b, false, true, true, true) })
}

var round uint64

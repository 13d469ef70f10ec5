package otlp

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"testing"

	"go.opentelemetry.io/collector/featuregate"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

const benchSpans = 1000

// nothing is a Consumer that takes everything at once.
type nothing struct{}

func (nothing) Traces(context.Context, Sender, ptrace.Traces) (Result, error) { return Result{}, nil }
func (nothing) Logs(context.Context, Sender, plog.Logs) (Result, error)       { return Result{}, nil }
func (nothing) Metrics(context.Context, Sender, pmetric.Metrics) (Result, error) {
	return Result{}, nil
}

func perSpan(b *testing.B) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*benchSpans), "ns/span")
}

func BenchmarkDecode(b *testing.B) {
	td := testTraces(benchSpans, 15)
	odd := testTraces(benchSpans, 15)
	odd.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0).SetName("bad")
	bad := append(protoOf(b, odd), appendMessage(nil, 1, appendMessage(nil, 2, appendMessage(nil, 2, appendMessage(nil, 1, []byte("short")))))...)
	f := func(name string, enc format, body []byte) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(body)))
			for b.Loop() {
				if _, err := decode(traces, enc, body); err != nil {
					b.Fatal(err)
				}
			}
			perSpan(b)
		})
	}
	f("proto", protobuf, protoOf(b, td))
	f("proto-split", protobuf, bad)
	f("json", jsonText, jsonOf(b, td))
	b.Run("pdata-alone", func(b *testing.B) {
		body := protoOf(b, td)
		b.ReportAllocs()
		for b.Loop() {
			p := payload{sig: traces}
			if err := p.unmarshal(protobuf, body); err != nil {
				b.Fatal(err)
			}
		}
		perSpan(b)
	})
}

// BenchmarkPooling measures pdata's feature gate. Removing all resources is the only way to give messages back to its
// pools from outside pdata.
func BenchmarkPooling(b *testing.B) {
	body := protoOf(b, testTraces(benchSpans, 15))
	for name, on := range map[string]bool{"off": false, "on": true} {
		b.Run(name, func(b *testing.B) {
			if err := featuregate.GlobalRegistry().Set("pdata.useProtoPooling", on); err != nil {
				b.Fatal(err)
			}
			defer func() { _ = featuregate.GlobalRegistry().Set("pdata.useProtoPooling", false) }()
			b.ReportAllocs()
			for b.Loop() {
				p, err := decode(traces, protobuf, body)
				if err != nil {
					b.Fatal(err)
				}
				if on {
					p.traces.ResourceSpans().RemoveIf(func(ptrace.ResourceSpans) bool { return true })
				}
			}
			perSpan(b)
		})
	}
}

func BenchmarkServer(b *testing.B) {
	g := newRig(b, func(o *Options) { o.Consumer = nothing{} })
	body := protoOf(b, testTraces(benchSpans, 15))
	js := jsonOf(b, testTraces(benchSpans, 15))
	client := &http.Client{Transport: &http.Transport{DisableCompression: true}}
	defer client.CloseIdleConnections()
	post := func(name, contentType, coding string, body []byte) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				req, err := http.NewRequest(http.MethodPost, g.url+"/v1/traces", bytes.NewReader(body))
				if err != nil {
					b.Fatal(err)
				}
				req.Header.Set("Content-Type", contentType)
				if coding != "" {
					req.Header.Set("Content-Encoding", coding)
				}
				res, err := client.Do(req)
				if err != nil {
					b.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, res.Body)
				_ = res.Body.Close()
				if res.StatusCode != http.StatusOK {
					b.Fatal(res.Status)
				}
			}
			perSpan(b)
		})
	}
	post("http", typeProtobuf, "", body)
	post("http-gzip", typeProtobuf, "gzip", gz(b, body))
	post("http-zstd", typeProtobuf, "zstd", zs(b, body))
	post("http-json", typeJSON, "", js)
	conn := g.dial(b)
	b.Run("grpc", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := export(conn, body); err != nil {
				b.Fatal(err)
			}
		}
		perSpan(b)
	})
}

func BenchmarkCheckJSON(b *testing.B) {
	body := jsonOf(b, testTraces(benchSpans, 15))
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := checkJSON(body); err != nil {
			b.Fatal(err)
		}
	}
}

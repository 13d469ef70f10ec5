package otlp

import (
	"bytes"
	"errors"
	"fmt"

	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/plog/plogotlp"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
)

// signal is one of the three kinds of telemetry.
type signal int

const (
	traces signal = iota
	logs
	metricData
	signalCount
)

// String is the signal's name in paths, labels and errors.
func (s signal) String() string { return [...]string{"traces", "logs", "metrics"}[s] }

// names are the JSON names of the three levels of a request. On the protobuf wire all signals have the same numbers.
// library is the name of the second level before OTLP 0.15.
type names struct{ resource, resourceSnake, scope, scopeSnake, item, itemSnake, library, librarySnake string }

var signalNames = [signalCount]names{
	traces:     {"resourceSpans", "resource_spans", "scopeSpans", "scope_spans", "spans", "spans", "instrumentationLibrarySpans", "instrumentation_library_spans"},
	logs:       {"resourceLogs", "resource_logs", "scopeLogs", "scope_logs", "logRecords", "log_records", "instrumentationLibraryLogs", "instrumentation_library_logs"},
	metricData: {"resourceMetrics", "resource_metrics", "scopeMetrics", "scope_metrics", "metrics", "metrics", "instrumentationLibraryMetrics", "instrumentation_library_metrics"},
}

// format is how a request is written.
type format int

const (
	protobuf format = iota
	jsonText
)

// String is the format's name in errors.
func (e format) String() string { return [...]string{"protobuf", "JSON"}[e] }

// payload is one decoded request; the field of its signal is set.
type payload struct {
	sig     signal
	traces  ptrace.Traces
	logs    plog.Logs
	metrics pmetric.Metrics

	items    int64   // spans, log records or metrics in the request, rejected ones included
	rejects  rejects // items that are not in the pdata any more
	repaired int64   // strings that were not UTF-8
	split    bool    // the request was decoded item by item
	kept     []int64 // if split, the positions in the request, from 1, of the items that decode by themselves
}

// decode decodes a request. Items that are no good are removed and listed; the error means that the request as a whole
// cannot be read. It keeps nothing of body.
func decode(sig signal, enc format, body []byte) (p payload, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("decoder gave up: %v", v)
		}
	}()
	p.sig = sig
	fast := true
	if enc == jsonText {
		body = bytes.TrimPrefix(body, []byte("\xef\xbb\xbf"))
		facts, err := checkJSON(body)
		if err != nil {
			return p, err
		}
		fast = !facts.odd && facts.depth <= maxJSONDepth && !hasLibraries(body)
	}
	if fast {
		if err := p.unmarshal(enc, body); err == nil {
			p.sanitize()
			return p, nil
		}
	}
	split := splitProto
	if enc == jsonText {
		split = splitJSON
	}
	p.split = true
	good, err := split(&p, body)
	if err != nil {
		return p, err
	}
	if err := p.unmarshal(enc, good); err != nil {
		return p, err
	}
	p.sanitize()
	return p, nil
}

// unmarshal is pdata's decoder; it copies what it keeps. pdata's pools (feature gate pdata.useProtoPooling) are left off:
// they save a third of the allocations but neither bytes nor time (BenchmarkPooling), and the gate is process-wide.
func (p *payload) unmarshal(enc format, body []byte) error {
	switch p.sig {
	case traces:
		if enc == jsonText {
			td, err := (&ptrace.JSONUnmarshaler{}).UnmarshalTraces(body)
			p.traces = td
			return withoutContent(err)
		}
		req := ptraceotlp.NewExportRequest()
		err := req.UnmarshalProto(body)
		p.traces = req.Traces()
		return err
	case logs:
		if enc == jsonText {
			ld, err := (&plog.JSONUnmarshaler{}).UnmarshalLogs(body)
			p.logs = ld
			return withoutContent(err)
		}
		req := plogotlp.NewExportRequest()
		err := req.UnmarshalProto(body)
		p.logs = req.Logs()
		return err
	case metricData:
		if enc == jsonText {
			md, err := (&pmetric.JSONUnmarshaler{}).UnmarshalMetrics(body)
			p.metrics = md
			return withoutContent(err)
		}
		req := pmetricotlp.NewExportRequest()
		err := req.UnmarshalProto(body)
		p.metrics = req.Metrics()
		return err
	}
	panic("BUG: unknown signal")
}

// try reports whether a request decodes, without keeping it. It is used on requests of one item, and survives a panic
// of the decoder, so that the item is blamed and not the request.
func try(sig signal, enc format, one []byte) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("decoder gave up: %v", v)
		}
	}()
	p := payload{sig: sig}
	return p.unmarshal(enc, one)
}

var errNested = errors.New("nested too deeply")

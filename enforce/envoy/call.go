package envoy

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"

	"github.com/flyball/flyball/enforce/directive"
)

// field is a part of a call that a gateway can say.
type field uint8

const (
	fTenant field = iota
	fUser
	fFeature
	fWorkflow
	fAgent
	fModel
	fRun
	fTrace
	fSpan
	fProvider
	fTool
	fMode
	fCriticality
	numFields
)

var fieldNames = [numFields]string{"tenant", "user", "feature", "workflow", "agent", "model", "run_id", "trace_id", "span_id", "provider", "tool", "mode", "criticality"}

// of is where a call has the field.
func (f field) of(c *directive.Call) *string {
	switch f {
	case fTenant:
		return &c.Tenant
	case fUser:
		return &c.User
	case fFeature:
		return &c.Feature
	case fWorkflow:
		return &c.Workflow
	case fAgent:
		return &c.Agent
	case fModel:
		return &c.Model
	case fRun:
		return &c.RunID
	case fTrace:
		return &c.TraceID
	case fSpan:
		return &c.SpanID
	case fProvider:
		return &c.Provider
	case fTool:
		return &c.Tool
	case fMode:
		return &c.Mode
	case fCriticality:
		return &c.Criticality
	}
	return nil
}

// DefaultNames are the headers that fields are read from unless Options.Names says
// otherwise. x-ai-eg-model is set by Envoy AI Gateway from the body. Mode and
// provider have none: each has limits and prices of its own, so it is for the
// operator to say, not for clients.
func DefaultNames() map[string][]string {
	return map[string][]string{
		"tenant":      {"x-tenant-id"},
		"user":        {"x-user-id"},
		"feature":     {"x-feature"},
		"workflow":    {"x-workflow"},
		"agent":       {"x-agent"},
		"model":       {"x-ai-eg-model", "x-model"},
		"run_id":      {"x-run-id"},
		"criticality": {"x-criticality"},
	}
}

// names are where fields are looked for.
type names struct {
	headers [numFields][]string // lower case, the preferred first
	keys    map[string]field    // of descriptors and context extensions
}

func newNames(own map[string][]string) (names, error) {
	all := DefaultNames()
	maps.Copy(all, own)
	n := names{keys: map[string]field{"run": fRun}}
	for f, name := range fieldNames {
		n.keys[name] = field(f)
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		f := slices.Index(fieldNames[:], name)
		if f < 0 {
			return names{}, fmt.Errorf("names: unknown field %q: want one of %s", name, strings.Join(fieldNames[:], ", "))
		}
		for _, h := range all[name] {
			h = strings.ToLower(h)
			if other, taken := n.keys[h]; taken && other != field(f) {
				return names{}, fmt.Errorf("names: %q stands for %s and %s", h, fieldNames[other], name)
			}
			n.keys[h] = field(f)
			n.headers[f] = append(n.headers[f], h)
		}
	}
	return n, nil
}

// fromHTTP reads a call out of what a gateway sends before a request. The body's
// model wins over a header's, since it is what the provider will be asked for, and
// what the operator configured (context extensions) wins over all that a client sends.
func (n *names) fromHTTP(a *authv3.AttributeContext, c *directive.Call) {
	http := a.GetRequest().GetHttp()
	headers, raw := http.GetHeaders(), http.GetHeaderMap().GetHeaders()
	get := func(name string) string {
		if v := headers[name]; v != "" || len(raw) == 0 {
			return v
		}
		return rawHeader(raw, name)
	}
	for f, list := range n.headers {
		for _, name := range list {
			if v := get(name); v != "" {
				*field(f).of(c) = valid(v)
				break
			}
		}
	}
	traceparent := get("traceparent")
	if trace, span, ok := parseTraceparent(traceparent); ok {
		c.TraceID, c.SpanID = trace, span
	}
	if b := http.GetRawBody(); len(b) > 0 {
		scanBody(b, c)
	} else {
		scanBody(http.GetBody(), c)
	}
	for k, v := range a.GetContextExtensions() {
		if f, ok := n.keys[k]; ok && v != "" {
			*f.of(c) = valid(v)
		}
	}
}

// rawHeader is a header where encode_raw_headers is on. Values of one name are
// joined as HTTP joins them, so that a second header is no way to be taken for
// someone else.
func rawHeader(raw []*corev3.HeaderValue, name string) (v string) {
	for _, h := range raw {
		if !strings.EqualFold(h.GetKey(), name) {
			continue
		}
		one := h.GetValue()
		if b := h.GetRawValue(); len(b) > 0 {
			one = string(b)
		}
		if v != "" {
			one = v + "," + one
		}
		v = one
	}
	return v
}

// parseTraceparent reads W3C Trace Context's header: version-trace-parent-flags.
// Later versions may add fields behind them.
func parseTraceparent(h string) (trace, span string, ok bool) {
	const size = 55
	if len(h) < size || h[2] != '-' || h[35] != '-' || h[52] != '-' || h[:2] == "ff" || h[:2] == "00" && len(h) != size || len(h) > size && h[size] != '-' {
		return "", "", false
	}
	trace, span = h[3:35], h[36:52]
	if !lowerHex(h[:2]) || !lowerHex(trace) || !lowerHex(span) || !lowerHex(h[53:55]) || zeros(trace) || zeros(span) {
		return "", "", false
	}
	return trace, span, true
}

func lowerHex(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

func zeros(s string) bool { return strings.Trim(s, "0") == "" }

// valid is a string that protobuf takes: bytes that are no UTF-8 become "!", as
// Envoy writes them where it does not send headers raw.
func valid(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return strings.ToValidUTF8(s, "!")
}

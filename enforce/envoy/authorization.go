package envoy

import (
	"context"
	"net/http"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/flyball/flyball/enforce/directive"
)

// The headers by which a downgrade is told to routes. They are taken off every
// other admitted request, so that a client cannot choose a tier.
const (
	TierHeader  = "x-flyball-tier"
	ModelHeader = "x-flyball-model"
)

// What the answers share. Messages that are sent are only read.
var (
	statusOK     = &rpcstatus.Status{}
	statusDenied = &rpcstatus.Status{Code: int32(codes.PermissionDenied)}
	ownHeaders   = []string{TierHeader, ModelHeader}
	errFailed    = status.Error(codes.Unavailable, "the decision could not be made; see the server's log")
)

// authorization is the service ext_authz.
type authorization struct{ s *Server }

// Check answers whether a request may pass. It is the carrier of everything that a
// call may meet: kill, terminate, budgets, throttles, downgrades.
func (a authorization) Check(ctx context.Context, r *authv3.CheckRequest) (*authv3.CheckResponse, error) {
	start := time.Now()
	out, what, err := a.s.check(ctx, r, start)
	a.s.metrics.answered(serviceAuth, what, start)
	return out, err
}

func (s *Server) check(ctx context.Context, r *authv3.CheckRequest, now time.Time) (*authv3.CheckResponse, answer, error) {
	attributes := r.GetAttributes()
	key, err := s.who(ctx, attributes.GetContextExtensions()["authorization"])
	if err != nil {
		s.unknown.write(s.o.Logger, "refuse gateway", err)
		return nil, answerUnauthenticated, err
	}
	var c directive.Call
	s.names.fromHTTP(attributes, &c)
	if n := own(&c, &key); n != nil {
		return denied(n, nil), answerRefused, nil
	}
	d, b, err := s.o.Decide(&c)
	if err != nil {
		// Not error_response: gateways older than Envoy 1.37, and agentgateway, do not
		// know it and take the answer for a denial.
		s.failed.write(s.o.Logger, "decide for gateway", err)
		return nil, answerError, errFailed
	}
	var wait time.Duration
	if d.Verdict == directive.Wait {
		id := d.Guard + "\x00" + c.Tenant
		if d.Directive != nil {
			id = d.Directive.ID
		}
		if wait = s.pace.take(id, d.Wait, now); wait == 0 {
			d.Verdict = directive.Allow
		}
	}
	meta := metadataOf(&d, b)
	switch d.Verdict {
	case directive.Allow:
		return &authv3.CheckResponse{
			Status:          statusOK,
			HttpResponse:    &authv3.CheckResponse_OkResponse{OkResponse: &authv3.OkHttpResponse{HeadersToRemove: ownHeaders}},
			DynamicMetadata: meta,
		}, answerAllow, nil
	case directive.Downgraded:
		tier := "downgraded"
		if d.Directive != nil && d.Directive.Tier != "" {
			tier = headerText(d.Directive.Tier)
		}
		ok := &authv3.OkHttpResponse{Headers: []*corev3.HeaderValueOption{overwrite(TierHeader, tier)}}
		if d.Model != "" {
			ok.Headers = append(ok.Headers, overwrite(ModelHeader, headerText(d.Model)))
		} else {
			ok.HeadersToRemove = ownHeaders[1:] // the model's
		}
		return &authv3.CheckResponse{Status: statusOK, HttpResponse: &authv3.CheckResponse_OkResponse{OkResponse: ok}, DynamicMetadata: meta}, answerDowngrade, nil
	}
	n := denialOf(&d, b, wait)
	what := answerDeny
	switch n.kind {
	case kindKill:
		what = answerKill
	case kindThrottled:
		what = answerWait
	}
	return denied(&n, meta), what, nil
}

func denied(n *denial, meta *structpb.Struct) *authv3.CheckResponse {
	out := &authv3.DeniedHttpResponse{
		Status:  &typev3.HttpStatus{Code: typev3.StatusCode(n.code)},
		Headers: make([]*corev3.HeaderValueOption, 0, 5),
		Body:    string(n.body(n.code)),
	}
	n.headers(func(name, value string) { out.Headers = append(out.Headers, overwrite(name, value)) })
	st := statusDenied
	if n.code == http.StatusTooManyRequests {
		st = &rpcstatus.Status{Code: int32(codes.ResourceExhausted)}
	}
	return &authv3.CheckResponse{Status: st, HttpResponse: &authv3.CheckResponse_DeniedResponse{DeniedResponse: out}, DynamicMetadata: meta}
}

func overwrite(name, value string) *corev3.HeaderValueOption {
	return &corev3.HeaderValueOption{Header: &corev3.HeaderValue{Key: name, Value: value}, AppendAction: corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD}
}

// metadataOf is what the gateway's log and its later filters may use. limit has the
// form that Envoy reads as an override of a rate limit, in cents, for windows that
// are one of its units.
func metadataOf(d *directive.Decision, b *Budget) *structpb.Struct {
	// One allocation for all values instead of two for each.
	block := new(struct {
		all, limit structpb.Struct
		values     [9]structpb.Value
		texts      [6]structpb.Value_StringValue
		numbers    [2]structpb.Value_NumberValue
		inner      structpb.Value_StructValue
		v, t, n    int
	})
	m := &block.all
	m.Fields = make(map[string]*structpb.Value, 8)
	value := func() *structpb.Value {
		block.v++
		return &block.values[block.v-1]
	}
	text := func(to *structpb.Struct, name, s string) {
		if s == "" {
			return
		}
		t := &block.texts[block.t]
		block.t++
		t.StringValue = valid(s)
		v := value()
		v.Kind = t
		to.Fields[name] = v
	}
	number := func(to *structpb.Struct, name string, f float64) {
		n := &block.numbers[block.n]
		block.n++
		n.NumberValue = f
		v := value()
		v.Kind = n
		to.Fields[name] = v
	}
	text(m, "decision", d.Verdict.String())
	text(m, "guard", d.Guard)
	text(m, "outcome", d.Outcome)
	text(m, "criticality", d.Criticality)
	text(m, "revision", d.Version.String())
	if b == nil {
		return m
	}
	number(m, "left_cents", float64(b.LeftCents))
	if unit, times := unitOf(b.Window); times == 1 && unit != typev3.RateLimitUnit_UNKNOWN {
		limit := &block.limit
		limit.Fields = make(map[string]*structpb.Value, 2)
		number(limit, "requests_per_unit", float64(clamp32(b.LimitCents)))
		text(limit, "unit", unit.String())
		block.inner.StructValue = limit
		v := value()
		v.Kind = &block.inner
		m.Fields["limit"] = v
	}
	return m
}

// Package envoy lets gateways of the Envoy family ask about calls over gRPC: the
// external authorization service (ext_authz v3) and the rate limit service (RLS
// v3), which Envoy, Envoy Gateway, Istio and agentgateway all speak.
//
// It guarantees that an answer comes from memory, that a gateway's key acts for
// its own tenants only, that nothing of a request's body but the model's name and
// the token ceiling is read, kept or logged, and that a failure of its own is never
// told as a denial: it is the gRPC code Unavailable, so that the gateway's failure
// mode decides. It refuses callers without a key, keys that are not a limiter's or
// an admin's, tenants of others and values nobody could mean.
//
// It sits at the edge of enforcement, beside the HTTP API: it asks Options.Decide
// before a call and reports to Options.Charge after it. It keeps no budget itself.
package envoy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"time"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/flyball/flyball/enforce/directive"
	"github.com/flyball/flyball/schema"
)

// Usage is what a gateway reports of a call that was admitted.
type Usage struct {
	// Tokens are by schema.TokenNames, disjoint; nil is not known. A gateway that
	// knows only the total has it under "input".
	Tokens map[string]uint64
	// CostPicoUSD is the cost that the gateway worked out, in 1e-12 USD; 0 is none.
	CostPicoUSD int64
	// Hits is the largest addend of the report, as it was sent.
	Hits       uint64
	ResponseID string
}

// Budget is the tightest cost budget that may refuse a call. A guard in shadow
// mode, one that the call is exempt from and one that only warns or downgrades at
// its limit are not budgets in this sense.
type Budget struct {
	LimitCents uint64
	LeftCents  uint64        // rounded up: 0 is nothing left, and the rate limit service refuses
	ResetIn    time.Duration // until the window ends; 0 where it does not
	Window     time.Duration // length of the window; 0 where it has none (the life of a run)
	Name       string        // the guard's
}

// Options of a Server. Decide, Charge and Keys are required.
type Options struct {
	// Decide answers for a call and reserves nothing. Budget may be nil. A verdict of
	// Wait carries the interval between two calls, as directive.Set gives it; the
	// server keeps it. The call must not be kept.
	Decide func(c *directive.Call) (directive.Decision, *Budget, error)
	// Charge books a hold for a call that was made, in the name of a key. It is not
	// idempotent, since gateways name no charge.
	Charge func(c directive.Call, u Usage, key string) error
	// Keys are those in force. Without any, loopback peers are served as schema.LocalKey.
	Keys func() *schema.Keyring
	TLS  *tls.Config // nil is plain text
	// Names are the request headers that a field of a call is read from, in order of
	// preference, which also stand for it as keys of descriptors and context
	// extensions, as the field's own name does. Fields that are missing have DefaultNames.
	Names map[string][]string
	// Unit is the measure that an addend counts where a descriptor names none: a
	// value of the descriptor key "measure". "" is "tokens".
	Unit       string
	Logger     *slog.Logger          // nil is none
	Registerer prometheus.Registerer // nil is none
}

// Server answers gateways.
type Server struct {
	o       Options
	names   names
	unit    measure
	pace    pacer
	metrics *metrics
	grpc    *grpc.Server
	failed  logLine // of this server
	unknown logLine // of callers without a key
}

// maxMessage is the largest request in bytes. A gateway that sends bodies along
// should cut them well below; the fields that count stand at their start or end.
const maxMessage = 4 << 20

// New makes a server with both services and gRPC health.
func New(o Options) (*Server, error) {
	if o.Decide == nil || o.Charge == nil || o.Keys == nil {
		return nil, errors.New("make envoy server: Decide, Charge and Keys are required")
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Unit == "" {
		o.Unit = "tokens"
	}
	n, err := newNames(o.Names)
	if err != nil {
		return nil, fmt.Errorf("make envoy server: %w", err)
	}
	s := &Server{o: o, names: n, unit: measureOf(o.Unit)}
	if s.unit == measureNone {
		return nil, fmt.Errorf("make envoy server: unknown unit %q: want tokens, input_tokens, output_tokens, cost_microusd, …", o.Unit)
	}
	s.metrics = newMetrics(o.Registerer)
	opts := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(maxMessage),
		grpc.MaxConcurrentStreams(4096),
		grpc.ConnectionTimeout(10 * time.Second),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: time.Minute, Timeout: 10 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
	}
	if o.TLS != nil {
		opts = append(opts, grpc.Creds(credentials.NewTLS(o.TLS)))
	}
	s.grpc = grpc.NewServer(opts...)
	authv3.RegisterAuthorizationServer(s.grpc, authorization{s})
	rlsv3.RegisterRateLimitServiceServer(s.grpc, rateLimits{s})
	h := health.NewServer()
	for _, name := range []string{authv3.Authorization_ServiceDesc.ServiceName, rlsv3.RateLimitService_ServiceDesc.ServiceName} {
		h.SetServingStatus(name, healthv1.HealthCheckResponse_SERVING)
	}
	healthv1.RegisterHealthServer(s.grpc, h)
	return s, nil
}

// GRPC is the server, always the same one. The caller serves and stops it.
func (s *Server) GRPC() *grpc.Server { return s.grpc }

// who finds out which key asks. The error is one of gRPC. A gateway that cannot set gRPC metadata may send
// the key as the context extension "authorization", which clients do not reach.
func (s *Server) who(ctx context.Context, extension string) (schema.Key, error) {
	ring := s.o.Keys()
	if ring.Len() == 0 {
		if p, ok := peer.FromContext(ctx); ok {
			if a, ok := p.Addr.(*net.TCPAddr); ok && a.IP.IsLoopback() {
				return schema.LocalKey, nil
			}
		}
		return schema.Key{}, status.Error(codes.Unauthenticated, "no keys are configured, so only this machine is served")
	}
	if v := metadata.ValueFromIncomingContext(ctx, "authorization"); len(v) > 0 {
		extension = v[0]
	}
	secret, ok := schema.BearerToken(extension)
	if !ok {
		return schema.Key{}, status.Error(codes.Unauthenticated, "send a key as the metadata authorization: Bearer …")
	}
	key, ok := ring.Lookup(secret, time.Now())
	if !ok {
		return schema.Key{}, status.Error(codes.Unauthenticated, "unknown or expired key")
	}
	if key.Role != schema.KeyLimiter && key.Role != schema.KeyAdmin {
		return schema.Key{}, status.Errorf(codes.PermissionDenied, "key %s has role %s; this needs role limiter or admin", key.Name, key.Role)
	}
	return key, nil
}

// logLine writes at most one line a second: what fails for one call fails for
// thousands. Strangers have one of their own, so that they cannot drown a failure.
type logLine struct {
	last atomic.Int64 // unix seconds
	more atomic.Int64 // that were left out since
}

func (l *logLine) write(to *slog.Logger, what string, err error) {
	now := time.Now().Unix()
	if last := l.last.Load(); last == now || !l.last.CompareAndSwap(last, now) {
		l.more.Add(1)
		return
	}
	to.Error(what, "err", err, "more", l.more.Swap(0))
}

// own settles whose call it is: it fills in the key's tenant where the call names
// none, and refuses what the key may not ask.
func own(c *directive.Call, key *schema.Key) *denial {
	c.Key = key.Name
	c.Bind(key.Bind)
	if c.Tenant == "" {
		c.Tenant = key.Tenant
		if c.Tenant == "" && key.AllowsAll() {
			c.Tenant = "default"
		}
	}
	for f := range numFields {
		if v := f.of(c); v != nil && len(*v) > maxValue {
			return &denial{kind: kindRequest, code: 400, reason: "The " + fieldNames[f] + " of the call is longer than 1,024 bytes."}
		}
	}
	if !key.Allows(c.Tenant) {
		if c.Tenant == "" {
			return &denial{kind: kindTenant, code: 403, reason: "The call names no tenant."}
		}
		return &denial{kind: kindTenant, code: 403, reason: "This gateway may not act for tenant " + valid(c.Tenant) + "."}
	}
	c.TraceID = strings.ToLower(c.TraceID)
	return nil
}

// maxValue bounds every value of a call, in bytes, as the HTTP API does.
const maxValue = 1024

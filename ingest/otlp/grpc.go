package otlp

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"net"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	_ "google.golang.org/grpc/encoding/gzip" // answers to compressed requests are compressed
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// ServerOptions are the options a gRPC server needs to serve OTLP within the limits.
func (r *Receiver) ServerOptions() []grpc.ServerOption {
	opts := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(int(min(r.opts.RequestBytes, math.MaxInt))),
		grpc.MaxConcurrentStreams(1000),
		grpc.ConnectionTimeout(20 * time.Second),
		// A sender that vanished without a word is noticed within 40 seconds.
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 30 * time.Second, Timeout: 10 * time.Second, MaxConnectionAgeGrace: time.Minute}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
		// gRPC would inflate before it asks for any budget; this leaves gzip to readBody.
		grpc.RPCDecompressor(lateGzip{}), //nolint:staticcheck // the registry that replaces it is process-wide
	}
	if r.opts.TLS != nil {
		opts = append(opts, grpc.Creds(credentials.NewTLS(r.opts.TLS)))
	}
	return opts
}

// NewGRPCServer makes a server for the three OTLP services. The caller serves and stops it.
func (r *Receiver) NewGRPCServer() *grpc.Server {
	s := grpc.NewServer(r.ServerOptions()...)
	r.RegisterGRPC(s)
	return s
}

// RegisterGRPC adds the OTLP services to a server, which should have been made with ServerOptions: without them gRPC
// refuses messages over 4 MiB and inflates outside the budget.
//
// The methods are registered as streams of one message, which is the same on the wire: so the handler decides who sends
// before gRPC reads and inflates the message, and sees its bytes.
func (r *Receiver) RegisterGRPC(s *grpc.Server) {
	for sig := range signalCount {
		name := [...]string{"trace.v1.TraceService", "logs.v1.LogsService", "metrics.v1.MetricsService"}[sig]
		s.RegisterService(&grpc.ServiceDesc{
			ServiceName: "opentelemetry.proto.collector." + name,
			HandlerType: (*any)(nil),
			Streams: []grpc.StreamDesc{{
				StreamName:    "Export",
				Handler:       func(_ any, stream grpc.ServerStream) error { return r.serveGRPC(stream, sig) },
				ServerStreams: true,
				ClientStreams: true,
			}},
		}, r)
	}
}

// serveGRPC answers one call.
func (r *Receiver) serveGRPC(stream grpc.ServerStream, sig signal) error {
	res, err := r.takeGRPC(stream, sig)
	if err == nil {
		err = stream.SendMsg(&frame{out: answerProto(res)})
	}
	r.metrics.requests.WithLabelValues("grpc", sig.String(), status.Code(err).String()).Inc()
	return err
}

func (r *Receiver) takeGRPC(stream grpc.ServerStream, sig signal) (Result, error) {
	ctx := stream.Context()
	md, _ := metadata.FromIncomingContext(ctx)
	var authorization string
	if v := md.Get("authorization"); len(v) > 0 {
		authorization = v[0]
	}
	var addr net.Addr
	if pr, ok := peer.FromContext(ctx); ok {
		addr = pr.Addr
	}
	from, f := r.authenticate(authorization, addr)
	if f != nil {
		return Result{}, f.status().Err()
	}

	var (
		p       payload
		done    Result
		taken   bool
		release = func() {}
	)
	defer func() { release() }()
	in := &frame{}
	in.take = func(message []byte) {
		if in.count > 1 {
			f = badRequest("more than one message in a unary call")
			return
		}
		var b []byte
		if b, release, f = r.messageBytes(ctx, message); f != nil {
			return
		}
		if done, f, taken = r.takeWire(ctx, from, sig, protobuf, b); !taken {
			p, f = r.decode(sig, protobuf, b)
		}
	}
	received := make(chan error, 1)
	go func() { received <- stream.RecvMsg(in) }() // ends with the stream, which ends when the handler returns
	timer := time.NewTimer(4 * r.opts.BodyTimeout)
	defer timer.Stop()
	var err error
	select {
	case err = <-received:
	case <-timer.C:
		if in.state.CompareAndSwap(frameWaiting, frameAbandoned) {
			return Result{}, overloaded(Overload{Reason: "message did not arrive in time"}).status().Err()
		}
		err = <-received
	}
	switch {
	case errors.Is(err, io.EOF):
		return Result{}, badRequest("call without a message").status().Err()
	case status.Code(err) == codes.ResourceExhausted:
		f = tooLarge(r.opts.RequestBytes) // gRPC's own check of the size on the wire
	case status.Code(err) == codes.Internal:
		f = badRequest(status.Convert(err).Message())
	case err != nil:
		return Result{}, err
	}
	var res Result
	switch {
	case taken:
		res = done
	case f == nil:
		res, f = r.consume(ctx, from, &p)
	}
	if f == nil {
		return res, nil
	}
	if f.grpc == codes.ResourceExhausted && f.retry == 0 {
		r.metrics.tooLarge.WithLabelValues(from.Key.Tenant).Inc()
	}
	return Result{}, f.status().Err()
}

// messageBytes is one message as gRPC hands it over, decompressed if it came with gzip. It counts against the budget
// until release is called.
func (r *Receiver) messageBytes(ctx context.Context, message []byte) (b []byte, release func(), f *fault) {
	// A protobuf message cannot begin like gzip does: 0x1f is a field of wire type 7, which does not exist.
	if len(message) >= 2 && message[0] == 0x1f && message[1] == 0x8b {
		body, f := r.readBody(ctx, bytes.NewReader(message), "gzip")
		if f != nil {
			return nil, func() {}, f
		}
		return body.bytes, body.release, nil
	}
	n := int64(len(message))
	if n > r.opts.RequestBytes {
		return nil, func() {}, tooLarge(r.opts.RequestBytes)
	}
	if err := r.budget.acquire(ctx, n, inflightWait); err != nil {
		return nil, func() {}, overloaded(err)
	}
	return message, func() { r.budget.release(n) }, nil
}

// lateGzip is a grpc.Decompressor that leaves the message as it is.
type lateGzip struct{}

func (lateGzip) Type() string                   { return "gzip" }
func (lateGzip) Do(r io.Reader) ([]byte, error) { return io.ReadAll(r) }

// States of an incoming frame: the first of arrival and time-out wins.
const (
	frameWaiting int32 = iota
	frameArrived
	frameAbandoned
)

// frame carries a message's bytes past gRPC's codec. pdata replaces the codec "proto" by one that calls these methods;
// a test that speaks to a real server fails should that ever change.
type frame struct {
	out   []byte
	take  func(message []byte) // called with the incoming message, which is valid during the call
	count int
	state atomic.Int32
}

// SizeProto is the size of the outgoing message in bytes.
func (f *frame) SizeProto() int { return len(f.out) }

// MarshalProto writes the outgoing message to the end of buf, as pdata's messages do.
func (f *frame) MarshalProto(buf []byte) int { return copy(buf[len(buf)-len(f.out):], f.out) }

// UnmarshalProto takes the incoming message.
func (f *frame) UnmarshalProto(message []byte) error {
	f.count++
	if !f.state.CompareAndSwap(frameWaiting, frameArrived) && f.count == 1 {
		return errors.New("read message: the call was given up")
	}
	f.take(message)
	return nil
}

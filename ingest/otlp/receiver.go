package otlp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/flyball/flyball/schema"
)

// Defaults of Options.
const (
	// DefaultRequestBytes is the limit of one request after decompression; OTLP 1.11 recommends 64 MiB.
	DefaultRequestBytes = 64 << 20
	// DefaultInflightBytes is the limit of all requests that are being worked on, after decompression.
	DefaultInflightBytes = 192 << 20
	// DefaultBodyTimeout is how long a sender may take for each further 256 KiB of a body.
	DefaultBodyTimeout = 15 * time.Second
)

// inflightWait is how long a request waits for its share of the in-flight bytes before it is told to come back.
const inflightWait = time.Second

// defaultRetry is the Retry-After of a refusal that names none.
const defaultRetry = time.Second

// Sender is who sent a request.
type Sender struct {
	// Key is the credential that the request carried; zero if Local.
	Key schema.Key
	// Local marks a sender on the loopback interface of a receiver without keys: trusted, for any tenant.
	Local bool
}

// Trusted reports whether identity and cost claims in the sender's spans are believed.
func (s Sender) Trusted() bool { return s.Local || s.Key.IsTrusted() }

// Result is what a Consumer did not take of a request that it otherwise accepted.
type Result struct {
	// Rejected is the number of spans, log records or metric data points that will never be stored.
	Rejected int64
	// Reasons says why, in words for the sender's log. With Rejected 0 it is a warning.
	Reasons string
}

// Consumer takes decoded data. Each method returns after the data is durable (fsynced) and may keep the strings it
// found, but not the pdata. An error means that nothing was taken and that the sender shall send it all again: an
// Overload says when; any other error is answered like an Overload of one second.
type Consumer interface {
	Traces(ctx context.Context, from Sender, td ptrace.Traces) (Result, error)
	Logs(ctx context.Context, from Sender, ld plog.Logs) (Result, error)
	Metrics(ctx context.Context, from Sender, md pmetric.Metrics) (Result, error)
}

// WireConsumer is a Consumer that can read an ExportTraceServiceRequest in protobuf without decoding all of it. The bytes
// may be reused when Spans returns. With taken false it has done nothing, and the request is decoded and handed to
// Traces: something in it needs a real decoder.
type WireConsumer interface {
	Spans(ctx context.Context, from Sender, request []byte) (spans int, res Result, taken bool, err error)
}

// Overload is the error of a Consumer that cannot take data now. Senders keep the data and retry.
type Overload struct {
	// RetryAfter is how long the sender should wait; zero means one second, and HTTP rounds up to whole seconds.
	RetryAfter time.Duration
	// Throttled blames the sender's own rate: 429, or RESOURCE_EXHAUSTED with RetryInfo.
	// Otherwise the fault is here: 503 with Retry-After, or UNAVAILABLE with RetryInfo.
	Throttled bool
	// Reason is for the sender's log.
	Reason string
}

// Error implements error.
func (o Overload) Error() string {
	if o.Reason == "" {
		return "overloaded"
	}
	return o.Reason
}

// Options configure a Receiver.
type Options struct {
	Consumer Consumer
	// Keys returns the current keyring; it is asked once a request, so that a reload takes effect at once.
	// If it is nil or returns an empty ring, senders on the loopback interface are trusted and all others refused.
	Keys func() *schema.Keyring
	// RequestBytes bounds one request after decompression, on both transports alike. Exactly this much is accepted.
	RequestBytes int64
	// InflightBytes bounds the sum over all requests that are being read, decoded or consumed, after decompression.
	// It must not be less than RequestBytes. Decoded data takes a small multiple of it.
	InflightBytes int64
	// BodyTimeout is how long a sender may take for each further 256 KiB of a body (HTTP; gRPC: 4 times this a message).
	BodyTimeout time.Duration
	// TLS, if not nil, is used by NewGRPCServer and NewHTTPServer.
	TLS        *tls.Config
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Receiver serves OTLP. It starts nothing by itself: mount HTTPHandler, or serve NewHTTPServer and NewGRPCServer.
type Receiver struct {
	opts    Options
	log     *slog.Logger
	metrics *metrics
	budget  *budget
	lastLog atomic.Int64 // Unix seconds of the last warning about rejected items
}

// NewReceiver checks the options and registers the metrics.
func NewReceiver(opts Options) (*Receiver, error) {
	if opts.Consumer == nil {
		return nil, errors.New("make OTLP receiver: no consumer")
	}
	if opts.RequestBytes == 0 {
		opts.RequestBytes = DefaultRequestBytes
	}
	if opts.InflightBytes == 0 {
		opts.InflightBytes = max(DefaultInflightBytes, opts.RequestBytes)
	}
	if opts.BodyTimeout == 0 {
		opts.BodyTimeout = DefaultBodyTimeout
	}
	if opts.RequestBytes < 1 || opts.RequestBytes > 1<<30 {
		return nil, fmt.Errorf("make OTLP receiver: limit of %d bytes a request is not within 1 and 1 GiB", opts.RequestBytes)
	}
	if opts.InflightBytes < opts.RequestBytes {
		return nil, fmt.Errorf("make OTLP receiver: %d bytes in flight are less than one request of %d bytes", opts.InflightBytes, opts.RequestBytes)
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.Registerer == nil {
		opts.Registerer = prometheus.NewRegistry()
	}
	r := &Receiver{opts: opts, log: opts.Logger}
	r.budget = newBudget(opts.InflightBytes)
	m, err := newMetrics(opts.Registerer, r.budget)
	if err != nil {
		return nil, fmt.Errorf("make OTLP receiver: %w", err)
	}
	r.metrics = m
	return r, nil
}

// authenticate decides who sends, from the Authorization header's value and the peer's address alone, so that nothing of
// the body has been read when it refuses.
func (r *Receiver) authenticate(authorization string, peer net.Addr) (Sender, *fault) {
	var ring *schema.Keyring
	if r.opts.Keys != nil {
		ring = r.opts.Keys()
	}
	if ring.Len() == 0 {
		if isLoopback(peer) {
			return Sender{Local: true}, nil
		}
		return Sender{}, unauthenticated("no keys are configured: only senders on the loopback interface are accepted")
	}
	secret, ok := schema.BearerToken(authorization)
	if !ok {
		return Sender{}, unauthenticated("no key: send the header Authorization: Bearer <key>")
	}
	key, ok := ring.Lookup(secret, time.Now())
	if !ok {
		return Sender{}, unauthenticated("unknown or expired key")
	}
	if !key.MaySend() {
		return Sender{}, forbidden("a key with role " + string(key.Role) + " may not send telemetry: use one with role ingest")
	}
	return Sender{Key: key}, nil
}

// isLoopback reports whether the address is on this machine's loopback interface or a Unix socket.
func isLoopback(addr net.Addr) bool {
	if addr == nil {
		return false
	}
	if addr.Network() == "unix" {
		return true
	}
	ap, err := netip.ParseAddrPort(addr.String())
	return err == nil && ap.Addr().Unmap().IsLoopback()
}

// take runs a request from its decompressed bytes to the consumer's answer. The bytes may be reused when it returns.
func (r *Receiver) take(ctx context.Context, from Sender, sig signal, enc format, body []byte) (Result, *fault) {
	if res, f, taken := r.takeWire(ctx, from, sig, enc, body); taken {
		return res, f
	}
	p, flt := r.decode(sig, enc, body)
	if flt != nil {
		return Result{}, flt
	}
	return r.consume(ctx, from, &p)
}

// takeWire offers a protobuf request to a consumer that reads it without decoding.
func (r *Receiver) takeWire(ctx context.Context, from Sender, sig signal, enc format, body []byte) (res Result, f *fault, taken bool) {
	c, ok := r.opts.Consumer.(WireConsumer)
	if !ok || sig != traces || enc != protobuf {
		return Result{}, nil, false
	}
	n, res, taken, err := c.Spans(ctx, from, body)
	switch {
	case !taken:
		return Result{}, nil, false
	case err != nil:
		return Result{}, overloaded(err), true
	}
	r.answered(from, &payload{sig: sig, items: int64(n)}, &res)
	return res, nil, true
}

// decode decodes a request and keeps the time.
func (r *Receiver) decode(sig signal, enc format, body []byte) (payload, *fault) {
	start := time.Now()
	p, err := decode(sig, enc, body)
	r.metrics.decodeSeconds[sig].Observe(time.Since(start).Seconds())
	if err != nil {
		return payload{}, undecodable(sig, enc, err)
	}
	return p, nil
}

// consume hands decoded data to the consumer and merges the rejections of both. Metrics count a request once it was
// taken, since one that was not will be sent again.
func (r *Receiver) consume(ctx context.Context, from Sender, p *payload) (Result, *fault) {
	var res Result
	if p.items > p.rejects.total() {
		var err error
		switch p.sig {
		case traces:
			res, err = r.opts.Consumer.Traces(ctx, from, p.traces)
		case logs:
			res, err = r.opts.Consumer.Logs(ctx, from, p.logs)
		case metricData:
			res, err = r.opts.Consumer.Metrics(ctx, from, p.metrics)
		}
		if err != nil {
			return Result{}, overloaded(err)
		}
	}
	r.answered(from, p, &res)
	return res, nil
}

// answered counts a request that was taken and completes its answer.
func (r *Receiver) answered(from Sender, p *payload, res *Result) {
	r.metrics.count(p, *res)
	if own := p.rejects.total(); own > 0 {
		res.Rejected += own
		reasons := p.rejects.text(p.sig)
		if res.Reasons != "" {
			reasons += "; " + res.Reasons
		}
		res.Reasons = reasons
	}
	res.Reasons = strings.ToValidUTF8(res.Reasons, "\uFFFD")
	if res.Rejected > 0 {
		r.warn(from, p.sig, *res)
	}
}

// warn logs rejected items, at most every ten seconds: a broken sender repeats itself.
func (r *Receiver) warn(from Sender, sig signal, res Result) {
	now := time.Now().Unix()
	last := r.lastLog.Load()
	if now-last < 10 || !r.lastLog.CompareAndSwap(last, now) {
		return
	}
	r.log.Warn("rejected OTLP data", "signal", sig.String(), "key", from.Key.Name, "rejected", res.Rejected, "reasons", res.Reasons)
}

package otlp

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

// fault is a refusal of a whole request, in the words of both transports. OTLP clients retry HTTP 429, 502, 503 and
// 504, and gRPC UNAVAILABLE or RESOURCE_EXHAUSTED with RetryInfo; retry is set exactly on those.
// https://opentelemetry.io/docs/specs/otlp/#failures
type fault struct {
	http  int
	grpc  codes.Code
	msg   string
	retry time.Duration
	close bool // the HTTP connection is of no further use
}

// Error implements error.
func (f *fault) Error() string { return f.msg }

// status is the google.rpc.Status of the fault.
func (f *fault) status() *status.Status {
	st := status.New(f.grpc, strings.ToValidUTF8(f.msg, "\uFFFD"))
	if f.retry <= 0 {
		return st
	}
	with, err := st.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(f.retry)})
	if err != nil {
		panic("BUG: attach RetryInfo: " + err.Error())
	}
	return with
}

// retrySeconds is the Retry-After header's value: whole seconds, rounded up, never zero.
func (f *fault) retrySeconds() int64 { return int64((f.retry + time.Second - 1) / time.Second) }

func unauthenticated(msg string) *fault {
	return &fault{http: http.StatusUnauthorized, grpc: codes.Unauthenticated, msg: msg}
}

func forbidden(msg string) *fault {
	return &fault{http: http.StatusForbidden, grpc: codes.PermissionDenied, msg: msg}
}

func badRequest(msg string) *fault {
	return &fault{http: http.StatusBadRequest, grpc: codes.InvalidArgument, msg: msg}
}

func undecodable(sig signal, enc format, err error) *fault {
	return badRequest("decode " + sig.String() + " from " + enc.String() + ": " + err.Error())
}

func unsupported(msg string) *fault {
	return &fault{http: http.StatusUnsupportedMediaType, grpc: codes.InvalidArgument, msg: msg}
}

// tooLarge is permanent: the same request will never fit, so gRPC gets no RetryInfo.
func tooLarge(limit int64) *fault {
	return &fault{http: http.StatusRequestEntityTooLarge, grpc: codes.ResourceExhausted, close: true,
		msg: "request is larger than " + byteCount(limit) + " after decompression: lower the batch size of the exporter"}
}

// overloaded turns a consumer's error, or a cancelled wait, into an answer that makes the sender retry.
func overloaded(err error) *fault {
	f := &fault{http: http.StatusServiceUnavailable, grpc: codes.Unavailable, msg: err.Error(), retry: defaultRetry}
	var o Overload
	var p *Overload
	switch {
	case errors.As(err, &o):
	case errors.As(err, &p):
		o = *p
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		f.msg = "request was given up before it was stored: " + err.Error()
		return f
	}
	if o.RetryAfter > 0 {
		f.retry = o.RetryAfter
	}
	if o.Throttled {
		f.http, f.grpc = http.StatusTooManyRequests, codes.ResourceExhausted
	}
	return f
}

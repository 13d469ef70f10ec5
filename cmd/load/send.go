package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
)

const (
	exportMethod = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
	sendTimeout  = 60 * time.Second // one attempt
	maxAttempts  = 12
	firstDelay   = 100 * time.Millisecond // doubled each time, where the answer names none
	lastDelay    = 5 * time.Second
)

// sender sends one encoded request and returns how many spans the receiver
// rejected of it. It does not keep the bytes after a nil error.
type sender interface {
	send(ctx context.Context, body []byte) (rejected int64, err error)
	close()
}

// retryError is an answer that asks to send the request again; delay is 0 where
// it did not say when.
type retryError struct {
	delay time.Duration
	err   error
}

func (e *retryError) Error() string { return e.err.Error() }
func (e *retryError) Unwrap() error { return e.err }

// rawCodec hands bytes to gRPC as they are. Its name makes the content type the
// one that receivers expect.
type rawCodec struct{}

var _ encoding.CodecV2 = rawCodec{}

func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}

func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

// grpcSender has a connection of its own.
type grpcSender struct {
	conn *grpc.ClientConn
	key  string
}

func newGRPCSender(endpoint, key string) (*grpcSender, error) {
	conn, err := grpc.NewClient("passthrough:///"+endpoint,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(rawCodec{})),
		grpc.WithDisableRetry(), // retries are counted here
		grpc.WithWriteBufferSize(256<<10),
		grpc.WithNoProxy(),
	)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", endpoint, err)
	}
	return &grpcSender{conn: conn, key: key}, nil
}

func (s *grpcSender) close() { _ = s.conn.Close() }

func (s *grpcSender) send(ctx context.Context, body []byte) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel()
	if s.key != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+s.key)
	}
	var answer []byte
	if err := s.conn.Invoke(ctx, exportMethod, &body, &answer); err != nil {
		return 0, classify(err)
	}
	return parseAnswer(answer)
}

// classify tells what OTLP allows to send again: some codes always,
// RESOURCE_EXHAUSTED only with RetryInfo.
func classify(err error) error {
	st := status.Convert(err)
	var delay time.Duration
	named := false
	for _, d := range st.Details() {
		if info, ok := d.(*errdetails.RetryInfo); ok {
			delay, named = info.GetRetryDelay().AsDuration(), true
		}
	}
	switch st.Code() {
	case codes.Canceled, codes.DeadlineExceeded, codes.Aborted, codes.OutOfRange, codes.Unavailable, codes.DataLoss:
		return &retryError{delay, err}
	case codes.ResourceExhausted:
		if named {
			return &retryError{delay, err}
		}
	}
	return err
}

// parseAnswer reads partial_success.rejected_spans of an ExportTraceServiceResponse.
func parseAnswer(b []byte) (rejected int64, err error) {
	partial, err := findField(b, 1)
	if err != nil || partial == nil {
		return 0, err
	}
	for b := partial; len(b) > 0; {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return 0, fmt.Errorf("read answer: %w", protowire.ParseError(n))
		}
		b = b[n:]
		if num == 1 && typ == protowire.VarintType {
			v, n := protowire.ConsumeVarint(b)
			if n < 0 {
				return 0, fmt.Errorf("read answer: %w", protowire.ParseError(n))
			}
			return int64(v), nil
		}
		if n = protowire.ConsumeFieldValue(num, typ, b); n < 0 {
			return 0, fmt.Errorf("read answer: %w", protowire.ParseError(n))
		}
		b = b[n:]
	}
	return 0, nil
}

// findField returns the first length-delimited field of that number, nil if there is none.
func findField(b []byte, want protowire.Number) ([]byte, error) {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return nil, fmt.Errorf("read answer: %w", protowire.ParseError(n))
		}
		b = b[n:]
		if num == want && typ == protowire.BytesType {
			v, n := protowire.ConsumeBytes(b)
			if n < 0 {
				return nil, fmt.Errorf("read answer: %w", protowire.ParseError(n))
			}
			return v, nil
		}
		if n = protowire.ConsumeFieldValue(num, typ, b); n < 0 {
			return nil, fmt.Errorf("read answer: %w", protowire.ParseError(n))
		}
		b = b[n:]
	}
	return nil, nil
}

// httpSender posts protobuf; its connections are kept alive.
type httpSender struct {
	client *http.Client
	url    string
	key    string
}

func newHTTPSender(target, key string) (*httpSender, error) {
	u, err := url.Parse(target)
	if err != nil || u.Host == "" {
		return nil, fmt.Errorf("parse --http %q: want a URL such as http://127.0.0.1:4318", target)
	}
	if strings.Trim(u.Path, "/") == "" {
		u.Path = "/v1/traces"
	}
	t := &http.Transport{MaxIdleConnsPerHost: 1, WriteBufferSize: 256 << 10, DisableCompression: true}
	return &httpSender{client: &http.Client{Transport: t, Timeout: sendTimeout}, url: u.String(), key: key}, nil
}

func (s *httpSender) close() { s.client.CloseIdleConnections() }

func (s *httpSender) send(ctx context.Context, body []byte) (int64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, bytes.NewReader(body))
	if err != nil {
		return 0, fmt.Errorf("send request: %w", err)
	}
	req.Header.Set("Content-Type", "application/x-protobuf")
	if s.key != "" {
		req.Header.Set("Authorization", "Bearer "+s.key)
	}
	res, err := s.client.Do(req)
	if err != nil {
		return 0, &retryError{err: err}
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	if err != nil {
		return 0, &retryError{err: fmt.Errorf("read answer: %w", err)}
	}
	switch res.StatusCode {
	case http.StatusOK:
		return parseAnswer(answer)
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return 0, &retryError{retryAfter(res.Header.Get("Retry-After")), fmt.Errorf("send request: status %s", res.Status)}
	}
	return 0, fmt.Errorf("send request: status %s: %.200q", res.Status, answer)
}

// retryAfter reads the header in either of its forms, 0 if it says nothing.
func retryAfter(v string) time.Duration {
	if n, err := strconv.Atoi(v); err == nil && n > 0 {
		return time.Duration(n) * time.Second
	}
	if t, err := http.ParseTime(v); err == nil {
		return max(0, time.Until(t))
	}
	return 0
}

// sendWithRetries sends until an answer is final, at most maxAttempts times.
func sendWithRetries(ctx context.Context, s sender, body []byte) (rejected int64, retries int, err error) {
	for delay := firstDelay; ; delay = min(2*delay, lastDelay) {
		rejected, err = s.send(ctx, body)
		var again *retryError
		if err == nil || !errors.As(err, &again) || retries == maxAttempts-1 || ctx.Err() != nil {
			return rejected, retries, err
		}
		wait := delay
		if again.delay > 0 {
			wait = min(again.delay, sendTimeout)
		}
		select {
		case <-time.After(wait):
			retries++
		case <-ctx.Done():
			return 0, retries, err
		}
	}
}

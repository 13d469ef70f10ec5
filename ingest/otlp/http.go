package otlp

import (
	"errors"
	"io"
	"log/slog"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

const (
	typeProtobuf = "application/x-protobuf"
	typeJSON     = "application/json"
)

// NewHTTPServer makes a server with the timeouts that an open port needs. The caller serves and shuts it down.
func (r *Receiver) NewHTTPServer() *http.Server {
	return &http.Server{
		Handler:           r.HTTPHandler(),
		TLSConfig:         r.opts.TLS,
		ReadHeaderTimeout: r.opts.BodyTimeout,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(r.log.Handler(), slog.LevelDebug),
	}
}

// HTTPHandler serves POST /v1/traces, /v1/logs and /v1/metrics. The server around it should set ReadHeaderTimeout and
// IdleTimeout; bodies have deadlines of their own.
func (r *Receiver) HTTPHandler() http.Handler {
	gin.SetMode(gin.ReleaseMode)
	e := gin.New()
	e.HandleMethodNotAllowed = true
	e.RedirectTrailingSlash = false
	for sig := range signalCount {
		e.POST("/v1/"+sig.String(), func(c *gin.Context) { r.serveHTTP(c.Writer, c.Request, sig) })
	}
	e.NoMethod(func(c *gin.Context) {
		c.Header("Allow", http.MethodPost)
		r.refuseUnrouted(c, &fault{http: http.StatusMethodNotAllowed, grpc: 12, msg: "OTLP is sent with POST"})
	})
	e.NoRoute(func(c *gin.Context) {
		r.refuseUnrouted(c, &fault{http: http.StatusNotFound, grpc: 5, msg: "no such path: OTLP is served at /v1/traces, /v1/logs and /v1/metrics"})
	})
	return e
}

func (r *Receiver) refuseUnrouted(c *gin.Context, f *fault) {
	enc, _ := contentEncoding(c.Request)
	writeFault(c.Writer, enc, f)
	r.metrics.requests.WithLabelValues("http", "other", strconv.Itoa(f.http)).Inc()
}

// serveHTTP answers one request.
func (r *Receiver) serveHTTP(w http.ResponseWriter, req *http.Request, sig signal) {
	enc, known := contentEncoding(req)
	res, f := r.takeHTTP(w, req, sig, enc, known)
	code := http.StatusOK
	if f != nil {
		code = f.http
		writeFault(w, enc, f)
	} else if enc == jsonText {
		writeBody(w, code, typeJSON, answerJSON(sig, res))
	} else {
		writeBody(w, code, typeProtobuf, answerProto(res))
	}
	r.metrics.requests.WithLabelValues("http", sig.String(), strconv.Itoa(code)).Inc()
}

func (r *Receiver) takeHTTP(w http.ResponseWriter, req *http.Request, sig signal, enc format, known bool) (Result, *fault) {
	from, f := r.authenticate(req.Header.Get("Authorization"), tcpAddr(req.RemoteAddr))
	if f == nil && from.Local {
		f = checkLocal(req)
	}
	if f != nil {
		f.close = true
		return Result{}, f
	}
	if !known {
		f := unsupported("unknown Content-Type: use " + typeProtobuf + " or " + typeJSON)
		f.close = true
		return Result{}, f
	}
	codings := req.Header.Values("Content-Encoding")
	if len(codings) > 1 {
		f := unsupported("more than one Content-Encoding: use one of " + acceptEncoding)
		f.close = true
		return Result{}, f
	}
	coding := strings.Join(codings, "")
	if identity := coding == "" || strings.EqualFold(coding, "identity"); identity && req.ContentLength > r.opts.RequestBytes {
		r.metrics.tooLarge.WithLabelValues(from.Key.Tenant).Inc()
		return Result{}, tooLarge(r.opts.RequestBytes)
	}
	slow := &slowReader{src: req.Body, ctl: http.NewResponseController(w), timeout: r.opts.BodyTimeout}
	slow.extend()
	b, f := r.readBody(req.Context(), slow, coding)
	if f != nil {
		switch {
		case slow.expired:
			f = overloaded(Overload{Reason: "body did not arrive in time"})
			f.close = true
		case f.http == http.StatusRequestEntityTooLarge:
			r.metrics.tooLarge.WithLabelValues(from.Key.Tenant).Inc()
		case f.http == http.StatusBadRequest && slow.broken:
			f.close = true
		}
		return Result{}, f
	}
	defer b.release()
	slow.done()
	return r.take(req.Context(), from, sig, enc, b.bytes)
}

// slowReader keeps moving the connection's read deadline while the body makes progress.
type slowReader struct {
	src     io.Reader
	ctl     *http.ResponseController
	timeout time.Duration
	since   int  // bytes since the deadline was moved
	expired bool // the deadline passed
	broken  bool // the connection failed
}

const slowStep = 256 << 10

func (s *slowReader) extend() {
	s.since = 0
	_ = s.ctl.SetReadDeadline(time.Now().Add(s.timeout)) // unsupported by test recorders only
}

// done lifts the deadline, which would otherwise cancel the request's context while the consumer works.
func (s *slowReader) done() { _ = s.ctl.SetReadDeadline(time.Time{}) }

func (s *slowReader) Read(p []byte) (int, error) {
	n, err := s.src.Read(p)
	if s.since += n; s.since >= slowStep {
		s.extend()
	}
	if err != nil && err != io.EOF {
		s.broken = true
		s.expired = s.expired || errors.Is(err, os.ErrDeadlineExceeded)
	}
	return n, err
}

// contentEncoding reads the request's Content-Type. Errors about an unknown type are answered in JSON.
func contentEncoding(req *http.Request) (enc format, known bool) {
	mt, _, err := mime.ParseMediaType(req.Header.Get("Content-Type"))
	if err != nil {
		return jsonText, false
	}
	switch mt {
	case typeProtobuf, "application/protobuf":
		return protobuf, true
	case typeJSON:
		return jsonText, true
	}
	return jsonText, false
}

// checkLocal keeps web pages away from a receiver that trusts the loopback interface: a foreign page has an Origin, and
// a rebound name has a Host, that is not of this machine.
func checkLocal(req *http.Request) *fault {
	if !isLocalHost(req.Host) {
		return forbidden("without keys the Host must be localhost or a loopback address: configure keys to be reached by another name")
	}
	if origin := req.Header.Get("Origin"); origin != "" {
		if u, err := url.Parse(origin); err != nil || !isLocalHost(u.Host) {
			return forbidden("without keys no request from a web page of another origin is accepted")
		}
	}
	return nil
}

func isLocalHost(hostport string) bool {
	host := hostport
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		host = h
	}
	host = strings.Trim(host, "[]")
	if strings.EqualFold(host, "localhost") || strings.HasSuffix(strings.ToLower(host), ".localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

// tcpAddr is RemoteAddr as net.Addr; "@" and "" are what net/http says of Unix sockets.
type tcpAddr string

func (a tcpAddr) Network() string {
	if a == "" || a == "@" {
		return "unix"
	}
	return "tcp"
}

func (a tcpAddr) String() string { return string(a) }

// writeFault answers with google.rpc.Status in the request's encoding.
func writeFault(w http.ResponseWriter, enc format, f *fault) {
	h := w.Header()
	if f.retry > 0 {
		h.Set("Retry-After", strconv.FormatInt(f.retrySeconds(), 10))
	}
	if f.http == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", `Bearer realm="flyball"`)
	}
	if f.http == http.StatusUnsupportedMediaType {
		h.Set("Accept-Encoding", acceptEncoding)
	}
	if f.close {
		h.Set("Connection", "close")
	}
	st := f.status().Proto()
	mediaType, marshal := typeProtobuf, proto.Marshal
	if enc == jsonText {
		mediaType, marshal = typeJSON, protojson.Marshal
	}
	body, err := marshal(st)
	if err != nil {
		panic("BUG: encode a status: " + err.Error())
	}
	writeBody(w, f.http, mediaType, body)
}

func writeBody(w http.ResponseWriter, code int, mediaType string, body []byte) {
	h := w.Header()
	h.Set("Content-Type", mediaType)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_, _ = w.Write(body) // the sender is gone: it will send again
}

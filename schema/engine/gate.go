package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"time"
)

// gate is the read-only HTTP interface at Options.Listen.
type gate struct {
	addr net.Addr
	srv  *http.Server
	done chan struct{}
}

// checkListen refuses to open the store to a network without keys.
func checkListen(addr string, keys bool) error {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("listen.clickhouse %q: %w", addr, err)
	}
	if !keys && !loopback(host) {
		return fmt.Errorf("listen.clickhouse %q: without keys only a loopback address is allowed", addr)
	}
	return nil
}

func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

func (e *Engine) listen() (*gate, error) {
	l, err := net.Listen("tcp", e.o.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen for clickhouse: %w", err)
	}
	g := &gate{addr: l.Addr(), done: make(chan struct{})}
	read := e.ReadHandler()
	g.srv = &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if e.o.Authorize != nil {
				if err := e.o.Authorize(r); err != nil {
					w.Header().Set("WWW-Authenticate", `Basic realm="flyball"`)
					writeException(w, http.StatusUnauthorized, 516, "AUTHENTICATION_FAILED", err.Error())
					return
				}
			} else if err := fromHere(r); err != nil {
				writeException(w, http.StatusForbidden, 497, "ACCESS_DENIED", err.Error())
				return
			}
			read.ServeHTTP(w, r)
		}),
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       time.Minute,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    readSQL, // a GET carries its SQL there
	}
	go func() {
		defer close(g.done)
		if err := g.srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			e.o.Logger.Error("serve clickhouse interface", "error", err)
		}
	}()
	return g, nil
}

// fromHere refuses what a web page of another origin can make a browser on
// this machine send: a foreign Origin, or a name that was rebound to loopback.
func fromHere(r *http.Request) error {
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	if !loopback(strings.Trim(host, "[]")) {
		return fmt.Errorf("host %q is not loopback", r.Host)
	}
	if o := r.Header.Get("Origin"); o != "" {
		u, err := url.Parse(o)
		if err != nil || !loopback(u.Hostname()) {
			return fmt.Errorf("origin %q is not loopback", o)
		}
	}
	return nil
}

// close ends requests within a second.
func (g *gate) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	err := g.srv.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = g.srv.Close()
	}
	<-g.done
	if err != nil {
		return fmt.Errorf("close clickhouse interface: %w", err)
	}
	return nil
}

// ReadHandler is the read-only ClickHouse HTTP interface: GET or POST with
// ?query= or the SQL as body, any output format, /ping. It authenticates
// nobody. For a server it answers 501: ask the server itself.
func (e *Engine) ReadHandler() http.Handler {
	if !e.Embedded() {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			writeException(w, http.StatusNotImplemented, 48, "NOT_IMPLEMENTED",
				"the SQL interface serves the embedded engine only: query the server of clickhouse.dsn itself")
		})
	}
	transport := &http.Transport{
		DialContext:         e.super.dial,
		MaxIdleConnsPerHost: e.o.Threads + 1,
		IdleConnTimeout:     time.Minute,
		DisableCompression:  true, // encodings pass through
	}
	proxy := &httputil.ReverseProxy{
		Transport:     transport,
		FlushInterval: -1,
		Rewrite: func(p *httputil.ProxyRequest) {
			path := pathRead
			if p.In.URL.Path == "/ping" {
				path = "/ping"
			}
			p.Out.URL.Scheme, p.Out.URL.Host = "http", "engine"
			p.Out.URL.Path, p.Out.URL.RawPath = path, ""
			p.Out.Host = "engine"
			p.Out.Header.Del("Authorization")
			p.Out.Header.Del("X-ClickHouse-Key")
		},
		ModifyResponse: func(r *http.Response) error {
			e.metrics.reads.WithLabelValues(fmt.Sprint(r.StatusCode)).Inc()
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if r.Context().Err() != nil {
				return // the client has left
			}
			e.metrics.reads.WithLabelValues("503").Inc()
			w.Header().Set("Retry-After", "1")
			writeException(w, http.StatusServiceUnavailable, 210, "NETWORK_ERROR", "the engine is restarting: "+err.Error())
		},
	}
	return proxy
}

// writeException answers in the form ClickHouse clients understand.
func writeException(w http.ResponseWriter, status, code int, name, message string) {
	x := exception(code, name, "%s", message)
	w.Header().Set("Content-Type", "text/plain; charset=UTF-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("X-ClickHouse-Exception-Code", fmt.Sprint(code))
	w.WriteHeader(status)
	_, _ = io.WriteString(w, x.text+"\n")
}

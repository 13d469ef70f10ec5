// Command engine opens the embedded engine on an empty store and serves its
// private, writable interface on a loopback TCP port, so that deploy/bench can
// run another program at the same ClickHouse that Flyball uses.
//
// It refuses any address but loopback: whoever reaches the port can do
// everything with the store. It is for benchmarks only and is part of no
// release.
//
//	engine 127.0.0.1:8124 /tmp/store
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/flyball/flyball/schema/engine"
)

func main() {
	engine.Main()
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: engine ADDRESS DIR")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := serve(ctx, os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// serve opens the store in dir/store and forwards addr to it until ctx ends.
func serve(ctx context.Context, addr, dir string) error {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("parse address: %w", err)
	}
	if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
		return fmt.Errorf("address %s is not a loopback address", addr)
	}
	// The engine makes the directory of its socket in TMPDIR. A directory of
	// our own has no other.
	tmp := filepath.Join(dir, "run")
	if err := os.MkdirAll(tmp, 0o700); err != nil {
		return fmt.Errorf("make directory: %w", err)
	}
	if err := os.Setenv("TMPDIR", tmp); err != nil {
		return fmt.Errorf("set TMPDIR: %w", err)
	}
	e, err := engine.Open(ctx, engine.Options{Dir: filepath.Join(dir, "store"), Logger: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	if err != nil {
		return err
	}
	defer e.Close()
	sockets, err := filepath.Glob(filepath.Join(tmp, "*", "socket"))
	if err != nil || len(sockets) != 1 {
		return fmt.Errorf("find the engine's socket in %s: found %d: %w", tmp, len(sockets), err)
	}

	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host = "http", "engine"
			if r.Out.URL.Path == "" {
				r.Out.URL.Path = "/"
			}
		},
		Transport: &http.Transport{
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				var d net.Dialer
				return d.DialContext(ctx, "unix", sockets[0])
			},
			MaxIdleConnsPerHost: 16,
			DisableCompression:  true,
		},
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	srv := &http.Server{Handler: proxy, ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	select {
	case <-ctx.Done():
	case err := <-served:
		return fmt.Errorf("serve: %w", err)
	}
	end, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	err = srv.Shutdown(end)
	if serr := <-served; !errors.Is(serr, http.ErrServerClosed) {
		err = errors.Join(err, serr)
	}
	return err
}

package engine

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// A server that knows no database of the name gets one, and both sides of it are used:
// the real engine over TCP, as a server over HTTP is.
func TestServerWithoutDatabase(t *testing.T) {
	e := openEngine(t, Options{Dir: t.TempDir()})
	srv := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite:   func(p *httputil.ProxyRequest) { p.Out.URL.Scheme, p.Out.URL.Host = "http", "engine" },
		Transport: &http.Transport{DialContext: e.super.dial, DisableCompression: true},
	})
	defer srv.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	f := func(dsn, database string) {
		t.Helper()
		for range 2 { // the second finds what the first made
			s, err := Open(ctx, Options{DSN: dsn, Database: "from_options"})
			if err != nil {
				t.Fatal(err)
			}
			run(t, s.Conn(), "CREATE TABLE IF NOT EXISTS t (n UInt8) ENGINE = MergeTree ORDER BY n")
			if got := one[string](t, s.Reader(), "SELECT database FROM system.tables WHERE name = 't' AND database = currentDatabase()"); got != database {
				t.Errorf("%s: the table is in %q, want %q", dsn, got, database)
			}
			if err := s.Reader().Exec(ctx, "DROP TABLE t"); err == nil {
				t.Errorf("%s: the reader wrote", dsn)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	f(srv.URL+"/from_dsn", "from_dsn")
	f(srv.URL, "from_options")
	f(srv.URL+"/back`tick", "back`tick")
	if _, err := Open(ctx, Options{DSN: strings.Replace(srv.URL, "http", "clickhouse", 1) + "/x?dial_timeout=1s"}); err == nil {
		t.Error("a port that does not speak the native protocol was opened")
	}
}

// TestMergesYield: the threads that merge take what others leave, with or without the right to
// raise priorities.
func TestMergesYield(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("priorities of threads are read from /proc")
	}
	e := openEngine(t, Options{})
	run(t, e.Conn(), "CREATE TABLE t (n UInt8) ENGINE = MergeTree ORDER BY n")
	eventually(t, "merges yield", func() bool {
		names, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/comm", e.super.pid.Load()))
		if err != nil {
			t.Fatal(err)
		}
		yield := 0
		for _, name := range names {
			comm, _ := os.ReadFile(name)
			stat, _ := os.ReadFile(filepath.Join(filepath.Dir(name), "stat"))
			_, after, _ := strings.Cut(string(stat), ") ")
			if f := strings.Fields(after); string(comm) == "MergeMutate\n" && len(f) > 16 {
				if f[16] != fmt.Sprint(mergeNice) {
					return false
				}
				yield++
			}
		}
		return yield > 0
	})
}

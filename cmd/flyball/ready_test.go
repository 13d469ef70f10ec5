package main

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/spf13/cobra"
)

// What a container's health check and a unit's start rest on: the exit code, and one
// line that says what is wrong.
func TestReady(t *testing.T) {
	var status atomic.Int32
	var body atomic.Value
	var asked, later atomic.Int32
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/readyz" || r.Header.Get("Authorization") != "" {
			t.Errorf("asked %s with %q", r.URL, r.Header.Get("Authorization"))
		}
		if asked.Add(1) <= later.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprint(w, `{"status":"full","ingest":{"refusing":"the log has 10 GiB"}}`)
			return
		}
		w.WriteHeader(int(status.Load()))
		fmt.Fprint(w, body.Load())
	}))
	defer srv.Close()
	run := func(server string, args ...string) (string, error) {
		g := &global{server: server, key: "fb_secret"}
		root := &cobra.Command{Use: "flyball", SilenceErrors: true, SilenceUsage: true}
		root.PersistentFlags().BoolVar(&g.json, "json", false, "")
		root.AddCommand(readyCommand(g))
		var out strings.Builder
		root.SetOut(&out)
		root.SetArgs(append([]string{"ready"}, args...))
		err := root.Execute()
		return out.String(), err
	}
	good := func(want string, code int, answer string, args ...string) {
		t.Helper()
		status.Store(int32(code))
		body.Store(answer)
		asked.Store(0)
		if got, err := run(srv.URL, args...); err != nil || got != want {
			t.Errorf("%v on %d %s: got %q and %v, want %q", args, code, answer, got, err, want)
		}
	}
	bad := func(want string, code int, answer string, args ...string) {
		t.Helper()
		status.Store(int32(code))
		body.Store(answer)
		asked.Store(0)
		if got, err := run(srv.URL, args...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v on %d %s: got %q and %v, want an error with %q", args, code, answer, got, err, want)
		}
	}
	const up, away = `{"status":"ready","clickhouse":{"ready":true}}`, `{"status":"ready","clickhouse":{"ready":false,"waits_for":"dial tcp"}}`
	good("ready\n", 200, up)
	good("ready\n", 200, up, "--clickhouse")
	good(up+"\n", 200, up, "--json")
	good("ready\n", 200, away)
	bad("ClickHouse is not ready: dial tcp", 200, away, "--clickhouse")
	bad("full: disk", 503, `{"status":"full","ingest":{"refusing":"disk"}}`)
	bad("is another service there?", 200, "<html>")
	bad("is another service there?", 404, `{"detail":"no"}`)
	bad("--timeout", 200, up, "--timeout", "0s")
	bad("--wait", 200, up, "--wait", "-1s")

	later.Store(2)
	good("ready\n", 200, up, "--wait", "10s")
	bad("the log has 10 GiB", 200, up) // without --wait it asks once
	later.Store(1 << 20)
	bad("the log has 10 GiB", 200, up, "--wait", "500ms")

	if _, err := run("http://127.0.0.1:1"); err == nil || !strings.Contains(err.Error(), "flyball serve") {
		t.Errorf("nobody there: %v", err)
	}
	var usage usageError
	if _, err := run("http://[", "--wait", "1h"); !errors.As(err, &usage) {
		t.Errorf("no address: got %v, want a usage error at once", err)
	}
}

package engine

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"
)

// shared is one engine for all tests that do not break theirs; each takes a
// database of its own.
var shared struct {
	once sync.Once
	dir  string
	e    *Engine
	err  error
}

func TestMain(m *testing.M) {
	Main()
	if dir := os.Getenv(parentEnv); dir != "" {
		os.Exit(runParent(dir))
	}
	code := m.Run()
	if shared.e != nil {
		if err := shared.e.Close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.RemoveAll(shared.dir)
	os.Exit(code)
}

// testLog shows what engines print in a verbose run.
func testLog() *slog.Logger {
	if testing.Verbose() {
		return slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	return nil
}

func sharedEngine(t testing.TB) *Engine {
	t.Helper()
	shared.once.Do(func() {
		shared.dir, shared.err = os.MkdirTemp("", "flyball-engine-test-")
		if shared.err == nil {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			shared.e, shared.err = Open(ctx, Options{Dir: shared.dir, Listen: "127.0.0.1:0", Logger: testLog()})
		}
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.e
}

// openEngine opens an engine of the test's own.
func openEngine(t testing.TB, o Options) *Engine {
	t.Helper()
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	if o.Logger == nil {
		o.Logger = testLog()
	}
	e, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

func run(t testing.TB, c driver.Conn, sql string, args ...any) {
	t.Helper()
	if err := c.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func one[T any](t testing.TB, c driver.Conn, sql string, args ...any) T {
	t.Helper()
	var v T
	if err := c.QueryRow(t.Context(), sql, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

// database makes a database for one test and returns its name.
func database(t testing.TB, e *Engine) string {
	t.Helper()
	name := fmt.Sprintf("t_%d", time.Now().UnixNano())
	run(t, e.Conn(), "CREATE DATABASE "+name+" ENGINE=Atomic")
	t.Cleanup(func() {
		if err := e.Conn().Exec(context.Background(), "DROP DATABASE "+name+" SYNC"); err != nil {
			t.Error(err)
		}
	})
	return name
}

func TestOpen(t *testing.T) {
	e := sharedEngine(t)
	if err := e.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	if e.Version() == "" || !e.Embedded() || e.Restarts() != 0 {
		t.Fatalf("version %q, embedded %v, restarts %d", e.Version(), e.Embedded(), e.Restarts())
	}
	if got := one[uint64](t, e.Reader(), "SELECT sum(number) FROM numbers(1000000)"); got != 499999500000 {
		t.Fatal(got)
	}
}

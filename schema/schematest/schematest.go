// Package schematest gives a test a fresh migrated database on the real engine.
// Each call starts an engine of its own, which takes about a quarter of a second.
package schematest

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/flyball/flyball/schema"
	"github.com/flyball/flyball/schema/engine"
)

// Main is the body of a TestMain: it lets the engine's child start from the test
// binary and ends it afterwards.
func Main(m *testing.M) {
	engine.Main()
	os.Exit(m.Run())
}

var (
	mu    sync.Mutex
	count int
)

// Open returns a running engine with a migrated store of its own, closed with the test.
func Open(t testing.TB) *engine.Engine {
	t.Helper()
	mu.Lock()
	count++
	name := fmt.Sprintf("t%d", count)
	mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	e, err := engine.Open(ctx, engine.Options{Dir: t.TempDir() + "/" + name, MemoryBytes: 1 << 30, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := schema.Migrate(ctx, e.Conn(), "", schema.Confirmed{}); err != nil {
		t.Fatal(err)
	}
	return e
}

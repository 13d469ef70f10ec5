package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2"
)

// eventually waits up to ten seconds for f.
func eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if f() {
			return
		}
	}
	t.Fatal("timed out: ", what)
}

// TestKilledChild: the child is killed again and again while batches are
// written and repeated with their token until they are acknowledged. Every
// batch is there once, in the table and in what its view wrote.
func TestKilledChild(t *testing.T) {
	e := openEngine(t, Options{Fsync: true})
	run(t, e.Conn(), "CREATE TABLE base (k UInt64) ENGINE=MergeTree ORDER BY k"+window)
	run(t, e.Conn(), "CREATE TABLE sums (b UInt8, n Int64) ENGINE=SummingMergeTree ORDER BY b"+window)
	run(t, e.Conn(), "CREATE MATERIALIZED VIEW mv TO sums AS SELECT toUInt8(k % 2) AS b, toInt64(count()) AS n FROM base GROUP BY b")
	const kills, size = 3, 1000
	stop := make(chan struct{})
	killed := make(chan error, 1)
	go func() {
		defer close(stop)
		for i := range kills {
			time.Sleep(300 * time.Millisecond)
			pid := int(e.super.pid.Load())
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				killed <- fmt.Errorf("kill %d: %w", pid, err)
				return
			}
			end := time.Now().Add(10 * time.Second)
			for e.Restarts() != int64(i+1) {
				if time.Now().After(end) {
					killed <- errors.New("no restart")
					return
				}
				time.Sleep(10 * time.Millisecond)
			}
		}
		killed <- nil
	}()
	batches, failures := uint64(0), 0
	for stopped := false; !stopped; batches++ {
		select {
		case <-stop:
			stopped = true
		default:
		}
		for {
			err := insertNumbers(t.Context(), e.Conn(), "base", fmt.Sprint("batch-", batches), batches*size, (batches+1)*size)
			if err == nil {
				break
			}
			failures++
			if !Transient(err) || BadData(err) {
				t.Fatalf("batch %d: not transient: %v (%#v)", batches, err, err)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	if err := <-killed; err != nil {
		t.Fatal(err)
	}
	t.Logf("%d batches, %d failed sends, %d restarts", batches, failures, e.Restarts())
	if failures == 0 {
		t.Error("no send met a dead engine")
	}
	want := batches * size
	if n, u := one[uint64](t, e.Reader(), "SELECT count() FROM base"), one[uint64](t, e.Reader(), "SELECT uniqExact(k) FROM base"); n != want || u != want {
		t.Errorf("%d rows, %d distinct, want %d", n, u, want)
	}
	if n := one[int64](t, e.Reader(), "SELECT sum(n) FROM sums"); n != int64(want) {
		t.Errorf("view has %d, want %d", n, want)
	}
	if got := one[string](t, e.Reader(), "SELECT value FROM system.merge_tree_settings WHERE name = 'fsync_after_insert'"); got != "1" {
		t.Error("fsync is off")
	}
}

// TestGateDuringRestart: the interface stays up, says 503 and recovers.
func TestGateDuringRestart(t *testing.T) {
	e := openEngine(t, Options{Listen: "127.0.0.1:0"})
	if err := syscall.Kill(int(e.super.pid.Load()), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "503", func() bool {
		return gateGet(t, e, "SELECT 1", "").status == http.StatusServiceUnavailable || e.Restarts() > 0
	})
	eventually(t, "restart", func() bool { return gateGet(t, e, "SELECT 1", "").status == http.StatusOK })
	if e.Restarts() != 1 {
		t.Error(e.Restarts())
	}
	if err := e.Ping(t.Context()); err != nil {
		t.Error(err)
	}
}

// parentEnv makes the test binary the parent of an engine in the directory it
// names, for TestParentDeath.
const parentEnv = "FLYBALL_ENGINE_TEST_PARENT"

func runParent(dir string) int {
	e, err := Open(context.Background(), Options{Dir: dir})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println("pid", e.super.pid.Load(), e.super.cfg.RunDir)
	time.Sleep(time.Minute)
	return 0
}

// TestParentDeath: when the parent is killed, the child exits, removes its
// socket, and the store can be opened again. What a child that was killed with its parent
// left is removed then.
func TestParentDeath(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), parentEnv+"="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var pid int
	var run string
	_, scanErr := fmt.Fscanf(out, "pid %d %s\n", &pid, &run)
	if scanErr != nil {
		_ = cmd.Process.Kill()
	}

	// A second opener is told who has the store, while the first lives.
	if scanErr == nil {
		start := time.Now()
		_, err := Open(t.Context(), Options{Dir: dir})
		if err == nil || !strings.Contains(err.Error(), "another process has it open") || !strings.Contains(err.Error(), fmt.Sprint(pid)) {
			t.Errorf("second open: %v", err)
		}
		t.Logf("second open after %v: %v", time.Since(start), err)
	}
	_ = cmd.Process.Kill()
	_, _ = io.Copy(io.Discard, out)
	_ = cmd.Wait()
	if scanErr != nil {
		t.Fatal(scanErr)
	}
	left, err := os.MkdirTemp("", runDirs(dir))
	if err != nil {
		t.Fatal(err)
	}
	// At once: Open waits for the orphan.
	e := openEngine(t, Options{Dir: dir})
	if _, err := os.Stat(left); !os.IsNotExist(err) {
		t.Errorf("%s is still there: %v", left, err)
	}
	if err := e.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	eventually(t, "the child exits", func() bool { return syscall.Kill(pid, 0) != nil })
	eventually(t, "the socket goes", func() bool { _, err := os.Stat(run); return os.IsNotExist(err) })
}

// TestClose: nothing is left, and closing twice is fine.
func TestClose(t *testing.T) {
	e, err := Open(t.Context(), Options{Dir: t.TempDir(), Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	pid, run := int(e.super.pid.Load()), e.super.cfg.RunDir
	// A statement that runs does not hold the exit up for long.
	failed := make(chan error, 1)
	go func() {
		failed <- e.Reader().Exec(context.Background(), "SELECT sum(sleepEachRow(3)) FROM numbers(30) SETTINGS max_block_size=1")
	}()
	time.Sleep(100 * time.Millisecond)
	start := time.Now()
	for range 2 {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
	if d := time.Since(start); d > 6*time.Second {
		t.Errorf("close took %v", d)
	}
	if err := <-failed; err == nil || !Transient(err) {
		t.Error("statement that ran: ", err)
	}
	if syscall.Kill(pid, 0) == nil {
		t.Error("the child lives")
	}
	if _, err := os.Stat(run); !os.IsNotExist(err) {
		t.Error("left behind: ", run)
	}
	if err := e.Ping(context.Background()); err == nil || !Transient(err) {
		t.Errorf("ping after close: %v", err)
	}
}

// TestCancel: a statement ends in the engine when its caller leaves, before
// and after the first byte of its answer.
func TestCancel(t *testing.T) {
	e := sharedEngine(t)
	running := func(mark string) uint64 {
		return one[uint64](t, e.Conn(), "SELECT count() FROM system.processes WHERE query LIKE '%"+mark+"%' AND query NOT LIKE '%system.processes%'")
	}
	f := func(mark, sql string) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			rows, err := e.Reader().Query(ctx, sql+" /* "+mark+" */")
			if err == nil {
				for rows.Next() {
				}
				err = rows.Err()
				rows.Close()
			}
			done <- err
		}()
		eventually(t, mark+" starts", func() bool { return running(mark) == 1 })
		cancel()
		if err := <-done; err == nil || !Transient(err) {
			t.Errorf("%s: %v", mark, err)
		}
		start := time.Now()
		eventually(t, mark+" ends", func() bool { return running(mark) == 0 })
		t.Logf("%s: killed within %v", mark, time.Since(start))
	}
	f("mark_aggregate", "SELECT count() FROM numbers(1000000000000) WHERE cityHash64(number) % 7 = 0")
	f("mark_show", "SELECT * FROM (SELECT count() FROM numbers(1000000000000) WHERE cityHash64(number) % 7 = 0) FORMAT JSON")
	f("mark_stream", "SELECT number, toString(number) FROM numbers(1000000000000)")

	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := e.Conn().Exec(ctx, "SELECT count() FROM numbers(1000000000000) WHERE cityHash64(number) % 7 = 0"); !errors.Is(err, context.DeadlineExceeded) || !Transient(err) {
		t.Error(err)
	}
	if got := one[uint8](t, e.Reader(), "SELECT 1"); got != 1 {
		t.Error(got)
	}
}

// TestMemoryLimit: a read that needs too much is refused, the engine lives.
func TestMemoryLimit(t *testing.T) {
	e := sharedEngine(t)
	err := e.Reader().Exec(t.Context(), "SELECT length(groupArray(toString(number))) FROM numbers(100000000)")
	if code(err) != 241 || !Transient(err) {
		t.Error(err)
	}
	if e.Restarts() != 0 {
		t.Error("the engine restarted")
	}
}

func TestMissingLibrary(t *testing.T) {
	f := func(name string) {
		t.Helper()
		_, err := Open(t.Context(), Options{Dir: t.TempDir(), Library: name})
		if err == nil || !strings.Contains(err.Error(), fetchCommand) {
			t.Error(err)
		}
	}
	f(filepath.Join(t.TempDir(), "libchdb.so"))
	f(t.TempDir())
	t.Setenv("FLYBALL_LIBCHDB", filepath.Join(t.TempDir(), "libchdb.so"))
	f("")
	t.Setenv("FLYBALL_LIBCHDB", "")
	t.Setenv("FLYBALL_CACHE", t.TempDir())
	f("")
	// Something else than the library.
	other := filepath.Join(t.TempDir(), "libchdb.so")
	if err := os.WriteFile(other, []byte("not a library"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), Options{Dir: t.TempDir(), Library: other}); err == nil || !strings.Contains(err.Error(), other) {
		t.Error(err)
	}
}

func TestOpenRefuses(t *testing.T) {
	f := func(o Options, want string) {
		t.Helper()
		_, err := Open(t.Context(), o)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	f(Options{}, "no directory")
	f(Options{Dir: t.TempDir(), MemoryBytes: 1 << 20}, "256 MiB")
	f(Options{Dir: t.TempDir(), Listen: "0.0.0.0:0"}, "loopback")
	f(Options{DSN: "clickhouse://127.0.0.1:1/x?dial_timeout=200ms"}, "connect to clickhouse")
	f(Options{DSN: "nonsense"}, "clickhouse.dsn")
}

// TestHelloText: the driver asks what the handler answers by heart.
func TestHelloText(t *testing.T) {
	e := sharedEngine(t)
	var bodies []string
	o := e.embeddedOptions(pathFull, 1)
	dial := o.TransportFunc
	o.TransportFunc = func(tr *http.Transport) (http.RoundTripper, error) {
		next, err := dial(tr)
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			b, err := io.ReadAll(r.Body)
			if err != nil {
				return nil, err
			}
			bodies = append(bodies, string(b))
			r.Body = io.NopCloser(strings.NewReader(string(b)))
			return next.RoundTrip(r)
		}), err
	}
	c, err := clickhouse.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	v, err := c.ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	if len(bodies) == 0 || bodies[0] != helloQuery {
		t.Fatalf("the driver's first query is %q: adapt helloQuery and helloBlock to this release of clickhouse-go", bodies)
	}
	if v.Revision != 0 || v.DisplayName != "flyball" || v.Version.Major == 0 {
		t.Errorf("%+v", v)
	}
	// The engine itself still writes revision 0: what it gives is what the
	// block without extras says.
	r, err := post(e, "/?default_format=Native", "SELECT 'x' AS `displayName()`")
	if err != nil || r.body != "\x01\x01\x0ddisplayName()\x06String\x01x" {
		t.Errorf("%q %v", r.body, err)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

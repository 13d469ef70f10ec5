package app

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"

	"github.com/flyball/flyball/schema/engine"
)

// serveEnv makes the test binary the service, so that it can be killed.
const serveEnv = "FLYBALL_APP_TEST_SERVE"

// configEnv names a configuration file for it: keys cannot come by the environment.
const configEnv = "FLYBALL_APP_TEST_CONFIG"

func TestMain(m *testing.M) {
	engine.Main()
	if os.Getenv(serveEnv) != "" {
		if err := serve(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// serve runs the service until SIGTERM and prints its addresses. It does not
// outlive the test, whose end closes stdin.
func serve() error {
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(3)
	}()
	cfg, err := LoadConfig(os.Getenv(configEnv), os.Environ())
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	a, err := New(cfg, os.Getenv(configEnv), os.Environ(), slog.New(slog.NewTextHandler(os.Stderr, nil)))
	if err != nil {
		return err
	}
	if err := json.NewEncoder(os.Stdout).Encode(a.addrs); err != nil {
		return err
	}
	err = a.Wait(ctx)
	if stopErr := a.Stop(); err == nil {
		err = stopErr
	}
	return err
}

// prices make a cost easy to compute: an input token is a micro-dollar, an
// output token two.
const prices = `prices:
  - {provider: openai, models: [m-1], per_million: {input: "1", output: "2"}}
`

// service is a Flyball in a process of its own that a test stops, kills and
// starts again over the same data.
type service struct {
	t   *testing.T
	dir string
	env []string
	log string // file with what it printed

	mu    sync.Mutex // guards below: senders run while it restarts
	cmd   *exec.Cmd
	stdin io.Closer
	addrs map[string]string
}

// newService makes a service that is not started yet. dir is "" for a fresh one.
func newService(t *testing.T, dir string, env ...string) *service {
	t.Helper()
	if dir == "" {
		dir = t.TempDir()
	}
	aside := t.TempDir()
	list := filepath.Join(aside, "prices.yaml")
	if err := os.WriteFile(list, []byte(prices), 0o600); err != nil {
		t.Fatal(err)
	}
	s := &service{t: t, dir: dir, log: filepath.Join(aside, "log"), addrs: map[string]string{}}
	s.env = append(os.Environ(), serveEnv+"=1", "FLYBALL_DATA="+filepath.Join(dir, "data"),
		"FLYBALL_LISTEN__HTTP=127.0.0.1:0", "FLYBALL_LISTEN__OTLP_HTTP=127.0.0.1:0", "FLYBALL_LISTEN__OTLP_GRPC=127.0.0.1:0", `FLYBALL_LISTEN__CLICKHOUSE=""`,
		"FLYBALL_PRICES__EMBEDDED=false", `FLYBALL_PRICES__FILES=["`+list+`"]`, "FLYBALL_LIMITS__SETTLE=300ms")
	s.env = append(s.env, env...)
	t.Cleanup(func() {
		if s.pid() != 0 {
			// The engine would end by itself, but after the directory was to be removed.
			engines := s.engines()
			s.kill(engines...)
			for _, pid := range engines {
				for end := time.Now().Add(5 * time.Second); syscall.Kill(pid, 0) == nil && time.Now().Before(end); {
					time.Sleep(5 * time.Millisecond)
				}
			}
		}
		if t.Failed() {
			if b, err := os.ReadFile(s.log); err == nil {
				t.Logf("the service's log ends:\n%s", b[max(0, len(b)-4000):])
			}
		}
	})
	return s
}

// start starts the service and returns once it listens.
func (s *service) start() {
	s.t.Helper()
	exe, err := os.Executable()
	if err != nil {
		s.t.Fatal(err)
	}
	log, err := os.OpenFile(s.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		s.t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command(exe)
	cmd.Env, cmd.Stderr = s.env, log
	stdin, err := cmd.StdinPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	var addrs map[string]string
	if err := json.NewDecoder(out).Decode(&addrs); err != nil {
		_ = cmd.Wait()
		s.t.Fatalf("the service did not start: %v", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cmd, s.stdin, s.addrs = cmd, stdin, addrs
}

// pid is the service's, 0 while it does not run.
func (s *service) pid() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd == nil {
		return 0
	}
	return s.cmd.Process.Pid
}

// kill ends the service at once, and the given processes with it.
func (s *service) kill(also ...int) {
	s.mu.Lock()
	cmd := s.cmd
	s.cmd, s.addrs = nil, nil
	s.mu.Unlock()
	if cmd == nil {
		return
	}
	_ = cmd.Process.Kill()
	for _, pid := range also {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	_ = cmd.Wait()
}

// stop ends the service with SIGTERM.
func (s *service) stop() {
	s.t.Helper()
	s.mu.Lock()
	cmd := s.cmd
	s.cmd, s.addrs = nil, nil
	s.mu.Unlock()
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		s.t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		s.t.Errorf("the service stopped with %v", err)
	}
}

// engines are the processes of the service's engine: its children.
func (s *service) engines() []int {
	s.t.Helper()
	parent := strconv.Itoa(s.pid())
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		s.t.Fatal(err)
	}
	var out []int
	for _, name := range stats {
		b, err := os.ReadFile(name)
		if err != nil {
			continue // gone meanwhile
		}
		f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
		if len(f) > 1 && f[1] == parent && f[0] != "Z" {
			pid, _ := strconv.Atoi(strings.Split(name, "/")[2])
			out = append(out, pid)
		}
	}
	return out
}

func (s *service) url(listener, path string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return "http://" + s.addrs[listener] + path
}

var client = &http.Client{Timeout: 20 * time.Second}

// send posts one OTLP request. An error is an unknown outcome.
func (s *service) send(body []byte) (*http.Response, []byte, error) {
	res, err := client.Post(s.url("otlp_http", "/v1/traces"), "application/x-protobuf", bytes.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	return res, b, err
}

// mustSend posts a request that must be taken whole.
func (s *service) mustSend(td ptrace.Traces) {
	s.t.Helper()
	res, b, err := s.send(encode(s.t, td))
	if err != nil {
		s.t.Fatal(err)
	}
	if res.StatusCode != http.StatusOK || len(b) > 0 {
		s.t.Fatalf("status %s, answer %q", res.Status, b)
	}
}

func encode(t testing.TB, td ptrace.Traces) []byte {
	t.Helper()
	b, err := ptraceotlp.NewExportRequestFromTraces(td).MarshalProto()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// ready is /readyz.
type ready struct {
	code   int
	Status string
	Ingest struct {
		Queued, Quarantined int64
		Samples             int64
		Waiting, Refusing   string
		Lag                 float64 `json:"lag_seconds"`
	}
	ClickHouse struct {
		Ready    bool
		WaitsFor string `json:"waits_for"`
		Restarts int
	}
}

func (s *service) readyz() (r ready, err error) {
	res, err := client.Get(s.url("http", "/readyz"))
	if err != nil {
		return r, err
	}
	defer res.Body.Close()
	r.code = res.StatusCode
	return r, json.NewDecoder(res.Body).Decode(&r)
}

// drain waits until the journal has everything.
func (s *service) drain() {
	s.t.Helper()
	eventually(s.t, "the journal has everything", func() bool {
		r, err := s.readyz()
		return err == nil && r.ClickHouse.Ready && r.Ingest.Queued == 0
	})
}

// eventually waits up to half a minute for f.
func eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if f() {
			return
		}
	}
	t.Fatal("timed out: ", what)
}

// query returns the rows of a statement as text.
func (s *service) query(sql string) [][]string {
	s.t.Helper()
	res, err := client.Post(s.url("http", "/api/v1/sql?default_format=TabSeparated"), "text/plain", strings.NewReader(sql))
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		s.t.Fatalf("%s: %s %v %s", sql, res.Status, err, b)
	}
	var rows [][]string
	for line := range strings.Lines(string(b)) {
		rows = append(rows, strings.Split(strings.TrimSuffix(line, "\n"), "\t"))
	}
	return rows
}

// one is the single value of a statement.
func (s *service) one(sql string) string {
	s.t.Helper()
	rows := s.query(sql)
	if len(rows) != 1 || len(rows[0]) != 1 {
		s.t.Fatalf("%s: %v", sql, rows)
	}
	return rows[0][0]
}

// counters are the service's metrics by name and labels.
func (s *service) counters() map[string]float64 {
	s.t.Helper()
	res, err := client.Get(s.url("http", "/metrics"))
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	out := map[string]float64{}
	for line := range strings.Lines(string(b)) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), " ")
		if v, err := strconv.ParseFloat(value, 64); ok && err == nil && !strings.HasPrefix(name, "#") {
			out[name] = v
		}
	}
	return out
}

// checkLedger compares the counters of spans: what was received since the start
// of this process is new, a copy or rejected.
func (s *service) checkLedger() {
	s.t.Helper()
	c := s.counters()
	received, parts := c["flyball_spans_received_total"], 0.0
	for name, v := range c {
		if strings.HasPrefix(name, "flyball_spans_total{") || strings.HasPrefix(name, "flyball_spans_rejected_total{") {
			parts += v
		}
	}
	if received != parts {
		s.t.Errorf("received %.0f spans, accounted for %.0f", received, parts)
	}
}

// checkBooks checks what must hold whatever happened: no entry is there twice, a
// line has one current version or none, and the rollups are the signed sums of
// the journal.
func (s *service) checkBooks() {
	s.t.Helper()
	none := func(what, sql string) {
		s.t.Helper()
		if rows := s.query(sql + " LIMIT 5"); len(rows) > 0 {
			s.t.Errorf("%s: %v", what, rows)
		}
	}
	none("entries stored twice", "SELECT tenant, trace, span, part, version, sign, count(), groupArray(chunk) FROM journal GROUP BY tenant, trace, span, part, version, sign HAVING count() > 1")
	none("lines with several versions or a missing one", "SELECT tenant, trace, span, part, sum(sign), groupArray((version, sign, chunk)) FROM journal GROUP BY tenant, trace, span, part HAVING sum(sign) NOT IN (0, 1)")

	const calls = "model_calls + tool_calls + retries + fallbacks + hedges"
	tokens := []string{"tok_input", "tok_cache_read", "tok_cache_write_5m", "tok_cache_write_1h", "tok_output", "tok_reasoning", "tok_input_audio", "tok_input_image", "tok_output_audio", "tok_output_image"}
	signed := func(columns ...string) string {
		var out []string
		for _, c := range columns {
			out = append(out, "toString(sum(sign * toInt128(ifNull("+c+", 0))))")
		}
		return strings.Join(out, ", ")
	}
	sums := func(columns ...string) string {
		var out []string
		for _, c := range columns {
			out = append(out, "toString(sum(toInt128("+c+")))")
		}
		return strings.Join(out, ", ")
	}
	same := func(what, journal, rollup string) {
		s.t.Helper()
		if a, b := s.query(journal), s.query(rollup); fmt.Sprint(a) != fmt.Sprint(b) {
			s.t.Errorf("%s: journal %v, rollup %v", what, clip(a), clip(b))
		}
	}
	all := append([]string{calls, "cost", "wasted", "model_calls", "tool_calls", "retries"}, tokens...)
	same("spend_15m by tenant", "SELECT tenant, "+signed(append([]string{"1"}, all...)...)+" FROM journal GROUP BY tenant ORDER BY tenant",
		"SELECT tenant, "+sums(append([]string{"lines", "calls"}, all[1:]...)...)+" FROM spend_15m GROUP BY tenant ORDER BY tenant")
	same("runs", "SELECT tenant, run_id, "+signed("1", "cost", "wasted", "model_calls", "tool_calls", "retries", "tok_input + tok_cache_read + tok_cache_write_5m + tok_cache_write_1h + tok_output + tok_input_audio + tok_input_image + tok_output_audio + tok_output_image")+" FROM journal GROUP BY tenant, run_id ORDER BY tenant, run_id",
		"SELECT tenant, run_id, "+sums("lines", "cost", "wasted", "model_calls", "tool_calls", "retries", "tokens")+" FROM runs GROUP BY tenant, run_id ORDER BY tenant, run_id")
	if n := s.one("SELECT count() FROM (SELECT recorded_at < lagInFrame(recorded_at) OVER (ORDER BY chunk, recorded_at ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS back FROM (SELECT chunk, min(recorded_at) AS recorded_at FROM journal GROUP BY chunk UNION ALL SELECT chunk, max(recorded_at) FROM journal GROUP BY chunk)) WHERE back"); n != "0" {
		s.t.Errorf("recorded_at steps back %s times", n)
	}
}

// checkSpans compares ids: the journal has each that was acknowledged, and none
// that was never sent.
func (s *service) checkSpans(acknowledged, maybe map[string]bool) {
	s.t.Helper()
	stored := map[string]bool{}
	for _, row := range s.query("SELECT concat(trace, span), sum(sign) FROM journal WHERE part = 0 GROUP BY ALL") {
		if row[1] == "1" {
			stored[row[0]] = true
		}
	}
	missing, foreign := 0, 0
	for id := range acknowledged {
		if !stored[id] {
			missing++
		}
	}
	known := maps.Clone(acknowledged)
	maps.Copy(known, maybe)
	for id := range stored {
		if !known[id] {
			foreign++
		}
	}
	if missing > 0 || foreign > 0 {
		s.t.Errorf("%d of %d acknowledged spans are missing, %d stored ones were never sent", missing, len(acknowledged), foreign)
	}
}

func clip(rows [][]string) string {
	text := fmt.Sprint(rows)
	return text[:min(len(text), 1500)]
}

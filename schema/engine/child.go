package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	// childEnv marks the process that the parent started as the engine; its
	// value is the childConfig in JSON.
	childEnv = "FLYBALL_ENGINE_CHILD"
	// confinedEnv is set when the process has confined and executed itself.
	confinedEnv = "FLYBALL_ENGINE_CONFINED"
)

// childInherits are the variables the child gets. Not all, because SQL can
// read the environment of its process, and a service keeps secrets there.
var childInherits = []string{"PATH", "HOME", "TMPDIR", "TZ", "TZDIR", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "GOMAXPROCS", "GODEBUG", "GOTRACEBACK"}

// File descriptors the child inherits, after stdin, stdout and stderr.
const (
	fdLifeline = 3 // nothing comes; its end is the order to exit
	fdReady    = 4 // the child answers one line of JSON
)

// childConfig is what the parent tells the child.
type childConfig struct {
	Library     string `json:"library"`
	Dir         string `json:"dir"`     // absolute path of the store
	RunDir      string `json:"run_dir"` // private directory of socket and configuration, removed at exit
	ConfigFile  string `json:"config_file"`
	Socket      string `json:"socket"`
	Database    string `json:"database"`
	Threads     int    `json:"threads"`
	QueryMemory int64  `json:"query_memory"` // bytes one read may use
}

// removeRunDir removes the private directory; by name, because RemoveAll opens
// the directory above, which a confined process may not.
func (c childConfig) removeRunDir() {
	for _, p := range []string{c.Socket, c.ConfigFile, c.RunDir} {
		_ = os.Remove(p) // already gone, or the parent will
	}
}

// childReady is the child's answer: an error, or what it serves.
type childReady struct {
	Error    string `json:"error,omitempty"`
	Version  string `json:"version,omitempty"`
	Timezone string `json:"timezone,omitempty"`
	Confined bool   `json:"confined,omitempty"` // it cannot reach beyond the store
}

// exitGrace is how long a child that was told to exit waits for statements
// that run. What they would have written was not acknowledged.
const exitGrace = 3 * time.Second

// host is the engine inside the child process.
type host struct {
	cfg    childConfig
	lib    *library
	opened atomic.Int64

	version, timezone string
	confined          bool

	write, admin, read *pool

	killing sync.Mutex // guards killer
	killer  *session
}

// Main runs the engine and exits if this process was started as its child;
// otherwise it returns at once. It must be the first statement of main and of
// every TestMain whose package opens an embedded engine, because the engine
// is the same binary executed again.
func Main() {
	if os.Getenv(childEnv) == "" {
		return
	}
	os.Exit(runChild())
}

func runChild() int {
	nameProcess()
	// A nicer child leaves the cores to the service that feeds it. The whole
	// group, because the threads of the Go runtime exist already.
	if err := lowerPriority(); err != nil {
		fmt.Fprintf(os.Stderr, "lower priority of the engine: %v\n", err)
	}
	// A terminal or a service manager signals every process of the service;
	// the engine must outlive the parent's last writes, so only the lifeline
	// ends it. Nor does a log line that nobody reads any more.
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)

	lifeline := os.NewFile(fdLifeline, "lifeline")
	ready := os.NewFile(fdReady, "ready")
	answer := func(r childReady) {
		_ = json.NewEncoder(ready).Encode(r)
		ready.Close()
	}
	e := host{confined: os.Getenv(confinedEnv) != ""}
	err := json.Unmarshal([]byte(os.Getenv(childEnv)), &e.cfg)
	if err != nil {
		err = fmt.Errorf("read engine configuration: %w", err)
	} else if !e.confined {
		err = confine(e.cfg, append(os.Environ(), confinedEnv+"=1"))
	}
	if err != nil {
		answer(childReady{Error: err.Error()})
		return 1
	}
	defer e.cfg.removeRunDir()

	orphaned := make(chan struct{})
	belt := make(chan os.Signal, 1)
	signal.Notify(belt, orphanSignal)
	go func() {
		cut := make(chan struct{})
		go func() {
			_, _ = io.Copy(io.Discard, lifeline)
			close(cut)
		}()
		select {
		case <-cut:
		case <-belt:
		}
		close(orphaned)
	}()
	// Opening a large store takes a while; a parent that dies meanwhile must
	// not leave a process that holds the lock.
	opened := make(chan struct{})
	go func() {
		select {
		case <-opened:
		case <-orphaned:
			e.cfg.removeRunDir()
			os.Exit(1)
		}
	}()
	err = e.openStore()
	close(opened)
	if err != nil {
		answer(childReady{Error: err.Error()})
		return 1
	}
	l, err := net.Listen("unix", e.cfg.Socket)
	if err != nil {
		answer(childReady{Error: fmt.Sprintf("listen on engine socket: %v", err)})
		return 1
	}
	go func() {
		// The engine starts those threads when it needs them.
		for d := time.Second; ; d = min(2*d, time.Minute) {
			time.Sleep(d)
			if err := lowerMerges(); err != nil {
				e.logf("lower priority of merges: %v", err)
				return
			}
		}
	}()
	srv := &http.Server{Handler: e.handler(), ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	answer(childReady{Version: e.version, Timezone: e.timezone, Confined: e.confined})

	select {
	case <-orphaned:
	case err := <-served:
		fmt.Fprintf(os.Stderr, "serve engine: %v\n", err)
	}
	e.shutdown(srv)
	return 0
}

// openStore starts the engine and makes the database.
func (e *host) openStore() (err error) {
	if err := forgetLostTokens(e.cfg.Dir); err != nil {
		return fmt.Errorf("read deduplication logs of %s: %w", e.cfg.Dir, err)
	}
	if e.lib, err = loadLibrary(e.cfg.Library); err != nil {
		return err
	}
	if e.killer, err = e.openSession("kill", nil); err != nil {
		return fmt.Errorf("open store %s: %w", e.cfg.Dir, err)
	}
	limits := map[string]string{
		"readonly":           "2",
		"max_memory_usage":   fmt.Sprint(e.cfg.QueryMemory),
		"max_execution_time": fmt.Sprint(int(readLimit / time.Second)),
	}
	e.write = newPool(2, func() (*session, error) { return e.openSession("write", nil) })
	e.admin = newPool(2, func() (*session, error) { return e.openSession("admin", nil) })
	e.read = newPool(e.cfg.Threads+1, func() (*session, error) { return e.openSession("read", limits) })

	if err := e.killer.exec("CREATE DATABASE IF NOT EXISTS " + quoteName(e.cfg.Database) + " ENGINE=Atomic"); err != nil {
		return fmt.Errorf("create database %s: %w", e.cfg.Database, err)
	}
	s, err := e.killer.text("SELECT version(), timezone()", nil)
	if err != nil {
		return fmt.Errorf("read engine version: %w", err)
	}
	var ok bool
	e.version, e.timezone, ok = strings.Cut(strings.TrimSpace(s), "\t")
	if !ok {
		return fmt.Errorf("read engine version: answer %q", s)
	}
	return nil
}

// shutdown lets statements end, kills them after half the grace, and closes
// the store. A session that does not come back is left to the exit.
func (e *host) shutdown(srv *http.Server) {
	ctx, cancel := context.WithTimeout(context.Background(), exitGrace)
	defer cancel()
	half, cancelHalf := context.WithTimeout(ctx, exitGrace/2)
	defer cancelHalf()
	if err := srv.Shutdown(half); err != nil {
		// Cancels the requests' contexts, and so kills their statements.
		_ = srv.Close()
	}
	all := true
	for _, p := range []*pool{e.read, e.admin, e.write} {
		all = p.close(ctx) && all
	}
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		if all {
			e.killing.Lock()
			e.killer.close()
		}
	}()
	select {
	case <-closed:
	case <-ctx.Done():
	}
}

func (e *host) logf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
}

// errLocked is part of the library's text when another process has the store.
const errLocked = "Cannot lock file"

// lockHolder reads the pid that the engine wrote into the lock file, "" if
// there is none.
func lockHolder(dir string) string {
	b, err := os.ReadFile(filepath.Join(dir, "status"))
	if err != nil {
		return ""
	}
	for _, line := range strings.Split(string(b), "\n") {
		if pid, ok := strings.CutPrefix(line, "PID: "); ok {
			return strings.TrimSpace(pid)
		}
	}
	return ""
}

var errChildGone = errors.New("engine process ended")

package engine

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	firstBackoff = 100 * time.Millisecond
	lastBackoff  = 10 * time.Second
	// steady is how long a child has to live for the back-off to start anew.
	steady = 30 * time.Second
	// lockPatience is how long Open retries a store that another process
	// holds: the child of a service killed a moment ago needs it to exit.
	lockPatience = exitGrace + time.Second
	// killAfter is when Close gives up on a child that does not exit.
	killAfter = exitGrace + 5*time.Second
)

// supervisor keeps one child process running.
type supervisor struct {
	cfg      childConfig
	log      *slog.Logger
	metrics  *metrics
	restarts atomic.Int64
	pid      atomic.Int64 // of the running child, 0 while there is none

	stop chan struct{} // closed by close
	done chan struct{} // closed when the last child is gone
}

// startSupervisor prepares the private directory and waits until the first
// child serves or cannot.
func startSupervisor(ctx context.Context, o Options, m *metrics) (*supervisor, error) {
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("make directory of the store: %w", err)
	}
	run, err := os.MkdirTemp("", runDirs(o.Dir)) // 0700
	if err != nil {
		return nil, fmt.Errorf("make directory of the engine's socket: %w", err)
	}
	s := &supervisor{
		cfg: childConfig{
			Library:     o.Library,
			Dir:         o.Dir,
			RunDir:      run,
			ConfigFile:  filepath.Join(run, "config.xml"),
			Socket:      filepath.Join(run, "socket"),
			Database:    o.Database,
			Threads:     o.Threads,
			QueryMemory: o.MemoryBytes / 2,
		},
		log:     o.Logger,
		metrics: m,
		stop:    make(chan struct{}),
		done:    make(chan struct{}),
	}
	prepare := func() error {
		// A child removes the directory when it exits in order.
		if err := os.MkdirAll(run, 0o700); err != nil {
			return fmt.Errorf("make directory of the engine's socket: %w", err)
		}
		if err := os.Remove(s.cfg.Socket); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("remove old engine socket: %w", err)
		}
		return writeConfig(s.cfg.ConfigFile, o.Dir, o.MemoryBytes, o.Threads, o.Fsync)
	}
	first := make(chan error, 1)
	go s.run(prepare, first)
	select {
	case err = <-first:
	case <-ctx.Done():
		err = fmt.Errorf("open store %s: %w", o.Dir, context.Cause(ctx))
	}
	if err != nil {
		s.close()
		return nil, err
	}
	// The child has the store, so what others of it left behind when they were killed
	// serves nobody.
	old, _ := filepath.Glob(filepath.Join(os.TempDir(), runDirs(o.Dir)))
	for _, dir := range old {
		if dir != run {
			_ = os.RemoveAll(dir) // another user's stays
		}
	}
	return s, nil
}

// runDirs is the pattern of the names of the private directories of a store's engines.
func runDirs(dir string) string {
	return fmt.Sprintf("flyball-engine-%08x-*", crc32.ChecksumIEEE([]byte(dir)))
}

// run starts children until close. first hears how the first one went; unless
// it served, run ends.
//
// The goroutine stays on one thread, which started the children: the kernel
// signals a child when the thread that started it ends, not the process.
func (s *supervisor) run(prepare func() error, first chan<- error) {
	runtime.LockOSThread()
	defer close(s.done)
	defer os.RemoveAll(s.cfg.RunDir)
	backoff, since := firstBackoff, time.Now()
	opened := false
	for {
		started := time.Now()
		ready := func() {
			if !opened {
				opened = true
				first <- nil
			} else {
				s.restarts.Add(1)
			}
		}
		err := prepare()
		if err == nil {
			err = s.once(ready)
		}
		if s.stopping() {
			if !opened {
				first <- errChildGone
			}
			return
		}
		if !opened {
			var locked *lockedError
			if !errors.As(err, &locked) || time.Since(since) > lockPatience {
				first <- err
				return
			}
		} else {
			s.log.Error("engine process ended, starting it again", "error", err, "after", backoff)
		}
		if time.Since(started) > steady {
			backoff = firstBackoff
		}
		select {
		case <-time.After(backoff):
		case <-s.stop:
			if !opened {
				first <- errChildGone
			}
			return
		}
		backoff = min(2*backoff, lastBackoff)
		if !opened {
			backoff = firstBackoff
		}
	}
}

func (s *supervisor) stopping() bool {
	select {
	case <-s.stop:
		return true
	default:
		return false
	}
}

// once runs one child to its end, and calls ready when it serves.
func (s *supervisor) once(ready func()) error {
	exe, err := executable()
	if err != nil {
		return fmt.Errorf("start engine: %w", err)
	}
	lifeRead, lifeWrite, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("start engine: %w", err)
	}
	defer lifeWrite.Close()
	readyRead, readyWrite, err := os.Pipe()
	if err != nil {
		lifeRead.Close()
		return fmt.Errorf("start engine: %w", err)
	}
	defer readyRead.Close()

	stderr := &childLog{log: s.log}
	cmd := exec.Command(exe, "(engine)")
	config, err := json.Marshal(s.cfg)
	if err != nil {
		return fmt.Errorf("start engine: %w", err)
	}
	if name, err := os.Executable(); err == nil {
		cmd.Args[0] = name // what ps shows
	}
	cmd.Env = []string{childEnv + "=" + string(config)}
	for _, name := range childInherits {
		if v, ok := os.LookupEnv(name); ok {
			cmd.Env = append(cmd.Env, name+"="+v)
		}
	}
	cmd.Dir = s.cfg.Dir
	cmd.Stdin = nil // /dev/null: an INSERT with inline values makes the library read it
	cmd.Stdout = stderr
	cmd.Stderr = stderr
	cmd.ExtraFiles = []*os.File{lifeRead, readyWrite}
	cmd.SysProcAttr = childAttr()
	cmd.WaitDelay = time.Second
	err = cmd.Start()
	lifeRead.Close()
	readyWrite.Close()
	if err != nil {
		return fmt.Errorf("start engine: %w", err)
	}

	// Ends the child on close: politely, then not.
	exited := make(chan struct{})
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-exited:
			return
		case <-s.stop:
			lifeWrite.Close()
		}
		select {
		case <-exited:
		case <-time.After(killAfter):
			s.log.Error("engine process does not exit, killing it", "pid", cmd.Process.Pid)
			_ = cmd.Process.Kill()
		}
	}()
	answered := make(chan childReady, 1)
	go func() {
		var r childReady
		b, err := bufio.NewReader(readyRead).ReadBytes('\n')
		if err == nil {
			err = json.Unmarshal(b, &r)
		}
		if err != nil {
			r.Error = errChildGone.Error() + " while it opened the store"
		}
		if r.Error == "" {
			s.pid.Store(int64(cmd.Process.Pid))
			s.metrics.up.Set(1)
			s.log.Info("engine serves", "version", r.Version, "pid", cmd.Process.Pid, "confined", r.Confined)
			if !r.Confined {
				s.log.Warn("engine process is not confined: this kernel has no Landlock, so SQL functions that read files are told by their names only")
			}
			ready()
		}
		answered <- r
	}()

	waitErr := cmd.Wait()
	close(exited)
	<-watched
	s.pid.Store(0)
	s.metrics.up.Set(0)
	r := <-answered
	s.pid.Store(0)
	s.metrics.up.Set(0)
	text := stderr.tail()
	if r.Error != "" {
		return s.openError(r.Error, text)
	}
	if waitErr == nil {
		waitErr = errors.New("exit status 0")
	}
	if text != "" {
		return fmt.Errorf("%w: %w: %s", errChildGone, waitErr, text)
	}
	return fmt.Errorf("%w: %w", errChildGone, waitErr)
}

// lockedError says that another process has the store open.
type lockedError struct{ dir, pid string }

func (e *lockedError) Error() string {
	s := fmt.Sprintf("open store %s: another process has it open", e.dir)
	if e.pid != "" {
		s += " (pid " + e.pid + ")"
	}
	return s + ": stop the other flyball, or give this one its own data directory"
}

// openError makes one error of the child's answer and what it printed, which
// is where the library says why.
func (s *supervisor) openError(answer, text string) error {
	if strings.Contains(text, errLocked) {
		return &lockedError{s.cfg.Dir, lockHolder(s.cfg.Dir)}
	}
	if i := strings.Index(text, "Code: "); i >= 0 {
		text = text[i:]
	}
	if text == "" {
		return fmt.Errorf("start engine: %s", answer)
	}
	return fmt.Errorf("start engine: %s: %s", answer, text)
}

// dial connects to the child whatever address is asked for.
func (s *supervisor) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "unix", s.cfg.Socket)
}

// close ends the child and waits for it. Call it once.
func (s *supervisor) close() {
	close(s.stop)
	<-s.done
}

// childLog passes what the child prints on to the log, line by line, and
// keeps the end for errors.
type childLog struct {
	log *slog.Logger

	mu   sync.Mutex // guards the rest
	part []byte
	last []string
}

// tailLines is how many lines an error carries.
const tailLines = 12

func (c *childLog) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := len(b)
	for len(b) > 0 {
		line, rest, ok := strings.Cut(string(b), "\n")
		c.part = append(c.part, line...)
		if !ok && len(c.part) < 64<<10 {
			break
		}
		if s := strings.TrimSpace(string(c.part)); s != "" {
			c.log.Warn("engine", "line", s)
			c.last = append(c.last, s)
			if len(c.last) > tailLines {
				c.last = c.last[1:]
			}
		}
		c.part = c.part[:0]
		b = []byte(rest)
	}
	return n, nil
}

func (c *childLog) tail() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	lines := c.last
	if s := strings.TrimSpace(string(c.part)); s != "" {
		lines = append(lines, s)
	}
	return strings.Join(lines, "\n")
}

var _ io.Writer = (*childLog)(nil)

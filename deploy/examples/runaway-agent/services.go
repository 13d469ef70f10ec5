package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// daemon is a process that runs as long as the example.
type daemon struct {
	name string
	log  string // file with what it printed
	cmd  *exec.Cmd
	gone chan struct{} // closed when it has ended
}

// startDaemon starts a process in a group of its own, so that Ctrl-C in a terminal
// reaches the example alone, which then ends what it started in order. The pid is
// noted in work/pids for run.sh, should the example be killed itself.
func startDaemon(work, name, dir string, env []string, binary string, args ...string) (*daemon, error) {
	d := &daemon{name: name, log: filepath.Join(work, name+".log"), cmd: exec.Command(binary, args...), gone: make(chan struct{})}
	log, err := os.Create(d.log)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	defer log.Close()
	d.cmd.Dir, d.cmd.Env, d.cmd.Stdout, d.cmd.Stderr = dir, append(slices.DeleteFunc(os.Environ(), configures), env...), log, log
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := d.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		defer close(d.gone)
		_ = d.cmd.Wait()
	}()
	pids, err := os.OpenFile(filepath.Join(work, "pids"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = fmt.Fprintln(pids, d.cmd.Process.Pid)
		err = errors.Join(err, pids.Close())
	}
	if err != nil {
		d.end()
		return nil, fmt.Errorf("note pid of %s: %w", name, err)
	}
	return d, nil
}

// configures reports whether a variable is a key of Flyball's configuration, which
// would be meant for another service; where the engine's library lies is none.
func configures(variable string) bool {
	return strings.HasPrefix(variable, "FLYBALL_") && !strings.HasPrefix(variable, "FLYBALL_LIBCHDB=") && !strings.HasPrefix(variable, "FLYBALL_CACHE=")
}

// end asks the process to stop and insists after ten seconds.
func (d *daemon) end() {
	_ = d.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-d.gone:
	case <-time.After(10 * time.Second):
		_ = d.cmd.Process.Kill()
		<-d.gone
	}
}

// ready waits until the daemon answers 200 and ok likes the body. It does not wait
// for one that has ended, since another's answers on its port would be taken for its.
func (d *daemon) ready(ctx context.Context, url string, ok func([]byte) bool) error {
	ctx, cancel := context.WithTimeout(ctx, 60*time.Second)
	defer cancel()
	for {
		body, err := fetch(ctx, url)
		select {
		case <-d.gone:
			return fmt.Errorf("%s ended at once; its log ends:\n%s", d.name, tail(d.log))
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w; its log ends:\n%s", d.name, ctx.Err(), tail(d.log))
		case <-time.After(20 * time.Millisecond):
		}
		if err == nil && ok(body) {
			return nil
		}
	}
}

func tail(file string) string {
	text, _ := os.ReadFile(file)
	return string(text[max(0, len(text)-2000):])
}

func fetch(ctx context.Context, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := local.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var b bytes.Buffer
	if _, err := b.ReadFrom(resp.Body); err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", url, resp.Status)
	}
	return b.Bytes(), nil
}

// local talks to this machine, whatever proxy the environment names.
var local = &http.Client{Transport: &http.Transport{}, Timeout: 10 * time.Second}

// serve answers on an address until close is called.
func serve(addr string, h http.Handler) (closeIt func(), err error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	s := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(l) }()
	return func() { _ = s.Close(); <-done }, nil
}

// oncall is the end of the line: what Alertmanager's webhook sends to people.
type oncall struct {
	mu    sync.Mutex // guards notes
	notes []note
}

// note is one alert of one notification.
type note struct {
	at                  time.Time
	status              string // firing or resolved
	alert, guard, title string
}

func (o *oncall) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Alerts []struct {
			Status              string
			Labels, Annotations map[string]string
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, a := range in.Alerts {
		o.notes = append(o.notes, note{time.Now(), a.Status, a.Labels["alertname"], a.Labels["guard"], a.Annotations["summary"]})
	}
}

// told are the notifications about a guard with a status.
func (o *oncall) told(guard, status string) (out []note) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, n := range o.notes {
		if n.guard == guard && n.status == status {
			out = append(out, n)
		}
	}
	return out
}

// metrics are the series of a Prometheus text by name and labels.
type metrics map[string]float64

func readMetrics(ctx context.Context, url string) (metrics, error) {
	text, err := fetch(ctx, url)
	if err != nil {
		return nil, err
	}
	m := metrics{}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		i := strings.LastIndexByte(line, ' ')
		if i < 0 || line[0] == '#' {
			continue
		}
		if v, err := strconv.ParseFloat(line[i+1:], 64); err == nil {
			m[line[:i]] = v
		}
	}
	return m, nil
}

// labels are the values of the only label of a metric.
func (m metrics) labels(name, label string) (out []string) {
	for series := range m {
		if rest, ok := strings.CutPrefix(series, name+"{"+label+`="`); ok {
			out = append(out, strings.TrimSuffix(rest, `"}`))
		}
	}
	return out
}

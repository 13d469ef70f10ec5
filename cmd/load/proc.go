package main

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// clockTick is USER_HZ, in which Linux counts CPU time in /proc whatever the
// kernel's own timer does.
const clockTick = time.Second / 100

// sampleEvery is how often resident memory is looked at.
const sampleEvery = 200 * time.Millisecond

// process is a watched process: "name=pid".
type process struct {
	name string
	pid  int
}

func parseProcess(s string) (process, error) {
	name, pid, ok := strings.Cut(s, "=")
	n, err := strconv.Atoi(pid)
	if !ok || err != nil || n <= 0 || name == "" {
		return process{}, fmt.Errorf("parse --pid %q: want name=pid", s)
	}
	return process{name, n}, nil
}

// usage is what a watched process cost between start and stop.
type usage struct {
	Name       string  `json:"name"`
	PID        int     `json:"pid"`
	CPUSeconds float64 `json:"cpu_seconds"` // user and system, children it has waited for included
	MaxRSS     int64   `json:"max_rss_bytes"`
	FinalRSS   int64   `json:"final_rss_bytes"`
	SpansPer   float64 `json:"spans_per_cpu_second"`
	Ended      bool    `json:"ended,omitempty"` // it was gone before the end: its numbers end there
}

// watcher samples processes until stop.
type watcher struct {
	mu    sync.Mutex // guards uses
	uses  []usage
	begun []time.Duration
	quit  chan struct{}
	done  chan struct{}
}

func watch(ps []process) (*watcher, error) {
	w := &watcher{quit: make(chan struct{}), done: make(chan struct{})}
	for _, p := range ps {
		cpu, err := cpuOf(p.pid)
		if err != nil {
			return nil, fmt.Errorf("watch %s: %w", p.name, err)
		}
		w.uses = append(w.uses, usage{Name: p.name, PID: p.pid})
		w.begun = append(w.begun, cpu)
	}
	w.sample()
	go func() {
		defer close(w.done)
		t := time.NewTicker(sampleEvery)
		defer t.Stop()
		for {
			select {
			case <-t.C:
				w.sample()
			case <-w.quit:
				return
			}
		}
	}()
	return w, nil
}

func (w *watcher) sample() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.uses {
		u := &w.uses[i]
		if u.Ended {
			continue
		}
		cpu, err := cpuOf(u.PID)
		rss, err2 := rssOf(u.PID)
		if err != nil || err2 != nil {
			u.Ended = true
			continue
		}
		u.CPUSeconds = (cpu - w.begun[i]).Seconds()
		u.FinalRSS = rss
		u.MaxRSS = max(u.MaxRSS, rss)
	}
}

// stop takes a last sample and returns what the processes cost for spans.
func (w *watcher) stop(spans int64) []usage {
	close(w.quit)
	<-w.done
	w.sample()
	for i := range w.uses {
		u := &w.uses[i]
		if u.CPUSeconds > 0 {
			u.SpansPer = float64(spans) / u.CPUSeconds
		}
	}
	return w.uses
}

// cpuOf reads utime, stime, cutime and cstime, fields 14 to 17 of
// /proc/<pid>/stat. The second field, in parentheses, may contain anything.
func cpuOf(pid int) (time.Duration, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("read cpu time: %w", err)
	}
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(fields) < 15 {
		return 0, fmt.Errorf("read cpu time of %d: %d fields", pid, len(fields))
	}
	var ticks int64
	for _, f := range fields[11:15] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read cpu time of %d: %w", pid, err)
		}
		ticks += n
	}
	return time.Duration(ticks) * clockTick, nil
}

// rssOf reads the resident pages, field 2 of /proc/<pid>/statm.
func rssOf(pid int) (int64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0, fmt.Errorf("read memory: %w", err)
	}
	fields := strings.Fields(string(b))
	if len(fields) < 2 {
		return 0, fmt.Errorf("read memory of %d: %d fields", pid, len(fields))
	}
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read memory of %d: %w", pid, err)
	}
	return pages * int64(os.Getpagesize()), nil
}

// ownCPU is the user and system time of this process.
func ownCPU() time.Duration {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

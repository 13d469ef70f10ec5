package engine

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics of the embedded engine. They are counted without a registry too.
type metrics struct {
	up    prometheus.Gauge
	reads *prometheus.CounterVec

	mu         sync.Mutex // guards the rest
	registerer prometheus.Registerer
	registered []prometheus.Collector
}

func newMetrics() *metrics {
	return &metrics{
		up: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "flyball_engine_up",
			Help: "1 while the embedded engine serves, 0 while it restarts.",
		}),
		reads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "flyball_engine_reads_total",
			Help: "Requests to the read-only ClickHouse interface, by HTTP status.",
		}, []string{"code"}),
	}
}

// register adds the metrics of an embedded engine; a server has its own.
func (m *metrics) register(r prometheus.Registerer, e *Engine) error {
	if !e.Embedded() {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.registerer = r
	for _, c := range []prometheus.Collector{
		m.up, m.reads,
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "flyball_engine_restarts_total",
			Help: "How often the engine process had to be started again.",
		}, func() float64 { return float64(e.Restarts()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "flyball_engine_resident_bytes",
			Help: "Resident memory of the engine process.",
		}, func() float64 { return residentBytes(e.super.pid.Load()) }),
	} {
		if err := r.Register(c); err != nil {
			return fmt.Errorf("register engine metrics: %w", err)
		}
		m.registered = append(m.registered, c)
	}
	return nil
}

func (m *metrics) unregister() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.registered {
		m.registerer.Unregister(c)
	}
	m.registered = nil
}

// residentBytes reads VmRSS where the system has it, else 0.
func residentBytes(pid int64) float64 {
	if pid == 0 {
		return 0
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0
	}
	f := strings.Fields(string(b))
	if len(f) < 2 {
		return 0
	}
	pages, _ := strconv.ParseFloat(f[1], 64)
	return pages * float64(os.Getpagesize())
}

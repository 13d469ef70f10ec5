package wal

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the log's own; they are registered by Open and unregistered by
// Close, so that a directory can be opened again in the same process.
type metrics struct {
	records     prometheus.Counter
	bytes       prometheus.Counter
	fsync       prometheus.Histogram
	tornTails   prometheus.Counter
	corruptions prometheus.Counter

	all []prometheus.Collector
	reg prometheus.Registerer
	n   int // how many of all are registered
}

func newMetrics(l *Log) *metrics {
	m := &metrics{
		records: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "flyball_wal_appended_records_total", Help: "Records appended to the log."}),
		bytes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "flyball_wal_appended_bytes_total", Help: "Bytes appended to the log, after compression, with record headers."}),
		fsync: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "flyball_wal_fsync_seconds", Help: "Time one fsync of a segment took.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 2, 16)}),
		tornTails: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "flyball_wal_torn_tails_total", Help: "Torn tails that were cut when the log was opened."}),
		corruptions: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "flyball_wal_corruptions_total", Help: "Damaged places found by opening and by reading the log."}),
	}
	gauge := func(name, help string, f func(Stats) float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return f(l.Stats()) })
	}
	m.all = []prometheus.Collector{
		m.records, m.bytes, m.fsync, m.tornTails, m.corruptions,
		gauge("flyball_wal_bytes", "Size of the log on disk.", func(s Stats) float64 { return float64(s.Bytes) }),
		gauge("flyball_wal_segments", "Number of segments of the log.", func(s Stats) float64 { return float64(s.Segments) }),
		gauge("flyball_wal_oldest_age_seconds", "Age of the oldest record in the log, 0 if there is none.", func(s Stats) float64 {
			if s.Oldest.IsZero() {
				return 0
			}
			return max(time.Since(s.Oldest).Seconds(), 0)
		}),
	}
	return m
}

func (m *metrics) register(reg prometheus.Registerer) error {
	if reg == nil {
		return nil
	}
	m.reg = reg
	for _, c := range m.all {
		if err := reg.Register(c); err != nil {
			return fmt.Errorf("register log metrics: %w", err)
		}
		m.n++
	}
	return nil
}

func (m *metrics) unregister() {
	for _, c := range m.all[:m.n] {
		m.reg.Unregister(c)
	}
	m.n = 0
}

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"
)

// report is the answer of a load, in text or JSON.
type report struct {
	Scenario  string   `json:"scenario"`
	Rate      float64  `json:"rate"` // asked for, 0 = as fast as possible
	Requests  int64    `json:"requests"`
	Spans     int64    `json:"spans"`
	Acked     int64    `json:"acknowledged"`
	Rejected  int64    `json:"rejected"`
	Retried   int64    `json:"retried_requests"`
	Failed    int64    `json:"failed"`
	Bytes     int64    `json:"bytes"`
	Calls     int64    `json:"calls"`            // model and tool calls of fully acknowledged requests
	Seconds   float64  `json:"seconds"`          // until the last answer
	SpansPerS float64  `json:"spans_per_second"` // acknowledged in the window of the rate; see load.window
	Latency   latency  `json:"latency_ms"`       // of answers, retries included
	OwnCPU    float64  `json:"own_cpu_seconds"`  // of this process
	Processes []usage  `json:"processes,omitempty"`
	Total     *usage   `json:"processes_total,omitempty"` // all of them together
	Verify    *verdict `json:"verify,omitempty"`
	LastError string   `json:"last_error,omitempty"`
}

type latency struct {
	P50 float64 `json:"p50"`
	P90 float64 `json:"p90"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

func newReport(sc string, rate float64, t *tally, window, took, cpu time.Duration) *report {
	r := &report{
		Scenario: sc, Rate: rate,
		Requests: t.Requests, Spans: t.Spans, Acked: t.Acked, Rejected: t.Rejected, Retried: t.Retried, Failed: t.Failed,
		Bytes: t.Bytes, Calls: t.callsSure, Seconds: took.Seconds(), Latency: quantiles(t.latencies), OwnCPU: cpu.Seconds(),
	}
	// A load that was interrupted took less than its duration.
	if window = min(window, took); window > 0 {
		r.SpansPerS = float64(t.InTime) / window.Seconds()
	}
	return r
}

// quantiles sorts ds. Each is the smallest value that covers its share.
func quantiles(ds []time.Duration) latency {
	if len(ds) == 0 {
		return latency{}
	}
	slices.Sort(ds)
	at := func(percent int) float64 {
		i := (len(ds)*percent + 99) / 100
		return float64(ds[max(i, 1)-1]) / float64(time.Millisecond)
	}
	return latency{at(50), at(90), at(99), at(100)}
}

// watched adds the processes, and their sum where there are several.
func (r *report) watched(uses []usage) {
	r.Processes = uses
	if len(uses) < 2 {
		return
	}
	sum := usage{Name: "together"}
	for _, u := range uses {
		sum.CPUSeconds += u.CPUSeconds
		sum.MaxRSS += u.MaxRSS
		sum.FinalRSS += u.FinalRSS
		sum.Ended = sum.Ended || u.Ended
	}
	if sum.CPUSeconds > 0 {
		sum.SpansPer = float64(r.Acked) / sum.CPUSeconds
	}
	r.Total = &sum
}

func (r *report) json(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	if err := e.Encode(r); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}

func (r *report) text(w io.Writer) error {
	var err error
	p := func(format string, args ...any) {
		if err == nil {
			_, err = fmt.Fprintf(w, format+"\n", args...)
		}
	}
	p("scenario      %s, %d requests, %.1f MB, %.1f s", r.Scenario, r.Requests, float64(r.Bytes)/1e6, r.Seconds)
	p("spans         %d sent, %d acknowledged, %d rejected, %d failed; %d requests sent again", r.Spans, r.Acked, r.Rejected, r.Failed, r.Retried)
	p("rate          %.0f spans/s", r.SpansPerS)
	p("answers       p50 %.1f ms, p90 %.1f ms, p99 %.1f ms, max %.1f ms", r.Latency.P50, r.Latency.P90, r.Latency.P99, r.Latency.Max)
	p("own cpu       %.2f s", r.OwnCPU)
	all := r.Processes
	if r.Total != nil {
		all = append(slices.Clip(all), *r.Total)
	}
	for _, u := range all {
		ended := ""
		if u.Ended {
			ended = ", ended before the load did"
		}
		p("%-13s %.2f s cpu, %.0f spans per cpu second, rss max %.0f MiB, final %.0f MiB%s", u.Name, u.CPUSeconds, u.SpansPer, float64(u.MaxRSS)/(1<<20), float64(u.FinalRSS)/(1<<20), ended)
	}
	if v := r.Verify; v != nil {
		word := "match"
		if !v.Match {
			word = "MISMATCH"
		}
		want := fmt.Sprint(v.ExpectedFrom)
		if v.ExpectedTo != v.ExpectedFrom {
			want = fmt.Sprintf("%d to %d", v.ExpectedFrom, v.ExpectedTo)
		}
		p("verify        %s: %d calls counted, %s acknowledged; journal caught up after %.1f s", word, v.Calls, want, v.DrainSeconds)
	}
	if r.LastError != "" {
		p("last error    %s", r.LastError)
	}
	return err
}

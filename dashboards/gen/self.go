package main

// self is the service watching itself.
func self() *board {
	d := newBoard("flyball-self", "Flyball: The service", "Whether Flyball takes in what it is sent, how far it is behind, and what it needs for that.", "browser", "now-6h", "now")
	d.source("prometheus", "Prometheus", prometheusType)
	d.instances()
	d.console()
	d.killed()

	ready := []link{{"Readiness", "${console:raw}/readyz"}}
	d.row("Now")
	d.number(panel{title: "Up", width: 3, height: 4, unit: ratio, links: ready, steps: []step{{1, "green"}}, states: map[string]outcome{"0": {"down", "red"}, "1": {"up", "green"}},
		about:   "Whether Prometheus reaches /metrics of every chosen instance (up).",
		queries: []query{now(`min(up{instance=~"$instance"} and on (instance) last_over_time(flyball_spans_received_total[1d]))`, "up")}})
	d.number(panel{title: "Engine", width: 3, height: 4, unit: ratio, links: ready, states: map[string]outcome{"0": {"down", "red"}, "1": {"up", "green"}}, none: "a server",
		about:   "1 while the embedded engine serves (flyball_engine_up). Data is taken in without it, and waits in the log.",
		queries: []query{now(`min(flyball_engine_up{instance=~"$instance"})`, "engine")}})
	d.number(panel{title: "Spans a second", width: 3, height: 4, unit: perSec,
		about:   "Spans in acknowledged requests over five minutes, rejected ones included (flyball_spans_received_total).",
		queries: []query{now(`sum(rate(flyball_spans_received_total{instance=~"$instance"}[5m]))`, "spans")}})
	d.number(panel{title: "Journal lag", width: 3, height: 4, unit: seconds, steps: []step{{30, "orange"}, {60, "red"}}, links: ready,
		about:   "Age of the oldest entry that is not in the journal (flyball_journal_lag_seconds). The largest of the instances.",
		queries: []query{now(`max(flyball_journal_lag_seconds{instance=~"$instance"})`, "lag")}})
	d.number(panel{title: "Log on disk", width: 3, height: 4, unit: size, steps: []step{{5368709120, "orange"}, {8589934592, "red"}},
		about:   "Size of the write-ahead log (flyball_wal_bytes); at limits.wal_bytes, 10 GiB unless configured, senders are told to come again.",
		queries: []query{now(`max(flyball_wal_bytes{instance=~"$instance"})`, "log")}})
	d.number(panel{title: "Quarantined", width: 3, height: 4, unit: count, steps: alarmAny,
		about:   "Entries that no insert accepted, since the service started (flyball_entries_quarantined_total). They are in quarantine/entries.jsonl below data, and in no figure.",
		queries: []query{now(`sum(flyball_entries_quarantined_total{instance=~"$instance"})`, "entries")}})
	d.number(panel{title: "Conservation", width: 3, height: 4, unit: count, steps: alarmAny,
		about:   "Lines of the journal whose entries sum to neither 0 nor 1, and tenants whose rollups differ from the journal, at the last check, every ten minutes (flyball_conservation_lines, flyball_conservation_rollups).",
		queries: []query{now(`sum(flyball_conservation_lines{instance=~"$instance"}) + sum(flyball_conservation_rollups{instance=~"$instance"})`, "findings")}})
	d.number(panel{title: "Unknown usage", width: 3, height: 4, unit: share, steps: []step{{0.01, "orange"}, {0.05, "red"}}, none: "no calls",
		about:   "Model spans whose usage was due and absent, over those with usage due, over the last hour (flyball_model_calls_total).",
		queries: []query{now(`sum(increase(flyball_model_calls_total{instance=~"$instance",usage="unknown"}[1h])) / sum(increase(flyball_model_calls_total{instance=~"$instance",usage=~"known|unknown"}[1h]))`, "unknown")}})

	d.row("Taking in")
	d.graph(panel{title: "Spans", width: 12, height: 8, unit: perSec,
		about: "Spans in a second: received in acknowledged requests (flyball_spans_received_total), and what they were: new, duplicate, merged (flyball_spans_total).",
		queries: []query{
			prom(`sum(rate(flyball_spans_received_total{instance=~"$instance"}[$__rate_interval]))`, "received"),
			prom(`sum by (result) (rate(flyball_spans_total{instance=~"$instance"}[$__rate_interval]))`, "{{result}}"),
		}})
	d.graph(panel{title: "Rejected, refused and ignored", width: 12, height: 8, unit: perSec,
		about: "In a second: spans reported to the sender as rejected, by reason; spans that the pipeline did not take, by reason; requests answered with a retryable code, by cause; requests too large, which are lost; log records and metric points that are no call.",
		queries: []query{
			prom(`sum by (reason) (rate(flyball_spans_rejected_total{instance=~"$instance"}[$__rate_interval]))`, "rejected: {{reason}}"),
			prom(`sum by (reason) (rate(flyball_spans_refused_total{instance=~"$instance"}[$__rate_interval]))`, "not taken: {{reason}}"),
			prom(`sum by (cause) (rate(flyball_requests_refused_total{instance=~"$instance"}[$__rate_interval]))`, "come again: {{cause}}"),
			prom(`sum(rate(flyball_otlp_too_large_total{instance=~"$instance"}[$__rate_interval]))`, "too large"),
			prom(`sum by (signal) (rate(flyball_records_ignored_total{instance=~"$instance"}[$__rate_interval]))`, "ignored: {{signal}}"),
		}})
	d.graph(panel{title: "Requests by answer", width: 12, height: 8, unit: perSec, stacked: true,
		about:   "OTLP requests in a second, by transport, signal and the code of their answer (flyball_otlp_requests_total).",
		queries: []query{prom(`sum by (transport, signal, code) (rate(flyball_otlp_requests_total{instance=~"$instance"}[$__rate_interval]))`, "{{transport}} {{signal}} {{code}}")}})
	d.graph(panel{title: "Model calls by usage", width: 12, height: 8, unit: perSec, stacked: true,
		about:   "Model spans received in a second, by whether their usage is known, unknown or not due (flyball_model_calls_total).",
		queries: []query{prom(`sum by (usage) (rate(flyball_model_calls_total{instance=~"$instance"}[$__rate_interval]))`, "{{usage}}")}})

	d.row("Into the journal")
	d.graph(panel{title: "Journal lag and queue", width: 12, height: 8, unit: seconds, right: map[string]string{"queued": count},
		about: "Age of the oldest entry that is not in the journal (flyball_journal_lag_seconds), and how many are not (flyball_entries_queued).",
		queries: []query{
			prom(`max by (instance) (flyball_journal_lag_seconds{instance=~"$instance"})`, "{{instance}}"),
			prom(`sum(flyball_entries_queued{instance=~"$instance"})`, "queued"),
		}})
	d.graph(panel{title: "Entries", width: 12, height: 8, unit: perSec,
		about: "Signed entries in a second: posted to the log, stored in the journal, netted inside a chunk, quarantined (flyball_entries_*_total); and inserts that will be repeated (flyball_insert_retries_total). Over time posted = stored + netted + quarantined, except for what waits.",
		queries: []query{
			prom(`sum(rate(flyball_entries_posted_total{instance=~"$instance"}[$__rate_interval]))`, "posted"),
			prom(`sum(rate(flyball_entries_stored_total{instance=~"$instance"}[$__rate_interval]))`, "stored"),
			prom(`sum(rate(flyball_entries_netted_total{instance=~"$instance"}[$__rate_interval]))`, "netted"),
			prom(`sum(rate(flyball_entries_quarantined_total{instance=~"$instance"}[$__rate_interval]))`, "quarantined"),
			prom(`sum(rate(flyball_insert_retries_total{instance=~"$instance"}[$__rate_interval]))`, "inserts to repeat"),
		}})
	d.graph(panel{title: "Write-ahead log", width: 12, height: 8, unit: size, right: map[string]string{"segments": count, "written/s": "Bps"},
		about: "The log on disk, its segments, and bytes appended in a second, compressed (flyball_wal_bytes, flyball_wal_segments, flyball_wal_appended_bytes_total).",
		queries: []query{
			prom(`max by (instance) (flyball_wal_bytes{instance=~"$instance"})`, "{{instance}}"),
			prom(`sum(flyball_wal_segments{instance=~"$instance"})`, "segments"),
			prom(`sum(rate(flyball_wal_appended_bytes_total{instance=~"$instance"}[$__rate_interval]))`, "written/s"),
		}})
	d.graph(panel{title: "Age of the log", width: 12, height: 8, unit: seconds,
		about:   "Age of the oldest record in the log (flyball_wal_oldest_age_seconds). On an idle service it grows without harm, since whole segments are dropped; it matters beside more than one segment.",
		queries: []query{prom(`max by (instance) (flyball_wal_oldest_age_seconds{instance=~"$instance"})`, "{{instance}}")}})
	d.graph(panel{title: "Conservation", width: 12, height: 8, unit: count, bars: true,
		about: "At the last check, every ten minutes: lines of the journal whose entries sum to neither 0 nor 1, tenants whose rollups differ from the journal, and lines that the check corrected.",
		queries: []query{
			prom(`sum(flyball_conservation_lines{instance=~"$instance"})`, "lines"),
			prom(`sum(flyball_conservation_rollups{instance=~"$instance"})`, "rollups"),
			prom(`sum(increase(flyball_conservation_healed_total{instance=~"$instance"}[$__rate_interval]))`, "corrected"),
		}})
	d.graph(panel{title: "Damage found in the log", width: 12, height: 8, unit: count,
		about: "Torn tails that were cut at a start, which a crash leaves and which lose nothing acknowledged, and damaged places, which a disk leaves (flyball_wal_torn_tails_total, flyball_wal_corruptions_total), since the start.",
		queries: []query{
			prom(`sum(flyball_wal_torn_tails_total{instance=~"$instance"})`, "torn tails"),
			prom(`sum(flyball_wal_corruptions_total{instance=~"$instance"})`, "damaged places"),
		}})

	d.row("Where time goes")
	d.graph(panel{title: "Stages, p99", width: 12, height: 8, unit: seconds,
		about:   "Time a request (dialect, trace, fsync) or a chunk (insert) spends in a stage, p99, from the histogram flyball_stage_seconds.",
		queries: []query{prom(`histogram_quantile(0.99, sum by (stage, le) (rate(flyball_stage_seconds_bucket{instance=~"$instance"}[$__rate_interval])))`, "{{stage}}")}})
	d.graph(panel{title: "Stages, seconds a second", width: 12, height: 8, unit: seconds, stacked: true,
		about:   "Time spent in each stage in a second of time: the sum of flyball_stage_seconds. Above 1 it runs in parallel, or waits.",
		queries: []query{prom(`sum by (stage) (rate(flyball_stage_seconds_sum{instance=~"$instance"}[$__rate_interval]))`, "{{stage}}")}})
	d.graph(panel{title: "Decoding, p99", width: 12, height: 8, unit: seconds,
		about:   "Time to decode a request, by signal, from the histogram flyball_otlp_decode_seconds.",
		queries: []query{prom(`histogram_quantile(0.99, sum by (signal, le) (rate(flyball_otlp_decode_seconds_bucket{instance=~"$instance"}[$__rate_interval])))`, "{{signal}}")}})
	d.graph(panel{title: "Fsync", width: 12, height: 8, unit: seconds,
		about: "Time of one fsync of the log, from the histogram flyball_wal_fsync_seconds. Every acknowledgement waits for one.",
		queries: []query{
			prom(`histogram_quantile(0.50, sum by (le) (rate(flyball_wal_fsync_seconds_bucket{instance=~"$instance"}[$__rate_interval])))`, "p50"),
			prom(`histogram_quantile(0.99, sum by (le) (rate(flyball_wal_fsync_seconds_bucket{instance=~"$instance"}[$__rate_interval])))`, "p99"),
		}})

	d.row("What it needs")
	d.graph(panel{title: "Memory", width: 12, height: 8, unit: size,
		about: "Resident memory of the service and of the engine, and inside the service: the Go heap in use, open traces, and requests being worked on.",
		queries: []query{
			prom(`sum(process_resident_memory_bytes{instance=~"$instance"} and on (instance) flyball_spans_received_total)`, "service"),
			prom(`sum(flyball_engine_resident_bytes{instance=~"$instance"})`, "engine"),
			prom(`sum(go_memstats_heap_inuse_bytes{instance=~"$instance"} and on (instance) flyball_spans_received_total)`, "heap"),
			prom(`sum(flyball_trace_bytes{instance=~"$instance"})`, "open traces"),
			prom(`sum(flyball_otlp_inflight_bytes{instance=~"$instance"})`, "requests"),
		}})
	d.graph(panel{title: "CPU", width: 12, height: 8, unit: ratio,
		about:   "Cores that the service keeps busy, without the engine, which is a process of its own (process_cpu_seconds_total).",
		queries: []query{prom(`sum by (instance) (rate(process_cpu_seconds_total{instance=~"$instance"}[$__rate_interval]) and on (instance) flyball_spans_received_total)`, "{{instance}}")}})
	d.graph(panel{title: "Open traces", width: 12, height: 8, unit: count, right: map[string]string{"brought back/s": perSec},
		about: "Traces in memory, lines that wait to be settled, and traces brought back from the local store for a late span in a second (flyball_trace_open, flyball_trace_timers, flyball_trace_reloaded_total).",
		queries: []query{
			prom(`sum(flyball_trace_open{instance=~"$instance"})`, "open"),
			prom(`sum(flyball_trace_timers{instance=~"$instance"})`, "to settle"),
			prom(`sum(rate(flyball_trace_reloaded_total{instance=~"$instance"}[$__rate_interval]))`, "brought back/s"),
		}})
	d.graph(panel{title: "Local store", width: 12, height: 8, unit: size,
		about:   "The local store on disk: traces that left memory, the ledger, directives, pages (flyball_state_bytes).",
		queries: []query{prom(`sum by (instance) (flyball_state_bytes{instance=~"$instance"})`, "{{instance}}")}})
	d.graph(panel{title: "Engine", width: 12, height: 8, unit: count,
		about: "Whether the embedded engine serves, and how often it had to be started again since the service started (flyball_engine_up, flyball_engine_restarts_total).",
		queries: []query{
			prom(`min(flyball_engine_up{instance=~"$instance"})`, "up"),
			prom(`sum(flyball_engine_restarts_total{instance=~"$instance"})`, "restarts"),
		}})
	d.graph(panel{title: "Reads of the engine", width: 12, height: 8, unit: perSec, stacked: true,
		about:   "Requests in a second to the engine's read-only interface, this Grafana's among them, by the code of their answer (flyball_engine_reads_total).",
		queries: []query{prom(`sum by (code) (rate(flyball_engine_reads_total{instance=~"$instance"}[$__rate_interval]))`, "{{code}}")}})
	return d
}

#!/bin/sh
# Puts Flyball beside a plain OpenTelemetry Collector that writes the same
# traffic to the same embedded ClickHouse (otlp receiver, batch processor of
# 10,000, ClickHouse exporter), and prints spans per CPU second and memory.
#
#   deploy/bench/peer.sh         or: make bench-peer
#
# The collector is built once with the collector's own builder and kept in the
# cache (FLYBALL_CACHE, else XDG_CACHE_HOME/flyball, else ~/.cache/flyball); that
# takes some minutes and needs the Go module proxy.
#
# What the comparison is not: the collector keeps spans whole and answers before
# they are stored; Flyball keeps calls, prices them, joins runs, and answers
# after an fsync. The proxy that makes the engine reachable over TCP is not
# counted on the collector's side.
#
#   DURATION   seconds of load (default 30)   RATE     spans a second (default 0 = full speed)
#   BATCH      spans a request (default 1000) WORKERS  in flight (default 4)
#   SKIP_BUILD any value: use bin/flyball as it is
#   BENCH_PORT the first of the loopback ports used (default 18480)
set -eu
cd "$(dirname "$0")/../.."
. deploy/bench/lib.sh

builder=go.opentelemetry.io/collector/cmd/builder@v0.165.0
manifest=deploy/bench/peer-builder.yaml
cache=${FLYBALL_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/flyball}
# Another manifest is another collector.
peer=$cache/otelcol-peer-$(cksum <"$manifest" | cut -d' ' -f1)
drain=${DRAIN:-20}

if [ ! -x "$peer" ]; then
	say "building the collector, which takes some minutes"
	mkdir -p "$cache"
	sed "s|^dist:|dist:\n  output_path: $work/collector|" "$manifest" >"$work/builder.yaml"
	# A module of its own: the project's go.mod has no part in it.
	(cd "$work" && GOFLAGS=-mod=mod GOWORK=off go run "$builder" --config builder.yaml >builder.log 2>&1) || {
		tail -20 "$work/builder.log" >&2
		die "the builder did not make the collector; its last words are above"
	}
	mv "$work/collector/otelcol-peer" "$peer.$$"
	mv -f "$peer.$$" "$peer"
	rm -rf "$work/collector"
fi

build
go build -trimpath -o "$work/engine" ./deploy/bench/engine
library=$(deploy/engine/fetch.sh)

# play REPORT ENDPOINT ARGS... runs the load both sides get.
play() {
	report=$1 endpoint=$2
	shift 2
	"$work/load" --endpoint "$endpoint" --scenario attributed --rate "${RATE:-0}" --duration "${DURATION:-30}s" \
		--batch "${BATCH:-1000}" --workers "${WORKERS:-4}" --drain "${drain}s" --json "$@" >"$report"
}

status=0
say "flyball"
start_flyball
play "$work/flyball.json" "$grpc" --verify "http://$http" --pid "service=$flyball" --pid "engine=$engine" || status=1
stop "$flyball"

say "collector"
ask() { get --data-binary "$1" "http://$peer_store/"; }
FLYBALL_LIBCHDB=$library "$work/engine" "$peer_store" "$work/peer" >"$work/engine.log" 2>&1 &
proxy=$!
started="$started $proxy"
wait_for 60 "$proxy" ask 'SELECT 1' || {
	tail -20 "$work/engine.log" >&2
	die "the engine does not get ready; its last words are above"
}
store=$(child "$proxy")
PEER_GRPC=$peer_grpc PEER_STORE=$peer_store "$peer" --config deploy/bench/peer-config.yaml >"$work/collector.log" 2>&1 &
collector=$!
started="$started $collector"
wait_for 30 "$collector" ask 'SELECT count() FROM otel.otel_traces' || {
	tail -20 "$work/collector.log" "$work/engine.log" >&2
	die "the collector made no tables on the embedded engine; the last words of both are above"
}
play "$work/peer.json" "$peer_grpc" --pid "service=$collector" --pid "engine=$store" || status=1
stored=$(ask 'SELECT count() FROM otel.otel_traces')
errors=$(grep -ci 'error' "$work/collector.log" || true)
stop "$collector"
stop "$proxy"

acked=$(value "$work/peer.json" acknowledged)
row() { printf '%-34s %14s %14s\n' "$@"; }
f=$work/flyball.json p=$work/peer.json
row "" flyball collector
row "spans acknowledged" "$(value "$f" acknowledged)" "$acked"
row "spans/s" "$(rounded "$(value "$f" spans_per_second)")" "$(rounded "$(value "$p" spans_per_second)")"
row "answer p50 / p99, ms" "$(rounded "$(value "$f" p50)" 1) / $(rounded "$(value "$f" p99)" 1)" "$(rounded "$(value "$p" p50)" 1) / $(rounded "$(value "$p" p99)" 1)"
row "answer waits for" "fsync" "memory"
row "cpu seconds, service" "$(rounded "$(cost "$f" service cpu_seconds)" 1)" "$(rounded "$(cost "$p" service cpu_seconds)" 1)"
row "cpu seconds, engine" "$(rounded "$(cost "$f" engine cpu_seconds)" 1)" "$(rounded "$(cost "$p" engine cpu_seconds)" 1)"
row "spans per cpu second, both" "$(rounded "$(cost "$f" together spans_per_cpu_second)")" "$(rounded "$(cost "$p" together spans_per_cpu_second)")"
row "rss max, service, MiB" "$(mib "$(cost "$f" service max_rss_bytes)")" "$(mib "$(cost "$p" service max_rss_bytes)")"
row "rss max, engine, MiB" "$(mib "$(cost "$f" engine max_rss_bytes)")" "$(mib "$(cost "$p" engine max_rss_bytes)")"
row "rss final, both, MiB" "$(mib "$(cost "$f" together final_rss_bytes)")" "$(mib "$(cost "$p" together final_rss_bytes)")"
if [ "$stored" != "$acked" ]; then
	say "the collector stored $stored of $acked spans within ${drain}s of the last answer ($errors lines of error in its log): its numbers are for less work"
	status=1
fi
exit $status

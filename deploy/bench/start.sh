#!/bin/sh
# Measures how long Flyball takes to start over a journal of many rows: fills an
# empty store with cmd/load, waits until ClickHouse has all of it, and starts the
# service again after a clean stop and after kill -9.
#
#   deploy/bench/start.sh
#
#   ROWS       rows of the journal, at least (default 10000000)
#   RATE       spans a second that fill it (default 40000)
#   SKIP_BUILD any value: use bin/flyball as it is
#   BENCH_PORT the first of the loopback ports used (default 18480)
set -eu
cd "$(dirname "$0")/../.."
. deploy/bench/lib.sh

rows=${ROWS:-10000000}
rate=${RATE:-40000}
build

count() { get "http://$clickhouse/?query=SELECT+count()+FROM+journal"; }
answers() { get "http://$http/readyz"; }
drained() { answers | tr -d ' \n' | grep -q '"queued":0,'; }
spend() { get --fail "http://$http/api/v1/spend?group_by=tenant"; }
now() { date +%s%N; }
since() { awk -v a="$1" -v b="$(now)" 'BEGIN { printf "%.2f", (b - a) / 1e9 }'; }

# again HOW starts the service over the data and prints what it took, in seconds.
again() {
	began=$(now)
	run_flyball
	until answers >/dev/null 2>&1; do kill -0 "$flyball" || die "flyball did not start"; sleep 0.01; done
	ready=$(since "$began")
	until engine_ready; do kill -0 "$flyball" || die "flyball did not start"; sleep 0.01; done
	engine=$(since "$began")
	until spend >/dev/null 2>&1; do kill -0 "$flyball" || die "flyball did not start"; sleep 0.01; done
	printf '%s: /readyz %s s, ClickHouse ready %s s, spend of a day answered %s s\n' "$1" "$ready" "$engine" "$(since "$began")"
}

start_flyball
have=0
while [ "$have" -lt "$rows" ]; do
	seconds=$(((rows - have) / rate + 1))
	say "$have of $rows rows; loading for ${seconds}s"
	"$work/load" --endpoint "$grpc" --rate "$rate" --duration "${seconds}s" --json >/dev/null
	wait_for 600 "$flyball" drained || die "ClickHouse does not get all of it"
	have=$(count)
done
say "$have rows, $(du -sm "$work/data" | cut -f1) MiB"
sleep 10 # what was loaded is at rest
stop "$flyball"
again "after a stop"
kill -9 "$flyball"
wait "$flyball" 2>/dev/null || true
again "after kill -9"

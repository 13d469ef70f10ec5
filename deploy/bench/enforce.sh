#!/bin/sh
# Measures enforcement on this machine: the functions by themselves, then the
# closed loop of a service that takes 20,000 spans a second in and stores them.
#
#   deploy/bench/enforce.sh
#
#   RATE       spans a second beside the measurement (default 20000)
#   DURATION   seconds of load (default 60)
#   LIMITERS   limiters for the kill switch (default 1000)
#   SKIP_BUILD any value: use bin/flyball as it is
#   BENCH_PORT the first of the loopback ports used (default 18480)
set -eu
cd "$(dirname "$0")/../.."
. deploy/bench/lib.sh

build
${GO:-go} build -o "$work/loop" ./deploy/bench/loop
cat >"$work/policy.yaml" <<P
guards:
  - {name: bench-run, scope: [run], match: {tenant: bench-loop}, measure: cost, window: run, limit: "0.5", ladder: [{at: 100%, do: terminate}], outcome: checkpoint}
P
bin/flyball guard default | sed -n '/^guards:/,$p' | sed '1d' >>"$work/policy.yaml"
export FLYBALL_POLICY=$work/policy.yaml

say "the loop alone"
start_flyball
"$work/loop" --http "http://$http" --otlp "$grpc" --limiters 0
stop "$flyball"

say "the loop beside ${RATE:-20000} spans/s"
start_flyball
"$work/load" --endpoint "$grpc" --scenario attributed --rate "${RATE:-20000}" --duration "${DURATION:-60}s" --json >"$work/load.json" &
load=$!
started="$started $load"
sleep 5
"$work/loop" --http "http://$http" --otlp "$grpc" --limiters 0 --crossings 500 --leases 10s
printf 'by the service: '
get "http://$http/metrics" | awk '/^flyball_time_to_enforce_seconds_bucket\{limiter="bench"/ { split($1, a, "le=\""); sub("\".*", "", a[2]); n[++i] = $2; le[i] = a[2] } END { for (j = 1; j <= i; j++) if (n[j] >= 0.99 * n[i]) { printf "time to enforce (span received -> acknowledged): n %d, p99 at most %s s\n", n[i], le[j]; exit } }'
wait "$load" || true
printf 'load: %s spans/s acknowledged, p99 %s ms\n' "$(rounded "$(value "$work/load.json" spans_per_second)")" "$(rounded "$(value "$work/load.json" p99)" 1)"
stop "$flyball"

say "the kill switch"
start_flyball
"$work/loop" --http "http://$http" --otlp "$grpc" --crossings 0 --leases 0 --limiters "${LIMITERS:-1000}"
stop "$flyball"

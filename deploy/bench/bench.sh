#!/bin/sh
# Measures Flyball on this machine: builds it, serves it on loopback from an
# empty store, plays agent traffic at it with cmd/load, and prints a table. The
# generator shares the machine with the service; its own CPU is shown.
#
#   deploy/bench/bench.sh
#
#   DURATION   seconds a scenario (default 60)
#   SCENARIOS  any of full half root-last mixed (default "full half root-last").
#              full is `attributed` as fast as answers come, half the same at
#              half that rate for the latency, or at RATE without full
#   RATE       spans a second of half and root-last where full was not run
#   BATCH      spans a request (default 1000)    WORKERS  in flight (default 4)
#   SKIP_BUILD any value: use bin/flyball as it is
#   BENCH_PORT the first of the loopback ports used (default 18480)
#   REPORTS    a directory to keep the JSON reports in
#
# The exit code is 1 if the service counted other calls than it acknowledged.
set -eu
cd "$(dirname "$0")/../.."
. deploy/bench/lib.sh

duration=${DURATION:-60}
scenarios=${SCENARIOS:-full half root-last}
build

full=${RATE:-}
status=0

# play NAME SCENARIO RATE runs one load at a fresh service.
play() {
	start_flyball
	report=$work/$1.json
	say "$1: $2, $([ "$3" = 0 ] && echo 'full speed' || echo "$3 spans/s"), ${duration}s"
	"$work/load" --endpoint "$grpc" --scenario "$2" --rate "$3" --duration "${duration}s" \
		--batch "${BATCH:-1000}" --workers "${WORKERS:-4}" --verify "http://$http" --drain 5s \
		--pid "service=$flyball" --pid "engine=$engine" --json >"$report" || status=1
	[ -s "$report" ] || { tail -20 "$work/flyball.log" >&2; die "$1 gave no report"; }
	if [ -n "${REPORTS:-}" ]; then mkdir -p "$REPORTS" && cp "$report" "$REPORTS/"; fi
	stop "$flyball"
}

half_of() { awk -v v="$1" 'BEGIN { printf "%.0f", v / 2 }'; }

played=
for s in $scenarios; do
	case $s in
	full)
		play full attributed 0
		full=$(value "$work/full.json" spans_per_second)
		;;
	half)
		[ -n "$full" ] || die "half needs full before it, or RATE"
		play half attributed "$(half_of "$full")"
		;;
	root-last)
		[ -n "$full" ] || die "root-last needs full before it, or RATE"
		play root-last root-last "$(half_of "$full")"
		;;
	mixed) play mixed mixed 0 ;;
	*) die "scenario $s: want full, half, root-last or mixed" ;;
	esac
	played="$played $s"
done

printf '%-10s %10s %10s %8s %7s %7s %7s %7s %9s %9s %9s %8s %8s %8s %6s\n' \
	scenario spans spans/s failed p50ms p90ms p99ms maxms cpu_svc cpu_eng span/cpus rss_svc rss_eng cpu_load calls
for s in $played; do
	f=$work/$s.json
	printf '%-10s %10s %10s %8s %7s %7s %7s %7s %9s %9s %9s %8s %8s %8s %6s\n' "$s" \
		"$(value "$f" acknowledged)" "$(rounded "$(value "$f" spans_per_second)")" "$(value "$f" failed)" \
		"$(rounded "$(value "$f" p50)" 1)" "$(rounded "$(value "$f" p90)" 1)" "$(rounded "$(value "$f" p99)" 1)" "$(rounded "$(value "$f" max)" 1)" \
		"$(rounded "$(cost "$f" service cpu_seconds)" 1)" "$(rounded "$(cost "$f" engine cpu_seconds)" 1)" "$(rounded "$(cost "$f" together spans_per_cpu_second)")" \
		"$(mib "$(cost "$f" service max_rss_bytes)")" "$(mib "$(cost "$f" engine max_rss_bytes)")" "$(rounded "$(value "$f" own_cpu_seconds)" 1)" \
		"$(grep -q '"match": true' "$f" && echo ok || echo WRONG)"
done
echo "cpu in seconds over the load, the journal catching up and 5 s after; rss is the maximum in MiB; span/cpus is acknowledged spans by the CPU seconds of service and engine together"
exit $status

#!/bin/sh
# Measures an outage of ClickHouse: traffic at a steady rate, then the engine is
# killed and its library is gone for a while, then it is back and the journal
# catches up while the traffic goes on. Prints a line every minute, and at the end
# whether every acknowledged call is counted.
#
#   deploy/bench/outage.sh
#
#   OUTAGE     seconds without ClickHouse (default 3600)
#   RATE       spans a second (default 10000)
#   CATCH_UP   seconds that the traffic goes on with ClickHouse back (default 1500)
#   SKIP_BUILD any value: use bin/flyball as it is
#   BENCH_PORT the first of the loopback ports used (default 18480)
set -eu
cd "$(dirname "$0")/../.."
. deploy/bench/lib.sh

outage=${OUTAGE:-3600}
catch_up=${CATCH_UP:-1500}
build

# The library is a link, so that it can go.
FLYBALL_LIBCHDB=$work/libchdb.so
export FLYBALL_LIBCHDB
library=$(deploy/engine/fetch.sh)
ln -s "$library" "$FLYBALL_LIBCHDB"

field() { readyz | sed -n "s/.*\"$1\":\([0-9.]*\).*/\1/p"; }
since() { echo $(($(date +%s) - began)); }
rss() { awk '/^VmRSS:/ { printf "%.0f", $2 / 1024 }' "/proc/$1/status" 2>/dev/null || echo 0; }
line() {
	printf '%6s s  %-11s lag %7.1f s  log %6.0f MiB  service %5s MiB\n' "$(since)" "$1" \
		"$(field lag_seconds)" "$(du -sk "$work/data/wal" | awk '{ print $1 / 1024 }')" "$(rss "$flyball")"
}
# watch NAME SECONDS prints a line a minute.
watch() {
	until=$(($(date +%s) + $2))
	while [ "$(date +%s)" -lt "$until" ]; do
		line "$1"
		rest=$((until - $(date +%s)))
		sleep $((rest < 60 ? (rest > 0 ? rest : 0) : 60))
	done
}

start_flyball
began=$(date +%s)
"$work/load" --endpoint "$grpc" --rate "${RATE:-10000}" --duration $((60 + outage + catch_up))s \
	--verify "http://$http" --pid "service=$flyball" >"$work/report" 2>&1 &
load=$!
started="$started $load"
watch before 60
rm "$FLYBALL_LIBCHDB"
kill -9 "$engine"
watch outage "$outage"
ln -s "$library" "$FLYBALL_LIBCHDB"
back=$(date +%s)
caught=
while kill -0 "$load" 2>/dev/null; do
	lag=$(field lag_seconds)
	if [ -z "$caught" ] && awk -v l="${lag:-9999}" 'BEGIN { exit !(l < 5) }'; then
		caught=$(($(date +%s) - back))
		line "caught up"
	fi
	if [ $((($(date +%s) - back) % 60)) -lt 5 ]; then line back; fi
	sleep 5
done
status=0
wait "$load" || status=$?
cat "$work/report"
echo "less than 5 s behind again ${caught:-not} s after ClickHouse came back"
exit $status

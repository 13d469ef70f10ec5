#!/bin/sh
# Measures questions and dashboard panels over months of data: makes them with
# load fill where DATA does not have them yet, starts the service on them, and
# asks every question of the API and the SQL of every panel, one after another.
# Before that it loads the console in Chromium, where that and npm are installed.
#
#   deploy/bench/query.sh        or: make bench-query
#
#   DATA       directory of the data, kept (default bin/bench-query)
#   ROWS       rows of the journal, about (default 50000000, some 6 GB)
#   DAYS, TENANTS, USERS   what they are spread over (default 90, 200, 50000)
#   TIMES      how often each question is asked (default 20; fewer where it is slow)
#   LOADS      how often a view of the console is loaded (default 10; 0 leaves it out)
#   ONLY       a regular expression: ask only what it matches
#   SKIP_BUILD any value: use bin/flyball as it is
#   BENCH_PORT the first of the loopback ports used (default 18480)
set -eu
cd "$(dirname "$0")/../.."
. deploy/bench/lib.sh

data=${DATA:-bin/bench-query}
build
go build -trimpath -o "$work/query" ./deploy/bench/query
FLYBALL_LIBCHDB=$(deploy/engine/fetch.sh)
export FLYBALL_LIBCHDB
"$work/load" fill --data "$data" --rows "${ROWS:-50000000}" --days "${DAYS:-90}" --tenants "${TENANTS:-200}" --users "${USERS:-50000}"

# The data is not below $work, which is removed at the end.
ln -s "$(cd "$data" && pwd)" "$work/data"
run_flyball
wait_for 120 "$flyball" engine_ready || {
	tail -20 "$work/flyball.log" >&2
	die "flyball does not get ready; its last words are above"
}
# The states of runs are made of days that are over in the log, once something of a later day came, and of the last
# day if it has many runs.
"$work/load" --endpoint "$grpc" --rate 100 --duration 1s --batch 10 >/dev/null
folded() {
	[ "$(get "http://$clickhouse/" --data-binary 'SELECT (SELECT max(booked_on) FROM run_states) >= (SELECT max(day) FROM (SELECT booked_on AS day, count() AS runs FROM run_info GROUP BY day) WHERE runs >= 10000 OR day < (SELECT max(booked_on) FROM runs))')" = 1 ]
}
folded || say "waiting for the states of runs, a day after the other"
wait_for 1800 "$flyball" folded || die "the states of runs are not made; see run_states in the log: $(tail -5 "$work/flyball.log")"
if [ "${LOADS:-10}" -gt 0 ] && chromium=$(command -v chromium) && [ -d query/console/node_modules/playwright-core ]; then
	for view in overview load finance; do
		node query/console/test/paint.mjs "http://$http" "$chromium" "${LOADS:-10}" "$view"
	done
else
	say "the console is left out: it takes chromium, make console, and LOADS above 0"
fi
"$work/query" --http "http://$http" --clickhouse "http://$clickhouse" --engine "$(child "$flyball")" --times "${TIMES:-20}" --only "${ONLY:-}"

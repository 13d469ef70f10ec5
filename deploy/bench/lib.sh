# What bench.sh and peer.sh share; sourced by them, from the root of the tree.
# Processes are ended by the pids that were started here, never by name.

say() { printf 'bench: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

# The ports are consecutive from here; another base lets two benchmarks run.
base=${BENCH_PORT:-18480}
http=127.0.0.1:$base
grpc=127.0.0.1:$((base + 1))
otlp_http=127.0.0.1:$((base + 2))
clickhouse=127.0.0.1:$((base + 3))
peer_grpc=127.0.0.1:$((base + 4))
peer_store=127.0.0.1:$((base + 5))

work=$(mktemp -d "${TMPDIR:-/tmp}/flyball-bench.XXXXXX")
started=

# finish ends what is still running and removes the data.
finish() {
	for p in $started; do kill "$p" 2>/dev/null || true; done
	for p in $started; do wait "$p" 2>/dev/null || true; done
	rm -rf "$work"
}
trap finish EXIT
trap 'exit 1' HUP INT TERM

# stop PID ends one process and waits for it.
stop() {
	kill "$1" 2>/dev/null || true
	wait "$1" 2>/dev/null || true
	rest=
	for p in $started; do [ "$p" = "$1" ] || rest="$rest $p"; done
	started=$rest
}

# get URL prints the body.
get() { curl -sS --noproxy '*' --max-time 10 "$@"; }

# wait_for SECONDS PID COMMAND... repeats the command until it succeeds; it gives
# up when the process is gone.
wait_for() {
	left=$(($1 * 5)); watched=$2; shift 2
	until "$@" >/dev/null 2>&1; do
		left=$((left - 1))
		[ "$left" -gt 0 ] || return 1
		kill -0 "$watched" 2>/dev/null || return 1
		sleep 0.2
	done
}

# child PID prints the pid of the first child: of the service, its engine.
child() { cat /proc/"$1"/task/*/children | tr ' ' '\n' | sed -n '/./{p;q;}'; }

readyz() { get "http://$http/readyz" | tr -d ' \n'; }

engine_ready() { readyz | grep -q '"clickhouse":{[^}]*"ready":true'; }

# run_flyball serves over what data there is; sets flyball to its pid.
run_flyball() {
	FLYBALL_LISTEN__HTTP=$http FLYBALL_LISTEN__OTLP_GRPC=$grpc FLYBALL_LISTEN__OTLP_HTTP=$otlp_http \
		FLYBALL_LISTEN__CLICKHOUSE=$clickhouse FLYBALL_DATA=$work/data \
		bin/flyball serve >"$work/flyball.log" 2>&1 &
	flyball=$!
	started="$started $flyball"
}

# start_flyball serves from an empty store; sets flyball and engine to the pids.
start_flyball() {
	rm -rf "$work/data"
	run_flyball
	wait_for 60 "$flyball" engine_ready || {
		tail -20 "$work/flyball.log" >&2
		die "flyball does not get ready; its last words are above"
	}
	engine=$(child "$flyball")
	[ -n "$engine" ] || die "flyball has no engine process"
}

# build makes the service, the engine library beside it, and the generator.
build() {
	if [ -z "${SKIP_BUILD:-}" ]; then
		say "building"
		go build -trimpath -o bin/flyball ./cmd/flyball
		deploy/engine/fetch.sh bin/libchdb.so >/dev/null
	fi
	[ -x bin/flyball ] || die "bin/flyball is missing"
	go build -trimpath -o "$work/load" ./cmd/load
}

# value FILE KEY prints a number of the report's top level or its latencies.
value() { awk -v k="\"$2\":" '$1 == k { sub(/,$/, "", $2); print $2; exit }' "$1"; }

# cost FILE NAME KEY prints a number of one process, or of "together".
cost() { awk -v n="\"$2\"," -v k="\"$3\":" '$1 == "\"name\":" { on = $2 == n } on && $1 == k { sub(/,$/, "", $2); print $2; exit }' "$1"; }

mib() { awk -v b="$1" 'BEGIN { printf "%.0f", b / 1048576 }'; }
rounded() { awk -v v="$1" -v d="${2:-0}" 'BEGIN { printf "%.*f", d, v }'; }

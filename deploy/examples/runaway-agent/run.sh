#!/bin/sh
# Shows in a few seconds what Flyball does about agents that run away, and checks
# every claim; README.md beside it says what there is to see.
#
#   deploy/examples/runaway-agent/run.sh
#
#   RUNAWAY_PORT the first of seven consecutive loopback ports (default 19400, which no
#                outgoing connection is given on Linux)
#   SKIP_BUILD   any value: use bin/flyball as it is
#   KEEP         any value: leave the data and the logs where they are
set -eu
cd "$(dirname "$0")/../../.."
example=deploy/examples/runaway-agent

if ! command -v prometheus-alertmanager >/dev/null; then
	if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
		echo "runaway-agent: Alertmanager is missing: apt-get install prometheus-alertmanager" >&2
		exit 1
	fi
	{ apt-get update -q && apt-get install -qy --no-install-recommends prometheus-alertmanager; } >&2
fi
[ -n "${SKIP_BUILD:-}" ] || make -s build

work=$(mktemp -d "${TMPDIR:-/tmp}/flyball-runaway.XXXXXX")
story=

# finish ends the program, which ends what it started. Should it have been killed,
# the pids that it noted are left to be ended here.
finish() {
	status=$?
	trap '' HUP INT TERM
	if [ -n "$story" ]; then
		kill "$story" 2>/dev/null || true
		wait "$story" 2>/dev/null || true
	fi
	if [ -f "$work/pids" ]; then
		while read -r pid; do kill "$pid" 2>/dev/null || true; done <"$work/pids"
	fi
	if [ -n "${KEEP:-}" ]; then echo "data and logs are in $work" >&2; else rm -rf "$work"; fi
	exit "$status"
}
trap finish EXIT
trap 'exit 1' HUP INT TERM

${GO:-go} build -buildvcs=false -o "$work/runaway-agent" "./$example"
"$work/runaway-agent" -work "$work" -dir "$example" -port "${RUNAWAY_PORT:-19400}" &
story=$!
wait "$story"
story=

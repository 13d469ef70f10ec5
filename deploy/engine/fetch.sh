#!/bin/sh
# Fetches the embedded ClickHouse engine (libchdb, Apache-2.0) with npm, checks
# the tarball against the checksum pinned here, and unpacks the one file that
# Flyball loads into a cache shared by every checkout of this user.
#
#   deploy/engine/fetch.sh                   fills the cache, prints the path
#   deploy/engine/fetch.sh bin/libchdb.so    also puts the library there
#
# Running it again costs nothing; two at once are safe. The path of the library
# is the only thing on stdout, everything else goes to stderr.
#
#   FLYBALL_CACHE              the cache directory (default: $XDG_CACHE_HOME/flyball
#                              or ~/.cache/flyball)
#   FLYBALL_LIBCHDB_INTEGRITY  sha512-<base64> for a platform without a pin below
set -eu

version=26.7.3
package_version=26.7.3-stable.1

say() { printf 'fetch engine: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

case "$(uname -s)/$(uname -m)" in
Linux/x86_64 | Linux/amd64)
	platform=linux-x64-gnu
	integrity=sha512-XP97mMqnc5tZpKQywR8N7cLTsHNiTmHr30pC5mzo3jWmukjKn2IBa60c2B/gWUNcuFjOMjWoorQICCqBVj5wpw==
	;;
Linux/aarch64 | Linux/arm64)
	platform=linux-arm64-gnu
	# No pin yet: check the package's dist.integrity yourself and pass it in.
	integrity=${FLYBALL_LIBCHDB_INTEGRITY:-}
	;;
*)
	die "no engine for $(uname -s)/$(uname -m): use a ClickHouse server (clickhouse.dsn) instead"
	;;
esac
package=@chdb/lib-$platform@$package_version

cache=${FLYBALL_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/flyball}/libchdb-$version
library=$cache/libchdb.so

# place puts the library at $1: a hard link where it can, else a copy. It is
# renamed into place, so that a running process keeps the file it has mapped.
place() {
	[ "$1" -ef "$library" ] && return 0
	dir=$(dirname "$1")
	mkdir -p "$dir"
	new=$(mktemp "$dir/.libchdb.XXXXXX")
	rm -f "$new"
	ln "$library" "$new" 2>/dev/null || cp "$library" "$new"
	mv -f "$new" "$1"
	say "placed $1"
}

# digest prints sha512-<base64> of the file $1.
digest() {
	if command -v openssl >/dev/null 2>&1; then
		printf 'sha512-%s\n' "$(openssl dgst -sha512 -binary "$1" | openssl base64 -A)"
	elif command -v sha512sum >/dev/null 2>&1 && command -v xxd >/dev/null 2>&1; then
		printf 'sha512-%s\n' "$(sha512sum "$1" | cut -d' ' -f1 | xxd -r -p | base64 | tr -d '\n')"
	else
		die "neither openssl nor sha512sum with xxd is installed: cannot check the download"
	fi
}

if [ ! -s "$library" ]; then
	[ -n "$integrity" ] || die "the checksum of $package is not pinned: compare it at its source and pass it as FLYBALL_LIBCHDB_INTEGRITY=sha512-..., or point FLYBALL_LIBCHDB at a library you have"
	mkdir -p "$cache"
	work=$(mktemp -d "$cache/.fetch.XXXXXX")
	trap 'rm -rf "$work"' EXIT
	trap 'exit 1' HUP INT TERM

	# A tarball put there by hand saves the download (machines without npm).
	tarball=$cache/lib-$platform-$package_version.tgz
	if [ ! -s "$tarball" ] || [ "$(digest "$tarball")" != "$integrity" ]; then
		command -v npm >/dev/null 2>&1 || die "npm is not installed: install it (Node.js 18 or newer) and run this again, or point FLYBALL_LIBCHDB at a libchdb.so $version you have"
		say "downloading $package (151 MB)"
		(cd "$work" && npm pack --silent --ignore-scripts "$package" >npm.out 2>npm.err) || {
			cat "$work/npm.err" >&2
			die "npm pack $package did not work (see above)"
		}
		found=
		for f in "$work"/*.tgz; do [ -f "$f" ] && found=$f; done
		[ -n "$found" ] || die "npm pack $package left no tarball"
		tarball=$found
	fi
	got=$(digest "$tarball")
	[ "$got" = "$integrity" ] || die "checksum of $package is $got, expected $integrity: not used"

	say "unpacking"
	tar -xzf "$tarball" -C "$work" package/libchdb.so || die "the tarball has no libchdb.so"
	chmod 0755 "$work/package/libchdb.so"
	mv -f "$work/package/libchdb.so" "$library"
	rm -rf "$work"
	trap - EXIT HUP INT TERM
	say "cached $library"
fi

[ $# -eq 0 ] || place "$1"
printf '%s\n' "$library"

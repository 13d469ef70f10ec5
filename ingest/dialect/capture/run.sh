#!/usr/bin/env bash
# Installs the pinned packages outside the tree, records every set-up and rewrites ../testdata/captures.
# Arguments are passed to record.mjs: --only aisdk5,aisdk6 and --scenario chat-plain,chat-cached.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
cache=${FLYBALL_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/flyball}/capture
mkdir -p "$cache/js"

# A stamp remembers what was installed; a change of a pin installs again.
stamp() { cat "$@" | sha256sum | cut -d' ' -f1; }

cp "$here"/js/package.json "$here"/js/package-lock.json "$here"/js/.npmrc "$here"/js/*.mjs "$cache/js/"
want=$(stamp "$here/js/package-lock.json")
if [ "$(cat "$cache/js.stamp" 2>/dev/null)" != "$want" ]; then
  (cd "$cache/js" && npm ci --no-audit --no-fund) && echo "$want" >"$cache/js.stamp" || echo "node packages could not be installed" >&2
fi

# The frameworks bring thousands of packages: installed apart, pinned by name only.
frameworks=$cache/js-frameworks
mkdir -p "$frameworks"
cp "$here"/js/frameworks/package.json "$here"/js/frameworks/.npmrc "$here"/js/lib.mjs "$here"/js/frameworks.mjs "$frameworks/"
want=$(stamp "$here/js/frameworks/package.json")
if [ "$(cat "$cache/js-frameworks.stamp" 2>/dev/null)" != "$want" ]; then
  (cd "$frameworks" && npm install --no-package-lock --no-audit --no-fund) && echo "$want" >"$cache/js-frameworks.stamp" || echo "node frameworks could not be installed" >&2
fi

for requirements in "$here"/py/requirements-*.txt; do
  env=$(basename "$requirements" .txt) && env=${env#requirements-}
  want=$(stamp "$requirements")
  if [ "$(cat "$cache/py-$env.stamp" 2>/dev/null)" != "$want" ]; then
    rm -rf "$cache/py-$env"
    python3 -m venv "$cache/py-$env" &&
      "$cache/py-$env/bin/pip" install --quiet --disable-pip-version-check -r "$requirements" &&
      echo "$want" >"$cache/py-$env.stamp" || echo "python packages of $env could not be installed" >&2
  fi
done

exec node "$here/record.mjs" --cache "$cache" "$@"

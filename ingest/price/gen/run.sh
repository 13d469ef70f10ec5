#!/bin/sh
# Regenerates the embedded price catalogue. The package is pinned here; raise it
# and review the diff of catalogue.json as a change of prices.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
venv=${FLYBALL_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/flyball}/prices-venv
[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
"$venv/bin/pip" install --quiet genai-prices==0.2.3
"$venv/bin/python" "$here/gen.py" "$here/../catalogue.json"

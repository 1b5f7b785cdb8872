#!/usr/bin/env bash
# Builds the templates that tests on real sandboxes share, with the built program,
# into the folder of test data; what is there and up to date is left as it is.
# Tests in several packages can then run at once. Needs root.
#
#   test/templates.sh PROGRAM FOLDER
set -euo pipefail
berth=$(realpath -- "$1")
mkdir -p "$2"
export BERTH_DATA
BERTH_DATA=$(realpath -- "$2")
scratch=$(mktemp -d)
trap 'kill "$server" 2>/dev/null; wait "$server" 2>/dev/null; rm -rf "$scratch"' EXIT

printf '[room]\nfree = "256MiB"\npercent = 0\n' >"$scratch/config.toml" # what else the disk holds decides nothing
"$berth" serve --json --config "$scratch/config.toml" --data "$BERTH_DATA" --listen 127.0.0.1:0 --warm 0 >"$scratch/ready" 2>"$scratch/log" &
server=$!
for _ in $(seq 300); do
  [[ -s $scratch/ready ]] && break
  kill -0 "$server" 2>/dev/null || { cat "$scratch/log" >&2; exit 1; }
  sleep 0.1
done
BERTH_URL=$(jq -er .url "$scratch/ready")
BERTH_API_KEY=$(cat "$BERTH_DATA/admin.key")
export BERTH_URL BERTH_API_KEY
build() { "$berth" template build "$@" 2>"$scratch/build" || { cat "$scratch/build" >&2; exit 1; }; }
build base
build code-interpreter
build mcp-gateway

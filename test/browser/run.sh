#!/usr/bin/env bash
# Vite's dev server runs in a real sandbox; Chromium, which trusts the server's own
# authority and nothing else new, opens its preview and sees a change in place.
#
#	run.sh BERTH DATA   a berth program, and a folder with templates/ in it
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
berth=$(realpath "$1") seed=$(realpath "$2")
out=${BROWSER_OUT:-$here/../../.cache/browser}
mkdir -p "$out"

need=()
command -v chromium >/dev/null || need+=(chromium)
command -v certutil >/dev/null || need+=(libnss3-tools)
command -v npm >/dev/null || need+=(npm)
if [ ${#need[@]} -gt 0 ]; then
  export DEBIAN_FRONTEND=noninteractive
  apt-get -qq update
  apt-get -qq install -y --no-install-recommends "${need[@]}" >/dev/null
fi
export CHROMIUM; CHROMIUM=$(command -v chromium)

work=$(mktemp -d)
server=
finish() {
  if [ -n "$server" ]; then
    "$berth" rm --all -f >/dev/null 2>&1 || true
    kill "$server" && wait "$server" || true
  fi
  rm -rf "$work"
}
trap finish EXIT

cp "$here/package.json" "$here/reload.mjs" "$work"
(cd "$work" && npm install --no-audit --no-fund --loglevel=error)
mkdir "$work/data"
cp -a --reflink=auto "$seed/templates" "$work/data/"
"$berth" serve --data "$work/data" --listen 127.0.0.1:0 --https-listen 127.0.0.1:0 >"$work/ready" 2>"$work/log" &
server=$!
until [ -s "$work/ready" ]; do kill -0 "$server" || { cat "$work/log" >&2; exit 1; }; sleep 0.1; done
export BERTH_DATA="$work/data" BERTH_URL; BERTH_URL=$(sed -n 's/^berth: serving \([^,]*\),.*/\1/p' "$work/ready")

export HOME="$work/home"
mkdir -p "$HOME/.pki/nssdb"
certutil -d "sql:$HOME/.pki/nssdb" -N --empty-password
certutil -d "sql:$HOME/.pki/nssdb" -A -t C,, -n berth -i "$work/data/ca.pem"

"$berth" create --name site >/dev/null
"$berth" cp -r "$here/site" site:/workspace/
"$berth" cp -r "$work/node_modules" site:/workspace/site/
"$berth" exec -d --name dev -w /workspace/site site -- node node_modules/vite/bin/vite.js --port 5173 >/dev/null
"$berth" wait site dev --port 5173 --timeout 60s >/dev/null
cd "$work"
timeout 180 node reload.mjs "$("$berth" url site 5173 --once)" site "$berth" "$out"

#!/usr/bin/env bash
# Shows the main job with the built program: a server on a private data
# directory, the template base, a sandbox, code in it, files in and out, and
# nothing left at the end. Needs root.
#
#   BERTH_BIN        the program (default bin/berth)
#   BERTH_DEMO_DATA  keeps the template between runs (default .cache/demo)
set -euo pipefail
cd "$(dirname "$0")/.."

berth=$(realpath -- "${BERTH_BIN:-bin/berth}" 2>/dev/null) || true
data=${BERTH_DEMO_DATA:-$PWD/.cache/demo}
scratch=$(mktemp -d)
exec 3>&1 # what is shown, also where an answer is caught
server=

if [[ -t 1 ]]; then bold=$'\e[1m' dim=$'\e[2m' green=$'\e[32m' red=$'\e[31m' off=$'\e[0m'
else bold='' dim='' green='' red='' off=''; fi

step() { printf '\n%s▸ %s%s\n' "$bold" "$*" "$off"; }
note() { printf '%s  %s%s\n' "$dim" "$*" "$off"; }
die() { printf '%s✗ %s%s\n' "$red" "$*" "$off" >&2; exit 1; }
now() { date +%s%N; }
since() { echo $((($(now) - $1) / 1000000)); } # milliseconds

# run shows a command of berth's as it would be typed, then runs it.
run() {
  local word line=berth
  for word in "$@"; do
    [[ $word == *[!A-Za-z0-9_./:=,@+-]* ]] && word="'$word'"
    line+=" $word"
  done
  line=${line//$id/\$ID}
  printf '  %s$ %s%s\n' "$green" "${line//$scratch\//}" "$off" >&3
  "$berth" "$@"
}

# show does the same and sets off what the command writes.
show() { run "$@" 2>&1 | sed 's/^/  /'; }

# Whatever happens, nothing is left running: sandboxes first, then the server.
finish() {
  code=$?
  trap - EXIT INT TERM HUP
  if [[ -n $server ]]; then
    "$berth" rm --all -f || code=1
    kill -TERM "$server" 2>/dev/null || true
    wait "$server" || code=1
  fi
  if ((code != 0 && code < 128)) && [[ -s $scratch/server.log ]]; then
    printf '\nThe end of the server'\''s log:\n' >&2
    tail -n 30 "$scratch/server.log" >&2
  fi
  rm -rf "$scratch"
  exit "$code"
}
trap finish EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

[[ -x $berth ]] || die "there is no ${BERTH_BIN:-bin/berth}: build it first, with: make build"
((EUID == 0)) || die "sandboxes need root: sudo make demo"

id='there is no sandbox yet'
step "What this machine can do"
show doctor --listen 127.0.0.1:0 --data "$data" || die "sandboxes cannot run here; the lines above say why"

step "A server"
mkdir -p "$data"
: >"$scratch/ready"
# In a session of its own: an interrupt of this script is not the server's.
setsid "$berth" serve --data "$data" --listen 127.0.0.1:0 >"$scratch/ready" 2>"$scratch/server.log" &
server=$!
until grep -q '^berth: serving ' "$scratch/ready"; do
  kill -0 "$server" 2>/dev/null || { server=; cat "$scratch/server.log" >&2; die "the server did not start"; }
  sleep 0.05
done
BERTH_URL=$(sed -n 's/^berth: serving \([^,]*\),.*/\1/p' "$scratch/ready")
export BERTH_URL BERTH_DATA=$data
note "$(cat "$scratch/ready")"
"$berth" rm --all -f # of a run that was killed

step "The template base: Debian with Python, Node, git and friends"
start=$(now)
run template build base | sed 's/^/  /'
build=$(since "$start")
made=built
((build > 2000)) || made="of the last run"
show template ls

step "A sandbox"
start=$(now)
id=$(run create --cpu 1 --memory 1GiB --metadata purpose=demo)
create=$(since "$start")
note "ID=$id, after $create ms"
start=$(now)
show exec "$id" -- uname -sr </dev/null
first=$(since "$start")

step "Python"
show exec "$id" -- python3 -c 'import platform; print("Python", platform.python_version(), "says 6*7 =", 6*7)'

step "Node"
show exec "$id" -- node -e 'console.log("Node", process.version, "says", [3,1,2].sort().join(" < "))'

step "A file in, worked on inside, and out again"
seq 1 1000 >"$scratch/numbers.txt"
show cp "$scratch/numbers.txt" "$id:/workspace/numbers.txt"
show exec "$id" --shell 'awk "{s+=\$1} END {print s}" numbers.txt > sum.txt'
show cp "$id:/workspace/sum.txt" "$scratch/sum.txt"
sum=$(cat "$scratch/sum.txt")
[[ $sum == 500500 ]] || die "the sum of 1 to 1000 came out as $sum"
note "the sum of 1 to 1000 is $sum"

step "A pipe through the sandbox"
printf 'three\none\ntwo\n' | show exec "$id" -- sort

step "An exit code comes through"
code=0
show exec "$id" -- sh -c 'echo "this will not end well" >&2; exit 42' || code=$?
[[ $code == 42 ]] || die "the exit code came out as $code"
note "exit code $code"

step "How long one command takes"
runs=20
start=$(now)
for ((n = 0; n < runs; n++)); do "$berth" exec "$id" -- true </dev/null; done
each=$(($(since "$start") / runs))
note "$runs times \"berth exec \$ID -- true\""

step "Everything removed"
start=$(now)
show rm "$id"
remove=$(since "$start")
left=$("$berth" ls -q)
[[ -z $left ]] || die "still there: $left"
kill -TERM "$server"
wait "$server" || die "the server did not end well"
server=
note "no sandbox, no server"

printf '\n%s%s%s\n' "$bold" "Measured on this machine ($(nproc) cores)" "$off"
printf '  %-34s %8s s\n' "template base, $made" "$((build / 1000)).$((build % 1000 / 100))"
printf '  %-34s %8s ms\n' "create" "$create" "create's first command" "$first" "exec, each of $runs" "$each" "rm" "$remove"

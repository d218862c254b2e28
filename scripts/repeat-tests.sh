#!/bin/sh
# Run the tests several times, some of them beside busy loops, and list what ever failed, with the time of each run.
# Usage: scripts/repeat-tests.sh N [TEST ...]        the whole suite, or the tests that pytest is given
#   BUSY=3    so many runs beside busy loops (default: every other one);   LOAD=4   how many loops
#   FRESH=1   each run is `make test` in a fresh clone of the last commit, with an empty HOME
#   BIN=.venv/bin
# Exit code 1 when anything failed. What each run printed is kept in the folder that it names.
set -eu
cd "$(dirname "$0")/.."
count=${1:?usage: scripts/repeat-tests.sh N [TEST ...]}
shift
[ $# = 0 ] || [ -z "${FRESH:-}" ] || { echo "FRESH=1 runs the whole suite: name no tests" >&2; exit 2; }
here=$(pwd)
bin=${BIN:-$here/.venv/bin}
busy=${BUSY:-$((count / 2))}
kept=$(mktemp -d "${TMPDIR:-/tmp}/tbench-repeat.XXXXXX")
loops=
quiet() { [ -z "$loops" ] || { kill $loops 2>/dev/null; wait $loops 2>/dev/null; } || true; loops=; }
trap 'quiet; exit 130' INT TERM
trap quiet EXIT

load() {
    for _ in $(seq "${LOAD:-4}"); do
        sh -c 'while :; do :; done' &
        loops="$loops $!"
    done
}

run() {
    if [ -n "${FRESH:-}" ]; then
        git clone -q "$here" "$kept/clone" && mkdir "$kept/home" && HOME="$kept/home" make -C "$kept/clone" test
    elif [ $# = 0 ]; then
        sh scripts/tests.sh "$bin"
    else
        "$bin/python" -m pytest "$@"
    fi
}

number=0
bad=0
while [ $number -lt "$count" ]; do
    number=$((number + 1))
    beside=
    if [ $((number * busy / count)) -gt $(((number - 1) * busy / count)) ]; then
        load
        beside=", beside ${LOAD:-4} busy loops"
    fi
    began=$(date +%s)
    code=0
    run "$@" >"$kept/$number.log" 2>&1 || code=$?
    took=$(($(date +%s) - began))
    quiet
    rm -rf "$kept/clone" "$kept/home"
    [ $code = 0 ] || bad=$((bad + 1))
    counted=$(grep -E '^(=+ )?[0-9]+ (passed|failed|error)|no tests ran' "$kept/$number.log" | tail -n 1 | tr -d =)
    echo "$number: exit code $code, $took s$beside: ${counted:-see $kept/$number.log}"
done
echo "$bad of $count runs failed; what they printed: $kept"
sed -n 's/^\(FAILED\|ERROR\) \([^ ]*\).*/\2/p' "$kept"/*.log | sort | uniq -c | sort -rn
[ $bad = 0 ]

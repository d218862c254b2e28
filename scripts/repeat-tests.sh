#!/bin/sh
# Run the tests several times, every other time beside busy loops, and list what ever failed.
# Usage: scripts/repeat-tests.sh N [TEST ...]        the whole suite, or the tests that pytest is given
#   LOAD=4   busy loops beside every other run (0: none);   ALWAYS=1   beside each run;   BIN=.venv/bin
# Exit code 1 when anything failed. What each run printed is kept in the folder that it names.
set -eu
cd "$(dirname "$0")/.."
count=${1:?usage: scripts/repeat-tests.sh N [TEST ...]}
shift
bin=${BIN:-.venv/bin}
load=${LOAD:-4}
kept=$(mktemp -d "${TMPDIR:-/tmp}/tbench-repeat.XXXXXX")
loops=
quiet() { [ -z "$loops" ] || { kill $loops 2>/dev/null; wait $loops 2>/dev/null; } || true; loops=; }
trap 'quiet; exit 130' INT TERM
trap quiet EXIT

busy() {
    for _ in $(seq "$load"); do
        sh -c 'while :; do :; done' &
        loops="$loops $!"
    done
}

number=0
bad=0
while [ $number -lt "$count" ]; do
    number=$((number + 1))
    beside=
    if [ "$load" -gt 0 ] && { [ -n "${ALWAYS:-}" ] || [ $((number % 2)) = 0 ]; }; then
        busy
        beside=", beside $load busy loops"
    fi
    began=$(date +%s)
    code=0
    if [ $# = 0 ]; then sh scripts/tests.sh "$bin"; else "$bin/python" -m pytest "$@"; fi >"$kept/$number.log" 2>&1 || code=$?
    quiet
    [ $code = 0 ] || bad=$((bad + 1))
    counted=$(grep -E '^([0-9]+ failed, )?[0-9]+ passed|^[0-9]+ (failed|error)|no tests ran' "$kept/$number.log" | tail -n 1)
    echo "$number: exit code $code, $(($(date +%s) - began)) s$beside: ${counted:-see $kept/$number.log}"
done
echo "$bad of $count runs failed; what they printed: $kept"
sed -n 's/^\(FAILED\|ERROR\) \([^ ]*\).*/\2/p' "$kept"/*.log | sort | uniq -c | sort -rn
[ $bad = 0 ]

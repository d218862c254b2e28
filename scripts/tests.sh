#!/bin/sh
# Every check and test, once: the checks of the source beside the first tests, which leave half of the machine idle, and the
# tests side by side (tests/support/workers.py), three processes a core: most real runs wait for something. The tests run even
# if a check fails.
# FAST=1 leaves out the tests that run end to end. At the end: what each part took.
set -eu
began=$(date +%s)
bin=${1:-.venv/bin}
workers=$("$bin/python" -c 'import os; print(3 * len(os.sched_getaffinity(0)))')
said=$(mktemp)
trap 'rm -f "$said"' EXIT

# What tests write stays in memory where enough is free, and programs may be run from there: they write less than a tenth of
# it, and then no test waits for a disk. What tests that failed leave is there until the next run.
memory="/dev/shm/tbench$(id -u)"
# An ordinary user's sandboxes leave files of its subordinate ids, and folders without rights to write.
gone() {
    { chmod -R u+rwX "$1"; rm -rf "$1" || PATH=/usr/bin:/bin unshare --map-root-user --map-auto rm -rf "$1"; } 2>/dev/null || true
}
for old in "$memory".*; do
    [ -d "/proc/${old##*.}" ] || gone "$old"
done
base=
enough=8000000
free=$(sed -n 's/^MemAvailable: *\([0-9]*\) kB/\1/p' /proc/meminfo)
room=$(df -Pk /dev/shm 2>/dev/null | awk 'NR == 2 { print $4 }')
if [ "${free:-0}" -gt $enough ] && [ "${room:-0}" -gt $enough ] && ! grep -q ' /dev/shm .*noexec' /proc/mounts; then
    export TMPDIR="$memory.$$"
    mkdir -m 1777 "$TMPDIR"
    base="--basetemp=$TMPDIR/t"  # short: some tables hold paths
fi

# What many tests load is compiled, once, by another processor than the one that collects them.
compiled=$(find "$bin/../lib" -path '*/litellm/__pycache__/*' -print -quit 2>/dev/null || true)
load='import importlib, support.forks as forks; from terminalbench.harbor.load import load; load(); [importlib.import_module(name) for name in (*forks.LOADED, *forks.LARGE)]'

checks() {
    failed=0
    [ -n "${FAST:-}$compiled" ] || LITELLM_LOCAL_MODEL_COST_MAP=True PYTHONPATH=tests "$bin/python" -c "$load" || failed=1
    for check in "ruff format --check ." "ruff check ." "ty check --quiet" "lint-imports --no-cache"; do
        echo "$check"
        # shellcheck disable=SC2086
        "$bin"/$check || failed=1
    done
    echo "checks: $(($(date +%s) - began)) s, beside the tests"
    return $failed
}

# Changed modules are compiled: the processes beside a sandbox would compile them at each start, for they write nothing.
"$bin/python" -m compileall -q -x starter/tasks src/terminalbench || true

checks=0 tests=0
checks >"$said" 2>&1 &
# shellcheck disable=SC2086
"$bin/python" -m pytest --workers "$workers" $base ${FAST:+--fast} || tests=$?
tested=$(date +%s)
wait $! || checks=$?
cat "$said"
echo "tests: $((tested - began)) s by $workers processes; all: $(($(date +%s) - began)) s"
[ "$tests" != 0 ] || gone "$memory.$$"
[ "$checks$tests" = 00 ] || { echo "failed (exit codes: checks $checks, tests $tests)" >&2; exit 1; }

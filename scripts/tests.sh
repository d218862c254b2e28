#!/bin/sh
# Every check and test, once: the checks of the source beside the first tests, which leave half of the machine idle, and the
# tests side by side (tests/support/workers.py), three processes a core: most real runs wait for something. The tests run even
# if a check fails.
set -eu
bin=${1:-.venv/bin}
workers=$("$bin/python" -c 'import os; print(3 * len(os.sched_getaffinity(0)))')
said=$(mktemp)
trap 'rm -f "$said"' EXIT

checks() {
    failed=0
    for check in "ruff format --check ." "ruff check ." "ty check --quiet" "lint-imports --no-cache"; do
        echo "$check"
        # shellcheck disable=SC2086
        "$bin"/$check || failed=1
    done
    return $failed
}

# Changed modules are compiled: the processes beside a sandbox would compile them at each start, for they write nothing.
"$bin/python" -m compileall -q -x starter/tasks src/terminalbench || true

checks=0 tests=0
checks >"$said" 2>&1 &
"$bin/python" -m pytest --workers "$workers" || tests=$?
wait $! || checks=$?
cat "$said"
[ "$checks$tests" = 00 ] || { echo "failed (exit codes: checks $checks, tests $tests)" >&2; exit 1; }

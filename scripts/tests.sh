#!/bin/sh
# Every check and test, once: the heavy tests first (those of one user in one process, see tests/sandbox), and beside them,
# because they leave half of the machine idle, the checks of the source and one collection, which compiles all tests. Then the
# rest side by side, three processes a core: most real runs wait for something. The tests run even if a check fails.
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
    "$bin/python" -m pytest -qq --collect-only -m "not heavy" >/dev/null 2>&1 || true # what is wrong is said below
    return $failed
}

# Changed modules are compiled: the processes beside a sandbox would compile them at each start, for they write nothing.
"$bin/python" -m compileall -q -x starter/tasks src/terminalbench || true

checks=0 heavy=0 rest=0
checks >"$said" 2>&1 &
"$bin/python" -m pytest tests/sandbox -m heavy -n 2 --dist loadgroup || heavy=$?
wait $! || checks=$?
cat "$said"
"$bin/python" -m pytest -m "not heavy" -n "$workers" --dist worksteal || rest=$?
[ "$checks$heavy$rest" = 000 ] || { echo "failed (exit codes: checks $checks, heavy tests $heavy, others $rest)" >&2; exit 1; }

#!/bin/sh
# Every test, once: the heavy ones first (those of one user in one process, see tests/sandbox), then the rest side by
# side, two processes a core: most real runs wait for something. Both parts run, whatever fails in one.
set -eu
python=${1:-.venv/bin/python}
workers=$("$python" -c 'import os; print(2 * len(os.sched_getaffinity(0)))')
heavy=0 rest=0
"$python" -m pytest tests/sandbox -m heavy -n 2 --dist loadgroup || heavy=$?
"$python" -m pytest -m "not heavy" -n "$workers" --dist worksteal || rest=$?
[ "$heavy" -eq 0 ] && [ "$rest" -eq 0 ] || { echo "tests failed (exit codes: heavy $heavy, rest $rest)" >&2; exit 1; }

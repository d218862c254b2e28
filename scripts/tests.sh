#!/bin/sh
# Every test: the heavy ones first, one at a time, then the rest side by side. What fails beside others gets one second
# try by itself, at the end: hundreds of real runs share the machine here, and a test that needs a quiet one is unsteady,
# not red. The first failure stays in the output, and is a fault of the test to be mended. More than FEW are no accident.
set -eu
python=${1:-.venv/bin/python}
FEW=3

# part NAME [OPTION...]: run a part of the tests; its exit code is left in $code, what failed in its own cache.
part() {
  cache=.pytest_cache/$1
  shift
  code=0
  "$python" -m pytest -o cache_dir="$cache" --cache-clear "$@" || code=$?
}

# again NAME CODE: what failed in a part, once more; fails if it fails again, or if too much failed.
again() {
  [ "$2" -ne 0 ] || return 0
  [ "$2" -eq 1 ] || return "$2"
  failed=.pytest_cache/$1/v/cache/lastfailed
  [ "$(grep -c '": true' "$failed")" -le $FEW ] || return 1
  echo "these failed; once more, by themselves:"
  grep '": true' "$failed"
  "$python" -m pytest -o cache_dir=".pytest_cache/$1" --last-failed --last-failed-no-failures none
}

part heavy -m heavy
heavy=$code
part rest -m "not heavy" -n auto --dist worksteal
rest=$code
result=0
again heavy "$heavy" || result=$?
again rest "$rest" || result=$?
[ "$result" -eq 0 ] || echo "tests failed (exit codes: heavy $heavy, rest $rest)" >&2
exit "$result"

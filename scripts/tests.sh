#!/bin/sh
# Every test: the heavy ones first, one at a time, then the rest side by side. What fails beside others gets one second
# try by itself: hundreds of real runs share the machine here, and a test that needs a quiet one is unsteady, not red.
# The first failure stays in the output, and is a fault of the test to be mended. More than FEW failures are no accident.
set -eu
python=${1:-.venv/bin/python}
FEW=3
failed=.pytest_cache/v/cache/lastfailed

second_try() {
  [ "$1" -eq 1 ] || exit "$1"
  [ "$(grep -c '": true' "$failed")" -le $FEW ] || exit 1
  echo "these failed; once more, by themselves:"
  grep '": true' "$failed"
  "$python" -m pytest --last-failed --last-failed-no-failures none
}

"$python" -m pytest -m heavy --cache-clear || second_try $?
"$python" -m pytest -m "not heavy" --cache-clear -n auto --dist worksteal || second_try $?

#!/bin/sh
# Make a ready virtual environment: find Python >= 3.12, install what was locked with hashes, install the project.
# Usage: scripts/setup.sh VENV [all|run]        A second run with nothing changed does nothing.
# `run` is what a run needs (requirements.lock); `all`, the default, what the checks need too, added to what is there.
set -eu
venv=${1:-.venv}
kind=${2:-all}
case $kind in all | run) ;; *) echo "setup: $kind is neither all nor run" >&2 && exit 2 ;; esac
wanted='import sys; sys.exit(not ((3, 12) <= sys.version_info[:2] < (3, 15)))'

fingerprint() { cat requirements.lock requirements-dev.lock pyproject.toml src/terminalbench/version.py requirements-uv.lock scripts/wheels.sh "$0" | cksum | cut -d' ' -f1; }
works() { [ -n "$1" ] && "$1" -c "$wanted" >/dev/null 2>&1; }

# One at a time: a second `make` waits, and finds what the first has made.
if command -v flock >/dev/null 2>&1; then
    exec 8>"$venv.lock"
    flock 8
fi
print="$(pwd) $(fingerprint)"
ready=$(cat "$venv/.ready" 2>/dev/null || true)
works "$venv/bin/python" || ready=
if [ "$ready" = "$print all" ] || [ "$ready" = "$print $kind" ]; then
    exit 0
fi

# What is to be installed. To install the project itself, a run needs its build tools too: those that the checks have.
lock=$(mktemp)
trap 'rm -f "$lock"' EXIT
if [ "$kind" = all ]; then
    cat requirements-dev.lock >"$lock"
else
    awk 'FNR == NR { print; if (/==/) held[$1] = 1; next }
        /^[^ ]/ { tool = /^(editables|hatchling|packaging|pathspec|pluggy|trove-classifiers)==/ && !held[$1] }
        tool' requirements.lock requirements-dev.lock >"$lock"
fi

candidates() {
    [ -z "${PYTHON:-}" ] || command -v "$PYTHON" || true
    for name in python3.13 python3.12 python3.14 python3 python; do command -v "$name" || true; done
    # pyenv's shims may refuse to run a version that is installed: look into its version folders.
    roots="${PYENV_ROOT:-} ${HOME:-}/.pyenv"
    for name in python3 python; do
        prefix=$("$name" -c 'import sys; print(sys.base_prefix)' 2>/dev/null) && roots="$roots $prefix/../.." || true
    done
    for root in $roots; do
        for version in 3.13 3.12 3.14; do
            for path in "$root"/versions/"$version"*/bin/python; do [ -x "$path" ] && echo "$path"; done
        done
    done
    return 0
}

find_python() {
    candidates | while read -r path; do
        if works "$path"; then echo "$path"; break; fi
    done
}

. scripts/wheels.sh

if [ "$ready" = "$print run" ]; then
    echo "setup: adding what the checks need to $venv" >&2
    rm -f "$venv/.ready"
    uv=$(find_uv | tail -n 1)
else
    python=$(find_python)
    if [ -z "$python" ]; then
        echo "setup: no Python 3.12 to 3.14 here; getting 3.13 through uv" >&2
        uv=$(find_uv | tail -n 1)
        if [ -z "$uv" ] || ! "$uv" python install 3.13 >&2; then
            echo "setup: could not get a Python. Install Python 3.12 or newer and run: make PYTHON=/path/to/python3.13 setup" >&2
            exit 1
        fi
        python=$("$uv" python find 3.13)
    fi

    echo "setup: $("$python" --version) in $venv" >&2
    rm -f "$venv/.ready"  # first: what is removed halfway is not ready
    rm -rf "$venv"
    uv=$(find_uv | tail -n 1)
    if [ -z "$uv" ] || ! "$uv" venv --quiet --seed --python "$python" "$venv"; then
        rm -rf "$venv"
        "$python" -m venv "$venv"
    fi
fi
echo "setup: installing $(grep -c '==' "$lock") pinned packages" >&2
# pip where uv cannot be had, or cannot reach what pip is configured for.
if [ -z "$uv" ] || ! "$uv" pip install -q --python "$venv/bin/python" --require-hashes -r "$lock"; then
    echo "setup: uv could not; pip installs them, which takes longer" >&2
    "$venv/bin/python" -m pip install -qq --disable-pip-version-check --require-hashes -r "$lock"
fi
"$venv/bin/python" -m pip install -qq --disable-pip-version-check --no-deps --no-build-isolation -e .
"$venv/bin/python" -m compileall -q -x 'starter/tasks' src/terminalbench || true
echo "$print $kind" >"$venv/.ready.new"
mv "$venv/.ready.new" "$venv/.ready"

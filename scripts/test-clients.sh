#!/bin/sh
# What the end-to-end tests use besides Python: the real Claude Code CLI (npm, pinned) and tmux. A no-op when it is there.
set -eu
lock=tests/clients/package-lock.json
mark=tests/clients/node_modules/.installed
if [ "$(cat "$mark" 2>/dev/null || true)" != "$(cksum <"$lock")" ]; then
    if command -v npm >/dev/null 2>&1; then
        echo "setup: installing the pinned test clients (npm)" >&2
        npm ci --prefix tests/clients --ignore-scripts --no-audit --no-fund --silent
        cksum <"$lock" >"$mark"
    else
        echo "setup: no npm here: the tests with the real Claude Code CLI will fail; install Node.js" >&2
    fi
fi
if [ ! -x /usr/bin/tmux ] && [ ! -x /bin/tmux ]; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
        echo "setup: installing tmux (Debian)" >&2
        { apt-get install -y -qq tmux || { apt-get update -qq && apt-get install -y -qq tmux; }; } >/dev/null 2>&1 ||
            echo "setup: tmux could not be installed; the Terminus-2 tests will fail" >&2
    else
        echo "setup: no tmux here: the Terminus-2 tests will fail; install the package tmux" >&2
    fi
fi

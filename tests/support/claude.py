"""The pinned Claude Code CLI of tests/clients."""

import platform
from pathlib import Path

import pytest


def claude_binary() -> Path:
    """The CLI; its absence is a failure, not a reason to skip."""
    machine = {"x86_64": "x64", "aarch64": "arm64"}[platform.machine()]
    clients = Path(__file__).parents[1] / "clients"
    binary = clients / "node_modules" / "@anthropic-ai" / f"claude-code-linux-{machine}" / "claude"
    if not binary.is_file():
        pytest.fail("no Claude Code client; run: npm ci --prefix tests/clients --ignore-scripts")
    return binary

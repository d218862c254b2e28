"""Whether an agent that Harbor installs inside the environment can be installed there, as far as it can be told before.

In the local sandbox an agent's program is either in the host's system folders, mounted in, or fetched by its
installer. Without the installer's host every trial would break in its set-up.
"""

import shutil
import socket
from collections.abc import Sequence
from typing import Any

LOCAL_SANDBOX = "terminalbench.sandbox.environment:LocalSandbox"
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

INSTALLERS = {
    "aider": ("aider", "aider.chat"),
    "claude-code": ("claude", "downloads.claude.ai"),
    "cline-cli": ("cline", "raw.githubusercontent.com"),
    "codex": ("codex", "raw.githubusercontent.com"),
    "copilot-cli": ("copilot", "gh.io"),
    "cursor-cli": ("cursor-agent", "cursor.com"),
    "gemini-cli": ("gemini", "raw.githubusercontent.com"),
    "goose": ("goose", "github.com"),
    "grok-build": ("grok", "x.ai"),
    "hermes": ("hermes", "raw.githubusercontent.com"),
    "kimi-cli": ("kimi", "astral.sh"),
    "kimi-code": ("kimi", "raw.githubusercontent.com"),
    "mini-swe-agent": ("mini-swe-agent", "astral.sh"),
    "opencode": ("opencode", "raw.githubusercontent.com"),
    "openhands": ("openhands", "astral.sh"),
    "openhands-sdk": ("openhands", "astral.sh"),
    "pi": ("pi", "raw.githubusercontent.com"),
    "qwen-coder": ("qwen", "raw.githubusercontent.com"),
    "strands": ("strands", "astral.sh"),
    "swe-agent": ("sweagent", "astral.sh"),
    "trae-agent": ("trae-cli", "astral.sh"),
    "vibe": ("vibe", "astral.sh"),
}
"""Agent, then its program and the host its installer starts from (Harbor 0.24)."""


def not_installable(agent: str, environment: dict[str, Any], arguments: Sequence[str]) -> str | None:
    """Why the agent cannot be installed in this environment, or None when it can or cannot be told."""
    if environment.get("import_path") != LOCAL_SANDBOX or agent not in INSTALLERS:
        return None
    program, host = INSTALLERS[agent]
    mounted = any(f"/{program}" in text for text in (str(environment.get("mounts") or ""), *arguments))
    if mounted or shutil.which(program, path=SYSTEM_PATH) or _resolves(host):
        return None
    return (
        f"{agent} cannot be installed in the local sandbox: {host} cannot be reached, and no program {program} is in "
        f"{SYSTEM_PATH.replace(':', ', ')} or mounted (docs/claude-code.md shows how to mount one)"
    )


def _resolves(host: str) -> bool:
    try:
        socket.getaddrinfo(host, 443)
    except OSError:
        return False
    return True

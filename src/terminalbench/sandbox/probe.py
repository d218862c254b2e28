"""Can this machine run the local sandbox, and if not, what is missing and what to do about it.

`probe` does not guess: it starts a sandbox. Only when that fails does it look for the reason (`obstacles`).
"""

import asyncio
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from terminalbench.errors import TbenchError
from terminalbench.sandbox import helper
from terminalbench.sandbox.errors import SandboxError
from terminalbench.sandbox.handover import confinement
from terminalbench.sandbox.obstacles import HostFacts, obstacles
from terminalbench.sandbox.plan import SandboxPlan, limits_for
from terminalbench.sandbox.root_filesystem import HOST, open_base
from terminalbench.sandbox.session import Sandbox

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
    machine = HostFacts()
    if not sys.platform.startswith("linux"):
        return _cannot(f"it needs Linux, but this is {sys.platform} ({machine.elsewhere})")
    try:
        helper.find_bwrap()
    except SandboxError as error:
        return _cannot(str(error))
    try:
        # Harbor calls its preflight from inside an event loop; a thread of its own works in both cases.
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(lambda: asyncio.run(_try())).result(timeout=120)
    except (TbenchError, OSError, TimeoutError) as error:
        return _cannot(*obstacles(), f"starting one failed: {error} (see docs/sandbox.md, or {machine.elsewhere})")


def _cannot(*reasons: str) -> Probe:
    return Probe(False, ["the local sandbox cannot work here:", *(f"  {reason}" for reason in reasons)])


def limit_notes(limits_by: Mapping[str, str], machine: HostFacts) -> tuple[str, ...]:
    """Return what is to be said of limits that are watched, where no control group holds them."""
    watched = [name for name in ("memory", "pids") if limits_by[name].startswith("watch")]
    notes = []
    if watched:
        what = " and ".join({"memory": "memory", "pids": "processes"}[name] for name in watched)
        ways = ["run as root"] if machine.uid else []
        if machine.has("systemd-run") and machine.exists(f"/run/user/{machine.uid}/systemd"):
            ways.append("systemd-run --user --scope -p Delegate=yes tbench ...")
        step = f" ({', or: '.join(ways)})" if ways else ""
        notes.append(
            f"control groups cannot be created here: limits of {what} are only monitored, and can be exceeded "
            f"briefly{step}"
        )
    if "without sockets" in limits_by["memory"]:
        notes.append("this kernel does not report socket buffers, so the memory limit does not cover them")
    return tuple(notes)


def user_notes(ids: str, machine: HostFacts, *, confined: bool) -> tuple[str, ...]:
    """Return what is to be said of users: of one single id, and of programs that tests run as the user of the tests."""
    notes = []
    if not confined:
        ways = [*(["run as root"] if machine.uid else []), _more_ids(machine)]
        step = ", or ".join(ways)
        notes.append(
            f"neither Landlock nor a second user is available, so a program that tests run can write the "
            f"reward ({step})"
        )
    if ids == "one":
        what = "files of other users of a task belong to root, and programs that refuse to run as root do not run"
        notes.append(f"only one user id is available: {what} ({_more_ids(machine)})")
    return tuple(notes)


def _more_ids(machine: HostFacts) -> str:
    """The next step to subordinate ids: the programs that give them first, then the ids."""
    if not machine.has("newuidmap"):
        packages = {"apt-get": "uidmap", "dnf": "shadow-utils", "apk": "shadow-uidmap", "pacman": "shadow"}
        manager = next((name for name in packages if machine.has(name)), None)
        verb = {"apk": "add", "pacman": "-S"}.get(manager or "", "install")
        return (
            machine.as_root(f"{manager} {verb} {packages[manager]}") if manager else "install newuidmap and newgidmap"
        )
    if machine.has("usermod"):
        return machine.as_root("usermod --add-subuids 100000-165535 --add-subgids 100000-165535 $USER")
    return "as root: add a line USER:100000:65536 to /etc/subuid and to /etc/subgid"


async def _try() -> Probe:
    """Return what a sandbox that works has."""
    server = helper.helper()
    plan = SandboxPlan(open_base(HOST, server.ids), limits_for(256, 64, 1, scratch="memory"))
    sandbox = await Sandbox.start(plan)
    try:
        done = await sandbox.run(["/bin/sh", "-c", "echo works > /tmp/works && cat /tmp/works"], env={}, timeout_sec=30)
        if done.stdout.strip() != "works":
            raise OSError(f"the first command ended with {done.exit_code}: {done.stderr.strip()}")
        enforced = ", ".join(f"{name} by {by}" for name, by in sorted(sandbox.limits_by.items()))
        line = f"the local sandbox works: {_USERS[server.ids]}; {enforced}; files in {sandbox.scratch}"
        machine = HostFacts()
        users = user_notes(server.ids, machine, confined=confinement() is not None)
        return Probe(True, [line], (*limit_notes(sandbox.limits_by, machine), *users))
    finally:
        await sandbox.stop()

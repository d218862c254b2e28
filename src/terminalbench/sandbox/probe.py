"""Can this machine run the local sandbox, and if not, what is missing and what to do about it.

`probe` does not guess: it starts a sandbox. Only when that fails does it look for the reason (`obstacles`): the
steps of a start are tried (`engine.steps`), and the settings and programs of the machine say what refused them.
"""

import asyncio
import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from terminalbench.errors import TbenchError
from terminalbench.sandbox import helper
from terminalbench.sandbox.engine import steps
from terminalbench.sandbox.engine.steps import StepRefusal
from terminalbench.sandbox.errors import SandboxError
from terminalbench.sandbox.helper import confinement
from terminalbench.sandbox.plan import SandboxPlan, limits_for
from terminalbench.sandbox.root_filesystem import HOST, open_base
from terminalbench.sandbox.session import Sandbox

_USERS = {"all": "all user ids", "range": "root and subordinate ids", "one": "one user id, root"}

_PATIENCE_SEC = 60
_OLDEST_LINUX = (5, 11)
_APPARMOR = "kernel.apparmor_restrict_unprivileged_userns"
_CLONE = "kernel.unprivileged_userns_clone"
_DENIED = (errno.EPERM, errno.EACCES)
_LIMITED = (errno.ENOSPC, errno.EUSERS)
_WHAT = {
    steps.USER: "user namespaces",
    steps.MAP: "the ids of a user namespace",
    steps.MOUNT: "mounts",
    steps.OVERLAY: "overlay file systems",
    steps.PROC: "a /proc of its own",
}
_UNLOCKED = {
    "docker": {"seccomp": "seccomp=unconfined", "apparmor": "apparmor=unconfined", "proc": "systempaths=unconfined"},
    "podman": {"seccomp": "seccomp=unconfined", "apparmor": "apparmor=unconfined", "proc": "unmask=ALL"},
    "kubernetes": {
        "seccomp": "seccompProfile: {type: Unconfined}",
        "apparmor": "appArmorProfile: {type: Unconfined}",
        "proc": "procMount: Unmasked",
    },
}


class ContainerKind(StrEnum):
    """What runs the container that this process is in."""

    DOCKER = "docker"
    PODMAN = "podman"
    KUBERNETES = "kubernetes"


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text(errors="replace").strip()
    except OSError:
        return None


@dataclass(frozen=True)
class HostFacts:
    """What a machine tells of itself; the readers are those of this one unless they are given."""

    read: Callable[[str], str | None] = _read
    has: Callable[[str], bool] = lambda program: shutil.which(program) is not None
    exists: Callable[[str], bool] = os.path.exists
    writable: Callable[[str], bool] = lambda path: os.access(path, os.W_OK)
    uid: int = field(default_factory=os.geteuid)
    release: str = field(default_factory=lambda: os.uname().release)

    def setting(self, name: str) -> str | None:
        """The value of a kernel setting; None where there is none of this name."""
        return self.read(f"/proc/sys/{name.replace('.', '/')}")

    @property
    def container(self) -> ContainerKind | None:
        """The container that this process is in; None where no sign of one is seen."""
        if self.read("/var/run/secrets/kubernetes.io/serviceaccount/namespace") or "kubepods" in self._groups:
            return ContainerKind.KUBERNETES
        if self.exists("/run/.containerenv"):
            return ContainerKind.PODMAN
        return ContainerKind.DOCKER if self.exists("/.dockerenv") else None

    @property
    def _groups(self) -> str:
        return self.read("/proc/1/cgroup") or ""

    @property
    def filtered(self) -> bool:
        """Return whether a filter of system calls is on this process."""
        return any(line.split() == ["Seccomp:", "2"] for line in (self.read("/proc/self/status") or "").splitlines())

    @property
    def profile(self) -> str | None:
        """The AppArmor profile that is enforced on this process."""
        name, mode, _ = (self.read("/proc/self/attr/current") or "").partition(" (enforce)")
        return name if mode else None

    @property
    def masks_proc(self) -> bool:
        """Return whether something is mounted over a part of /proc: the kernel then gives out no whole one."""
        mounts = (line.split() for line in (self.read("/proc/self/mountinfo") or "").splitlines())
        return any(len(fields) > 4 and fields[4].startswith("/proc/") for fields in mounts)

    def set_to(self, name: str, value: int) -> str:
        """Return how to give a kernel setting that exists another value."""
        command, path = f"sysctl -w {name}={value}", f"/proc/sys/{name.replace('.', '/')}"
        if self.container is not None and not self.writable(path):
            return f"on the host, as root: {command}"
        return self.as_root(command) if self.has("sysctl") else f"as root: echo {value} > {path}"

    def as_root(self, command: str) -> str:
        """Return how this user runs a command that only root may."""
        if self.uid == 0:
            return command
        return f"sudo {command}" if self.has("sudo") else f"as root: {command}"

    def unlocked(self, *locks: str) -> str:
        """Return how to start the container that this is without some of what it forbids."""
        assert self.container is not None
        words = [_UNLOCKED[self.container][lock] for lock in locks]
        if self.container is ContainerKind.KUBERNETES:
            return f"in the securityContext of the container: {', '.join(words)}; or privileged: true"
        return f"start the container with {' '.join(f'--security-opt {word}' for word in words)}, or with --privileged"

    @property
    def elsewhere(self) -> str:
        """Return where the trials can run without this sandbox."""
        if self.has("docker"):
            return 'use container_env = "docker"'
        return "run the trials elsewhere: docs/sandboxes-elsewhere.md"


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


def obstacles(machine: HostFacts | None = None) -> list[str]:
    """The reasons why no sandbox can start here, a line each, with the next step."""
    machine = machine or HostFacts()
    return [*_too_old(machine), *causes(_refused(), machine)]


def causes(refused: Iterable[StepRefusal], machine: HostFacts) -> list[str]:
    """Return what refused each step, a line each; steps that one thing refused are one line."""
    return list(dict.fromkeys(_cause(refusal, machine) for refusal in refused))


def _too_old(machine: HostFacts) -> Iterator[str]:
    numbers = machine.release.split("-")[0].split(".")
    if tuple(int(part) for part in numbers[:2] if part.isdigit()) < _OLDEST_LINUX:
        yield f"Linux {machine.release} is too old: overlays without root need 5.11 (upgrade)"


def _refused() -> list[StepRefusal]:
    """The steps that this machine refuses. Python with nothing of its environment: nothing but the kernel counts."""
    command = helper.isolated("terminalbench.sandbox.engine.steps")
    try:
        done = subprocess.run(
            command, capture_output=True, timeout=_PATIENCE_SEC, check=False, start_new_session=True, env={}
        )
        return [StepRefusal(*one) for one in json.loads(done.stdout)]
    except (OSError, subprocess.TimeoutExpired, ValueError):
        return []  # what failed is said beside these


def _cause(refusal: StepRefusal, machine: HostFacts) -> str:
    if refusal.errno in _LIMITED and (refusal.step == steps.USER or refusal.step in steps.NAMESPACES):
        return _limited(refusal, machine)
    if refusal.step == steps.USER and machine.read("/proc/self/uid_map") is None:
        return _line("the kernel has no user namespaces", refusal, "use a kernel with CONFIG_USER_NS")
    if refusal.step == steps.OVERLAY and refusal.errno == errno.ENODEV:
        return _without_overlays(refusal, machine)
    if refusal.errno in (*_DENIED, errno.ENOSYS, None):
        return _denied(refusal, machine)
    return _unknown(refusal, machine)


def _limited(refusal: StepRefusal, machine: HostFacts) -> str:
    """A limit on the number of namespaces, which may be zero; each namespace around this one has its own."""
    kind, name = refusal.step, f"user.max_{refusal.step}_namespaces"
    limit = machine.setting(name)
    if limit == "0":
        return _line(f"{kind} namespaces are switched off: {name} is 0", refusal, machine.set_to(name, 10000))
    what = f"no more {kind} namespaces may be made: {name} is {limit or 'unknown'}, and a limit of a namespace around"
    other = ", or a filter of system calls (seccomp) says so" if machine.filtered else ""
    step = "raise it on the host, or start fewer at once" if machine.container else "raise it, or start fewer at once"
    return _line(f"{what} this one may be lower{other}", refusal, step)


def _without_overlays(refusal: StepRefusal, machine: HostFacts) -> str:
    if machine.container is not None:
        step = "on the host, as root: modprobe overlay"
    elif machine.has("modprobe"):
        step = machine.as_root("modprobe overlay")
    else:
        step = "use a kernel with CONFIG_OVERLAY_FS"
    return _line("the kernel offers no overlay file systems", refusal, step)


def _denied(refusal: StepRefusal, machine: HostFacts) -> str:
    """Something says no: the first that is known to be set here, by how closely it fits the step."""
    step, ordinary = refusal.step, machine.uid != 0
    mounting = step in (steps.MOUNT, steps.OVERLAY, steps.PROC)
    said_no = refusal.errno in _DENIED
    if said_no and step == steps.USER and ordinary and machine.setting(_CLONE) == "0":
        what = f"user namespaces are for root only: {_CLONE} is 0"
        return _line(what, refusal, f"{machine.set_to(_CLONE, 1)}, or run as root")
    if said_no and ordinary and machine.setting(_APPARMOR) == "1":
        what = f"AppArmor forbids user namespaces to ordinary users: {_APPARMOR} is 1"
        return _line(what, None, f"{machine.set_to(_APPARMOR, 0)}, or run as root")
    if said_no and step == steps.MAP and "newuidmap" in refusal.text:
        return _line(refusal.text.partition("] ")[2], None, "correct this user's entries in both files")
    if said_no and step == steps.PROC and machine.masks_proc:
        return _line("parts of /proc are hidden, so the kernel mounts no other one", refusal, _unmask(machine))
    locks = [*(["apparmor"] if mounting and machine.profile else []), *(["seccomp"] if machine.filtered else [])]
    if locks:
        return _locked(refusal, machine, locks)
    return _unknown(refusal, machine)


def _unmask(machine: HostFacts) -> str:
    return machine.unlocked("proc") if machine.container is not None else "unmount what covers them"


def _locked(refusal: StepRefusal, machine: HostFacts, locks: list[str]) -> str:
    names = {"apparmor": f"the AppArmor profile {machine.profile}", "seccomp": "a filter of system calls (seccomp)"}
    where = " of this container" if machine.container is not None else ""
    what = f"{' or '.join(names[lock] for lock in locks)}{where} forbids {_thing(refusal.step)}"
    if machine.container is not None:
        return _line(what, refusal, machine.unlocked(*locks))
    return _line(what, refusal, "start outside of it: a service manager or another sandbox may have set the filter")


def _unknown(refusal: StepRefusal, machine: HostFacts) -> str:
    where = "this container" if machine.container is not None else "the kernel"
    text = refusal.text.partition("] ")[2] or refusal.text
    return _line(
        f"{where} refuses {_thing(refusal.step)}, and none of the known reasons is seen: {text}", refusal, None
    )


def _thing(step: str) -> str:
    return _WHAT.get(step) or f"{step} namespaces"


def _line(what: str, refusal: StepRefusal | None, step: str | None) -> str:
    """A cause, what the kernel said, and the next step."""
    said = ""
    if refusal is not None:
        number = refusal.errno
        known = f"{errno.errorcode.get(number, number)}, {os.strerror(number)}" if number is not None else refusal.text
        said = f" [{known}]"
    return f"{what}{said}" + (f" ({step})" if step else "")

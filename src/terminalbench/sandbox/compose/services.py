"""The services of a trial at work: each in a sandbox of its own, all in one private network."""

import asyncio
import contextlib
import dataclasses
import hashlib
import io
import os
import re
import shutil
import tarfile
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import msgspec

from terminalbench.sandbox import cache, helper, transfer
from terminalbench.sandbox.answers import CommandResult, LimitCounts, OnOutput
from terminalbench.sandbox.builds.layers import BuiltImage
from terminalbench.sandbox.compose import MAIN
from terminalbench.sandbox.compose.project import COMPLETED, HEALTHY, RESTARTS, Project, Service, volume_of
from terminalbench.sandbox.errors import SandboxError
from terminalbench.sandbox.images.manifest import HealthCheck
from terminalbench.sandbox.network.client import EgressWay
from terminalbench.sandbox.network.policy import EgressPolicy
from terminalbench.sandbox.plan import (
    DEFAULT_SHARED_MB,
    MEGABYTE,
    Bind,
    Certificates,
    SandboxPlan,
    Seat,
    limits_for,
    seat_address,
)
from terminalbench.sandbox.session import Sandbox
from terminalbench.sandbox.system import is_system

Check = Callable[[Sequence[str], float], Awaitable[CommandResult]]
"""Runs a command, within so many seconds."""

LOGS = "services"
"""The folder of a trial that keeps what its services wrote."""
_MOST_LOG_BYTES = 4 << 20
_MOST_SEED_BYTES = 1 << 32
_NANOSECONDS = 10**9
_INTERVAL_SEC, _TIMEOUT_SEC, _RETRIES = 30.0, 30.0, 3
_LOOK_SEC = 0.5
_RESTART_SEC = 1.0
_SETTLE_SEC = 1.0
"""How long a service without a check must have run to count as started."""
_SHORT_SEC = 30.0
_LAST_LINES, _LAST_CHARS = 3, 200
_WAITS = re.compile(r"(?:(?:/bin/)?(?:ba)?sh -l?c )?(?:exec )?(?:sleep infinity|tail -[fF] /dev/null);?")
"""What a service runs that only has to be there."""


@dataclass(frozen=True)
class ServiceSurroundings:
    """What a trial gives to its services: where its files are, where writes go, whose certificates are trusted.

    `way` makes the way out of another sandbox; None where there is none. `note` is called with what should be known.
    """

    trial_dir: Path
    scratch: str
    storage_mb: int
    certificates: Certificates
    way: Callable[[], EgressWay | None]
    note: Callable[[str], None]


@dataclass
class _RunningService:
    """A service that was started: its sandbox, the command that it is, and how that ended."""

    service: Service
    sandbox: Sandbox
    log: "_ServiceLog"
    work: asyncio.Task[None] | None = None
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    exit_code: int | None = None
    healthy: bool = False
    began: float = 0.0
    seen: LimitCounts = field(default_factory=LimitCounts)


class TrialServices:
    """The services of one trial and the network that they share with its main sandbox."""

    def __init__(self, project: Project, built: Mapping[str, BuiltImage], given: ServiceSurroundings) -> None:
        self._project, self._built, self._given = project, built, given
        self._running: dict[str, _RunningService] = {}
        self._hub: int | None = None
        self._volumes: dict[str, Path] = {}
        self._mounted: list[Path] = []
        self._claimed: cache.ClaimedFolder | None = None

    # Life

    async def open(self) -> None:
        """Make what they share: the network, and volumes that several of them see."""
        server = helper.running() or await asyncio.to_thread(helper.helper)
        with server.request({"op": "lan"}) as reply:
            answer, opened = await helper.receive(reply)
        if answer is None or "error" in answer or len(opened) != 1:
            said = (answer or {}).get("error", "no answer")
            raise SandboxError(f"this kernel gives the services of a trial no network of their own: {said}")
        self._hub = opened[0]
        for number, name in enumerate(sorted(self._project.shared_volumes())):
            if self._claimed is None:
                self._claimed = cache.claim("volumes")
            folder = self._claimed.folder / str(number)
            folder.mkdir()
            folder.chmod(0o755)
            if self._given.scratch == "memory":  # bounded as the files of a sandbox are
                size = {"bytes": self._given.storage_mb * MEGABYTE, "files": self._given.storage_mb * 64}
                await asyncio.to_thread(server.ask, {"op": "mount", "path": str(folder), **size})
                self._mounted.append(folder)
            self._volumes[name] = folder
            await self._seed(name, folder)

    def volumes(self, name: str) -> tuple[Path, ...]:
        """Return the folders on this machine's disk that a service shares with others and may write."""
        shared = (
            self._volumes.get(volume_of(one) or "") for one in self._project.services[name].mounts if not one.read_only
        )
        return tuple(dict.fromkeys(folder for folder in shared if folder is not None and folder not in self._mounted))

    def seat(self, name: str) -> Seat:
        """Return the place of a service in the network."""
        if self._hub is None:
            raise SandboxError("the services are not running")
        numbers = {one: number for number, one in enumerate([MAIN, *(s.name for s in self._project.others())], 1)}
        names = {
            alias: seat_address(numbers[one.name])
            for one in self._project.services.values()
            for alias in sorted({one.name, *one.names})
        }
        service = self._project.services[name]
        return Seat(self._hub, numbers[name], service.hostname or name, {**names, **service.extra_names})

    def binds(self, name: str) -> tuple[Bind, ...]:
        """Return what of this machine a service sees: volumes that are shared, and what it may only read."""
        found = []
        for mount in self._project.services[name].mounts:
            source = self._volumes.get(volume_of(mount) or "")
            if source is None and mount.path is not None and mount.read_only and mount.path.exists():
                source = mount.path.resolve()
            if source is not None:
                found.append(Bind(str(source), mount.target, mount.read_only))
        return tuple(found)

    async def start(self, *, after_main: bool) -> None:
        """Start the services that do, or do not, need `main`, each when what it needs is there; wait for their health.

        What is started stays: `stop` ends it.
        """
        late = self._after_main()
        for service in self._project.others():
            if (service.name in late) != after_main:
                continue
            for name, condition in service.needs.items():
                if name != MAIN:
                    await self._wait(name, condition)
            await self._start(service)
        for name in list(self._running):
            if (name in late) == after_main:
                await self._settled(name)
        for name, condition in self._project.main.needs.items() if not after_main else ():
            await self._wait(name, condition)

    async def prepare_main(self, sandbox: Sandbox, within: Sequence[str] | None = None) -> None:
        """Put the files of `main` in place that it has from the project; all, or those within these folders."""
        await self._fill(self._project.main, sandbox, within)

    def note_ended(self) -> None:
        """Say which services have ended by themselves, and how."""
        for one in self._running.values():
            if one.ended.is_set() and one.exit_code != 0:
                self._given.note(f"the service {one.service.name} has ended with exit code {one.exit_code}")

    async def check_main(self, run: Check) -> None:
        """Wait until `main` is healthy, if its compose file has a check for it."""
        check = self._project.main.health
        if check is None or not check.test or check.test[0] == "NONE":
            return
        if (problem := await unhealthy(check, run, asyncio.Event())) is not None:
            raise SandboxError(f"the service {MAIN} {problem} ({self._project.main.where})")

    async def enter(self, policy: EgressPolicy, phase: str) -> None:
        """Another phase of the trial."""
        for one in self._running.values():
            await one.sandbox.enter(policy, phase)

    async def stop(self) -> None:
        """End all of them, the last that was started first."""
        while self._running:
            await self.stop_one(list(self._running)[-1])
        if self._hub is not None:
            os.close(self._hub)
            self._hub = None
        while self._mounted:
            with contextlib.suppress(SandboxError):  # with the helper that had it, it is gone
                await asyncio.to_thread(helper.helper().ask, {"op": "unmount", "path": str(self._mounted.pop())})
        if self._claimed is not None:
            await asyncio.to_thread(cache.release, self._claimed)
            self._claimed = None

    async def stop_one(self, name: str) -> None:
        """End one of them."""
        one = self._running.pop(name, None)
        if one is None:
            return
        if one.work is not None:
            one.work.cancel()
            await asyncio.gather(one.work, return_exceptions=True)
        await one.sandbox.stop()

    def sandbox(self, name: str) -> Sandbox:
        """Return the sandbox of a service."""
        if name not in self._running:
            raise SandboxError(f"the service {name} is not running")
        return self._running[name].sandbox

    async def run(
        self,
        name: str,
        argv: Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
        timeout_sec: float | None = None,
        on_output: OnOutput | None = None,
    ) -> CommandResult:
        """Run a command in a service."""
        sandbox, service, built = self.sandbox(name), self._project.services[name], self._built[name]
        return await sandbox.run(
            argv,
            env={**self._env(service), **(env or {})},
            cwd=cwd or service.workdir or built.config.workdir,
            user=user or service.user or built.config.user or "root",
            timeout_sec=timeout_sec,
            on_output=on_output,
        )

    # One service

    def _after_main(self) -> set[str]:
        """The services that need `main`, or one that does."""
        found = {MAIN}
        for service in self._project.services.values():  # each after those that it needs
            if service.needs.keys() & found:
                found.add(service.name)
        return found - {MAIN}

    def _env(self, service: Service) -> dict[str, str]:
        return {**self._given.certificates.environment, **self._built[service.name].config.env, **service.env}

    async def _start(self, service: Service) -> None:
        built, given = self._built[service.name], self._given
        config = built.config
        entrypoint = config.entrypoint if service.entrypoint is None else service.entrypoint
        command = service.command
        if command is None:
            command = config.command if service.entrypoint is None else ()
        argv = [*entrypoint, *command]
        if not argv:
            raise SandboxError(f"the service {service.name} has no command ({service.where})", hint="add command to it")
        limits = limits_for(service.memory_mb, None, service.cpus, scratch=given.scratch)
        if service.processes is not None:
            limits = dataclasses.replace(limits, processes=service.processes)
        plan = SandboxPlan(
            built.base,
            limits,
            layers=built.layers,
            scratch=given.scratch,
            binds=(*given.certificates.binds, *self.binds(service.name)),
            volumes=self.volumes(service.name),
            shared_mb=service.shared_mb or DEFAULT_SHARED_MB,
            way=None if self._project.is_internal(service) else given.way(),
            seat=self.seat(service.name),
            holds=built.locks,
        )
        log = _ServiceLog(given.trial_dir / LOGS / f"{service.name}.log")
        running = _RunningService(service, await Sandbox.start(plan), log, began=time.monotonic())
        self._running[service.name] = running
        await self._fill(service, running.sandbox)
        if service.workdir is not None:
            await running.sandbox.put(service.workdir, _empty)
        running.work = asyncio.create_task(self._work(running, argv))

    async def _work(self, running: _RunningService, argv: Sequence[str]) -> None:
        """Run the command of a service, again where its file says so; write down what it writes."""
        service, log = running.service, running.log
        tries = 0
        while True:
            try:
                code = (await self.run(service.name, argv, on_output=log.write)).exit_code
            except SandboxError as error:
                await log.write(f"sandbox: {error}\n", "stderr")
                code = 1
            running.exit_code, tries = code, tries + 1
            again = service.restart in RESTARTS and not (service.restart == "on-failure" and code == 0)
            again = again and (service.tries is None or tries <= service.tries)
            why = await self._end_rest(running)
            if code != 0 or again:
                text = ", and is started again" if again else ""
                await log.write(f"sandbox: ended with exit code {code}{why}{text}\n", "stderr")
            if not again:
                running.ended.set()
                return
            await asyncio.sleep(_RESTART_SEC)

    async def _end_rest(self, running: _RunningService) -> str:
        """End what the command of a service has left, as with a container; which limits it had reached."""
        try:
            await running.sandbox.kill_processes()
            reached = (await running.sandbox.counts()).reached_since(running.seen, running.sandbox.plan.limits)
            running.seen = await running.sandbox.counts()
        except SandboxError as error:
            return f" ({error})"
        return f" ({'; '.join(reached)})" if reached else ""

    async def _wait(self, name: str, condition: str) -> None:
        """Wait until a service that another one needs is as far as that."""
        running = self._running.get(name)
        if running is None:
            return
        if condition == COMPLETED:
            await running.ended.wait()
            if running.exit_code != 0:
                raise self._failed(running, f"ended with exit code {running.exit_code}")
        elif condition == HEALTHY:
            await self._healthy(running)

    async def _settled(self, name: str) -> None:
        """Wait until a service works, as far as can be seen: its check says so, or it runs, or it has done its work."""
        running = self._running[name]
        if self._check_of(running) is None:  # one that cannot work ends at once, and nothing else would tell
            with contextlib.suppress(TimeoutError):
                left = running.began + _SETTLE_SEC - time.monotonic()
                await asyncio.wait_for(running.ended.wait(), max(0.0, left))
        if running.ended.is_set() and running.exit_code != 0:
            raise self._failed(running, f"ended with exit code {running.exit_code}")
        if not running.ended.is_set():
            await self._healthy(running)

    def _check_of(self, running: _RunningService) -> HealthCheck | None:
        check = running.service.health or self._built[running.service.name].config.health
        return check if check is not None and check.test and check.test[0] != "NONE" else None

    async def _healthy(self, running: _RunningService) -> None:
        check = self._check_of(running)
        if running.healthy or check is None:
            return
        name = running.service.name

        async def run(argv: Sequence[str], timeout_sec: float) -> CommandResult:
            return await self.run(name, argv, timeout_sec=timeout_sec)

        problem = await unhealthy(check, run, running.ended)
        if problem is not None:
            raise self._failed(running, problem)
        running.healthy = True

    def _failed(self, running: _RunningService, what: str) -> SandboxError:
        last = running.log.last()
        place = f"; all that it wrote: {running.log.path}" if running.log.path.is_file() else ""
        said = f", last: {last}" if last else ""
        return SandboxError(f"the service {running.service.name} {what} ({running.service.where}){place}{said}")

    # Files

    async def _fill(self, service: Service, sandbox: Sandbox, within: Sequence[str] | None = None) -> None:
        """Copy what a service has from the project to itself."""
        for mount in service.mounts:
            if volume_of(mount) in self._volumes or (within is not None and not is_system(mount.target, within)):
                continue
            if mount.path is None or not mount.path.exists():
                await sandbox.put(mount.target, _empty)
            elif not mount.read_only:
                await _copy(mount.path, sandbox, mount.target)

    async def _seed(self, name: str, folder: Path) -> None:
        """Give a new volume what it begins with: a folder of the project, or what the first image has in its place."""
        for service in self._project.services.values():
            for target in [mount.target for mount in service.mounts if volume_of(mount) == name]:
                if await self._seed_from(service, name, folder, target):
                    return

    async def _seed_from(self, service: Service, name: str, folder: Path, target: str) -> bool:
        built = self._built[service.name]
        limits = limits_for(None, None, None, scratch=self._given.scratch)
        plan = SandboxPlan(built.base, limits, layers=built.layers, scratch=self._given.scratch)
        with_it = dataclasses.replace(plan, binds=(Bind(str(folder), target),))
        if name.startswith("/"):  # of the project
            if Path(name).exists():
                async with _opened(with_it) as sandbox:
                    await _copy(Path(name), sandbox, target)
            return True
        async with _opened(plan) as plain:
            if (target, True) not in await plain.find(target):
                return False
            told = await plain.run(["stat", "-c", "%u %g %a", target], env={}, timeout_sec=_SHORT_SEC)
            with tempfile.TemporaryFile() as kept:
                await plain.get(target, lambda s: shutil.copyfileobj(s, kept), limit_bytes=_MOST_SEED_BYTES)
                kept.seek(0)
                async with _opened(with_it) as sandbox:
                    await sandbox.put(target, lambda s: shutil.copyfileobj(kept, s))
                    owner = told.stdout.split()
                    if told.exit_code == 0 and len(owner) == 3:
                        await sandbox.put(target, _itself(int(owner[0]), int(owner[1]), int(owner[2], 8)))
        return True


@contextlib.asynccontextmanager
async def _opened(plan: SandboxPlan) -> AsyncGenerator[Sandbox]:
    """A sandbox for as long as it takes."""
    sandbox = await Sandbox.start(plan)
    try:
        yield sandbox
    finally:
        await sandbox.stop()


async def _copy(source: Path, sandbox: Sandbox, target: str) -> None:
    if source.is_dir():
        await sandbox.put(target, transfer.pack_folder(source))
    else:
        await sandbox.put(target, transfer.pack_file(source), rename=source.name)


def with_settings(built: BuiltImage, main: Service) -> BuiltImage:
    """Return the image of `main` with what its compose file says about commands there."""
    config = built.config
    command = main.command or ()
    waits = not command or _WAITS.fullmatch(" ".join(command).strip()) is not None
    entrypoint = list(config.entrypoint if main.entrypoint is None else main.entrypoint)
    if not waits:
        entrypoint, command = entrypoint or ["env"], tuple(command)
    told = msgspec.structs.replace(
        config,
        env={**config.env, **main.env},
        workdir=main.workdir or config.workdir,
        user=main.user or config.user,
        entrypoint=entrypoint,
        command=[] if waits else list(command),
    )
    key = hashlib.sha256(f"{built.key} {msgspec.json.encode(told)}".encode()).hexdigest()[:32]
    return dataclasses.replace(built, config=told, key=key)


async def unhealthy(check: HealthCheck, run: Check, ended: asyncio.Event) -> str | None:
    """Wait until a check succeeds, as long as it says; why it did not, else None.

    Looked at more often than Docker does, which only looks once in an interval: the patience is the same.
    """
    kind, *words = check.test
    argv = words if kind == "CMD" else ["/bin/sh", "-c", " ".join(words)]
    interval = check.interval / _NANOSECONDS or _INTERVAL_SEC
    timeout = check.timeout / _NANOSECONDS or _TIMEOUT_SEC
    retries = check.retries or _RETRIES
    patience = check.start_period / _NANOSECONDS + interval * retries
    began, tried = time.monotonic(), 0
    while True:
        try:
            done = await run(argv, timeout)
            if done.exit_code == 0:
                return None
            said = f"exit code {done.exit_code}: {(done.stdout + done.stderr).strip()[-300:]}"
        except TimeoutError:
            said = f"no answer in {timeout:g} s"
        tried += 1
        if ended.is_set():
            return "has ended before it was healthy"
        if tried >= retries and time.monotonic() - began > patience:
            return f"is not healthy after {tried} checks: {said}"
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(ended.wait(), min(interval, _LOOK_SEC))


class _ServiceLog:
    """What a service writes, in a file of its trial; the rest of very much is left out."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._left = _MOST_LOG_BYTES
        self._last = ""

    async def write(self, text: str, _stream: str) -> None:
        """Keep what was written."""
        self._last = (self._last + text)[-2000:]
        if self._left > 0:
            self._left -= len(text.encode())
            self.path.parent.mkdir(exist_ok=True)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(text if self._left > 0 else f"{text}\n[the rest is left out]\n")
        await asyncio.sleep(0)

    def last(self) -> str:
        """Return its last lines, in one."""
        lines = [line for line in self._last.splitlines() if line.strip() and not line.startswith("sandbox: ended")]
        return " | ".join(lines[-_LAST_LINES:])[-_LAST_CHARS:]


def _empty(stream: BinaryIO) -> None:
    """An archive of nothing."""
    with tarfile.open(fileobj=stream, mode="w|"):
        pass


def _itself(uid: int, gid: int, mode: int) -> Callable[[BinaryIO], None]:
    """An archive of a folder itself, with its owner."""

    def write(stream: BinaryIO) -> None:
        member = tarfile.TarInfo(".")
        member.type, member.uid, member.gid, member.mode = tarfile.DIRTYPE, uid, gid, mode
        with tarfile.open(fileobj=stream, mode="w|") as archive:
            archive.addfile(member, io.BytesIO())

    return write

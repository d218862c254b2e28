"""Carrying out the steps of a Dockerfile in a sandbox."""

import asyncio
import contextlib
import hashlib
import os
import socket
import tarfile
import tempfile
import textwrap
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from ipaddress import ip_address
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO
from urllib.parse import unquote, urlsplit

from terminalbench.sandbox import cache
from terminalbench.sandbox.answers import CommandResult
from terminalbench.sandbox.builds.context import BuildContext, CopyEntry, archive_entries, write_entries
from terminalbench.sandbox.builds.dockerfile import is_address
from terminalbench.sandbox.builds.recipe import CopyStep, FolderStep, RunStep, Step
from terminalbench.sandbox.errors import Refused, SandboxError
from terminalbench.sandbox.network.policy import CLOSED, OPEN, AddressPlace, place_of
from terminalbench.sandbox.session import Sandbox

_LAST_LINES, _LINE_WIDTH, _COMMAND_WIDTH = 3, 120, 60
_MOST_LOG_BYTES = 64 << 20
_COPY_BYTES = 1 << 40
_CHUNK = 1 << 18
_FETCH_SEC = 60
_SCRIPT = "tmp/.run-heredoc"

OpenOrigin = Callable[[str], AbstractAsyncContextManager[Sandbox]]


@dataclass
class StepRunner:
    """Carries out steps in a sandbox. All that commands print goes to `log`."""

    sandbox: Sandbox
    context: BuildContext
    where: str
    open_origin: OpenOrigin
    log: Path
    env: dict[str, str]

    async def do(self, step: Step) -> None:
        """Carry out one step."""
        match step:
            case FolderStep():
                for folder in step.folders:
                    await self.sandbox.put(folder, lambda stream: write_entries(stream, [], owner=(0, 0), mode=None))
            case RunStep():
                await self._run(step)
            case CopyStep():
                await self._copy(step)

    def _place(self, step: Step) -> str:
        return f"{self.where}:{step.line}"

    async def _run(self, step: RunStep) -> None:
        argv = list(step.argv)
        if step.script is not None:
            entry = [CopyEntry(_SCRIPT, step.script.encode())]
            await self.sandbox.put("/", lambda stream: write_entries(stream, entry, owner=(0, 0), mode=0o755))
            argv = [f"/{_SCRIPT}"]
        if self.sandbox.link is not None:
            await self.sandbox.link.enter(OPEN if step.network else CLOSED, "build")
        done = await self._logged(argv, step)
        if done.exit_code != 0:
            command = textwrap.shorten(step.text, _COMMAND_WIDTH, placeholder=" ...")
            place = f"{os.path.basename(self.where)}:{step.line}"  # noqa: PTH119  who reads it knows the task
            what = f"{place}: {command} failed with exit code {done.exit_code}"
            if said := _last_lines(done.stdout) + _last_lines(done.stderr):
                what += "\n" + "\n".join(said)
            full = cache.no_room()
            raise SandboxError(what, hint=f"{f'{full}; ' if full else ''}its whole output: {self.log}")
        if step.script is not None:
            await self.sandbox.run(["rm", "-f", f"/{_SCRIPT}"], env=step.env)

    async def _logged(self, argv: list[str], step: RunStep) -> CommandResult:
        """Run a command with what it prints in the log."""
        self.log.parent.mkdir(exist_ok=True, mode=0o700)
        with self.log.open("a", encoding="utf-8", errors="surrogateescape") as log:
            log.write(f"{self._place(step)}: {step.text}\n")

            async def on_output(text: str, _stream: str) -> None:
                if log.tell() < _MOST_LOG_BYTES:
                    log.write(text)
                    log.flush()  # a person may read along

            return await self.sandbox.run(
                argv,
                env={**self.env, **step.env},
                cwd=step.cwd,
                user=step.user,
                network=step.network,
                on_output=on_output,
            )

    async def _copy(self, step: CopyStep) -> None:
        owner = await self._owner(step)
        if step.origin is not None:
            await self._copy_from(step, owner)
            return
        for source in step.sources:
            if source in step.documents:
                await self._put(step, [CopyEntry(source.removeprefix("<<"), step.documents[source].encode())], owner)
            elif step.unpacks and is_address(source):
                async with _fetched(source, step.checksum, self._place(step)) as file:
                    name = PurePosixPath(unquote(urlsplit(source).path)).name or "index.html"
                    await self._put(step, [CopyEntry(name, file)], owner, mode=step.mode or 0o600)
            else:
                await self._copy_of_context(step, source, owner)

    async def _copy_of_context(self, step: CopyStep, source: str, owner: tuple[int, int] | None) -> None:
        found = self.context.find(source, self._place(step))
        for path in found:
            real = path.resolve()
            archive = archive_entries(real) if step.unpacks and not real.is_dir() else None
            if archive is not None:
                with archive:
                    await self.sandbox.put(step.target, partial(_repack, archive, owner=owner or (0, 0)))
            elif real.is_dir():
                entries = [CopyEntry(name, entry) for name, entry in self.context.below(real)]
                await self._put(step, entries, owner, several=True)
            else:
                await self._put(step, [CopyEntry(path.name, real)], owner, several=len(found) > 1)

    async def _put(
        self,
        step: CopyStep,
        entries: list[CopyEntry],
        owner: tuple[int, int] | None,
        *,
        several: bool = False,
        mode: int | None = None,
    ) -> None:
        """Copy entries to the target: into it if it is to be a folder, else the only one becomes it."""
        rename = entries[0].target if entries and not step.into_folder and not several else None
        write = partial(write_entries, entries=entries, owner=owner or (0, 0), mode=mode or step.mode)
        await self.sandbox.put(step.target, write, rename=rename)

    async def _copy_from(self, step: CopyStep, owner: tuple[int, int] | None) -> None:
        async with self.open_origin(step.origin or "") as origin:
            for source in step.sources:
                found = await origin.find(f"/{source.lstrip('/')}")
                if not found:
                    what = f"{step.text}: there is no {source} in {step.origin}"
                    raise SandboxError(f"{self._place(step)}: {what}")
                for path, is_folder in found:
                    rename = None
                    if not is_folder:
                        into = step.into_folder or len(found) > 1
                        rename = None if into else PurePosixPath(path).name
                    name = PurePosixPath(path).name if not is_folder else None
                    await _piped(origin, self.sandbox, path, step, owner, name=name, rename=rename)

    async def _owner(self, step: CopyStep) -> tuple[int, int] | None:
        """Return who copied files belong to; None: root, or whoever has them in the stage that they come from."""
        if not step.owner:
            return None
        name, _, group = step.owner.partition(":")
        command = 'id -u -- "$1" && { [ -z "$2" ] && id -g -- "$1" || getent group "$2" | cut -d: -f3; }'
        numbers = [part for part in (name, group or name) if part.isdigit()]
        if len(numbers) == 2:
            return int(numbers[0]), int(numbers[1])
        done = await self.sandbox.run(["/bin/sh", "-c", command, "sh", name, group], env={})
        found = done.stdout.split()
        if done.exit_code != 0 or len(found) != 2:
            what = f"{self._place(step)}: {step.text}: no such user or group in the image: {step.owner}"
            raise SandboxError(what)
        return int(found[0]), int(found[1])


async def _piped(
    origin: Sandbox,
    target: Sandbox,
    path: str,
    step: CopyStep,
    owner: tuple[int, int] | None,
    *,
    name: str | None,
    rename: str | None,
) -> None:
    """Copy a file (as `name`) or the content of a folder from one sandbox to another."""
    reader, writer = os.pipe()

    def pump(stream: BinaryIO) -> None:
        with os.fdopen(writer, "wb") as out:
            while chunk := stream.read(_CHUNK):
                out.write(chunk)

    def write(stream: BinaryIO) -> None:
        with os.fdopen(reader, "rb") as source:
            _restamp(source, stream, owner, step.mode, name)
            while source.read(_CHUNK):
                pass

    async def get() -> None:
        await origin.get(path, pump, single=name is not None, limit_bytes=_COPY_BYTES)

    done = await asyncio.gather(get(), target.put(step.target, write, rename=rename), return_exceptions=True)
    for problem in done:
        if isinstance(problem, BaseException):
            raise problem


def _restamp(
    source: BinaryIO, target: BinaryIO, owner: tuple[int, int] | None, mode: int | None, name: str | None
) -> None:
    with (
        tarfile.open(fileobj=source, mode="r|") as given,
        tarfile.open(fileobj=target, mode="w|", format=tarfile.PAX_FORMAT) as out,
    ):
        for member in given:
            if owner is not None:
                member.uid, member.gid = owner
            if mode is not None:
                member.mode = mode
            member.name = name or member.name
            out.addfile(member, given.extractfile(member) if member.isreg() else None)


@contextlib.asynccontextmanager
async def _fetched(address: str, checksum: str | None, where: str) -> AsyncGenerator[Path]:
    """Have what is at an address in a file."""
    with tempfile.TemporaryDirectory(prefix="tbench-add-") as folder:
        file = Path(folder) / "file"
        stopped = threading.Event()
        try:
            await asyncio.to_thread(_fetch, address, checksum, file, where, stopped)
        finally:
            stopped.set()
        yield file


def _check_address(host: str, where: str) -> None:
    """Refuse what the sandbox's own network would refuse: this machine, and networks that are not public."""
    try:
        found = {ip_address(str(one[4][0]).partition("%")[0]) for one in socket.getaddrinfo(host, None)}
    except OSError:  # a proxy may know it
        return
    if any(place_of(address) is not AddressPlace.PUBLIC for address in found):
        raise Refused(
            f"ADD of {host}, which is not a public address", where=where, hint="copy the file into the folder"
        )


def _fetch(address: str, checksum: str | None, file: Path, where: str, stopped: threading.Event) -> None:
    import httpx

    digest = hashlib.sha256()
    hooks: dict[str, list[Any]] = {"request": [lambda request: _check_address(request.url.host, where)]}
    try:
        with (
            httpx.Client(follow_redirects=True, timeout=_FETCH_SEC, event_hooks=hooks) as client,
            client.stream("GET", address) as answer,
            file.open("wb") as out,
        ):
            answer.raise_for_status()
            for chunk in answer.iter_bytes(_CHUNK):
                if stopped.is_set():
                    return
                digest.update(chunk)
                out.write(chunk)
    except httpx.HTTPError as error:
        raise SandboxError(f"{where}: ADD {address}: it cannot be fetched: {error}") from error
    if checksum is not None and checksum != f"sha256:{digest.hexdigest()}":
        raise Refused(
            f"ADD {address} is not the file of {checksum}", where=where, hint=f"it is sha256:{digest.hexdigest()}"
        )


def _repack(archive: tarfile.TarFile, stream: BinaryIO, *, owner: tuple[int, int]) -> None:
    """Pass the members of an archive on; names that climb out of it are dropped."""
    with tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT) as out:
        for member in archive:
            if member.name.startswith("/") or ".." in member.name.split("/"):
                continue
            member.uid, member.gid = owner
            if member.islnk():
                target = archive.getmember(member.linkname)
                member.type, member.size = tarfile.REGTYPE, target.size
                out.addfile(member, archive.extractfile(target))
            elif member.isreg():
                out.addfile(member, archive.extractfile(member))
            elif member.isdir() or member.issym():
                out.addfile(member)


def _last_lines(output: str) -> list[str]:
    """The last few lines of what a command printed, each from its beginning; the whole is in the log."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return [textwrap.shorten(line, _LINE_WIDTH, placeholder=" ...") for line in lines[-_LAST_LINES:]]

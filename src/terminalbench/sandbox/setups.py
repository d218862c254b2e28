"""Agents are installed once: the state after a set-up is kept as a layer, from which later trials start.

A set-up is what an agent does to its sandbox before it works: commands and uploads, each known by all that decides
about it. Where the same ones were done before, on the same image, they are not done again: each is answered as it was
then, and the sandbox starts from the layer. As soon as one differs, all of them are done after all. A set-up that
fails, leaves processes behind or writes a variable's value to a file is never kept. Its layer is the agent's alone: the
verifier does not see it.

<cache>/setups/<image and agent>/<digest>.json   what was done, and how each ended
<cache>/layers/<digest>/                        the layer
"""

import asyncio
import contextlib
import hashlib
import json
import os
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import Any, Protocol

import msgspec

from terminalbench.json_files import decode_plain, write_json
from terminalbench.records.trial import ATTEMPT, SETUP_FILE, SetupNote
from terminalbench.sandbox import cache
from terminalbench.sandbox.answers import CommandResult
from terminalbench.sandbox.cache import LayerNote, exclusive, publish_layer, to_its_end
from terminalbench.sandbox.errors import SandboxError

_RECORD_BYTES = 16 << 20
_MOST_RECORDS = 16
_SECRET_LENGTH = 12
_MOST_SEARCHED = 4 << 20


class SetupCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """A command or an upload of a set-up, and how it ended."""

    digest: str
    code: int = 0
    stdout: str = ""
    stderr: str = ""


class SetupRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A set-up that was done. Without a `layer` it is one that cannot be kept, and `why` says so."""

    calls: tuple[SetupCall, ...]
    made_at: str
    seconds: float
    layer: str | None = None
    why: str | None = None

    def begins_with(self, digests: Sequence[str]) -> bool:
        """Return whether it began with these calls."""
        return [call.digest for call in self.calls[: len(digests)]] == list(digests)


class SetupPlace(Protocol):
    """The environment of a trial: what a set-up is done to."""

    async def bring_up(self, setup: Path | None = None, building: Path | None = None, hold: int | None = None) -> None:
        """Start its sandbox, in place of the one that runs; over a set-up, or to make one in the folder `building`."""

    async def take_down(self) -> None:
        """Stop its sandbox, if one runs."""

    async def processes(self) -> int:
        """Return how many processes there are inside."""


class _SetupPhase(Enum):
    BEFORE, DURING, OVER, FAILED = range(4)


@dataclass
class _FinishedCall:
    """A call that was made: what it is known by, how to do it, and how it ended."""

    digest: str
    do: Callable[[], Awaitable[CommandResult]]
    ended: CommandResult | None = None


def decisive(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that decide about a command of a set-up: not which attempt of a task it is."""
    return {name: value for name, value in variables.items() if name != ATTEMPT}


def digest_of(*parts: Any) -> str:
    """Return what a call is known by."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()


def content_digest(path: Path) -> str:
    """Return a digest of a file, or of all that is below a folder: names, modes and bytes."""
    told = hashlib.sha256()
    for one in [path] if path.is_file() else sorted(path.rglob("*")):
        told.update(f"{one.relative_to(path.parent)}\0{one.lstat().st_mode:o}\0".encode())
        if one.is_symlink():
            told.update(str(one.readlink()).encode())
        elif one.is_file():
            with one.open("rb") as stream:
                told.update(hashlib.file_digest(stream, "sha256").digest())
    return told.hexdigest()


class AgentSetup:
    """The set-up of one trial: done, or answered from one that was done before.

    `key` is what is common to all set-ups of an agent on an image. Those made before `since` do not count. `trial` is
    the folder of the trial.
    """

    def __init__(self, place: SetupPlace, key: str, trial: Path, since: float = 0.0, *, image: str = "") -> None:
        self._place, self._key, self._trial, self._since, self._image = place, key, trial, since, image
        self._folder = cache.root() / "setups" / key
        self._records = self._read()
        self._phase = _SetupPhase.BEFORE
        self._calls: list[_FinishedCall] = []
        self._up = False
        self._making: cache.ClaimedFolder | None = None
        self._held = contextlib.AsyncExitStack()
        self._began, self._at_first, self._busy, self._mixed = 0.0, 0, 0, False
        self._secrets: set[bytes] = set()
        self._decided = False
        self._settling, self._turning = asyncio.Lock(), asyncio.Lock()
        self._settled = False
        self._broken: SandboxError | None = None

    # What Harbor tells

    async def start(self) -> None:
        """Start the sandbox, unless it may start from a set-up: that is known when the first call comes."""
        if not any(record.layer is not None for record in self._records):
            await self._bring_up()

    def begin(self, variables: Mapping[str, str]) -> bool:
        """Say that the agent's set-up begins; False if it was over before. Values of variables must not be kept."""
        if self._phase is not _SetupPhase.BEFORE:
            return False
        self._phase = _SetupPhase.DURING
        self._secrets = {value.encode() for value in variables.values() if len(value) >= _SECRET_LENGTH}
        return True

    def end(self, *, failed: bool) -> None:
        """Say that it is over."""
        self._phase = _SetupPhase.FAILED if failed else _SetupPhase.OVER

    @property
    def is_over(self) -> bool:
        """Return whether the set-up has ended."""
        return self._phase in (_SetupPhase.OVER, _SetupPhase.FAILED)

    # What is done to the sandbox

    async def call(self, digest: str, do: Callable[[], Awaitable[CommandResult]]) -> CommandResult:
        """Do something to the sandbox, or answer what came of it when it was done before."""
        if self.is_over:
            await self.settle()
            return await do()
        self._mixed = self._mixed or self._busy > 0
        self._busy += 1
        try:
            async with self._turning:
                told = await self._told(digest)
                if told is not None:
                    self._calls.append(_FinishedCall(digest, do))
                    return told
            ended = await do()
            self._calls.append(_FinishedCall(digest, do, ended))
            return ended
        finally:
            self._busy -= 1

    async def _told(self, digest: str) -> CommandResult | None:
        """Return how a call ended when it was done before; None when it is to be done, in a sandbox that runs by
        now."""
        if not self._up and (told := self._answer(digest)) is not None:
            return told
        if not self._up:
            await self._do_all()
        if self._phase is _SetupPhase.DURING and not self._decided:
            self._decided = True  # once: what was done so far is in a sandbox that is not kept
            if self._may_be_kept(digest):
                await self._begin_making(digest)
        return self._answer(digest) if not self._up else None

    async def before_phase(self) -> None:
        """Settle while the network is still that of the set-up: what is done again may need it."""
        if self.is_over:
            with contextlib.suppress(SandboxError):  # whoever uses the sandbox next is told
                await self.settle()

    async def settle(self) -> None:
        """Have the sandbox that the trial goes on with."""
        async with self._settling:
            if self._broken is not None:
                raise self._broken
            if self._settled:
                return
            try:
                if not self._up:
                    await self._from_record()
                elif self._making is not None and self._phase is _SetupPhase.OVER:
                    await self._keep()
            except SandboxError as error:
                self._broken = error
                raise
            self._settled = self.is_over
            if self._settled:
                await self._held.aclose()

    async def close(self) -> None:
        """Let go of everything; the sandbox is stopped."""
        await self._held.aclose()
        if self._making is not None:
            making, self._making = self._making, None
            await asyncio.to_thread(cache.release, making)

    # How

    def _digests(self) -> list[str]:
        return [call.digest for call in self._calls]

    def _answer(self, digest: str) -> CommandResult | None:
        """Return how a call ended in the newest set-up that began as this one does."""
        wanted = [*self._digests(), digest]
        for record in self._records:
            if record.layer is not None and record.begins_with(wanted):
                found = record.calls[len(wanted) - 1]
                return CommandResult(found.code, found.stdout, found.stderr)
        return None

    def _may_be_kept(self, digest: str) -> bool:
        """Return whether it makes sense to keep this set-up: none that began so could not be kept, nor are there too
        many."""
        begun = [*self._digests(), digest]
        hopeless = any(record.layer is None and record.begins_with(begun) for record in self._records)
        return not hopeless and len(self._records) < _MOST_RECORDS

    async def _begin_making(self, digest: str) -> None:
        """Go on in a sandbox whose changes can be kept; who comes later waits, and then may find what it needs."""
        name = hashlib.sha256(f"{self._key} {digest}".encode()).hexdigest()[:32]
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        await self._held.enter_async_context(exclusive(self._folder / f"{name}.lock"))
        self._records = self._read()
        if self._answer(digest) is not None:
            await self._held.aclose()
            await self._place.take_down()
            self._up = False
            return
        if not self._may_be_kept(digest):
            await self._held.aclose()
            return
        self._making = await asyncio.to_thread(cache.claim, "building")
        await self._bring_up(building=self._making.folder, hold=self._making.lock)
        self._at_first = await self._place.processes()
        self._began = time.monotonic()
        await self._redo()

    async def _do_all(self) -> None:
        """Do all calls so far that were only answered."""
        await self._bring_up()
        await self._redo()

    async def _redo(self) -> None:
        for call in self._calls:
            before, call.ended = call.ended, await call.do()
            if before is not None and before.exit_code != call.ended.exit_code:
                codes = f"{before.exit_code} and {call.ended.exit_code}"
                raise SandboxError(f"a command of the agent's set-up ended with {codes} when it ran a second time")

    async def _bring_up(self, setup: Path | None = None, building: Path | None = None, hold: int | None = None) -> None:
        await self._place.bring_up(setup, building, hold)
        self._up = True

    async def _from_record(self) -> None:
        """Start from the set-up that was answered; if it had more to it than this one, do all of it after all."""
        begun = self._digests()
        for record in self._records:
            same = len(record.calls) == len(begun) and record.begins_with(begun)
            if begun and same and record.layer is not None and await self._start_from(record, made_here=False):
                return
        await self._do_all()

    async def _start_from(self, record: SetupRecord, *, made_here: bool) -> bool:
        folder = cache.root() / "layers" / str(record.layer)
        hold = await asyncio.to_thread(cache.keep, folder)
        if hold is None:
            return False
        try:
            await self._bring_up(setup=folder, hold=hold)
        finally:
            os.close(hold)
        write_json(self._trial / SETUP_FILE, SetupNote(str(record.layer), record.made_at, made_here))
        return True

    async def _keep(self) -> None:
        """Keep what was made, and go on from it; or do it again in a sandbox of the usual kind."""
        making = self._making
        if making is None:
            return
        why = await self._why_not(making.folder)
        await self._place.take_down()
        self._up = False
        record = await to_its_end(lambda: self._publish(making.folder, why))
        self._making = None
        await asyncio.to_thread(cache.release, making)
        if record.layer is None or not await self._start_from(record, made_here=True):
            await self._do_all()

    async def _why_not(self, folder: Path) -> str | None:
        if self._mixed:
            return "its commands ran side by side"
        if await self._place.processes() > self._at_first:
            return "it left processes behind"
        said = b"\0".join(f"{call.ended.stdout}\0{call.ended.stderr}".encode() for call in self._calls if call.ended)
        if len(said) > _RECORD_BYTES // 2:
            return "it printed too much"
        if any(secret in said for secret in self._secrets):
            return "it printed the value of a variable"
        if self._secrets and await asyncio.to_thread(_holds, folder, self._secrets):
            return "it wrote the value of a variable to a file"
        return None

    def _publish(self, folder: Path, why: str | None) -> SetupRecord:
        """Make a layer of a folder, and write down what was done."""
        calls = tuple(
            SetupCall(call.digest, call.ended.exit_code, call.ended.stdout, call.ended.stderr)
            for call in self._calls
            if call.ended is not None
        )
        now, seconds = datetime.now(UTC).isoformat(timespec="seconds"), round(time.monotonic() - self._began, 3)
        name = hashlib.sha256(f"{self._key} {self._digests()} {now} {folder.name}".encode()).hexdigest()[:32]
        if why is not None:
            record = SetupRecord(tuple(SetupCall(call.digest) for call in calls), now, seconds, why=why)
        else:
            text = f"set-up of an agent: {len(calls)} commands and uploads"
            publish_layer(folder, name, LayerNote(self._image, text, now, seconds))
            record = SetupRecord(calls, now, seconds, layer=name)
        write_json(self._folder / f"{name}.json", record)
        self._records = [record, *self._records]
        return record

    def _read(self) -> list[SetupRecord]:
        """The set-ups on this image, the newest first; those whose layer is gone, or that are old, are forgotten."""
        found = []
        for file in self._folder.glob("*.json"):
            record = decode_plain(file, SetupRecord, _RECORD_BYTES)
            made_at = datetime.fromisoformat(record.made_at).timestamp() if record is not None else 0.0
            if record is None or not _still_counts(record, made_at):
                file.unlink(missing_ok=True)
            elif made_at >= self._since - 1:
                found.append(record)
        return sorted(found, key=lambda one: one.made_at, reverse=True)


def _still_counts(record: SetupRecord, made_at: float) -> bool:
    if record.layer is None:
        return time.time() - made_at < cache.LAYER_DAYS * 86400
    return (cache.root() / "layers" / record.layer / "meta.json").exists()


def _holds(folder: Path, secrets: set[bytes]) -> bool:
    """Return whether a file below a folder holds one of these values; large files are programs, not notes."""
    for place, _folders, names in os.walk(folder):
        for name in names:
            path = Path(place, name)
            try:
                if not path.is_symlink() and path.is_file() and path.stat().st_size <= _MOST_SEARCHED:
                    content = path.read_bytes()
                    if any(secret in content for secret in secrets):
                        return True
            except OSError:  # another user's file: it may hold anything
                return True
    return False

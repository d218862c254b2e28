"""From a Dockerfile to layers: each command's built once per content, in a sandbox, published in one step.

The layer of a command is known by all that comes before it, so that tasks which begin alike share what they have in
common. Two builders of the same content wait for each other; a crash leaves nothing that looks like a layer.
"""

import asyncio
import contextlib
import hashlib
import json
import os
import shutil
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from terminalbench.json_files import read_json, write_json
from terminalbench.sandbox import cache, helper, transfer
from terminalbench.sandbox.builds.context import BuildContext
from terminalbench.sandbox.builds.needs import ImageTable, normalized, settings_of_base
from terminalbench.sandbox.builds.recipe import (
    BuildSource,
    CopyStep,
    FolderStep,
    Recipe,
    RunStep,
    Stage,
    StageReader,
    Step,
    segments,
)
from terminalbench.sandbox.builds.step_runner import StepRunner
from terminalbench.sandbox.cache import LayerNote, exclusive, publish_layer, read_note, to_its_end
from terminalbench.sandbox.errors import Refused, SandboxError
from terminalbench.sandbox.images.manifest import ImageConfig
from terminalbench.sandbox.network.client import EgressWay
from terminalbench.sandbox.plan import Bind, Certificates, SandboxLimits, SandboxPlan
from terminalbench.sandbox.root_filesystem import HOST, RootFilesystem, open_base
from terminalbench.sandbox.session import Sandbox

VERSION = 3
_MAX_LAYERS = 120
_MOST_BIND_BYTES = 1 << 36


class BuildFailure(msgspec.Struct, frozen=True):
    """Why a layer could not be built."""

    what: str
    hint: str | None = None


@dataclass(frozen=True)
class Definition:
    """What is to be built: a Dockerfile that was read, its context, and the base for each image that it names.

    `names` are what the bases are fetched by.
    """

    recipe: Recipe
    context: BuildContext
    bases: dict[str, str]
    names: dict[str, str]

    @property
    def image(self) -> str:
        """The image that the last stage starts from."""
        stage = self.recipe.stages[-1]
        while stage.parent is not None:
            stage = self.recipe.stages[stage.parent]
        return stage.image

    @property
    def base(self) -> str:
        """The base for that image."""
        return self.bases[self.image]


@dataclass(frozen=True)
class BuiltImage:
    """A built image: its base, its layers from the top down, its settings. Open `locks` keep the layers."""

    base: RootFilesystem
    layers: tuple[Path, ...]
    config: ImageConfig
    locks: tuple[int, ...]
    key: str

    def close(self) -> None:
        """Let go of the layers."""
        for lock in self.locks:
            os.close(lock)


@dataclass
class BuildSettings:
    """How builds are made: within which limits, anew or not, in which network, and how many at once.

    A failure since `since` is not tried again. `tell` is called with the instruction that is about to be carried out.
    """

    limits: SandboxLimits
    force: bool = False
    host_network: bool = False
    certificates: Certificates = field(default_factory=Certificates)
    since: float = field(default_factory=time.time)
    slots: asyncio.Semaphore | None = None
    making: dict[str, asyncio.Lock] = field(default_factory=dict)
    tell: Callable[[str], None] = lambda _text: None


def define(source: BuildSource, table: ImageTable) -> Definition:
    """Read and check what an image is made of; what cannot be honoured is refused here."""
    recipe = source.recipe()
    lines = recipe.images()
    bases = {image: table.base_for(image, where=f"{recipe.where}:{line}") for image, line in lines.items()}
    names = {base: table.stand_in(image) for image, base in bases.items()}
    return Definition(recipe, BuildContext(source.folder), bases, names)


async def build(definition: Definition, how: BuildSettings, seconds: float | None = None) -> BuiltImage:
    """The image of this definition on this machine; what is not there of it is built now, within so many seconds."""
    server = helper.running() or await asyncio.to_thread(helper.helper)
    done: dict[int, BuiltImage] = {}
    left = [seconds] if seconds is not None else []
    try:
        for stage in definition.recipe.needed():
            done[stage.number] = await _StageBuild(definition, how, server.ids, done, left).build(stage)
        return done.pop(max(done))
    finally:
        for built in done.values():
            built.close()


@dataclass
class _StageBuild:
    definition: Definition
    how: BuildSettings
    ids: str
    done: dict[int, BuiltImage]
    left: list[float]
    """The seconds that are left, if they are limited."""

    async def build(self, stage: Stage) -> BuiltImage:
        start = await self._start(stage)
        reader = StageReader(self.definition.recipe, start.config)
        steps: list[Step] = [*self._before(start, stage), *reader.read(stage)]
        key, layers, locks = start.key, list(start.layers), list(start.locks)
        try:
            for part in segments(steps):
                key = self._key(key, part)
                lower = BuiltImage(start.base, tuple(layers), start.config, (), key)
                folder, lock = await self._layer(part, lower)
                layers.insert(0, folder)
                locks.append(lock)
            if len(layers) > _MAX_LAYERS:
                what = f"{self.definition.recipe.where} makes {len(layers)} layers, but the limit is {_MAX_LAYERS}"
                raise Refused(what, hint="join its RUN lines")
        except BaseException:
            for lock in locks:
                os.close(lock)
            raise
        return BuiltImage(start.base, tuple(layers), reader.config(self.definition.image), tuple(locks), key)

    async def _start(self, stage: Stage) -> BuiltImage:
        """Return what a stage starts from."""
        if stage.parent is not None:
            parent = self.done[stage.parent]
            return BuiltImage(parent.base, parent.layers, parent.config, tuple(map(os.dup, parent.locks)), parent.key)
        return await self._image(stage.image)

    async def _image(self, image: str) -> BuiltImage:
        name = self.definition.bases[image]
        base = await asyncio.to_thread(open_base, name, self.ids)
        if base.name == HOST and _is_python(image) and not base.has_program("python3"):
            where = self.definition.recipe.where
            raise Refused(f"{image} uses the host's system, which has no python3", where=where)
        settings = await asyncio.to_thread(settings_of_base, name, image)
        parts = [VERSION, base.name, base.fingerprint, self.ids, self.how.certificates.kind]
        return BuiltImage(base, (), settings, (), hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32])

    def _before(self, start: BuiltImage, stage: Stage) -> list[Step]:
        """Return what an image may be taken to have and its base lacks: its working folder; of a python image,
        `python`."""
        if stage.parent is not None:
            return []
        if start.base.name != HOST:
            folder = start.config.workdir
            return [] if folder == "/" or start.base.has(folder) else [FolderStep(stage.line, (folder,))]
        if not _is_python(stage.image) or start.base.has_program("python"):
            return []
        command = ("/bin/sh", "-c", "ln -s $(command -v python3) /usr/local/bin/python")
        return [RunStep(stage.line, f"FROM {stage.image}", command, {}, "/", "root", network=False)]

    def _key(self, before: str, part: Sequence[Step]) -> str:
        """Return what the layer of these steps is known by: what is below it, what they do, what they copy."""
        told: list[object] = [before]
        for step in part:
            told.append(msgspec.json.encode(msgspec.structs.replace(step, line=0)).decode())
            origins = [step.origin] if isinstance(step, CopyStep) else []
            sources: Sequence[str] = ()
            if isinstance(step, CopyStep) and step.origin is None:
                sources = [one for one in step.sources if one not in step.documents and "://" not in one]
            elif isinstance(step, RunStep):
                origins = [mount.origin for mount in step.mounts]
                sources = [mount.source or "." for mount in step.mounts if mount.kind == "bind" and not mount.origin]
            where = f"{self.definition.recipe.where}:{step.line}"
            told += [self.definition.context.digest(source, where) for source in sources]
            told += [self._origin_key(origin) for origin in origins if origin]
        return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:32]

    def _origin_key(self, name: str) -> str:
        stage = self.definition.recipe.stage(name)
        return self.done[stage.number].key if stage is not None else self.definition.bases[name]

    async def _layer(self, part: Sequence[Step], lower: BuiltImage) -> tuple[Path, int]:
        """The folder of a layer, held; it is built if it is not there, or if that is forced."""
        folder = cache.root() / "layers" / lower.key
        folder.parent.mkdir(exist_ok=True)
        below = _changed_at(lower.layers[0] / "meta.json") if lower.layers else 0.0
        if not self.how.force and (lock := await asyncio.to_thread(_open, folder, below)) is not None:
            return folder, lock
        once = self.how.making.setdefault(lower.key, asyncio.Lock())  # of many here, one asks for the file
        async with once, exclusive(folder.with_name(f"{lower.key}.lock")):
            lock = await asyncio.to_thread(_open, folder, below)
            if lock is not None and (not self.how.force or _changed_at(folder / "meta.json") > self.how.since):
                return folder, lock
            if lock is not None:
                os.close(lock)
            failed = folder.with_name(f"{lower.key}.failed")
            if _changed_at(failed) > self.how.since:
                told = read_json(failed, BuildFailure)
                raise SandboxError(told.what, hint=told.hint)
            failed.unlink(missing_ok=True)
            try:
                async with self.how.slots or contextlib.nullcontext():
                    await self._build_in_time(part, lower, folder)
            except SandboxError as error:
                write_json(failed, BuildFailure(error.what, error.hint))
                raise
        lock = await asyncio.to_thread(_open, folder, below)
        if lock is None:
            raise SandboxError(f"the layer {folder} vanished while it was published")
        return folder, lock

    async def _build_in_time(self, part: Sequence[Step], lower: BuiltImage, folder: Path) -> None:
        began = time.monotonic()
        try:
            async with asyncio.timeout(self.left[0] if self.left else None):
                await self._build(part, lower, folder)
        except TimeoutError:
            place = f"{self.definition.recipe.where}:{part[-1].line}"
            what = f"{place}: the build took longer than the task allows"
            raise SandboxError(what, hint="raise build_timeout_sec in its task.toml") from None
        finally:
            self.left[:] = [left - (time.monotonic() - began) for left in self.left]

    async def _build(self, part: Sequence[Step], lower: BuiltImage, folder: Path) -> None:
        if (full := cache.no_room()) is not None:
            raise SandboxError(f"{self.definition.recipe.where} cannot be built: {full}")
        began = time.monotonic()
        claimed = await asyncio.to_thread(cache.claim, "building")
        log = cache.root() / "logs" / f"{folder.name}.log"
        log.unlink(missing_ok=True)
        try:
            last = part[-1]
            binds = await self._binds(last, claimed.folder) if isinstance(last, RunStep) else ()
            plan = self._plan(lower, binds, building=claimed.folder, holds=(claimed.lock,))
            sandbox = await Sandbox.start(plan)
            try:
                runner = StepRunner(
                    sandbox,
                    self.definition.context,
                    self.definition.recipe.where,
                    self._open_origin,
                    log,
                    self.how.certificates.environment,
                )
                for step in part:
                    if not isinstance(step, FolderStep):
                        self.how.tell(step.text)
                    await runner.do(step)
            finally:
                await sandbox.stop()
            text = next((step.text for step in reversed(part) if not isinstance(step, FolderStep)), "WORKDIR")
            took = round(time.monotonic() - began, 3)
            note = LayerNote(self.definition.image, text[:400], _now(), took, lower.base.name)
            await to_its_end(lambda: publish_layer(claimed.folder, folder.name, note))
            log.unlink(missing_ok=True)
        finally:
            await asyncio.to_thread(cache.release, claimed)

    def _plan(
        self,
        lower: BuiltImage,
        binds: tuple[Bind, ...] = (),
        *,
        building: Path | None = None,
        holds: tuple[int, ...] = (),
    ) -> SandboxPlan:
        return SandboxPlan(
            lower.base,
            self.how.limits,
            layers=lower.layers,
            building=building,
            scratch="disk",
            binds=(*self.how.certificates.binds, *binds),
            way=None if self.how.host_network or building is None else EgressWay(phase="build"),
            host_network=self.how.host_network and building is not None,
            holds=holds,
        )

    @contextlib.asynccontextmanager
    async def _open_origin(self, name: str) -> AsyncGenerator[Sandbox]:
        """A sandbox over another stage, or over an image, to take files from."""
        stage = self.definition.recipe.stage(name)
        source = self.done[stage.number] if stage is not None else await self._image(name)
        sandbox = await Sandbox.start(self._plan(source))
        try:
            yield sandbox
        finally:
            await sandbox.stop()

    async def _binds(self, step: RunStep, claimed: Path) -> tuple[Bind, ...]:
        """Return what the mounts of a command show; folders that go with it are made in the claimed one."""
        binds = []
        for number, mount in enumerate(step.mounts):
            where = f"{self.definition.recipe.where}:{step.line}"
            own = claimed / f"mount{number}"
            if mount.kind == "cache":
                name = hashlib.sha256(f"{self.ids} {mount.name}".encode()).hexdigest()[:32]
                own = cache.root() / "mounts" / name
                own.mkdir(parents=True, exist_ok=True)
                own.chmod(0o755)
                binds.append(Bind(str(own), mount.target))
            elif mount.kind == "tmpfs":
                own.mkdir()
                own.chmod(0o1777)
                binds.append(Bind(str(own), mount.target))
            elif mount.origin is not None or mount.writable:
                own.mkdir()
                await self._copied(mount.origin, mount.source or "/", own, where)
                binds.append(Bind(str(own), mount.target, read_only=not mount.writable))
            else:
                (found,) = self.definition.context.find(mount.source or ".", where)[:1]
                binds.append(Bind(str(found.resolve()), mount.target, read_only=True))
        return tuple(binds)

    async def _copied(self, origin: str | None, source: str, into: Path, where: str) -> None:
        """Copy a folder of another stage, of an image or of the context to a folder of this machine."""
        if origin is None:
            found = self.definition.context.find(source, where)[0].resolve()
            await asyncio.to_thread(shutil.copytree, found, into, symlinks=True, dirs_exist_ok=True)
            return
        async with self._open_origin(origin) as sandbox:
            read = transfer.unpack_folder(into, _MOST_BIND_BYTES)
            await sandbox.get(f"/{source.strip('/')}", read, limit_bytes=_MOST_BIND_BYTES)


def _is_python(image: str) -> bool:
    return normalized(image).startswith("python:")


def _open(folder: Path, below: float) -> int | None:
    """Hold a published layer against the collector; None when there is none, or it is older than what is `below` it."""
    lock = cache.keep(folder)
    if lock is not None and not (_changed_at(folder / "meta.json") > below):
        os.close(lock)
        return None
    return lock


def _changed_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def built_at(built: BuiltImage) -> str | None:
    """Return when the youngest of its layers was built; None where it has none of its own."""
    notes = map(read_note, built.layers)
    return max((note.built_at for note in notes if note is not None), default=None)

"""From a Dockerfile to a layer: built once per content, in a sandbox, published in one step.

Two builders of the same content wait for each other; a crash leaves nothing that looks like a layer.
"""

import asyncio
import contextlib
import fcntl
import hashlib
import json
import os
import time
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from pathlib import Path

from terminalbench.json_files import read_json, write_json
from terminalbench.sandbox import cache, helper
from terminalbench.sandbox.base import HOST, Base, open_base
from terminalbench.sandbox.errors import Refused, SandboxError
from terminalbench.sandbox.image.builder import (
    Builder,
    Definition,
    ImageTable,
    declared,
    platform_arguments,
)
from terminalbench.sandbox.image.context import Context
from terminalbench.sandbox.image.dockerfile import Instruction, expand, parse
from terminalbench.sandbox.images.manifest import ImageConfig
from terminalbench.sandbox.network.client import Way
from terminalbench.sandbox.plan import Limits, Plan
from terminalbench.sandbox.session import Sandbox

VERSION = 2
_LOCK_PAUSE_SEC = 0.02


@dataclass(frozen=True)
class Layer:
    """A built image: its base, its folder, its configuration. `lock` keeps the folder while it is open."""

    base: Base
    folder: Path
    config: ImageConfig
    lock: int


def define(folder: Path, docker_image: str | None, table: ImageTable) -> Definition:
    """Read and check what a task's environment folder asks for; what cannot be honoured is refused here."""
    path = folder / "Dockerfile"
    if path.is_file():
        text, where = path.read_text(encoding="utf-8"), str(path)
    else:
        text, where = f"FROM {docker_image}\n", f"docker_image of {folder.parent.name}"
    arguments = platform_arguments()
    image, instructions = "", iter(parse(text, where))
    for instruction in instructions:
        if instruction.name == "ARG":
            arguments |= declared(instruction, arguments)
        elif instruction.name == "FROM":
            image = expand(instruction.value.split()[0] if instruction.value else "", arguments)
            _check_platform(instruction, arguments, where)
            break
        elif instruction.name not in ("LABEL", "MAINTAINER"):
            raise Refused(f"{instruction.name} before FROM", where=where, hint="start the Dockerfile with FROM")
    base = table.base_for(image, where=where)
    return Definition(tuple(instructions), arguments, text, Context(folder), image, base, where)


def _check_platform(instruction: Instruction, arguments: Mapping[str, str], where: str) -> None:
    wanted = expand(instruction.flag("platform") or "", arguments)
    if wanted and wanted != arguments["TARGETPLATFORM"] and not arguments["TARGETPLATFORM"].startswith(f"{wanted}/"):
        raise Refused(f"FROM --platform={wanted} on a {arguments['TARGETPLATFORM']} machine", where=where)


async def layer_for(definition: Definition, limits: Limits, *, force: bool, host_network: bool = False) -> Layer:
    """The layer of this definition on this machine; built now if it is not there, or if `force`d."""
    server = helper.running() or await asyncio.to_thread(helper.helper)
    base = await asyncio.to_thread(open_base, definition.base, server.ids)
    if base.name == HOST and definition.is_python and not base.has_program("python3"):
        raise Refused(f"{definition.image} stands for the host, which has no python3", where=definition.where)
    digest = await asyncio.to_thread(definition.context.digest)
    parts = [VERSION, base.name, base.fingerprint, server.ids, definition.text, digest]
    key = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]
    folder = cache.root() / "layers" / key
    folder.parent.mkdir(exist_ok=True)
    if not force and (layer := await asyncio.to_thread(_open, folder, base)) is not None:
        return layer
    before = time.time()
    async with _exclusive(folder.with_name(f"{key}.lock")):
        layer = await asyncio.to_thread(_open, folder, base)
        if layer is not None and (not force or (folder / "meta.json").stat().st_mtime > before):
            return layer
        if layer is not None:
            os.close(layer.lock)
        await _build(definition, base, limits, folder, host_network=host_network)
    layer = await asyncio.to_thread(_open, folder, base)
    if layer is None:
        raise SandboxError(f"the layer {folder} vanished while it was published")
    return layer


def _open(folder: Path, base: Base) -> Layer | None:
    """The published layer, locked against the collector; None when there is none."""
    lock = cache.keep(folder)
    if lock is None:
        return None
    try:
        return Layer(base, folder, read_json(folder / "meta.json", ImageConfig), lock)
    except FileNotFoundError:
        os.close(lock)
        return None


@contextlib.asynccontextmanager
async def _exclusive(path: Path) -> AsyncGenerator[None]:
    """Hold a lock file; waits without blocking the event loop, so that it can be cancelled."""
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            await _lock(handle)
            if os.fstat(handle).st_nlink:  # else a collector took it for one of a layer that is gone
                yield
                return
        finally:
            os.close(handle)


async def _lock(handle: int) -> None:
    while True:
        try:
            return fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            await asyncio.sleep(_LOCK_PAUSE_SEC)


async def _build(definition: Definition, base: Base, limits: Limits, folder: Path, *, host_network: bool) -> None:
    claimed = await asyncio.to_thread(cache.claim, "building")
    try:
        plan = Plan(
            base,
            limits,
            building=claimed.folder,
            scratch="disk",
            way=None if host_network else Way(phase="build"),
            host_network=host_network,
            holds=(claimed.lock,),
        )
        sandbox = await Sandbox.start(plan)
        try:
            config = await Builder(definition, sandbox).build()
        finally:
            await sandbox.stop()
        works = [str(path) for path in claimed.folder.glob("work*")]
        await asyncio.to_thread(helper.helper().ask, {"op": "remove", "paths": works})
        (claimed.folder / "lock").touch()
        write_json(claimed.folder / "meta.json", config)
        if folder.exists():  # a sandbox may still run on it: set aside, old enough for the collector
            aside = folder.with_name(f"{folder.name}.{claimed.folder.name}")
            folder.rename(aside)
            os.utime(aside / "lock", (0, 0))
        claimed.folder.rename(folder)
    finally:
        await asyncio.to_thread(cache.release, claimed)

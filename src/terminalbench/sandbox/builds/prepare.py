"""Images and builds, ready before the first trial: `python -m terminalbench.sandbox.builds.prepare`.

It reads a `PrepareRequest` from standard input and writes lines of JSON to standard output: a `PrepareStep` now and
then, at the end a `PrepareReport`. A process of its own: what serves sandboxes must not be shared with one that forks.
"""

import asyncio
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

from terminalbench.decode import decode
from terminalbench.errors import TbenchError
from terminalbench.sandbox.builds.layers import BuildSettings, build, built_at, define
from terminalbench.sandbox.builds.needs import (
    ImageReport,
    ImageTable,
    PrepareReport,
    PrepareRequest,
    PrepareStep,
    TaskBuild,
    image_sources,
    read_task_file,
    ways_out,
)
from terminalbench.sandbox.cache import collect_once
from terminalbench.sandbox.images.archives import RegistrySource
from terminalbench.sandbox.images.reference import parse_reference
from terminalbench.sandbox.images.registry import RegistryClient
from terminalbench.sandbox.images.store import ImageStore, PullProgress
from terminalbench.sandbox.plan import Certificates, limits_for

_PULLS = 3
_MOST_BUILDS = 4
_TELL_SEC = 0.5
_LEAST_STORAGE_MB = 20480


Tell = Callable[[str], None]


def prepare(request: PrepareRequest, tell: Tell) -> PrepareReport:
    """Have images and builds; what cannot be had is in the report."""
    with ThreadPoolExecutor(_PULLS) as pool:
        pulls = _Pulls(request, tell)
        images = dict(zip(request.images, pool.map(pulls.one, request.images), strict=True))
    pins = {name: one.digest for name, one in images.items() if one.digest is not None}
    if not request.builds:
        return PrepareReport(images)
    collect_once()
    table = {**request.pins, **pins}
    built, failed = asyncio.run(_TaskBuilds(request, table, tell).all())
    return PrepareReport(images, built, failed)


class _Pulls:
    """Fetches images side by side, and tells of all of them in one line."""

    def __init__(self, request: PrepareRequest, tell: Tell) -> None:
        self._request, self._tell = request, tell
        self._store = ImageStore()
        self._running: dict[str, PullProgress] = {}

    def one(self, name: str) -> ImageReport:
        try:
            return self._archive(name) if name.startswith("/") else self._image(name)
        except TbenchError as error:
            if name.startswith("/"):
                return ImageReport(here=False, problem=f"{name} cannot be used: {error} (correct [run.images])")
            return ImageReport(
                here=False, problem=f"the image {name} is not on this machine: {error.what} ({ways_out(name)})"
            )
        finally:
            self._running.pop(name, None)

    def _archive(self, place: str) -> ImageReport:
        found = self._store.load(Path(place), f"tbench.local/{Path(place).name.lower()}", tell=self._told)
        return ImageReport(found.digest, size=found.size)

    def _image(self, name: str) -> ImageReport:
        pinned = self._request.pins.get(name)
        known = self._store.image(pinned) if pinned is not None else self._store.find(name)
        if known is not None:
            now = self._store.find(name) or known
            moved = now.digest if pinned is not None and now.digest != pinned else None
            return ImageReport(known.digest, size=known.size, moved_to=moved)
        if self._request.lookup:
            return self._asked(name, pinned)
        wanted = f"{name.partition('@')[0]}@{pinned}" if pinned is not None else name
        found = self._store.pull(wanted, self._told)
        return ImageReport(found.digest, size=found.size)

    def _asked(self, name: str, pinned: str | None) -> ImageReport:
        """Return what its registry says of an image that is not here."""
        reference = parse_reference(f"{name.partition('@')[0]}@{pinned}" if pinned is not None else name)
        client = RegistryClient(reference, pause=lambda _seconds: None)
        try:
            found = RegistrySource(client).image()
        finally:
            client.close()
        return ImageReport(found.digest, here=False, size=sum(layer.size for layer in found.manifest.layers))

    def _told(self, progress: PullProgress) -> None:
        self._running[progress.name] = progress
        running = list(self._running.values())
        done, whole = sum(one.done for one in running), sum(one.bytes for one in running)
        names = ", ".join(one.name for one in running)
        self._tell(f"fetching {names}: {done >> 20} of {whole >> 20} MB")


class _TaskBuilds:
    """Builds the images of tasks side by side, and tells how far it is."""

    def __init__(self, request: PrepareRequest, pins: dict[str, str], tell: Tell) -> None:
        self._request, self._pins, self._tell = request, pins, tell
        self._done, self._doing = 0, ""

    async def all(self) -> tuple[dict[str, str | None], dict[str, str]]:
        limits = limits_for(None, _LEAST_STORAGE_MB, None, scratch="disk")
        how = BuildSettings(
            limits,
            force=self._request.force,
            host_network=self._request.host_network,
            certificates=Certificates(self._request.ca),
            slots=asyncio.Semaphore(max(1, min(_MOST_BUILDS, os.cpu_count() or 1))),
            tell=self._step,
        )
        built: dict[str, str | None] = {}
        failed: dict[str, str] = {}

        async def one(task: TaskBuild) -> None:
            try:
                folder = Path(task.folder)
                told = read_task_file(folder.parent)
                table = ImageTable(self._request.entries, self._pins, host=told.says_host_base)
                sources = await asyncio.to_thread(image_sources, folder, task.docker_image, told.compose_env)
                times = []
                for source in sources.values():
                    made = await build(await asyncio.to_thread(define, source, table), how, task.seconds)
                    times.append(built_at(made))
                    made.close()
                built[task.name] = max(filter(None, times), default=None)
            except TbenchError as error:
                failed[task.name] = str(error)
            self._done += 1
            self._step(self._doing)

        await asyncio.gather(*map(one, self._request.builds))
        return built, failed

    def _step(self, text: str) -> None:
        self._doing = text
        told = f": {text.splitlines()[0][:80]}" if text else ""
        self._tell(f"building {self._done} of {len(self._request.builds)}{told}")


def main() -> int:
    """Answer one request."""
    last = 0.0

    def tell(text: str) -> None:
        nonlocal last
        if time.monotonic() - last >= _TELL_SEC:
            last = time.monotonic()
            _write(PrepareStep(text))

    _write(prepare(decode(sys.stdin.buffer.read(), PrepareRequest), tell))
    return 0


def _write(told: PrepareStep | PrepareReport) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(told) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    sys.exit(main())

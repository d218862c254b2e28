"""The images of this machine: each layer unpacked once, each image a list of layers, all known by their digests.

<cache>/terminalbench/sandbox-<uid>/images/
  names/<hash>.json      a name that was pulled or imported, and the digest it had then
  records/<digest>.json  an image: its layers and settings; <digest>.lock is held by every process that uses it
  blobs/<digest>         a layer as it was fetched, until it is unpacked; .partial while it is fetched, with .lock
  <ids>/<chain>/         a layer unpacked above those below it: root/, meta.json; <ids> says which ids the files have

A blob counts when its digest is right, a layer when all of it is unpacked and its own digest is right, an image when
all of its layers are there: each appears by one renaming. Whoever fetches or unpacks one keeps others waiting for it.
"""

import contextlib
import fcntl
import functools
import hashlib
import os
import secrets
import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

import msgspec

from terminalbench.json_files import decode_plain, write_json
from terminalbench.sandbox import cache, helper
from terminalbench.sandbox.errors import ImageError, ImageFault, SandboxError
from terminalbench.sandbox.images.archives import ImageSource, RegistrySource, SourcedImage, open_source
from terminalbench.sandbox.images.layers import UnpackedLayer, unpack_layer
from terminalbench.sandbox.images.manifest import Descriptor, ImageConfig, settings_of
from terminalbench.sandbox.images.reference import parse_reference
from terminalbench.sandbox.images.registry import RegistryClient

_SIDE_BY_SIDE = 3
_RECORD_BYTES = 4 << 20


class LayerRecord(msgspec.Struct, frozen=True):
    """A layer of an image: its digests as it is fetched and as it is unpacked, its place among others, its size."""

    digest: str
    diff_id: str
    chain: str
    size: int


class ImageRecord(msgspec.Struct, frozen=True):
    """An image of the store."""

    digest: str
    layers: tuple[LayerRecord, ...]
    settings: ImageConfig
    architecture: str
    stored_at: str
    created: str | None = None

    @property
    def size(self) -> int:
        """Return how much was fetched for it, what it shares with others included."""
        return sum(layer.size for layer in self.layers)


class NameRecord(msgspec.Struct, frozen=True):
    """A name, and the image that it meant when it was last asked for."""

    name: str
    digest: str
    seen_at: str


@dataclass
class PullProgress:
    """How far the layers of an image are: bytes fetched of all that are to be fetched, layers ready of all."""

    name: str
    layers: int = 0
    ready: int = 0
    bytes: int = 0
    fetched: dict[str, int] = field(default_factory=dict)
    started_at: float = field(default_factory=time.monotonic)

    @property
    def done(self) -> int:
        """The bytes that were fetched."""
        return sum(self.fetched.values())


Tell = Callable[[PullProgress], None]


@dataclass(frozen=True)
class PruneResult:
    """What was removed: names, layers that no image has any more with their bytes, and images by their digests."""

    images: tuple[str, ...]
    layers: int
    bytes: int
    digests: tuple[str, ...] = ()


class ImageStore:
    """The images of this user, whose files have the ids that the helper may give them."""

    def __init__(self, root: Path | None = None, ids: str | None = None) -> None:
        self.root = root if root is not None else cache.root() / "images"
        self._ids = ids
        for name in ("names", "records", "blobs"):
            (self.root / name).mkdir(parents=True, exist_ok=True, mode=0o700)

    @functools.cached_property
    def _chains(self) -> Path:
        folder = self.root / (self._ids or helper.helper().ids)
        folder.mkdir(exist_ok=True, mode=0o700)
        return folder

    # Reading

    def find(self, name: str) -> ImageRecord | None:
        """Return the image that a name meant when it was last asked for, if all of it is here."""
        reference = parse_reference(name)
        if reference.digest is not None and (found := self.image(reference.digest)) is not None:
            return found
        told = decode_plain(self._name_file(str(reference)), NameRecord, _RECORD_BYTES)
        return self.image(told.digest) if told is not None else None

    def image(self, digest: str) -> ImageRecord | None:
        """Return the image of a digest, if all of it is here."""
        found = decode_plain(self._record_file(digest), ImageRecord, _RECORD_BYTES)
        if found is None or not all(self._chain(layer.chain).is_dir() for layer in found.layers):
            return None
        return found

    def images(self) -> Iterator[tuple[ImageRecord, list[NameRecord]]]:
        """Yield all images, each with the names that mean it."""
        names: dict[str, list[NameRecord]] = {}
        for file in sorted((self.root / "names").glob("*.json")):
            told = decode_plain(file, NameRecord, _RECORD_BYTES)
            if told is not None:
                names.setdefault(told.digest, []).append(told)
        for file in sorted((self.root / "records").glob("*.json")):
            found = decode_plain(file, ImageRecord, _RECORD_BYTES)
            if found is not None and self.image(found.digest) is not None:
                yield found, names.get(found.digest, [])

    def folders(self, image: ImageRecord) -> list[Path]:
        """Return the folders of its layers, the top one first."""
        return [self._chain(layer.chain) / "root" for layer in reversed(image.layers)]

    def hold(self, digest: str) -> int:
        """Keep an image from being pruned until the answer is closed."""
        lock = os.open(self._record_file(digest).with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(lock, fcntl.LOCK_SH)
        os.utime(lock)
        return lock

    # Fetching

    def pull(self, name: str, tell: Tell = lambda _progress: None) -> ImageRecord:
        """Ask the registry for an image, fetch what is missing of it, and return it."""
        reference = parse_reference(name)
        with _locked(self._name_file(str(reference)).with_suffix(".lock")):
            client = RegistryClient(reference)
            try:
                return self._add(RegistrySource(client), str(reference), tell)
            finally:
                client.close()

    def load(self, place: Path, name: str, tag: str | None = None, tell: Tell = lambda _progress: None) -> ImageRecord:
        """Take an image of an archive or a folder in, under a name."""
        work = self.root / "blobs" / f"packed-{os.getpid()}-{secrets.token_hex(4)}"
        with open_source(place, tag, work) as source:
            return self._add(source, str(parse_reference(name)), tell)

    def _add(self, source: ImageSource, name: str, tell: Tell) -> ImageRecord:
        with contextlib.suppress(OSError, SandboxError):  # it is removed later
            cache.collect_once()  # what a pull that was killed has half unpacked
        found = source.image()
        record = _record(found, name)
        progress = PullProgress(name, len(record.layers), bytes=0)
        with _locked(self.root / "store.lock", shared=True):
            missing = [layer for layer in record.layers if not self._chain(layer.chain).is_dir()]
            progress.ready, progress.bytes = len(record.layers) - len(missing), sum(layer.size for layer in missing)
            tell(progress)
            with ThreadPoolExecutor(_SIDE_BY_SIDE) as pool:
                fetched = {
                    layer.chain: pool.submit(self._fetch, source, layer, name, progress, tell) for layer in missing
                }
                try:
                    for number, layer in enumerate(record.layers):
                        if layer.chain in fetched:
                            self._unpack(fetched[layer.chain].result(), layer, record.layers[:number], name)
                            progress.ready += 1
                            tell(progress)
                except BaseException:
                    pool.shutdown(cancel_futures=True)
                    raise
            if (known := self.image(record.digest)) is not None:
                record = msgspec.structs.replace(record, stored_at=known.stored_at)
            write_json(self._record_file(record.digest), record)
            write_json(self._name_file(name), NameRecord(name, record.digest, _now()))
        return record

    def _fetch(self, source: ImageSource, layer: LayerRecord, name: str, progress: PullProgress, tell: Tell) -> Path:
        """Have a blob of the right digest; return its file."""
        file = self.root / "blobs" / _hex(layer.digest)
        with _locked(file.with_suffix(".lock")):
            if file.exists() or self._chain(layer.chain).is_dir():
                progress.fetched[layer.digest] = layer.size
                return file
            partial = file.with_suffix(".partial")
            with partial.open("a+b") as into:
                done = _hashable(into, layer.size)

                def told(count: int) -> None:
                    progress.fetched[layer.digest] = count
                    tell(progress)

                _check_room(self.root, layer.size - done)
                source.fetch(Descriptor(layer.digest, layer.size), into, done, told)
                into.flush()
                into.seek(0)
                if f"sha256:{hashlib.file_digest(into, 'sha256').hexdigest()}" != layer.digest:
                    partial.unlink(missing_ok=True)
                    what = f"{name}: a layer does not match its digest {layer.digest}"
                    raise ImageError(
                        ImageFault.DAMAGED,
                        what,
                        hint="try again; if it fails again, the image is damaged at its source",
                    )
            partial.rename(file)
        return file

    def _unpack(self, blob: Path, layer: LayerRecord, below: tuple[LayerRecord, ...], name: str) -> None:
        place = self._chain(layer.chain)
        with _locked(self._chains / f"{_hex(layer.chain)}.lock"):
            if place.is_dir():
                return
            claimed = cache.claim("building")
            try:
                folder = claimed.folder / "root"
                folder.mkdir(mode=0o755)
                lower = [str(self._chain(one.chain) / "root") for one in reversed(below)]
                told = unpack_layer(blob, folder, lower, f"{name}: {layer.digest}", cache.KEEP_FREE_BYTES)
                if told.diff_id != layer.diff_id:
                    what = f"{name}: a layer unpacks to {told.diff_id}, not to {layer.diff_id}"
                    raise ImageError(ImageFault.DAMAGED, what, hint="push or save the image again")
                write_json(claimed.folder / "meta.json", told)
                claimed.folder.rename(place)
            finally:
                cache.release(claimed)
        blob.unlink(missing_ok=True)

    # Removing

    def prune(
        self, names: list[str] | None = None, *, unused_days: float | None = None, dry: bool = False
    ) -> PruneResult:
        """Remove images by name, or those not used for so many days, and layers that no image has any more.

        What a process uses stays.
        """
        removed: list[ImageRecord] = []
        told: list[str] = []
        with _locked(self.root / "store.lock"):
            for image, known in list(self.images()):
                gone = self._unwanted(image, known, names, unused_days)
                if gone is None:
                    continue
                others = [one for one in known if one not in gone]
                if not others and not self._forget(image, dry=dry):
                    continue  # a process uses it
                removed += [] if others else [image]
                told += [one.name for one in gone] or [image.digest]
                for one in () if dry else gone:
                    self._name_file(one.name).unlink(missing_ok=True)
            kept = {layer.chain for image, _ in self.images() if image not in removed for layer in image.layers}
            chains = [one for one in self._chains.iterdir() if one.is_dir() and f"sha256:{one.name}" not in kept]
            freed = sum(_told_bytes(one) for one in chains)
            if not dry:
                helper.helper().ask({"op": "remove", "paths": [str(one) for one in chains]})
                for file in (self.root / "blobs").iterdir():
                    file.unlink(missing_ok=True)
        return PruneResult(tuple(told), len(chains), freed, tuple(image.digest for image in removed))

    def _unwanted(
        self, image: ImageRecord, known: list[NameRecord], names: list[str] | None, days: float | None
    ) -> list[NameRecord] | None:
        """The names of an image that are to go, all of them if it is meant by its digest; None if it is not meant."""
        if names is None:
            lock = self._record_file(image.digest).with_suffix(".lock")
            used_at = lock.stat().st_mtime if lock.exists() else datetime.fromisoformat(image.stored_at).timestamp()
            return known if days is None or time.time() - used_at > days * 86400 else None
        wanted = {name for name in names if name.startswith("sha256:")}
        for reference in (parse_reference(name) for name in names if not name.startswith("sha256:")):
            wanted.add(reference.digest or str(reference))
        if image.digest in wanted:
            return known
        return [one for one in known if one.name in wanted] or None

    def _forget(self, image: ImageRecord, *, dry: bool) -> bool:
        file = self._record_file(image.digest)
        with file.with_suffix(".lock").open("a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False  # a process uses it
            if not dry:
                file.unlink(missing_ok=True)
        return True

    # Places

    def _chain(self, chain: str) -> Path:
        return self._chains / _hex(chain)

    def _record_file(self, digest: str) -> Path:
        return self.root / "records" / f"{_hex(digest)}.json"

    def _name_file(self, name: str) -> Path:
        return self.root / "names" / f"{hashlib.sha256(name.encode()).hexdigest()[:32]}.json"


def _hex(digest: str) -> str:
    """Return the part of a digest that is a file's name; anything else could be a path."""
    kind, _, value = digest.partition(":")
    if kind != "sha256" or len(value) != 64 or value.strip("0123456789abcdef"):
        raise ImageError(
            ImageFault.UNSUPPORTED, f"{digest!r} is not a known kind of digest", hint="only sha256 is supported"
        )
    return value


def _record(found: SourcedImage, name: str) -> ImageRecord:
    layers, chain = [], ""
    for layer, diff_id in zip(found.manifest.layers, found.config.rootfs.diff_ids, strict=True):
        _hex(layer.digest)
        _hex(diff_id)
        chain = diff_id if not chain else f"sha256:{hashlib.sha256(f'{chain} {diff_id}'.encode()).hexdigest()}"
        layers.append(LayerRecord(layer.digest, diff_id, chain, layer.size))
    config = found.config
    settings = settings_of(config, name)
    return ImageRecord(found.digest, tuple(layers), settings, config.architecture, _now(), config.created)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _hashable(into: BinaryIO, size: int) -> int:
    """Return how much of a blob is there from a fetch that was cut, at its end; more than there can be is none."""
    done = into.seek(0, os.SEEK_END)
    if done >= size:
        into.seek(0)
        into.truncate()
        return 0
    return done


def _check_room(folder: Path, coming: int) -> None:
    room = os.statvfs(folder)
    if room.f_bavail * room.f_frsize - coming < cache.KEEP_FREE_BYTES:
        raise SandboxError(f"no space in {folder} for an image", hint=cache.MAKE_ROOM)


def _told_bytes(chain: Path) -> int:
    told = decode_plain(chain / "meta.json", UnpackedLayer, _RECORD_BYTES)
    return told.bytes if told is not None else 0


@contextlib.contextmanager
def _locked(path: Path, *, shared: bool = False) -> Generator[None]:
    """Hold a lock file, however long another process has it."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)

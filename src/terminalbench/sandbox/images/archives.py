"""Images that are not in a registry: an OCI layout (folder or tar), an archive of `docker save`, a root file system.

Each is asked as a registry is: for documents and for the bytes of layers.
"""

import hashlib
import io
import os
import shutil
import tarfile
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import BinaryIO, Protocol

import msgspec

from terminalbench.decode import NOT_DECODED, decode
from terminalbench.sandbox.errors import ImageError, ImageFault, Refused
from terminalbench.sandbox.images.manifest import (
    ConfigFile,
    Descriptor,
    Manifest,
    architecture,
    check_image,
    chosen,
    no_image,
    read_document,
)
from terminalbench.sandbox.images.registry import RegistryClient

_MOST_DOCUMENT_BYTES = 32 << 20
_NAME = "org.opencontainers.image.ref.name"
_CHUNK = 1 << 20


@dataclass(frozen=True)
class SourcedImage:
    """An image that a source has: its manifest and its configuration."""

    digest: str
    manifest: Manifest
    config: ConfigFile


class ImageSource(Protocol):
    """Where an image comes from."""

    def image(self) -> SourcedImage:
        """Return the image for this machine."""
        ...

    def fetch(self, layer: Descriptor, into: BinaryIO, done: int, told: Callable[[int], None]) -> None:
        """Write the bytes of a layer from `done` on."""
        ...


@dataclass(frozen=True)
class RegistrySource:
    """A registry, asked by a client."""

    client: RegistryClient

    def image(self) -> SourcedImage:
        """Return the image for this machine."""
        first = self.client.manifest()

        def manifest(digest: str) -> bytes:
            return first.data if digest == first.digest else self.client.manifest(digest).data

        return _resolved(str(self.client.reference), first.digest, manifest, self._document)

    def fetch(self, layer: Descriptor, into: BinaryIO, done: int, told: Callable[[int], None]) -> None:
        """Write the bytes of a layer from `done` on."""
        self.client.blob(layer.digest, layer.size, into, done, told)

    def _document(self, descriptor: Descriptor) -> bytes:
        if descriptor.size > _MOST_DOCUMENT_BYTES:
            raise ImageError(
                ImageFault.DAMAGED, f"{self.client.reference}: its configuration has {descriptor.size} bytes"
            )
        data = io.BytesIO()
        self.client.blob(descriptor.digest, descriptor.size, data, 0, lambda _done: None)
        return checked_digest(data.getvalue(), descriptor.digest, str(self.client.reference))


def _resolved(
    name: str, digest: str, manifest_of: Callable[[str], bytes], config_of: Callable[[Descriptor], bytes]
) -> SourcedImage:
    """Return the image of a digest; of an index, the one for this machine."""
    manifest = read_document(manifest_of(digest), Manifest, name)
    if manifest.manifests:
        digest = chosen(manifest, name).digest
        manifest = read_document(manifest_of(digest), Manifest, name)
    if manifest.config is None:
        raise no_image(name)
    config = read_document(config_of(manifest.config), ConfigFile, name)
    check_image(manifest, config, name)
    return SourcedImage(digest, manifest, config)


def checked_digest(data: bytes, digest: str, name: str) -> bytes:
    """Return a document if it is the one of that digest."""
    if _digest(data) != digest:
        raise ImageError(
            ImageFault.DAMAGED, f"{name}: a document does not match its digest {digest}", hint="fetch the image again"
        )
    return data


class _Files(Protocol):
    def read(self, name: str) -> bytes | None: ...

    def open(self, name: str) -> BinaryIO | None: ...


@dataclass(frozen=True)
class _ArchiveFolder:
    path: Path

    def read(self, name: str) -> bytes | None:
        stream = self.open(name)
        if stream is None:
            return None
        with stream:
            return stream.read(_MOST_DOCUMENT_BYTES)

    def open(self, name: str) -> BinaryIO | None:
        file = self.path / name
        return file.open("rb") if file.is_file() and file.resolve().is_relative_to(self.path.resolve()) else None


@dataclass
class _Tar:
    archive: tarfile.TarFile
    members: dict[str, tarfile.TarInfo] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.members = {member.name.removeprefix("./"): member for member in self.archive}

    def read(self, name: str) -> bytes | None:
        stream = self.open(name)
        return stream.read(_MOST_DOCUMENT_BYTES) if stream is not None else None

    def open(self, name: str) -> BinaryIO | None:
        member = self.members.get(name)
        hops = 0
        while member is not None and (member.issym() or member.islnk()) and hops < 9:
            beside = "" if member.islnk() else f"{member.name.rpartition('/')[0]}/"
            target = os.path.normpath(f"{beside}{member.linkname}")
            member, hops = self.members.get(target.removeprefix("./")), hops + 1
        return self.archive.extractfile(member) if member is not None and member.isreg() else None  # ty: ignore[invalid-return-type]


class _SavedImage(msgspec.Struct, rename="pascal"):
    config: str
    layers: list[str]
    repo_tags: list[str] | None = None


@dataclass
class ArchiveSource:
    """An OCI layout, or what `docker save` has written, in a folder or an archive."""

    name: str
    files: _Files
    tag: str | None = None
    names: dict[str, str] = field(default_factory=dict)
    _one: Lock = field(default_factory=Lock)

    def image(self) -> SourcedImage:
        """Return its image: the one of the tag, or the only one."""
        return self._saved() if self.files.read("index.json") is None else self._layout()

    def fetch(self, layer: Descriptor, into: BinaryIO, done: int, told: Callable[[int], None]) -> None:
        """Write the bytes of a layer from `done` on."""
        with self._one:  # several layers are wanted at once, and an archive has one place to read at
            self._copy(layer, into, done, told)

    def _copy(self, layer: Descriptor, into: BinaryIO, done: int, told: Callable[[int], None]) -> None:
        stream = self.files.open(self.names.get(layer.digest) or _blob(layer.digest))
        if stream is None:
            raise ImageError(ImageFault.DAMAGED, f"{self.name} lacks the layer {layer.digest}")
        with closing(stream):
            stream.seek(done)
            while part := stream.read(_CHUNK):
                into.write(part)
                done += len(part)
                told(done)

    def _layout(self) -> SourcedImage:
        index = read_document(self.files.read("index.json") or b"", _Index, self.name)
        there = [one for one in index.manifests if self.tag is None or one.annotations.get(_NAME) == self.tag]
        if self.tag is not None and not there:
            known = ", ".join(filter(None, (one.annotations.get(_NAME) for one in index.manifests))) or "none"
            raise ImageError(
                ImageFault.NOT_FOUND, f"{self.name} has no image called {self.tag}", hint=f"it has: {known}"
            )
        several = Manifest(manifests=tuple(Descriptor(o.digest, o.size, o.media_type, o.platform) for o in there))
        first = there[0] if len(there) == 1 else chosen(several, self.name)
        return _resolved(self.name, first.digest, self._document, lambda config: self._document(config.digest))

    def _document(self, digest: str) -> bytes:
        data = self.files.read(_blob(digest))
        if data is None:
            raise ImageError(ImageFault.DAMAGED, f"{self.name} lacks the document {digest}")
        return checked_digest(data, digest, self.name)

    def _saved(self) -> SourcedImage:
        try:
            told = decode(self.files.read("manifest.json") or b"", list[_SavedImage])
        except NOT_DECODED:
            hint = "give an OCI layout, an archive of docker save, or a folder with a root file system"
            raise ImageError(ImageFault.UNSUPPORTED, f"{self.name} is not a known kind of image", hint=hint) from None
        if self.tag is not None:
            told = [one for one in told if self.tag in (one.repo_tags or ())]
        if len(told) != 1:
            raise ImageError(
                ImageFault.NOT_FOUND, f"{self.name} contains {len(told)} matching images", hint="choose one with --tag"
            )
        data = self.files.read(told[0].config) or b""
        config = read_document(data, ConfigFile, self.name)
        layers = tuple(self._layer(name) for name in told[0].layers)
        manifest = Manifest(Descriptor(_digest(data), len(data)), layers)
        check_image(manifest, config, self.name)
        return SourcedImage(_digest(msgspec.json.encode(manifest)), manifest, config)

    def _layer(self, name: str) -> Descriptor:
        stream = self.files.open(name)
        if stream is None:
            raise ImageError(ImageFault.DAMAGED, f"{self.name} lacks {name}")
        with closing(stream):
            whole = hashlib.sha256()
            size = 0
            while part := stream.read(_CHUNK):
                whole.update(part)
                size += len(part)
        digest = f"sha256:{whole.hexdigest()}"
        self.names[digest] = name
        return Descriptor(digest, size)


class _AnnotatedDescriptor(Descriptor, frozen=True, rename="camel"):
    annotations: dict[str, str] = msgspec.field(default_factory=dict)


class _Index(msgspec.Struct):
    manifests: list[_AnnotatedDescriptor] = msgspec.field(default_factory=list)


def _blob(digest: str) -> str:
    kind, _, value = digest.partition(":")
    return f"blobs/{kind}/{value}"


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


@dataclass
class RootFolderSource:
    """A folder with a root file system: one layer, packed when it is asked for."""

    folder: Path
    work: Path

    def image(self) -> SourcedImage:
        """Return it as an image without settings."""
        self.work.parent.mkdir(parents=True, exist_ok=True)
        with tarfile.open(self.work, "w", format=tarfile.PAX_FORMAT) as archive:
            archive.add(self.folder, arcname=".")
        size = self.work.stat().st_size
        with self.work.open("rb") as stream:
            digest = f"sha256:{hashlib.file_digest(stream, 'sha256').hexdigest()}"
        config = {"architecture": architecture(), "os": "linux", "rootfs": {"type": "layers", "diff_ids": [digest]}}
        data = msgspec.json.encode(config)
        manifest = Manifest(Descriptor(_digest(data), len(data)), (Descriptor(digest, size),))
        return SourcedImage(_digest(msgspec.json.encode(manifest)), manifest, decode(data, ConfigFile))

    def fetch(self, layer: Descriptor, into: BinaryIO, done: int, told: Callable[[int], None]) -> None:
        """Write the bytes of its only layer."""
        with self.work.open("rb") as stream:
            stream.seek(done)
            shutil.copyfileobj(stream, into, _CHUNK)
        told(layer.size)


@contextmanager
def open_source(place: Path, tag: str | None, work: Path) -> Generator[ImageSource]:
    """Open a folder or an archive that holds an image; `work` is a file that may be written meanwhile."""
    if place.is_dir():
        if (place / "index.json").is_file() or (place / "manifest.json").is_file():
            yield ArchiveSource(str(place), _ArchiveFolder(place), tag)
            return
        if not os.path.lexists(place / "bin" / "sh") and not os.path.lexists(place / "usr/bin/sh"):
            raise Refused(
                f"{place} is neither an OCI layout nor a root file system: it has no /bin/sh",
                hint="give the folder of one",
            )
        try:
            yield RootFolderSource(place, work)
        finally:
            work.unlink(missing_ok=True)
        return
    try:
        archive = tarfile.open(place, "r:*")  # noqa: SIM115  it is closed below
    except FileNotFoundError:
        raise Refused(f"{place} does not exist", hint="correct the path") from None
    except (tarfile.TarError, OSError, EOFError) as error:
        raise Refused(
            f"{place} is not an image archive: {error}", hint="name an archive made by docker save or skopeo copy"
        ) from None
    with archive:
        try:
            yield ArchiveSource(place.name, _Tar(archive), tag)
        except (tarfile.TarError, EOFError) as error:
            raise ImageError(ImageFault.DAMAGED, f"{place} is damaged: {error}") from None

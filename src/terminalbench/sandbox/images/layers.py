"""Unpacking the layers of images: a blob is decompressed and hashed here, and unpacked by the helper."""

import contextlib
import fcntl
import hashlib
import os
import sys
import zlib
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from threading import Thread
from typing import Any, BinaryIO

import msgspec

from terminalbench.sandbox import helper
from terminalbench.sandbox.engine import wire
from terminalbench.sandbox.engine.tar_stream import BadArchive
from terminalbench.sandbox.errors import ImageError, ImageFault, SandboxError

MOST_ENTRIES = 10_000_000
_CHUNK = 1 << 20
_PIPE_BYTES = 1 << 20
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"


class UnpackedLayer(msgspec.Struct, frozen=True):
    """What unpacking a layer has told."""

    diff_id: str
    entries: int
    bytes: int
    squashed: int = 0
    lost_attributes: int = 0
    skipped: tuple[str, ...] = ()


def unpack_layer(blob: Path, folder: Path, lower: list[str], name: str, keep_free: int) -> UnpackedLayer:
    """Unpack a blob into a folder, above others, by the helper; what it told."""
    read, write = os.pipe2(os.O_CLOEXEC)
    with contextlib.suppress(OSError):
        fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    request = {
        "op": "unpack",
        "folder": str(folder),
        "lower": lower,
        "keep_free": keep_free,
        "most_entries": MOST_ENTRIES,
    }
    try:
        reply = helper.helper().request(request, (read,))
    except BaseException:
        os.close(write)
        raise
    finally:
        os.close(read)
    feeding = _LayerFeed(blob, write)
    feeding.start()
    with reply:
        reply.setblocking(True)
        answer, _ = wire.receive(reply)
    feeding.join()
    told = answer or {"error": "the helper ended"}
    if feeding.problem is not None or told.get("kind") == BadArchive.__name__:
        what = f"{name} cannot be unpacked: {feeding.problem or told['error']}"
        raise ImageError(ImageFault.DAMAGED, what, hint="fetch the image again")
    if "error" in told:  # of this machine, as a full disk
        raise SandboxError(f"{name} cannot be unpacked: {told['error']}")
    return msgspec.structs.replace(_of_answer(told), diff_id=f"sha256:{feeding.whole.hexdigest()}")


def _of_answer(answer: dict[str, Any]) -> UnpackedLayer:
    told = {name: answer[name] for name in ("entries", "bytes", "squashed", "lost_attributes")}
    return UnpackedLayer(diff_id="", skipped=tuple(answer["skipped"]), **told)


class _LayerFeed(Thread):
    """Writes the archive of a layer, decompressed, into a pipe, and hashes it."""

    def __init__(self, blob: Path, into: int) -> None:
        super().__init__(name="layer", daemon=True)
        self._blob, self._into = blob, into
        self.whole = hashlib.sha256()
        self.problem: str | None = None

    def run(self) -> None:
        try:
            with self._blob.open("rb") as stream:
                for part in decompressed(stream):
                    self.whole.update(part)
                    rest = memoryview(part)
                    while rest:
                        rest = rest[os.write(self._into, rest) :]
        except BrokenPipeError:
            pass  # the answer says why
        except Exception as error:  # noqa: BLE001  a decompressor raises its own; whatever it is, the layer cannot be read
            self.problem = str(error)
        finally:
            os.close(self._into)


def decompressed(stream: BinaryIO) -> Iterator[bytes]:
    """Yield the bytes of a layer that is compressed by gzip or zstd, or not at all: its first bytes tell."""
    first = stream.read(4)
    stream.seek(0)
    if first[:2] == _GZIP:
        yield from _stream(stream, _Gzip)
    elif first == _ZSTD:
        yield from _stream(stream, _zstd())
    else:
        while part := stream.read(_CHUNK):
            yield part


class _Gzip:
    """A decompressor of gzip with the interface of the standard library's others."""

    def __init__(self) -> None:
        self._work = zlib.decompressobj(31)

    @property
    def eof(self) -> bool:
        return self._work.eof

    @property
    def unused_data(self) -> bytes:
        return self._work.unused_data

    @property
    def needs_input(self) -> bool:
        return not self._work.unconsumed_tail

    def decompress(self, data: bytes, max_length: int) -> bytes:
        return self._work.decompress(self._work.unconsumed_tail + data, max_length)


def _zstd() -> Callable[[], Any]:
    module = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"
    return import_module(module).ZstdDecompressor


def _stream(stream: BinaryIO, make: Callable[[], Any]) -> Iterator[bytes]:
    """Yield what a decompressor makes of a stream, in pieces of bounded size; it may hold several of its frames."""
    work = make()
    data = stream.read(_CHUNK)
    while True:
        part = work.decompress(data, _CHUNK)
        data = b""
        if part:
            yield part
        if work.eof:
            data = work.unused_data.lstrip(b"\0") or stream.read(_CHUNK)
            if not data:
                return
            work = make()
        elif work.needs_input:
            data = stream.read(_CHUNK)
            if not data:
                raise EOFError("the layer ends too early")

"""A model file: the header of GGUF, whose weights are not read, and the digest, for which no file is read twice."""

import hashlib
import math
import re
import struct
from contextlib import suppress
from io import BufferedReader
from pathlib import Path
from typing import Any

import msgspec

from terminalbench.files import write_bytes
from terminalbench.json_files import decode_plain
from terminalbench.llm.model import ModelError, ModelFault
from terminalbench.locks import changing
from terminalbench.modes import make_own_folder, user_cache

_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_LONGEST = 64 << 20
"""The longest text in a header that is believed."""
_SHOWN = 8
"""Numbers of an array that are kept: they say the same of each layer, or nearly."""
_MOST_TENSORS = 1_000_000
_PACKED = {
    0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 9: (32, 40),
    10: (256, 84), 11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210), 15: (256, 292), 16: (256, 66),
    17: (256, 74), 18: (256, 98), 19: (256, 50), 20: (32, 18), 21: (256, 110), 22: (256, 82), 23: (256, 136),
    24: (1, 1), 25: (1, 2), 26: (1, 4), 27: (1, 8), 28: (1, 8), 29: (256, 56), 30: (1, 2),
}  # fmt: skip
"""How many weights of a type stand together, and in how many bytes. A type that is not here is taken to need none."""


class ModelFile(msgspec.Struct, frozen=True, kw_only=True):
    """A model file. `kv_bytes` is what a token of its window takes in memory, `tools` whether its template has them."""

    path: str
    size: int
    name: str
    architecture: str
    context_tokens: int
    kv_bytes: int
    tools: bool
    quantization: str | None = None


class _NotGguf(Exception):
    """The bytes are no header of a GGUF file."""


def read_model_file(path: Path) -> ModelFile:
    """Return what the file at `path` is. Raises `ModelError`: it is not there, cannot be read, or is no model."""
    try:
        with path.open("rb") as stream:
            tensors, found = _header(stream)
            missing = _end(stream, tensors, found) - (size := path.stat().st_size)
        if missing > 0:
            raise _NotGguf(f"its last {missing:,} bytes are missing")
    except FileNotFoundError:
        raise ModelError(
            ModelFault.NOT_FOUND,
            f"there is no model file {path}",
            hint="name a .gguf file, as in local:models/qwen.gguf",
        ) from None
    except IsADirectoryError:
        raise ModelError(ModelFault.NOT_FOUND, f"{path} is a folder", hint="name the .gguf file in it") from None
    except OSError as error:
        what = f"{path} cannot be read: {error.strerror}"
        raise ModelError(ModelFault.NOT_FOUND, what, hint="give your user permission to read it") from None
    except (_NotGguf, struct.error, UnicodeDecodeError) as error:
        raise ModelError(
            ModelFault.MISSING,
            f"{path} is not a complete GGUF file: {error}",
            hint="download it again, and check its size or digest",
        ) from None
    return _described(path, size, found)


def served_name(path: Path) -> str:
    """Return what a file's model is called by those who ask for it: letters, digits and `.-_`, at most 60."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", path.stem).strip("-.")[:60] or "model"


def _described(path: Path, size: int, found: dict[str, Any]) -> ModelFile:
    architecture = str(found.get("general.architecture") or "unknown")

    def number(name: str, otherwise: int) -> int:
        value = found.get(f"{architecture}.{name}")
        value = max(value) if isinstance(value, list) and value else value
        return value if isinstance(value, int) and value > 0 else otherwise

    heads = number("attention.head_count", 1)
    width = number("embedding_length", 0) // heads
    key, value = number("attention.key_length", width), number("attention.value_length", width)
    quantized = re.search(r"(?i)\b(I?Q\d\w*|F16|F32|BF16)$", path.stem.replace(".", " ").replace("-", " "))
    return ModelFile(
        path=str(path.resolve()),
        size=size,
        name=served_name(path),
        architecture=architecture,
        context_tokens=number("context_length", 4096),
        kv_bytes=2 * number("block_count", 1) * number("attention.head_count_kv", heads) * (key + value),
        tools="tools" in str(found.get("tokenizer.chat_template") or ""),
        quantization=quantized[1] if quantized else None,
    )


def _header(stream: BufferedReader) -> tuple[int, dict[str, Any]]:
    """Return how many tensors the file has, and what it says of itself."""
    if stream.read(4) != b"GGUF":
        raise _NotGguf("it does not start with GGUF")
    version, tensors, keys = _unpack(stream, "<IQQ")
    if version not in (2, 3):
        raise _NotGguf(f"version {version} is unknown")
    if keys > 100_000 or tensors > _MOST_TENSORS:
        raise _NotGguf("its header is damaged")
    return tensors, {_text(stream): _value(stream, _unpack(stream, "<I")[0]) for _ in range(keys)}


def _end(stream: BufferedReader, tensors: int, found: dict[str, Any]) -> int:
    """Return where the last weight ends, by the table of tensors that follows the header."""
    last = 0
    for _ in range(tensors):
        _text(stream)
        dimensions = _unpack(stream, "<I")[0]
        if dimensions > _SHOWN:
            raise _NotGguf("its header is damaged")
        weights = math.prod(_unpack(stream, f"<{dimensions}Q"))
        kind, offset = _unpack(stream, "<IQ")
        block, size = _PACKED.get(kind, (1, 0))
        last = max(last, offset + weights // block * size)
    align = found.get("general.alignment")
    align = align if isinstance(align, int) and align > 0 else 32
    return math.ceil(stream.tell() / align) * align + last


def _value(stream: BufferedReader, kind: int) -> Any:
    if kind == _STRING:
        return _text(stream)
    if kind == _ARRAY:
        inner, length = _unpack(stream, "<IQ")
        return _array(stream, inner, length)
    if kind not in _NUMBERS:
        raise _NotGguf("its header is damaged")
    return _unpack(stream, f"<{_NUMBERS[kind]}")[0]


def _array(stream: BufferedReader, kind: int, length: int) -> list[Any]:
    """The first items of an array; vocabularies are passed over."""
    if kind in _NUMBERS:
        shown = [_value(stream, kind) for _ in range(min(length, _SHOWN))]
        stream.seek(struct.calcsize(f"<{_NUMBERS[kind]}") * (length - len(shown)), 1)
        return shown
    if kind != _STRING:
        raise _NotGguf("its header is damaged")
    for _ in range(length):
        size = _unpack(stream, "<Q")[0]
        if len(stream.read(size if size < _LONGEST else 0)) != size:
            raise _NotGguf("it ends in its header")
    return []


def _text(stream: BufferedReader) -> str:
    size = _unpack(stream, "<Q")[0]
    if size > _LONGEST:
        raise _NotGguf("its header is damaged")
    found = stream.read(size)
    if len(found) != size:
        raise _NotGguf("it ends in its header")
    return found.decode(errors="replace")


def _unpack(stream: BufferedReader, form: str) -> tuple[Any, ...]:
    wanted = struct.calcsize(form)
    found = stream.read(wanted)
    if len(found) != wanted:
        raise _NotGguf("it ends in its header")
    return struct.unpack(form, found)


_KEPT = 200
"""Files whose digests are remembered."""


class _KnownDigest(msgspec.Struct, frozen=True):
    """A digest, and the state of the file that it was read from."""

    state: tuple[int, int, int]
    digest: str


def file_digest(path: Path) -> str:
    """The SHA-256 of a file. One that has the size, time and place of last time is not read again.

    Raises `OSError`.
    """
    about = path.stat()
    state = (about.st_size, about.st_mtime_ns, about.st_ino)
    name, memory = str(path.resolve()), user_cache() / "model-digests.json"
    known: dict[str, _KnownDigest] = decode_plain(memory, dict[str, _KnownDigest], 1 << 20) or {}
    if name in known and known[name].state == state:
        return known[name].digest
    with path.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    with suppress(OSError):  # a cache that cannot be written is read again next time
        make_own_folder(memory.parent)
        _remember(memory, name, _KnownDigest(state, digest))
    return digest


def _remember(memory: Path, name: str, found: _KnownDigest) -> None:
    with changing(memory):
        known: dict[str, _KnownDigest] = decode_plain(memory, dict[str, _KnownDigest], 1 << 20) or {}
        known.pop(name, None)
        latest = [*known.items(), (name, found)][-_KEPT:]
        write_bytes(memory, msgspec.json.encode(dict(latest)), durable=False)

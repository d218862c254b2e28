"""The digest of a model file, which is not read twice."""

import hashlib
from contextlib import suppress
from pathlib import Path

import msgspec

from terminalbench.files import write_bytes
from terminalbench.json_files import decode_plain
from terminalbench.locks import changing
from terminalbench.modes import make_own_folder, user_cache

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

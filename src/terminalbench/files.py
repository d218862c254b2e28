"""The only writer of files: atomic JSON, append-only JSONL, locks that name their owner, and tailing.

A reader never sees half a JSON file (temporary file, fsync, rename). A JSONL file survives a crash in
the middle of a line: the torn line is closed by the next append, and readers count it instead of failing.
What an agent could have written is read by `read_plain` and its kin: never through a link, never a pipe, never
without a bound. What is made here is this user's alone (0600, 0700), see `modes`.
"""

import contextlib
import fcntl
import os
import socket
import stat
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from terminalbench.decode import decode, decoder
from terminalbench.errors import TbenchError
from terminalbench.modes import file_mode, make_folder, make_project_folder, mode_of

_NAME_SEC = 10.0
_STOPPED_SEC = 1.0
"""A writer that holds a lock for longer is taken for stopped by those who need not wait."""


def write_bytes(path: Path, data: bytes, *, durable: bool = True, mode: int | None = None) -> None:
    """Replace `path` by `data` atomically and durably; on any error the old file stays as it was.

    Not `durable` is for what can be made again at any time: faster, and a power cut may lose it. A file that is there
    keeps its mode; a new one has `mode`, which is this user's alone unless told.
    """
    write_lines(path, (data,), durable=durable, mode=mode)


def write_lines(path: Path, lines: Iterable[bytes], *, durable: bool = True, mode: int | None = None) -> None:
    """Replace `path` by `lines` (each with its newline) as they come, atomically: the file is never held in memory."""
    with _naming(path):
        make_folder(path.parent)
        before = mode_of(path)
        temporary = path.with_name(f".{path.name[:50]}.{os.urandom(6).hex()}.tmp")
        handle = os.open(
            temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, file_mode() if mode is None else mode
        )
        try:
            with os.fdopen(handle, "wb") as stream:
                if before is not None:
                    os.fchmod(handle, before)
                stream.writelines(lines)
                stream.flush()
                if durable:
                    os.fsync(stream.fileno())
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        if durable:
            _sync_folder(path.parent)


def write_text(path: Path, text: str) -> None:
    """Replace `path` by `text` atomically."""
    write_bytes(path, text.encode())


def write_project_file(path: Path, text: str) -> None:
    """The same for a file of a project, which people share: a new one has the mode that the umask gives it."""
    make_project_folder(path.parent)
    write_bytes(path, text.encode(), mode=0o666)


def overwrite(path: Path, data: bytes) -> None:
    """Write `data` over what stands in a plain file, in place: its other names (hard links) show the same."""
    handle = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with _naming(path), os.fdopen(handle, "wb") as stream:
        stream.write(data)
        stream.flush()
        os.ftruncate(handle, len(data))


def encode_json(value: Any) -> bytes:
    """`value` as indented JSON with a final newline: structs, dataclasses, paths and times included."""
    return msgspec.json.format(msgspec.json.encode(value, enc_hook=_encode_other), indent=2) + b"\n"


def write_json(path: Path, value: Any) -> None:
    """Replace `path` by `value` as JSON atomically."""
    write_bytes(path, encode_json(value))


def read_json(path: Path, kind: Any = Any) -> Any:
    """The JSON in `path` decoded as `kind`; a corrupt file is an error that names it."""
    try:
        return decode(path.read_bytes(), kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise TbenchError(f"not readable as JSON: {error}", where=str(path)) from error


def encode_line(value: Any) -> bytes:
    """`value` as one line of a JSONL file."""
    return msgspec.json.encode(value, enc_hook=_encode_other) + b"\n"


def append_jsonl(path: Path, record: Any, *, durable: bool = False) -> None:
    """Append one record as one line; a torn last line left by a crash is closed first."""
    append_lines(path, encode_line(record), durable=durable)


def append_lines(path: Path, lines: bytes, *, durable: bool = False) -> None:
    """Append lines, each with its newline, after closing a torn last line; without lines that is all it does."""
    with _naming(path), _opened(path, os.O_APPEND) as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        size = os.fstat(handle).st_size
        if size and os.pread(handle, 1, size - 1) != b"\n":
            lines = b"\n" + lines
        while lines:
            lines = lines[os.write(handle, lines) :]
        if durable:
            os.fsync(handle)


@contextlib.contextmanager
def _opened(path: Path, flags: int = 0) -> Generator[int]:
    """A handle to read and write a file, made with its folder where it is missing."""
    make_folder(path.parent)
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | flags, file_mode())
    try:
        yield handle
    finally:
        os.close(handle)


@dataclass(frozen=True)
class BadLine:
    """A line of a JSONL file that could not be read: its number (from 1) and why."""

    number: int
    reason: str

    @property
    def cut_off(self) -> bool:
        """Whether it ends in the middle of a value, as a writer that was killed leaves it."""
        return "truncated" in self.reason  # so msgspec says it; it has no type of its own for that


@dataclass
class JsonLines:
    """What a JSONL file holds: its records, the lines that could not be read, and where the reading ended."""

    records: list[Any] = field(default_factory=list)
    bad: list[BadLine] = field(default_factory=list)
    offset: int = 0


def read_log(path: Path, kind: Any) -> list[Any]:
    """The records of an append-only log. A line cut off by the end of its writer never was; else it is an error."""
    found = read_jsonl(path, kind)
    for bad in found.bad:
        if not bad.cut_off:
            what = f"line {bad.number} cannot be read: {bad.reason}"
            raise TbenchError(what, where=str(path), hint="restore the file")
    return found.records


def read_jsonl(path: Path, kind: Any = Any) -> JsonLines:
    """All complete lines of `path` decoded as `kind`; a missing file holds none."""
    return tail_jsonl(path, 0, kind)


def tail_jsonl(path: Path, offset: int, kind: Any = Any) -> JsonLines:
    """The complete lines of `path` from byte `offset` on. Pass the returned `offset` to the next call.

    A line without its newline is still being written (or torn) and is left for the next call. A file
    that became shorter than `offset` was replaced, and is read from its start.
    """
    found = JsonLines(offset=offset)
    try:
        with path.open("rb") as stream:
            if os.fstat(stream.fileno()).st_size < offset:
                found.offset = 0
            stream.seek(found.offset)
            data = stream.read()
    except FileNotFoundError:
        return found
    end = data.rfind(b"\n") + 1
    for record in _decoded(data[:end].split(b"\n"), kind):
        (found.bad if isinstance(record, BadLine) else found.records).append(record)
    found.offset += end
    return found


def each_jsonl(path: Path, kind: Any = Any) -> Iterator[Any]:
    """The lines of `path` one by one, decoded as `kind`; a line that cannot be read is a `BadLine`."""
    with path.open("rb") as stream:
        yield from _decoded(stream, kind)


def _decoded(lines: Iterable[bytes], kind: Any) -> Iterator[Any]:
    known = decoder(kind)
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            yield known.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            yield BadLine(number, str(error))


class Owner(msgspec.Struct, frozen=True, omit_defaults=True):
    """Who holds a lock."""

    pid: int
    host: str
    since: str
    what: str = ""
    start_ticks: int | None = None

    def __str__(self) -> str:
        return f"{self.what or 'a process'} (pid {self.pid} on {self.host}, since {self.since})"


class LockHeld(TbenchError):
    """Another live process holds the lock; `owner` is what it said of itself, if it could be read."""

    def __init__(self, path: Path, owner: Owner | None) -> None:
        super().__init__(f"in use by {owner or 'another process'}", where=str(path))
        self.owner = owner


@contextlib.contextmanager
def lock(path: Path, what: str = "") -> Generator[Owner]:
    """Hold an exclusive advisory lock on `path`, naming ourselves in it; raise `LockHeld` if it is taken.

    The kernel releases the lock when its holder dies, so a lock file left behind is taken over.
    """
    with _opened(path) as handle:
        _take(handle, path)
        since = datetime.now(UTC).isoformat(timespec="seconds")
        owner = Owner(os.getpid(), socket.gethostname(), since, what, start_ticks(os.getpid()))
        with _naming(path):
            os.ftruncate(handle, 0)
            os.pwrite(handle, msgspec.json.encode(owner) + b"\n", 0)
        try:
            yield owner
        finally:
            os.ftruncate(handle, 0)


@contextlib.contextmanager
def changing(path: Path, *, wait: bool = True, held_up: Callable[[Path], None] | None = None) -> Generator[None]:
    """Wait for the right to change `path`, which several processes read, change and write; held by a file beside it.

    Without `wait`, no longer than a writer takes that works: one that is stopped is LockHeld. `held_up` is told the
    lock, once, where it takes longer than that.
    """
    lock_file = path.with_suffix(".lock")
    with _opened(lock_file) as handle:
        try:
            _take(handle, lock_file, _STOPPED_SEC if held_up is not None or not wait else 0.0)
        except LockHeld:
            if not wait:
                raise
            if held_up is not None:
                held_up(lock_file)
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _plain(path: str | Path) -> tuple[int, int] | None:
    """A handle for reading and the size of a plain file; None for a link, a pipe or nothing at all."""
    try:
        # O_NONBLOCK: opening a pipe that nobody writes to would wait for ever.
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    status = os.fstat(handle)
    if stat.S_ISREG(status.st_mode):
        return handle, status.st_size
    os.close(handle)
    return None


@contextlib.contextmanager
def open_plain(path: str | Path) -> Generator[BinaryIO | None]:
    """`path` opened for reading if it is a plain file, else None."""
    opened = _plain(path)
    if opened is None:
        yield None
        return
    with os.fdopen(opened[0], "rb", buffering=0) as raw:
        yield raw


def read_plain(path: str | Path, limit: int) -> bytes | None:
    """The content of a plain file of at most `limit` bytes, else None. Readers ask for many that are not there."""
    opened = _plain(path)
    if opened is None:
        return None
    handle, size = opened
    try:
        if size > limit:
            return None
        # One byte more than it has: what grows meanwhile is read too, up to the limit.
        data = os.read(handle, size + 1)
        while len(data) <= limit and (more := os.read(handle, 1 << 16)):
            data += more
    except OSError:
        return None
    finally:
        os.close(handle)
    return data if len(data) <= limit else None


def tail_plain(path: str | Path, size: int) -> str | None:
    """The last `size` bytes of a plain file as text; None when it is none, or cannot be read."""
    with open_plain(path) as stream:
        if stream is None:
            return None
        try:
            stream.seek(max(0, os.fstat(stream.fileno()).st_size - size))
            return (stream.read(size) or b"").decode(errors="replace")
        except OSError:
            return None


def decode_plain(path: str | Path, kind: Any, limit: int) -> Any:
    """A plain JSON file of at most `limit` bytes decoded as `kind`; None when there is none that can be read so."""
    data = read_plain(path, limit)
    if not data:
        return None
    try:
        return decode(data, kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def is_plain(path: Path) -> bool:
    """Whether `path` is a plain file and not a link to one."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False


def remove_traps(folder: Path) -> None:
    """Remove from a folder an agent could write to all that is neither file nor folder, and links that lead out of it.

    Harbor reads and writes such folders on the host: through a link it would reach a file of ours, and at a pipe it
    would wait for ever.
    """
    home = folder.resolve()
    for root, folders, names in os.walk(folder):
        for name in [*folders, *names]:
            path = Path(root) / name
            try:
                mode = path.lstat().st_mode
                inside = stat.S_ISLNK(mode) and path.resolve().is_relative_to(home)
                if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or inside):
                    path.unlink()
            except (FileNotFoundError, RuntimeError):  # gone meanwhile; a link to itself leads nowhere
                continue


def special_files(folder: str, names: list[str]) -> set[str]:
    """Which entries of a folder are pipes, sockets or devices: no content, and reading them could block.

    Has the shape that `shutil.copytree` wants for `ignore`.
    """
    paths = {name: Path(folder) / name for name in names}
    return {n for n, p in paths.items() if not (p.is_symlink() or p.is_file() or p.is_dir())}


def is_stopped(pid: int | None) -> bool:
    """Whether a process of this machine is stopped, by SIGSTOP or a debugger."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] in "Tt"
    except (OSError, IndexError):
        return False


def start_ticks(pid: int) -> int | None:
    """When a process started, in kernel ticks: with its pid this names a process for good. None: there is none."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        ended = fields[0] in "ZX" and int(fields[17]) <= 1  # its first thread may go before the others
        return None if ended else int(fields[19])
    except (OSError, IndexError, ValueError):
        return None


def _take(handle: int, path: Path, patience_sec: float = _NAME_SEC) -> None:
    """Lock `handle`, or say who holds it.

    Its new owner may not have written its name yet, and one that ends takes it out first: who is not named is waited
    for, and a lock that becomes free meanwhile is taken.
    """
    deadline = time.monotonic() + patience_sec
    while True:
        try:
            return fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = living_owner(path)
            if owner is not None or time.monotonic() > deadline:
                raise LockHeld(path, owner) from None
        time.sleep(0.01)


def living_owner(path: Path) -> Owner | None:
    """Who holds a lock, unless that process of this machine is gone; of another machine its word is taken."""
    owner = lock_owner(path)
    here = owner is not None and owner.host == socket.gethostname()
    return None if owner is not None and here and start_ticks(owner.pid) != owner.start_ticks else owner


def lock_owner(path: Path) -> Owner | None:
    """Who `path` says holds it; None when nobody is named or the text is unreadable."""
    try:
        return decode(path.read_bytes(), Owner)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None


@contextlib.contextmanager
def _naming(path: Path) -> Generator[None]:
    """An error while writing names the file that was wanted, not a temporary one or none."""
    try:
        yield
    except OSError as error:
        error.filename = str(path)
        raise


def _encode_other(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    raise NotImplementedError(f"cannot write {type(value).__name__} as JSON")


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    except OSError:  # some network file systems refuse fsync on a folder; the rename itself is done
        pass
    finally:
        os.close(handle)

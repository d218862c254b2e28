"""The only writer of files: whole ones atomically, lines appended.

A reader never sees half a file (temporary file, fsync, rename). A crash in the middle of a line leaves it torn, and the
next append closes it. What an agent could have written is read by `read_plain` and its kin: never through a link, never
a pipe, never without a bound. What is made here is this user's alone (0600, 0700), see `modes`.
"""

import contextlib
import fcntl
import os
import stat
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import BinaryIO, Protocol

from terminalbench.modes import file_mode, make_folder, make_project_folder, mode_of


class FolderPath:
    """A path in the folder of the class that owns it, as an attribute of it."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, owner: "HasFolder", _kind: type | None = None) -> Path:
        return owner.folder / self.name


class HasFolder(Protocol):
    """A class that owns the paths of a folder."""

    @property
    def folder(self) -> Path: ...


def write_bytes(path: Path, data: bytes, *, durable: bool = True, mode: int | None = None) -> None:
    """Replace `path` by `data` atomically and durably; on any error the old file stays as it was.

    Not `durable` is for what can be made again at any time: faster, and a power cut may lose it. A file that is there
    keeps its mode; a new one has `mode`, which is this user's alone unless told.
    """
    write_lines(path, (data,), durable=durable, mode=mode)


def write_lines(path: Path, lines: Iterable[bytes], *, durable: bool = True, mode: int | None = None) -> None:
    """Replace `path` by `lines` (each with its newline) as they come, atomically: the file is never held in memory."""
    with naming(path):
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


def write_changed(path: Path, data: bytes) -> None:
    """Write what can be made again at any time, unless the file is as it would be: of much that is, little changes."""
    if not (is_plain(path) and path.stat().st_size == len(data) and path.read_bytes() == data):
        write_bytes(path, data, durable=False)


def write_project_file(path: Path, text: str) -> None:
    """The same for a file of a project, which people share: a new one has the mode that the umask gives it."""
    make_project_folder(path.parent)
    write_bytes(path, text.encode(), mode=0o666)


def overwrite(path: Path, data: bytes) -> None:
    """Write `data` over what stands in a plain file, in place: its other names (hard links) show the same."""
    handle = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with naming(path), os.fdopen(handle, "wb") as stream:
        stream.write(data)
        stream.flush()
        os.ftruncate(handle, len(data))


def append_lines(path: Path, lines: bytes, *, durable: bool = False) -> None:
    """Append lines, each with its newline, after closing a torn last line; without lines that is all it does."""
    with naming(path), opened(path, os.O_APPEND) as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        size = os.fstat(handle).st_size
        if size and os.pread(handle, 1, size - 1) != b"\n":
            lines = b"\n" + lines
        while lines:
            lines = lines[os.write(handle, lines) :]
        if durable:
            os.fsync(handle)


@contextlib.contextmanager
def opened(path: Path, flags: int = 0) -> Generator[int]:
    """A handle to read and write a file, made with its folder where it is missing."""
    make_folder(path.parent)
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | flags, file_mode())
    try:
        yield handle
    finally:
        os.close(handle)


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


def is_plain(path: str | Path) -> bool:
    """Return whether `path` is a plain file and not a link to one."""
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
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
    """Return which entries of a folder are pipes, sockets or devices: no content, and reading them could block.

    Has the shape that `shutil.copytree` wants for `ignore`.
    """
    paths = {name: Path(folder) / name for name in names}
    return {n for n, p in paths.items() if not (p.is_symlink() or p.is_file() or p.is_dir())}


@contextlib.contextmanager
def naming(path: Path) -> Generator[None]:
    """An error while writing names the file that was wanted, not a temporary one or none."""
    try:
        yield
    except OSError as error:
        error.filename = str(path)
        raise


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    except OSError:  # some network file systems refuse fsync on a folder; the rename itself is done
        pass
    finally:
        os.close(handle)

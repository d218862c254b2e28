"""The host's side of file transfers: pack what goes in, and take what comes out without trusting it.

What comes out was written by the agent. Names cannot lead out of the target folder, links that do are left
out, devices, pipes and setuid bits too, and the amount is limited. Every folder is opened without following
links, so nothing that already lies in the target can redirect a write either.
"""

import os
import stat
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from terminalbench.sandbox.errors import SandboxError

_CHUNK = 1 << 18
_MAX_HOPS = 40
_MAX_NAMES = 1_000_000
_MAX_DEPTH = 200
_LATEST = (1 << 32) - 1  # 2106: every file system and every library can say it


def add_path(
    archive: tarfile.TarFile, path: Path, name: str, *, owner: tuple[int, int] = (0, 0), mode: int | None = None
) -> None:
    """Add a file, folder or link of the host; anything else is left out."""
    status = path.lstat()
    member = tarfile.TarInfo(name)
    member.uid, member.gid = owner
    member.mtime = int(status.st_mtime)
    member.mode = stat.S_IMODE(status.st_mode) if mode is None else mode
    if stat.S_ISDIR(status.st_mode):
        member.type = tarfile.DIRTYPE
        archive.addfile(member)
    elif stat.S_ISLNK(status.st_mode):
        member.type, member.linkname = tarfile.SYMTYPE, str(path.readlink())
        archive.addfile(member)
    elif stat.S_ISREG(status.st_mode):
        with path.open("rb") as content:
            member.size = os.fstat(content.fileno()).st_size
            archive.addfile(member, content)


def pack_folder(source: Path) -> Callable[[BinaryIO], None]:
    """Writes the content of `source`, owned by root, as a tar stream."""
    if not source.is_dir():
        raise FileNotFoundError(f"no folder {source}")
    return lambda stream: _pack(stream, [(p, p.relative_to(source).as_posix()) for p in sorted(source.rglob("*"))])


def pack_file(source: Path) -> Callable[[BinaryIO], None]:
    """Writes the one file `source` (what it leads to, if it is a link) as a tar stream."""
    if not source.is_file():
        raise FileNotFoundError(f"no file {source}")
    return lambda stream: _pack(stream, [(source.resolve(), source.name)])


def _pack(stream: BinaryIO, entries: list[tuple[Path, str]]) -> None:
    with tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT) as archive:
        for path, name in entries:
            add_path(archive, path, name)


def unpack_folder(target: Path, limit_bytes: int) -> Callable[[BinaryIO], None]:
    """Reads a tar stream into the folder `target`, replacing what has the same name."""
    target.mkdir(parents=True, exist_ok=True)

    def read(stream: BinaryIO) -> None:
        with tarfile.open(fileobj=stream, mode="r|") as archive:
            _Unpacker(target, limit_bytes).unpack(archive)

    return read


def unpack_file(target: Path, limit_bytes: int) -> Callable[[BinaryIO], None]:
    """Reads a tar stream of one file and puts it in place as `target`, atomically."""
    target.parent.mkdir(parents=True, exist_ok=True)

    def read(stream: BinaryIO) -> None:
        with tarfile.open(fileobj=stream, mode="r|") as archive:
            member = archive.next()
            if member is None or not member.isreg():
                raise SandboxError(f"the sandbox delivered no file for {target}")
            if member.size > limit_bytes:
                raise SandboxError(f"a file of {member.size} bytes came out for {target}; the limit is {limit_bytes}")
            temporary = target.with_name(f".{target.name}.{os.getpid()}.part")
            try:
                handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
                _copy(archive, member, handle)
                temporary.replace(target)
            finally:
                temporary.unlink(missing_ok=True)

    return read


def _copy(archive: tarfile.TarFile, member: tarfile.TarInfo, handle: int) -> None:
    """Write a member's content to `handle` and close it."""
    try:
        source = archive.extractfile(member)
        while source is not None and (chunk := source.read(_CHUNK)):
            while chunk:
                chunk = chunk[os.write(handle, chunk) :]
        os.fchmod(handle, (member.mode & 0o755) | 0o600)
        moment = _moment(member.mtime)
        os.utime(handle, (moment, moment))
    finally:
        os.close(handle)


def _moment(seconds: float) -> int:
    """A time the host can keep, whatever the agent set."""
    return int(min(max(seconds, 0), _LATEST)) if seconds == seconds else 0


class _Unpacker:
    def __init__(self, target: Path, limit_bytes: int) -> None:
        self._target, self._left, self._names = target, limit_bytes, 0
        self._links: dict[tuple[str, ...], str] = {}
        self._open: tuple[tuple[str, ...], int] | None = None  # the folder of the last file: most have it in common

    def unpack(self, archive: tarfile.TarFile) -> None:
        root = os.open(self._target, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for member in archive:
                self._count(member)
                parts = _parts(member.name)
                if not parts:
                    continue
                if member.issym():
                    self._links[parts] = member.linkname
                elif member.isdir():
                    self._enter(root, parts)
                elif member.isreg():
                    self._links.pop(parts, None)
                    self._file(archive, member, root, parts)
            self._make_links(root)
        finally:
            if self._open is not None:
                os.close(self._open[1])
            os.close(root)

    def _enter(self, root: int, parts: tuple[str, ...]) -> int:
        """The open folder of the next files."""
        if self._open is None or self._open[0] != parts:
            if self._open is not None:
                os.close(self._open[1])
                self._open = None
            self._open = parts, _folder(root, parts)
        return self._open[1]

    def _count(self, member: tarfile.TarInfo) -> None:
        self._left -= max(0, member.size)
        self._names += 1
        if self._left < 0 or self._names > _MAX_NAMES:
            raise SandboxError(f"too much came out of the sandbox for {self._target}")

    def _file(self, archive: tarfile.TarFile, member: tarfile.TarInfo, root: int, parts: tuple[str, ...]) -> None:
        folder = self._enter(root, parts[:-1])
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            handle = os.open(parts[-1], flags, 0o600, dir_fd=folder)
        except FileExistsError:
            try:
                _clear(folder, parts[-1])
            except IsADirectoryError:
                raise SandboxError(f"{'/'.join(parts)} is a folder in {self._target}, and a file came out") from None
            handle = os.open(parts[-1], flags, 0o600, dir_fd=folder)
        _copy(archive, member, handle)

    def _make_links(self, root: int) -> None:
        if not self._links:
            return
        known = {**_links_below(self._target), **self._links}
        for parts, target in self._links.items():
            if not stays_inside(parts, target, known):
                continue
            folder = _folder(root, parts[:-1])
            try:
                _clear(folder, parts[-1])
                os.symlink(target, parts[-1], dir_fd=folder)
            except IsADirectoryError:
                pass  # the name is a folder by now: files win over links
            finally:
                os.close(folder)


def stays_inside(link: tuple[str, ...], target: str, links: dict[tuple[str, ...], str]) -> bool:
    """Return whether following `link` can only lead to places below the folder that holds all `links`."""
    if not target or target.startswith("/"):
        return False
    here, ahead, hops = list(link[:-1]), target.split("/"), 0
    while ahead:
        part = ahead.pop(0)
        if part in ("", "."):
            continue
        if part == "..":
            if not here:
                return False
            here.pop()
            continue
        here.append(part)
        onward = links.get(tuple(here))
        if onward is not None:
            hops += 1
            if hops > _MAX_HOPS or onward.startswith("/"):
                return False
            here.pop()
            ahead = [*onward.split("/"), *ahead]
    return True


def _parts(name: str) -> tuple[str, ...]:
    parts = tuple(part for part in name.split("/") if part not in ("", "."))
    return () if ".." in parts or name.startswith("/") or len(parts) > _MAX_DEPTH else parts


def _folder(root: int, parts: tuple[str, ...]) -> int:
    """An open folder below `root`, made if missing; a file or link in its way is removed."""
    handle = os.dup(root)
    for part in parts:
        try:
            inner = _enter(handle, part)
        finally:
            os.close(handle)
        handle = inner
    return handle


def _enter(folder: int, name: str) -> int:
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(name, flags, dir_fd=folder)
    except FileNotFoundError:
        pass
    except OSError:
        os.unlink(name, dir_fd=folder)
    os.mkdir(name, 0o755, dir_fd=folder)
    made = os.open(name, flags, dir_fd=folder)
    os.fchmod(made, 0o755)  # as it came out, whatever the umask: it may go into another sandbox
    return made


def _clear(folder: int, name: str) -> None:
    try:
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        pass


def _links_below(target: Path) -> dict[tuple[str, ...], str]:
    found = {}
    for folder, folders, names in os.walk(target):
        for name in (*folders, *names):
            path = Path(folder, name)
            if path.is_symlink():
                found[path.relative_to(target).parts] = str(path.readlink())
    return found

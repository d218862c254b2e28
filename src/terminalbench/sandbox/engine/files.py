"""Files in and out of a sandbox as tar streams, packed and unpacked by our own code inside it.

No program of the sandbox takes part, so a replaced `tar` changes nothing; and no path of the sandbox is
ever resolved on the host, so a planted link leads nowhere but into the sandbox itself.
"""

# ruff: noqa: PTH101, PTH103, PTH108, PTH112, PTH114, PTH115, PTH116, PTH120, PTH211

import contextlib
import fcntl
import fnmatch
import gc
import glob
import itertools
import json
import os
import socket
import stat
import tarfile
from collections.abc import Iterator
from typing import Any

from terminalbench.sandbox.engine import inside, tidy, wire

_CHUNK = 1 << 18
_LOOKED_AT = 2000
_NEWEST = 64
_LONGEST_NAME = 512
_DEEPEST = 100
_LONGEST_PATH = 2000
_MOST_NAMES = 200_000
_LEAST_MEMORY = 1 << 28  # what this process was forked with counts


def transfer(request: dict[str, Any], reply: socket.socket, streams: list[int], sandbox: dict[str, Any]) -> None:
    """Do one transfer as the sandbox's root, within its limits, by this process inside it. Descriptors: the stream."""
    try:
        os.setsid()
        inside.limit(sandbox)
        answer = _OPERATIONS[request["kind"]](request, *streams)
    except BaseException as error:  # noqa: BLE001 - told to the caller, who raises
        answer = {"error": f"{error}"}
    try:
        wire.send(reply, answer)
    finally:
        os._exit(0)


def carry(door: socket.socket, sandbox: dict[str, Any]) -> None:
    """Do the transfers that come by the door, one after the other. The kernel ends a process whose caller lets go.

    It is in no process namespace of the sandbox, so that nothing there sees it, stops it, or measures its memory: it
    has the limit of the sandbox for itself. Whoever ends all for a limit ends it too (`guardian`).
    """
    os.setsid()
    most = max(sandbox["memory_bytes"], _LEAST_MEMORY)
    inside.limit({**sandbox, "rlimits": {**sandbox["rlimits"], "RLIMIT_DATA": most}})
    gc.enable()  # the helper's other children end before it matters
    usable = True
    while usable and (descriptors := wire.take(door, 16)[1]):
        payload, reply, pidfd, stream = descriptors
        os.close(pidfd)  # we have been admitted
        fcntl.fcntl(reply, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(reply, fcntl.F_SETFL, os.O_ASYNC)  # from now on the end of the other side is a deadly signal
        if wire.hung_up(reply):
            return
        try:
            request = wire.unpack_request(payload)
            answer = _OPERATIONS[request["kind"]](request, stream)
        except BaseException as error:  # noqa: BLE001 - told to the caller, who raises
            answer, usable = {"error": f"{error}" or type(error).__name__}, isinstance(error, OSError)
            if not usable:
                door.close()  # before it is answered: the next one goes elsewhere
        fcntl.fcntl(reply, fcntl.F_SETFL, 0)
        channel = wire.adopt(reply)
        with contextlib.suppress(OSError):  # the caller is gone
            wire.send(channel, answer)
        channel.detach()
        if usable:
            inside.close_others(door.fileno())  # nothing of one request is left to the next


def _put(request: dict[str, Any], stream: int) -> dict[str, Any]:
    """Unpack the stream below `target`, replacing what is in the way; owner root unless the stream says else."""
    target, only_name = request["target"], request["rename"]
    if only_name is not None and not os.path.isdir(target):
        target, only_name = os.path.split(target)
    os.makedirs(target, exist_ok=True)
    folders: list[tuple[str, tarfile.TarInfo]] = []
    with os.fdopen(stream, "rb", 1 << 18) as source, tarfile.open(fileobj=source, mode="r|") as archive:
        for member in archive:
            path = f"{target.rstrip('/')}/{only_name or member.name}"
            os.makedirs(os.path.dirname(path), exist_ok=True)
            if member.isdir():
                if os.path.islink(path) or (os.path.lexists(path) and not os.path.isdir(path)):
                    os.unlink(path)
                os.makedirs(path, exist_ok=True)
                folders.append((path, member))
                continue
            _clear(path)
            if member.issym():
                os.symlink(member.linkname, path)
                os.lchown(path, member.uid, member.gid)
            elif member.isreg():
                _write(archive, member, path)
        while source.read(_CHUNK):  # let the sender finish its padding
            pass
    for path, member in reversed(folders):
        os.chown(path, member.uid, member.gid)
        os.chmod(path, member.mode & 0o7777)
    return {}


def _clear(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
    except IsADirectoryError:
        raise OSError(21, f"{path} is a folder") from None


def _write(archive: tarfile.TarFile, member: tarfile.TarInfo, path: str) -> None:
    source = archive.extractfile(member)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        while source is not None and (chunk := source.read(_CHUNK)):
            while chunk:
                chunk = chunk[os.write(handle, chunk) :]
        os.fchown(handle, member.uid, member.gid)
        os.fchmod(handle, member.mode & 0o7777)
        os.utime(handle, (member.mtime, member.mtime))
    finally:
        os.close(handle)


def _get(request: dict[str, Any], stream: int) -> dict[str, Any]:
    """Pack `source` into the stream: a folder's content, or one file under its own name.

    What is nested too deep, one file too many or larger than what is left of `limit` is left out and counted: an
    agent could otherwise hide all it did behind one file that is too large to take.
    """
    source = request["source"]
    left_out: list[str] = []
    with (
        os.fdopen(stream, "wb", _CHUNK) as sink,
        tarfile.open(fileobj=sink, mode="w|", format=tarfile.PAX_FORMAT) as archive,
    ):
        if request["single"]:
            _add(archive, source, "file", room=None)
        else:
            if not os.path.isdir(source):
                raise NotADirectoryError(20, f"no folder {source} in the sandbox")
            wanted = None if request["names"] is None else set(request["names"])
            room = request["limit"]
            for name, is_folder in _walk(source, "", request["exclude"], left_out):
                if wanted is None or (not is_folder and name in wanted):
                    taken = _add(archive, f"{source.rstrip('/')}/{name}", name, room=room)
                    room -= taken or 0
                    if taken is None:
                        left_out.append(name)
    return {"left_out": len(left_out), "for_example": ascii(left_out[0])[:200] if left_out else None}


def _list(request: dict[str, Any], stream: int) -> dict[str, Any]:
    """Write the names of the regular files below `source` to the stream, each ended by a NUL byte."""
    source = request["source"]
    with os.fdopen(stream, "wb", _CHUNK) as sink:
        for name, is_folder in _walk(source, "", []):
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                if not is_folder and stat.S_ISREG(os.lstat(f"{source.rstrip('/')}/{name}").st_mode):
                    sink.write(os.fsencode(name) + b"\0")
    return {}


def _find(request: dict[str, Any], stream: int) -> dict[str, Any]:
    """Write the names that a pattern fits to the stream, each with `d` or `f` before it and a NUL byte behind it."""
    pattern = request["pattern"]
    found = sorted(glob.glob(pattern)) if glob.has_magic(pattern) else [pattern]  # noqa: PTH207
    with os.fdopen(stream, "wb", _CHUNK) as sink:
        for name in found:
            if os.path.lexists(name):
                sink.write((b"d" if os.path.isdir(name) else b"f") + os.fsencode(name) + b"\0")
    return {}


def _news(request: dict[str, Any], stream: int) -> dict[str, Any]:
    """Write the new ends of the newest regular files below `source` to the stream, as `activity.parse` reads them.

    A file that is shorter than what is known of it is a new one. Of more than may come out, it is the end.
    """
    source, known, left = request["source"].rstrip("/"), request["known"], request["most"]
    found: list[tuple[int, str]] = []
    for name, is_folder in itertools.islice(_walk(source, "", []), _LOOKED_AT):
        with contextlib.suppress(OSError):
            if not is_folder and len(name) <= _LONGEST_NAME:
                found.append((-os.lstat(f"{source}/{name}").st_mtime_ns, name))
    with os.fdopen(stream, "wb", _CHUNK) as sink:
        for _, name in sorted(found)[:_NEWEST]:
            with contextlib.suppress(OSError):
                member, handle = _look(f"{source}/{name}", name, follow=False)
                if handle is None:
                    continue
                with os.fdopen(handle, "rb") as file:
                    before = known.get(name, 0)
                    start = max(before if before <= member.size else 0, member.size - left)
                    data = os.pread(file.fileno(), member.size - start, start) if start < member.size else b""
                left -= len(data)
                if data:
                    sink.write(json.dumps([name, start + len(data), len(data)]).encode() + b"\n" + data)
    return {}


def _walk(root: str, below: str, exclude: list[str], left_out: list[str] | None = None) -> Iterator[tuple[str, bool]]:
    """(name, is it a folder) of everything below, parents first; an excluded folder is not entered.

    What lies deeper than anybody needs, or comes after very many others, goes to `left_out` instead.
    """
    open_folders, count = [_entries(root, below)], 0
    while open_folders:
        found = next(open_folders[-1], None)
        if found is None:
            open_folders.pop()
            continue
        path, is_folder = found
        if _excluded(path, exclude):
            continue
        count += 1
        if count > _MOST_NAMES or len(open_folders) > _DEEPEST or len(os.fsencode(path)) > _LONGEST_PATH:
            if left_out is not None:
                left_out.append(path)
            continue
        yield path, is_folder
        if is_folder:
            open_folders.append(_entries(root, path))


def _entries(root: str, below: str) -> Iterator[tuple[str, bool]]:
    """Yield what a folder holds, by name; nothing if it is gone meanwhile."""
    try:
        with os.scandir(f"{root}/{below}") as entries:
            found = sorted((entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries)
    except (FileNotFoundError, NotADirectoryError):
        return
    for name, is_folder in found:
        yield f"{below}/{name}" if below else name, is_folder


def _excluded(path: str, patterns: list[str]) -> bool:
    """Return whether `tar --exclude` would leave the name out: a pattern may match from any of its parts on."""
    parts = path.split("/")
    names = [f"./{path}", *("/".join(parts[i:]) for i in range(len(parts)))]
    return any(fnmatch.fnmatchcase(name, pattern.rstrip("/")) for pattern in patterns for name in names)


def _add(archive: tarfile.TarFile, path: str, name: str, *, room: int | None) -> int | None:
    """Add one thing; its size, or None if it is larger than `room` and left out.

    In a folder, what went or changed while others were read is passed over: the rest still counts. Without `room` it
    is the one file that was asked for.
    """
    try:
        member, handle = _look(path, name, follow=room is None)
    except OSError:
        if room is None:
            raise
        return 0
    if handle is not None:
        with os.fdopen(handle, "rb") as source:
            if room is not None and member.size > room:
                return None
            archive.addfile(member, _SizedReader(source, member.size))
    elif member.type in (tarfile.DIRTYPE, tarfile.SYMTYPE):
        archive.addfile(member)
    return member.size


def _look(path: str, name: str, *, follow: bool) -> tuple[tarfile.TarInfo, int | None]:
    """A member for `path`, and a descriptor to read it by if it is a regular file."""
    status = os.stat(path) if follow else os.lstat(path)
    member = tarfile.TarInfo(name)
    member.type = tarfile.FIFOTYPE  # what is neither of the following is not packed
    handle = None
    if stat.S_ISREG(status.st_mode):
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
        handle = os.open(path, flags)
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            os.close(handle)
            raise OSError(22, f"{path} is not a regular file")
        member.type, member.size = tarfile.REGTYPE, status.st_size
    elif follow:
        raise OSError(22, f"{path} is not a regular file")
    elif stat.S_ISDIR(status.st_mode):
        member.type = tarfile.DIRTYPE
    elif stat.S_ISLNK(status.st_mode):
        member.type, member.linkname = tarfile.SYMTYPE, os.readlink(path)
    member.mode, member.mtime = stat.S_IMODE(status.st_mode), int(status.st_mtime)
    member.uid, member.gid = status.st_uid, status.st_gid
    return member, handle


class _SizedReader:
    """A file's first `size` bytes: padded if it shrinks while it is read, cut if it grows."""

    def __init__(self, source: Any, size: int) -> None:
        self._source, self._left = source, size

    def read(self, size: int = -1) -> bytes:
        wanted = self._left if size < 0 else min(size, self._left)
        data = self._source.read(wanted)
        data += b"\0" * (wanted - len(data))
        self._left -= len(data)
        return data


_OPERATIONS = {
    "put": _put,
    "get": _get,
    "list": _list,
    "find": _find,
    "news": _news,
    "prepare": lambda request, _: tidy.prepare(request),
}

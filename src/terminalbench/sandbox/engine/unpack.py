"""Unpacking a layer of an image, a tar stream, into a folder of its own, in the form that an overlay stacks.

It runs in the helper's namespaces, where every id of the image exists that this user may have. The layers below are
only looked at: a parent folder that the stream does not hold is made as it is there, and a link on the way is followed
as it would be in the whole image, never out of it. Whiteouts become those of overlayfs. All names are bytes.
"""

# ruff: noqa: PTH101, PTH102, PTH108, PTH115, PTH211

import contextlib
import errno
import os
import shutil
import socket
import stat
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

from terminalbench.sandbox.engine import kernel, wire
from terminalbench.sandbox.engine.tar_stream import BLOCK, BadArchive, Member, TarStream, members

_MOST_HOPS = 40
_LOOK_BYTES = 64 << 20
_NAMED = 20
_WHITEOUT, _OPAQUE = b".wh.", b".wh..wh..opq"
_ORDINARY = 0o755
_OF_OVERLAYS = (b"trusted.overlay.", b"user.overlay.")


class LowerLayers(NamedTuple):
    """Something of the layers below: its status, and the folders of the layers that have a part in it."""

    status: os.stat_result
    roots: tuple[bytes, ...]


class LayerUnpacking:
    """One layer on its way into its folder."""

    def __init__(self, folder: str, lower: list[str], *, private: bool, keep_free: int, most_entries: int) -> None:
        self._folder = os.fsencode(folder)
        self._lower = tuple(map(os.fsencode, lower))
        self._attributes = b"user.overlay." if private else b"trusted.overlay."
        self._keep_free, self._most_entries = keep_free, most_entries
        self._places: dict[bytes, tuple[bytes, ...]] = {b"": self._lower}
        self._entered: dict[bytes, bytes] = {}
        self._times: dict[bytes, int] = {}
        self._gone: list[tuple[bytes, bytes]] = []
        self._opaque: list[bytes] = []
        self._looked_at = 0
        self.entries = self.bytes = self.squashed = self.lost_attributes = 0
        self.skipped: list[str] = []

    def run(self, stream: TarStream) -> None:
        """Unpack all of it."""
        self._check_room()
        for member in members(stream):
            self.entries += 1
            if self.entries > self._most_entries:
                raise BadArchive(f"the layer has more than {self._most_entries} entries")
            rest = self._add(member, stream)
            stream.pour(rest + -member.size % BLOCK, None)
        stream.drain()
        for parent, name in self._gone:
            self._hide(parent, name)
        for place in self._opaque:
            self._mark_opaque(place)
        for place in sorted(self._times, reverse=True):
            with contextlib.suppress(FileNotFoundError):
                os.utime(self._path(place), ns=(self._times[place], self._times[place]), follow_symlinks=False)

    def _path(self, place: bytes) -> bytes:
        return self._folder + b"/" + place if place else self._folder

    def _add(self, member: Member, stream: TarStream) -> int:
        """Make one entry; returns how much of its data was not taken."""
        parts = _parts(member.name)
        if not parts:
            if member.kind == b"5":
                self._describe(b"", member)
            return member.size
        parent, name = self._enter(parts[:-1]), parts[-1]
        if name.startswith(_WHITEOUT):
            self._note_whiteout(parent, name)
            return member.size
        place = parent + b"/" + name if parent else name
        make = self._MAKERS.get(member.kind)
        if make is None:
            self._skip(member)
            return member.size
        try:
            return make(self, place, member, stream)
        except FileExistsError:
            self._remove(place)
            return make(self, place, member, stream)

    def _skip(self, member: Member) -> None:
        if len(self.skipped) < _NAMED:
            self.skipped.append(os.fsdecode(member.name))

    def _note_whiteout(self, parent: bytes, name: bytes) -> None:
        if name == _OPAQUE:
            self._opaque.append(parent)
            return
        hidden = name[len(_WHITEOUT) :]
        if hidden in (b"", b".", b".."):
            raise BadArchive(f"the layer removes {os.fsdecode(name)!r}, which is no name")
        if not hidden.startswith(b".wh."):  # of AUFS itself
            self._gone.append((parent, hidden))

    # Parents

    def _enter(self, parts: list[bytes]) -> bytes:
        """Return the place of a folder, made in this layer with all above it, links followed as in the whole image."""
        key = b"/".join(parts)
        found = self._entered.get(key)
        if found is None:
            found = self._entered[key] = self._resolve(parts)
        return found

    def _resolve(self, parts: list[bytes]) -> bytes:
        done: list[bytes] = []
        left, hops = list(reversed(parts)), 0
        while left:
            part = left.pop()
            if part == b"..":
                done = done[:-1]
                continue
            place = b"/".join([*done, part])
            target = self._step(place, b"/".join(done))
            if target is None:
                done.append(part)
                continue
            hops += 1
            if hops > _MOST_HOPS:
                raise BadArchive(f"too many links on the way to {os.fsdecode(b'/'.join(parts))}")
            done = [] if target.startswith(b"/") else done
            left += reversed([one for one in target.split(b"/") if one not in (b"", b".")])
        return b"/".join(done)

    def _step(self, place: bytes, parent: bytes) -> bytes | None:
        """Have a folder there, of this layer or copied from below; or return where a link leads."""
        path = self._path(place)
        try:
            status = os.lstat(path)
        except FileNotFoundError:
            below = self._below(place, parent)
            if below is None:
                os.mkdir(path, _ORDINARY)
                return None
            status = below.status
            if stat.S_ISDIR(status.st_mode):
                os.mkdir(path, _ORDINARY)
                self._copy_description(path, place, status)
                return None
            path = below.roots[0] + b"/" + place
        if stat.S_ISLNK(status.st_mode):
            return os.readlink(path)
        if not stat.S_ISDIR(status.st_mode):
            raise BadArchive(f"{os.fsdecode(place)} of the layer is not a folder")
        return None

    def _below(self, place: bytes, parent: bytes) -> LowerLayers | None:
        """Return what the layers below hold at a place whose parent is known; None when they hold nothing."""
        roots: list[bytes] = []
        first: os.stat_result | None = None
        for root in self._roots(parent):
            try:
                status = os.lstat(root + b"/" + place)
            except FileNotFoundError:
                continue
            except NotADirectoryError:
                break
            if _is_whiteout(status) or (first is not None and not stat.S_ISDIR(status.st_mode)):
                break
            first = first or status
            roots.append(root)
            if not stat.S_ISDIR(status.st_mode) or self._is_opaque(root + b"/" + place):
                break
        return LowerLayers(first, tuple(roots)) if first is not None else None

    def _roots(self, place: bytes) -> tuple[bytes, ...]:
        """Return the layers below that have a part in a folder."""
        found = self._places.get(place)
        if found is None:
            below = self._below(place, place.rpartition(b"/")[0])
            found = below.roots if below is not None and stat.S_ISDIR(below.status.st_mode) else ()
            self._places[place] = found
        return found

    def _is_opaque(self, path: bytes) -> bool:
        try:
            return os.getxattr(path, self._attributes + b"opaque", follow_symlinks=False) == b"y"
        except OSError:
            return False

    # Entries

    def _file(self, place: bytes, member: Member, stream: TarStream) -> int:
        self._count(member.size)
        path = self._path(place)
        handle = os.open(
            path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, _ORDINARY & member.mode
        )
        try:
            if member.parts is None:
                stream.pour(member.size, handle)
            else:
                self._sparse(handle, member, stream)
            self._describe_open(handle, member)
        finally:
            os.close(handle)
        return 0

    def _sparse(self, handle: int, member: Member, stream: TarStream) -> None:
        left = member.size
        for offset, size in member.parts or ():
            if min(offset, size) < 0 or size > left or offset + size > member.full_size:
                raise BadArchive(f"the parts of {os.fsdecode(member.name)} do not fit")
            os.lseek(handle, offset, os.SEEK_SET)
            stream.pour(size, handle)
            left -= size
        stream.pour(left, None)
        os.ftruncate(handle, member.full_size)

    def _make_folder(self, place: bytes, member: Member, _: TarStream) -> int:
        path = self._path(place)
        try:
            os.mkdir(path, _ORDINARY)
        except FileExistsError:
            if not stat.S_ISDIR(os.lstat(path).st_mode):
                raise
        self._describe(place, member)
        return 0

    def _symlink(self, place: bytes, member: Member, _: TarStream) -> int:
        path = self._path(place)
        os.symlink(member.link, path)
        if member.uid or member.gid:
            self._own(path, member.uid, member.gid)
        os.utime(path, ns=(member.mtime_ns, member.mtime_ns), follow_symlinks=False)
        return 0

    def _hard_link(self, place: bytes, member: Member, _: TarStream) -> int:
        parts = _parts(member.link)
        if not parts:
            raise BadArchive(f"{os.fsdecode(member.name)} is a link to nothing")
        parent = self._enter(parts[:-1])
        target = parent + b"/" + parts[-1] if parent else parts[-1]
        if target == place:
            return 0
        if not os.path.lexists(self._path(target)):
            self._copy_up(target, parent, member)
        os.link(self._path(target), self._path(place), follow_symlinks=False)
        return 0

    def _pipe(self, place: bytes, member: Member, _: TarStream) -> int:
        os.mkfifo(self._path(place), 0o600)
        self._describe(place, member)
        return 0

    _MAKERS: ClassVar[dict[bytes, Callable[["LayerUnpacking", bytes, Member, TarStream], int]]] = {
        b"0": _file,
        b"7": _file,
        b"1": _hard_link,
        b"2": _symlink,
        b"5": _make_folder,
        b"6": _pipe,
    }

    def _copy_up(self, place: bytes, parent: bytes, member: Member) -> None:
        """Copy a file of the layers below into this one: a link in this layer leads to it."""
        below = self._below(place, parent)
        if below is None or stat.S_ISDIR(below.status.st_mode):
            raise BadArchive(f"{os.fsdecode(member.name)} is a link to {os.fsdecode(member.link)}, which is not there")
        source, path, status = below.roots[0] + b"/" + place, self._path(place), below.status
        if stat.S_ISLNK(status.st_mode):
            os.symlink(os.readlink(source), path)
        else:
            self._count(status.st_size)
            shutil.copyfile(source, path, follow_symlinks=False)
        self._copy_description(path, None, status)

    def _count(self, size: int) -> None:
        self.bytes += size
        if self.bytes + size - self._looked_at > _LOOK_BYTES:
            self._check_room(size)

    def _check_room(self, coming: int = 0) -> None:
        """Refuse to fill the disk, with what an archive says or with what it holds."""
        self._looked_at = self.bytes
        room = os.statvfs(self._folder)
        if room.f_bavail * room.f_frsize - coming < self._keep_free:
            raise OSError(errno.ENOSPC, "no room on the disk for the layer", os.fsdecode(self._folder))

    def _remove(self, place: bytes) -> None:
        """Remove what an entry before has made: the later one counts."""
        path = self._path(place)
        self._entered.clear()
        if stat.S_ISDIR(os.lstat(path).st_mode):
            shutil.rmtree(path)
        else:
            os.unlink(path)

    # Owners, modes, times

    def _describe_open(self, handle: int, member: Member) -> None:
        if member.uid or member.gid:
            self._own(handle, member.uid, member.gid)
        if member.mode & ~_ORDINARY:
            os.fchmod(handle, member.mode)
        for name, value in member.attributes:
            self._keep_attribute(handle, name, value)
        os.utime(handle, ns=(member.mtime_ns, member.mtime_ns))

    def _describe(self, place: bytes, member: Member) -> None:
        path = self._path(place)
        if member.uid or member.gid:
            self._own(path, member.uid, member.gid)
        os.chmod(path, member.mode)
        for name, value in member.attributes:
            self._keep_attribute(path, name, value)
        self._times[place] = member.mtime_ns

    def _copy_description(self, path: bytes, place: bytes | None, status: os.stat_result) -> None:
        self._own(path, status.st_uid, status.st_gid)
        if not stat.S_ISLNK(status.st_mode):
            os.chmod(path, stat.S_IMODE(status.st_mode))
        if place is None:
            os.utime(path, ns=(status.st_mtime_ns, status.st_mtime_ns), follow_symlinks=False)
        else:
            self._times[place] = status.st_mtime_ns

    def _own(self, path: bytes | int, uid: int, gid: int) -> None:
        try:
            if isinstance(path, int):
                os.chown(path, uid, gid)
            else:
                os.chown(path, uid, gid, follow_symlinks=False)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.EPERM):
                raise
            self.squashed += 1  # an id that this user does not have: root's, then

    def _keep_attribute(self, path: bytes | int, name: bytes, value: bytes) -> None:
        if name.startswith(_OF_OVERLAYS):  # it would say how layers are stacked
            raise BadArchive(f"the layer sets the attribute {os.fsdecode(name)}")
        try:
            os.setxattr(path, name, value)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise
            self.lost_attributes += 1

    # What the layers below hold and this one does not

    def _hide(self, parent: bytes, name: bytes) -> None:
        place = parent + b"/" + name if parent else name
        path = self._path(place)
        try:
            here = os.lstat(path)
        except FileNotFoundError:
            if self._below(place, parent) is not None:
                os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(0, 0))
            return
        if stat.S_ISDIR(here.st_mode):
            self._mark_opaque(place)

    def _mark_opaque(self, place: bytes) -> None:
        os.setxattr(self._path(place), self._attributes + b"opaque", b"y")


def _parts(name: bytes) -> list[bytes]:
    """Return the parts of a name, from the root of the image; one that leads out of it is refused."""
    parts = [part for part in name.split(b"/") if part not in (b"", b".")]
    if b".." in parts or b"\0" in name:
        raise BadArchive(f"the layer holds {os.fsdecode(name)!r}, a name that leads out of it")
    return parts


def _is_whiteout(status: os.stat_result) -> bool:
    return stat.S_ISCHR(status.st_mode) and status.st_rdev == 0


def unpack(request: dict[str, Any], reply: socket.socket, descriptors: list[int], _: bytes) -> None:
    """Unpack the tar stream of a descriptor; an operation of the helper."""
    kernel.set_name("tbench-unpack")
    os.umask(0)
    work = LayerUnpacking(
        request["folder"],
        request["lower"],
        private=request["ids"] != "all",
        keep_free=request["keep_free"],
        most_entries=request["most_entries"],
    )
    try:
        work.run(TarStream(descriptors[0]))
    except (ValueError, OverflowError) as error:
        raise BadArchive(f"a header of the layer cannot be read: {error}") from None
    told = {"entries": work.entries, "bytes": work.bytes, "squashed": work.squashed, "skipped": work.skipped}
    wire.send(reply, told | {"lost_attributes": work.lost_attributes})

"""What a sandbox has as its operating system: the host's system folders, or a rootfs folder.

The host base shows usr (and bin, sbin, lib* where they are folders of their own) through an overlay: nothing
written reaches the host, and what the host keeps from its ordinary users is hidden. /etc is a copy of what
programs need, from a list: no accounts of the host, no keys, no shadow, no repository credentials. home, root,
var, run, tmp, opt and srv are new and empty.
"""

# Strings where others have paths: hundreds of files are looked at, by every Harbor process.
# ruff: noqa: PTH101, PTH102, PTH112, PTH114, PTH116, PTH207

import hashlib
import json
import os
import shutil
import stat
from collections.abc import Iterator
from functools import cache
from glob import glob
from pathlib import Path

from terminalbench.frozen import frozen
from terminalbench.records.trial import ON_HOST
from terminalbench.sandbox import cache as store
from terminalbench.sandbox.errors import Refused, SandboxError

HOST = ON_HOST
IMAGE = "image:"
SCRATCH = "scratch"
"""The image without any file."""

_SYSTEM = ("usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32")
_EMPTY = {
    **dict.fromkeys(("boot", "dev", "etc", "home", "media", "mnt", "opt", "proc", "run", "srv", "sys", "usr"), 0o755),
    **dict.fromkeys(("var", "var/cache", "var/lib", "var/log", "var/mail", "var/opt", "var/spool"), 0o755),
    **dict.fromkeys(("run/lock", "tmp", "var/tmp"), 0o1777),
    "root": 0o700,
}
_ETC = (
    *("alternatives", "bash.bashrc", "ca-certificates.conf", "crypto-policies", "debian_version", "fonts"),
    *("gai.conf", "host.conf", "inputrc", "issue", "java*", "ld.so.cache", "ld.so.conf", "ld.so.conf.d"),
    *("locale.alias", "locale.conf", "localtime", "login.defs", "lsb-release", "magic", "magic.mime", "mime.types"),
    *("nanorc", "netconfig", "os-release", "*-release", "pam.conf", "pam.d", "perl", "protocols", "python*"),
    *("pki/ca-trust/extracted", "pki/tls/cert.pem", "pki/tls/certs", "pki/tls/openssl.cnf", "profile", "rpc", "ruby*"),
    *("adduser.conf", "deluser.conf", "default/useradd", "default/locale", "security/limits.conf", "services"),
    *("shells", "skel", "ssl/cert.pem", "ssl/certs", "ssl/openssl.cnf", "terminfo", "texmf", "timezone", "vim", "R"),
)
_NEVER_CHANGED = ("/share/doc", "/share/help", "/share/icons", "/share/locale", "/usr/src")
_MADE_UP = Path(__file__).with_name("host_etc")
"""Accounts, groups and sources of names that are nobody's: those of the host are not shown."""
_MAX_ETC_FILE_BYTES = 16 << 20


@frozen
class Overlay:
    """One overlay of the root: where it is mounted, and its layers from the top down.

    `host` is a folder of the host below them, of which only what every user may read is shown.
    """

    at: str
    lower: tuple[str, ...]
    host: str | None = None


@frozen
class RootFilesystem:
    """A base file system. `fingerprint` changes when a layer built on it would have to be built anew."""

    name: str
    overlays: tuple[Overlay, ...]
    fingerprint: str

    def has_program(self, name: str) -> bool:
        """Return whether a program of that name is in one of the usual folders."""
        folders = ("usr/local/sbin", "usr/local/bin", "usr/sbin", "usr/bin", "sbin", "bin")
        return any(self.has(f"/{folder}/{name}") for folder in folders)

    def has(self, path: str) -> bool:
        """Return whether one of its layers has this path."""
        roots = ["/"] if self.name == HOST else self.overlays[0].lower
        return any(os.path.lexists(f"{root}{path}") for root in roots)


def open_base(name: str, ids: str) -> RootFilesystem:
    """Return the base called `name`: "host", "image:<digest>" of the store, "scratch", or a rootfs folder.

    `ids` is what the helper may map.
    """
    if name.startswith(IMAGE):
        return _image(name, ids)
    if name == SCRATCH:
        return _empty()
    return _host(ids) if name == HOST else rootfs(name)


def _empty() -> RootFilesystem:
    folder = store.root() / "empty"
    folder.mkdir(mode=0o755, exist_ok=True)
    return RootFilesystem(SCRATCH, (Overlay("", (str(folder),)),), SCRATCH)


@cache
def _image(name: str, ids: str) -> RootFilesystem:
    """Return an image of the store, which is held for as long as this process lives."""
    from terminalbench.sandbox.images.store import ImageStore

    images, digest = ImageStore(ids=ids), name.removeprefix(IMAGE)
    images.hold(digest)
    found = images.image(digest)
    if found is None:
        raise SandboxError(
            f"the image {digest} is no longer on this machine", hint="fetch it again: tbench images pull NAME"
        )
    return RootFilesystem(name, (Overlay("", tuple(map(str, images.folders(found)))),), digest)


def rootfs(name: str) -> RootFilesystem:
    """Return the folder of an unpacked root file system as a base; what is none is refused."""
    folder = Path(name).expanduser()
    if not folder.is_dir():
        raise Refused(f"the rootfs {name} is not a folder", hint="give the folder of an unpacked root file system")
    folder = folder.resolve()
    if folder == Path("/"):
        raise Refused(
            'the rootfs "/" would show the whole machine',
            hint="remove rootfs to use only the system folders of this machine",
        )
    if not os.path.lexists(folder / "bin" / "sh") and not os.path.lexists(folder / "usr/bin/sh"):
        raise Refused(f"the rootfs {folder} has no /bin/sh", hint="give the folder of an unpacked root file system")
    marks = [_mark(folder / part) for part in ("", "usr", "usr/bin", "usr/lib", "etc", "lib", "var/lib/dpkg/status")]
    return RootFilesystem(str(folder), (Overlay("", (str(folder),)),), _digest([str(folder), *marks]))


def _mark(path: str | Path) -> str:
    try:
        status = os.stat(path)
    except OSError:
        return "-"
    return f"{status.st_mtime_ns}:{status.st_size}:{status.st_ino}"


def _digest(parts: object) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


@cache
def _host(ids: str) -> RootFilesystem:
    files = sorted(set(_etc_files()))
    links = {name: str(Path("/", name).readlink()) for name in _SYSTEM if Path("/", name).is_symlink()}
    folders = [name for name in _SYSTEM if name not in links and Path("/", name).is_dir()]
    marks = [_mark(Path("/", part)) for part in ("usr/bin", "usr/lib", "usr/local/bin", "usr/share", *folders)]
    hidden = {name: _private(f"/{name}") for name in folders} if ids == "all" else {}
    fingerprint = _digest(["host 2", ids, hidden, marks, links, [(name, _mark(f"/etc/{name}")) for name in files]])
    skeleton = store.root() / "base" / f"{HOST}-{fingerprint}"
    while store.keep(skeleton) is None:  # held for as long as this process lives, as is the answer
        _publish(skeleton, files, links, folders, hidden)
    overlays = [Overlay("", (str(skeleton / "root"),))]
    for name in folders:
        owned = skeleton / "folders" / name
        above = (str(owned),) if owned.exists() else ()
        if ids != "all" or hidden[name] is not None:
            overlays.append(Overlay(name, (*above, f"/{name}")))
        else:
            overlays.append(Overlay(name, above, host=f"/{name}"))
    return RootFilesystem(HOST, tuple(overlays), fingerprint)


def _private(folder: str) -> list[str] | None:
    """Return what ordinary users cannot read in a system folder of the host; None: the kernel can hide it by itself.

    The kernel lays two overlays on each other and no more. Where the host's folder is on one already, as in a
    container, the sandbox has only one left, and that folder is looked through each time a run starts.
    """
    if not _is_stacked(folder):
        return None
    found, stack = [], [folder]
    while stack:
        with os.scandir(stack.pop()) as entries:
            for entry in entries:
                mode = entry.stat(follow_symlinks=False).st_mode
                wanted = 0o005 if stat.S_ISDIR(mode) else 0o004
                if not stat.S_ISLNK(mode) and mode & wanted != wanted:
                    found.append(entry.path[len(folder) + 1 :])
                elif stat.S_ISDIR(mode):
                    stack.append(entry.path)
    return sorted(found)


def _is_stacked(path: str) -> bool:
    device = os.stat(path).st_dev
    mark = f"{os.major(device)}:{os.minor(device)}"
    lines = Path("/proc/self/mountinfo").read_text(errors="surrogateescape").splitlines()
    kinds = {line.split()[2]: line.partition(" - ")[2].split()[0] for line in lines}
    return kinds.get(mark) in ("overlay", "ecryptfs")


def _publish(
    skeleton: Path,
    files: list[str],
    links: dict[str, str],
    folders: list[str],
    hidden: dict[str, list[str] | None],
) -> None:
    """Build the skeleton beside its place, then rename it there; a second builder's copy is dropped."""
    claimed = store.claim("building")
    try:
        root = claimed.folder / "root"
        root.mkdir()
        for name in _EMPTY:
            (root / name).mkdir(parents=True, exist_ok=True)
        for name in folders:
            (root / name).mkdir(exist_ok=True)
        for name, target in links.items():
            (root / name).symlink_to(target)
        for name in files:
            _copy(Path("/etc") / name, root / "etc" / name)
        for made in _MADE_UP.iterdir():
            shutil.copyfile(made, root / "etc" / made.name)
        _readable(root)
        for name, mode in {"": 0o755, **_EMPTY}.items():
            (root / name).chmod(mode)
        for name in folders:
            layer = claimed.folder / "folders" / name
            if name not in hidden:
                _own_folders(Path("/", name), layer)
            elif hidden[name]:
                _hide(Path("/", name), hidden[name] or [], layer)
        (claimed.folder / "lock").touch()
        skeleton.parent.mkdir(exist_ok=True)
        try:
            claimed.folder.rename(skeleton)
        except OSError as error:
            if not skeleton.exists():
                raise SandboxError(f"cannot prepare {skeleton}: {error}") from error
    finally:
        store.release(claimed)


def _own_folders(source: Path, target: Path) -> None:
    """The folders of `source` without their files, owned by us.

    An ordinary user cannot map the host's root, so its folders would be nobody's, and not even the sandbox's
    root could add a file. Laid above, these make root the owner; the files below stay nobody's until replaced.
    """
    target.mkdir(parents=True)
    target.chmod(0o755)
    stack = [""]
    while stack:  # tens of thousands
        inner = stack.pop()
        try:
            with os.scandir(f"{source}{inner}") as entries:
                names = [one.name for one in entries if one.is_dir(follow_symlinks=False) and _enterable(one.path)]
        except OSError:  # gone by now, or cannot be listed: nothing is below it
            continue
        for name in names:
            made = f"{inner}/{name}"
            os.mkdir(f"{target}{made}")
            os.chmod(f"{target}{made}", 0o755)  # noqa: S103
            stack.append(made)


def _readable(folder: Path) -> None:
    """Let every user of a sandbox read what this process, whose umask may refuse it to others, has made."""
    for place, _, names in os.walk(folder):
        Path(place).chmod(0o755)
        for path in (Path(place, name) for name in names):
            if not path.is_symlink():
                path.chmod(stat.S_IMODE(path.stat().st_mode) | 0o444)


def _hide(source: Path, names: list[str], target: Path) -> None:
    """A layer that takes `names` away from `source`: its folders on the way there, and a mark for each name."""
    for name in names:
        for inner in (target, *reversed([target / parent for parent in Path(name).parents if parent.name])):
            if not inner.exists():
                inner.mkdir(parents=inner == target)
                status = (source / inner.relative_to(target)).stat()
                os.chown(inner, status.st_uid, status.st_gid)
                inner.chmod(stat.S_IMODE(status.st_mode))
        os.mknod(target / name, stat.S_IFCHR, 0)  # what overlays take for "removed"


def _enterable(folder: str) -> bool:
    return not folder.endswith(_NEVER_CHANGED) and os.access(folder, os.R_OK | os.X_OK)


def _etc_files() -> Iterator[str]:
    """Names below /etc that a sandbox may see: listed above, and readable by everybody on the host."""
    for pattern in _ETC:
        for name in glob(pattern, root_dir="/etc", include_hidden=True) if "*" in pattern else (pattern,):
            path = f"/etc/{name}"
            if os.path.isdir(path) and not os.path.islink(path):
                for folder, folders, names in os.walk(path):
                    links = [name for name in folders if os.path.islink(f"{folder}/{name}")]
                    yield from (f"{folder[5:]}/{n}" for n in (*names, *links) if _public(f"{folder}/{n}"))
            elif _public(path):
                yield name


def _public(path: str) -> bool:
    try:
        status = os.lstat(path)
    except OSError:
        return False
    if stat.S_ISLNK(status.st_mode):
        return True
    return (
        stat.S_ISREG(status.st_mode) and bool(status.st_mode & stat.S_IROTH) and status.st_size <= _MAX_ETC_FILE_BYTES
    )


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_symlink():
        target.symlink_to(source.readlink())
    else:
        shutil.copyfile(source, target)
        target.chmod(0o755 if source.stat().st_mode & 0o111 else 0o644)

"""What an agent changed in the system: the files that stayed behind when its work was handed to the verifier.

All of it is listed. Honest agents install software, so what a package manager wrote is not held against them: flagged
is what changes, replaces or removes a file of the image, and what runs unasked (a preloaded library, a shell's profile,
a module that Python loads at its start) or in the place of a program of the image.
"""

# ruff: noqa: PTH208

import base64
import contextlib
import fnmatch
import functools
import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from terminalbench.sandbox.engine import views

MOST_LISTED = 1000
_MOST_SEEN = 200_000
_MOST_BYTES = 32 << 20
_CHUNK = 1 << 18
_OTHERS = ("run", "tests", "logs", "dev", "proc", "sys", "var", "tmp")
FOLDERS = ("usr/local/sbin", "usr/local/bin", "usr/sbin", "usr/bin", "sbin", "bin")
_HOOKS = (
    *("etc/ld.so.preload", "etc/profile", "etc/profile.d/*", "etc/bash.bashrc", "etc/environment", "etc/zsh/*"),
    *("*/sitecustomize.py", "*/usercustomize.py", "*/sitecustomize/__init__.py", "*/usercustomize/__init__.py"),
)
_BOOKS = (
    *("etc/passwd*", "etc/group*", "etc/shadow*", "etc/gshadow*", "etc/subuid*", "etc/subgid*", "etc/ld.so.cache"),
    *("etc/hosts", "etc/hostname", "etc/resolv.conf", "etc/mtab", "etc/localtime", "etc/timezone", "etc/shells"),
    *("etc/mailcap", "etc/alternatives/*", "etc/ssl/certs/*", "etc/ca-certificates*", "etc/apt/*", "etc/fonts/*"),
    *(f"usr/share/{n}/*" for n in ("info", "mime", "icons", "fonts", "doc", "man", "locale", "applications")),
    *("usr/share/glib-2.0/*", "usr/share/bash-completion/*", "*.cache", "*/node_modules/*"),
)
"""What installing software rewrites; and programs of Node, which keeps no record of them."""
_PIPS_OWN = ("pip*", "wheel", "easy_install*")
_KNOWN_PTH = ("distutils-precedence.pth", "*-nspkg.pth")


class FileChange(NamedTuple):
    """One file: what was done to it, and whether that is held against the agent."""

    kind: str
    path: str
    flagged: bool


class _Records(NamedTuple):
    """What package managers wrote down in the sandbox: the MD5 sums and names of dpkg's files, the SHA256 of pip's."""

    sums: dict[str, str]
    names: set[str]
    pip: dict[str, str]


def listed(run_dir: str, mounts: list[dict[str, Any]], etc: dict[str, str]) -> dict[str, Any]:
    """The agent's changes, flagged ones first; `more` counts those beyond what is listed.

    `etc` are files that every sandbox gets: changed where they say something else by now.
    """
    found: list[FileChange] = []
    programs = functools.cache(lambda: _programs(mounts))  # thousands of names, which are seldom needed
    records = _records(run_dir, mounts)
    for number, mount in enumerate(mounts):
        layers = layers_of(mount)
        folder, at = views.upper(run_dir, views.AGENT, number), f"{mount['at']}/" if mount["at"] else ""
        found += _of_overlay(folder, at, layers, programs, records)
    etc_now = {f"etc/{name}": read_start(f"{views.upper(run_dir, views.AGENT, 0)}/etc/{name}") for name in etc}
    ours = {path for path, text in etc_now.items() if text == etc[path.removeprefix("etc/")].encode()}
    found = [one._replace(kind="changed") if one.path in etc_now else one for one in found if one.path not in ours]
    found.sort(key=lambda change: (not change.flagged, change.path))
    told = [{"kind": one.kind, "path": text_of(f"/{one.path}"), "flagged": one.flagged} for one in found[:MOST_LISTED]]
    return {"changes": told, "more": max(0, len(found) - MOST_LISTED), "flagged": sum(one.flagged for one in found)}


def replaced_programs(run_dir: str, mounts: list[dict[str, Any]]) -> list[str]:
    """Programs of the image that others took the place of in the verifier's view, as no package manager writes them."""
    records = functools.cache(lambda: _records(run_dir, mounts, views.VERIFIER))
    programs, found = functools.cache(lambda: _programs(mounts)), list[str]()
    for number, mount in enumerate(mounts):
        upper, at = views.upper(run_dir, views.VERIFIER, number), f"{mount['at']}/" if mount["at"] else ""
        for folder in (one for one in FOLDERS if one.startswith(at)):
            place = f"{upper}/{folder.removeprefix(at)}"
            for name in os.listdir(place) if os.path.isdir(place) and not os.path.islink(place) else ():  # noqa: PTH112, PTH114
                path, file = f"{folder}/{name}", f"{place}/{name}"
                status, base = os.lstat(file), in_layers(layers_of(mount), path.removeprefix(at))
                if views.is_removal(status) or stat.S_ISDIR(status.st_mode) or name not in programs():
                    continue
                same = base is not None and _same(file, status, base)
                if not same and not _matches(name, _PIPS_OWN) and not _packaged(path, file, records()):
                    found.append(text_of(f"/{path}"))
    return found


def text_of(path: str) -> str:
    """A name that any text file can hold: bytes that are no text are written as such."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def _of_overlay(
    folder: str, at: str, layers: list[str], programs: Callable[[], set[str]], records: _Records
) -> Iterator[FileChange]:
    for name, status in walk(folder):
        path = f"{at}{name}"
        if path.split("/")[0] in _OTHERS or "__pycache__" in path or path.endswith(".pyc"):
            continue
        base = in_layers(layers, name)
        if views.is_removal(status):
            if base is not None:
                yield FileChange("removed", path, _replaces(path, None, records))
        elif stat.S_ISDIR(status.st_mode):
            if base is not None and _is_opaque(f"{folder}/{name}"):
                yield FileChange("replaced", path, not _matches(path, _BOOKS))
        elif base is None:
            yield FileChange("added", path, _runs_unasked(f"{folder}/{name}", path, programs, records))
        elif not _same(f"{folder}/{name}", status, base):
            yield FileChange("changed", path, _replaces(path, f"{folder}/{name}", records))


def walk(root: str, left_out: tuple[str, ...] = ()) -> Iterator[tuple[str, os.stat_result]]:
    """The files and folders below `root`, as far as they can be looked at; nothing of folders with names `left_out`."""
    seen, folders = 0, [""]
    while folders and seen < _MOST_SEEN:
        below = folders.pop()
        with contextlib.suppress(OSError):  # nested too deep to be looked at
            for name in sorted(os.listdir(f"{root}/{below}")):
                path = f"{below}/{name}" if below else name
                status = os.lstat(f"{root}/{path}")
                seen += 1
                yield path, status
                if stat.S_ISDIR(status.st_mode) and name not in left_out:
                    folders.append(path)


def layers_of(mount: dict[str, Any]) -> list[str]:
    """Return the folders that an overlay lies over, the uppermost first."""
    return [*mount["lower"], *([mount["host"]] if mount.get("host") else [])]


def in_layers(layers: list[str], name: str) -> str | None:
    """Return where the layers have this name; None where they do not."""
    for layer in layers:
        try:
            status = os.lstat(f"{layer}/{name}")
        except OSError:
            continue
        return None if views.is_removal(status) else f"{layer}/{name}"
    return None


def _is_opaque(path: str) -> bool:
    with contextlib.suppress(OSError):
        return any(name.endswith(".overlay.opaque") for name in os.listxattr(path, follow_symlinks=False))
    return False


def _same(path: str, status: os.stat_result, base: str) -> bool:
    """Return whether a file is still what the layers have; a file that was only touched is copied as a whole."""
    before = os.lstat(base)
    if stat.S_IFMT(status.st_mode) != stat.S_IFMT(before.st_mode):
        return False
    if stat.S_ISLNK(status.st_mode):
        return os.readlink(path) == os.readlink(base)  # noqa: PTH115
    if not stat.S_ISREG(status.st_mode) or status.st_size != before.st_size:
        return False
    return _digest(path, "sha256") == _digest(base, "sha256")


def _digest(path: str, kind: str) -> bytes:
    """The digest of a regular file's start; nothing where it cannot be read."""
    digest, left = hashlib.new(kind, usedforsecurity=False), _MOST_BYTES
    with contextlib.suppress(OSError):
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            while left > 0 and (chunk := os.read(handle, _CHUNK)):
                digest.update(chunk)
                left -= len(chunk)
        finally:
            os.close(handle)
        return digest.digest()
    return b""


def _replaces(path: str, file: str | None, records: _Records) -> bool:
    """Return whether a changed (or, without `file`, removed) file of the image is none that a package manager wrote."""
    if _matches(path, _BOOKS) and not _matches(path, _HOOKS):
        return False
    return not _packaged(path, file, records)


def _packaged(path: str, file: str | None, records: _Records) -> bool:
    site = next((folder for folder in _site_folders(path) if folder in records.pip), None)
    if file is None:
        return _plain(path) in records.names or site is not None
    if _plain(path) in records.sums:
        return _digest(file, "md5").hex() == records.sums[_plain(path)]
    if path in records.pip:
        return base64.urlsafe_b64encode(_digest(file, "sha256")).rstrip(b"=").decode() == records.pip[path]
    return _plain(path) in records.names


def _site_folders(path: str) -> Iterator[str]:
    parts = path.split("/")
    for number, part in enumerate(parts):
        if part in ("site-packages", "dist-packages"):
            yield "/".join(parts[: number + 1])


def _runs_unasked(file: str, path: str, programs: Callable[[], set[str]], records: _Records) -> bool:
    """Return whether a new file runs without being asked for, or instead of a program of the image."""
    folder, _, name = path.rpartition("/")
    if not folder and views.is_for_runners(name):
        return True
    hook = _matches(path, _HOOKS) or (path.endswith(".pth") and _imports(file) and not _matches(name, _KNOWN_PTH))
    shadow = folder in FOLDERS and name in programs() and not _matches(name, _PIPS_OWN)
    return (hook or shadow) and not _packaged(path, file, records)


def _imports(file: str) -> bool:
    return any(line.startswith((b"import ", b"import\t")) for line in read_start(file).splitlines())


def _matches(path: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatch.fnmatchcase(path, pattern) for pattern in patterns)


def _programs(mounts: list[dict[str, Any]]) -> set[str]:
    """The names of the image's programs."""
    found: set[str] = set()
    for mount in mounts:
        prefix = f"{mount['at']}/" if mount["at"] else ""
        for folder in FOLDERS:
            if folder.startswith(prefix):
                for layer in layers_of(mount):
                    with contextlib.suppress(OSError):
                        found.update(os.listdir(f"{layer}/{folder.removeprefix(prefix)}"))
    return found


def _records(run_dir: str, mounts: list[dict[str, Any]], view: str = views.AGENT) -> _Records:
    """Return what package managers wrote down in a view."""
    records = _Records({}, set(), {})
    info = f"{views.upper(run_dir, view, 0)}/var/lib/dpkg/info"
    with contextlib.suppress(OSError):
        for name in os.listdir(info)[:_MOST_SEEN]:
            text = (
                read_start(f"{info}/{name}").decode("utf-8", "replace") if name.endswith((".list", ".md5sums")) else ""
            )
            if name.endswith(".list"):
                records.names.update(_plain(line.strip("/")) for line in text.splitlines())
            for line in text.splitlines() if name.endswith(".md5sums") else ():
                digest, _, path = line.partition("  ")
                records.sums[_plain(path)] = digest
    for number, mount in enumerate(mounts):
        at = f"{mount['at']}/" if mount["at"] else ""
        folder = views.upper(run_dir, view, number)
        for name, status in walk(folder):
            if name.endswith(".dist-info/RECORD") and stat.S_ISREG(status.st_mode):
                site = f"{at}{name}".rsplit("/", 2)[0]
                records.pip[site] = ""
                for line in read_start(f"{folder}/{name}").decode("utf-8", "replace").splitlines():
                    path, _, rest = line.partition(",sha256=")
                    records.pip[os.path.normpath(f"{site}/{path}")] = rest.partition(",")[0]
    return records


def read_start(path: str, most: int = _CHUNK * 4) -> bytes:
    """Return the start of a regular file; nothing where it is none."""
    with contextlib.suppress(OSError):
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            status = os.fstat(handle)
            return os.read(handle, min(most, status.st_size)) if stat.S_ISREG(status.st_mode) else b""
        finally:
            os.close(handle)
    return b""


def _plain(path: str) -> str:
    """A name of the packages' files where `bin`, `sbin` and `lib` are links into `usr`."""
    return path if path.startswith(("usr/", "etc/", "opt/")) else f"usr/{path}"

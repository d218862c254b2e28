"""The build context: the folder a Dockerfile copies from, without what .dockerignore leaves out."""

import hashlib
import io
import os
import re
import stat
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from terminalbench.sandbox.errors import Refused
from terminalbench.sandbox.transfer import add_path

_digests: dict[tuple[str, str], str] = {}


@dataclass(frozen=True)
class CopyEntry:
    """One thing to copy: its path in the image (relative to /), and a file of the context or its content."""

    target: str
    source: Path | bytes


class BuildContext:
    """The files a Dockerfile may copy."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        rules = folder / "Dockerfile.dockerignore"
        self._rules = _read_rules(rules if rules.is_file() else folder / ".dockerignore")

    def digest(self, source: str, where: str) -> str:
        """A hash of every name, kind, executable bit and content that a COPY names; unchanged files are read once."""
        entries = []
        for found in self.find(source, where):
            real = found.resolve()
            below = self._walk(real) if real.is_dir() else ()
            entries += [(found.name, real, real.lstat()), *((name, path, path.lstat()) for name, path in below)]
        marks = [(name, s.st_size, s.st_mtime_ns, s.st_ctime_ns, s.st_ino, s.st_mode) for name, _, s in entries]
        key = (str(self.folder), hashlib.sha256(repr(marks).encode()).hexdigest())
        if key not in _digests:
            whole = hashlib.sha256()
            for name, path, status in entries:
                head = f"{name}\0{stat.S_IFMT(status.st_mode)}\0{status.st_mode & 0o111}\0"
                whole.update(head.encode("utf-8", "surrogateescape"))
                whole.update(_content_digest(path, status.st_mode))
            _digests[key] = whole.hexdigest()
        return _digests[key]

    def _walk(self, folder: Path) -> Iterator[tuple[str, Path]]:
        """(name in the context, path) of everything below `folder` that is not ignored, sorted."""
        for path in sorted(folder.iterdir()):
            name = path.relative_to(self.folder).as_posix()
            is_folder = path.is_dir() and not path.is_symlink()
            if not self._ignored(name):
                yield name, path
            if is_folder:
                yield from self._walk(path)

    def _ignored(self, name: str) -> bool:
        ignored = False
        for pattern, keeps in self._rules:
            if pattern.fullmatch(name):
                ignored = not keeps
        return ignored

    def find(self, source: str, where: str) -> list[Path]:
        """Return what the source of a COPY names; a pattern may name several. Nothing outside the context."""
        clean = PurePosixPath("/", source)
        parts = [part for part in clean.parts[1:] if part not in (".", "..")]
        if any(char in source for char in "*?["):
            found = sorted(self.folder.glob("/".join(parts)))
        else:
            path = self.folder.joinpath(*parts)
            found = [path] if os.path.lexists(path) else []
        found = [
            path for path in found if path == self.folder or not self._ignored(path.relative_to(self.folder).as_posix())
        ]
        if not found:
            raise Refused(
                f"COPY of {source}: no such file in {self.folder}", where=where, hint="check the name and .dockerignore"
            )
        root = self.folder.resolve()
        for path in found:
            if not path.resolve().is_relative_to(root):
                raise Refused(
                    f"COPY of {source}: it leads out of {self.folder}", where=where, hint="copy the file into it"
                )
        return found

    def below(self, folder: Path) -> Iterator[tuple[str, Path]]:
        """(name relative to `folder`, path) of everything below it that is not ignored."""
        for _, path in self._walk(folder):
            yield path.relative_to(folder).as_posix(), path


def _content_digest(path: Path, mode: int) -> bytes:
    if stat.S_ISLNK(mode):
        return hashlib.sha256(os.fsencode(path.readlink())).digest()
    if not stat.S_ISREG(mode):
        return b""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").digest()


def _read_rules(path: Path) -> list[tuple[re.Pattern[str], bool]]:
    rules = []
    for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else []:
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        keeps = text.startswith("!")
        text = text.removeprefix("!").strip().strip("/")
        if text and text != ".":
            rules.append((_rule(text), keeps))
    return rules


def _rule(pattern: str) -> re.Pattern[str]:
    """A pattern of .dockerignore: it matches a name, and everything below it."""
    result, at = "", 0
    while at < len(pattern):
        if pattern.startswith("**/", at):
            result, at = result + "(?:.*/)?", at + 3
        elif pattern.startswith("**", at):
            result, at = result + ".*", at + 2
        elif pattern[at] == "*":
            result, at = result + "[^/]*", at + 1
        elif pattern[at] == "?":
            result, at = result + "[^/]", at + 1
        elif pattern[at] == "[" and "]" in pattern[at:]:
            end = pattern.index("]", at)
            result, at = result + pattern[at : end + 1].replace("[!", "[^"), end + 1
        else:
            result, at = result + re.escape(pattern[at]), at + 1
    return re.compile(f"{result}(?:/.*)?", re.DOTALL)


def write_entries(stream: BinaryIO, entries: list[CopyEntry], *, owner: tuple[int, int], mode: int | None) -> None:
    """Pack entries into a tar stream, all owned by `owner`."""
    with tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT) as archive:
        for entry in entries:
            if isinstance(entry.source, Path):
                add_path(archive, entry.source, entry.target, owner=owner, mode=mode)
                continue
            member = tarfile.TarInfo(entry.target)
            member.uid, member.gid = owner
            member.size, member.mode = len(entry.source), 0o644 if mode is None else mode
            archive.addfile(member, io.BytesIO(entry.source))


def archive_entries(path: Path) -> tarfile.TarFile | None:
    """`path` opened as a tar archive, if ADD would unpack it."""
    try:
        return tarfile.open(path, "r:*")
    except (tarfile.TarError, OSError, EOFError):
        return None

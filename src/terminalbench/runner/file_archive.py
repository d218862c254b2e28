"""Files kept aside so that a folder can be made again: one archive, and a digest of each file in it.

A file counts with its bytes and whether it can be executed, a link with where it leads. Nothing else of it is kept.
"""

import fnmatch
import hashlib
import io
import os
import re
import shutil
import stat
import tarfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

from terminalbench.errors import UserError
from terminalbench.experiments.agent_code import DIGITS
from terminalbench.experiments.profiles import is_source
from terminalbench.files import write_lines
from terminalbench.text.numbers import some

MOST_FILES, MOST_BYTES = 20_000, 512 * 1024 * 1024
"""More than this is data, not code: it is refused, with the folders that hold most of it."""


_RESULTS = ({"index.db"}, {"plan.json", "experiment.toml"}, {"code.json", "code.tar"})
"""A folder with files of these names holds batches, is one, or is a night with its pinned code."""
_EPISODES = re.compile(r".*/\.terminalbench/gym/episodes\.\w+")
"""The episodes of a project: each night adds some, which makes its code no other."""
_HOLDS_SECRETS = re.compile("|".join(map(fnmatch.translate, (".env", ".env.*", "*.env"))))


def holds_secrets(name: str) -> bool:
    """Return whether a file of that name is an env file: its values are never copied."""
    return _HOLDS_SECRETS.match(name.rpartition("/")[2]) is not None


def left_out_of(top: Path, own: Path) -> Callable[[Path], bool]:
    """Return a test for files below `top` that are no code: environments, caches, results, episodes and `own`."""

    @cache
    def folder_is(path: Path) -> bool:
        if path == top:
            return False
        there = path.is_dir() and not path.is_symlink()
        results = there and any(all((path / name).exists() for name in marks) for marks in _RESULTS)
        no_code = results or _EPISODES.fullmatch(str(path)) is not None or not is_source(path.name)
        return folder_is(path.parent) or path == own or no_code

    return lambda path: folder_is(path.parent) or (folder_is(path) and not holds_secrets(path.name))


def files_of(top: Path, left_out: Callable[[Path], bool]) -> Iterator[str]:
    """The files and links below a folder, by their names."""
    for place, folders, names in top.walk():
        links = [name for name in folders if (place / name).is_symlink()]
        folders[:] = [name for name in folders if name not in links and not left_out(place / name)]
        found = (place / name for name in (*names, *links))
        yield from (path.relative_to(top).as_posix() for path in found if not left_out(path))


def capture(top: Path, names: Iterable[str], archive: Path) -> dict[str, str]:
    """Write files below `top` to an archive; the digest of each by its name. A name without a file is left out."""
    there = [name for name in sorted(set(names)) if _is_file_or_link(top / name)]
    _refuse_data(top, there)
    found: dict[str, str] = {}
    write_lines(archive, _archived(top, there, found))
    return found


def unpack(archive: Path, folder: Path) -> None:
    """Put the files of an archive into a folder, in place of what is there by these names."""
    with tarfile.open(archive) as kept:
        for member in kept:
            target = folder / member.name
            _clear(target, folder)
            kept.extract(member, folder, filter="tar")


def remove(folder: Path, names: Iterable[str]) -> None:
    """Take files out of a folder, and folders that are empty then."""
    for name in names:
        path = folder / name
        if not path.parent.is_symlink() and (path.is_symlink() or path.is_file()):
            path.unlink()
            for above in path.parents:
                if above == folder or any(above.iterdir()):
                    break
                above.rmdir()


def digest_of(path: Path) -> str | None:
    """The digest of a file or a link, as `capture` has it; None when it is neither."""
    try:
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            return f"l{_hash(os.fsencode(path.readlink()))}"
        return f"{_mark(mode)}{_hash(path.read_bytes())}" if stat.S_ISREG(mode) else None
    except OSError:
        return None


def digest_of_all(digests: Mapping[str, str], *more: str) -> str:
    """One digest for files by their names, and for what else there is to say."""
    lines = [*more, *(f"{name}\0{digests[name]}" for name in sorted(digests))]
    return _hash("\n".join(lines).encode(errors="surrogateescape"))


def _archived(top: Path, names: Iterable[str], found: dict[str, str]) -> Iterator[bytes]:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w|", errors="surrogateescape") as archive:
        for name in names:
            path, entry = top / name, tarfile.TarInfo(name)
            mode = path.lstat().st_mode
            if stat.S_ISLNK(mode):
                entry.type, entry.linkname = tarfile.SYMTYPE, str(path.readlink())
                found[name] = f"l{_hash(os.fsencode(entry.linkname))}"
                archive.addfile(entry)
            else:
                data = path.read_bytes()
                entry.size, entry.mode = len(data), 0o755 if mode & 0o100 else 0o644
                found[name] = f"{_mark(mode)}{_hash(data)}"
                archive.addfile(entry, io.BytesIO(data))
            yield buffer.getvalue()
            buffer.seek(0)
            buffer.truncate()
    yield buffer.getvalue()


def _refuse_data(top: Path, names: list[str]) -> None:
    sizes = Counter({name: (top / name).lstat().st_size for name in names})
    if len(names) <= MOST_FILES and sizes.total() <= MOST_BYTES:
        return
    folders: Counter[str] = Counter()
    for name, size in sizes.items():
        folders["/".join(name.split("/")[:2][: max(1, name.count("/"))])] += size
    largest = some([name for name, _ in folders.most_common(3)])
    raise UserError(
        f"{len(names):,} uncommitted files ({sizes.total() // 2**20:,} MB) are too many to capture: the limit is "
        f"{MOST_FILES:,} files and {MOST_BYTES // 2**20} MB. Most of them are in {largest}",
        where=str(top),
        hint="commit the code, and let git ignore the data (.gitignore)",
    )


def _clear(target: Path, folder: Path) -> None:
    """Make room for a file: a link on the way to it, or in its place, would lead elsewhere."""
    for above in reversed(target.relative_to(folder).parents):
        place = folder / above
        if place.is_symlink() or place.is_file():
            place.unlink()
    if target.is_dir() and not target.is_symlink():
        shutil.rmtree(target)
    else:
        target.unlink(missing_ok=True)


def _is_file_or_link(path: Path) -> bool:
    try:
        mode = path.lstat().st_mode
    except OSError:
        return False
    return stat.S_ISLNK(mode) or stat.S_ISREG(mode)


def _mark(mode: int) -> str:
    return "x" if mode & 0o100 else "-"


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:DIGITS]

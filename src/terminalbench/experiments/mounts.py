"""Files, folders and programs of this machine in the sandbox of an agent, read-only, with what they need."""

import hashlib
import json
import os
import re
import shutil
import stat
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

from terminalbench.errors import did_you_mean
from terminalbench.experiments.agent_code import DIGITS
from terminalbench.experiments.mcp import private_in
from terminalbench.experiments.profiles import is_passing
from terminalbench.files import write_bytes
from terminalbench.frozen import frozen
from terminalbench.modes import make_own_folder, user_cache
from terminalbench.strict import Problems, find_path, is_there, join

PROGRAMS_AT = "/usr/local/bin"
"""Where the sandbox has programs of this machine."""
_MOST_FILES, _MOST_BYTES = 5000, 512 << 20
"""What is larger is told apart by names, sizes and times."""
_LARGE_FILE = 16 << 20
_RESERVED = ("tests", "solution", "logs", "proc", "sys", "dev")
_SYSTEM = (Path("/usr"), Path("/usr/local"), Path("/"))
_PYTHON = re.compile(r"python[\d.]*")
_HOME = re.compile(r"^home\s*=\s*(.+)$", re.MULTILINE)


@frozen
class Mount:
    """A file or folder of this machine, and its place in the sandbox. `raw` is how Harbor's arguments have it."""

    source: Path
    target: str
    raw: Mapping[str, Any] | None = None

    def entry(self) -> dict[str, Any]:
        """Return the mount as a JobConfig has it."""
        told = {"type": "bind", "source": str(self.source), "target": self.target, "read_only": True}
        return dict(self.raw) if self.raw is not None else told

    @cached_property
    def _files(self) -> dict[str, os.stat_result]:
        if not self.source.is_dir():
            return {"": self.source.stat()}
        found = {}
        for place, folders, names in os.walk(self.source):
            folders[:] = sorted(name for name in folders if not is_passing(name))
            linked = [name for name in folders if Path(place, name).is_symlink()]
            for name in sorted([*(n for n in names if not is_passing(n)), *linked]):
                path = Path(place, name)
                found[path.relative_to(self.source).as_posix()] = path.lstat()
        return found

    @cached_property
    def is_large(self) -> bool:
        """Return whether it is told apart by names, sizes and times."""
        small = sum(about.st_size for about in self._files.values() if about.st_size < _LARGE_FILE)
        return len(self._files) > _MOST_FILES or small > _MOST_BYTES

    @cached_property
    def digest(self) -> str:
        """The hash of its content, or of what `is_large` says. Raises `OSError`."""
        total = hashlib.sha256()
        for name, about in self._files.items():
            told = (about.st_size, about.st_mtime_ns) if self.is_large else self._content(name, about)
            total.update(f"{name}\0{about.st_mode & 0o100}\0{told}\n".encode(errors="surrogateescape"))
        return total.hexdigest()[:DIGITS]

    def _content(self, name: str, about: os.stat_result) -> str:
        from terminalbench.llm.local.gguf import file_digest  # only mounts pay for it

        path = self.source / name if name else self.source
        if stat.S_ISLNK(about.st_mode):
            return f"-> {path.readlink()}"
        if not stat.S_ISREG(about.st_mode):
            return "special"
        return file_digest(path) if about.st_size >= _LARGE_FILE else hashlib.sha256(path.read_bytes()).hexdigest()


@frozen
class Program:
    """A program of this machine: what of it is mounted, and the script that starts it where it needs one."""

    name: str
    mounts: tuple[Mount, ...]
    script: str | None = None

    @cached_property
    def digest(self) -> str:
        """The hash of all that it consists of."""
        return hashlib.sha256("".join(one.digest for one in self.mounts).encode()).hexdigest()[:DIGITS]

    @property
    def is_large(self) -> bool:
        """Return whether a part of it is told apart by names, sizes and times."""
        return any(one.is_large for one in self.mounts)

    def entries(self) -> list[dict[str, Any]]:
        """Return its mounts as a JobConfig has them; the script that starts it is kept in the user's cache."""
        if self.script is None:
            return [one.entry() for one in self.mounts]
        text = self.script.encode()
        file = user_cache() / "programs" / hashlib.sha256(text).hexdigest()[:DIGITS] / self.name
        if not file.exists():
            make_own_folder(file.parent)
            write_bytes(file, text, mode=0o755)
        return [*(one.entry() for one in self.mounts), Mount(file, f"{PROGRAMS_AT}/{self.name}").entry()]


def find_program(name: str) -> Program | None:
    """Return the program that PATH leads to, with its npm package or virtual environment; None: there is none."""
    found = shutil.which(name)
    if found is None:
        return None
    path, at = Path(found).resolve(), f"{PROGRAMS_AT}/{name}"
    if _PYTHON.fullmatch(name) and path.parent.parent not in _SYSTEM:
        of_venv = tuple(_python_of(Path(found).parent.parent))
        whole = of_venv or (Mount(path.parent.parent, str(path.parent.parent)),)
        return Program(name, whole, f'#!/bin/sh\nexec "{found if of_venv else path}" "$@"\n')
    with path.open("rb") as stream:
        first = stream.readline(4096)
    if first.startswith(b"#!") and (package := _package(path)) is not None:
        node = shutil.which("node") if b"node" in first else None
        mounts = [Mount(package, str(package))]
        mounts += [Mount(Path(node).resolve(), f"{PROGRAMS_AT}/node")] if node is not None else []
        start = f"{PROGRAMS_AT}/node " if node is not None else ""
        return Program(name, tuple(mounts), f'#!/bin/sh\nexec {start}"{path}" "$@"\n')
    return Program(name, (Mount(path, at), *_python_of(path.parent.parent)))


def _package(path: Path) -> Path | None:
    """The folder with all that a script of an npm package needs."""
    top = next((place for place in reversed(path.parents) if place.name == "node_modules"), None)
    if top is None or top.parent.name != "lib":
        return top
    inner = path.relative_to(top).parts  # installed for all: each package has its own dependencies in it
    return top.joinpath(*inner[: 2 if inner[0].startswith("@") else 1])


def _python_of(folder: Path) -> Iterator[Mount]:
    """The virtual environment in a folder, and the Python that it is of unless that is the system's."""
    try:
        told = _HOME.search((folder / "pyvenv.cfg").read_text())
    except OSError:
        return
    yield Mount(folder, str(folder))
    home = Path(told[1].strip()).parent if told is not None else _SYSTEM[0]
    for place in dict.fromkeys((home, home.resolve())):
        if place not in _SYSTEM and place.is_dir():
            yield Mount(home.resolve(), str(place))


def _mount_arguments(arguments: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Return the values of `--mounts` among Harbor's arguments, each with its place."""
    for index, argument in enumerate(arguments):
        option, sign, value = argument.partition("=")
        if option in ("--mounts", "--mounts-json"):
            yield (index, value) if sign else (index + 1, "".join(arguments[index + 1 : index + 2]))


def check_mounts(arguments: Sequence[str], problems: Problems) -> None:
    """Note mounts that are no list of tables, or name no place: an empty one would be the current folder."""
    hint = """write '[{"type": "bind", "source": "/a/folder", "target": "/inside"}]'"""
    for place, value in _mount_arguments(arguments):
        at = f"run.harbor_args[{place}]"
        try:
            mounts = json.loads(value)
        except ValueError as error:
            problems.add(at, f"is not readable as JSON: {error}", hint)
            continue
        if not isinstance(mounts, list) or not all(map(_is_mount, mounts)):
            problems.add(at, "must be a list of mounts, each with a source and a target", hint)


def _is_mount(mount: Any) -> bool:
    """Return whether a mount names its places; only one of a folder here has a source that must be told."""
    if not isinstance(mount, Mapping) or not mount.get("target"):
        return False
    return bool(mount.get("source")) or mount.get("type", "bind") != "bind"


def mounts_in(arguments: Sequence[str], root: Path) -> tuple[Mount, ...]:
    """Return what `--mounts` among Harbor's arguments mounts from this machine, as far as it can be read."""
    found: list[Mount] = []
    for _, value in _mount_arguments(arguments):
        try:
            entries = [one for one in json.loads(value) if one.get("type", "bind") == "bind" and one.get("source")]
            found = [Mount(root / Path(one["source"]).expanduser(), str(one["target"]), one) for one in entries]
        except (ValueError, TypeError, AttributeError, KeyError):
            continue
    return tuple(found)


@frozen
class MountReader:
    """Reads the keys `mounts` and `programs` of a profile. `thorough`: what is not there is a problem, else a note."""

    root: Path
    private: Mapping[Path, str]
    problems: Problems
    notes: list[str]
    thorough: bool

    def mounts(self, named: Mapping[str, str], at: str) -> tuple[Mount, ...]:
        """Return what is mounted, checked."""
        found: dict[str, Mount] = {}
        for name, target in named.items():
            where = join(at, name)
            path = find_path(name, self.root, where, self.problems)
            place = PurePosixPath(target)
            if not place.is_absolute() or ".." in place.parts or str(place) == "/":
                self.problems.add(where, f'"{target}" is not a path in the sandbox', "give an absolute path")
            elif place.parts[1] in _RESERVED:
                self.problems.add(
                    where, f"the agent must not change /{place.parts[1]}", "mount it below /opt, as a rule"
                )
            elif str(place) in found:
                self.problems.add(where, f"{place} is {found[str(place)].source} already", "choose another path for it")
            elif path is None:
                continue
            elif not is_there(path):
                self._lacks(where, f"no file or folder at {path}")
            elif (held := private_in(path, self.private)) is not None:
                what = f"{path} holds {held}, which the agent would see"
                self.problems.add(where, what, "mount a separate folder")
            else:
                found[str(place)] = Mount(path.resolve(), str(place))
        return tuple(self._told(one, one.target, at) for one in found.values())

    def programs(self, names: Sequence[str], at: str) -> tuple[Program, ...]:
        """Return the programs that PATH leads to, checked."""
        found: dict[str, Program] = {}
        for index, name in enumerate(names):
            where = f"{at}[{index}]"
            if "/" in name or not name.strip() or name in found:
                self.problems.add(where, f'"{name}" is not the name of another program', "for a path, use mounts")
                continue
            try:
                program = find_program(name)
            except OSError as error:
                self.problems.add(where, f"{error.filename} cannot be read: {error.strerror}")
                continue
            if program is None:
                self._lacks(where, f"no program {name} on PATH", _like(name))
            elif program.mounts[0].source.parent.name == "shims":
                what = f"{program.mounts[0].source} is only a launcher that looks for the program"
                self.problems.add(where, what, f"put the folder of the real {name} first on PATH")
            else:
                found[name] = self._told(program, name, at)
        return tuple(found.values())

    def _lacks(self, at: str, what: str, hint: str | None = None) -> None:
        if self.thorough:
            self.problems.add(at, what, hint)
        else:
            self.notes.append(f"{at}: {what}, so the profile's id does not include it")

    def _told[M: (Mount, Program)](self, one: M, name: str, at: str) -> M:
        if self.thorough and one.is_large:
            what = "is large: the profile's id includes its names, sizes and times, but not its content"
            self.notes.append(f"{at}: {name} {what}")
        return one


def _like(name: str) -> str | None:
    places = os.environ.get("PATH", "").split(os.pathsep)
    known = {entry.name for place in places if os.path.isdir(place) for entry in os.scandir(place)}  # noqa: PTH112
    like = did_you_mean(name, sorted(known), limit=0)
    return f"install it, or mount it with mounts{f'; {like}' if like else ''}"

"""The code of an agent, or an environment, that is a class of one's own: digests of the files its import path leads to.

A package counts with every file of its folder, a folder without `__init__.py` with its Python files, a single module
with itself. What these import from source folders (the project, editable installs) is counted too, by a statement or by
a call with the name as text, and so are modules that Python loads by itself (`sitecustomize`). An installed
distribution counts with its name, version and files. Everything is looked for as a file and read as text: no module is
imported. Code of terminalbench and of Harbor is not counted: their versions are in the plan. Digests are by name, here
and for tasks, so that a change can be named.
"""

import ast
import errno
import hashlib
import os
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from terminalbench.experiments.profiles import is_source
from terminalbench.frozen import frozen
from terminalbench.llm.local.spec import is_local, parse_local
from terminalbench.strict import is_file, is_folder

if TYPE_CHECKING:
    from importlib.metadata import Distribution

DIGITS = 16
"""Hex digits of a digest: enough to tell files apart, short enough to keep thousands of them in a plan."""
MOST_FILES = 200
"""More files than this are kept as digests of their folders."""
_MOST_CODE, _MOST_BYTES = 20_000, 2**30
RELEASED = ("terminalbench", "harbor")
_EXTENSIONS = re.compile(r"[^.]*(\.[\w-]+)*\.(so|pyd)")
_STANDARD_LIBRARY = Path(os.__file__).parent
_RESULTS = ({"index.db"}, {"plan.json", "experiment.toml"})
_TASK = {"task.toml", "instruction.md"}
_VENV = {"pyvenv.cfg"}
_BY_ITSELF = ("sitecustomize", "usercustomize")
"""Modules that Python loads when it starts, wherever the search path has them."""


def agent_code(import_path: str, root: Path | None) -> dict[str, str] | None:
    """Digests of the code at `module:Class` by file name, empty for a released agent; None when there is no such code.

    `root` holds the project's own modules. Raises `OSError` for a file that cannot be read.
    """
    if is_released(import_path):
        return {}
    module = import_path.partition(":")[0]
    first = _first(module, root)
    if first is None:
        return None
    installed = _distribution(first, module)
    if installed is not None:
        version = {f"distribution {installed.name}": installed.version or "of no version"}
        return version | digests(_recorded(installed, first.place) or first.files, MOST_FILES)
    return digests(_sources(first, root), MOST_FILES)


def own_code(import_path: str, root: Path | None) -> dict[str, Path]:
    """The files of the code at `module:Class` by name, as `agent_code` counts them; none where it is installed."""
    module = import_path.partition(":")[0]
    first = None if is_released(import_path) else _first(module, root)
    return {} if first is None or _distribution(first, module) is not None else _sources(first, root)


def _search(root: Path | None) -> list[str]:
    return [*([str(root)] if root is not None else []), *sys.path]


def _first(module: str, root: Path | None) -> "_CodeUnit | None":
    return _find(module, _search(root)) or _hooked(module.partition(".")[0])


def _sources(first: "_CodeUnit", root: Path | None) -> dict[str, Path]:
    """The files of a unit that is worked on, and of all such that it imports."""
    search = _search(root)
    sources = set(filter(_is_source_folder, [first.place, *map(Path, search)]))
    beside = [str(place) for place in dict.fromkeys([first.place, *map(Path, search[:1])]) if place in sources]
    loaded = [found for name in _BY_ITSELF if (found := _find(name, beside)) is not None and found.whole]
    waiting = [first, *loaded]
    units = {unit.name: unit for unit in waiting}
    while waiting:
        for other in _imported(waiting.pop(), search, sources):
            if other.name not in units:
                units[other.name] = other
                waiting.append(other)
    return {name: path for unit in units.values() for name, path in unit.files.items()}


def code_place(import_path: str, root: Path | None) -> Path | None:
    """The file or folder of the top module of `module:Class`, as Python would find it; None when there is none."""
    module = import_path.partition(":")[0]
    found = _first(module, root)
    return found.path.resolve() if found is not None else None


def is_released(import_path: str) -> bool:
    """Return whether an agent comes with terminalbench or Harbor."""
    return re.split(r"[.:]", import_path)[0] in RELEASED


def option_files(options: Mapping[str, Any], root: Path, model: str | None = None) -> dict[str, str]:
    """Digests of what options name by a path within the project, by option: files, and folders of `*path` and `*dir`.

    Besides the file of a `local:` model, wherever it is.

    Raises `OSError` for a file that cannot be read.
    """
    files: dict[str, Path] = {}
    for option, path in named_by_options(options, root):
        below = files_below(path, _counts, _is_no_code) if is_folder(path) else [path]
        files |= {f"{option}: {file.relative_to(path.parent).as_posix()}": file for file in below}
    return digests(files, MOST_FILES) | _model_file(model)


def named_by_options(options: Mapping[str, Any], root: Path) -> Iterator[tuple[str, Path]]:
    """The options that name a file within the project, or in `*path` and `*dir` a folder, with what they name."""
    for option, value in options.items():
        for text in value if isinstance(value, list) else [value]:
            path = root / text if isinstance(text, str) else root
            folder = path != root and option.endswith(("path", "paths", "dir")) and is_folder(path)
            if (is_file(path) or folder) and path.resolve().is_relative_to(root.resolve()):
                yield option, path


def _model_file(model: str | None) -> dict[str, str]:
    if not is_local(model):
        return {}
    from terminalbench.llm.local.gguf import file_digest  # only experiments with such a model pay for it

    return {"model": file_digest(parse_local(model).path)[:DIGITS]}


@frozen
class _CodeUnit:
    """A module, or a package with its folder, at a place of the search path. `whole`: data files count too."""

    name: str
    place: Path
    path: Path
    whole: bool = True

    @cached_property
    def files(self) -> dict[str, Path]:
        """Its files by their name from the place on. Raises `OSError` where that is more than code."""
        if not self.path.is_dir():
            return {self.path.name: self.path}
        found, total = {}, 0
        for file in files_below(self.path, _counts, _is_no_code):
            if file.suffix == ".py" or (self.whole and not _is_experiment(file)):
                found[file.relative_to(self.place).as_posix()] = file
                total += file.stat().st_size
            if len(found) > _MOST_CODE or total > _MOST_BYTES:
                what = f"holds more than {_MOST_CODE:,} files or 1 GB; give the agent a package without its data"
                raise OSError(errno.EFBIG, what, str(self.path))
        return found


def _find(module: str, search: Sequence[str]) -> _CodeUnit | None:
    """The top of a dotted module, as Python would find it: a folder without `__init__.py` only where nothing else is.

    Such a folder counts when it holds the module.
    """
    name, *inner = module.split(".")
    for place in map(Path, search):
        if (place / name / "__init__.py").is_file():
            return _CodeUnit(name, place, place / name)
        for file in (place / f"{name}.py", *_compiled(place, name)):
            if file.is_file():
                return _CodeUnit(name, place, file)
    for place in map(Path, search):
        below = place.joinpath(name, *inner)
        if below.is_dir() or (inner and below.with_name(f"{below.name}.py").is_file()):
            return _CodeUnit(name, place, place / name, whole=False)
    return None


def _compiled(place: Path, name: str) -> list[Path]:
    return [file for file in place.glob(f"{name}.*") if _EXTENSIONS.fullmatch(file.name)] if place.is_dir() else []


def _hooked(name: str) -> _CodeUnit | None:
    """A module that an import hook finds, as some editable installs have one."""
    from importlib.util import find_spec

    try:
        spec = find_spec(name)
    except (ImportError, ValueError):
        return None
    if spec is None:
        return None
    folder = next(iter(spec.submodule_search_locations or ()), None)
    path = Path(folder or spec.origin or "")
    return _CodeUnit(name, path.parent, path) if path.exists() and path.name else None


def _distribution(unit: _CodeUnit, module: str) -> "Distribution | None":
    """The distribution that installed a module in its place; None for a project's own and for an editable one."""
    from importlib.metadata import Distribution

    path = module.replace(".", "/")
    wanted = re.compile(
        rf"^({re.escape(path)}(\.|/__init__\.)|{re.escape(unit.name)}(/__init__\.|\.)\w+,)", re.MULTILINE
    )
    folders = sorted(unit.place.glob("*.dist-info"), key=lambda f: _plain(f.name.split("-")[0]) != _plain(unit.name))
    for folder in folders:
        record = folder / "RECORD"
        if record.is_file():
            if wanted.search(record.read_text(encoding="utf-8", errors="replace")):
                return Distribution.at(folder)
        elif _plain(folder.name.split("-")[0]) == _plain(unit.name):
            return Distribution.at(folder)
    return None


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _recorded(installed: "Distribution", place: Path) -> dict[str, Path]:
    """The files that a distribution installed, as far as they are code or its data; empty when it records none."""
    listed = [file for file in installed.files or () if not file.parts[0].endswith((".dist-info", ".data"))]
    names = [file.as_posix() for file in listed if ".." not in file.parts and all(map(_counts, file.parts))]
    return {name: place / name for name in names if (place / name).is_file()}


def _is_source_folder(place: Path) -> bool:
    """Return whether a place of the search path holds sources that are worked on, not what was installed."""
    installed = {"site-packages", "dist-packages"} & {*place.parts} or place.is_relative_to(_STANDARD_LIBRARY)
    return not installed and is_folder(place) and os.access(place, os.R_OK)


def _imported(unit: _CodeUnit, search: Sequence[str], sources: Collection[Path]) -> Iterator[_CodeUnit]:
    """Return what the Python files of a unit import from source folders."""
    there = {entry.name.removesuffix(".py") for place in sources for entry in os.scandir(place)}
    others = there - {unit.name, *RELEASED}
    names: set[str] = set()
    for file in unit.files.values():
        data = file.read_bytes() if file.suffix == ".py" else b""
        if any(name.encode() in data for name in others):
            names |= _imports(data)
    for module in sorted(names):
        if module.partition(".")[0] in others:
            found = _find(module, search)
            if found is not None and found.place in sources:
                yield found


def _imports(source: bytes) -> set[str]:
    """The modules that a source imports by their whole name; none of a source that Python cannot read."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return set()
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            found.add(node.module)
            found |= {f"{node.module}.{alias.name}" for alias in node.names if "." not in node.module}
        elif isinstance(node, ast.Call):
            found |= _named(node)
    return found


def _named(call: ast.Call) -> set[str]:
    """The module that a call of `import_module` or `__import__` names as text, if it is one."""
    called = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", None)
    if called not in ("import_module", "__import__"):
        return set()
    names = [*call.args[:1], *(keyword.value for keyword in call.keywords if keyword.arg == "name")]
    found = {name.value for name in names if isinstance(name, ast.Constant) and isinstance(name.value, str)}
    return {name for name in found if not name.startswith(".")}  # a relative one is of the unit itself


def _counts(name: str) -> bool:
    """Return whether a file or folder of that name is part of a package; a folder `venv` is, unless Python made it."""
    return name == "venv" or is_source(name)


def _is_no_code(_place: str, names: list[str]) -> bool:
    """Return whether a folder holds results or an environment, or is a task: in the package, and no part of it."""
    return any(marks <= set(names) for marks in (*_RESULTS, _TASK, _VENV))


def _is_experiment(file: Path) -> bool:
    """Return whether a file is an experiment, or the quarantine of one: it names the code and is no part of it."""
    if file.suffix != ".toml":
        return False
    data = file.read_bytes()
    return file.name.endswith(".quarantine.toml") or (b"schema_version" in data and b"[profiles" in data)


def digests(files: Mapping[str, Path], most: int) -> dict[str, str]:
    """The digest of each file's bytes by its name; of whole folders (`a/b/`) where there are more names than `most`.

    Raises `OSError` for a file that cannot be read.
    """
    found = {name: _of_file(files[name]) for name in sorted(files)}
    depth = max((name.count("/") for name in found), default=0)
    while len(found) > most and depth:
        found, depth = _of_folders(found, depth), depth - 1
    return found if len(found) <= most else {"./": _of_names(found)}


def files_below(
    folder: Path, counts: Callable[[str], bool], passed: Callable[[str, list[str]], bool] = lambda *_: False
) -> Iterator[Path]:
    """The files below a folder whose names count, as the folders that lead there do; links are followed, none twice.

    A folder is `passed` over by its path and the names of its files. Raises `OSError` for a folder that cannot be read.
    """
    seen: set[str] = set()

    def refuse(error: OSError) -> None:
        raise error

    for place, folders, names in os.walk(folder, onerror=refuse, followlinks=True):
        real = os.path.realpath(place)
        if real in seen or passed(place, names):
            folders.clear()
            continue
        seen.add(real)
        folders[:] = sorted(name for name in folders if counts(name))
        found = (Path(place, name) for name in names if counts(name))
        yield from (path for path in found if path.is_file() or path.is_symlink())  # a link to nothing is an error


def changed_names(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    """The names whose digests differ, with a word on those that only one side has."""
    gone = [f"{name} is gone" for name in old if name not in new]
    return [*(name for name in new if old.get(name, new[name]) != new[name]), *gone,
            *(f"{name} is new" for name in new if name not in old)]  # fmt: skip


def _of_file(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()[:DIGITS]


def _of_names(found: Mapping[str, str]) -> str:
    return hashlib.sha256("".join(f"{name}\0{value}\n" for name, value in found.items()).encode()).hexdigest()[:DIGITS]


def _of_folders(found: Mapping[str, str], depth: int) -> dict[str, str]:
    """Names that lie `depth` folders deep, as one digest for each such folder."""
    folders: dict[str, dict[str, str]] = {}
    for name, value in found.items():
        parts = name.rstrip("/").split("/")
        short = name if len(parts) <= depth else "/".join(parts[:depth]) + "/"
        folders.setdefault(short, {})[name] = value
    return {short: inner[short] if [*inner] == [short] else _of_names(inner) for short, inner in folders.items()}

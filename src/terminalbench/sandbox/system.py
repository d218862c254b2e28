"""Which folders are the system: the verifier has them as the image made them, whatever the agent did to them.

Everything else is the agent's work and goes to the verifier as it is: `/app`, `/home`, `/root`, `/srv`, `/opt`, `/tmp`,
`/var` (but for the books of package managers, which must agree with the installed files), and every folder of its own.
Loose files of the root folder are work only where the task's own files name them.
"""

import posixpath
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from terminalbench.files import read_plain
from terminalbench.sandbox.engine import traps
from terminalbench.sandbox.engine.views import SYSTEM

BOOKS = (
    *("var/lib/dpkg", "var/lib/apt", "var/lib/rpm", "var/lib/pacman", "var/cache/apt", "var/cache/debconf"),
    *("var/cache/ldconfig", "var/run", "var/lock"),
)
PATHS = (
    *("PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "CONDA_PREFIX", "NODE_PATH", "PERL5LIB"),
    *("RUBYLIB", "GEM_PATH", "GEM_HOME", "GOROOT", "CARGO_HOME", "RUSTUP_HOME", "JAVA_HOME"),
)
"""Variables of an image that say where programs and their libraries are."""
STARTUPS = (
    *("BASH_ENV", "ENV", "ZDOTDIR", "PYTHONSTARTUP", "PYTHONUSERBASE", "NODE_OPTIONS", "PERL5OPT", "PERLLIB"),
    *("RUBYOPT", "LD_PRELOAD", "LD_AUDIT", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "GIT_CONFIG_GLOBAL"),
    "PYTEST_ADDOPTS",
)
"""Variables of an image that name files which programs run, or are told by, when they start."""
_PROGRAMS = ("bin", "sbin")
_IN_ROOT = re.compile(rb"(?<![\w./~$}-])/([\w.+-]+)(?![\w./+-])")
_STARTS = re.compile(rb"(?:\bcd\s+|\bcwd\s*=\s*|\bchdir\(\s*)[\"']?(/[\w./+-]+)")
_IN_VALUE = re.compile(r"(?<![\w.~$}-])/[\w.+@-][\w./+@-]*")
_MOST_FILES, _LARGEST_FILE = 500, 1 << 20


def is_system(path: str, folders: Iterable[str]) -> bool:
    """Return whether a path is in one of these folders."""
    return any(_within(path.strip("/"), folder) for folder in folders)


def system_folders(env: Mapping[str, str], workdir: str, *own: str) -> list[str]:
    """The folders that come from the image alone, without their leading slash; `own` are the verifier's.

    Where a variable of the image leads to programs outside the system's folders, what it leads to belongs to it too: of
    `/opt/venv/bin` all of `/opt/venv`. Not so the working folder and what is in it, nor a whole home.
    """
    found = [*SYSTEM, *BOOKS, *(folder.strip("/") for folder in own)]
    for name in PATHS:
        for entry in env.get(name, "").split(":"):
            folder = _of_entry(entry)
            if folder and not _within(folder, workdir.strip("/")) and not any(_within(folder, one) for one in found):
                found.append(folder)
    for path in _named_by(env, STARTUPS):
        outside = not _within(path, workdir.strip("/")) and not any(_within(path, one) for one in found)
        if outside and not _is_home(path.split("/")):
            found.append(path)
    return found


def led_to(env: Mapping[str, str], workdir: str) -> list[str]:
    """Return the folders of the work that these variables of an image lead to."""
    work = workdir.strip("/")
    return sorted({path for path in _named_by(env, (*PATHS, *STARTUPS)) if work and _within(path, work)})


def _named_by(env: Mapping[str, str], names: Iterable[str]) -> list[str]:
    paths = (path for name in names for path in _IN_VALUE.findall(env.get(name, "").replace(":", " ")))
    return [plain for path in paths if (plain := posixpath.normpath(path).strip("/"))]


@dataclass(frozen=True)
class TaskWords:
    """What a task's own files speak of: files of the root folder, names that traps for the tests could have, and the
    folders in which its tests start programs. `modules` are the tests' own, where they look for others too."""

    in_root: frozenset[str] = frozenset()
    traps: frozenset[str] = frozenset()
    folders: frozenset[str] = frozenset()
    modules: frozenset[str] = frozenset()


def spoken_of(task: Path) -> TaskWords:
    """Return what a task's instruction, tests and solution speak of."""
    in_root, words, folders = set[str](), set[str](), set[str]()
    instructions = [task / "instruction.md", *(task / "steps").glob("*/instruction.md")]
    texts = list(instructions)
    for part in ("tests", "solution", "steps"):
        texts += sorted(path for path in (task / part).rglob("*") if path.is_file())[:_MOST_FILES]
    for path in texts:
        try:
            data = path.read_bytes() if path.stat().st_size <= _LARGEST_FILE else b""
        except OSError:
            continue
        in_root |= {name.decode(errors="replace") for name in _IN_ROOT.findall(data)}
        words |= traps.spoken_in(data.decode(errors="replace"))
        folders |= {name.decode(errors="replace") for name in _STARTS.findall(data)}
        if path in instructions and b"logs/verifier" in data:
            words.add(traps.REWARD)
    return TaskWords(frozenset(in_root), frozenset(words), frozenset(folders), _own_modules(task, texts))


def _own_modules(task: Path, texts: Iterable[Path]) -> frozenset[str]:
    """The tests' modules that a module of the work could hide: they change the path, and nothing else names them."""
    tests, others, changes_path = set[str](), "", False
    for path in texts:
        data = read_plain(path, _LARGEST_FILE) or b""
        if "tests" in path.relative_to(task).parts:
            changes_path |= b"sys.path" in data or b"PYTHONPATH" in data
            tests |= {path.stem} if path.suffix == ".py" else set()
        else:
            others += data.decode(errors="replace")
    return (
        frozenset(one for one in tests if not re.search(rf"\b{re.escape(one)}\b", others))
        if changes_path
        else frozenset()
    )


def _of_entry(entry: str) -> str | None:
    parts = [part for part in entry.split("/") if part]
    if not entry.startswith("/") or ".." in parts or "." in parts:
        return None
    if parts and parts[-1] in _PROGRAMS and not _is_home(parts[:-1]):
        parts = parts[:-1]
    return "/".join(parts) if parts and not _is_home(parts) else None


def _is_home(parts: list[str]) -> bool:
    return len(parts) < 2 or (len(parts) == 2 and parts[0] == "home")


def _within(folder: str, outer: str) -> bool:
    return bool(outer) and f"{folder}/".startswith(f"{outer}/")

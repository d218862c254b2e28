"""The folder of a task, and what it may hold: files of its own, references to variables that the experiment declares.

A task may come from anywhere. Harbor reads its files on this machine, follows links in them, and fills in `${VAR}` from
the environment of its own process; all of that would end up in the environment, before the agent's eyes.
"""

# Strings where others have paths: thousands of tasks are looked at.
# ruff: noqa: PTH116, PTH123

import os
import re
import stat
import tomllib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from terminalbench.errors import UserError
from terminalbench.secrets.patterns import references

PARTS = ("task.toml", "instruction.md", "README.md", "trajectory.json", "environment", "tests", "solution", "steps")
"""What Harbor counts of a task's folder."""
_TEMPLATE = re.compile(r"\$\{([^}:]+)(:-.*)?\}")
"""As Harbor reads it: the value as a whole."""
_COMPOSE = re.compile(r"(?i).*compose.*\.ya?ml")
_LARGEST_FILE = 1 << 20


def broken(folder: str | Path) -> str | None:
    """Return what Harbor would refuse of a task's folder: a file that cannot be read, or one that is not there."""
    try:
        with open(f"{folder}/task.toml", "rb") as stream:
            config = tomllib.loads(stream.read(_LARGEST_FILE).decode())
    except OSError as error:
        return f"task.toml cannot be read: {error.strerror}"
    except (ValueError, RecursionError) as error:
        return f"task.toml is not valid TOML: {error or 'nested too deep'}"
    needed = ["environment"]
    steps = config.get("steps")
    if isinstance(steps, list) and steps:
        names = [step.get("name") for step in steps if isinstance(step, Mapping)]
        needed += [f"steps/{name}/instruction.md" for name in names if isinstance(name, str)]
    else:
        needed.append("instruction.md")
        verifier = config.get("verifier")
        if not (isinstance(verifier, Mapping) and "environment" in verifier):  # that one may bring its own tests
            needed.append("tests/test.sh")
    missing = [name for name in needed if not _is_there(f"{folder}/{name}")]
    return f"has no {', '.join(missing)}" if missing else None


def _is_there(path: str) -> bool:
    """Return whether it is there; a script may be one of another system."""
    return os.path.exists(path) or (path.endswith(".sh") and os.path.exists(f"{path[:-3]}.bat"))  # noqa: PTH110


def foreign_file(folder: str | Path) -> str | None:
    """Return what is wrong with the files of a task: one leads out of its folder, or is no file; None: nothing."""
    root = os.path.realpath(folder)
    seen, stack = {root}, []
    wrong = _look(root, stack, PARTS)
    while stack and wrong is None:
        path = stack.pop()
        real = os.path.realpath(path)
        if real != root and not real.startswith(f"{root}/"):
            return f"{path[len(root) + 1 :]} leads out of the task's folder, to {real}"
        mode = os.stat(real).st_mode if os.path.exists(real) else stat.S_IFREG  # noqa: PTH110
        if stat.S_ISDIR(mode) and real not in seen:
            seen.add(real)
            wrong = _look(real, stack)
        elif not stat.S_ISDIR(mode) and not stat.S_ISREG(mode):
            wrong = real
    return None if wrong is None else f"{wrong[len(root) + 1 :]} is neither a file nor a folder"


def _look(folder: str, links: list[str], only: Collection[str] = ()) -> str | None:
    """Collect the links below a folder (of its entries called `only`); the path of what is no file at all."""
    stack = [folder]
    while stack:
        place = stack.pop()
        try:
            with os.scandir(place) as entries:
                for entry in entries:
                    if place == folder and only and entry.name not in only:
                        continue
                    if entry.is_symlink():
                        links.append(entry.path)
                    elif entry.is_dir():
                        stack.append(entry.path)
                    elif not entry.is_file():
                        return entry.path
        except OSError:  # the check before a run says that it cannot be read
            continue
    return None


class Variable(NamedTuple):
    """A variable that a task's files refer to: where they do, and whether they know a value for it."""

    name: str
    at: str
    has_default: bool


def variables(folder: str | Path) -> list[Variable]:
    """The variables that the task.toml of a task refers to, each once; none where it cannot be read."""
    try:
        with open(f"{folder}/task.toml", "rb") as stream:
            text = stream.read(_LARGEST_FILE).decode()
        data = tomllib.loads(text) if "${" in text else {}
    except (OSError, ValueError, RecursionError):
        return []
    return list({variable.name: variable for variable in _in(data, "")}.values())


def _in(value: Any, at: str) -> Iterator[Variable]:
    if isinstance(value, list):
        for item in value:
            yield from _in(item, at)
    if not isinstance(value, Mapping):
        return
    for key, inner in value.items():
        where = f"{at}.{key}".lstrip(".")
        if key == "env" and isinstance(inner, Mapping):
            found = {name: _TEMPLATE.fullmatch(text) for name, text in inner.items() if isinstance(text, str)}
            yield from (Variable(m[1], f"{where}.{name}", m[2] is not None) for name, m in found.items() if m)
        elif key == "mcp_servers":
            yield from (Variable(name, where, False) for name in references(inner))
        else:
            yield from _in(inner, where)


def undeclared(folder: str | Path, declared: Collection[str], environment: Mapping[str, str]) -> str | None:
    """Return why a task may not run where Harbor has this environment: it takes what is not `declared`, or not set."""
    found = variables(folder)
    unset = [
        f"{name} ({at})" for name, at, known in found if name in declared and name not in environment and not known
    ]
    if unset:
        which, it = ("which is", "it") if len(unset) == 1 else ("which are", "them")
        return f"its task.toml takes {', '.join(unset)}, {which} not set (put {it} into the env file, or export {it})"
    for name, at, has_default in found:
        if name not in declared and (name in environment or not has_default):
            return _not_declared("task.toml", at, name)
    for file in sorted(Path(folder, "environment").glob("*")) if environment else ():
        if _COMPOSE.fullmatch(file.name) and (taken := _in_compose(file, environment.keys() - set(declared))):
            return _not_declared(f"environment/{file.name}", f"${{{taken}}}", taken)
    return None


def _not_declared(file: str, at: str, name: str) -> str:
    step = f"add {name} to env of [defaults] or to the env file, or take it out of the task"
    return f"its {file} takes {name} of this machine ({at}), which not every profile declares ({step})"


def _in_compose(file: Path, names: Collection[str]) -> str | None:
    """The first of `names` that a Docker Compose file refers to, as `$NAME` or by a bare name, which passes it on."""
    try:
        text = file.read_bytes()[:_LARGEST_FILE].decode(errors="replace")
    except OSError:
        return None
    for name in sorted(names):
        word = re.escape(name)
        if re.search(rf"(?<!\$)(?:\$\$)*\$\{{?{word}\b", text):
            return name
        if re.search(rf"(?m)^\s*(?:-\s*|\w+:\s*)?[\"']?{word}[\"']?\s*:?\s*(?:#.*)?$", text):
            return name
    return None


def declared_names(names: Collection[str], env_file: Path | None) -> set[str] | None:
    """The variables that a profile's tables (`names`) and its env file name; None if that file cannot be read."""
    if env_file is None:
        return {*names}
    from terminalbench.experiments.envfile import read_env_file

    try:
        return {*names, *read_env_file(env_file)}
    except UserError:
        return None

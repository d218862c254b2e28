"""The secrets of a batch: found where its profiles take them from, learned by this process, and stored nowhere."""

import os
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from terminalbench.errors import UserError
from terminalbench.experiments.envfile import read_env_file
from terminalbench.experiments.plan import Plan
from terminalbench.experiments.secrets import looks_secret, references
from terminalbench.llm.scrub import is_named_secret, learn

_LARGEST_FILE = 1 << 20
_HEX = re.compile(r"[0-9a-fA-F]{32,}")
_read: dict[Path, tuple[int, int]] = {}


def is_secret(name: str, value: str) -> bool:
    """Whether the value of a variable must not be shown: it is called like a secret, or looks like one."""
    return is_named_secret(name, value) or looks_secret(name, value) or _HEX.fullmatch(value.strip()) is not None


def secret_names(variables: Mapping[str, str]) -> list[str]:
    """The variables whose values must not be shown."""
    return sorted(name for name, value in variables.items() if is_secret(name, value))


def learn_secrets(plan: Plan | None) -> None:
    """Learn what the profiles of a plan read from their env files and from the environment, as far as it is here.

    An env file is read again when it has changed; what it held before stays hidden.
    """
    if plan is None:
        return
    for label, name in {pair for record in plan.profiles for pair in _referred("", record.content)}:
        value = os.environ.get(name, "")
        learn([value] if is_secret(name, value) or is_secret(label, value) else ())
    told = [os.environ.get(name, "") for name in references(plan.notify.urls if plan.notify else [])]
    learn(value for value in told if not value.isdigit())  # a port, a chat: it may stand in any number of a file
    for values in _env_files(plan):
        learn(values[name] for name in secret_names(values))


def _referred(label: str, value: Any) -> Iterator[tuple[str, str]]:
    """The variables that a profile refers to, each with what it is called there."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from _referred(str(name), item)
    elif isinstance(value, list):
        for item in value:
            yield from _referred(label, item)
    else:
        yield from ((label, name) for name in references(value))


def _env_files(plan: Plan) -> Iterator[dict[str, str]]:
    root = Path(plan.provenance.root or "/")
    for file in {root / record.env_file for record in plan.profiles if record.env_file}:
        try:
            status = file.stat()
        except (OSError, ValueError):
            continue
        stamp = (status.st_size, status.st_mtime_ns)
        if not stat.S_ISREG(status.st_mode) or status.st_size > _LARGEST_FILE or _read.get(file) == stamp:
            continue
        try:
            yield read_env_file(file)
        except UserError:
            continue  # of another user, or no env file: nothing can be learned from it
        _read[file] = stamp

"""The secrets of a plan: found where its profiles take them from, and stored nowhere."""

import contextlib
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from terminalbench.errors import UserError
from terminalbench.experiments.envfile import read_env_file
from terminalbench.experiments.plan import Plan
from terminalbench.secrets.find import is_secret, last_name, references, secret_names, texts
from terminalbench.secrets.values import NONE, Secrets

_LARGEST_FILE = 1 << 20


def secrets_of(plan: Plan | None) -> Secrets:
    """Return the environment's secrets by name, and those that profiles of a plan read, as far as they are here."""
    return Secrets.of_environment(os.environ) | secrets_of_profiles(plan)


def secrets_of_profiles(plan: Plan | None, environ: Mapping[str, str] = os.environ) -> Secrets:
    """Return what the profiles of a plan read alone, for a caller that knows what the environment holds."""
    if plan is None:
        return NONE
    said = {found for record in plan.profiles for found in texts(record.content)}
    referred = {(last_name(key), name) for key, text in said for name in references(text)}
    values = [
        value
        for label, name in referred
        if (value := environ.get(name, "")) and (is_secret(name, value) or is_secret(label, value))
    ]
    told = [environ.get(name, "") for name in references(plan.notify.urls if plan.notify else [])]
    values += [value for value in told if not value.isdigit()]  # a port, a chat: it may stand in any number of a file
    for read in _env_files(plan):
        values += [read[name] for name in secret_names(read)]
    return Secrets.of(values)


def env_stamps(plan: Plan | None) -> tuple[tuple[Path, int, int], ...]:
    """The env files of a plan that are there, each with its size and its time: they change when the file does."""
    found: list[tuple[Path, int, int]] = []
    root = Path(plan.provenance.root or "/") if plan is not None else Path()
    names = {record.env_file for record in plan.profiles if record.env_file} if plan is not None else set()
    for file in sorted(root / name for name in names):
        try:
            status = file.stat()
        except (OSError, ValueError):
            continue
        if stat.S_ISREG(status.st_mode) and status.st_size <= _LARGEST_FILE:
            found.append((file, status.st_size, status.st_mtime_ns))
    return tuple(found)


def _env_files(plan: Plan) -> Iterator[dict[str, str]]:
    for file, _, _ in env_stamps(plan):
        with contextlib.suppress(UserError):  # of another user, or no env file: this process can know nothing of it
            yield read_env_file(file)

"""Reading env files, and the secrets that the profiles of a plan take from them. Nothing here prints or stores a value.

This process remembers what it read, so that its last error message can leave the secrets out.
"""

import io
import os
import stat
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from terminalbench.errors import UserError
from terminalbench.secrets.patterns import VARIABLE, is_secret, last_name, references, secret_names, texts
from terminalbench.secrets.values import NONE, Secrets

if TYPE_CHECKING:
    from terminalbench.experiments.plan import Plan

_LARGEST_FILE = 1 << 20
_read: set[tuple[str, str]] = set()


def not_set(names: Sequence[str], file: object) -> str:
    """Return that variables are not set, and where they are put."""
    are, them = ("are", "them") if len(names) > 1 else ("is", "it")
    return f"{', '.join(names)} {are} not set (put {them} into {file}, or export {them})"


def secrets_read() -> Secrets:
    """The secrets of every env file that this process has read."""
    return Secrets.of([value for name, value in _read if is_secret(name, value)])


def read_env_file(path: Path) -> dict[str, str]:
    """Return the variables of an env file; a line that is none is a user error that names it.

    They are read as python-dotenv reads them, but for `${OTHER}`, which is taken as it stands.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot be read: {type(error).__name__}", where=str(path)) from None
    if "\0" in text:
        raise UserError("is not text: it contains a NUL byte", where=str(path))
    from dotenv.parser import parse_stream  # only experiments with such a file pay for it

    values: dict[str, str] = {}
    for entry in parse_stream(io.StringIO(text)):
        written = entry.original.string
        line = entry.original.line + written[: len(written) - len(written.lstrip())].count("\n")
        if entry.error:
            what, hint = _why_not(written)
            raise UserError(what, where=f"{path}:{line}", hint=hint)
        if entry.key is None:
            continue
        if entry.value is None or VARIABLE.fullmatch(entry.key) is None:
            raise UserError("is not NAME=value", where=f"{path}:{line}")
        values[entry.key] = entry.value
    _read.update(values.items())
    return values


@contextmanager
def variables_of(*files: Path) -> Generator[None]:
    """Give this process the variables of env files while it asks a model, as a run gives them to its agents.

    They win over the shell; where several files set one, the first does.
    """
    given: dict[str, str] = {}
    for file in dict.fromkeys(files):
        if file.is_file():
            given = read_env_file(file) | given
    before = {name: os.environ.get(name) for name in given}
    os.environ.update(given)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _why_not(text: str) -> tuple[str, str | None]:
    """Return what is wrong with an entry that python-dotenv does not read, and what to do."""
    value = text.partition("=")[2].strip()
    if (quote := value[:1]) not in ("'", '"'):
        return "is not NAME=value", None
    if value.count(quote) == 1:
        return f"a quote ({quote}) opens here and is not closed", None
    return "something follows the closing quote", "quote the whole value"


def secrets_of(plan: "Plan | None") -> Secrets:
    """Return the environment's secrets by name, and those that profiles of a plan read, as far as they are here."""
    return Secrets.of_environment(os.environ) | secrets_of_profiles(plan)


def secrets_of_profiles(plan: "Plan | None", environ: Mapping[str, str] = os.environ) -> Secrets:
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


def env_stamps(plan: "Plan | None") -> tuple[tuple[Path, int, int], ...]:
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


def _env_files(plan: "Plan") -> Iterator[dict[str, str]]:
    for file, _, _ in env_stamps(plan):
        with suppress(UserError):  # of another user, or no env file: this process can know nothing of it
            yield read_env_file(file)

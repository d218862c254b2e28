"""Reading env files as python-dotenv writes and reads them. Values stay in memory; nothing here prints them.

This process remembers what it read, so that its last error message can leave the secrets out.
"""

import os
import re
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from terminalbench.errors import UserError
from terminalbench.secrets.find import is_secret
from terminalbench.secrets.values import Secrets

_BETWEEN = re.compile(r"(?:\s+|#[^\n]*)*")
_NAME = re.compile(r"(?:export[^\S\n]+)?([A-Za-z_][A-Za-z0-9_]*)[^\S\n]*=[^\S\n]*")
_QUOTED = {"'": re.compile(r"'((?:\\'|[^'])*)'"), '"': re.compile(r'"((?:\\.|[^"\\])*)"', re.DOTALL)}
_BARE = re.compile(r"[^\n]*")
_REST = re.compile(r"[^\S\n]*(?:#[^\n]*)?(?:\n|\Z)")
_ESCAPES = {
    "'": (re.compile(r"\\[\\']"), {}),
    '"': (
        re.compile(r"\\[\\'\"abfnrtv]"),
        {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"},
    ),
}


_read: set[tuple[str, str]] = set()


def not_set(names: Sequence[str], file: object) -> str:
    """Return that variables are not set, and where they are put."""
    are, them = ("are", "them") if len(names) > 1 else ("is", "it")
    return f"{', '.join(names)} {are} not set (put {them} into {file}, or export {them})"


def secrets_read() -> Secrets:
    """The secrets of every env file that this process has read."""
    return Secrets.of([value for name, value in _read if is_secret(name, value)])


def read_env_file(path: Path) -> dict[str, str]:
    r"""The variables of an env file; a line that is none is a user error that names it.

    Understood are comments, `export`, blanks around `=`, CRLF, and values in quotes, which may span lines: in single
    quotes `\'` and `\\` are escapes, in double quotes also `\n`, `\t` and the like. `${OTHER}` is taken as it stands.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot be read: {type(error).__name__}", where=str(path)) from None
    if "\0" in text:
        raise UserError("is not text: it holds a NUL byte", where=str(path))
    values: dict[str, str] = {}
    at = _end(_BETWEEN, text, 0)
    while at < len(text):
        where = f"{path}:{text.count(chr(10), 0, at) + 1}"
        name = _NAME.match(text, at)
        if name is None:
            raise UserError("is not NAME=value", where=where)
        values[name[1]], at = _value(text, name.end(), where)
        at = _end(_BETWEEN, text, at)
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


def _value(text: str, at: int, where: str) -> tuple[str, int]:
    """The value that begins at `at`, and where its line ends."""
    quote = text[at : at + 1]
    if quote not in _QUOTED:
        line = _BARE.match(text, at)
        bare = line[0] if line else ""
        if quote == "#" and text[at - 1] != "=":  # as python-dotenv: after a blank it begins a comment
            return "", at + len(bare)
        return re.sub(r"(?<!\s)\s+#.*", "", bare).rstrip(), at + len(bare)
    inner = _QUOTED[quote].match(text, at)
    if inner is None:
        raise UserError(f"a quote ({quote}) opens here and is not closed", where=where)
    rest = _REST.match(text, inner.end())
    if rest is None:
        raise UserError("something follows the closing quote", where=where, hint="quote the whole value")
    pattern, names = _ESCAPES[quote]
    return pattern.sub(lambda found: names.get(found[0][1], found[0][1]), inner[1]), rest.end()


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    found = pattern.match(text, at)
    return found.end() if found else at

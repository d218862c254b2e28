"""Reading env files: `NAME=value` lines as people write them. Values stay in memory; nothing here prints them."""

import re
from pathlib import Path

from terminalbench.errors import UserError

_LINE = re.compile(r"(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=(.*)")


def read_env_file(path: Path) -> dict[str, str]:
    """The variables of an env file: comments, `export`, quotes, blanks around `=` and CRLF are understood."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot be read: {type(error).__name__}", where=str(path)) from None
    values: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        match = _LINE.fullmatch(stripped)
        if match is None:
            raise UserError("is not NAME=value", where=f"{path}:{number}")
        values[match[1]] = _value(match[2].strip())
    return values


def _value(text: str) -> str:
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "\"'":
        inner = text[1:-1]
        return inner if text[0] == "'" else inner.replace(r"\n", "\n").replace(r"\"", '"').replace(r"\\", "\\")
    return re.split(r"\s#", text, maxsplit=1)[0].rstrip()

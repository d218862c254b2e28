"""Cells of the dataset as what they mean. Lists and texts come as values, as JSON, or as Python literals; pure.

Nothing is evaluated, stripped or sorted: names of tests are compared byte by byte, and some begin with a space.
"""

import ast
import io
import json
import math
import tokenize
from itertools import pairwise
from typing import Any

_NO_LITERAL = (ValueError, SyntaxError, MemoryError, RecursionError)


class CellError(ValueError):
    """A cell that does not mean what its column is for; its text says why."""


def text(value: Any) -> str:
    """A cell of text as it stands; nothing (None, NaN) is an empty one."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if not isinstance(value, str):
        raise CellError(f"must be a text, not {type(value).__name__}")
    return _unicode(value)


def prose(value: Any) -> str:
    """Text as people wrote it; many rows hold it as one quoted literal with escapes."""
    written = text(value)
    if len(written) > 1 and written[0] == written[-1] and written[0] in "\"'":
        decoded = _json(written) if written[0] == '"' else None
        if decoded is None:
            decoded = _python(written)
        if isinstance(decoded, str):
            return decoded.encode("utf-8", "replace").decode()
    return written


def names(value: Any) -> tuple[str, ...]:
    """A list of names, in its order: a list, JSON or a Python literal; nothing at all is an empty list."""
    if hasattr(value, "tolist"):  # an array of numpy
        value = value.tolist()
    if isinstance(value, str) and value.strip():
        decoded = _json(value)
        value = decoded if decoded is not None else _python(value)
        if value is None:
            raise CellError("is neither a JSON list nor a Python one with commas")
    elif not isinstance(value, list | tuple):
        if text(value).strip():
            raise CellError("is no list")
        return ()
    if not isinstance(value, list | tuple):
        raise CellError(f"must be a list, not {type(value).__name__}")
    for number, item in enumerate(value):
        if not isinstance(item, str):
            raise CellError(f"has entry {number + 1}, which must be a text, not {type(item).__name__}")
    return tuple(_unicode(item) for item in value)


def _unicode(value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise CellError(f"has half a character at {error.start + 1}: it cannot be written as UTF-8") from error
    return value


def _json(value: str) -> Any:
    try:
        return json.loads(value, strict=False)
    except _NO_LITERAL:
        return None


def _python(value: str) -> Any:
    """A Python literal; None when it is none. Strings side by side are no literal: Python would join them."""
    try:
        found = ast.literal_eval(value)
        tokens = [token.type for token in tokenize.generate_tokens(io.StringIO(value.strip()).readline)]
    except (*_NO_LITERAL, tokenize.TokenError):
        return None
    kinds = [kind for kind in tokens if kind not in (tokenize.NL, tokenize.COMMENT)]
    return None if (tokenize.STRING, tokenize.STRING) in pairwise(kinds) else found

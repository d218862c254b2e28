"""How a secret value may be written where it is met: as it is, escaped, quoted, in base64, in hexadecimal. Pure."""

import base64
import json
from collections.abc import Iterator
from html import escape
from urllib.parse import quote, quote_plus

_LEAST_ENCODED = 8
"""A shorter piece of base64 may stand in any file by chance."""


def spellings(text: str) -> set[str]:
    """Every spelling of a value, itself included."""
    found = set(escaped(text))
    data = as_bytes(text)
    found |= {again for spelled in list(found) for again in (_json(spelled), quote(spelled, safe="", errors="replace"))}
    found |= {data.hex(), data.hex().upper(), "".join(f"\\x{byte:02x}" for byte in data)}
    found |= {"".join(f"%{byte:02{form}}" for byte in data) for form in "xX"}
    return found | set(_in_base64(data))


def as_bytes(text: str) -> bytes:
    """The bytes of a value: a variable need not be UTF-8."""
    return text.encode(errors="surrogateescape")


def _json(text: str) -> str:
    return json.dumps(text)[1:-1]


def escaped(text: str) -> Iterator[str]:
    """As it is, in Python's `repr`, in JSON, in HTML, in an address, in a form."""
    yield text
    yield repr(text)[1:-1]
    yield text.replace("\\", "\\\\").replace("'", "\\'")  # where it holds both quotes
    yield text.replace("\\", "\\\\").replace('"', '\\"')
    yield repr(as_bytes(text))[2:-1]
    yield _json(text)
    yield _json(text).replace("/", "\\/")
    yield json.dumps(text, ensure_ascii=False)[1:-1]
    yield escape(text)
    yield escape(text, quote=False).replace("'", "&#39;").replace('"', "&#34;")
    for quoted in (
        quote(text, safe="", errors="replace"),
        quote(text, errors="replace"),
        quote_plus(text, errors="replace"),
    ):
        yield quoted
        yield _lower_percents(quoted)


def _lower_percents(quoted: str) -> str:
    head, *rest = quoted.split("%")
    return head + "".join(f"%{part[:2].lower()}{part[2:]}" for part in rest)


def _in_base64(data: bytes) -> Iterator[str]:
    """What stands in the base64 of any text that holds it: at each of the three places in a group of three bytes.

    The characters that depend on a neighbour are left out.
    """
    for before in range(3):
        coded = base64.b64encode(bytes(before) + data).decode().rstrip("=")
        first, last = -(-8 * before // 6), 8 * (before + len(data)) // 6
        core = coded[first:last]
        if len(core) >= _LEAST_ENCODED:
            yield core
            yield core.replace("+", "-").replace("/", "_")

"""How a secret value may be written where it is met: as it is, escaped, quoted, reversed, in base64, in hexadecimal.

Pure. What is split, or escaped here and there, is in `disguises`.
"""

import base64
import json
from collections.abc import Callable, Iterator
from html import escape
from urllib.parse import quote, quote_plus

from terminalbench.secrets.disguises import may_be_split

_LEAST_ENCODED = 8
"""A shorter piece of base64 may stand in any file by chance."""


def spellings(text: str) -> set[str]:
    """Every spelling of a value, itself included."""
    found = set(escaped(text))
    data = as_bytes(text)
    found |= {again for spelled in list(found) for again in (_json(spelled), quote(spelled, safe="", errors="replace"))}
    found |= {"".join(f"\\x{byte:02x}" for byte in data)}
    found |= {"".join(f"%{byte:02{form}}" for byte in data) for form in "xX"}
    return found | solid(text)


def solid(text: str) -> set[str]:
    """The spellings without escapes of their own, which may also be met in pieces: itself, reversed, coded.

    A value that is short or a number is not met reversed: other text may hold that by chance.
    """
    data = as_bytes(text)
    turned = {text[::-1]} if may_be_split(text) else set()
    return {text, data.hex(), data.hex().upper(), *turned, *_in_base64(data)}


def as_bytes(text: str) -> bytes:
    """The bytes of a value: a variable need not be UTF-8."""
    return text.encode(errors="surrogateescape")


def wide(text: str) -> set[bytes]:
    """A value in UTF-16, of either order of bytes. Of ASCII, without its outer NULs, both are the same."""
    if text.isascii():
        return {text.encode("utf-16-le")[:-1]}
    return {text.encode(form, "surrogatepass") for form in ("utf-16-le", "utf-16-be")}


def wide_form(head: bytes) -> str | None:
    """The form of UTF-16 that a file begins in: its mark tells, or that every other byte is NUL. Else None."""
    marked = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}.get(head[:2])
    if marked is not None:
        return marked if head[2:4] != b"\0\0" else None  # UTF-32
    if b"\0" not in head:
        return None
    nuls = {"utf-16-be": head[::2].count(0), "utf-16-le": head[1::2].count(0)}
    (least, _), (most, form) = sorted((count, name) for name, count in nuls.items())
    return form if most * 2 > len(head) // 2 and least * 20 < len(head) else None


def rewrite_wide(data: bytes, form: str, change: Callable[[str], str]) -> bytes:
    """A file in UTF-16 with its text changed; `data` itself where nothing is. An odd byte at its end stays."""
    even = len(data) - len(data) % 2
    text = data[:even].decode(form, "surrogatepass")
    changed = change(text)
    return data if changed == text else changed.encode(form, "surrogatepass") + data[even:]


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

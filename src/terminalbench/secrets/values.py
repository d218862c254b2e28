"""The secret values that one process knows of one batch, and every way to take them out of a text, a file, a folder.

`redact` is for messages. `conceal` is for an agent's own words, logs and files: code in it stays code, JSON stays JSON.
"""

import base64
import json
import os
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from urllib.parse import quote, quote_plus

from terminalbench.files import open_plain, overwrite, read_plain, write_bytes
from terminalbench.secrets import patterns
from terminalbench.secrets.disguises import Disguises, may_be_split, may_hide
from terminalbench.secrets.patterns import is_named_secret, is_word

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
    """Return a secret as it is, in Python's `repr`, in JSON, in HTML, in an address, in a form."""
    yield text
    yield repr(text)[1:-1]
    yield text.replace("\\", "\\\\").replace("'", "\\'")  # where it holds both quotes
    yield text.replace("\\", "\\\\").replace('"', '\\"')
    yield repr(as_bytes(text))[2:-1]
    yield _json(text)
    yield _json(text).replace("/", "\\/")
    yield json.dumps(text, ensure_ascii=False)[1:-1]
    tagless = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    yield tagless.replace('"', "&quot;").replace("'", "&#x27;")
    yield tagless.replace("'", "&#39;").replace('"', "&#34;")
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
    """Yield what stands in the base64 of any text that holds it: at each of the three places in a group of three bytes.

    The characters that depend on a neighbour are left out.
    """
    for before in range(3):
        coded = base64.b64encode(bytes(before) + data).decode().rstrip("=")
        first, last = -(-8 * before // 6), 8 * (before + len(data)) // 6
        core = coded[first:last]
        if len(core) >= _LEAST_ENCODED:
            yield core
            yield core.replace("+", "-").replace("/", "_")


HIDDEN = "[redacted]"
MESSAGE_LIMIT = 300
NAMES_VARIABLE = "TERMINALBENCH_SECRETS"
"""Tells a Harbor process which of its variables are secrets: their names, never their values."""
_LEAST = 6
_LEAST_LINE = 16
_ASSIGNMENT = re.compile(r"""(?i)s?(?:\\?["'])?\s*([=:]\s*(?:\\?["'])?)(?=[a-z0-9+/_=~-]{16})""")
"""Follows a name, with the begin of a value as long as a secret."""
_OPAQUE = re.compile(r"(?i)[a-z0-9+/_=~-]+")
_PLAIN = frozenset({"null", "none", "true", "false", "missing", "invalid", "required", "bearer"})
_LONGEST_NAME = 64
_PIECE = 1 << 18
_LOOKED_AT = 8192
_CUTS, _CUT_STEP = 64, 509
_LARGEST = 64 << 20


@dataclass(frozen=True, repr=False)
class Secrets:
    """Values that are never shown, in all the spellings they are met in, the longest first. Made with `of`.

    Those of `solid` are also looked for in escapes and in pieces.
    """

    spelled: tuple[str, ...] = ()
    solid: tuple[str, ...] = ()

    @classmethod
    def of(cls, values: Iterable[str]) -> "Secrets":
        """These values and the long lines of each; what is too short, or a plain word, is left out."""
        found: set[str] = set()
        whole: set[str] = set()
        for value in values:
            text = value.strip()
            lines = {line for line in value.splitlines() if len(line) >= _LEAST_LINE and not is_word(line)} - {text}
            found |= spellings(text) if not is_word(text) else set()
            found |= {spelled for line in lines for spelled in escaped(line)}
            whole |= lines | (solid(text) if not is_word(text) else set())
        return cls(_longest_first(found), _longest_first(whole))

    @classmethod
    def of_environment(cls, environ: Mapping[str, str] = os.environ) -> "Secrets":
        """The values of variables that are called like a secret, or that the starter of this process called one."""
        told = environ.get(NAMES_VARIABLE, "").split(",")
        rest = ((name, value) for name, value in environ.items() if name != NAMES_VARIABLE)  # names are no secrets
        return cls.of([value for name, value in rest if name in told or is_named_secret(name, value)])

    def __or__(self, other: "Secrets") -> "Secrets":
        """The values of both."""
        if set(other.spelled) <= set(self.spelled) and set(other.solid) <= set(self.solid):
            return self
        return Secrets(_longest_first(self.spelled + other.spelled), _longest_first(self.solid + other.solid))

    def __repr__(self) -> str:
        return f"Secrets({len(self.spelled)} spellings)"

    @cached_property
    def _encoded(self) -> tuple[bytes, ...]:
        return tuple(map(as_bytes, self.spelled))

    @cached_property
    def _wide(self) -> tuple[bytes, ...]:
        return tuple(form for text in self.spelled for form in sorted(wide(text)))

    @cached_property
    def _disguises(self) -> Disguises:
        return Disguises([as_bytes(text) for text in self.solid])

    def hide(self, text: str) -> str:
        """`text` without any of the values."""
        for value in self.spelled:
            if value in text:
                text = text.replace(value, HIDDEN)
        if not self.spelled or not may_hide(text):
            return text
        data = text.encode(errors="surrogatepass")
        hidden = self._disguises.replaced(self._without_wide(data, _hidden_wide), _hidden)
        return text if hidden is data else hidden.decode(errors="surrogatepass")

    def redact(self, text: str) -> str:
        """A message without the values and without anything that looks like a key, a token or a password."""
        text = _without_shapes(self.hide(text))
        text = patterns.LOOSE_BEARER.sub(rf"\1 {HIDDEN}", patterns.LOOSE_KEY.sub(HIDDEN, text))
        return patterns.ASSIGNED.sub(_without_value, patterns.LOOSE_LOGIN.sub(HIDDEN, text))

    def one_line(self, text: str, limit: int = MESSAGE_LIMIT) -> str:
        """`text` redacted, its white space collapsed, cut to `limit` characters."""
        # Cut far above the limit first: messages can hold megabytes of command output.
        flat = " ".join(self.redact(text[: limit * 20]).split())
        return flat if len(flat) <= limit else flat[: limit - 1].rstrip() + "…"

    def conceal(self, text: str) -> str:
        """`text` without the values, provider keys, logins in addresses, and opaque values under a secret's name."""
        return _without_opaque(_without_shapes(self.hide(text)))

    def conceal_bytes(self, data: bytes) -> bytes:
        """A whole file, concealed: text as `conceal` does it; in anything else the values are covered, not cut out."""
        if (form := wide_form(data[:_LOOKED_AT])) is not None:
            return rewrite_wide(data, form, self.conceal)
        if is_binary(data):
            return self.cover_bytes(data)
        data = self._without_wide(data, _hidden_wide)
        return as_bytes(self.conceal(data.decode(errors="surrogateescape")))

    def cover_bytes(self, data: bytes) -> bytes:
        """A file that is no text: the values are covered, so that nothing moves."""
        return self._replaced(data, _covered)

    def hide_bytes(self, data: bytes) -> bytes:
        """A whole file without any of the values; `data` itself where it holds none."""
        if (form := wide_form(data[:_LOOKED_AT])) is not None:
            return rewrite_wide(data, form, self.hide)
        return self._disguises.replaced(self._replaced(data, _hidden), _hidden)

    def holds_none(self, data: bytes) -> bool:
        """Return whether a file of any kind holds none of the values and no provider's key; nothing is unpacked."""
        form = wide_form(data[:_LOOKED_AT]) or "utf-8"
        return self.hide_bytes(data) is data and not _holds_key(data.decode(form, errors="replace"))

    def _replaced(self, data: bytes, cover: "Cover") -> bytes:
        for value in self._encoded:
            if value in data:
                data = data.replace(value, cover(value))
        return self._without_wide(data, _hidden_wide if cover is _hidden else cover)

    def _without_wide(self, data: bytes, cover: "Cover") -> bytes:
        for value in self._wide if b"\0" in data else ():
            if value in data:
                data = data.replace(value, cover(value))
        return data

    def pieces(self, read: Callable[[int], bytes]) -> Iterator[bytes]:
        """A file of any size, concealed, in pieces that end with a line, and never inside one of the values."""
        stream = ConcealedStream(self)
        while data := read(_PIECE):
            if piece := stream.take(data):
                yield piece
        if piece := stream.end():
            yield piece

    def scrub_folder(self, folder: Path) -> int:
        """Take the values out of every text file below a folder, and out of names; how many files held one.

        Links are not followed. Where a file cannot be written, the others are scrubbed before the error is raised.
        """
        found = self._scrub_all(Path(place) / name for place, _, names in os.walk(folder) for name in names)
        for place, folders, names in os.walk(folder, topdown=False) if self.spelled else ():
            for name in (*names, *folders):
                self._rename(Path(place), name)
        return found

    def scrub_beside(self, folder: Path, spared: Container[Path] = ()) -> int:
        """The same for the files that lie in a folder itself, those of its subfolders left alone."""
        if not folder.is_dir():
            return 0
        return self._scrub_all(path for path in folder.iterdir() if path.is_file() and path not in spared)

    def _scrub_all(self, files: Iterable[Path]) -> int:
        found, problem = 0, None
        for path in files if self.spelled else ():
            try:
                found += self._scrub(path)
            except OSError as error:
                problem = problem or error
        if problem is not None:
            raise problem
        return found

    def _rename(self, folder: Path, name: str) -> None:
        """Give an entry that is called by a value, or is a link that names one, another name or end."""
        path, shown = folder / name, self.hide(name)
        if path.is_symlink() and (end := str(path.readlink())) != (harmless := self.hide(end)):
            path.unlink()
            path.symlink_to(harmless)
        if shown == name:
            return
        number = 1
        while os.path.lexists(folder / shown):
            number += 1
            shown = f"{self.hide(name)}-{number}"
        path.rename(folder / shown)

    def _scrub(self, path: Path) -> bool:
        data = read_plain(path, _LARGEST) if _is_text(path) else None
        if data is None or (hidden := self.hide_bytes(data)) is data:
            return False
        try:
            overwrite(path, hidden)
        except PermissionError:  # of the container's root, or read-only: in a folder of ours it can be replaced
            write_bytes(path, hidden)
        return True


class ConcealedStream:
    """A text that comes in parts, concealed: what may be the begin of a value waits for what follows."""

    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets
        self._waiting = b""
        self._change: Callable[[bytes], bytes] | None = None
        self._margin = max(max(map(len, secrets._wide), default=0), _LOOKED_AT)

    def take(self, data: bytes) -> bytes:
        """Return what is certain by now: whole lines, else all but the end of a long one."""
        self._waiting += data
        if self._change is None and data:
            self._change = self._secrets.cover_bytes if b"\0" in data[:_LOOKED_AT] else self._secrets.conceal_bytes
        at = self._cut()
        piece, self._waiting = self._waiting[:at], self._waiting[at:]
        return self._changed(piece)

    def end(self) -> bytes:
        """Return the rest: nothing follows."""
        piece, self._waiting = self._waiting, b""
        return self._changed(piece)

    def _changed(self, data: bytes) -> bytes:
        return self._change(data) if self._change is not None and data else b""

    def _cut(self) -> int:
        """Return where both sides, concealed by themselves, are what they are together; 0 where no such place is
        near."""
        data, margin = self._waiting, self._margin
        at = data.rfind(b"\n") + 1 or len(data) - margin
        for _ in range(_CUTS):
            if at <= 0:
                break
            left, right = data[max(0, at - margin) : at], data[at : at + margin]
            if self._changed(left) + self._changed(right) == self._changed(left + right):
                return at
            at -= _CUT_STEP
        return 0


NONE = Secrets()
"""No values: shapes are hidden all the same."""


def safe_message(text: str) -> str:
    """`text` as one line of a message, without what this process's environment holds under a secret's name."""
    return Secrets.of_environment().one_line(text)


def _longest_first(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted({text for text in texts if len(text) >= _LEAST}, key=lambda text: (-len(text), text)))


type Cover = Callable[[bytes], bytes]


def _hidden(found: bytes) -> bytes:  # noqa: ARG001  has the shape of a cover
    return HIDDEN.encode()


def _hidden_wide(found: bytes) -> bytes:
    """The sign in UTF-16, in the order of bytes of what was found, and without its outer NULs where that has none."""
    (form,) = wide(HIDDEN)
    return form if len(found) % 2 else form + b"\0" if found[1:2] == b"\0" else b"\0" + form


def _covered(found: bytes) -> bytes:
    return b"*" * len(found)


def is_binary(data: bytes) -> bool:
    """Return whether the first bytes of a file are no text, neither in UTF-8 nor in UTF-16."""
    return b"\0" in data[:_LOOKED_AT] and wide_form(data[:_LOOKED_AT]) is None


def _is_text(path: Path) -> bool:
    with open_plain(path) as stream:
        return stream is not None and not is_binary(stream.read(_LOOKED_AT) or b"")


def _without_shapes(text: str) -> str:
    for shape in (*patterns.KEYS, patterns.LOGIN):
        if shape.may_be_in(text):
            text = shape.pattern.sub(HIDDEN, text)
    folded = text.lower()
    return patterns.BEARER.sub(rf"\1 {HIDDEN}", text) if "bearer" in folded or "basic" in folded else text


def _holds_key(text: str) -> bool:
    """Return whether a provider's key stands in a text: one with digits, as names such as `key-value-store` have
    not."""
    keys = (found.group() for shape in patterns.KEYS if shape.may_be_in(text) for found in shape.pattern.finditer(text))
    return any(map(_is_opaque, keys))


def _without_value(match: re.Match[str]) -> str:
    value = match.group(2)
    # Counts, flags and templates are not secrets: "max_tokens: 4096", "api_key: null", "KEY=${KEY}".
    bare = value.strip("\"'")
    if not bare or bare.isdigit() or bare.lower() in _PLAIN or bare.startswith(("$", HIDDEN[:-1])):
        return match.group(0)
    return match.group(1) + HIDDEN


def _without_opaque(text: str) -> str:
    """Looks for the last words of names, which a plain search finds: a pattern would be tried at every `=` and `:`."""
    pieces, copied, at = [], 0, 0
    for end in _ends_of_names(text):
        found = _ASSIGNMENT.match(text, end)
        if found is None or (start := found.start(1)) < at:
            continue
        if patterns.NAME_BEFORE.search(text, max(0, start - _LONGEST_NAME), start):
            value = _OPAQUE.match(text, found.end())
            if value and _is_opaque(value.group()):
                pieces += [text[copied : found.end()], HIDDEN]
                copied = value.end()
            at = value.end() if value else at  # no part of what is not opaque is: looked at once, not from each "="
    return "".join([*pieces, text[copied:]]) if pieces else text


def _ends_of_names(text: str) -> list[int]:
    folded, ends = text.replace("İ", "i").lower(), []  # the one letter that is two in lower case
    for name in patterns.LAST_WORDS:
        at = folded.find(name)
        while at >= 0:
            ends.append(at + len(name))
            at = folded.find(name, ends[-1])
    return sorted(ends)


def _is_opaque(value: str) -> bool:
    """Letters and digits mixed, as no word of a language is."""
    return sum(letter.isdigit() for letter in value) >= 2 and sum(letter.isalpha() for letter in value) >= 2

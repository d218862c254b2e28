"""Finding values that are written in escapes (`\\u0073`, also in JSON inside JSON) or split over lines. Pure.

A cheap look comes first: the text without escapes, then its letters and digits alone, in which a value stands in one
piece whatever was put between its parts. Only a value that is met there is looked for in the text itself, exactly: what
stands between two of its characters is what stands there in the value, or a joint. Every step takes linear time.
"""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache

LEAST_DISGUISED = 12
"""A shorter value is not looked for in pieces or reversed: honest text may hold its letters by chance."""
_ALPHANUMERIC = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_OTHERS = bytes(set(range(256)) - set(_ALPHANUMERIC))
_BESIDE = b"\\\0"
_LONGEST_GAP = 200
_LONGEST_PART = 512

# The backslashes before an escape double with each level of JSON; without a bound, a row of them takes quadratic time.
_BACKSLASHES = rb"\\{1,16}"
# A look at every backslash would be slow: these begin with it, and leave others before it alone.
_ESCAPE = re.compile(rb"\\(?:u00|x)([2-7][0-9A-Fa-f])")
_ESCAPED_BREAK = re.compile(rb"\\[nrt]")
_NO_LETTER = rb"(?:2[0-9A-Fa-f]|3[A-Fa-f]|40|5[B-Fb-f]|60|7[B-Fb-f])"
_GAP = (
    rb"(?>(?:"
    + _BACKSLASHES
    + rb"(?:[nrt]|(?:u00|x)"
    + _NO_LETTER
    + rb")|[^0-9A-Za-z\\]|\\(?!u00[2-7]|x[2-7])){0,%d})" % _LONGEST_GAP
)
_JOINT = re.compile(rb"""[\r\n]|(["'`])[^0-9A-Za-z]*\1""")
"""What may split a value: the end of a line, with whatever stands around it, or the end and the begin of a literal."""


def may_be_split(value: str | bytes) -> bool:
    """Return whether a value is long and mixed enough to be looked for in pieces or reversed."""
    return len(value) >= LEAST_DISGUISED and not value.isdigit()


def may_hide(text: str) -> bool:
    """Return whether a text holds anything that escapes, splits or widens a value."""
    return any(mark in text for mark in ("\n", "\\", '"', "'", "`", "\r", "\0"))


def bare(data: bytes) -> bytes:
    """Return the letters and digits of a text, without the letters of escaped line breaks."""
    return _ESCAPED_BREAK.sub(b"", data).translate(None, _OTHERS)


class Disguises:
    """Values to look for in escapes and, where they are long enough to be told from other text, in pieces."""

    def __init__(self, values: Sequence[bytes]) -> None:
        self._values: dict[bytes, list[bytes]] = {}
        for value in values:
            if letters := bare(value):
                self._values.setdefault(letters, []).append(value)
        self._long = [letters for letters in self._values if may_be_split(letters)]

    def replaced(self, data: bytes, cover: Callable[[bytes], bytes]) -> bytes:
        """Return `data` with `cover` in place of each disguised value; `data` itself where there is none."""
        plain, escapes = _ESCAPE.subn(_meant, data)
        if not (tried := list(self._values) if escapes else self._long):
            return data
        letters = bare(plain)
        for met in [found for found in tried if found in letters]:
            for value in self._values[met]:
                data = _without(data, value, cover)
        return data


def _meant(escape: re.Match[bytes]) -> bytes:
    """Return the character, apart from a backslash before it: together they could be another escape."""
    return b"\0%c" % int(escape[1], 16)


def _without(data: bytes, value: bytes, cover: Callable[[bytes], bytes]) -> bytes:
    """Replace what is the value once escapes and joints are taken away; nothing else that has the same letters."""
    if not (letters := bare(value)):
        return data
    changed, in_pieces = data, may_be_split(letters)
    for part in _parts(value):

        def replace(found: re.Match[bytes], part: bytes = part) -> bytes:
            return cover(found[0]) if _is_disguised(_ESCAPE.sub(_meant, found[0]), part, in_pieces) else found[0]

        changed = _pattern(part).sub(replace, changed)
    return data if changed == data else changed


def _parts(value: bytes) -> list[bytes]:
    """Return a value in parts of which each makes a pattern of bounded size, none of them short."""
    starts = range(0, max(1, len(value) - _LONGEST_PART + 1), _LONGEST_PART)
    ends = [*starts[1:], len(value)]
    return [value[start:end] for start, end in zip(starts, ends, strict=True) if bare(value[start:end])]


@lru_cache(maxsize=256)
def _pattern(value: bytes) -> re.Pattern[bytes]:
    """Return what matches the letters of a value, each plain or escaped, with gaps between them."""
    first = rb"(?:%c|" + _BACKSLASHES + rb"(?:u00|x)(?i:%02x))"
    later = rb"(?:%c|\\(?:u00|x)(?i:%02x))"  # a gap takes the other backslashes
    return re.compile(_GAP.join((later if at else first) % (letter, letter) for at, letter in enumerate(bare(value))))


def _is_disguised(found: bytes, value: bytes, in_pieces: bool) -> bool:
    """Return whether what was found has between its letters what the value has there, or a joint beside it."""
    gaps, marks = (re.split(rb"[0-9A-Za-z]", _ESCAPED_BREAK.sub(b"\n", text))[1:-1] for text in (found, value))
    return len(gaps) == len(marks) and all(
        gap.translate(None, _BESIDE) == mark.translate(None, _BESIDE)
        or (in_pieces and _JOINT.search(gap) and _is_within(mark, gap))
        for gap, mark in zip(gaps, marks, strict=True)
    )


def _is_within(mark: bytes, gap: bytes) -> bool:
    """Return whether the characters of `mark` stand in `gap` in their order."""
    left = iter(gap)
    return all(letter in left for letter in mark)

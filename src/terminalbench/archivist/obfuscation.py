"""Text written so that a check does not see it: letters of other scripts, encodings, names instead of sentences.

Pure. Nothing here decides; the checks compare what these functions return as well.
"""

import base64
import binascii
import re
import unicodedata
from collections.abc import Iterator
from urllib.parse import unquote

_UNSEEN = re.compile(
    r"[\u00ad\u034f\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufe00-\ufe0f\ufeff"
    r"\U000e0000-\U000e01ef]"
)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""What acts on a terminal: all but line ends and tabs."""
_ALIKE = str.maketrans(
    "абвгдезікмнорстухцѕјһԁԛԝӏѵАВЕІЅЈКМНОРСТУХҮӀαβεικνορτυχγωΑΒΕΖΗΙΚΜΝΟΡΤΥΧ",
    "a6brdesikmhopctyxusjhdqwlvABEISJKMHOPCTYXYIaβeikvoptuxywABEZHIKMNOPTYX",
)
"""Letters of the Cyrillic and the Greek script as those of the Latin one that they look like."""
_LETTERS = re.compile(r"[^\W\d_]+")
_ENCODED = re.compile(r"(?<![\w+/=-])[A-Za-z0-9+/_-]{16,}={0,2}(?![\w+/=])")
_HEX = re.compile(r"(?<![0-9a-fA-F])(?:[0-9a-fA-F]{2}){10,}(?![0-9a-fA-F])")
_LONGEST = 20_000
_SEPARATORS = re.compile(r"[_./\\+=:-]+|(?<=[a-z])(?=[A-Z])")


def unseen(text: str) -> str | None:
    """The first character of a text that cannot be seen, or acts on a terminal; None where there is none."""
    found = _UNSEEN.search(text) or _CONTROL.search(text)
    return found.group() if found else None


def plain(text: str) -> str:
    """The text as a reader sees it: without unseen characters, with Latin letters for those that look like them."""
    seen = unicodedata.normalize("NFKC", _UNSEEN.sub("", text))
    if seen.isascii():
        return seen
    bare = "".join(c for c in unicodedata.normalize("NFD", seen) if not unicodedata.combining(c))
    return bare.translate(_ALIKE)


def mixed_word(text: str) -> str | None:
    """The first word with letters of the Latin and of another script that looks like it; None where there is none."""
    for match in _LETTERS.finditer(text):
        word = match.group()
        if not word.isascii():
            scripts = {unicodedata.name(letter, "").split(" ")[0] for letter in word}
            if "LATIN" in scripts and scripts & {"CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE"}:
                return word
    return None


def decoded(text: str) -> Iterator[str]:
    """Yield what parts of a text say that are encoded: base64, hexadecimal digits, percent signs."""
    text = text[:_LONGEST]
    for match in _ENCODED.finditer(text):
        blob = match.group().rstrip("=").replace("-", "+").replace("_", "/")
        try:
            said = base64.b64decode(blob + "=" * (-len(blob) % 4), validate=True)
        except binascii.Error:
            continue
        if (words := _readable(said)) is not None:
            yield words
    for match in _HEX.finditer(text):
        if (words := _readable(bytes.fromhex(match.group()))) is not None:
            yield words
    if text.count("%") > 2 and (words := unquote(text)) != text:
        yield words


def spread(text: str) -> str:
    """The text with the parts of names, paths and options as words of their own."""
    return _SEPARATORS.sub(" ", text)


def _readable(data: bytes) -> str | None:
    """Bytes as text, where they are words or a program; None of anything else."""
    try:
        said = data.decode()
    except UnicodeDecodeError:
        return None
    letters = sum(c.isalpha() or c == " " for c in said)
    written = said.isascii() and all(c.isprintable() or c in "\n\r\t" for c in said)
    return said if len(said) >= 10 and " " in said and (written or letters >= 0.8 * len(said)) else None

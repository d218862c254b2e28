"""Text of an agent made fit for a judge, and whether what a judge quotes really stands in the step it names."""

import re
import unicodedata
from collections.abc import Callable, Iterable

from terminalbench.secrets.values import NONE, Secrets

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-_])")
# Our own tags, the control tokens of chat templates, and the lines that head our steps and cuts.
_TAGS = re.compile(
    r"<(?=\s*(?:/\s*)?data-)|<(?=\|)|<(?=/?(?:s|system|user|assistant|human|im_start|im_end)>)", re.IGNORECASE
)
_MARKS = re.compile(r"\[(?=\s*(?:step|steps|cut)\b|/?INST\]|\.\.\. )", re.IGNORECASE)
_KEPT = "\n\t"
_SAME = str.maketrans({"‹": "<", "⁅": "[", "“": '"', "”": '"', "‘": "'", "’": "'", "`": "'", "–": "-", "—": "-"})


def clean(text: str, secrets: Secrets = NONE) -> str:
    """`text` as a judge may see it. The same text always gives the same result. Foreign text needs the `secrets`."""
    text = _ESCAPES.sub("", text)
    text = secrets.redact(text)
    if not text.isascii() or not text.isprintable():
        text = "".join(map(_visible, text))
    return _MARKS.sub("⁅", _TAGS.sub("‹", text))


def normal(text: str) -> str:
    """`text` for comparison: white space, quotation marks and our replacements are all the same."""
    return " ".join(unicodedata.normalize("NFKC", text).translate(_SAME).split())


def _visible(character: str) -> str:
    if character.isprintable() or character in _KEPT:
        return character
    if character == "\r":
        return ""
    return f"\\u{{{ord(character):x}}}"


_SHORTEST = 8
_GAP = re.compile(r"\[?(?:\.{3,}|…)\]?")
_APART = "\x00"


class QuoteBook:
    """The texts of one trial by step, normalised when they are first cited."""

    def __init__(self, pieces: Callable[[int], Iterable[str]]) -> None:
        self._pieces = pieces
        self._texts: dict[int, str] = {}

    def holds(self, step: int, quote: str) -> bool:
        """Whether `quote` stands in that step: whole, or as pieces in order around an ellipsis."""
        return contains(self._text(step), quote)

    def _text(self, step: int) -> str:
        if step not in self._texts:
            self._texts[step] = _APART.join(normal(piece) for piece in self._pieces(step))
        return self._texts[step]


def contains(text: str, quote: str) -> bool:
    """Whether a normalised text holds `quote`. Some words are no evidence: a short quote must be a whole line."""
    wanted = normal(clean(quote)).strip("\"' ")
    if not wanted:
        return False
    if len(wanted) < _SHORTEST:
        return wanted in (part.strip("\"' ") for part in text.split(_APART))
    if wanted in text:
        return True
    pieces = [piece.strip("\"' ") for piece in _GAP.split(wanted)]
    pieces = [piece for piece in pieces if piece]
    return len(pieces) > 1 and all(len(p) >= _SHORTEST for p in pieces) and _in_order(text, pieces)


def _in_order(text: str, pieces: list[str]) -> bool:
    for part in text.split(_APART):
        at = 0
        for piece in pieces:
            at = part.find(piece, at)
            if at < 0:
                break
            at += len(piece)
        else:
            return True
    return False

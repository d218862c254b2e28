"""Looking quotes up: is what a judge cites really in the step it names?"""

import re
from collections.abc import Iterator

from terminalbench.analytics.judge.clean import clean, normal
from terminalbench.analytics.judge.material import Material, texts_of

VERIFIER_STEP = 0
_SHORTEST = 8
_GAP = re.compile(r"\[?(?:\.{3,}|…)\]?")
_APART = "\x00"


class QuoteBook:
    """The texts of one trial, normalised when they are first cited."""

    def __init__(self, material: Material) -> None:
        self._material = material
        self._texts: dict[int, str] = {}

    def holds(self, step: int, quote: str) -> bool:
        """Whether `quote` stands in that step: whole, or as pieces in order around an ellipsis."""
        return contains(self._text(step), quote)

    def _text(self, step: int) -> str:
        if step not in self._texts:
            self._texts[step] = _APART.join(normal(piece) for piece in self._pieces(step))
        return self._texts[step]

    def _pieces(self, step: int) -> Iterator[str]:
        if step == VERIFIER_STEP:
            yield self._material.verifier
        for found in self._material.steps_numbered(step):
            yield from (clean(text) for text in texts_of(found))
            yield self._material.shown(found)


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

"""Text of an agent made fit for a judge: no secrets, nothing invisible, nothing that imitates our marks."""

import re
import unicodedata

from terminalbench.harbor.redact import redact

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-_])")
# Our own tags, the control tokens of chat templates, and the lines that head our steps and cuts.
_TAGS = re.compile(
    r"<(?=\s*(?:/\s*)?data-)|<(?=\|)|<(?=/?(?:s|system|user|assistant|human|im_start|im_end)>)", re.IGNORECASE
)
_MARKS = re.compile(r"\[(?=\s*(?:step|steps|cut)\b|/?INST\]|\.\.\. )", re.IGNORECASE)
_KEPT = "\n\t"
_SAME = str.maketrans({"‹": "<", "⁅": "[", "“": '"', "”": '"', "‘": "'", "’": "'", "`": "'", "–": "-", "—": "-"})


def clean(text: str) -> str:
    """`text` as a judge may see it. The same text always gives the same result."""
    text = _ESCAPES.sub("", text)
    text = redact(text)
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

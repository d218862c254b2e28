"""Words of a lesson that would give orders to the model that reads it, instead of telling what was learned. Pure."""

import re
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Order:
    """What was found, and what it is."""

    found: str
    what: str


_ORDERS = re.compile(
    r"\b(?:ignore|disregard|forget|override) (?:all |any |the |your |every )*"
    r"(?:previous|prior|earlier|above|preceding|other|system|existing)\b"
    r"|\bremember(?: this)?\s*[:,-]|\bremember to always\b|\bfrom now on\b|\byou are now\b"
    r"|\bnew (?:system )?instructions?\b|\b(?:system|developer) (?:prompt|message)\b"
    r"|\b(?:add|write|store|save) (?:this|the following) (?:to|in|into|as) (?:your |the |a )?(?:memory|lessons?)\b"
    r"|\bdo not (?:tell|mention|reveal|inform)\b|\b(?:as an ai|jailbreak|developer mode)\b"
    r"|\b(?:act|behave|respond) as (?:if you|though you|an? (?:unrestricted|different))\b"
    r"|\balways (?:report|claim|say|answer|print|output|reply)\b.{0,40}\b(?:success|passed|pass|done|correct|yes)\b",
    re.IGNORECASE,
)
_MARKUP = re.compile(
    r"<\|?/?(?:im_start|im_end|system|assistant|user|human|tool|tool_call|tool_use|tool_result|function_calls?|invoke|"
    r"\w+:invoke|\w+:function_calls|endoftext|thinking|instructions?|inst)\b[^>\n]{0,80}\|?>"
    r"|\[/?INST\]|<<SYS>>|^\s*(?:#+\s*)?(?:do: |avoid: )?(?:system|assistant|human|user)\s*:"
    r"|\"(?:tool_calls?|function_call)\"\s*:",
    re.IGNORECASE | re.MULTILINE,
)
_REMOTE_CODE = re.compile(
    r"\b(?:curl|wget)\b[^\n]{0,200}\|\s*(?:sudo\s+)?(?:ba|z|da)?sh\b|\b(?:ba)?sh\s+<\(\s*(?:curl|wget)\b"
    r"|\bbase64\s+(?:-d|--decode)\b[^\n]{0,80}\|\s*(?:ba)?sh\b|\beval\b[^\n]{0,20}\$\(\s*(?:curl|wget)\b",
    re.IGNORECASE,
)
_UNSEEN = re.compile(r"[\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff\U000e0000-\U000e007f]")
_WHAT = (
    (_ORDERS, "an order about the conversation"),
    (_MARKUP, "a mark of a role or of a tool call"),
    (_REMOTE_CODE, "a program from the network that is run unseen"),
)


def without_unseen(text: str) -> str:
    """The text without characters that cannot be seen."""
    return _UNSEEN.sub("", text)


def find_orders(text: str) -> Iterator[Order]:
    """What in a text is addressed to a model, each kind once."""
    if hidden := _UNSEEN.search(text):
        yield Order(f"U+{ord(hidden.group()):04X}", "a character that cannot be seen")
    plain = without_unseen(text)
    for pattern, what in _WHAT:
        if match := pattern.search(plain):
            yield Order(match.group().strip(), what)

"""Keeping keys out of messages: what the environment holds under a secret's name, and what looks like a key.

A process can `learn` further values, those of an env file; they are kept in memory only.
"""

import json
import os
import re
from collections.abc import Iterable
from html import escape
from urllib.parse import quote, quote_plus

HIDDEN = "[redacted]"
_LIMIT = 300
_NAME = re.compile(r"(?i)(key(?!board|map)|token(?!i[sz])|secret|passw(or)?d|credential|auth(?!or($|_|s)))")
_SHAPE = re.compile(
    r"\b(?:sk|pk|rk|key|xai|gsk|hf|ghp|gho|AIza)[-_]?[A-Za-z0-9_-]{12,}|(?i:\b(?:bearer|basic)\s+\S{8,})"
)
_LOGIN = re.compile(r"(?<=://)[^/\s@]+(?=@)")
NAMES_VARIABLE = "TERMINALBENCH_SECRETS"
"""Tells a Harbor process which of its variables are secrets: their names, never their values."""
_LEAST = 6
_LEAST_LINE = 16
_LEAST_OF_LETTERS = 12
_learned: set[str] = set()


def learn(values: Iterable[str]) -> None:
    """Never show these either, from now on and in this process, in none of the spellings they are met in."""
    for value in values:
        lines = [line for line in value.splitlines() if len(line) >= _LEAST_LINE]
        for text in {value.strip(), *lines}:
            if not _is_word(text):
                _learned.update(spelling for spelling in _spellings(text) if len(spelling) >= _LEAST)


def learn_named() -> None:
    """Learn the values of the variables that whoever started this process called secrets."""
    names = os.environ.get(NAMES_VARIABLE, "").split(",")
    learn(os.environ[name] for name in names if os.environ.get(name))


def _spellings(text: str) -> set[str]:
    """As it is, in JSON, in HTML, in an address, in a form."""
    numbered = escape(text, quote=False).replace("'", "&#39;").replace('"', "&#34;")
    return {
        text,
        json.dumps(text)[1:-1],
        json.dumps(text, ensure_ascii=False)[1:-1],
        escape(text),
        numbered,
        quote(text, safe="", errors="replace"),
        quote(text, errors="replace"),
        quote_plus(text, errors="replace"),
    }


def is_named_secret(name: str, value: str) -> bool:
    """Whether a variable is called like a secret and its value is no mere setting."""
    return _NAME.search(name) is not None and len(value) >= 8 and not _is_plain(value)


def secret_values() -> list[str]:
    """What must never be shown: values of this process's environment, and what it has learned. The longest first."""
    found = {value for name, value in os.environ.items() if is_named_secret(name, value)}
    return sorted(found | _learned, key=len, reverse=True)


def hide(text: str) -> str:
    """`text` without any of those values."""
    for value in secret_values():
        if value in text:
            text = text.replace(value, HIDDEN)
    return text


def _is_plain(value: str) -> bool:
    """Settings that stand under a secret's name: paths, addresses, numbers, switches."""
    return value.startswith(("/", "http")) or value.isdigit() or _is_word(value)


def _is_word(value: str) -> bool:
    """A word that people write anyway ("postgres"): to hide it would take names of tasks out of results."""
    return value.isalpha() and len(value) < _LEAST_OF_LETTERS


def scrub(text: str) -> str:
    """`text` without any of the environment's secrets and without anything shaped like a key."""
    text = hide(text)
    return _LOGIN.sub(HIDDEN, _SHAPE.sub(HIDDEN, text))


def one_line(text: str, limit: int = _LIMIT) -> str:
    """`text` scrubbed, on one line, cut to `limit` characters."""
    flat = " ".join(scrub(text[: limit * 20]).split())
    return flat if len(flat) <= limit else flat[: limit - 1].rstrip() + "…"

"""Keeping keys out of messages: what the environment holds under a secret's name, and what looks like a key."""

import os
import re

HIDDEN = "[redacted]"
_LIMIT = 300
_WORDS = frozenset({"anonymous", "disabled", "enabled", "optional", "password", "required"})
_NAME = re.compile(r"(?i)(key|token|secret|passw(or)?d|credential|auth)")
_SHAPE = re.compile(
    r"\b(?:sk|pk|rk|key|xai|gsk|hf|ghp|gho|AIza)[-_]?[A-Za-z0-9_-]{12,}|(?i:\b(?:bearer|basic)\s+\S{8,})"
)
_LOGIN = re.compile(r"(?<=://)[^/\s@]+(?=@)")


def secret_values() -> list[str]:
    """The values in this process's environment that must never be shown, the longest first."""
    found = {value for name, value in os.environ.items() if _NAME.search(name) and len(value) >= 8}
    return sorted((value for value in found if not _is_plain(value)), key=len, reverse=True)


def _is_plain(value: str) -> bool:
    """Settings that stand under a secret's name: paths, addresses, numbers, switches."""
    return value.startswith(("/", "http")) or value.isdigit() or value.lower() in _WORDS


def scrub(text: str) -> str:
    """`text` without any of the environment's secrets and without anything shaped like a key."""
    for value in secret_values():
        text = text.replace(value, HIDDEN)
    return _LOGIN.sub(HIDDEN, _SHAPE.sub(HIDDEN, text))


def one_line(text: str, limit: int = _LIMIT) -> str:
    """`text` scrubbed, on one line, cut to `limit` characters."""
    flat = " ".join(scrub(text[: limit * 20]).split())
    return flat if len(flat) <= limit else flat[: limit - 1].rstrip() + "…"

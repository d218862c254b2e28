"""Keeping secrets out of experiment files: what looks like one, and what is only a reference to one."""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

TEMPLATE = re.compile(r"\$\{[A-Za-z_]\w*(?::-[^}]*)?\}")
VARIABLE = re.compile(r"[A-Za-z_]\w*")
_REFERENCE = re.compile(r"\$\{([A-Za-z_]\w*)(?::-[^}]*)?\}")

_SENSITIVE_NAME = re.compile(
    r"(^|_|-|(?<=[a-z]))(api_?key|key|secret|token(?!s)|password|passwd|pwd|credentials?|auth|authorization|bearer)($|_|-)",
    re.IGNORECASE,
)
_ABOUT_ONE = re.compile(
    r"(?i)[_-](file|path|dir|policy|env|var|name|type|mode|length|prompt|limit|count|helper|url|host)$"
)
_KNOWN_SHAPES = re.compile(
    r"\b(sk-[\w-]{8,}|gh[pousr]_[A-Za-z0-9]{16,}|github_pat_\w{16,}|glpat-[\w-]{16,}|AKIA[0-9A-Z]{12,}"
    r"|xox[abprs]-[\w-]{8,}|AIza[\w-]{20,}|hf_[A-Za-z0-9]{16,}|npm_[A-Za-z0-9]{20,}|gsk_[A-Za-z0-9]{16,}"
    r"|xai-[A-Za-z0-9]{16,}|ASIA[0-9A-Z]{12,}|hooks\.slack\.com/services/\S+|api/webhooks/\d+/[\w-]{20,}"
    r"|[sr]k_(live|test)_\w{8,}|pplx-\w{16,}|nvapi-[\w-]{16,}|tvly-[\w-]{16,}|r8_\w{16,}|dop_v1_\w{16,}"
    r"|dckr_pat_[\w-]{16,}|lin_api_\w{16,}|ctx7sk-[\w-]{16,}|pypi-Ag[\w-]{16,}|GOCSPX-[\w-]{16,}|ya29\.[\w-]{16,}"
    r"|SG\.[\w-]{16,}\.[\w-]{16,}|(Bearer|Basic) (?=\S*\d)[\w.+/=-]{16,}"
    r"|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]{4,})|-----BEGIN [A-Z ]*PRIVATE KEY"
)
_URL_LOGIN = re.compile(r"[a-z0-9+.-]://[^/\s@]+@", re.IGNORECASE)  # all of a scheme would take quadratic time
_PASSWORD_NAME = re.compile(r"(?i)(^|[_.-])(password|passwd|passphrase|pwd)\d*($|[_.-])")
_SWITCH = re.compile(r"(?i)true|false|none|null|yes|no|on|off|\d{1,6}")
_OPAQUE = re.compile(r"[A-Za-z0-9+/_=-]{24,}")
_AWS_LIKE = re.compile(r"[A-Za-z0-9+/]{40}")
_DIGEST = re.compile(r"(?i)\b(sha\d{1,3}|md5|blake\w{1,3})[-:=][A-Za-z0-9+/=]+")


def is_template(value: str) -> bool:
    """Whether the whole value is a reference like `${VAR}`."""
    return TEMPLATE.fullmatch(value.strip()) is not None


def references(value: Any) -> list[str]:
    """The variables that the texts in `value` refer to as `${VAR}`, each once, in order."""
    if isinstance(value, Mapping):
        return list(dict.fromkeys(name for item in value.values() for name in references(item)))
    if isinstance(value, list):
        return list(dict.fromkeys(name for item in value for name in references(item)))
    return _REFERENCE.findall(value) if isinstance(value, str) else []


def looks_secret(name: str, value: str) -> bool:
    """Whether a literal `value` under `name` is likely a secret. References never are."""
    literal = TEMPLATE.sub("", value).strip()
    defaults = [match.group()[2:-1].partition(":-")[2] for match in TEMPLATE.finditer(value)]
    if any(default and looks_secret(name, default) for default in defaults):
        return True
    if not literal:
        return False
    if _KNOWN_SHAPES.search(literal) or has_login(literal):
        return True
    if not _ABOUT_ONE.search(name):
        if _PASSWORD_NAME.search(name) and not _SWITCH.fullmatch(literal):
            return True
        if _SENSITIVE_NAME.search(name) and not _harmless(literal):
            return True
    return any(_random_looking(word) for word in _OPAQUE.findall(_DIGEST.sub(" ", literal)))


def has_login(url: str) -> bool:
    """Whether an address carries a user or password that is not a reference (`git@host:` is fine)."""
    return _URL_LOGIN.search(TEMPLATE.sub("", url)) is not None and not url.startswith(("ssh://git@", "git@"))


def secrets_in(value: Any, at: str) -> Iterator[str]:
    """The dotted keys below `at` whose values look like secrets."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from secrets_in(item, f"{at}.{name}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from secrets_in(item, f"{at}[{index}]")
    elif isinstance(value, str) and looks_secret(re.sub(r"\[\d+\]$", "", at).rsplit(".", 1)[-1], value):
        yield at


def is_known_secret(text: str) -> bool:
    """Whether a text has the shape of a provider's key."""
    return _KNOWN_SHAPES.search(text) is not None


def _harmless(literal: str) -> bool:
    """Values that a sensitive-looking name may openly have: switches, numbers, short words, paths."""
    return (
        re.fullmatch(
            r"(?i)true|false|none|null|\d{1,6}|[a-z]{1,12}([_-][a-z]{1,12}){0,2}([_-]v?\d{1,2})?"
            r"|[./~][^\s]*|[a-z]+://[^\s@]*",
            literal,
        )
        is not None
    )


def _random_looking(word: str) -> bool:
    """Whether a long word has a part that nobody would write: small, capital letters and digits in quick turns."""
    parts = [word] if _AWS_LIKE.fullmatch(word) else re.split(r"[/_=-]", word)
    return any(_scrambled(part, least=0.35 if part is word else 0.45) for part in parts if len(part) >= 16)


def _scrambled(part: str, least: float) -> bool:
    kinds = ["a" if c.islower() else "A" if c.isupper() else "0" for c in part]
    if len(set(kinds)) < 3:
        return False
    counts = Counter(part)
    entropy = -sum(n / len(part) * math.log2(n / len(part)) for n in counts.values())
    turns = sum(one != other for one, other in pairwise(kinds)) / len(part)
    return entropy > 3.4 and turns > least

"""What is a secret: a variable by its name and value, a literal of an experiment file; and what only refers to one."""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from terminalbench.secrets import patterns
from terminalbench.secrets.patterns import has_key, when_used

TEMPLATE = re.compile(r"\$\{[A-Za-z_]\w*(?::-[^}]*)?\}")
VARIABLE = re.compile(r"[A-Za-z_]\w*")
_REFERENCE = re.compile(r"\$\{([A-Za-z_]\w*)(?::-[^}]*)?\}")

_SWITCH = when_used(r"(?i)true|false|none|null|yes|no|on|off|\d{1,6}")
_HARMLESS = when_used(
    r"(?i)true|false|none|null|\d{1,6}|[a-z]{1,12}([_-][a-z]{1,12}){0,2}([_-]v?\d{1,2})?|[./~][^\s]*|[a-z]+://[^\s@]*"
)
"""Values that a sensitive-looking name may openly have: switches, numbers, short words, paths."""
_HEX = when_used(r"[0-9a-fA-F]{32,}")
_LEAST_NAMED = 8
_LEAST_OF_LETTERS = 12
_OPAQUE = when_used(r"[A-Za-z0-9+/_=-]{24,}")
_AWS_LIKE = when_used(r"[A-Za-z0-9+/]{40}")
_DIGEST = when_used(r"(?i)\b(sha\d{1,3}|md5|blake\w{1,3})[-:=][A-Za-z0-9+/=]+")


def is_template(value: str) -> bool:
    """Return whether the whole value is a reference like `${VAR}`."""
    return TEMPLATE.fullmatch(value.strip()) is not None


def texts(value: Any, at: str = "") -> Iterator[tuple[str, str]]:
    """Every text in a value of TOML or JSON, with its dotted key below `at`."""
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from texts(item, f"{at}.{name}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from texts(item, f"{at}[{index}]")
    elif isinstance(value, str):
        yield at, value


def last_name(key: str) -> str:
    """The last name in a dotted key; an item of a list is called as the list is."""
    return re.sub(r"\[\d+\]$", "", key).rsplit(".", 1)[-1]


def references(value: Any) -> list[str]:
    """The variables that the texts in `value` refer to as `${VAR}`, each once, in order."""
    return list(dict.fromkeys(name for _, text in texts(value) for name in _REFERENCE.findall(text)))


def looks_secret(name: str, value: str) -> bool:
    """Return whether a literal `value` under `name` is likely a secret. References never are."""
    literal = TEMPLATE.sub("", value).strip()
    defaults = [match.group()[2:-1].partition(":-")[2] for match in TEMPLATE.finditer(value)]
    if any(default and looks_secret(name, default) for default in defaults):
        return True
    if not literal:
        return False
    if has_key(literal) or has_login(literal) or any(map(_is_token, patterns.BEARER.finditer(literal))):
        return True
    if not patterns.ABOUT_ONE.search(name):
        if patterns.PASSWORD_NAME.search(name) and not _SWITCH.fullmatch(literal):
            return True
        if patterns.SETTING_NAME.search(name) and not _HARMLESS.fullmatch(literal):
            return True
    return any(_random_looking(word) for word in _OPAQUE.findall(_DIGEST.sub(" ", literal)))


def has_login(url: str) -> bool:
    """Return whether an address carries a user or password that is not a reference (`git@host:` is fine)."""
    return patterns.LOOSE_LOGIN.search(TEMPLATE.sub("", url)) is not None and not url.startswith(("ssh://git@", "git@"))


def secrets_in(value: Any, at: str) -> Iterator[str]:
    """The dotted keys below `at` whose values look like secrets."""
    return (key for key, text in texts(value, at) if looks_secret(last_name(key), text))


def is_secret(name: str, value: str) -> bool:
    """Return whether the value of a variable must not be shown: it is called like a secret, or looks like one."""
    return is_named_secret(name, value) or looks_secret(name, value) or _HEX.fullmatch(value.strip()) is not None


def is_named_secret(name: str, value: str) -> bool:
    """Return whether a variable is called like a secret and its value is no mere setting: path, address, number,
    word."""
    if patterns.VARIABLE_NAME.search(name) is None or len(value) < _LEAST_NAMED:
        return False
    return not (value.startswith(("/", "http")) or value.isdigit() or is_word(value))


def is_word(value: str) -> bool:
    """A word that people write anyway ("postgres"): to hide it would take names of tasks out of results."""
    return value.isalpha() and len(value) < _LEAST_OF_LETTERS


def is_weak(value: str) -> bool:
    """Return whether a key is so short or so common that other text has it too: to cut it out would break that text."""
    return len(value) < _LEAST_NAMED or is_word(value)


WEAK = "is so short or common that it also occurs in other text, where Harbor would remove it"
WEAK_HINT = "use a longer key; if the server checks no key, unset the variable"


def secret_names(variables: Mapping[str, str]) -> list[str]:
    """The variables whose values must not be shown."""
    return sorted(name for name, value in variables.items() if is_secret(name, value))


def _is_token(found: re.Match[str]) -> bool:
    return len(found[2]) >= 16 and any(map(str.isdigit, found[2]))


def _random_looking(word: str) -> bool:
    """Return whether a long word has a part that nobody would write: small, capital letters and digits in quick
    turns."""
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

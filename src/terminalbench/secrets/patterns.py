"""What is a secret, by its name, its value or its shape, and what only refers to one: the one list of each.

Every pattern takes linear time on any text. A shape ends with its longest part, or a lookbehind lets it begin only once
in a word: tried from each part of "a-a-a-...", it would take quadratic time.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any, NamedTuple, cast


class _WhenUsed:
    """A pattern that is compiled when one of its methods is first asked for: most commands never need most of them."""

    def __init__(self, source: str) -> None:
        self._source = source

    def __getattr__(self, name: str) -> Any:
        found = getattr(re.compile(self._source), name)
        setattr(self, name, found)
        return found


def when_used(source: str) -> re.Pattern[str]:
    """A pattern that costs nothing until it is used."""
    return cast(re.Pattern[str], _WhenUsed(source))


class Shape(NamedTuple):
    """A pattern, and the texts of which it needs one: a plain search is far quicker, and mostly finds nothing.

    It is compiled (and kept by `re`) where one of them stands: most commands never need it.
    """

    needed: tuple[str, ...]
    source: str

    @property
    def pattern(self) -> re.Pattern[str]:
        """The pattern, compiled."""
        return re.compile(self.source)

    def may_be_in(self, text: str) -> bool:
        """Return whether a text holds one of those it needs."""
        return any(part in text for part in self.needed)


LOGIN = Shape(("://",), r"""(?<=://)[^/\s:@"'\\<>]+(?::[^/\s@"'\\<>]*)?(?=@)""")
"""The login in an address."""

KEYS = (
    Shape(("sk-", "pk-", "rk-", "sess-", "key-"), r"\b(?:sk-[\w-]{8,}|(?:pk|rk|sess|key)-[\w-]{12,})"),
    Shape(("k_live_", "k_test_"), r"\b[spr]k_(?:live|test)_\w{8,}"),
    Shape(
        ("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-"),
        r"\b(?:gh[pousr]_[A-Za-z0-9]{16,}|github_pat_\w{16,}|glpat-[\w-]{16,})",
    ),
    Shape(("hf_", "npm_", "gsk_"), r"\b(?:hf_[A-Za-z0-9]{16,}|npm_[A-Za-z0-9]{20,}|gsk_[A-Za-z0-9]{16,})"),
    Shape(("AKIA", "ASIA"), r"\b(?:AKIA|ASIA)[A-Z0-9]{12,}"),
    Shape(("AIza", "GOCSPX-", "ya29."), r"\b(?:AIza[\w-]{20,}|GOCSPX-[\w-]{16,}|ya29\.[\w-]{16,})"),
    Shape(
        ("xox", "hooks.slack.com/", "api/webhooks/"),
        r"\b(?:xox[abprs]-[\w-]{8,}|hooks\.slack\.com/services/[\w/-]+|api/webhooks/\d+/[\w-]{20,})",
    ),
    Shape(
        ("xai-", "pplx-", "nvapi-", "tvly-", "ctx7sk-", "pypi-Ag"),
        r"\b(?:xai-[A-Za-z0-9]{16,}|pplx-\w{16,}|nvapi-[\w-]{16,}|tvly-[\w-]{16,}|ctx7sk-[\w-]{16,}"
        r"|pypi-Ag[\w-]{16,})",
    ),
    Shape(
        ("r8_", "dop_v1_", "dckr_pat_", "lin_api_", "SG."),
        r"\b(?:r8_\w{16,}|dop_v1_\w{16,}|dckr_pat_[\w-]{16,}|lin_api_\w{16,}|SG\.[\w-]{16,}\.[\w-]{16,})",
    ),
    Shape(("eyJ",), r"(?<![\w-])eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"),
    Shape(("PRIVATE KEY",), r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY(?:-----(?:[A-Za-z0-9+/=\s]|\\[nr])*)?"),
)
"""The keys of providers, as they make them."""

BEARER = when_used(r"(?i)\b(bearer|basic)\s+([A-Za-z0-9._~+/=-]{8,})")

# The loose ones are for messages only: in code they would hide names. With a digit: "skip-permissions" is a word.
LOOSE_KEY = when_used(r"\b(?:sk|pk|rk|key|xai|gsk|hf|ghp|gho|AIza)[-_]?(?=[A-Za-z_-]{0,40}\d)[A-Za-z0-9_-]{12,}")
LOOSE_LOGIN = when_used(r"(?<=://)[^/\s@]+(?=@)")
LOOSE_BEARER = when_used(r"(?i)\b(bearer|basic)\s+(\S{8,})")

_WORDS = r"secret|passw(?:or)?d|passphrase|credential"

VARIABLE_NAME = when_used(rf"(?i)key(?!board|map)|token(?!i[sz])|{_WORDS}|auth(?!or($|_|s))")
"""Stands in the name of a variable whose value is a secret."""
SETTING_NAME = when_used(
    rf"(?i)(^|_|-|(?<=[a-z]))(api_?key|key|token(?!s)|(?:{_WORDS})s?|pwd|auth|authorization|bearer)($|_|-)"
)
"""The name of a setting that must not be written down, unless `ABOUT_ONE` says that it is about a secret only."""
PASSWORD_NAME = when_used(r"(?i)(^|[_.-])(password|passwd|passphrase|pwd)\d*($|[_.-])")
ABOUT_ONE = when_used(
    r"(?i)[_-](file|path|dir|policy|env|var|name|type|mode|length|prompt|limit|count|helper|url|host)$"
)
# A name is tried from its first character only: from each of its parts, "a-a-a-..." would take quadratic time.
ASSIGNED = when_used(
    rf"""(?ix)
    ( (?<![\w.-]) (?: [\w.-]+ key | [\w.-]* (?: token | {_WORDS} | authorization ) ) s? ["']? \s* [=:] \s* )
    ( "[^"]*" | '[^']*' | [^\s,;"'}}]+ )
    """
)
"""A secret's name in a text, and the value it is given."""
NAME_BEFORE = when_used(rf"""(?i)(?:[\w.-]key|token|{_WORDS}|authorization)s?(?:\\?["'])?\s*\Z""")
"""A secret's name at the end of a text."""
LAST_WORDS = ("key", "token", "secret", "passwd", "password", "passphrase", "credential", "authorization")
"""Each of its names ends with one of them, or with its plural."""


def has_key(text: str) -> bool:
    """Return whether a text holds what has the shape of a provider's key."""
    return any(shape.pattern.search(text) for shape in KEYS if shape.may_be_in(text))


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
    if has_key(literal) or has_login(literal) or any(map(_is_token, BEARER.finditer(literal))):
        return True
    if not ABOUT_ONE.search(name):
        if PASSWORD_NAME.search(name) and not _SWITCH.fullmatch(literal):
            return True
        if SETTING_NAME.search(name) and not _HARMLESS.fullmatch(literal):
            return True
    return any(_random_looking(word) for word in _OPAQUE.findall(_DIGEST.sub(" ", literal)))


def has_login(url: str) -> bool:
    """Return whether an address carries a user or password that is not a reference (`git@host:` is fine)."""
    return LOOSE_LOGIN.search(TEMPLATE.sub("", url)) is not None and not url.startswith(("ssh://git@", "git@"))


def secrets_in(value: Any, at: str) -> Iterator[str]:
    """The dotted keys below `at` whose values look like secrets."""
    return (key for key, text in texts(value, at) if looks_secret(last_name(key), text))


def is_secret(name: str, value: str) -> bool:
    """Return whether the value of a variable must not be shown: it is called like a secret, or looks like one."""
    return is_named_secret(name, value) or looks_secret(name, value) or _HEX.fullmatch(value.strip()) is not None


def is_named_secret(name: str, value: str) -> bool:
    """Return whether a variable is called like a secret and its value is no mere setting: path, address, number,
    word."""
    if VARIABLE_NAME.search(name) is None or len(value) < _LEAST_NAMED:
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

"""What a key looks like and what a secret is called: the one list of each.

Every pattern takes linear time on any text. A shape ends with its longest part, or a lookbehind lets it begin only once
in a word: tried from each part of "a-a-a-...", it would take quadratic time.
"""

import re
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


def has_key(text: str) -> bool:
    """Return whether a text holds what has the shape of a provider's key."""
    return any(shape.pattern.search(text) for shape in KEYS if shape.may_be_in(text))

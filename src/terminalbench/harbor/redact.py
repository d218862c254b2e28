"""Text that may be shown and stored: one line, bounded, without anything that looks like a secret."""

import re

HIDDEN = "[redacted]"
MESSAGE_LIMIT = 300

_SECRETS = (
    re.compile(r"\b(?:sk|pk|rk|sess|key)-[A-Za-z0-9_-]{12,}"),
    re.compile(r"\b(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|hf_[A-Za-z0-9]{16,})"),
    re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"),
    re.compile(r"\bAIza[\w-]{30,}"),
    re.compile(r"\bxox[abprs]-[\w-]{10,}"),
    re.compile(r"(?<![\w-])eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"),
)
_BEARER = re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}")
_URL_USER = re.compile(r"(?<=://)[^/\s:@]+(?::[^/\s@]*)?(?=@)")
# A name is tried from its first character only: from each of its parts, "a-a-a-..." would take quadratic time.
_ASSIGNED = re.compile(
    r"""(?ix)
    ( (?<![\w.-]) (?: [\w.-]+ key | [\w.-]* (?: token | secret | passw(?:or)?d | credential | authorization ) ) s?
      ["']? \s* [=:] \s* )
    ( "[^"]*" | '[^']*' | [^\s,;"'}]+ )
    """
)


def redact(text: str) -> str:
    """`text` with everything that looks like a key, a token or a password replaced by `[redacted]`."""
    for pattern in _SECRETS:
        text = pattern.sub(HIDDEN, text)
    text = _BEARER.sub(rf"\1 {HIDDEN}", text)
    text = _URL_USER.sub(HIDDEN, text)
    return _ASSIGNED.sub(_hide_value, text)


def one_line(text: str, limit: int = MESSAGE_LIMIT) -> str:
    """`text` redacted, its white space collapsed, cut to `limit` characters."""
    # Cut far above the limit first: messages can hold megabytes of command output.
    flat = " ".join(redact(text[: limit * 20]).split())
    return flat if len(flat) <= limit else flat[: limit - 1].rstrip() + "…"


def _hide_value(match: re.Match[str]) -> str:
    value = match.group(2)
    # Counts, flags and templates are not secrets: "max_tokens: 4096", "api_key: null", "KEY=${KEY}".
    bare = value.strip("\"'")
    if not bare or bare.isdigit() or bare.lower() in _PLAIN or bare.startswith(("${", "$", HIDDEN)):
        return match.group(0)
    return match.group(1) + HIDDEN


_PLAIN = frozenset({"null", "none", "true", "false", "missing", "invalid", "required", "bearer"})

"""Text that may be shown and stored: without the secrets this process knows, and without what looks like one.

`redact` is for messages. `conceal` is for an agent's own words, logs and files: code in it stays code, JSON stays JSON.
"""

import re
from collections.abc import Callable, Iterator

from terminalbench.llm.scrub import HIDDEN, hide, secret_values

MESSAGE_LIMIT = 300

_SECRETS = (
    (("sk-", "pk-", "rk-", "sess-", "key-"), re.compile(r"\b(?:sk|pk|rk|sess|key)-[A-Za-z0-9_-]{12,}")),
    (
        ("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "hf_"),
        re.compile(r"\b(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|hf_[A-Za-z0-9]{16,})"),
    ),
    (("AKIA", "ASIA"), re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b")),
    (("AIza",), re.compile(r"\bAIza[\w-]{30,}")),
    (("xox",), re.compile(r"\bxox[abprs]-[\w-]{10,}")),
    (("eyJ",), re.compile(r"(?<![\w-])eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*")),
    (("://",), re.compile(r"""(?<=://)[^/\s:@"'\\<>]+(?::[^/\s@"'\\<>]*)?(?=@)""")),
)
"""Each with what it cannot do without: a plain search is far quicker, and mostly finds nothing."""
_BEARER = re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}")
# A name is tried from its first character only: from each of its parts, "a-a-a-..." would take quadratic time.
_ASSIGNED = re.compile(
    r"""(?ix)
    ( (?<![\w.-]) (?: [\w.-]+ key | [\w.-]* (?: token | secret | passw(?:or)?d | credential | authorization ) ) s?
      ["']? \s* [=:] \s* )
    ( "[^"]*" | '[^']*' | [^\s,;"'}]+ )
    """
)
_ASSIGNMENT = re.compile(r"""(?i)[=:]\s*(?:\\?["'])?(?=[a-z0-9+/_=~-]{16})""")
_SECRET_NAME = re.compile(
    r"""(?i)(?:[\w.-]key|token|secret|passw(?:or)?d|credential|authorization)s?(?:\\?["'])?\s*\Z"""
)
_OPAQUE = re.compile(r"(?i)[a-z0-9+/_=~-]+")
_LONGEST_NAME = 64
_PIECE = 1 << 18
_LOOKED_AT = 8192


def redact(text: str) -> str:
    """`text` with everything that looks like a key, a token or a password replaced by `[redacted]`."""
    return _ASSIGNED.sub(_hide_value, _without_shapes(hide(text)))


def conceal(text: str) -> str:
    """`text` without known secrets, provider keys, logins in addresses, and opaque values under a secret's name."""
    return _without_opaque(_without_shapes(hide(text)))


def conceal_bytes(data: bytes) -> bytes:
    """A whole file, concealed: text as `conceal` does it; in anything else known secrets are covered, not cut out."""
    if b"\0" in data[:_LOOKED_AT]:
        for value in map(_as_bytes, secret_values()):
            data = data.replace(value, b"*" * len(value))
        return data
    return _as_bytes(conceal(data.decode(errors="surrogateescape")))


def _as_bytes(text: str) -> bytes:
    return text.encode(errors="surrogateescape")  # a variable need not be UTF-8


def concealed_pieces(read: Callable[[int], bytes]) -> Iterator[bytes]:
    """A file of any size, concealed, in pieces that end with a line, and never inside a known secret."""
    waiting = read(_PIECE)
    covered = b"\0" in waiting[:_LOOKED_AT]
    while waiting:
        more = read(_PIECE)
        cut = _cut(waiting) if more else len(waiting)
        piece, waiting = waiting[:cut], waiting[cut:] + more
        if piece:
            yield conceal_bytes(b"\0" + piece)[1:] if covered else conceal_bytes(piece)


def _cut(data: bytes) -> int:
    """Where a piece may end: after its last line, else where no known secret is cut in two."""
    end = data.rfind(b"\n") + 1
    if end:
        return end
    longest = max((len(_as_bytes(value)) for value in secret_values()), default=0)
    return max(0, len(data) - max(longest, _LOOKED_AT))


def _without_shapes(text: str) -> str:
    for needed, pattern in _SECRETS:
        if any(part in text for part in needed):
            text = pattern.sub(HIDDEN, text)
    folded = text.lower()
    return _BEARER.sub(rf"\1 {HIDDEN}", text) if "bearer" in folded or "basic" in folded else text


def _without_opaque(text: str) -> str:
    """Looks for what is long and assigned, then at its name: the other way round, every word would be tried."""
    pieces, copied, at = [], 0, 0
    while found := _ASSIGNMENT.search(text, at):
        at = found.end()
        if _SECRET_NAME.search(text, max(0, found.start() - _LONGEST_NAME), found.start()):
            value = _OPAQUE.match(text, at)
            if value and _is_opaque(value.group()):
                pieces += [text[copied:at], HIDDEN]
                copied = value.end()
            at = value.end() if value else at  # no part of what is not opaque is: looked at once, not from each "="
    return "".join([*pieces, text[copied:]]) if pieces else text


def _is_opaque(value: str) -> bool:
    """Letters and digits mixed, as no word of a language is."""
    return sum(letter.isdigit() for letter in value) >= 2 and sum(letter.isalpha() for letter in value) >= 2


def one_line(text: str, limit: int = MESSAGE_LIMIT) -> str:
    """`text` redacted, its white space collapsed, cut to `limit` characters."""
    # Cut far above the limit first: messages can hold megabytes of command output.
    flat = " ".join(redact(text[: limit * 20]).split())
    return flat if len(flat) <= limit else flat[: limit - 1].rstrip() + "…"


def _hide_value(match: re.Match[str]) -> str:
    value = match.group(2)
    # Counts, flags and templates are not secrets: "max_tokens: 4096", "api_key: null", "KEY=${KEY}".
    bare = value.strip("\"'")
    if not bare or bare.isdigit() or bare.lower() in _PLAIN or bare.startswith(("$", HIDDEN[:-1])):
        return match.group(0)
    return match.group(1) + HIDDEN


_PLAIN = frozenset({"null", "none", "true", "false", "missing", "invalid", "required", "bearer"})

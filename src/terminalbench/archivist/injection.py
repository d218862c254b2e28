"""Words of a lesson that would give orders to the model that reads it, instead of telling what was learned. Pure.

Text may be written so that a check does not see it: in letters of other scripts, encodings, names instead of sentences.
The checks compare it as a reader sees it, too.
"""

import base64
import binascii
import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from urllib.parse import unquote


@dataclass(frozen=True)
class InjectionFinding:
    """What was found, and what it is."""

    found: str
    what: str


_TOLD = r"(?:instructions?|prompts?|rules?|messages?|guidelines?|orders|context|conversation|text|polic(?:y|ies))"
_WHOSE = r"(?:previous|prior|earlier|above|preceding|other|system|existing|operator'?s?|user'?s?|safety|developer'?s?)"
_WRITER = r"(?:memory (?:system|writer)|reflector|archivist|lesson writer|summari[sz]er)"
_ORDERS = re.compile(
    r"\b(?:ignore|disregard|forget|override|bypass|(?:do not|don't|never) (?:follow|obey)) "
    rf"(?:all |any |of |the |your |every )*(?:{_WHOSE} ){{1,2}}{_TOLD}\b"
    r"|\b(?:ignore|disregard|forget) (?:everything|all|anything) (?:above|before|said|you)\b"
    r"|\bremember(?: this)?\s*[:,-]|\bremember to always\b|\bfrom now on\b|\byou are now\b"
    r"|\bnew (?:system )?instructions?\b|\b(?:system|developer) prompt\b"
    r"|\b(?:add|write|store|save|put|keep|record) (?:this|the following|it)(?: rule| sentence| lesson| note)? "
    r"(?:to|in|into|as) (?:your |the |a |every )?(?:long-term )?(?:memory|lessons?)\b"
    r"|\b(?:add|write|output|emit|propose|record) (?:exactly |only )?(?:a|one|the following|this) lesson\b"
    rf"|\b(?:note|message|attention|to|dear|hey)\b[^.\n]{{0,20}}\b{_WRITER}\b|\b(?:reflector|archivist)\s*[:,]"
    r"|\bmark (?:this|it|the) (?:lesson )?(?:as )?active\b"
    r"|\bdo not (?:tell|mention|reveal|inform)\b|\b(?:as an ai|jailbreak|developer mode)\b"
    r"|\b(?:act|behave|respond) as (?:if you|though you|an? (?:unrestricted|different))\b"
    r"|\balways (?:report|claim|say|answer|print|output|reply)\b.{0,40}\b(?:success|passed|pass|done|correct|yes)\b",
    re.IGNORECASE,
)
_MARKUP = re.compile(
    r"<\|?/?(?:im_start|im_end|system|assistant|user|human|tool|tool_call|tool_use|tool_result|function_calls?|invoke|"
    r"\w+:invoke|\w+:function_calls|endoftext|thinking|instructions?|inst|data-steps)\b[^>\n]{0,80}\|?>"
    r"|\[/?INST\]|<<SYS>>|\"(?:tool_calls?|function_call|lessons)\"\s*:"
    r"|^\s*(?:#+\s*)?(?:do: |avoid: )?(?:system|assistant|human|user)\s*:"
    r"|\b(?:assistant|human): .*\b(?:user|human|assistant): ",
    re.IGNORECASE | re.MULTILINE,
)
_REMOTE_CODE = re.compile(
    r"\b(?:curl|wget)\b[^\n]{0,200}\|\s*(?:sudo\s+)?(?:ba|z|da)?sh\b|\b(?:ba)?sh\s+<\(\s*(?:curl|wget)\b"
    r"|\bbase64\s+(?:-d|--decode)\b[^\n]{0,80}\|\s*(?:ba)?sh\b|\beval\b[^\n]{0,20}\$\(\s*(?:curl|wget)\b",
    re.IGNORECASE,
)
_PRIVATE = (
    r"(?:credentials?|secrets?|(?:api|private|ssh|secret|access)[ _-]?keys?|(?:api|access|auth) tokens?|passwords?"
    r"|~?/?\.ssh\b|\.env\b|\.netrc|id_rsa|\$[A-Z_]*(?:KEY|TOKEN|SECRET))"
)
_GIVEN_AWAY = re.compile(
    rf"\b(?:send|upload|post|mail|leak|forward|exfiltrate|paste)\b[^.\n]{{0,60}}(?:{_PRIVATE}|\benvironment\b)"
    rf"|\b(?:print|echo|dump|include|append|cat|keep)\b[^.\n]{{0,60}}{_PRIVATE}[^\n]{{0,40}}"
    r"\b(?:in(?:to)? (?:the |your )?(?:output|answer|log|commit|report)|to (?:stdout|the (?:output|log|answer)))"
    rf"|\b(?:curl|wget|nc)\b[^\n]{{0,120}}{_PRIVATE}",
    re.IGNORECASE,
)
_CHECKS = r"(?:tests?|test (?:files?|suites?|cases?)|assertions?|asserts?|checks?|linters?|hooks?|verification)\b"
_WEAKENED = re.compile(
    r"\b(?:skip|disable|delete|remove|weaken|loosen|relax|bypass|drop|mute|comment out|turn off|switch off|xfail)\b"
    rf"(?: \w+){{0,4}} {_CHECKS}"
    rf"|\b(?:make|let) (?:the |all |every )?(?:failing )?{_CHECKS}[^.\n]{{0,20}} (?:pass|succeed|return)\b"
    r"[^.\n]{0,20}\b(?:anyway|always|early|unconditionally)\b"
    r"|--no-verify\b|@(?:unittest|pytest\.mark)\.(?:skip|xfail)"
    r"|\b(?:edit|change|rewrite|adapt) the (?:failing |given |existing )?tests? (?:until|so that|to)\b",
    re.IGNORECASE,
)
_NEGATED = re.compile(
    r"\b(?:not|never|don't|avoid|without|instead of|rather than|no)\b(?! (?:forget|hesitate|fail|need))[^.;:\n]{0,25}$",
    re.IGNORECASE,
)
_LOCAL = r"(?!(?:localhost|127\.0\.0\.1|\[::1\]|0\.0\.0\.0)\b)"
_ADDRESS = re.compile(rf"\b(?:https?|ftp|ssh|git)://{_LOCAL}[\w.-]+\.\w+|\b\w[\w.-]*@[\w-]+\.\w+:", re.IGNORECASE)
_WHAT = (
    (_ORDERS, "an instruction about the conversation"),
    (_MARKUP, "a marker of a role or a tool call"),
    (_REMOTE_CODE, "a program that is downloaded and run unseen"),
    (_ADDRESS, "a network address"),
)
_DEEDS = ((_GIVEN_AWAY, "an attempt to give away keys"), (_WEAKENED, "an attempt to weaken checks"))
"""Wrong where a lesson asks for them, right where it warns of them."""


def find_orders(text: str) -> Iterator[InjectionFinding]:
    """Yield what in a lesson is addressed to a model, or would do harm; each kind once."""
    if hidden := unseen(text):
        yield InjectionFinding(f"U+{ord(hidden):04X}", "an invisible character")
    if word := mixed_word(text):
        yield InjectionFinding(word, "a word that mixes two scripts")
    if said := next(decoded(text), None):
        yield InjectionFinding(said[:60], "an encoded text")
    read = plain(text)
    for pattern, what in _WHAT:
        if match := pattern.search(read):
            yield InjectionFinding(match.group().strip(), what)
    for pattern, what in _DEEDS:
        if match := next((found for found in pattern.finditer(read) if not _warned(read, found.start())), None):
            yield InjectionFinding(match.group().strip(), what)


def _warned(text: str, at: int) -> bool:
    """Return whether what stands there is warned of: what to avoid, or after a word that denies it."""
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line.startswith("Avoid:") or _NEGATED.search(line) is not None


_READ = re.compile(
    r"<\|?/?(?:im_start|im_end|endoftext|tool_call|function_calls?|\w+:invoke|\w+:function_calls|data-steps)\b"
    r"|\[/?INST\]|<<SYS>>|\"lessons\"\s*:",
    re.IGNORECASE,
)


def find_poison(texts: Iterable[str]) -> InjectionFinding | None:
    """The first order to a model in what an agent read or wrote; None where there is none.

    Only what no file of a project has by accident: a model that read it may have obeyed in words of its own.
    """
    for text in texts:
        read = plain(text)
        for one in (read, *decoded(read)):
            if match := _ORDERS.search(one) or _READ.search(one):
                return InjectionFinding(match.group().strip(), "an instruction to a model, which its agent had read")
    return None


_UNSEEN = re.compile(
    r"[\u00ad\u034f\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufe00-\ufe0f\ufeff"
    r"\U000e0000-\U000e01ef]"
)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""What acts on a terminal: all but line ends and tabs."""
_ALIKE = str.maketrans(
    "абвгдезікмнорстухцѕјһԁԛԝӏѵАВЕІЅЈКМНОРСТУХҮӀαβεικνορτυχγωΑΒΕΖΗΙΚΜΝΟΡΤΥΧ",
    "a6brdesikmhopctyxusjhdqwlvABEISJKMHOPCTYXYIaβeikvoptuxywABEZHIKMNOPTYX",
)
"""Letters of the Cyrillic and the Greek script as those of the Latin one that they look like."""
_LETTERS = re.compile(r"[^\W\d_]+")
_ENCODED = re.compile(r"(?<![\w+/=-])[A-Za-z0-9+/_-]{16,}={0,2}(?![\w+/=])")
_HEX = re.compile(r"(?<![0-9a-fA-F])(?:[0-9a-fA-F]{2}){10,}(?![0-9a-fA-F])")
_LONGEST = 20_000
_SEPARATORS = re.compile(r"[_./\\+=:-]+|(?<=[a-z])(?=[A-Z])")


def unseen(text: str) -> str | None:
    """The first character of a text that cannot be seen, or acts on a terminal; None where there is none."""
    found = _UNSEEN.search(text) or _CONTROL.search(text)
    return found.group() if found else None


def plain(text: str) -> str:
    """The text as a reader sees it: without unseen characters, with Latin letters for those that look like them."""
    seen = unicodedata.normalize("NFKC", _UNSEEN.sub("", text))
    if seen.isascii():
        return seen
    bare = "".join(c for c in unicodedata.normalize("NFD", seen) if not unicodedata.combining(c))
    return bare.translate(_ALIKE)


def mixed_word(text: str) -> str | None:
    """The first word with letters of the Latin and of another script that looks like it; None where there is none."""
    for match in _LETTERS.finditer(text):
        word = match.group()
        if not word.isascii():
            scripts = {unicodedata.name(letter, "").split(" ")[0] for letter in word}
            if "LATIN" in scripts and scripts & {"CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE"}:
                return word
    return None


def decoded(text: str) -> Iterator[str]:
    """Yield what parts of a text say that are encoded: base64, hexadecimal digits, percent signs."""
    text = text[:_LONGEST]
    for match in _ENCODED.finditer(text):
        blob = match.group().rstrip("=").replace("-", "+").replace("_", "/")
        try:
            said = base64.b64decode(blob + "=" * (-len(blob) % 4), validate=True)
        except binascii.Error:
            continue
        if (words := _readable(said)) is not None:
            yield words
    for match in _HEX.finditer(text):
        if (words := _readable(bytes.fromhex(match.group()))) is not None:
            yield words
    if text.count("%") > 2 and (words := unquote(text)) != text:
        yield words


def spread(text: str) -> str:
    """The text with the parts of names, paths and options as words of their own."""
    return _SEPARATORS.sub(" ", text)


def _readable(data: bytes) -> str | None:
    """Bytes as text, where they are words or a program; None of anything else."""
    try:
        said = data.decode()
    except UnicodeDecodeError:
        return None
    letters = sum(c.isalpha() or c == " " for c in said)
    written = said.isascii() and all(c.isprintable() or c in "\n\r\t" for c in said)
    return said if len(said) >= 10 and " " in said and (written or letters >= 0.8 * len(said)) else None

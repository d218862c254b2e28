"""Words of a lesson that would give orders to the model that reads it, instead of telling what was learned. Pure."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from terminalbench.archivist.obfuscation import decoded, mixed_word, plain, unseen


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

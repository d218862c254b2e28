"""Text that agents, models, tasks and tools wrote, made fit to be shown: it must not act or hide. Pure."""

import re
from collections.abc import Iterable
from unicodedata import category

_COLOUR = re.compile(r"\x1b\[[0-9;:]*m")
_UNSEEN = re.compile(r"[^\x20-\x7e\n]")


def visible(text: str) -> str:
    """The text with its line ends and tabs; terminal colours are dropped, and what would act or hide is a visible mark.

    A control character is its picture, a half character is `�`, any other unseen one is `[U+202E]`.
    """
    if text.isprintable():
        return text
    lines = _COLOUR.sub("", text.replace("\r\n", "\n")).split("\n")
    return "\n".join(one if one.isprintable() else "".join(map(_shown, one)) for one in lines)


def printable(text: object) -> str:
    """The text as one line that cannot drive a terminal: line ends are pictures too."""
    return visible(str(text)).replace("\n", "␊")


def printable_list(text: str) -> str:
    """A message whose items stand on indented lines of their own: no other line end of it makes a line."""
    return "\n  ".join(map(printable, text.split("\n  ")))


def printable_json(text: str) -> str:
    """JSON that says the same and cannot drive a terminal: what would act or hide is written as its escape."""
    return text if text.isprintable() else _UNSEEN.sub(_escaped, text)


def flat(text: str, limit: int | None = None) -> str:
    """The text as one line with single spaces, of at most `limit` characters."""
    return cut(" ".join(visible(text).split()), limit)


def cut(text: str, limit: int | None) -> str:
    """The text with at most `limit` characters; the end gives way to `…`."""
    return text if limit is None or len(text) <= limit else text[: limit - 1].rstrip() + "…"


def brief(text: str, limit: int) -> str:
    """Return a text as one line; where it is longer than `limit`, what a parenthesis adds goes first."""
    whole = flat(text)
    return cut(whole if len(whole) <= limit else whole.partition(" (")[0], limit)


def ended(text: str, kept: str) -> str:
    """The beginning of a text that fits, `kept`, ended between words: a cut one goes, unless it is half of all."""
    whole = kept.rpartition(" ")[0]
    at_word = text[len(kept) : len(kept) + 1].isspace() or 2 * len(whole) < len(kept)
    return (kept if at_word else whole).rstrip(" ,;:(") + "…"


def short(text: str, limit: int) -> str:
    """One line of at most `limit` characters; the middle gives way, for names often differ at their ends."""
    text = flat(text)
    if len(text) <= limit:
        return text
    head = (limit - 1) // 2
    return f"{text[:head]}…{text[len(text) - (limit - 1 - head) :]}"


def shortened(names: Iterable[str], limit: int) -> dict[str, str]:
    """Names of a table, each in at most `limit` characters, and no two alike; as they are where that cannot be.

    The ends give way; where names differ only there, their middles.
    """
    known = list(dict.fromkeys(names))
    for way in (cut, short):
        made = {name: way(printable(name), limit) for name in known}
        if len(set(made.values())) == len(known):
            return made
    return {name: name for name in known}


def _shown(character: str) -> str:
    if character.isprintable() or character == "\t":
        return character
    code = ord(character)
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "␡"
    if category(character) == "Zs":  # a space of another width
        return " "
    return "�" if 0xD800 <= code <= 0xDFFF else f"[U+{code:04X}]"


def _escaped(found: re.Match[str]) -> str:
    character = found.group()
    if character.isprintable():
        return character
    units = character.encode("utf-16-be", errors="surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))

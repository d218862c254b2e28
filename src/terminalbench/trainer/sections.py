"""A prompt as named sections, so that it changes by parts and never as a whole. Pure.

A section begins with a line `## title`; what stands before the first has the empty title. Prompts that are rewritten as
a whole lose what they knew; a change here names the sections that it adds, replaces or removes.
"""

import re
from collections.abc import Mapping

LONGEST = 8_000
"""Characters of a prompt: beyond that more text has only made agents worse and dearer."""
_HEAD = re.compile(r"^## +(\S.*?) *$", re.MULTILINE)


def sections_of(text: str) -> dict[str, str]:
    """The sections of a prompt, in order. Two of one title are joined."""
    found: dict[str, str] = {}
    marks = [*_HEAD.finditer(text)]
    starts = [("", 0), *((mark[1], mark.end()) for mark in marks)]
    ends = [*(mark.start() for mark in marks), len(text)]
    for (title, start), end in zip(starts, ends, strict=True):
        part = text[start:end].strip()
        if title in found:
            part = "\n\n".join(filter(None, (found[title], part)))
        if part or title:
            found[title] = part
    return found


def text_of(sections: Mapping[str, str]) -> str:
    """The prompt with these sections."""
    ordered = sorted(sections.items(), key=lambda item: item[0] != "")  # what has no title stands first
    parts = [f"## {title}\n\n{text.strip()}" if title else text.strip() for title, text in ordered]
    return "\n\n".join(part.rstrip() for part in parts if part.strip()) + "\n"


def edited(text: str, changes: Mapping[str, str]) -> str:
    """A prompt with sections added, replaced, or, with an empty text, removed."""
    sections = sections_of(text)
    for title, part in changes.items():
        if part.strip():
            sections[title.strip()] = part
        else:
            sections.pop(title.strip(), None)
    return text_of(sections)

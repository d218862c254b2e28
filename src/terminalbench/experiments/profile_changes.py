"""In what two profiles differ, aspect by aspect, or two plans, place by place, and how that is said."""

import json
from collections.abc import Iterator, Mapping, Sequence
from difflib import unified_diff
from itertools import zip_longest
from typing import Any

from terminalbench.frozen import frozen
from terminalbench.text.numbers import noun, some

_BEFORE, _SHOWN, _LETTERS = 12, 40, 60


def changed_places(old: Any, new: Any) -> list[str]:
    """Every value that differs, each with its path: `variants[2].options.max_turns: 4 -> 9`."""
    return [Difference(path, before, after).summary() for path, before, after in _differing(old, new, "")]


def _differing(old: Any, new: Any, at: str) -> Iterator[tuple[str, Any, Any]]:
    if old == new:
        return
    if isinstance(old, dict) and isinstance(new, dict):
        for name in dict.fromkeys([*old, *new]):
            yield from _differing(old.get(name), new.get(name), f"{at}.{name}" if at else name)
    elif isinstance(old, list) and isinstance(new, list):
        for index, (before, after) in enumerate(zip_longest(old, new)):
            yield from _differing(before, after, f"{at}[{index}]")
    elif isinstance(old, str) and isinstance(new, str) and "\n" not in old + new:
        first = next(place for place, (one, other) in enumerate(zip_longest(old, new)) if one != other)
        yield at, _around(old, first), _around(new, first)
    else:
        yield at, old, new


def _around(text: str, place: int) -> str:
    """A long text where it begins to differ."""
    if len(text) <= _BEFORE + _SHOWN:
        return text
    first, last = max(0, place - _BEFORE), place + _SHOWN
    return f"{'...' if first else ''}{text[first:last]}{'...' if last < len(text) else ''}"


_SINCE = {2: ("agent_code", "option_files", "conditions"), 3: ("environment_code",), 4: ("mounts",)}
"""The aspects that a recipe added."""
ON_DISK = (
    "agent_code", "environment_code", "option_files", "skills", "mcp_code", "command_files", "mounts", "programs",
)  # fmt: skip
"""Aspects that are digests of files which a trial reads when it starts; a JobConfig holds all others itself."""
_LESSONS = "lessons"
_SHOWN_FILES = 4


@frozen
class Difference:
    """One aspect in which two profiles differ. None means the profile does not set it."""

    aspect: str
    old: Any
    new: Any

    @property
    def on_disk(self) -> bool:
        """Return whether it is in files that a trial reads when it starts."""
        return self.aspect.partition(".")[0] in ON_DISK

    def summary(self) -> str:
        """One line: short values in full, texts as a count of changed lines."""
        if isinstance(self.old, str) and isinstance(self.new, str) and "\n" in self.old + self.new:
            return f"{self.aspect}: {_changed(self.lines())}"
        if self.old is None:
            return f"{self.aspect}: + {_said(self.aspect, self.new)}"
        if self.new is None:
            return f"{self.aspect}: - {_said(self.aspect, self.old)}"
        return f"{self.aspect}: {_brief(self.old)} -> {_brief(self.new)}"

    def lines(self) -> list[str]:
        """A unified diff of the two values."""
        old, new = value_text(self.old).splitlines(), value_text(self.new).splitlines()
        return list(unified_diff(old, new, lineterm="", n=3))[2:]


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Difference]:
    """Return what makes `new` content another treatment than `old`, in a fixed order; empty for equal ids."""
    before, after = dict(_aspects(old, new)), dict(_aspects(new, old))
    names = list(dict.fromkeys([*before, *after]))
    return [Difference(n, before.get(n), after.get(n)) for n in names if before.get(n) != after.get(n)]


def summaries(found: Sequence[Difference]) -> list[str]:
    """A line for each difference; one for all files of an aspect where they are more than a few."""
    lines: dict[str, list[Difference]] = {}
    for one in found:
        lines.setdefault(one.aspect.partition(".")[0] if one.on_disk else one.aspect, []).append(one)
    told = []
    for aspect, inner in lines.items():
        names = [one.aspect.partition(".")[2] for one in inner]
        many = f"{aspect}: {len(inner)} files differ: {some(names, _SHOWN_FILES)}"
        told += [many] if len(inner) > _SHOWN_FILES else [one.summary() for one in inner]
    return told


def changes_since(planned: Mapping[str, Any], recipe: int, now: Mapping[str, Any]) -> list[Difference]:
    """Return what makes `now` another treatment than planned; what an earlier recipe did not record is unknown."""
    known = ({name: value for name, value in content.items() if tells(recipe, name)} for content in (planned, now))
    return differences(*known)


def tells(recipe: int, aspect: str) -> bool:
    """Return whether a profile that was planned by `recipe` would have the aspect; else nothing is known of it."""
    return all(recipe >= since for since, names in _SINCE.items() if aspect in names)


def _aspects(content: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Tables one level down, so that one changed option shows alone; lessons that only one of them has are whole."""
    for name, value in content.items():
        whole = name == "hooks" or (name == _LESSONS and name not in other)
        if isinstance(value, dict) and not whole:
            yield from ((f"{name}.{inner}", item) for inner, item in value.items())
        else:
            yield name, value


def value_text(value: Any) -> str:
    """A value as text: a text as it is, anything else as JSON, nothing as nothing."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False)


def _said(aspect: str, value: Any) -> str:
    """Return what a profile has and the other has not: lessons with all that was set for them."""
    return ", ".join(f"{name} {one}" for name, one in value.items()) if aspect == _LESSONS else _brief(value)


def _brief(value: Any) -> str:
    if isinstance(value, str):
        lines = value.splitlines()
        if len(lines) > 1:
            return f"{len(lines)} lines"
        text = value
    else:
        text = json.dumps(value, ensure_ascii=False, sort_keys=True)
    return text if len(text) <= _LETTERS else f"{text[: _LETTERS - 3]}..."


def _changed(lines: list[str]) -> str:
    added = sum(line.startswith("+") for line in lines)
    removed = sum(line.startswith("-") for line in lines)
    return f"+{added} -{removed} {noun(added + removed, 'line')}"

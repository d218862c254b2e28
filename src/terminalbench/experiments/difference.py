"""What differs between two profiles: aspect by aspect, texts and configurations line by line. Pure."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import unified_diff
from typing import Any, Protocol


class Treatment(Protocol):
    """A profile, or the record of one in a plan: all that its id is made of."""

    @property
    def content(self) -> dict[str, Any]:
        """Aspect by aspect."""
        ...


@dataclass(frozen=True)
class Difference:
    """One aspect in which two profiles differ. None means the profile does not set it."""

    aspect: str
    old: Any
    new: Any

    def summary(self) -> str:
        """One line: short values in full, texts as a count of changed lines."""
        if isinstance(self.old, str) and isinstance(self.new, str) and "\n" in self.old + self.new:
            return f"{self.aspect}: {_changed(self.lines())}"
        if self.old is None:
            return f"{self.aspect}: + {_brief(self.new)}"
        if self.new is None:
            return f"{self.aspect}: - {_brief(self.old)}"
        return f"{self.aspect}: {_brief(self.old)} -> {_brief(self.new)}"

    def lines(self) -> list[str]:
        """A unified diff of the two values."""
        old, new = value_text(self.old).splitlines(), value_text(self.new).splitlines()
        return list(unified_diff(old, new, lineterm="", n=3))[2:]


def differences(old: Treatment, new: Treatment) -> list[Difference]:
    """What makes `new` another treatment than `old`, in a fixed order; empty for equal ids."""
    before, after = dict(_aspects(old.content)), dict(_aspects(new.content))
    names = list(dict.fromkeys([*before, *after]))
    return [Difference(n, before.get(n), after.get(n)) for n in names if before.get(n) != after.get(n)]


def _aspects(content: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Tables one level down, so that one changed option shows alone."""
    for name, value in content.items():
        if isinstance(value, dict) and name != "hooks":
            yield from ((f"{name}.{inner}", item) for inner, item in value.items())
        else:
            yield name, value


def value_text(value: Any) -> str:
    """A value as text: a text as it is, anything else as JSON, nothing as nothing."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False)


def _brief(value: Any, limit: int = 60) -> str:
    if isinstance(value, str):
        lines = value.splitlines()
        if len(lines) > 1:
            return f"{len(lines)} lines"
        text = value
    else:
        text = json.dumps(value, ensure_ascii=False, sort_keys=True)
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def _changed(lines: list[str]) -> str:
    added = sum(line.startswith("+") for line in lines)
    removed = sum(line.startswith("-") for line in lines)
    return f"+{added} -{removed} lines"

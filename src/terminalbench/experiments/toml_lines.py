"""On which line of a TOML file each key stands. Pure; for a text that `tomllib` has taken."""

import re
import tomllib
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from terminalbench.errors import InvalidFile, Problem
from terminalbench.strict import join

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_STRING = re.compile(
    r"'''.*?'''(?:'{0,2})|\"\"\"(?:[^\\]|\\.)*?\"\"\"(?:\"{0,2})|'[^'\n]*'|\"(?:[^\"\\\n]|\\.)*\"", re.DOTALL
)
_SPACE = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_SCALAR = re.compile(r"[^,\]}\n#]*")


def key_lines(text: str) -> dict[str, int]:
    """The line of every key, by its dotted name as problems have it: `tasks.items[2].id`."""
    scanner = _Scanner(text.removeprefix("\ufeff"))
    with suppress(_UnknownShape, IndexError, ValueError):  # what was found before it stays right
        scanner.document()
    return scanner.lines


def line_of(lines: dict[str, int], key: str) -> int | None:
    """The line of a key; where the file does not have it, that of the nearest table or list around it."""
    while key:
        if key in lines:
            return lines[key]
        shorter = re.sub(r'(\.("(?:[^"\\]|\\.)*"|[^."\[]+)|\[\d+\])$', "", key)
        key = shorter if shorter != key else ""
    return None


def invalid_file(file: Path, problems: Sequence[Problem], text: str | None = None) -> InvalidFile:
    """The error with all problems of a file or its new `text`, each with the line of its key, in the order of lines."""
    try:
        lines = key_lines(file.read_text(encoding="utf-8-sig") if text is None else text)
    except (OSError, ValueError):  # tables that are in no file
        lines = {}
    placed = sorted(((line_of(lines, one.key), one) for one in problems), key=lambda at: at[0] or 0)
    return InvalidFile(str(file), [one for _, one in placed], [line for line, _ in placed])


class _UnknownShape(Exception):
    """A text that is written in a way which is not known here."""


class _Scanner:
    def __init__(self, text: str) -> None:
        self.text = text
        self.place = 0
        self.lines: dict[str, int] = {}
        self.breaks = [match.start() for match in re.finditer("\n", text)]
        self.tables: Counter[str] = Counter()

    def document(self) -> None:
        table = ""
        self._skip()
        while self.place < len(self.text):
            if self.text.startswith("[", self.place):
                table = self._header()
            else:
                self._pair(table)
            self._skip()

    def _header(self) -> str:
        is_list = self.text.startswith("[[", self.place)
        start, self.place = self.place, self.place + (2 if is_list else 1)
        names = self._names()
        self.place = self.text.index("]", self.place) + (2 if is_list else 1)
        at = ""
        for name in names[:-1]:
            at = join(at, name)
            at = f"{at}[{self.tables[at] - 1}]" if at in self.tables else at
            self._note(at, start)
        at = join(at, names[-1])
        self._note(at, start)
        if is_list:
            self.tables[at] += 1
            at = f"{at}[{self.tables[at] - 1}]"
            self._note(at, start)
        return at

    def _pair(self, table: str) -> None:
        start = self.place
        at = table
        for name in self._names():
            at = join(at, name)
            self._note(at, start)
        self.place = self.text.index("=", self.place) + 1
        self._skip()
        self._value(at)

    def _value(self, at: str) -> None:
        opening = self.text[self.place]
        if opening in "[{":
            self.place += 1
            self._items(at, "]" if opening == "[" else "}")
        elif opening in "\"'":
            self._take(_STRING)
        else:
            self._take(_SCALAR)

    def _items(self, at: str, closing: str) -> None:
        index = 0
        self._skip()
        while self.text[self.place] != closing:
            if closing == "]":
                self._note(f"{at}[{index}]", self.place)
                self._value(f"{at}[{index}]")
            else:
                self._pair(at)
            index += 1
            self._skip()
            if self.text[self.place] == ",":
                self.place += 1
                self._skip()
        self.place += 1

    def _names(self) -> list[str]:
        names = []
        while True:
            self._skip()
            quoted = self.text[self.place] in "\"'"
            name = self._take(_STRING if quoted else _BARE)
            names.append(next(iter(tomllib.loads(f"{name} = 0"))) if quoted else name)
            self._skip()
            if not self.text.startswith(".", self.place):
                return names
            self.place += 1

    def _skip(self) -> None:
        self._take(_SPACE)

    def _take(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self.text, self.place)
        if found is None:
            raise _UnknownShape
        self.place = found.end()
        return found[0]

    def _note(self, at: str, place: int) -> None:
        self.lines.setdefault(at, bisect_left(self.breaks, place) + 1)

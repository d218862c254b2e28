"""What a page is asked, and what it answers: a page is a function `(site, ask) -> Page`."""

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from terminalbench.index.pages import SortOrder

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


class NotFound(Exception):
    """There is no such page; the message says what is missing."""


class Redirect(Exception):
    """The page has another address: this path, with the words of `query`."""

    def __init__(self, path: str, query: Mapping[str, str]) -> None:
        super().__init__(path)
        self.path = path
        self.query = query


@dataclass(frozen=True)
class PageRequest:
    """A question: the path, the parts of it a page is about, and the query. `static`: asked by an export.

    `data`: it is about the numbers of the page as a file, which have to be whole.
    """

    path: str
    parts: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)
    static: bool = False
    data: bool = False

    def text(self, name: str) -> str:
        """A word of the query, "" when it is not given."""
        return self.query.get(name, "").strip()

    def number(self, name: str, default: int = 1) -> int:
        """A whole number of the query, at least 1."""
        word = self.text(name)
        return max(1, int(word)) if word.isascii() and word.isdecimal() and len(word) < 10 else default

    def order(self) -> SortOrder:
        """Return how a list is to be sorted: `sort=cost`, or `sort=-cost` for the largest first."""
        word = self.text("sort")
        return SortOrder(word.removeprefix("-"), word.startswith("-"))

    @property
    def batch(self) -> str:
        """The key of the batch in the path."""
        return "." if self.parts["slug"] == FOREIGN else f"{self.parts['slug']}/{self.parts['number']}"

    @property
    def feed(self) -> str:
        """Return the name of what a page of this path tells changes of: a batch, a trial, nights, lessons, or "" for
        the list of batches.

        A trial is its batch, `TRIAL`, its job, a slash and its name.
        """
        own = next((section for section in (NIGHTS, LESSONS, TRAININGS) if self.path.startswith(section)), None)
        if own is not None:
            return own
        if not {"slug", "number"} <= self.parts.keys():
            return ""
        one = {"job", "trial"} <= self.parts.keys() and "job2" not in self.parts
        return f"{self.batch}{TRIAL}{self.parts['job']}/{self.parts['trial']}" if one else self.batch


NIGHTS = "nights/"
"""The path of the nights, and what the feed is called that tells when one of them changes."""
LESSONS = "lessons/"
"""The same of the lessons."""
TRAININGS = "trainings/"
"""The same of the trainings."""
TRIAL = "//"
FOREIGN = "~"
"""Stands in a path for a folder of Harbor jobs that belong to no experiment."""


@dataclass(frozen=True)
class CsvTable:
    """Rows for a CSV file."""

    columns: Sequence[str]
    rows: Iterable[Sequence[Any]]

    @classmethod
    def of(cls, items: Iterable[Any], columns: Mapping[str, Any]) -> "CsvTable":
        """A row an item: each column is a path of attributes (None where one on the way is), or a function of it."""
        return cls(list(columns), [[_at(item, path) for path in columns.values()] for item in items])

    def csv(self) -> bytes:
        """Return the table as CSV; text that a spreadsheet would run as a formula is quoted with an apostrophe."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows([_cell(value) for value in row] for row in self.rows)
        return out.getvalue().encode("utf-8", "replace")


def _at(item: Any, path: str | Callable[[Any], Any]) -> Any:
    if callable(path):
        return path(item)
    for name in path.split("."):
        item = getattr(item, name) if item is not None else None
    return item


def _cell(value: Any) -> Any:
    if isinstance(value, str):
        return f"'{value}" if value.startswith(_FORMULA) else value
    return value


@dataclass(frozen=True)
class Crumb:
    """A step on the way from home to a page."""

    label: str
    path: str


@dataclass(frozen=True)
class Page:
    """What a page shows (`template` with `values`) and what can be downloaded from it.

    `feed` is the path of the events that say when to look again; `crumbs` lead to it. `left_out` are the files that an
    export does not have of it, each with why.
    """

    title: str
    template: str
    values: Mapping[str, Any]
    crumbs: Sequence[Crumb] = ()
    tables: Mapping[str, Callable[[], CsvTable]] = field(default_factory=dict)
    document: Callable[[], Any] | None = None
    feed: str | None = None
    section: str = ""
    left_out: Sequence[str] = ()


@dataclass(frozen=True)
class OpenFile:
    """A plain file below the results root, opened safely: its descriptor (the receiver closes it) and its size."""

    handle: int
    size: int


@dataclass(frozen=True)
class Download:
    """Bytes, or a file to be sent as it is. Always an attachment: nothing in it is ever run by a browser."""

    name: str
    media: str
    body: bytes | None = None
    file: OpenFile | None = None

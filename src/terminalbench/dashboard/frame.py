"""What a page is asked, and what it answers: a page is a function `(site, ask) -> Page`.

Every address of the site is here, and links that work from any file server: always relative to the page they are on.
"""

import csv
import io
import posixpath
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any
from urllib.parse import quote, urlencode

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


@lru_cache(maxsize=4096)
def _segment(text: str) -> str:
    return quote(text, safe="", errors="surrogateescape")


def batch_path(batch: str) -> str:
    """The page of a batch, by its key."""
    slug, number = (FOREIGN, "0") if batch == "." else batch.split("/", 1)
    return f"batches/{_segment(slug)}/{_segment(number)}/"


def charts_path(batch: str) -> str:
    """The charts of a batch of SWE-Bench Pro."""
    return f"{batch_path(batch)}charts/"


def experiment_path(slug: str) -> str:
    """The page of an experiment: all its batches."""
    return f"experiments/{_segment(slug)}/"


def night_path(name: str) -> str:
    """The page of a night, by what it is called."""
    return f"nights/{_segment(name)}/"


def night_results_path(name: str) -> str:
    """Return where the pages of a night's own results begin: its batches and trials have the addresses that others
    have."""
    return f"{night_path(name)}results/"


def lesson_path(name: str) -> str:
    """The page of a lesson, by its id."""
    return f"lessons/{_segment(name)}/"


def training_path(name: str) -> str:
    """The page of a training, by its slug."""
    return f"trainings/{_segment(name)}/"


def trial_path(batch: str, job: str, name: str) -> str:
    """The page of a trial."""
    return f"{batch_path(batch)}trials/{_segment(job)}/{_segment(name)}/"


def steps_path(trial: str, document: int, page: int) -> str:
    """A page of a trial's trajectory; the first page of the first document is the trial's own."""
    return trial if (document, page) == (1, 1) else f"{trial}steps/{document}/{page}/"


def file_path(trial: str, name: str, *, raw: bool = False) -> str:
    """A file of a trial: shown, or as it is."""
    shown = "/".join(_segment(part) for part in name.split("/"))
    return f"{trial}raw/{shown}" if raw else f"{trial}files/{shown}/"


def pair_path(one: str, other: str) -> str:
    """Two trials side by side, from the paths of their pages."""
    return "side-by-side/" + "".join(path.removeprefix("batches/").replace("/trials/", "/", 1) for path in (one, other))


def compare_path(new: tuple[str, str], old: tuple[str, str]) -> str:
    """Two profiles, each with its batch, compared."""
    sides = (f"{batch_path(batch).removeprefix('batches/')}{_segment(profile)}/" for batch, profile in (new, old))
    return "compare/" + "".join(sides)


def why_path(batch: str, new: str, old: str) -> str:
    """Return why two profiles of a batch differ."""
    return f"why/{batch_path(batch).removeprefix('batches/')}{_segment(new)}/{_segment(old)}/"


@dataclass
class Links:
    """Links of the page at `here`. In an exported site a page is a file `index.html`, and there are no queries.

    `absolute` is for a page that may be shown at any address, such as the one that says there is none. Where `prefix`
    is not empty the page belongs to the results of a night, which begin there.
    """

    here: str
    static: bool = False
    absolute: bool = False
    prefix: str = ""
    met: list[str] = field(default_factory=list)

    def to(self, path: str, fragment: str = "", **query: Any) -> str:
        """The link from here to `path`, of the same results."""
        return self.site(self.prefix + path, fragment, **query)

    def site(self, path: str, fragment: str = "", **query: Any) -> str:
        """The link from here to `path` of the whole site."""
        self.met.append(path)
        if self.absolute:
            return f"/{path}"
        target = path
        if self.static and (not path or path.endswith("/")):
            target += "index.html"
        start = (self.prefix + self.here).rpartition("/")[0] or "."
        if target.startswith(f"{start}/") and "//" not in target and "/." not in target:  # the most, and the quickest
            link = target[len(start) + 1 :]
        else:
            link = posixpath.relpath(target or ".", start)
            if target.endswith("/") or not target:
                link += "/"
        if not link.startswith("../"):
            link = f"./{link.removeprefix('./')}"
        words = {name: value for name, value in query.items() if value not in (None, "")}
        if words and not self.static:
            link += f"?{urlencode(words)}"
        return f"{link}#{quote(fragment)}" if fragment else link

    def asset(self, name: str) -> str:
        """A file of the package."""
        return self.site(f"assets/{name}")

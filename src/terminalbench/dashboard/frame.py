"""The frame that pages hang on: what a page is asked, what it answers, and how a path finds its page.

A page is a function `(site, ask) -> Page`. Its tables and its document are downloads beside it (`<page>/<table>.csv`,
`<page>/data.json`), in the served site and in an exported one alike; nothing else is needed to add a page than a
module, a template and a line in `ROUTES` of `answers`.
"""

import csv
import io
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

if TYPE_CHECKING:
    from terminalbench.dashboard.site import Site

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


class NotFound(Exception):
    """There is no such page; the message says what is missing."""


class Moved(Exception):
    """The page has another address: this path, with the words of `query`."""

    def __init__(self, path: str, query: Mapping[str, str]) -> None:
        super().__init__(path)
        self.path = path
        self.query = query


@dataclass(frozen=True)
class Ask:
    """A question: the path, the parts of it a page is about, and the query. `static`: asked by an export."""

    path: str
    parts: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)
    static: bool = False

    def text(self, name: str) -> str:
        """A word of the query, "" when it is not given."""
        return self.query.get(name, "").strip()

    def number(self, name: str, default: int = 1) -> int:
        """A whole number of the query, at least 1."""
        word = self.text(name)
        return max(1, int(word)) if word.isascii() and word.isdecimal() and len(word) < 10 else default

    @property
    def batch(self) -> str:
        """The key of the batch in the path."""
        return "." if self.parts["slug"] == FOREIGN else f"{self.parts['slug']}/{self.parts['number']}"


FOREIGN = "~"
"""Stands in a path for a folder of Harbor jobs that belong to no experiment."""


@dataclass(frozen=True)
class Table:
    """Rows for a CSV file."""

    columns: Sequence[str]
    rows: Iterable[Sequence[Any]]

    def csv(self) -> bytes:
        """As CSV; text that a spreadsheet would run as a formula is quoted with an apostrophe."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows([_cell(value) for value in row] for row in self.rows)
        return out.getvalue().encode("utf-8", "replace")


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

    `feed` is the path of the events that say when to look again; `crumbs` lead to it.
    """

    title: str
    template: str
    values: Mapping[str, Any]
    crumbs: Sequence[Crumb] = ()
    tables: Mapping[str, Callable[[], Table]] = field(default_factory=dict)
    document: Callable[[], Any] | None = None
    feed: str | None = None
    section: str = ""


@dataclass(frozen=True)
class Download:
    """Bytes, or a file to be sent as it is. Always an attachment: nothing in it is ever run by a browser."""

    name: str
    media: str
    body: bytes | None = None
    file: "OpenFile | None" = None


@dataclass(frozen=True)
class OpenFile:
    """A plain file below the results root, opened safely: its descriptor (the receiver closes it) and its size."""

    handle: int
    size: int


type Answer = Page | Download
type Handler = Callable[["Site", Ask], Answer]


@dataclass(frozen=True)
class Route:
    """A path pattern and its page: `batches/{slug}/{number}/`; a last `{name...}` takes the rest of the path."""

    pattern: str
    handler: Handler

    def match(self, segments: Sequence[str]) -> dict[str, str] | None:
        """The parts of a path that fits, None for one that does not."""
        wanted = [part for part in self.pattern.split("/") if part]
        parts: dict[str, str] = {}
        for position, part in enumerate(wanted):
            if part.endswith("...}"):
                rest = segments[position:]
                if not rest:
                    return None
                parts[part[1:-4]] = "/".join(rest)
                return parts
            if position >= len(segments):
                return None
            if part.startswith("{"):
                parts[part[1:-1]] = segments[position]
            elif part != segments[position]:
                return None
        return parts if len(segments) == len(wanted) else None


_DOWNLOAD = re.compile(r"(?P<name>[a-z][a-z0-9_-]*)\.(?P<kind>csv|json)")


@dataclass(frozen=True)
class Asked:
    """A path taken apart: the page it belongs to, and the download of that page that is meant, if one is."""

    route: Route
    ask: Ask
    download: tuple[str, str] | None = None


def find_page(routes: Sequence[Route], path: str, query: Mapping[str, str], *, static: bool = False) -> Asked:
    """Which page a (percent-encoded) path means. Raises NotFound, and Moved for another spelling of its address.

    A page has one address, with a slash at its end: its links are relative to it.
    """
    names = [part for part in path.split("/") if part]
    segments = [unquote(part, errors="surrogateescape") for part in names]
    for segment in segments:
        if segment in (".", "..") or "/" in segment or "\0" in segment:
            raise NotFound("no such page")
    if path and not path.endswith("/"):
        meant = _DOWNLOAD.fullmatch(segments[-1]) if segments else None
        parent = path.rpartition("/")[0]
        for route in routes:
            parts = route.match(segments)
            if parts is not None and route.pattern.endswith("...}"):
                return Asked(route, Ask(path, parts, query, static))
        if meant is not None:
            for route in routes:
                parts = route.match(segments[:-1])
                if parts is not None and not route.pattern.endswith("...}"):
                    ask = Ask(f"{parent}/" if parent else "", parts, query, static)
                    return Asked(route, ask, (meant["name"], meant["kind"]))
    for route in routes:
        parts = route.match(segments)
        if parts is not None:
            address = "".join(f"{name}/" for name in names)
            if path != address and not route.pattern.endswith("...}"):
                raise Moved(address, query)
            return Asked(route, Ask(path, parts, query, static))
    raise NotFound("no such page")

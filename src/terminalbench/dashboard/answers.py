"""From an address to bytes, without a server: for a browser, and for an export of the whole site as files.

An export has every page reachable from home, with relative links, for any file server or none.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import unquote
from zipfile import ZIP_DEFLATED, ZipFile

from starlette.routing import Match, Route

from terminalbench.dashboard.frame import (
    LESSONS,
    NIGHTS,
    TRAININGS,
    Download,
    Links,
    NotFound,
    OpenFile,
    Page,
    PageRequest,
    Redirect,
)
from terminalbench.dashboard.pages.batch import batch_page
from terminalbench.dashboard.pages.compare import choose_page, compare_page, why_page
from terminalbench.dashboard.pages.files import EXPORTED_BYTES, batch_file, file_page, raw_file
from terminalbench.dashboard.pages.lessons import lesson_page, lessons_page
from terminalbench.dashboard.pages.lists import experiment_page, experiments_page, home_page, trials_page
from terminalbench.dashboard.pages.nights import night_page, nights_page, training_page, trainings_page
from terminalbench.dashboard.pages.side import side_page
from terminalbench.dashboard.pages.trial import raw_step, trial_page
from terminalbench.dashboard.pages.verdicts import charts_page
from terminalbench.dashboard.render import render
from terminalbench.dashboard.site import Site
from terminalbench.errors import UserError
from terminalbench.files import write_bytes
from terminalbench.index.scan import scan_all
from terminalbench.json_files import encode_json
from terminalbench.report.charts import chart_css
from terminalbench.secrets.containers import OmissionReason, exportable
from terminalbench.text.screen import tell

ASSETS = {
    "charts.css": "text/css",
    "tbench.css": "text/css",
    "tbench.js": "text/javascript",
    "icon.svg": "image/svg+xml",
}
_TRIAL = "/batches/{slug}/{number}/trials/{job}/{trial}/"
_PAIR = "/side-by-side/{slug}/{number}/{job}/{trial}/{slug2}/{number2}/{job2}/{trial2}/"

type Handler = Callable[[Site, PageRequest], Page | Download]

PAGES: dict[str, Handler] = {
    "/": home_page,
    "/experiments/": experiments_page,
    "/experiments/{slug}/": experiment_page,
    "/trials/": trials_page,
    "/batches/{slug}/{number}/": batch_page,
    "/batches/{slug}/{number}/charts/": charts_page,
    _TRIAL: trial_page,
    f"{_TRIAL}steps/{{document}}/{{page}}/": trial_page,
    "/compare/": choose_page,
    "/compare/{slug}/{number}/{profile}/{slug2}/{number2}/{profile2}/": compare_page,
    "/why/{slug}/{number}/{profile}/{profile2}/": why_page,
    "/nights/": nights_page,
    "/nights/{night}/": night_page,
    "/lessons/": lessons_page,
    "/lessons/{lesson}/": lesson_page,
    "/trainings/": trainings_page,
    "/trainings/{training}/": training_page,
    _PAIR: side_page,
    f"{_PAIR}{{page}}/": side_page,
}
"""Each has its tables and its document as downloads: `<page>/<table>.csv` and `<page>/data.json`."""
FILES: dict[str, Handler] = {
    "/batches/{slug}/{number}/files/{path:path}": batch_file,
    f"{_TRIAL}files/{{path:path}}": file_page,
    f"{_TRIAL}raw/{{path:path}}": raw_file,
    f"{_TRIAL}step-text/{{path:path}}": raw_step,
}
ROUTES = [
    *(Route(path, handler, name="file") for path, handler in FILES.items()),
    *(Route(path, handler, name="page") for path, handler in PAGES.items()),
    *(Route(f"{path}data.json", handler, name="json") for path, handler in PAGES.items()),
    *(Route(f"{path}{{table}}.csv", handler, name="csv") for path, handler in PAGES.items()),
]


def find_page(path: str, query: Mapping[str, str]) -> tuple[Route, dict[str, str]]:
    """The route of a (percent-encoded) path and the parts of it. Raises NotFound, and Moved for another spelling.

    A page has one address, with a slash at its end: its links are relative to it.
    """
    for name in map(_decoded, path.split("/")):
        if name in (".", "..") or "/" in name or "\0" in name:
            raise NotFound("no such page")
    found = _match(path)
    if found is not None:
        return found
    address = "".join(f"{name}/" for name in path.split("/") if name)
    if address != path and _match(address) is not None:
        raise Redirect(address, query)
    raise NotFound("no such page")


def _match(path: str) -> tuple[Route, dict[str, str]] | None:
    """Return the route of a path as it was sent: an encoded slash in a name is no slash of the path."""
    scope = {"type": "http", "method": "GET", "path": f"/{path}"}
    for route in ROUTES:
        match, found = route.matches(scope)
        if match is Match.FULL:
            return route, {name: _decoded(part) for name, part in found["path_params"].items()}
    return None


def _decoded(part: str) -> str:
    return unquote(part, errors="surrogateescape")


@dataclass(frozen=True)
class HttpReply:
    """Bytes or an open file, what they are, and the name to save them under.

    `met` are the paths it links to; `left_out` the files that an export does not have of it, each with why.
    """

    media: str
    body: bytes | None = None
    file: OpenFile | None = None
    name: str | None = None
    met: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


def answer(site: Site, path: str, query: Mapping[str, str], *, static: bool = False) -> HttpReply:
    """Return what is at a (percent-encoded) path. Raises NotFound and Moved."""
    if path.startswith("assets/"):
        name = path.removeprefix("assets/")
        if name not in ASSETS:
            raise NotFound("no such page")
        return HttpReply(ASSETS[name], _asset(name))
    site, path = site.within(path)
    try:
        return _answer(site, path, query, static=static)
    except Redirect as to:
        raise Redirect(f"{site.prefix}{to.path}", to.query) from None


def _answer(site: Site, path: str, query: Mapping[str, str], *, static: bool) -> HttpReply:
    if site.night and (not path or path.startswith((NIGHTS, LESSONS, TRAININGS))):
        raise NotFound("no such page of a night's results")
    route, parts = find_page(path, query)
    file = path.rpartition("/")[2] if route.name in ("json", "csv") else ""
    ask = PageRequest(path.removesuffix(file), parts, query, static, data=bool(file))
    seen = "" if static else site.state(ask.feed)
    try:
        found = route.endpoint(site, ask)
    except Redirect as to:
        raise Redirect(f"{to.path}{file}", to.query) from None
    if isinstance(found, Download):
        return HttpReply(found.media, _hidden(site, found.body), found.file, found.name)
    if route.name == "json" and found.document is not None:
        return HttpReply("application/json", _hidden(site, encode_json(found.document())), name=file)
    if route.name == "csv" and parts["table"] in found.tables:
        return HttpReply("text/csv", _hidden(site, found.tables[parts["table"]]().csv()), name=file)
    if file:
        raise NotFound("no such download")
    links = Links(ask.path, static=static, prefix=site.prefix)
    body = _hidden(site, render(site, found, links, seen))
    return HttpReply("text/html", body, met=tuple(links.met), left_out=tuple(found.left_out))


def _hidden(site: Site, body: bytes | None) -> bytes | None:
    """The last look at what leaves: none of the secrets that are known."""
    if body is None:
        return None
    return site.secrets.hide(body.decode(errors="surrogateescape")).encode(errors="surrogateescape")


def _asset(name: str) -> bytes:
    if name == "charts.css":
        return chart_css().encode()
    return (files("terminalbench.dashboard") / "static" / name).read_bytes()


MARK = "tbench-site.txt"


@dataclass(frozen=True)
class ExportResult:
    """What was written, and what was left out and why."""

    pages: int
    files: int
    left_out: tuple[str, ...]


def export_zip(site: Site, target: Path) -> ExportResult:
    """Write the site as one file to send: a ZIP archive with a folder of its name in it."""
    with TemporaryDirectory(prefix="tbench-site-") as folder:
        done = export_site(site, Path(folder) / target.stem)
        made = BytesIO()
        with ZipFile(made, "w", ZIP_DEFLATED, compresslevel=9) as archive:
            for path in sorted(Path(folder).rglob("*")):
                archive.write(path, path.relative_to(folder))
        write_bytes(target, made.getvalue())
    return done


def export_site(site: Site, target: Path) -> ExportResult:
    """Write the site to `target`: a new or empty folder, or one that holds an earlier export."""
    if target.exists() and not (target / MARK).is_file() and (not target.is_dir() or any(target.iterdir())):
        raise UserError("exists and is not an earlier export", where=str(target), hint="name a new folder")
    scan_all(site.root)
    waiting = ["", *(f"assets/{name}" for name in ASSETS)]
    known = set(waiting)
    pages = files = 0
    left_out: list[str] = []
    write_bytes(target / MARK, b"Written by tbench view --export. A later export may overwrite this folder.\n")
    while waiting:
        path = waiting.pop()
        tell("writing pages", len(known) - len(waiting) - 1, len(known))
        try:
            reply = answer(site, path, {}, static=True)
        except NotFound as error:
            left_out.append(site.secrets.hide(f"{path}: {error}"))
            continue
        body = reply.body
        if reply.file is not None:
            with os.fdopen(reply.file.handle, "rb") as stream:
                raw = stream.read(EXPORTED_BYTES + 1)
            body = exportable(raw, site.secrets) if len(raw) <= EXPORTED_BYTES else None
        if isinstance(body, OmissionReason):
            left_out.append(site.secrets.hide(f"{path}: {body}"))
            continue
        if body is None or (len(body) > EXPORTED_BYTES and reply.name is not None):
            left_out.append(site.secrets.hide(f"{path}: larger than {EXPORTED_BYTES >> 20} MB"))
            continue
        left_out += map(site.secrets.hide, reply.left_out)
        write_bytes(_place(target, site.secrets.hide(path)), body, durable=False)
        pages, files = pages + (reply.media == "text/html"), files + (reply.media != "text/html")
        fresh = [met for met in dict.fromkeys(reply.met) if met not in known]
        known.update(fresh)
        waiting += fresh
    tell("writing pages", len(known), len(known))
    return ExportResult(pages, files, tuple(dict.fromkeys(left_out)))


def _place(target: Path, path: str) -> Path:
    """Return where the file of a path goes. Paths come from links of our own pages; none may leave the folder all the
    same."""
    names = [unquote(part, errors="surrogateescape") for part in path.split("/") if part]
    if any(name in (".", "..") or "/" in name or "\0" in name for name in names):
        raise UserError(f"a path that leaves the folder: {path}")
    place = target.joinpath(*names)
    return place / "index.html" if not path or path.endswith("/") else place

"""From an address to bytes, without a server: the same for a browser and for an export."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files

from terminalbench.dashboard.frame import Download, Moved, NotFound, OpenFile, Page, Route, find_page
from terminalbench.dashboard.links import Links
from terminalbench.dashboard.pages.batch import batch_page
from terminalbench.dashboard.pages.compare import choose_page, compare_page
from terminalbench.dashboard.pages.experiments import experiment_page, experiments_page
from terminalbench.dashboard.pages.files import batch_file, file_page, raw_file
from terminalbench.dashboard.pages.home import home_page
from terminalbench.dashboard.pages.side import side_page
from terminalbench.dashboard.pages.trial import raw_step, trial_page
from terminalbench.dashboard.pages.trials import trials_page
from terminalbench.dashboard.render import render
from terminalbench.dashboard.site import Site
from terminalbench.files import encode_json
from terminalbench.report.charts import chart_css

ASSETS = {
    "charts.css": "text/css",
    "tbench.css": "text/css",
    "tbench.js": "text/javascript",
    "icon.svg": "image/svg+xml",
}
_MEDIA = {"csv": "text/csv", "json": "application/json"}

_PAIR = "side-by-side/{slug}/{number}/{job}/{trial}/{slug2}/{number2}/{job2}/{trial2}/"
_TRIAL = "batches/{slug}/{number}/trials/{job}/{trial}/"

ROUTES = (
    Route("", home_page),
    Route("experiments/", experiments_page),
    Route("experiments/{slug}/", experiment_page),
    Route("trials/", trials_page),
    Route("batches/{slug}/{number}/", batch_page),
    Route("batches/{slug}/{number}/files/{path...}", batch_file),
    Route(_TRIAL, trial_page),
    Route(f"{_TRIAL}steps/{{document}}/{{page}}/", trial_page),
    Route(f"{_TRIAL}files/{{path...}}", file_page),
    Route(f"{_TRIAL}raw/{{path...}}", raw_file),
    Route(f"{_TRIAL}step-text/{{path...}}", raw_step),
    Route("compare/", choose_page),
    Route("compare/{slug}/{number}/{profile}/{slug2}/{number2}/{profile2}/", compare_page),
    Route(_PAIR, side_page),
    Route(f"{_PAIR}{{page}}/", side_page),
)


@dataclass(frozen=True)
class Reply:
    """Bytes or an open file, what they are, and the name to save them under; `met` are the paths it links to."""

    media: str
    body: bytes | None = None
    file: OpenFile | None = None
    name: str | None = None
    met: tuple[str, ...] = ()


def answer(site: Site, path: str, query: Mapping[str, str], *, static: bool = False) -> Reply:
    """What is at a (percent-encoded) path. Raises NotFound and Moved."""
    if path.startswith("assets/"):
        name = path.removeprefix("assets/")
        if name not in ASSETS:
            raise NotFound("no such page")
        return Reply(ASSETS[name], _asset(name))
    asked = find_page(ROUTES, path, query, static=static)
    seen = "" if static else site.state(asked.ask.batch if {"slug", "number"} <= asked.ask.parts.keys() else "")
    try:
        found = asked.route.handler(site, asked.ask)
    except Moved as to:
        if asked.download is None:
            raise
        raise Moved(f"{to.path}{'.'.join(asked.download)}", to.query) from None
    if isinstance(found, Download):
        return Reply(found.media, _hidden(site, found.body), found.file, found.name)
    if asked.download is not None:
        return _download(site, found, *asked.download)
    links = Links(asked.ask.path, static=static)
    return Reply("text/html", _hidden(site, render(site, found, links, seen)), met=tuple(links.met))


def _hidden(site: Site, body: bytes | None) -> bytes | None:
    """The last look at what leaves: none of the secrets that are known."""
    if body is None:
        return None
    return site.secrets.hide(body.decode(errors="surrogateescape")).encode(errors="surrogateescape")


def _asset(name: str) -> bytes:
    if name == "charts.css":
        return chart_css().encode()
    return (files("terminalbench.dashboard") / "static" / name).read_bytes()


def _download(site: Site, page: Page, name: str, kind: str) -> Reply:
    if kind == "csv" and name in page.tables:
        body = page.tables[name]().csv()
    elif kind == "json" and name == "data" and page.document is not None:
        body = encode_json(page.document())
    else:
        raise NotFound("no such download")
    return Reply(_MEDIA[kind], _hidden(site, body), name=f"{name}.{kind}")

"""Every address of the site, and links that work from any file server: always relative to the page they are on."""

import posixpath
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any
from urllib.parse import quote, urlencode

from terminalbench.dashboard.frame import FOREIGN


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

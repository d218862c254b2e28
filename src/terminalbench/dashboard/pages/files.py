"""Files of a trial and of a batch: shown as text, or handed out as they are."""

import os
import re

from terminalbench.dashboard.frame import (
    Crumb,
    Download,
    NotFound,
    Page,
    PageRequest,
    batch_path,
    file_path,
    trial_path,
)
from terminalbench.dashboard.safe_files import TrialFile, open_below, read_tail
from terminalbench.dashboard.site import Site
from terminalbench.secrets.containers import why_left_out

SHOWN_BYTES = 256 * 1024
RAW = "application/octet-stream"
_TEXT = re.compile(r".*\.(txt|log|json|jsonl|md|csv|toml|yaml|yml|py|sh|patch|diff|cast|xml|html|ini|cfg)", re.DOTALL)
_BATCH_FILES = re.compile(
    r"plan\.json|experiment\.toml|events\.jsonl|gate\.json|runs/index\.json|runs/[^/]+\.(log|job\.json)"
    r"|analytics/[^/]+\.(json|jsonl|csv|md|html)"
)


_TELLING = re.compile(r"result\.json|exception\.txt|trial\.log|(agent|verifier|workflow|steps|artifacts)/.*", re.DOTALL)


NOT_TELLING = "not in this export"
"""Said of files that tell nothing of what happened: an exported site has none of them."""


def not_exported(site: Site, trial: tuple[str, ...], file: TrialFile) -> str | None:
    """Return why an exported site does not have a file of a trial, which lies below the names of `trial`; None if it
    has it.

    What is packed is looked into: none that holds a secret, or may hold one unseen, is exported.
    """
    if not exported(file.size, static=True):
        return "too large for this export"
    if _TELLING.fullmatch(file.path) is None:
        return NOT_TELLING
    if file.odd is not None:
        return None
    try:
        opened = open_below(site.root, (*trial, *file.path.split("/")))
    except NotFound as error:  # gone meanwhile
        return str(error)
    with os.fdopen(opened.handle, "rb") as stream:
        return why_left_out(stream.read(EXPORTED_BYTES + 1), site.secrets)


def file_page(site: Site, ask: PageRequest) -> Page:
    """The end of a file of a trial, as text."""
    row = site.trial(ask.batch, ask.parts["job"], ask.parts["trial"])
    name = ask.parts["path"].rstrip("/")
    excerpt = read_tail(site.root, (*site.trial_names(ask.batch, row), *name.split("/")), SHOWN_BYTES, site.secrets)
    if excerpt is None:
        raise NotFound("no such file, or a link")
    trial = trial_path(ask.batch, row.job, row.name)
    return Page(
        title=name,
        template="file.html",
        values={
            "name": name,
            "excerpt": excerpt,
            "raw": file_path(trial, name, raw=True),
            "exported": exported(excerpt.size, static=ask.static),
        },
        crumbs=(Crumb(ask.batch, batch_path(ask.batch)), Crumb(row.name, trial)),
    )


def raw_file(site: Site, ask: PageRequest) -> Download:
    """A file of a trial as it is."""
    row = site.trial(ask.batch, ask.parts["job"], ask.parts["trial"])
    names = ask.parts["path"].split("/")
    opened = open_below(site.root, (*site.trial_names(ask.batch, row), *names))
    return Download(names[-1], media_of(names[-1]), file=opened)


def batch_file(site: Site, ask: PageRequest) -> Download:
    """One of the files a batch keeps about itself."""
    summary = site.summary(ask.batch)
    path = ask.parts["path"]
    if summary.batch == "." or not _BATCH_FILES.fullmatch(path):
        raise NotFound("no such file")
    opened = open_below(site.root, (*summary.batch.split("/"), *path.split("/")))
    return Download(path.rpartition("/")[2], media_of(path), file=opened)


def media_of(name: str) -> str:
    """Text is sent as plain text, whatever it claims to be; anything else as bytes."""
    return "text/plain" if _TEXT.fullmatch(name.lower()) else RAW


EXPORTED_BYTES = 4 << 20


def exported(size: int, *, static: bool) -> bool:
    """Return whether a file of that size can be downloaded: a served site has all, an export leaves large ones out."""
    return not static or size <= EXPORTED_BYTES

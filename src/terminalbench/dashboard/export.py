"""The whole dashboard as files: every page reachable from home, with relative links, for any file server or none."""

import os
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import unquote
from zipfile import ZIP_DEFLATED, ZipFile

from terminalbench.dashboard.answers import ASSETS, answer
from terminalbench.dashboard.frame import NotFound
from terminalbench.dashboard.pages.files import EXPORTED_BYTES
from terminalbench.dashboard.site import Site
from terminalbench.errors import UserError
from terminalbench.files import write_bytes
from terminalbench.index.scan import scan_all
from terminalbench.secrets.containers import OmissionReason, exportable
from terminalbench.text.progress import tell

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

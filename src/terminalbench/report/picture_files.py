"""The charts of a report as files, to be pasted into a paper: SVG, and PNG where a program for it is installed.

A file has its style inside, on white, and no variables of CSS, which most programs but browsers do not know.
"""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from terminalbench.errors import UserError
from terminalbench.files import write_text
from terminalbench.report.charts import chart_css
from terminalbench.report.charts.svg import SERIES
from terminalbench.report.html import PICTURES
from terminalbench.report.model import Report

FOLDER = "pictures"
SCALE = 2
"""A PNG has so many dots for each of the page's."""
_LIMIT_SEC = 120
_RULE = re.compile(r"(?P<where>\.chart[^{}]*)\{(?P<what>[^{}]*)\}")
_VALUE = re.compile(r"--([\w-]+):\s*([^;{}]+);")
_OPENING = re.compile(
    r'^<svg class="[^"]*"(?P<role>.*?) viewBox="0 0 (?P<width>[\d.]+) (?P<height>[\d.]+)" width="(?P<size>[\d.]+)">'
)


def write_pictures(report: Report, folder: Path) -> list[Path]:
    """Write every chart of a report that shows something into a folder; the files. Charts of earlier ones go.

    Raises UserError where a program for PNG is installed and fails.
    """
    for name in PICTURES:
        for ending in (".svg", ".png"):
            (folder / f"{name}{ending}").unlink(missing_ok=True)
    drawn = {name: picture.svg for name, make in PICTURES.items() if (picture := make(report)).svg}
    found = []
    for name, svg in drawn.items():
        file = folder / f"{name}.svg"
        write_text(file, standalone(svg or ""))
        found.append(file)
        if (painted := _painted(file)) is not None:
            found.append(painted)
    return found


def standalone(svg: str) -> str:
    """A chart as a file of its own: style, size and paper inside, and no links, which would lead nowhere."""
    head = _OPENING.match(svg)
    if head is None:
        raise ValueError("not a chart of this package")
    width, height, size = (float(head[name]) for name in ("width", "height", "size"))
    place = f'viewBox="0 0 {head["width"]} {head["height"]}" width="{size:g}" height="{size * height / width:.0f}"'
    body = re.sub(r'<a href="[^"]*">', "<g>", svg[head.end() :]).replace("</a>", "</g>")
    start = f'<svg xmlns="http://www.w3.org/2000/svg" class="chart" role="img" {place}>'
    paper = f'<rect width="{head["width"]}" height="{head["height"]}" fill="#fff"/>'
    return f"{start}<style>{_style()}</style>{paper}{body}\n"


def _style() -> str:
    """The rules of charts in the colours of print, each with its values in place."""
    css = re.sub(r"/\*.*?\*/", "", chart_css(), flags=re.DOTALL)
    values = dict(_VALUE.findall(css[css.index("@media print") :]))
    values |= {name: value for name, value in _VALUE.findall(css) if name not in values}
    rules = []
    for rule in _RULE.finditer(css):
        where, what = rule["where"].strip(), rule["what"].strip()
        if "--c:" in what or ":hover" in where:
            continue
        series = range(SERIES) if "var(--c)" in what else (None,)
        for one in series:
            kind = where if one is None else where.replace(".chart .", f".chart .s{one}.")
            own = what if one is None else what.replace("var(--c)", values[f"s{one}"])
            rules.append(f"{kind}{{{_resolved(own, values)}}}")
    return "".join(rules)


def _resolved(text: str, values: dict[str, str]) -> str:
    while "var(--" in text:
        text = re.sub(r"var\(--([\w-]+)\)", lambda found: values[found[1]], text)
    return text


def _rsvg(program: str, file: Path, target: Path, _size: tuple[int, int]) -> Sequence[str]:
    return (program, "--zoom", str(SCALE), "--output", str(target), str(file))


def _inkscape(program: str, file: Path, target: Path, _size: tuple[int, int]) -> Sequence[str]:
    return (program, f"--export-filename={target}", f"--export-dpi={96 * SCALE}", str(file))


def _chromium(program: str, file: Path, target: Path, size: tuple[int, int]) -> Sequence[str]:
    own = ("--no-sandbox",) if hasattr(os, "geteuid") and os.geteuid() == 0 else ()
    shot = (f"--screenshot={target}", f"--window-size={size[0]},{size[1]}", f"--force-device-scale-factor={SCALE}")
    return (program, "--headless", "--disable-gpu", "--hide-scrollbars", *own, *shot, file.resolve().as_uri())


PAINTERS: dict[str, Callable[[str, Path, Path, tuple[int, int]], Sequence[str]]] = {
    "rsvg-convert": _rsvg, "inkscape": _inkscape, "chromium": _chromium, "google-chrome": _chromium,
}  # fmt: skip
"""Programs that make a PNG of an SVG; the first that is installed does."""


def painter() -> str | None:
    """The program that makes PNGs here; None where there is none."""
    return next((name for name in PAINTERS if shutil.which(name)), None)


def _painted(file: Path) -> Path | None:
    """A file as PNG beside it; None where no program makes one."""
    name = painter()
    if name is None:
        return None
    target = file.with_suffix(".png").resolve()
    size = re.search(r' width="([\d.]+)" height="(\d+)"', file.read_text(encoding="utf-8"))
    window = (round(float(size[1])), int(size[2])) if size is not None else (800, 600)
    failure = _run(PAINTERS[name](shutil.which(name) or name, file, target, window))
    if failure is not None or not target.is_file():
        raise UserError(f"{name} could not make a PNG: {failure or 'it wrote none'}", where=str(file), hint=_HINT)
    return target


def _run(command: Sequence[str]) -> str | None:
    """Run a program, and end all that it has started; what went wrong, if anything did.

    Its home is a folder that goes: a browser writes settings and caches.
    """
    pipe, none = subprocess.PIPE, subprocess.DEVNULL
    with tempfile.TemporaryDirectory(prefix="tbench-", ignore_cleanup_errors=True) as home:
        env = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")} | {"HOME": home}
        try:
            process = subprocess.Popen(command, stdin=none, stdout=none, stderr=pipe, env=env, start_new_session=True)
        except OSError as error:
            return str(error)
        return _ended(process)


def _ended(process: subprocess.Popen[bytes]) -> str | None:
    try:
        said = process.communicate(timeout=_LIMIT_SEC)[1].decode(errors="replace").strip().splitlines()[-1:]
    except subprocess.TimeoutExpired:
        return f"it did not end in {_LIMIT_SEC} s"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return None if process.returncode == 0 else f"exit code {process.returncode}{': ' + said[0] if said else ''}"


_HINT = "the SVG files are there; any drawing program opens them"

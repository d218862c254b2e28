"""The pictures of the README, from a batch of `tbench init --demo`: the live view, the batch's page and its report.

Usage: .venv/bin/python scripts/pictures.py LAB/results/demo/0 [-o docs/pictures]
"""

import argparse
import io
import re
import sys
import tempfile
from pathlib import Path
from urllib.parse import urlsplit

from playwright.sync_api import Route, sync_playwright
from rich.console import Console

from terminalbench.cli.main import main as tbench
from terminalbench.dashboard.answers import answer
from terminalbench.dashboard.site import Site
from terminalbench.experiments.batch import Batch
from terminalbench.experiments.plan import Plan
from terminalbench.json_files import read_json, read_jsonl
from terminalbench.live.feed import Feed
from terminalbench.live.state import LiveState
from terminalbench.records.event import Event, EventKind
from terminalbench.records.trial import Outcome
from terminalbench.watch.logs import check_of
from terminalbench.watch.tables import Frame
from terminalbench.watch.view import render

COLUMNS, LINES = 100, 28
WIDTH, HEIGHT = 1100, 720
CHROMIUM = "/usr/bin/chromium"
PLACE = "http://dashboard/"
SHARE = 0.6
"""How far the batch is in the picture of the live view."""


def live_view(batch: Batch) -> str:
    """The live view as it was when most of the trials had ended, as an SVG that asks no other address for anything."""
    plan: Plan = read_json(batch.plan_json, Plan)
    events = read_jsonl(batch.events_jsonl, Event).records
    ends = [number for number, event in enumerate(events) if event.kind == EventKind.TRIAL_ENDED]
    state = LiveState()
    state.replan(plan)
    for event in events[: ends[int(len(ends) * SHARE)] + 1]:
        state.apply(event)
    feed = Feed(batch, state)
    failed = [one.key for one in state.finished if one.outcome == Outcome.FAILED]
    frame = Frame(feed, now=state.last or 0.0, checks={key: check_of(batch, key, feed.secrets) for key in failed})
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    for line in render(frame, COLUMNS, LINES):
        console.print(line, no_wrap=True, crop=True)
    drawn = console.export_svg(title="tbench run experiments/demo.toml --watch", unique_id="live")
    return re.sub(r"@font-face \{.*?\}\s*|<!--.*?-->", "", drawn, flags=re.DOTALL)


def photograph(batch: Batch, report: Path, output: Path) -> None:
    """The tops of the batch's page and of its report, as Chromium shows them."""
    root, place = batch.folder.parents[1], f"batches/{batch.folder.parent.name}/{batch.folder.name}/"
    site = Site(root)

    def serve(route: Route) -> None:
        reply = answer(site, urlsplit(route.request.url).path.removeprefix("/"), {}, static=True)
        route.fulfill(body=reply.body, content_type=reply.media)

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
        page.route(f"{PLACE}**", serve)
        for address, name in ((f"{PLACE}{place}", "batch.png"), (report.as_uri(), "report.png")):
            page.goto(address)
            page.screenshot(path=output / name)
        browser.close()


def main() -> int:
    """Make the three pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("batch", type=Path)
    parser.add_argument("-o", "--output", type=Path, default=Path("docs/pictures"))
    given = parser.parse_args()
    batch = Batch(given.batch.resolve())
    given.output.mkdir(parents=True, exist_ok=True)
    (given.output / "live.svg").write_text(live_view(batch), encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        if tbench(["report", str(batch.folder), "-o", folder]):
            return 1
        photograph(batch, Path(folder) / "report.html", given.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())

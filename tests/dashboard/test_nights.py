"""The pages of nights: what they show, of which folders, and when they change."""

import csv
import io
import json
import os
import posixpath
import re

import pytest

from support.dashboard import Root
from support.nights import Night, make_night
from terminalbench.dashboard.answers import answer
from terminalbench.dashboard.frame import NIGHTS, NotFound
from terminalbench.dashboard.site import Site
from terminalbench.index.scan import scan_all
from terminalbench.locks import lock
from terminalbench.overnight.morning import labelled
from terminalbench.overnight.night import (
    IterationStatus,
    IterationWork,
    NightEvent,
    NightEventKind,
    Role,
    SuiteTask,
    WorkerLease,
)
from terminalbench.overnight.summary import project_night

TWO = [{"p": {"a": "+", "b": "x"}}, {"p": {"a": "x", "b": "x"}}]


@pytest.fixture
def night(root: Root) -> Night:
    """A night of two iterations in the results folder of the other batches."""
    tasks = [SuiteTask("a", "d", "x", category="git")]
    made = make_night(root.path / "20260123", TWO, suite_tasks=tasks)
    for at, kind in (("16:00", NightEventKind.WORKER_STARTED), ("16:30", NightEventKind.WORKER_ENDED)):
        made.say(NightEvent(f"2026-01-23T{at}:00Z", kind, iteration=1, role=Role.ITERATION, worker=1))
    made.say(NightEvent("2026-01-23T16:30:00Z", NightEventKind.WORKER_STARTED, "", 2, Role.ITERATION, 1))
    made.say(
        NightEvent(
            "2026-01-23T17:00:00Z", NightEventKind.WORKER_LOST, "it stopped beating", 2, worker=1, cause="signal 9"
        )
    )
    project_night(made.folder)
    return made


def test_nights_are_found_and_are_no_batches(root: Root, night: Night) -> None:
    code = night.folder.code
    code.mkdir()
    (code / "config.json").write_text("{}")  # of the code under test
    (root.path / "notes").mkdir()
    (root.path / "notes" / "config.json").write_text('{"any": "thing"}')
    before = root.text("batches.csv")
    scan_all(root.path)
    assert root.text("batches.csv") == before
    (row,) = csv.DictReader(io.StringIO(root.text("nights/nights.csv")))
    assert (row["night"], row["status"], row["iterations_over"], row["trials"], row["measured"]) == (
        "20260123", "finished", "2", "4", "4",
    )  # fmt: skip
    assert (row["cost_usd"], row["cost_unknown_trials"], row["incidents"]) == ("", "4", "1")
    page = root.text("nights/")
    assert 'href="./20260123/"' in page
    assert "p 25.0 %" in page
    assert "1 incident" in page


def test_one_night_says_what_its_report_says(root: Root, night: Night) -> None:
    page = root.text("nights/20260123/")
    summary = project_night(night.folder)
    words = re.sub("</?b>", "", page)
    for label, mark, rest in labelled(summary.headlines):
        assert f"<b>{label}{mark}</b>" in page
        assert f"{label}{mark}{rest}" in words
    assert "signal 9" in page
    drawn = page.split("Pass rate by iteration</title>")[1].split("</svg>")[0]
    assert 'class="thin"' in drawn, "the interval of each rate"
    worked = page.split("Workers, incidents and spend</title>")[1].split("</svg>")[0]
    assert worked.count('<a href="./results/batches/night/1/">') == 1, "the work on iteration 1 leads to its batch"
    assert "1 of them lost. Went wrong: 17:00" in worked
    rows = list(csv.DictReader(io.StringIO(root.text("nights/20260123/iterations.csv"))))
    assert [(row["iteration"], row["passed"], row["pass_rate"]) for row in rows] == [
        ("1", "1", "0.5"),
        ("2", "0", "0.0"),
    ]
    document = json.loads(root.text("nights/20260123/data.json"))
    assert document["summary"]["run_id"] == document["config"]["run_id"] == "tbrun-1"
    with pytest.raises(NotFound):
        root.get("nights/nowhere/")
    with pytest.raises(NotFound):
        root.get("nights/%2e%2e/")


def test_workers_are_shown_while_it_runs(root: Root, night: Night) -> None:
    lease = WorkerLease(3, 4711, 1, "machine", "2026-01-23T17:00:00Z", 0.0)
    night.state(
        [
            IterationWork(1, Role.ITERATION, 1, IterationStatus.LEASED, lease=lease, starts=2),
            IterationWork(2, Role.ITERATION, 2),
        ]
    )
    with lock(night.folder.lock, "the tests"):
        page = root.text("nights/20260123/")
        assert "4711 on machine" in page
        assert "<b>running</b>, 1 iteration waiting" in page
    page = root.text("nights/20260123/")
    assert "<b>cut off</b>" in page
    assert "4711" not in page, "no one works any more"


def test_a_night_without_a_summary_or_a_state_is_shown(root: Root, night: Night) -> None:
    night.folder.summary_json.unlink()
    night.folder.state_json.write_text("{torn")
    assert "It has no summary yet" in root.text("nights/20260123/")
    assert "<td>unknown" in root.text("nights/")


def test_the_batches_of_a_night_lead_to_it_and_it_to_them(night: Night) -> None:
    site = Site(night.folder.results_root)
    scan_all(site.root)
    page = answer(site, "nights/this/", {}).body
    assert page is not None
    assert b'href="../../batches/night/1/"' in page
    assert answer(site, "batches/night/1/", {}).body is not None
    own = Site(night.folder.folder)
    assert b'href="./this/"' in (answer(own, "nights/", {}).body or b"")


def test_flips_lead_to_their_trials_and_flaky_tasks_and_kinds_are_told(night: Night) -> None:
    site = Site(night.folder.results_root)
    scan_all(site.root)
    page = (answer(site, "nights/this/", {}).body or b"").decode()
    links = re.findall(r'href="\.\./\.\./(batches/night/\d/trials/[^"]+)"', page)
    outcomes = [b"passed" in (answer(site, link, {}).body or b"") for link in links]
    assert (len(links), outcomes) == (2, [True, False])
    assert "Within noise, each task by itself" in page
    assert "<h2>Flaky tasks of p</h2>" in page
    assert "<h2>By category</h2>" in page
    elsewhere = (answer(Site(night.folder.folder.parent), "nights/20260123/", {}).body or b"").decode()
    assert "Within noise, each task by itself" in elsewhere


def test_a_night_leads_to_its_trials_and_back_in_one_site(root: Root, night: Night) -> None:
    where, back = "nights/20260123/results/", ["nights/", "nights/20260123/"]

    def links(path: str) -> list[str]:
        page = root.text(path)
        start = "/".join(path.split("/")[:-1])
        return [
            posixpath.normpath(f"{start}/{link.partition('?')[0]}") for link in re.findall(r'href="([^"#]+)"', page)
        ]

    batch = f"{where}batches/night/1/"
    assert batch.rstrip("/") in links("nights/20260123/")
    trials = [f"{link}/" for link in links(batch) if f"{batch}trials/" in link and not link.endswith((".csv", ".json"))]
    assert len(trials) == 2
    assert {link.rstrip("/") for link in (*back, batch)} <= set(links(trials[0]))
    assert "events?batch=nights%2F20260123%2Fresults%2F" in root.text(f"{where}experiments/night/")
    before = root.site.state(f"{where}night/1")
    assert before == root.site.state(f"{where}night/1") != root.site.state(f"{where}night/2")
    site = {path for path in known_pages(root) if path.startswith(where)}
    assert {batch, trials[0]} <= site  # an export follows the same links
    for nowhere in ("nights/none/results/batches/night/1/", where, f"{where}nights/", f"{where}batches/study/0/"):
        with pytest.raises(NotFound):
            root.get(nowhere)


def known_pages(root: Root) -> set[str]:
    """Every page that an export reaches from the night."""
    waiting, known = ["nights/20260123/"], {"nights/20260123/"}
    while waiting:
        reply = answer(root.site, waiting.pop(), {}, static=True)
        if reply.file is not None:
            os.close(reply.file.handle)
        fresh = {path for path in reply.met if path.startswith("nights/20260123/")} - known
        known |= fresh
        waiting += fresh
    return known


def test_a_change_of_a_night_is_told(root: Root, night: Night) -> None:
    before, batches = root.site.state(NIGHTS), root.site.state("")
    assert root.site.state(NIGHTS) == before
    night.say(NightEvent("2026-01-23T18:00:00Z", NightEventKind.NOTE, "more"))
    assert root.site.state(NIGHTS) != before
    assert root.site.state("") != batches, "home says what runs and what ended"
    assert f"events?batch=nights%2F&amp;seen={root.site.state(NIGHTS)}" in root.text("nights/20260123/")


def test_no_nights_says_how_to_make_one(root: Root) -> None:
    assert "tbench iterate --suite" in root.text("nights/")


def test_what_was_said_stays_text(root: Root, night: Night) -> None:
    night.say(NightEvent("2026-01-23T18:00:00Z", NightEventKind.INCIDENT, "<script>alert(1)</script>\x1b[2J"))
    page = root.text("nights/20260123/")
    assert "<script>alert" not in page
    assert "\x1b" not in page

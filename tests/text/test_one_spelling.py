"""The same values through every surface: each kind of number is spelled as `terminalbench.text` spells it.

Whatever looks like a cost, a share, a difference, a duration or a p value in a real output is read back and written
again: a number that was formatted by hand does not come back as it stood.
"""

import contextlib
import html
import io
import json
import re
from collections.abc import Callable
from datetime import UTC, datetime

import pytest

from support.live import START, Teller, job_event
from support.results import make_plan, make_trial
from terminalbench.analytics.plan_forecast import Forecast, ProfileForecast, forecast_lines
from terminalbench.cli.main import main
from terminalbench.dashboard.answers import answer
from terminalbench.dashboard.site import Site
from terminalbench.experiments.batch import Batch, allocate
from terminalbench.harbor.limits.accounts import Account, KnownCost
from terminalbench.harbor.limits.budget import GateState
from terminalbench.index.queries import view_batch
from terminalbench.index.scan import scan_all
from terminalbench.json_files import append_jsonl
from terminalbench.live.feed import Feed
from terminalbench.live.forecast import run_line
from terminalbench.live.limits import GateLimits
from terminalbench.locks import lock
from terminalbench.report.text import summary
from terminalbench.text import numbers
from terminalbench.watch.tables import Frame
from terminalbench.watch.view import render

TASKS = "abcdefghijklm"
SECONDS = {"s": 1, "min": 60, "h": 3600}
READ_BACK: dict[str, tuple[str, Callable[[re.Match[str]], str]]] = {
    "cost": (r"[+-]?\$\s?[\d.,]*\d", lambda m: numbers.dollars(amount(m[0]), sign=m[0][0] == "+")),
    "share": (r"(?<![\d.] to )(?<![\d.])([\d.]+) ?%", lambda m: numbers.percent(float(m[1]) / 100)),
    "interval": (r"([\d.]+)(?: ?%)? to ([\d.]+) ?%", lambda m: numbers.percents(float(m[1]) / 100, float(m[2]) / 100)),
    "difference": (
        r"(?<! to )(?<![\d.])([+-]?)([\d.]+) ?(?:pt|points)\b",
        lambda m: numbers.points(float(m[1] + m[2]) / 100, sign=bool(m[1])),
    ),
    "duration": (r"(?<![\w.:-])([\d.,]*\d) (s|min|h)\b", lambda m: numbers.duration(amount(m[1]) * SECONDS[m[2]])),
    "p value": (r"\bp ([=<]) ([\d.e-]*\d)", lambda m: "p < 0.001" if m[1] == "<" else numbers.p_equation(float(m[2]))),
}
BY_HAND = re.compile(r"–|\bnan\b|\bNone\b|\bN/A\b|timed_out|not_run|\b\d+:\d\d left|\d%")
QUALIFIED = r"(?:(?:planned|more|further|measured|earlier|running|superseded) )*"
ONE_OF_MANY = re.compile(rf"(?<![\d.,])1 {QUALIFIED}(?!(?:is|was|has|does|passes)\b)[a-z]+(?<![su])s\b")
"""One of something, with its noun in the plural: "1 trials"."""
DECLARED = re.compile(r"\b95 %(?= interval|  )")
"""The level of an interval is a setting, not a measured share."""


def amount(text: str) -> float:
    return float(re.sub(r"[$,+\s]", "", text))


@pytest.fixture(scope="module")
def batch(tmp_path_factory: pytest.TempPathFactory) -> Batch:
    """Profile p passes 1 of 12 for $0.50 and times out once, q passes all 13 for $1,234.50; a trial takes 75 s."""
    made = allocate(tmp_path_factory.mktemp("spelling") / "results", "s")
    make_plan(made, ("p", "q"), TASKS)
    for number, task in enumerate(TASKS):
        late = number == len(TASKS) - 1
        passed = None if late else float(number == 0)
        error = "AgentTimeoutError" if late else None
        folders = [
            make_trial(made, f"{task}__p", reward=passed, error=error, cost=0.0 if number else 0.5),
            make_trial(made, f"{task}__q", profile="q", cost=0.0 if number else 1234.5),
        ]
        for folder in folders:
            result = json.loads((folder / "result.json").read_text())
            result |= {"started_at": "2026-01-23T16:30:00Z", "finished_at": "2026-01-23T16:31:15Z"}
            result["agent_execution"] = {k: result[k] for k in ("started_at", "finished_at")}
            (folder / "result.json").write_text(json.dumps(result))
    events = [job_event(0, "job_started"), *Teller("a__p").whole(0, 75, cost=0.5), Teller("b__p", "b").started(76)]
    events += [job_event(0, "job_started", "q"), *Teller("a__q", profile="q").whole(0, 75, cost=1234.5)]
    events += Teller("m__p", "m").whole(0, 75, "timed_out", cost=None)
    for event in events:
        append_jsonl(made.events_jsonl, event)
    scan_all(made.folder.parents[1])
    return made


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> Batch:
    """One task, one attempt, one trial for each of two profiles, one that is held, one line that cannot be read."""
    made = allocate(tmp_path_factory.mktemp("single") / "results", "s")
    make_plan(made, ("p", "q"), "a")
    make_trial(made, "a__p", reward=1.0, cost=0.5)
    make_trial(made, "a__q", profile="q", reward=None, error="AgentTimeoutError", cost=0.5)
    events = [job_event(0, "job_started"), *Teller("a__p").whole(0, 75, cost=0.5), job_event(1, "job_started", "q")]
    for event in [*events, Teller("a__q", profile="q").event(2, "trial_held", error="the budget is used up")]:
        append_jsonl(made.events_jsonl, event)
    with made.events_jsonl.open("ab") as stream:
        stream.write(b"torn\n")
    scan_all(made.folder.parents[1])
    return made


@pytest.fixture(scope="module")
def surfaces(batch: Batch) -> dict[str, str]:
    """What each surface shows of many trials."""
    return shown(batch)


@pytest.fixture(scope="module")
def singles(single: Batch) -> dict[str, str]:
    """What each surface shows where there is one of each."""
    return shown(single)


def shown(batch: Batch) -> dict[str, str]:
    """What each surface shows, as text."""
    root = batch.folder.parents[1]
    site = Site(root, lambda: datetime.fromtimestamp(START + 80, UTC))
    feed = Feed(batch)
    feed.read()
    feed.state.limits = GateLimits(GateState(budget_usd=1234.5, accounts={"p": Account(known=KnownCost(1, 0.5))}))
    frame = Frame(feed, START + 80)
    past = ProfileForecast(profile="p", trials=13, past_trials=13, of="p", cost_usd=0.5)
    plan = Forecast(
        trials=26, profiles=[past], hours=75 / 3600, cost_usd=1234.5, smallest_detectable=0.1234, assumption="x"
    )

    def page(path: str) -> str:
        return plain((answer(site, path, {}).body or b"").decode())

    def tbench(*arguments: object) -> str:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            assert main([str(argument) for argument in arguments]) == 0
        return out.getvalue()

    tbench("report", batch.folder)
    with lock(batch.lock, "test"):
        status = tbench("status", "--results", root)
    trial = f"batches/s/0/trials/{batch.runs.joinpath('2026-01-23__16-26-48__p').name}/a__p/"
    found = {
        "run end": summary(view_batch(batch)),
        "run line": run_line(feed.state, START + 80),
        "watch": "\n".join(line.plain for line in render(frame, 200, 60)),
        "watch narrow": "\n".join(line.plain for line in render(frame, 80, 60)),
        "status": status,
        "list": tbench("list", "--results", root),
        "show": tbench("show", "a__p", "--results", root),
        "compare": tbench("compare", batch.folder),
        "report.html": plain((batch.analytics / "report.html").read_text()),
        "report.md": (batch.analytics / "comparison_report.md").read_text(),
        "forecast": "\n".join(forecast_lines(plan)),
        "dashboard home": page(""),
        "dashboard batch": page("batches/s/0/"),
        "dashboard trial": page(trial),
        "dashboard trials": page("trials/"),
        "dashboard compare": page("compare/s/0/q/s/0/p/"),
    }
    site.live = ("s/0",)
    return {**found, "dashboard live": page("batches/s/0/")}


def plain(page: str) -> str:
    """The words of a page; the axes of its charts count in round steps and are left out."""
    page = re.sub(r'<text[^>]*class="dim[^>]*>.*?</text>|<style>.*?</style>|<script.*?</script>', " ", page, flags=re.S)
    return html.unescape(re.sub(r"<[^>]+>", " ", page))


SURFACES = (
    "run end", "run line", "watch", "watch narrow", "status", "list", "show", "compare", "report.html", "report.md",
    "forecast", "dashboard home", "dashboard batch", "dashboard trial", "dashboard trials", "dashboard compare",
    "dashboard live",
)  # fmt: skip
SAID = {
    "$0.50": ("run end", "watch", "show", "compare", "report.html", "report.md", "dashboard batch", "dashboard trial"),
    "$1,234.50": ("run end", "watch", "compare", "report.html", "report.md", "forecast", "dashboard batch"),
    "$1,235.00": ("run line", "status", "list", "dashboard home", "dashboard live"),
    "8.3 %": ("run end", "compare", "report.html", "report.md", "dashboard batch"),
    "+91.7 pt": ("compare", "report.html", "report.md", "dashboard batch", "dashboard compare"),
    "12.3 pt": ("forecast",),
    "75 s": ("run end", "watch", "show", "compare", "report.html", "forecast", "dashboard batch", "dashboard trial"),
    "< 0.001": ("compare", "report.html", "report.md", "dashboard batch", "dashboard compare"),
    "timed out": ("run end", "run line", "status", "compare", "report.html", "report.md", "dashboard batch"),
    "T timed out": ("run end", "watch"),
}


@pytest.mark.parametrize("surface", SURFACES)
@pytest.mark.parametrize("kind", READ_BACK)
def test_every_number_is_spelled_as_text_spells_it(surfaces: dict[str, str], surface: str, kind: str) -> None:
    pattern, write = READ_BACK[kind]
    text = DECLARED.sub("", surfaces[surface])
    wrong = {m[0]: write(m) for m in re.finditer(pattern, text) if m[0] != write(m)}
    assert not wrong, f"{surface}: {kind} as it stands, and as it is spelled elsewhere: {wrong}"


@pytest.mark.parametrize("surface", SURFACES)
def test_no_other_spelling_of_unknown_or_of_an_outcome(surfaces: dict[str, str], surface: str) -> None:
    assert not BY_HAND.findall(surfaces[surface])


@pytest.mark.parametrize("surface", SURFACES)
def test_one_of_something_is_in_the_singular(surfaces: dict[str, str], singles: dict[str, str], surface: str) -> None:
    assert not ONE_OF_MANY.findall(surfaces[surface])
    assert not ONE_OF_MANY.findall(singles[surface])


@pytest.mark.parametrize(
    "by_hand", ["1 trials", "0 of 1 planned trials", "1 further reasons", "1 batches", "1 families"]
)
def test_one_of_something_in_the_plural_is_found(by_hand: str) -> None:
    assert ONE_OF_MANY.search(by_hand)
    assert not ONE_OF_MANY.search(by_hand.replace("1 ", "21 "))


@pytest.mark.parametrize("spelling", SAID)
def test_known_values_are_said(surfaces: dict[str, str], spelling: str) -> None:
    assert [surface for surface in SAID[spelling] if spelling not in surfaces[surface]] == []


@pytest.mark.parametrize(
    "by_hand", ["cost $0.5000", "$1234.50", "12%", "12 %", "75.0 s", "1.25 min", "p = 0.0480", "+3 pt", "3.1 points"]
)
def test_a_number_formatted_by_hand_is_found(by_hand: str) -> None:
    matches = [(m, write) for pattern, write in READ_BACK.values() for m in re.finditer(pattern, by_hand)]
    assert any(m[0] != write(m) for m, write in matches)

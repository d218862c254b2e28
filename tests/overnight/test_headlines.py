"""The first lines of the morning: what is urgent comes first, and stands in the message that is sent."""

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from support.nights import make_night
from support.results import make_trial
from terminalbench.archivist.gains import Gain, GainKind
from terminalbench.experiments.batch import Batch
from terminalbench.json_files import read_json, write_json
from terminalbench.overnight import loop, morning
from terminalbench.overnight.headlines import headlines, next_steps
from terminalbench.overnight.lessons_report import LessonEffect, LessonsSummary
from terminalbench.overnight.loop import NightEnd
from terminalbench.overnight.morning import first_lines
from terminalbench.overnight.night import IterationStatus, IterationWork, NightEvent, NightEventKind, Role, WorkEnd
from terminalbench.overnight.summary import project_night
from terminalbench.overnight.summary_model import NightSummary, TrainedNight, model_name
from terminalbench.runner.notify import Notifier


def test_an_alert_is_among_the_first_lines_and_a_message_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = [f"t{n}" for n in range(8)]
    marks = [{"p": dict.fromkeys(tasks, "+")}] * 3 + [{"p": dict.fromkeys(tasks, "x")}]
    night = make_night(tmp_path / "night", marks)
    summary = project_night(night.folder)
    assert len(summary.alerts) == 1
    assert summary.headlines[0] == f"Better? no: {summary.alerts[0]}"
    assert summary.headlines[-1].startswith("Next: see why iteration 4 got worse: tbench errors ")
    assert not any("flaky" in step for step in summary.next_steps), "they vary because something broke"
    sent: list[str] = []

    def send(_urls: list[str], text: str) -> None:
        sent.append(text)

    made = Notifier("night", ["x://y"], frozenset({"finished", "regression"}), send)
    monkeypatch.setattr(loop.Notifier, "by", lambda *_: made)
    monkeypatch.setattr(loop, "load_base", lambda *_: SimpleNamespace(notify=None))
    given: Any = SimpleNamespace(folder=night.folder, config=night.config)
    assert loop._notify(given, summary) == []
    assert "\nRan: finished; 4 of 4 iterations; 32 of 32 trials measured, 24 passed; cost unknown\n" in sent[0]
    assert sent[0] == "night: " + "\n".join(summary.headlines), "the answer, each line whole"
    assert sent[1].startswith("night: p: iteration 4 passed 0 of 8")


def test_the_next_step_of_a_night_is_to_see_why_its_trials_failed(tmp_path: Path) -> None:
    night = make_night(tmp_path / "night", [{"p": {"a": "+", "b": "x"}}] * 2)
    summary = project_night(night.folder)
    batch = night.folder.folder / "batches" / str(summary.iterations[1].batch)
    assert summary.headlines[-1] == f"Next: see why 1 of 2 trials of iteration 2 failed: tbench errors {batch}"
    assert summary.next_steps[-1] == f"look at every trial: tbench view {night.folder.folder}"


def test_a_column_of_the_report_is_declared_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The recipe of CONTRIBUTING.md: one entry, and text, Markdown and HTML have it."""
    monkeypatch.setitem(morning.MODELS.cells, "iterations tonight", lambda one: f"{one.iterations} measured")
    night = make_night(tmp_path / "night", [{"p": {"a": "+"}}, {"p": {"a": "x"}}])
    project_night(night.folder)
    head, cells = night.folder.report_md.read_text().split("| iterations tonight |\n")
    assert head.endswith("| cost ")
    assert cells.splitlines()[1].endswith("| 2 measured |")
    page = night.folder.report_html.read_text()
    assert '<th scope="col">iterations tonight</th></tr>' in page
    assert "<td>2 measured</td></tr>" in page


@pytest.mark.parametrize(
    ("model", "profile", "simulated", "shown"),
    [
        ("ollama:qwen3:8b", "ollama-qwen3-8b", False, "ollama:qwen3:8b"),
        ("simulated/weak", "careful", True, "careful (simulated/weak)"),
        ("x/y", "x-y", True, "x/y (simulated)"),
        ("x/y", "plain", True, "plain (x/y, simulated)"),
    ],
)
def test_profiles_of_one_model_are_told_apart(model: str, profile: str, simulated: bool, shown: str) -> None:
    assert model_name(model, profile, simulated=simulated) == shown


def test_what_was_learned_and_what_waits_stand_in_the_first_lines(tmp_path: Path) -> None:
    summary = project_night(make_night(tmp_path / "night", [{"p": {"a": "+"}}] * 2).folder)
    waits = "challenger p12 is waiting for its canary: tbench overnight --learn plan.toml (this one cost $2.00)"
    gain = Gain(
        kind=GainKind.TRANSFER, profile="p-lessons", control="p", policy_id="q", batches=2, tasks=9, trials=240,
        control_trials=240, difference=0.271, low=0.18, high=0.35, verdict="better",
    )  # fmt: skip
    effects = [
        LessonEffect(
            id="l-1", text="Do: Skip it.", state="retired", mean=-0.2, sd=0.03, trials=240, shown=90, counts=True
        ),
        LessonEffect(
            id="l-2", text="Do: Run it.", state="active", mean=0.279, sd=0.048, trials=240, shown=170, counts=True
        ),
    ]
    lessons = LessonsSummary(
        mode="masked", reflector="our own rules", gains=[gain], reflections=[], cost_usd=None, cost_unknown=0,
        effects=effects, trials=240, control_trials=120, control_cost_usd=1.5,
    )  # fmt: skip
    training = TrainedNight(training="t", night=1, lines=["x"], waits=waits)
    told = replace(summary, lessons=lessons, training=training)
    told = replace(told, next_steps=next_steps(told, tmp_path))
    assert headlines(told) == [
        "Better? yes: +27.1 pt (95 %: +18.0 to +35.0 pt) by lessons from other tasks, p-lessons against p, over 9 tasks, "
        "240 and 240 trials: better",
        "Pass rate, mean over 1 of 1 task: p (spec-p) 100.0 % (2 of 2 trials, 95 % on tasks like these: 20.7 to 100.0 %)",
        "Learned: “Do: Skip it.” -20.0 pt (95 %: -25.9 to -14.1 pt; 90 trials with it, 150 without), retired, l-1",
        "Learned: “Do: Run it.” +27.9 pt (95 %: +18.5 to +37.3 pt; 170 trials with it, 70 without), active, l-2",
        f"Waits: {waits}",
        "Ran: finished; 2 of 2 iterations; 2 of 2 trials measured, 2 passed; cost unknown, $1.50 of it for 120 trials without lessons",
        "Broke: nothing",
        "Next: what waits",
    ]
    assert next_steps(told, tmp_path)[0] == waits
    use = (
        "read what was learned (tbench memory list --state active); "
        'to use it, set lessons = "masked" in [profiles.p] of your experiment file'
    )
    assert next_steps(told, tmp_path)[1] == use
    worse = replace(told, lessons=replace(lessons, gains=[replace(gain, verdict="worse")]))
    assert next_steps(worse, tmp_path)[1] == "leave p without lessons, and look at them: tbench memory list"
    played = replace(told, lessons=replace(lessons, gains=[replace(gain, simulated=True)]))
    played = replace(played, models=[replace(one, simulated=True) for one in told.models])
    told_first = headlines(told)[0].replace("yes:", "(simulated agents) yes:")
    assert headlines(played)[0] == f"{told_first} (simulated)"
    assert next_steps(played, tmp_path)[1] == f"if a real agent shows the same, {use}"
    none = replace(told, lessons=None, training=None)
    assert "Learned: not asked: the night ran without lessons" in headlines(none)
    stopped = replace(told, status="stopped", training=None, lessons=None)
    assert not any("--resume" in step for step in next_steps(stopped, tmp_path)), "nothing of it is left"
    assert "--resume" in next_steps(replace(stopped, iterations_planned=5), tmp_path)[0]


def test_a_gain_is_told_by_iteration_and_one_that_is_nearly_shown_is_worth_one_more(tmp_path: Path) -> None:
    rounds = [{"p": {"a": "x"}, "p-lessons": {"a": mark}} for mark in "+x+"]
    gain = Gain(
        kind=GainKind.TRANSFER, profile="p-lessons", control="p", policy_id="q", batches=2, tasks=12, trials=240,
        control_trials=240, difference=0.188, low=0.0, high=0.37, verdict="inconclusive",
    )  # fmt: skip
    lessons = LessonsSummary(
        mode="masked", reflector="our own rules", gains=[gain], reflections=[], cost_usd=None, cost_unknown=0,
        iterations=[2, 3],
    )  # fmt: skip
    told = replace(project_night(make_night(tmp_path / "night", rounds).folder), lessons=lessons)
    assert headlines(told)[0].endswith("; by iteration +0.0 pt, +100.0 pt"), "in the first one no lesson was known"
    (step,) = [one for one in next_steps(told, tmp_path) if "settle whether" in one]
    assert headlines(told)[0].startswith("Better? no proof either way: +18.8 pt (")
    assert "; so few trials miss a true gain of 26.5 pt in 1 of 5 such nights; by iteration" in headlines(told)[0]
    assert "at least 1 more iteration, 4 in all: tbench overnight --resume" in step
    assert "--iterations 4 (2 trials" in step
    far = replace(told, lessons=replace(lessons, gains=[replace(gain, difference=-0.1, low=-0.4, high=0.2)]))
    said = (
        "use more than 12 tasks next time: with these tasks and attempts, a true gain below about 42.9 pt is missed in "
        "more than one of five nights"
    )
    assert next_steps(far, tmp_path)[0] == said
    level = replace(told, lessons=replace(lessons, gains=[replace(gain, difference=0.0, low=-0.3, high=0.3)]))
    assert next_steps(level, tmp_path)[0] == said, "nothing was seen that more iterations would show"
    doubtful = replace(gain, low=0.1, high=0.3, note="9 results of 9 of p look doubtful: no_tokens")
    told = replace(told, lessons=replace(lessons, gains=[doubtful]))
    assert headlines(told)[0].startswith("Better? not decided: +18.8 pt (95 %: +10.0 to +30.0 pt) by lessons from")
    assert ", because 9 results of 9 of p look doubtful: no_tokens; by iteration" in headlines(told)[0]
    assert next_steps(told, tmp_path)[0].startswith("check the doubtful results")
    assert next_steps(told, tmp_path)[0].endswith("batches/night/3")


def test_what_broke_trials_alike_is_named_and_mended_first(tmp_path: Path) -> None:
    rounds = [{"p": {"a": "E", "b": "+"}, "q": {"a": "E", "b": "+"}}] * 2
    summary = project_night(make_night(tmp_path / "night", rounds).folder)
    (broke,) = [line for line in summary.headlines if line.startswith("Broke: ")]
    reason = summary.lost[0].reason
    assert broke == f"Broke: 4 of 8 trials not measured (4 environment errors of a: {reason})"
    again = summary.next_steps[1]
    assert summary.next_steps[0] == f"fix what broke 4 trials of a in the same way: {reason}; then {again}"
    (rates,) = [line for line in summary.headlines if line.startswith("Pass rate")]
    assert rates.startswith("Pass rate, mean over 1 of 2 tasks: ")
    assert summary.next_steps[1].startswith("run what broke in iteration 1 again: tbench resume")


def test_trials_that_broke_alike_in_other_folders_are_mended_together(tmp_path: Path) -> None:
    summary = project_night(make_night(tmp_path / "night", [{"p": {"a": "E"}}]).folder)
    lost = [
        replace(summary.lost[0], reason=f"No reward file found in /n/1/runs/{task}__{n}/verifier", tasks=[task])
        for n, task in enumerate("aab")
    ]
    said = next_steps(replace(summary, lost=lost), tmp_path)[0]
    assert said.startswith("fix what broke 3 trials of a, b in the same way: No reward file found in /n/1/runs/a__0/")


def test_crashes_of_an_agent_are_failures_and_broke_something(tmp_path: Path) -> None:
    night = make_night(tmp_path / "night", [{"p": {"a": "x", "b": "x"}}])
    batch = next(Batch(one) for one in night.folder.results_root.glob("night/1"))
    trial = make_trial(batch, "b__p1", reward=0.0, error="NonZeroAgentExitCodeError", attempt=1) / "result.json"
    worked = {"started_at": "2026-01-23T16:30:10Z", "finished_at": "2026-01-23T16:30:50Z"}
    trial.write_text(json.dumps(json.loads(trial.read_text()) | {"agent_execution": worked}))
    found = project_night(night.folder)
    assert (found.measured, found.crashed) == (2, 1)
    assert "Broke: 1 trial failed because the agent crashed" in found.headlines


def test_a_hole_a_rerun_and_incidents_are_named(tmp_path: Path) -> None:
    night = make_night(tmp_path / "night", [{"p": {"a": "+", "b": "E"}}, {"p": {"a": "x", "b": "+"}}])
    status = (IterationStatus.INCOMPLETE, IterationStatus.DONE)
    night.state([IterationWork(n, Role.ITERATION, n, status[n - 1]) for n in (1, 2)], status="finished")
    said = [f"iteration 1: {count} of 2 trials ended by an error of the bench" for count in (2, 1)]
    night.say(*[NightEvent("2026-01-23T17:01:00Z", NightEventKind.INCIDENT, one, iteration=1) for one in said])
    better, _, learned, waits, ran, broke, first = project_night(night.folder).headlines
    assert better.startswith(
        "Better? cannot be told: nothing to compare p with (no measured lessons, no training, no earlier night on these "
        "tasks); 100.0 % in iteration 1, 50.0 %"
    )
    assert learned == "Learned: not asked: the night ran without lessons"
    assert waits == "Waits: nothing to approve"
    assert ran.startswith(
        "Ran: finished, but incomplete: iteration 1 lacks 1 of 2 trials; 1 of 2 iterations, 1 incomplete; 3 of 4 "
    )
    assert broke.endswith(f"; 2 incidents ({said[0]}, {said[1]})")
    assert first.startswith("Next: run what broke in iteration 1 again: tbench resume ")


def test_every_surface_says_the_same_of_a_night(
    tmp_path: Path, tbench: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """A night that its budget stopped: terminal, its JSON, report, summary.json, watch, status line and dashboard."""
    from support.dashboard import Root
    from terminalbench.cli.night_progress import NightTeller, night_line
    from terminalbench.dashboard.site import Site
    from terminalbench.watch.night import NightFeed, total_line

    marks = [{"p": {"a": "+x", "b": "+E"}, "q": {"a": "++", "b": "x."}}] * 2
    night = make_night(tmp_path / "night", marks, attempts=2)
    # A worker that was ended had counted 7 of the trials that its batch has: the files of the batch say how many.
    ends = [WorkEnd(code=3, trials=8, measured=measured, passed=3) for measured in (6, 7)]
    status = (IterationStatus.DONE, IterationStatus.INCOMPLETE)
    work = [IterationWork(n, Role.ITERATION, n, status[n - 1], end=ends[n - 1]) for n in (1, 2)]
    state = night.state(work, status="stopped", stopped="the budget is used up")
    config = replace(night.config, iterations=5)
    write_json(night.folder.config_json, config)
    summary = project_night(night.folder)
    ran = (
        "stopped (the budget is used up), but incomplete: iteration 2 lacks 2 of 8 trials; 1 of 5 iterations, 1 incomplete; "
        "12 of 16 trials measured, 8 passed; "
        "cost unknown"
    )
    end = NightEnd(night.folder, config, state, summary=summary)
    for as_json in (False, True):
        with NightTeller(quiet=as_json) as teller:
            teller.show_end(end, as_json=as_json)
    terminal, _, document = capsys.readouterr().out.partition("{")
    feed = NightFeed(night.folder)
    feed.poll()
    page = Root(tmp_path, Site(tmp_path)).text("nights/night/")
    surfaces = {
        "terminal": terminal,
        "report": night.folder.report_md.read_text(),
        "page": night.folder.report_html.read_text(),
        "summary": "\n".join(read_json(night.folder.summary_json, NightSummary).headlines),
        "watch": total_line(feed),
        "command": tbench("report", night.folder.folder).out,
        "message": first_lines(summary),
    }
    for name, text in surfaces.items():
        assert ran in re.sub(r"</?b>|\*\*", "", text), name
    assert ran in page
    for line in summary.headlines:
        assert line in terminal
    told = json.loads("{" + document)
    assert (told["trials"], told["measured"], told["passed"], told["done"]) == (16, 12, 8, 1)
    assert night_line(config, state, 0.0, 0.0).startswith("1 of 5 iterations, 1 incomplete, ")

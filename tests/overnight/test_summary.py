"""The summary and the reports of a night: at any moment, the same again, and true."""

import json
import re
import shlex
import shutil
from pathlib import Path
from random import Random
from typing import Any

import click
import pytest

from support.nights import Marks, Night, harbor_rewards, make_night
from terminalbench.cli.app import app
from terminalbench.errors import UserError
from terminalbench.json_files import read_json
from terminalbench.locks import lock
from terminalbench.overnight.episodes import EpisodeStore
from terminalbench.overnight.folder import NightFolder
from terminalbench.overnight.iteration_files import project_iteration
from terminalbench.overnight.iteration_results import IterationResults
from terminalbench.overnight.morning import first_lines
from terminalbench.overnight.night import (
    IterationStatus,
    IterationWork,
    NightEvent,
    NightEventKind,
    NightModel,
    Role,
    SuiteTask,
    WithdrawnTask,
)
from terminalbench.overnight.summary import project_night
from terminalbench.overnight.summary_model import NightSummary
from terminalbench.text.numbers import moment


def rounds(seed: int, count: int, tasks: int = 6) -> list[Marks]:
    luck = Random(seed)
    rates = [luck.choice((0.2, 0.5, 0.9)) for _ in range(tasks)]

    def marks() -> dict[str, str]:
        return {f"t{n}": luck.choices("+xE", (rate, 1 - rate, 0.1))[0] for n, rate in enumerate(rates)}

    return [{"p": marks(), "q": marks()} for _ in range(count)]


def night_of(tmp_path: Path, marks: list[Marks], **config: Any) -> Night:
    return make_night(tmp_path / "night", marks, **config)


def written(night: Night) -> dict[str, bytes]:
    names = ("summary.json", "report.md", "report.html", "iterations/*/results.json", "iterations/*/delta.json")
    return {str(f): f.read_bytes() for name in names for f in sorted(night.folder.folder.glob(name))}


def test_the_numbers_are_those_of_harbors_files(tmp_path: Path) -> None:
    night = night_of(tmp_path, rounds(1, 5))
    summary = project_night(night.folder)
    for model in summary.models:
        by_task: dict[str, list[float]] = {}
        lost = 0
        for batch in night.folder.batches():
            for task, rewards in harbor_rewards(batch, model.profile).items():
                by_task.setdefault(task, []).extend(r for r in rewards if r is not None)
                lost += rewards.count(None)
        told = [reward for found in by_task.values() for reward in found]
        means = [sum(found) / len(found) for found in by_task.values() if found]
        assert (model.passed, model.failed, model.errored) == (told.count(1.0), told.count(0.0), lost)
        assert model.pass_rate == pytest.approx(sum(means) / len(means))
        assert model.coverage == pytest.approx(len(told) / (5 * 6))
        flaky = {task for task, found in by_task.items() if 0 < sum(found) < len(found)}
        assert {one.task_id for one in model.flaky} == flaky
        row = next(
            line
            for line in night.folder.report_md.read_text().splitlines()
            if line.startswith(f"| {model.profile} (spec-{model.profile}")
        )
        rate = f"{100 * sum(means) / len(means):.1f} %"
        fields = [field.strip() for field in row.split("|")]
        assert (fields[2], fields[4:7]) == (rate, [str(told.count(1.0)), str(told.count(0.0)), str(lost)])
        assert f"{rate} ({told.count(1.0)} of {len(told)} trials, " in night.folder.report_html.read_text()
    assert read_json(night.folder.summary_json, NightSummary) == summary


def test_rates_by_category_and_difficulty_are_of_measured_trials(tmp_path: Path) -> None:
    said = {"a": ("git", "easy"), "b": ("git", "hard"), "c": ("sql", None), "d": (None, None)}
    tasks = [SuiteTask(name, "d", "x", category=kind, difficulty=hard) for name, (kind, hard) in said.items()]
    rounds: list[Marks] = [
        {"p": {"a": "++", "b": "xE", "c": "EE", "d": "x+"}},
        {"p": {"a": "+x", "b": "x.", "c": "E.", "d": "++"}},
    ]
    night = night_of(tmp_path, rounds, suite_tasks=tasks)
    [model] = project_night(night.folder).models
    told = {
        (one.by.value, one.name): (one.tasks, one.passed, one.measured, one.total, one.pass_rate)
        for one in model.groups
    }
    by_task: dict[str, list[float]] = {}
    for batch in night.folder.batches():
        for task, rewards in harbor_rewards(batch, "p").items():
            by_task.setdefault(task, []).extend(reward for reward in rewards if reward is not None)

    def counted(*names: str) -> tuple[int, int, int, int, float | None]:
        found = [by_task[name] for name in names if by_task.get(name)]
        rate = sum(sum(one) / len(one) for one in found) / len(found) if found else None
        return len(names), int(sum(map(sum, found))), sum(map(len, found)), 4 * len(names), rate

    assert told == {
        ("category", "git"): counted("a", "b"),
        ("category", "sql"): counted("c"),
        ("category", None): counted("d"),
        ("difficulty", "easy"): counted("a"),
        ("difficulty", "hard"): counted("b"),
        ("difficulty", None): counted("c", "d"),
    }
    assert [one.coverage for one in model.groups if one.name in ("git", "sql")] == [6 / 8, 0.0]
    report, page = night.folder.report_md.read_text(), night.folder.report_html.read_text()
    assert "<summary>By category</summary>\n" in report
    assert "| p | git | 2 | 37.5 % | 3/6 | 75.0 % |" in report
    assert "| p | no difficulty | 2 | 75.0 % | 3/4 | 50.0 % |" in report
    assert ">By difficulty</h2>" in page
    results = json.loads(night.folder.results_json(1).read_text())["profiles"][0]["tasks"]
    assert {one["task_id"]: (one["category"], one["difficulty"]) for one in results} == said


def test_deleted_it_comes_back_the_same(tmp_path: Path) -> None:
    night = night_of(tmp_path, rounds(2, 4))
    night.say(
        NightEvent(
            "2026-01-23T17:00:00Z", NightEventKind.WORKER_LOST, "it stopped beating", iteration=2, cause="SIGKILL"
        )
    )
    project_night(night.folder)
    before = written(night)
    assert len(before) == 11
    for file in before:
        Path(file).unlink()
    (night.folder.results_root / "index.db").unlink()
    project_night(night.folder)
    assert written(night) == before


def test_a_night_without_anything_has_a_report(tmp_path: Path) -> None:
    night = night_of(tmp_path, [])
    summary = project_night(night.folder)
    assert summary.headlines[:6] == [
        "Better? cannot be told: nothing to compare p with (no measured lessons, no training, no earlier night on these tasks)",
        "Pass rate: nothing was measured yet",
        "Learned: not asked: the night ran without lessons",
        "Waits: nothing to approve",
        "Ran: cut off; 0 of 0 iterations; 0 of 0 trials measured, 0 passed; cost $0.00",
        "Broke: nothing",
    ]
    night.folder.state_json.unlink()
    assert project_night(night.folder).status == "unknown"
    assert "None has started." in night.folder.report_md.read_text()
    assert "None has started." in night.folder.report_html.read_text()


def test_a_night_in_the_middle_says_how_far_it_is(tmp_path: Path) -> None:
    night = night_of(tmp_path, rounds(3, 2), iterations=9)
    night.batch(3, {"p": {"t0": "."}, "q": {"t0": "."}})
    works = [IterationWork(n, Role.ITERATION, n, IterationStatus.DONE) for n in (1, 2)]
    works += [
        IterationWork(3, Role.ITERATION, 3, IterationStatus.LEASED, starts=2),
        IterationWork(4, Role.ITERATION, 4),
    ]
    night.state(works)
    with lock(night.folder.lock, "the tests"):
        summary = project_night(night.folder)
    assert (summary.status, summary.over, [line.number for line in summary.iterations]) == ("running", 2, [1, 2, 3])
    assert any("; 2 of 9 iterations; " in line for line in summary.headlines)
    assert summary.iterations[2].starts == 2
    still = [one.iteration for one in summary.lost]
    assert 3 not in still, "what has not run of an iteration that runs is not broken"
    cut = project_night(night.folder)
    assert 3 in [one.iteration for one in cut.lost]
    assert cut.status == "cut off", "no process holds the night any more"
    assert any("tbench overnight --resume" in step for step in cut.next_steps)
    assert not any("--resume" in step for step in summary.next_steps)


def test_each_next_step_names_what_is_there(tmp_path: Path) -> None:
    night = night_of(tmp_path, rounds(4, 3))
    steps = project_night(night.folder).next_steps
    commands = [shlex.split(step.partition("tbench ")[2].partition(" (")[0]) for step in steps if "tbench " in step]
    assert ["view", str(night.folder.folder)] in commands
    context = click.Context(app, **app.context_settings)
    for name, *arguments in commands:
        command = app.get_command(context, name)
        assert command is not None
        command.make_context(name, arguments, parent=context)  # it is refused when there is no such option
    for step in steps:
        for path in re.findall(r"/\S+", step):
            if not path.startswith("//"):
                assert Path(path).exists(), step


def test_incidents_scaling_and_quarantine_are_told_with_their_cause(tmp_path: Path) -> None:
    night = night_of(tmp_path, rounds(5, 1))
    night.say(
        NightEvent("2026-01-23T17:00:00Z", NightEventKind.WORKER_STARTED, worker=1),
        NightEvent(
            "2026-01-23T17:01:00Z",
            NightEventKind.WORKER_LOST,
            "worker 1 stopped beating",
            iteration=1,
            worker=1,
            cause="signal 9",
        ),
        NightEvent("2026-01-23T17:02:00Z", NightEventKind.SCALED, "memory is short", workers=2),
    )
    with night.folder.events_jsonl.open("ab") as file:
        file.write(b'{"time": "torn\n')
        file.write(b'{"time": "noon", "kind": "worker_lost"}\n')
    night.state(
        status="stopped", stopped="the budget is used up", quarantine=[WithdrawnTask("t1", "d", "killed two workers")]
    )
    summary = project_night(night.folder)
    for text in (night.folder.report_md.read_text(), night.folder.report_html.read_text()):
        for said in (
            "worker 1 stopped beating",
            "signal 9",
            "memory is short",
            "killed two workers",
            "the budget is used up",
        ):
            assert said in text
    assert [one.workers for one in summary.scaling] == [2]
    assert (summary.workers_started, summary.problems) == (
        1,
        ["2 lines of events.jsonl cannot be read, starting with line 4"],
    )
    assert (
        "Broke: 1 lost worker (worker 1 stopped beating); 1 task left out: d/t1; 1 note about unreadable files"
        in summary.headlines
    )


def test_flips_link_to_the_trials_that_show_them(tmp_path: Path) -> None:
    night = night_of(tmp_path, [{"p": {"a": "++"}}, {"p": {"a": "+x"}}])
    project_night(night.folder)
    links = re.findall(r"\[\d/\d\]\(([^)]+)\)", night.folder.report_md.read_text())
    assert len(links) == 2
    outcomes = [
        json.loads((night.folder.folder / link / "result.json").read_text())["verifier_result"]["rewards"]
        for link in links
    ]
    assert outcomes == [{"reward": 1.0}, {"reward": 0.0}]
    html = night.folder.report_html.read_text()
    assert all(f'href="{link}"' in html for link in links)


def test_the_first_lines_stand_by_themselves(tmp_path: Path) -> None:
    night = night_of(tmp_path, rounds(6, 2))
    summary = project_night(night.folder)
    said = first_lines(summary)
    assert said.splitlines() == summary.headlines
    times = [
        one.finished_at
        for line in (night.folder.results_json(n) for n in (1, 2))
        for one in read_json(line, IterationResults).profiles
    ]
    assert (
        f"| last trial ended | {moment(max(time for time in times if time))} UTC |"
        in night.folder.report_md.read_text()
    )
    assert said.startswith("Better? ")
    first = night.folder.report_md.read_text().splitlines()[:10]
    assert [line.replace("**", "").removeprefix("- ")[:60] for line in first[2 : 2 + len(summary.headlines)]] == [
        line[:60] for line in summary.headlines
    ], "the first ten lines are the answer"


def test_the_night_before_is_the_measure(tmp_path: Path) -> None:
    tasks = [f"t{n}" for n in range(8)]
    good, bad = ({"p": dict.fromkeys(tasks, mark)} for mark in "+x")
    first = make_night(tmp_path / "first", [good] * 4, run_id="first", project=tmp_path)
    store = EpisodeStore.of_project(tmp_path)
    for number in range(1, 5):
        for episode in project_iteration(first.folder, first.config, number).episodes:
            store.record(episode)
    assert project_night(first.folder).models[0].earlier is None, "not against itself"
    again = make_night(
        tmp_path / "again", [bad] * 2, run_id="again", project=tmp_path, created_at="2026-01-24T16:00:00Z"
    )
    earlier = project_night(again.folder).models[0].earlier
    assert earlier is not None
    assert (earlier.run_id, earlier.iterations, earlier.pass_rate) == ("first", 4, 1.0)
    assert earlier.p is not None
    assert earlier.p < 0.001
    assert earlier.sentence.startswith("worse than run first (4 iterations, 100.0 %)")
    other = make_night(
        tmp_path / "other", [{"p": {"t0": "+"}}], run_id="other", project=tmp_path, created_at="2026-01-24T16:00:00Z"
    )
    assert project_night(other.folder).models[0].earlier is None, "another set of tasks has no baseline here"
    shutil.rmtree(first.folder.folder)
    gone = project_night(again.folder).models[0].earlier
    assert gone is not None
    assert (gone.p, "cannot be read any more" in gone.sentence) == (None, True)


def test_tasks_and_profiles_that_became_others_are_left_out_and_said(tmp_path: Path) -> None:
    night = night_of(tmp_path, [{"p": {"a": "+", "b": "+"}}, {"p": {"a": "x", "b": "+"}}])
    for file in night.folder.batches()[1].runs.glob("*/a__*/result.json"):
        file.write_text(file.read_text().replace("c" * 64, "e" * 64))
    summary = project_night(night.folder)
    assert summary.problems == [
        "the content of d/a changed during the night, so no rate over several iterations includes it"
    ]
    assert (summary.models[0].pass_rate, [one.task_id for one in summary.models[0].tasks]) == (1.0, ["b"])


def test_hostile_words_stay_words(tmp_path: Path) -> None:
    night = night_of(tmp_path, [{"p": {"a": "+"}}], suite_name="<script>alert(1)</script>")
    night.say(
        NightEvent(
            "2026-01-23T17:00:00Z",
            NightEventKind.INCIDENT,
            "<img src=x onerror=y>\x1b[2J | a",
            cause="[x](http://evil)",
        )
    )
    project_night(night.folder)
    html, text = night.folder.report_html.read_text(), night.folder.report_md.read_text()
    assert "<script>" not in html
    assert "<img" not in html + text
    assert "://" not in text
    assert "\x1b" not in html + text


def test_validation_is_in_the_report(tmp_path: Path) -> None:
    claude = NightModel("claude-code", "claude-code", "id-c")
    night = night_of(tmp_path, [{"p": {"a": "+", "b": "x"}}], validation=claude, validation_rate=0.5)
    night.batch(1, {"p": {"b": "x"}, "claude-code": {"b": "+"}}, role=Role.VALIDATION, cost=0.5)
    summary = project_night(night.folder)
    assert "only claude-code solved: b (1)" in night.folder.report_md.read_text()
    assert summary.cost_usd == pytest.approx(1.0), "what the validation cost is part of the night"
    assert "only claude-code solved: b (1)<" in night.folder.report_html.read_text()


def test_a_folder_that_is_no_night_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not the folder of a night"):
        project_night(NightFolder(tmp_path))


def test_a_night_too_small_for_an_alert_says_so_and_is_right(tmp_path: Path) -> None:
    for tasks, possible in ((2, False), (3, True)):
        names = [f"t{n}" for n in range(tasks)]
        marks = [{"p": dict.fromkeys(names, "+")}] * 4 + [{"p": dict.fromkeys(names, "x")}]
        summary = project_night(make_night(tmp_path / str(tasks), marks).folder)
        assert bool(summary.alerts) is possible, "the most that can happen"
        said = [step for step in summary.next_steps if "raises no alert" in step]
        assert said == (
            []
            if possible
            else ["use at least 3 tasks (p) next time: with fewer a regression may be luck, and raises no alert"]
        )

"""What lessons gain against their controls: on batches made by hand, with the statistics of compare."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from support.lessons import PERSON, draft
from support.nights import make_night
from support.results import make_plan, make_trial
from terminalbench.analytics.stats import mean_interval, paired
from terminalbench.archivist.gains import GainKind, exposed, pairs
from terminalbench.archivist.memory import add, find
from terminalbench.archivist.store import open_store
from terminalbench.experiments.batch import Batch, allocate
from terminalbench.experiments.plan import Plan, ProfileRecord
from terminalbench.experiments.profiles import content_id, policy_id
from terminalbench.json_files import read_json, write_json
from terminalbench.records.lesson import LessonState
from terminalbench.records.trial import Exposure, LessonsDelivery

PLAIN = {"agent": "oracle", "model": "m"}
OTHER = {"agent": "oracle", "model": "n"}


def with_lessons(mode: str, snapshot: str) -> dict[str, Any]:
    return {**PLAIN, "lessons": {"mode": mode, "k": 1, "snapshot": snapshot}}


def batch_of(
    root: Path, marks: Mapping[str, Mapping[str, str]], contents: Mapping[str, dict[str, Any]], lesson: str = "l-1"
) -> Batch:
    """A batch with these profiles; by profile and task its attempts: `+` passed, `x` failed."""
    batch = allocate(root, "s")
    tasks = list(next(iter(marks.values())))
    make_plan(batch, tuple(marks), tasks, len(next(iter(next(iter(marks.values())).values()))))
    records = tuple(ProfileRecord(key, content_id(contents[key]), contents[key]) for key in marks)
    write_json(batch.plan_json, msgspec.structs.replace(read_json(batch.plan_json, Plan), profiles=records))
    for profile, by_task in marks.items():
        mode = contents[profile].get("lessons", {}).get("mode")
        for task, line in by_task.items():
            for n, mark in enumerate(line, start=1):
                folder = make_trial(
                    batch, f"{task}__{profile}{n}", profile=profile, reward=float(mark == "+"), attempt=n
                )
                if mode is not None:
                    told = [Exposure(lesson, 0.7, shown=n % 2 == 1, characters=40)]
                    write_json(folder / "lessons.json", LessonsDelivery(mode, "s", told))
    return batch


def test_transfer_and_recall_are_apart_each_against_its_control_of_the_same_batches(tmp_path: Path) -> None:
    root = tmp_path / "results"
    for snapshot, transfer in (("s1", "+x"), ("s2", "++")):  # the memory has learned in between: one policy
        contents = {
            "c": PLAIN,
            "t": with_lessons("masked", snapshot),
            "r": with_lessons("recall", snapshot),
            "o": OTHER,
        }
        marks = {
            "c": {"a": "xx", "b": "x+"},
            "t": {"a": transfer, "b": "x+"},
            "r": {"a": "++", "b": "++"},
            "o": {"a": "xx", "b": "xx"},
        }
        batch_of(root, marks, contents)
    transfer, recall = exposed([root]).gains()
    assert (transfer.kind, transfer.profile, transfer.control) == (GainKind.TRANSFER, "t", "c")
    assert (recall.kind, recall.profile, recall.control) == (GainKind.RECALL, "r", "c")
    assert transfer.policy_id == policy_id(with_lessons("masked", "s1"))
    assert (transfer.batches, transfer.tasks, transfer.trials, transfer.control_trials) == (2, 2, 8, 8)
    # By task: a 3/4 less 0/4, b 2/4 less 2/4; the interval is Student's over tasks, as compare has it.
    assert transfer.difference == pytest.approx(0.375)
    wanted = mean_interval(paired([0.75, 0.0]), 0.05, (-1.0, 1.0))
    assert wanted is not None
    assert (transfer.low, transfer.high) == pytest.approx((wanted.low, wanted.high))
    assert recall.difference == pytest.approx(0.75)


def test_the_verdict_of_a_gain_counts_every_look_at_it(tmp_path: Path) -> None:
    """Six tasks of six decide, but not where an earlier look at them could have decided the other way."""
    contents = {"c": PLAIN, "t": with_lessons("masked", "s")}
    names = [f"t{n}" for n in range(6)]
    lucky = {"c": dict.fromkeys(names, "xxx"), "t": dict.fromkeys(names, "+++")}
    turns = dict.fromkeys(names[:3], "+") | dict.fromkeys(names[3:], "x")
    mixed = {"c": {name: "x" if mark == "+" else "+" for name, mark in turns.items()}, "t": turns}
    batch_of(tmp_path / "one", lucky, contents)
    (once,) = exposed([tmp_path / "one"]).gains()
    assert (once.verdict, once.looks) == ("better", 1)
    for marks in (mixed, lucky):
        batch_of(tmp_path / "many", marks, contents)
    (often,) = exposed([tmp_path / "many"]).gains()
    assert (often.verdict, often.looks, often.batches) == ("inconclusive", 2, 2)
    single = mean_interval(paired([1.0] * 3 + [0.5] * 3), 0.05, (-1.0, 1.0))
    assert single is not None
    assert often.low is not None
    assert often.low <= 0 < single.low
    # Two nights are two folders whose batches have the same name: each is a look of its own.
    for night in ("a", "b"):
        batch_of(tmp_path / night, lucky, contents)
    (apart,) = exposed([tmp_path / "a", tmp_path / "b"]).gains()
    assert (apart.batches, apart.looks, apart.trials) == (2, 2, 36)


def test_a_profile_with_lessons_and_no_control_gains_nothing_that_can_be_told(tmp_path: Path) -> None:
    contents = {"t": with_lessons("masked", "s"), "o": OTHER}
    batch = batch_of(tmp_path / "results", {"t": {"a": "+"}, "o": {"a": "x"}}, contents)
    assert list(pairs(read_json(batch.plan_json, Plan))) == []
    assert exposed([tmp_path / "results"]).gains() == []


def test_the_commands_count_trials_once_and_show_effects_and_gains_in_80_columns(project, tbench) -> None:
    (project.root / "pyproject.toml").write_text("")

    def why() -> str:
        return " ".join(tbench("memory", "stats").out.split())

    assert "Effects are unknown: memory is empty." in why()
    with open_store(project.root / ".terminalbench", write=True) as store:
        lesson = add(store, draft("Look at alpha first."), by=PERSON).lesson.id
    assert "Effects are unknown: lessons were not offered to any trial." in why()
    tasks = {f"t{n:02}": "+x+x+x" for n in range(8)}
    contents = {"c": PLAIN, "t": with_lessons("masked", "s")}
    batch_of(project.root / "results", {"c": dict.fromkeys(tasks, "xxxxxx"), "t": tasks}, contents, lesson)
    assert "No batch compares" not in tbench("memory", "stats").out
    assert "48 trials with lessons are not counted yet. `tbench memory learn` counts them." in why()
    ran = tbench("memory", "learn")
    assert (ran.code, ran.out) == (0, "48 new trials counted; the estimates of 1 lesson have changed\n")
    assert tbench("memory", "learn").out == "0 new trials counted; the estimates of 0 lessons have changed\n"
    shown = tbench("memory", "stats")
    assert shown.code == 0, shown.err
    assert "Effects are unknown" not in shown.out
    assert max(map(len, shown.out.splitlines())) <= 80
    effect = next(line for line in shown.out.splitlines() if line.startswith(lesson))
    assert effect.split()[1] == "active"
    assert " 48 " in effect
    assert "transfer" in shown.out
    assert "+50.0 pt" in shown.out
    ran = tbench("report", project.root / "results" / "s" / "0")
    assert ran.code == 0, ran.err
    page = (project.root / "results" / "s" / "0" / "analytics" / "comparison_report.md").read_text()
    line = next(line for line in page.splitlines() if "lessons: shown" in line)
    assert "| 24 of 48 | 0 | 1 lesson, withheld 24 of 48 times; from its own task or family: 0 |" in line
    assert "did not get their configuration" not in page, "what was withheld by chance is not missing"
    counts = json.loads(tbench("memory", "stats", "--json").out)
    assert counts["lessons"] == 1
    assert [(one["kind"], one["difference"], one["trials"]) for one in counts["gains"]] == [("transfer", 0.5, 48)]
    listed = tbench("memory", "list").out
    assert "+" in listed.splitlines()[1]


def test_a_night_is_found_from_the_results_folder_it_lies_in_whatever_it_is_called(project, tbench) -> None:
    (project.root / "pyproject.toml").write_text("")
    with open_store(project.root / ".terminalbench", write=True) as store:
        lesson = add(store, draft("Look at alpha first."), by=PERSON).lesson.id
    night = make_night(project.root / "results" / "night").folder
    night.events_jsonl.touch()
    contents = {"c": PLAIN, "t": with_lessons("masked", "s")}
    batch_of(night.results_root, {"c": {"a": "xx", "b": "xx"}, "t": {"a": "+x", "b": "+x"}}, contents, lesson)
    for at in ((), ("--results", night.folder)):
        (gain,) = json.loads(tbench("memory", "stats", "--json", *at).out)["gains"]
        assert (gain["kind"], gain["difference"], gain["trials"]) == ("transfer", 0.5, 4)
    assert tbench("memory", "learn").out.startswith("4 new trials counted")
    assert tbench("memory", "learn", "--results", night.folder).out.startswith("0 new trials counted")
    assert not (project.root / "index.db").exists()  # the results folder is the root, not a job of the folder around it


def test_a_lesson_that_harms_is_retired_by_the_trials_of_the_index_and_a_useless_one_is_not(project, tbench) -> None:
    (project.root / "pyproject.toml").write_text("")
    with open_store(project.root / ".terminalbench", write=True) as store:
        bad, idle = (add(store, draft(f"Look at {name} first."), by=PERSON).lesson.id for name in ("alpha", "beta"))
    contents = {"c": PLAIN, "t": with_lessons("masked", "s")}
    tasks = [f"t{n:02}" for n in range(8)]
    # Every second trial is shown the lesson: the first one fails whenever it is, the other one makes no difference.
    batch_of(project.root / "results", {"c": dict.fromkeys(tasks, "++++++"), "t": dict.fromkeys(tasks, "x+x+x+")}, contents, bad)  # fmt: skip
    batch_of(project.root / "results", {"c": dict.fromkeys(tasks, "++xx+x"), "t": dict.fromkeys(tasks, "++xx+x")}, contents, idle)  # fmt: skip
    ran = tbench("memory", "learn")
    assert ran.code == 0, ran.err
    assert f"{bad} is retired: its effect" in ran.out
    assert "in 48 trials, 24 of them with it" in ran.out
    assert "96 new trials counted" in ran.out
    shown = tbench("memory", "stats").out
    assert f"1 lesson retired by effect: {bad}" in shown
    with open_store(project.root / ".terminalbench") as store:
        effect = find(store, idle).utility
        assert find(store, idle).state is LessonState.ACTIVE
        assert effect is not None
        assert abs(effect.mean) < effect.sd
    entries = json.loads(tbench("memory", "show", bad, "--json").out)["log"]
    assert [(entry["op"], entry["by"]) for entry in entries] == [
        ("retire", "utility"),
        ("edit", "utility"),
        ("add", PERSON),
    ]

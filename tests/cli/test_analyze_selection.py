"""`tbench analyze` of a part of a batch and of several batches: what was left out, and what the report is about."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from support.experiments import ORACLE, Project
from support.results import make_plan, make_trial
from support.trajectories import bash, put, trajectory
from terminalbench.analytics.model import Comparison
from terminalbench.analytics.run import AnalysisRequest, run_analysis
from terminalbench.analytics.selection import Filter
from terminalbench.errors import UserError
from terminalbench.experiments.batch import Batch, allocate
from terminalbench.json_files import read_json, write_json

FILE = 'schema_version = 2\nslug = "s"\n[tasks]\nitems = [{ id = "a" }]\n' + ORACLE
BOTH = ("comparison_report.md", "report.html")


def ran(batch: Batch, profile: str, passed: str, tasks: str) -> None:
    for task in tasks:
        reward = float(task in passed)
        put(make_trial(batch, f"{task}__{profile}", profile=profile, reward=reward), trajectory(bash("ls")))


def in_reports(folder: Path, words: str) -> list[bool]:
    return [words in (folder / name).read_text() for name in BOTH]


def test_a_hand_picked_part_says_what_it_leaves_out(tmp_path: Path, tbench: Any) -> None:
    batch = allocate(tmp_path / "results", "s")
    tasks = "abcdefghijkl"
    make_plan(batch, ("p", "q"), tasks)
    ran(batch, "q", "abcdefg", tasks)
    ran(batch, "p", "hijkl", tasks)
    whole = tbench("analyze", batch.folder)
    assert ": inconclusive" in whole.out
    assert "were picked" not in whole.out
    assert in_reports(batch.analytics, "All 24 planned trials were measured.") == [True, True]
    picked = tbench("analyze", batch.folder, "--tasks", *"abcdefg")
    assert "q vs p: +100.0 pt" in picked.out
    said = "only 7 of 12 planned tasks were picked for this analysis"
    assert f"note: picked: {said}\n" in picked.out
    selection = batch.analytics / "selection"
    for words in (said, "7 tasks x 2 profiles x 1 attempt, 14 of 24 planned trials"):
        assert in_reports(selection, words) == [True, True], words
    assert in_reports(selection, "All 14 picked trials were measured. 24 were planned.") == [True, True]
    assert read_json(selection / "comparison.json", Comparison).departures == [f"picked: {said}"]
    assert read_json(selection / "statistical_tests.json")["departures"] == [f"picked: {said}"]
    everything = tbench("analyze", batch.folder, "--tasks", *tasks)
    assert "were picked" not in everything.out, "nothing was left out"


@pytest.mark.parametrize(
    ("declared", "picked", "departures"),
    [
        (
            [["sim", "nop"], ["nop", "oracle"], ["sim", "oracle"]],
            ("sim", "oracle"),
            [
                "only 2 of 3 planned profiles were picked for this analysis: "
                "Holm's adjustment leaves out sim vs nop, nop vs oracle",
                "nop was declared as baseline, sim is used",
            ],
        ),
        (
            [["sim", "nop"]],
            ("sim", "oracle"),
            [
                "only 2 of 3 planned profiles were picked for this analysis: Holm's adjustment leaves out sim vs nop",
                "nop was declared as baseline, sim is used",
                "no declared contrast is left: each profile is compared with sim",
            ],
        ),
        (
            [],
            ("nop", "sim"),
            ["only 2 of 3 planned profiles were picked for this analysis: Holm's adjustment leaves out oracle vs nop"],
        ),
        ([], ("nop",), ["only 1 of 3 planned profiles were picked for this analysis"]),
    ],
)
def test_contrasts_that_a_choice_of_profiles_drops_are_named(
    tmp_path: Path, declared: list[list[str]], picked: tuple[str, ...], departures: list[str]
) -> None:
    batch = allocate(tmp_path / "results", "s")
    make_plan(batch, ("nop", "sim", "oracle"), "ab", analysis={"contrasts": declared})
    for profile, passed in (("nop", ""), ("sim", "a"), ("oracle", "ab")):
        ran(batch, profile, passed, "ab")
    done = run_analysis(AnalysisRequest((batch,), Filter(profiles=picked)))
    assert done.comparison is not None
    assert done.comparison.departures == [f"picked: {text}" for text in departures]


def test_a_profile_that_has_none_of_the_picked_tasks_is_left_out(tmp_path: Path) -> None:
    batch = allocate(tmp_path / "results", "s")
    plan = make_plan(batch, ("p", "q"), "ab")
    first, second = plan.jobs
    write_json(
        batch.plan_json,
        msgspec.structs.replace(plan, jobs=(first, msgspec.structs.replace(second, tasks=second.tasks[:1]))),
    )
    ran(batch, "p", "ab", "ab")
    ran(batch, "q", "a", "a")
    done = run_analysis(AnalysisRequest((batch,), Filter(tasks=("b",))))
    assert list(done.profiles) == ["p"]
    assert done.comparison is not None
    assert "picked: only 1 of 2 planned profiles were picked for this analysis" in done.comparison.departures


@pytest.fixture
def two(project: Project) -> list[Batch]:
    """Batch 0 has three profiles on a and b, batch 1 only p, on a and c."""
    first, second = (allocate(project.root / "results", "s") for _ in range(2))
    make_plan(first, ("p", "q", "r"), "ab", provenance={"created_at": "2026-01-01T00:00:00+00:00"})
    make_plan(second, ("p",), "ac", provenance={"created_at": "2026-02-01T00:00:00+00:00"})
    for profile, passed in (("p", "a"), ("q", "ab"), ("r", "")):
        ran(first, profile, passed, "ab")
    ran(second, "p", "ac", "ac")
    return [first, second]


def test_the_report_of_several_batches_answers_what_the_terminal_says(
    two: list[Batch], project: Project, tbench: Any
) -> None:
    done = tbench("analyze", project.experiment(FILE), "--batch", "0,1")
    assert done.code == 0, done.err
    folder = Path("results/s/analytics")
    compared = read_json(folder / "comparison.json", Comparison)
    assert [(c.new, c.old) for c in compared.contrasts] == [("q", "p"), ("r", "p")]
    for contrast in compared.contrasts:
        assert contrast.sentence in " ".join(done.out.split())
        assert in_reports(folder, contrast.sentence) == [True, True]
        assert f"{contrast.new} vs {contrast.old}: {contrast.verdict}" in (folder / "report.html").read_text()
    about = "The verdicts are over s/0, s/1 together; everything else is about s/1, the newest of 2 batches."
    assert in_reports(folder, about) == [True, True]
    alone = tbench("analyze", project.experiment(FILE), "--batch", "1")
    assert "vs" not in alone.out
    assert "everything else is about" not in (two[1].analytics / "report.html").read_text()


def test_the_names_of_several_batches_are_known_together(two: list[Batch], project: Project, tbench: Any) -> None:
    experiment = project.experiment(FILE)
    done = tbench("analyze", experiment, "--batch", "all", "--tasks", "a", "c")
    assert done.code == 0, done.err
    assert "note: picked: s/0: only 1 of 2 planned tasks were picked for this analysis" in done.out
    assert "s/1: only" not in done.out
    done = tbench("analyze", experiment, "--batch", "all", "--profiles", "q", "r")
    assert done.code == 0, done.err
    assert "note: s/1: left out, it has none of the picked tasks and profiles" in done.out
    assert "r vs q" in done.out
    page = Path("results/s/analytics/selection/report.html").read_text()
    assert "s/1" not in page, "the batch that was left out is not its subject"
    listed = tbench("analyze", experiment, "--batch", "all", "--tasks", "c", "--list").out.splitlines()
    assert [line.split()[0] for line in listed[1:]] == ["s/1"]
    wrong = tbench("analyze", experiment, "--batch", "all", "--tasks", "d")
    assert (wrong.code, 'no task is called "d"' in wrong.err) == (2, True)
    with pytest.raises(UserError, match="no trial is left after filtering"):
        run_analysis(AnalysisRequest(tuple(two), Filter(tasks=("c",), profiles=("q",))))

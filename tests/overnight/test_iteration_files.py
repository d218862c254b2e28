"""`results.json` and `delta.json`: what they say, and that they come back."""

import json
from pathlib import Path

import pytest

from support.nights import harbor_rewards, make_night
from support.results import STAMP, make_trial
from terminalbench.errors import UserError
from terminalbench.json_files import read_json
from terminalbench.overnight import iteration_files
from terminalbench.overnight.episodes import EpisodeStore
from terminalbench.overnight.iteration_files import labelled, project_iteration, project_iterations, view_of
from terminalbench.overnight.iteration_results import IterationResults
from terminalbench.overnight.night import IterationStatus, IterationWork, Role, WorkEnd
from terminalbench.overnight.summary import ProjectedNight, project, project_night, project_one

NIGHT = [
    {"p": {"a": "+x", "b": "++"}, "q": {"a": "xx", "b": "E+"}},
    {"p": {"a": "++", "b": "+."}, "q": {"a": "xx", "b": "++"}},
    {"p": {"a": "xx", "b": "++"}, "q": {"a": "+x", "b": "++"}},
]


def test_the_counts_are_those_of_harbors_files(tmp_path: Path) -> None:
    night = make_night(tmp_path / "night", NIGHT)
    for number, batch in enumerate(night.folder.batches(), start=1):
        results = project_iteration(night.folder, night.config, number).results
        assert results.batch == f"night/{batch.number}"
        for profile in results.profiles:
            rewards = harbor_rewards(batch, profile.profile)
            told = [reward for found in rewards.values() for reward in found]
            assert (profile.passed, profile.failed) == (told.count(1.0), told.count(0.0))
            assert profile.total == 4
            assert profile.coverage == (told.count(1.0) + told.count(0.0)) / 4
            measured = [[r for r in found if r is not None] for found in rewards.values()]
            means = [sum(found) / len(found) for found in measured if found]
            assert profile.pass_rate == pytest.approx(sum(means) / len(means))
            for task in profile.tasks:
                assert [t.reward for t in task.trials if t.path is not None] == rewards[task.task_id]
                for trial in task.trials:
                    assert trial.path is None or (night.folder.folder / trial.path / "result.json").is_file()


def test_an_attempt_that_ran_out_of_time_and_passed_has_passed(tmp_path: Path) -> None:
    night = make_night(tmp_path / "night", [{"p": {"a": "+", "b": "x"}}])
    batch = night.folder.batches()[0]
    make_trial(batch, "a__p1", reward=1.0, error="AgentTimeoutError", attempt=1)
    results = project_iteration(night.folder, night.config, 1).results
    trial = results.profiles[0].tasks[0].trials[0]
    assert (trial.outcome, trial.agent_status, trial.reward) == ("passed", "timed_out", 1.0)
    raw = json.loads(night.folder.results_json(1).read_text())
    assert raw["profiles"][0]["tasks"][0]["trials"][0]["agent_status"] == "timed_out"
    assert (results.profiles[0].passed, results.profiles[0].pass_rate) == (1, 0.5)


def test_a_broken_bench_is_not_in_the_rate(tmp_path: Path) -> None:
    night = make_night(tmp_path / "night", [{"p": {"a": "+", "b": "E", "c": "."}}])
    one = project_iteration(night.folder, night.config, 1).results.profiles[0]
    assert (one.passed, one.failed, one.errored, one.not_run, one.total) == (1, 0, 1, 1, 3)
    assert (one.pass_rate, one.coverage) == (1.0, pytest.approx(1 / 3))
    broken = next(task for task in one.tasks if task.task_id == "b").trials[0]
    assert (broken.error_class, broken.reward) == ("environment", None)


def test_deleted_files_come_back_the_same(tmp_path: Path) -> None:
    night = make_night(tmp_path / "night", NIGHT)
    for number in (1, 2, 3):
        project_iteration(night.folder, night.config, number)
    files = sorted(night.folder.folder.glob("iterations/*/*.json"))
    assert [file.name for file in files] == ["delta.json", "results.json"] * 3
    before = {file: file.read_bytes() for file in files}
    for file in files:
        file.unlink()
    project_iteration(night.folder, night.config, 3)
    again = {file: file.read_bytes() for file in files if file.exists()}
    assert {file.parent.name for file in again} == {"001", "002", "003"}
    project_iterations(night.folder, night.config)
    assert {file: file.read_bytes() for file in files} == before


def test_a_worker_reads_and_writes_no_iteration_but_its_own(tmp_path: Path) -> None:
    night = make_night(tmp_path / "night", NIGHT)
    project_one(night.folder, night.config, 3)
    assert [file.parent.name for file in sorted(night.folder.folder.glob("iterations/*/*.json"))] == ["003"]
    assert {one.iteration for one in EpisodeStore.of_project(tmp_path).query()} == {3}


def test_what_is_as_it_was_is_not_written(tmp_path: Path) -> None:
    night = make_night(tmp_path / "night", NIGHT)
    project_iterations(night.folder, night.config)
    files = sorted(night.folder.folder.glob("iterations/*/*.json"))
    before = [file.stat().st_mtime_ns for file in files]
    project_iterations(night.folder, night.config)
    assert [file.stat().st_mtime_ns for file in files] == before


def test_what_ends_later_changes_the_deltas_behind_it(tmp_path: Path) -> None:
    night = make_night(tmp_path / "night", [{"p": {"a": "+"}}], iterations=3)
    night.batch(3, {"p": {"a": "x"}})
    assert project_iteration(night.folder, night.config, 3).delta.profiles[0].previous == 1
    night.batch(2, {"p": {"a": "x"}})
    found = project_iterations(night.folder, night.config)
    assert [one.results.iteration for one in found] == [1, 2, 3]
    assert found[2].delta.profiles[0].previous == 2
    assert found[2].delta.profiles[0].tasks[0].change == "unchanged"


def test_an_iteration_is_found_by_its_labels(tmp_path: Path) -> None:
    night = make_night(tmp_path / "night", [{"p": {"a": "+"}}])
    night.batch(1, {"p": {"a": "x"}}, role=Role.VALIDATION)
    stranger = make_night(tmp_path / "night2", [], run_id="another")
    assert labelled(stranger.folder, "another") == {}
    assert sorted((role.value, number) for role, number in labelled(night.folder, "tbrun-1")) == [
        ("iteration", 1),
        ("validation", 1),
    ]
    assert labelled(night.folder, "another") == {}
    with pytest.raises(UserError, match="iteration 2 has no batch"):
        project_iteration(night.folder, night.config, 2)


def test_a_results_file_that_is_broken_is_made_again(tmp_path: Path) -> None:
    night = make_night(tmp_path / "night", NIGHT)
    project_iteration(night.folder, night.config, 1)
    night.folder.results_json(1).write_text('{"run_id": "half')
    project_iteration(night.folder, night.config, 2)
    assert read_json(night.folder.results_json(1), IterationResults).iteration == 1


def test_costs_of_tries_that_were_set_aside_count(tmp_path: Path) -> None:
    night = make_night(tmp_path / "night", [])
    batch = night.batch(1, {"p": {"a": "x"}}, cost=0.5)
    folder = batch.runs / f"{STAMP}__p" / "a__p1"
    target = batch.superseded / f"{STAMP}__p" / "a__p1-try1"
    target.parent.mkdir(parents=True)
    folder.rename(target)
    text = target.joinpath("result.json").read_text().replace('"rewards": {"reward": 0.0}', '"rewards": {}')
    target.joinpath("result.json").write_text(
        text.replace('"verifier_result": {"rewards": {}}', '"verifier_result": null')
    )
    make_trial(batch, "a__p1", reward=1.0, attempt=1, cost=0.25, second=30)
    one = project_iteration(night.folder, night.config, 1).results.profiles[0]
    assert (one.passed, one.cost_usd, one.cost_unknown) == (1, pytest.approx(0.75), 0)
    assert one.tasks[0].trials[0].tries == 1


def test_an_iteration_that_is_over_is_read_once_and_again_when_it_ends_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A report that is rewritten all night reads each batch once; what it says is what one made anew says."""
    night = make_night(tmp_path / "night", [{"p": {"a": "+", "b": "x"}}] * 3, project=tmp_path, iterations=5)
    opened: list[int] = []
    monkeypatch.setattr(
        iteration_files, "view_of", lambda folder, batch: (opened.append(batch.number), view_of(folder, batch))[1]
    )
    known = ProjectedNight()

    def rewritten(*numbers: int) -> list[int]:
        opened.clear()
        work = [IterationWork(n, Role.ITERATION, n, IterationStatus.DONE, starts=starts[n]) for n in numbers]
        written = project(night.folder, night.config, night.state(work), known)
        assert written.problems == ()
        return list(opened)

    starts = dict.fromkeys(range(1, 5), 1)
    assert rewritten(1, 2, 3) == [1, 2, 3]
    assert rewritten(1, 2, 3) == []
    night.batch(4, {"p": {"a": "x", "b": "x"}})
    assert rewritten(1, 2, 3) == [4], "it runs: its batch is looked at each time"
    assert rewritten(1, 2, 3) == [4]
    assert rewritten(1, 2, 3, 4) == [4]
    starts[2] = 2  # a resume took it up again
    make_trial(night.folder.batches()[1], "b__p1", profile="p", reward=1.0, attempt=1)
    assert rewritten(1, 2, 3, 4) == [2]
    kept = {file: file.read_bytes() for file in night.folder.folder.glob("**/*.json") if "batches" not in file.parts}
    project_night(night.folder)
    assert {file: file.read_bytes() for file in kept} == kept, "as made anew, with the deltas after it"
    assert [(one.iteration, one.summary.passed) for one in EpisodeStore.of_project(tmp_path).read().episodes] == [
        (1, 1), (2, 2), (3, 1), (4, 0),
    ]  # fmt: skip


def test_results_that_a_worker_wrote_are_taken_only_as_it_said_at_its_end(tmp_path: Path) -> None:
    night = make_night(tmp_path / "night", [{"p": {"a": "+", "b": "x"}}], project=tmp_path)
    project_iteration(night.folder, night.config, 1)
    make_trial(night.folder.batches()[0], "b__p1", profile="p", reward=1.0, attempt=1)
    for end, passed in (
        (WorkEnd(0, trials=2, measured=2, passed=1), 1),
        (WorkEnd(0, trials=2, measured=2, passed=2), 2),
    ):
        work = [IterationWork(1, Role.ITERATION, 1, IterationStatus.DONE, end=end)]
        made = project(night.folder, night.config, night.state(work), ProjectedNight())
        assert made.summary is not None
        assert made.summary.passed == passed

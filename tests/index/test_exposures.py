from pathlib import Path

import msgspec
import pytest

from support.results import make_plan, make_trial
from terminalbench.experiments.batch import Batch, allocate
from terminalbench.experiments.plan import Plan, ProfileRecord
from terminalbench.experiments.profiles import content_id
from terminalbench.index.exposures import exposed_trials
from terminalbench.index.results import open_results
from terminalbench.index.scan import scan_all, scan_batch
from terminalbench.index.sql import ask
from terminalbench.json_files import read_json, write_json
from terminalbench.records.trial import Exposure, LessonsDelivery, Outcome, TaskRef

STANDING = {"agent": "oracle", "lessons": {"mode": "masked", "k": 2}}
NOW = {"agent": "oracle", "lessons": {"mode": "masked", "k": 2, "snapshot": "s1"}}
SHOWN = Exposure("l-1", 0.7, shown=True, characters=40)
WITHHELD = Exposure("l-0", 0.7, shown=False, characters=60, own=True)


@pytest.fixture
def batch(tmp_path: Path) -> Batch:
    """Two profiles, one of them with lessons; the first attempt at `a` was eligible for two, at `b` for none."""
    found = allocate(tmp_path / "results", "s")
    make_plan(found, ("p", "off"), "ab", 2)
    plan = read_json(found.plan_json, Plan)
    records = (ProfileRecord("p", content_id(NOW), NOW), ProfileRecord("off", "id-off", {"agent": "oracle"}))
    jobs = tuple(
        msgspec.structs.replace(
            job, tasks=(msgspec.structs.replace(job.tasks[0], ref=TaskRef("a", "d", "first")), *job.tasks[1:])
        )
        for job in plan.jobs
    )
    write_json(found.plan_json, msgspec.structs.replace(plan, profiles=records, jobs=jobs))
    for name in ("a__1", "b__1"):
        make_trial(found, name, profile="off")
    told = {"a__1": [SHOWN, WITHHELD], "a__2": [WITHHELD], "b__1": []}
    for second, (name, exposures) in enumerate(told.items()):
        folder = make_trial(found, name, second=second, reward=float(name == "a__1"), attempt=int(name[-1]))
        write_json(folder / "lessons.json", LessonsDelivery("masked", "s1", exposures))
    return found


def test_trials_that_were_eligible_for_lessons_are_told_with_what_they_were_shown(batch: Batch) -> None:
    root = batch.results_root
    scan_all(root)
    first, second = exposed_trials(root)
    assert (first.batch, first.trial, first.task, first.family, first.attempt) == ("s/0", "a__1", "a", "first", 1)
    assert (first.mode, first.snapshot, first.exposures) == ("masked", "s1", (SHOWN, WITHHELD))
    assert (first.outcome, second.outcome, second.measured) == (Outcome.PASSED, Outcome.FAILED, True)
    assert (second.attempt, second.exposures) == (2, (WITHHELD,))
    own = "SELECT count(*), coalesce(sum(shown), 0) FROM exposures WHERE own"
    assert ask(root, own).rows == [(2, 0)]


def test_the_policy_is_the_profile_whatever_its_memory_held(batch: Batch) -> None:
    trials = open_results(batch.results_root).trials()
    ids = {row["profile"]: (row["profile_id"], row["policy_id"]) for row in trials}
    assert ids["p"][1] == content_id(STANDING) != content_id(NOW)
    assert ids["off"] == ("id-off", "id-off")
    scan_all(batch.results_root)
    assert {one.policy_id for one in exposed_trials(batch.results_root)} == {content_id(STANDING)}


def test_exposures_go_with_their_trial_and_come_back(batch: Batch) -> None:
    root = batch.results_root
    scan_all(root)
    folder = next(batch.runs.glob("*__p/a__2"))
    (folder / "lessons.json").unlink()
    make_trial(batch, "a__2", second=5, attempt=2)
    assert scan_batch(batch).read == 1
    assert [one.trial for one in exposed_trials(root)] == ["a__1"]
    scan_all(root, rebuild=True)
    assert [one.trial for one in exposed_trials(root)] == ["a__1"]
    folder = next(batch.runs.glob("*__p/a__1"))
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()
    scan_all(root)
    assert exposed_trials(root) == []
    assert ask(root, "SELECT count(*) FROM exposures").rows == [(0,)]

"""What a night keeps of its suite, and what it uses it for."""

import json
import os
import pkgutil
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import pytest
from jobkit import write_task

from terminalbench.errors import UserError
from terminalbench.experiments.batch import allocate
from terminalbench.experiments.config import load
from terminalbench.experiments.tables import RayTable
from terminalbench.harbor.limits.gate import read_shared
from terminalbench.json_files import read_jsonl
from terminalbench.locks import start_ticks
from terminalbench.overnight import crew
from terminalbench.overnight.begin import NightRequest, PreparedNight, begin, go_on
from terminalbench.overnight.decisions import NightTimeouts
from terminalbench.overnight.folder import NightFolder
from terminalbench.overnight.iteration_files import drawn_tasks, load_base, write_iteration
from terminalbench.overnight.loop import NightEnd
from terminalbench.overnight.night import IterationStatus, IterationWork, NightEvent, NightEventKind, Role, WorkEnd
from terminalbench.overnight.supervisor import NightSupervisor


def begun(root: Path, tasks: list[dict[str, str]], **asked: Any) -> PreparedNight:
    """A night on these tasks, which is not run."""
    for task in tasks:
        if not (root / task["path"]).exists():
            write_task(root / task["path"])
    suite = root / "suite.json"
    suite.write_text(json.dumps({"name": "s", "version": "1", "run": {"container_env": "local"}, "tasks": tasks}))
    folder = NightFolder(root.parent / "night")
    folder.folder.mkdir(exist_ok=True)
    moment = asked.pop("now", datetime.now(UTC))
    return begin(NightRequest(suite=suite, models=("nop",), root=root, **asked), folder, moment)


ONE = [{"id": "a", "path": "tasks/a"}]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    place = tmp_path / "project"
    place.mkdir()
    return place


def test_a_resume_on_another_day_means_the_seven_of_that_day(root: Path) -> None:
    evening = datetime(2026, 11, 17, 22, 0, tzinfo=UTC)

    def left_sec(gate: Path) -> float:
        shared = read_shared(gate)
        return (shared.deadline or 0.0) - shared.clock.now()

    with mock.patch("terminalbench.overnight.night.time.time", evening.timestamp):
        night = begun(root, ONE, until="07:00", now=evening)
    folder = night.folder
    assert night.config.until == "2026-11-18T07:00:00+00:00"
    assert left_sec(folder.gate_json) == pytest.approx(9 * 3600, abs=60)
    later = evening + timedelta(days=3, hours=1)
    with mock.patch("terminalbench.overnight.night.time.time", later.timestamp):
        with pytest.raises(UserError, match="had to end at 2026-11-18T07:00.*which has passed.*a later --until"):
            go_on(NightRequest(), folder, later)
        again = go_on(NightRequest(until="07:00"), folder, later)
    assert again.config.until == "2026-11-21T07:00:00+00:00"
    assert again.extended == ("until: 2026-11-18T07:00:00+00:00 -> 2026-11-21T07:00:00+00:00",)
    assert left_sec(folder.gate_json) == pytest.approx(8 * 3600, abs=60)
    with mock.patch("terminalbench.overnight.night.time.time", later.timestamp):
        same = go_on(NightRequest(), folder, later)
    assert same.config.until == again.config.until, "what was said on that day counts from there on"


STAGES = [
    "overnight.begin.pin",
    "runner.worktree.capture",
    "runner.worktree._make",
    "runner.worktree._settled",
    "overnight.begin.write_experiment",
    "overnight.begin.put_up",
    "overnight.begin.write_json",
]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("stage", STAGES)
def test_a_start_that_was_killed_anywhere_is_begun_by_the_same_command(root: Path, stage: str, when: str) -> None:
    git = ["git", "-C", str(root), "-c", "user.name=a", "-c", "user.email=a@b"]
    write_task(root / "tasks" / "a")
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "begun"]):
        subprocess.run([*git, *words], check=True, timeout=60)
    (root / "tasks" / "a" / "new.txt").write_text("not committed")
    module, _, name = f"terminalbench.{stage}".rpartition(".")
    real = pkgutil.resolve_name(f"{module}.{name}")

    def killed(*args: Any, **rest: Any) -> None:
        if when == "after":
            real(*args, **rest)
        os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if child == 0:
        try:
            with mock.patch(f"{module}.{name}", killed):
                begun(root, ONE)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    night = begun(root, ONE)
    assert not night.folder.starting.exists()
    assert go_on(NightRequest(again=True), night.folder, datetime.now(UTC)).config.run_id == night.config.run_id
    listed = subprocess.run([*git, "worktree", "list"], check=True, timeout=60, capture_output=True, text=True)
    assert len(listed.stdout.splitlines()) == 2, "the project's and that of the night"


def test_a_folder_with_other_files_is_refused_also_where_a_start_was_killed(root: Path) -> None:
    (root.parent / "night").mkdir()
    (root.parent / "night" / "starting").write_bytes(b"")
    (root.parent / "night" / "mine.txt").write_text("keep me")
    with pytest.raises(UserError, match=r"contains other files: mine.txt"):
        begun(root, ONE)
    assert (root.parent / "night" / "mine.txt").exists()


def test_the_same_command_goes_on_with_a_night_and_its_until_is_the_one_of_the_beginning(root: Path) -> None:
    evening = datetime(2026, 11, 17, 22, 0, tzinfo=UTC)
    with mock.patch("terminalbench.overnight.night.time.time", evening.timestamp):
        night = begun(root, ONE, until="07:00", now=evening)
        again = go_on(NightRequest(until="07:00", again=True), night.folder, evening + timedelta(hours=1))
    assert (again.config.until, again.extended, again.over) == (night.config.until, (), False)
    morning = evening + timedelta(hours=10)
    with mock.patch("terminalbench.overnight.night.time.time", morning.timestamp):
        late = go_on(NightRequest(until="07:00", again=True), night.folder, morning)
        longer = go_on(NightRequest(until="09:00", again=True), night.folder, morning)
    assert late.over
    assert NightEnd(late.folder, late.config, late.state, complete=True).exit_code == 0
    assert (longer.over, longer.config.until) == (False, "2026-11-18T09:00:00+00:00")
    measured = IterationWork(1, Role.ITERATION, 1, IterationStatus.DONE, end=WorkEnd(0, 2, 2))
    for end, code in ((WorkEnd(2, closed=True), 0), (WorkEnd(2, closed=True, changed=True), 3)):
        work = [measured, IterationWork(2, Role.ITERATION, 2, IterationStatus.GIVEN_UP, end=end)]
        state = msgspec.structs.replace(late.state, work=work)
        assert NightEnd(late.folder, late.config, state).exit_code == code


def test_a_worker_that_never_beats_is_started_again_later_each_time_and_given_up_at_last(root: Path) -> None:
    night = begun(root, ONE, iterations=1)
    sleeper = [sys.executable, "-c", "import time; time.sleep(600)"]
    patience = NightTimeouts(first_sec=0.3, backoff_sec=0.2, failures=3)
    with mock.patch.object(crew, "PROGRAM", sleeper), mock.patch.dict("os.environ"):
        os.environ.pop(crew.ADDRESS, None)
        state = NightSupervisor(night.folder, night.config, night.state, patience).run()
    (work,) = state.work
    assert (work.status, work.starts, work.batch) == (IterationStatus.GIVEN_UP, 3, None)
    events = read_jsonl(night.folder.events_jsonl, NightEvent).records
    lost = [event for event in events if event.kind is NightEventKind.WORKER_LOST]
    assert len(lost) == 3
    assert all("gave no sign of life" in event.said for event in lost)
    assert not any(start_ticks(event.pid or 0) for event in lost)
    starts = [datetime.fromisoformat(e.time) for e in events if e.kind is NightEventKind.WORKER_STARTED]
    ends = [datetime.fromisoformat(e.time) for e in events if e.kind is NightEventKind.WORKER_ENDED]
    waits = [(start - end).total_seconds() for start, end in zip(starts[1:], ends, strict=False)]
    assert waits[0] >= 0.15
    assert waits[1] >= 0.35


def test_the_batch_of_an_iteration_has_its_number(root: Path, tmp_path: Path) -> None:
    """Also when an earlier worker was killed before it had a plan; not when another batch is there."""
    assert [allocate(tmp_path, "n", n).folder.name for n in (2, 2, 1)] == ["2", "2", "1"]
    (tmp_path / "n/2/plan.json").touch()
    assert allocate(tmp_path, "n", 2).number == 3
    night = begun(root, ONE)
    base = load_base(night.folder, night.config)
    for role, slug in ((Role.ITERATION, "night"), (Role.VALIDATION, "validation")):
        assert load(write_iteration(night.folder, night.config, base, IterationWork(3, role, 1)), root).slug == slug


def test_category_and_difficulty_of_the_suite_are_kept_and_are_the_strata_of_the_validation(root: Path) -> None:
    levels = ["easy"] * 6 + ["hard"] * 2
    tasks = [
        {"id": f"t{n}", "path": f"tasks/t{n}", "category": "data", "difficulty": level}
        for n, level in enumerate(levels)
    ]
    night = begun(root, tasks)
    assert [(task.id, task.category, task.difficulty) for task in night.config.suite_tasks] == [
        (f"t{n}", "data", level) for n, level in enumerate(levels)
    ]
    config = msgspec.structs.replace(night.config, validation_rate=0.5)
    base = load_base(night.folder, config)
    for seed in range(20):
        drawn = drawn_tasks(config, base, IterationWork(1, Role.VALIDATION, seed))
        hard = [name for name in drawn if name.rpartition("/t")[2] in ("6", "7")]
        assert (len(drawn), len(hard)) == (4, 1), "half of the easy ones, half of the hard ones"


def test_a_night_on_a_cluster_says_so_in_each_of_its_experiments(tmp_path, monkeypatch) -> None:
    reached = []
    monkeypatch.setattr(
        "terminalbench.runner.executors.ray_executor.RayExecutor.ready", lambda _self, run: reached.append(run)
    )
    (tmp_path / "p").mkdir()
    night = begun(tmp_path / "p", [{"id": "t", "path": "t"}], executor="ray", ray_address="10.0.0.5:6379")
    base = load_base(night.folder, night.config)
    assert (base.run.executor, base.run.ray) == ("ray", RayTable("10.0.0.5:6379"))
    assert [run.ray.address for run in reached] == ["10.0.0.5:6379"], "it is reached before the night begins"
    with pytest.raises(UserError, match="--ray-address: the night has 10.0.0.5:6379, not 10.0.0.6:6379"):
        go_on(NightRequest(ray_address="10.0.0.6:6379"), night.folder, datetime.now(UTC))


def test_an_address_without_the_executor_is_refused(tmp_path) -> None:
    (tmp_path / "p").mkdir()
    with pytest.raises(UserError, match="--ray-address works only with --executor ray"):
        begun(tmp_path / "p", [{"id": "t", "path": "t"}], ray_address="10.0.0.5:6379")

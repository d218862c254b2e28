"""Workers: what their deaths tell, who is an orphan; the gate of a night; how many workers a machine bears."""

import os
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import msgspec
import pytest

from support.nights import make_night
from terminalbench import campaign as gates
from terminalbench.errors import EXIT_OK, EXIT_USAGE
from terminalbench.harbor.limits.clock import SharedClock
from terminalbench.harbor.limits.control import ALL, ControlFile, shared_control
from terminalbench.harbor.limits.gate import change_shared, read_shared, share_gate
from terminalbench.json_files import append_jsonl, read_json, write_json
from terminalbench.locks import start_ticks
from terminalbench.overnight import crew, worker
from terminalbench.overnight import night as conditions
from terminalbench.overnight.crew import TasksAtDeath, WorkerAssignment, orphan_of, told_by
from terminalbench.overnight.decisions import NextAction, eta_sec
from terminalbench.overnight.folder import NightFolder
from terminalbench.overnight.night import (
    Heartbeat,
    IterationStatus,
    IterationWork,
    NightState,
    Role,
    WorkEnd,
    WorkerLease,
)
from terminalbench.overnight.scaling import READ_SEC, MachineReading, ScaleLimits, Scaler
from terminalbench.overnight.supervisor import NightSupervisor
from terminalbench.records.event import Event
from terminalbench.runner.worktree import pin


def event(kind: str, task: str, trial: str, outcome: str | None = None) -> Event:
    return Event.now(kind, "j", dataset="label", task=task, trial=trial, outcome=outcome)


def test_what_was_running_when_a_worker_died_is_told_by_the_events_of_its_batch() -> None:
    events = [
        event("trial_started", "a", "a1"),
        event("trial_started", "b", "b1"),
        event("trial_started", "c", "c1"),
        event("trial_ended", "a", "a1", "failed"),
        event("trial_ended", "c", "c1", "cancelled"),  # by its Harbor, when the worker was gone
    ]
    assert told_by(events, {"label": "set"}) == TasksAtDeath(frozenset({"set/b", "set/c"}), frozenset({"set/a"}))


def test_what_ended_before_a_worker_began_is_no_progress_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else one that dies after all trials have ended starts again every second, for ever."""
    night = make_night(tmp_path / "night", [{"p": {"a": "+"}}])
    (batch,) = night.folder.batches()
    append_jsonl(batch.events_jsonl, event("trial_ended", "a", "a1", "passed"))
    monkeypatch.setattr(worker, "resume", mock.Mock(side_effect=ImportError("it was installed anew")))
    end = worker.work(WorkerAssignment(night.folder, 1, Role.ITERATION, again=True))
    beat = read_json(night.folder.heartbeat(1, Role.ITERATION), Heartbeat)
    assert (end.said, beat.batch) == ("ImportError: it was installed anew", None)
    assert beat.events_from == batch.events_jsonl.stat().st_size


def test_an_iteration_in_which_the_pinned_code_was_changed_says_so_and_is_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project/agents.py").write_text("as it was")
    night = make_night(tmp_path / "night", [{"p": {"a": "+"}}])
    code = pin(tmp_path / "project", night.folder.code)
    write_json(night.folder.config_json, msgspec.structs.replace(night.config, code=code))
    measured = WorkEnd(EXIT_OK, trials=1, measured=1)
    ran = mock.Mock(return_value=measured)
    monkeypatch.setattr(worker, "_run", mock.Mock())
    monkeypatch.setattr(worker, "_ended", ran)
    assigned = WorkerAssignment(night.folder, 1, Role.ITERATION)
    assert worker.work(assigned) == measured
    (Path(code.root) / "new.py").write_text("beside it")
    ran.side_effect = lambda _: (Path(code.root) / "agents.py").write_text("changed") and measured
    said = "the pinned code was changed: agents.py"
    assert worker.work(assigned) == WorkEnd(EXIT_OK, trials=1, measured=1, closed=True, said=said, changed=True)
    assert worker.work(assigned) == WorkEnd(EXIT_USAGE, closed=True, said=said, changed=True)
    assert ran.call_count == 2


class Dying(crew.LoadedHarbor):
    """A loaded process that dies at once, whenever it is started; it is started at most three times."""

    starts = 0
    alive = False

    def start(self) -> None:
        self.starts += 1
        self.alive = self.starts < 3


def test_a_loaded_process_that_dies_is_said_and_in_the_end_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (crew.ADDRESS, crew.OWN_PROCESSES):
        monkeypatch.delenv(name, raising=False)
    dying = Dying()
    monkeypatch.setattr(crew, "LoadedHarbor", lambda *_, **__: dying)
    with crew.WorkerForkServer(NightFolder(tmp_path)) as loaded:
        assert loaded.keep() is None
        assert loaded.passed_over(subprocess.Popen(["true"]))
        dying.alive = False
        assert "has died (details in loaded.log); it is restarted" in (loaded.keep() or "")
        dying.alive = False
        assert "from now on each worker loads Harbor itself" in (loaded.keep() or "")
        assert loaded.keep() is None


def test_an_assignment_is_the_same_after_its_command_line() -> None:
    for flags in ({}, {"again": True}, {"alone": True, "retry": True}):
        given = WorkerAssignment(NightFolder(Path("/n")), 7, Role.VALIDATION, **flags)
        assert WorkerAssignment.of(given.arguments()) == given


@pytest.mark.parametrize("by", ["lease", "beat"])
def test_an_orphan_is_known_by_its_pid_and_the_time_of_its_start(by: str, tmp_path: Path) -> None:
    folder, pid = NightFolder(tmp_path), os.getpid()
    work = IterationWork(1, Role.ITERATION, 0)
    assert orphan_of(folder, work) is None
    for ticks, found in ((start_ticks(pid), pid), ((start_ticks(pid) or 0) + 1, None)):
        if by == "lease":
            work.lease = WorkerLease(1, pid, ticks, os.uname().nodename, "", 0.0)
        else:
            write_json(folder.heartbeat(1, Role.ITERATION), Heartbeat(pid, ticks, 0.0))
        assert orphan_of(folder, work) == found


def test_a_worker_of_another_machine_is_not_taken_for_one_of_this(tmp_path: Path) -> None:
    pid = os.getpid()
    work = IterationWork(1, Role.ITERATION, 0, lease=WorkerLease(1, pid, start_ticks(pid), "elsewhere", "", 0.0))
    assert orphan_of(NightFolder(tmp_path), work) is None


def test_the_deadline_follows_the_wall_clock_and_only_it(tmp_path: Path) -> None:
    gate, real = tmp_path / "gate.json", time.time
    share_gate(gate, 5.0, 1000.0)
    until = real() + 1000.0
    assert gates.follow(gate, until) is None
    before = read_shared(gate)
    with mock.patch("terminalbench.campaign.time.time", return_value=real() + 600.0):
        said = gates.follow(gate, until)
    after = read_shared(gate)
    assert said is not None
    assert "forward by 10.0 min" in said
    assert before.deadline is not None
    assert after.deadline == pytest.approx(before.deadline - 600.0, abs=2.0)
    assert (after.budget_usd, after.clock) == (5.0, before.clock)
    assert gates.follow(gate, None) is None


def test_the_gate_tells_what_stops_a_night_and_what_only_holds_it(tmp_path: Path) -> None:
    gate = tmp_path / "gate.json"
    share_gate(gate)
    assert gates.standing(gate) == gates.GateStatus(0.0, 0)
    ControlFile(shared_control(gate)).change(lambda control: control.paused.update({ALL: "lunch"}))
    assert gates.standing(gate).waits
    assert gates.standing(gate).shut is None
    ControlFile(shared_control(gate)).change(lambda control: control.stopped.update({ALL: "cancelled: enough"}))
    assert gates.standing(gate).shut == "cancelled: enough"
    share_gate(gate)
    change_shared(gate, None, read_shared(gate).clock.now() - 1.0)
    assert "deadline" in (gates.standing(gate).shut or "")
    change_shared(gate, 0.0, None)
    assert "used up" in (gates.standing(gate).shut or "")


class NothingMeasured:
    """The stop condition that CONTRIBUTING.md adds: an iteration that is over has measured nothing."""

    def why(self, state: NightState, gate: gates.GateStatus) -> str | None:
        empty = [work.number for work in state.work if work.end is not None and not work.end.measured]
        return f"iteration {empty[0]} has measured nothing" if empty else None


@pytest.mark.parametrize("measured", [0, 4])
def test_a_stop_condition_is_one_class_and_its_place_in_the_list(
    measured: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conditions, "STOP_CONDITIONS", (*conditions.STOP_CONDITIONS, NothingMeasured()))
    night = make_night(tmp_path, iterations=2)
    share_gate(night.folder.gate_json)
    end = WorkEnd(0, trials=4, measured=measured)
    done = IterationWork(1, Role.ITERATION, 1, IterationStatus.DONE, end=end)
    supervisor = NightSupervisor(night.folder, night.config, night.state([done]))
    if measured:
        assert supervisor.stopped is None
        return
    state = supervisor.run()
    assert (state.status, state.stopped) == ("stopped", "iteration 1 has measured nothing")
    assert [work.number for work in state.work] == [1], "iteration 2 was never begun"


def test_a_clock_that_is_set_while_an_iteration_runs_makes_it_no_longer_and_the_time_left_neither(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forward, wall = [100.0], [1_000_000.0]
    fake = SimpleNamespace(monotonic=lambda: forward[0], time=lambda: wall[0])
    monkeypatch.setattr("terminalbench.harbor.limits.clock.time", fake)
    night = make_night(tmp_path, iterations=3)
    share_gate(night.folder.gate_json)
    first = IterationWork(1, Role.ITERATION, 1)
    state = msgspec.structs.replace(night.state([first]), clock=SharedClock.here())
    supervisor = NightSupervisor(night.folder, night.config, state)
    monkeypatch.setattr(supervisor, "_write", mock.Mock(side_effect=OSError("the disk is full")))  # no worker is needed
    supervisor._lease(first)
    forward[0] += 600.0
    wall[0] += 600.0 + 7200.0  # somebody has set it ahead
    supervisor._settle(first, NextAction(IterationStatus.DONE))
    assert eta_sec(state, 3, None, state.clock.now()) == pytest.approx(2 * 600.0)
    assert eta_sec(state, 3, state.clock.now() + 60.0, state.clock.now()) == pytest.approx(60.0)


def test_a_machine_that_runs_short_of_memory_lowers_the_workers_and_is_read_now_and_then() -> None:
    now, free = [0.0], [64_000.0]
    scaler = Scaler(ScaleLimits(most=4), lambda _pids: MachineReading(now[0], 8.0, free[0], load=0.5), lambda: now[0])
    first = scaler.decide([])
    assert first is not None
    assert first.workers == 4
    assert scaler.decide([]) is None
    now[0], free[0] = READ_SEC, 100.0
    short = scaler.decide([1, 2, 3, 4])
    assert short is not None
    assert short.urgent
    assert short.workers < 4

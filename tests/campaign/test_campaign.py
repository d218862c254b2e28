"""What nights, trainings and SWE-Bench Pro experiments share."""

import json
import os
import time
from pathlib import Path

import pytest

from terminalbench.campaign import (
    LiveReports,
    batches_below,
    find_labelled,
    held,
    labels_of,
    refuse_differences,
    standing,
)
from terminalbench.errors import EXIT_USAGE, UserError
from terminalbench.experiments.batch import Batch
from terminalbench.harbor.limits.control import ALL, ControlFile, shared_control
from terminalbench.harbor.limits.gate import GateError, change_shared, read_shared, share_gate
from terminalbench.locks import LockHeld, lock
from terminalbench.runner.control import check_orders


def planned(root: Path, name: str, labels: dict[str, str]) -> Batch:
    batch = Batch(root / name)
    batch.runs.mkdir(parents=True)
    batch.plan_json.write_text(json.dumps({"labels": labels, "jobs": []}))
    return batch


def test_a_batch_is_found_by_the_labels_of_its_plan_as_it_is_now(tmp_path: Path) -> None:
    first, later = planned(tmp_path, "s/2", {"run": "a", "part": "x"}), planned(tmp_path, "s/10", {"run": "a"})
    (tmp_path / "s" / "3").mkdir()  # taken by a run that was killed before it had a plan
    found = batches_below(tmp_path)
    assert [batch.number for batch in found] == [2, 10]
    assert batches_below(tmp_path / "none") == []
    assert find_labelled(found, {"run": "a"}) == first
    assert find_labelled(found, {"run": "a", "part": "y"}) is None
    later.plan_json.write_text(json.dumps({"labels": {"run": "a", "part": "y"}}))
    os.utime(later.plan_json, ns=(1, 1))
    assert find_labelled(found, {"part": "y"}) == later
    first.plan_json.write_text("{")
    os.utime(first.plan_json, ns=(1, 1))
    assert labels_of(first) == {}
    assert labels_of(Batch(tmp_path / "s" / "3")) == {}


def test_a_folder_is_held_by_one_process_and_the_other_is_told_the_next_step(tmp_path: Path) -> None:
    file = tmp_path / ".lock"
    with (
        lock(file, "tbench overnight"),
        pytest.raises(LockHeld, match="in use by tbench overnight") as refused,
        held(file, "another", tmp_path, "watch it"),
    ):
        pass
    assert (refused.value.where, refused.value.hint, refused.value.exit_code) == (str(tmp_path), "watch it", EXIT_USAGE)


def test_what_is_asked_for_otherwise_is_listed_up_to_a_dozen(tmp_path: Path) -> None:
    refuse_differences([], tmp_path, "")
    with pytest.raises(UserError, match="begun with other options") as refused:
        refuse_differences([f"--option-{number}: 1, not 2" for number in range(14)], tmp_path, "leave them out")
    assert refused.value.what.splitlines()[-1] == "  and 2 more differences"
    assert len(refused.value.what.splitlines()) == 14


def test_reports_are_written_at_most_a_twentieth_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now, written = [100.0], []

    def write() -> None:
        written.append(now[0])
        now[0] += 3.0

    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    live = LiveReports(write, least_sec=2.0)
    live.tick()
    assert not written, "nothing was measured"
    for moment in (100.0, 104.0, 162.9, 163.1):
        now[0], live.due = moment, True
        live.tick()
    assert written == [100.0, 163.1]
    assert not live.due


def test_a_gate_is_called_what_it_is_the_gate_of(tmp_path: Path) -> None:
    gate = tmp_path / "gate.json"
    share_gate(gate, 0.0, called="night")
    assert "the budget of $0.00 of the night is used up" in (standing(gate).shut or "")
    change_shared(gate, None, read_shared(gate).clock.now() - 1.0)
    assert standing(gate).shut == "the deadline of the night has passed"
    share_gate(gate, 0.0)
    assert "of the shared gate gate.json is used up" in (standing(gate).shut or "")


def test_a_gate_that_lets_nothing_start_is_an_error_of_its_own_kind(tmp_path: Path) -> None:
    gate = tmp_path / "gate.json"
    share_gate(gate)
    ControlFile(shared_control(gate)).change(lambda control: control.stopped.update({ALL: "cancelled: enough"}))
    with pytest.raises(GateError, match="cancelled: enough"):
        list(check_orders(gate))
    gate.write_text("[]")
    with pytest.raises(GateError, match="not a shared gate"):
        read_shared(gate)

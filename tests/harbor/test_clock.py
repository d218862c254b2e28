"""The clock that is shared through a file: neither a jump of the time of day nor another machine moves a deadline."""

import time
from pathlib import Path

import pytest

from terminalbench.harbor.limits import clock
from terminalbench.harbor.limits.clock import SharedClock
from terminalbench.harbor.limits.gate import Gate, GateState


@pytest.mark.parametrize("jump", [86400.0, -86400.0])
def test_a_jump_of_the_time_of_day_moves_no_deadline_on_the_same_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jump: float
) -> None:
    gate = Gate(tmp_path / "gate.json")
    state = GateState()
    state.deadline = state.clock.now() + 600
    gate.create(state)
    monkeypatch.setattr(time, "time", lambda real=time.time: real() + jump)
    assert gate.enter("a", "p") is None
    assert gate.read().deadline == pytest.approx(gate.read().clock.now() + 600, abs=300)


@pytest.mark.parametrize(("later", "open_"), [(0.0, True), (3600.0, False)])
def test_another_machine_goes_by_the_time_of_day(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, later: float, open_: bool
) -> None:
    """Its forward clock says something else entirely; a rebooted machine's begins anew."""
    gate = Gate(tmp_path / "gate.json")
    state = GateState()
    state.deadline = state.clock.now() + 600
    gate.create(state)
    monkeypatch.setattr(clock, "boot_id", lambda: "another")
    monkeypatch.setattr(time, "monotonic", lambda: 1e9)
    monkeypatch.setattr(time, "time", lambda real=time.time: real() + later)
    assert (gate.enter("a", "p") is None) == open_


def test_a_file_holds_the_time_of_day() -> None:
    made = SharedClock.here()
    assert made.wall == pytest.approx(time.time(), abs=300)
    assert made.now() == pytest.approx(time.time(), abs=300)

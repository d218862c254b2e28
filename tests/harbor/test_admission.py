"""The door of one Harbor process: nobody waits for ever for a place or for money that nobody gives back."""

from pathlib import Path

import pytest

from terminalbench.harbor.limits import admission
from terminalbench.harbor.limits.admission import Admission, Wait
from terminalbench.harbor.limits.gate import Gate, GateState, TrialRefusal


@pytest.fixture
def door(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Admission:
    monkeypatch.setattr(admission, "_SETTLE_SEC", (0.0, None))
    gate = Gate(tmp_path / "gate.json")
    gate.create(GateState(budget_usd=1.5, guess_usd=1.0))
    return Admission(gate, None, "p")


def full(*_: object, **__: object) -> None:
    raise OSError(28, "No space left on device")


def test_what_could_not_be_settled_is_settled_when_the_next_one_asks(
    door: Admission, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert door.gate is not None
    assert door.ask("a", "lane") is None
    leave = door.gate.leave
    disk = [full] * 3 + [leave]
    monkeypatch.setattr(door.gate, "leave", lambda *told, **how: disk.pop(0)(*told, **how))
    with pytest.raises(OSError, match="space"):
        door.settle("a", 0.25)
    door.left("a")
    door.settle("a", None)
    assert isinstance(door.ask("b", "lane"), Wait), "the disk is still full"
    assert door.ask("b", "lane") is None
    state = door.gate.read()
    assert (state.spent_usd, list(state.account("p").running), disk) == (0.25, ["b"], [])


def test_a_trial_is_charged_once_for_each_try(door: Admission) -> None:
    assert door.gate is not None
    for spent in (0.25, 0.5):
        assert door.ask("a", "lane") is None
        door.settle("a", 0.25)
        door.settle("a", None)
        door.left("a")
        assert door.gate.read().spent_usd == spent


def test_one_that_is_withdrawn_at_the_last_moment_keeps_neither_place_nor_money(
    door: Admission, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert door.gate is not None
    enter = door.gate.enter

    def late(trial: str, profile: str) -> TrialRefusal | None:
        refusal = enter(trial, profile)
        door.withdraw(trial)
        return refusal

    monkeypatch.setattr(door.gate, "enter", late)
    door.ask("a", "lane")
    assert (door._inside, door.gate.read().account("p").running) == (set(), {})

    def broken(trial: str, _profile: str) -> None:
        door.withdraw(trial)
        full()

    monkeypatch.setattr(door.gate, "enter", broken)
    with pytest.raises(OSError, match="space"):
        door.ask("b", "lane")
    assert door._inside == set()


def test_money_that_could_not_be_given_back_is_given_back_later(
    door: Admission, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert door.gate is not None
    assert door.ask("a", "lane") is None
    real = door.gate.give_back
    answers = iter([full, real])
    monkeypatch.setattr(door.gate, "give_back", lambda *told: next(answers)(*told))
    door.withdraw("a")
    assert list(door.gate.read().account("p").running) == ["a"]
    assert door.ask("b", "lane") is None
    assert list(door.gate.read().account("p").running) == ["b"]

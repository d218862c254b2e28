"""A night whose state is lost goes on from the labels of its batches; one that is through adds nothing."""

from pathlib import Path

import pytest

from support.nights import make_night
from terminalbench.overnight.begin import _state_of
from terminalbench.overnight.decisions import nothing_left, seed_of
from terminalbench.overnight.night import IterationStatus, NightState, Role


@pytest.mark.parametrize("left", [None, b'{"run_id": "x'])
def test_a_lost_state_is_made_again_from_the_batches(tmp_path: Path, left: bytes | None) -> None:
    night = make_night(tmp_path, [{"p": {"a": "+", "b": "x"}}, {"p": {"a": "+", "b": "+"}}])
    folder, config = night.folder, night.config
    folder.state_json.unlink(missing_ok=True)
    if left is not None:
        folder.state_json.write_bytes(left)
    state, said = _state_of(folder, config)
    assert [(work.number, work.role, work.status) for work in state.work] == [
        (1, Role.ITERATION, IterationStatus.WAITING),
        (2, Role.ITERATION, IterationStatus.WAITING),
    ]
    assert [work.seed for work in state.work] == [seed_of(config.seed, n, Role.ITERATION) for n in (1, 2)]
    assert [bool(work.batch) for work in state.work] == [True, True]
    assert "found by their labels" in said[0]


def test_a_night_is_through_when_all_that_was_asked_for_is_done(tmp_path: Path) -> None:
    night = make_night(tmp_path, [{"p": {"a": "+"}}])
    state: NightState = _state_of(night.folder, night.config)[0]
    for work in state.work:
        work.status = IterationStatus.DONE
    assert nothing_left(state, len(state.work))
    assert not nothing_left(state, len(state.work) + 1)
    assert not nothing_left(state, None)

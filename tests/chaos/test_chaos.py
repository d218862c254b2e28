"""A few rounds of chaos in every test run; `make chaos` plays 200, and `tests/chaos/guarded.py` kills arms twenty times."""

from pathlib import Path

import pytest

from chaos import guarded
from chaos.chaos import Tally, play
from support.warm import OWN_ATTENDANTS


@pytest.mark.long
@pytest.mark.parametrize("seed", [11])
def test_nothing_finished_is_lost_or_doubled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setenv(OWN_ATTENDANTS, "1")
    tally = Tally()
    play(tmp_path, seed, tally, shots=3)
    assert not tally.problems, str(tally)
    assert tally.rounds == 1
    assert tally.trials


@pytest.mark.long
def test_arms_that_are_killed_and_resumed_count_once_with_the_tokens_of_all_tries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(OWN_ATTENDANTS, "1")
    tally = Tally()
    server = guarded.play(tmp_path, 3, tally, kills=2, instances=1)
    assert not tally.problems, str(tally)
    assert tally.trials == len(guarded.ARMS)
    assert server.bills

"""A few rounds of chaos in every test run; `make chaos` plays 200."""

from pathlib import Path

import pytest

from chaos.chaos import Tally, play
from support.warm import OWN_ATTENDANTS, Warm


@pytest.mark.long
@pytest.mark.parametrize("seed", range(11, 14))
def test_nothing_finished_is_lost_or_doubled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setenv(OWN_ATTENDANTS, "1")
    tally = Tally()
    play(tmp_path, seed, tally, Warm().tbench(), shots=3)
    assert not tally.problems, str(tally)
    assert tally.rounds == 1
    assert tally.trials

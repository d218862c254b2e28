"""A phase in which the time of day and the clock that only goes forward disagree has an unknown length."""

from pathlib import Path

import pytest
from results_kit import result, write_trial

from terminalbench.harbor.read.notes import TIMES, Moment, Times
from terminalbench.harbor.read.results import read_trial
from terminalbench.json_files import write_json
from terminalbench.records.trial import CLOCK_JUMPED, Phases, Trial

MOMENTS = {"start": 0.0, "environment-start": 0.1, "agent-start": 4.0, "agent-end": 20.0, "verification-start": 21.0, "end": 30.0}  # fmt: skip
ALL = {"environment_sec": 2.0, "agent_setup_sec": 2.0, "agent_sec": 16.0, "verifier_sec": 7.5}


def trial_with(tmp_path: Path, jumps: dict[str, float], seconds: dict[str, float] = MOMENTS) -> Trial:
    """A trial before which moments the time of day was set by so much."""
    wall, moments = 1_700_000_000.0, []
    for what, forward in seconds.items():
        wall += jumps.get(what, 0.0)
        moments.append(Moment(what, wall + forward, 5000.0 + forward))
    folder = write_trial(tmp_path, result())
    write_json(folder / TIMES, Times(moments))
    trial = read_trial(folder).trial
    assert trial is not None
    return trial


@pytest.mark.parametrize("jump", [7200.0, -7200.0, 3.0])
@pytest.mark.parametrize(
    ("before", "unknown"),
    [
        ("environment-start", {"environment_sec", "agent_setup_sec"}),
        ("agent-start", {"environment_sec", "agent_setup_sec"}),
        ("agent-end", {"agent_sec"}),
        ("verification-start", set()),
        ("end", {"verifier_sec"}),
    ],
)
def test_the_phase_in_which_the_clock_jumped_is_unknown(
    tmp_path: Path, jump: float, before: str, unknown: set[str]
) -> None:
    trial = trial_with(tmp_path, {before: jump})
    assert trial.phases == Phases(**{name: value for name, value in ALL.items() if name not in unknown})
    assert trial.wall_sec is None
    assert trial.suspect == [CLOCK_JUMPED]


def test_a_clock_that_is_corrected_little_by_little_has_not_jumped(tmp_path: Path) -> None:
    trial = trial_with(tmp_path, dict.fromkeys(MOMENTS, 0.9))
    assert (trial.phases, trial.wall_sec, trial.suspect) == (Phases(**ALL), 30.0, [])
    hours = {what: 1000 * seconds for what, seconds in MOMENTS.items()}
    assert trial_with(tmp_path / "long", {"agent-end": 8.0}, hours).suspect == [], "0.5 s in 1,000 s"


def test_a_trial_without_such_a_note_keeps_its_times(tmp_path: Path) -> None:
    trial = read_trial(write_trial(tmp_path, result())).trial
    assert trial is not None
    assert (trial.phases, trial.wall_sec) == (Phases(**ALL), 30.0)

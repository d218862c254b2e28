"""Backoff by lane: exponential, jittered, seeded, shared."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from terminalbench.faults import ErrorClass
from terminalbench.harbor.limits.admission import Wait, waiting
from terminalbench.harbor.limits.gate import Gate, GateState
from terminalbench.harbor.limits.pacing import (
    FIRST_SEC,
    LONGEST_SEC,
    Lane,
    draw,
    eased,
    is_pressure,
    lane_name,
    pressed,
    retry_at,
    start_at,
    window_sec,
)
from terminalbench.records.event import WaitKind


def test_windows_double_up_to_minutes() -> None:
    assert [window_sec(level) for level in (1, 2, 3, 8, 9, 50, 10**6)] == [2, 4, 8, 256, 300, 300, 300]


@given(level=st.integers(1, 100), luck=st.floats(0, 1), asked=st.none() | st.floats(0, 900))
def test_a_wait_is_within_its_window_after_what_was_asked(level: int, luck: float, asked: float | None) -> None:
    lane = pressed(Lane(level - 1, 5.0, 5.0), started_at=10.0, now=100.0, asked_sec=asked)
    assert lane.level == level
    wait = start_at(lane, luck) - 100.0 - (asked or 0.0)
    assert FIRST_SEC - 1e-6 <= wait <= min(LONGEST_SEC, 2.0**level) + 1e-6


def test_trials_of_the_same_wave_raise_a_lane_once() -> None:
    lane = pressed(Lane(), started_at=0.0, now=10.0, asked_sec=None)
    for ended in (11.0, 12.0, 13.0):
        lane = pressed(lane, started_at=5.0, now=ended, asked_sec=None)
    assert lane.level == 1
    assert pressed(lane, started_at=10.5, now=20.0, asked_sec=None).level == 2


def test_what_was_asked_counts_even_when_the_level_does_not_rise() -> None:
    lane = pressed(Lane(), started_at=0.0, now=10.0, asked_sec=3.0)
    lane = pressed(lane, started_at=5.0, now=11.0, asked_sec=60.0)
    assert (lane.level, lane.not_before) == (1, 71.0)
    assert pressed(lane, started_at=5.0, now=12.0, asked_sec=1.0).not_before == 71.0


def test_a_success_resets_only_when_it_started_after_the_pressure() -> None:
    lane = pressed(Lane(), started_at=0.0, now=10.0, asked_sec=30.0)
    assert eased(lane, started_at=5.0) == lane
    free = eased(lane, started_at=15.0)
    assert free.level == 0
    assert start_at(free, 0.7) == 40.0, "what the provider asked for is honoured all the same"


def test_luck_is_seeded_and_different_for_each_trial() -> None:
    assert draw(7, "lane", 1, "a") == draw(7, "lane", 1, "a")
    assert len({draw(7, "lane", 1, name) for name in "abcdefgh"}) == 8
    assert draw(8, "lane", 1, "a") != draw(7, "lane", 1, "a")


@given(tries=st.integers(1, 50), luck=st.floats(0, 1))
def test_every_retry_waits_longer_at_most(tries: int, luck: float) -> None:
    assert FIRST_SEC <= retry_at(100.0, tries, luck) - 100.0 <= min(LONGEST_SEC, 2.0**tries) + 1e-6


@pytest.mark.parametrize(
    ("model", "agent", "lane"),
    [
        ("claude-sonnet-4-5", "claude-code", "anthropic/claude-sonnet-4-5"),
        ("anthropic/claude-sonnet-4-5", "terminus-2", "anthropic/claude-sonnet-4-5"),
        ("openrouter/anthropic/claude-sonnet-4-5", "x", "openrouter/anthropic/claude-sonnet-4-5"),
        ("my-own-model", "x", "my-own-model"),
        (None, "codex", "codex"),
        ("", "codex", "codex"),
    ],
)
def test_what_shares_a_limit(model: str | None, agent: str, lane: str) -> None:
    assert lane_name(model, agent) == lane


def test_what_is_pressure() -> None:
    assert is_pressure(ErrorClass.RATE_LIMIT, "ApiRateLimitError")
    assert is_pressure(ErrorClass.PROVIDER, "ApiOverloadedError")
    assert not is_pressure(ErrorClass.PROVIDER, "ApiInternalServerError")
    assert not is_pressure(None, None)


def test_the_gate_holds_every_process_of_the_lane(tmp_path: Path) -> None:
    one, other = Gate(tmp_path / "gate.json"), Gate(tmp_path / "gate.json")
    one.create(GateState(seed=3))
    one.press("m", started_at=0.0, asked_sec=20.0, now=1000.0)
    state = other.read()
    found = waiting(state, "t", "m", 0.0, 1000.0)
    assert found is not None
    assert (found.cause, found.reason) == ("rate_limit", "rate limit of m")
    assert found.until is not None
    assert 1021.0 <= found.until <= 1022.0
    assert waiting(state, "t", "another model", 0.0, 1000.0) is None
    assert waiting(state, "t", "m", 0.0, found.until) is None
    other.ease("m", started_at=1005.0)
    assert one.read().lanes["m"].level == 0
    other.ease("never seen", started_at=0.0)


def test_the_longer_of_two_waits_is_told() -> None:
    state = GateState(lanes={"m": Lane(1, 100.0, 100.0)})
    assert waiting(state, "t", "m", 500.0, 100.0) == Wait(WaitKind.RETRY, "pause before the next try", 500.0)
    assert waiting(state, "t", "x", 0.0, 100.0) is None

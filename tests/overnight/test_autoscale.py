"""How many workers a machine bears: bounded, monotone, quick down, slow up, without flapping."""

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from terminalbench.overnight.scaling import MachineReading, Scale, ScaleDecision, ScaleLimits, decide

LIMITS = ScaleLimits(most=8)
CALM = MachineReading(
    at_sec=1000.0, cpus=4, available_mb=16_000, load=0.5, waits_memory=0.0, stalls_memory=0.0, stalls_io=0.0
)

share = st.one_of(st.none(), st.floats(0, 100))
readings = st.builds(
    MachineReading,
    at_sec=st.floats(0, 10_000),
    cpus=st.floats(0.5, 64),
    available_mb=st.one_of(st.none(), st.floats(0, 100_000)),
    load=st.one_of(st.none(), st.floats(0, 500)),
    waits_memory=share,
    stalls_memory=share,
    stalls_io=share,
    worker_mb=st.one_of(st.none(), st.floats(1, 10_000)),
)
scales = st.builds(Scale, workers=st.integers(0, 20), since_sec=st.floats(0, 10_000), downs=st.integers(0, 10))
limits = st.builds(
    ScaleLimits,
    most=st.integers(1, 16),
    trials=st.integers(1, 4),
    model_trials=st.integers(1, 4),
    model_slots=st.one_of(st.none(), st.integers(0, 8)),
    sandboxes=st.one_of(st.none(), st.integers(0, 8)),
)


@given(readings, scales, limits)
def test_there_is_always_one_worker_and_never_more_than_the_caps(
    reading: MachineReading, now: Scale, bounds: ScaleLimits
) -> None:
    found = decide(reading, now, bounds).workers
    assert 1 <= found <= bounds.most
    for cap, each in ((bounds.model_slots, bounds.model_trials), (bounds.sandboxes, bounds.trials)):
        assert cap is None or found <= max(1, cap // each)
    assert now.workers == 0 or found <= now.workers + 1


@given(readings, scales, limits, st.floats(0, 50_000))
def test_less_memory_never_means_more_workers(
    reading: MachineReading, now: Scale, bounds: ScaleLimits, less: float
) -> None:
    if reading.available_mb is not None:
        worse = replace(reading, available_mb=max(0.0, reading.available_mb - less))
        assert decide(worse, now, bounds).workers <= decide(reading, now, bounds).workers


@given(
    readings, scales, limits, st.sampled_from(["waits_memory", "stalls_memory", "stalls_io", "load"]), st.floats(0, 99)
)
def test_more_pressure_never_means_more_workers(
    reading: MachineReading, now: Scale, bounds: ScaleLimits, what: str, more: float
) -> None:
    if getattr(reading, what) is not None:
        worse = replace(reading, **{what: getattr(reading, what) + more})
        assert decide(worse, now, bounds).workers <= decide(reading, now, bounds).workers


@given(readings, scales, limits, st.sampled_from(["available_mb", "load"]))
def test_what_is_unknown_adds_no_worker(reading: MachineReading, now: Scale, bounds: ScaleLimits, what: str) -> None:
    found = decide(replace(reading, **{what: None}), replace(now, workers=max(1, now.workers)), bounds)
    assert found.workers <= max(1, now.workers)


def test_it_begins_with_one_for_each_processor_and_adds_one_in_each_interval() -> None:
    now = Scale()
    first = decide(CALM, now, LIMITS)
    assert first == ScaleDecision(4, "4 to start with, one for each processor")
    now = first.applied(now, CALM.at_sec)
    assert decide(replace(CALM, at_sec=1001.0), now, LIMITS).workers == 4
    more = decide(replace(CALM, at_sec=1030.0), now, LIMITS)
    assert (more.workers, more.reason) == (5, "16,000 MB of memory are available, load 0.5")


def test_little_memory_begins_with_few_and_unknown_memory_with_one() -> None:
    assert decide(replace(CALM, available_mb=2700), Scale(), LIMITS).workers == 2
    assert decide(replace(CALM, available_mb=10), Scale(), LIMITS).workers == 1
    assert decide(replace(CALM, available_mb=None), Scale(), LIMITS).workers == 1


@pytest.mark.parametrize(
    ("change", "workers", "urgent", "reason"),
    [
        ({"available_mb": 900.0}, 5, False, "900 MB of memory are available, and 1,024 MB are kept free"),
        ({"available_mb": 100.0}, 4, True, "100 MB of memory are available, and 1,024 MB are kept free"),
        ({"waits_memory": 12.0}, 5, False, "processes wait for memory 12% of the time"),
        ({"stalls_memory": 6.0}, 3, True, "everything waits for memory 6% of the time"),
        ({"stalls_io": 60.0}, 5, False, "everything waits for the disk 60% of the time"),
        ({"load": 13.0}, 5, False, "load 13.0 on 4 processors"),
        ({"available_mb": 900.0, "stalls_memory": 50.0}, 3, True, "everything waits for memory 50% of the time"),
        ({"load": 5.0}, 6, False, "load 5.0 on 4 processors"),
        ({"waits_memory": 5.0}, 6, False, "processes wait for memory"),
        ({"available_mb": 1500.0}, 6, False, "1,500 MB of memory are not enough for another worker"),
        ({"worker_mb": 15_000.0}, 6, False, "16,000 MB of memory are not enough for another worker"),
    ],
)
def test_what_takes_workers_away_and_what_keeps_them(
    change: dict[str, float], workers: int, urgent: bool, reason: str
) -> None:
    found = decide(replace(CALM, **change), Scale(6, since_sec=0.0), LIMITS)
    assert (found.workers, found.urgent, found.reason) == (workers, urgent, reason)


def test_the_last_worker_stays() -> None:
    found = decide(replace(CALM, available_mb=10.0), Scale(1), LIMITS)
    assert found.workers == 1
    assert found.reason.endswith("one worker is kept")


def test_caps_say_what_they_are() -> None:
    assert decide(CALM, Scale(), ScaleLimits(most=8, model_slots=2)) == ScaleDecision(
        2, "the model server answers 2 requests at once, and a worker sends 1"
    )
    assert decide(CALM, Scale(3), ScaleLimits(most=8, sandboxes=6, trials=2)) == ScaleDecision(
        3, "at most 6 sandboxes may run at once, and a worker needs 2"
    )
    assert decide(CALM, Scale(8), LIMITS) == ScaleDecision(8, "at most 8 at once")


@settings(max_examples=20)
@given(st.integers(0, 10_000), st.floats(3_000, 40_000), st.floats(100, 4_000), st.floats(0, 400))
def test_it_settles_under_noise_and_keeps_memory_free(
    seed: int, total_mb: float, worker_mb: float, noise_mb: float
) -> None:
    """A machine on which each worker takes memory, read every 5 s for three hours."""
    rng = random.Random(seed)
    now, short, turns, last = Scale(), 0, 0, 0
    for tick in range(3 * 720):
        used = now.workers * worker_mb
        reading = MachineReading(
            at_sec=tick * 5.0,
            cpus=4,
            available_mb=max(0.0, total_mb - used + rng.uniform(-noise_mb, noise_mb)),
            load=min(3.0, now.workers * 0.2),
            waits_memory=rng.uniform(0, 1.5),
            stalls_memory=0.0,
            worker_mb=worker_mb if now.workers else None,
        )
        found = decide(reading, now, LIMITS)
        step = found.workers - now.workers
        turns += step * last < 0
        last = step or last
        short += now.workers > 1 and (reading.available_mb or 0.0) < LIMITS.reserve_mb / 2
        now = found.applied(now, reading.at_sec)
    assert turns <= 12, "it flaps"
    assert short <= 4, "it lets memory run out"


def test_a_reading_that_jumps_around_a_threshold_moves_it_seldom() -> None:
    now, changes = Scale(4, 0.0), 0
    for tick in range(720):  # an hour
        level = 1_000.0 if tick % 2 else 16_000.0
        found = decide(replace(CALM, at_sec=tick * 5.0, available_mb=level), now, LIMITS)
        changes += found.workers != now.workers
        now = found.applied(now, tick * 5.0)
    assert now.workers == 1, "the lows count"
    assert changes <= 12

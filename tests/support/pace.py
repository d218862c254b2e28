"""How much slower this machine is than one on which the limits of tests were chosen, measured once, at the start.

A limit only ends what hangs: where a test can wait for what was done, it does that. Those that must be seconds follow the
machine: `seconds(60)` is a minute where nothing else runs, and three where the same work takes three times as long.
"""

import os
import statistics
import time

SLOWNESS = "TBENCH_TESTS_SLOWNESS"
"""The variable that says it, for what tests start, or for a person who knows better."""
_USUAL_SEC = 0.012
_LOOPS, _STEPS = 9, 100_000
_MOST = 20.0


def _loop() -> float:
    began, total = time.perf_counter(), 0
    for number in range(_STEPS):
        total += number & 7
    return time.perf_counter() - began


def _measured() -> float:
    return min(_MOST, max(1.0, statistics.fmean(_loop() for _ in range(_LOOPS)) / _USUAL_SEC))


slowness = float(os.environ.setdefault(SLOWNESS, f"{_measured():.2f}"))


def seconds(usual: float) -> float:
    """Return a limit for this machine that is `usual` for a quiet one."""
    return usual * slowness

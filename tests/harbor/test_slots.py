"""More trials at once in a Harbor that runs: on Harbor's own queue."""

import asyncio
from types import SimpleNamespace

import pytest
from harbor.trial.queue import TrialQueue

from terminalbench.harbor.limits.cancellation import Slots


class _Job:
    """As much of Harbor's job as the slots look at, with its real queue."""

    def __init__(self, at_once: int, planned: int) -> None:
        self.config = SimpleNamespace(n_concurrent_trials=at_once)
        self._trial_queue = TrialQueue(at_once)
        self._planned = planned
        self.inside = 0
        self.go = asyncio.Event()

    def __len__(self) -> int:
        return self._planned

    async def trial(self) -> None:
        async def execute(_config: object) -> None:
            self.inside += 1
            await self.go.wait()
            self.inside -= 1

        self._trial_queue._execute_trial_with_retries = execute  # ty: ignore[invalid-assignment]
        await self._trial_queue._run_trial(None)  # ty: ignore[invalid-argument-type]


async def _inside(job: _Job, slots: Slots, *wanted: int | None) -> list[int]:
    """How many trials run after each order."""
    trials = [asyncio.create_task(job.trial()) for _ in range(len(job))]
    found = []
    for number in wanted:
        slots.grow_to(number)
        for _ in range(20):
            await asyncio.sleep(0)
        found.append(job.inside)
    job.go.set()
    await asyncio.gather(*trials)
    assert job.inside == 0
    return found


@pytest.mark.parametrize(
    ("fixed", "wanted", "running"),
    [
        (False, (None, 2, 5, 5, 3, 6), [2, 2, 5, 5, 5, 6]),
        (False, (999_999,), [8]),
        (True, (None, 5), [2, 2]),
    ],
)
def test_slots_grow_and_never_shrink(fixed: bool, wanted: tuple[int | None, ...], running: list[int]) -> None:
    async def main() -> None:
        job = _Job(2, 8)
        assert await _inside(job, Slots(job, fixed=fixed), *wanted) == running

    asyncio.run(main())


class _Other(_Job):
    def __init__(self) -> None:
        super().__init__(2, 8)
        self._trial_queue = SimpleNamespace(_semaphore=None)


def test_a_harbor_without_such_a_queue_is_named() -> None:
    with pytest.raises(TypeError, match="no semaphore"):
        Slots(_Other())

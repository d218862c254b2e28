"""Two runs at once, many times: each gets a batch of its own, and one batch is never worked on by two."""

import multiprocessing
import os
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest

from terminalbench.experiments.batch import Batch, allocate
from terminalbench.locks import LockHeld, lock

RACES = 100
RUNNERS = 2
_WAIT_SEC = 120


def _take_batches(root: Path, barrier: Barrier, results: "multiprocessing.Queue[list[str]]") -> None:
    taken = []
    for race in range(RACES):
        barrier.wait(_WAIT_SEC)
        batch = allocate(root, f"race{race}")
        with lock(batch.lock, "tbench run"):
            taken.append(str(batch.folder))
    results.put(taken)


def _contend(root: Path, barrier: Barrier, results: "multiprocessing.Queue[list[tuple[int, int | None]]]") -> None:
    """For each race: our pid, and who was in our way (None: we got it)."""
    seen: list[tuple[int, int | None]] = []
    for race in range(RACES):
        batch = Batch(root / "s" / str(race))
        barrier.wait(_WAIT_SEC)
        try:
            with lock(batch.lock, f"tbench resume s/{race}"):
                barrier.wait(_WAIT_SEC)
                seen.append((os.getpid(), None))
        except LockHeld as error:
            barrier.wait(_WAIT_SEC)
            seen.append((os.getpid(), error.owner.pid if error.owner else -1))
    results.put(seen)


def _race(work, root: Path) -> list:
    context = multiprocessing.get_context("fork")
    barrier, results = context.Barrier(RUNNERS), context.Queue()
    runners = [context.Process(target=work, args=(root, barrier, results)) for _ in range(RUNNERS)]
    for runner in runners:
        runner.start()
    found = [results.get(timeout=_WAIT_SEC) for _ in runners]
    for runner in runners:
        runner.join(_WAIT_SEC)
    return found


def test_two_runs_at_once_take_two_batches(tmp_path: Path) -> None:
    first, second = _race(_take_batches, tmp_path)
    for race, pair in enumerate(zip(first, second, strict=True)):
        assert {Path(folder).name for folder in pair} == {"0", "1"}, race


@pytest.mark.parametrize("left", [None, "a dead owner"])
def test_a_batch_is_taken_by_one_and_the_other_is_told_by_whom(tmp_path: Path, left: str | None) -> None:
    for race in range(RACES):
        folder = tmp_path / "s" / str(race)
        folder.mkdir(parents=True)
        if left is not None:
            (folder / ".lock").write_text(
                f'{{"pid": 1, "host": "{os.uname().nodename}", "since": "x", "what": "{left}", "start_ticks": -1}}'
            )
    for race, pair in enumerate(zip(*_race(_contend, tmp_path), strict=True)):
        (winner,) = [pid for pid, in_the_way in pair if in_the_way is None]
        assert [in_the_way for _, in_the_way in pair if in_the_way is not None] == [winner], race

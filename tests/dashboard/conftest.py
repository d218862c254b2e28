"""A results root for the dashboard, made without running anything."""

from pathlib import Path

import pytest

from support.dashboard import Root, add_trajectory, fill, steps
from support.results import STAMP
from terminalbench.dashboard.site import Site
from terminalbench.experiments.batch import allocate


@pytest.fixture
def root(tmp_path: Path) -> Root:
    """Two batches; in the first, `a__2` of p failed where q passed, and one trial of p broke."""
    path = tmp_path / "results"
    rewards = {
        ("p", "a__1"): 0.0, ("p", "a__2"): 0.0, ("p", "b__1"): 1.0, ("p", "b__2"): None,
        ("q", "a__3"): 1.0, ("q", "a__4"): 1.0, ("q", "b__3"): 1.0,
    }  # fmt: skip
    first, second = allocate(path, "study"), allocate(path, "study")
    fill(first, rewards)
    fill(second, dict.fromkeys(rewards, 1.0))
    add_trajectory(first.runs / f"{STAMP}__p" / "a__1", steps("ls", "cat notes", "echo wrong > answer", "exit"))
    add_trajectory(
        first.runs / f"{STAMP}__q" / "a__3", steps("ls", "cat notes", "python solve.py", "cat answer", "exit")
    )
    made = Root(path, Site(path))
    made.scan()
    return made

"""Fixtures of the tests beside it."""

from pathlib import Path

import pytest

from support.results import make_plan
from terminalbench.experiments.batch import Batch, allocate


@pytest.fixture
def batch(tmp_path: Path) -> Batch:
    found = allocate(tmp_path / "results", "s")
    make_plan(found, ("p", "q"), "ab", 2)
    return found

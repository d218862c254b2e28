"""A results root for the dashboard, made without running anything."""

from pathlib import Path

import pytest

from support.dashboard import Root, make_root


@pytest.fixture
def root(tmp_path: Path) -> Root:
    """Two batches; in the first, `a__2` of p failed where q passed, and one trial of p broke."""
    return make_root(tmp_path / "results")

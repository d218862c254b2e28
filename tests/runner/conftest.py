"""A Harbor that is only asked, for what `resume` decides."""

import pytest

from runner.resuming import Started


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Started:
    made = Started()
    monkeypatch.setattr("terminalbench.runner.preflight.ask_harbor", made.ask)
    monkeypatch.setattr("terminalbench.runner.resume.run_jobs", made.run)
    return made

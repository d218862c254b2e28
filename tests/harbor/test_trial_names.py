"""The name of a trial, which its container can read, does not hold the commit that solves its task."""

from pathlib import Path

import pytest
from harbor.models.trial.config import TaskConfig, TrialConfig

from terminalbench.harbor.attempt_numbers import hide_commits

FIX = "8088231bc2c2f319f484be1365ffdb15792c0a70"


@pytest.mark.parametrize(
    ("task", "named"),
    [
        (f"instance_tiny__ring-{FIX}-v{'0' * 40}", "instance_tiny__ring"),
        (f"instance_tiny__ring-{FIX}-vnan", "instance_tiny__ring"),
        (f"instance_qutebrowser__qutebrowser-{FIX}", "instance_qutebrowser__qutebrowse"),
        (f"x-{FIX}", "x"),
        ("csv-clean-deadbeef", "csv-clean-deadbeef"),
        (f"build-{FIX}{FIX[:24]}", f"build-{FIX[:26]}"),  # no commit, a digest
    ],
)
def test_the_commit_in_the_name_of_a_task_is_left_out(task: str, named: str) -> None:
    config = TrialConfig(task=TaskConfig(path=Path("/tasks") / task))
    before = config.trial_name
    hide_commits([config])
    assert config.trial_name.rpartition("__")[0] == named
    assert config.trial_name.rpartition("__")[2] == before.rpartition("__")[2]

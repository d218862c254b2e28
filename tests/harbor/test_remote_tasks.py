"""Tasks of a remote dataset get ids by which each can be asked for."""

import pytest

from terminalbench.harbor.remote_tasks import by_id, look_up


def test_a_task_is_called_like_its_folder_or_package() -> None:
    entries = [{"path": "sets/a", "git_url": "r"}, {"name": "org/b"}, {"path": "sets/a", "git_url": "r"}]
    assert by_id(entries).tasks == {"a": entries[0], "b": entries[1]}


def test_tasks_that_share_a_name_are_told_apart_by_their_place() -> None:
    entries = [{"path": "x/a"}, {"path": "y/a"}, {"path": "y/b"}, {"name": "org/a"}]
    found = by_id(entries)
    assert found.problem is None
    assert found.tasks == {"x/a": entries[0], "y/a": entries[1], "b": entries[2], "org/a": entries[3]}


def test_tasks_that_nothing_tells_apart_are_a_problem() -> None:
    entries = [{"path": "x/a", "git_url": "r"}, {"path": "x/a", "git_url": "other"}]
    assert by_id(entries).problem == 'two of its tasks are called "a"'


def test_a_registry_that_cannot_be_reached_says_the_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    from harbor.models.job.config import DatasetConfig

    async def offline(_self: DatasetConfig) -> None:
        try:
            raise OSError(-2, "Name or service not known")
        except OSError as error:
            raise RuntimeError("all attempts failed") from error

    monkeypatch.setattr(DatasetConfig, "get_task_configs", offline)
    problem = look_up([{"name": "far", "version": "1.0"}])[0].problem
    assert problem == "RuntimeError: all attempts failed; from OSError: [Errno -2] Name or service not known"

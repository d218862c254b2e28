"""A night and its local model: it is asked at the endpoint of the night, pinned, and asked again before an iteration."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from jobkit import write_task

from servers.base import Turn
from servers.ollama import OllamaServer
from terminalbench.errors import EXIT_USAGE, UserError
from terminalbench.overnight.begin import Night, Request, begin
from terminalbench.overnight.folder import NightFolder
from terminalbench.overnight.launch import Assignment
from terminalbench.overnight.night import Role
from terminalbench.overnight.worker import work

SUITE = (
    """{"name": "one", "version": "1", "run": {"container_env": "local"}, "tasks": [{"id": "a", "path": "tasks/a"}]}"""
)


def _begin(root: Path, server: OllamaServer) -> Night:
    write_task(root / "tasks" / "a")
    (root / "suite.json").write_text(SUITE)
    asked = Request(suite=root / "suite.json", models=("ollama:small:1b",), ollama_endpoint=server.url, root=root)
    folder = NightFolder(root.parent / "night")
    folder.folder.mkdir()
    return begin(asked, folder, datetime.now(UTC))


def test_a_model_that_was_pulled_again_starts_no_iteration(tmp_path: Path) -> None:
    root = tmp_path / "project"
    root.mkdir()
    with OllamaServer([Turn("ok")], model="small:1b") as server:
        night = _begin(root, server)
        (model,) = night.config.models
        assert (model.facts["digest"], model.facts["server"]) == ("0" * 64, server.url)
        asked = len(server.native_chats)
        server.digest = "ab" * 32
        end = work(Assignment(night.folder, 1, Role.ITERATION))
        assert len(server.native_chats) == asked
    assert end.code == EXIT_USAGE
    assert "it was pulled again: its digest is abababababab" in (end.said or "")
    assert night.folder.batches() == []


def test_a_night_does_not_begin_without_its_model(tmp_path: Path) -> None:
    root = tmp_path / "project"
    root.mkdir()
    with OllamaServer([Turn("ok")], model="small:7b") as server, pytest.raises(UserError, match='no model "small:1b"'):
        _begin(root, server)
    assert not NightFolder(tmp_path / "night").config_json.exists()

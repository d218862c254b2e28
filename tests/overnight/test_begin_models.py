"""A night and its local model: it is asked at the endpoint of the night, pinned, and asked again before an iteration."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from jobkit import write_task

from servers.base import Turn
from servers.ollama import OllamaServer
from terminalbench.errors import EXIT_USAGE, UserError
from terminalbench.overnight.begin import NightRequest, PreparedNight, begin
from terminalbench.overnight.crew import WorkerAssignment
from terminalbench.overnight.folder import NightFolder
from terminalbench.overnight.iteration_files import load_base
from terminalbench.overnight.night import NightConfig, Role
from terminalbench.overnight.scaling import MachineReading, Scale, decide, limits_of
from terminalbench.overnight.worker import work

SUITE = (
    """{"name": "one", "version": "1", "run": {"container_env": "local"}, "tasks": [{"id": "a", "path": "tasks/a"}]}"""
)


def _begin(root: Path, server: OllamaServer) -> PreparedNight:
    write_task(root / "tasks" / "a")
    (root / "suite.json").write_text(SUITE)
    asked = NightRequest(suite=root / "suite.json", models=("ollama:small:1b",), ollama_endpoint=server.url, root=root)
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
        end = work(WorkerAssignment(night.folder, 1, Role.ITERATION))
        assert len(server.native_chats) == asked
    assert end.code == EXIT_USAGE
    assert "the model was pulled again: its digest is abababababab" in (end.said or "")
    assert night.folder.batches() == []


def test_workers_keep_within_what_the_model_server_answers_and_within_the_sandboxes(tmp_path: Path) -> None:
    root = tmp_path / "project"
    root.mkdir()
    with OllamaServer([Turn("ok")], model="small:1b") as server:
        night = _begin(root, server)
    base = load_base(night.folder, night.config)
    roomy = MachineReading(at_sec=1000.0, cpus=16, available_mb=64_000, load=0.5)

    def first(config: NightConfig, **environment: str) -> tuple[int, str]:
        found = decide(roomy, Scale(), limits_of(base, config, environment))
        return found.workers, found.reason

    assert first(night.config) == (1, "the model server answers 1 requests at once, and a worker sends 4")
    assert first(night.config, OLLAMA_NUM_PARALLEL="8")[0] == 2
    declared = msgspec.structs.replace(night.config, model_slots=12)
    assert first(declared, OLLAMA_NUM_PARALLEL="8")[0] == 3
    few = msgspec.structs.replace(night.config, model_slots=64, sandboxes=20)
    assert first(few) == (5, "at most 20 sandboxes may run at once, and a worker needs 4")
    docker = replace(base, run=replace(base.run, container_env="docker"))
    assert limits_of(docker, declared, {}).sandboxes == 28
    assert limits_of(replace(base, profiles=()), declared, {}).model_slots is None, "no profile asks a local server"


def test_caps_without_auto_are_refused(tmp_path: Path) -> None:
    folder = NightFolder(tmp_path)
    with pytest.raises(UserError, match="need --workers auto"):
        begin(NightRequest(suite=Path("starter"), model_slots=2, workers=3), folder, datetime.now(UTC))


def test_a_night_does_not_begin_without_its_model(tmp_path: Path) -> None:
    root = tmp_path / "project"
    root.mkdir()
    with OllamaServer([Turn("ok")], model="small:7b") as server, pytest.raises(UserError, match='no model "small:1b"'):
        _begin(root, server)
    assert not NightFolder(tmp_path / "night").config_json.exists()

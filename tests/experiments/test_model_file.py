"""A profile whose model is a file: what its id holds, what it costs, and what is refused."""

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from support.experiments import Project
from support.tiny_gguf import tiny_gguf
from terminalbench.errors import InvalidFile
from terminalbench.experiments.batch import Batch
from terminalbench.experiments.config import load
from terminalbench.experiments.planner import make_plan
from terminalbench.experiments.profiles import Profile
from terminalbench.harbor.jobs import job_config
from terminalbench.llm.local.gguf import file_digest
from terminalbench.llm.local.spec import LocalSpec, parse_local
from terminalbench.llm.model import ModelError

TEXT = """
schema_version = 2
slug = "files"
[run]
container_env = "local"
[tasks]
default_dataset = "starter"
items = [{{ id = "csv-clean" }}]
[profiles.one]
agent = "{agent}"
model = "local:{path}"
"""


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def profile(project: Project, path: str, agent: str = "ollama") -> Profile:
    [found] = load(project.experiment(TEXT.format(path=path, agent=agent))).profiles
    return found


def test_the_id_holds_the_files_bytes_and_not_its_folder(project: Project) -> None:
    for folder, seed in (("a", 1), ("b", 1), ("c", 2)):
        (project.root / folder).mkdir()
        tiny_gguf(project.root / folder / "m.gguf", seed=seed)
    here, moved, other = (profile(project, f"{folder}/m.gguf") for folder in "abc")
    assert here.model == f"local:{project.root}/a/m.gguf"
    assert here.content["model"] == "local:m.gguf"
    assert here.id == moved.id != other.id
    assert profile(project, "a/m.gguf,num_ctx=2048").id != here.id


def test_it_costs_nothing(project: Project) -> None:
    tiny_gguf(project.root / "m.gguf")
    price = profile(project, "m.gguf").price
    assert price is not None
    assert price.free


def test_terminus_is_refused_a_window_that_its_own_prompt_fills(tmp_path: Path) -> None:
    from terminalbench.harbor.agents.local_terminus import LocalTerminus

    file = tiny_gguf(tmp_path / "m.gguf")
    with pytest.raises(ModelError, match="needs a window of at least 4096 tokens, but m has 1024"):
        LocalTerminus(tmp_path, f"local:{file},num_ctx=1024")


def test_terminus_is_run_by_the_class_that_knows_files(project: Project) -> None:
    tiny_gguf(project.root / "m.gguf")
    experiment = load(project.experiment(TEXT.format(path="m.gguf", agent="terminus-2")))
    batch = Batch(project.root / "results" / "files" / "0")
    [job] = make_plan(experiment, batch, datetime(2026, 1, 1, tzinfo=UTC)).jobs
    [agent] = job_config(experiment, experiment.profiles[0], job, batch)["agents"]
    assert agent["import_path"] == "terminalbench.harbor.agents.local_terminus:LocalTerminus"
    digest = file_digest(project.root / "m.gguf")
    assert parse_local(agent["model_name"]) == LocalSpec(project.root / "m.gguf", None, digest[:16])


@pytest.mark.parametrize(
    ("path", "agent", "said"),
    [
        ("none.gguf", "ollama", "there is no model file"),
        ("m.gguf", "claude-code", "cannot use a local: model"),
        ("m.gguf", "codex", "cannot use a local: model"),
        ("m.gguf,num_ctx=many", "ollama", "num_ctx must be a number"),
        ("", "ollama", "does not name a file"),
    ],
)
def test_what_cannot_be_is_refused_at_its_key(project: Project, path: str, agent: str, said: str) -> None:
    tiny_gguf(project.root / "m.gguf")
    with pytest.raises(InvalidFile) as caught:
        profile(project, path, agent)
    [told] = [problem.what for problem in caught.value.problems if problem.key == "profiles.one.model"]
    assert said in told


def test_the_experiment_of_the_page_is_one(project: Project) -> None:
    page = (Path(__file__).parents[2] / "docs" / "local-models.md").read_text()
    [text] = re.findall(r"^```toml\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    (project.root / "models").mkdir()
    tiny_gguf(project.root / "models" / "qwen.gguf", context=8192)
    assert [profile.agent.name for profile in load(project.experiment(text)).profiles] == ["ollama", "terminus-2"]

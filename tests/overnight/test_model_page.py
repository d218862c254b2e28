"""docs/tbench/model-configuration.md: what it shows runs, and what it lists is all there is."""

import json
import re
from pathlib import Path

from support.experiments import Project
from terminalbench.experiments.agents import agent_info
from terminalbench.experiments.config import load
from terminalbench.harbor.agents.ollama import OllamaOptions
from terminalbench.overnight.models import ModelKind, parse_model
from terminalbench.overnight.suite import SuiteTable, SuiteTaskTable, load_suite, shipped_suites
from terminalbench.strict import hints

PAGE = (Path(__file__).parents[2] / "docs" / "tbench" / "model-configuration.md").read_text()


def _block(kind: str) -> str:
    (found,) = re.findall(rf"^```{kind}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    return found


def test_each_model_that_it_names_is_one() -> None:
    table = re.findall(r"^\| `([^`]+)` \| .* \| (?:0|none|made up|as it says) \|$", PAGE, re.MULTILINE)
    listed = re.findall(r"^- `([^`]+)`$", PAGE, re.MULTILINE)
    models = [parse_model(spec) for spec in (*table, *listed)]
    assert {model.kind for model in models} == set(ModelKind)
    assert all(model.options for model in models[-len(listed) :])
    free = re.findall(r"^\| `([^`]+)` \| .* \| 0 \|$", PAGE, re.MULTILINE)
    assert [model.spec for model in models if model.free and model.spec in table] == free


def test_each_option_of_the_agent_is_told_with_its_default() -> None:
    told = set(re.findall(r"`(\w+)`", PAGE))
    info = agent_info("ollama")
    assert info is not None
    assert set(info.options or ()) == set(OllamaOptions.model_fields)
    assert set(OllamaOptions.model_fields) - {"base_url", "digest"} <= told
    assert (OllamaOptions().max_turns, OllamaOptions().keep_alive) == (100, "30m")
    values = OllamaOptions()
    assert (values.answer_tokens, values.command_sec, values.output_chars) == (4096, 120, 8000)
    assert (values.silence_sec, values.tries) == (900, 5)


def test_its_experiment_loads(project: Project) -> None:
    found = load(project.experiment(_block("toml")))
    assert [(task.id, task.timeout_sec) for task in found.tasks] == [("csv-clean", None), ("git-lost-commit", 1200)]
    assert found.profiles[0].agent.asks_from_host


def test_its_suite_loads_and_each_key_is_told(tmp_path: Path) -> None:
    file = tmp_path / "mine.json"
    file.write_text(_block("json"))
    suite = load_suite(file)
    assert [(task.id, task.timeout_sec) for task in suite.tasks] == [("csv-clean", 300), ("git-lost-commit", None)]
    assert json.loads(file.read_text())["name"] == suite.name
    told = set(re.findall(r"`([\w.-]+)`", PAGE))
    assert {*hints(SuiteTable), *hints(SuiteTaskTable), *shipped_suites()} <= told

import copy
import json
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import tomlkit
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import DATA, REPO
from support.experiments import BASE, ORACLE
from terminalbench.errors import InvalidFile
from terminalbench.experiments.config import load
from terminalbench.experiments.schema import json_schema, key_tables
from terminalbench.experiments.tables import (
    AnalysisTable,
    ArtifactsTable,
    DatasetTable,
    ExperimentTable,
    McpTable,
    NotifyTable,
    ProfileDefaults,
    ProfileTable,
    RunTable,
    TasksTable,
    TaskTable,
    TopUpTable,
)
from terminalbench.strict import Problems, read

SCHEMA = json_schema()

EXAMPLES = [*sorted((REPO / "experiments").glob("[!t]*.toml")), DATA / "seed_000.toml"]


@pytest.fixture
def schema(tbench) -> dict:
    document = json.loads(tbench("schema").out)
    jsonschema.Draft202012Validator.check_schema(document)
    return document


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda f: f.stem)
def test_examples_fit_the_schema(schema: dict, file: Path) -> None:
    jsonschema.validate(tomllib.loads(file.read_text()), schema)


@pytest.mark.parametrize(
    "text",
    [
        "[run]\natempts = 5\n",
        "[run]\nattempts = 0\n",
        '[run]\nforce_rebuild = "no"\n',
        '[analysis]\ninfra_errors = "zero"\n',
        "[profiles.p]\nno_mcp = 1\n",
        "[profiles.p]\nenv = 3\n",
    ],
)
def test_the_schema_refuses_what_validate_refuses(schema: dict, project, tbench, text: str) -> None:
    whole = BASE + ORACLE + text
    assert tbench("validate", project.experiment(whole)).code == 2
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(tomllib.loads(whole), schema)


WRONG = st.one_of(
    st.booleans(),
    st.integers(-5, 5) | st.sampled_from([10**9, 10**16]),
    st.floats(-2, 3, allow_nan=False).filter(lambda x: not x.is_integer()),  # JSON has one kind of number, TOML two
    st.sampled_from(["", " ", "x", "a/b", "..", "stop", "any", "local", "finished", "${X}", "--debug", "--nope", "A"]),
    st.lists(
        st.sampled_from(["", "x", "a/b", "${X}", "--debug", "--nope", "finished", 1, ["x", "y"], ["x"]]), max_size=2
    ),
    st.dictionaries(st.sampled_from(["x", "id", "A", "a/b", "path"]), st.sampled_from(["x", 1, True]), max_size=2),
)
SECTIONS = [
    ((), ExperimentTable),
    (("tasks",), TasksTable),
    (("tasks", "items", 0), TaskTable),
    (("run",), RunTable),
    (("defaults",), ProfileDefaults),
    (("profiles", "p"), ProfileTable),
    (("datasets", "x@1"), DatasetTable),
    (("mcp",), McpTable),
    (("artifacts",), ArtifactsTable),
    (("analysis",), AnalysisTable),
    (("top_up",), TopUpTable),
    (("notify",), NotifyTable),
]
WHOLE = {
    "schema_version": 2,
    "slug": "s",
    "tasks": {"items": [{"id": "a"}]},
    "profiles": {"p": {"agent": "oracle"}},
    "datasets": {"x@1": {"path": "tasks"}},
    "top_up": {"interval_width": 0.2},
    "notify": {"urls": ["${X}"]},
} | {name: {} for name in ("run", "defaults", "mcp", "artifacts", "analysis")}
FILES_AND_NAMES = (
    "container_env",
    "registry_path",
    "results_root",
    "default_dataset",
    "baseline",
    "analyzers",
    "contrasts",
)
"""Keys that also depend on what is on disk, installed or in another key: the schema cannot know."""


@settings(max_examples=300)
@given(data=st.data())
def test_schema_and_validate_agree_on_one_changed_key(data, tmp_path_factory) -> None:
    """Type, unknown key, enumeration, range, pattern: whatever one key is set to, both refuse it or both accept it."""
    place, table = data.draw(st.sampled_from(SECTIONS))
    name = data.draw(st.sampled_from([f.name for f in fields(table)]) | st.just("atempts"))
    raw: dict[str, Any] = copy.deepcopy(WHOLE)
    at: Any = raw
    for part in place:
        at = at[part]
    at[name] = data.draw(WRONG)
    problems = Problems()
    read(ExperimentTable, raw, "", problems)
    refused = list(jsonschema.Draft202012Validator(SCHEMA).iter_errors(raw))
    if problems.found:
        assert refused, (raw, problems.found)
    elif refused:  # then it is something only the loader says
        file = tmp_path_factory.getbasetemp() / "one.toml"
        file.write_text(tomlkit.dumps(raw))
        with pytest.raises(InvalidFile):
            load(file)
    elif place[:1] in ((), ("run",), ("artifacts",), ("notify",), ("analysis",)) and name not in FILES_AND_NAMES:
        (tmp_path_factory.getbasetemp() / "tasks" / "a").mkdir(parents=True, exist_ok=True)
        (tmp_path_factory.getbasetemp() / "tasks" / "a" / "task.toml").touch()
        file = tmp_path_factory.getbasetemp() / "one.toml"
        file.write_text(tomlkit.dumps({**raw, "tasks": {**raw["tasks"], "default_dataset": "x@1"}}))
        load(file)


def test_the_documentation_of_every_key_is_current(tbench) -> None:
    page = (REPO / "docs" / "experiment-toml.md").read_text()
    assert key_tables() in page, "run: tbench schema --markdown, and put it into docs/experiment-toml.md"
    assert tbench("schema", "--markdown").out == key_tables()

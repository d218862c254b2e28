import json
import tomllib
from pathlib import Path

import jsonschema
import pytest

from conftest import DATA, REPO
from support.experiments import BASE, ORACLE
from terminalbench.experiments.schema import key_tables

EXAMPLES = [*sorted((REPO / "experiments").glob("*.toml")), DATA / "seed_000.toml"]


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


def test_the_documentation_of_every_key_is_current(tbench) -> None:
    page = (REPO / "docs" / "experiment-toml.md").read_text()
    assert key_tables() in page, "run: tbench schema --markdown, and put it into docs/experiment-toml.md"
    assert tbench("schema", "--markdown").out == key_tables()

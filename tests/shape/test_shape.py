"""The shape of the house: what commands load, what is documented, what the installed Harbor offers."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import REPO
from support.experiments import BASE, ORACLE
from support.tiny_gguf import tiny_gguf
from support.warm import Warm
from terminalbench.cli.commands import GROUPS, SECTIONS

COMMANDS = [name for commands in SECTIONS.values() for name in commands]
COMMANDS += [f"{group} {name}" for group, table in GROUPS.items() for commands in table.values() for name in commands]
HEAVY = [
    "harbor",
    "litellm",
    "pydantic",
    "rich",
    "tomlkit",
    "numpy",
    "scipy",
    "starlette",
    "jinja2",
    "asyncio",
    "msgspec",
    "ray",
    "xllamacpp",
]
EXTRAS = """
schema_version = 2
slug = "s"
[run]
executor = "ray"
ray = { address = "10.0.0.5:6379" }
[tasks]
items = [{ id = "a" }]
[profiles.p]
agent = "ollama"
model = "local:m.gguf"
"""
"""An experiment that names both extras."""


def loaded(arguments: list[str], cwd: Path) -> set[str]:
    code = (
        "import sys; from terminalbench.cli.main import main; code = main(sys.argv[1:]); "
        "print('\\nMODULES', code, *sorted({m.split('.')[0] for m in sys.modules} | sys.modules.keys()))"
    )
    ran = subprocess.run([sys.executable, "-c", code, *arguments], cwd=cwd, capture_output=True, text=True, timeout=600)
    words = ran.stdout.rsplit("MODULES", 1)[1].split()
    assert words[0] == "0", ran.stderr
    return set(words[1:])


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["validate", "experiments/exp.toml"]])
def test_light_commands_load_nothing_heavy(project, arguments: list[str]) -> None:
    project.experiment(BASE + ORACLE)
    reads_tasks = {"msgspec"} if arguments[0] == "validate" else set()
    assert loaded(arguments, project.root).isdisjoint({*HEAVY} - reads_tasks)


def test_what_names_the_extras_is_validated_without_them(project) -> None:
    tiny_gguf(project.root / "m.gguf")
    project.experiment(EXTRAS)
    assert loaded(["validate", "experiments/exp.toml"], project.root).isdisjoint({"ray", "xllamacpp", "harbor"})


def test_planning_loads_neither_harbor_nor_numbers_nor_what_reads_trials(project) -> None:
    project.experiment(BASE + ORACLE)
    readers = {"terminalbench.harbor.read.results", "terminalbench.sandbox.engine.kernel"}
    assert loaded(["plan", "experiments/exp.toml"], project.root).isdisjoint(
        {"harbor", "litellm", "pydantic", "numpy", "scipy", *readers}
    )


def test_the_table_of_agents_is_that_of_the_installed_harbor() -> None:
    command = [sys.executable, "-m", "harbor_table"]
    env = {**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True", "PYTHONPATH": str(REPO / "scripts")}
    nothing, pipe = subprocess.DEVNULL, subprocess.PIPE
    loaded = Warm()
    out, err = loaded(command, env, stdin=nothing, stdout=pipe, stderr=pipe).communicate()
    kept = json.loads((REPO / "src/terminalbench/experiments/harbor.json").read_text())
    assert out, err.decode()
    assert json.loads(out) == kept, "run: python scripts/harbor_table.py > src/terminalbench/experiments/harbor.json"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_documented(name: str) -> None:
    """By a heading, or by a point of a list, before its colon."""
    page = (REPO / "docs" / "cli.md").read_text()
    assert re.search(rf"^(?:#+|-) [^:\n]*`tbench {name}\b", page, re.MULTILINE)


def test_lock_files_hold_no_addresses() -> None:
    for file in REPO.glob("requirements*.lock"):
        text = file.read_text()
        assert "://" not in text
        for line in text.splitlines():
            assert re.match(r"([a-zA-Z0-9._-]+(\[[\w,-]+\])?==|    --hash=sha256:)", line), line


def test_the_lock_pins_the_harbor_the_project_names() -> None:
    assert re.search(r"^harbor==0\.24\.", (REPO / "requirements.lock").read_text(), re.MULTILINE)


def test_the_readme_names_the_two_commands() -> None:
    text = (REPO / "README.md").read_text()
    assert "make demo" in text
    assert "make test" in text


def test_the_options_of_our_simulated_agent_are_known() -> None:
    from terminalbench.experiments.agents import agent_info
    from terminalbench.harbor.agents.simulated import SimulatedAgent

    info = agent_info("simulated")
    options = SimulatedAgent.options_model
    assert info is not None
    assert options is not None
    assert sorted(info.options or ()) == sorted(options.model_fields)

"""Recipes of CONTRIBUTING.md, followed in a copy of the package: what they add is everywhere, by so many files."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from conftest import REPO
from support.results import make_plan, make_trial
from terminalbench.experiments.batch import allocate

OUTCOME = {
    "records/trial.py": ('    NOT_RUN = "not_run"\n', '    NOT_RUN = "not_run"\n    DECLINED = "declined"\n'),
    "harbor/read/outcome.py": (
        "    if found is ErrorClass.AGENT_TIMEOUT:\n        return Outcome.TIMED_OUT\n",
        "    if found is ErrorClass.AGENT_TIMEOUT:\n        return Outcome.TIMED_OUT\n"
        "    if found is ErrorClass.SAFETY_REFUSAL:\n        return Outcome.DECLINED\n",
    ),
    "text/outcomes.py": (
        """    Outcome.NOT_RUN: ".",\n}\nCOLOURS = {\n""",
        """    Outcome.NOT_RUN: ".",\n    Outcome.DECLINED: "D",\n}\nCOLOURS = {\n    Outcome.DECLINED: "yellow",\n""",
    ),
}
AGENT = {
    "registry.py": (
        '    "agents": {\n',
        '    "agents": {\n        "echo": "terminalbench.harbor.agents.echo:EchoAgent",\n',
    ),
    "harbor/agents/echo.py": (
        "",
        """from harbor.agents.nop import NopAgent


class EchoAgent(NopAgent):
    AGENT_INFO = {"model": False, "mcp": False, "skills": False, "options": ["loud"]}

    @staticmethod
    def name() -> str:
        return "echo"

    def __init__(self, *args, loud: bool = False, **kwargs) -> None:
        super().__init__(*args, **kwargs)
""",
    ),
}
LOOK = """
import json, sys
from pathlib import Path
from terminalbench.dashboard.render import environment
from terminalbench.index.places import find_batches
from terminalbench.index.results import open_results
from terminalbench.index.totals import profile_totals
from terminalbench.index.results import open_view
from terminalbench.live.model import OVER
from terminalbench.overnight.iteration_results import _counts
from terminalbench.report.charts.heatmap import marks
from terminalbench.text.outcomes import ending, legend

root = Path(sys.argv[1])
(batch,) = find_batches(root)
view = open_view(batch)
parts = environment().get_template("parts.html").module
print(json.dumps({
    "trials": [row["outcome"] for row in open_results(root).trials()],
    "totals": profile_totals(view)[0].outcomes,
    "reasons": [cell.reason for cell in view.cells],
    "night": _counts(view.cells),
    "over": "declined" in OVER,
    "mark": ending("declined"),
    "legends": ["declined" in text for text in (legend(), str(parts.legend()), str(parts.bar({"declined": 1}, 1, "")))],
    "drawn": bool(marks([cell.outcome for cell in view.cells], 0, 0, 1)),
}))
"""


def followed(folder: Path, recipe: Mapping[str, tuple[str, str]]) -> dict[str, str]:
    """Follow a recipe in a copy of the package; the variables by which a process takes that one."""
    package = shutil.copytree(
        REPO / "src" / "terminalbench", folder / "terminalbench", ignore=shutil.ignore_patterns("__pycache__")
    )
    for name, (before, after) in recipe.items():
        file = package / name
        text = file.read_text() if before else ""
        assert not before or text.count(before) == 1, name
        file.write_text(text.replace(before, after) if before else after)
    return {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}


def output(arguments: list[str], env: Mapping[str, str]) -> str:
    ran = subprocess.run([sys.executable, *arguments], env=env, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_an_outcome(tmp_path: Path) -> None:
    assert len(OUTCOME) <= 4
    root = tmp_path / "results"
    batch = allocate(root, "s")
    make_plan(batch)
    make_trial(batch, "a__1")
    make_trial(batch, "b__1", reward=None, error="AgentSafetyRefusalError", second=1)
    found = json.loads(output(["-c", LOOK, str(root)], followed(tmp_path / "copy", OUTCOME)))
    assert found == {
        "trials": ["passed", "declined"],
        "totals": {"passed": 1, "declined": 1},
        "reasons": [None, "why"],
        "night": {"passed": 1, "failed": 0, "errored": 1, "not_run": 0},
        "over": True,
        "mark": "D declined",
        "legends": [True, True, True],
        "drawn": True,
    }


@pytest.mark.parametrize(
    ("more", "problem"), [("options = { loud = true }", None), ('skills = ["s"]', "agent echo takes no skills")]
)
def test_an_agent(tmp_path: Path, more: str, problem: str | None) -> None:
    assert len(AGENT) <= 3
    file = tmp_path / "e.toml"
    file.write_text(
        'schema_version = 2\nname = "e"\nslug = "e"\n[tasks]\ndefault_dataset = "starter"\n'
        f'items = [{{ id = "csv-clean" }}]\n[profiles.p]\nagent = "echo"\n{more}\n'
    )
    env = followed(tmp_path / "copy", AGENT)
    ran = subprocess.run(
        [sys.executable, "-m", "terminalbench.cli.main", "validate", str(file)],
        env=env, cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (ran.returncode == 0) is (problem is None), ran.stderr + ran.stdout
    assert problem is None or problem in ran.stderr

"""Evolvers of other packages: found by their entry point or path, refused before a trial is paid, and no danger to a night."""

import re
from pathlib import Path

import pytest

from conftest import REPO
from support.experiments import Project
from support.scripted_trials import ScriptedTrials, script_trials
from terminalbench.errors import InvalidFile, UserError
from terminalbench.trainer.plan import load_plan
from terminalbench.trainer.run import TrainingResult, run_training

PLAN = "experiments/training-quickstart.toml"
MODULE = re.findall(
    r"```python\n(# mypkg/evolve.py\n.*?)```", (REPO / "docs/tbench/training.md").read_text(), re.DOTALL
)[0]


@pytest.fixture
def trials(project: Project, monkeypatch: pytest.MonkeyPatch) -> ScriptedTrials:
    """A package with the evolver of the page is installed."""
    site = project.root / "site"
    project.write("site/mypkg/__init__.py", "")
    project.write("site/mypkg/evolve.py", f"{MODULE}\n\nclass Odd(Shorter):\n    def propose(self, search):\n"
        "        yield from super().propose(search)\n        raise ValueError('out of ideas')\n\n\n"
        "class Needs:\n    def __init__(self, more):\n        pass\n\n\nclass Mute:\n    pass\n")  # fmt: skip
    project.write("site/mypkg-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: mypkg\nVersion: 1.0\n")
    project.write(
        "site/mypkg-1.0.dist-info/entry_points.txt", "[terminalbench.evolvers]\nshorter = mypkg.evolve:Shorter\n"
    )
    monkeypatch.syspath_prepend(site)
    project.write("prompt.md", "## Pace\n\nHurry.\n\n## End\n\nStop.\n")
    return script_trials(monkeypatch, project.root, "training-quickstart", lambda text: 0.1 if "Hurry" in text else 0.9)


def planned(project: Project, evolver: str) -> Path:
    text = (REPO / PLAN).read_text()
    text = text[: text.index("[[variants]]")].replace("[profile]", '[profile]\nprompt = "prompt.md"')
    return project.write("plan.toml", f"{text}[evolver]\n{evolver}\n")


def trained(project: Project, evolver: str, nights: int = 1) -> TrainingResult:
    return run_training(load_plan(planned(project, evolver), project.root), nights=nights)


@pytest.mark.parametrize("name", ["shorter", "mypkg.evolve:Shorter"])
def test_an_evolver_of_another_package_is_one_of_ours(project: Project, trials: ScriptedTrials, name: str) -> None:
    first = trained(project, f'name = "{name}"\noptions = {{ most = 1 }}').nights[0]
    assert [one.reason for one in first.explored] == ["is Pace needed at all?", "the champion"]
    assert first.winner == first.explored[0].id


def test_one_that_fails_ends_the_search_and_the_night_keeps_what_it_has(
    project: Project, trials: ScriptedTrials
) -> None:
    first = trained(project, 'name = "mypkg.evolve:Odd"').nights[0]
    assert first.stopped == "the evolver mypkg.evolve:Odd failed: ValueError: out of ideas"
    assert len(first.explored) == 3
    assert first.winner is not None


def test_an_unknown_one_is_refused_with_those_that_are_there(project: Project, trials: ScriptedTrials) -> None:
    with pytest.raises(InvalidFile, match=r'evolver.name: no evolver is called "shortr".*did you mean "shorter"'):
        load_plan(planned(project, 'name = "shortr"'), project.root)
    with pytest.raises(InvalidFile, match=r"evolver.options: the evolver reflect does not use them"):
        load_plan(planned(project, 'name = "reflect"\noptions = { most = 2 }'), project.root)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("mypkg.nowhere:Shorter", "cannot load evolver"),
        ("mypkg.evolve:Needs", "cannot be made: TypeError"),
        ("mypkg.evolve:Mute", "has no propose"),
    ],
)
def test_one_that_cannot_be_had_is_refused_before_a_trial_is_paid(
    project: Project, trials: ScriptedTrials, name: str, said: str
) -> None:
    with pytest.raises(UserError, match=said):
        trained(project, f'name = "{name}"')
    assert not trials.paid
    assert not (project.root / ".terminalbench/training/training-quickstart/plan.json").exists()

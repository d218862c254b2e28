"""The evolver `agent`: what a coding agent edits in its sandbox becomes a variant, and nothing else does."""

from pathlib import Path

import pytest

from support.experiments import Project
from support.judging import STEPS
from support.reflecting import batch_of
from support.searches import Batches, search_of
from support.tasks import AGENTS
from support.trainings import plan_text
from terminalbench.errors import InvalidFile, UserError
from terminalbench.trainer.evolvers.agent import FILES, LISTED, OPTIONS, PROMPT, REASON, AgentEvolver, read_edit
from terminalbench.trainer.evolvers.search import Search
from terminalbench.trainer.plan import TrainingPlan, load_plan


def written(script: str = "true") -> str:
    evolver = f'[evolver]\nname = "agent"\nprofile = {{ agent = "my_agents:Scripted", options = {{ script = {script!r} }} }}\n'
    return plan_text(evolver, profile='prompt = "prompt.md"\noptions = { steps_mean = 5 }\n')


def planned(project: Project, script: str = "true") -> TrainingPlan:
    project.write("my_agents.py", AGENTS)
    project.write("prompt.md", "Be good.\n\n## Start\n\nRead.\n\n## Old\n\nGuess.\n")
    return load_plan(project.write("plan.toml", written(script)))


def searching(project: Project, script: str) -> Search:
    """A night whose champion failed at two tasks, and an agent that does this."""
    plan = planned(project, script)
    batch = batch_of(project.root, {"a__1": STEPS, "b__1": STEPS}, plan.start.profile.id)
    search = search_of(plan, Batches(plan, lambda *_: False, f"s/{batch.number}"))
    search.results = project.root / "results"
    return search


def came_back(folder: Path, **files: str) -> Path:
    """What an agent may have left of a profile that it did not change, but for these files."""
    kept = {PROMPT: "Be good.\n\n## Start\n\nRead.\n\n## Old\n\nGuess.\n", OPTIONS: "steps_mean = 5\n", REASON: "Why."}
    kept |= files
    kept.setdefault(LISTED, "".join(f"./{name}\n" for name in FILES))
    folder.mkdir(parents=True)
    for name, text in kept.items():
        (folder / name).write_text(text)
    return folder


def test_edited_sections_and_options_are_the_change(project: Project, tmp_path: Path) -> None:
    parent = planned(project).start
    files = {PROMPT: "Be good.\n\n## Start\n\nRead twice.\n\n## End\n\nLook.\n", OPTIONS: "delay_sec = [0.0, 0.0]\n"}
    change = read_edit(came_back(tmp_path / "v", **files), parent)
    assert change.sections == {"Start": "Read twice.", "End": "Look.", "Old": ""}
    assert (change.options, change.without_options, change.reason) == (
        {"delay_sec": [0.0, 0.0]},
        ["steps_mean"],
        "Why.",
    )


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({LISTED: "./prompt.md\n./tests/test.sh\n"}, "files that it must not write: tests/test.sh"),
        ({OPTIONS: "steps ="}, "options.toml is not valid TOML"),
        ({PROMPT: "x" * 70_000}, "prompt.md is longer than 64 KB"),
    ],
)
def test_anything_else_is_refused(project: Project, tmp_path: Path, files: dict[str, str], said: str) -> None:
    with pytest.raises(UserError, match=said):
        read_edit(came_back(tmp_path / "v", **files), planned(project).start)


def test_a_link_is_no_file(project: Project, tmp_path: Path) -> None:
    place = came_back(tmp_path / "v")
    (place / PROMPT).unlink()
    (place / PROMPT).symlink_to(project.root / "my_agents.py")
    with pytest.raises(UserError, match="is not a plain file any more"):
        read_edit(place, planned(project).start)


def test_a_plan_without_the_agent_or_with_a_wrong_one_is_refused(project: Project) -> None:
    file = project.write("plan.toml", written().replace("profile = {", "#"))
    with pytest.raises(InvalidFile, match=r"evolver.profile: is required"):
        load_plan(file)
    project.write("prompt.md", "x")
    file = project.write("plan.toml", written().replace("my_agents:Scripted", "claud-code"))
    with pytest.raises(InvalidFile, match=r"evolver.profile.agent"):
        load_plan(file)


def test_an_agent_in_its_sandbox_edits_the_champion_and_reaches_nothing_else(project: Project) -> None:
    script = (
        f"for p in {project.root} /tests /solution /work; do if [ -e $p ]; then touch /profile/seen; fi; done; "
        "grep -q 'How attempts failed' /failures.md && printf '\\n## End\\n\\nLook again.\\n' >> /profile/prompt.md; "
        "echo It never looks again. > /profile/reason.md"
    )
    search = searching(project, script)
    (proposal,) = AgentEvolver().propose(search)
    assert search.refused == []
    assert (proposal.change.sections, proposal.change.reason) == ({"End": "Look again."}, "It never looks again.")
    assert search.asked is not None
    assert (search.asked.model, search.asked.questions) == ("my_agents:Scripted", 1)
    ran = sorted(project.root.glob("results/mine/*/runs/*/*/result.json"))
    (again,) = AgentEvolver().propose(search)  # a night that was killed: the same, and nothing is paid
    assert again == proposal
    assert sorted(project.root.glob("results/mine/*/runs/*/*/result.json")) == ran
    assert len(ran) == 1
    assert search.take(proposal) is not None

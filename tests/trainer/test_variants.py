"""Variants: every field of a change makes another profile that really runs otherwise; nothing else makes one."""

import json

import pytest

from terminalbench.errors import InvalidFile, UserError
from terminalbench.experiments.batch import Batch
from terminalbench.experiments.planner import Selection
from terminalbench.experiments.tables import LessonsTable
from terminalbench.harbor.jobs import job_config
from terminalbench.lab.plan import plan_batch
from terminalbench.trainer.environments import Environment, open_environment
from terminalbench.trainer.variants import (
    Change,
    ResolvedProfile,
    ToolsTable,
    changed,
    edited,
    resolved,
    said,
    sections_of,
    text_of,
)

PROMPT = "Work carefully.\n\n## Style\n\nShort.\n"
CLAUDE = {"agent": "claude-code", "model": "m", "prompt": "p.md", "no_mcp": True, "options": {"max_turns": 9}}
GUARDED = {"agent": "guarded", "model": "litellm:m", "workflow": "s1_direct"}


@pytest.fixture
def starter(project) -> Environment:
    project.write("p.md", PROMPT)
    project.server("one")
    return open_environment("starter", project.root)


def config_of(environment: Environment, made: ResolvedProfile) -> str:
    """What Harbor is handed for this profile, without its name."""
    experiment = environment.experiment({"v": made.table}, environment.tasks[:1], {"slug": "s"})
    planned = plan_batch(experiment, Selection())
    return json.dumps(job_config(experiment, experiment.profiles[0], planned.plan.jobs[0], Batch(planned.batch.folder)))


CHANGES = {
    "sections": (CLAUDE, Change("r", sections={"Style": "Long."}), "Long."),
    "options": (CLAUDE, Change("r", options={"max_turns": 5}), "5"),
    "without_options": (CLAUDE, Change("r", without_options=["max_turns"]), ""),
    "tools.allow": (CLAUDE, Change("r", tools=ToolsTable(allow=["Bash", "Read"])), "Bash,Read"),
    "tools.deny": (CLAUDE, Change("r", tools=ToolsTable(deny=["WebSearch"])), "WebSearch"),
    "tools.servers": (CLAUDE, Change("r", tools=ToolsTable(servers=["one"])), "mcpServers"),
    "reasoning": (CLAUDE, Change("r", reasoning="high"), "high"),
    "lessons": (CLAUDE, Change("r", lessons="masked"), "LessonsAgent"),
    "workflow": (GUARDED, Change("r", workflow="s1_tdd"), ""),
}


def test_every_field_is_tried() -> None:
    fields = {name.partition(".")[0] for name in CHANGES}
    assert fields == set(Change.__dataclass_fields__) - {"reason"}
    assert {name.partition(".")[2] for name in CHANGES if "." in name} == set(ToolsTable.__dataclass_fields__)


@pytest.mark.parametrize("name", CHANGES)
def test_every_field_changes_what_runs(starter: Environment, name: str) -> None:
    table, change, shows = CHANGES[name]
    parent = resolved(starter, table, "profile")
    made = changed(starter, parent, change, "variants[0]")
    assert made.profile.id != parent.profile.id
    before, after = config_of(starter, parent), config_of(starter, made)
    assert before != after
    assert shows in after
    assert len(said(parent.profile, made.profile)) >= 1


def test_a_lesson_policy_changes_by_each_of_its_keys_and_never_recalls(starter: Environment) -> None:
    parent = resolved(starter, {**CLAUDE, "lessons": "masked"}, "profile")
    tables = [LessonsTable(k=2), LessonsTable(budget=90), LessonsTable(withhold=0.5)]
    changes = [Change("r", lessons=one) for one in tables] + [Change("r", lessons="off")]
    made = [changed(starter, parent, one, "variants[0]") for one in changes]
    assert len({one.profile.id for one in made} | {parent.profile.id}) == 5
    assert [one.profile.lessons for one in made[:3]] == tables  # the snapshot of a batch is made by these
    assert "LessonsAgent" in config_of(starter, made[0])
    assert "LessonsAgent" not in config_of(starter, made[-1])
    with pytest.raises(UserError, match="would prove nothing"):
        changed(starter, parent, Change("r", lessons=LessonsTable("recall")), "variants[0]")


def test_arms_are_told_apart_and_one_that_sees_the_verdict_is_refused(starter: Environment) -> None:
    parent = resolved(starter, GUARDED, "profile")
    arms = ("singleshot", "s1_decomposed", "s1_tdd_review_backtrack")
    made = [changed(starter, parent, Change("r", workflow=arm), "variants[0]") for arm in arms]
    assert len({one.profile.id for one in made} | {parent.profile.id}) == 4
    flow = 'name = "x"\noracle = true\n[steps.patch]\ngenerator = "patch"\nprompt = "Make it."\n'
    (starter.root / "flow.toml").write_text(flow)
    with pytest.raises(UserError, match="sees the hidden verdict"):
        changed(starter, parent, Change("r", workflow="flow.toml"), "variants[0]")


def test_a_change_of_nothing_is_refused(starter: Environment) -> None:
    parent = resolved(starter, CLAUDE, "profile")
    for change in (Change("r"), Change("r", options={"max_turns": 9}), Change("r", sections={"Style": "Short."})):
        with pytest.raises(UserError, match="changes nothing"):
            changed(starter, parent, change, "variants[0]")


def test_what_cannot_be_made_is_said_at_its_place(starter: Environment) -> None:
    parent = resolved(starter, {"agent": "simulated"}, "profile")
    with pytest.raises(UserError, match="tools of agent simulated cannot be set") as caught:
        changed(starter, parent, Change("r", tools=ToolsTable(deny=["Bash"])), "variants[1]")
    assert caught.value.where == "variants[1].tools.deny"
    with pytest.raises(InvalidFile, match=r"variants\[1\]\.options\.max_turn"):
        changed(starter, parent, Change("r", options={"max_turn": 3}), "variants[1]")
    with pytest.raises(UserError, match="sets no option"):
        changed(starter, parent, Change("r", without_options=["seed"]), "variants[1]")
    with pytest.raises(UserError, match="the limit is 8000"):
        changed(starter, parent, Change("r", sections={"x": "y" * 9000}), "variants[1]")


def test_a_prompt_is_kept_by_its_content(starter: Environment) -> None:
    made = resolved(starter, CLAUDE, "profile")
    (starter.root / "p.md").write_text("Other.\n")
    assert resolved(starter, made.table, "profile").profile.id == made.profile.id
    assert (starter.root / made.table["prompt"]).read_text() == PROMPT


def test_sections_change_by_parts() -> None:
    assert sections_of(PROMPT) == {"": "Work carefully.", "Style": "Short."}
    assert text_of(sections_of(PROMPT)) == PROMPT
    longer = edited(PROMPT, {"Tests": "Run them.", "Style": ""})
    assert sections_of(longer) == {"": "Work carefully.", "Tests": "Run them."}
    assert edited("", {"A": "b"}) == "## A\n\nb\n"
    assert sections_of("## A\nx\n## A\ny") == {"A": "x\n\ny"}
    assert edited("## A\n\nb\n", {"": "First."}) == "First.\n\n## A\n\nb\n"

"""A profile's workflow: checked strictly, in its id with every prompt, written back, handed to the agent."""

import tomllib

import pytest

from support.experiments import BASE, ORACLE, good, problems
from terminalbench.experiments.profile_changes import differences
from terminalbench.experiments.write import experiment_toml
from terminalbench.harbor.jobs import _agent
from terminalbench.runner.environment import child_environment

FLOW = """
name = "mine"
[steps.patch]
generator = "patch"
prompt_file = "prompts/patch.md"
"""
AGENT = (
    "from harbor.agents.base import BaseAgent\n"
    'class Guided(BaseAgent):\n    AGENT_INFO = {"workflow": True, "mcp": False}\n    def __init__(self, workflow, pace=1): ...\n'
)
PROFILE = '[profiles.p]\nagent = "own:Guided"\nmodel = "m"\nworkflow = "flows/flow.toml"\n'


@pytest.fixture(autouse=True)
def _flow(project) -> None:
    project.write("own.py", AGENT)
    project.write("flows/flow.toml", FLOW)
    project.write("flows/prompts/patch.md", "Make it.")


def profile(project, text: str = PROFILE):
    return good(project, BASE + text).profiles[0]


def test_the_file_and_its_prompts_are_in_the_id_and_a_difference_shows_what_changed(project) -> None:
    first = profile(project)
    assert first.content["workflow"] == {"file": FLOW, "prompt.patch": "Make it."}
    project.write("flows/prompts/patch.md", "Make it now.")
    second = profile(project)
    project.write("flows/flow.toml", FLOW + "rmax = 1\n")
    third = profile(project)
    assert len({first.id, second.id, third.id}) == 3
    assert [d.aspect for d in differences(first.content, second.content)] == ["workflow.prompt.patch"]
    (changed,) = differences(second.content, third.content)
    assert (changed.aspect, changed.summary()) == ("workflow.file", "workflow.file: +1 -0 line")


def test_a_file_that_was_moved_is_the_same_treatment(project) -> None:
    before = profile(project)
    project.write("moved/other.toml", FLOW)
    project.write("moved/prompts/patch.md", "Make it.")
    assert profile(project, PROFILE.replace("flows/flow.toml", "moved/other.toml")).id == before.id


def test_a_written_experiment_loads_to_the_same_profile(project) -> None:
    experiment = good(project, BASE + PROFILE)
    written = experiment_toml(experiment)
    assert tomllib.loads(written)["profiles"]["p"]["workflow"] == "flows/flow.toml"
    assert good(project, written).profiles[0].id == experiment.profiles[0].id


def test_the_agent_is_handed_the_texts(project) -> None:
    experiment = good(project, BASE + PROFILE)
    kwargs = _agent(experiment, experiment.profiles[0])["kwargs"]
    assert kwargs == {"workflow": {"file": FLOW, "prompt.patch": "Make it."}}


def test_every_problem_of_the_file_is_told_at_the_key_that_names_it(project) -> None:
    file = project.write("flows/flow.toml", FLOW + 'rmx = 1\nrequires = ["tset"]\n')
    assert problems(project, BASE + PROFILE) == [
        f'profiles.p.workflow: {file}: steps.patch.rmx: unknown key (did you mean "rmax"?)'
    ]
    (project.root / "flows/prompts/patch.md").unlink()
    assert problems(project, BASE + PROFILE)[0].startswith(
        f"profiles.p.workflow: {file}: steps.patch.prompt_file: no file"
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            PROFILE.replace('workflow = "flows/flow.toml"\n', ""),
            "profiles.p.workflow: agent own:Guided needs a workflow",
        ),
        (
            PROFILE.replace("flows/flow.toml", "s1_tdt"),
            'profiles.p.workflow: no workflow is called "s1_tdt" (did you mean',
        ),
        (PROFILE.replace("flows/flow.toml", "none.toml"), "profiles.p.workflow: no file at"),
        (PROFILE.replace("flows/flow.toml", "own.py"), "profiles.p.workflow: "),
        (ORACLE + 'workflow = "s1_tdd"\n', "profiles.oracle.workflow: agent oracle runs no workflow; guarded does"),
        (
            PROFILE + "options = { workflow = {} }\n",
            "profiles.p.options.workflow: must be set by the key of the profile",
        ),
    ],
)
def test_a_workflow_is_needed_by_agents_that_run_one_and_refused_by_others(project, text: str, expected: str) -> None:
    (found,) = problems(project, BASE + text)
    assert found.startswith(expected), found


def test_a_profile_of_another_agent_does_not_inherit_it(project) -> None:
    experiment = good(project, BASE + PROFILE + '[profiles.n]\nextends = "p"\nagent = "nop"\n')
    assert experiment.profiles[1].workflow is None
    assert any("profiles.n: agent nop does not support these of what it extends" in note for note in experiment.notes)


GUARD = "class Mine:\n    name = 'mine'\n    async def check(self, artifact, context): ...\n"


def test_a_guard_of_the_project_is_found_and_its_code_is_in_the_id(project) -> None:
    project.write("my_guards_one.py", GUARD)
    project.write("flows/flow.toml", FLOW + 'guards = ["my_guards_one:Mine"]\n')
    before = profile(project)
    assert "my_guards_one.py" in str(before.content["agent_code"])
    assert child_environment(before, project.root, {})["PYTHONPATH"] == str(project.root)
    project.write("my_guards_one.py", GUARD + "# changed\n")
    assert profile(project).id != before.id


def test_an_oracle_says_so(project) -> None:
    assert "oracle" not in profile(project).content
    project.write("flows/flow.toml", "oracle = true\n" + FLOW)
    assert profile(project).content["oracle"] is True


def test_validate_says_what_is_wrong_and_exits_with_2(project, tbench) -> None:
    project.write("flows/flow.toml", FLOW.replace("patch.md", "none.md"))
    ran = tbench("validate", project.experiment(BASE + PROFILE))
    assert ran.code == 2
    assert "steps.patch.prompt_file: no file at" in ran.err


def test_agent_guarded_takes_every_shipped_workflow_by_its_name_and_each_is_another_treatment(project) -> None:
    from terminalbench.workflow.load import shipped

    table = '[profiles.{0}]\nagent = "guarded"\nmodel = "ollama:qwen3"\nworkflow = "{0}"\n'
    experiment = good(project, BASE + "".join(table.format(name) for name in shipped()))
    assert len({profile.id for profile in experiment.profiles}) == len(shipped())
    written = tomllib.loads(experiment_toml(experiment))["profiles"]
    assert {name: profile["workflow"] for name, profile in written.items()} == {name: name for name in shipped()}


def test_a_model_that_takes_no_temperature_is_refused_before_any_trial(project) -> None:
    flow = FLOW + "rmax = 1\nretry_temperature = 0.4\n"
    project.write("flows/flow.toml", flow)
    named = PROFILE.replace('"m"', '"claude-code:opus"')
    (problem,) = problems(project, BASE + named)
    told = "the workflow asks at temperatures above 0, which claude-code:opus cannot be given"
    assert problem.startswith(f"profiles.p.workflow: {told}")
    assert "set options.temperature = 0" in problem
    project.write("warm.py", AGENT.replace("pace=1", "temperature=None"))
    cold = named.replace("own:Guided", "warm:Guided")
    assert profile(project, cold + "options = { temperature = 0 }\n").workflow is not None
    project.write("flows/flow.toml", FLOW)
    assert profile(project, named).workflow is not None, "it is asked at 0 anyway"

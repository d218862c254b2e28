"""Agents as a user's package brings them, with a record or without one. No file of ours is touched, none of theirs is run."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from support.experiments import BASE, Project, good, problems
from support.results import make_plan, make_trial
from terminalbench.errors import InvalidFile, UserError
from terminalbench.experiments.agents import agent_info
from terminalbench.experiments.batch import allocate
from terminalbench.experiments.config import load
from terminalbench.experiments.plan import ProfileRecord, Provenance
from terminalbench.json_files import write_json

MINE = """
from harbor.agents.base import BaseAgent

class Mine(BaseAgent):
    AGENT_INFO = {"mcp": False, "skills": False, "options": {"mood": ["calm", "bold"]}, "logins": ["MINE_TOKEN"]}

    def __init__(self, logs_dir, *, greeting="hello", **kwargs):
        super().__init__(logs_dir, **kwargs)

class Quiet(Mine):
    AGENT_INFO = dict(model=False)

class Plain(BaseAgent):
    def __init__(self, logs_dir, model_name=None, *, greeting="hello", **kwargs):
        super().__init__(logs_dir, model_name, **kwargs)

class Child(Plain):
    def __init__(self, *args, loudness=1, **kwargs):
        super().__init__(*args, **kwargs)

class Open(Plain):
    AGENT_INFO = {"any_options": True}

"""


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    agent_info.cache_clear()
    yield
    agent_info.cache_clear()


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with an agent and its entry point, as pip leaves them on sys.path."""
    place = tmp_path / "site"
    (place / "mypkg").mkdir(parents=True)
    (place / "mypkg" / "__init__.py").write_text("from .agent import Mine\nraise RuntimeError('was imported')\n")
    (place / "mypkg" / "agent.py").write_text(MINE)
    info = place / "mypkg-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mypkg\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[terminalbench.agents]\nmine = mypkg.agent:Mine\nagain = mypkg:Mine\n")
    monkeypatch.syspath_prepend(str(place))
    return place


@pytest.mark.usefixtures("installed")
def test_an_agent_of_an_entry_point_with_its_record(project: Project) -> None:
    profile = '[profiles.p]\nagent = "{}"\nmodel = "m"\n[profiles.p.options]\n'
    for name in ("mine", "again", "mypkg.agent:Mine"):
        assert (
            good(project, BASE + profile.format(name) + 'greeting = "hi"\nmood = "calm"\n').profiles[0].agent.mcp
            is False
        )
        assert problems(project, BASE + profile.format(name) + 'greting = "hi"\nmood = "odd"\n') == [
            "profiles.p.options.mood: must be one of calm, bold"
        ]
    assert problems(project, BASE + '[profiles.p]\nagent = "mine"\nskills = ["s"]\n') == [
        "profiles.p.skills: agent mine takes no skills"
    ]
    info = agent_info("mine")
    assert info is not None
    assert info.logins == ["MINE_TOKEN"]


@pytest.mark.parametrize(
    ("name", "mcp", "model"), [("Plain", None, True), ("Quiet", None, False), ("Again", False, True)]
)
def test_the_record_of_a_class_is_its_own_or_that_of_a_base(
    project: Project, name: str, mcp: bool | None, model: bool
) -> None:
    project.write("lab/agents.py", MINE)
    project.write(
        "lab/more.py", "from .agents import *\nfrom .agents import Mine, Plain, Quiet\nclass Again(Mine):\n    pass\n"
    )
    info = agent_info(f"lab.more:{name}" if name == "Again" else f"lab.agents:{name}", project.root)
    assert info is not None
    assert (info.mcp, info.model) == (mcp, model)
    assert info.options == ({"mood": ["calm", "bold"]} if name == "Again" else {})


def test_validate_says_what_it_does_not_look_at(project: Project, tbench) -> None:
    project.write("own.py", MINE)
    project.task("d", "a")
    file = project.experiment(BASE + '[profiles.p]\nagent = "own:Plain"\noptions = { loud = 1 }\n')
    told = "profiles.p: the class of agent own:Plain was not checked; a run checks it before the first trial"
    assert told in tbench("validate", file).out
    assert told not in tbench("plan", file).out


def test_a_wrong_record_is_an_error_that_names_it(project: Project) -> None:
    project.write(
        "own.py",
        'class A:\n    AGENT_INFO = {"mpc": True, "skills": 3, "conditions": {"A": "b"}}\nclass B:\n    AGENT_INFO = made()\n',
    )
    with pytest.raises(InvalidFile) as caught:
        load(project.experiment(BASE + '[profiles.p]\nagent = "own:A"\n'))
    assert caught.value.lines() == [
        'own:A: AGENT_INFO.mpc: unknown key (did you mean "mcp"?)',
        "own:A: AGENT_INFO.skills: must be true or false, not 3",
        "own:A: AGENT_INFO.conditions.A: must be a table: env or options",
    ]
    with pytest.raises(UserError, match="a table of plain values"):
        load(project.experiment(BASE + '[profiles.p]\nagent = "own:B"\n'))


def test_a_class_that_its_module_does_not_hold_is_said_before_a_run(project: Project) -> None:
    project.write("own.py", "from other import Given\nclass Mine:\n    pass\nMade = type('Made', (), {})\n")
    project.write("broken.py", "class Mine:\n")
    project.write("open.py", "from elsewhere import *\n")
    project.write("empty.py", "")
    asked = '[profiles.p]\nagent = "{}"\n'
    assert problems(project, BASE + asked.format("own:Mind")) == [
        f'profiles.p.agent: {project.root / "own.py"} has no class "Mind" (did you mean "Mine"?)'
    ]
    assert problems(project, BASE + '[defaults]\nagent = "empty:Mine"\n[profiles.p]\n') == [
        f'defaults.agent: {project.root / "empty.py"} has no class "Mine" (empty.py defines no class)'
    ]
    [broken] = problems(project, BASE + asked.format("broken:Mine"))
    assert broken.startswith(f"profiles.p.agent: {project.root / 'broken.py'} cannot be read as Python: ")
    for name in ("own:Mine", "own:Given", "own:Made", "open:Any"):
        assert good(project, BASE + asked.format(name)), name


def test_values_that_harbor_would_refuse_for_the_types_of_options(project: Project) -> None:
    asked = BASE.replace("{", "{{").replace("}", "}}") + '[profiles.p]\nagent = "simulated"\noptions = {{ {} }}\n'
    for option, told in (
        ('seed = "many"', "seed: must be a whole number, not a string"),
        ("seed = 2.5", "seed: must be a whole number, not 2.5"),
        ("steps_mean = [1]", "steps_mean: must be a number, not a list"),
    ):
        assert problems(project, asked.format(option)) == [f"profiles.p.options.{told}"]
    assert good(project, asked.format('seed = "3", steps_mean = 1'))


def refused(project: Project, agent: str) -> list[str]:
    """What `validate` says of a profile with this agent."""
    try:
        load(project.experiment(f'{BASE}[profiles.p]\nagent = "{agent}"\n'), thorough=True)
    except InvalidFile as error:
        return [f"{problem.key}: {problem.what}" for problem in error.problems]
    return []


def test_an_agent_that_needs_a_model_names_the_key(project: Project) -> None:
    assert refused(project, "terminus-2") == ["profiles.p.model: agent terminus-2 needs a model"]
    assert refused(project, 'terminus-2"\nmodel = "x/y') == []


@pytest.mark.parametrize("record", ['{"mpc": True}', "made()"])
def test_a_record_that_is_wrong_by_now_stops_no_command_that_reads(project: Project, tbench, record: str) -> None:
    batch = allocate(project.root / "results", "s")
    project.write("own.py", f"class A:\n    AGENT_INFO = {record}\n")
    profile = ProfileRecord("p", "id-p", {"agent": "own:A"})
    plan = make_plan(batch, ("p",), "a", provenance=Provenance(root=str(project.root)))
    write_json(batch.plan_json, msgspec.structs.replace(plan, profiles=(profile,)))
    make_trial(batch, "a__1", cost=0.5)
    for command in (["list"], ["show", "a__1"], ["compare", "s/0"], ["errors", "s/0"], ["report", "s/0"], ["index"]):
        ran = tbench(*command)
        assert ran.code == 0, (command, ran.err)


def test_the_class_is_read_without_harbor(project: Project) -> None:
    project.write("own.py", MINE)
    file = project.experiment(BASE + '[profiles.p]\nagent = "own:Child"\noptions = { loudness = 2 }\n')
    code = "import sys; from pathlib import Path; from terminalbench.experiments.config import load; load(Path(sys.argv[1]));"
    code += "print([m for m in sys.modules if m.split('.')[0] in ('harbor', 'own', 'pydantic')])"
    ran = subprocess.run(
        [sys.executable, "-c", code, str(file)], capture_output=True, text=True, check=True, timeout=600
    )
    assert ran.stdout.strip() == "[]"

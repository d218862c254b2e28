"""The code of an agent is part of its profile's id: what counts, what does not, and that none of it is imported."""

import sys
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path

import pytest

from support.experiments import BASE, ORACLE, Project, good, problems
from terminalbench.experiments.agent_code import MOST_FILES, agent_code, digests
from terminalbench.experiments.agents import agent_info
from terminalbench.experiments.profile_changes import changes_since, differences
from terminalbench.experiments.profiles import Profile

AGENT = "raise RuntimeError('was imported')\nclass Mine:\n    def __init__(self, logs_dir):\n        pass\n"


def profile(project: Project, agent: str = "lab.agents:Mine", more: str = "") -> Profile:
    agent_info.cache_clear()
    return good(project, BASE + f'[profiles.p]\nagent = "{agent}"\nmodel = "m"\n{more}').profiles[0]


@pytest.fixture
def package(project: Project) -> Project:
    project.write("lab/__init__.py", "")
    project.write("lab/agents.py", AGENT)
    project.write("lab/prompts/system.md", "be brief")
    return project


def test_every_file_of_a_package_counts(package: Project) -> None:
    before = profile(package)
    ids = {before.id}
    for path in ("lab/agents.py", "lab/deep/tools.py", "lab/prompts/system.md", "lab/__init__.py"):
        package.write(path, "# edited\n" + AGENT)
        ids.add(profile(package).id)
    assert len(ids) == 5
    changed = [d.aspect for d in differences(before.content, profile(package).content)]
    assert changed == [
        f"agent_code.lab/{n}" for n in ("__init__.py", "agents.py", "prompts/system.md", "deep/tools.py")
    ]


def test_the_code_of_an_environment_counts_for_every_profile(package: Project) -> None:
    def both(environment: str) -> tuple[Profile, ...]:
        run = f'[run]\ncontainer_env = "{environment}"\n'
        return good(package, BASE + run + ORACLE + '[profiles.nop]\nagent = "nop"\n').profiles

    package.write("lab/rooms.py", "raise RuntimeError('was imported')\nclass Room:\n    pass\n")
    before = both("lab.rooms:Room")
    assert all("lab/rooms.py" in one.content["environment_code"] for one in before)
    package.write("lab/rooms.py", "class Room:\n    edited = True\n")
    after = both("lab.rooms:Room")
    for one, other in zip(before, after, strict=True):
        assert [d.aspect for d in differences(one.content, other.content)] == ["environment_code.lab/rooms.py"]
        assert one.id != other.id
    assert all("environment_code" not in one.content for one in (*both("local"), *both("docker")))
    old = {name: value for name, value in before[0].content.items() if name != "environment_code"}
    assert changes_since(old, 2, after[0].content) == [], "an earlier version did not tell"


def test_what_is_no_code_does_not_count(package: Project) -> None:
    before = profile(package).id
    for path in ("__pycache__/agents.pyc", ".git/HEAD", ".env", "results/index.db", "results/s/0/plan.json"):
        package.write(f"lab/{path}", "x")
    package.write("lab/results/s/0/experiment.toml", "x")
    package.write("lab/tasks/a/task.toml", "x")
    package.write("lab/tasks/a/instruction.md", "x")
    package.write("lab/exp.toml", 'schema_version = 2\n[profiles.p]\nagent = "x"\n')
    package.write("lab/exp.quarantine.toml", "x")
    package.write("other.py", "x")
    assert profile(package).id == before
    package.write("lab/own.toml", "x")
    assert profile(package).id != before


def test_a_folder_without_init_counts_with_its_python_files(project: Project) -> None:
    project.write("lab/agents.py", AGENT)
    before = profile(project).id
    project.write("lab/notes.md", "x")
    assert profile(project).id == before
    project.write("lab/tools.py", "x")
    assert profile(project).id != before


def test_a_module_counts_with_what_it_imports_from_beside_it(project: Project) -> None:
    project.write("mine.py", "import json, helper\n" + AGENT)
    project.write("helper.py", "from shared.words import hello\n")
    project.write("shared/words.py", "hello = 1\n")
    project.write("unused.py", "x = 1\n")
    project.write("json/data.txt", "a folder that is no module")
    assert set(profile(project, "mine:Mine").code) == {"mine.py", "helper.py", "shared/words.py"}
    before = profile(project, "mine:Mine").id
    project.write("unused.py", "x = 2\n")
    assert profile(project, "mine:Mine").id == before
    project.write("shared/words.py", "hello = 2\n")
    assert profile(project, "mine:Mine").id != before


def test_a_package_counts_with_the_packages_that_it_imports(package: Project) -> None:
    package.write("lab/agents.py", "from tools import hammer\n" + AGENT)
    package.write("tools/__init__.py", "")
    package.write("tools/hammer.py", "x")
    assert "tools/hammer.py" in profile(package).code


def test_a_package_of_a_source_folder_on_the_search_path_counts_where_it_is_imported(
    package: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an editable install of the project leaves it."""
    package.write("lab/agents.py", "from core.engine import run\n" + AGENT)
    package.write("src/core/engine.py", AGENT)
    assert "core/engine.py" not in profile(package).code
    monkeypatch.syspath_prepend(str(package.root / "src"))
    assert "core/engine.py" in profile(package).code
    assert profile(package, "core.engine:Mine").code.keys() == {"core/engine.py"}


def test_a_linked_folder_counts_with_what_it_holds(package: Project, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "tools.py").write_text("x = 1")
    (package.root / "lab" / "linked").symlink_to(tmp_path / "outside")
    (package.root / "lab" / "round").symlink_to(package.root / "lab")
    before = profile(package)
    assert "lab/linked/tools.py" in before.code
    assert not any("round/" in name for name in before.code)
    (tmp_path / "outside" / "tools.py").write_text("x = 2")
    assert profile(package).id != before.id


def test_code_that_cannot_be_read_is_an_error_that_names_it(package: Project) -> None:
    (package.root / "lab" / "gone.py").symlink_to(package.root / "nowhere.py")
    agent_info.cache_clear()
    assert problems(package, BASE + '[profiles.p]\nagent = "lab.agents:Mine"\n') == [
        f"profiles.p.agent: its code cannot be read: {package.root}/lab/gone.py: No such file or directory"
    ]


def test_a_package_that_is_more_than_code_is_refused(package: Project) -> None:
    with (package.root / "lab" / "weights.bin").open("wb") as data:
        data.truncate(2**30 + 1)
    agent_info.cache_clear()
    assert problems(package, BASE + '[profiles.p]\nagent = "lab.agents:Mine"\n') == [
        f"profiles.p.agent: its code cannot be read: {package.root}/lab: holds more than 20,000 files or 1 GB; give the "
        "agent a package without its data"
    ]


def test_code_that_is_not_found_is_said(project: Project) -> None:
    notes = good(project, BASE + '[profiles.p]\nagent = "no_such_package.mod:Mine"\n').notes
    assert (
        "profiles.p: the code of agent no_such_package.mod:Mine was not found, so the profile's id does not include it"
        in notes
    )


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A distribution with an agent, its entry point and a second package, as pip leaves them on sys.path."""
    place = tmp_path / "site"
    for path, text in (
        ("mypkg/__init__.py", ""), ("mypkg/agent.py", "import beside\n" + AGENT), ("second/words.py", "x"),
        ("beside.py", "of another distribution"), ("my_agent-1.0.dist-info/METADATA", "Name: my-agent\nVersion: 1.0\n"),
        ("my_agent-1.0.dist-info/entry_points.txt", "[terminalbench.agents]\nmine = mypkg.agent:Mine\n"),
        ("my_agent-1.0.dist-info/RECORD",
         "mypkg/__init__.py,,\nmypkg/agent.py,,\nsecond/words.py,,\nmypkg/__pycache__/x.pyc,,\nmypkg/gone.py,,\n"
         "../../bin/mine,,\nmy_agent-1.0.dist-info/METADATA,,\n"),
    ):  # fmt: skip
        file = place / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    monkeypatch.syspath_prepend(str(place))
    return place


def test_an_installed_distribution_counts_with_version_and_files(project: Project, installed: Path) -> None:
    code = profile(project, "mine").code
    assert profile(project, "mypkg.agent:Mine").code == code
    assert list(code) == ["distribution my-agent", "mypkg/__init__.py", "mypkg/agent.py", "second/words.py"]
    assert code["distribution my-agent"] == "1.0"
    ids = {profile(project, "mine").id}
    (installed / "second" / "words.py").write_text("y")
    ids.add(profile(project, "mine").id)
    metadata = installed / "my_agent-1.0.dist-info" / "METADATA"
    metadata.write_text(metadata.read_text().replace("1.0", "1.1"))
    ids.add(profile(project, "mine").id)
    assert len(ids) == 3


def test_a_module_that_an_import_hook_finds_counts(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some editable installs have no folder on the search path, but a hook that knows where their package is."""
    folder = tmp_path / "checkout" / "hooked"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    (folder / "agent.py").write_text(AGENT)

    class Hook:
        @staticmethod
        def find_spec(name: str, *_: object) -> ModuleSpec | None:
            places = [str(folder)]
            return (
                spec_from_file_location(name, folder / "__init__.py", submodule_search_locations=places)
                if name == "hooked"
                else None
            )

    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Hook])
    assert set(profile(project, "hooked.agent:Mine").code) == {"hooked/__init__.py", "hooked/agent.py"}


def test_a_released_agent_keeps_its_id(project: Project) -> None:
    for path in ("terminalbench.harbor.agents.simulated:SimulatedAgent", "harbor.agents.nop:NopAgent"):
        assert agent_code(path, project.root) == {}
    assert "agent_code" not in profile(project, "simulated").content


def test_files_that_options_name_count(project: Project) -> None:
    project.write("mine.py", AGENT.replace("logs_dir", "logs_dir, template_path=None, mood=None, memory_dir=None"))
    project.write("prompts/t.j2", "a")
    project.write("memory/one.md", "a")
    options = 'options = { template_path = "prompts/t.j2", mood = "memory", memory_dir = "memory" }\n'
    found = profile(project, "mine:Mine", options)
    assert list(found.option_files) == ["memory_dir: memory/one.md", "template_path: t.j2"]
    project.write("prompts/t.j2", "b")
    assert profile(project, "mine:Mine", options).id != found.id
    outside = profile(project, "mine:Mine", 'options = { template_path = "/etc/hostname", memory_dir = "." }\n')
    assert outside.option_files == {}, "the id knows no machine"


MODEL = """
class Options(BaseModel):
    rules_path: str = Field(default="prompts/t.j2")
    notes_path: str = "memory/one.md"
    other_path: str | None = None


class Mine(BaseAgent):
    options_model = Options
"""


def test_files_that_options_name_by_default_count(project: Project) -> None:
    project.write("mine.py", AGENT.replace("logs_dir", 'logs_dir, mood="x", *, template_path="prompts/t.j2"'))
    project.write("prompts/t.j2", "a")
    project.write("memory/one.md", "a")
    found = profile(project, "mine:Mine")
    assert list(found.option_files) == ["template_path: t.j2"]
    project.write("prompts/t.j2", "b")
    assert profile(project, "mine:Mine").id != found.id
    other = profile(project, "mine:Mine", 'options = { template_path = "memory/one.md" }\n')
    assert list(other.option_files) == ["template_path: one.md"], "what is given takes its place"
    project.write("told.py", AGENT.partition("class Mine")[0] + MODEL)
    assert list(profile(project, "told:Mine").option_files) == ["notes_path: one.md", "rules_path: t.j2"]


def test_many_files_are_kept_as_folders(tmp_path: Path) -> None:
    files = {f"a/{folder}/{n}.py": tmp_path / f"{folder}{n}" for folder in ("x", "y") for n in range(MOST_FILES)}
    for path in files.values():
        path.write_text(path.name)
    before = digests(files, MOST_FILES)
    assert list(before) == ["a/x/", "a/y/"]
    files["a/y/3.py"].write_text("edited")
    after = digests(files, MOST_FILES)
    assert [name for name in after if after[name] != before[name]] == ["a/y/"]
    assert list(digests({f"{n}.py": tmp_path / f"x{n}" for n in range(9)}, 5)) == ["./"]


def test_what_is_imported_by_a_literal_name_counts(project: Project) -> None:
    calls = 'importlib.import_module("dyn1")\n__import__("dyn2.deep")\nimport_module(name="dyn3")\nimport_module(any)\n'
    project.write("mine.py", AGENT + calls + 'run("dyn4")\n')
    for name in ("dyn1.py", "dyn2/deep.py", "dyn3.py", "dyn4.py"):
        project.write(name, "X = 1\n")
    first = profile(project, "mine:Mine")
    assert set(first.content["agent_code"]) == {"mine.py", "dyn1.py", "dyn2/deep.py", "dyn3.py"}


@pytest.mark.parametrize("name", ["sitecustomize.py", "usercustomize/__init__.py"])
def test_what_python_loads_by_itself_counts(package: Project, name: str) -> None:
    before = profile(package)
    package.write(name, "import patched\n")
    package.write("patched.py", "X = 1\n")
    after = profile(package)
    changed = {difference.aspect for difference in differences(before.content, after.content)}
    assert changed == {f"agent_code.{name}", "agent_code.patched.py"}


def test_a_folder_called_venv_counts_unless_python_made_it(package: Project) -> None:
    before = profile(package).id
    package.write("lab/venv/tools.py", "X = 1\n")
    counted = profile(package).id
    assert counted != before
    package.write("lab/venv/pyvenv.cfg", "home = /usr/bin\n")
    assert profile(package).id == before

import json
import re

import pytest

from support.experiments import BASE, good, problems
from terminalbench.errors import InvalidFile
from terminalbench.experiments.claude_settings import Locations, render_hooks
from terminalbench.experiments.config import load
from terminalbench.experiments.mcp import _location
from terminalbench.experiments.project import project_root

ONE = '[profiles.p]\nmcp_servers = ["one"]\n'


def test_only_the_named_servers_of_a_file_are_taken(project) -> None:
    project.write("one/.mcp.json", json.dumps({"mcpServers": {"one": {"command": "a"}, "other": {"command": "b"}}}))
    assert good(project, BASE + ONE).profiles[0].mcp.config() == {"mcpServers": {"one": {"command": "a"}}}


def test_an_alias_maps_a_server_to_its_folder(project) -> None:
    project.server("codegraph", folder="locagent")
    project.write("locagent/USAGE.md", "# Use it\n")
    text = '[mcp.aliases]\ncodegraph = "locagent"\n[profiles.p]\nmcp_servers = ["codegraph"]\n'
    profile = good(project, BASE + text).profiles[0]
    assert list(profile.mcp.servers) == ["codegraph"]
    assert profile.system_prompt == "# Use it"


def test_several_servers_merge_and_their_usage_follows_the_prompt(project) -> None:
    project.server("one")
    project.server("two")
    project.write("one/USAGE.md", "one")
    project.write("two/USAGE.md", "two")
    project.write("p.md", "mine")
    profile = good(project, BASE + '[profiles.p]\nprompt = "p.md"\nmcp_servers = ["two", "one"]\n').profiles[0]
    assert list(profile.mcp.servers) == ["two", "one"]
    assert profile.system_prompt == "mine\n\ntwo\n\none"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (None, "no MCP configuration at"),
        ("{", "is not readable as JSON"),
        ("[]", "must hold"),
        ('{"mcpServers": {"one": 3}}', "must hold"),
        ('{"mcpServers": {"oen": {"command": "x"}}}', 'defines no server "one" (did you mean "oen"?)'),
        ('{"mcpServers": {"one": {}}}', 'needs a "command" or a "url"'),
        ('{"mcpServers": {"one": {"command": "x", "agrs": []}}}', 'unknown key "agrs" (did you mean "args"?)'),
        ('{"mcpServers": {"one": {"command": "x", "args": "y"}}}', '"args" must be a list of strings'),
        ('{"mcpServers": {"one": {"command": "x", "env": {"A": 1}}}}', '"env" must be a table of strings'),
        ('{"mcpServers": {"one": {"command": "x", "env": {"API_KEY": "abcDEF12345678"}}}}', "looks like a secret"),
    ],
)
def test_wrong_configurations(project, content: str | None, expected: str) -> None:
    if content is not None:
        project.write("one/.mcp.json", content)
    found = problems(project, BASE + ONE)
    assert len(found) == 1
    assert found[0].startswith("profiles.p.mcp_servers: ")
    assert expected in found[0]
    assert "abcDEF" not in found[0]


def test_a_server_defined_twice_is_an_error(project) -> None:
    project.server("one")
    project.write("two/.mcp.json", json.dumps({"mcpServers": {"two": {"command": "a"}, "one": {"command": "b"}}}))
    found = problems(project, BASE + '[profiles.p]\nmcp_servers = ["one", "two"]\n')
    assert len(found) == 1
    assert 'server "one" is defined twice' in found[0]


def test_a_server_named_twice_is_an_error(project) -> None:
    project.server("one")
    assert "named twice: one" in problems(project, BASE + '[profiles.p]\nmcp_servers = ["one", "one"]\n')[0]


def test_a_hooks_file_that_nobody_names_is_noted(project) -> None:
    project.server("one")
    project.write("one/hooks.json", '{"hooks": {}}')
    notes = good(project, BASE + ONE).notes
    assert any("hooks.json" in note and "is not used" in note for note in notes)


def hook_file(*commands: str) -> str:
    entries = [{"hooks": [{"type": "command", "command": command} for command in commands]}]
    return json.dumps({"hooks": {"PostToolUse": entries}})


TWO = '[profiles.p]\nmcp_servers = ["one", "two"]\nhooks = "one/hooks.json"\n'


def test_a_hooks_module_is_found_in_the_one_folder_that_has_it(project) -> None:
    for name in ("one", "two"):
        project.server(name)
        project.write(f"{name}/server.py", "")
    project.write("one/pkg/mod.py", "")
    project.write("one/hooks.json", hook_file("uv run python -m pkg.mod", "echo done"))
    good(project, BASE + TWO)
    places = {name: _location(project.root / name) for name in ("one", "two")}
    hooks = {"command": "uv run python -m pkg.mod && true"}
    folder = project.root / "one"
    expected = {"command": f"env PYTHONPATH={folder} python3 -m pkg.mod && true"}
    assert render_hooks(hooks, Locations(by_server=places)) == expected


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("uv run python server.py", "could belong to"),
        ("{mcp_dir}/run", "could belong to"),
        ("uv run python -m one.hook", "runs one/hook.py, which no server of this profile brings"),
        ("python3 lone.py", "runs lone.py, which no server"),
        ("{mcp_bin}/tool", "uses {mcp_bin}, which no server"),
    ],
)
def test_hooks_that_cannot_work_are_problems(project, command: str, said: str) -> None:
    for name in ("one", "two"):
        project.server(name)
        project.write(f"{name}/server.py", "")
    project.write("one/hook.py", "")
    project.write("other/lone.py", "")
    project.write("other/hooks.json", hook_file(command, "python3 /app/mine.py", "uv run python checks.py"))
    (found,) = problems(project, BASE + TWO.replace("one/hooks", "other/hooks"))
    assert found.startswith("profiles.p.hooks: ")
    assert said in found


def test_without_servers_a_hook_may_not_need_their_code(project) -> None:
    project.server("one")
    project.write("one/hook.py", "")
    project.write("one/hooks.json", hook_file("uv run python hook.py"))
    bare = '[profiles.p]\nno_mcp = true\nhooks = "one/hooks.json"\n'
    (found,) = problems(project, BASE + bare)
    assert "runs hook.py, which no server of this profile brings" in found
    project.write("one/hooks.json", hook_file("date >> /tmp/times"))
    assert good(project, BASE + bare).profiles[0].hooks is not None
    project.write("one/hooks.json", hook_file("uv run python hook.py"))
    source = 'mcp_git_source = "https://example.org/one"\nmcp_git_ref = "v1"\n'
    assert good(project, BASE + bare + source).profiles[0].hooks is not None


def test_no_mcp_empties_what_is_inherited_and_contradicts_what_is_its_own(project) -> None:
    project.server("one")
    project.write("one/hooks.json", hook_file("date"))
    defaults = '[defaults]\nmcp_servers = ["one"]\nhooks = "one/hooks.json"\n'
    profile = good(project, BASE + defaults + "[profiles.p]\nno_mcp = true\n").profiles[0]
    assert (profile.mcp.servers, profile.hooks) == ({}, None)
    file = project.experiment(BASE + '[profiles.p]\nno_mcp = true\nmcp_servers = ["one"]\n')
    with pytest.raises(InvalidFile) as caught:
        load(file)
    lines = [re.sub(r"^.*exp\.toml", "", line) for line in caught.value.lines()]
    assert [line.partition(": contradicts")[0] for line in lines] == [
        ":7: profiles.p.no_mcp",
        ":8: profiles.p.mcp_servers",
    ]


def test_without_a_mark_the_root_is_above_experiments(tmp_path) -> None:
    for name in ("one/experiments", "two"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "e.toml").touch()
    assert project_root(tmp_path / "one/experiments/e.toml", None) == tmp_path / "one"
    assert project_root(tmp_path / "two/e.toml", None) == tmp_path / "two"
    (tmp_path / "one/experiments/.tbench").touch()
    assert project_root(tmp_path / "one/experiments/e.toml", None) == tmp_path / "one/experiments"

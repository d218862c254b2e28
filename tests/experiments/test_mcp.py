import json

import pytest

from support.experiments import BASE, good, problems

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

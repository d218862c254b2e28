"""MCP servers and skills of a profile: what is inherited, what is refused, what goes to the agent."""

import shutil
from pathlib import Path

import pytest

from experiments.test_profiles import FULL, one, profiles
from support.experiments import BASE, good, problems
from terminalbench.experiments.mcp import held_in
from terminalbench.experiments.profiles import NOT_SOURCE, source_files


def test_a_custom_agent_needs_no_servers(project) -> None:
    profile = one(project, 'agent = "pkg.mod:Agent"\noptions = { anything = 1 }')
    assert profile.agent.import_path == "pkg.mod:Agent"
    assert profile.options == {"anything": 1}


# no_mcp, hooks


def test_no_mcp_empties_servers_and_inherited_hooks_only(project) -> None:
    project.server("s")
    project.write("h.json", '{"hooks": {"Stop": []}}')
    found = profiles(
        project,
        '[defaults]\nmcp_servers = ["s"]\nhooks = "h.json"\n'
        "[profiles.with]\n[profiles.without]\nno_mcp = true\n"
        '[profiles.own-hooks]\nno_mcp = true\nhooks = "h.json"\n',
    )
    assert list(found["with"].mcp.servers) == ["s"]
    assert found["with"].hooks is not None
    assert found["without"].mcp.servers == {}
    assert found["without"].hooks is None
    assert found["own-hooks"].mcp.servers == {}
    assert found["own-hooks"].hooks is not None


def test_a_profiles_own_servers_win_over_an_inherited_no_mcp(project) -> None:
    project.server("s")
    found = profiles(project, '[profiles.a]\nno_mcp = true\n[profiles.b]\nextends = "a"\nmcp_servers = ["s"]\n')
    assert list(found["b"].mcp.servers) == ["s"]
    assert found["a"].id != found["b"].id


def test_no_mcp_empties_what_a_profile_extends_too(project) -> None:
    project.server("s")
    project.write("h.json", '{"hooks": {"Stop": []}}')
    found = profiles(
        project,
        FULL + '[profiles.bare]\nextends = "full"\nno_mcp = true\n'
        '[profiles.own-hooks]\nextends = "full"\nno_mcp = true\nhooks = "h.json"\n'
        '[profiles.again]\nextends = "bare"\nmcp_servers = ["s"]\n[profiles.same]\nextends = "own-hooks"\n',
    )
    assert (found["bare"].mcp.servers, found["bare"].hooks, found["bare"].model) == ({}, None, "m")
    assert found["own-hooks"].mcp.servers == {}
    assert found["own-hooks"].hooks is not None
    assert (list(found["again"].mcp.servers), found["again"].hooks) == (["s"], None)
    assert found["same"].id == found["own-hooks"].id


def test_servers_to_install_are_refused_for_an_agent_that_cannot_install_them(project) -> None:
    project.server("s")
    for agent in ("codex", "lab:Agent"):
        text = f'[profiles.p]\nagent = "{agent}"\nmcp_servers = ["s"]\n'
        assert good(project, BASE + text).profiles[0].mcp.servers
        found = problems(project, BASE + text + 'mcp_git_source = "https://example.com/r"\nmcp_git_ref = "v1"\n')
        assert found == [f"profiles.p.mcp_git_source: agent {agent} cannot install servers; claude-code can"]
    text = '[defaults]\nmcp_git_source = "https://example.com/r"\nmcp_git_ref = "v1"\n'
    found = problems(project, BASE + text + '[profiles.p]\nagent = "codex"\nmcp_servers = ["s"]\n')
    assert len(found) == 1
    assert 'clear it for this profile with mcp_git_source = ""' in found[0]
    project.write("s/README.md", "how it is installed")
    assert good(project, BASE + '[profiles.p]\nagent = "codex"\nmcp_servers = ["s"]\n').profiles, (
        "it is not started from there"
    )
    project.write("s/s.py", "print()")
    found = problems(project, BASE + '[profiles.p]\nagent = "codex"\nmcp_servers = ["s"]\n')
    assert len(found) == 1
    assert "contains code, which agent codex cannot receive; claude-code can" in found[0]
    assert one(project, 'mcp_servers = ["s"]').local_servers()


def test_a_servers_folder_holds_no_answers(project) -> None:
    """It goes into the sandbox as a whole."""
    project.server("s", folder=".")
    aliases = '[mcp.aliases]\ns = "."\n'
    found = problems(project, BASE + aliases + '[profiles.p]\nmcp_servers = ["s"]\n')
    assert len(found) == 1
    assert found[0].startswith('profiles.p.mcp_servers: the folder of server "s", ')
    assert found[0].endswith("holds the results, which the agent would see (give the server a separate folder)")
    outside = '[run]\nresults_root = "../results"\n'
    assert good(project, BASE + outside + aliases + '[profiles.p]\nmcp_servers = ["s"]\n').profiles[0].local_servers()
    project.task("mine", "a")
    items = BASE.replace('{ id = "a" }', '{ id = "a", dataset = "mine" }')
    found = problems(project, items + outside + aliases + '[profiles.p]\nmcp_servers = ["s"]\n')
    assert 'holds the tasks of "mine", which the agent would see' in found[0]
    project.write("old/index.db", "")
    project.write("old/s/0/plan.json", "{}")
    found = problems(project, BASE + outside + aliases + '[profiles.p]\nmcp_servers = ["s"]\n')
    assert "holds results of other runs, which the agent would see" in found[0]


def test_what_never_goes_to_the_agent_holds_no_answers(project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.server("s", folder=".")
    project.task(".venv/lib/tasks", "a")
    items = BASE.replace('{ id = "a" }', '{ id = "a", dataset = ".venv/lib/tasks" }')
    text = '[run]\nresults_root = "../results"\n[mcp.aliases]\ns = "."\n[profiles.p]\nmcp_servers = ["s"]\n'
    assert good(project, items + text).profiles[0].local_servers()
    monkeypatch.setattr("terminalbench.experiments.mcp.source_files", lambda _: [Path("/app/plan.json")])
    assert held_in(Path("/app"), {}) is None


def test_a_skill_is_handed_over_as_it_is(project) -> None:
    project.write("SKILL.md", "x")
    found = problems(project, BASE + '[profiles.p]\nno_mcp = true\nskills = ["."]\n')
    assert len(found) == 1
    assert found[0].startswith("profiles.p.skills[0]: ")
    assert found[0].endswith("holds the results, which the agent would see (give the skill a separate folder)")
    project.write("skill/SKILL.md", "x")
    text = 'no_mcp = true\nskills = ["skill"]'
    before = one(project, text).id
    project.write("skill/__pycache__/a.pyc", "x")
    assert one(project, text).id == before
    project.write("skill/.env.example", "x")
    assert one(project, text).id != before


def test_a_cleared_source_takes_its_inherited_ref_along(project) -> None:
    project.server("s")
    text = '[defaults]\nmcp_git_source = "https://example.com/r"\nmcp_git_ref = "v1"\n'
    found = good(project, BASE + text + '[profiles.p]\nmcp_servers = ["s"]\nmcp_git_source = ""\n').profiles[0]
    assert (found.mcp_git_source, found.mcp_git_ref) == (None, None)


def test_what_is_uploaded_of_a_server_is_what_its_id_counts(project, tmp_path) -> None:
    project.server("s")
    kept = ("server.py", "results/plan.json", ".envrc", "lib/venvs.py", ".terminalbench/x")
    left = (".env", ".env.local", "x.pyc", ".hg/x", ".tox/x", "lib/.nox/x", ".git/x", "venv/x", "lib/__pycache__/y")
    for name in (*kept, *left):
        project.write(f"s/{name}", "before")
    shutil.copytree(project.root / "s", tmp_path / "up", ignore=shutil.ignore_patterns(*NOT_SOURCE))
    uploaded = {path.relative_to(tmp_path / "up") for path in (tmp_path / "up").rglob("*") if path.is_file()}
    assert uploaded == {path.relative_to(project.root / "s") for path in source_files(project.root / "s")}
    assert uploaded == {Path(name) for name in (".mcp.json", *kept)}
    before = one(project, 'mcp_servers = ["s"]').id
    project.write(f"s/{left[0]}", "after")
    assert one(project, 'mcp_servers = ["s"]').id == before
    project.write(f"s/{kept[1]}", "after")
    assert one(project, 'mcp_servers = ["s"]').id != before


def test_headers_that_would_be_lost_are_refused(project) -> None:
    project.write(
        "s/.mcp.json", '{"mcpServers": {"s": {"type": "http", "url": "http://x/", "headers": {"A": "${B}"}}}}'
    )
    assert one(project, 'mcp_servers = ["s"]').mcp.servers["s"]["headers"] == {"A": "${B}"}
    found = problems(project, BASE + '[profiles.p]\nagent = "codex"\nmcp_servers = ["s"]\n')
    assert 'server "s" has headers' in found[0]


def test_a_server_defined_twice_in_one_file(project) -> None:
    project.write("s/.mcp.json", '{"mcpServers": {"s": {"command": "a"}, "s": {"command": "b"}}}')
    assert '"s" is defined twice' in problems(project, BASE + '[profiles.p]\nmcp_servers = ["s"]\n')[0]


def test_an_unpinned_source_is_noted(project) -> None:
    project.server("s")
    text = '[profiles.p]\nmcp_servers = ["s"]\nmcp_git_source = "https://example.com/x"\n'
    assert any("mcp_git_ref is not set" in note for note in good(project, BASE + text).notes)
    assert not good(project, BASE + text + 'mcp_git_ref = "abc"\n').notes

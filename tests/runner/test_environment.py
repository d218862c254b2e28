from pathlib import Path

import pytest

from support.experiments import BASE, good
from terminalbench.errors import UserError
from terminalbench.experiments.envfile import read_env_file
from terminalbench.runner.environment import child_environment

SHELL = {
    "PATH": "/usr/bin", "HOME": "/h", "LANG": "C", "LC_ALL": "C", "HTTPS_PROXY": "p", "SSL_CERT_FILE": "c",
    "OPENAI_API_KEY": "other", "A_KEY": "shell", "SECRET": "s", "HARBOR_TELEMETRY": "on", "PYTHONPATH": "/x::lib", "TERMINALBENCH_X": "1",
}  # fmt: skip


def env(project, text: str) -> dict[str, str]:
    profile = good(project, f"{BASE}[profiles.p]\n{text}").profiles[0]
    return child_environment(profile, project.root, SHELL)


def test_only_what_is_named_goes_in(project) -> None:
    found = env(project, 'no_mcp = true\nenv = ["A_KEY"]')
    assert found["A_KEY"] == "shell"
    assert "OPENAI_API_KEY" not in found
    assert "SECRET" not in found
    assert {"PATH", "HOME", "LANG", "LC_ALL", "HTTPS_PROXY", "SSL_CERT_FILE", "TERMINALBENCH_X"} <= set(found)


def test_telemetry_is_off_and_prices_are_local(project) -> None:
    found = env(project, "no_mcp = true")
    assert found["HARBOR_TELEMETRY"] == "off"
    assert found["LITELLM_LOCAL_MODEL_COST_MAP"] == "True"


def test_the_env_file_wins_over_the_shell(project) -> None:
    project.write("experiments/.env", "A_KEY=file\nEXTRA=1\n")
    found = env(project, 'no_mcp = true\nenv = ["A_KEY"]')
    assert (found["A_KEY"], found["EXTRA"]) == ("file", "1")


def test_variables_of_mcp_configurations_go_in(project) -> None:
    project.write("s/.mcp.json", '{"mcpServers": {"s": {"command": "x", "env": {"K": "${SECRET}"}}}}')
    assert env(project, 'mcp_servers = ["s"]')["SECRET"] == "s"


def test_the_project_is_on_pythons_path_only_for_its_own_parts(project) -> None:
    own = f"/x:{Path.cwd() / 'lib'}"  # a job starts in another folder
    assert env(project, "no_mcp = true")["PYTHONPATH"] == own
    assert env(project, 'agent = "mine.agent:Agent"')["PYTHONPATH"] == f"{project.root}:{own}"


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("A=b", "b"),
        ("export A=b", "b"),
        ("A = b ", "b"),
        ("A='b c'", "b c"),
        ('A="b\\nc"', "b\nc"),
        ("A='b\\nc'", "b\\nc"),
        ("A=b # comment", "b"),
        ("A=b#c", "b#c"),
        ("A=", ""),
        ("A=b=c", "b=c"),
        ("\ufeffA=b", "b"),
        ("# x\r\nA=b\r", "b"),
    ],
)
def test_env_files_as_people_write_them(tmp_path: Path, line: str, value: str) -> None:
    file = tmp_path / ".env"
    file.write_bytes(line.encode() + b"\n")
    assert read_env_file(file) == {"A": value}


def test_a_line_that_is_none_is_named_without_its_content(tmp_path: Path) -> None:
    file = tmp_path / ".env"
    file.write_text("A=1\nsecret value\n")
    with pytest.raises(UserError, match=r"\.env:2: is not NAME=value") as caught:
        read_env_file(file)
    assert "secret value" not in str(caught.value)

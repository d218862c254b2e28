"""Commands and settings as they reach the sandbox: pure functions, exact results."""

import pytest

from terminalbench.experiments.claude_settings import (
    AmbiguousCommand,
    Location,
    Locations,
    digest,
    merge_settings,
    render_command,
    render_hooks,
    render_servers,
    required_variables,
)

PACKAGE = Location(
    python="/opt/tbench-mcp/venv/bin/python",
    folder="/opt/tbench-mcp/src",
    bin="/opt/tbench-mcp/venv/bin",
    files=frozenset({"server.py", "hooks/stamp.py"}),
)
FOLDER = Location(python="python3", folder="/opt/tbench-mcp/src", bin=None, files=frozenset({"server.py"}))
PY = PACKAGE.python
SRC = PACKAGE.folder


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("uv run python hooks/stamp.py log", f"{PY} {SRC}/hooks/stamp.py log"),
        ("uv  run python3 -m lab.hook", f"{PY} -m lab.hook"),
        ("python ./server.py", f"{PY} {SRC}/server.py"),
        ("python3 -u server.py", f"{PY} -u {SRC}/server.py"),
        ("python -X dev server.py", f"{PY} -X dev {SRC}/server.py"),
        ("python -c 'print(1)'", f"{PY} -c 'print(1)'"),
        ("python -m server.py", f"{PY} -m server.py"),
        ("python", PY),
        ("cd /x && A=1 python server.py; python elsewhere.py", f"cd /x && A=1 {PY} {SRC}/server.py; {PY} elsewhere.py"),
        ("bash -c 'uv run python server.py'", f"bash -c '{PY} {SRC}/server.py'"),
        ("echo $(python server.py)", f"echo $({PY} {SRC}/server.py)"),
        ("{mcp_python} {mcp_dir}/x.py {mcp_bin}/tool", f"{PY} {SRC}/x.py {PACKAGE.bin}/tool"),
        ("{mcp_python} server.py", f"{PY} {SRC}/server.py"),
        ("echo python is nice", "echo python is nice"),
        ("python3.12 server.py", "python3.12 server.py"),
        ("/usr/bin/python server.py", "/usr/bin/python server.py"),
        ("pythonic server.py", "pythonic server.py"),
        ("uv run mytool", "uv run mytool"),
    ],
)
def test_shell_commands_are_rewritten(command: str, expected: str) -> None:
    assert render_command(command, PACKAGE) == expected


def test_without_a_source_commands_stay_as_written() -> None:
    assert render_command("uv run python x.py && python y.py", None) == "uv run python x.py && python y.py"
    assert render_command("{mcp_python} x.py", None) == "python3 x.py"


@pytest.mark.parametrize(
    ("server", "expected"),
    [
        (
            {"command": "uv", "args": ["run", "python", "-m", "lab.server", "--fast"]},
            {"command": PY, "args": ["-m", "lab.server", "--fast"]},
        ),
        ({"command": "uv", "args": ["run", "python3", "server.py"]}, {"command": PY, "args": [f"{SRC}/server.py"]}),
        ({"command": "python", "args": ["-u", "./server.py"]}, {"command": PY, "args": ["-u", f"{SRC}/server.py"]}),
        (
            {"command": "python3", "args": ["-X", "dev", "server.py", "server.py"]},
            {"command": PY, "args": ["-X", "dev", f"{SRC}/server.py", "server.py"]},
        ),
        ({"command": "{mcp_python}", "args": ["server.py"]}, {"command": PY, "args": [f"{SRC}/server.py"]}),
        ({"command": "python"}, {"command": PY, "args": []}),
        (
            {"command": "{mcp_bin}/lab", "args": ["{mcp_dir}"], "env": {"P": "{mcp_python}", "T": "${TOKEN}"}},
            {"command": f"{PACKAGE.bin}/lab", "args": [SRC], "env": {"P": PY, "T": "${TOKEN}"}},
        ),
        ({"command": "npx", "args": ["python"]}, {"command": "npx", "args": ["python"]}),
        (
            {"command": "python", "args": ["server.py"], "cwd": "data", "transport": "stdio"},
            {"command": "sh", "args": ["-c", 'cd "$0" && exec "$@"', f"{SRC}/data", PY, f"{SRC}/server.py"]},
        ),
        (
            {"command": "x", "cwd": "/srv"},
            {"command": "sh", "args": ["-c", 'cd "$0" && exec "$@"', "/srv", "x"]},
        ),
        ({"url": "http://host/mcp"}, {"type": "http", "url": "http://host/mcp"}),
        ({"url": "u", "transport": "streamable-http"}, {"type": "http", "url": "u"}),
        ({"url": "u", "transport": "sse"}, {"type": "sse", "url": "u"}),
        (
            {"type": "http", "url": "http://host/mcp", "headers": {"Authorization": "Bearer ${TOKEN}"}},
            {"type": "http", "url": "http://host/mcp", "headers": {"Authorization": "Bearer ${TOKEN}"}},
        ),
    ],
)
def test_servers_are_rewritten(server: dict, expected: dict) -> None:
    assert render_servers({"lab": server}, Locations(PACKAGE)) == {"lab": expected}


def test_a_folder_without_a_package_runs_with_the_system_python() -> None:
    rendered = render_servers({"lab": {"command": "uv", "args": ["run", "python", "server.py"]}}, Locations(FOLDER))
    assert rendered == {"lab": {"command": "python3", "args": ["/opt/tbench-mcp/src/server.py"]}}


def test_only_commands_of_hooks_are_rewritten() -> None:
    hooks = {"PreToolUse": [{"matcher": "python", "hooks": [{"type": "command", "command": "python server.py"}]}]}
    rendered = render_hooks(hooks, Locations(PACKAGE))
    assert rendered["PreToolUse"][0]["matcher"] == "python"
    assert rendered["PreToolUse"][0]["hooks"][0]["command"] == f"{PY} {SRC}/server.py"
    assert hooks["PreToolUse"][0]["hooks"][0]["command"] == "python server.py", "the input is not changed"


A = Location("/a/venv/bin/python", "/a/src", "/a/venv/bin", frozenset({"server.py", "hooks/a.py"}))
B = Location("python3", "/b/src", None, frozenset({"server.py", "hooks/b.py"}))
BOTH = Locations(by_server={"a": A, "b": B, "also-b": B})


def test_each_server_runs_from_its_own_source() -> None:
    server = {"command": "python", "args": ["server.py"], "env": {"DIR": "{mcp_dir}"}}
    rendered = render_servers({"a": server, "b": server, "c": server}, BOTH)
    assert rendered["a"] == {"command": "/a/venv/bin/python", "args": ["/a/src/server.py"], "env": {"DIR": "/a/src"}}
    assert rendered["b"] == {"command": "python3", "args": ["/b/src/server.py"], "env": {"DIR": "/b/src"}}
    assert rendered["c"] == {"command": "python", "args": ["server.py"], "env": {"DIR": "{mcp_dir}"}}


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("uv run python hooks/a.py", "/a/venv/bin/python /a/src/hooks/a.py"),
        ("python hooks/b.py", "python3 /b/src/hooks/b.py"),
        ("echo done", "echo done"),
    ],
)
def test_with_several_sources_a_hook_runs_from_the_one_that_has_its_script(command: str, expected: str) -> None:
    assert render_hooks({"Stop": [{"command": command}]}, BOTH) == {"Stop": [{"command": expected}]}


@pytest.mark.parametrize("command", ["python server.py", "python -m a.hook", "{mcp_dir}/run"])
def test_with_several_sources_a_hook_that_fits_more_than_one_is_refused(command: str) -> None:
    with pytest.raises(AmbiguousCommand, match="could belong to any of /a/src, /b/src"):
        render_hooks({"Stop": [{"command": command}]}, BOTH)


def test_settings_keep_what_the_user_has() -> None:
    base = {
        "model": "x",
        "hooks": {"Stop": [{"hooks": [1]}]},
        "permissions": {"deny": ["WebFetch"], "allow": ["Bash", "mcp__lab"]},
    }
    merged = merge_settings(base, {"Stop": [{"hooks": [2]}], "SessionStart": [{}]}, ["lab", "my server"])
    assert merged == {
        "model": "x",
        "hooks": {"Stop": [{"hooks": [1]}, {"hooks": [2]}], "SessionStart": [{}]},
        "permissions": {"deny": ["WebFetch"], "allow": ["Bash", "mcp__lab", "mcp__my_server"]},
    }
    assert base["permissions"]["allow"] == ["Bash", "mcp__lab"], "the input is not changed"


def test_nothing_asked_for_is_no_settings() -> None:
    assert merge_settings({}, {}, []) == {}


def test_required_variables_are_those_without_a_default() -> None:
    servers = {"a": {"env": {"X": "${B}-${A}", "Y": "${C:-none}"}, "headers": {"H": "Bearer ${A}"}}, "b": {"url": "x"}}
    assert required_variables(servers) == ["A", "B"]


def test_a_digest_does_not_depend_on_the_order_of_keys() -> None:
    assert digest({"a": 1, "b": [2]}) == digest({"b": [2], "a": 1}) != digest({"a": 1, "b": [3]})
    assert digest("text") == "982d9e3eb996f559e633f4d194def3761d909f5a3b647d1a851fead67c32c9d1"

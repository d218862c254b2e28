"""Real clients through `tbench`: Claude Code with the example's MCP server, models that answer or do not, Harbor's viewer."""

import json
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from conftest import REPO
from servers.anthropic import AnthropicServer
from servers.base import Tokens, Turn
from servers.mcp_package import LAB
from servers.openai import OpenAIServer
from support.judging import point, recorded
from support.tasks import SOLVE, write_task
from support.tools import CLAUDE
from terminalbench.experiments.plan import Plan, PlannedTask
from terminalbench.harbor.read.results import read_job
from terminalbench.json_files import read_json, read_jsonl
from terminalbench.records.trial import Finding

VERSION = json.loads((REPO / "tests/clients/package.json").read_text())["optionalDependencies"][
    "@anthropic-ai/claude-code-linux-x64"
]
SCRIPT = [
    Turn("I note it.", [("mcp__notes__write_note", {"text": "found it"})], Tokens(1000, 0, 0, 50)),
    Turn("", [("Bash", {"command": SOLVE, "description": "Write the file"})], Tokens(1100, 0, 0, 60)),
    Turn("Done.", (), Tokens(1200, 0, 0, 70)),
]


@pytest.fixture
def mounts() -> str:
    """The argument that puts the pinned CLI into the sandbox."""
    binary = str(CLAUDE.path())
    return json.dumps([{"type": "bind", "source": binary, "target": "/usr/local/bin/claude", "read_only": True}])


def claude_profiles(url: str) -> str:
    return f"""
[mcp.aliases]
notes = "notes_server"
[defaults]
model = "claude-sonnet-4-5"
agent_version = "{VERSION}"
env = {{ ANTHROPIC_API_KEY = "${{ANTHROPIC_API_KEY}}", ANTHROPIC_BASE_URL = "{url}" }}
[profiles.notes]
mcp_servers = ["notes"]
hooks = "notes_server/hooks.json"
[artifacts]
targets = ["notes"]
"""


def _found(lab, trial: str) -> dict[str, Finding]:
    """The findings about one trial by their names."""
    said = read_jsonl(lab.batch().analytics / "findings.jsonl", Finding).records
    return {finding.name: finding for finding in said if finding.trial.endswith(f"/{trial}")}


def _assert_analysed(lab, trial: str) -> None:
    """What `tbench analyze` finds in the trajectory of the real client."""
    done = lab.tbench("analyze", lab.root / "experiments" / "exp.toml")
    assert done.returncode == 0, done.stdout + done.stderr
    found = _found(lab, trial)
    names = ("success", "tool_calls", "mcp_calls", "mcp_tools", "native_calls", "tool_errors", "files_written")
    assert [found[name].value for name in names] == [True, 2, 1, "mcp__notes__write_note", 1, 0, 1]
    assert (found["cost_source"].value, found["output_tokens"].value) == ("claude-code", 180)
    assert found["trajectory_problems"].value == 0
    assert found["first_edit_sec"].value is not None
    assert found["context_peak_tokens"].value == 1200


def _assert_judged(lab, trial: str) -> None:
    """What the tools of the real client returned reaches the judge: a quote of it is found in its step."""
    said = {
        "mcp_use": point("helpful", (2, '"text": "noted"')),
        "mcp_first_use": point("early", (2, "mcp__notes__write_note")),
        "mcp_missed_opportunity": {"value": None, "reason": "nowhere"},
    }
    model = recorded(lab.root / "answers.jsonl", {"mcp_use": said})
    file = lab.root / "experiments" / "exp.toml"
    done = lab.tbench("analyze", file, "--llm-only", "--model", model, "--rubric", "mcp_use")
    assert done.returncode == 0, done.stdout + done.stderr
    found = _found(lab, trial)
    assert (found["mcp_use"].value, found["mcp_use"].steps) == ("helpful", [2])
    assert found["mcp_first_use"].value == "early"
    assert found["tool_calls"].value == 2, "the analyzers' findings stay"


def _assert_same_built_in_tools(lab, file: Path, server: AnthropicServer) -> None:
    """What differs between the profiles is the treatment: the server's tools, and nothing of Claude Code or the workspace."""
    offered = [sorted(tool["name"] for tool in request.body["tools"]) for request in server.main_requests]
    with_server = [tools for tools in offered if any(name.startswith("mcp__notes__") for name in tools)]
    without = [tools for tools in offered if tools not in with_server]
    assert with_server
    assert without
    assert {tuple(n for n in tools if not n.startswith("mcp__notes__")) for tools in offered} == {tuple(without[0])}
    shown = lab.tbench("diff", file, "plain", "notes").stdout
    assert "mcp_servers.notes" in shown
    assert "conditions" not in shown
    assert "built-in tools" not in lab.tbench("compare", file).stdout


def test_claude_code_with_and_without_the_examples_server(lab, mounts: str) -> None:
    """In a workspace with a server of its own, which nobody asked for."""
    place = lab.root / "tasks" / "a" / "environment"
    (place / ".mcp.json").write_text('{"mcpServers": {"found": {"command": "python3", "args": ["/app/server.py"]}}}')
    shutil.copy(LAB / "server.py", place / "server.py")
    (place / "Dockerfile").write_text("FROM debian:bookworm-slim\nWORKDIR /app\nCOPY .mcp.json server.py /app/\n")
    shutil.copytree(
        REPO / "examples" / "notes_server", lab.root / "notes_server", ignore=shutil.ignore_patterns("__pycache__")
    )
    lab.env["ANTHROPIC_API_KEY"] = "sk-ant-scripted"
    with AnthropicServer(SCRIPT, pace_sec=0.6) as server:
        run = f"harbor_args = ['--mounts', '{mounts}']"
        profiles = claude_profiles(server.url) + "[profiles.plain]\nno_mcp = true\n"
        file = lab.experiment(profiles, tasks=("a",), run=run)
        ran = lab.tbench("run", file)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    (job,) = (folder for folder in lab.batch().runs.glob("*__notes") if folder.is_dir())
    trial = next(r.trial for r in read_job(job) if r.trial)
    assert (trial.outcome, trial.agent, trial.agent_version) == ("passed", "claude-code", VERSION)
    assert (trial.usage.input_tokens, trial.usage.output_tokens) == (3300, 180)
    assert trial.usage.cost_usd == pytest.approx((3300 * 3 + 180 * 15) / 1e6)
    assert trial.delivery.mcp_configured == ["notes"]
    assert trial.delivery.mcp_connected == ["notes"]
    assert trial.delivery.mcp_calls == {"mcp__notes__write_note": 1}
    assert trial.delivery.hooks_fired
    assert trial.delivery.prompt_delivered
    assert not trial.suspect
    assert (lab.batch().artifacts / "notes" / trial.name / "notes.md").read_text() == "- found it\n"
    _assert_same_built_in_tools(lab, file, server)
    _assert_analysed(lab, trial.name)
    _assert_judged(lab, trial.name)
    shown = lab.tbench("show", trial.name).stdout
    assert "MCP       notes; connected: notes; calls: 1" in shown
    assert f"had       model claude-sonnet-4-5, CLI {VERSION}, permission mode bypassPermissions (from its" in shown
    assert "tools of notes: " in shown
    for file in (lab.root / "results").rglob("*"):
        assert not file.is_file() or b"sk-ant-scripted" not in file.read_bytes(), file


def test_check_installs_the_agent_and_asks_the_model(lab, mounts: str) -> None:
    shutil.copytree(
        REPO / "examples" / "notes_server", lab.root / "notes_server", ignore=shutil.ignore_patterns("__pycache__")
    )
    lab.env["ANTHROPIC_API_KEY"] = "sk-ant-scripted"
    run = f"harbor_args = ['--mounts', '{mounts}']"
    with AnthropicServer([Turn("ok", (), Tokens(10, 0, 0, 1))]) as server:
        file = lab.experiment(claude_profiles(server.url), tasks=("a",), run=run)
        ran = lab.tbench("check", file, "--json")
        assert ran.returncode == 0, ran.stdout + ran.stderr
        profile = json.loads(ran.stdout)["profiles"][0]
        assert (profile["install"], profile["endpoint"], profile["problem"]) == ("ok", "ok", None)
    ran = lab.tbench("check", file)
    assert ran.returncode == 1
    assert "notes    ok       failed  problem" in ran.stdout
    assert "notes: model: " in ran.stdout
    assert "sk-ant-scripted" not in ran.stdout + ran.stderr


def test_check_asks_openai_compatible_models(lab) -> None:
    with OpenAIServer([Turn("ok", (), Tokens(10, 0, 0, 1))]) as server:
        profile = f'[profiles.t]\nagent = "terminus-2"\nmodel = "openai/fake"\noptions = {{ api_base = "{server.url}/v1" }}\nenv = ["OPENAI_API_KEY"]\n'
        lab.env["OPENAI_API_KEY"] = "sk-scripted-0123456789"
        ran = lab.tbench("check", lab.experiment(profile, tasks=("a",)), "--json")
    assert ran.returncode == 0, ran.stdout
    assert json.loads(ran.stdout)["profiles"][0]["endpoint"] == "ok"


def test_tasks_of_a_registry_address_are_looked_up_and_keep_their_place(lab) -> None:
    """They are brought here and pinned; a batch goes on with them, and a later run finds them without the registry."""
    lab.env["XDG_CACHE_HOME"] = str(lab.root.parent / "cache")
    from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
    from threading import Thread

    repository = lab.root / "repository"
    write_task(repository / "sets" / "g")
    git(repository, "init", "-q")
    git(repository, "add", ".")
    git(repository, "commit", "-qm", "one")
    entries = [
        {
            "name": "far",
            "version": "1.0",
            "description": "x",
            "tasks": [
                {"name": "b", "path": str(lab.root / "tasks" / "b")},
                {"name": "g", "git_url": f"file://{repository}", "path": "sets/g"},
            ],
        }
    ]

    class Registry(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(entries).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            return None

    server = ThreadingHTTPServer(("127.0.0.1", 0), Registry)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        url = f"http://127.0.0.1:{server.server_port}/registry.json"
        extra = f'[datasets."far@1.0"]\nregistry_url = "{url}"\n[profiles.o]\nagent = "oracle"\n'
        file = lab.experiment(extra, run="parallel = 1")
        file.write_text(
            file.read_text().replace(
                '[{ id = "a" }, { id = "b" }]',
                '[{ id = "b", dataset = "far@1.0" }, { id = "a" }, { id = "g", dataset = "far@1.0" }]',
            )
        )
        assert "looked up in the registry" in lab.tbench("plan", file).stdout
        ran = lab.tbench("run", file)
        assert ran.returncode == 0, ran.stderr
        assert [(e.dataset, e.task) for e in lab.events() if e.kind == "trial_started"] == [
            ("far@1.0", "b"),
            ("tasks", "a"),
            ("far@1.0", "g"),
        ]
        commit = git(repository, "rev-parse", "HEAD")
        (fetched,) = [task for task in _planned(lab) if task.ref.id == "g"]
        assert fetched.config["git_commit_id"] == commit, "what had no pin has one now"
        assert fetched.folder is not None
        (repository / "sets" / "g" / "tests" / "test.sh").write_text("exit 1\n")
        git(repository, "commit", "-qam", "two")
        shutil.rmtree(fetched.folder)
        assert lab.tbench("resume", lab.batch().folder, "--attempts", "2").returncode == 0
        assert lab.outcomes()["o", "g"] == ["passed", "passed"], "a batch goes on with the task that it began with"
        known = file.read_text()
        file.write_text(known.replace('id = "b"', 'id = "bb"'))
        ran = lab.tbench("run", file)
        assert ran.returncode == 2
        assert 'dataset far@1.0: has no task "bb" (did you mean "b"?)' in ran.stderr or "known: b" in ran.stderr
    finally:
        server.shutdown()
        server.server_close()
    file.write_text(known)
    ran = lab.tbench("run", file, "--tasks", "b")
    assert ran.returncode == 0, ran.stderr
    assert "dataset far@1.0 is used as found on" in ran.stderr
    shutil.rmtree(lab.root.parent / "cache" / "terminalbench" / "datasets")
    ran = lab.tbench("run", file)
    assert ran.returncode == 2
    assert "its tasks could not be looked up" in ran.stderr
    shutil.rmtree(Path(fetched.folder).parent)


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", folder, "-c", "user.name=t", "-c", "user.email=t@t", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=600).stdout.strip()


def _planned(lab) -> tuple[PlannedTask, ...]:
    return read_json(lab.batch().plan_json, Plan).jobs[0].tasks


def test_harbors_own_viewer_opens_a_batch(done) -> None:
    lab, jobs = done.lab, None
    for _ in range(5):  # its port may be taken while it starts
        jobs = jobs or _viewed_jobs(lab)
    assert jobs is not None
    listed = jobs if isinstance(jobs, list) else jobs["items"]
    assert sorted(entry["name"] for entry in listed) == sorted(p.name for p in lab.batch().runs.iterdir() if p.is_dir())


def _viewed_jobs(lab) -> Any:
    """What Harbor's viewer lists; None if it ended."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    harbor = Path(sys.executable).parent / "harbor"
    viewer = subprocess.Popen(
        [harbor, "view", lab.batch().runs, "--port", str(port)],
        env={**lab.env, "HARBOR_TELEMETRY": "off"}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        while viewer.poll() is None:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/jobs", timeout=5) as answer:
                    return json.loads(answer.read())
            except (urllib.error.URLError, OSError, ValueError):
                time.sleep(0.2)
        return None
    finally:
        viewer.terminate()
        viewer.wait(30)

"""Models of a night in real batches: a local model by its agent, and Claude Code apart from what is the user's."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from test_run_clients import VERSION

from servers.anthropic import AnthropicServer
from servers.base import Turn
from servers.ollama import OllamaServer
from support.tasks import SOLVE
from support.tools import CLAUDE
from terminalbench.experiments.write import write_experiment
from terminalbench.json_files import read_jsonl
from terminalbench.overnight.models import check_model, parse_model, profile_of
from terminalbench.overnight.suite import load_suite
from terminalbench.records.event import Event

CANARY = "canary-of-the-user"


def _suite(lab: Any, run: dict[str, Any]) -> Path:
    task = {"id": "a", "path": "tasks/a", "category": "text", "timeout_seconds": 120}
    suite = {"name": "one", "version": "1", "run": {"container_env": "local", **run}, "tasks": [task]}
    return lab.project.write("suite.json", json.dumps(suite))


def _run(lab: Any, made: Any, name: str, seed: int) -> Any:
    file = lab.root / f"{name}.toml"
    write_experiment(replace(made, slug=name, run=replace(made.run, seed=seed)), file)
    ran = lab.tbench("run", file, "--json")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return json.loads((lab.root / "results" / name / "0" / "plan.json").read_text())


def test_a_local_model_passes_and_each_iteration_and_attempt_has_a_seed_of_its_own(lab: Any) -> None:
    script = [Turn(tools=[("bash", {"command": SOLVE})]), Turn(tools=[("finish", {})])]
    model = parse_model("ollama:small:1b")
    with OllamaServer(script, model="small:1b", pace_sec=0.3) as server:
        facts = check_model(model, ollama_endpoint=server.url)
        asked = len(server.native_chats)
        made = load_suite(_suite(lab, {"attempts": 2}), root=lab.root).with_profiles(
            {model.key: profile_of(model, facts=facts)}
        )
        plans = [_run(lab, made, f"night-{seed}", seed) for seed in (100, 200)]
        seeds = [request.body["options"]["seed"] for request in server.native_chats[asked:]]
    assert sorted({*seeds}) == [100, 101, 200, 201]
    assert plans[0]["profiles"][0]["id"] == plans[1]["profiles"][0]["id"], "the seed is no part of the profile"
    assert plans[0]["jobs"][0]["tasks"][0]["timeout_sec"] == 120
    rows = json.loads(lab.tbench("list", "--json").stdout)
    assert [row["cost_usd"] for row in rows] == [0, 0], rows


def test_nothing_of_the_users_own_reaches_claude_code(lab: Any, tmp_path: Path) -> None:
    home = tmp_path / "home"
    hook = {"hooks": [{"type": "command", "command": f"touch {tmp_path}/hooked"}]}
    server = {"command": "touch", "args": [f"{tmp_path}/served"]}
    own = {
        ".claude/settings.json": json.dumps({"hooks": {"SessionStart": [hook], "UserPromptSubmit": [hook]}, "env": {"OWN": CANARY}}),
        ".claude/CLAUDE.md": f"Always say {CANARY}.",
        ".claude/agents/mine.md": f"---\nname: mine\ndescription: {CANARY}\n---\nx",
        ".claude/skills/mine/SKILL.md": f"---\nname: mine\ndescription: {CANARY}\n---\nx",
        ".claude.json": json.dumps({"mcpServers": {CANARY: server}}),
        "CLAUDE.md": f"Always say {CANARY}.",
        ".mcp.json": json.dumps({"mcpServers": {CANARY: server}}),
    }  # fmt: skip
    for folder in (home, lab.root):
        for name, text in own.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
    with AnthropicServer([Turn(tools=[("Bash", {"command": SOLVE})]), Turn("Done.")]) as provider:
        lab.env |= {"HOME": str(home), "ANTHROPIC_API_KEY": "sk-ant-scripted", "ANTHROPIC_BASE_URL": provider.url}
        mount = {"type": "bind", "source": str(CLAUDE.path()), "target": "/usr/local/bin/claude", "read_only": True}
        suite = load_suite(_suite(lab, {"harbor_args": ["--mounts", json.dumps([mount])]}), root=lab.root)
        model = parse_model("claude-code:claude-sonnet-4-5")
        environment = {**lab.env, "PATH": f"{CLAUDE.path().parent}{os.pathsep}{os.environ['PATH']}"}
        facts = check_model(model, harbor_args=suite.tables["run"]["harbor_args"], environment=environment)
        assert facts["login"] == "ANTHROPIC_API_KEY"
        assert "sonnet" in facts["answered"]
        table = profile_of(model, environment=environment) | {"agent_version": VERSION}
        _run(lab, suite.with_profiles({model.key: table}), "night", 1)
        told = [json.dumps(request.body) for request in provider.requests]
    assert sum("tool_use" in text for text in told) >= 1
    assert not [text for text in told if CANARY in text]
    assert not (tmp_path / "hooked").exists()
    assert not (tmp_path / "served").exists()


@pytest.mark.model
@pytest.mark.timeout(3600)
def test_a_real_model_works_through_its_server(lab: Any) -> None:
    """TBENCH_TEST_OLLAMA=http://127.0.0.1:11434 TBENCH_TEST_MODEL=ollama:NAME:TAG pytest --run-model"""
    spec, endpoint = os.environ.get("TBENCH_TEST_MODEL", ""), os.environ.get("TBENCH_TEST_OLLAMA")
    if not spec.startswith("ollama:"):
        pytest.skip("TBENCH_TEST_MODEL names no model of an Ollama server")
    model = parse_model(f"{spec},max_turns=6,answer_tokens=256,num_ctx=4096")
    facts = check_model(model, ollama_endpoint=endpoint)
    made = load_suite(_suite(lab, {"agent_timeout_sec": 3000}), root=lab.root)
    made = made.with_profiles({model.key: profile_of(model, facts=facts)})
    file = lab.root / "night.toml"
    write_experiment(replace(made, slug="night"), file)
    ran = lab.tbench("run", file)
    events = read_jsonl(lab.root / "results" / "night" / "0" / "events.jsonl", Event).records
    [ended] = [event for event in events if event.kind == "trial_ended"]
    assert ended.outcome in ("passed", "failed", "timed_out"), ran.stdout + ran.stderr
    [trajectory] = (lab.root / "results" / "night").glob("0/runs/*/*/agent/trajectory.json")
    document = json.loads(trajectory.read_text())
    served = [step["metrics"]["completion_tokens"] for step in document["steps"] if step["source"] == "agent"]
    assert served
    assert all(served)
    print(f"{spec}: {ended.outcome}, {document['extra']}, {sum(served)} tokens out")

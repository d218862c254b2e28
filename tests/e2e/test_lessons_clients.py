"""Lessons through the real Claude Code CLI and through a guarded workflow: what their model servers received."""

import json
from typing import Any

import pytest

from servers.anthropic import AnthropicServer
from servers.base import Turn
from servers.workflow import Asked, WorkflowServer
from support.tasks import write_repository_task
from support.tools import CLAUDE
from terminalbench.index.exposures import exposed_trials

LESSON = 'Read {{ the }} first error, `then` "the last": naïve café $HOME 100% it\'s <b>not</b> the {same}.'
INSTRUCTION = "SCENARIO calc: `add(2, 3)` of calc.py returns -1, it should be 5."
WORKFLOW = """
name = "alone"
[steps.patch]
generator = "patch"
guards = ["patch"]
prompt = "Mend it."
"""
PROFILES = """
[profiles.claude]
agent = "claude-code"
model = "claude-sonnet-4-5"
agent_version = "{version}"
no_mcp = true
env = {{ ANTHROPIC_API_KEY = "${{ANTHROPIC_API_KEY}}", ANTHROPIC_BASE_URL = "{claude}" }}
lessons = {{ withhold = 0.0 }}
[profiles.arm]
agent = "guarded"
workflow = "alone.toml"
model = "openai/scripted"
options = {{ base_url = "{guarded}/v1", tries = 2 }}
lessons = {{ withhold = 0.0 }}
"""
MEND = Turn("", [("Bash", {"command": "sed -i 's/a - b/a + b/' /app/calc.py", "description": "Mend it"})])


def patch(_: Asked) -> dict[str, Any]:
    edit = {"action": "modify", "path": "calc.py", "search": "a - b", "replace": "a + b"}
    return {"edits": [edit], "reasoning": "so"}


def texts(content: Any) -> list[str]:
    """The texts of a message as the Messages API has them."""
    return [content] if isinstance(content, str) else [block["text"] for block in content if block["type"] == "text"]


@pytest.mark.timeout(600)
def test_a_lesson_stands_verbatim_in_what_claude_code_and_a_workflow_send(lab: Any) -> None:
    binary = CLAUDE.path()
    version = json.loads((binary.parent / "package.json").read_text())["version"]
    mount = {"type": "bind", "source": str(binary), "target": "/usr/local/bin/claude", "read_only": True}
    folder = write_repository_task(lab.root / "tasks" / "calc")
    (folder / "instruction.md").write_text(f"{INSTRUCTION}\n")
    lab.project.write("alone.toml", WORKFLOW)
    lab.env |= {"ANTHROPIC_API_KEY": "sk-ant-scripted-key", "OPENAI_API_KEY": "sk-scripted-key"}
    assert lab.tbench("memory", "add", "--by", "ann", "--do", LESSON).returncode == 0
    with AnthropicServer([MEND, Turn("Done.")]) as claude, WorkflowServer(patch) as guarded:
        profiles = PROFILES.format(version=version, claude=claude.url, guarded=guarded.url)
        run = f"harbor_args = ['--mounts', '{json.dumps([mount])}']"
        ran = lab.tbench("run", lab.experiment(profiles, tasks=("calc",), run=run))
    assert ran.returncode == 0, ran.stdout + ran.stderr

    first = claude.main_requests[0].body["messages"][0]
    assert first["role"] == "user"
    (prompt,) = [text for text in texts(first["content"]) if INSTRUCTION in text]
    assert f"\n\nDo: {LESSON}\n</lessons-" in prompt
    assert prompt.index(LESSON) < prompt.index(INSTRUCTION)
    assert guarded.asked
    assert all(f"Do: {LESSON}\n</lessons-" in asked.prompt for asked in guarded.asked)

    found = exposed_trials(lab.root / "results")
    assert {(one.profile, one.outcome) for one in found} == {("claude", "passed"), ("arm", "passed")}
    assert [(exposure.shown, exposure.propensity) for one in found for exposure in one.exposures] == [(True, 1.0)] * 2
    agents = json.loads(lab.tbench("query", "SELECT DISTINCT agent FROM trials ORDER BY agent", "--json").stdout)
    assert [row["agent"] for row in agents] == ["claude-code", "guarded"]
